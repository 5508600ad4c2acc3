//! Lowers what no loop computes: operations that are functions of whole arrays ([`super::super::ops`]).

use std::cell::Cell;
use std::rc::Rc;

use super::build::{Builder, NodeId, Unsupported, Value};
use super::shape::{ArrayType, leaves};
use super::{Action, Call};
use crate::interp::array::Array;
use crate::interp::buffer::Place;
use crate::interp::ops::elementwise::load;
use crate::interp::ops::{self, Bits, Combiner, OpError};
use crate::interp::tape::Applied;
use crate::interp::view::Slot;
use crate::ir::{CompId, InstrId, Op, Shape};

/// A function of whole arrays.
type Function = Box<dyn Fn(Vec<Array>) -> Result<Vec<Array>, String>>;

/// A function of whole arrays that gives one.
fn single(f: impl Fn(&[&Array]) -> ops::Result<Array> + 'static) -> Function {
    many(move |args| Ok(vec![f(args)?]))
}

/// A function of whole arrays that gives several.
fn many(f: impl Fn(&[&Array]) -> ops::Result<Vec<Array>> + 'static) -> Function {
    Box::new(move |args| f(&args.iter().collect::<Vec<_>>()).map_err(|OpError(why)| why))
}

/// Calls `f` with an applied function as operations take it.
fn combine<R>(function: &Applied, f: impl FnOnce(Combiner<'_>) -> R) -> R {
    if let Some(op) = function.as_binary() {
        return f(Combiner::Known(op));
    }
    let mut caller = function.caller();
    f(Combiner::Any(&mut |accumulators, values| caller.combine(accumulators, values)))
}

/// Whether an applied predicate holds.
fn holds(caller: &mut crate::interp::tape::Caller<'_>, args: impl IntoIterator<Item = Bits>) -> bool {
    caller.call(args).next() == Some(1)
}

impl Builder<'_> {
    /// Adds a call whose results are those of an instruction.
    fn call(&mut self, id: InstrId, inputs: &[NodeId], function: Function) -> Result<Value, Unsupported> {
        let shape = self.module.instr(id).shape;
        let inputs = inputs.iter().map(|&n| self.dense(n)).collect();
        let mut outputs = Vec::new();
        for (leaf, shape) in leaves(self.module, shape).into_iter().enumerate() {
            let ty = ArrayType::of(self.module, shape)?;
            outputs.push(self.destination(Some(id), leaf, ty.element, &ty.dims));
        }
        let nodes: Vec<NodeId> = outputs.iter().map(|v| self.view(v.clone())).collect();
        self.kernel.actions.push(Action::Call(Box::new(Call { inputs, outputs, function })));
        let mut nodes = nodes.into_iter();
        Ok(self.shaped(shape, &mut nodes))
    }
    /// Values in the form of a shape.
    fn shaped(&self, shape: crate::ir::ShapeId, nodes: &mut impl Iterator<Item = NodeId>) -> Value {
        match self.module.shapes.get(shape) {
            Shape::Tuple(parts) => Value::Tuple(parts.iter().map(|&p| self.shaped(p, nodes)).collect()),
            Shape::Array(_) => Value::Array(nodes.next().expect("as many values as arrays")),
            _ => Value::Tuple(Vec::new()),
        }
    }
    /// The memory of a value; an iota is stored first.
    fn dense(&mut self, node: NodeId) -> crate::interp::view::View {
        let view = self.stored(node);
        if view.slot == Slot::Index { self.copied(node) } else { view }
    }

    /// Lowers an operation that is a function of whole arrays.
    pub(super) fn special(&mut self, id: InstrId, operands: &[Value]) -> Result<Value, Unsupported> {
        let instr = self.module.instr(id);
        let mut args = Vec::new();
        for value in operands {
            args.extend(value.arrays());
        }
        let first = leaves(self.module, instr.shape).first().map(|&leaf| ArrayType::of(self.module, leaf)).transpose()?;
        let out = || first.clone().ok_or_else(|| "a result without array".to_string());
        let function: Function = match &instr.op {
            Op::Convolution(op) => {
                let (op, ty) = (op.clone(), out()?);
                single(move |a| ops::convolution(a[0], a[1], &op, ty.element, &ty.dims))
            }
            Op::CustomCall(call) => return self.custom(id, call, &args),
            Op::ReduceWindow { window, to_apply } => {
                let (window, function, count) = (window.clone(), self.function(*to_apply)?, args.len() / 2);
                many(move |a| {
                    let inits: Vec<Bits> = a[count..].iter().map(|init| load(init, 0)).collect();
                    combine(&function, |f| ops::reduce_window(&a[..count], &inits, &window, f))
                })
            }
            Op::SelectAndScatter { window, select, scatter } => {
                let (window, select, scatter) = (window.clone(), self.function(*select)?, self.function(*scatter)?);
                single(move |a| {
                    let mut caller = select.caller();
                    let mut keeps = |a, b| holds(&mut caller, [a, b]);
                    combine(&scatter, |f| ops::select_and_scatter(a[0], a[1], load(a[2], 0), &window, &mut keeps, f))
                })
            }
            Op::Sort { dimension, to_apply, .. } => {
                let (dimension, function) = (*dimension, self.function(*to_apply)?);
                many(move |a| {
                    let mut caller = function.caller();
                    ops::sort(a, dimension, &mut |args| holds(&mut caller, args.iter().copied()))
                })
            }
            Op::TopK { k, largest, .. } => {
                let (k, largest) = (*k, *largest);
                many(move |a| ops::topk(a[0], k, largest).map(Vec::from))
            }
            Op::Fft { fft_type, fft_length } => {
                let (kind, length) = (*fft_type, fft_length.clone());
                single(move |a| ops::fft(a[0], kind, &length))
            }
            Op::Cholesky { lower } => {
                let lower = *lower;
                single(move |a| ops::cholesky(a[0], lower))
            }
            Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
                let options = ops::TriangularOptions {
                    left_side: *left_side,
                    lower: *lower,
                    unit_diagonal: *unit_diagonal,
                    transpose_a: *transpose_a,
                };
                single(move |a| ops::triangular_solve(a[0], a[1], options))
            }
            Op::BatchNormTraining { epsilon, feature_index } => {
                let (epsilon, feature) = (*epsilon, *feature_index);
                many(move |a| ops::batch_norm_training(a[0], a[1], a[2], epsilon, feature).map(Vec::from))
            }
            Op::BatchNormInference { epsilon, feature_index } => {
                let (epsilon, feature) = (*epsilon, *feature_index);
                single(move |a| ops::batch_norm_inference(a[0], [a[1], a[2], a[3], a[4]], epsilon, feature))
            }
            Op::BatchNormGrad { epsilon, feature_index } => {
                let (epsilon, feature) = (*epsilon, *feature_index);
                many(move |a| ops::batch_norm_grad(a[0], [a[1], a[2], a[3]], a[4], epsilon, feature).map(Vec::from))
            }
            Op::RngBitGenerator { algorithm } => {
                let algorithm = *algorithm;
                let ty = leaves(self.module, instr.shape).get(1).map(|&leaf| ArrayType::of(self.module, leaf)).transpose()?;
                let ty = ty.ok_or("expected a state and random bits as results")?;
                many(move |a| ops::rng::bit_generator(algorithm, a[0], ty.element, &ty.dims).map(Vec::from))
            }
            Op::Rng { distribution } => {
                let (distribution, ty, state): (i32, _, Rc<Cell<u128>>) = (*distribution, out()?, self.random.clone());
                many(move |a| {
                    let mut now = state.get();
                    let drawn = ops::rng::draw(distribution, &mut now, a[0], a[1], ty.element, &ty.dims)?;
                    state.set(now);
                    Ok(vec![drawn])
                })
            }
            Op::RngGetAndUpdateState { delta } => {
                let (delta, state): (i64, Rc<Cell<u128>>) = (*delta, self.random.clone());
                many(move |_| {
                    let mut now = state.get();
                    let out = ops::rng::get_and_update_state(&mut now, delta);
                    state.set(now);
                    Ok(vec![out])
                })
            }
            Op::RaggedDot { dot, lhs_ragged, rhs_group } => {
                let ty = out()?;
                let number = |dims: &[i64]| dims.first().map(|&d| usize::try_from(d).map_err(|_| "a dimension is negative")).transpose();
                let ragged = number(lhs_ragged)?.ok_or("a ragged dot without ragged dimension")?;
                if args.get(2).is_none_or(|&groups| self.dims(groups).len() != 1) {
                    return Err("a ragged dot with group sizes of their own for each batch".to_string());
                }
                let dims = ops::RaggedDims { dot: dot.dims.clone(), ragged, group: number(rhs_group)? };
                single(move |a| ops::ragged_dot(a[0], a[1], a[2], &dims, ty.element, &ty.dims))
            }
            Op::SetDimensionSize { dimension } => {
                let dimension = *dimension;
                single(move |a| ops::set_dimension_size(a[0], a[1], dimension))
            }
            Op::BitcastConvert | Op::Bitcast => {
                let ty = out()?;
                single(move |a| ops::bitcast_convert(a[0], ty.element, &ty.dims))
            }
            Op::StochasticConvert => {
                let element = out()?.element;
                single(move |a| ops::stochastic_convert(a[0], a[1], element))
            }
            Op::Scan(op) => {
                let (op, body) = (op.clone(), self.body(op.to_apply)?);
                let carries = usize::try_from(op.num_carries).map_err(|_| "a negative number of carries")?;
                let all = leaves(self.module, instr.shape);
                let scanned = all.len().checked_sub(carries).ok_or("fewer results than carries")?;
                let types = all[..scanned].iter().map(|&leaf| ArrayType::of(self.module, leaf).map(|ty| (ty.element, ty.dims)));
                let types = types.collect::<Result<Vec<_>, _>>()?;
                many(move |a| ops::scan(&op, a, &types, &mut |args| body(args).map_err(OpError)))
            }
            op => return Err(format!("opcode `{}`", op.opcode())),
        };
        self.call(id, &args, function)
    }

    fn custom(&mut self, id: InstrId, call: &crate::ir::CustomCall, args: &[NodeId]) -> Result<Value, Unsupported> {
        let instr = self.module.instr(id);
        let results = leaves(self.module, instr.shape);
        let ty = results.first().map(|&leaf| ArrayType::of(self.module, leaf)).transpose()?.ok_or("a custom call without array")?;
        match &*call.target {
            target if ops::is_cudnn_conv(target) => {
                let (call, config) = (call.clone(), instr.attrs.backend_config.clone());
                let function = many(move |a| Ok(vec![ops::cudnn_conv(&call, config.as_deref(), a, ty.element, &ty.dims)?]));
                // The workspace, if there is one, keeps what bytes it has.
                self.call(id, args, function)
            }
            "__cublas$gemm" | "__cublas$lt$matmul" => {
                let config = instr.attrs.backend_config.clone().ok_or("a matrix product without configuration")?;
                self.gemm(id, &config, args, &ty)?;
                let nodes: Vec<NodeId> = self.results(id, &results)?;
                Ok(self.shaped(instr.shape, &mut nodes.into_iter()))
            }
            "TopK" | "__gpu$TopK" if results.len() == 2 => {
                let k = ty.dims.last().map_or(0, |&k| k as i64);
                self.call(id, args, many(move |a| ops::topk(a[0], k, true).map(Vec::from)))
            }
            target => Err(format!("custom call `{target}`")),
        }
    }

    /// The memories of an instruction's results, where they were put or are to be left as they are.
    fn results(&mut self, id: InstrId, shapes: &[crate::ir::ShapeId]) -> Result<Vec<NodeId>, Unsupported> {
        let mut nodes = Vec::new();
        for (leaf, &shape) in shapes.iter().enumerate() {
            let ty = ArrayType::of(self.module, shape)?;
            let view = match self.placed.remove(&(id, leaf)) {
                Some(view) => view,
                None => self.destination(Some(id), leaf, ty.element, &ty.dims),
            };
            nodes.push(self.view(view));
        }
        Ok(nodes)
    }

    /// A computation as a function of whole arrays.
    fn body(&self, comp: CompId) -> Result<impl Fn(Vec<Array>) -> Result<Vec<Array>, String> + 'static, Unsupported> {
        let mut inner = Builder::new(self.module, self.random.clone());
        inner.depth = self.depth;
        let computation = self.module.comp(comp);
        let mut number = 0;
        let mut args = Vec::new();
        for &parameter in &computation.parameters {
            args.push(inner.param_value(self.module.instr(parameter).shape, &mut number)?);
        }
        let value = inner.computation(comp, args)?;
        let mut outs = Vec::new();
        for (out, leaf) in leaves(self.module, self.module.instr(computation.root).shape).into_iter().enumerate() {
            outs.push(
                ArrayType::of(self.module, leaf)
                    .map(|ty| (ty.clone(), crate::interp::view::View::dense(Slot::Out(out), ty.element, &ty.dims)))?,
            );
        }
        let results: Vec<_> = value.arrays().into_iter().zip(outs.iter().map(|(_, view)| view.clone())).collect();
        let kernel = inner.finish(&results);
        let types: Vec<ArrayType> = outs.into_iter().map(|(ty, _)| ty).collect();
        Ok(move |args: Vec<Array>| {
            let params: Vec<Place> = args.iter().map(Place::of_bytes_of).collect();
            let places: Vec<Place> = types.iter().map(|ty| Place::fresh(ty.bytes())).collect();
            kernel.run(&params, &places)?;
            Ok(types.iter().zip(&places).map(|(ty, place)| place.to_array(ty.element, &ty.dims)).collect())
        })
    }
}
