//! Where a module goes, and in what form.

use std::io::{IsTerminal as _, stdout};
use std::path::Path;

use clap::ValueEnum;
use offc::format::{self, Form};
use offc::ir::Module;

use crate::outcome::{BadInput, Failure};

/// The forms that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// HLO text
    Hlo,
    /// HloModuleProto
    Pb,
}

impl Emit {
    /// What a form is.
    pub fn of(form: &Form) -> Self {
        if form.is_text() { Self::Hlo } else { Self::Pb }
    }
    /// The one that this is not.
    pub fn other(self) -> Self {
        match self {
            Self::Hlo => Self::Pb,
            Self::Pb => Self::Hlo,
        }
    }
}

/// A file or standard output.
#[derive(Clone, Copy, Debug)]
pub struct Target<'p> {
    /// The file; `None` is standard output.
    pub path: Option<&'p Path>,
    gzip: bool,
    named: Option<Emit>,
}

impl<'p> Target<'p> {
    /// Reads the name.
    pub fn of(path: &'p Path) -> Self {
        if path == Path::new("-") {
            return Self { path: None, gzip: false, named: None };
        }
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().to_ascii_lowercase());
        let gzip = name.ends_with(".gz");
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let named = match plain.rsplit_once('.').map(|n| n.1) {
            Some("hlo" | "txt") => Some(Emit::Hlo),
            Some("pb") => Some(Emit::Pb),
            _ => None,
        };
        Self { path: Some(path), gzip, named }
    }

    /// The form to write for a module that was read in the form `read`: what was asked for, what the name says, or the default. A proto that
    /// came in another message stays in it unless a form was asked for. Binary data does not go to a terminal.
    pub fn form(&self, asked: Option<Emit>, default: Emit, read: &Form) -> Result<Form, Failure> {
        let emit = asked.or(self.named).unwrap_or(default);
        if emit == Emit::Pb && self.path.is_none() && stdout().is_terminal() {
            return Err(Failure::Usage("a terminal shows no protocol buffers: name an output file, or say `--emit hlo`".to_string()));
        }
        let form = match emit {
            _ if asked.is_none() && emit == Emit::of(read) => read.clone(),
            Emit::Hlo => Form::TEXT,
            Emit::Pb => Form::PROTO,
        };
        Ok(form.gzipped(self.gzip))
    }
}

/// The bytes of a module. What a form cannot say is a fault of the input, which is called `name`.
pub fn encode(module: &Module, form: &Form, name: &str) -> Result<Vec<u8>, Failure> {
    format::write(module, form)
        .map_err(|diagnostics| Failure::Input(Some(BadInput { name: name.to_string(), text: Vec::new(), diagnostics })))
}
