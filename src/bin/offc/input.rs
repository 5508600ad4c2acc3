//! Modules from files.

use std::path::Path;

use offc::diag::{Diagnostic, render};
use offc::format::{self, Form};
use offc::ir::Module;
use offc::verify::verify;

use crate::files;
use crate::outcome::{BadInput, Failure, tell};
use crate::terminal::Style;

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
    pub form: Form,
}

/// Reads a module; errors are in the failure, with everything that must be told.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    let bytes = files::read(path)?;
    match format::read(&bytes) {
        Ok(input) => {
            Ok(Loaded { module: input.module, diagnostics: input.warnings, text: input.text.unwrap_or_default(), form: input.form })
        }
        Err(bad) => Err(Failure::Input(Some(BadInput {
            name: files::name(path),
            text: bad.text.unwrap_or_default(),
            diagnostics: bad.diagnostics,
        }))),
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
