//! `offc devices`: the machines that are known, and what a description says.

use offc::machine::{Machine, presets};
use offc::units::BytesPerSec;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::device::resolve;
use crate::files;
use crate::outcome::Failure;
use crate::probe;

/// Arguments of `offc devices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  offc devices\n  offc devices h100-sxm --json\n  offc devices gpu_specs/h200.txtpb\n  \
offc devices --probe > host.toml    # then --calibration host.toml")]
pub struct Args {
    /// Show one only: a name, or a file with an XLA device description
    #[arg(value_name = "NAME|SPEC.txtpb")]
    device: Option<String>,
    /// Look at this host instead: its NUMA nodes, the memory of each, each NVIDIA GPU's node and link; prints a calibration file
    #[arg(long, conflicts_with = "device")]
    probe: bool,
    /// Where the host's description stands
    #[arg(long, hide = true, value_name = "ROOT", default_value = "/sys")]
    sysfs: PathBuf,
    /// Print JSON: bytes, bytes in a second, operations in a second, nanoseconds
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'m> {
    schema_version: u32,
    devices: Vec<Row<'m>>,
}

#[derive(Serialize)]
struct Row<'m> {
    #[serde(flatten)]
    machine: &'m Machine,
    /// What a copy from the host can count on: the link, or the GPU's share of its node's memory where that is less.
    from_host: BytesPerSec,
    /// The same to the host.
    to_host: BytesPerSec,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.probe {
        return probe::run(&args.sysfs, args.json);
    }
    let machines = match &args.device {
        Some(device) => vec![resolve(device)?],
        None => presets(),
    };
    if args.json {
        let rows = machines.iter().map(|m| Row { machine: m, from_host: m.from_host_rate(), to_host: m.to_host_rate() });
        return files::print_json(&Report { schema_version: 1, devices: rows.collect() });
    }
    files::print(table(&machines).as_bytes())
}

fn table(machines: &[Machine]) -> String {
    let wide = machines.iter().map(|m| m.name.chars().count()).max().unwrap_or(0).max(4);
    let mut out = String::new();
    let head = ["memory", "its rate", "16 bit matmul", "from host", "to host", "pinned host"];
    let row = |out: &mut String, name: &str, cells: [String; 6]| {
        let [memory, hbm, f16, h2d, d2h, pinned] = cells;
        writeln!(out, "{name:wide$}  {memory:>10}  {hbm:>9}  {f16:>14}  {h2d:>11}  {d2h:>11}  {pinned:>11}").expect("a string takes all");
    };
    row(&mut out, "name", head.map(str::to_string));
    for m in machines {
        let cells = [
            m.memory.to_string(),
            m.hbm.to_string(),
            m.matrix.f16.to_string(),
            m.h2d.to_string(),
            m.d2h.to_string(),
            m.host.pinned.to_string(),
        ];
        row(&mut out, &m.name, cells);
    }
    out
}
