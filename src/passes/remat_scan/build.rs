//! Carries a choice out: stacks go, stacks come, and the consumer's body makes again what it does not find.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::loops::Kind;
use crate::ir::{
    ArrayShape, Binary, CompId, CustomCall, Dim, Insertion, InstrId, Instruction, Layout, Literal, LiteralValue, Module, Op, Shape, ShapeId,
};
use crate::passes::loop_handle;
use crate::rewrite::{LoopEdit, NewElement, define_take};

use super::graph::Graph;
use super::pair::Pair;

/// What is done to a pair of loops.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// Values of the producer's body whose rows are kept; all else that the consumer needs is made again.
    pub kept: FxHashSet<InstrId>,
    /// Of these, those whose rows are kept in host memory.
    pub host: FxHashSet<InstrId>,
    /// Whether the rows that are read pass an opt-barrier before anything is made of them.
    pub barrier: bool,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// Names of values whose stacks are gone.
    pub dropped: Vec<String>,
    /// Names of values that have a stack now and had none.
    pub added: Vec<String>,
    /// Names of values whose stack lies in host memory now.
    pub host: Vec<String>,
    /// Instructions cloned into the consumer's body.
    pub clones: usize,
}

/// Rewrites the pair. `None` if something that must be made again cannot be; `module` is then half changed and to be thrown away.
pub(super) fn build(module: &mut Module, pair: &Pair, graph: &Graph, choice: &Choice) -> Option<Done> {
    let mut builder = Builder::new(module, pair);
    let mut done = Done::default();
    let mut loads: FxHashMap<InstrId, InstrId> = FxHashMap::default();
    let mut dropped = Vec::new();
    for (n, stack) in pair.stacks.iter().enumerate() {
        let value = graph.canonical(stack.value);
        if choice.host.contains(&value) && !stack.droppable {
            return None;
        }
        let stays = choice.kept.contains(&value) && !choice.host.contains(&value) && !loads.contains_key(&value);
        let goes = stack.droppable && !stays;
        if goes {
            dropped.push(n);
            done.dropped.push(module.instr(value).name.to_string());
        } else {
            let row = builder.reshaped(module, stack.slice(), module.instr(value).shape);
            loads.entry(value).or_insert(row);
        }
    }
    builder.consumer.drop = dropped.iter().map(|&n| pair.stacks[n].to).collect();
    builder.producer.drop = dropped.iter().map(|&n| pair.stacks[n].from).collect();
    let seeds: Vec<InstrId> = dropped.iter().map(|&n| graph.canonical(pair.stacks[n].value)).collect();
    let order = graph.closure(&seeds, |id| choice.kept.contains(&id) || loads.contains_key(&id));
    for &id in &order {
        if choice.kept.contains(&id) && !loads.contains_key(&id) {
            let on_host = choice.host.contains(&id);
            let row = builder.new_stack(module, id, on_host)?;
            loads.insert(id, row);
            let list = if on_host { &mut done.host } else { &mut done.added };
            list.push(module.instr(id).name.to_string());
        }
    }
    let used: Vec<InstrId> = order.iter().copied().filter(|id| loads.contains_key(id)).collect();
    let mut known: FxHashMap<InstrId, InstrId> = used.iter().map(|id| (*id, loads[id])).collect();
    if choice.barrier && !used.is_empty() {
        builder.barrier(module, &used, &mut known);
    }
    for &id in &order {
        if known.contains_key(&id) {
            continue;
        }
        let made = builder.make(module, graph, id, &known)?;
        done.clones += usize::from(!matches!(module.instr(id).op, Op::GetTupleElement { .. } | Op::Constant(_)));
        known.insert(id, made);
    }
    for &n in &dropped {
        let stack = &pair.stacks[n];
        let row = known[&graph.canonical(stack.value)];
        for read in &stack.reads {
            let shaped = builder.reshaped(module, row, module.instr(read.slice).shape);
            builder.stands.insert(read.slice, shaped);
        }
    }
    builder.finish(module, &dropped);
    Some(done)
}

struct Builder<'p> {
    pair: &'p Pair,
    taken: FxHashSet<Box<str>>,
    /// New instructions of the consumer's body.
    new: Vec<InstrId>,
    /// What stands for old instructions of the consumer's body.
    stands: FxHashMap<InstrId, InstrId>,
    consumer: LoopEdit,
    consumer_takes: Vec<InstrId>,
    producer: LoopEdit,
    producer_takes: Vec<InstrId>,
    producer_new: Vec<InstrId>,
    before_producer: Vec<InstrId>,
    after_producer: Vec<InstrId>,
}

impl<'p> Builder<'p> {
    fn new(module: &Module, pair: &'p Pair) -> Self {
        Self {
            pair,
            taken: module.names(),
            new: Vec::new(),
            stands: FxHashMap::default(),
            consumer: LoopEdit::default(),
            consumer_takes: Vec::new(),
            producer: LoopEdit::default(),
            producer_takes: Vec::new(),
            producer_new: Vec::new(),
            before_producer: Vec::new(),
            after_producer: Vec::new(),
        }
    }

    fn name(&mut self, base: &str) -> Box<str> {
        Module::fresh_name(base, &mut self.taken)
    }

    fn put(&mut self, module: &mut Module, base: &str, shape: ShapeId, op: Op, operands: &[InstrId]) -> InstrId {
        let name = self.name(base);
        let id = module.define(Instruction::new(name, shape, op, operands.iter().copied()));
        self.new.push(id);
        id
    }

    fn reshaped(&mut self, module: &mut Module, id: InstrId, shape: ShapeId) -> InstrId {
        if module.shapes.compatible(module.instr(id).shape, shape) {
            return id;
        }
        self.put(module, "reshape", shape, Op::Reshape { inferred_dimension: None }, &[id])
    }

    /// Rows pass a barrier, so that nothing made of them is merged with anything made elsewhere.
    fn barrier(&mut self, module: &mut Module, used: &[InstrId], known: &mut FxHashMap<InstrId, InstrId>) {
        let rows: Vec<InstrId> = used.iter().map(|id| known[id]).collect();
        let shapes = rows.iter().map(|&r| module.instr(r).shape).collect();
        let shape = module.shapes.intern(Shape::Tuple(shapes));
        let tuple = self.put(module, "remat_rows", shape, Op::Tuple, &rows);
        let barrier = self.put(module, "remat_barrier", shape, Op::OptBarrier, &[tuple]);
        for (index, id) in (0i64..).zip(used) {
            let shape = module.instr(known[id]).shape;
            let row = self.put(module, "remat_row", shape, Op::GetTupleElement { index }, &[barrier]);
            known.insert(*id, row);
        }
    }

    /// What stands in the consumer for a value of the producer, whose operands are known.
    fn make(&mut self, module: &mut Module, graph: &Graph, id: InstrId, known: &FxHashMap<InstrId, InstrId>) -> Option<InstrId> {
        if let Some(element) = graph.element(module, id) {
            return match self.pair.producer.elements[element].kind {
                Kind::Invariant => Some(self.invariant(module, element)),
                Kind::Linear { start: Some(start), step } => self.counter(module, id, start, step),
                Kind::Linear { start: None, .. } | Kind::Stack(_) | Kind::Carried => None,
            };
        }
        if !graph.clonable(module, id) {
            return None;
        }
        let mut clone = module.instr(id).clone();
        clone.operands = clone.operands.iter().map(|&o| known.get(&graph.canonical(o)).copied()).collect::<Option<_>>()?;
        clone.name = self.name(&format!("{}.remat", clone.name));
        clone.control_predecessors.clear();
        clone.proto_id = 0;
        let copy = module.define(clone);
        self.new.push(copy);
        Some(copy)
    }

    /// The consumer's element that carries what an invariant element of the producer does: an old one, or a new one.
    fn invariant(&mut self, module: &mut Module, element: usize) -> InstrId {
        let element = &self.pair.producer.elements[element];
        let same = |initial: InstrId| initial == element.initial || element.results.contains(&initial);
        let consumer = &self.pair.consumer;
        let shape = module.instr(element.initial).shape;
        let handle = loop_handle(consumer);
        if let Some(n) = consumer.elements.iter().position(|e| e.kind == Kind::Invariant && same(e.initial)) {
            let take = define_take(module, &handle, n, shape, &mut self.taken);
            self.new.push(take);
            return take;
        }
        self.carry(module, element.initial)
    }

    /// A new invariant element of the consumer.
    fn carry(&mut self, module: &mut Module, initial: InstrId) -> InstrId {
        let handle = loop_handle(&self.pair.consumer);
        let index = self.consumer.index_of_added(module, &handle, self.consumer.add.len());
        self.consumer.add.push(NewElement { initial, next: None });
        let take = define_take(module, &handle, index, module.instr(initial).shape, &mut self.taken);
        self.consumer_takes.push(take);
        self.new.push(take);
        take
    }

    /// A counter of the producer at the iteration that the consumer shows: from the row's number, which a reader has.
    fn counter(&mut self, module: &mut Module, id: InstrId, start: i64, step: i64) -> Option<InstrId> {
        let (row, written) = (self.row_number(module), self.pair.stacks[0].written);
        let shape = module.instr(id).shape;
        if !module.shapes.compatible(module.instr(row).shape, shape) {
            return None;
        }
        // iteration = scale · (row − offset), so the counter is start + step · scale · (row − offset).
        let factor = step.checked_mul(written.scale)?;
        let constant = start.checked_sub(factor.checked_mul(written.offset)?)?;
        match (factor, constant) {
            (1, 0) => Some(row),
            (1 | -1, _) => {
                let constant = self.integer(module, shape, constant)?;
                let op = if factor == 1 { Binary::Add } else { Binary::Subtract };
                Some(self.put(module, "row_counter", shape, Op::Binary(op), &[constant, row]))
            }
            _ => None,
        }
    }

    /// The number of the row that the consumer reads in an iteration.
    fn row_number(&self, module: &Module) -> InstrId {
        module.instr(self.pair.stacks[0].slice()).operands[1]
    }

    fn integer(&mut self, module: &mut Module, shape: ShapeId, value: i64) -> Option<InstrId> {
        let id = integer(module, shape, value, &mut self.taken)?;
        self.new.push(id);
        Some(id)
    }

    /// Says that a value lies in host or device memory from here on, as JAX writes it; XLA makes copies of it (`host_offloader.cc`).
    fn placed(&mut self, module: &mut Module, value: InstrId, place: &str) -> InstrId {
        let call = CustomCall { target: "annotate_device_placement".into(), has_side_effect: true, ..CustomCall::default() };
        let (name, shape) = (self.name("remat_placed"), module.instr(value).shape);
        let mut instr = Instruction::new(name, shape, Op::CustomCall(Box::new(call)), [value]);
        instr.attrs.frontend_attributes = vec![("_xla_buffer_placement".into(), place.into())];
        module.define(instr)
    }

    /// A stack for a value of the producer, in host memory or on the device; returns its row in the consumer.
    fn new_stack(&mut self, module: &mut Module, value: InstrId, on_host: bool) -> Option<InstrId> {
        let producer = &self.pair.producer;
        let template = &self.pair.stacks[0];
        let array = module.shapes.array(module.instr(value).shape)?.clone();
        if array.dims.iter().any(|d| d.dynamic) {
            return None;
        }
        let dims: Vec<i64> = array.dims.iter().map(|d| d.size).collect();
        let rows = i64::try_from(producer.trips?).ok()?;
        // Written at the row that the template's update writes, read at the row that its reader reads.
        let stacked = array_of(module, &array, &[&[rows], dims.as_slice()].concat());
        let row_shape = array_of(module, &array, &[&[1], dims.as_slice()].concat());
        let scalar = array_of(module, &array, &[]);
        let bytes = vec![0; array.element.known()?.literal_bytes()];
        let literal = Literal { shape: scalar, value: LiteralValue::Dense(bytes.into()) };
        let zero = Instruction::new(self.name("remat_zero"), scalar, Op::Constant(Box::new(literal)), []);
        let zero = module.define(zero);
        let empty = Instruction::new(self.name("remat_empty"), stacked, Op::Broadcast { dimensions: Vec::new() }, [zero]);
        let empty = module.define(empty);
        self.before_producer.extend([zero, empty]);

        let handle = loop_handle(producer);
        let index = self.producer.index_of_added(module, &handle, self.producer.add.len());
        let take = define_take(module, &handle, index, stacked, &mut self.taken);
        self.producer_takes.push(take);
        let sent = if on_host { self.placed(module, value, "pinned_host") } else { value };
        let row = Instruction::new(self.name("remat_row"), row_shape, Op::Reshape { inferred_dimension: None }, [sent]);
        let row = module.define(row);
        let number = module.instr(template.update).operands[2];
        let origin = integer(module, module.instr(number).shape, 0, &mut self.taken)?;
        let operands = [take, row, number].into_iter().chain(dims.iter().map(|_| origin));
        let updated = Instruction::new(self.name("remat_stack"), stacked, Op::DynamicUpdateSlice, operands);
        let updated = module.define(updated);
        self.producer_new.extend([take].into_iter().chain(on_host.then_some(sent)).chain([row, origin, updated]));
        self.producer.add.push(NewElement { initial: empty, next: Some(updated) });

        let op = Op::GetTupleElement { index: i64::try_from(index).ok()? };
        let result = module.define(Instruction::new(self.name("get-tuple-element"), stacked, op, [producer.instr]));
        self.producer_takes.push(result);
        self.after_producer.push(result);
        let carried = self.carry(module, result);
        let number = self.row_number(module);
        let origin = self.integer(module, module.instr(number).shape, 0)?;
        let operands: Vec<InstrId> = [carried, number].into_iter().chain(dims.iter().map(|_| origin)).collect();
        let sizes = [&[1], dims.as_slice()].concat();
        let slice = self.put(module, "remat_slice", row_shape, Op::DynamicSlice { sizes }, &operands);
        let row = self.reshaped(module, slice, module.instr(value).shape);
        if !on_host {
            return Some(row);
        }
        let back = self.placed(module, row, "device");
        self.new.push(back);
        Some(back)
    }

    /// Splices everything in and takes the dropped stacks out of both loops.
    fn finish(self, module: &mut Module, dropped: &[usize]) {
        let (producer, consumer) = (loop_handle(&self.pair.producer), loop_handle(&self.pair.consumer));
        let mut gone: FxHashSet<InstrId> = self.stands.keys().copied().collect();
        for id in module.comp(consumer.body).order.iter().chain(&self.new).copied().collect::<Vec<_>>() {
            for operand in &mut module.instructions[id].operands {
                *operand = self.stands.get(operand).copied().unwrap_or(*operand);
            }
        }
        for &n in dropped {
            let stack = &self.pair.stacks[n];
            gone.extend(&self.pair.consumer.elements[stack.to].takes);
            module.instructions[consumer.root].operands[stack.to] = consumer.parameter;
        }
        insert_sorted(module, consumer.body, self.new, &gone);
        let mut gone = FxHashSet::default();
        for &n in dropped {
            let stack = &self.pair.stacks[n];
            gone.extend(&self.pair.producer.elements[stack.from].takes);
            gone.insert(stack.update);
            module.instructions[producer.root].operands[stack.from] = producer.parameter;
        }
        insert_sorted(module, producer.body, self.producer_new, &gone);
        let at = |module: &Module, id: InstrId| module.comp(producer.home).order.iter().position(|&i| i == id).unwrap_or(0);
        let (before, after) = (at(module, producer.init), at(module, producer.instr) + 1);
        let mut inserted: Vec<Insertion> = self.before_producer.into_iter().map(|instr| Insertion { position: before, instr }).collect();
        inserted.extend(self.after_producer.into_iter().map(|instr| Insertion { position: after, instr }));
        let gone: FxHashSet<InstrId> =
            dropped.iter().flat_map(|&n| self.pair.producer.elements[self.pair.stacks[n].from].results.iter().copied()).collect();
        module.splice(producer.home, inserted, &gone);
        self.producer.apply(module, &producer, &self.producer_takes);
        self.consumer.apply(module, &consumer, &self.consumer_takes);
    }
}

/// Adds instructions to a computation without a schedule and takes others out; operands stand before their users again.
fn insert_sorted(module: &mut Module, comp: CompId, new: Vec<InstrId>, gone: &FxHashSet<InstrId>) {
    let old = std::mem::take(&mut module.computations[comp].order);
    // The root last: it is given more operands.
    let root = module.comp(comp).root;
    let all: Vec<InstrId> = old.into_iter().filter(|i| !gone.contains(i) && *i != root).chain(new).chain([root]).collect();
    let here: FxHashSet<InstrId> = all.iter().copied().collect();
    let mut placed: FxHashSet<InstrId> = FxHashSet::default();
    let mut order = Vec::with_capacity(all.len());
    for id in all {
        let mut stack = vec![(id, false)];
        while let Some((id, ready)) = stack.pop() {
            if placed.contains(&id) {
                continue;
            }
            if ready {
                placed.insert(id);
                order.push(id);
                continue;
            }
            stack.push((id, true));
            let instr = module.instr(id);
            let before = instr.operands.iter().chain(&instr.control_predecessors);
            stack.extend(before.rev().filter(|o| here.contains(o) && !placed.contains(o)).map(|&o| (o, false)));
        }
    }
    for &id in &order {
        module.instructions[id].control_predecessors.retain(|p| here.contains(p));
    }
    module.computations[comp].order = order;
    module.computations[comp].proto_listing.clear();
}

fn array_of(module: &mut Module, like: &ArrayShape, dims: &[i64]) -> ShapeId {
    let dims: Vec<Dim> = dims.iter().map(|&size| Dim { size, dynamic: false }).collect();
    let layout = like.layout.as_ref().map(|_| Layout::default_for(dims.len()));
    module.shapes.intern(Shape::Array(ArrayShape { dims, layout, ..like.clone() }))
}

fn integer(module: &mut Module, shape: ShapeId, value: i64, taken: &mut FxHashSet<Box<str>>) -> Option<InstrId> {
    let width = usize::try_from(module.shapes.byte_size(shape)).ok().filter(|w| (1..=8).contains(w))?;
    let bytes = value.to_le_bytes();
    let literal = Literal { shape, value: LiteralValue::Dense(bytes[..width].into()) };
    let name = Module::fresh_name("remat_constant", taken);
    Some(module.define(Instruction::new(name, shape, Op::Constant(Box::new(literal)), [])))
}
