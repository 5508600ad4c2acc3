//! A loop that fills stacks, a loop that reads them, and which iteration of the one an iteration of the other shows.

use crate::analysis::Users;
use crate::analysis::loops::{Access, Index, Kind, Loop, Loops, Read};
use crate::ir::{InstrId, Module, Op};

/// Two loops with at least one stack between them. All stacks show the same iteration of the producer in an iteration of the consumer.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub producer: Loop,
    pub consumer: Loop,
    pub stacks: Vec<Stack>,
}

/// A stack whose every row holds one value of the producer's body.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    /// Its element in the producer.
    pub from: usize,
    /// Its element in the consumer.
    pub to: usize,
    /// The value of the producer's body that a row holds.
    pub value: InstrId,
    /// The update.
    pub update: InstrId,
    /// Row that the producer writes.
    pub written: Index,
    pub reads: Vec<Read>,
    /// Whether nothing but the two loops touches it: it may go.
    pub droppable: bool,
}

impl Stack {
    /// A slice of the consumer that reads it.
    pub fn slice(&self) -> InstrId {
        self.reads[0].slice
    }
}

/// All pairs, in program order. Calls in the bodies must have been inlined for their stacks to be seen.
pub(super) fn pairs(module: &Module) -> Vec<Pair> {
    let users = Users::of(module);
    let loops = Loops::of(module, &users).loops;
    let alone = |l: &Loop| users.callers(l.body).len() == 1 && users.callers(l.condition).len() == 1 && users.users(l.init) == [l.instr];
    let mut out = Vec::new();
    for producer in loops.iter().filter(|l| alone(l)) {
        for consumer in loops.iter().filter(|l| alone(l) && l.home == producer.home && l.instr != producer.instr) {
            if producer.trips.is_none() || producer.trips != consumer.trips {
                continue;
            }
            let found: Vec<(Index, Stack)> =
                (0..producer.elements.len()).filter_map(|from| stack(module, &users, producer, consumer, from)).collect();
            let Some(&(map, _)) = found.iter().find(|(_, s)| s.droppable) else { continue };
            let stacks = found.into_iter().filter(|(m, _)| *m == map).map(|(_, s)| s).collect();
            out.push(Pair { producer: producer.clone(), consumer: consumer.clone(), stacks });
        }
    }
    out
}

fn stack(module: &Module, users: &Users, producer: &Loop, consumer: &Loop, from: usize) -> Option<(Index, Stack)> {
    let element = &producer.elements[from];
    let Kind::Stack(write) = element.kind else { return None };
    let rows = module.shapes.array(module.instr(element.initial).shape)?.dims.first()?.size;
    if write.access != Access::Plain || !write.index.covers(producer.trips?, rows) {
        return None;
    }
    let places: Vec<usize> = (0..consumer.elements.len()).filter(|&e| element.results.contains(&consumer.elements[e].initial)).collect();
    let &[to] = places.as_slice() else { return None };
    let target = &consumer.elements[to];
    if target.kind != Kind::Invariant {
        return None;
    }
    let reads = consumer.reads(module, users, to)?;
    let first = reads.first()?.index;
    if reads.iter().any(|r| r.access != Access::Plain || r.index != first) {
        return None;
    }
    let scale = write.index.scale;
    let map = Index { scale: scale * first.scale, offset: scale * (first.offset - write.index.offset) };
    let untouched = producer.reads(module, users, from).is_some_and(|r| r.is_empty());
    let only_here = element.results.iter().all(|&r| users.users(r) == [consumer.init]);
    let not_returned = target.results.is_empty() && element.takes.iter().all(|&t| users.users(t) == [write.update]);
    let row = module.instr(write.update).operands[1];
    let value = behind_unit_dimension(module, row);
    let droppable = untouched && only_here && not_returned;
    Some((map, Stack { from, to, value, update: write.update, written: write.index, reads, droppable }))
}

/// The value that a row shows: what a reshape put a leading dimension of one before.
fn behind_unit_dimension(module: &Module, row: InstrId) -> InstrId {
    let instr = module.instr(row);
    let (Op::Reshape { .. } | Op::Bitcast, Some(&value)) = (&instr.op, instr.operands.first()) else { return row };
    let dims = |id: InstrId| module.shapes.array(module.instr(id).shape).map(|a| a.dims.clone());
    match (dims(row), dims(value)) {
        (Some(row_dims), Some(value_dims)) if row_dims.len() == value_dims.len() + 1 && row_dims[1..] == value_dims[..] => value,
        _ => row,
    }
}
