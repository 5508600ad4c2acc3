//! `recompute-stack`: drops what a forward loop saves for the backward loop, and makes it again there.
//!
//! # What it does
//! A stack that one loop fills row by row and a later loop reads row by row disappears from both. In the reading loop the instructions
//! that made the row are cloned just before their first reader, fed from stacks that stay, loop invariants, and rows of what both
//! loops read; where the layer's input is needed and no stack holds it, a stack for it is added. A value may also be saved in a stack in host
//! memory, written and read by asynchronous copies of rows (*offload-stack*). Which values are saved where is a minimum cut through the producing body, for
//! a price of device bytes that rises until the budget is met; each cut is carried out and measured on the rewritten program.
//!
//! # When it helps
//! Scanned layers without a checkpoint policy: the stacks are most of the peak.
//!
//! # Example
//! ```text
//! before                                              after
//! forward:  %e = exponential(%x)                      forward:  %e = exponential(%x)
//!           %s' = dynamic-update-slice(%s, %e, %i)              %t' = dynamic-update-slice(%t, %x, %i)   (the layer's input, if none held it)
//! backward: %row = dynamic-slice(%s, 23 − %i)         backward: %x = dynamic-slice(%t, 23 − %i)
//!                                                               %row = exponential(%x)
//! ```
//!
//! # Refuses
//! Stacks that anything but the two loops touches, rows made by instructions that are not pure, or from other carried values.
//!
//! # Cost
//! Some tens of minimum cuts, and as many rewrites and measurements of the module.
//!
//! # Source
//! Zheng et al., the min-cut partitioner of PyTorch's AOTAutograd; Griewank and Walther, "Algorithm 799: revolve", TOMS 2000, for the trade; Jain et al., "Checkmate", MLSys 2020, for choosing what to keep.

mod graph;
mod make;
mod pair;
mod readers;
mod same;

use rustc_hash::FxHashSet;

use crate::cost::Prices;
use crate::ir::Module;
use crate::machine::Machine;
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};

use super::drop_carried::sweep;
use super::joint::{self, Search};
pub(in crate::passes) use graph::Choice;
use graph::{Costs, Graph};
use make::Stuck;
use pair::pairs;

/// See the module's description. With `recompute` off it is the pass `offload-stack`.
#[derive(Clone, Copy, Debug)]
pub struct RecomputeStack {
    /// Whether rows may be made again.
    pub recompute: bool,
    /// Whether rows may be saved in host memory.
    pub offload: bool,
}

impl Pass for RecomputeStack {
    fn name(&self) -> &'static str {
        if self.recompute { "recompute-stack" } else { "offload-stack" }
    }
    fn run(&self, module: &mut Module, cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let ways = Ways { recompute: self.recompute, offload: self.offload };
        let search = Search { stacks: ways, updates: false, fuse: false };
        let Some(found) = joint::search(module, cx, search) else { return Ok(Changed::No) };
        log.entries.push(Entry { pass: self.name(), changed: true, text: found.done.to_string(), plan: None });
        *module = found.module;
        Ok(Changed::Yes)
    }
}

/// What may be done with rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    pub recompute: bool,
    pub offload: bool,
}

/// What was done with the stacks of all pairs of loops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Restacked {
    /// Stacks that went.
    pub dropped: usize,
    /// New stacks in device memory.
    pub device: usize,
    /// New stacks in host memory.
    pub host: usize,
    /// A number that tells choices apart.
    pub signature: Vec<(usize, graph::Choice)>,
}

/// The choices that a price of device bytes and one of link bytes (in nanoseconds each) lead to, without carrying them out: equal ones
/// need no second look.
pub(super) fn choices(prepared: &[Prepared], machine: &Machine, price: (f64, Option<f64>), ways: Ways) -> Vec<(usize, graph::Choice)> {
    let costs = Costs { device: price.0, host: price.1.filter(|_| ways.offload), recompute: ways.recompute };
    let choose = |(n, p): (usize, &Prepared)| (n, p.graph.choose(&p.pair, machine, costs, &p.banned));
    prepared.iter().enumerate().map(choose).collect()
}

/// A pair of loops with what its rows are made of.
#[derive(Debug)]
pub(super) struct Prepared {
    pair: pair::Pair,
    graph: Graph,
    reuse: rustc_hash::FxHashMap<crate::ir::InstrId, crate::ir::InstrId>,
    /// Values that turned out not to be there in time.
    banned: FxHashSet<crate::ir::InstrId>,
}

/// All pairs of loops of a module, ready for choices. Pairs that share a loop with an earlier one are left out.
pub(super) fn prepare(module: &Module, machine: &Machine) -> Vec<Prepared> {
    let prices = Prices::new(module, machine);
    let mut seen = FxHashSet::default();
    let mut out = Vec::new();
    for pair in pairs(module) {
        if !seen.insert(pair.producer.instr) || !seen.insert(pair.consumer.instr) {
            continue;
        }
        let Some(rows) = graph::rows(module, &pair) else { continue };
        let reuse = same::gathered_again(module, &pair, &rows);
        let there = reuse.keys().copied().collect();
        let graph = Graph::of(module, &pair, rows, &prices, machine, &there);
        out.push(Prepared { pair, graph, reuse, banned: FxHashSet::default() });
    }
    out
}

/// Carries choices out on a copy; on failure the value that was not there in time is banned for next time.
pub(super) fn carry_out(module: &Module, prepared: &mut [Prepared], choices: &[(usize, graph::Choice)]) -> Option<(Module, Restacked)> {
    let mut rewritten = module.clone();
    let mut done = Restacked { signature: choices.to_vec(), ..Restacked::default() };
    for (n, choice) in choices {
        if choice.drop.is_empty() && choice.device.is_empty() && choice.host.is_empty() {
            continue;
        }
        let this = &mut prepared[*n];
        match make::carry_out(&mut rewritten, &this.pair, &this.graph, choice, &this.reuse) {
            Ok(()) => {}
            Err(Stuck::Value(value)) => {
                this.banned.insert(value);
                return None;
            }
            Err(Stuck::Other) => return None,
        }
        done.dropped += choice.drop.len();
        done.device += choice.device.len();
        done.host += choice.host.len();
    }
    sweep(&mut rewritten);
    Some((rewritten, done))
}
