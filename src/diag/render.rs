//! Diagnostics as text for a person: `file:line:col: error[CODE]: message`, the clipped source line, carets, notes.
//!
//! A line is shown in a window of [`WINDOW`] bytes around its span: real modules have lines of megabytes.

use std::fmt::Write as _;

use super::{Diagnostic, Severity, Span};

/// Bytes of a source line that are shown at most.
const WINDOW: usize = 120;

/// Bytes of a message that are shown at most.
const MESSAGE: usize = 600;

/// Line starts of a text, to turn offsets into lines and columns in O(log lines).
#[derive(Debug)]
pub struct LineIndex {
    starts: Vec<u32>,
}

/// A place as a person says it: both count from 1, the column in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl LineIndex {
    /// Reads the line starts of a text.
    pub fn new(text: &[u8]) -> Self {
        let newlines = text.iter().enumerate().filter(|(_, b)| **b == b'\n');
        Self { starts: std::iter::once(0).chain(newlines.map(|(i, _)| Span::new(i + 1, 0).start)).collect() }
    }
    /// The place of an offset.
    pub fn position(&self, offset: u32) -> Position {
        let line = self.starts.partition_point(|&s| s <= offset);
        Position { line, column: (offset - self.starts[line - 1]) as usize + 1 }
    }
}

/// Renders diagnostics, one after another, for the input `text` called `file`. With `color`, ANSI escapes are used. Spans must lie in
/// `text`; those of a proto are absent and print no source.
pub fn render(diagnostics: &[Diagnostic], file: &str, text: &[u8], color: bool) -> String {
    let index = LineIndex::new(text);
    let mut out = String::new();
    for diagnostic in diagnostics {
        one(&mut out, diagnostic, file, text, &index, color);
    }
    out
}

fn one(out: &mut String, d: &Diagnostic, file: &str, text: &[u8], index: &LineIndex, color: bool) {
    let (word, paint) = match d.severity {
        Severity::Error => ("error", "\x1b[1;31m"),
        Severity::Warning => ("warning", "\x1b[1;33m"),
    };
    let (paint, bold, reset) = if color { (paint, "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
    let place = d.labels.first().map(|l| index.position(l.span.start));
    let place = place.map_or_else(String::new, |p| format!(":{}:{}", p.line, p.column));
    writeln!(out, "{bold}{file}{place}: {paint}{word}[{}]{reset}{bold}: {}{reset}", d.code, clip(&d.message)).expect("a string takes all");
    for label in &d.labels {
        source(out, label.span, &label.text, text, index, paint, reset);
    }
    for note in &d.notes {
        writeln!(out, "  = {note}").expect("a string takes all");
    }
}

/// The message without its middle where a name in it is of absurd length.
fn clip(message: &str) -> std::borrow::Cow<'_, str> {
    if message.len() <= MESSAGE {
        return message.into();
    }
    let head = message.floor_char_boundary(MESSAGE / 2);
    let tail = message.ceil_char_boundary(message.len() - MESSAGE / 2);
    format!("{}…{}", &message[..head], &message[tail..]).into()
}

fn source(out: &mut String, span: Span, label: &str, text: &[u8], index: &LineIndex, paint: &str, reset: &str) {
    let at = index.position(span.start);
    let start = (span.start as usize).min(text.len());
    let line_start = start - (at.column - 1).min(start);
    let line_end =
        text[start..].iter().take(WINDOW * 4).position(|&b| b == b'\n').map_or((start + WINDOW * 4).min(text.len()), |n| start + n);
    let from = if start - line_start > WINDOW / 2 { start - WINDOW / 2 } else { line_start };
    let to = line_end.min(from + WINDOW);
    let before = String::from_utf8_lossy(&text[from..start]);
    let rest = String::from_utf8_lossy(&text[start..to]);
    let clean = |s: &str| s.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let (head, tail) = (if from > line_start { "…" } else { "" }, if to < line_end { "…" } else { "" });
    let number = at.line.to_string();
    let pad = " ".repeat(number.len());
    let indent = " ".repeat(head.chars().count() + before.chars().count());
    let length = (span.end.saturating_sub(span.start) as usize).min(to.saturating_sub(start));
    let carets = "^".repeat(String::from_utf8_lossy(&text[start..start + length]).chars().count().max(1));
    writeln!(out, "{pad} |\n{number} | {head}{}{}{tail}", clean(&before), clean(&rest)).expect("a string takes all");
    writeln!(out, "{pad} | {indent}{paint}{carets}{reset}{}{label}", if label.is_empty() { "" } else { " " }).expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_clipped_around_the_span() {
        let text = format!("ab\n{}here{}\n", "x".repeat(5000), "y".repeat(5000));
        let d = Diagnostic::error("E0000", "bad").at(Span::new(5003, 5007), "this").note("a remedy");
        let out = render(&[d], "f.hlo", text.as_bytes(), false);
        assert!(out.starts_with("f.hlo:2:5001: error[E0000]: bad\n"), "{out}");
        assert!(out.lines().all(|l| l.chars().count() < 140), "{out}");
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[2].chars().position(|c| c == 'h'), lines[3].find('^').map(|i| lines[3][..i].chars().count()));
    }
}
