//! Options and the default pipeline, readable top to bottom.

mod summary;

pub use summary::{Recomputes, Side, Summary, Transfers, floor};

use serde::Serialize;

use crate::analysis::remat::RematTracker;
use crate::analysis::{Analyses, Memory};
use crate::cost::Prices;
use crate::diag::Diagnostic;
use crate::ir::Module;
use crate::machine::Machine;
use crate::pass::{HostState, Infeasible, Log, PassCx, PassError, Pipeline, run};
use crate::passes::remat_scan::{self, Expectation, Expected};
use crate::passes::{DEFAULT_PIPELINE, UNOPTIMIZED_PIPELINE, passes};
use crate::plan::Plan;
use crate::sim::simulate;
use crate::units::{Bytes, Nanos};
use crate::verify::verify;

/// What to rewrite for.
#[derive(Clone, Debug)]
pub struct RewriteOptions {
    /// The hardware.
    pub machine: Machine,
    /// Device memory that the program may take: argument + output − alias + temp.
    pub memory: Bytes,
    /// Pinned host memory that it may take; the machine's limit where nothing is said.
    pub host_memory: Option<Bytes>,
    /// Which entry parameters may move to host memory with the outputs that replace them; none where nothing is said.
    pub host_state: Option<HostState>,
    /// The steps; [`DEFAULT_PIPELINE`] where nothing is said.
    pub pipeline: Option<Pipeline>,
    /// For a program before optimization, the compiled form of the same program: its memory and times are what is planned on.
    pub truth: Option<Module>,
    /// Device memory that XLA's own rematerialization reckons with: that of the GPU the program will run on. `None` where XLA's pass is off or allowed
    /// as much as it likes.
    pub xla_memory: Option<Bytes>,
}

/// XLA's own rematerialization, and whether it acts on a program. In a scheduled module it runs after the hook through which a rewritten module enters
/// (`gpu_compiler.cc`, `RunPostSchedulingPipelines`), so it judges what we write.
#[derive(Clone, Debug, Serialize)]
pub struct XlaRemat {
    /// Device memory that it reckons with.
    pub memory: Option<Bytes>,
    /// The most that its tracker may count; host memory counts like device memory.
    pub limit: Option<Bytes>,
    /// What it counts.
    pub tracker: Bytes,
    /// The instruction at which it counts that.
    pub at: Option<String>,
    /// Whether it acts: it clones instructions as it sees fit.
    pub acts: bool,
    /// Whether the plan was made tighter so that it does not.
    pub binding: bool,
    /// The least `xla_gpu_memory_limit_slop_factor` with which it leaves the program alone (95 is what XLA sets); `None` where no factor helps.
    pub slop_factor: Option<u64>,
    /// The least device memory on which it leaves the program alone.
    pub memory_needed: Bytes,
}

impl XlaRemat {
    fn of(module: &Module, memory: Option<Bytes>, binding: bool) -> Self {
        let tracker = RematTracker::of(module);
        Self {
            memory,
            limit: memory.map(|m| Bytes(tracker.limit(m.get()))),
            tracker: Bytes(tracker.peak),
            at: tracker.at.map(|id| module.instr(id).name.to_string()),
            acts: memory.is_some_and(|m| !tracker.left_alone(m.get())),
            binding,
            slop_factor: memory.and_then(|m| tracker.slop_needed(m.get())),
            memory_needed: Bytes(tracker.memory_needed()),
        }
    }
}

/// A program's figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Bytes as XLA counts them.
    pub memory: Memory,
    /// Predicted time of the step.
    pub step: Nanos,
    /// Of it, time in which the compute stream waits for copies.
    pub copy_wait: Nanos,
    /// Bytes to the host.
    pub to_host: Bytes,
    /// Bytes from the host.
    pub from_host: Bytes,
}

impl Figures {
    /// Measures a program.
    pub fn of(module: &Module, machine: &Machine) -> Self {
        let timeline = simulate(module, machine, &Prices::new(module, machine));
        Self {
            memory: *Analyses::new(module).memory(),
            step: timeline.step,
            copy_wait: timeline.copy_wait,
            to_host: timeline.to_host,
            from_host: timeline.from_host,
        }
    }
    /// What is expected of a program that XLA has still to compile, before and after.
    fn expected(expected: &Expected) -> (Self, Self) {
        let side = |device: u64, host: u64, step| Self {
            memory: Memory {
                argument: expected.argument,
                host_temp: host,
                temp: device.saturating_sub(expected.argument),
                peak: device,
                ..Memory::default()
            },
            step,
            copy_wait: Nanos::ZERO,
            to_host: Bytes(host),
            from_host: Bytes(host),
        };
        (side(expected.device_before, 0, expected.step_before), side(expected.device_after, expected.host_after, expected.step_after))
    }
    /// Device bytes: argument + output − alias + temp.
    pub fn device(&self) -> Bytes {
        Bytes(self.memory.device_bytes())
    }
}

/// A program that was rewritten.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The program; the input, if it fitted as it was.
    pub module: Module,
    /// What was decided.
    pub plan: Plan,
    /// The input's figures.
    pub before: Figures,
    /// The result's figures.
    pub after: Figures,
    /// What XLA's own rematerialization will make of it.
    pub xla: XlaRemat,
    /// What the passes tell.
    pub log: Log,
}

/// Why there is no result.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// The input is not well formed.
    Input(Vec<Diagnostic>),
    /// The pipeline's text is wrong.
    Usage(String),
    /// The budget cannot be met.
    Infeasible(Infeasible),
    /// A promise of ours is broken.
    Internal {
        /// The pass that broke it.
        pass: String,
        /// What happened.
        message: String,
        /// What the verifier says.
        diagnostics: Vec<Diagnostic>,
    },
}

/// Passes that work on a program without a schedule.
const UNSCHEDULED: &[&str] = &["remat-scan", "dce"];

/// A compiled form must be well formed and scheduled.
fn truth_is_usable(truth: &Module) -> Result<(), Trouble> {
    let errors: Vec<Diagnostic> = verify(truth).into_iter().filter(Diagnostic::is_error).collect();
    match errors.first() {
        None if truth.is_scheduled => Ok(()),
        None => Err(Trouble::Usage(format!("the compiled form `{}` has no schedule", truth.name))),
        Some(error) => {
            Err(Trouble::Usage(format!("the compiled form `{}` is not well formed: {}: {}", truth.name, error.code, error.message)))
        }
    }
}

/// Rewrites a program so that it fits. The same program and options give the same result, byte for byte.
///
/// # Errors
/// See [`Trouble`]; the input is never changed.
pub fn rewrite(module: &Module, options: &RewriteOptions) -> Result<Rewritten, Trouble> {
    let pipeline = match &options.pipeline {
        Some(pipeline) => pipeline.clone(),
        None if module.is_scheduled => DEFAULT_PIPELINE.parse().expect("the default pipeline is well formed"),
        None => UNOPTIMIZED_PIPELINE.parse().expect("the default pipeline is well formed"),
    };
    let passes = passes(&pipeline).map_err(|e| Trouble::Usage(e.to_string()))?;
    let errors: Vec<Diagnostic> = verify(module).into_iter().filter(Diagnostic::is_error).collect();
    if !errors.is_empty() {
        return Err(Trouble::Input(errors));
    }
    let suits =
        module.is_scheduled || pipeline.stages.iter().all(|s| UNSCHEDULED.contains(&s.name.as_str())) && remat_scan::applies(module);
    if !suits {
        let text = format!(
            "expected a scheduled module, found `{}` without `is_scheduled=true` and without a scan and its backward scan",
            module.name
        );
        let remedy = "give the module as XLA compiled it; `offc explain R01` says where to find it";
        return Err(Trouble::Input(vec![Diagnostic::error("R01", text).note(remedy)]));
    }
    if let Some(truth) = &options.truth {
        truth_is_usable(truth)?;
    }
    let host_memory = options.host_memory.unwrap_or(options.machine.host.pinned);
    let (machine, xla_memory) = (options.machine.clone(), options.xla_memory);
    let truth = options.truth.clone().map(Box::new);
    let host_state = options.host_state.clone();
    let mut cx = PassCx { machine, memory: options.memory, host_memory, host_state, truth, xla_memory, tightened: false };
    let mut rewritten = module.clone();
    let log = run(&passes, &mut rewritten, &mut cx).map_err(|stopped| match stopped.error {
        PassError::Infeasible(infeasible) => Trouble::Infeasible(infeasible),
        PassError::Broken { message, diagnostics } => Trouble::Internal { pass: stopped.pass.to_owned(), message, diagnostics },
    })?;
    let plan = log.entries.iter().rev().find_map(|e| e.plan.clone()).and_then(|p| serde_json::from_value(p).ok());
    let plan = plan.unwrap_or_else(|| Plan::empty(&module.name));
    let expected = log.entries.iter().rev().find_map(|e| serde_json::from_value::<Expectation>(e.plan.clone()?).ok());
    let (before, after) = match expected {
        Some(Expectation { expected, .. }) => Figures::expected(&expected),
        None => (Figures::of(module, &options.machine), Figures::of(&rewritten, &options.machine)),
    };
    let xla = XlaRemat::of(&rewritten, options.xla_memory.filter(|_| module.is_scheduled), cx.tightened);
    Ok(Rewritten { module: rewritten, plan, before, after, xla, log })
}
