//! HLO text to the program.
//!
//! All that XLA's parser reads is read, in the union of the versions known here; what it rejects or crashes on is an error, but for
//! opcodes, attributes and element types that no known version has: those are kept, with a warning. The grammar is
//! `grammar/hlo.pest`; it is asked for the beginning of each instruction and for each attribute value, never for a whole file, so
//! memory stays within a few times the text. What nests without bound (tuple shapes, operands, literals, JSON) is split by hand.
//!
//! An error costs its instruction only: reading goes on at the next one, and what was to be defined is remembered as broken, so that
//! its users say nothing. Cost: linear in the text; each name is looked up once.

mod async_ops;
mod attributes;
mod build;
mod called;
mod common;
mod computation;
mod cursor;
mod errors;
mod grammar;
mod header;
mod infer;
mod instruction;
mod lists;
mod literal;
mod opcodes;
mod operands;
mod ops;
mod reader;
mod shapes;
mod sharding;
mod strings;
mod tables;
mod words;

use crate::diag::{Diagnostic, Span};
use crate::ir::Module;

/// A module that was read, with what is to be said about it.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The module.
    pub module: Module,
    /// What was kept without being understood, in text order.
    pub warnings: Vec<Diagnostic>,
}

/// Reads HLO text: a module, with or without a header, or a single instruction.
///
/// # Errors
/// Everything wrong with the text, and the warnings, in text order; after 100 errors the rest is left unread.
pub fn parse(text: &[u8]) -> Result<Parsed, Vec<Diagnostic>> {
    if u32::try_from(text.len()).is_err() {
        return Err(vec![Diagnostic::error("P002", format!("expected at most 4294967295 bytes, found {}", text.len()))]);
    }
    let text = std::str::from_utf8(text).map_err(|e| {
        let at = e.valid_up_to();
        let length = e.error_len().unwrap_or(text.len() - at);
        vec![Diagnostic::error("P001", "expected UTF-8 text").at(Span::new(at, at + length), "these bytes are not UTF-8")]
    })?;
    reader::Reader::new(text).read()
}
