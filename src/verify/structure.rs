//! Promises S01–S08: names are of their arenas, orders are whole, the call graph has no cycle, operands are as many as the operation takes.

use rustc_hash::FxHashSet;

use super::cx::{Cx, inside};
use crate::ir::{CompId, Entity, EntityMap, InstrId, Literal, LiteralValue, Op, Shape, ShapeId};

pub(super) fn check(cx: &mut Cx<'_>) {
    references(cx);
    if cx.failed() {
        return;
    }
    listing(cx);
    orders(cx);
    if cx.failed() {
        return;
    }
    cycles(cx);
    for (_, id) in cx.module.live() {
        arity(cx, id);
    }
}

/// S01. Everything else may index without asking.
fn references(cx: &mut Cx<'_>) {
    let m = cx.module;
    let (instrs, comps, shapes) = (m.instructions.len(), m.computations.len(), m.shapes.len());
    let mut bad = Vec::new();
    for id in (0..shapes).map(ShapeId::new) {
        let inner: &[ShapeId] = match m.shapes.get(id) {
            Shape::Tuple(elements) => elements,
            Shape::Buffer(inner) => std::slice::from_ref(inner),
            Shape::Array(_) | Shape::Token | Shape::Opaque => &[],
        };
        if inner.iter().any(|&e| e >= id) {
            bad.push(format!("shape {id:?} holds a shape that was not there before it"));
        }
    }
    for comp in m.listing.iter().chain(&m.entry) {
        if !inside(*comp, comps) {
            bad.push(format!("computation {comp:?} is not of this module"));
        }
    }
    for c in m.computations.values() {
        for &id in c.order.iter().chain(&c.parameters).chain(std::iter::once(&c.root)) {
            if !inside(id, instrs) {
                bad.push(format!("computation `{}` names {id:?}, which is not of this module", c.name));
            }
        }
    }
    if bad.is_empty() {
        for i in m.live().map(|(_, id)| m.instr(id)) {
            let operands = i.operands.iter().chain(&i.control_predecessors).all(|&o| inside(o, instrs));
            let callees = i.op.called().into_iter().all(|c| inside(c, comps));
            if !(operands && callees && inside(i.shape, shapes) && shapes_of(&i.op).into_iter().all(|s| inside(s, shapes))) {
                bad.push(format!("instruction `{}` names something that is not of this module", i.name));
            }
        }
    }
    if let Some(layout) = &m.header.entry_layout
        && !layout.parameters.iter().chain(std::iter::once(&layout.result)).all(|&s| inside(s, shapes))
    {
        bad.push("the entry layout names a shape that is not of this module".into());
    }
    bad.into_iter().for_each(|message| cx.error_of_module("S01", message));
}

/// Shapes that an operation names beside its result.
fn shapes_of(op: &Op) -> Vec<ShapeId> {
    let mut out = Vec::new();
    let mut literals: Vec<&Literal> = Vec::new();
    match op {
        Op::Constant(literal) => literals.push(literal),
        Op::CustomCall(call) => {
            out.extend(call.operand_layouts.iter().flatten());
            literals.extend(call.literal.as_deref());
        }
        Op::Outfeed { shape, .. } => out.push(*shape),
        _ => {}
    }
    while let Some(literal) = literals.pop() {
        out.push(literal.shape);
        if let LiteralValue::Tuple(elements) = &literal.value {
            literals.extend(elements);
        }
    }
    out
}

/// S05 for computations, S06.
fn listing(cx: &mut Cx<'_>) {
    let m = cx.module;
    let mut listed = EntityMap::<CompId, bool>::with_default(false);
    let mut names = FxHashSet::default();
    for &comp in &m.listing {
        if std::mem::replace(&mut listed[comp], true) {
            cx.error_in("S06", comp, format!("computation `{}` is listed twice", m.comp(comp).name));
        } else if !names.insert(&m.comp(comp).name) {
            cx.error_in("S05", comp, format!("a second computation is named `{}`", m.comp(comp).name));
        }
    }
    match m.entry {
        None => cx.error_of_module("S06", "the module has no entry computation"),
        Some(entry) if !listed[entry] => cx.error_in("S06", entry, "the entry computation is not listed"),
        Some(_) => {}
    }
    for (_, id) in m.live() {
        if let Some(callee) = m.instr(id).op.called().into_iter().find(|&c| !listed[c]) {
            cx.error("S06", id, format!("`{}` calls `{}`, which is not listed", cx.name(id), m.comp(callee).name));
        }
    }
}

/// S02, S03, S04, S05 for instructions.
fn orders(cx: &mut Cx<'_>) {
    let m = cx.module;
    for (comp, id) in m.live() {
        if cx.home[id].is_some() {
            cx.error("S02", id, format!("`{}` stands in an order twice", cx.name(id)));
        }
        cx.home[id] = Some(comp);
    }
    // Names are scoped by their computation; where XLA wants them unique in the module, the writer of protos makes them so.
    for &comp in &m.listing {
        let c = m.comp(comp);
        if cx.home[c.root] != Some(comp) {
            cx.error_in("S03", comp, format!("the root of `{}` does not stand in its order", c.name));
        }
        parameters(cx, comp);
        let mut names = FxHashSet::default();
        for &id in &c.order {
            let i = m.instr(id);
            if !names.insert(&i.name) {
                cx.error("S05", id, format!("a second instruction of `{}` is named `{}`", c.name, i.name));
            }
            for &other in i.operands.iter().chain(&i.control_predecessors) {
                if cx.home[other] != Some(comp) {
                    cx.error(
                        "S03",
                        id,
                        format!("`{}` needs `{}`, which does not stand in the order of `{}`", i.name, cx.name(other), c.name),
                    );
                }
            }
        }
    }
}

fn parameters(cx: &mut Cx<'_>, comp: CompId) {
    let m = cx.module;
    let c = m.comp(comp);
    for (number, &id) in c.parameters.iter().enumerate() {
        let numbered = matches!(m.instr(id).op, Op::Parameter { number: n } if usize::try_from(n) == Ok(number));
        if !numbered || cx.home[id] != Some(comp) {
            cx.error_in("S04", comp, format!("parameter {number} of `{}` is not the instruction of that number in its order", c.name));
        }
    }
    let in_order = c.order.iter().filter(|&&id| matches!(m.instr(id).op, Op::Parameter { .. })).count();
    if in_order != c.parameters.len() {
        let message = format!("expected {} parameters in the order of `{}`, found {in_order}", c.parameters.len(), c.name);
        cx.error_in("S04", comp, message);
    }
}

/// S07, by a depth-first walk with a stack of its own.
fn cycles(cx: &mut Cx<'_>) {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let m = cx.module;
    let callees = |comp: CompId| -> Vec<CompId> { m.comp(comp).order.iter().flat_map(|&i| m.instr(i).op.called()).collect() };
    let mut state = EntityMap::<CompId, State>::with_default(State::New);
    for &root in &m.listing {
        let mut stack = vec![(root, false)];
        while let Some((comp, left)) = stack.pop() {
            if left {
                state[comp] = State::Done;
                continue;
            }
            if state[comp] != State::New {
                continue;
            }
            state[comp] = State::Open;
            stack.push((comp, true));
            for callee in callees(comp) {
                match state[callee] {
                    State::Open => {
                        cx.error_in("S07", comp, format!("`{}` calls `{}`, which calls it", m.comp(comp).name, m.comp(callee).name))
                    }
                    State::New => stack.push((callee, false)),
                    State::Done => {}
                }
            }
        }
    }
}

/// S08.
fn arity(cx: &mut Cx<'_>, id: InstrId) {
    let i = cx.instr(id);
    let (least, most) = operand_counts(&i.op);
    let found = i.operands.len();
    if found < least || found > most {
        let expected = match (least, most) {
            (least, usize::MAX) => format!("at least {least}"),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        let message = format!("`{}`: expected {expected} operands of `{}`, found {found}", i.name, i.op.opcode());
        cx.error("S08", id, message);
    }
}

/// How many operands an operation takes: least and most.
fn operand_counts(op: &Op) -> (usize, usize) {
    const MANY: usize = usize::MAX;
    match op {
        Op::Parameter { .. } | Op::Constant(_) | Op::Iota { .. } | Op::PartitionId | Op::ReplicaId | Op::RngGetAndUpdateState { .. } => {
            (0, 0)
        }
        Op::Unary(_)
        | Op::Convert
        | Op::BitcastConvert
        | Op::ReducePrecision { .. }
        | Op::Bitcast
        | Op::Copy
        | Op::Reshape { .. }
        | Op::Broadcast { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Slice { .. }
        | Op::GetDimensionSize { .. }
        | Op::Shuffle { .. }
        | Op::TopK { .. }
        | Op::Fft { .. }
        | Op::Cholesky { .. }
        | Op::RngBitGenerator { .. }
        | Op::GetTupleElement { .. }
        | Op::OptBarrier
        | Op::Domain(_)
        | Op::While { .. }
        | Op::CollectiveDone(_)
        | Op::AsyncDone(_)
        | Op::CopyStart { .. }
        | Op::CopyDone
        | Op::SendDone(_)
        | Op::Recv(_)
        | Op::RecvDone(_)
        | Op::Infeed { .. } => (1, 1),
        Op::Binary(_)
        | Op::Compare { .. }
        | Op::StochasticConvert
        | Op::Pad { .. }
        | Op::SetDimensionSize { .. }
        | Op::TriangularSolve { .. }
        | Op::AddDependency
        | Op::Send(_)
        | Op::Outfeed { .. } => (2, 2),
        // Sparse dots and convolutions have their metadata and scales as further operands.
        Op::Dot(_) | Op::Convolution(_) => (2, MANY),
        Op::Select | Op::Clamp | Op::RaggedDot { .. } | Op::SelectAndScatter { .. } | Op::BatchNormTraining { .. } => (3, 3),
        Op::ScaledDot(_) => (4, 4),
        Op::BatchNormInference { .. } | Op::BatchNormGrad { .. } => (5, 5),
        Op::DynamicSlice { .. } => (1, MANY),
        Op::DynamicUpdateSlice | Op::Gather(_) => (2, if matches!(op, Op::Gather(_)) { 2 } else { MANY }),
        Op::Scatter(_) => (3, MANY),
        Op::Reduce { .. } | Op::ReduceWindow { .. } => (2, MANY),
        Op::Map { .. }
        | Op::DynamicReshape
        | Op::Concatenate { .. }
        | Op::Sort { .. }
        | Op::Conditional { .. }
        | Op::AsyncUpdate(_)
        | Op::Scan(_) => (1, MANY),
        Op::Rng { .. }
        | Op::Tuple
        | Op::AfterAll
        | Op::Call { .. }
        | Op::Fusion(_)
        | Op::CustomCall(_)
        | Op::Collective(_)
        | Op::AsyncStart(_)
        | Op::Opaque(_) => (0, MANY),
    }
}
