//! Carries out little programs with nothing but the functions of `interp::ops`: one operation after another, no arena, no loops.

#![expect(clippy::unwrap_used, reason = "fixtures are sound, or the test fails")]

use offc::interp::Array;
use offc::interp::ops::elementwise::{load, store};
use offc::interp::ops::{self, Bits, Combiner, OpError, Result, elementwise, rng};
use offc::ir::{CollectiveKind, CompId, Entity, InstrId, Module, Op, Primitive};

/// What an instruction gives.
#[derive(Clone, Debug)]
pub enum Value {
    /// An array.
    Array(Array),
    /// A tuple.
    Tuple(Vec<Value>),
}

impl Value {
    /// The arrays, in order.
    pub fn leaves(self) -> Vec<Array> {
        match self {
            Self::Array(array) => vec![array],
            Self::Tuple(values) => values.into_iter().flat_map(Self::leaves).collect(),
        }
    }
    fn array(&self) -> &Array {
        match self {
            Self::Array(array) => array,
            Self::Tuple(_) => panic!("a tuple where an array is expected"),
        }
    }
}

fn scalar(element: Primitive, bits: Bits) -> Value {
    let mut out = Array::zeros(element, &[]);
    store(&mut out, 0, bits);
    Value::Array(out)
}

/// A computation on scalars: the element types are those of its parameters.
fn call(module: &Module, comp: CompId, arguments: &[Bits]) -> Vec<Bits> {
    let params = &module.comp(comp).parameters;
    let values: Vec<Value> = params.iter().zip(arguments).map(|(&p, &bits)| scalar(element(module, p), bits)).collect();
    evaluate(module, comp, &values).unwrap().leaves().iter().map(|a| load(a, 0)).collect()
}

fn element(module: &Module, id: InstrId) -> Primitive {
    let leaf = module.shapes.leaves(module.instr(id).shape)[0];
    module.shapes.array(leaf).unwrap().element.known().unwrap()
}

fn combine<'a>(module: &'a Module, comp: CompId) -> impl FnMut(&mut [Bits], &[Bits]) + 'a {
    move |there, values| {
        let out = call(module, comp, &[&*there, values].concat());
        there.copy_from_slice(&out);
    }
}

/// The value of a computation's root.
pub fn evaluate(module: &Module, comp: CompId, arguments: &[Value]) -> Result<Value> {
    Ok(lockstep(module, comp, &[arguments.to_vec()])?.remove(0))
}

/// The values of a computation's root in all partitions, given each one's arguments.
pub fn lockstep(module: &Module, comp: CompId, arguments: &[Vec<Value>]) -> Result<Vec<Value>> {
    let mut values: Vec<Option<Vec<Value>>> = vec![None; module.instructions.len()];
    let computation = module.comp(comp);
    for (i, param) in computation.parameters.iter().enumerate() {
        values[param.index()] = Some(arguments.iter().map(|a| a[i].clone()).collect());
    }
    for &id in &computation.order {
        if values[id.index()].is_some() {
            continue;
        }
        let instr = module.instr(id);
        let operands: Vec<Vec<&Value>> =
            (0..arguments.len()).map(|p| instr.operands.iter().map(|o| &values[o.index()].as_ref().unwrap()[p]).collect()).collect();
        let out = match &instr.op {
            Op::Collective(op) => collective(module, op, &operands)?,
            _ => operands.iter().map(|o| instruction(module, id, o)).collect::<Result<_>>()?,
        };
        values[id.index()] = Some(out);
    }
    Ok(values[computation.root.index()].clone().unwrap())
}

/// A collective, given each partition's operands.
fn collective(module: &Module, op: &offc::ir::Collective, operands: &[Vec<&Value>]) -> Result<Vec<Value>> {
    use offc::interp::ops::{collective, groups};
    let partitions = operands.len();
    let arrays: Vec<Vec<&Array>> = operands.iter().map(|o| o.iter().map(|v| v.array()).collect()).collect();
    let count = arrays[0].len();
    // Only what stands in `to_apply` of a reduction needs a combiner.
    let reduction = |values: &[&Array], groups: &[Vec<usize>], scattered: bool| {
        let comp = op.to_apply.unwrap();
        let mut f = combine(module, comp);
        let f = combiner(module, comp, &mut f);
        if scattered { collective::reduce_scatter(values, groups, op.dimensions[0], f) } else { collective::all_reduce(values, groups, f) }
    };
    let mut results: Vec<Vec<Value>> = vec![Vec::new(); partitions];
    if op.kind == CollectiveKind::AllToAll && op.dimensions.is_empty() {
        let out = collective::all_to_all_tuple(&arrays, &groups::participants(op, partitions)?)?;
        return Ok(out.into_iter().map(|o| Value::Tuple(o.into_iter().map(Value::Array).collect())).collect());
    }
    for i in 0..count {
        let values: Vec<&Array> = arrays.iter().map(|a| a[i]).collect();
        let out = if op.kind == CollectiveKind::Permute {
            if op.channel_id.is_some() {
                collective::permute(&values, &op.source_target_pairs)?
            } else {
                values.iter().map(|&v| v.clone()).collect()
            }
        } else {
            let groups = groups::participants(op, partitions)?;
            match op.kind {
                CollectiveKind::AllReduce => reduction(&values, &groups, false)?,
                CollectiveKind::ReduceScatter => reduction(&values, &groups, true)?,
                CollectiveKind::AllGather => collective::all_gather(&values, &groups, op.dimensions[0])?,
                CollectiveKind::AllToAll => collective::all_to_all(&values, &groups, op.dimensions[0])?,
                other => return Err(OpError(format!("no such collective here: {other:?}"))),
            }
        };
        results.iter_mut().zip(out).for_each(|(list, array)| list.push(Value::Array(array)));
    }
    Ok(results.into_iter().map(|mut r| if count == 1 { r.remove(0) } else { Value::Tuple(r) }).collect())
}

fn instruction(module: &Module, id: InstrId, values: &[&Value]) -> Result<Value> {
    let instr = module.instr(id);
    let leaves: Vec<(Primitive, Vec<usize>)> = module
        .shapes
        .leaves(instr.shape)
        .into_iter()
        .map(|leaf| module.shapes.array(leaf).unwrap())
        .map(|a| (a.element.known().unwrap(), a.dims.iter().map(|d| d.size as usize).collect()))
        .collect();
    match &instr.op {
        Op::Tuple => return Ok(Value::Tuple(values.iter().map(|&v| v.clone()).collect())),
        Op::GetTupleElement { index } => match values[0] {
            Value::Tuple(parts) => return Ok(parts[*index as usize].clone()),
            Value::Array(_) => panic!("an array where a tuple is expected"),
        },
        _ => {}
    }
    let arrays: Vec<&Array> = values.iter().map(|v| v.array()).collect();
    let a = arrays.as_slice();
    let is_tuple = module.shapes.array(instr.shape).is_none();
    let (element, dims) = leaves[0].clone();
    let many = |out: Vec<Array>| {
        if is_tuple { Value::Tuple(out.into_iter().map(Value::Array).collect()) } else { Value::Array(out.into_iter().next().unwrap()) }
    };
    let out = match &instr.op {
        Op::Constant(literal) => Array::of_literal(&module.shapes, literal).unwrap(),
        Op::Copy => a[0].clone(),
        Op::Unary(op) => elementwise::unary(*op, a[0]),
        Op::Binary(op) => elementwise::binary(*op, a[0], a[1]),
        Op::Compare { direction, ty } => elementwise::compare(*direction, *ty, a[0], a[1]),
        Op::Select => elementwise::select(a[0], a[1], a[2]),
        Op::Clamp => elementwise::clamp(a[0], a[1], a[2]),
        Op::Convert => elementwise::convert(a[0], element),
        Op::BitcastConvert => ops::bitcast_convert(a[0], element, &dims)?,
        Op::ReducePrecision { exponent_bits, mantissa_bits } => elementwise::reduce_precision(a[0], *exponent_bits, *mantissa_bits),
        Op::Reverse { dimensions } => ops::reverse(a[0], dimensions)?,
        Op::GetDimensionSize { dimension } => ops::get_dimension_size(a[0], *dimension)?,
        Op::SetDimensionSize { dimension } => ops::set_dimension_size(a[0], a[1], *dimension)?,
        Op::Convolution(op) => ops::convolution(a[0], a[1], op, element, &dims)?,
        Op::CustomCall(op) if ops::is_cudnn_conv(&op.target) => {
            let result = ops::cudnn_conv(op, instr.attrs.backend_config.as_deref(), a, element, &dims)?;
            return Ok(Value::Tuple(vec![Value::Array(result), Value::Array(Array::zeros(leaves[1].0, &leaves[1].1))]));
        }
        Op::ReduceWindow { window, to_apply } => {
            let (operands, inits) = a.split_at(a.len() / 2);
            let inits: Vec<Bits> = inits.iter().map(|i| load(i, 0)).collect();
            let mut f = combine(module, *to_apply);
            return Ok(many(ops::reduce_window(operands, &inits, window, combiner(module, *to_apply, &mut f))?));
        }
        Op::SelectAndScatter { window, select, scatter } => {
            let mut chosen = |x, y| call(module, *select, &[x, y])[0] != 0;
            let mut f = combine(module, *scatter);
            ops::select_and_scatter(a[0], a[1], load(a[2], 0), window, &mut chosen, Combiner::Any(&mut f))?
        }
        Op::Gather(op) => ops::gather(a[0], a[1], op)?,
        Op::Scatter(op) => {
            let n = (a.len() - 1) / 2;
            let mut f = combine(module, op.to_apply);
            return Ok(many(ops::scatter(&a[..n], a[n], &a[n + 1..], op, combiner(module, op.to_apply, &mut f))?));
        }
        Op::Sort { dimension, to_apply, .. } => {
            let mut less = |arguments: &[Bits]| call(module, *to_apply, arguments)[0] != 0;
            return Ok(many(ops::sort(a, *dimension, &mut less)?));
        }
        Op::TopK { k, largest, .. } => return Ok(many(ops::topk(a[0], *k, *largest)?.into())),
        Op::CustomCall(op) if &*op.target == "TopK" => {
            return Ok(many(ops::topk(a[0], *dims.last().unwrap() as i64, true)?.into()));
        }
        Op::Fft { fft_type, fft_length } => ops::fft(a[0], *fft_type, fft_length)?,
        Op::Cholesky { lower } => ops::cholesky(a[0], *lower)?,
        Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
            let options =
                ops::TriangularOptions { left_side: *left_side, lower: *lower, unit_diagonal: *unit_diagonal, transpose_a: *transpose_a };
            ops::triangular_solve(a[0], a[1], options)?
        }
        Op::BatchNormTraining { epsilon, feature_index } => {
            return Ok(many(ops::batch_norm_training(a[0], a[1], a[2], *epsilon, *feature_index)?.into()));
        }
        Op::BatchNormInference { epsilon, feature_index } => {
            ops::batch_norm_inference(a[0], [a[1], a[2], a[3], a[4]], *epsilon, *feature_index)?
        }
        Op::BatchNormGrad { epsilon, feature_index } => {
            return Ok(many(ops::batch_norm_grad(a[0], [a[1], a[2], a[3]], a[4], *epsilon, *feature_index)?.into()));
        }
        Op::RngBitGenerator { algorithm } => {
            let [state, bits] = rng::bit_generator(*algorithm, a[0], leaves.last().unwrap().0, &leaves.last().unwrap().1)?;
            return Ok(if is_tuple { many(vec![state, bits]) } else { Value::Array(bits) });
        }
        Op::RngGetAndUpdateState { delta } => rng::get_and_update_state(&mut rng::INITIAL_STATE.clone(), *delta),
        Op::Scan(op) => {
            let outputs = &leaves[..leaves.len() - op.num_carries as usize];
            let mut body = |arguments: Vec<Array>| {
                let arguments: Vec<Value> = arguments.into_iter().map(Value::Array).collect();
                Ok(evaluate(module, op.to_apply, &arguments)?.leaves())
            };
            return Ok(many(ops::scan(op, a, outputs, &mut body)?));
        }
        other => return Err(OpError(format!("no such operation here: {other:?}"))),
    };
    Ok(Value::Array(out))
}

/// The one operation of a computation of two parameters in their order, or the computation itself.
fn combiner<'a>(module: &Module, comp: CompId, f: &'a mut dyn FnMut(&mut [Bits], &[Bits])) -> Combiner<'a> {
    let computation = module.comp(comp);
    let root = module.instr(computation.root);
    match root.op {
        Op::Binary(op) if root.operands.as_slice() == computation.parameters.as_slice() => Combiner::Known(op),
        _ => Combiner::Any(f),
    }
}
