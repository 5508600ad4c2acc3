//! How much memory a program without a schedule will take, roughly.
//!
//! Values that XLA surely fuses into their readers take nothing, views and in-place updates neither; what is left is alive from where it stands
//! in the body's order to its last reader. That is no promise by itself. Given the compiled form of the original program, only the
//! *difference* between two such estimates counts: bytes of stacks, which are exact, and of what is made again, which is nearly so.
//!
//! Before partitioning, arrays have the shapes of all devices together. The compiled form says into how many parts its parameters and stacks are cut; the
//! rest follows by dimension. Weights that devices share are whole from the first product that reads them to the last, and what each has summed is whole until
//! the link has added it up (seen in gpt3_175b_*_fsdp64: three gathered weights and one sum lie beside the layer's own values).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::cost::{price, trip_count};
use crate::ir::{ArrayShape, CompId, InstrId, Module, Op, ShapeId};
use crate::machine::Machine;
use crate::units::Bytes;

use super::pair::Pair;

/// Bytes of shapes on one device. A program before partitioning has the shapes of all devices together.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    /// How many devices share an array, by the size of its leading dimension (for rows of stacks, the one after the rows).
    shared: FxHashMap<i64, u64>,
    /// The same of arrays with just the dimensions of an entry parameter.
    exact: FxHashMap<Vec<i64>, u64>,
    /// Numbers of rows of stacks.
    rows: FxHashSet<i64>,
    /// Bytes of the entry's parameters on one device, where the compiled form says it.
    parameters: Option<u64>,
}

impl Sizes {
    /// Compares the stacks of `pairs`, and the entry's parameters, with what the compiled form has at the same places.
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
        let (wholes, parts) = (&module.entry().parameters, &truth.entry().parameters);
        if wholes.len() == parts.len() {
            for (&whole, &part) in wholes.iter().zip(parts) {
                let (whole, part) = (module.shapes.array(module.instr(whole).shape), truth.shapes.array(truth.instr(part).shape));
                let (Some(whole), Some(part)) = (whole, part) else { continue };
                if let Some(devices) = share(whole, part) {
                    this.exact.insert(whole.dims.iter().map(|d| d.size).collect(), devices);
                }
            }
            this.parameters = Some(parts.iter().map(|&p| truth.shapes.leaf_bytes(truth.instr(p).shape)).sum());
        }
        this
    }

    /// Bytes of all arrays in a shape on one device.
    pub fn bytes(&self, module: &Module, shape: ShapeId) -> u64 {
        module.shapes.leaves(shape).iter().map(|&leaf| module.shapes.byte_size(leaf).div_ceil(self.devices(module, leaf))).sum()
    }

    /// Bytes of the entry's parameters on one device.
    pub fn parameters(&self, module: &Module) -> u64 {
        self.parameters.unwrap_or_else(|| module.entry().parameters.iter().map(|&p| self.bytes(module, module.instr(p).shape)).sum())
    }

    /// How many devices share an array.
    pub fn devices(&self, module: &Module, shape: ShapeId) -> u64 {
        let Some(array) = module.shapes.array(shape) else { return 1 };
        let dims: Vec<i64> = array.dims.iter().map(|d| d.size).collect();
        if let Some(&devices) = self.exact.get(&dims) {
            return devices;
        }
        self.leading(&dims).and_then(|d| self.shared.get(&dims[d])).copied().unwrap_or(1)
    }

    /// The dimension along which devices share an array if they do.
    fn leading(&self, dims: &[i64]) -> Option<usize> {
        match dims {
            [rows, _, ..] if self.rows.contains(rows) || *rows == 1 => Some(1),
            [_, ..] => Some(0),
            [] => None,
        }
    }

    /// Bytes of what an instruction makes on one device. A sum over a dimension that devices share is whole on each until they add up their parts.
    fn made(&self, module: &Module, id: InstrId) -> u64 {
        if self.sums_over_devices(module, id) {
            return module.shapes.leaf_bytes(module.instr(id).shape);
        }
        self.bytes(module, module.instr(id).shape)
    }

    fn sums_over_devices(&self, module: &Module, id: InstrId) -> bool {
        let instr = module.instr(id);
        let is_shared = |n: usize| self.devices(module, module.instr(instr.operands[n]).shape) > 1;
        match &instr.op {
            Op::Dot(dot) => {
                let contracts = |n: usize, dims: &[i64]| self.leads(module, instr.operands[n], dims);
                is_shared(0) && is_shared(1) && contracts(0, &dot.dims.lhs_contracting) && contracts(1, &dot.dims.rhs_contracting)
            }
            Op::Scatter(_) if instr.operands.len() == 3 => {
                let first = |id: InstrId| {
                    let dims = &module.shapes.array(module.instr(id).shape)?.dims;
                    let sizes: Vec<i64> = dims.iter().map(|d| d.size).collect();
                    self.leading(&sizes).map(|d| sizes[d])
                };
                is_shared(2) && first(id) != first(instr.operands[2])
            }
            _ => false,
        }
    }

    /// Whether the dimension that devices share of an array is among `dims`.
    fn leads(&self, module: &Module, id: InstrId, dims: &[i64]) -> bool {
        let Some(array) = module.shapes.array(module.instr(id).shape) else { return false };
        let sizes: Vec<i64> = array.dims.iter().map(|d| d.size).collect();
        self.leading(&sizes).is_some_and(|leading| dims.iter().any(|&d| usize::try_from(d) == Ok(leading)))
    }

    /// The operands of a product that every device needs whole while it shares the result, by what they are made of, with their bytes: weights.
    fn gathered(&self, module: &Module, id: InstrId) -> Vec<(InstrId, u64)> {
        let instr = module.instr(id);
        let Op::Dot(dot) = &instr.op else { return Vec::new() };
        if self.devices(module, instr.shape) == 1 || self.sums_over_devices(module, id) {
            return Vec::new();
        }
        // The result is led by the other operand: this one is needed whole.
        let led = [self.leads(module, instr.operands[0], &dot.dims.lhs_contracting), dot.dims.rhs_batch.is_empty()];
        let whole = |n: usize| {
            let shape = module.instr(instr.operands[n]).shape;
            (led[n] && self.devices(module, shape) > 1).then(|| (source(module, instr.operands[n]), module.shapes.leaf_bytes(shape)))
        };
        (0..2).filter_map(whole).collect()
    }
}

/// What an operand is a view, a row or another type of; of several instructions that take one element of a tuple, the tuple and the element say which.
fn source(module: &Module, mut id: InstrId) -> InstrId {
    loop {
        let instr = module.instr(id);
        match &instr.op {
            Op::Convert
            | Op::Reshape { .. }
            | Op::Bitcast
            | Op::Transpose { .. }
            | Op::DynamicSlice { .. }
            | Op::Copy
            | Op::CustomCall(_)
                if !instr.operands.is_empty() =>
            {
                id = instr.operands[0];
            }
            Op::GetTupleElement { index } => {
                // The first instruction of the program that takes this element stands for all.
                let tuple = instr.operands[0];
                let same = |&(_, other): &(CompId, InstrId)| {
                    let other = module.instr(other);
                    matches!(other.op, Op::GetTupleElement { index: i } if i == *index) && other.operands[0] == tuple
                };
                return module.live().find(same).map_or(id, |(_, first)| first);
            }
            _ => return id,
        }
    }
}

/// How many devices share `whole` if each has `part`.
fn share(whole: &ArrayShape, part: &ArrayShape) -> Option<u64> {
    if whole.element != part.element || whole.dims.len() != part.dims.len() {
        return None;
    }
    whole.dims.iter().zip(&part.dims).try_fold(1u64, |devices, (whole, part)| {
        let divides = part.size > 0 && whole.size % part.size == 0;
        divides.then(|| devices.saturating_mul(u64::try_from(whole.size / part.size).unwrap_or(1)))
    })
}

/// How many devices share the stacks of a pair, if a loop of the compiled form carries the same stacks at the same places.
fn matched(module: &Module, pair: &Pair, truth: &Module, id: InstrId) -> Option<Vec<(i64, u64)>> {
    let carried = truth.shapes.elements(truth.instr(id).shape);
    let mut out = Vec::new();
    for stack in &pair.stacks {
        let whole = module.shapes.array(module.instr(pair.producer.elements[stack.from].initial).shape)?;
        let part = truth.shapes.array(*carried.get(stack.from)?)?;
        if whole.dims.first() != part.dims.first() {
            return None;
        }
        let devices = share(whole, part)?;
        if let Some(leading) = whole.dims.get(1) {
            out.push((leading.size, devices));
        }
    }
    Some(out)
}

/// Device bytes of a whole program: its parameters, and what is alive at the worst moment.
pub(super) fn device_bytes(module: &Module, sizes: &Sizes) -> u64 {
    sizes.parameters(module) + peak(module, module.entry_id(), sizes, module.header.input_output_alias.is_empty())
}

/// What of a computation has memory of its own, and how long.
struct Places {
    order: Vec<InstrId>,
    place: FxHashMap<InstrId, usize>,
    readers: Vec<Vec<usize>>,
    takes: Vec<bool>,
    end: Vec<usize>,
}

impl Places {
    fn of(module: &Module, comp: CompId, root_is_new: bool) -> Self {
        let order = module.comp(comp).order.clone();
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
        Self { order, place, readers, takes, end }
    }
}

/// Bytes at the worst moment of a computation, beside what its caller holds.
fn peak(module: &Module, comp: CompId, sizes: &Sizes, root_is_new: bool) -> u64 {
    let Places { order, place: _, readers, takes, end } = Places::of(module, comp, root_is_new);
    let mut change = vec![0i128; order.len() + 2];
    let mut inside = vec![0u64; order.len() + 2];
    let mut take = |from: usize, to: usize, bytes: u64| {
        change[from] += i128::from(bytes);
        change[to + 1] -= i128::from(bytes);
    };
    let in_loop = comp != module.entry_id();
    let mut underway = 0;
    let mut gathered: FxHashMap<InstrId, (usize, usize, u64)> = FxHashMap::default();
    for (n, &id) in order.iter().enumerate() {
        let part = sizes.bytes(module, module.instr(id).shape);
        let whole = sizes.made(module, id);
        if takes[n] {
            take(n, end[n], if in_loop { part } else { whole });
            underway = underway.max(whole.saturating_sub(part));
        }
        // Weights come whole for the first product that reads them and stay for the last.
        for (weight, bytes) in sizes.gathered(module, id) {
            gathered.entry(weight).and_modify(|g| g.1 = n).or_insert((n, n, bytes));
        }
        // A loop that starts several elements with one value gets a copy for each.
        let starts_loop = |n: usize| matches!(module.instr(order[n]).op, Op::While { .. });
        if matches!(module.instr(id).op, Op::Tuple) && readers[n].iter().any(|&r| starts_loop(r)) {
            let mut seen = FxHashSet::default();
            for &operand in module.instr(id).operands.iter().filter(|&&o| !seen.insert(o)) {
                take(n, end[n], sizes.bytes(module, module.instr(operand).shape));
            }
        }
        if let Op::While { body, .. } = module.instr(id).op {
            inside[n] = peak(module, body, sizes, false);
        }
    }
    for (from, to, bytes) in gathered.into_values() {
        take(from, to, bytes);
    }
    // While a loop goes on, devices are adding up one sum or other: the link is what it waits for.
    let mut now = if in_loop { i128::from(underway) } else { 0 };
    let mut most = now;
    for (n, change) in change.iter().enumerate() {
        now += change;
        most = most.max(now + i128::from(inside[n]));
    }
    u64::try_from(most).unwrap_or(0)
}

/// Matrix products take this much longer than the arithmetic units alone would, by XLA's own estimates of what it makes.
const PRODUCTS: f64 = 1.1;

/// Time of all kernels of a program, in nanoseconds: products by what they compute, everything else by the bytes it reads and writes, once each, as
/// fusions do.
pub(super) fn kernel_time(module: &Module, sizes: &Sizes, machine: &Machine) -> f64 {
    kernels(module, module.entry_id(), sizes, machine)
}

fn kernels(module: &Module, comp: CompId, sizes: &Sizes, machine: &Machine) -> f64 {
    let places = Places::of(module, comp, false);
    let moving = |bytes: u64| machine.hbm_time(Bytes(bytes)).as_f64();
    let mut read: FxHashSet<InstrId> = FxHashSet::default();
    let mut time = 0.0;
    for (n, &id) in places.order.iter().enumerate() {
        let instr = module.instr(id);
        match &instr.op {
            Op::While { body, .. } => time += trip_count(module, id).unwrap_or(1) as f64 * kernels(module, *body, sizes, machine),
            Op::Dot(_) | Op::RaggedDot { .. } | Op::ScaledDot(_) | Op::Convolution(_) => {
                let shapes = instr.operands.iter().map(|&o| module.instr(o).shape).chain([instr.shape]);
                let devices = shapes.map(|s| sizes.devices(module, s)).max().unwrap_or(1);
                time += PRODUCTS * price(module, id, machine).time.as_f64() / devices as f64;
            }
            Op::DynamicUpdateSlice => {
                let row = instr.operands[1];
                let reads: u64 = inputs(module, &places, &[row], sizes, &mut read);
                time += moving(reads + sizes.bytes(module, module.instr(row).shape));
            }
            _ if places.takes[n] => {
                let made = sizes.made(module, id);
                let part = matches!(instr.op, Op::DynamicSlice { .. } | Op::Slice { .. } | Op::Gather(_));
                let reads = if part { made } else { inputs(module, &places, &instr.operands, sizes, &mut read) };
                time += moving(reads + made);
            }
            _ => {}
        }
    }
    time
}

/// Bytes of what lies in memory behind some operands and was not `read` before.
fn inputs(module: &Module, places: &Places, operands: &[InstrId], sizes: &Sizes, read: &mut FxHashSet<InstrId>) -> u64 {
    let mut bytes = 0;
    let mut stack = operands.to_vec();
    while let Some(id) = stack.pop() {
        if !read.insert(id) {
            continue;
        }
        let instr = module.instr(id);
        let lies = places.place.get(&id).is_none_or(|&n| places.takes[n]);
        match &instr.op {
            Op::Constant(_) | Op::Iota { .. } => {}
            Op::Parameter { .. } | Op::GetTupleElement { .. } | Op::DynamicSlice { .. } | Op::Slice { .. } => {
                bytes += sizes.bytes(module, instr.shape);
            }
            _ if lies => bytes += sizes.made(module, id),
            _ => stack.extend_from_slice(&instr.operands),
        }
    }
    bytes
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
