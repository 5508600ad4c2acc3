//! Lowers instructions to the graph of a kernel.

use std::cell::Cell;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::build::{Builder, Move, Unsupported, Value};
use super::shape::{ArrayType, leaves};
use super::{Kernel, build::NodeId};
use crate::interp::array::Array;
use crate::interp::elementwise::{Elementwise, has_binary, has_unary};
use crate::interp::lanes::{Lane, lane};
use crate::interp::tape::Applied;
use crate::interp::view::{Slot, View, inverse};
use crate::ir::{CompId, CompareType, InstrId, Literal, LiteralValue, Module, Op, PadDim, Primitive, Shape, ShapeId, SliceDim};

/// Computations nested in each other; programs have two or three, hostile ones any number.
const DEPTH: usize = 64;

/// Compiles one instruction: its operands' arrays are the kernel's, so are the arrays of its result.
///
/// If it may be `fast`, contractions may add up in any order.
pub fn compile(module: &Module, id: InstrId, random: &Rc<Cell<u128>>, fast: bool) -> Result<Kernel, Unsupported> {
    let mut builder = Builder::new(module, random.clone());
    builder.fast = fast;
    let instr = module.instr(id);
    let mut number = 0;
    let mut operands = Vec::with_capacity(instr.operands.len());
    for &operand in &instr.operands {
        operands.push(builder.param_value(module.instr(operand).shape, &mut number)?);
    }
    let mut outs = Vec::new();
    let shapes = match instr.op {
        Op::CopyStart { .. } => leaves(module, module.shapes.elements(instr.shape)[0]),
        _ => leaves(module, instr.shape),
    };
    for (out, leaf) in shapes.into_iter().enumerate() {
        let view = ArrayType::of(module, leaf)?.view(Slot::Out(out));
        builder.seed(id, out, view.clone());
        outs.push(view);
    }
    let value = builder.instruction(id, &operands)?;
    let results: Vec<(NodeId, View)> = value.arrays().into_iter().zip(outs).collect();
    Ok(builder.finish(&results))
}

/// Compiles a computation of scalars.
pub fn function(module: &Module, comp: CompId) -> Result<Applied, Unsupported> {
    Builder::new(module, Rc::default()).function(comp)
}

fn sizes(values: &[i64]) -> Result<Vec<usize>, Unsupported> {
    values.iter().map(|&v| usize::try_from(v).map_err(|_| format!("expected a number of at least 0, found {v}"))).collect()
}

impl Builder<'_> {
    pub(super) fn param_value(&mut self, shape: ShapeId, number: &mut usize) -> Result<Value, Unsupported> {
        Ok(match self.module.shapes.get(shape) {
            Shape::Tuple(parts) => Value::Tuple(parts.iter().map(|&p| self.param_value(p, number)).collect::<Result<_, _>>()?),
            Shape::Array(_) => {
                let ty = ArrayType::of(self.module, shape)?;
                *number += 1;
                Value::Array(self.param(*number - 1, &ty))
            }
            Shape::Token => Value::Tuple(Vec::new()),
            Shape::Opaque | Shape::Buffer(_) => return Err("an operand is no array".to_string()),
        })
    }

    /// Says where the `leaf`-th array of an instruction is to be put, and so what it is a moved view of.
    fn seed(&mut self, id: InstrId, leaf: usize, view: View) {
        let (mut id, mut leaf, mut view) = (id, leaf, view);
        for _ in 0..DEPTH {
            self.set_target(id, leaf, view.clone());
            let instr = self.module.instr(id);
            let of = |id: InstrId| ArrayType::of(self.module, self.module.instr(id).shape).ok();
            let next = match &instr.op {
                Op::Fusion(fusion) => Some((self.module.comp(fusion.calls).root, leaf, view)),
                Op::Copy => Some((instr.operands[0], 0, view)),
                Op::Bitcast => of(id).zip(of(instr.operands[0])).and_then(|(to, from)| {
                    Some((instr.operands[0], 0, view.bitcast(&to.minor_to_major, &from.dims, &from.minor_to_major)?))
                }),
                Op::Reshape { .. } => of(instr.operands[0]).and_then(|from| Some((instr.operands[0], 0, view.reshape(&from.dims)?))),
                Op::Transpose { dimensions } => {
                    sizes(dimensions).ok().map(|dimensions| (instr.operands[0], 0, view.transpose(&inverse(&dimensions))))
                }
                Op::Tuple => {
                    let mut skip = leaf;
                    let found = instr.operands.iter().find_map(|&operand| {
                        let count = leaves(self.module, self.module.instr(operand).shape).len();
                        if skip < count {
                            return Some((operand, skip));
                        }
                        skip -= count;
                        None
                    });
                    found.map(|(operand, leaf)| (operand, leaf, view))
                }
                _ => None,
            };
            let Some(found) = next else { return };
            (id, leaf, view) = found;
        }
    }

    /// The result of a computation.
    pub(super) fn computation(&mut self, comp: CompId, args: Vec<Value>) -> Result<Value, Unsupported> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("computations nest deeper than {DEPTH}"));
        }
        let module = self.module;
        let computation = module.comp(comp);
        let mut needed = FxHashSet::default();
        let mut stack = vec![computation.root];
        while let Some(id) = stack.pop() {
            if needed.insert(id) {
                stack.extend(&module.instr(id).operands);
            }
        }
        let mut values: FxHashMap<InstrId, Value> = FxHashMap::default();
        for (&id, arg) in computation.parameters.iter().zip(args) {
            values.insert(id, arg);
        }
        for &id in computation.order.iter().filter(|id| needed.contains(id)) {
            if values.contains_key(&id) {
                continue;
            }
            let operands: Vec<Value> = module.instr(id).operands.iter().map(|o| values[o].clone()).collect();
            let value = self.instruction(id, &operands).map_err(|why| format!("{why} (in `{}`)", module.instr(id).name))?;
            values.insert(id, value);
        }
        self.depth -= 1;
        Ok(values[&computation.root].clone())
    }

    /// A computation as a function of scalars.
    pub(super) fn function(&self, comp: CompId) -> Result<Applied, Unsupported> {
        let mut inner = Builder::new(self.module, self.random.clone());
        inner.depth = self.depth;
        let mut params = Vec::new();
        let mut args = Vec::new();
        for (&id, register) in self.module.comp(comp).parameters.iter().zip(0..) {
            let ty = ArrayType::of(self.module, self.module.instr(id).shape)?;
            args.push(Value::Array(inner.argument(ty.element, register)));
            params.push(ty.element);
        }
        let roots = inner.computation(comp, args)?.arrays();
        inner.applied(params, &roots)
    }

    /// The value of an instruction whose operands have values.
    pub(super) fn instruction(&mut self, id: InstrId, operands: &[Value]) -> Result<Value, Unsupported> {
        let instr = self.module.instr(id);
        let array = |i: usize| match operands.get(i) {
            Some(Value::Array(node)) => Ok(*node),
            _ => Err(format!("expected an array as operand {i} of `{}`", instr.op.opcode())),
        };
        let arrays = || (0..operands.len()).map(array).collect::<Result<Vec<_>, _>>();
        let ty = || ArrayType::of(self.module, instr.shape);
        Ok(match &instr.op {
            Op::Tuple => Value::Tuple(operands.to_vec()),
            Op::AfterAll => Value::Tuple(Vec::new()),
            Op::GetTupleElement { index } => match (&operands[0], usize::try_from(*index)) {
                (Value::Tuple(parts), Ok(index)) if index < parts.len() => parts[index].clone(),
                _ => return Err("expected a tuple".to_string()),
            },
            Op::Copy | Op::OptBarrier | Op::AddDependency | Op::Domain(_) => operands[0].clone(),
            Op::Fusion(fusion) => self.computation(fusion.calls, operands.to_vec())?,
            Op::Call { to_apply, .. } => self.computation(*to_apply, operands.to_vec())?,
            Op::Map { to_apply, .. } => {
                let result = self.computation(*to_apply, operands.to_vec())?;
                let dims = ty()?.dims;
                Value::Array(self.spread(result.arrays()[0], &dims))
            }
            Op::Constant(literal) => self.literal(literal)?,
            Op::Iota { dimension } => {
                let ty = ty()?;
                let dimension = usize::try_from(*dimension).map_err(|_| "a dimension is negative")?;
                Value::Array(self.view(View::iota(ty.element, &ty.dims, dimension)))
            }
            Op::GetDimensionSize { dimension } => {
                let node = array(0)?;
                let size = usize::try_from(*dimension).ok().and_then(|d| self.dims(node).get(d).copied()).ok_or("no such dimension")?;
                Value::Array(self.constant(&Array::of_i64(Primitive::S32, &[], &[size as i64])))
            }

            Op::Unary(op) => {
                let (element, x) = (ty()?.element, array(0)?);
                if !has_unary(*op, self.element(x), element) {
                    return Err(format!("`{}` from `{}` to `{}`", op.name(), self.element(x).name(), element.name()));
                }
                self.elementwise(Elementwise::Unary(*op), element, &[x])
            }
            Op::Binary(op) => {
                let (element, args) = (ty()?.element, arrays()?);
                if !has_binary(*op, self.element(args[0]), element) || self.element(args[0]) != self.element(args[1]) {
                    return Err(format!("`{}` of `{}` and `{}`", op.name(), self.element(args[0]).name(), self.element(args[1]).name()));
                }
                self.elementwise(Elementwise::Binary(*op), element, &args)
            }
            Op::Compare { direction, ty } => {
                let args = arrays()?;
                let total = *ty == Some(CompareType::Total) && matches!(lane(self.element(args[0])), Lane::F32 | Lane::F64);
                let op = if total { Elementwise::CompareTotal(*direction) } else { Elementwise::Compare(*direction) };
                self.elementwise(op, Primitive::Pred, &args)
            }
            Op::Select => self.elementwise(Elementwise::Select, ty()?.element, &arrays()?),
            Op::Clamp => self.elementwise(Elementwise::Clamp, ty()?.element, &[array(0)?, array(1)?, array(2)?]),
            Op::Convert => self.elementwise(Elementwise::Convert, ty()?.element, &[array(0)?]),
            Op::ReducePrecision { exponent_bits, mantissa_bits } => {
                let op = Elementwise::ReducePrecision { exponent: *exponent_bits, mantissa: *mantissa_bits };
                if !ty()?.element.is_float() {
                    return Err("reduce-precision of what is no float".to_string());
                }
                self.elementwise(op, ty()?.element, &[array(0)?])
            }
            Op::BitcastConvert => match self.bitcast_convert(array(0)?, &ty()?) {
                Some(value) => value,
                None => return self.special(id, operands),
            },

            Op::Bitcast => {
                let (from, to) = (ArrayType::of(self.module, self.module.instr(instr.operands[0]).shape)?, ty()?);
                if from.element != to.element {
                    return match self.bitcast_convert(array(0)?, &to) {
                        Some(value) => Ok(value),
                        None => self.special(id, operands),
                    };
                }
                Value::Array(self.bitcast(array(0)?, &from, &to))
            }
            // The sizes that it reads are those of its shape, which is not dynamic.
            Op::Reshape { .. } | Op::DynamicReshape => Value::Array(self.moved(array(0)?, &Move::Reshape(ty()?.dims))),
            Op::Broadcast { dimensions } => {
                Value::Array(self.moved(array(0)?, &Move::Broadcast { dimensions: sizes(dimensions)?, dims: ty()?.dims }))
            }
            Op::Transpose { dimensions } => Value::Array(self.moved(array(0)?, &Move::Transpose(sizes(dimensions)?))),
            Op::Reverse { dimensions } => Value::Array(self.moved(array(0)?, &Move::Reverse(sizes(dimensions)?))),
            Op::Slice { dims } => {
                if dims.iter().any(|s| s.stride < 1 || s.start < 0) {
                    return Err("expected a slice with steps of at least 1".to_string());
                }
                Value::Array(self.moved(array(0)?, &Move::Slice(dims.clone())))
            }
            Op::DynamicSlice { sizes: extent } => {
                let indices = self.indices(&arrays()?[1..])?;
                Value::Array(self.moved(array(0)?, &Move::DynamicSlice { indices, sizes: sizes(extent)? }))
            }
            Op::DynamicUpdateSlice => {
                let args = arrays()?;
                let indices = self.indices(&args[2..])?;
                let (base, update) = (args[0], args[1]);
                let ty = ty()?;
                let to = self.destination(Some(id), 0, ty.element, &ty.dims);
                if let Some(from) = self.as_view(base).cloned() {
                    self.note_in_place(&from, &to);
                }
                self.store(base, &to);
                let part = to.clone().dynamic_slice(&indices, self.dims(update));
                self.store(update, &part);
                Value::Array(self.view(to))
            }
            Op::Concatenate { dimension } => {
                let (ty, dimension) = (ty()?, usize::try_from(*dimension).map_err(|_| "a dimension is negative")?);
                let to = self.destination(Some(id), 0, ty.element, &ty.dims);
                let mut at = 0;
                for node in arrays()? {
                    let dims = self.dims(node).to_vec();
                    let mut slices: Vec<SliceDim> = dims.iter().map(|&n| SliceDim { start: 0, limit: n as i64, stride: 1 }).collect();
                    slices[dimension].start = at;
                    at += dims[dimension] as i64;
                    slices[dimension].limit = at;
                    self.store(node, &to.clone().slice(&slices));
                }
                Value::Array(self.view(to))
            }
            Op::Pad { padding } => self.pad(id, array(0)?, array(1)?, padding, &ty()?)?,
            Op::Reduce { dimensions, to_apply } => {
                let (args, function) = (arrays()?, self.function(*to_apply)?);
                let (inputs, inits) = args.split_at(args.len() / 2);
                let results = self.reduce(Some(id), inputs, inits, &sizes(dimensions)?, function);
                match results.as_slice() {
                    [one] if !matches!(self.module.shapes.get(instr.shape), Shape::Tuple(_)) => Value::Array(*one),
                    all => Value::Tuple(all.iter().map(|&n| Value::Array(n)).collect()),
                }
            }
            Op::Gather(gather) => self.gather(id, gather, array(0)?, array(1)?, &ty()?)?,
            Op::Scatter(scatter) => self.scatter(id, scatter, &arrays()?)?,
            Op::Dot(dot) => self.dot(id, dot, array(0)?, array(1)?, &ty()?)?,
            Op::ScaledDot(dot) => {
                let (lhs, rhs) = (self.scaled(array(0)?, array(2)?)?, self.scaled(array(1)?, array(3)?)?);
                self.dot(id, dot, lhs, rhs, &ty()?)?
            }
            Op::CustomCall(call) => match &*call.target {
                "Sharding"
                | "SPMDFullToShardShape"
                | "SPMDShardToFullShape"
                | "annotate_device_placement"
                | "MoveToHost"
                | "MoveToDevice"
                | "LayoutConstraint"
                | "xla.sdy.FuncResultSharding" => operands[0].clone(),
                // Its bytes are whatever they are until somebody writes them.
                "AllocateBuffer" => {
                    let ty = ty()?;
                    let to = self.destination(Some(id), 0, ty.element, &ty.dims);
                    Value::Array(self.view(to))
                }
                _ => return self.special(id, operands),
            },
            // The first part of the result; the operand stands beside it.
            Op::CopyStart { .. } => Value::Tuple(vec![operands[0].clone()]),
            _ => return self.special(id, operands),
        })
    }

    /// An elementwise operation; scalars among arrays are repeated.
    fn elementwise(&mut self, op: Elementwise, element: Primitive, args: &[NodeId]) -> Value {
        let dims = args.iter().map(|&a| self.dims(a)).max_by_key(|d| d.len()).unwrap_or_default().to_vec();
        let args: Vec<NodeId> = args.iter().map(|&a| self.spread(a, &dims)).collect();
        Value::Array(self.compute(op, element, &args))
    }
    fn spread(&mut self, node: NodeId, dims: &[usize]) -> NodeId {
        if self.dims(node) == dims { node } else { self.moved(node, &Move::Broadcast { dimensions: Vec::new(), dims: dims.to_vec() }) }
    }

    fn literal(&mut self, literal: &Literal) -> Result<Value, Unsupported> {
        match &literal.value {
            LiteralValue::Tuple(parts) => Ok(Value::Tuple(parts.iter().map(|p| self.literal(p)).collect::<Result<_, _>>()?)),
            LiteralValue::Token => Ok(Value::Tuple(Vec::new())),
            LiteralValue::Elided => Err("a constant's data were left out when the module was printed".to_string()),
            LiteralValue::Dense(_) => {
                let array = Array::of_literal(&self.module.shapes, literal).ok_or("a constant of an unknown type")?;
                Ok(Value::Array(self.constant(&array)))
            }
        }
    }

    fn bitcast(&mut self, node: NodeId, from: &ArrayType, to: &ArrayType) -> NodeId {
        let major = |ty: &ArrayType| ty.minor_to_major.iter().rev().copied().collect::<Vec<_>>();
        let (from_major, to_major) = (major(from), major(to));
        let identity = |order: &[usize]| order.iter().copied().eq(0..order.len());
        let mut node = node;
        if !identity(&from_major) {
            node = self.moved(node, &Move::Transpose(from_major));
        }
        node = self.moved(node, &Move::Reshape(to_major.iter().map(|&d| to.dims[d]).collect()));
        if !identity(&to_major) {
            node = self.moved(node, &Move::Transpose(inverse(&to_major)));
        }
        node
    }

    /// The same bytes as another type: of a dense copy, since elements may become narrower or wider. `None` where elements share bytes.
    fn bitcast_convert(&mut self, node: NodeId, to: &ArrayType) -> Option<Value> {
        let from = self.element(node);
        if (from.bits() < 8 || to.element.bits() < 8) && from.bits() != to.element.bits() {
            return None;
        }
        let copy = self.copied(node);
        Some(Value::Array(self.view(View::dense(copy.slot, to.element, &to.dims))))
    }

    /// The start indices of a dynamic slice: a scalar each, or all in one array.
    fn indices(&mut self, nodes: &[NodeId]) -> Result<Vec<View>, Unsupported> {
        if let [one] = nodes
            && let [count] = self.dims(*one)
        {
            let (count, view) = (*count as i64, self.stored(*one));
            let at = |i| view.clone().slice(&[SliceDim { start: i, limit: i + 1, stride: 1 }]).reshape(&[]);
            return (0..count).map(|i| at(i).ok_or_else(|| "an index is no scalar".to_string())).collect();
        }
        nodes
            .iter()
            .map(|&n| {
                if lane(self.element(n)) != Lane::Int || !self.dims(n).is_empty() {
                    return Err("expected integer scalars as start indices".to_string());
                }
                Ok(self.stored(n))
            })
            .collect()
    }

    fn pad(&mut self, id: InstrId, node: NodeId, value: NodeId, padding: &[PadDim], ty: &ArrayType) -> Result<Value, Unsupported> {
        let to = self.destination(Some(id), 0, ty.element, &ty.dims);
        let fill = self.spread(value, &ty.dims);
        self.store(fill, &to);
        // What of the operand stays: elements stand at `low + i (interior + 1)`, and negative padding takes some away.
        let mut slices = Vec::new();
        let mut inner = Vec::new();
        for ((pad, &size), &padded) in padding.iter().zip(self.dims(node)).zip(&ty.dims) {
            if pad.interior < 0 {
                return Err("interior padding is negative".to_string());
            }
            let step = pad.interior + 1;
            let first = if pad.low < 0 { (-pad.low + step - 1) / step } else { 0 };
            let end = (((padded as i64 - pad.low).max(0) + step - 1) / step).min(size as i64).max(first.min(size as i64));
            slices.push(SliceDim { start: first.min(size as i64), limit: end, stride: 1 });
            inner.push(PadDim { low: pad.low + first * step, high: 0, interior: pad.interior });
        }
        let kept = self.moved(node, &Move::Slice(slices));
        let dims = self.dims(kept).to_vec();
        if !dims.contains(&0) {
            self.store(kept, &to.clone().inside_padding(&inner, &dims));
        }
        Ok(Value::Array(self.view(to)))
    }
}
