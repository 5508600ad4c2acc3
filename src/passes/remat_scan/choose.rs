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
        out.extend(candidate(module, pair, &graph, &seeds, sizes, machine, kept, barrier));
    }
    out
}

/// The candidate that keeps the named values, and what else it must.
pub(super) fn named(module: &Module, pair: &Pair, sizes: &Sizes, machine: &Machine, names: &[String], barrier: bool) -> Option<Candidate> {
    let graph = Graph::of(module, pair);
    let seeds = seeds(&graph, pair);
    let prices = Prices { module, pair, graph: &graph, sizes, machine, per_byte: 1e6 };
    let kept = cut(module, &graph, &seeds, &Named { prices, names });
    candidate(module, pair, &graph, &seeds, sizes, machine, kept, barrier)
}

#[expect(clippy::too_many_arguments, reason = "one step of the two functions above, which bind them all")]
fn candidate(
    module: &Module,
    pair: &Pair,
    graph: &Graph,
    seeds: &[InstrId],
    sizes: &Sizes,
    machine: &Machine,
    kept: FxHashSet<InstrId>,
    barrier: bool,
) -> Option<Candidate> {
    let prices = Prices { module, pair, graph, sizes, machine, per_byte: 0.0 };
    let needed = graph.closure(seeds, |id| kept.contains(&id) || graph.is_given(module, id));
    let time = needed.iter().map(|&id| if kept.contains(&id) { prices.traffic(id) } else { prices.making(id) }).sum::<f64>();
    let mut rewritten = module.clone();
    let done = build(&mut rewritten, pair, graph, &Choice { kept, barrier })?;
    crate::passes::dce::dce(&mut rewritten);
    let bytes = device_bytes(&rewritten, sizes);
    Some(Candidate { module: rewritten, done, bytes, time: time * prices.trips() })
}

/// What keeping everything costs: the program as it is.
pub(super) fn time_as_it_is(module: &Module, pair: &Pair, sizes: &Sizes, machine: &Machine) -> f64 {
    let graph = Graph::of(module, pair);
    let prices = Prices { module, pair, graph: &graph, sizes, machine, per_byte: 0.0 };
    seeds(&graph, pair).iter().map(|&id| prices.traffic(id)).sum::<f64>() * prices.trips()
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

/// Named values are kept whatever they cost.
struct Named<'m> {
    prices: Prices<'m>,
    names: &'m [String],
}

impl Costs for Named<'_> {
    fn keep(&self, id: InstrId) -> Option<u64> {
        self.prices.keep(id)
    }
    fn make(&self, id: InstrId) -> u64 {
        let is_named = self.names.iter().any(|n| **n == *self.prices.module.instr(id).name);
        if is_named { crate::passes::flow::INFINITE } else { self.prices.make(id) }
    }
}
