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
//! Where computing again is not enough, rows of what is kept go to pinned host memory, the largest first: a value passes
//! `annotate_device_placement` before its row is written and after it is read, as JAX writes it, and XLA makes copies of both.
//!
//! # Refuses
//! Stacks that anything but the two loops touches stay. Values of random generators, of side effects and of inner loops are kept, not made again.
//!
//! # Cost
//! A few dozen cuts and rewrites of the module and, between two of them, at most the square of the values in which they differ.
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

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::analysis::remat::RematTracker;
use crate::analysis::{Analyses, Memory};
use crate::cost::Prices;
use crate::ir::{Module, Op};
use crate::machine::Machine;
use crate::pass::{Changed, Entry, Infeasible, Log, Pass, PassCx, PassError};
use crate::plan::{Decision, PLAN_VERSION, Plan, Residence, Send, ValueName};
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
    /// Names of values that are kept in host memory, beside those that `keep` names.
    pub host: Vec<String>,
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
    /// Bytes of stacks in host memory.
    pub host_after: u64,
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
            let plan = Expectation { plan: Plan::empty(&module.name), expected: base.as_it_is() };
            let text = "it fits as it is".to_owned();
            log.entries.push(Entry { pass: self.name(), changed: false, text, plan: serde_json::to_value(plan).ok() });
            return Ok(Changed::No);
        }
        let mut best = base_candidate(&original, &base);
        let sunk = sink::sink_invariants(&mut best.module);
        super::dce::dce(&mut best.module);
        let mut decisions = Vec::new();
        let mut told = Vec::new();
        let mut host = 0;
        for n in 0..first.len() {
            let Some(pair) = pairs(&best.module).into_iter().nth(n) else { break };
            let Some(chosen) = self.chosen(&best.module, &pair, &sizes, &base, cx) else { continue };
            decisions.extend(decide(&best.module, &pair, &sizes, &chosen));
            told.push(tell(&chosen.done));
            host += chosen.host_bytes;
            best = chosen;
            if self.keep.is_none() && base.after(best.bytes) <= cx.memory.get() {
                break;
            }
        }
        let copies = cx.machine.offload_time(Bytes(host)) + cx.machine.reload_time(Bytes(host));
        let kernels = estimate::kernel_time(&best.module, &sizes, &cx.machine) + if host > 0 { copies.as_f64() } else { 0.0 };
        let expected = base.expected(&best, host, kernels);
        if self.keep.is_none() && expected.device_after > cx.memory.get() {
            return Err(PassError::Infeasible(infeasible(cx.memory, &expected, &best, &sizes)));
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
            return choose::named(module, pair, sizes, &cx.machine, (names, &self.host), self.barrier);
        }
        let candidates = choose::candidates(module, pair, sizes, &cx.machine, self.barrier);
        let within = |c: &Candidate| base.after(c.bytes) <= cx.memory.get();
        let left_alone = |c: &Candidate| within(c) && cx.xla_memory.is_none_or(|m| base.left_alone(c.bytes, m.get()));
        // Above the limit of its own rematerialization, XLA computes again as it sees fit and no longer hides collectives.
        let fits: &dyn Fn(&Candidate) -> bool = if candidates.iter().any(left_alone) { &left_alone } else { &within };
        let by_time = |a: &&Candidate, b: &&Candidate| a.time.total_cmp(&b.time).then(a.bytes.cmp(&b.bytes));
        let Some(fastest) = candidates.iter().filter(|c| fits(c)).min_by(by_time) else {
            // XLA hides copies badly here, so rows go to the host only where computing again is not enough.
            let smallest = candidates.iter().min_by_key(|c| c.bytes)?;
            let mut hosted = choose::on_host(module, pair, sizes, &cx.machine, self.barrier, smallest);
            hosted.retain(|c| c.host_bytes <= cx.host_memory.get() && c.bytes < smallest.bytes);
            let fitting = hosted.iter().find(|c| within(c));
            return Some(fitting.or(hosted.last()).unwrap_or(smallest).clone());
        };
        let faster = candidates.iter().filter(|c| c.time < fastest.time).max_by(by_time);
        let between = faster.and_then(|f| choose::between(module, pair, sizes, &cx.machine, self.barrier, (fastest, f), fits));
        Some(between.unwrap_or_else(|| fastest.clone()))
    }
}

/// The program as it was: what it takes, and what the estimate says that it takes.
struct Base {
    device: u64,
    argument: u64,
    step: f64,
    /// Of the step, waits for collectives; XLA will schedule the result anew, but not much better.
    waits: f64,
    estimated: u64,
    from_truth: bool,
}

impl Base {
    fn of(module: &Module, sizes: &Sizes, truth: Option<&Module>, machine: &Machine) -> Self {
        let estimated = estimate::device_bytes(module, sizes);
        let argument = sizes.parameters(module);
        match truth {
            Some(truth) => {
                let memory: Memory = *Analyses::new(truth).memory();
                let timeline = simulate(truth, machine, &Prices::new(truth, machine));
                let waits = timeline.collective_wait.as_f64();
                let step = timeline.step.as_f64();
                Self { device: memory.device_bytes(), argument: memory.argument, step, waits, estimated, from_truth: true }
            }
            None => {
                let step = estimate::kernel_time(module, sizes, machine);
                Self { device: estimated, argument, step, waits: 0.0, estimated, from_truth: false }
            }
        }
    }
    /// Whether XLA's own rematerialization leaves a program with that estimate alone on a device of that much memory, with a tenth to spare: close to
    /// its limit XLA's scheduler no longer hides collectives (gpt3_175b: 7.06 s at 61.1 of 62 GiB, 6.88 s at 56.9).
    fn left_alone(&self, estimated: u64, memory: u64) -> bool {
        let temp = self.after(estimated).saturating_sub(self.argument);
        RematTracker { peak: temp + temp / 10, at: None, pinned: self.argument }.left_alone(memory)
    }
    /// Device bytes of a program with that estimate. Where the compiled form takes more than was estimated of the original, the result will too;
    /// where it takes less, the order of some other schedule was lucky, and nothing says that the next one will be.
    fn after(&self, estimated: u64) -> u64 {
        estimated + self.device.saturating_sub(self.estimated)
    }
    /// What is expected of a program whose kernels take that time.
    fn expected(&self, best: &Candidate, host: u64, kernels: f64) -> Expected {
        Expected {
            device_before: self.device,
            device_after: self.after(best.bytes),
            host_after: host,
            argument: self.argument,
            step_before: Nanos::from_f64(self.step),
            step_after: Nanos::from_f64(self.waits + kernels),
            from_truth: self.from_truth,
        }
    }
    /// What is expected of the program that nothing was done to.
    fn as_it_is(&self) -> Expected {
        let step = Nanos::from_f64(self.step);
        let (argument, from_truth) = (self.argument, self.from_truth);
        Expected {
            device_before: self.device,
            device_after: self.device,
            host_after: 0,
            argument,
            step_before: step,
            step_after: step,
            from_truth,
        }
    }
}

fn base_candidate(module: &Module, base: &Base) -> Candidate {
    Candidate {
        module: module.clone(),
        done: Done::default(),
        bytes: base.estimated,
        time: 0.0,
        kept: FxHashSet::default(),
        host: FxHashSet::default(),
        host_bytes: 0,
    }
}

fn tell(done: &Done) -> String {
    let added = if done.added.is_empty() { String::new() } else { format!(", {} added ({})", done.added.len(), done.added.join(", ")) };
    let hosted =
        if done.host.is_empty() { String::new() } else { format!(", {} in host memory ({})", done.host.len(), done.host.join(", ")) };
    format!("{} stacks dropped{added}{hosted}, {} instructions cloned into the loop that reads them", done.dropped.len(), done.clones)
}

fn decide(module: &Module, pair: &Pair, sizes: &Sizes, chosen: &Candidate) -> Vec<Decision> {
    let among = |names: &[String], s: &pair::Stack| names.iter().any(|n| **n == *module.instr(s.value).name);
    let stacks = pair.stacks.iter().filter(|s| among(&chosen.done.dropped, s) && !among(&chosen.done.host, s));
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
    let mut decisions: Vec<Decision> = stacks.map(decision).collect();
    for &value in &chosen.host {
        let name = module.instr(value).name.to_string();
        decisions.push(Decision {
            computation: module.comp(pair.producer.body).name.to_string(),
            value: ValueName { instr: name.clone(), output: None },
            bytes: sizes.bytes(module, module.instr(value).shape) * pair.producer.trips.unwrap_or(1),
            needed_by: module.instr(pair.consumer.instr).name.to_string(),
            residence: Residence::Host {
                send: Some(Send { start_before: name.clone(), done_before: module.instr(pair.consumer.instr).name.to_string() }),
                fetch_before: module.instr(pair.consumer.instr).name.to_string(),
            },
            cost_ns: 0.0,
            reason: "row by row; XLA places the copies".to_owned(),
        });
    }
    decisions.sort_by(|a, b| a.value.cmp(&b.value));
    decisions
}

fn infeasible(asked: Bytes, expected: &Expected, best: &Candidate, sizes: &Sizes) -> Infeasible {
    let module = &best.module;
    let mut kept: Vec<(String, Bytes)> = Vec::new();
    for pair in pairs(module) {
        for stack in &pair.stacks {
            let bytes = sizes.bytes(module, module.instr(pair.producer.elements[stack.from].initial).shape);
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
