//! How a command ends.

use std::io::Write as _;
use std::path::Path;

use offc::diag::{Diagnostic, render};
use offc::pass::Infeasible;

use crate::terminal::Style;

/// The memory budget cannot be met.
pub const INFEASIBLE: u8 = 1;
/// The command line is wrong, or a file cannot be read or written.
pub const USAGE: u8 = 2;
/// An input is malformed or not supported.
pub const INPUT: u8 = 3;
/// A broken promise of ours.
pub const INTERNAL: u8 = 4;

/// Why a command does not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for what cannot be done, or a file cannot be read or written: the sentence.
    Usage(String),
    /// An input is wrong; what is wrong with it has been told, or stands here with the input's name and bytes.
    Input(Option<BadInput>),
    /// The budget cannot be met.
    Infeasible {
        /// The sentences, which say the floor and what holds it.
        text: String,
        /// The same for programs, if they asked.
        json: Option<Infeasible>,
    },
    /// Two modules do not compute the same; how was told.
    Different,
    /// A check of our own found our own work wrong: the sentences.
    Broken(String),
    /// Whoever read the output wants no more of it; not an error.
    PipeClosed,
}

/// An input with errors.
#[derive(Debug)]
pub struct BadInput {
    /// What to call it.
    pub name: String,
    /// Its text; empty for a binary one.
    pub text: Vec<u8>,
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
}

impl Failure {
    /// A file that the system will not let us use.
    pub fn file(what: &str, path: &Path, error: &std::io::Error) -> Self {
        // The system's sentence without its number.
        let said = error.to_string();
        let said = said.split(" (os error").next().unwrap_or_default().to_lowercase();
        Self::Usage(format!("cannot {what} `{}`: {said}", path.display()))
    }
}

/// Tells a failure on standard error and gives the exit status.
pub fn conclude(result: Result<(), Failure>, style: Style) -> u8 {
    match result {
        Ok(()) | Err(Failure::PipeClosed) => 0,
        Err(Failure::Usage(message)) => {
            tell(&format!("{}: {message}\n", style.error("error")));
            USAGE
        }
        Err(Failure::Input(bad)) => {
            if let Some(bad) = bad {
                tell(&render(&bad.diagnostics, &bad.name, &bad.text, style.color));
            }
            INPUT
        }
        Err(Failure::Infeasible { text, json }) => {
            match json.and_then(|j| serde_json::to_string_pretty(&j).ok()) {
                Some(json) => tell(&format!("{json}\n")),
                None => tell(&format!("{}: {text}\n", style.error("error"))),
            }
            INFEASIBLE
        }
        Err(Failure::Different) => INFEASIBLE,
        Err(Failure::Broken(message)) => {
            report_internal(&message);
            INTERNAL
        }
    }
}

/// Says an internal error and what to do about it.
pub fn report_internal(message: &str) {
    tell(&format!(
        "error: internal error: {message}\n\
         This is a bug in offc {}, not in your input. Nothing was written. Please report it with this message, the command line\n\
         and, if it may be shared, the input.\n",
        env!("CARGO_PKG_VERSION")
    ));
}

/// Writes to standard error; if nobody listens there, so be it.
pub fn tell(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
