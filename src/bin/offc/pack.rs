//! `offc pack`: offsets for buffers with known lives.

use std::path::PathBuf;

use offc::pack::{Limits, check, pack, parse, write};

use crate::files;
use crate::outcome::{BadInput, Failure};
use crate::terminal::{Progress, Style};

/// Arguments of `offc pack`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Reads a line `id,lower,upper,size` and then a buffer a line, alive from `lower` up to, not including, `upper`; \
writes `id,offset`.\n\nExamples:\n  offc pack A.csv --capacity 1048576 > A.offsets.csv\n  offc pack trace.csv --json | jq .gap_pct")]
pub struct Args {
    /// The table of buffers; `-` is standard input
    #[arg(value_name = "FILE.csv")]
    input: PathBuf,
    /// Stop at the first packing that is at most that high, and fail if none is found; without it, as low as can be found
    #[arg(long, value_name = "N")]
    capacity: Option<u64>,
    /// Print JSON: height, load (no packing is lower), their distance, offsets
    #[arg(long)]
    json: bool,
}

/// What a program reads.
#[derive(serde::Serialize)]
struct Report<'a> {
    buffers: usize,
    load: u64,
    height: u64,
    gap_pct: f64,
    capacity: Option<u64>,
    offsets: Vec<Place<'a>>,
}

#[derive(serde::Serialize)]
struct Place<'a> {
    id: &'a str,
    offset: u64,
}

/// Runs the command.
pub fn run(args: &Args, _: Style) -> Result<(), Failure> {
    let bytes = files::read(&args.input)?;
    let bad = |diagnostics| Failure::Input(Some(BadInput { name: files::name(&args.input), text: bytes.clone(), diagnostics }));
    let text = std::str::from_utf8(&bytes).map_err(|e| {
        let said = format!("expected text in UTF-8, found another byte at {}", e.valid_up_to());
        bad(vec![offc::diag::Diagnostic::error("O01", said)])
    })?;
    let table = parse(text).map_err(&bad)?;
    let progress = Progress::start("packing");
    let packing = pack(&table.buffers, args.capacity, Limits::default());
    drop(progress);
    if table.buffers.len() <= 1 << 15
        && let Some((a, b)) = check(&table.buffers, &packing.offsets)
    {
        return Err(Failure::Broken(format!("`{}` and `{}` overlap in the packing", table.ids[a], table.ids[b])));
    }
    if let Some(capacity) = args.capacity.filter(|&c| packing.height > c) {
        let why = match packing.proved {
            true if packing.load > capacity => format!("{} bytes are alive at once", packing.load),
            true => "every packing was excluded".to_string(),
            false => "none was found, nor excluded".to_string(),
        };
        let text = format!("no packing within {capacity} bytes: {why}; the lowest found takes {}", packing.height);
        return Err(Failure::Infeasible { text, json: None });
    }
    if args.json {
        let places = table.ids.iter().zip(&packing.offsets).map(|(id, &offset)| Place { id, offset }).collect();
        let gap_pct = if packing.load == 0 { 0.0 } else { (packing.height as f64 / packing.load as f64 - 1.0) * 100.0 };
        let (load, height) = (packing.load, packing.height);
        files::print_json(&Report { buffers: table.ids.len(), load, height, gap_pct, capacity: args.capacity, offsets: places })
    } else {
        files::print(write(&table.ids, &packing.offsets).as_bytes())
    }
}
