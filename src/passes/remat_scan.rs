//! `remat-scan`: in a program before optimization, drops what a scanned loop saves for the loop that runs it backwards, and makes it again there.
//!
//! # What it does
//! Before XLA has optimized a program, a forward `scan` saves each residual by a plain dynamic-update-slice at its counter, and the backward scan
//! reads it by a dynamic-slice. A minimum cut through the forward body chooses which values stay; all other stacks leave both loops,
//! and what made them is cloned into the backward body, fed from the rows that stay, from what both loops are given, and from slices of it.
//! Where the cut wants a value that has no stack, such as the layer's input, a stack is added. XLA then fuses and schedules the result as it does
//! for a policy written by hand.
//!
//! # When it helps
//! Scanned layers without a checkpoint policy: the stacks are most of the peak, and reading and writing them much of the time.
//!
//! # Example
//! ```text
//! before                                              after
//! forward:  %e = exponential(%x)                      forward:  %e = exponential(%x)
//!           %s' = dynamic-update-slice(%s, %e, %i)              %t' = dynamic-update-slice(%t, %x, %i)
//! backward: %row = dynamic-slice(%s, 23 - %i)         backward: %x = dynamic-slice(%t, 23 - %i)
//!                                                               %row = exponential(%x)
//! ```
//!
//! # Refuses
//! Stacks that anything but the two loops touches stay. Values of random generators, of side effects and of inner loops are kept, not made again.
//!
//! # Cost
//! A few dozen cuts and rewrites of the module.
//!
//! # Source
//! Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; the cut: see the source of `remat_scan/cut.rs`.

mod build;
mod cut;
mod flow;
mod graph;
mod inline;
mod pair;
mod sink;

use rustc_hash::FxHashSet;

use crate::ir::{InstrId, Module};
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};

use build::{Choice, Done, build};
use graph::Graph;
use pair::{Pair, pairs};

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct RematScan {
    /// Names of values that are kept, where the user chooses; else the cut does.
    pub keep: Option<Vec<String>>,
    /// Whether rows pass an opt-barrier.
    pub barrier: bool,
}

impl Pass for RematScan {
    fn name(&self) -> &'static str {
        "remat-scan"
    }
    fn run(&self, module: &mut Module, cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let Some((rewritten, done)) = self.rewrite(module, cx) else {
            let text = "no pair of loops with a stack between them".to_owned();
            log.entries.push(Entry { pass: self.name(), changed: false, text, plan: None });
            return Ok(Changed::No);
        };
        let text = format!(
            "{} stacks dropped, {} added ({}), {} instructions cloned into the loop that reads them",
            done.dropped.len(),
            done.added.len(),
            done.added.join(", "),
            done.clones
        );
        log.entries.push(Entry { pass: self.name(), changed: true, text, plan: None });
        *module = rewritten;
        Ok(Changed::Yes)
    }
}

impl RematScan {
    fn rewrite(&self, module: &Module, _cx: &PassCx) -> Option<(Module, Done)> {
        let mut inlined = module.clone();
        inline_loops(&mut inlined);
        sink::sink_invariants(&mut inlined);
        super::dce::dce(&mut inlined);
        let pair = pairs(&inlined).into_iter().next()?;
        let graph = Graph::of(&inlined, &pair);
        let seeds = seeds(&graph, &pair);
        let kept: FxHashSet<InstrId> = match &self.keep {
            Some(names) => {
                let free = Named { module: &inlined, names };
                cut::cut(&inlined, &graph, &seeds, &free)
            }
            None => cut::cut(&inlined, &graph, &seeds, &Named { module: &inlined, names: &[] }),
        };
        let done = build(&mut inlined, &pair, &graph, &Choice { kept, barrier: self.barrier })?;
        super::dce::dce(&mut inlined);
        Some((inlined, done))
    }
}

/// Named values cost nothing to keep; everything else costs its bytes to keep and nothing to make.
struct Named<'m> {
    module: &'m Module,
    names: &'m [String],
}

impl cut::Costs for Named<'_> {
    fn keep(&self, id: InstrId) -> Option<u64> {
        let instr = self.module.instr(id);
        self.module.shapes.array(instr.shape)?;
        if self.names.iter().any(|n| **n == *instr.name) { Some(0) } else { Some(self.module.shapes.byte_size(instr.shape)) }
    }
    fn make(&self, _: InstrId) -> u64 {
        0
    }
}

/// What the consumer reads of the stacks that may go.
fn seeds(graph: &Graph, pair: &Pair) -> Vec<InstrId> {
    let mut seen = FxHashSet::default();
    pair.stacks.iter().filter(|s| s.droppable).map(|s| graph.canonical(s.value)).filter(|&v| seen.insert(v)).collect()
}

/// Inlines the calls of all loop bodies.
fn inline_loops(module: &mut Module) {
    let mut taken = module.names();
    // Callees first: what a body calls has its own loops read before they are copied.
    for comp in module.callees_first() {
        for id in module.comp(comp).order.clone() {
            if let crate::ir::Op::While { body, .. } = module.instr(id).op {
                inline::inline_calls(module, body, &mut taken);
                inline::inline_calls(module, comp, &mut taken);
            }
        }
    }
    super::dce::dce(module);
}
