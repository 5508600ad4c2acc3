//! May a result take over the buffer of an operand that dies there?
//!
//! The rules of XLA:GPU, in this order (`CanShareOperandBufferWithUser` in `hlo/analysis/hlo_dataflow_analysis.cc`, `service/gpu/alias_info.cc`,
//! `nvptx_alias_info.cc`):
//! 1. a constant never gives its buffer away;
//! 2. the two sides of an in-place pair of equal shape share;
//! 3. a fusion: number of elements and bits an element must agree (or the shapes be equal); every way from the parameter must be elementwise or a bitcast and end
//!    in that very output, which nobody else inside reads. A dynamic-update-slice is passed from operand 0, at the root also from the update, and a
//!    dynamic-slice may read beside it if it takes the same slice. A `copy` inside forbids it. In a reduction the way may also end in a reduce;
//! 4. all-reduce and collective-broadcast run in place; a `__cublas$lt$matmul` that adds its third operand (`beta` ≠ 0) writes over it;
//!    other custom calls share nothing;
//! 5. with equal shapes: while, conditional; dynamic-update-slice, scatter, set-dimension-size from operand 0, triangular-solve from operand 1;
//!    sort from the operand at the same place if nobody else reads it; elementwise operations. `copy` never (the heap asks that).

use super::inplace::in_place_pairs;
use super::layouts::Positions;
use super::users::Users;
use crate::ir::{CollectiveKind, FusionKind, InstrId, Module, Op, Shape, ShapeId};

/// Whether `user`'s result at position `to` may lie where `operand`'s value at position `from` lies. `user` must read `operand`.
/// Costs O(instructions fused in `user`).
pub fn may_share(module: &Module, users: &Users, positions: &Positions, operand: (InstrId, u32), user: (InstrId, u32)) -> bool {
    let ((operand, from), (user, to)) = (operand, user);
    let (given, wanted) = (module.instr(operand), module.instr(user));
    if matches!(given.op, Op::Constant(_)) {
        return false;
    }
    let shape_at = |shape: ShapeId, position: u32| {
        let path = positions.path(module, shape, position);
        module.shapes.at(shape, &path).expect("the position is of this shape")
    };
    let (from_shape, to_shape) = (shape_at(given.shape, from), shape_at(wanted.shape, to));
    let equal = from_shape == to_shape;
    if equal {
        let to_path = positions.path(module, wanted.shape, to);
        let from_path = positions.path(module, given.shape, from);
        let pairs = in_place_pairs(module, user);
        if pairs.iter().any(|p| p.output_path == to_path && wanted.operands[p.operand] == operand && p.operand_path == from_path) {
            return true;
        }
    }
    let once = |n: usize| wanted.operands.iter().enumerate().all(|(i, &o)| (o == operand) == (i == n));
    match &wanted.op {
        Op::Fusion(_) => {
            let to_path = positions.path(module, wanted.shape, to);
            from == 0 && fusion_shares(module, users, operand, user, &to_path, from_shape, to_shape)
        }
        Op::CustomCall(call) => {
            call.target.as_ref() == "__cublas$lt$matmul"
                && wanted.operands.get(2) == Some(&operand)
                && once(2)
                && adds_bias(wanted.attrs.backend_config.as_deref())
                && positions.path(module, wanted.shape, to).iter().all(|&i| i == 0)
        }
        Op::Collective(c) if matches!(c.kind, CollectiveKind::AllReduce | CollectiveKind::Broadcast) && !c.start => {
            equal
                && match module.shapes.get(wanted.shape) {
                    Shape::Tuple(_) => {
                        let path = positions.path(module, wanted.shape, to);
                        path.first().and_then(|&i| usize::try_from(i).ok()).is_some_and(|i| wanted.operands.get(i) == Some(&operand))
                    }
                    _ => true,
                }
        }
        _ if !equal => false,
        Op::While { .. } | Op::Conditional { .. } => true,
        Op::DynamicUpdateSlice | Op::Scatter(_) | Op::SetDimensionSize { .. } => once(0),
        Op::TriangularSolve { .. } => once(1),
        Op::Sort { .. } => {
            users.users(operand).len() == 1
                && match wanted.operands.len() {
                    1 => true,
                    _ => positions.path(module, wanted.shape, to).first().and_then(|&i| usize::try_from(i).ok()).is_some_and(once),
                }
        }
        op => elementwise(op),
    }
}

/// `beta` of a cuBLAS call is not zero.
fn adds_bias(config: Option<&[u8]>) -> bool {
    let text = String::from_utf8_lossy(config.unwrap_or_default());
    let Some(at) = text.find("\"beta\"") else { return false };
    let number: String =
        text[at + 6..].chars().skip_while(|c| matches!(c, ':' | ' ' | '"')).take_while(|c| !matches!(c, ',' | '}' | '"')).collect();
    number.parse::<f64>().is_ok_and(|beta| beta != 0.0)
}

fn bits(module: &Module, shape: ShapeId) -> Option<u64> {
    let array = module.shapes.array(shape)?;
    Some(array.element.known().map_or(0, |p| u64::from(p.bits())))
}

fn fusion_shares(
    module: &Module,
    users: &Users,
    operand: InstrId,
    user: InstrId,
    to: &[i64],
    from_shape: ShapeId,
    to_shape: ShapeId,
) -> bool {
    let Op::Fusion(fusion) = &module.instr(user).op else { return false };
    let wanted = module.instr(user);
    if from_shape != to_shape {
        let elements = |s: ShapeId| module.shapes.array(s).map(|a| a.elements());
        if elements(from_shape).is_none()
            || elements(from_shape) != elements(to_shape)
            || bits(module, from_shape) != bits(module, to_shape)
        {
            return false;
        }
    }
    let body = module.comp(fusion.calls);
    let Some(at) = wanted.operands.iter().position(|&o| o == operand) else { return false };
    let Some(&parameter) = body.parameters.get(at) else { return false };
    let mut output = body.root;
    for &i in to {
        let Some(&next) = usize::try_from(i).ok().and_then(|i| module.instr(output).operands.get(i)) else { return false };
        output = next;
    }
    let root = match module.instr(output) {
        i if matches!(i.op, Op::Bitcast) => i.operands[0],
        _ => output,
    };
    let hero = hero(module, fusion.kind, body.root);
    let mut seen = rustc_hash::FxHashSet::from_iter([parameter]);
    let mut queue = std::collections::VecDeque::from([parameter]);
    let mut found = false;
    while let Some(id) = queue.pop_front() {
        found |= id == output;
        for &reader in users.users(id) {
            if seen.contains(&reader) {
                continue;
            }
            let instr = module.instr(reader);
            let passes = match &instr.op {
                Op::Tuple => true,
                Op::Reduce { .. } if hero == Some(reader) => continue,
                Op::Copy => false,
                Op::Bitcast => true,
                Op::DynamicUpdateSlice => instr.operands[0] == id || (reader == root && instr.operands.get(1) == Some(&id)),
                Op::Scatter(_) => reader == root && instr.operands[0] == id,
                Op::DynamicSlice { .. } => {
                    let update = module.instr(root);
                    matches!(update.op, Op::DynamicUpdateSlice)
                        && update.operands[0] == instr.operands[0]
                        && module.instr(update.operands[1]).shape == instr.shape
                        && (module.shapes.array(instr.shape).is_some_and(|a| a.elements() == 1)
                            || update.operands[2..] == instr.operands[1..])
                }
                op => elementwise(op),
            };
            if !passes {
                return false;
            }
            seen.insert(reader);
            queue.push_back(reader);
        }
    }
    found
}

/// The reduce that a reduction kernel is built around: the first one behind a result of a `kInput` fusion.
fn hero(module: &Module, kind: FusionKind, root: InstrId) -> Option<InstrId> {
    if kind != FusionKind::Input {
        return None;
    }
    let parts: &[InstrId] = match module.instr(root).op {
        Op::Tuple => &module.instr(root).operands,
        _ => &[root],
    };
    parts.iter().copied().find_map(|mut id| {
        while let Op::Bitcast | Op::Unary(_) | Op::Convert = module.instr(id).op {
            id = module.instr(id).operands[0];
        }
        matches!(module.instr(id).op, Op::Reduce { .. }).then_some(id)
    })
}

/// Whether each element of the result depends on the elements of the operands at the same place only.
pub fn elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare { .. }
            | Op::Select
            | Op::Clamp
            | Op::Convert
            | Op::BitcastConvert
            | Op::StochasticConvert
            | Op::ReducePrecision { .. }
            | Op::Map { .. }
            | Op::Copy
            | Op::Rng { .. }
    )
}
