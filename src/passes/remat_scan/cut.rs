//! Which values to keep: a minimum cut through the producer's body.
//!
//! Each value `v` has two nodes. `need(v)` on the sink's side means that the consumer has `v`; `make(v)` there means that it makes `v` again.
//! The edge `make(v) → need(v)` costs what keeping `v` costs, `source → make(v)` what making it costs, and `need(operand) → make(v)`
//! cannot be cut. What the consumer reads is tied to the sink. Source: the partitioner of He and Yu, "Transcending runtime-memory
//! tradeoffs in checkpointing by being fusion aware", MLSys 2023, with a price on making instead of a ban.

use rustc_hash::FxHashSet;

use crate::ir::{InstrId, Module};

use super::graph::Graph;
use crate::passes::flow::{INFINITE, Network};

/// What keeping and making cost, in any one unit.
pub(super) trait Costs {
    /// Cost of keeping a value from the one loop to the other; `None` if it cannot be kept.
    fn keep(&self, id: InstrId) -> Option<u64>;
    /// Cost of making it again, what it is made of being there.
    fn make(&self, id: InstrId) -> u64;
}

/// The values to keep, so that the consumer can have all `seeds`, at least cost.
pub(super) fn cut(module: &Module, graph: &Graph, seeds: &[InstrId], costs: &impl Costs) -> FxHashSet<InstrId> {
    let nodes = graph.closure(seeds, |id| graph.is_given(module, id));
    let (source, sink) = (0, 1);
    let place: rustc_hash::FxHashMap<InstrId, usize> = nodes.iter().enumerate().map(|(n, &id)| (id, 2 + 2 * n)).collect();
    let mut network = Network::new(2 + 2 * nodes.len());
    for &id in &nodes {
        let (need, make) = (place[&id], place[&id] + 1);
        if graph.is_given(module, id) {
            continue;
        }
        let kept = costs.keep(id).map_or(INFINITE, |c| c.min(INFINITE));
        let made = if graph.clonable(module, id) { costs.make(id).min(INFINITE) } else { INFINITE };
        network.edge(make, need, kept);
        network.edge(source, make, made);
        for &operand in graph.operands(id) {
            if let Some(&operand) = place.get(&operand) {
                network.edge(operand, make, INFINITE);
            }
        }
    }
    for &seed in seeds {
        network.edge(place[&seed], sink, INFINITE);
    }
    let at_source = network.source_side(source, sink);
    nodes.into_iter().filter(|id| at_source[place[id] + 1] && !at_source[place[id]] && !graph.is_given(module, *id)).collect()
}
