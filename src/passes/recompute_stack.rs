//! `recompute-stack`: drops what a forward loop saves for the backward loop, and makes it again there.
//!
//! # What it does
//! A stack that one loop fills row by row and a later loop reads row by row disappears from both. In the reading loop the instructions
//! that made the row are cloned just before their first reader, fed from stacks that stay, loop invariants, and rows of what both
//! loops read; where the layer's input is needed and no stack holds it, a stack for it is added. Stacks are dropped one at a time, the one that
//! loses least time for the bytes it frees first, each measured on the rewritten program, until the budget is met.
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
//! O(stacks²) rewrites and measurements of the module.
//!
//! # Source
//! Griewank and Walther, "Algorithm 799: revolve", TOMS 2000, for the trade; Jain et al., "Checkmate", MLSys 2020, for choosing what to keep.

mod make;
mod pair;
mod rows;

use crate::analysis::Analyses;
use crate::cost::Prices;
use crate::ir::Module;
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};
use crate::sim::simulate;
use crate::units::Bytes;

use pair::{Pair, pairs};

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct RecomputeStack;

impl Pass for RecomputeStack {
    fn name(&self) -> &'static str {
        "recompute-stack"
    }
    fn run(&self, module: &mut Module, cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let dropped = drop_stacks(module, cx);
        let names: Vec<&str> = dropped.iter().map(String::as_str).collect();
        let text = format!("{} stacks dropped and made again in the loop that reads them: {}", names.len(), names.join(", "));
        log.entries.push(Entry { pass: self.name(), changed: !names.is_empty(), text, plan: None });
        Ok(Changed::from(!dropped.is_empty()))
    }
}

/// A measured program.
struct Trial {
    module: Module,
    device: u64,
    step: f64,
}

/// Drops stacks until `module` fits, or none is left whose dropping helps; returns their names. One pair of loops after the other.
fn drop_stacks(module: &mut Module, cx: &PassCx) -> Vec<String> {
    let mut dropped = Vec::new();
    let count = pairs(module).len();
    for n in 0..count {
        let before = measure(module.clone(), cx);
        let Some(pair) = pairs(module).into_iter().nth(n) else { break };
        let (set, best) = choose(&before, &pair, cx);
        dropped.extend(set.iter().map(|&s| module.instr(pair.stacks[s].made).name.to_string()));
        *module = best.module;
    }
    dropped
}

fn measure(module: Module, cx: &PassCx) -> Trial {
    let device = Analyses::new(&module).memory().device_bytes();
    let step = simulate(&module, &cx.machine, &Prices::new(&module, &cx.machine)).step.as_f64();
    Trial { module, device, step }
}

/// The set of stacks to drop, grown one by one: each time the one that loses least time for the bytes that it frees.
fn choose(before: &Trial, pair: &Pair, cx: &PassCx) -> (Vec<usize>, Trial) {
    let mut set: Vec<usize> = Vec::new();
    let mut now = Trial { module: before.module.clone(), device: before.device, step: before.step };
    let mut left: Vec<usize> = (0..pair.stacks.len()).collect();
    while Bytes(now.device) > cx.memory {
        let mut best: Option<(f64, usize, Trial)> = None;
        for &n in &left {
            let mut with: Vec<usize> = set.clone();
            with.push(n);
            with.sort_unstable();
            let Some(trial) = attempt(&before.module, pair, &with, cx) else { continue };
            if trial.device >= now.device {
                continue;
            }
            let score = (trial.step - now.step) / (now.device - trial.device) as f64;
            if best.as_ref().is_none_or(|(s, ..)| score < *s) {
                best = Some((score, n, trial));
            }
        }
        let Some((_, n, trial)) = best else { break };
        set.push(n);
        set.sort_unstable();
        left.retain(|&l| l != n);
        now = trial;
    }
    (set, now)
}

fn attempt(module: &Module, pair: &Pair, set: &[usize], cx: &PassCx) -> Option<Trial> {
    let mut rewritten = module.clone();
    make::drop_set(&mut rewritten, pair, set)?;
    super::dce::dce(&mut rewritten);
    super::trim_outputs::trim_outputs(&mut rewritten);
    super::dce::dce(&mut rewritten);
    Some(measure(rewritten, cx))
}
