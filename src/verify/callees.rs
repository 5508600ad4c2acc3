//! Promises S09–S12, S16, S17: callers and callees agree, fusions and async chains own their computations, collectives name devices once.

use rustc_hash::FxHashSet;

use super::cx::{Cx, compatible, users};
use crate::ir::{CompId, Entity, EntityMap, InstrId, Op, Primitive, ReplicaGroups, Shape, ShapeId};

pub(super) fn check(cx: &mut Cx<'_>) {
    for (_, id) in cx.module.live() {
        signatures(cx, id);
        chain(cx, id);
        devices(cx, id);
    }
    owners(cx);
    fused_users(cx);
}

/// What a caller passes or wants.
enum Expect {
    Shape(ShapeId),
    /// A scalar of any element type: combiners may widen.
    Scalar,
    /// `pred[]`.
    Truth,
    /// So many scalars: one bare, several in a tuple.
    Scalars(usize),
    Anything,
}

impl Expect {
    fn fits(&self, cx: &Cx<'_>, found: ShapeId) -> bool {
        let shapes = &cx.module.shapes;
        let scalar = |id: ShapeId| shapes.array(id).is_some_and(|a| a.dims.is_empty());
        match self {
            Self::Shape(id) => compatible(shapes, *id, found),
            Self::Scalar | Self::Scalars(1) => scalar(found),
            Self::Truth => scalar(found) && shapes.array(found).is_some_and(|a| a.element == Primitive::Pred.into()),
            Self::Scalars(n) => shapes.elements(found).len() == *n && shapes.elements(found).iter().all(|&e| scalar(e)),
            Self::Anything => true,
        }
    }

    fn show(&self, cx: &Cx<'_>) -> String {
        match self {
            Self::Shape(id) => format!("`{}`", cx.show(*id)),
            Self::Scalar | Self::Scalars(1) => "a scalar".into(),
            Self::Truth => "`pred[]`".into(),
            Self::Scalars(n) => format!("a tuple of {n} scalars"),
            Self::Anything => "anything".into(),
        }
    }
}

/// S09, S10.
fn signatures(cx: &mut Cx<'_>, id: InstrId) {
    let i = cx.instr(id);
    let module = cx.module;
    let shape = |&o: &InstrId| module.instr(o).shape;
    let operands = || i.operands.iter().map(|o| Expect::Shape(shape(o))).collect::<Vec<_>>();
    let scalars = |n: usize| (0..n).map(|_| Expect::Scalar).collect::<Vec<_>>();
    let result = || Expect::Shape(i.shape);
    let n = i.operands.len();
    match &i.op {
        Op::While { condition, body } => {
            agree(cx, id, *condition, &operands(), &Expect::Truth);
            agree(cx, id, *body, &operands(), &Expect::Shape(shape(&i.operands[0])));
        }
        Op::Conditional { branches, .. } => {
            if n != branches.len() + 1 {
                let message = format!("`{}`: expected {} operands for {} branches, found {n}", i.name, branches.len() + 1, branches.len());
                cx.error("S08", id, message);
                return;
            }
            for (&branch, operand) in branches.iter().zip(&i.operands[1..]) {
                agree(cx, id, branch, &[Expect::Shape(shape(operand))], &result());
            }
        }
        Op::Call { to_apply, .. } => agree(cx, id, *to_apply, &operands(), &result()),
        Op::Fusion(fusion) => agree(cx, id, fusion.calls, &operands(), &result()),
        Op::Map { to_apply, .. } => agree(cx, id, *to_apply, &scalars(n), &Expect::Scalar),
        Op::Reduce { to_apply, .. } | Op::ReduceWindow { to_apply, .. } => agree(cx, id, *to_apply, &scalars(n), &Expect::Scalars(n / 2)),
        Op::SelectAndScatter { select, scatter, .. } => {
            agree(cx, id, *select, &scalars(2), &Expect::Truth);
            agree(cx, id, *scatter, &scalars(2), &Expect::Scalar);
        }
        Op::Scatter(scatter) => agree(cx, id, scatter.to_apply, &scalars((n - 1) / 2 * 2), &Expect::Scalars((n - 1) / 2)),
        Op::Sort { to_apply, .. } => agree(cx, id, *to_apply, &scalars(2 * n), &Expect::Truth),
        Op::Collective(c) => {
            if let Some(to_apply) = c.to_apply {
                agree(cx, id, to_apply, &scalars(2), &Expect::Scalar);
            }
        }
        Op::AsyncStart(start) => {
            // A start may leave operands to later updates.
            let parameters = cx.module.comp(start.calls).parameters.len();
            let mut passed = operands();
            passed.resize_with(parameters.max(n), || Expect::Anything);
            let elements = cx.module.shapes.elements(i.shape);
            let output = elements.get(1).filter(|_| parameters == n).map_or(Expect::Anything, |&e| Expect::Shape(e));
            agree(cx, id, start.calls, &passed, &output);
        }
        // Nothing is known of what these pass to the computations that they name.
        Op::CustomCall(_) | Op::Scan(_) | Op::Opaque(_) => {}
        _ => {}
    }
}

fn agree(cx: &mut Cx<'_>, id: InstrId, callee: CompId, passed: &[Expect], result: &Expect) {
    let callee = cx.module.comp(callee);
    let name = cx.name(id);
    if callee.parameters.len() != passed.len() {
        let message = format!("`{name}`: expected {} parameters of `{}`, found {}", passed.len(), callee.name, callee.parameters.len());
        cx.error("S09", id, message);
        return;
    }
    for (number, (expected, &parameter)) in passed.iter().zip(&callee.parameters).enumerate() {
        let found = cx.instr(parameter).shape;
        if !expected.fits(cx, found) {
            let (expected, found) = (expected.show(cx), cx.show(found));
            let message = format!("`{name}`: expected parameter {number} of `{}` to be {expected}, found `{found}`", callee.name);
            let d = cx.error_at("S09", id, message).at(cx.instr(parameter).span, "this parameter");
            cx.push(d);
        }
    }
    let found = cx.instr(callee.root).shape;
    if !result.fits(cx, found) {
        let message = format!("`{name}`: expected `{}` to return {}, found `{}`", callee.name, result.show(cx), cx.show(found));
        let d = cx.error_at("S10", id, message).at(cx.instr(callee.root).span, "this result");
        cx.push(d);
    }
}

/// S17.
fn chain(cx: &mut Cx<'_>, id: InstrId) {
    let i = cx.instr(id);
    let (Op::AsyncUpdate(link) | Op::AsyncDone(link)) = &i.op else { return };
    let before = cx.instr(i.operands[0]);
    match &before.op {
        Op::AsyncStart(start) | Op::AsyncUpdate(start) if start.calls == link.calls => {}
        Op::AsyncStart(start) | Op::AsyncUpdate(start) => {
            let names = (&cx.module.comp(start.calls).name, &cx.module.comp(link.calls).name);
            cx.error("S17", id, format!("`{}`: expected the computation `{}` of its start, found `{}`", i.name, names.0, names.1));
        }
        _ => cx.error("S17", id, format!("`{}`: expected an async start or update as operand, found `{}`", i.name, before.name)),
    }
}

/// S11. Updates and dones name the computation of their start and do not count.
fn owners(cx: &mut Cx<'_>) {
    let m = cx.module;
    let mut callers = EntityMap::<CompId, u32>::with_default(0);
    let mut owned = EntityMap::<CompId, bool>::with_default(false);
    for (_, id) in m.live() {
        let op = &m.instr(id).op;
        if matches!(op, Op::AsyncUpdate(_) | Op::AsyncDone(_)) {
            continue;
        }
        for callee in op.called() {
            callers[callee] += 1;
            if matches!(op, Op::Fusion(_) | Op::AsyncStart(_)) {
                owned[callee] = true;
            }
        }
    }
    for (_, id) in m.live() {
        let op = &m.instr(id).op;
        if matches!(op, Op::AsyncUpdate(_) | Op::AsyncDone(_)) {
            continue;
        }
        for callee in op.called() {
            if owned[callee] && callers[callee] > 1 {
                let name = &m.comp(callee).name;
                let message = format!(
                    "`{}` calls `{name}`, which a fusion or async start must own and {} instructions call",
                    cx.name(id),
                    callers[callee]
                );
                cx.error("S11", id, message);
            }
        }
    }
}

/// S12.
fn fused_users(cx: &mut Cx<'_>) {
    let m = cx.module;
    let mut fused = Vec::new();
    for (_, id) in m.live() {
        if let Op::Fusion(fusion) = &m.instr(id).op {
            fused.push(fusion.calls);
        }
    }
    if fused.is_empty() {
        return;
    }
    let users = users(m);
    for comp in fused {
        let c = m.comp(comp);
        for &id in c.order.iter().filter(|&&id| id != c.root && users[id].is_empty()) {
            cx.error("S12", id, format!("nothing uses `{}` in the fused computation `{}`", cx.name(id), c.name));
        }
    }
}

/// S16.
fn devices(cx: &mut Cx<'_>, id: InstrId) {
    let i = cx.instr(id);
    let Op::Collective(c) = &i.op else { return };
    let mut twice = None;
    if let ReplicaGroups::List(groups) = &c.groups {
        let mut seen = FxHashSet::default();
        twice = groups.iter().flatten().find(|d| !seen.insert(**d)).map(|d| format!("device {d} stands twice in the replica groups"));
    }
    let (mut sources, mut targets) = (FxHashSet::default(), FxHashSet::default());
    // A permute in place sends several slices: there a source may stand twice.
    if c.slice_sizes.is_empty() {
        for (source, target) in &c.source_target_pairs {
            if !sources.insert(*source) {
                twice = Some(format!("source {source} stands twice in the pairs"));
            } else if !targets.insert(*target) {
                twice = Some(format!("target {target} stands twice in the pairs"));
            }
        }
    }
    if c.use_global_device_ids && c.channel_id.is_none() {
        twice = Some("global device ids need a channel".into());
    }
    if let Some(message) = twice {
        cx.error("S16", id, format!("`{}`: {message}", i.name));
    }
}

/// The element shapes of an instruction's tuple.
pub(super) fn tuple_of<'m>(cx: &Cx<'m>, id: ShapeId) -> Option<&'m [ShapeId]> {
    match cx.module.shapes.get(id) {
        Shape::Tuple(elements) => Some(elements),
        _ => None,
    }
}

/// An index of a path or table as a position.
pub(super) fn position(index: i64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// The parameter of that number.
pub(super) fn parameter(cx: &Cx<'_>, number: i64) -> Option<InstrId> {
    cx.module.entry().parameters.get(position(number)).copied().filter(|p| p.index() < cx.module.instructions.len())
}
