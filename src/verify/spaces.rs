//! Promises V1–V5, V9: what is in host memory, and who may touch it.

use super::cx::{Cx, compatible, same_placement, same_spaces, touches};
use crate::ir::{CompId, CustomCall, HOST, InstrId, Op, ShapeId};

/// Custom calls that make, take or move host memory by their meaning.
const HOST_CALLS: &[&str] = &[
    "AllocateBuffer",
    "CreateBuffer",
    "HostExecute",
    "MoveToDevice",
    "MoveToHost",
    "PinToDevice",
    "annotate_device_placement",
    "x64_host_execute",
];

pub(super) fn check(cx: &mut Cx<'_>) {
    for (_, id) in cx.module.live() {
        touching(cx, id);
        slices(cx, id);
        forwarding(cx, id);
        loops(cx, id);
    }
    // Before scheduling, XLA's host offloader brings the entry layout's spaces into the program.
    if cx.module.is_scheduled {
        entry(cx);
    }
}

fn shape(cx: &Cx<'_>, id: InstrId) -> ShapeId {
    cx.instr(id).shape
}

fn is_host(cx: &Cx<'_>, id: InstrId) -> bool {
    touches(&cx.module.shapes, shape(cx, id), HOST)
}

fn is_host_call(call: &CustomCall) -> bool {
    HOST_CALLS.contains(&&*call.target)
}

/// Whether an operation may hold (as result) or see (as operand) values in host memory. What it calls is judged instruction by instruction.
fn may_touch(op: &Op) -> bool {
    match op {
        Op::CustomCall(call) => is_host_call(call),
        Op::Parameter { .. }
        | Op::Bitcast
        | Op::Reshape { .. }
        | Op::Copy
        | Op::CopyStart { .. }
        | Op::CopyDone
        | Op::Slice { .. }
        | Op::DynamicSlice { .. }
        | Op::DynamicUpdateSlice
        | Op::Tuple
        | Op::GetTupleElement { .. }
        | Op::OptBarrier
        | Op::AddDependency
        | Op::Domain(_)
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::Call { .. }
        | Op::Fusion(_)
        | Op::AsyncStart(_)
        | Op::AsyncUpdate(_)
        | Op::AsyncDone(_)
        | Op::Send(_)
        | Op::SendDone(_)
        | Op::Recv(_)
        | Op::RecvDone(_)
        | Op::Infeed { .. }
        | Op::Outfeed { .. }
        | Op::Opaque(_) => true,
        Op::Constant(_)
        | Op::Iota { .. }
        | Op::PartitionId
        | Op::ReplicaId
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare { .. }
        | Op::Select
        | Op::Clamp
        | Op::Convert
        | Op::BitcastConvert
        | Op::StochasticConvert
        | Op::ReducePrecision { .. }
        | Op::Map { .. }
        | Op::DynamicReshape
        | Op::Broadcast { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Concatenate { .. }
        | Op::Pad { .. }
        | Op::Gather(_)
        | Op::Scatter(_)
        | Op::GetDimensionSize { .. }
        | Op::SetDimensionSize { .. }
        | Op::Shuffle { .. }
        | Op::Dot(_)
        | Op::RaggedDot { .. }
        | Op::ScaledDot(_)
        | Op::Convolution(_)
        | Op::Reduce { .. }
        | Op::ReduceWindow { .. }
        | Op::SelectAndScatter { .. }
        | Op::Scan(_)
        | Op::Sort { .. }
        | Op::TopK { .. }
        | Op::Fft { .. }
        | Op::Cholesky { .. }
        | Op::TriangularSolve { .. }
        | Op::BatchNormTraining { .. }
        | Op::BatchNormInference { .. }
        | Op::BatchNormGrad { .. }
        | Op::Rng { .. }
        | Op::RngBitGenerator { .. }
        | Op::RngGetAndUpdateState { .. }
        | Op::AfterAll
        | Op::Collective(_)
        | Op::CollectiveDone(_) => false,
    }
}

/// V1, V2.
fn touching(cx: &mut Cx<'_>, id: InstrId) {
    let i = cx.instr(id);
    let free = may_touch(&i.op);
    if let Some(&source) = i.operands.iter().find(|&&o| !free && is_host(cx, o)) {
        let message =
            format!("`{}`: `{}` computes on the device, its operand `{}` is in host memory", i.name, i.op.opcode(), cx.name(source));
        let d = cx.error_at("V2", id, message).at(cx.instr(source).span, "the host value");
        cx.push(d.note("bring it back with a copy-start and copy-done first"));
    } else if !free && is_host(cx, id) {
        let message = format!("`{}`: `{}` cannot have its result in host memory", i.name, i.op.opcode());
        let d = cx.error_at("V1", id, message);
        cx.push(d.note("allocate with the custom call `AllocateBuffer`, or compute on the device and copy"));
    }
    // A position or size is read by the kernel, wherever the data is.
    if let Op::DynamicSlice { .. } | Op::DynamicUpdateSlice = i.op {
        let first = if matches!(i.op, Op::DynamicUpdateSlice) { 2 } else { 1 };
        if let Some(&index) = i.operands.get(first..).unwrap_or(&[]).iter().find(|&&o| is_host(cx, o)) {
            cx.error("V2", id, format!("`{}`: its start index `{}` is in host memory", i.name, cx.name(index)));
        }
    }
}

/// V3.
fn slices(cx: &mut Cx<'_>, id: InstrId) {
    let i = cx.instr(id);
    let space = |o: InstrId| cx.module.shapes.memory_space(shape(cx, o));
    match &i.op {
        Op::DynamicUpdateSlice => {
            let (buffer, update, result) = (space(i.operands[0]), space(i.operands[1]), space(id));
            if buffer != result {
                let message = format!("`{}`: expected the result where the updated buffer is, S({buffer}), found S({result})", i.name);
                cx.error("V3", id, message);
            } else if update == HOST && result != HOST {
                cx.error("V3", id, format!("`{}`: its update `{}` is in host memory, the buffer is not", i.name, cx.name(i.operands[1])));
            }
        }
        Op::DynamicSlice { .. } | Op::Slice { .. } if space(i.operands[0]) != HOST && space(id) == HOST => {
            cx.error("V3", id, format!("`{}`: a slice of device memory cannot be written to the host", i.name));
        }
        _ => {}
    }
}

/// V4: operations that only rename a value, and the boundaries of computations.
fn forwarding(cx: &mut Cx<'_>, id: InstrId) {
    let i = cx.instr(id);
    let shapes = &cx.module.shapes;
    let same = |a: ShapeId, b: ShapeId| stays(cx, a, b);
    let operand = |k: usize| shape(cx, i.operands[k]);
    let element = |id: ShapeId, k: usize| shapes.elements(id).get(k).copied();
    let kept = match &i.op {
        // A bitcast of an array: element types and sizes may differ.
        Op::Bitcast | Op::Reshape { .. } => shapes.memory_space(operand(0)) == shapes.memory_space(i.shape),
        Op::GetTupleElement { index } => usize::try_from(*index).ok().and_then(|k| element(operand(0), k)).is_none_or(|e| same(e, i.shape)),
        Op::Tuple => shapes.elements(i.shape).iter().enumerate().all(|(k, &e)| k >= i.operands.len() || same(operand(k), e)),
        Op::OptBarrier | Op::AddDependency | Op::Domain(_) => same(operand(0), i.shape),
        Op::CopyDone => element(operand(0), 0).is_none_or(|e| same(e, i.shape)),
        Op::AsyncDone(_) => element(operand(0), 1).is_none_or(|e| same(e, i.shape)),
        Op::AsyncStart(start) => {
            let passed = element(i.shape, 0).map(|e| shapes.elements(e).to_vec()).unwrap_or_default();
            i.operands.iter().zip(passed).all(|(&o, e)| same(shape(cx, o), e))
                && boundary(cx, start.calls, &i.operands, element(i.shape, 1))
        }
        Op::Call { to_apply, .. } => boundary(cx, *to_apply, &i.operands, Some(i.shape)),
        Op::Fusion(fusion) => boundary(cx, fusion.calls, &i.operands, Some(i.shape)),
        Op::Conditional { branches, .. } => {
            branches.iter().zip(&i.operands[1..]).all(|(&b, o)| boundary(cx, b, std::slice::from_ref(o), Some(i.shape)))
        }
        _ => true,
    };
    if !kept {
        cx.error("V4", id, format!("`{}`: `{}` moves no data, so it cannot change the memory space", i.name, i.op.opcode()));
    }
}

/// Whether all arrays are where they were. Shapes that differ otherwise are the business of other promises.
fn stays(cx: &Cx<'_>, a: ShapeId, b: ShapeId) -> bool {
    let shapes = &cx.module.shapes;
    same_spaces(shapes, a, b) || !compatible(shapes, a, b)
}

/// Whether arguments and result are where the callee has them.
fn boundary(cx: &Cx<'_>, callee: CompId, operands: &[InstrId], result: Option<ShapeId>) -> bool {
    let callee = cx.module.comp(callee);
    operands.iter().zip(&callee.parameters).all(|(&o, &p)| stays(cx, shape(cx, o), shape(cx, p)))
        && result.is_none_or(|r| stays(cx, r, shape(cx, callee.root)))
}

/// V9.
fn loops(cx: &mut Cx<'_>, id: InstrId) {
    let Op::While { condition, body } = cx.instr(id).op else { return };
    let m = cx.module;
    let carried = shape(cx, cx.instr(id).operands[0]);
    let places = [
        ("the loop's result", Some(id)),
        ("the parameter of its condition", m.comp(condition).parameters.first().copied()),
        ("the parameter of its body", m.comp(body).parameters.first().copied()),
        ("the result of its body", Some(m.comp(body).root)),
    ];
    for (what, place) in places {
        let Some(place) = place else { continue };
        let found = shape(cx, place);
        if compatible(&m.shapes, carried, found) && !same_placement(&m.shapes, carried, found) {
            let differing = differing(cx, carried, found);
            let message = format!("`{}`: expected {what} as the initial value{differing}", cx.name(id));
            let d = cx.error_at("V9", id, message).at(m.instr(place).span, "this one");
            cx.push(d);
        }
    }
}

/// Names the first element that differs.
fn differing(cx: &Cx<'_>, a: ShapeId, b: ShapeId) -> String {
    let shapes = &cx.module.shapes;
    let pairs = shapes.elements(a).iter().zip(shapes.elements(b)).enumerate();
    match pairs.into_iter().find(|(_, (a, b))| !same_placement(shapes, **a, **b)) {
        Some((at, (&a, &b))) => format!(": element {at} is `{}` there, `{}` at first", cx.show(b), cx.show(a)),
        None => format!(", found `{}` and `{}`", cx.show(b), cx.show(a)),
    }
}

/// V5.
fn entry(cx: &mut Cx<'_>) {
    let m = cx.module;
    let Some(layout) = &m.header.entry_layout else { return };
    let entry = m.entry();
    for (number, (&declared, &parameter)) in layout.parameters.iter().zip(&entry.parameters).enumerate() {
        if let Some((_, want, found)) = first_difference(cx, declared, shape(cx, parameter)) {
            cx.error("V5", parameter, format!("expected parameter {number} in S({want}) as the entry layout says, found S({found})"));
        }
    }
    if let Some((at, want, found)) = first_difference(cx, layout.result, shape(cx, entry.root)) {
        let which = at.map_or("the result".to_owned(), |k| format!("result {k}"));
        let d = cx.error_at("V5", entry.root, format!("expected {which} in S({want}) as the entry layout says, found S({found})"));
        let path = path(cx, entry.root, at);
        cx.push(d.note(format!("it comes from {path}")));
    }
}

/// The first element whose memory space differs, with both spaces.
fn first_difference(cx: &Cx<'_>, declared: ShapeId, found: ShapeId) -> Option<(Option<usize>, i64, i64)> {
    let shapes = &cx.module.shapes;
    if same_spaces(shapes, declared, found) {
        return None;
    }
    let pairs = shapes.elements(declared).iter().zip(shapes.elements(found)).enumerate();
    let element = pairs.into_iter().find(|(_, (a, b))| !same_spaces(shapes, **a, **b));
    let (at, a, b) = element.map_or((None, declared, found), |(k, (&a, &b))| (Some(k), a, b));
    Some((at, shapes.memory_space(a), shapes.memory_space(b)))
}

/// The way a result took, for a person: names from the root back to where the value was made.
fn path(cx: &Cx<'_>, root: InstrId, element: Option<usize>) -> String {
    const STEPS: usize = 12;
    let (mut id, mut element) = (root, element);
    let mut names = vec![format!("`{}`", cx.name(id))];
    while names.len() < STEPS {
        let i = cx.instr(id);
        let next = match (&i.op, element) {
            (Op::Tuple, Some(k)) => i.operands.get(k).copied().inspect(|_| element = None),
            (Op::GetTupleElement { index }, None) => {
                element = usize::try_from(*index).ok();
                i.operands.first().copied()
            }
            (Op::Bitcast | Op::Reshape { .. } | Op::OptBarrier | Op::CopyDone | Op::CopyStart { .. } | Op::AsyncDone(_), _) => {
                i.operands.first().copied()
            }
            _ => None,
        };
        let Some(next) = next else { break };
        id = next;
        names.push(format!("`{}`", cx.name(id)));
    }
    names.join(" from ")
}
