//! Rows and stacks: their shapes, and the little fusions that slice, fill and write them.

use rustc_hash::FxHashSet;

use crate::ir::{ArrayShape, InstrId, Instruction, Literal, LiteralValue, Module, Op, Shape, ShapeId};
use crate::rewrite::FusedBuilder;

/// The shape of `rows` arrays, one after another in memory.
pub(super) fn stack_of(array: &ArrayShape, rows: i64) -> Option<ArrayShape> {
    let mut stacked = array.clone();
    stacked.dims.insert(0, crate::ir::Dim { size: rows, dynamic: false });
    let layout = stacked.layout.as_mut()?;
    for dim in &mut layout.minor_to_major {
        *dim += 1;
    }
    layout.minor_to_major.push(0);
    (layout.tiles.is_empty() && array.dims.iter().all(|d| !d.dynamic)).then_some(stacked)
}

pub(super) fn zero_index(
    module: &mut Module,
    builder: &mut FusedBuilder,
    index: InstrId,
    stack: InstrId,
    taken: &mut FxHashSet<Box<str>>,
) -> Vec<InstrId> {
    let rank = module.shapes.array(module.instr(stack).shape).map_or(1, |a| a.dims.len());
    if rank < 2 {
        return Vec::new();
    }
    let shape = module.instr(index).shape;
    let width = module.shapes.byte_size(shape);
    let literal = Literal { shape, value: LiteralValue::Dense(vec![0; usize::try_from(width).unwrap_or(4)].into()) };
    let name = Module::fresh_name("constant", taken);
    let zero = builder.push(module, Instruction::new(name, shape, Op::Constant(Box::new(literal)), []));
    vec![zero; rank - 1]
}

/// A fusion that makes an array of zeros.
pub(super) fn zero_fill(module: &mut Module, shape: ShapeId, taken: &mut FxHashSet<Box<str>>) -> Option<InstrId> {
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

/// A fusion that writes `value` as row `counter` of `stack`.
pub(super) fn write_row(module: &mut Module, stack: InstrId, value: InstrId, counter: InstrId, taken: &mut FxHashSet<Box<str>>) -> InstrId {
    let mut builder = FusedBuilder::new("fused_dynamic_update_slice", taken);
    let inner = builder.parameter(module, stack, taken);
    let row = builder.parameter(module, value, taken);
    let at = builder.parameter(module, counter, taken);
    let shape = module.shapes.leading_row(module.instr(stack).shape);
    let full = builder.push(module, Instruction::new(Module::fresh_name("bitcast", taken), shape, Op::Bitcast, [row]));
    let zeros = zero_index(module, &mut builder, counter, stack, taken);
    let operands = [inner, full, at].into_iter().chain(zeros);
    let name = Module::fresh_name("dynamic_update_slice", taken);
    let stacked = module.instr(stack).shape;
    let root = builder.push(module, Instruction::new(name, stacked, Op::DynamicUpdateSlice, operands));
    builder.finish(module, &[root], "loop_dynamic_update_slice_fusion", taken)
}
