//! `fit`: makes a scheduled program fit a budget of device memory.
//!
//! # What it does
//! Plans which values leave for pinned host memory and come back, and which are computed again, carries the plan out, and measures the
//! result as XLA would count it. Where packing wastes memory that the plan had counted on, it plans again with that much less.
//!
//! # When it helps
//! Wherever large values wait between two uses while memory is short: activations between forward and backward pass.
//!
//! # Example
//! ```text
//! before                                    after
//! %a = f32[1048576] exponential(%x)         %a = f32[1048576] exponential(%x)
//! … (the peak)                              %a.offload.start = … copy-start(%a)
//! ROOT %r = f32[1048576] add(%a, %b)        %a.offload.done = f32[1048576]{0:S(5)} copy-done(%a.offload.start)
//!                                           … (the peak)
//!                                           %a.reload.start = … copy-start(%a.offload.done)
//!                                           %a.reload.done = f32[1048576] copy-done(%a.reload.start)
//!                                           ROOT %r = f32[1048576] add(%a.reload.done, %b)
//! ```
//!
//! # Cost
//! A few plans and measurements: see [`crate::plan::search`].
//!
//! # Source
//! The trade of time against bytes × time freed follows Beaumont et al., "Efficient Combination of Rematerialization and Offloading for
//! Training DNNs", NeurIPS 2021; the algorithm is our own.

use crate::analysis::{Analyses, Memory};
use crate::cost::Prices;
use crate::ir::{InstrId, Module};
use crate::machine::Machine;
use crate::plan::{Model, Plan, model, search};
use crate::rewrite::{ApplyError, Applied, apply};
use crate::units::Bytes;

use super::dce;

/// What to fit into.
#[derive(Clone, Debug)]
pub struct FitOptions {
    /// The hardware.
    pub machine: Machine,
    /// Device bytes as XLA counts them: argument + output − alias + temp.
    pub memory: Bytes,
    /// Pinned host bytes.
    pub host_memory: Bytes,
}

/// A program that fits.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The program.
    pub module: Module,
    /// What was decided; no decision if it fitted as it was.
    pub plan: Plan,
    /// What was done.
    pub applied: Applied,
    /// What the program takes now.
    pub memory: Memory,
}

/// Nothing that was tried fits.
#[derive(Clone, Debug)]
pub struct Infeasible {
    /// The lowest device bytes that were reached.
    pub floor: Bytes,
    /// The instruction at which they are taken.
    pub at: String,
    /// The largest buffers that are alive there: name and bytes.
    pub needed_by: Vec<(String, Bytes)>,
}

/// Why `fit` gave nothing.
#[derive(Clone, Debug)]
pub enum FitError {
    /// The budget cannot be met.
    Infeasible(Infeasible),
    /// A plan that did not fit the module it was made for: our mistake.
    Apply(ApplyError),
}

/// How often a plan is made anew because packing or sharing took more than the plan counted.
const TRIES: usize = 10;

/// Fits `module`, which must pass the verifier, into `options.memory`.
///
/// # Errors
/// The budget cannot be met by what this pass knows.
pub fn fit(module: &Module, options: &FitOptions) -> Result<Fitted, FitError> {
    let analyses = Analyses::new(module);
    let before = *analyses.memory();
    if before.device_bytes() <= options.memory.get() {
        return Ok(Fitted { module: module.clone(), plan: Plan::empty(&module.name), applied: Applied::default(), memory: before });
    }
    let prices = Prices::new(module, &options.machine);
    let pinned = before.device_bytes() - before.temp;
    let heap = options.memory.get().saturating_sub(pinned);
    let base = model(&analyses, &options.machine, &prices, Bytes(heap), options.host_memory);
    let mut best: Option<Trial> = None;
    let mut target = heap;
    for _ in 0..TRIES {
        let mut model = base.clone();
        model.problem.device_memory = Bytes(target);
        let trial = Trial::of(module, &model).map_err(FitError::Apply)?;
        let excess = trial.memory.device_bytes().saturating_sub(options.memory.get());
        let stuck = trial.planned > Bytes(target);
        if best.as_ref().is_none_or(|b| trial.memory.device_bytes() < b.memory.device_bytes()) {
            best = Some(trial);
        }
        if excess == 0 || stuck || target == 0 {
            break;
        }
        target = target.saturating_sub(excess.max(64 << 10));
    }
    let best = best.expect("there is at least one try");
    if best.memory.device_bytes() <= options.memory.get() {
        let Trial { module, plan, applied, memory, .. } = best;
        return Ok(Fitted { module, plan, applied, memory });
    }
    Err(FitError::Infeasible(infeasible(&best.module)))
}

/// One plan, carried out and measured.
struct Trial {
    module: Module,
    plan: Plan,
    applied: Applied,
    memory: Memory,
    planned: Bytes,
}

impl Trial {
    fn of(module: &Module, model: &Model) -> Result<Self, ApplyError> {
        let found = search(&model.problem);
        let plan = model.plan(module, &found.solution);
        let mut rewritten = module.clone();
        let applied = apply(&mut rewritten, &plan)?;
        dce::dce(&mut rewritten);
        let memory = *Analyses::new(&rewritten).memory();
        Ok(Self { module: rewritten, plan, applied, memory, planned: found.peak })
    }
}

/// Where the lowest program that was found takes its memory.
fn infeasible(module: &Module) -> Infeasible {
    let analyses = Analyses::new(module);
    let curve = analyses.curve(crate::ir::DEVICE);
    let (at, _) = curve.peak();
    let sequence = &analyses.schedule().sequence;
    let name = |id: InstrId| module.instr(id).name.to_string();
    let at_name = sequence.get(at).map_or_else(|| "the end".to_owned(), |&id| name(id));
    let mut needed_by: Vec<(String, Bytes)> = Vec::new();
    for (_, buffer) in analyses.buffers().iter() {
        let alive = (buffer.live.0 as usize..=buffer.live.1 as usize).contains(&at);
        if buffer.color == crate::ir::DEVICE && alive {
            needed_by.push((name(analyses.values().get(buffer.values[0]).instr), Bytes(buffer.bytes)));
        }
    }
    needed_by.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    needed_by.truncate(12);
    Infeasible { floor: Bytes(analyses.memory().device_bytes()), at: at_name, needed_by }
}
