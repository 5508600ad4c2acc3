//! Runs steps in order and distrusts them.
//!
//! After every pass the program is checked again: a pass that says "unchanged" must have changed nothing (a fingerprint tells), what it
//! leaves must pass the verifier, and the collectives must be the ones that were there. A broken promise is our mistake, and
//! comes with the pass's name.

mod fingerprint;
mod pipeline;

pub use fingerprint::fingerprint;
pub use pipeline::{Pipeline, PipelineError, Stage};

use crate::diag::Diagnostic;
use crate::ir::Module;
use crate::machine::Machine;
use crate::units::Bytes;

/// Whether a pass changed the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It did.
    Yes,
    /// It did not.
    No,
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Self {
        if changed { Self::Yes } else { Self::No }
    }
}

/// What passes work against.
#[derive(Clone, Debug)]
pub struct PassCx {
    /// The hardware.
    pub machine: Machine,
    /// Device memory that the program may take: argument + output − alias + temp.
    pub memory: Bytes,
    /// Pinned host memory that it may take.
    pub host_memory: Bytes,
    /// For a program before optimization, the compiled form of the same program.
    pub truth: Option<Box<Module>>,
    /// Which entry parameters may move to host memory, with the outputs that replace them; `None` leaves the signature alone.
    pub host_state: Option<HostState>,
    /// Device memory that XLA's own rematerialization reckons with: what is planned stays below its limit where that is possible. `None` where XLA's
    /// pass does not run.
    pub xla_memory: Option<Bytes>,
    /// Whether a plan was made tighter for it.
    pub tightened: bool,
}

/// Which entry parameters may move to host memory.
#[derive(Clone, Debug)]
pub enum HostState {
    /// Any that only an update reads.
    Auto,
    /// Of these, those whose name (or framework's name) the pattern finds.
    Matching(regex_lite::Regex),
}

impl std::str::FromStr for HostState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => regex_lite::Regex::new(text).map(Self::Matching).map_err(|e| format!("expected `auto` or a regular expression: {e}")),
        }
    }
}

/// Why a pass stops the pipeline.
#[derive(Clone, Debug)]
pub enum PassError {
    /// The budget cannot be met; nobody's fault.
    Infeasible(Infeasible),
    /// A promise of ours is broken.
    Broken {
        /// What happened.
        message: String,
        /// What the verifier says of the program.
        diagnostics: Vec<Diagnostic>,
    },
}

/// The lowest peak that was found, and what holds it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Infeasible {
    /// What was asked for.
    pub asked: Bytes,
    /// The lowest device bytes that were reached.
    pub floor: Bytes,
    /// The instruction at which they are taken.
    pub at: String,
    /// The largest buffers that are alive there: name and bytes.
    pub needed_by: Vec<(String, Bytes)>,
}

impl std::fmt::Display for Infeasible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot fit in {}: the lowest peak found is {} ({} bytes), at `{}`", self.asked, self.floor, self.floor.get(), self.at)?;
        for (name, bytes) in &self.needed_by {
            write!(f, "\n  {:>12}  {name}", bytes.to_string())?;
        }
        Ok(())
    }
}

/// One step. It has no state of its own.
pub trait Pass {
    /// Its name in a pipeline, a verb in kebab-case.
    fn name(&self) -> &'static str;
    /// Changes the program.
    ///
    /// # Errors
    /// The budget cannot be met, or the pass noticed a mistake of its own.
    fn run(&self, module: &mut Module, cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError>;
}

/// What passes have to tell.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Entries in the order in which they came.
    pub entries: Vec<Entry>,
}

/// One thing that a pass tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The pass.
    pub pass: &'static str,
    /// Whether it changed the program.
    pub changed: bool,
    /// What it did, in a sentence.
    pub text: String,
    /// The plan that it carried out, as JSON, if it had one.
    pub plan: Option<serde_json::Value>,
}

/// A pipeline that stopped.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// At which pass.
    pub pass: &'static str,
    /// Why.
    pub error: PassError,
}

/// Runs passes in order. On an error `module` is as the last good pass left it.
///
/// # Errors
/// See [`PassError`].
pub fn run(passes: &[Box<dyn Pass>], module: &mut Module, cx: &mut PassCx) -> Result<Log, Stopped> {
    let mut log = Log::default();
    for pass in passes {
        let stopped = |error| Stopped { pass: pass.name(), error };
        let before = fingerprint(module);
        let mut next = module.clone();
        let changed = pass.run(&mut next, cx, &mut log).map_err(stopped)?;
        if (changed == Changed::Yes) != (fingerprint(&next) != before) {
            let message =
                format!("pass `{}` says {changed:?} to the question whether it changed the program, and that is not so", pass.name());
            return Err(stopped(PassError::Broken { message, diagnostics: Vec::new() }));
        }
        if changed == Changed::Yes {
            distrust(pass.name(), module, &next).map_err(stopped)?;
            *module = next;
        }
    }
    Ok(log)
}

/// Checks what a pass has left against what it was given.
fn distrust(pass: &str, before: &Module, after: &Module) -> Result<(), PassError> {
    let mut diagnostics = crate::verify::verify(after);
    diagnostics.extend(crate::verify::same_collectives(before, after));
    diagnostics.retain(Diagnostic::is_error);
    if diagnostics.is_empty() {
        return Ok(());
    }
    Err(PassError::Broken { message: format!("pass `{pass}` left a program that is not well formed"), diagnostics })
}
