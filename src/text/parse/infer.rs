//! The shape of an operation that was written without one, as XLA's parser infers it, layouts included.
//!
//! This is not the verifier: it knows the opcodes whose shape may be left out, and says no where no shape follows.

mod contraction;
mod windows;

use crate::ir::{ArrayShape, Binary, CompId, Dim, ElementType, InstrId, Layout, Module, Op, Primitive, Shape, ShapeId, Unary};

/// Why no shape follows.
pub(super) struct Misfit(pub(super) String);

type Fit<T> = Result<T, Misfit>;

fn misfit<T>(why: impl Into<String>) -> Fit<T> {
    Err(Misfit(why.into()))
}

/// An array in the default layout.
fn plain(element: ElementType, dims: Vec<Dim>) -> Shape {
    let layout = Some(Layout::default_for(dims.len()));
    Shape::Array(ArrayShape { element, dims, layout, unknown: crate::ir::Unknown::default() })
}

fn with_element(array: &ArrayShape, element: impl Into<ElementType>) -> Shape {
    Shape::Array(ArrayShape { element: element.into(), ..array.clone() })
}

/// A position in a list of dimensions.
fn index(dimension: i64, rank: usize) -> Fit<usize> {
    match usize::try_from(dimension) {
        Ok(d) if d < rank => Ok(d),
        _ => misfit(format!("expected a dimension below {rank}, found {dimension}")),
    }
}

/// The shape of `op` on `operands`. Cost: O(rank + operands).
pub(super) fn shape(module: &mut Module, op: &Op, operands: &[InstrId]) -> Fit<ShapeId> {
    let shape = infer(module, op, operands)?;
    Ok(match shape {
        Inferred::Id(id) => id,
        Inferred::New(shape) => module.shapes.intern(shape),
        Inferred::Tuple(parts) => {
            let ids = parts.into_iter().map(|p| module.shapes.intern(p)).collect();
            module.shapes.intern(Shape::Tuple(ids))
        }
    })
}

#[expect(clippy::large_enum_variant, reason = "it lives for one instruction")]
enum Inferred {
    Id(ShapeId),
    New(Shape),
    Tuple(Vec<Shape>),
}

struct Operands<'m> {
    module: &'m Module,
    ids: &'m [InstrId],
}

impl<'m> Operands<'m> {
    fn id(&self, i: usize) -> Fit<ShapeId> {
        match self.ids.get(i) {
            Some(&id) => Ok(self.module.instr(id).shape),
            None => misfit(format!("expected at least {} operands, found {}", i + 1, self.ids.len())),
        }
    }
    fn array(&self, i: usize) -> Fit<&'m ArrayShape> {
        match self.module.shapes.array(self.id(i)?) {
            Some(array) => Ok(array),
            None => misfit(format!("expected an array for operand {i}")),
        }
    }
    fn root(&self, comp: CompId) -> ShapeId {
        self.module.instr(self.module.comp(comp).root).shape
    }
    fn parameters(&self, comp: CompId) -> usize {
        self.module.comp(comp).parameters.len()
    }
    fn root_array(&self, comp: CompId) -> Fit<&'m ArrayShape> {
        match self.module.shapes.array(self.root(comp)) {
            Some(array) => Ok(array),
            None => misfit("expected an array from the called computation"),
        }
    }
    /// The root of a computation as one array or as the elements of a tuple.
    fn results(&self, comp: CompId) -> Vec<ShapeId> {
        let root = self.root(comp);
        match self.module.shapes.get(root) {
            Shape::Tuple(elements) => elements.clone(),
            _ => vec![root],
        }
    }
}

fn infer(module: &Module, op: &Op, ids: &[InstrId]) -> Fit<Inferred> {
    let operands = Operands { module, ids };
    let o = &operands;
    let new = |shape| Ok(Inferred::New(shape));
    match op {
        Op::Unary(op) => unary(*op, o.array(0)?).map(Inferred::New),
        Op::Binary(op) => binary(*op, o.array(0)?, o.array(1)?).map(Inferred::New),
        Op::Compare { .. } => {
            let result = elementwise(o.array(0)?, o.array(1)?)?;
            new(with_element(&result, Primitive::Pred))
        }
        Op::Select => select(o.array(0)?, o.array(1)?, o.array(2)?).map(Inferred::New),
        Op::Clamp => clamp(o.array(0)?, o.array(1)?, o.array(2)?).map(Inferred::New),
        Op::Copy | Op::AddDependency | Op::Domain(_) => o.id(0).map(Inferred::Id),
        Op::OptBarrier => o.array(0).and_then(|_| o.id(0)).map(Inferred::Id),
        Op::Map { dimensions, to_apply } => map(o, dimensions, *to_apply),
        Op::Broadcast { dimensions } => {
            // XLA takes `dimensions` for sizes put in front when the shape is not written.
            let array = o.array(0)?;
            let front = dimensions.iter().map(|&size| Dim { size, dynamic: false });
            if dimensions.iter().any(|d| *d < 0) {
                return misfit("expected sizes that are not negative");
            }
            new(plain(array.element.clone(), front.chain(array.dims.iter().copied()).collect()))
        }
        Op::Transpose { dimensions } => transpose(o.array(0)?, dimensions).map(Inferred::New),
        Op::Reverse { dimensions } => {
            let array = o.array(0)?;
            let mut seen = vec![false; array.dims.len()];
            for &d in dimensions {
                if std::mem::replace(&mut seen[index(d, array.dims.len())?], true) {
                    return misfit(format!("expected each dimension once, found {d} twice"));
                }
            }
            o.id(0).map(Inferred::Id)
        }
        Op::Concatenate { dimension } => concatenate(o, *dimension).map(Inferred::New),
        Op::Pad { padding } => windows::pad(o.array(0)?, o.array(1)?, padding).map(Inferred::New),
        Op::Gather(op) => contraction::gather(o.array(0)?, o.array(1)?, op).map(Inferred::New),
        Op::Scatter(_) => scatter(o),
        Op::GetDimensionSize { dimension } => {
            index(*dimension, o.array(0)?.dims.len())?;
            new(Shape::Array(ArrayShape::new(Primitive::S32, &[])))
        }
        Op::SetDimensionSize { dimension } => {
            let mut array = o.array(0)?.clone();
            let at = index(*dimension, array.dims.len())?;
            array.dims[at].dynamic = true;
            new(Shape::Array(array))
        }
        Op::Shuffle { .. } => o.array(0).and_then(|_| o.id(0)).map(Inferred::Id),
        Op::Dot(op) | Op::ScaledDot(op) => contraction::dot(o.array(0)?, o.array(1)?, &op.dims).map(Inferred::New),
        Op::RaggedDot { dot, lhs_ragged, rhs_group } => {
            contraction::ragged(o.array(0)?, o.array(1)?, o.array(2)?, &dot.dims, lhs_ragged, rhs_group).map(Inferred::New)
        }
        Op::Convolution(op) => contraction::convolution(o.array(0)?, o.array(1)?, op).map(Inferred::New),
        Op::Reduce { dimensions, to_apply } => reduce(o, dimensions, *to_apply),
        Op::ReduceWindow { window, to_apply } => reduce_window(o, window, *to_apply),
        Op::SelectAndScatter { window, .. } => {
            windows::apply(o.array(0)?, window)?;
            o.id(0).map(Inferred::Id)
        }
        Op::Scan(op) => {
            if o.parameters(op.to_apply) != ids.len() {
                return misfit(format!("expected a body of {} parameters", ids.len()));
            }
            scan(o, op)
        }
        Op::Sort { .. } => match ids {
            [] => misfit("expected at least one operand, found none"),
            [_] => o.id(0).map(Inferred::Id),
            _ => Ok(Inferred::Tuple((0..ids.len()).map(|i| o.array(i).map(|a| Shape::Array(a.clone()))).collect::<Fit<_>>()?)),
        },
        Op::TopK { k, .. } => {
            let array = o.array(0)?;
            let mut dims = array.dims.clone();
            match dims.last_mut() {
                Some(last) if *k >= 0 && *k <= last.size => last.size = *k,
                _ => return misfit("expected at most as many as the last dimension has"),
            }
            Ok(Inferred::Tuple(vec![plain(array.element.clone(), dims.clone()), plain(Primitive::S32.into(), dims)]))
        }
        Op::Fft { fft_type, fft_length } => contraction::fft(o.array(0)?, *fft_type, fft_length).map(Inferred::New),
        Op::Cholesky { .. } => o.array(0).and_then(|_| o.id(0)).map(Inferred::Id),
        Op::TriangularSolve { .. } => o.array(1).and_then(|_| o.id(1)).map(Inferred::Id),
        Op::BatchNormInference { .. } => o.array(0).and_then(|_| o.id(0)).map(Inferred::Id),
        Op::BatchNormTraining { feature_index, .. } | Op::BatchNormGrad { feature_index, .. } => {
            let array = o.array(0)?;
            let feature = plain(array.element.clone(), vec![array.dims[index(*feature_index, array.dims.len())?]]);
            Ok(Inferred::Tuple(vec![Shape::Array(array.clone()), feature.clone(), feature]))
        }
        Op::Tuple => new(Shape::Tuple((0..ids.len()).map(|i| o.id(i)).collect::<Fit<_>>()?)),
        Op::GetTupleElement { index } => match module.shapes.at(o.id(0)?, &[*index]) {
            Some(id) => Ok(Inferred::Id(id)),
            None => misfit(format!("expected a tuple with an element {index}")),
        },
        Op::AfterAll => new(Shape::Token),
        Op::PartitionId | Op::ReplicaId => new(Shape::Array(ArrayShape::new(Primitive::U32, &[]))),
        Op::While { .. } => o.id(0).map(Inferred::Id),
        Op::Conditional { branches, .. } => match branches.first() {
            Some(&branch) => Ok(Inferred::Id(o.root(branch))),
            None => misfit("expected at least one branch"),
        },
        Op::Call { to_apply, .. } => Ok(Inferred::Id(o.root(*to_apply))),
        _ => misfit("expected a shape: it does not follow from the operands"),
    }
}

fn unary(op: Unary, array: &ArrayShape) -> Fit<Shape> {
    let p = array.element.known();
    let is = |f: fn(Primitive) -> bool| p.is_none_or(f);
    match op {
        Unary::IsFinite => Ok(with_element(array, Primitive::Pred)),
        Unary::Real | Unary::Imag | Unary::Abs => Ok(match p {
            Some(Primitive::C64) => with_element(array, Primitive::F32),
            Some(Primitive::C128) => with_element(array, Primitive::F64),
            _ => Shape::Array(array.clone()),
        }),
        Unary::Not if !is(|p| p == Primitive::Pred || p.is_integer()) => misfit("expected `pred` or integers"),
        Unary::CountLeadingZeros | Unary::PopCount if !is(Primitive::is_integer) => misfit("expected integers"),
        _ => Ok(Shape::Array(array.clone())),
    }
}

/// Whether dimensions are equal, a bound fitting a size.
fn same_dims(a: &ArrayShape, b: &ArrayShape) -> bool {
    a.dims.len() == b.dims.len() && a.dims.iter().zip(&b.dims).all(|(a, b)| a.size == b.size || a.size < 0 || b.size < 0)
}

/// The shape of an elementwise operation: the first operand's, sizes of one and missing dimensions stretched to the other's.
fn elementwise(a: &ArrayShape, b: &ArrayShape) -> Fit<ArrayShape> {
    if a.element != b.element {
        return misfit(format!("expected equal element types, found `{}` and `{}`", a.element.name(), b.element.name()));
    }
    if b.dims.is_empty() {
        return Ok(a.clone());
    }
    if a.dims.is_empty() {
        return Ok(ArrayShape { layout: Some(Layout::default_for(b.dims.len())), ..b.clone() });
    }
    if a.dims.len() != b.dims.len() {
        return misfit("expected equal ranks");
    }
    let mut out = a.clone();
    for (x, y) in out.dims.iter_mut().zip(&b.dims) {
        *x = match (x.size, y.size) {
            (i, j) if i == j => Dim { size: i, dynamic: x.dynamic || y.dynamic },
            (1, _) => *y,
            (_, 1) => *x,
            (i, j) if i < 0 || j < 0 => {
                if i < 0 {
                    *y
                } else {
                    *x
                }
            }
            (i, j) => return misfit(format!("expected equal dimensions, found {i} and {j}")),
        };
    }
    Ok(out)
}

fn binary(op: Binary, a: &ArrayShape, b: &ArrayShape) -> Fit<Shape> {
    let result = elementwise(a, b)?;
    let p = result.element.known();
    match op {
        Binary::And | Binary::Or | Binary::Xor if p.is_some_and(|p| p != Primitive::Pred && !p.is_integer()) => {
            misfit("expected `pred` or integers")
        }
        Binary::Complex => match p {
            Some(Primitive::F32) => Ok(with_element(&result, Primitive::C64)),
            Some(Primitive::F64) => Ok(with_element(&result, Primitive::C128)),
            _ => misfit("expected `f32` or `f64`"),
        },
        _ => Ok(Shape::Array(result)),
    }
}

fn select(pred: &ArrayShape, a: &ArrayShape, b: &ArrayShape) -> Fit<Shape> {
    if pred.element.known() != Some(Primitive::Pred) {
        return misfit(format!("expected `pred` for operand 0, found `{}`", pred.element.name()));
    }
    if a.element != b.element || !same_dims(a, b) {
        return misfit("expected equal shapes for operands 1 and 2");
    }
    if !pred.dims.is_empty() && !same_dims(pred, a) {
        return misfit("expected a scalar or equal dimensions for operand 0");
    }
    if pred.dims.is_empty() { Ok(Shape::Array(a.clone())) } else { Ok(with_element(pred, a.element.clone())) }
}

fn clamp(low: &ArrayShape, array: &ArrayShape, high: &ArrayShape) -> Fit<Shape> {
    let fits = |bound: &ArrayShape| bound.element == array.element && (bound.dims.is_empty() || same_dims(bound, array));
    if fits(low) && fits(high) { Ok(Shape::Array(array.clone())) } else { misfit("expected bounds that are scalars or like operand 1") }
}

fn transpose(array: &ArrayShape, dimensions: &[i64]) -> Fit<Shape> {
    let rank = array.dims.len();
    let mut inverse = vec![None; rank];
    let mut dims = Vec::with_capacity(rank);
    for (to, &from) in (0i64..).zip(dimensions) {
        let from = index(from, rank)?;
        if inverse[from].replace(to).is_some() {
            return misfit("expected a permutation of the dimensions");
        }
        dims.push(array.dims[from]);
    }
    if dims.len() != rank {
        return misfit("expected a permutation of the dimensions");
    }
    let layout = array.layout.as_ref().map(|l| Layout {
        minor_to_major: l.minor_to_major.iter().filter_map(|&d| inverse.get(usize::try_from(d).ok()?).copied().flatten()).collect(),
        ..l.clone()
    });
    Ok(Shape::Array(ArrayShape { dims, layout, ..array.clone() }))
}

fn concatenate(o: &Operands<'_>, dimension: i64) -> Fit<Shape> {
    let first = o.array(0)?;
    let at = index(dimension, first.dims.len())?;
    let mut dims = first.dims.clone();
    for i in 1..o.ids.len() {
        let other = o.array(i)?;
        let fits = |d: usize| d == at || other.dims[d].size == first.dims[d].size;
        if other.element != first.element || other.dims.len() != dims.len() || !(0..dims.len()).all(fits) {
            return misfit(format!("expected operand {i} to be like operand 0 but for dimension {dimension}"));
        }
        dims[at].size = dims[at].size.saturating_add(other.dims[at].size);
        dims[at].dynamic |= other.dims[at].dynamic;
    }
    Ok(plain(first.element.clone(), dims))
}

fn map(o: &Operands<'_>, dimensions: &[i64], to_apply: CompId) -> Fit<Inferred> {
    let first = o.array(0)?;
    if !dimensions.iter().copied().eq(0..i64::try_from(first.dims.len()).unwrap_or(0)) {
        return misfit("expected all dimensions in order");
    }
    if o.parameters(to_apply) != o.ids.len() {
        return misfit(format!("expected a computation of {} parameters", o.ids.len()));
    }
    Ok(Inferred::New(plain(o.root_array(to_apply)?.element.clone(), first.dims.clone())))
}

fn scatter(o: &Operands<'_>) -> Fit<Inferred> {
    let count = o.ids.len() / 2;
    if count == 1 {
        return o.array(0).map(|a| Inferred::New(Shape::Array(a.clone())));
    }
    Ok(Inferred::Tuple((0..count).map(|i| o.array(i).map(|a| Shape::Array(a.clone()))).collect::<Fit<_>>()?))
}

fn reduce(o: &Operands<'_>, dimensions: &[i64], to_apply: CompId) -> Fit<Inferred> {
    let count = o.ids.len() / 2;
    if count == 0 || o.parameters(to_apply) != 2 * count {
        return misfit(format!("expected a computation of {} parameters", 2 * count));
    }
    let first = o.array(0)?;
    let mut gone = vec![false; first.dims.len()];
    for &d in dimensions {
        if std::mem::replace(&mut gone[index(d, first.dims.len())?], true) {
            return misfit(format!("expected each dimension once, found {d} twice"));
        }
    }
    let dims: Vec<Dim> = first.dims.iter().zip(&gone).filter(|(_, gone)| !**gone).map(|(d, _)| *d).collect();
    many(o, count, to_apply, &dims)
}

fn reduce_window(o: &Operands<'_>, window: &[crate::ir::WindowDim], to_apply: CompId) -> Fit<Inferred> {
    let count = o.ids.len() / 2;
    if count == 0 || o.parameters(to_apply) != 2 * count {
        return misfit(format!("expected a computation of {} parameters", 2 * count));
    }
    let dims = windows::apply(o.array(0)?, window)?;
    many(o, count, to_apply, &dims)
}

/// The results of a reduction of several arrays, each of the element type of the computation's result.
fn many(o: &Operands<'_>, count: usize, to_apply: CompId, dims: &[Dim]) -> Fit<Inferred> {
    let results = o.results(to_apply);
    if results.len() != count {
        return misfit(format!("expected {count} results of the called computation, found {}", results.len()));
    }
    let mut parts = Vec::new();
    for result in results {
        match o.module.shapes.array(result) {
            Some(array) => parts.push(plain(array.element.clone(), dims.to_vec())),
            None => return misfit("expected arrays from the called computation"),
        }
    }
    Ok(if count == 1 { Inferred::New(parts.remove(0)) } else { Inferred::Tuple(parts) })
}

fn scan(o: &Operands<'_>, op: &crate::ir::Scan) -> Fit<Inferred> {
    let carries = usize::try_from(op.num_carries).unwrap_or(0);
    let results = o.results(op.to_apply);
    let length = {
        let first = o.array(0)?;
        first.dims[index(op.dimension, first.dims.len())?]
    };
    let outputs = results.len().saturating_sub(carries);
    let mut parts = Vec::new();
    for (i, result) in results.iter().enumerate() {
        let Some(array) = o.module.shapes.array(*result) else { return misfit("expected arrays from the body") };
        let mut dims = array.dims.clone();
        if i < outputs {
            dims.insert(index(op.dimension, dims.len() + 1)?, length);
            parts.push(plain(array.element.clone(), dims));
        } else {
            parts.push(Shape::Array(array.clone()));
        }
    }
    Ok(Inferred::Tuple(parts))
}
