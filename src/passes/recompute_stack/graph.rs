//! What the rows of stacks are made of, and which of it to keep: a minimum cut through the producing body.
//!
//! Every row that the consumer reads must be there, either because it (or a value between) is *saved* for the consumer, or because what makes it
//! is done again. Saving costs bytes (times the multiplier that the search varies) or link time, doing again costs compute time. As a cut: a node is
//! on the sink's side if the consumer has its value; entering the sink's side at its input means doing it again, between its input and its output
//! means saving it. The same graph without times is in Zheng et al., "Dynamo: min-cut rematerialization" (PyTorch's partitioner).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::loops::{Access, Kind};
use crate::cost::Prices;
use crate::ir::{CompId, DEVICE, InstrId, Module, Op};
use crate::machine::Machine;
use crate::plan::is_pure;

use super::pair::{Pair, Stack};
use super::same::same_computation;
use crate::passes::closure;
use crate::passes::flow::{INFINITE, Network};

/// Capacities are thousandths of nanoseconds an iteration.
const SCALE: f64 = 1e3;

/// The producer's values that may be saved or made again. A value is named by the instruction of the body that gives it (never a bitcast), or,
/// where a row is made inside the fusion that writes it, by the instruction there.
#[derive(Debug)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    index: FxHashMap<InstrId, usize>,
    /// For each stack of the pair: the value that its rows hold.
    pub rows: Vec<InstrId>,
    /// For a row made inside a fusion or an asynchronous computation: the caller.
    pub inside: FxHashMap<InstrId, InstrId>,
}

#[derive(Debug)]
struct Node {
    value: InstrId,
    inputs: Vec<InstrId>,
    /// Time to make it again; `None` if that cannot be.
    time: Option<f64>,
    /// Bytes to save it; `None` if that cannot be.
    bytes: Option<u64>,
}

/// What a pair's stacks hold.
#[derive(Debug)]
pub(super) struct Rows {
    /// For each stack the value.
    pub values: Vec<InstrId>,
    /// For a value made inside a fusion or an asynchronous computation: the caller.
    pub inside: FxHashMap<InstrId, InstrId>,
}

/// What a pair's stacks hold; `None` if one cannot be told.
pub(super) fn rows(module: &Module, pair: &Pair) -> Option<Rows> {
    let mut rows = Rows { values: Vec::new(), inside: FxHashMap::default() };
    for stack in &pair.stacks {
        let (mut value, caller) = row_value(module, pair, stack)?;
        if let Some(caller) = caller {
            match rows.values.iter().find(|&&v| rows.inside.get(&v).is_some_and(|&c| same_inside(module, (c, v), (caller, value)))) {
                Some(&same) => value = same,
                None => {
                    rows.inside.insert(value, caller);
                }
            }
        }
        rows.values.push(value);
    }
    Some(rows)
}

/// Whether two rows, each made inside a caller's computation, are the same.
fn same_inside(module: &Module, one: (InstrId, InstrId), other: (InstrId, InstrId)) -> bool {
    let (Some((a, left)), Some((b, right))) = (innermost(module, one.0), innermost(module, other.0)) else { return false };
    let side = |c: CompId| module.comp(c).parameters.as_slice();
    same_computation(module, (side(a), &left, one.1), (side(b), &right, other.1))
}

/// What to do with a pair's stacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::passes) struct Choice {
    /// Stacks to drop, by their numbers.
    pub drop: Vec<usize>,
    /// Values that get a stack of their own in device memory.
    pub device: Vec<InstrId>,
    /// Values that get a stack of their own in host memory.
    pub host: Vec<InstrId>,
}

/// What saving costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Nanoseconds that a byte of device memory is worth.
    pub device: f64,
    /// Nanoseconds that a byte through the link is worth; `None` leaves the host alone.
    pub host: Option<f64>,
    /// Whether values may be made again.
    pub recompute: bool,
}

impl Graph {
    /// Reads the producing body. `rows` is what [`rows`] says, `reuse` names results of collectives that the consumer has too.
    pub(super) fn of(module: &Module, pair: &Pair, rows: Rows, prices: &Prices, machine: &Machine, reuse: &FxHashSet<InstrId>) -> Self {
        let mut graph = Self { nodes: Vec::new(), index: FxHashMap::default(), rows: rows.values, inside: rows.inside };
        let mut stack = graph.rows.clone();
        while let Some(value) = stack.pop() {
            if graph.index.contains_key(&value) {
                continue;
            }
            let node = graph.node(module, pair, prices, machine, value, reuse);
            stack.extend_from_slice(&node.inputs);
            graph.index.insert(value, graph.nodes.len());
            graph.nodes.push(node);
        }
        graph
    }

    fn node(&self, module: &Module, pair: &Pair, prices: &Prices, machine: &Machine, value: InstrId, reuse: &FxHashSet<InstrId>) -> Node {
        let instr = module.instr(value);
        let array = module.shapes.array(instr.shape);
        let plain = array.is_some_and(|a| {
            let layout = a.layout.as_ref().is_some_and(|l| l.tiles.is_empty() && l.memory_space == DEVICE);
            layout && !a.dims.iter().any(|d| d.dynamic) && !a.dims.is_empty()
        });
        let bytes = plain.then(|| module.shapes.byte_size(instr.shape));
        let none = Vec::new();
        if let Some(&caller) = self.inside.get(&value) {
            let inputs = inside_inputs(module, caller, value);
            let Some((comp, inputs)) = inputs else { return Node { value, inputs: none, time: None, bytes } };
            let row = bytes.unwrap_or(0);
            let moved = inputs.iter().map(|&i| module.shapes.byte_size(module.instr(i).shape).min(row * 4)).sum::<u64>() + row;
            let time = fused_is_pure(module, comp).then(|| moved as f64 / machine.hbm.as_f64() * 1e9);
            return Node { value, inputs: carried_inputs(module, pair, &inputs), time, bytes };
        }
        match &instr.op {
            Op::GetTupleElement { index } if instr.operands[0] == pair.producer.parameter => {
                // Free ones never get here: what is left must be saved, unless it is a stack.
                let carried = usize::try_from(*index).ok().and_then(|n| pair.producer.elements.get(n));
                let can = carried.is_some_and(|e| e.kind == Kind::Carried);
                Node { value, inputs: none, time: None, bytes: bytes.filter(|_| can) }
            }
            Op::CollectiveDone(_) | Op::Collective(_) => Node { value, inputs: none, time: reuse.contains(&value).then_some(0.0), bytes },
            Op::AsyncDone(_) if reuse.contains(&value) => Node { value, inputs: none, time: Some(0.0), bytes },
            Op::AsyncDone(_) => {
                let start = instr.operands[0];
                let Some((comp, operands)) = innermost(module, start) else { return Node { value, inputs: none, time: None, bytes } };
                let device = operands.iter().all(|&o| module.shapes.memory_space(module.instr(o).shape) == DEVICE);
                let time = (device && fused_is_pure(module, comp)).then(|| 2.0 * bytes.unwrap_or(0) as f64 / machine.hbm.as_f64() * 1e9);
                Node { value, inputs: carried_inputs(module, pair, &operands), time, bytes }
            }
            _ => {
                let pure = is_pure(module, value) && !matches!(instr.op, Op::DynamicUpdateSlice);
                let time = pure.then(|| prices.time(value).as_f64());
                let inputs = carried_inputs(module, pair, &instr.operands);
                Node { value, inputs, time, bytes }
            }
        }
    }

    /// The cheapest choice.
    pub(super) fn choose(&self, pair: &Pair, machine: &Machine, costs: Costs, banned: &FxHashSet<InstrId>) -> Choice {
        let mut network = Network::new(0);
        let (source, sink) = (network.node(), network.node());
        let cells: Vec<(usize, usize)> = self.nodes.iter().map(|_| (network.node(), network.node())).collect();
        let hbm = machine.hbm.as_f64();
        let mut on_host = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let time = node.time.filter(|_| costs.recompute && !banned.contains(&node.value));
            network.edge(source, cells[n].0, time.map_or(INFINITE, capacity));
            let (price, host) = node.bytes.map_or((INFINITE, false), |bytes| {
                let bytes = bytes as f64;
                let device = bytes * costs.device + 2.0 * bytes / hbm * 1e9;
                let host = costs.host.map_or(f64::INFINITY, |h| bytes * h + machine.copy_latency.as_f64());
                (capacity(device.min(host)), host < device)
            });
            on_host.push(host);
            network.edge(cells[n].0, cells[n].1, price);
            for input in &node.inputs {
                network.edge(cells[self.index[input]].1, cells[n].0, INFINITE);
            }
        }
        let wanted: FxHashSet<InstrId> = self.rows.iter().copied().collect();
        for value in &wanted {
            network.edge(cells[self.index[value]].1, sink, INFINITE);
        }
        let sources = network.source_side(source, sink);
        let mut choice = Choice { drop: Vec::new(), device: Vec::new(), host: Vec::new() };
        let mut holders: FxHashSet<InstrId> = FxHashSet::default();
        let saved = |n: usize| sources[cells[n].0] && !sources[cells[n].1];
        for (number, stack) in pair.stacks.iter().enumerate() {
            let value = self.rows[number];
            let n = self.index[&value];
            // One stack for one value; what lies in another order is put in order again.
            let stays = saved(n) && !on_host[n] && stack.between.is_empty() && holders.insert(value);
            if !stays {
                choice.drop.push(number);
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            if saved(n) && !holders.contains(&node.value) {
                if on_host[n] { choice.host.push(node.value) } else { choice.device.push(node.value) }
            }
        }
        choice.device.sort_unstable();
        choice.host.sort_unstable();
        choice
    }
}

/// Costs from here on are never paid.
const PROHIBITIVE: f64 = (1u64 << 40) as f64;

fn capacity(nanos: f64) -> u64 {
    let scaled = nanos * SCALE;
    if scaled.is_finite() && scaled < PROHIBITIVE { (scaled as u64).max(1) } else { INFINITE }
}

/// The instruction behind bitcasts.
pub(super) fn peel(module: &Module, mut id: InstrId) -> InstrId {
    while let Op::Bitcast = module.instr(id).op {
        id = module.instr(id).operands[0];
    }
    id
}

/// Inputs that are not there for nothing: everything but invariants and counters.
fn carried_inputs(module: &Module, pair: &Pair, operands: &[InstrId]) -> Vec<InstrId> {
    let mut out = Vec::new();
    for &operand in operands {
        let value = peel(module, operand);
        let free = match module.instr(value).op {
            Op::GetTupleElement { index } if module.instr(value).operands[0] == pair.producer.parameter => {
                let element = usize::try_from(index).ok().and_then(|n| pair.producer.elements.get(n));
                element.is_some_and(|e| matches!(e.kind, Kind::Invariant | Kind::Linear { start: Some(0), step: 1 }))
            }
            _ => false,
        };
        if !free && !out.contains(&value) {
            out.push(value);
        }
    }
    out
}

/// The value that a stack's rows hold, and the caller where it is made in a computation that a fusion or an asynchronous start calls.
fn row_value(module: &Module, pair: &Pair, stack: &Stack) -> Option<(InstrId, Option<InstrId>)> {
    let value = peel(module, module.instr(stack.write.update).operands[1]);
    let caller = match stack.write.access {
        Access::Plain => return Some((value, None)),
        Access::Fused { fusion } => fusion,
        Access::Async { start, .. } => start,
    };
    let (comp, operands) = innermost(module, caller)?;
    if let Some(number) = module.comp(comp).parameters.iter().position(|&p| p == value) {
        return Some((peel(module, *operands.get(number)?), None));
    }
    // A fusion of the body that makes the very same.
    for &other in &module.comp(pair.producer.body).order {
        if let Op::Fusion(fusion) = &module.instr(other).op
            && same_computation(
                module,
                (module.comp(comp).parameters.as_slice(), &operands, value),
                (module.comp(fusion.calls).parameters.as_slice(), &module.instr(other).operands, module.comp(fusion.calls).root),
            )
        {
            return Some((other, None));
        }
    }
    Some((value, Some(caller)))
}

/// What of the body a value inside a called computation is made of, and that computation.
pub(super) fn inside_inputs(module: &Module, caller: InstrId, value: InstrId) -> Option<(CompId, Vec<InstrId>)> {
    let (comp, operands) = innermost(module, caller)?;
    let needed = closure(module, value);
    let pairs = module.comp(comp).parameters.iter().zip(&operands);
    Some((comp, pairs.filter(|(p, _)| needed.contains(p)).map(|(_, &o)| o).collect()))
}

/// The computation in which a fusion or an async start does its work, and the operands outside that its parameters show.
pub(super) fn innermost(module: &Module, caller: InstrId) -> Option<(CompId, Vec<InstrId>)> {
    let outer = module.instr(caller).operands.to_vec();
    match &module.instr(caller).op {
        Op::Fusion(fusion) => Some((fusion.calls, outer)),
        Op::AsyncStart(wrapped) => {
            let root = module.comp(wrapped.calls).root;
            let Op::Fusion(fusion) = &module.instr(root).op else { return Some((wrapped.calls, outer)) };
            let number = |&o: &InstrId| match module.instr(o).op {
                Op::Parameter { number } => usize::try_from(number).ok().and_then(|n| outer.get(n).copied()),
                _ => None,
            };
            let operands: Option<Vec<InstrId>> = module.instr(root).operands.iter().map(number).collect();
            Some((fusion.calls, operands?))
        }
        _ => None,
    }
}

/// Whether what a fused computation does may be done again; the update that it ends in is not done again.
pub(super) fn fused_is_pure(module: &Module, comp: CompId) -> bool {
    let order = &module.comp(comp).order;
    order.iter().all(|&i| matches!(module.instr(i).op, Op::Parameter { .. } | Op::DynamicUpdateSlice) || is_pure(module, i))
}
