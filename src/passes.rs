//! The steps of a rewrite, by name.

pub mod dce;
pub mod drop_carried;
pub mod fit;
mod flow;
pub mod fuse_again;
mod inline;
pub mod joint;
pub mod pipeline_rows;
pub mod recompute_stack;
pub mod remat_scan;
pub mod reschedule;
mod row_kernels;
pub mod sink_invariant;
pub mod sink_update;
pub mod slice_invariant;
mod stacks;
mod stream_state;
pub mod trim_outputs;

use rustc_hash::FxHashSet;

use crate::analysis::loops::Loop;
use crate::ir::{InstrId, Module};
use crate::pass::{Pass, Pipeline, PipelineError, Stage};
use crate::rewrite::LoopHandle;

/// The pipeline that runs where the user names none.
pub const DEFAULT_PIPELINE: &str = "loops,fit,dce";

/// The pipeline that runs on a program without a schedule.
pub const UNOPTIMIZED_PIPELINE: &str = "remat-scan,dce";

/// Names and one-line descriptions of all passes.
pub const PASSES: &[(&str, &str)] = &[
    ("fit", "offload and recompute values until the program fits the budget; options offload=BOOL, recompute=BOOL"),
    ("loops", "choose among the passes for loops below until the program fits"),
    ("offload-stack", "move what a loop saves for a later loop to the host, row by row"),
    ("recompute-stack", "drop what a loop saves for a later loop, and make it again there"),
    (
        "remat-scan",
        "before optimization: drop what a scan saves for its backward scan, and make it again there; options keep=NAME+NAME, host=NAME+NAME, barrier=BOOL",
    ),
    ("trim-outputs", "take outputs that nobody reads out of multi-output fusions"),
    ("sink-update", "move optimizer updates into the loop that makes their gradient"),
    ("pipeline-rows", "move transfers of rows between host and loop to neighbouring iterations where the link is free"),
    ("reschedule", "bring late readers of large values before the loops that they wait behind"),
    ("slice-invariant", "take rows out of parameters instead of out of transposed copies"),
    ("sink-invariant", "make masks and other constants where loops read them"),
    ("fuse-again", "move new and cloned elementwise fusions into their readers"),
    ("drop-carried", "take out of loops what they carry for nobody"),
    ("dce", "remove what nobody reads"),
];

/// The passes that a pipeline names.
///
/// # Errors
/// A name or an option that no pass has.
pub fn passes(pipeline: &Pipeline) -> Result<Vec<Box<dyn Pass>>, PipelineError> {
    pipeline.stages.iter().map(pass).collect()
}

fn pass(stage: &Stage) -> Result<Box<dyn Pass>, PipelineError> {
    let unknown = |what: &str| PipelineError(format!("pass `{}` has no option `{what}`", stage.name));
    match stage.name.as_str() {
        "fit" => {
            let mut fit = fit::Fit::default();
            for (key, value) in &stage.options {
                match key.as_str() {
                    "offload" => fit.ways.offload = flag(key, value)?,
                    "recompute" => fit.ways.recompute = flag(key, value)?,
                    _ => return Err(unknown(key)),
                }
            }
            Ok(Box::new(fit))
        }
        "recompute-stack" | "offload-stack" => {
            let recompute = stage.name == "recompute-stack";
            let mut pass = recompute_stack::RecomputeStack { recompute, offload: !recompute };
            for (key, value) in &stage.options {
                match key.as_str() {
                    "offload" if recompute => pass.offload = flag(key, value)?,
                    _ => return Err(unknown(key)),
                }
            }
            Ok(Box::new(pass))
        }
        "remat-scan" => {
            let mut remat = remat_scan::RematScan::default();
            for (key, value) in &stage.options {
                match key.as_str() {
                    "keep" => remat.keep = Some(names(value)),
                    "host" => {
                        remat.host = names(value);
                        remat.keep.get_or_insert_default();
                    }
                    "barrier" => remat.barrier = flag(key, value)?,
                    _ => return Err(unknown(key)),
                }
            }
            Ok(Box::new(remat))
        }
        name if let Some(pass) = plain(name) => match stage.options.first() {
            Some((key, _)) => Err(unknown(key)),
            None => Ok(pass),
        },
        name => {
            let known: Vec<&str> = PASSES.iter().map(|p| p.0).collect();
            Err(PipelineError(format!("there is no pass `{name}`; there are {}", known.join(", "))))
        }
    }
}

/// A yes or no in an option.
fn flag(key: &str, value: &str) -> Result<bool, PipelineError> {
    value.parse().map_err(|_| PipelineError(format!("expected `true` or `false` for `{key}`, found `{value}`")))
}

/// A list of names in an option.
fn names(value: &str) -> Vec<String> {
    value.split('+').filter(|v| !v.is_empty()).map(str::to_owned).collect()
}

/// A pass without options.
fn plain(name: &str) -> Option<Box<dyn Pass>> {
    match name {
        "loops" => Some(Box::new(joint::LoopMemory)),
        "trim-outputs" => Some(Box::new(trim_outputs::TrimOutputs)),
        "sink-update" => Some(Box::new(sink_update::SinkUpdate)),
        "pipeline-rows" => Some(Box::new(pipeline_rows::PipelineRows)),
        "reschedule" => Some(Box::new(reschedule::Reschedule)),
        "slice-invariant" => Some(Box::new(slice_invariant::SliceInvariant)),
        "sink-invariant" => Some(Box::new(sink_invariant::SinkInvariant)),
        "fuse-again" => Some(Box::new(fuse_again::FuseAgain)),
        "drop-carried" => Some(Box::new(drop_carried::DropCarried)),
        "dce" => Some(Box::new(dce::Dce)),
        _ => None,
    }
}

/// Everything that a value is made of within its computation, and itself.
fn closure(module: &Module, value: InstrId) -> FxHashSet<InstrId> {
    let mut needed = FxHashSet::default();
    let mut stack = vec![value];
    while let Some(id) = stack.pop() {
        if needed.insert(id) {
            stack.extend_from_slice(&module.instr(id).operands);
        }
    }
    needed
}

/// What `rewrite` needs to know of a loop that `analysis` has read.
fn loop_handle(this: &Loop) -> LoopHandle {
    LoopHandle {
        instr: this.instr,
        home: this.home,
        body: this.body,
        condition: this.condition,
        init: this.init,
        parameter: this.parameter,
        root: this.root,
    }
}
