//! Whose name a buffer is told by: a row that is written into a stack says more than the writing, and what a copy copies more than the copy.

use super::names::op_name;
use crate::analysis::Analyses;
use crate::entity::ValueId;
use crate::ir::{InstrId, Module, Op};

/// Steps that are taken at most.
const FAR: usize = 16;

/// The instruction whose `op_name` and line of source tell best what a value holds: of a stack, what made the row that is written into it;
/// of a copy without a name, what is copied; else what makes the value.
pub(super) fn subject(analyses: &Analyses<'_>, value: ValueId) -> InstrId {
    let module = analyses.module();
    let value = analyses.values().get(value);
    let maker = value.instr;
    let path = analyses.values().positions.path(module, module.instr(maker).shape, value.position);
    let row = root(module, maker, &path).filter(|&(id, _)| matches!(module.instr(id).op, Op::DynamicUpdateSlice)).and_then(|(id, call)| {
        let row = *module.instr(id).operands.get(1)?;
        named(module, row, call)
    });
    let copied = || op_name(module, maker).is_empty().then(|| named(module, maker, None)).flatten();
    row.or_else(copied).unwrap_or(maker)
}

/// What makes a value inside the fusion that makes it, and that fusion.
fn root(module: &Module, maker: InstrId, path: &[i64]) -> Option<(InstrId, Option<InstrId>)> {
    let Op::Fusion(fusion) = &module.instr(maker).op else { return Some((maker, None)) };
    let mut id = module.comp(fusion.calls).root;
    if let (Op::Tuple, Some(&n)) = (&module.instr(id).op, path.first()) {
        id = *module.instr(id).operands.get(usize::try_from(n).ok()?)?;
    }
    while matches!(module.instr(id).op, Op::Bitcast | Op::Reshape { .. }) {
        id = *module.instr(id).operands.first()?;
    }
    Some((id, Some(maker)))
}

/// The nearest instruction with a telling name, going back from `id` over what only moves data; `call` is the fusion in which it stands.
fn named(module: &Module, mut id: InstrId, mut call: Option<InstrId>) -> Option<InstrId> {
    for _ in 0..FAR {
        let instr = module.instr(id);
        let name = op_name(module, id);
        let last = name.rsplit('/').next().unwrap_or_default();
        let moves = ["", "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "dynamic_update_slice", "while", "body", "copy"];
        // A parameter of a fused computation has the name of its use.
        let inner = call.is_some() && matches!(instr.op, Op::Parameter { .. });
        if !inner && !moves.contains(&last) {
            return Some(id);
        }
        id = match (&instr.op, call) {
            (Op::Parameter { number }, Some(fusion)) => {
                call = None;
                *module.instr(fusion).operands.get(usize::try_from(*number).ok()?)?
            }
            (
                Op::Bitcast
                | Op::Reshape { .. }
                | Op::Broadcast { .. }
                | Op::Copy
                | Op::CopyDone
                | Op::CopyStart { .. }
                | Op::Transpose { .. }
                | Op::Convert
                | Op::GetTupleElement { .. },
                _,
            ) => *instr.operands.first()?,
            (Op::Fusion(_), None) if instr.operands.len() == 1 => instr.operands[0],
            _ => return None,
        };
    }
    None
}
