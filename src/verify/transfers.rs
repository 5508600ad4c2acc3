//! Promises V7, V8: copies between device and host are whole pairs, and what is read from the host was written there.

use super::callees::{position, tuple_of};
use super::cx::{Cx, compatible, users};
use crate::ir::{CompId, ElementType, HOST, InstrId, Op, Primitive};

/// Steps that are followed back from a reader to an allocation.
const STEPS: usize = 64;

pub(super) fn check(cx: &mut Cx<'_>) {
    let users = users(cx.module);
    for (_, id) in cx.module.live() {
        match cx.instr(id).op {
            Op::CopyStart { .. } => start(cx, id, &users[id]),
            Op::CopyDone => {
                let start = cx.instr(id).operands[0];
                if !matches!(cx.instr(start).op, Op::CopyStart { .. }) {
                    cx.error("V8", id, format!("`{}`: expected a copy-start as operand, found `{}`", cx.name(id), cx.name(start)));
                }
            }
            _ => {}
        }
        for number in 0..cx.instr(id).operands.len() {
            if reads(cx, id, number) {
                written(cx, id, cx.instr(id).operands[number]);
            }
        }
    }
}

fn start(cx: &mut Cx<'_>, id: InstrId, users: &[InstrId]) {
    let i = cx.instr(id);
    if let Some(&other) = users.iter().find(|&&u| !matches!(cx.instr(u).op, Op::CopyDone)) {
        let message = format!("`{}` uses `{}`, whose transfer is not done", cx.name(other), i.name);
        let d = cx.error_at("V7", other, message).at(i.span, "started here");
        cx.push(d.note("use the result of its copy-done"));
    } else if users.len() != 1 {
        cx.error("V8", id, format!("`{}`: expected one copy-done, found {}", i.name, users.len()));
    }
    let shapes = &cx.module.shapes;
    let source = cx.instr(i.operands[0]).shape;
    let space = |id| shapes.memory_space(id);
    let order = |id| shapes.array(id).and_then(|a| a.layout.as_ref()).map(|l| &l.minor_to_major);
    let context = |id| shapes.array(id).is_some_and(|a| a.element == ElementType::Known(Primitive::U32) && a.dims.is_empty());
    let fits = match tuple_of(cx, i.shape) {
        Some(&[target, operand, last]) => {
            compatible(shapes, target, source)
                && compatible(shapes, operand, source)
                && order(target) == order(source)
                && order(operand) == order(source)
                && space(operand) == space(source)
                && context(last)
        }
        _ => false,
    };
    if !fits {
        let message = format!(
            "`{}`: expected (target, source, u32[]) with target and source as the operand `{}`, found `{}`",
            i.name,
            cx.show(source),
            cx.show(i.shape)
        );
        cx.error("V8", id, message);
    } else if space(source) == HOST && tuple_of(cx, i.shape).is_some_and(|t| space(t[0]) == HOST) {
        cx.error("V8", id, format!("`{}`: XLA has no asynchronous copy from host to host", i.name));
    }
}

/// V7: a value that a transfer reads is no allocation that nothing was written to.
fn written(cx: &mut Cx<'_>, reader: InstrId, operand: InstrId) {
    let mut id = operand;
    for _ in 0..STEPS {
        let i = cx.instr(id);
        id = match &i.op {
            Op::Bitcast | Op::Reshape { .. } | Op::OptBarrier => i.operands[0],
            Op::GetTupleElement { index } => {
                let tuple = cx.instr(i.operands[0]);
                match (&tuple.op, tuple.operands.get(position(*index))) {
                    (Op::Tuple, Some(&element)) => element,
                    _ => return,
                }
            }
            Op::CustomCall(call) if &*call.target == "AllocateBuffer" => {
                let message = format!("`{}` reads `{}`, which nothing was written to", cx.name(reader), i.name);
                let d = cx.error_at("V7", reader, message).at(i.span, "allocated here");
                cx.push(d);
                return;
            }
            _ => return,
        };
    }
}

/// Whether an instruction reads data of that operand to copy it.
fn reads(cx: &Cx<'_>, reader: InstrId, operand: usize) -> bool {
    match &cx.instr(reader).op {
        Op::CopyStart { .. } | Op::Copy | Op::Slice { .. } | Op::DynamicSlice { .. } => operand == 0,
        Op::DynamicUpdateSlice => operand == 1,
        Op::AsyncStart(start) => sliced(cx, start.calls, operand),
        Op::Fusion(fusion) => sliced(cx, fusion.calls, operand),
        _ => false,
    }
}

/// Whether a computation is a slice of that parameter, perhaps inside of one fusion.
fn sliced(cx: &Cx<'_>, comp: CompId, parameter: usize) -> bool {
    let (mut comp, mut parameter) = (comp, parameter);
    for _ in 0..2 {
        let c = cx.module.comp(comp);
        let root = cx.instr(c.root);
        let Some(&wanted) = c.parameters.get(parameter) else { return false };
        match &root.op {
            Op::DynamicSlice { .. } | Op::Slice { .. } => return root.operands[0] == wanted,
            Op::Fusion(fusion) => match root.operands.iter().position(|&o| o == wanted) {
                Some(number) => (comp, parameter) = (fusion.calls, number),
                None => return false,
            },
            _ => return false,
        }
    }
    false
}
