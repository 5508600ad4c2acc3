//! `offc explain`: what a diagnostic code means.

use std::fmt::Write as _;

use offc::diag::{explain, explanations};
use serde::Serialize;

use crate::files;
use crate::outcome::Failure;
use crate::terminal::Style;

/// Arguments of `offc explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  offc explain V2\n  offc explain")]
pub struct Args {
    /// The code, such as V2; without one, all codes are listed
    code: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Entry {
    code: &'static str,
    title: &'static str,
    text: &'static str,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    codes: Vec<Entry>,
}

/// Runs the command.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    let chosen: Vec<_> = match &args.code {
        Some(code) => vec![
            explain(code).ok_or_else(|| Failure::Usage(format!("unknown code `{code}`: `offc explain` without one lists all codes")))?,
        ],
        None => explanations().collect(),
    };
    if args.json {
        let codes = chosen.iter().map(|e| Entry { code: e.code, title: e.title, text: e.text }).collect();
        return files::print_json(&Report { schema_version: 1, codes });
    }
    let mut out = String::new();
    for e in &chosen {
        if args.code.is_some() {
            writeln!(out, "{}: {}\n\n{}", style.bold(e.code), e.title, wrap(e.text, 100)).expect("a string takes all");
        } else {
            writeln!(out, "{:6}{}", e.code, e.title).expect("a string takes all");
        }
    }
    files::print(out.as_bytes())
}

/// Breaks paragraphs at blanks so that lines have at most `width` characters where words allow.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    for paragraph in text.lines() {
        let mut column = 0;
        for word in paragraph.split(' ') {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > width {
                out.push('\n');
                column = 0;
            } else if column > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
        out.push('\n');
    }
    out.pop();
    out
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn words_are_kept_whole() {
        assert_eq!(wrap("aa bb cc\n\ndddddd e", 5), "aa bb\ncc\n\ndddddd\ne");
    }
}
