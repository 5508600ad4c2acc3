//! What to keep within a budget: cuts at many prices of memory, the fastest that fits.

use rustc_hash::FxHashSet;

use crate::cost::price;
use crate::ir::{InstrId, Module, Op};
use crate::machine::Machine;
use crate::units::Bytes;

use super::build::{Choice, Done, build};
use super::cut::{Costs, cut};
use super::estimate::{Sizes, device_bytes};
use super::graph::Graph;
use super::pair::Pair;

/// A choice carried out, with what it is expected to take.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub module: Module,
    pub done: Done,
    /// Estimated device bytes; only differences between estimates mean anything.
    pub bytes: u64,
    /// Time that making rows again and keeping others takes, over all iterations, in nanoseconds.
    pub time: f64,
    /// The values of the forward body that are kept.
    pub kept: FxHashSet<InstrId>,
    /// Of these, those in host memory.
    pub host: FxHashSet<InstrId>,
    /// Bytes of stacks in host memory.
    pub host_bytes: u64,
}

/// Prices of memory that are tried: picoseconds a byte kept through all iterations, each this much more than the last.
const PRICES: usize = 40;

/// All distinct candidates, from the fastest to the smallest. `module` has its calls inlined.
pub(super) fn candidates(module: &Module, pair: &Pair, sizes: &Sizes, machine: &Machine, barrier: bool) -> Vec<Candidate> {
    let graph = Graph::of(module, pair);
    let seeds = seeds(&graph, pair);
    let mut seen: Vec<FxHashSet<InstrId>> = Vec::new();
    let mut out = Vec::new();
    for n in 0..=PRICES {
        // From nothing to far more than any kernel takes.
        let per_byte = if n == 0 { 0.0 } else { 1e-6 * 1.6f64.powi(i32::try_from(n).unwrap_or(i32::MAX)) };
        let prices = Prices { module, pair, graph: &graph, sizes, machine, per_byte };
        let kept = cut(module, &graph, &seeds, &prices);
        if seen.contains(&kept) {
            continue;
        }
        seen.push(kept.clone());
        out.extend(candidate(module, pair, &graph, &seeds, sizes, machine, Choice { kept, host: FxHashSet::default(), barrier }));
    }
    out
}

/// Between two neighbours of [`candidates`], of which the slower fits and the faster does not, lie those that keep some of what only the faster keeps:
/// adds to the slower what saves most time and still fits, one value after another.
pub(super) fn between(
    module: &Module,
    pair: &Pair,
    sizes: &Sizes,
    machine: &Machine,
    barrier: bool,
    (slower, faster): (&Candidate, &Candidate),
    fits: &dyn Fn(&Candidate) -> bool,
) -> Option<Candidate> {
    let graph = Graph::of(module, pair);
    let seeds = seeds(&graph, pair);
    let mut more: Vec<InstrId> = faster.kept.difference(&slower.kept).copied().collect();
    more.sort_unstable();
    let mut best: Option<Candidate> = None;
    loop {
        let base = best.as_ref().unwrap_or(slower);
        let with = |&value: &InstrId| {
            let prices = Prices { module, pair, graph: &graph, sizes, machine, per_byte: 1e6 };
            let forced = base.kept.iter().copied().chain([value]).collect();
            let kept = cut(module, &graph, &seeds, &Forced { prices, forced });
            let found = candidate(module, pair, &graph, &seeds, sizes, machine, Choice { kept, host: FxHashSet::default(), barrier })?;
            // A row that only making others reads needs a stack and kernels of its own (gpt3_175b: 7.57 s with it, 6.88 s with one that the loop reads).
            let worth = (base.time - found.time) * if found.done.added.len() > base.done.added.len() { 0.9 } else { 1.0 };
            (fits(&found) && worth > 0.0).then_some((value, found, worth))
        };
        let Some((value, found, _)) = more.iter().filter_map(with).max_by(|a, b| a.2.total_cmp(&b.2).then(b.0.cmp(&a.0))) else {
            return best;
        };
        more.retain(|&v| v != value);
        best = Some(found);
    }
}

/// The candidate that keeps the named values (the second list in host memory), and what else it must.
pub(super) fn named(
    module: &Module,
    pair: &Pair,
    sizes: &Sizes,
    machine: &Machine,
    (device, host): (&[String], &[String]),
    barrier: bool,
) -> Option<Candidate> {
    let graph = Graph::of(module, pair);
    let seeds = seeds(&graph, pair);
    let all = graph.closure(&seeds, |id| graph.is_given(module, id));
    let among = |names: &[String]| -> FxHashSet<InstrId> {
        all.iter().copied().filter(|&id| names.iter().any(|n| **n == *module.instr(id).name)).collect()
    };
    let host = among(host);
    let forced = among(device).union(&host).copied().collect();
    let prices = Prices { module, pair, graph: &graph, sizes, machine, per_byte: 1e6 };
    let kept = cut(module, &graph, &seeds, &Forced { prices, forced });
    let host = host.intersection(&kept).copied().collect();
    candidate(module, pair, &graph, &seeds, sizes, machine, Choice { kept, host, barrier })
}

fn candidate(
    module: &Module,
    pair: &Pair,
    graph: &Graph,
    seeds: &[InstrId],
    sizes: &Sizes,
    machine: &Machine,
    choice: Choice,
) -> Option<Candidate> {
    let kept = &choice.kept;
    let prices = Prices { module, pair, graph, sizes, machine, per_byte: 0.0 };
    let needed = graph.closure(seeds, |id| kept.contains(&id) || graph.is_given(module, id));
    let time = needed.iter().map(|&id| if kept.contains(&id) { prices.traffic(id) } else { prices.making(id) }).sum::<f64>();
    let mut rewritten = module.clone();
    let done = build(&mut rewritten, pair, graph, &choice)?;
    crate::passes::dce::dce(&mut rewritten);
    let rows: u64 = choice.host.iter().map(|&id| prices.bytes(id)).sum();
    let host_bytes = rows.saturating_mul(pair.producer.trips.unwrap_or(1));
    let copies = machine.offload_time(Bytes(host_bytes)) + machine.reload_time(Bytes(host_bytes));
    // A stack on the host is in device memory no longer, but for a row that comes and one that goes.
    let bytes = device_bytes(&rewritten, sizes).saturating_sub(host_bytes) + 2 * rows;
    let Choice { kept, host, .. } = choice;
    Some(Candidate { module: rewritten, done, bytes, time: time * prices.trips() + copies.as_f64(), kept, host, host_bytes })
}

/// The candidates that keep what `smallest` keeps, but more and more of it in host memory, the largest first.
pub(super) fn on_host(
    module: &Module,
    pair: &Pair,
    sizes: &Sizes,
    machine: &Machine,
    barrier: bool,
    smallest: &Candidate,
) -> Vec<Candidate> {
    let graph = Graph::of(module, pair);
    let seeds = seeds(&graph, pair);
    let stays = |id: &InstrId| pair.stacks.iter().any(|s| !s.droppable && graph.canonical(s.value) == *id);
    let bytes = |id: InstrId| sizes.bytes(module, module.instr(id).shape);
    let mut values: Vec<InstrId> = smallest.kept.iter().copied().filter(|id| !stays(id)).collect();
    values.sort_unstable_by_key(|&id| (std::cmp::Reverse(bytes(id)), id));
    let choice = |n: usize| Choice { kept: smallest.kept.clone(), host: values[..n].iter().copied().collect(), barrier };
    (1..=values.len()).filter_map(|n| candidate(module, pair, &graph, &seeds, sizes, machine, choice(n))).collect()
}

/// What the consumer reads of the stacks that may go.
fn seeds(graph: &Graph, pair: &Pair) -> Vec<InstrId> {
    let mut seen = FxHashSet::default();
    pair.stacks.iter().filter(|s| s.droppable).map(|s| graph.canonical(s.value)).filter(|&v| seen.insert(v)).collect()
}

/// Times of one iteration, in nanoseconds.
struct Prices<'m> {
    module: &'m Module,
    pair: &'m Pair,
    graph: &'m Graph,
    sizes: &'m Sizes,
    machine: &'m Machine,
    per_byte: f64,
}

impl Prices<'_> {
    fn trips(&self) -> f64 {
        self.pair.producer.trips.unwrap_or(1) as f64
    }
    fn bytes(&self, id: InstrId) -> u64 {
        self.sizes.bytes(self.module, self.module.instr(id).shape)
    }
    /// Whether it is what a matrix product or the like has made, in whatever shape.
    fn is_solid(&self, id: InstrId) -> bool {
        let instr = self.module.instr(id);
        match &instr.op {
            Op::Reshape { .. } | Op::Bitcast | Op::Transpose { .. } => self.graph.operands(id).iter().all(|&o| self.is_solid(o)),
            Op::Dot(dot) if !dot.dims.lhs_batch.is_empty() => !self.graph.operands(id).iter().any(|&o| self.is_normalised(o)),
            Op::Dot(_)
            | Op::RaggedDot { .. }
            | Op::ScaledDot(_)
            | Op::Convolution(_)
            | Op::Sort { .. }
            | Op::Gather(_)
            | Op::Scatter(_)
            | Op::TopK { .. } => true,
            Op::CustomCall(_) => self.graph.operands(id).first().is_some_and(|&o| self.is_solid(o)),
            _ => false,
        }
    }
    /// Whether a value is a reduction put on what was reduced, as a softmax is. A batched product of one is made again together with it: where it is
    /// kept, XLA no longer makes one kernel of the softmax (gpt3_1b3: 225 ms instead of 215 ms for one product less a layer).
    fn is_normalised(&self, id: InstrId) -> bool {
        let mut stack = vec![id];
        let mut seen = FxHashSet::default();
        while let Some(id) = stack.pop() {
            let op = &self.module.instr(id).op;
            if matches!(op, Op::Reduce { .. }) {
                return true;
            }
            if seen.insert(id) && (is_elementwise(op) || matches!(op, Op::Reshape { .. } | Op::Bitcast)) {
                stack.extend_from_slice(self.graph.operands(id));
            }
        }
        false
    }
    fn moving(&self, bytes: u64) -> f64 {
        self.machine.hbm_time(Bytes(bytes)).as_f64()
    }
    /// A row is written by the one loop and read by the other; what no fusion makes is also read to be written.
    fn traffic(&self, id: InstrId) -> f64 {
        let moves = if is_elementwise(&self.module.instr(id).op) { 2.2 } else { 3.0 };
        moves * self.moving(self.bytes(id))
    }
    /// Elementwise work is done where it is read; only what a matrix product reads is written first.
    fn making(&self, id: InstrId) -> f64 {
        let instr = self.module.instr(id);
        match &instr.op {
            Op::Dot(_) | Op::RaggedDot { .. } | Op::ScaledDot(_) | Op::Convolution(_) => {
                let devices = self.sizes.devices(self.module, instr.shape).max(1);
                LIBRARY * price(self.module, id, self.machine).time.as_f64() / devices as f64
            }
            Op::Reduce { .. } | Op::ReduceWindow { .. } => {
                0.5 * self.graph.operands(id).iter().map(|&o| self.moving(self.bytes(o))).sum::<f64>()
            }
            Op::Constant(_) | Op::GetTupleElement { .. } | Op::Tuple | Op::Bitcast | Op::Reshape { .. } | Op::Iota { .. } => 0.0,
            Op::CustomCall(_) | Op::OptBarrier => 0.0,
            op if is_elementwise(op) => 0.1 * self.moving(self.bytes(id)),
            _ => self.moving(self.bytes(id)),
        }
    }
}

/// Matrix products take this much longer than the arithmetic units alone would.
const LIBRARY: f64 = 1.3;

fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare { .. }
            | Op::Select
            | Op::Clamp
            | Op::Convert
            | Op::BitcastConvert
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::DynamicSlice { .. }
            | Op::Transpose { .. }
    )
}

/// Cuts are made in whole picoseconds.
fn picoseconds(nanoseconds: f64) -> u64 {
    // At least one, so that among equals the fewest are chosen. Values beyond the range saturate.
    (nanoseconds * 1000.0) as u64 + 1
}

impl Costs for Prices<'_> {
    fn keep(&self, id: InstrId) -> Option<u64> {
        self.module.shapes.array(self.module.instr(id).shape)?;
        // What XLA fuses into its readers is not kept: the fusions of norms and softmax fall apart around a value that must be there.
        let carried = self.graph.element(self.module, id).is_some();
        if !carried && self.graph.clonable(self.module, id) && !self.is_solid(id) {
            return None;
        }
        let stays = self.pair.stacks.iter().any(|s| !s.droppable && self.graph.canonical(s.value) == id);
        let memory = if stays { 0.0 } else { self.bytes(id) as f64 * self.per_byte };
        Some(picoseconds(self.traffic(id) + memory))
    }
    fn make(&self, id: InstrId) -> u64 {
        picoseconds(self.making(id))
    }
}

/// Some values are kept whatever they cost.
struct Forced<'m> {
    prices: Prices<'m>,
    forced: FxHashSet<InstrId>,
}

impl Costs for Forced<'_> {
    fn keep(&self, id: InstrId) -> Option<u64> {
        self.prices.keep(id)
    }
    fn make(&self, id: InstrId) -> u64 {
        if self.forced.contains(&id) { crate::passes::flow::INFINITE } else { self.prices.make(id) }
    }
}
