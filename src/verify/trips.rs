//! Promise V10: what a loop's configuration says of its trips is true. XLA's emitters, the cost models and our planner all believe it.

use super::callees::position;
use super::collectives::flattened;
use super::cx::Cx;
use crate::diag::Diagnostic;
use crate::ir::{CompId, Direction, InstrId, LiteralValue, Module, Op};

/// V10 across a pass that must not touch loops: known trip counts that changed, in the order in which the loops run. Both modules must keep
/// promises S01–S07.
pub fn same_trip_counts(before: &Module, after: &Module) -> Vec<Diagnostic> {
    let loops = |m: &Module| -> Vec<(InstrId, Option<i64>)> {
        let whiles = flattened(m).into_iter().filter(|&id| matches!(m.instr(id).op, Op::While { .. }));
        whiles.map(|id| (id, claim(m, id))).collect()
    };
    let (old, new) = (loops(before), loops(after));
    if old.len() != new.len() {
        return vec![Diagnostic::error("V10", format!("expected {} loops, found {}", old.len(), new.len()))];
    }
    let changed = old.iter().zip(&new).filter(|(a, b)| a.1 != b.1);
    changed
        .map(|(a, b)| {
            let after = after.instr(b.0);
            Diagnostic::error("V10", format!("`{}`: expected trip count {:?}, found {:?}", after.name, a.1, b.1)).at(after.span, "")
        })
        .collect()
}

pub(super) fn check(cx: &mut Cx<'_>) {
    for (_, id) in cx.module.live() {
        let Op::While { condition, body } = cx.instr(id).op else { continue };
        let Some(claim) = claim(cx.module, id) else { continue };
        let Some(found) = count(cx.module, id, condition, body) else { continue };
        if found != claim {
            cx.error("V10", id, format!("`{}`: its counter makes {found} trips, its configuration says {claim}", cx.name(id)));
        }
    }
}

/// The trip count that a `backend_config` says.
fn claim(module: &Module, id: InstrId) -> Option<i64> {
    let config = module.instr(id).attrs.backend_config.as_deref()?;
    let json: serde_json::Value = serde_json::from_slice(config).ok()?;
    let trips = json.get("known_trip_count")?.get("n")?;
    trips.as_i64().or_else(|| trips.as_str()?.parse().ok())
}

/// The trips of a loop whose counter starts at a constant, goes up by a constant, and is compared with a constant; `None` for any other.
fn count(module: &Module, id: InstrId, condition: CompId, body: CompId) -> Option<i64> {
    let root = module.instr(unwrap_fusion(module, module.comp(condition).root).0);
    let Op::Compare { direction: Direction::Lt, .. } = root.op else { return None };
    let [counter, limit] = root.operands[..] else { return None };
    let fusion = unwrap_fusion(module, module.comp(condition).root).1;
    let limit = integer(module, outside(module, fusion, limit))?;
    let Op::GetTupleElement { index } = module.instr(outside(module, fusion, counter)).op else { return None };
    let init = module.instr(module.instr(id).operands[0]);
    let start = match init.op {
        Op::Tuple => integer(module, behind_copies(module, *init.operands.get(position(index))?))?,
        _ => return None,
    };
    let body = module.instr(module.comp(body).root);
    let next = match body.op {
        Op::Tuple => behind_copies(module, *body.operands.get(position(index))?),
        _ => return None,
    };
    let (add, fusion) = unwrap_fusion(module, next);
    let add = module.instr(add);
    let (Op::Binary(crate::ir::Binary::Add), [a, b]) = (&add.op, &add.operands[..]) else { return None };
    let (a, b) = (outside(module, fusion, *a), outside(module, fusion, *b));
    let (counter, step) = if let Some(step) = integer(module, b) { (a, step) } else { (b, integer(module, a)?) };
    if module.instr(counter).op != (Op::GetTupleElement { index }) || step <= 0 {
        return None;
    }
    Some((limit.checked_sub(start)?.max(0).checked_add(step - 1)?) / step)
}

/// The instruction that computes a value: the root of a fusion with the fusion, else the instruction itself.
fn unwrap_fusion(module: &Module, id: InstrId) -> (InstrId, Option<InstrId>) {
    match &module.instr(id).op {
        Op::Fusion(fusion) => (module.comp(fusion.calls).root, Some(id)),
        _ => (id, None),
    }
}

/// The operand of the fusion that a fused parameter stands for.
fn outside(module: &Module, fusion: Option<InstrId>, id: InstrId) -> InstrId {
    match (fusion, &module.instr(id).op) {
        (Some(fusion), Op::Parameter { number }) => module.instr(fusion).operands.get(position(*number)).copied().unwrap_or(id),
        _ => id,
    }
}

fn behind_copies(module: &Module, mut id: InstrId) -> InstrId {
    while let (Op::Copy | Op::Bitcast, [operand]) = (&module.instr(id).op, &module.instr(id).operands[..]) {
        id = *operand;
    }
    id
}

/// The value of a scalar integer constant.
fn integer(module: &Module, id: InstrId) -> Option<i64> {
    let Op::Constant(literal) = &module.instr(behind_copies(module, id)).op else { return None };
    let array = module.shapes.array(literal.shape)?;
    let element = array.element.known().filter(|p| p.is_integer() && array.dims.is_empty())?;
    let LiteralValue::Dense(bytes) = &literal.value else { return None };
    let mut wide = if element.is_signed_integer() && bytes.last()? & 0x80 != 0 { [0xff; 8] } else { [0; 8] };
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(wide))
}
