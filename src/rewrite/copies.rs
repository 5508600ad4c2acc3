//! Asynchronous whole-array copies between device and pinned host memory.
//!
//! `copy-start` makes `(destination, source, u32[])` and has one user, the `copy-done`; only the memory space differs between the two
//! ends, never the order of dimensions.

use rustc_hash::FxHashSet;

use crate::ir::{ArrayShape, InstrId, Instruction, Module, Op, Primitive, Shape};

/// One copy: its two halves. The value of `done` is the copied array.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// The start.
    pub start: InstrId,
    /// The done.
    pub done: InstrId,
}

/// Defines a copy of `source` into memory space `space`; `label` names what it is for. Nothing is spliced yet.
pub fn define_copy(module: &mut Module, source: InstrId, space: i64, label: &str, taken: &mut FxHashSet<Box<str>>) -> Copy {
    let from = module.instr(source).shape;
    let to = module.shapes.with_memory_space(from, space);
    let context = module.shapes.intern(Shape::Array(ArrayShape::new(Primitive::U32, &[])));
    let pair = module.shapes.intern(Shape::Tuple(vec![to, from, context]));
    let metadata = module.instr(source).attrs.metadata.clone();
    let mut define = |name: String, shape, op, operand| {
        let mut instr = Instruction::new(Module::fresh_name(&name, taken), shape, op, [operand]);
        instr.attrs.metadata.clone_from(&metadata);
        if let Some(metadata) = &mut instr.attrs.metadata {
            metadata.scheduling_name = instr.name.clone();
            metadata.deduplicated_name = "".into();
        }
        module.instructions.push(instr)
    };
    let start = define(format!("{label}.start"), pair, Op::CopyStart { cross_program_prefetch_index: None }, source);
    let done = define(format!("{label}.done"), to, Op::CopyDone, start);
    Copy { start, done }
}
