//! How much memory a program without a schedule will take, roughly.
//!
//! Values that XLA surely fuses into their readers take nothing, views and in-place updates neither; what is left is alive from where it stands
//! in the body's order to its last reader. That is no promise by itself. Given the compiled form of the original program, only the
//! *difference* between two such estimates counts: bytes of stacks, which are exact, and of what is made again, which is nearly so.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::cost::trip_count;
use crate::ir::{CompId, InstrId, Module, Op, ShapeId};

use super::pair::Pair;

/// Bytes of shapes on one device. A program before partitioning has the shapes of all devices together.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    /// How many devices share an array, by the size of its leading dimension (for rows of stacks, the one after the rows).
    shared: FxHashMap<i64, u64>,
    /// Numbers of rows of stacks.
    rows: FxHashSet<i64>,
}

impl Sizes {
    /// Compares the stacks of `pairs` with what the loops of the compiled form carry at the same places.
    pub fn of(module: &Module, pairs: &[Pair], truth: Option<&Module>) -> Self {
        let mut this = Self::default();
        for pair in pairs {
            this.rows.extend(pair.producer.trips.and_then(|t| i64::try_from(t).ok()));
        }
        let Some(truth) = truth else { return this };
        let whiles: Vec<InstrId> = truth.live().map(|(_, id)| id).filter(|&id| matches!(truth.instr(id).op, Op::While { .. })).collect();
        for pair in pairs {
            let found = whiles
                .iter()
                .find_map(|&w| (trip_count(truth, w) == pair.producer.trips).then(|| matched(module, pair, truth, w)).flatten());
            this.shared.extend(found.into_iter().flatten());
        }
        this
    }

    /// Bytes of all arrays in a shape on one device.
    pub fn bytes(&self, module: &Module, shape: ShapeId) -> u64 {
        module.shapes.leaves(shape).iter().map(|&leaf| module.shapes.byte_size(leaf).div_ceil(self.devices(module, leaf))).sum()
    }

    /// How many devices share an array.
    pub fn devices(&self, module: &Module, shape: ShapeId) -> u64 {
        let Some(array) = module.shapes.array(shape) else { return 1 };
        let dims: Vec<i64> = array.dims.iter().map(|d| d.size).collect();
        let leading = match dims.as_slice() {
            [rows, next, ..] if self.rows.contains(rows) || *rows == 1 => next,
            [first, ..] => first,
            [] => return 1,
        };
        self.shared.get(leading).copied().unwrap_or(1)
    }
}

/// How many devices share the stacks of a pair, if a loop of the compiled form carries the same stacks at the same places.
fn matched(module: &Module, pair: &Pair, truth: &Module, id: InstrId) -> Option<Vec<(i64, u64)>> {
    let carried = truth.shapes.elements(truth.instr(id).shape);
    let mut out = Vec::new();
    for stack in &pair.stacks {
        let whole = module.shapes.array(module.instr(pair.producer.elements[stack.from].initial).shape)?;
        let part = truth.shapes.array(*carried.get(stack.from)?)?;
        if whole.element != part.element || whole.dims.len() != part.dims.len() || whole.dims.first() != part.dims.first() {
            return None;
        }
        let mut devices = 1u64;
        for (whole, part) in whole.dims.iter().zip(&part.dims) {
            if part.size == 0 || whole.size % part.size != 0 {
                return None;
            }
            devices = devices.saturating_mul(u64::try_from(whole.size / part.size).ok()?);
        }
        if let Some(leading) = whole.dims.get(1) {
            out.push((leading.size, devices));
        }
    }
    Some(out)
}

/// Device bytes of a whole program: its parameters, and what is alive at the worst moment.
pub(super) fn device_bytes(module: &Module, sizes: &Sizes) -> u64 {
    let parameters: u64 = module.entry().parameters.iter().map(|&p| sizes.bytes(module, module.instr(p).shape)).sum();
    parameters + peak(module, module.entry_id(), sizes, module.header.input_output_alias.is_empty())
}

/// Bytes at the worst moment of a computation, beside what its caller holds.
fn peak(module: &Module, comp: CompId, sizes: &Sizes, root_is_new: bool) -> u64 {
    let order = &module.comp(comp).order;
    let place: FxHashMap<InstrId, usize> = order.iter().enumerate().map(|(n, &id)| (id, n)).collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); order.len()];
    for (n, &id) in order.iter().enumerate() {
        for operand in &module.instr(id).operands {
            if let Some(&o) = place.get(operand) {
                readers[o].push(n);
            }
        }
    }
    let root = place.get(&module.comp(comp).root).copied();
    // From the last to the first: whether a reader needs the whole value in memory, and who reads it last.
    let mut solid = vec![false; order.len()];
    let mut takes = vec![false; order.len()];
    let mut end: Vec<usize> = (0..order.len()).collect();
    for n in (0..order.len()).rev() {
        let kind = kind(&module.instr(order[n]).op);
        solid[n] = root_is_new && root == Some(n);
        for &reader in &readers[n] {
            let op = &module.instr(order[reader]).op;
            let reader_kind = self::kind(op);
            let passes = reader_kind == Form::View;
            let needs = match reader_kind {
                Form::View => solid[reader] || matches!(op, Op::While { .. } | Op::OptBarrier),
                Form::Fused => false,
                Form::Solid => !matches!(op, Op::Reduce { .. } | Op::ReduceWindow { .. }),
            };
            solid[n] |= needs;
            end[n] = end[n].max(if passes || !takes[reader] { end[reader] } else { reader });
        }
        takes[n] = match kind {
            Form::View => false,
            Form::Fused => solid[n],
            Form::Solid => true,
        };
        if root == Some(n) {
            end[n] = order.len();
        }
    }
    let mut change = vec![0i128; order.len() + 2];
    let mut inside = vec![0u64; order.len() + 2];
    for (n, &id) in order.iter().enumerate() {
        if takes[n] {
            let bytes = i128::from(sizes.bytes(module, module.instr(id).shape));
            change[n] += bytes;
            change[end[n] + 1] -= bytes;
        }
        // A loop that starts several elements with one value gets a copy for each.
        let starts_loop = |n: usize| matches!(module.instr(order[n]).op, Op::While { .. });
        if matches!(module.instr(id).op, Op::Tuple) && readers[n].iter().any(|&r| starts_loop(r)) {
            let mut seen = FxHashSet::default();
            for &operand in module.instr(id).operands.iter().filter(|&&o| !seen.insert(o)) {
                let bytes = i128::from(sizes.bytes(module, module.instr(operand).shape));
                change[n] += bytes;
                change[end[n] + 1] -= bytes;
            }
        }
        if let Op::While { body, .. } = module.instr(id).op {
            inside[n] = peak(module, body, sizes, false);
        }
    }
    let mut now = 0i128;
    let mut most = 0i128;
    for (n, change) in change.iter().enumerate() {
        now += change;
        most = most.max(now + i128::from(inside[n]));
    }
    u64::try_from(most).unwrap_or(0)
}

/// How a value lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// It is another value, or part of it.
    View,
    /// It is made where it is read.
    Fused,
    /// It has memory of its own.
    Solid,
}

fn kind(op: &Op) -> Form {
    match op {
        Op::Parameter { .. }
        | Op::Constant(_)
        | Op::GetTupleElement { .. }
        | Op::Tuple
        | Op::Bitcast
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::DynamicUpdateSlice
        | Op::OptBarrier
        | Op::AfterAll
        | Op::AddDependency
        | Op::Domain(_)
        | Op::While { .. }
        | Op::Call { .. }
        | Op::CustomCall(_) => Form::View,
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare { .. }
        | Op::Select
        | Op::Clamp
        | Op::Convert
        | Op::BitcastConvert
        | Op::ReducePrecision { .. }
        | Op::Broadcast { .. }
        | Op::Iota { .. }
        | Op::DynamicSlice { .. }
        | Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Concatenate { .. }
        | Op::Reverse { .. }
        | Op::Map { .. } => Form::Fused,
        _ => Form::Solid,
    }
}
