//! Errors of one text: how they are made, and the list that keeps them.

use crate::diag::{Diagnostic, Span};

/// Errors after which reading stops.
const CAP: usize = 100;

/// Why a piece of text gave nothing. Silent where the reason was said before, at the definition of a name that is used here.
#[derive(Debug)]
pub(super) struct Fail(Option<Box<Diagnostic>>);

/// What reading a piece of text gives.
pub(super) type Res<T> = Result<T, Fail>;

impl Fail {
    /// A failure that follows from one already said.
    pub(super) fn silent() -> Self {
        Self(None)
    }
    /// Adds a note.
    pub(super) fn note(mut self, text: impl Into<String>) -> Self {
        if let Some(d) = &mut self.0 {
            d.notes.push(text.into());
        }
        self
    }
    /// Where it happened.
    pub(super) fn place(&self) -> Option<usize> {
        self.0.as_ref().and_then(|d| d.labels.first()).map(|l| l.span.start as usize)
    }
}

impl From<Diagnostic> for Fail {
    fn from(d: Diagnostic) -> Self {
        Self(Some(Box::new(d)))
    }
}

/// An error at a place.
pub(super) fn fail<T>(code: &'static str, span: Span, message: impl Into<String>) -> Res<T> {
    Err(Diagnostic::error(code, message).at(span, "").into())
}

/// "expected X, found Y" at a place of the text.
pub(super) fn expected<T>(text: &str, at: usize, what: &str) -> Res<T> {
    let (span, found) = token(text, at);
    Err(Diagnostic::error("P010", format!("expected {what}, found {found}")).at(span, format!("expected {what}")).into())
}

/// The token at a place, clipped, for a message.
pub(super) fn token(text: &str, at: usize) -> (Span, String) {
    let rest = text.get(at..).unwrap_or("");
    let Some(first) = rest.chars().next() else {
        return (Span::new(text.len(), text.len()), "the end of the file".into());
    };
    if first == '\n' || first == '\r' {
        return (Span::new(at, at + 1), "the end of the line".into());
    }
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let length = match first {
        '%' => 1 + rest[1..].chars().take(60).take_while(|&c| word(c)).map(char::len_utf8).sum::<usize>(),
        c if word(c) => rest.chars().take(60).take_while(|&c| word(c)).map(char::len_utf8).sum(),
        c => c.len_utf8(),
    };
    let shown = if first.is_control() { format!("the byte {:#04x}", u32::from(first)) } else { format!("`{}`", &rest[..length]) };
    (Span::new(at, at + length), shown)
}

/// The errors and warnings of a text.
#[derive(Default)]
pub(super) struct Errors {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Errors {
    /// Keeps a failure.
    pub(super) fn fail(&mut self, fail: Fail) {
        if let Some(d) = fail.0 {
            self.errors += 1;
            if self.errors <= CAP {
                self.list.push(*d);
            }
        }
    }
    /// Keeps a warning; a text that repeats itself warns a bounded number of times.
    pub(super) fn warn(&mut self, warning: Diagnostic) {
        self.warnings += 1;
        if self.warnings <= CAP {
            self.list.push(warning);
        }
    }
    /// Whether there was any error.
    pub(super) fn any(&self) -> bool {
        self.errors > 0
    }
    /// Whether reading should stop.
    pub(super) fn full(&self) -> bool {
        self.errors >= CAP
    }
    /// All of them, in text order.
    pub(super) fn into_list(mut self, stopped_at: usize) -> Vec<Diagnostic> {
        let place = |d: &Diagnostic| d.labels.first().map_or(u32::MAX, |l| l.span.start);
        self.list.sort_by_key(place);
        if self.errors >= CAP {
            let d = Diagnostic::error("P003", format!("found {CAP} errors, the rest is not read"));
            self.list.push(d.at(Span::new(stopped_at, stopped_at), "stopped here"));
        }
        self.list
    }
}
