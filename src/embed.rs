//! The door for hosts that are not Rust: bytes and JSON in, bytes and JSON out. The C interface and the Python package are made of it.
//!
//! ```
//! use offc::embed::{Code, rewrite};
//!
//! let failed = rewrite(b"HloModule", r#"{"device": "h100-sxm", "memory": "24GiB"}"#).unwrap_err();
//! assert_eq!(failed.code, Code::Input);
//! ```

mod look;
mod options;

pub use look::{peak, peak_report, trace};
pub use options::{OPTIONS_HELP, Options};

use crate::diag::Diagnostic;
use crate::driver::{self, RewriteOptions, Summary, Trouble, floor};
use crate::format::{self, Form};
use crate::ir::Module;
use crate::pass::{Infeasible, Pipeline};
use crate::passes::passes;
use crate::passes::remat_scan::saved;
use crate::units::Bytes;

/// What became of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// The rewritten module, in the form in which it came; `None` if nothing was changed.
    pub module: Option<Vec<u8>>,
    /// [`Summary`] as JSON, with the added keys `fits` (the budget is met) and `asked` (the budget of the options in bytes; `budget`
    /// is what was planned for in the end).
    pub report: String,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whose trouble it is.
    pub code: Code,
    /// One or more lines for a person.
    pub message: String,
}

/// Whose trouble a failure is; the numbers are the command line's exit statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// The budget cannot be met; the message names the floor and what holds it.
    Infeasible = 1,
    /// The options are wrong.
    Options = 2,
    /// The module is not well formed.
    Input = 3,
    /// A promise of ours is broken.
    Internal = 4,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

fn failure(code: Code, message: impl Into<String>) -> Failure {
    Failure { code, message: message.into() }
}

fn told(diagnostics: &[Diagnostic]) -> String {
    let lines: Vec<String> = diagnostics.iter().filter(|d| d.is_error()).take(5).map(|d| format!("{}: {}", d.code, d.message)).collect();
    lines.join("\n")
}

fn read(module: &[u8]) -> Result<format::Input, Failure> {
    format::read(module).map_err(|unreadable| failure(Code::Input, told(&unreadable.diagnostics)))
}

/// Rewrites a module, text or proto, as the options say ([`OPTIONS_HELP`]). The same input and options give the same bytes.
///
/// # Errors
/// See [`Code`]. With `best_effort` a budget below the floor is no error: the lowest peak that is found is planned for instead.
pub fn rewrite(module: &[u8], options: &str) -> Result<Embedded, Failure> {
    rewrite_with(module, None, options)
}

/// [`rewrite`] of a module before optimization, planned on `truth`: the same module as XLA compiled it, scheduled. The report of a module before
/// optimization has the added key `saved`: what its loops save for each other afterwards ([`crate::passes::remat_scan::Saved`]).
///
/// # Errors
/// As [`rewrite`]; [`Code::Options`] where `truth` is not well formed.
pub fn rewrite_with(module: &[u8], truth: Option<&[u8]>, options: &str) -> Result<Embedded, Failure> {
    let options = Options::from_json(options).map_err(|m| failure(Code::Options, m))?;
    let machine = options.machine().map_err(|m| failure(Code::Options, m))?;
    let pipeline = options.passes.as_deref().map(str::parse::<Pipeline>).transpose();
    let pipeline = pipeline.map_err(|e| failure(Code::Options, format!("passes: {e}")))?;
    if let Some(pipeline) = &pipeline {
        passes(pipeline).map_err(|e| failure(Code::Options, format!("passes: {e}")))?;
    }
    let input = read(module)?;
    let truth = truth.map(read).transpose().map_err(|f| failure(Code::Options, format!("the compiled form: {}", f.message)))?;
    let truth = truth.map(|t| t.module);
    let xla_memory = options.xla_limit.then_some(machine.memory);
    let host_memory = options.host_memory.map(|b| b.0);
    let wanted = RewriteOptions { machine, memory: options.memory.0, host_memory, host_state: None, truth, pipeline, xla_memory };
    let (done, wanted) = fit(&input.module, wanted, options.best_effort)?;
    let changed = done.log.entries.iter().any(|e| e.changed);
    let lowest = if options.floor { floor(&input.module, &wanted, &done) } else { None };
    let mut summary = Summary::of(&wanted, &done, lowest);
    if wanted.memory != options.memory.0 {
        summary.floor = Some(summary.after.device);
    }
    let report = report(&summary, options.memory.0, &done.module)?;
    let module = changed.then(|| write(&done.module, &input.form)).transpose()?;
    Ok(Embedded { module, report })
}

/// How often a budget is raised to the floor that was found, which the next search may not find again.
const RAISES: usize = 6;

fn fit(module: &Module, wanted: RewriteOptions, best_effort: bool) -> Result<(driver::Rewritten, RewriteOptions), Failure> {
    let raises = if best_effort { RAISES } else { 0 };
    raised(module, wanted, raises)
}

fn raised(module: &Module, wanted: RewriteOptions, raises: usize) -> Result<(driver::Rewritten, RewriteOptions), Failure> {
    let trouble = match driver::rewrite(module, &wanted) {
        Ok(done) => return Ok((done, wanted)),
        Err(trouble) => trouble,
    };
    match trouble {
        Trouble::Infeasible(Infeasible { floor, .. }) if raises > 0 && floor > wanted.memory => {
            raised(module, RewriteOptions { memory: floor, ..wanted }, raises - 1)
        }
        Trouble::Infeasible(infeasible) => Err(failure(Code::Infeasible, infeasible.to_string())),
        Trouble::Usage(message) => Err(failure(Code::Options, message)),
        Trouble::Input(diagnostics) => Err(failure(Code::Input, told(&diagnostics))),
        Trouble::Internal { pass, message, diagnostics } => {
            Err(failure(Code::Internal, format!("pass `{pass}`: {message}\n{}", told(&diagnostics))))
        }
    }
}

fn broken(e: serde_json::Error) -> Failure {
    failure(Code::Internal, format!("a report does not become JSON: {e}"))
}

fn report(summary: &Summary<'_>, asked: Bytes, module: &Module) -> Result<String, Failure> {
    let mut value = serde_json::to_value(summary).map_err(broken)?;
    value["asked"] = asked.get().into();
    value["fits"] = (summary.after.device <= asked).into();
    if !module.is_scheduled {
        value["saved"] = serde_json::to_value(saved(module)).map_err(broken)?;
    }
    serde_json::to_string(&value).map_err(broken)
}

fn write(module: &Module, form: &Form) -> Result<Vec<u8>, Failure> {
    format::write(module, form).map_err(|d| failure(Code::Internal, told(&d)))
}
