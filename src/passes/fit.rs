//! `fit`: makes a scheduled program fit a budget of device memory.
//!
//! # What it does
//! Plans which values leave for pinned host memory and come back, and which are computed again, carries the plan out, and measures the
//! result as XLA would count it. Where packing wastes memory that the plan had counted on, it plans again with that much less.
//! Where XLA's own rematerialization would still act on the result (its tracker counts host memory like device memory, so copies do not help against
//! it), it plans again with device and host memory limited together. If that fails the first plan stands, and the driver says that XLA will act.
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

use crate::analysis::remat::RematTracker;
use crate::analysis::{Analyses, Memory};
use crate::cost::Prices;
use crate::ir::{DEVICE, InstrId, Module};
use crate::pass::{Changed, Entry, Infeasible, Log, Pass, PassCx, PassError};
use crate::plan::{Found, Model, Plan, WORK, Ways, model, search_within};
use crate::rewrite::{Applied, ApplyError, apply};
use crate::units::Bytes;

use super::dce;

/// See the module's description.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fit {
    /// What may be done to a value.
    pub ways: Ways,
}

impl Pass for Fit {
    fn name(&self) -> &'static str {
        "fit"
    }
    fn run(&self, module: &mut Module, cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let fitted = fit(module, cx, self.ways)?;
        let changed = !fitted.plan.decisions.is_empty();
        let Applied { sends, fetches, recomputed } = fitted.applied;
        let text = format!(
            "{} decisions: {sends} copies out, {fetches} copies back, {recomputed} instructions computed again{}",
            fitted.plan.decisions.len(),
            if cx.tightened { "; planned below the limit of XLA's own rematerialization, which binds" } else { "" }
        );
        let plan = serde_json::to_value(&fitted.plan).expect("a plan is plain data");
        log.entries.push(Entry { pass: self.name(), changed, text, plan: Some(plan) });
        *module = fitted.module;
        Ok(Changed::from(changed))
    }
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

/// How often a plan is made anew because packing or sharing took more than the plan counted.
const TRIES: usize = 10;
/// It is then made for less memory by what was too much, and at least this.
const CLOSER: u64 = 64 << 10;
/// What each search may cost even where those before it have spent everything, so that the plan fits if it can.
const LEAST_WORK: u64 = WORK / 32;

/// Fits `module`, which must pass the verifier, into `cx.memory`.
///
/// # Errors
/// The budget cannot be met by what this pass knows.
pub fn fit(module: &Module, cx: &mut PassCx, ways: Ways) -> Result<Fitted, PassError> {
    let analyses = Analyses::new(module);
    let before = *analyses.memory();
    if before.device_bytes() <= cx.memory.get() {
        return Ok(Fitted { module: module.clone(), plan: Plan::empty(&module.name), applied: Applied::default(), memory: before });
    }
    let prices = Prices::new(module, &cx.machine);
    let pinned = before.device_bytes() - before.temp;
    let heap = cx.memory.get().saturating_sub(pinned);
    let mut model = model(&analyses, &cx.machine, &prices, Bytes(heap), cx.host_memory);
    let mut best: Option<Trial> = None;
    let mut work = WORK;
    for _ in 0..TRIES {
        let target = model.problem.device_memory.get();
        let trial = Trial::of(module, &model, ways, &mut work).map_err(broken)?;
        let excess = trial.memory.device_bytes().saturating_sub(cx.memory.get());
        let stuck = trial.planned > Bytes(target);
        if best.as_ref().is_none_or(|b| trial.memory.device_bytes() < b.memory.device_bytes()) {
            best = Some(trial);
        }
        if excess == 0 || stuck || target == 0 {
            break;
        }
        model.problem.device_memory = Bytes(target.saturating_sub(excess.max(CLOSER)));
    }
    let mut best = best.expect("there is at least one try");
    if best.memory.device_bytes() > cx.memory.get() {
        return Err(PassError::Infeasible(infeasible(&best.module, cx.memory)));
    }
    if let Some(memory) = cx.xla_memory
        && let Some(lower) = below_xla(module, &mut model, cx, ways, &best, memory, &mut work).map_err(broken)?
    {
        best = lower;
        cx.tightened = true;
    }
    let Trial { module, plan, applied, memory, .. } = best;
    Ok(Fitted { module, plan, applied, memory })
}

/// A plan below the limit of XLA's own rematerialization, where `first`, which fits the budget, is above it. XLA counts host memory like device memory
/// and shares nothing, so only computing again helps. `None` if `first` is below already, or no such plan is found: then XLA will act.
fn below_xla(
    module: &Module,
    model: &mut Model,
    cx: &PassCx,
    ways: Ways,
    first: &Trial,
    memory: Bytes,
    work: &mut u64,
) -> Result<Option<Trial>, ApplyError> {
    let above = |tracker: &RematTracker| tracker.peak.saturating_sub(tracker.limit(memory.get()));
    let mut excess = above(&RematTracker::of(&first.module));
    if excess == 0 {
        return Ok(None);
    }
    // What the model counts for a plan that nobody limits.
    model.problem.total_memory = Bytes(u64::MAX - 1);
    let mut total = found(model, ways, work).total.get();
    for _ in 0..TRIES {
        if *work == 0 {
            break;
        }
        let Some(less) = total.checked_sub(excess.max(CLOSER)) else { break };
        total = less;
        model.problem.total_memory = Bytes(total);
        let trial = Trial::of(module, model, ways, work)?;
        let over = trial.memory.device_bytes().saturating_sub(cx.memory.get());
        excess = above(&RematTracker::of(&trial.module));
        if over == 0 && excess == 0 {
            return Ok(Some(trial));
        }
        if trial.total > Bytes(total) || trial.planned > model.problem.device_memory {
            break;
        }
        if over > 0 {
            model.problem.device_memory = Bytes(model.problem.device_memory.get().saturating_sub(over.max(CLOSER)));
        }
        if excess == 0 {
            total += CLOSER;
        }
    }
    Ok(None)
}

/// Searches with what is left of the work.
fn found(model: &Model, ways: Ways, work: &mut u64) -> Found {
    let found = search_within(&model.problem, ways, (*work).max(LEAST_WORK));
    *work = work.saturating_sub(found.work);
    found
}

fn broken(error: ApplyError) -> PassError {
    PassError::Broken { message: error.to_string(), diagnostics: Vec::new() }
}

/// One plan, carried out and measured.
struct Trial {
    module: Module,
    plan: Plan,
    applied: Applied,
    memory: Memory,
    planned: Bytes,
    total: Bytes,
}

impl Trial {
    fn of(module: &Module, model: &Model, ways: Ways, work: &mut u64) -> Result<Self, ApplyError> {
        let found = found(model, ways, work);
        let plan = model.plan(module, &found.solution);
        let mut rewritten = module.clone();
        let applied = apply(&mut rewritten, &plan)?;
        dce::dce(&mut rewritten);
        let memory = *Analyses::new(&rewritten).memory();
        Ok(Self { module: rewritten, plan, applied, memory, planned: found.peak, total: found.total })
    }
}

/// Where the lowest program that was found takes its memory.
fn infeasible(module: &Module, asked: Bytes) -> Infeasible {
    let analyses = Analyses::new(module);
    let curve = analyses.curve(DEVICE);
    let (at, _) = curve.peak();
    let sequence = &analyses.schedule().sequence;
    let name = |id: InstrId| module.instr(id).name.to_string();
    let at_name = sequence.get(at).map_or_else(|| "the end".to_owned(), |&id| name(id));
    let mut needed_by: Vec<(String, Bytes)> = Vec::new();
    for (_, buffer) in analyses.buffers().iter() {
        let alive = (buffer.live.0 as usize..=buffer.live.1 as usize).contains(&at);
        if buffer.color == DEVICE && alive {
            needed_by.push((name(analyses.values().get(buffer.values[0]).instr), Bytes(buffer.bytes)));
        }
    }
    needed_by.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    needed_by.truncate(12);
    Infeasible { asked, floor: Bytes(analyses.memory().device_bytes()), at: at_name, needed_by }
}
