//! `offc solve`: a planning problem without a program.

use std::path::PathBuf;
use std::time::Instant;

use offc::problem::{Choice, Problem, check, parse};
use offc::solve::{Effort, Solved, solve};
use offc::units::{Bytes, Nanos};

use crate::files;
use crate::outcome::{BadInput, Failure};
use crate::terminal::{Progress, Style};

/// Arguments of `offc solve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reads a problem as docs/problem.md describes it, or a graph of the Checkmate benchmark with --memory.\n\nExamples:\n  \
offc solve problem.json --json | jq .gap\n  offc solve resnet50_184.json --memory 8GiB"
)]
pub struct Args {
    /// The problem; `-` is standard input
    #[arg(value_name = "PROBLEM.json")]
    input: PathBuf,
    /// Device memory, instead of the problem's own
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Print JSON: overhead, bound and gap in percent of the time without recomputation, and every decision
    #[arg(long)]
    json: bool,
}

/// What a program reads.
#[derive(serde::Serialize)]
struct Report<'a> {
    schema_version: u32,
    /// Time without any choice.
    time_ns: Nanos,
    device_memory: Bytes,
    peak: Bytes,
    overhead_pct: f64,
    bound_pct: f64,
    /// `overhead_pct - bound_pct`.
    gap: f64,
    seconds: f64,
    prices: Vec<Price>,
    decisions: Vec<Decision<'a>>,
}

/// What one more GiB at a step would save.
#[derive(serde::Serialize)]
struct Price {
    step: u32,
    ns_per_gib: f64,
}

#[derive(serde::Serialize)]
struct Decision<'a> {
    name: &'a str,
    #[serde(flatten)]
    choice: &'a Choice,
}

/// Runs the command.
pub fn run(args: &Args, _: Style) -> Result<(), Failure> {
    let bytes = files::read(&args.input)?;
    let problem = parse(&bytes, args.memory)
        .map_err(|diagnostics| Failure::Input(Some(BadInput { name: files::name(&args.input), text: Vec::new(), diagnostics })))?;
    let start = Instant::now();
    let progress = Progress::start("solving");
    let solved = solve(&problem, Effort::default());
    drop(progress);
    let seconds = start.elapsed().as_secs_f64();
    if !solved.fits(&problem) {
        let text = format!("the lowest peak found is {}, {} are allowed", solved.peak, problem.device_memory);
        return Err(Failure::Infeasible { text, json: None });
    }
    check(&problem, &solved.solution).map_err(|v| Failure::Broken(format!("the solution is none: {v}")))?;
    let report = report(&problem, &solved, seconds);
    if args.json { files::print_json(&report) } else { files::print(text(&report, &problem).as_bytes()) }
}

fn report<'a>(problem: &'a Problem, solved: &'a Solved, seconds: f64) -> Report<'a> {
    let time: Nanos = problem.steps.iter().map(|s| s.time).sum();
    let percent = |cost: Nanos| if time.is_zero() { 0.0 } else { cost.ratio(time) * 100.0 };
    let (overhead_pct, bound_pct) = (percent(solved.cost), percent(solved.bound.cost));
    Report {
        schema_version: 1,
        time_ns: time,
        device_memory: problem.device_memory,
        peak: solved.peak,
        overhead_pct,
        bound_pct,
        gap: overhead_pct - bound_pct,
        seconds,
        prices: solved.bound.memory.iter().map(|&(step, price)| Price { step, ns_per_gib: price * f64::from(1u32 << 30) }).collect(),
        decisions: solved
            .solution
            .choices
            .iter()
            .map(|choice| Decision { name: &problem.values[choice.value as usize].name, choice })
            .collect(),
    }
}

fn text(report: &Report<'_>, problem: &Problem) -> String {
    let mut out = format!(
        "overhead {:.2} %, no solution below {:.2} %, gap {:.2} %\npeak {} of {}, {} decisions, {:.1} s\n",
        report.overhead_pct,
        report.bound_pct,
        report.gap,
        report.peak,
        report.device_memory,
        report.decisions.len(),
        report.seconds
    );
    for decision in &report.decisions {
        let what = match decision.choice.how {
            offc::problem::How::Host { .. } => "offload",
            offc::problem::How::Recomputed { .. } => "recompute",
        };
        let bytes = problem.values[decision.choice.value as usize].bytes;
        out += &format!("  {what} {} ({bytes}) before step {}, {}\n", decision.name, decision.choice.needed_at, decision.choice.cost);
    }
    out
}
