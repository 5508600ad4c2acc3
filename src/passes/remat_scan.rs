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
//! # Memory and time
//! What XLA will make of the result is known only when it has compiled it. With the compiled form of the original program ([`PassCx::truth`]) its
//! bytes and its simulated time are the base, and only the difference is estimated (see `remat_scan/estimate.rs` and `remat_scan/choose.rs`); without
//! it everything is. Invariants made of constants alone (masks) are made in the bodies. No opt-barrier is put before what is made
//! again unless asked for: the two loops have different bodies, so nothing can be merged across them, and a barrier makes copies of the rows.
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
mod choose;
mod cut;
mod estimate;
mod graph;
mod inline;
mod pair;
mod saved;
mod sink;

pub use saved::{Saved, saved};

use serde::{Deserialize, Serialize};

use crate::analysis::{Analyses, Memory};
use crate::cost::Prices;
use crate::ir::{Module, Op};
use crate::machine::Machine;
use crate::pass::{Changed, Entry, Infeasible, Log, Pass, PassCx, PassError};
use crate::plan::{Decision, PLAN_VERSION, Plan, Residence, ValueName};
use crate::sim::simulate;
use crate::units::{Bytes, Nanos};

use build::Done;
use choose::Candidate;
use estimate::Sizes;
use pair::{Pair, pairs};

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct RematScan {
    /// Names of values that are kept, where the user chooses; else the cut does.
    pub keep: Option<Vec<String>>,
    /// Whether rows pass an opt-barrier.
    pub barrier: bool,
}

/// What is expected of a program that XLA has still to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Device bytes of the program as it was.
    pub device_before: u64,
    /// Device bytes of the rewritten one.
    pub device_after: u64,
    /// Bytes of the entry's parameters.
    pub argument: u64,
    /// Time of a step before.
    pub step_before: Nanos,
    /// Time of a step after.
    pub step_after: Nanos,
    /// Whether the figures before are those of the compiled form.
    pub from_truth: bool,
}

/// A plan with what is expected of it, as it stands in the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expectation {
    /// The decisions.
    #[serde(flatten)]
    pub plan: Plan,
    /// What the result will take.
    pub expected: Expected,
}

/// Whether a program has a pair of loops that this pass works on.
pub fn applies(module: &Module) -> bool {
    !pairs(&inlined(module)).is_empty()
}

impl Pass for RematScan {
    fn name(&self) -> &'static str {
        "remat-scan"
    }
    fn run(&self, module: &mut Module, cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let original = inlined(module);
        let first = pairs(&original);
        if first.is_empty() {
            let text = "no pair of loops with a stack between them".to_owned();
            log.entries.push(Entry { pass: self.name(), changed: false, text, plan: None });
            return Ok(Changed::No);
        }
        let truth = cx.truth.as_deref();
        let sizes = Sizes::of(&original, &first, truth);
        let base = Base::of(&original, &sizes, truth, &cx.machine);
        if self.keep.is_none() && base.device <= cx.memory.get() {
            let plan = Expectation { plan: Plan::empty(&module.name), expected: base.expected(&base_candidate(&original, &base), 0.0) };
            let text = "it fits as it is".to_owned();
            log.entries.push(Entry { pass: self.name(), changed: false, text, plan: serde_json::to_value(plan).ok() });
            return Ok(Changed::No);
        }
        let mut best = base_candidate(&original, &base);
        let sunk = sink::sink_invariants(&mut best.module);
        super::dce::dce(&mut best.module);
        let mut decisions = Vec::new();
        let mut told = Vec::new();
        let mut time = 0.0;
        for n in 0..first.len() {
            let Some(pair) = pairs(&best.module).into_iter().nth(n) else { break };
            let as_it_is = choose::time_as_it_is(&best.module, &pair, &sizes, &cx.machine);
            let Some(chosen) = self.chosen(&best.module, &pair, &sizes, &base, cx) else { continue };
            time += chosen.time - as_it_is;
            decisions.extend(decide(&best.module, &pair, &sizes, &chosen));
            told.push(tell(&chosen.done));
            best = chosen;
            if self.keep.is_none() && base.after(best.bytes) <= cx.memory.get() {
                break;
            }
        }
        let expected = base.expected(&best, time);
        if self.keep.is_none() && expected.device_after > cx.memory.get() {
            return Err(PassError::Infeasible(infeasible(cx.memory, &expected, &best)));
        }
        let sunk_bytes: u64 = sunk.iter().map(|s| s.1).sum();
        let mut text = told.join("; ");
        if !sunk.is_empty() {
            text += &format!("; {} invariants ({}) made where they are read", sunk.len(), Bytes(sunk_bytes));
        }
        text += if expected.from_truth {
            "; figures from the compiled form"
        } else {
            "; figures from shapes alone: give the compiled form with --truth"
        };
        let plan = Plan { version: PLAN_VERSION, module: module.name.to_string(), decisions };
        let plan = serde_json::to_value(Expectation { plan, expected }).ok();
        log.entries.push(Entry { pass: self.name(), changed: true, text, plan });
        *module = best.module;
        Ok(Changed::Yes)
    }
}

impl RematScan {
    /// The fastest candidate that fits, else the smallest.
    fn chosen(&self, module: &Module, pair: &Pair, sizes: &Sizes, base: &Base, cx: &PassCx) -> Option<Candidate> {
        if let Some(names) = &self.keep {
            return choose::named(module, pair, sizes, &cx.machine, names, self.barrier);
        }
        let candidates = choose::candidates(module, pair, sizes, &cx.machine, self.barrier);
        let fits = |c: &&Candidate| base.after(c.bytes) <= cx.memory.get();
        let fastest = candidates.iter().filter(fits).min_by(|a, b| a.time.total_cmp(&b.time).then(a.bytes.cmp(&b.bytes)));
        fastest.or_else(|| candidates.iter().min_by_key(|c| c.bytes)).cloned()
    }
}

/// The program as it was: what it takes, and what the estimate says that it takes.
struct Base {
    device: u64,
    argument: u64,
    step: f64,
    estimated: u64,
    from_truth: bool,
}

impl Base {
    fn of(module: &Module, sizes: &Sizes, truth: Option<&Module>, machine: &Machine) -> Self {
        let estimated = estimate::device_bytes(module, sizes);
        let argument = module.entry().parameters.iter().map(|&p| sizes.bytes(module, module.instr(p).shape)).sum();
        match truth {
            Some(truth) => {
                let memory: Memory = *Analyses::new(truth).memory();
                let step = simulate(truth, machine, &Prices::new(truth, machine)).step.as_f64();
                Self { device: memory.device_bytes(), argument: memory.argument, step, estimated, from_truth: true }
            }
            None => {
                let step = simulate(module, machine, &Prices::new(module, machine)).step.as_f64();
                Self { device: estimated, argument, step, estimated, from_truth: false }
            }
        }
    }
    /// Device bytes of a program with that estimate. Where the compiled form takes more than was estimated of the original, the result will too;
    /// where it takes less, the order of some other schedule was lucky, and nothing says that the next one will be.
    fn after(&self, estimated: u64) -> u64 {
        estimated + self.device.saturating_sub(self.estimated)
    }
    fn expected(&self, best: &Candidate, time: f64) -> Expected {
        Expected {
            device_before: self.device,
            device_after: self.after(best.bytes),
            argument: self.argument,
            step_before: Nanos::from_f64(self.step),
            step_after: Nanos::from_f64((self.step + time).max(0.0)),
            from_truth: self.from_truth,
        }
    }
}

fn base_candidate(module: &Module, base: &Base) -> Candidate {
    Candidate { module: module.clone(), done: Done::default(), bytes: base.estimated, time: 0.0 }
}

fn tell(done: &Done) -> String {
    let added = if done.added.is_empty() { String::new() } else { format!(", {} added ({})", done.added.len(), done.added.join(", ")) };
    format!("{} stacks dropped{added}, {} instructions cloned into the loop that reads them", done.dropped.len(), done.clones)
}

fn decide(module: &Module, pair: &Pair, sizes: &Sizes, chosen: &Candidate) -> Vec<Decision> {
    let stacks = pair.stacks.iter().filter(|s| chosen.done.dropped.iter().any(|d| **d == *module.instr(s.value).name));
    let decision = |stack: &pair::Stack| {
        let name = module.instr(stack.value).name.to_string();
        let bytes = sizes.bytes(module, module.instr(pair.producer.elements[stack.from].initial).shape);
        Decision {
            computation: module.comp(pair.consumer.body).name.to_string(),
            value: ValueName { instr: name.clone(), output: None },
            bytes,
            needed_by: module.instr(stack.slice()).name.to_string(),
            residence: Residence::Recomputed { chain: vec![ValueName { instr: format!("{name}.remat"), output: None }] },
            cost_ns: 0.0,
            reason: "made again from the rows that stay".to_owned(),
        }
    };
    stacks.map(decision).collect()
}

fn infeasible(asked: Bytes, expected: &Expected, best: &Candidate) -> Infeasible {
    let module = &best.module;
    let mut kept: Vec<(String, Bytes)> = Vec::new();
    for pair in pairs(module) {
        for stack in &pair.stacks {
            let bytes = module.shapes.leaf_bytes(module.instr(pair.producer.elements[stack.from].initial).shape);
            kept.push((module.instr(stack.value).name.to_string(), Bytes(bytes)));
        }
    }
    kept.push(("parameters".to_owned(), Bytes(expected.argument)));
    kept.sort_by_key(|k| std::cmp::Reverse(k.1));
    kept.truncate(12);
    Infeasible { asked, floor: Bytes(expected.device_after), at: "the loop that reads the stacks".to_owned(), needed_by: kept }
}

/// The program with the calls of all loop bodies inlined, and of the computations in which the loops stand.
fn inlined(module: &Module) -> Module {
    let mut module = module.clone();
    let mut taken = module.names();
    // Callees first: what a body calls has its own loops read before they are copied.
    for comp in module.callees_first() {
        for id in module.comp(comp).order.clone() {
            if let Op::While { body, .. } = module.instr(id).op {
                inline::inline_calls(&mut module, body, &mut taken);
                inline::inline_calls(&mut module, comp, &mut taken);
            }
        }
    }
    super::dce::dce(&mut module);
    module
}
