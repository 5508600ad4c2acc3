//! `offc peak`: what a module needs of memory, and what is alive when it needs most.

use std::path::PathBuf;

use offc::analysis::Analyses;
use offc::report::PeakReport;

use crate::files;
use crate::input::load_verified;
use crate::outcome::Failure;
use crate::terminal::{Progress, Style};

/// Arguments of `offc peak`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Device memory is argument + output - alias + temp, as XLA counts it.\n\nExamples:\n  offc peak step.pb\n  \
offc peak step.hlo --json | jq .temp")]
pub struct Args {
    /// The module; `-` is standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Show that many buffers; 0 means all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Print JSON: sizes in bytes, all buffers
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    let loaded = load_verified(&args.input, style)?;
    let progress = Progress::start("assigning buffers");
    let report = PeakReport::of(&Analyses::new(&loaded.module));
    drop(progress);
    if args.json { files::print_json(&report) } else { files::print(report.text(args.top).as_bytes()) }
}
