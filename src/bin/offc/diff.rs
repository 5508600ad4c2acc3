//! `offc diff`: two modules side by side.

use std::path::{Path, PathBuf};

use offc::analysis::Analyses;
use offc::analysis::settle::settle;
use offc::cost::Prices;
use offc::ir::Module;
use offc::machine::Machine;
use offc::report::{DiffInput, DiffReport, PeakReport};
use offc::sim::simulate;
use offc::verify::same_collectives;

use crate::device::MachineArgs;
use crate::files;
use crate::input::load_verified;
use crate::outcome::Failure;
use crate::terminal::{Progress, Style};

/// Arguments of `offc diff`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Compares memory as XLA counts it, what is alive at the peaks, transfers over the link (each as often as its loops run), \
instructions, and the collectives: these must be equal, and if they are not the exit status is 1. Either file may be text or a proto.\n\n\
Examples:\n  offc diff step.pb rewritten.pb\n  offc diff step.hlo rewritten.pb --json | jq .after.temp"
)]
pub struct Args {
    /// The module before
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The module after
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Show that many buffers and opcodes; 0 means all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// The machine whose clock predicts the steps
    #[arg(long, value_name = "NAME|SPEC.txtpb", default_value = "h100-sxm")]
    device: String,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print JSON: sizes in bytes, times in microseconds, everything
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    let machine = args.machine.machine(&args.device)?;
    let load = |path: &Path| load_verified(path, style);
    let (before, after) = (load(&args.before)?.module, load(&args.after)?.module);
    let progress = Progress::start("assigning buffers");
    let difference = same_collectives(&before, &after).into_iter().next();
    let difference = difference.map(|d| d.notes.iter().fold(d.message, |all, note| format!("{all}; {note}")));
    let (peak_before, step_before) = peak(&before, &machine);
    let (peak_after, step_after) = peak(&after, &machine);
    let input = |module, peak, step_us| DiffInput { module, peak, step_us };
    let (a, b) = (input(&before, &peak_before, step_before), input(&after, &peak_after, step_after));
    let report = DiffReport::of(a, b, difference);
    drop(progress);
    if args.json { files::print_json(&report) } else { files::print(report.text(args.top).as_bytes()) }?;
    if report.collectives.equal { Ok(()) } else { Err(Failure::Different) }
}

fn peak(module: &Module, machine: &Machine) -> (PeakReport, f64) {
    let settled = settle(module);
    let module = settled.as_ref().unwrap_or(module);
    let analyses = Analyses::new(module);
    let timeline = simulate(module, machine, &Prices::new(module, machine));
    (PeakReport::of(&analyses, &timeline, None), timeline.step.micros())
}
