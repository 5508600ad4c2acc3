//! Loops that fill stacks, and the loops that read them.

use rustc_hash::FxHashMap;

use crate::analysis::Users;
use crate::analysis::loops::{Kind, Loop, Loops, Read, Rows, Write};
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
    /// Its element in the consumer.
    pub to: usize,
    pub write: Write,
    pub reads: Vec<Read>,
    /// Fusions and copies between the loops, first to last, that put the elements of each row into another order.
    pub between: Vec<InstrId>,
}

/// All pairs with at least one stack.
pub(super) fn pairs(module: &Module) -> Vec<Pair> {
    let users = Users::of(module);
    let loops = Loops::of(module, &users).loops;
    let mut out = Vec::new();
    for producer in loops.iter().filter(|l| users.callers(l.home).len() <= 1 && users.callers(l.body).len() == 1) {
        let mut by_consumer: FxHashMap<usize, Vec<Stack>> = FxHashMap::default();
        for from in 0..producer.elements.len() {
            if let Some((n, stack)) = stack(module, &users, &loops, producer, from) {
                by_consumer.entry(n).or_default().push(stack);
            }
        }
        let mut numbers: Vec<usize> = by_consumer.keys().copied().collect();
        numbers.sort_unstable();
        for n in numbers {
            let mut stacks = by_consumer.remove(&n).unwrap_or_default();
            let Some(read) = stacks.iter().flat_map(|s| &s.reads).next() else { continue };
            let row = (read.index.scale, read.index.offset);
            stacks.retain(|s| s.reads.iter().all(|r| (r.index.scale, r.index.offset) == row));
            if loops[n].trips == producer.trips {
                out.push(Pair { producer: producer.clone(), consumer: loops[n].clone(), row, stacks });
            }
        }
    }
    out
}

fn stack(module: &Module, users: &Users, loops: &[Loop], producer: &Loop, from: usize) -> Option<(usize, Stack)> {
    let element = &producer.elements[from];
    let Kind::Stack(write) = element.kind else { return None };
    if (write.index.scale, write.index.offset) != (1, 0)
        || !write.index.covers(producer.trips?, write.rows.size)
        || !producer.reads(module, users, from)?.is_empty()
    {
        return None;
    }
    let &[result] = element.results.as_slice() else { return None };
    let mut at = result;
    let mut rows = write.rows;
    let mut between = Vec::new();
    loop {
        let &[user] = users.users(at) else { return None };
        match module.instr(user).op {
            Op::Bitcast => at = user,
            Op::Fusion(_) | Op::Copy => {
                rows = rows_through(module, user, rows)?;
                between.push(user);
                at = user;
            }
            Op::Tuple => {
                let n = loops.iter().position(|l| l.init == user)?;
                let consumer = &loops[n];
                let mut places = (0..consumer.elements.len()).filter(|&e| consumer.elements[e].initial == at);
                let (to, None) = (places.next()?, places.next()) else { return None };
                let reads = consumer.reads(module, users, to)?;
                let usable = consumer.elements[to].kind == Kind::Invariant && consumer.elements[to].results.is_empty() && !reads.is_empty();
                let same_rows = reads.iter().all(|r| r.rows == rows && r.index.covers(producer.trips.unwrap_or(0), rows.size));
                if !usable || !same_rows || users.callers(consumer.body).len() != 1 || consumer.home != producer.home {
                    return None;
                }
                return Some((n, Stack { to, write, reads, between }));
            }
            _ => return None,
        }
    }
}

/// What the rows of an array are after a fusion (or a copy) of that array alone that only renames, converts and transposes.
fn rows_through(module: &Module, id: InstrId, rows: Rows) -> Option<Rows> {
    let chain = steps(module, id)?;
    let array = |id: InstrId| module.shapes.array(module.instr(id).shape);
    let mut dimension = rows.dimension(array(*chain.first()?)?)?;
    let mut rows = rows;
    for pair in chain.windows(2) {
        match &module.instr(pair[1]).op {
            Op::Bitcast => {
                dimension = rows.dimension(array(pair[1])?)?;
            }
            Op::Transpose { dimensions } => {
                dimension = dimensions.iter().position(|&d| usize::try_from(d) == Ok(dimension))?;
            }
            Op::Copy | Op::Convert => {}
            _ => return None,
        }
        rows = Rows::along(array(pair[1])?, dimension)?;
    }
    Some(rows)
}

/// The chain of instructions from what a fusion (or a copy) reads to what it gives.
pub(super) fn steps(module: &Module, id: InstrId) -> Option<Vec<InstrId>> {
    let &[operand] = module.instr(id).operands.as_slice() else { return None };
    let (root, first) = match &module.instr(id).op {
        Op::Copy => return Some(vec![operand, id]),
        Op::Fusion(fusion) => (module.comp(fusion.calls).root, *module.comp(fusion.calls).parameters.first()?),
        _ => return None,
    };
    let mut chain = vec![root];
    while let Some(&at) = chain.last()
        && at != first
    {
        let &[operand] = module.instr(at).operands.as_slice() else { return None };
        chain.push(operand);
    }
    chain.reverse();
    Some(chain)
}
