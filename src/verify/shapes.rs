//! Promises H01–H06: declared shapes are the ones that the operations give.
//!
//! One rule an operation, spread over the files by family. A rule sees operands and attributes and says what it [wants](Want); it compares
//! element types and sizes, not layouts. Programs with unbounded dimensions are taken on trust there.

mod collective;
mod contraction;
mod control;
mod elementwise;
mod indexing;
mod movement;
mod reduction;
mod transfer;
mod window;

use super::cx::{Cx, compatible, show, show_dims};
use crate::diag::Code;
use crate::ir::{ArrayShape, Dim, ElementType, InstrId, Instruction, Module, Op, Primitive, Shape, ShapeId};

pub(super) fn check(cx: &mut Cx<'_>) {
    for (_, id) in cx.module.live() {
        layout(cx, id);
        let node = Node { module: cx.module, instr: cx.module.instr(id) };
        if node.is_unbounded() {
            continue;
        }
        match rule(&node) {
            Err(trouble) => cx.error(trouble.code, id, format!("`{}`: {}", node.instr.name, trouble.message)),
            Ok(want) if !want.fits(cx.module, node.instr.shape) => {
                let message =
                    format!("`{}`: expected shape `{}`, found `{}`", node.instr.name, want.show(cx.module), cx.show(node.instr.shape));
                cx.error("H01", id, message);
            }
            Ok(_) => {}
        }
    }
}

/// H04.
fn layout(cx: &mut Cx<'_>, id: InstrId) {
    let Some(array) = cx.module.shapes.array(cx.instr(id).shape) else { return };
    let Some(layout) = &array.layout else { return };
    let order = &layout.minor_to_major;
    let mut seen = vec![false; array.dims.len()];
    let each = |&d: &i64| usize::try_from(d).ok().and_then(|d| seen.get_mut(d)).is_some_and(|s| !std::mem::replace(s, true));
    if order.len() != array.dims.len() || !order.iter().all(each) {
        let message = format!("`{}`: expected a layout that orders {} dimensions, found {order:?}", cx.name(id), array.dims.len());
        cx.error("H04", id, message);
    }
}

/// The shape that an operation gives.
#[derive(Clone, Debug)]
enum Want {
    /// An array of this type and these sizes.
    Array(ElementType, Vec<i64>),
    /// Compatible with this shape.
    Like(ShapeId),
    Tuple(Vec<Want>),
    Token,
    /// Whatever is declared.
    Any,
}

impl Want {
    fn scalar(element: Primitive) -> Self {
        Self::Array(element.into(), Vec::new())
    }

    /// Several in a tuple, one bare.
    fn bare_or_tuple(mut all: Vec<Self>) -> Self {
        if all.len() == 1 { all.remove(0) } else { Self::Tuple(all) }
    }

    /// Rules nest tuples a few deep at most, so recursion is bounded.
    fn fits(&self, module: &Module, found: ShapeId) -> bool {
        match (self, module.shapes.get(found)) {
            (Self::Any, _) | (Self::Token, Shape::Token) => true,
            (Self::Like(id), _) => compatible(&module.shapes, *id, found),
            (Self::Array(element, sizes), Shape::Array(a)) => *element == a.element && same_sizes(sizes, &a.dims),
            (Self::Tuple(wants), Shape::Tuple(found)) => {
                wants.len() == found.len() && wants.iter().zip(found).all(|(w, &f)| w.fits(module, f))
            }
            _ => false,
        }
    }

    fn show(&self, module: &Module) -> String {
        match self {
            Self::Array(element, sizes) => {
                let mut out = String::new();
                show_dims(&mut out, element.name(), sizes.iter().copied());
                out
            }
            Self::Like(id) => show(&module.shapes, *id),
            Self::Tuple(wants) => format!("({})", wants.iter().map(|w| w.show(module)).collect::<Vec<_>>().join(", ")),
            Self::Token => "token[]".into(),
            Self::Any => "any".into(),
        }
    }
}

fn same_sizes(sizes: &[i64], dims: &[Dim]) -> bool {
    sizes.len() == dims.len() && sizes.iter().zip(dims).all(|(&s, d)| s == d.size || d.size == Dim::UNBOUNDED)
}

/// Why a rule has no shape to give.
#[derive(Debug)]
struct Trouble {
    code: Code,
    message: String,
}

/// H02: the operands do not suit.
fn unsuited<T>(message: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble { code: "H02", message: message.into() })
}

/// H03: the attributes do not suit.
fn attribute<T>(message: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble { code: "H03", message: message.into() })
}

type Rule = Result<Want, Trouble>;

/// An instruction as a rule sees it. Operand counts were checked (S08).
struct Node<'m> {
    module: &'m Module,
    instr: &'m Instruction,
}

impl<'m> Node<'m> {
    fn count(&self) -> usize {
        self.instr.operands.len()
    }

    fn shape(&self, operand: usize) -> ShapeId {
        self.module.instr(self.instr.operands[operand]).shape
    }

    fn like(&self, operand: usize) -> Want {
        Want::Like(self.shape(operand))
    }

    /// The array of an operand.
    fn array(&self, operand: usize) -> Result<&'m ArrayShape, Trouble> {
        let id = self.shape(operand);
        let found = || format!("expected an array as operand {operand}, found `{}`", show(&self.module.shapes, id));
        self.module.shapes.array(id).map_or_else(|| unsuited(found()), Ok)
    }

    /// The declared result, if it is an array.
    fn result(&self) -> Result<&'m ArrayShape, Trouble> {
        let id = self.instr.shape;
        let found = || Trouble { code: "H01", message: format!("expected an array as result, found `{}`", show(&self.module.shapes, id)) };
        self.module.shapes.array(id).ok_or_else(found)
    }

    /// Operands of equal sizes.
    fn same_sizes(&self, a: usize, b: usize) -> Result<(), Trouble> {
        if sizes(self.array(a)?) == sizes(self.array(b)?) {
            return Ok(());
        }
        let (x, y) = (show(&self.module.shapes, self.shape(a)), show(&self.module.shapes, self.shape(b)));
        unsuited(format!("expected operands {a} and {b} of equal sizes, found `{x}` and `{y}`"))
    }

    /// Operands of equal element types.
    fn same_types(&self, a: usize, b: usize) -> Result<(), Trouble> {
        let (x, y) = (&self.array(a)?.element, &self.array(b)?.element);
        if x == y {
            return Ok(());
        }
        unsuited(format!("expected operands {a} and {b} of equal types, found `{}` and `{}`", x.name(), y.name()))
    }

    /// A scalar operand.
    fn scalar(&self, operand: usize) -> Result<&'m ArrayShape, Trouble> {
        let array = self.array(operand)?;
        if array.dims.is_empty() {
            return Ok(array);
        }
        unsuited(format!("expected a scalar as operand {operand}, found `{}`", show(&self.module.shapes, self.shape(operand))))
    }

    /// An integer scalar operand; unknown types pass.
    fn index(&self, operand: usize) -> Result<(), Trouble> {
        let element = &self.scalar(operand)?.element;
        if element.known().is_none_or(Primitive::is_integer) {
            return Ok(());
        }
        unsuited(format!("expected an integer as operand {operand}, found `{}`", element.name()))
    }

    /// Whether a dimension of an operand or of the result has no bound.
    fn is_unbounded(&self) -> bool {
        let unbounded = |id: ShapeId| self.module.shapes.array(id).is_some_and(|a| a.dims.iter().any(|d| d.size == Dim::UNBOUNDED));
        unbounded(self.instr.shape) || (0..self.count()).any(|o| unbounded(self.shape(o)))
    }
}

fn sizes(array: &ArrayShape) -> Vec<i64> {
    array.dims.iter().map(|d| d.size).collect()
}

/// A dimension number as a position in an array of that rank.
fn dimension(number: i64, rank: usize) -> Result<usize, Trouble> {
    match usize::try_from(number) {
        Ok(d) if d < rank => Ok(d),
        _ => attribute(format!("expected a dimension below {rank}, found {number}")),
    }
}

/// Dimension numbers that differ from each other.
fn dimensions(numbers: &[i64], rank: usize) -> Result<Vec<usize>, Trouble> {
    let mut seen = vec![false; rank];
    let mut out = Vec::with_capacity(numbers.len());
    for &number in numbers {
        let d = dimension(number, rank)?;
        if std::mem::replace(&mut seen[d], true) {
            return attribute(format!("dimension {number} stands twice"));
        }
        out.push(d);
    }
    Ok(out)
}

/// As [`dimensions`], in rising order.
fn rising(numbers: &[i64], rank: usize) -> Result<Vec<usize>, Trouble> {
    if numbers.windows(2).any(|w| w[0] >= w[1]) {
        return attribute(format!("expected dimensions in rising order, found {numbers:?}"));
    }
    dimensions(numbers, rank)
}

/// The positions below `rank` that are not in `taken`.
fn others(taken: &[usize], rank: usize) -> Vec<usize> {
    let mut is_taken = vec![false; rank];
    taken.iter().for_each(|&d| is_taken[d] = true);
    (0..rank).filter(|&d| !is_taken[d]).collect()
}

/// The rule of each operation.
fn rule(n: &Node<'_>) -> Rule {
    match &n.instr.op {
        Op::Parameter { .. } | Op::Opaque(_) => Ok(Want::Any),
        Op::Constant(literal) => elementwise::constant(n, literal),
        Op::Iota { dimension } => elementwise::iota(n, *dimension),
        Op::PartitionId | Op::ReplicaId => Ok(Want::scalar(Primitive::U32)),

        Op::Unary(op) => elementwise::unary(n, *op),
        Op::Binary(op) => elementwise::binary(n, *op),
        Op::Compare { direction, .. } => elementwise::compare(n, *direction),
        Op::Select => elementwise::select(n),
        Op::Clamp => elementwise::clamp(n),
        Op::Convert => elementwise::convert(n),
        Op::BitcastConvert => elementwise::bitcast_convert(n),
        Op::StochasticConvert => elementwise::stochastic_convert(n),
        Op::ReducePrecision { exponent_bits, mantissa_bits } => elementwise::reduce_precision(n, *exponent_bits, *mantissa_bits),
        Op::Map { to_apply, .. } => elementwise::map(n, *to_apply),

        Op::Bitcast => movement::bitcast(n),
        Op::Copy => Ok(n.like(0)),
        Op::Reshape { .. } => movement::reshape(n),
        Op::DynamicReshape => movement::dynamic_reshape(n),
        Op::Broadcast { dimensions } => movement::broadcast(n, dimensions),
        Op::Transpose { dimensions } => movement::transpose(n, dimensions),
        Op::Reverse { dimensions } => movement::reverse(n, dimensions),
        Op::Concatenate { dimension } => movement::concatenate(n, *dimension),
        Op::Pad { padding } => movement::pad(n, padding),
        Op::Slice { dims } => movement::slice(n, dims),
        Op::Shuffle { dimensions, .. } => movement::reverse(n, dimensions),

        Op::DynamicSlice { sizes } => indexing::dynamic_slice(n, sizes),
        Op::DynamicUpdateSlice => indexing::dynamic_update_slice(n),
        Op::Gather(gather) => indexing::gather(n, gather),
        Op::Scatter(scatter) => indexing::scatter(n, scatter),
        Op::GetDimensionSize { dimension } => indexing::get_dimension_size(n, *dimension),
        Op::SetDimensionSize { dimension } => indexing::set_dimension_size(n, *dimension),

        Op::Dot(dot) => contraction::dot(n, dot),
        Op::RaggedDot { dot, lhs_ragged, rhs_group } => contraction::ragged_dot(n, dot, lhs_ragged, rhs_group),
        Op::ScaledDot(dot) => contraction::dot(n, dot),
        Op::Convolution(convolution) => contraction::convolution(n, convolution),
        Op::Fft { fft_type, fft_length } => contraction::fft(n, *fft_type, fft_length),
        Op::Cholesky { .. } => contraction::cholesky(n),
        Op::TriangularSolve { left_side, .. } => contraction::triangular_solve(n, *left_side),

        Op::Reduce { dimensions, to_apply } => reduction::reduce(n, dimensions, *to_apply),
        Op::ReduceWindow { window, to_apply } => reduction::reduce_window(n, window, *to_apply),
        Op::SelectAndScatter { window, .. } => reduction::select_and_scatter(n, window),
        Op::Sort { dimension, .. } => reduction::sort(n, *dimension),
        Op::TopK { k, .. } => reduction::top_k(n, *k),
        Op::BatchNormTraining { feature_index, .. } => reduction::batch_norm(n, *feature_index, 3),
        Op::BatchNormInference { feature_index, .. } => reduction::batch_norm(n, *feature_index, 1),
        Op::BatchNormGrad { feature_index, .. } => reduction::batch_norm(n, *feature_index, 3),

        Op::Rng { .. } | Op::RngGetAndUpdateState { .. } => Ok(Want::Any),
        Op::RngBitGenerator { .. } => control::rng_bit_generator(n),

        Op::Tuple => Ok(Want::Tuple((0..n.count()).map(|o| n.like(o)).collect())),
        Op::GetTupleElement { index } => control::get_tuple_element(n, *index),
        Op::OptBarrier | Op::AddDependency | Op::Domain(_) | Op::While { .. } => Ok(n.like(0)),
        Op::AfterAll => Ok(Want::Token),
        // The result of what these call was compared with the declared shape (S10).
        Op::Conditional { .. } | Op::Call { .. } | Op::Fusion(_) => Ok(Want::Any),
        Op::CustomCall(call) => control::custom_call(n, call),
        // Its results depend on a body that no rule here looks into.
        Op::Scan(_) => Ok(Want::Any),

        Op::Collective(collective) => collective::collective(n, collective),
        Op::CollectiveDone(kind) => collective::done(n, *kind),
        Op::AsyncStart(_) => transfer::async_start(n),
        Op::AsyncUpdate(_) => transfer::async_update(n),
        Op::AsyncDone(_) => transfer::async_done(n),
        // Promise V8.
        Op::CopyStart { .. } => Ok(Want::Any),
        Op::CopyDone => transfer::copy_done(n),
        Op::Send(_) => transfer::send(n),
        Op::SendDone(_) | Op::Outfeed { .. } => Ok(Want::Token),
        Op::Recv(_) => transfer::recv(n),
        Op::RecvDone(_) => transfer::recv_done(n),
        Op::Infeed { .. } => transfer::infeed(n),
    }
}
