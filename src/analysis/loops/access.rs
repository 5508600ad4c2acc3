//! Reads and writes of rows: plain, inside a fusion, or wrapped in an asynchronous computation.

use super::affine::{Affine, Index, Scope};
use super::{Kind, Loop};
use crate::analysis::users::Users;
use crate::ir::{ArrayShape, CompId, InstrId, Module, Op};

/// Where the slice or the update stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// In the body itself.
    Plain,
    /// In the computation of a fusion of the body.
    Fused {
        /// The fusion.
        fusion: InstrId,
    },
    /// In the computation that an asynchronous start of the body wraps (maybe in a fusion there).
    Async {
        /// The start.
        start: InstrId,
        /// The done.
        done: InstrId,
    },
}

/// How the rows of a stack lie in memory: row `k` is every element whose position, divided by `stride`, leaves `k` modulo `size`. Views that
/// bitcasts make agree on it, whatever they call the dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub size: i64,
    /// Elements from one row to the next.
    pub stride: i64,
}

impl Rows {
    /// The dimension of `shape` along which such rows lie one after another, if it has one. Dimensions of size one lie nowhere.
    pub fn dimension(self, shape: &ArrayShape) -> Option<usize> {
        if self.size == 1 {
            return shape.dims.first().is_some_and(|d| d.size == 1).then_some(0);
        }
        (0..shape.dims.len()).find(|&d| Self::along(shape, d) == Some(self))
    }
    /// The rows along one dimension of an array; `None` where its layout is not a plain order of dimensions.
    pub fn along(shape: &ArrayShape, dimension: usize) -> Option<Self> {
        let size = shape.dims.get(dimension)?.size;
        let layout = shape.layout.as_ref()?;
        if !layout.tiles.is_empty() || layout.minor_to_major.len() != shape.dims.len() {
            return None;
        }
        let mut stride = 1i64;
        for &minor in &layout.minor_to_major {
            let minor = usize::try_from(minor).ok()?;
            if minor == dimension {
                return Some(Self { size, stride });
            }
            stride = stride.checked_mul(shape.dims.get(minor)?.size)?;
        }
        None
    }
    /// Whether one row is contiguous: nothing but rows lies outside the dimension.
    pub fn is_leading(self, shape: &ArrayShape) -> bool {
        let count: i64 = shape.dims.iter().map(|d| d.size).product();
        self.stride.checked_mul(self.size) == Some(count)
    }
}

/// The one write of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The `dynamic-update-slice`.
    pub update: InstrId,
    /// Where it stands.
    pub access: Access,
    /// Which row.
    pub index: Index,
    /// What a row is.
    pub rows: Rows,
}

/// One read of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The `dynamic-slice`.
    pub slice: InstrId,
    /// Where it stands.
    pub access: Access,
    /// Which row.
    pub index: Index,
    /// What a row is.
    pub rows: Rows,
}

/// The write of an element, if it is a stack: what the body returns is the element with one full row written.
pub(super) fn write(module: &Module, this: &Loop, element: usize) -> Option<Write> {
    let scope = Scope::body(module, this.parameter).rows();
    let (made, output) = through_views(module, this.elements[element].next);
    let is_element = |id: InstrId| is_taken(module, this, element, id);
    let (update, access, inner) = match &module.instr(made).op {
        Op::DynamicUpdateSlice if output.is_none() => (made, Access::Plain, scope),
        Op::Fusion(fusion) => {
            let update = fused_root(module, fusion.calls, output)?;
            (update, Access::Fused { fusion: made }, scope.called(made, fusion.calls))
        }
        Op::AsyncDone(wrapped) => {
            let start = *module.instr(made).operands.first()?;
            let (update, inner) = unwrap(module, start, wrapped.calls, &scope, output)?;
            (update, Access::Async { start, done: made }, inner)
        }
        _ => return None,
    };
    let instr = module.instr(update);
    if !matches!(instr.op, Op::DynamicUpdateSlice) {
        return None;
    }
    let (dimension, rows) = full_row(module, instr.operands[0], instr.operands[1])?;
    let base = outer(module, made, &access, instr.operands[0])?;
    if !is_element(base) {
        return None;
    }
    let index = index(this, &inner, (dimension, rows), &instr.operands[2..])?;
    Some(Write { update, access, index, rows })
}

/// All reads of an element in the body; see [`Loop::reads`].
pub(super) fn reads(module: &Module, users: &Users, this: &Loop, element: usize) -> Option<Vec<Read>> {
    let scope = Scope::body(module, this.parameter).rows();
    let written = match &this.elements[element].kind {
        Kind::Stack(write) => Some(*write),
        Kind::Linear { .. } | Kind::Invariant | Kind::Carried => None,
    };
    let mut out = Vec::new();
    let mut views: Vec<InstrId> = this.elements[element].takes.clone();
    while let Some(view) = views.pop() {
        for &user in users.users(view) {
            let instr = module.instr(user);
            match &instr.op {
                Op::Bitcast => views.push(user),
                Op::Tuple if user == this.root => {}
                Op::DynamicSlice { .. } if instr.operands[0] == view => {
                    out.push(read(module, this, &scope, user, Access::Plain)?);
                }
                Op::DynamicUpdateSlice if written.is_some_and(|w| w.update == user) && instr.operands[0] == view => {}
                Op::Fusion(fusion) => {
                    let inner = scope.called(user, fusion.calls);
                    inside(module, this, &inner, user, view, fusion.calls, Access::Fused { fusion: user }, written, &mut out)?;
                }
                Op::AsyncStart(wrapped) => {
                    let done = *users.users(user).first()?;
                    if !matches!(module.instr(done).op, Op::AsyncDone(_)) {
                        return None;
                    }
                    let access = Access::Async { start: user, done };
                    let inner = scope.called(user, wrapped.calls);
                    inside(module, this, &inner, user, view, wrapped.calls, access, written, &mut out)?;
                }
                _ => return None,
            }
        }
    }
    Some(out)
}

/// Collects the reads inside a computation that `caller` calls with `view` as an operand.
#[expect(clippy::too_many_arguments, reason = "one step of `reads`, which binds them all")]
fn inside(
    module: &Module,
    this: &Loop,
    scope: &Scope<'_>,
    caller: InstrId,
    view: InstrId,
    comp: CompId,
    access: Access,
    written: Option<Write>,
    out: &mut Vec<Read>,
) -> Option<()> {
    for (number, &operand) in module.instr(caller).operands.iter().enumerate() {
        if operand != view {
            continue;
        }
        let mut views = vec![*module.comp(comp).parameters.get(number)?];
        while let Some(inner_view) = views.pop() {
            for &id in &module.comp(comp).order {
                let instr = module.instr(id);
                if !instr.operands.contains(&inner_view) {
                    continue;
                }
                match &instr.op {
                    Op::Bitcast => views.push(id),
                    Op::DynamicSlice { .. } if instr.operands[0] == inner_view => out.push(read(module, this, scope, id, access)?),
                    Op::DynamicUpdateSlice if written.is_some_and(|w| w.update == id) && instr.operands[0] == inner_view => {}
                    Op::Fusion(fusion) if matches!(access, Access::Async { .. }) => {
                        let inner = scope.called(id, fusion.calls);
                        inside(module, this, &inner, id, inner_view, fusion.calls, access, written, out)?;
                    }
                    _ => return None,
                }
            }
        }
    }
    Some(())
}

fn read(module: &Module, this: &Loop, scope: &Scope<'_>, slice: InstrId, access: Access) -> Option<Read> {
    let instr = module.instr(slice);
    let (dimension, rows) = full_row(module, instr.operands[0], slice)?;
    Some(Read { slice, access, index: index(this, scope, (dimension, rows), &instr.operands[1..])?, rows })
}

/// The row of an access: the index along the row's dimension linear in the iteration and within the rows in every iteration, all others
/// zero.
fn index(this: &Loop, scope: &Scope<'_>, (dimension, rows): (usize, Rows), operands: &[InstrId]) -> Option<Index> {
    let &along = operands.get(dimension)?;
    let mut others = operands.iter().enumerate().filter(|&(n, _)| n != dimension);
    if others.any(|(_, &o)| scope.affine(o).and_then(Affine::constant) != Some(0)) {
        return None;
    }
    let affine = scope.affine(along)?;
    let index = match affine.element {
        None => Some(Index { scale: 0, offset: affine.offset }),
        Some(of) => match this.elements.get(of)?.kind {
            Kind::Linear { start: Some(start), step } => {
                let offset = affine.scale.checked_mul(start)?.checked_add(affine.offset)?;
                Some(Index { scale: affine.scale.checked_mul(step)?, offset })
            }
            _ => None,
        },
    }?;
    // Within the rows, neither the clamp of a slice nor the wrap of a negative index can change it.
    let last = i64::try_from(this.trips?).ok()?.checked_sub(1)?;
    let ends = [index.offset, index.scale.checked_mul(last)?.checked_add(index.offset)?];
    ends.iter().all(|row| (0..rows.size).contains(row)).then_some(index)
}

/// The dimension along which `row` has the shape of one full row of `stack`, and the rows. Both must order their elements alike.
fn full_row(module: &Module, stack: InstrId, row: InstrId) -> Option<(usize, Rows)> {
    let (stack, row) = (module.shapes.array(module.instr(stack).shape)?, module.shapes.array(module.instr(row).shape)?);
    if stack.dims.len() != row.dims.len() {
        return None;
    }
    let mut differing = (0..stack.dims.len()).filter(|&d| stack.dims[d] != row.dims[d]);
    let dimension = differing.next().unwrap_or(0);
    if differing.next().is_some() || row.dims.get(dimension)?.size != 1 {
        return None;
    }
    let order = |shape: &ArrayShape| -> Option<Vec<i64>> {
        let wide = |&&d: &&i64| usize::try_from(d).ok().and_then(|d| row.dims.get(d)).is_some_and(|d| d.size != 1);
        Some(shape.layout.as_ref()?.minor_to_major.iter().filter(wide).copied().collect())
    };
    if order(stack)? != order(row)? {
        return None;
    }
    Some((dimension, Rows::along(stack, dimension)?))
}

/// The instruction behind bitcasts, and the element of its tuple.
fn through_views(module: &Module, mut id: InstrId) -> (InstrId, Option<usize>) {
    loop {
        let instr = module.instr(id);
        match instr.op {
            Op::Bitcast => id = instr.operands[0],
            Op::GetTupleElement { index } => return (instr.operands[0], usize::try_from(index).ok()),
            _ => return (id, None),
        }
    }
}

/// The root of a computation, or the part of its root tuple, behind bitcasts.
fn fused_root(module: &Module, comp: CompId, output: Option<usize>) -> Option<InstrId> {
    let root = module.comp(comp).root;
    let part = match (&module.instr(root).op, output) {
        (Op::Tuple, Some(n)) => *module.instr(root).operands.get(n)?,
        (Op::Tuple, None) | (_, Some(_)) => return None,
        (_, None) => root,
    };
    Some(through_views(module, part).0)
}

/// The update that an asynchronous computation ends in, through one fusion inside it.
fn unwrap<'m>(module: &'m Module, start: InstrId, comp: CompId, scope: &Scope<'m>, output: Option<usize>) -> Option<(InstrId, Scope<'m>)> {
    let inner = scope.called(start, comp);
    let root = fused_root(module, comp, output)?;
    match &module.instr(root).op {
        Op::Fusion(fusion) => Some((fused_root(module, fusion.calls, None)?, inner.called(root, fusion.calls))),
        _ => Some((root, inner)),
    }
}

/// What of the body an operand inside a called computation is, behind bitcasts.
fn outer(module: &Module, made: InstrId, access: &Access, operand: InstrId) -> Option<InstrId> {
    if let Access::Plain = access {
        return Some(operand);
    }
    let (mut id, none) = through_views(module, operand);
    if none.is_some() {
        return None;
    }
    let callers: Vec<InstrId> = match *access {
        Access::Plain => return Some(operand),
        Access::Fused { .. } => vec![made],
        Access::Async { start, .. } => {
            let Op::AsyncStart(wrapped) = &module.instr(start).op else { return None };
            match module.instr(fused_root(module, wrapped.calls, None)?).op {
                Op::Fusion(_) => vec![fused_root(module, wrapped.calls, None)?, start],
                _ => vec![start],
            }
        }
    };
    for caller in callers {
        let Op::Parameter { number } = module.instr(id).op else { return None };
        let operand = *module.instr(caller).operands.get(usize::try_from(number).ok()?)?;
        id = through_views(module, operand).0;
        if let Op::GetTupleElement { .. } = module.instr(operand).op {
            return Some(operand);
        }
    }
    Some(id)
}

/// Whether an instruction is a loop's element, taken out of the body's parameter (behind bitcasts).
fn is_taken(module: &Module, this: &Loop, element: usize, id: InstrId) -> bool {
    let mut id = id;
    while let Op::Bitcast = module.instr(id).op {
        id = module.instr(id).operands[0];
    }
    match module.instr(id).op {
        Op::GetTupleElement { index } => usize::try_from(index) == Ok(element) && module.instr(id).operands[0] == this.parameter,
        _ => false,
    }
}
