//! What is wrong with an input, and where.
//!
//! A [`Diagnostic`] is a value: a stable code, a sentence, spans of the input with what was expected
//! there, notes. It knows nothing of files or terminals; [`render`] turns it into text with a
//! clipped source line and carets, `serde` turns it into JSON.
//!
//! Messages are lower case without a full stop, say "expected X, found Y", put names in backquotes
//! and give numbers their units.

mod codes;
mod render;

pub use codes::{Explanation, explain, explanations};
pub use render::{LineIndex, Position, render};

use serde::Serialize;

/// A range of bytes of the input text; empty at 0 where there is no text (a proto, a new instruction).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The span of `start..end`.
    pub fn new(start: usize, end: usize) -> Self {
        let clip = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { start: clip(start), end: clip(end) }
    }
    /// Whether this is the absent place.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// A stable name of one kind of trouble, such as `E0101`; listed with explanations in `diag/codes.rs`.
pub type Code = &'static str;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The input cannot be used.
    Error,
    /// The input is used; something in it is not understood or will be lost.
    Warning,
}

/// A place and what was expected or found there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What; may be empty when the message says it all.
    pub text: String,
}

/// One thing wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The stable code.
    pub code: Code,
    /// Error or warning.
    pub severity: Severity,
    /// The sentence.
    pub message: String,
    /// Places, the culprit first.
    pub labels: Vec<Label>,
    /// Further sentences: causes, paths, remedies.
    pub notes: Vec<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self { code, severity: Severity::Error, message: message.into(), labels: Vec::new(), notes: Vec::new() }
    }
    /// A warning.
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message) }
    }
    /// Points at a place; an absent place is left out.
    #[must_use]
    pub fn at(mut self, span: Span, text: impl Into<String>) -> Self {
        if !span.is_none() {
            self.labels.push(Label { span, text: text.into() });
        }
        self
    }
    /// Adds a note.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }
    /// Whether this is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}
