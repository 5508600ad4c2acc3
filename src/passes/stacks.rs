//! Stacks and their rows: shapes, and the fusions and copies that fill, write and slice them.

use rustc_hash::FxHashSet;

use crate::analysis::loops::{Element, Kind, Loop, Rows};
use crate::ir::{
    ArrayShape, Async, Binary, Computation, CustomCall, Dim, HOST, Insertion, InstrId, Instruction, Literal, LiteralValue, Module, Op,
    Primitive, Shape, ShapeId,
};
use crate::rewrite::{FusedBuilder, define_take};

use super::loop_handle;

type Taken = FxHashSet<Box<str>>;

/// The shape of `rows` arrays, one after another in memory.
pub(super) fn stack_of(array: &ArrayShape, rows: i64) -> Option<ArrayShape> {
    let mut stacked = array.clone();
    stacked.dims.insert(0, Dim { size: rows, dynamic: false });
    let layout = stacked.layout.as_mut()?;
    for dim in &mut layout.minor_to_major {
        *dim += 1;
    }
    layout.minor_to_major.push(0);
    (layout.tiles.is_empty() && array.dims.iter().all(|d| !d.dynamic)).then_some(stacked)
}

/// The shape of one row along a dimension.
pub(super) fn row_shape(module: &mut Module, stack: ShapeId, dimension: usize) -> Option<ShapeId> {
    let mut array = module.shapes.array(stack)?.clone();
    array.dims.get_mut(dimension)?.size = 1;
    if let Some(layout) = &mut array.layout {
        layout.memory_space = 0;
    }
    Some(module.shapes.intern(Shape::Array(array)))
}

/// Indices with `index` along a dimension and zero along the others.
fn indices(
    module: &mut Module,
    builder: &mut FusedBuilder,
    stack: InstrId,
    (index, dimension): (InstrId, usize),
    taken: &mut Taken,
) -> Vec<InstrId> {
    let rank = module.shapes.array(module.instr(stack).shape).map_or(1, |a| a.dims.len());
    let shape = module.instr(index).shape;
    let zero = (rank > 1).then(|| {
        let width = module.shapes.byte_size(shape);
        let literal = Literal { shape, value: LiteralValue::Dense(vec![0; usize::try_from(width).unwrap_or(4)].into()) };
        let name = Module::fresh_name("constant", taken);
        builder.push(module, Instruction::new(name, shape, Op::Constant(Box::new(literal)), []))
    });
    (0..rank).map(|d| if d == dimension { index } else { zero.unwrap_or(index) }).collect()
}

/// A fusion that makes an array of zeros.
pub(super) fn zero_fill(module: &mut Module, shape: ShapeId, taken: &mut Taken) -> Option<InstrId> {
    let element = module.shapes.array(shape)?.element.clone();
    let scalar = module.shapes.intern(Shape::Array(ArrayShape::new(element.clone(), &[])));
    let bytes = vec![0; element.known()?.literal_bytes()];
    let mut builder = FusedBuilder::new("fused_broadcast", taken);
    let literal = Literal { shape: scalar, value: LiteralValue::Dense(bytes.into()) };
    let zero = builder.push(module, Instruction::new(Module::fresh_name("constant", taken), scalar, Op::Constant(Box::new(literal)), []));
    let op = Op::Broadcast { dimensions: Vec::new() };
    let root = builder.push(module, Instruction::new(Module::fresh_name("broadcast", taken), shape, op, [zero]));
    Some(builder.finish(module, &[root], "loop_broadcast_fusion", taken))
}

/// Host memory with nothing in it, in the form that XLA gives it.
pub(super) fn allocate(module: &mut Module, shape: ShapeId, taken: &mut Taken) -> InstrId {
    let call = CustomCall { target: "AllocateBuffer".into(), ..CustomCall::default() };
    let name = Module::fresh_name("custom-call", taken);
    module.define(Instruction::new(name, shape, Op::CustomCall(Box::new(call)), []))
}

/// A fusion that writes `value` as row `index` of `stack`, whose rows lie along its leading dimension.
/// `map` says which row each iteration writes, for XLA's copy to the host.
pub(super) fn write_row(
    module: &mut Module,
    stack: InstrId,
    value: InstrId,
    (index, map): (InstrId, (i64, i64)),
    taken: &mut Taken,
) -> Option<InstrId> {
    let mut builder = FusedBuilder::new("fused_dynamic_update_slice", taken);
    let inner = builder.parameter(module, stack, taken);
    let row = builder.parameter(module, value, taken);
    let at = builder.parameter(module, index, taken);
    let shape = row_shape(module, module.instr(stack).shape, 0)?;
    let full = if module.instr(row).shape == shape {
        row
    } else {
        builder.push(module, Instruction::new(Module::fresh_name("bitcast", taken), shape, Op::Bitcast, [row]))
    };
    let all = indices(module, &mut builder, inner, (at, 0), taken);
    let operands = [inner, full].into_iter().chain(all);
    let name = Module::fresh_name("dynamic_update_slice", taken);
    let stacked = module.instr(stack).shape;
    let mut update = Instruction::new(name, stacked, Op::DynamicUpdateSlice, operands);
    if module.shapes.memory_space(stacked) == HOST {
        update.attrs.backend_config = Some(slice_config(module.shapes.byte_size(shape), map));
    }
    let root = builder.push(module, update);
    Some(builder.finish(module, &[root], "loop_dynamic_update_slice_fusion", taken))
}

/// A fusion that slices row `index` out of a stack. `map` says which row each iteration takes, for XLA's copy from the host.
pub(super) fn slice_row(
    module: &mut Module,
    stack: InstrId,
    rows: Rows,
    (index, map): (InstrId, (i64, i64)),
    taken: &mut Taken,
) -> Option<InstrId> {
    let stacked = module.instr(stack).shape;
    let dimension = rows.dimension(module.shapes.array(stacked)?)?;
    let mut builder = FusedBuilder::new("fused_dynamic_slice", taken);
    let inner = builder.parameter(module, stack, taken);
    let at = builder.parameter(module, index, taken);
    let all = indices(module, &mut builder, inner, (at, dimension), taken);
    let shape = row_shape(module, stacked, dimension)?;
    let sizes = module.shapes.array(shape)?.dims.iter().map(|d| d.size).collect();
    let name = Module::fresh_name("dynamic_slice", taken);
    let mut slice = Instruction::new(name, shape, Op::DynamicSlice { sizes }, [inner].into_iter().chain(all));
    if module.shapes.memory_space(stacked) == HOST {
        slice.attrs.backend_config = Some(slice_config(module.shapes.byte_size(shape), map));
    }
    let root = builder.push(module, slice);
    Some(builder.finish(module, &[root], "loop_dynamic_slice_fusion", taken))
}

/// Wraps a fusion that stands nowhere yet into an asynchronous pair: start and done.
pub(super) fn asynchronous(module: &mut Module, fusion: InstrId, taken: &mut Taken) -> (InstrId, InstrId) {
    let outer: Vec<InstrId> = module.instr(fusion).operands.to_vec();
    let shapes: Vec<ShapeId> = outer.iter().map(|&o| module.instr(o).shape).collect();
    let result = module.instr(fusion).shape;
    let mut computation = Computation::new(Module::fresh_name("async_computation", taken));
    for (number, &shape) in (0i64..).zip(&shapes) {
        let name = Module::fresh_name(&format!("param_{number}"), taken);
        let parameter = module.define(Instruction::new(name, shape, Op::Parameter { number }, []));
        computation.parameters.push(parameter);
        computation.order.push(parameter);
    }
    module.instructions[fusion].operands = computation.parameters.iter().copied().collect();
    computation.order.push(fusion);
    computation.root = fusion;
    let calls = module.computations.push(computation);
    let callee = module.instr(fusion).op.called().first().and_then(|c| module.listing.iter().position(|l| l == c));
    module.listing.insert(callee.map_or(0, |n| n + 1), calls);
    let operands = module.shapes.intern(Shape::Tuple(shapes));
    let context = module.shapes.intern(Shape::Array(ArrayShape::new(Primitive::U32, &[])));
    let shape = module.shapes.intern(Shape::Tuple(vec![operands, result, context]));
    let wrapped = || Box::new(Async { calls, thread: None, aliasing: Vec::new() });
    let is_update = matches!(module.shapes.memory_space(result), HOST);
    let base = if is_update { "dynamic-update-slice" } else { "dynamic-slice" };
    let name = Module::fresh_name(&format!("{base}-start"), taken);
    let start = module.define(Instruction::new(name, shape, Op::AsyncStart(wrapped()), outer));
    let name = Module::fresh_name(&format!("{base}-done"), taken);
    let done = module.define(Instruction::new(name, result, Op::AsyncDone(wrapped()), [start]));
    (start, done)
}

/// Where a copy of rows of `bytes` starts, by iteration, in XLA's words.
fn slice_config(bytes: u64, (scale, offset): (i64, i64)) -> Box<[u8]> {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let (first, stride) = (bytes.saturating_mul(offset), bytes.saturating_mul(scale));
    format!(
        "{{\"operation_queue_id\":\"0\",\"force_earliest_schedule\":false,\"reification_cost\":[],\"device_type\":\"DEVICE_TYPE_INVALID\",\
         \"dynamic_slice_config\":{{\"loop_index\":\"0\",\"byte_offset\":\"0\",\"byte_stride\":\"0\",\
         \"linear\":{{\"byte_offset\":\"{first}\",\"byte_stride\":\"{stride}\"}}}}}}"
    )
    .into_bytes()
    .into()
}

/// Just after the parameter of a body.
pub(super) fn top(module: &Module, this: &Loop) -> usize {
    module.comp(this.body).order.iter().position(|&i| i == this.parameter).map_or(0, |p| p + 1)
}

/// The number of the row that a loop works on, made at the top of its body; `row` says it as `scale · iteration + offset`.
pub(super) fn row_number(
    module: &mut Module,
    consumer: &Loop,
    row: (i64, i64),
    inserted: &mut Vec<Insertion>,
    taken: &mut Taken,
) -> Option<InstrId> {
    if row == (1, 0) { counter(module, consumer, inserted, taken) } else { iteration_number(module, consumer, row, inserted, taken) }
}

/// The element of a loop that counts its iterations from nought, as the numbers of rows are made of.
pub(super) fn counter_element(module: &Module, this: &Loop) -> Option<usize> {
    let is_s32 = |shape: ShapeId| module.shapes.array(shape).is_some_and(|a| a.element.known() == Some(Primitive::S32));
    let counts = |e: &Element| e.kind == (Kind::Linear { start: Some(0), step: 1 }) && is_s32(module.instr(e.initial).shape);
    this.elements.iter().position(counts)
}

/// A take of the counter, at the top of the body.
fn counter(module: &mut Module, this: &Loop, inserted: &mut Vec<Insertion>, taken: &mut Taken) -> Option<InstrId> {
    let n = counter_element(module, this)?;
    let take = define_take(module, &loop_handle(this), n, module.instr(this.elements[n].initial).shape, taken);
    inserted.push(Insertion { position: top(module, this), instr: take });
    Some(take)
}

/// The same in a buffer of its own, which the counter's increment leaves alone.
pub(super) fn iteration_number(
    module: &mut Module,
    this: &Loop,
    (scale, offset): (i64, i64),
    inserted: &mut Vec<Insertion>,
    taken: &mut Taken,
) -> Option<InstrId> {
    let (op, name) = match scale {
        1 => (Binary::Add, "add"),
        -1 => (Binary::Subtract, "subtract"),
        _ => return None,
    };
    let bytes = i32::try_from(offset).ok()?.to_le_bytes();
    let take = counter(module, this, inserted, taken)?;
    let shape = module.instr(take).shape;
    let literal = Literal { shape, value: LiteralValue::Dense(Box::new(bytes)) };
    let mut builder = FusedBuilder::new(&format!("fused_{name}"), taken);
    let inner = builder.parameter(module, take, taken);
    let constant = Module::fresh_name("constant", taken);
    let constant = builder.push(module, Instruction::new(constant, shape, Op::Constant(Box::new(literal)), []));
    let root = Module::fresh_name(name, taken);
    let root = builder.push(module, Instruction::new(root, shape, Op::Binary(op), [constant, inner]));
    let fusion = builder.finish(module, &[root], &format!("loop_{name}_fusion"), taken);
    inserted.push(Insertion { position: top(module, this), instr: fusion });
    Some(fusion)
}

/// A number, as an instruction that stands nowhere yet.
pub(super) fn scalar_constant(module: &mut Module, number: i64, taken: &mut Taken) -> InstrId {
    let shape = module.shapes.intern(Shape::Array(ArrayShape::new(Primitive::S32, &[])));
    let bytes = i32::try_from(number).expect("rows are counted in 32 bits").to_le_bytes();
    let literal = Literal { shape, value: LiteralValue::Dense(Box::new(bytes)) };
    let name = Module::fresh_name("constant", taken);
    module.define(Instruction::new(name, shape, Op::Constant(Box::new(literal)), []))
}
