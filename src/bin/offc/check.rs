//! `offc check`: does an input read as XLA's parser reads it, and with `--verify`, is it well formed.

use std::path::{Path, PathBuf};

use offc::diag::{Diagnostic, render};
use offc::verify::verify;
use serde::Serialize;

use crate::files;
use crate::input::{Loaded, load};
use crate::outcome::{Failure, conclude, tell};
use crate::terminal::Style;

/// Arguments of `offc check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Prints `accept<TAB>FILE` or `reject<TAB>FILE<TAB>CODE message` for each file; everything that is wrong goes to \
standard error.\n\nExamples:\n  offc check dump/*.hlo\n  offc check --verify step.pb")]
pub struct Args {
    /// HLO modules: text or protocol buffers, gzipped or not; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Run the whole verifier too: shapes, schedule, memory spaces, aliasing
    #[arg(long)]
    verify: bool,
    /// Print one JSON document instead, with all diagnostics
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    files: Vec<Verdict>,
}

#[derive(Serialize)]
struct Verdict {
    file: String,
    verdict: &'static str,
    diagnostics: Vec<Diagnostic>,
}

/// Runs the command.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    let mut report = Report { schema_version: 1, files: Vec::new() };
    let (mut rejected, mut unreadable) = (false, false);
    for path in &args.files {
        let (diagnostics, text) = match diagnose(path, args.verify) {
            Ok(found) => found,
            Err(failure) => {
                unreadable = true;
                conclude(Err(failure), style);
                continue;
            }
        };
        let error = diagnostics.iter().find(|d| d.is_error());
        rejected |= error.is_some();
        if args.json {
            let verdict = if error.is_some() { "reject" } else { "accept" };
            report.files.push(Verdict { file: path.display().to_string(), verdict, diagnostics });
            continue;
        }
        tell(&render(&diagnostics, &files::name(path), &text, style.color));
        let line = match error {
            None => format!("accept\t{}\n", path.display()),
            Some(d) => format!("reject\t{}\t{} {}\n", path.display(), d.code, one_line(&d.message)),
        };
        files::print(line.as_bytes())?;
    }
    if args.json {
        files::print_json(&report)?;
    }
    match (rejected, unreadable) {
        (true, _) => Err(Failure::Input(None)),
        (false, true) => Err(Failure::Usage("not every file could be read".to_string())),
        (false, false) => Ok(()),
    }
}

/// Everything that is to be said about one file, and its text.
fn diagnose(path: &Path, whole: bool) -> Result<(Vec<Diagnostic>, Vec<u8>), Failure> {
    match load(path) {
        Ok(Loaded { module, mut diagnostics, text, .. }) => {
            if whole {
                diagnostics.extend(verify(&module));
            }
            Ok((diagnostics, text))
        }
        Err(Failure::Input(Some(bad))) => Ok((bad.diagnostics, bad.text)),
        Err(other) => Err(other),
    }
}

/// A message without line ends or tabs, at most 300 characters long.
fn one_line(message: &str) -> String {
    message.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
