//! The order in which XLA numbers values: computations callees first, instructions in post-order, merges last. The heap breaks ties by these numbers, and
//! buffers of equal size are assigned in post-order, so the orders matter to the last byte.

use super::schedule::Schedule;
use crate::ir::{CompId, EntityMap, InstrId, Module, Op};

/// The order in which XLA numbers merges: a loop's condition and body parameters, their tops before their parts, then its result.
pub(super) fn phi_order(module: &Module, merges: &[(InstrId, u32)]) -> Vec<u32> {
    let mut first = EntityMap::<InstrId, Option<(u32, u32)>>::with_default(None);
    for (m, &(instr, _)) in (0u32..).zip(merges) {
        let (_, count) = first[instr].get_or_insert((m, 0));
        *count += 1;
    }
    let mut out = Vec::new();
    let mut done = vec![false; merges.len()];
    for &(instr, position) in merges {
        if let Op::While { condition, body } = &module.instr(instr).op
            && position == 0
        {
            let parameter = |c: &CompId| module.comp(*c).parameters.first().and_then(|&p| first[p]);
            let (condition, body, result) = (parameter(condition), parameter(body), first[instr]);
            let tops = [condition, body].into_iter().flatten().map(|(m, _)| m..m + 1);
            let rests = [condition, body].into_iter().flatten().map(|(m, n)| m + 1..m + n);
            out.extend(
                tops.chain(rests)
                    .chain(result.map(|(m, n)| m..m + n))
                    .flatten()
                    .filter(|&m| !std::mem::replace(&mut done[m as usize], true)),
            );
        }
    }
    out.extend((0u32..).take(merges.len()).filter(|&m| !done[m as usize]));
    out
}

/// Computations on the clock in post-order of the call graph, each with its instructions in post-order.
pub(super) fn value_order(module: &Module, schedule: &Schedule) -> Vec<(CompId, Vec<InstrId>)> {
    let list = |comp: CompId| {
        let comp = module.comp(comp);
        if comp.proto_listing.is_empty() { &comp.order } else { &comp.proto_listing }
    };
    let mut out = Vec::new();
    let mut seen = EntityMap::<CompId, bool>::with_default(false);
    let mut stack = vec![(module.entry_id(), 0, Vec::<CompId>::new())];
    while let Some((comp, next, waiting)) = stack.last_mut() {
        if let Some(callee) = waiting.pop() {
            if schedule.span(callee).is_some() && !std::mem::replace(&mut seen[callee], true) {
                stack.push((callee, 0, Vec::new()));
            }
        } else if let Some(&id) = list(*comp).get(*next) {
            *next += 1;
            waiting.extend(module.instr(id).op.called().iter().rev());
        } else {
            out.push((*comp, post_order(module, list(*comp))));
            stack.pop();
        }
    }
    out
}

/// XLA's `MakeInstructionPostOrder`: depth first from each instruction that nobody reads, control predecessors before operands.
fn post_order(module: &Module, list: &[InstrId]) -> Vec<InstrId> {
    let mut read = rustc_hash::FxHashSet::default();
    for &id in list {
        read.extend(module.instr(id).operands.iter().copied());
    }
    let mut state = rustc_hash::FxHashMap::<InstrId, bool>::default();
    let mut out = Vec::with_capacity(list.len());
    let mut stack = Vec::new();
    for &root in list.iter().filter(|id| !read.contains(id)) {
        stack.push(root);
        while let Some(&id) = stack.last() {
            match state.get(&id) {
                None => {
                    state.insert(id, false);
                    let instr = module.instr(id);
                    stack.extend(instr.operands.iter().rev().filter(|o| !state.contains_key(o)));
                    stack.extend(instr.control_predecessors.iter().filter(|o| !state.contains_key(o)));
                }
                Some(&finished) => {
                    stack.pop();
                    if !finished {
                        state.insert(id, true);
                        out.push(id);
                    }
                }
            }
        }
    }
    out
}
