//! The steps of a rewrite, by name.

pub mod dce;
pub mod fit;
pub mod recompute_stack;
pub mod remat_scan;
pub mod sink_update;
pub mod trim_outputs;

use crate::analysis::loops::Loop;
use crate::pass::{Pass, Pipeline, PipelineError, Stage};
use crate::rewrite::LoopHandle;

/// The pipeline that runs where the user names none.
pub const DEFAULT_PIPELINE: &str = "sink-update,fit,dce";

/// The pipeline that runs on a program without a schedule.
pub const UNOPTIMIZED_PIPELINE: &str = "remat-scan,dce";

/// Names and one-line descriptions of all passes.
pub const PASSES: &[(&str, &str)] = &[
    ("fit", "offload and recompute values until the program fits the budget; options offload=BOOL, recompute=BOOL"),
    ("recompute-stack", "drop what a loop saves for a later loop, and make it again there"),
    (
        "remat-scan",
        "before optimization: drop what a scan saves for its backward scan, and make it again there; options keep=NAME+NAME, barrier=BOOL",
    ),
    ("trim-outputs", "take outputs that nobody reads out of multi-output fusions"),
    ("sink-update", "move optimizer updates into the loop that makes their gradient"),
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
                let flag = value.parse().map_err(|_| PipelineError(format!("expected `true` or `false` for `{key}`, found `{value}`")));
                match key.as_str() {
                    "offload" => fit.ways.offload = flag?,
                    "recompute" => fit.ways.recompute = flag?,
                    _ => return Err(unknown(key)),
                }
            }
            Ok(Box::new(fit))
        }
        "recompute-stack" => match stage.options.first() {
            Some((key, _)) => Err(unknown(key)),
            None => Ok(Box::new(recompute_stack::RecomputeStack)),
        },
        "remat-scan" => {
            let mut remat = remat_scan::RematScan::default();
            for (key, value) in &stage.options {
                match key.as_str() {
                    "keep" => remat.keep = Some(value.split('+').filter(|v| !v.is_empty()).map(str::to_owned).collect()),
                    "barrier" => {
                        let bad = |_| PipelineError(format!("expected `true` or `false` for `{key}`, found `{value}`"));
                        remat.barrier = value.parse().map_err(bad)?;
                    }
                    _ => return Err(unknown(key)),
                }
            }
            Ok(Box::new(remat))
        }
        "trim-outputs" => match stage.options.first() {
            Some((key, _)) => Err(unknown(key)),
            None => Ok(Box::new(trim_outputs::TrimOutputs)),
        },
        "sink-update" => match stage.options.first() {
            Some((key, _)) => Err(unknown(key)),
            None => Ok(Box::new(sink_update::SinkUpdate)),
        },
        "dce" => match stage.options.first() {
            Some((key, _)) => Err(unknown(key)),
            None => Ok(Box::new(dce::Dce)),
        },
        name => {
            let known: Vec<&str> = PASSES.iter().map(|p| p.0).collect();
            Err(PipelineError(format!("there is no pass `{name}`; there are {}", known.join(", "))))
        }
    }
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
