//! Bytes moved and arithmetic done by one instruction, and the time that follows.
//!
//! Matrix units do not reach their peak: of dense 16 bit arithmetic 82 %, of TF32 65 %, and less where a side is short, because tiles of 128 by 128
//! are filled in part and pipelines drain: an `m × n × k` product takes as long as one with sides longer by 64, 64 and 128. Fitted to the 130
//! products of the test corpus that XLA prices from its measured tables (within 8 % for those with sides of 1024 and more; products too
//! small to fill the multiprocessors are slower by that ratio).

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{CompId, HOST, InstrId, Instruction, Module, Op, Primitive, Unary};
use crate::machine::{Machine, MathType};
use crate::units::{Bytes, Flops, FlopsPerSec, Nanos};

/// What an instruction moves and computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes read from and written to device memory.
    pub bytes: Bytes,
    /// Bytes read from host memory over the link, by a kernel.
    pub host_read: Bytes,
    /// Bytes written to host memory over the link, by a kernel.
    pub host_written: Bytes,
    /// Arithmetic of the plain units.
    pub vector: Flops,
    /// Arithmetic of the matrix units, with what partial tiles and short loops waste.
    pub matrix: Flops,
    /// Tiles of 128 by 128 that the matrix units fill at once; as many multiprocessors work.
    pub tiles: u64,
}

impl Work {
    /// The same bytes with the arithmetic of another.
    #[must_use]
    pub fn with(self, arithmetic: Self) -> Self {
        Self { vector: arithmetic.vector, matrix: arithmetic.matrix, tiles: arithmetic.tiles, ..self }
    }
    fn add_arithmetic(&mut self, other: Self) {
        self.vector += other.vector;
        self.matrix += other.matrix;
        self.tiles = self.tiles.max(other.tiles);
    }
}

/// The roofline time of an instruction: the slowest of memory, link, matrix and plain arithmetic, at least a launch where anything is done.
pub fn time(module: &Module, id: InstrId, machine: &Machine) -> Nanos {
    time_of(work(module, id), math_type(module, id), machine)
}

/// The roofline time of some work.
pub fn time_of(work: Work, math: MathType, machine: &Machine) -> Nanos {
    if work == Work::default() {
        return Nanos::ZERO;
    }
    let memory = machine.hbm_time(work.bytes);
    let link = work.host_read / machine.from_host_rate() + work.host_written / machine.to_host_rate();
    let vector = work.vector / machine.vector.of(MathType::F32);
    memory.max(link).max(matrix_time(work, math, machine)).max(vector).max(machine.launch_latency)
}

fn matrix_time(work: Work, math: MathType, machine: &Machine) -> Nanos {
    let peak = machine.matrix.of(math);
    // Two digits of what the units sustain of their peak.
    let percent = match math {
        MathType::F16 => 82,
        MathType::F32 => 65,
        MathType::F64 => 90,
        MathType::F8 | MathType::Int8 => 72,
        MathType::F4 => 60,
    };
    let reached = FlopsPerSec(peak.get() / 100 * percent);
    let full = work.matrix / reached;
    let (busy, all) = (work.tiles.max(1), u64::from(machine.cores.max(1)));
    if busy >= all { full } else { Nanos(full.get().saturating_mul(all) / busy) }
}

/// The arithmetic of a matrix product with `out` results, `rows` and `columns` on its sides in all batches and `k` long sums.
pub fn matrix_work(out: u64, rows: u64, columns: u64, k: u64) -> Work {
    if out == 0 {
        return Work::default();
    }
    // With batches, rows · columns = out · batches.
    let batches = (u128::from(rows) * u128::from(columns) / u128::from(out)).clamp(1, u128::from(u64::MAX)) as u64;
    let (m, n) = ((rows / batches).max(1), (columns / batches).max(1));
    let useful = u128::from(out) * 2 * u128::from(k.max(1));
    let longer = |flops: u128, side: u64, by: u64| flops.saturating_mul(u128::from(side) + u128::from(by)) / u128::from(side.max(1));
    let flops = longer(longer(longer(useful, m, 64), n, 64), k.max(1), 128);
    let tiles = m.div_ceil(128).saturating_mul(n.div_ceil(128)).saturating_mul(batches);
    Work { matrix: Flops(u64::try_from(flops).unwrap_or(u64::MAX)), tiles, ..Work::default() }
}

/// Bytes and arithmetic of an instruction. A fused computation counts what somebody asks for: slices and gathers ask for what they yield, also
/// through elementwise operations in between; an update in place writes the update. A parameter that is read twice is read once.
pub fn work(module: &Module, id: InstrId) -> Work {
    let instr = module.instr(id);
    match &instr.op {
        Op::Fusion(fusion) => fused(module, &module.comp(fusion.calls).order, &outputs(module, fusion.calls)),
        _ => {
            let mut work = host_aware_bytes(module, instr);
            work.add_arithmetic(arithmetic(module, instr));
            work
        }
    }
}

/// The bytes that an instruction reads and writes, by memory space.
pub fn host_aware_bytes(module: &Module, instr: &Instruction) -> Work {
    let mut work = Work::default();
    put(module, instr, written(module, instr), true, &mut work);
    for (n, &operand) in instr.operands.iter().enumerate() {
        if !instr.operands[..n].contains(&operand) {
            put(module, module.instr(operand), read_by(module, instr, operand), false, &mut work);
        }
    }
    work
}

/// Adds bytes of the value of `instr`, all of them in one memory space.
fn put(module: &Module, instr: &Instruction, bytes: u64, writes: bool, work: &mut Work) {
    if module.shapes.memory_space(instr.shape) != HOST {
        work.bytes += Bytes(bytes);
    } else if writes {
        work.host_written += Bytes(bytes);
    } else {
        work.host_read += Bytes(bytes);
    }
}

/// The work of one output of a multi-output fusion made alone, and the numbers of the parameters it reads; `None` without such an output.
pub fn work_of_output(module: &Module, comp: CompId, output: usize) -> Option<(Work, Vec<usize>)> {
    let root = module.instr(module.comp(comp).root);
    let wanted = *root.operands.get(output).filter(|_| matches!(root.op, Op::Tuple))?;
    let mut needed = rustc_hash::FxHashSet::default();
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

/// Elements that somebody asks for, of every array; more than there are means all. Readers stand after what they read.
fn demands(module: &Module, order: &[InstrId], outputs: &[InstrId]) -> FxHashMap<InstrId, u64> {
    let elements = |id: InstrId| module.shapes.array(module.instr(id).shape).map_or(u64::MAX, |a| a.elements());
    let mut asked: FxHashMap<InstrId, u64> = outputs.iter().map(|&output| (output, u64::MAX)).collect();
    let updated: SmallVec<[InstrId; 4]> = outputs.iter().filter_map(|&output| updated_in_place(module, output)).collect();
    for &id in order.iter().rev() {
        let Some(&of_it) = asked.get(&id) else { continue };
        let instr = module.instr(id);
        let of_it = of_it.min(elements(id));
        for (n, &operand) in instr.operands.iter().enumerate() {
            let all = elements(operand);
            let share = match &instr.op {
                Op::DynamicSlice { .. } | Op::Slice { .. } | Op::Gather(_) if n == 0 => of_it,
                Op::DynamicUpdateSlice if n == 0 => {
                    if updated.contains(&id) {
                        0
                    } else {
                        of_it
                    }
                }
                // What is scattered to is read where it is hit.
                Op::Scatter(_) if n < instr.operands.len() / 2 && updated.contains(&id) => {
                    instr.operands.last().map_or(all, |&u| elements(u))
                }
                Op::Unary(_)
                | Op::Binary(_)
                | Op::Compare { .. }
                | Op::Select
                | Op::Clamp
                | Op::Convert
                | Op::Copy
                | Op::Bitcast
                | Op::Reshape { .. }
                    if all == elements(id) =>
                {
                    of_it
                }
                Op::Transpose { .. } | Op::Reverse { .. } => of_it,
                _ => all,
            };
            let asked = asked.entry(operand).or_insert(0);
            *asked = asked.saturating_add(share).min(all);
        }
    }
    asked
}

/// `whole`, as far as `part` of `all` is asked for, rounded up.
fn share_of(whole: u64, part: u64, all: u64) -> u64 {
    if part >= all {
        return whole;
    }
    u64::try_from((u128::from(whole) * u128::from(part)).div_ceil(u128::from(all.max(1)))).unwrap_or(whole)
}

fn fused(module: &Module, order: &[InstrId], outputs: &[InstrId]) -> Work {
    let mut work = Work::default();
    let asked = demands(module, order, outputs);
    for &id in order {
        let instr = module.instr(id);
        let Some(&part) = asked.get(&id) else { continue };
        let all = module.shapes.array(instr.shape).map_or(0, |a| a.elements());
        match &instr.op {
            Op::Parameter { .. } => put(module, instr, share_of(module.shapes.leaf_bytes(instr.shape), part, all), false, &mut work),
            _ => {
                let full = arithmetic(module, instr);
                work.add_arithmetic(Work { vector: Flops(share_of(full.vector.get(), part, all)), ..full });
            }
        }
    }
    for &output in outputs {
        let instr = module.instr(output);
        put(module, instr, output_bytes(module, output), true, &mut work);
    }
    work
}

/// Bytes that an output of a fused computation is written with: the update only, where it changes an operand in its place.
fn output_bytes(module: &Module, output: InstrId) -> u64 {
    match updated_in_place(module, output) {
        Some(update) => written(module, module.instr(update)),
        None => module.shapes.leaf_bytes(module.instr(output).shape),
    }
}

/// The bytes that an instruction touches, by operand.
#[derive(Clone, Debug)]
pub struct Touched {
    /// Bytes read of each operand.
    pub read: Vec<u64>,
    /// Bytes written.
    pub written: u64,
}

/// What an instruction touches of its operands and its result: of what is sliced or updated in place the slice only.
pub fn touched(module: &Module, id: InstrId) -> Touched {
    let instr = module.instr(id);
    let Op::Fusion(fusion) = &instr.op else {
        let read = instr.operands.iter().map(|&o| read_by(module, instr, o)).collect();
        return Touched { read, written: written(module, instr) };
    };
    let outputs = outputs(module, fusion.calls);
    let asked = demands(module, &module.comp(fusion.calls).order, &outputs);
    let of_parameter = |parameter: &InstrId| {
        let shape = module.instr(*parameter).shape;
        let all = module.shapes.array(shape).map_or(0, |a| a.elements());
        share_of(module.shapes.leaf_bytes(shape), asked.get(parameter).copied().unwrap_or(0), all)
    };
    let read = module.comp(fusion.calls).parameters.iter().map(of_parameter).collect();
    Touched { read, written: outputs.iter().map(|&o| output_bytes(module, o)).sum() }
}

/// The update that an output is, if it changes an operand of the fusion in its place: one whose base the fusion makes itself is written as a whole.
fn updated_in_place(module: &Module, output: InstrId) -> Option<InstrId> {
    let update = through_views(module, output);
    let instr = module.instr(update);
    let base = match (&instr.op, instr.operands.first()) {
        (Op::DynamicUpdateSlice | Op::Scatter(_), Some(&base)) => through_views(module, base),
        _ => return None,
    };
    matches!(module.instr(base).op, Op::Parameter { .. } | Op::GetTupleElement { .. }).then_some(update)
}

/// What a chain of renamings begins with.
fn through_views(module: &Module, mut id: InstrId) -> InstrId {
    while let (Op::Bitcast | Op::Reshape { .. }, Some(&operand)) = (&module.instr(id).op, module.instr(id).operands.first()) {
        id = operand;
    }
    id
}

/// Bytes of `operand` that `instr` reads.
fn read_by(module: &Module, instr: &Instruction, operand: InstrId) -> u64 {
    let whole = module.shapes.leaf_bytes(module.instr(operand).shape);
    let first = instr.operands.first() == Some(&operand);
    match instr.op {
        Op::DynamicSlice { .. } | Op::Slice { .. } | Op::Gather(_) if first => whole.min(module.shapes.leaf_bytes(instr.shape)),
        Op::DynamicUpdateSlice if first => 0,
        // What is scattered to is read and written where it is hit.
        Op::Scatter(_) if first => whole.min(updates(module, instr)),
        Op::Bitcast | Op::Tuple | Op::GetTupleElement { .. } => 0,
        _ => whole,
    }
}

/// Bytes that `instr` writes.
fn written(module: &Module, instr: &Instruction) -> u64 {
    match instr.op {
        Op::DynamicUpdateSlice => instr.operands.get(1).map_or(0, |&u| module.shapes.leaf_bytes(module.instr(u).shape)),
        Op::Scatter(_) => module.shapes.leaf_bytes(instr.shape).min(updates(module, instr)),
        Op::Bitcast | Op::Tuple | Op::GetTupleElement { .. } => 0,
        _ => module.shapes.leaf_bytes(instr.shape),
    }
}

/// Bytes of a scatter's updates: the last third of its operands and a bit.
fn updates(module: &Module, instr: &Instruction) -> u64 {
    let count = instr.operands.len() / 2;
    instr.operands.iter().rev().take(count).map(|&u| module.shapes.leaf_bytes(module.instr(u).shape)).sum()
}

/// Plain and matrix arithmetic of one instruction, one operation an element where nothing better is known.
fn arithmetic(module: &Module, instr: &Instruction) -> Work {
    let elements = |id| module.shapes.array(id).map_or(0, |a| a.elements());
    let operand = |n: usize| instr.operands.get(n).map_or(0, |&o| elements(module.instr(o).shape));
    let out = elements(instr.shape);
    let plain = |flops: u64| Work { vector: Flops(flops), ..Work::default() };
    match &instr.op {
        Op::Dot(dot) | Op::RaggedDot { dot, .. } | Op::ScaledDot(dot) => {
            let k = contracted(module, instr, &dot.dims.lhs_contracting).max(1);
            matrix_work(out, operand(0) / k, operand(1) / k, k)
        }
        Op::Convolution(conv) => {
            let kernel = instr.operands.get(1).and_then(|&k| module.shapes.array(module.instr(k).shape));
            let features = kernel.and_then(|k| k.dims.get(usize::try_from(conv.dims.kernel_output_feature).ok()?));
            let features = features.map_or(1, |d| u64::try_from(d.size).unwrap_or(1)).max(1);
            let depth = kernel.map_or(1, |k| k.elements() / features).max(1);
            matrix_work(out, out / features, features, depth)
        }
        Op::Unary(op) => plain(out.saturating_mul(steps(*op))),
        Op::Binary(_) | Op::Compare { .. } | Op::Select | Op::Clamp | Op::Convert => plain(out),
        Op::Reduce { .. } => plain(operand(0)),
        Op::ReduceWindow { window, .. } | Op::SelectAndScatter { window, .. } => {
            let size: u64 = window.iter().map(|d| u64::try_from(d.size).unwrap_or(1)).fold(1, u64::saturating_mul);
            plain(out.saturating_mul(size))
        }
        Op::Sort { .. } => plain(operand(0).saturating_mul(u64::from(operand(0).max(2).ilog2()).pow(2))),
        _ => Work::default(),
    }
}

/// Operations of the plain units that a function of one operand takes.
fn steps(op: Unary) -> u64 {
    match op {
        Unary::Abs
        | Unary::Ceil
        | Unary::Floor
        | Unary::Imag
        | Unary::IsFinite
        | Unary::Negate
        | Unary::Not
        | Unary::PopCount
        | Unary::CountLeadingZeros
        | Unary::Real
        | Unary::RoundNearestAfz
        | Unary::RoundNearestEven
        | Unary::Sign => 1,
        _ => 8,
    }
}

fn contracted(module: &Module, instr: &Instruction, dims: &[i64]) -> u64 {
    let Some(lhs) = instr.operands.first().and_then(|&o| module.shapes.array(module.instr(o).shape)) else { return 1 };
    let size = |&d: &i64| lhs.dims.get(usize::try_from(d).ok()?).and_then(|d| u64::try_from(d.size).ok());
    dims.iter().filter_map(size).fold(1, u64::saturating_mul)
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
    element_math(operand.and_then(|a| a.element.known()))
}

/// The kind of arithmetic of an element type.
pub fn element_math(element: Option<Primitive>) -> MathType {
    match element {
        Some(Primitive::F64 | Primitive::C128) => MathType::F64,
        Some(p) if p.is_float() && p.bits() == 16 => MathType::F16,
        Some(p) if p.is_float() && p.bits() == 8 => MathType::F8,
        Some(p) if p.is_float() && p.bits() < 8 => MathType::F4,
        Some(p) if p.is_integer() && p.bits() <= 8 => MathType::Int8,
        _ => MathType::F32,
    }
}
