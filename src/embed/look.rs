//! Looking at a module without changing it.

use super::{Code, Failure, Options, broken, failure, read, told};
use crate::analysis::Analyses;
use crate::cost::Prices;
use crate::diag::Diagnostic;
use crate::ir::Module;
use crate::report::{self, PeakReport};
use crate::sim::{Timeline, simulate};

/// The memory figures of a module, text or proto: JSON of [`crate::analysis::Memory`] with the added key `device`.
///
/// # Errors
/// The module is not well formed.
pub fn peak(module: &[u8]) -> Result<String, Failure> {
    let module = verified(module)?;
    let memory = *Analyses::new(&module).memory();
    let mut value = serde_json::to_value(memory).map_err(broken)?;
    value["device"] = memory.device_bytes().into();
    serde_json::to_string(&value).map_err(broken)
}

/// What is alive at the peak and why: JSON of [`PeakReport`], the form of `offc peak --json`. Of the options the machine counts.
///
/// # Errors
/// The module is not well formed, or the options are wrong.
pub fn peak_report(module: &[u8], options: &str) -> Result<String, Failure> {
    let (module, timeline) = played(module, options)?;
    serde_json::to_string(&PeakReport::of(&Analyses::new(&module), &timeline, None)).map_err(broken)
}

/// What happens when, as a trace in Chrome's JSON form, which Perfetto opens. Of the options the machine counts.
///
/// # Errors
/// As [`peak_report`].
pub fn trace(module: &[u8], options: &str) -> Result<String, Failure> {
    let (module, timeline) = played(module, options)?;
    Ok(report::trace(&timeline, &Analyses::new(&module)).collect())
}

fn verified(module: &[u8]) -> Result<Module, Failure> {
    let module = read(module)?.module;
    let errors = crate::verify::verify(&module);
    if errors.iter().any(Diagnostic::is_error) {
        return Err(failure(Code::Input, told(&errors)));
    }
    Ok(module)
}

fn played(module: &[u8], options: &str) -> Result<(Module, Timeline), Failure> {
    let machine = Options::from_json(options).and_then(|o| o.machine()).map_err(|m| failure(Code::Options, m))?;
    let module = verified(module)?;
    let timeline = simulate(&module, &machine, &Prices::new(&module, &machine));
    Ok((module, timeline))
}
