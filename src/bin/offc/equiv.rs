//! `offc equiv`: do two modules compute the same, bit for bit.

use std::path::PathBuf;

use offc::interp::{Array, Outcome, Trace};
use offc::ir::Module;

use crate::outcome::{Failure, tell};
use crate::run::{evaluate, load_planned, outputs};
use crate::terminal::{Progress, Style};
use crate::values::{Source, inputs};

/// Arguments of `offc equiv`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status 1 if an output differs in any bit; then the first difference is told, and the earliest instruction (of those \
that both modules have) whose value differs.\n\nExample:\n  offc equiv step.hlo rewritten.hlo --seed 7"
)]
pub struct Args {
    /// The module to compare with
    #[arg(value_name = "ORIGINAL")]
    original: PathBuf,
    /// The module to judge
    #[arg(value_name = "REWRITTEN")]
    rewritten: PathBuf,
    #[command(flatten)]
    source: Source,
    /// Run so many partitions at once, in step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    partitions: u16,
}

/// Runs the command.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    let original = load_planned(&args.original, style)?;
    let rewritten = load_planned(&args.rewritten, style)?;
    let inputs = inputs(&args.source, &original.module, args.partitions.into())?;
    let both = |trace: bool, what: &str| -> Result<[Vec<Outcome>; 2], Failure> {
        let _progress = Progress::start(what);
        Ok([evaluate(&original, &inputs, trace, style)?, evaluate(&rewritten, &inputs, trace, style)?])
    };
    let [expected, found] = both(false, "running both modules")?;
    let list = |module: &Module, mut outcomes: Vec<Outcome>| outputs(module, &inputs, &mut outcomes);
    let (expected, found) = (list(&original.module, expected), list(&rewritten.module, found));
    let Some(difference) = difference(&expected, &found) else {
        let elements: usize = expected.iter().map(Array::len).sum();
        return crate::files::print(format!("equal: {} outputs, {elements} elements\n", expected.len()).as_bytes());
    };
    tell(&format!("{}: {difference}\n", style.error("error")));
    let traces = both(true, "looking for the first difference")?;
    let parting = |(a, b): (&Outcome, &Outcome)| -> Option<String> {
        let (a, b): (&Trace, &Trace) = (a.trace.as_ref()?, b.trace.as_ref()?);
        let (name, run) = a.parts_from(b)?;
        let run = if run == 0 { String::new() } else { format!(" (run {} of it)", run + 1) };
        Some(format!("the earliest instruction whose value differs is `{name}`{run}\n"))
    };
    tell(&traces[0].iter().zip(&traces[1]).find_map(parting).unwrap_or_else(|| {
        "every instruction that both modules have computes the same; what only the rewritten one has does not\n".to_string()
    }));
    Err(Failure::Different)
}

/// The first element in which two lists of arrays differ.
fn difference(expected: &[Array], found: &[Array]) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("expected {} outputs, found {}", expected.len(), found.len()));
    }
    let (i, (a, b)) = expected.iter().zip(found).enumerate().find(|(_, (a, b))| a != b)?;
    if a.element != b.element || a.dims != b.dims {
        return Some(format!("out{i}: expected {}{:?}, found {}{:?}", a.element.name(), a.dims, b.element.name(), b.dims));
    }
    let count = (0..a.len()).filter(|&k| a.element_bytes(k) != b.element_bytes(k)).count();
    let (at, index) = offc::interp::array::indices(&a.dims).enumerate().find(|(k, _)| a.element_bytes(*k) != b.element_bytes(*k))?;
    let value = |array: &Array| {
        let bits: String = array.element_bytes(at).iter().rev().map(|b| format!("{b:02x}")).collect();
        match array.element {
            p if p.is_integer() => format!("{} (bits 0x{bits})", array.i64(at)),
            p if p.is_complex() => format!("{:?} (bits 0x{bits})", array.complex(at)),
            _ => format!("{} (bits 0x{bits})", array.f64(at)),
        }
    };
    Some(format!("out{i} differs first at {index:?}: expected {}, found {}; {count} of {} elements differ", value(a), value(b), a.len()))
}
