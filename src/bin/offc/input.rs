//! Modules from files.

use std::path::Path;

use clap::ValueEnum;
use offc::diag::{Diagnostic, render};
use offc::ir::Module;
use offc::verify::verify;

use crate::files;
use crate::outcome::{BadInput, Failure, tell};
use crate::terminal::Style;

/// The forms in which modules are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// HLO text
    Hlo,
    /// HloModuleProto
    Pb,
}

impl Emit {
    /// The one that this is not.
    pub fn other(self) -> Self {
        match self {
            Self::Hlo => Self::Pb,
            Self::Pb => Self::Hlo,
        }
    }
}

/// A module that was read.
#[derive(Debug)]
pub struct Loaded {
    /// The module.
    pub module: Module,
    /// What is to be said about it: warnings only.
    pub diagnostics: Vec<Diagnostic>,
    /// The text that spans point into; empty for a proto.
    pub text: Vec<u8>,
    /// The form it had.
    pub form: Emit,
}

/// Reads a module; errors are in the failure, with everything that must be told.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    let bytes = files::read(path)?;
    // Until content is recognised.
    let is_text = !bytes.contains(&0);
    let read = if is_text { offc::text::parse(&bytes).map(|p| (p.module, p.warnings)) } else { offc::proto::decode(&bytes) };
    let text = if is_text { bytes } else { Vec::new() };
    match read {
        Ok((module, diagnostics)) => Ok(Loaded { module, diagnostics, text, form: if is_text { Emit::Hlo } else { Emit::Pb } }),
        Err(diagnostics) => Err(Failure::Input(Some(BadInput { name: files::name(path), text, diagnostics }))),
    }
}

/// Reads a module and tells its warnings.
pub fn load_telling(path: &Path, style: Style) -> Result<Loaded, Failure> {
    let loaded = load(path)?;
    tell(&render(&loaded.diagnostics, &files::name(path), &loaded.text, style.color));
    Ok(loaded)
}

/// Reads a module, tells its warnings and holds it to the verifier's promises: analyses rely on them.
pub fn load_verified(path: &Path, style: Style) -> Result<Loaded, Failure> {
    let loaded = load_telling(path, style)?;
    let diagnostics = verify(&loaded.module);
    if diagnostics.iter().any(Diagnostic::is_error) {
        return Err(Failure::Input(Some(BadInput { name: files::name(path), text: loaded.text, diagnostics })));
    }
    Ok(loaded)
}
