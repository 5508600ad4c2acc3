//! `offc rewrite`: makes a step fit.

use std::path::PathBuf;

use offc::driver::{RewriteOptions, Summary, Trouble, floor, rewrite};
use offc::pass::{HostState, Pipeline};
use offc::units::Bytes;

use crate::device::MachineArgs;
use crate::files::{self, Pending};
use crate::input::{Loaded, load_telling};
use crate::outcome::{BadInput, Failure, tell};
use crate::output::{Emit, Target, encode};
use crate::summary;
use crate::terminal::{Progress, Style};

/// Arguments of `offc rewrite`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Memory is device bytes as XLA counts them: argument + output - alias + temp. If the budget cannot be met, the exit status is 1, the lowest
peak that was found is told with what holds it, and nothing is written.
XLA's own rematerialization runs after the rewrite and counts host memory like device memory. Where it would act, more is computed again so that it
does not; `--xla-limit none` plans without regard to it.

Examples:
  offc rewrite step.pb -o fits.pb --device h100-sxm --memory 70GiB
  offc rewrite step.hlo --device gpu.txtpb --memory 24GB --plan-out plan.json > fits.hlo
  gunzip < step.pb.gz | offc rewrite - --device a100-sxm-80 --memory 40GiB --emit hlo | less")]
pub struct Args {
    /// The optimized, scheduled module, or a module before optimization with a scan and its backward scan; `-` is standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The file to write; `-` is standard output. Its name decides the form: .hlo or .txt, .pb, with .gz after it for gzip
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: PathBuf,
    /// The machine to plan for: a name of `offc devices`, or a file with an XLA device description
    #[arg(long, value_name = "NAME|SPEC.txtpb")]
    device: String,
    /// Device memory that the step may take, such as 24GiB, 24GB, 512M
    #[arg(long, value_name = "SIZE")]
    memory: Bytes,
    #[command(flatten)]
    machine: MachineArgs,
    /// The compiled form of the same program, where IN is a module before optimization: its memory and times are what is planned on
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Let optimizer state live in host memory between steps: entry parameters that only the update reads, and the outputs that replace them, change
    /// their memory space. `auto` takes as many as are needed; a regular expression names the parameters that may
    #[arg(long, value_name = "auto|REGEX")]
    host_state: Option<HostState>,
    /// GPU memory by which XLA's own rematerialization sets its limit; `none` if it is off or given room by
    /// XLA_FLAGS=--xla_gpu_memory_limit_slop_factor=N [default: the device's]
    #[arg(long, value_name = "SIZE|none")]
    xla_limit: Option<XlaLimit>,
    /// Save every decision, with its reason, as JSON
    #[arg(long, value_name = "FILE.json")]
    plan_out: Option<PathBuf>,
    /// The steps to run, such as `fit{recompute=false},dce` [default: loops,fit,dce]
    #[arg(long, value_name = "PIPELINE")]
    passes: Option<Pipeline>,
    /// The form to write, whatever the name [default: as read]
    #[arg(long, value_name = "FORM")]
    emit: Option<Emit>,
    /// Show only the N largest decisions [default: all]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    top: usize,
    /// Write the summary as JSON
    #[arg(long)]
    json: bool,
    /// Write no summary
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

/// What XLA's own rematerialization reckons with, if it runs.
#[derive(Clone, Copy, Debug)]
struct XlaLimit(Option<Bytes>);

impl std::str::FromStr for XlaLimit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        text.parse().map(|bytes| Self(Some(bytes))).map_err(|_| "expected `none` or a size such as 80GiB".to_string())
    }
}

/// Runs the command. The summary goes to standard error, the module to OUT.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    let machine = args.machine.machine(&args.device)?;
    let target = Target::of(&args.output);
    let loaded = load_telling(&args.input, style)?;
    let form = target.form(args.emit, Emit::of(&loaded.form), &loaded.form)?;
    let truth = match &args.truth {
        Some(path) => Some(load_telling(path, style)?.module),
        None => None,
    };
    let xla_memory = args.xla_limit.map_or(Some(machine.memory), |XlaLimit(said)| said);
    let (host_memory, pipeline) = (args.machine.host_memory, args.passes.clone());
    let host_state = args.host_state.clone();
    let options = RewriteOptions { machine, memory: args.memory, host_memory, host_state, pipeline, truth, xla_memory };
    let progress = Progress::start("planning");
    let rewritten = rewrite(&loaded.module, &options).map_err(|t| failure(t, &loaded, args))?;
    let floor = floor(&loaded.module, &options, &rewritten);
    drop(progress);
    let bytes = encode(&rewritten.module, &form, &crate::files::name(&args.input))?;
    let summary = Summary::of(&options, &rewritten, floor);

    let mut pending = Vec::new();
    if let Some(path) = &args.plan_out {
        let mut plan =
            serde_json::to_vec_pretty(&rewritten.plan).map_err(|e| Failure::Broken(format!("a plan does not become JSON: {e}")))?;
        plan.push(b'\n');
        pending.push(Pending::write(path, plan)?);
    }
    match target.path {
        None => files::print(&bytes)?,
        Some(path) => pending.push(Pending::write(path, bytes)?),
    }
    pending.into_iter().try_for_each(Pending::commit)?;
    if args.json {
        tell(&summary::json(&summary)?);
    } else if !args.quiet {
        tell(&summary::text(&summary, args.top, style));
    }
    Ok(())
}

fn failure(trouble: Trouble, loaded: &Loaded, args: &Args) -> Failure {
    match trouble {
        Trouble::Input(diagnostics) => {
            Failure::Input(Some(BadInput { name: files::name(&args.input), text: loaded.text.clone(), diagnostics }))
        }
        Trouble::Usage(message) => Failure::Usage(message),
        Trouble::Infeasible(infeasible) => Failure::Infeasible { text: infeasible.to_string(), json: args.json.then_some(infeasible) },
        Trouble::Internal { pass, message, diagnostics } => {
            let told: Vec<String> = diagnostics.iter().take(5).map(|d| format!("\n  {}: {}", d.code, d.message)).collect();
            Failure::Broken(format!("pass `{pass}`: {message}{}", told.concat()))
        }
    }
}
