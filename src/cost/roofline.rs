//! Bytes moved and arithmetic done by one instruction, and the time that follows.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::ir::{CompId, InstrId, Instruction, Module, Op, Primitive};
use crate::machine::{Machine, MathType};
use crate::units::{Bytes, Flops, Nanos};

/// What an instruction moves and computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes read from and written to memory.
    pub bytes: Bytes,
    /// Arithmetic of the plain units.
    pub vector: Flops,
    /// Arithmetic of the matrix units.
    pub matrix: Flops,
}

/// The roofline time of an instruction: the slowest of memory, matrix and plain arithmetic, at least a launch where anything is done.
pub fn time(module: &Module, id: InstrId, machine: &Machine) -> Nanos {
    time_of(work(module, id), math_type(module, id), machine)
}

/// The roofline time of some work.
pub fn time_of(work: Work, math: MathType, machine: &Machine) -> Nanos {
    let busy = machine.hbm_time(work.bytes).max(work.matrix / machine.matrix.of(math)).max(work.vector / machine.vector.of(MathType::F32));
    if work == Work::default() { Nanos::ZERO } else { busy.max(machine.launch_latency) }
}

/// Bytes and arithmetic of an instruction. A fused computation counts its parameters as far as they are read (slices and
/// gathers read what they yield) and its results as far as they are written (an update in place writes the update).
pub fn work(module: &Module, id: InstrId) -> Work {
    let instr = module.instr(id);
    match &instr.op {
        Op::Fusion(fusion) => fused(module, &module.comp(fusion.calls).order, &outputs(module, fusion.calls)),
        _ => {
            let bytes = Bytes(written(module, instr) + instr.operands.iter().map(|&o| read_by(module, instr, o)).sum::<u64>());
            let (vector, matrix) = arithmetic(module, instr);
            Work { bytes, vector, matrix }
        }
    }
}

/// The work of one output of a multi-output fusion made alone, and the numbers of the parameters it reads; `None` without such an output.
pub fn work_of_output(module: &Module, comp: CompId, output: usize) -> Option<(Work, Vec<usize>)> {
    let root = module.instr(module.comp(comp).root);
    let wanted = *root.operands.get(output).filter(|_| matches!(root.op, Op::Tuple))?;
    let mut needed = FxHashSet::default();
    let mut stack = vec![wanted];
    while let Some(id) = stack.pop() {
        if needed.insert(id) {
            stack.extend_from_slice(&module.instr(id).operands);
        }
    }
    let order: Vec<InstrId> = module.comp(comp).order.iter().copied().filter(|i| needed.contains(i)).collect();
    let parameters = module.comp(comp).parameters.iter().enumerate().filter(|(_, p)| needed.contains(p)).map(|(n, _)| n).collect();
    Some((fused(module, &order, &[wanted]), parameters))
}

fn outputs(module: &Module, comp: CompId) -> SmallVec<[InstrId; 4]> {
    let root = module.comp(comp).root;
    match module.instr(root).op {
        Op::Tuple => module.instr(root).operands.iter().copied().collect(),
        _ => SmallVec::from_slice(&[root]),
    }
}

fn fused(module: &Module, order: &[InstrId], outputs: &[InstrId]) -> Work {
    let mut work = Work::default();
    for &id in order {
        let instr = module.instr(id);
        let (vector, matrix) = arithmetic(module, instr);
        work.vector += vector;
        work.matrix += matrix;
        for &operand in &instr.operands {
            if matches!(module.instr(operand).op, Op::Parameter { .. }) {
                work.bytes += Bytes(read_by(module, instr, operand));
            }
        }
    }
    work.bytes += Bytes(outputs.iter().map(|&o| written(module, module.instr(o))).sum());
    work
}

/// Bytes of `operand` that `instr` reads.
fn read_by(module: &Module, instr: &Instruction, operand: InstrId) -> u64 {
    let whole = module.shapes.leaf_bytes(module.instr(operand).shape);
    match instr.op {
        Op::DynamicSlice { .. } | Op::Slice { .. } | Op::Gather(_) if instr.operands[0] == operand => {
            whole.min(module.shapes.leaf_bytes(instr.shape))
        }
        Op::DynamicUpdateSlice if instr.operands[0] == operand => 0,
        Op::Bitcast | Op::Tuple | Op::GetTupleElement { .. } => 0,
        _ => whole,
    }
}

/// Bytes that `instr` writes.
fn written(module: &Module, instr: &Instruction) -> u64 {
    match instr.op {
        Op::DynamicUpdateSlice => instr.operands.get(1).map_or(0, |&u| module.shapes.leaf_bytes(module.instr(u).shape)),
        _ => module.shapes.leaf_bytes(instr.shape),
    }
}

/// Plain and matrix arithmetic of one instruction, one operation an element where nothing better is known.
fn arithmetic(module: &Module, instr: &Instruction) -> (Flops, Flops) {
    let elements = |id| module.shapes.array(id).map_or(0, |a| a.elements());
    let out = elements(instr.shape);
    match &instr.op {
        Op::Dot(dot) => (Flops::ZERO, Flops(out.saturating_mul(2).saturating_mul(contracted(module, instr, &dot.dims.lhs_contracting)))),
        Op::Convolution(conv) => {
            let window: u64 = conv.window.iter().map(|d| u64::try_from(d.size).unwrap_or(1)).product();
            let features = instr.operands.get(1).and_then(|&k| module.shapes.array(module.instr(k).shape));
            let features = features.and_then(|k| k.dims.get(usize::try_from(conv.dims.kernel_input_feature).ok()?));
            let features = features.map_or(1, |d| u64::try_from(d.size).unwrap_or(1));
            (Flops::ZERO, Flops(out.saturating_mul(2).saturating_mul(window).saturating_mul(features)))
        }
        Op::Unary(_) | Op::Binary(_) | Op::Compare { .. } | Op::Select | Op::Clamp | Op::Convert => (Flops(out), Flops::ZERO),
        Op::Reduce { .. } => (Flops(instr.operands.first().map_or(0, |&o| elements(module.instr(o).shape))), Flops::ZERO),
        _ => (Flops::ZERO, Flops::ZERO),
    }
}

fn contracted(module: &Module, instr: &Instruction, dims: &[i64]) -> u64 {
    let Some(lhs) = instr.operands.first().and_then(|&o| module.shapes.array(module.instr(o).shape)) else { return 1 };
    let size = |&d: &i64| lhs.dims.get(usize::try_from(d).ok()?).and_then(|d| u64::try_from(d.size).ok());
    dims.iter().filter_map(size).product()
}

/// The kind of arithmetic that the first array operand (of a fusion: the first dot's) asks for.
pub fn math_type(module: &Module, id: InstrId) -> MathType {
    let instr = module.instr(id);
    let dot = match &instr.op {
        Op::Fusion(f) => {
            module.comp(f.calls).order.iter().map(|&i| module.instr(i)).find(|i| matches!(i.op, Op::Dot(_) | Op::Convolution(_)))
        }
        _ => Some(instr),
    };
    let operand = dot.and_then(|i| i.operands.first()).and_then(|&o| module.shapes.array(module.instr(o).shape));
    match operand.and_then(|a| a.element.known()) {
        Some(Primitive::F64 | Primitive::C128) => MathType::F64,
        Some(p) if p.is_float() && p.bits() == 16 => MathType::F16,
        Some(p) if p.is_float() && p.bits() == 8 => MathType::F8,
        Some(p) if p.is_float() && p.bits() < 8 => MathType::F4,
        Some(p) if p.is_integer() && p.bits() <= 8 => MathType::Int8,
        _ => MathType::F32,
    }
}
