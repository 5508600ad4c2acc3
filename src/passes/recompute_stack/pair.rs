//! Loops that fill stacks, and the loops that read them.

use rustc_hash::FxHashMap;

use crate::analysis::Users;
use crate::analysis::loops::{Kind, Loop, Loops, Read, Write};
use crate::ir::{InstrId, Module, Op};

/// A loop that fills stacks and a later one that reads them, row by row in the opposite (or the same) order.
#[derive(Debug)]
pub(super) struct Pair {
    pub producer: Loop,
    pub consumer: Loop,
    /// Row that the consumer reads in an iteration, as `scale · iteration + offset`.
    pub row: (i64, i64),
    pub stacks: Vec<Stack>,
}

/// A stack that nothing but the two loops touches.
#[derive(Debug)]
pub(super) struct Stack {
    /// Its element in the producer.
    pub from: usize,
    /// Its element in the consumer.
    pub to: usize,
    pub write: Write,
    /// What the producer's body returns for it.
    pub made: InstrId,
    pub reads: Vec<Read>,
}

/// All pairs with at least one stack.
pub(super) fn pairs(module: &Module) -> Vec<Pair> {
    let users = Users::of(module);
    let loops = Loops::of(module, &users).loops;
    let mut out = Vec::new();
    for producer in loops.iter().filter(|l| l.home == module.entry_id() && users.callers(l.body).len() == 1) {
        let mut by_consumer: FxHashMap<usize, Vec<Stack>> = FxHashMap::default();
        for from in 0..producer.elements.len() {
            if let Some((n, stack)) = stack(module, &users, &loops, producer, from) {
                by_consumer.entry(n).or_default().push(stack);
            }
        }
        let mut numbers: Vec<usize> = by_consumer.keys().copied().collect();
        numbers.sort_unstable();
        for n in numbers {
            let stacks = by_consumer.remove(&n).unwrap_or_default();
            let Some(read) = stacks.iter().flat_map(|s| &s.reads).next() else { continue };
            let row = (read.index.scale, read.index.offset);
            let same = |s: &Stack| s.reads.iter().all(|r| (r.index.scale, r.index.offset) == row);
            if stacks.iter().all(same) && loops[n].trips == producer.trips {
                out.push(Pair { producer: producer.clone(), consumer: loops[n].clone(), row, stacks });
            }
        }
    }
    out
}

fn stack(module: &Module, users: &Users, loops: &[Loop], producer: &Loop, from: usize) -> Option<(usize, Stack)> {
    let element = &producer.elements[from];
    let Kind::Stack(write) = element.kind else { return None };
    let rows = module.shapes.array(module.instr(element.initial).shape)?.dims.first()?.size;
    if (write.index.scale, write.index.offset) != (1, 0)
        || !write.index.covers(producer.trips?, rows)
        || !producer.reads(module, users, from)?.is_empty()
    {
        return None;
    }
    let &[result] = element.results.as_slice() else { return None };
    let mut at = result;
    loop {
        if !leading_is_major(module, at) {
            return None;
        }
        let &[user] = users.users(at) else { return None };
        match module.instr(user).op {
            Op::Bitcast => at = user,
            Op::Tuple => {
                let n = loops.iter().position(|l| l.init == user)?;
                let consumer = &loops[n];
                let mut places = (0..consumer.elements.len()).filter(|&e| consumer.elements[e].initial == at);
                let (to, None) = (places.next()?, places.next()) else { return None };
                let reads = consumer.reads(module, users, to)?;
                let usable = consumer.elements[to].kind == Kind::Invariant && consumer.elements[to].results.is_empty() && !reads.is_empty();
                if !usable || users.callers(consumer.body).len() != 1 || consumer.home != producer.home {
                    return None;
                }
                return Some((n, Stack { from, to, write, made: element.next, reads }));
            }
            _ => return None,
        }
    }
}

/// Whether the rows of an array lie one after another in memory.
fn leading_is_major(module: &Module, id: InstrId) -> bool {
    let array = module.shapes.array(module.instr(id).shape);
    array.and_then(|a| a.layout.as_ref()).is_some_and(|l| l.minor_to_major.last() == Some(&0) && l.tiles.is_empty())
}
