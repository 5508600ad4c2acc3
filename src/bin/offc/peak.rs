//! `offc peak`: what a module needs of memory, what holds it and why.

use std::path::PathBuf;

use offc::analysis::Analyses;
use offc::analysis::settle::settle;
use offc::cost::Prices;
use offc::report::PeakReport;
use offc::sim::simulate;

use crate::device::MachineArgs;
use crate::files;
use crate::input::load_verified;
use crate::outcome::Failure;
use crate::terminal::{Progress, Style};

const EXAMPLES: &str = "\
Device memory is argument + output - alias + temp, as XLA counts it. Buffers are grouped by what they are for, by the pass that makes them, by \
the framework's name without the numbers of layers, and by the line of source.

Examples:
  offc peak step.pb
  offc peak step.hlo --json | jq .temp
  offc peak step.pb --at while.12 --top 5";

/// The contract of `--json`.
const KEYS: &str = "\
Device memory is argument + output - alias + temp, as XLA counts it. Buffers are grouped by what they are for, by the pass that makes them, by \
the framework's name without the numbers of layers, and by the line of source.

Examples:
  offc peak step.pb
  offc peak step.hlo --json | jq .temp
  offc peak step.pb --at while.12 --top 5

Keys of --json; sizes are bytes, `us` is microseconds by the cost model, instants count instructions from 0:
  schema_version    1; keys may be added within a version, never renamed or given another meaning
  module            the module's name
  scheduled         false: the order of the instructions stands in for a schedule
  argument          parameters on the device
  output            results on the device, those written over parameters included
  alias             the results written over parameters
  temp              temporaries on the device: the arena with its gaps
  peak              XLA's peak: parameters, constants and results, and the most that one heap holds, without gaps
  host_argument, host_output, host_temp
                    the same in pinned host memory
  device            argument + output - alias + temp: what a budget is compared with
  host              host_argument + host_output + host_temp
  at                the instruction that runs at the instant shown (the peak, or --at); null at the very end
  instant           that instant, and how many there are; the body of a loop counts once, before its while
  at_us             when it comes, in the first iteration of its loop
  is_peak           whether it is the peak
  alive_bytes       the sum of `alive`
  roles             by role: role, buffers (how many), bytes; largest first
  groups            by role, pass, layer, source: buffers, bytes, same_shape (all of one shape), largest and longest (which
                    of `alive` is the largest, and which stays longest); largest first
  alive             device buffers alive at the instant, largest first:
    name              the instruction whose value is alive, {i} for an element of a tuple
    bytes, shape      its size and its dimensions
    kind              argument, output, constant or temp
    role              parameter, optimizer_state, activation_stack, activation, gradient, result, communication,
                      constant, temporary
    pass              forward, backward, recomputed, other: by op_name
    op_name, source   the framework's name and line; of a stack, those of the row that is written into it
    layer             op_name without the numbers of layers
    live              first and last instant
    until             why it is still alive: last_reader (null: held to the end) with its op_name, is_loop (it is a loop, which
                      holds what it reads until it ends), and how far away it is: instructions, us
  host_instant      the instant at which pinned host memory is fullest
  host_alive, host_alive_bytes
                    as `alive`, of host memory at that instant
  floor             the least of any plan that keeps the instructions: bytes; fixed (of them parameters, results and
                    constants); at (the instruction that forces the rest); needs (what that reads and writes: name and bytes)";

/// Arguments of `offc peak`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = KEYS)]
pub struct Args {
    /// The module; `-` is standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Look at this instruction instead of the peak
    #[arg(long, value_name = "NAME")]
    at: Option<String>,
    /// Show that many groups; 0 means all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Show single buffers instead of groups
    #[arg(long)]
    buffers: bool,
    /// The machine whose clock tells how far away readers are
    #[arg(long, value_name = "NAME|SPEC.txtpb", default_value = "h100-sxm")]
    device: String,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print JSON: sizes in bytes, all buffers
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    let machine = args.machine.machine(&args.device)?;
    let loaded = load_verified(&args.input, style)?;
    let progress = Progress::start("assigning buffers");
    let settled = settle(&loaded.module);
    let module = settled.as_ref().unwrap_or(&loaded.module);
    let analyses = Analyses::new(module);
    let at = match &args.at {
        None => None,
        Some(name) => {
            let wanted = name.trim_start_matches('%');
            let found = module.live().map(|(_, id)| id).filter(|&id| *module.instr(id).name == *wanted);
            let on_clock = found.into_iter().find(|&id| analyses.schedule().time(id).is_some());
            Some(on_clock.ok_or_else(|| {
                Failure::Usage(format!("`--at` names `{name}`, and no instruction of that name takes time (those inside fusions do not)"))
            })?)
        }
    };
    let timeline = simulate(module, &machine, &Prices::new(module, &machine));
    let report = PeakReport::of(&analyses, &timeline, at);
    drop(progress);
    if args.json { files::print_json(&report) } else { files::print(report.text(args.top, args.buffers).as_bytes()) }
}
