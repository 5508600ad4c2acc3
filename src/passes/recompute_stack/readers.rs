//! Gives readers of a stack the row instead.

use crate::analysis::loops::{Access, Read};
use crate::ir::{CompId, InstrId, Module, Op};
use crate::passes::inline::without_price;
use crate::passes::trim_outputs::prune_fusion;

use super::graph::{innermost, peel};

/// What holds the row that a read takes, if the body has it by itself.
pub(super) fn holder(module: &Module, read: &Read) -> Option<InstrId> {
    match read.access {
        Access::Plain => Some(read.slice),
        Access::Async { done, .. } => Some(done),
        Access::Fused { fusion } => {
            let (comp, _) = innermost(module, fusion)?;
            (peel(module, module.comp(comp).root) == read.slice).then_some(fusion)
        }
    }
}

/// Gives a reader the row instead of the stack; `takes` are what takes the stack out of the body's parameter, `inserted` what is new and not in
/// the body's order yet.
pub(super) fn replace_read(
    module: &mut Module,
    body: CompId,
    takes: &[InstrId],
    read: &Read,
    row: InstrId,
    inserted: &[InstrId],
) -> Option<()> {
    match read.access {
        Access::Plain | Access::Async { .. } => {
            let old = match read.access {
                Access::Async { done, .. } => done,
                _ => read.slice,
            };
            for id in module.comp(body).order.iter().chain(inserted).copied().collect::<Vec<_>>() {
                for operand in &mut module.instructions[id].operands {
                    if *operand == old {
                        *operand = row;
                    }
                }
            }
        }
        Access::Fused { fusion } => in_fusion(module, body, takes, fusion, row, inserted)?,
    }
    Some(())
}

fn in_fusion(module: &mut Module, body: CompId, takes: &[InstrId], fusion: InstrId, row: InstrId, inserted: &[InstrId]) -> Option<()> {
    let Op::Fusion(op) = &module.instr(fusion).op else { return None };
    let calls = op.calls;
    // Another read of the same stack in this fusion may have been replaced already.
    let Some(number) = module.instr(fusion).operands.iter().position(|&o| takes.contains(&peel(module, o))) else { return Some(()) };
    let parameter = *module.comp(calls).parameters.get(number)?;
    let order = module.comp(calls).order.clone();
    let mut views = vec![parameter];
    let mut slices = Vec::new();
    for &id in &order {
        let instr = module.instr(id);
        if !instr.operands.iter().any(|o| views.contains(o)) {
            continue;
        }
        match instr.op {
            Op::Bitcast => views.push(id),
            Op::DynamicSlice { .. } => slices.push(id),
            _ => return None,
        }
    }
    let &first = slices.first()?;
    if slices.iter().any(|&s| module.instr(s).shape != module.instr(first).shape) || module.instr(row).shape != module.instr(first).shape {
        return None;
    }
    if slices.contains(&peel(module, module.comp(calls).root)) {
        // The fusion is the slice: its users read the row.
        let shape = module.instr(fusion).shape;
        let new = if module.instr(row).shape == shape {
            row
        } else {
            // The fusion itself becomes the view.
            module.instructions[fusion].op = Op::Bitcast;
            module.instructions[fusion].operands = [row].into_iter().collect();
            module.instructions[fusion].attrs.backend_config = None;
            return Some(());
        };
        for id in module.comp(body).order.iter().chain(inserted).copied().collect::<Vec<_>>() {
            for operand in &mut module.instructions[id].operands {
                if *operand == fusion {
                    *operand = new;
                }
            }
        }
        return Some(());
    }
    module.instructions[parameter].shape = module.instr(first).shape;
    module.instructions[fusion].operands[number] = row;
    for &id in &order {
        for operand in &mut module.instructions[id].operands {
            if slices.contains(operand) {
                *operand = parameter;
            }
        }
    }
    // XLA's slice config and price are of the old computation.
    let config = module.instr(fusion).attrs.backend_config.clone();
    module.instructions[fusion].attrs.backend_config = config.and_then(|c| without_price(&c));
    prune_fusion(module, fusion);
    Some(())
}
