//! Carries a choice out: rows of dropped stacks are made again, or loaded from where they were saved, in the loop that reads them.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::loops::{Access, Kind, Loop, Read, Rows};
use crate::ir::{HOST, Insertion, InstrId, Instruction, Module, Op, Shape, ShapeId};
use crate::passes::{closure, loop_handle};
use crate::plan::is_pure;
use crate::rewrite::{FusedBuilder, LoopEdit, NewElement, define_take};

use super::graph::{Choice, Graph, fused_is_pure, innermost, peel};
use super::pair::{Pair, Stack, steps};
use super::readers::{holder, replace_read};
use crate::passes::stacks::{allocate, asynchronous, row_number, row_shape, slice_row, stack_of, top, write_row, zero_fill};

/// Instructions cloned for one pair are no more than this.
const MAX_CLONES: usize = 1000;

/// Why a choice cannot be carried out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stuck {
    /// This value cannot be made where it is needed.
    Value(InstrId),
    /// Something else.
    Other,
}

/// Carries a choice out. On an error the module is half changed and to be thrown away. What nobody needs any more is left to a sweep.
pub(super) fn carry_out(
    module: &mut Module,
    pair: &Pair,
    graph: &Graph,
    choice: &Choice,
    reuse: &FxHashMap<InstrId, InstrId>,
) -> Result<(), Stuck> {
    let taken = module.names();
    let mut maker = Maker::new(module, pair, graph, choice, reuse, taken).ok_or(Stuck::Other)?;
    let mut reads: Vec<(usize, usize, Read)> = Vec::new();
    for &n in &choice.drop {
        for read in &pair.stacks[n].reads {
            let at = position(module, &pair.consumer, anchor(read)).ok_or(Stuck::Other)?;
            reads.push((at, n, *read));
        }
    }
    reads.sort_by_key(|r| (r.0, r.1));
    for &(at, n, ref read) in &reads {
        maker.position = at;
        let row = maker.row(module, n)?;
        let taken = &maker.pair.consumer.elements[pair.stacks[n].to].takes;
        let inserted: Vec<InstrId> = maker.inserted.iter().map(|i| i.instr).collect();
        replace_read(module, pair.consumer.body, taken, read, row, &inserted).ok_or(Stuck::Other)?;
    }
    maker.finish(module);
    Ok(())
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
    graph: &'p Graph,
    reuse: &'p FxHashMap<InstrId, InstrId>,
    taken: FxHashSet<Box<str>>,
    /// Where new instructions go in the consumer's body.
    position: usize,
    inserted: Vec<Insertion>,
    /// From the producer's values to what stands for them in the consumer.
    known: FxHashMap<InstrId, InstrId>,
    /// Rows that stacks hold: the value, and the stack (of those that stay) that it lies in.
    stored: FxHashMap<InstrId, usize>,
    /// Values that get a stack of their own, and whether in host memory.
    saved: FxHashMap<InstrId, bool>,
    /// The number of the row that this iteration reads.
    index: InstrId,
    consumer: LoopEdit,
    consumer_takes: Vec<InstrId>,
    producer: LoopEdit,
    producer_takes: Vec<InstrId>,
    producer_inserted: Vec<Insertion>,
    entry_inserted: Vec<Insertion>,
    clones: usize,
}

impl<'p> Maker<'p> {
    fn new(
        module: &mut Module,
        pair: &'p Pair,
        graph: &'p Graph,
        choice: &Choice,
        reuse: &'p FxHashMap<InstrId, InstrId>,
        mut taken: FxHashSet<Box<str>>,
    ) -> Option<Self> {
        let mut stored = FxHashMap::default();
        for (other, stack) in pair.stacks.iter().enumerate() {
            if !choice.drop.contains(&other) && stack.between.is_empty() {
                stored.entry(graph.rows[other]).or_insert(other);
            }
        }
        let saved = choice.device.iter().map(|&v| (v, false)).chain(choice.host.iter().map(|&v| (v, true))).collect();
        let mut inserted = Vec::new();
        let index = row_number(module, &pair.consumer, pair.row, &mut inserted, &mut taken)?;
        Some(Self {
            pair,
            graph,
            reuse,
            taken,
            position: 0,
            inserted,
            known: FxHashMap::default(),
            stored,
            saved,
            index,
            consumer: LoopEdit::default(),
            consumer_takes: Vec::new(),
            producer: LoopEdit::default(),
            producer_takes: Vec::new(),
            producer_inserted: Vec::new(),
            entry_inserted: Vec::new(),
            clones: 0,
        })
    }

    fn put(&mut self, module: &mut Module, instr: Instruction) -> InstrId {
        let id = module.define(instr);
        self.inserted.push(Insertion { position: self.position, instr: id });
        id
    }

    /// The row of a dropped stack, in the shape that its readers slice.
    fn row(&mut self, module: &mut Module, n: usize) -> Result<InstrId, Stuck> {
        let stack = &self.pair.stacks[n];
        let mut made = self.value(module, self.graph.rows[n])?;
        if !stack.between.is_empty() {
            made = self.reordered(module, stack, made).ok_or(Stuck::Other)?;
        }
        let shape = stack.reads.first().map(|r| module.instr(r.slice).shape).ok_or(Stuck::Other)?;
        Ok(self.as_shape(module, made, shape))
    }

    /// A row after what the operations between the loops do to whole stacks.
    fn reordered(&mut self, module: &mut Module, stack: &Stack, row: InstrId) -> Option<InstrId> {
        let mut rows = stack.write.rows;
        let mut row = row;
        for &whole in &stack.between {
            let chain = steps(module, whole)?;
            let mut dimension = rows.dimension(module.shapes.array(module.instr(*chain.first()?).shape)?)?;
            let first = row_shape(module, module.instr(*chain.first()?).shape, dimension)?;
            row = self.as_shape(module, row, first);
            let mut builder = FusedBuilder::new("fused_row", &mut self.taken);
            let mut inner = builder.parameter(module, row, &mut self.taken);
            for pair in chain.windows(2) {
                let array = module.shapes.array(module.instr(pair[1]).shape)?;
                match &module.instr(pair[1]).op {
                    Op::Bitcast => dimension = rows.dimension(array)?,
                    Op::Transpose { dimensions } => dimension = dimensions.iter().position(|&d| usize::try_from(d) == Ok(dimension))?,
                    _ => {}
                }
                rows = Rows::along(array, dimension)?;
                let shape = row_shape(module, module.instr(pair[1]).shape, dimension)?;
                let name = Module::fresh_name(&module.instr(pair[1]).name.clone(), &mut self.taken);
                let op = module.instr(pair[1]).op.clone();
                inner = builder.push(module, Instruction::new(name, shape, op, [inner]));
            }
            row = builder.finish(module, &[inner], "loop_row_fusion", &mut self.taken);
            if let Op::Fusion(op) = &module.instr(whole).op {
                let kind = op.kind;
                if let Op::Fusion(new) = &mut module.instructions[row].op {
                    new.kind = kind;
                }
            }
            self.inserted.push(Insertion { position: self.position, instr: row });
        }
        Some(row)
    }

    fn as_shape(&mut self, module: &mut Module, id: InstrId, shape: ShapeId) -> InstrId {
        if module.instr(id).shape == shape {
            return id;
        }
        let base = peel(module, id);
        if module.instr(base).shape == shape {
            return base;
        }
        let name = Module::fresh_name("bitcast", &mut self.taken);
        self.put(module, Instruction::new(name, shape, Op::Bitcast, [id]))
    }

    /// What stands in the consumer for an operand in the producer, bitcasts and all.
    fn operand(&mut self, module: &mut Module, id: InstrId) -> Result<InstrId, Stuck> {
        let made = self.value(module, peel(module, id))?;
        let shape = module.instr(id).shape;
        Ok(self.as_shape(module, made, shape))
    }

    /// What stands in the consumer for a value of the producer's body at the row's iteration. Recursion goes down the body's
    /// dependencies and is bounded by [`MAX_CLONES`], since every level clones.
    fn value(&mut self, module: &mut Module, id: InstrId) -> Result<InstrId, Stuck> {
        if let Some(&known) = self.known.get(&id) {
            return Ok(known);
        }
        let made = if let Some(&stack) = self.stored.get(&id) {
            self.load(module, stack).ok_or(Stuck::Value(id))?
        } else if let Some(&host) = self.saved.get(&id) {
            self.load_new(module, id, host).ok_or(Stuck::Value(id))?
        } else {
            self.make(module, id)?
        };
        self.known.insert(id, made);
        Ok(made)
    }

    fn make(&mut self, module: &mut Module, id: InstrId) -> Result<InstrId, Stuck> {
        if let Some(&caller) = self.graph.inside.get(&id) {
            return self.cut(module, caller, id);
        }
        let instr = module.instr(id).clone();
        match &instr.op {
            Op::GetTupleElement { index } if instr.operands[0] == self.pair.producer.parameter => {
                let element = usize::try_from(*index).ok().and_then(|n| self.pair.producer.elements.get(n)).ok_or(Stuck::Other)?;
                match element.kind {
                    Kind::Invariant => Ok(self.invariant(module, element.initial)),
                    Kind::Linear { start: Some(0), step: 1 } => Ok(self.index),
                    Kind::Linear { .. } | Kind::Stack(_) | Kind::Carried => Err(Stuck::Value(id)),
                }
            }
            Op::CollectiveDone(_) | Op::Collective(_) | Op::AsyncDone(_) if self.reuse.contains_key(&id) => {
                let there = self.reuse[&id];
                let before = position(module, &self.pair.consumer, there).is_some_and(|p| p < self.position);
                if before { Ok(there) } else { Err(Stuck::Value(id)) }
            }
            Op::AsyncDone(_) => {
                let (comp, _) = innermost(module, instr.operands[0]).ok_or(Stuck::Value(id))?;
                let root = module.comp(comp).root;
                self.cut(module, instr.operands[0], root)
            }
            _ if is_pure(module, id) => {
                self.clones += 1;
                if self.clones > MAX_CLONES {
                    return Err(Stuck::Value(id));
                }
                let mut clone = instr.clone();
                clone.operands = crate::ir::Operands::new();
                for &operand in &instr.operands {
                    let made = self.operand(module, operand)?;
                    clone.operands.push(made);
                }
                let base =
                    if matches!(clone.op, Op::GetTupleElement { .. }) { instr.name.to_string() } else { format!("{}.remat", instr.name) };
                clone.name = Module::fresh_name(&base, &mut self.taken);
                clone.control_predecessors.clear();
                clone.proto_id = 0;
                let taken = &mut self.taken;
                if matches!(clone.op, Op::Fusion(_)) {
                    clone.op.map_called(&mut |c| module.clone_computation(c, taken));
                }
                Ok(self.put(module, clone))
            }
            _ => Err(Stuck::Value(id)),
        }
    }

    /// A fusion of its own for `value`, which stands in the computation that `caller` (a fusion or an async start) calls.
    fn cut(&mut self, module: &mut Module, caller: InstrId, value: InstrId) -> Result<InstrId, Stuck> {
        let (comp, operands) = innermost(module, caller).ok_or(Stuck::Value(value))?;
        if !fused_is_pure(module, comp) {
            return Err(Stuck::Value(value));
        }
        let needed = closure(module, value);
        let parameters = module.comp(comp).parameters.clone();
        let mut made = Vec::new();
        for (number, parameter) in parameters.iter().enumerate() {
            if needed.contains(parameter) {
                made.push((*parameter, self.operand(module, operands[number])?));
            }
        }
        let fusion = cut_fusion(module, &made, value, &mut self.taken);
        self.inserted.push(Insertion { position: self.position, instr: fusion });
        Ok(fusion)
    }

    /// An element of the consumer that carries `initial` unchanged: an old one, or a new one.
    fn invariant(&mut self, module: &mut Module, initial: InstrId) -> InstrId {
        let consumer = &self.pair.consumer;
        let handle = loop_handle(consumer);
        let shape = module.instr(initial).shape;
        let take = if let Some(n) = consumer.elements.iter().position(|e| e.initial == initial && e.kind == Kind::Invariant) {
            define_take(module, &handle, n, shape, &mut self.taken)
        } else {
            let index = self.consumer.index_of_added(module, &handle, self.consumer.add.len());
            self.consumer.add.push(NewElement { initial, next: None });
            let take = define_take(module, &handle, index, shape, &mut self.taken);
            self.consumer_takes.push(take);
            take
        };
        self.inserted.push(Insertion { position: top(module, consumer), instr: take });
        take
    }

    /// The row of a stack that stays.
    fn load(&mut self, module: &mut Module, n: usize) -> Option<InstrId> {
        let stack = &self.pair.stacks[n];
        let consumer = &self.pair.consumer;
        // A reader that already has the row by itself, before here.
        for read in &stack.reads {
            let Some(has) = holder(module, read) else { continue };
            if position(module, consumer, has).is_some_and(|p| p < self.position) {
                return Some(has);
            }
        }
        let shape = module.instr(consumer.elements[stack.to].initial).shape;
        let take = define_take(module, &loop_handle(consumer), stack.to, shape, &mut self.taken);
        self.inserted.push(Insertion { position: top(module, consumer), instr: take });
        let fusion = slice_row(module, take, stack.write.rows, (self.index, self.pair.row), &mut self.taken)?;
        self.inserted.push(Insertion { position: self.position, instr: fusion });
        Some(fusion)
    }

    /// The row of a new stack that holds a value of the producer.
    fn load_new(&mut self, module: &mut Module, value: InstrId, host: bool) -> Option<InstrId> {
        let producer = &self.pair.producer;
        let rows = i64::try_from(producer.trips?).ok()?;
        let array = module.shapes.array(module.instr(value).shape)?.clone();
        let array = stack_of(&array, rows)?;
        let mut stacked = module.shapes.intern(Shape::Array(array));
        if host {
            stacked = module.shapes.with_memory_space(stacked, HOST);
        }
        // Every row is written before any is read, but the buffer must come from somewhere.
        let fill = if host { allocate(module, stacked, &mut self.taken) } else { zero_fill(module, stacked, &mut self.taken)? };
        let entry = &module.comp(producer.home).order;
        let at = entry.iter().position(|&i| i == producer.init)?;
        self.entry_inserted.push(Insertion { position: at, instr: fill });
        let handle = loop_handle(producer);
        let index = self.producer.index_of_added(module, &handle, self.producer.add.len());
        let take = define_take(module, &handle, index, stacked, &mut self.taken);
        self.producer_takes.push(take);
        self.producer_inserted.push(Insertion { position: top(module, producer), instr: take });
        let written = self.save(module, value, take, host)?;
        self.producer.add.push(NewElement { initial: fill, next: Some(written) });
        // What the producer returns goes on to the consumer.
        let name = Module::fresh_name("get-tuple-element", &mut self.taken);
        let op = Op::GetTupleElement { index: i64::try_from(index).ok()? };
        let result = module.define(Instruction::new(name, stacked, op, [producer.instr]));
        self.producer_takes.push(result);
        let entry = &module.comp(producer.home).order;
        let after = entry.iter().position(|&i| i == producer.instr)? + 1;
        self.entry_inserted.push(Insertion { position: after, instr: result });
        let carrier = self.invariant(module, result);
        let array = module.shapes.array(stacked)?;
        let slice = slice_row(module, carrier, Rows::along(array, 0)?, (self.index, self.pair.row), &mut self.taken)?;
        let row = if host {
            let (start, done) = asynchronous(module, slice, &mut self.taken);
            self.inserted.push(Insertion { position: top(module, &self.pair.consumer), instr: start });
            self.inserted.push(Insertion { position: self.position, instr: done });
            done
        } else {
            self.inserted.push(Insertion { position: self.position, instr: slice });
            slice
        };
        let shape = module.instr(value).shape;
        Some(self.as_shape(module, row, shape))
    }

    /// Writes a value of the producer's body into a new stack; returns the stack after it.
    fn save(&mut self, module: &mut Module, value: InstrId, take: InstrId, host: bool) -> Option<InstrId> {
        let producer = &self.pair.producer;
        let counter = producer.elements.iter().position(|e| e.kind == (Kind::Linear { start: Some(0), step: 1 }))?;
        let order = module.comp(producer.body).order.clone();
        let place = |id: InstrId| order.iter().position(|&i| i == id);
        // The value, and the place from which on it is there.
        let (value, ready) = match self.graph.inside.get(&value) {
            None => (value, place(value)? + 1),
            Some(&caller) => {
                let (comp, operands) = innermost(module, caller)?;
                let needed = closure(module, value);
                let parameters = module.comp(comp).parameters.clone();
                let pairs: Vec<(InstrId, InstrId)> = parameters.into_iter().zip(operands).filter(|(p, _)| needed.contains(p)).collect();
                let ready = place(caller)?;
                let fusion = cut_fusion(module, &pairs, value, &mut self.taken);
                self.producer_inserted.push(Insertion { position: ready, instr: fusion });
                (fusion, ready)
            }
        };
        // Before anything overwrites the counter or, if the value is carried, the value.
        let counter_take =
            define_take(module, &loop_handle(producer), counter, module.instr(producer.elements[counter].initial).shape, &mut self.taken);
        self.producer_inserted.push(Insertion { position: top(module, producer), instr: counter_take });
        let mut end = order.len() - 1;
        for element in producer.elements.iter().enumerate().filter(|(n, e)| *n == counter || e.takes.contains(&value)).map(|(_, e)| e) {
            end = end.min(place(peel(module, element.next)).unwrap_or(end));
        }
        if ready > end {
            return None;
        }
        let written = write_row(module, take, value, (counter_take, (1, 0)), &mut self.taken)?;
        if !host {
            self.producer_inserted.push(Insertion { position: ready, instr: written });
            return Some(written);
        }
        let (start, done) = asynchronous(module, written, &mut self.taken);
        self.producer_inserted.push(Insertion { position: ready, instr: start });
        self.producer_inserted.push(Insertion { position: end, instr: done });
        Some(done)
    }

    /// Splices everything in.
    fn finish(mut self, module: &mut Module) {
        let (producer, consumer) = (loop_handle(&self.pair.producer), loop_handle(&self.pair.consumer));
        // Takes and starts at the top come first among those of one place, dependencies in order of making.
        let by_need = |inserted: &mut Vec<Insertion>, module: &Module| {
            let is_take = |i: &Insertion| {
                matches!(module.instr(i.instr).op, Op::GetTupleElement { .. })
                    && module.instr(i.instr).operands.first().is_some_and(|&o| matches!(module.instr(o).op, Op::Parameter { .. }))
            };
            inserted.sort_by_key(|i| (i.position, !is_take(i)));
        };
        by_need(&mut self.inserted, module);
        by_need(&mut self.producer_inserted, module);
        let none = FxHashSet::default();
        module.splice(consumer.body, self.inserted, &none);
        module.splice(producer.body, self.producer_inserted, &none);
        module.splice(producer.home, self.entry_inserted, &none);
        self.producer.apply(module, &producer, &self.producer_takes);
        self.consumer.apply(module, &consumer, &self.consumer_takes);
    }
}

/// A fusion that makes what `value`, an instruction inside a computation, is; `known` maps parameters there to instructions outside.
fn cut_fusion(module: &mut Module, known: &[(InstrId, InstrId)], value: InstrId, taken: &mut FxHashSet<Box<str>>) -> InstrId {
    let mut builder = FusedBuilder::new("fused_row", taken);
    let mut inner = FxHashMap::default();
    for &(parameter, outer) in known {
        inner.insert(parameter, builder.parameter(module, outer, taken));
    }
    let mut same = |module: &mut Module, id: InstrId| module.instr(id).shape;
    let root = builder.clone_dag(module, value, &mut inner, &mut same, taken);
    builder.finish(module, &[root], "loop_row_fusion", taken)
}
