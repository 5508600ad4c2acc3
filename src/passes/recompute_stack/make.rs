//! Makes the rows of a dropped stack again in the loop that reads them.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::loops::{Access, Kind, Loop, Read};
use crate::ir::{Binary, Insertion, InstrId, Instruction, Literal, LiteralValue, Module, Op, Primitive, Shape, ShapeId};
use crate::passes::loop_handle;
use crate::passes::trim_outputs::prune_fusion;
use crate::plan::is_pure;
use crate::rewrite::{FusedBuilder, LoopEdit, NewElement, define_take};

use super::pair::{Pair, Stack};
use super::rows::{stack_of, write_row, zero_fill, zero_index};

/// Instructions cloned for one stack are no more than this.
const MAX_CLONES: usize = 400;

/// Drops some stacks of a pair, by their numbers; `None` if their rows cannot be made (the module is then half changed and to be thrown
/// away). What several rows are made of is made once.
pub(super) fn drop_set(module: &mut Module, pair: &Pair, set: &[usize]) -> Option<()> {
    let taken = module.names();
    let mut maker = Maker::new(module, pair, set, taken);
    let mut reads: Vec<(usize, usize, Read)> = Vec::new();
    for &n in set {
        for read in &pair.stacks[n].reads {
            reads.push((position(module, &pair.consumer, anchor(read))?, n, *read));
        }
    }
    reads.sort_by_key(|r| (r.0, r.1));
    let mut rows: FxHashMap<usize, InstrId> = FxHashMap::default();
    for &(at, n, ref read) in &reads {
        maker.position = at;
        let row = match rows.get(&n) {
            Some(&row) => row,
            None => maker.row(module, &pair.stacks[n])?,
        };
        rows.insert(n, row);
        replace_read(module, &mut maker, &pair.stacks[n], read, row)?;
    }
    maker.finish(module, set);
    Some(())
}

/// The instruction of the body that reads.
fn anchor(read: &Read) -> InstrId {
    match read.access {
        Access::Plain => read.slice,
        Access::Fused { fusion } => fusion,
        Access::Async { start, .. } => start,
    }
}

fn position(module: &Module, this: &Loop, id: InstrId) -> Option<usize> {
    module.comp(this.body).order.iter().position(|&i| i == id)
}

/// What is being built in the consumer's body.
struct Maker<'p> {
    pair: &'p Pair,
    taken: FxHashSet<Box<str>>,
    /// Where new instructions go in the consumer's body.
    position: usize,
    inserted: Vec<Insertion>,
    removed: FxHashSet<InstrId>,
    /// From the producer's instructions to what stands for them in the consumer.
    known: FxHashMap<InstrId, InstrId>,
    /// Rows that stacks hold: what the producer's body computes, and in which stack (of those that stay) it lies.
    stored: FxHashMap<InstrId, usize>,
    index: Option<InstrId>,
    consumer: LoopEdit,
    consumer_takes: Vec<InstrId>,
    producer: LoopEdit,
    producer_takes: Vec<InstrId>,
    producer_inserted: Vec<Insertion>,
    entry_inserted: Vec<Insertion>,
    clones: usize,
}

impl<'p> Maker<'p> {
    fn new(module: &Module, pair: &'p Pair, set: &[usize], taken: FxHashSet<Box<str>>) -> Self {
        let mut stored = FxHashMap::default();
        for (other, stack) in pair.stacks.iter().enumerate() {
            if !set.contains(&other)
                && let Some(value) = stored_value(module, stack)
            {
                stored.entry(value).or_insert(other);
            }
        }
        Self {
            pair,
            taken,
            position: 0,
            inserted: Vec::new(),
            removed: FxHashSet::default(),
            known: FxHashMap::default(),
            stored,
            index: None,
            consumer: LoopEdit { drop: set.iter().map(|&n| pair.stacks[n].to).collect(), ..LoopEdit::default() },
            consumer_takes: Vec::new(),
            producer: LoopEdit { drop: set.iter().map(|&n| pair.stacks[n].from).collect(), ..LoopEdit::default() },
            producer_takes: Vec::new(),
            producer_inserted: Vec::new(),
            entry_inserted: Vec::new(),
            clones: 0,
        }
    }

    fn put(&mut self, module: &mut Module, instr: Instruction) -> InstrId {
        let id = module.define(instr);
        self.inserted.push(Insertion { position: self.position, instr: id });
        id
    }

    /// The row of a dropped stack: the update's operand, made in the consumer, in the shape that the readers slice.
    fn row(&mut self, module: &mut Module, stack: &Stack) -> Option<InstrId> {
        let update = stack.write.update;
        let value = module.instr(update).operands[1];
        let made = match stack.write.access {
            Access::Plain => self.make(module, value)?,
            Access::Fused { fusion } => self.cut(module, fusion, value)?,
            Access::Async { start, .. } => self.cut(module, start, value)?,
        };
        let shape = module.instr(stack.reads.first()?.slice).shape;
        Some(self.as_shape(module, made, shape))
    }

    fn as_shape(&mut self, module: &mut Module, id: InstrId, shape: ShapeId) -> InstrId {
        if module.instr(id).shape == shape {
            return id;
        }
        let name = Module::fresh_name("bitcast", &mut self.taken);
        self.put(module, Instruction::new(name, shape, Op::Bitcast, [id]))
    }

    /// A fusion of its own for `value`, which stands in the computation that `caller` (a fusion or an async start) calls.
    fn cut(&mut self, module: &mut Module, caller: InstrId, value: InstrId) -> Option<InstrId> {
        let (comp, operands) = innermost(module, caller)?;
        if !fused_is_pure(module, comp) {
            return None;
        }
        let mut needed = FxHashSet::default();
        let mut stack = vec![value];
        while let Some(id) = stack.pop() {
            if needed.insert(id) {
                stack.extend_from_slice(&module.instr(id).operands);
            }
        }
        let parameters = module.comp(comp).parameters.clone();
        // A row that is a parameter, maybe behind bitcasts, needs no kernel.
        if needed.iter().all(|&i| matches!(module.instr(i).op, Op::Bitcast | Op::Parameter { .. })) {
            let parameter = parameters.iter().position(|p| needed.contains(p))?;
            let made = self.make(module, operands[parameter])?;
            let shape = module.instr(value).shape;
            return Some(self.as_shape(module, made, shape));
        }
        let mut made = Vec::new();
        for (number, parameter) in parameters.iter().enumerate() {
            if needed.contains(parameter) {
                made.push((*parameter, self.make(module, operands[number])?));
            }
        }
        let mut builder = FusedBuilder::new("fused_row", &mut self.taken);
        let mut known = FxHashMap::default();
        for (parameter, outer) in made {
            let inner = builder.parameter(module, outer, &mut self.taken);
            known.insert(parameter, inner);
        }
        let mut same = |module: &mut Module, id: InstrId| module.instr(id).shape;
        let root = builder.clone_dag(module, value, &mut known, &mut same, &mut self.taken);
        let fusion = builder.finish(module, &[root], "loop_row_fusion", &mut self.taken);
        self.inserted.push(Insertion { position: self.position, instr: fusion });
        Some(fusion)
    }

    /// What stands in the consumer for an instruction of the producer's body at the row's iteration. Recursion goes down the body's
    /// dependencies and is bounded by [`MAX_CLONES`], since every level clones.
    fn make(&mut self, module: &mut Module, id: InstrId) -> Option<InstrId> {
        if let Some(&known) = self.known.get(&id) {
            return Some(known);
        }
        let made = self.make_new(module, id)?;
        self.known.insert(id, made);
        Some(made)
    }

    fn make_new(&mut self, module: &mut Module, id: InstrId) -> Option<InstrId> {
        if let Some(&stack) = self.stored.get(&id) {
            return self.load(module, stack, module.instr(id).shape);
        }
        let instr = module.instr(id).clone();
        match &instr.op {
            Op::GetTupleElement { index } if instr.operands[0] == self.pair.producer.parameter => {
                self.element(module, id, usize::try_from(*index).ok()?)
            }
            Op::AsyncDone(_) => {
                let start = *instr.operands.first()?;
                let (comp, operands) = innermost(module, start)?;
                let root = module.comp(comp).root;
                if operands.iter().any(|&o| module.shapes.memory_space(module.instr(o).shape) != crate::ir::DEVICE) {
                    return None;
                }
                self.cut(module, start, root)
            }
            Op::Bitcast | Op::GetTupleElement { .. } => {
                let operand = self.make(module, instr.operands[0])?;
                let name = Module::fresh_name(&instr.name, &mut self.taken);
                Some(self.put(module, Instruction::new(name, instr.shape, instr.op.clone(), [operand])))
            }
            _ if is_pure(module, id) => {
                self.clones += 1;
                if self.clones > MAX_CLONES {
                    return None;
                }
                let mut clone = instr.clone();
                clone.operands = crate::ir::Operands::new();
                for &operand in &instr.operands {
                    clone.operands.push(self.make(module, operand)?);
                }
                clone.name = Module::fresh_name(&format!("{}.remat", instr.name), &mut self.taken);
                clone.control_predecessors.clear();
                clone.proto_id = 0;
                let taken = &mut self.taken;
                if matches!(clone.op, Op::Fusion(_)) {
                    clone.op.map_called(&mut |c| module.clone_computation(c, taken));
                }
                Some(self.put(module, clone))
            }
            _ => None,
        }
    }

    /// A carried element of the producer at the row's iteration.
    fn element(&mut self, module: &mut Module, take: InstrId, n: usize) -> Option<InstrId> {
        let element = &self.pair.producer.elements[n];
        match element.kind {
            Kind::Invariant => Some(self.invariant(module, element.initial)),
            Kind::Linear { start: Some(0), step: 1 } => self.index(module),
            Kind::Linear { .. } | Kind::Stack(_) => None,
            Kind::Carried => self.carried(module, take, n),
        }
    }

    /// An element of the consumer that carries `initial` unchanged: an old one, or a new one.
    fn invariant(&mut self, module: &mut Module, initial: InstrId) -> InstrId {
        let consumer = &self.pair.consumer;
        let old = consumer.elements.iter().find(|e| e.initial == initial && e.kind == Kind::Invariant);
        if let Some(&take) = old.and_then(|e| e.takes.iter().find(|&&t| position(module, consumer, t).is_some_and(|p| p < self.position))) {
            return take;
        }
        let handle = loop_handle(consumer);
        if let Some(n) = consumer.elements.iter().position(|e| e.initial == initial && e.kind == Kind::Invariant) {
            let take = define_take(module, &handle, n, module.instr(initial).shape, &mut self.taken);
            self.inserted.push(Insertion { position: self.position, instr: take });
            return take;
        }
        let index = self.consumer.index_of_added(module, &handle, self.consumer.add.len());
        self.consumer.add.push(NewElement { initial, next: None });
        let take = define_take(module, &handle, index, module.instr(initial).shape, &mut self.taken);
        self.consumer_takes.push(take);
        self.inserted.push(Insertion { position: self.position, instr: take });
        take
    }

    /// The row's number, an s32 scalar of the consumer's body.
    fn index(&mut self, module: &mut Module) -> Option<InstrId> {
        if let Some(index) = self.index {
            return Some(index);
        }
        let consumer = &self.pair.consumer;
        let counter = consumer.elements.iter().find(|e| e.kind == (Kind::Linear { start: Some(0), step: 1 }))?;
        let take = *counter.takes.first()?;
        let before = position(module, consumer, take)? < self.position;
        if !before {
            return None;
        }
        let index = match self.pair.row {
            (1, 0) => take,
            (-1, offset) => {
                let shape = module.instr(take).shape;
                if module.shapes.array(shape)?.element.known() != Some(Primitive::S32) {
                    return None;
                }
                let bytes = i32::try_from(offset).ok()?.to_le_bytes();
                let literal = Literal { shape, value: LiteralValue::Dense(Box::new(bytes)) };
                let mut builder = FusedBuilder::new("fused_subtract", &mut self.taken);
                let inner = builder.parameter(module, take, &mut self.taken);
                let name = Module::fresh_name("constant", &mut self.taken);
                let last = builder.push(module, Instruction::new(name, shape, Op::Constant(Box::new(literal)), []));
                let name = Module::fresh_name("subtract", &mut self.taken);
                let root = builder.push(module, Instruction::new(name, shape, Op::Binary(Binary::Subtract), [last, inner]));
                let fusion = builder.finish(module, &[root], "loop_subtract_fusion", &mut self.taken);
                self.inserted.push(Insertion { position: self.position, instr: fusion });
                fusion
            }
            _ => return None,
        };
        self.index = Some(index);
        Some(index)
    }

    /// The row of a stack that stays, in the shape of the value that it holds.
    fn load(&mut self, module: &mut Module, n: usize, shape: ShapeId) -> Option<InstrId> {
        let stack = &self.pair.stacks[n];
        let consumer = &self.pair.consumer;
        // A reader that already has the row by itself, before here.
        for read in &stack.reads {
            let has = match read.access {
                Access::Plain => read.slice,
                Access::Async { done, .. } => done,
                Access::Fused { .. } => continue,
            };
            if position(module, consumer, has).is_some_and(|p| p < self.position) {
                return Some(self.as_shape(module, has, shape));
            }
        }
        let take = *consumer.elements[stack.to].takes.first()?;
        let take = if position(module, consumer, take)? < self.position {
            take
        } else {
            let handle = loop_handle(consumer);
            let take = define_take(module, &handle, stack.to, module.instr(take).shape, &mut self.taken);
            self.inserted.push(Insertion { position: self.position, instr: take });
            take
        };
        let index = self.index(module)?;
        let row = self.slice(module, take, index);
        Some(self.as_shape(module, row, shape))
    }

    /// A fusion that slices one row of a stack.
    fn slice(&mut self, module: &mut Module, stack: InstrId, index: InstrId) -> InstrId {
        let mut builder = FusedBuilder::new("fused_dynamic_slice", &mut self.taken);
        let inner = builder.parameter(module, stack, &mut self.taken);
        let at = builder.parameter(module, index, &mut self.taken);
        let zeros = zero_index(module, &mut builder, index, stack, &mut self.taken);
        let shape = module.shapes.leading_row(module.instr(stack).shape);
        let sizes = module.shapes.array(shape).map_or_else(Vec::new, |a| a.dims.iter().map(|d| d.size).collect());
        let name = Module::fresh_name("dynamic_slice", &mut self.taken);
        let operands = [inner, at].into_iter().chain(zeros);
        let root = builder.push(module, Instruction::new(name, shape, Op::DynamicSlice { sizes }, operands));
        let fusion = builder.finish(module, &[root], "loop_dynamic_slice_fusion", &mut self.taken);
        self.inserted.push(Insertion { position: self.position, instr: fusion });
        fusion
    }

    /// The producer's carried value at the start of the row's iteration: a new stack holds it.
    fn carried(&mut self, module: &mut Module, take: InstrId, n: usize) -> Option<InstrId> {
        let producer = &self.pair.producer;
        let value = module.instr(take).shape;
        let array = module.shapes.array(value)?.clone();
        let rows = i64::try_from(producer.trips?).ok()?;
        let stacked = module.shapes.intern(Shape::Array(stack_of(&array, rows)?));
        let counter = producer.elements.iter().find(|e| e.kind == (Kind::Linear { start: Some(0), step: 1 }))?;
        let counter = *counter.takes.first()?;
        // Filled in the entry: every row is written before any is read, but the buffer must come from somewhere.
        let fill = zero_fill(module, stacked, &mut self.taken)?;
        let entry = &module.comp(producer.home).order;
        let at = entry.iter().position(|&i| i == producer.init)?;
        self.entry_inserted.push(Insertion { position: at, instr: fill });
        let producer_handle = loop_handle(producer);
        let index = self.producer.index_of_added(module, &producer_handle, self.producer.add.len());
        let stack_take = define_take(module, &producer_handle, index, stacked, &mut self.taken);
        self.producer_takes.push(stack_take);
        let written = write_row(module, stack_take, take, counter, &mut self.taken);
        let body = &module.comp(producer.body).order;
        // Before anything may overwrite the carried value in place: as soon as all three are there.
        let ready = [take, counter].iter().filter_map(|&i| body.iter().position(|&b| b == i)).max()? + 1;
        self.producer_inserted.push(Insertion { position: ready, instr: stack_take });
        self.producer_inserted.push(Insertion { position: ready, instr: written });
        self.producer.add.push(NewElement { initial: fill, next: Some(written) });
        let _ = n;
        // What the producer returns goes on to the consumer.
        let name = Module::fresh_name("get-tuple-element", &mut self.taken);
        let op = Op::GetTupleElement { index: i64::try_from(index).ok()? };
        let result = module.define(Instruction::new(name, stacked, op, [producer.instr]));
        self.producer_takes.push(result);
        let entry = &module.comp(producer.home).order;
        let after = entry.iter().position(|&i| i == producer.instr)? + 1;
        self.entry_inserted.push(Insertion { position: after, instr: result });
        let carrier = self.invariant(module, result);
        let row_number = self.index(module)?;
        let row = self.slice(module, carrier, row_number);
        Some(self.as_shape(module, row, value))
    }

    /// Splices everything in and takes the stacks out of both loops.
    fn finish(self, module: &mut Module, set: &[usize]) {
        let (producer, consumer) = (loop_handle(&self.pair.producer), loop_handle(&self.pair.consumer));
        let stacks: Vec<&Stack> = set.iter().map(|&n| &self.pair.stacks[n]).collect();
        let mut gone = self.removed.clone();
        gone.extend(stacks.iter().flat_map(|s| self.pair.consumer.elements[s.to].takes.iter().copied()));
        clear_controls(module, consumer.body, &gone);
        module.splice(consumer.body, self.inserted, &gone);
        let mut gone: FxHashSet<InstrId> = stacks.iter().flat_map(|s| self.pair.producer.elements[s.from].takes.iter().copied()).collect();
        gone.extend(stacks.iter().flat_map(|s| writer_chain(module, s.made)));
        for stack in &stacks {
            module.instructions[producer.root].operands[stack.from] = producer.parameter;
            module.instructions[consumer.root].operands[stack.to] = consumer.parameter;
        }
        clear_controls(module, producer.body, &gone);
        module.splice(producer.body, self.producer_inserted, &gone);
        let mut gone: FxHashSet<InstrId> =
            stacks.iter().flat_map(|s| self.pair.producer.elements[s.from].results.iter().copied()).collect();
        for stack in &stacks {
            let mut at = self.pair.consumer.elements[stack.to].initial;
            while let Op::Bitcast = module.instr(at).op {
                gone.insert(at);
                at = module.instr(at).operands[0];
            }
        }
        module.splice(producer.home, self.entry_inserted, &gone);
        self.producer.apply(module, &producer, &self.producer_takes);
        self.consumer.apply(module, &consumer, &self.consumer_takes);
    }
}

/// The instructions of the producer's body that only make the new stack: the update and the views on it.
fn writer_chain(module: &Module, made: InstrId) -> Vec<InstrId> {
    let mut out = vec![made];
    let mut at = made;
    while let Op::Bitcast = module.instr(at).op {
        at = module.instr(at).operands[0];
        out.push(at);
    }
    if let Op::AsyncDone(_) = module.instr(at).op {
        out.push(module.instr(at).operands[0]);
    }
    out
}

fn clear_controls(module: &mut Module, comp: crate::ir::CompId, gone: &FxHashSet<InstrId>) {
    for id in module.comp(comp).order.clone() {
        if !module.instr(id).control_predecessors.is_empty() {
            module.instructions[id].control_predecessors.retain(|p| !gone.contains(p));
        }
    }
}

/// The value of the producer's body that a stack's row shows: an operand of the writer, if the row is it behind bitcasts.
fn stored_value(module: &Module, stack: &Stack) -> Option<InstrId> {
    let mut value = module.instr(stack.write.update).operands[1];
    while let Op::Bitcast = module.instr(value).op {
        value = module.instr(value).operands[0];
    }
    let caller = match stack.write.access {
        Access::Plain => return Some(value),
        Access::Fused { fusion } => fusion,
        Access::Async { start, .. } => start,
    };
    let (comp, operands) = innermost(module, caller)?;
    let number = module.comp(comp).parameters.iter().position(|&p| p == value)?;
    operands.get(number).copied()
}

/// The computation in which a fusion or an async start does its work, and the operands outside that its parameters show.
fn innermost(module: &Module, caller: InstrId) -> Option<(crate::ir::CompId, Vec<InstrId>)> {
    let outer = module.instr(caller).operands.to_vec();
    match &module.instr(caller).op {
        Op::Fusion(fusion) => Some((fusion.calls, outer)),
        Op::AsyncStart(wrapped) => {
            let root = module.comp(wrapped.calls).root;
            let Op::Fusion(fusion) = &module.instr(root).op else { return Some((wrapped.calls, outer)) };
            let number = |&o: &InstrId| match module.instr(o).op {
                Op::Parameter { number } => usize::try_from(number).ok().and_then(|n| outer.get(n).copied()),
                _ => None,
            };
            let operands: Option<Vec<InstrId>> = module.instr(root).operands.iter().map(number).collect();
            Some((fusion.calls, operands?))
        }
        _ => None,
    }
}

/// Whether what a fused computation does may be done again; the update that it ends in is not done again.
fn fused_is_pure(module: &Module, comp: crate::ir::CompId) -> bool {
    let order = &module.comp(comp).order;
    order.iter().all(|&i| matches!(module.instr(i).op, Op::Parameter { .. } | Op::DynamicUpdateSlice) || is_pure(module, i))
}

/// Gives a reader the row instead of the stack.
fn replace_read(module: &mut Module, maker: &mut Maker<'_>, stack: &Stack, read: &Read, row: InstrId) -> Option<()> {
    let body = maker.pair.consumer.body;
    match read.access {
        Access::Plain | Access::Async { .. } => {
            let (old, also) = match read.access {
                Access::Async { start, done } => (done, Some(start)),
                _ => (read.slice, None),
            };
            for id in module.comp(body).order.clone() {
                for operand in &mut module.instructions[id].operands {
                    if *operand == old {
                        *operand = row;
                    }
                }
            }
            // New instructions may read it too.
            for insertion in &maker.inserted {
                for operand in &mut module.instructions[insertion.instr].operands {
                    if *operand == old {
                        *operand = row;
                    }
                }
            }
            maker.removed.insert(old);
            maker.removed.extend(also);
        }
        Access::Fused { fusion } => {
            let Op::Fusion(op) = &module.instr(fusion).op else { return None };
            let calls = op.calls;
            let takes = &maker.pair.consumer.elements[stack.to].takes;
            let is_stack = |module: &Module, mut o: InstrId| {
                while let Op::Bitcast = module.instr(o).op {
                    o = module.instr(o).operands[0];
                }
                takes.contains(&o)
            };
            let number = module.instr(fusion).operands.iter().position(|&o| is_stack(module, o))?;
            let parameter = *module.comp(calls).parameters.get(number)?;
            // All slices of this parameter show the same row.
            let order = module.comp(calls).order.clone();
            let slices: Vec<InstrId> = order
                .iter()
                .copied()
                .filter(|&i| matches!(module.instr(i).op, Op::DynamicSlice { .. }) && module.instr(i).operands[0] == parameter)
                .collect();
            if slices.is_empty() || order.iter().any(|&i| module.instr(i).operands.contains(&parameter) && !slices.contains(&i)) {
                return None;
            }
            let shape = module.instr(slices[0]).shape;
            module.instructions[parameter].shape = shape;
            module.instructions[fusion].operands[number] = row;
            for id in order {
                for operand in &mut module.instructions[id].operands {
                    if slices.contains(operand) {
                        *operand = parameter;
                    }
                }
            }
            if slices.contains(&module.comp(calls).root) {
                return None;
            }
            // XLA's slice config and price are of the old computation.
            module.instructions[fusion].attrs.backend_config = strip_config(module, fusion);
            prune_fusion(module, fusion);
        }
    }
    Some(())
}

/// The fusion's backend config, unless it says where slices lie.
fn strip_config(module: &Module, fusion: InstrId) -> Option<Box<[u8]>> {
    let config = module.instr(fusion).attrs.backend_config.clone()?;
    let says_slices = config.windows(20).any(|w| w == b"dynamic_slice_config");
    (!says_slices).then_some(config)
}
