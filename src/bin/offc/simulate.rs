//! `offc simulate`: what a step takes on a machine, and where its time goes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use offc::analysis::Analyses;
use offc::cost::Prices;
use offc::machine::PINNED_VARIABLE;
use offc::report::{SimReport, trace};
use offc::sim::{Options, simulate_with};

use crate::device::MachineArgs;
use crate::files::{self, Pending};
use crate::input::load_verified;
use crate::outcome::Failure;
use crate::terminal::{Progress, Style};

/// Arguments of `offc simulate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  offc simulate step.pb --device h100-sxm\n  offc simulate step.pb --link-h2d 40GB/s --link-d2h 40GB/s \
--json | jq .step_us\n  offc simulate step.pb --trace step.json    # open it at ui.perfetto.dev"
)]
pub struct Args {
    /// The module; `-` is standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The machine: a name, or a file with an XLA device description
    #[arg(long, value_name = "NAME|SPEC.txtpb", default_value = "h100-sxm")]
    device: String,
    #[command(flatten)]
    machine: MachineArgs,
    /// How often a loop runs, where nothing tells
    #[arg(long, value_name = "LOOP=N", value_parser = trip_count)]
    trips: Vec<(String, u64)>,
    /// Let what moves at the same time share rates: both ways of the link, host memory, device memory with kernels
    #[arg(long)]
    contention: bool,
    /// Write what happens as a trace for Perfetto
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Print JSON: all instructions
    #[arg(long)]
    json: bool,
}

fn trip_count(text: &str) -> Result<(String, u64), String> {
    let split = text.rsplit_once('=').and_then(|(name, n)| Some((name.trim_start_matches('%').to_string(), n.parse().ok()?)));
    split.ok_or_else(|| "expected `LOOP=N`, the name of a while and a number".to_string())
}

/// Runs the command.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    let machine = args.machine.machine(&args.device)?;
    let loaded = load_verified(&args.input, style)?;
    let module = &loaded.module;
    let options = Options { contention: args.contention, trips: args.trips.iter().cloned().collect::<BTreeMap<_, _>>() };
    if let Some(name) = options.trips.keys().find(|name| !module.live().any(|(_, id)| *module.instr(id).name == ***name)) {
        return Err(Failure::Usage(format!("`--trips` names the loop `{name}`, which the module does not have")));
    }
    let progress = Progress::start("simulating");
    let timeline = simulate_with(module, &machine, &Prices::new(module, &machine), &options);
    let analyses = Analyses::new(module);
    let host = (analyses.memory().host_bytes(), machine.host.pinned.get(), host_limit(args));
    let calibration = Some(machine.calibration.name.as_str()).filter(|name| !name.is_empty());
    let report = SimReport::of(module, &timeline, &machine.name, calibration, host);
    drop(progress);
    if let Some(path) = &args.trace {
        Pending::stream(path, trace(&timeline, &analyses))?.commit()?;
    }
    if args.json { files::print_json(&report) } else { files::print(report.to_string().as_bytes()) }
}

/// What to raise where the program takes more pinned memory than it may.
fn host_limit(args: &Args) -> &'static str {
    if args.machine.host_memory.is_some() { "`--host-memory`" } else { PINNED_VARIABLE }
}
