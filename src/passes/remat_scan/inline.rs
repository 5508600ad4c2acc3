//! Puts what a loop body calls into the body, as XLA's call inliner does first of all.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{CompId, InstrId, Module, Op};

/// A body does not grow beyond this many instructions.
const MOST: usize = 100_000;

/// Replaces the plain calls of a computation by what they call, again and again. Calls that say anything about themselves (composites,
/// host computations, calls that must stay) are left alone. Costs O(result).
pub(super) fn inline_calls(module: &mut Module, comp: CompId, taken: &mut FxHashSet<Box<str>>) {
    while module.comp(comp).order.len() < MOST {
        let order = module.comp(comp).order.clone();
        let mut out = Vec::with_capacity(order.len());
        let mut stands: FxHashMap<InstrId, InstrId> = FxHashMap::default();
        let mut changed = false;
        for id in order {
            for operand in &mut module.instructions[id].operands {
                *operand = stands.get(operand).copied().unwrap_or(*operand);
            }
            for before in &mut module.instructions[id].control_predecessors {
                *before = stands.get(before).copied().unwrap_or(*before);
            }
            let Some(callee) = plain_call(module, id) else {
                out.push(id);
                continue;
            };
            let root = copy_of(module, callee, id, &mut out, taken);
            stands.insert(id, root);
            changed = true;
        }
        let root = module.comp(comp).root;
        let computation = &mut module.computations[comp];
        computation.order = out;
        computation.root = stands.get(&root).copied().unwrap_or(root);
        if !changed {
            return;
        }
        computation.proto_listing.clear();
    }
}

fn plain_call(module: &Module, id: InstrId) -> Option<CompId> {
    let instr = module.instr(id);
    match instr.op {
        Op::Call { to_apply, is_composite: false }
            if instr.attrs.frontend_attributes.is_empty()
                && instr.attrs.backend_config.is_none()
                && instr.control_predecessors.is_empty() =>
        {
            Some(to_apply)
        }
        _ => None,
    }
}

/// Copies what `call` calls to the end of `out`; returns what stands for its result.
fn copy_of(module: &mut Module, callee: CompId, call: InstrId, out: &mut Vec<InstrId>, taken: &mut FxHashSet<Box<str>>) -> InstrId {
    let mut copies: FxHashMap<InstrId, InstrId> = FxHashMap::default();
    let parameters = module.comp(callee).parameters.clone();
    for (&parameter, &operand) in parameters.iter().zip(&module.instr(call).operands) {
        copies.insert(parameter, operand);
    }
    for id in module.comp(callee).order.clone() {
        if copies.contains_key(&id) {
            continue;
        }
        let mut instr = module.instr(id).clone();
        instr.name = Module::fresh_name(&instr.name, taken);
        instr.proto_id = 0;
        for id in instr.operands.iter_mut().chain(&mut instr.control_predecessors) {
            *id = copies.get(id).copied().unwrap_or(*id);
        }
        // A `while` or a call owns what it calls; a reducer is shared.
        if matches!(instr.op, Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::Fusion(_)) {
            instr.op.map_called(&mut |c| module.clone_computation(c, taken));
        }
        let copy = module.define(instr);
        copies.insert(id, copy);
        out.push(copy);
    }
    copies.get(&module.comp(callee).root).copied().unwrap_or(call)
}
