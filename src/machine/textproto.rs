//! Protocol buffer text format, as much of it as device descriptions use, without a schema.
//!
//! Reads fields with scalars (numbers, strings, words), nested messages in `{}` or `<>`, lists in `[]`, `#` comments, and the separators
//! `,` and `;`. All fields are kept in order, known or not; the caller picks. Cost: one pass; nesting is bounded by [`DEPTH`].

use crate::diag::{Diagnostic, Span};

/// Messages nest no deeper than this (protobuf's own limit is 100).
const DEPTH: usize = 32;

/// One field of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Field<'t> {
    /// Its name.
    pub name: &'t str,
    /// Where the name stands.
    pub span: Span,
    /// What it holds.
    pub value: Value<'t>,
    /// Where that stands.
    pub at: Span,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'t> {
    /// A number or a word as written, with its sign.
    Scalar(&'t str),
    /// The inside of a quoted string as written; adjacent parts are joined by the caller's choice of the first.
    Text(&'t str),
    /// A nested message.
    Message(Vec<Field<'t>>),
}

/// Reads a message. The first thing that cannot be read ends it.
pub fn parse(text: &str) -> Result<Vec<Field<'_>>, Diagnostic> {
    let mut reader = Reader { text, at: 0 };
    let fields = reader.fields(None, 0)?;
    Ok(fields)
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }
    fn peek(&mut self) -> Option<char> {
        loop {
            let rest = self.rest();
            let skipped = rest.len() - rest.trim_start().len();
            self.at += skipped;
            if !self.rest().starts_with('#') {
                return self.rest().chars().next();
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }
    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }
    fn expected(&mut self, what: &str) -> Diagnostic {
        let found = self.peek();
        let length = found.map_or(0, char::len_utf8);
        let said = found.map_or_else(|| "the end of the text".to_string(), |c| format!("`{}`", c.escape_default()));
        Diagnostic::error("M01", format!("expected {what}, found {said}")).at(Span::new(self.at, self.at + length), "")
    }
    fn word(&mut self, inside: fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let word = &rest[..rest.find(|c: char| !inside(c)).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn fields(&mut self, close: Option<char>, depth: usize) -> Result<Vec<Field<'t>>, Diagnostic> {
        let mut fields = Vec::new();
        loop {
            match (self.peek(), close) {
                (None, None) => return Ok(fields),
                (Some(c), Some(end)) if c == end => {
                    self.at += 1;
                    return Ok(fields);
                }
                (Some(c), _) if c.is_ascii_alphabetic() || c == '_' || c == '[' => self.field(&mut fields, depth)?,
                (_, Some(end)) => return Err(self.expected(&format!("a field or `{end}`"))),
                (Some(_), None) => return Err(self.expected("a field")),
            }
            let _ = self.eat(',') || self.eat(';');
        }
    }

    fn field(&mut self, fields: &mut Vec<Field<'t>>, depth: usize) -> Result<(), Diagnostic> {
        let start = self.at;
        let name = if self.eat('[') {
            let name = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/'));
            if !self.eat(']') {
                return Err(self.expected("`]` after the name of an extension"));
            }
            name
        } else {
            self.word(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let span = Span::new(start, self.at);
        let colon = self.eat(':');
        if !self.eat('[') {
            return self.value(fields, name, span, colon, depth);
        }
        while !self.eat(']') {
            self.value(fields, name, span, true, depth)?;
            if !self.eat(',') && self.peek() != Some(']') {
                return Err(self.expected("`,` or `]`"));
            }
        }
        Ok(())
    }

    fn value(&mut self, fields: &mut Vec<Field<'t>>, name: &'t str, span: Span, colon: bool, depth: usize) -> Result<(), Diagnostic> {
        let first = self.peek();
        let start = self.at;
        let value = match first {
            Some(open @ ('{' | '<')) => {
                if depth == DEPTH {
                    let place = Span::new(start, start + 1);
                    return Err(Diagnostic::error("M01", format!("expected at most {DEPTH} nested messages, found more")).at(place, ""));
                }
                self.at += 1;
                Value::Message(self.fields(Some(if open == '{' { '}' } else { '>' }), depth + 1)?)
            }
            _ if !colon => return Err(self.expected("`:` or `{`")),
            Some(quote @ ('"' | '\'')) => {
                let inside = self.quoted(quote)?;
                while let Some(next @ ('"' | '\'')) = self.peek() {
                    self.quoted(next)?;
                }
                Value::Text(inside)
            }
            Some(c) if c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_') => {
                Value::Scalar(self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_')))
            }
            _ => return Err(self.expected("a value")),
        };
        fields.push(Field { name, span, value, at: Span::new(start, self.at) });
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<&'t str, Diagnostic> {
        let start = self.at + 1;
        let mut escaped = false;
        for (i, c) in self.text[start..].char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '\n' => break,
                _ if c == quote => {
                    self.at = start + i + 1;
                    return Ok(&self.text[start..start + i]);
                }
                _ => {}
            }
        }
        let place = Span::new(self.at, self.at + 1);
        Err(Diagnostic::error("M01", format!("expected a closing `{quote}`, found the end of the line")).at(place, "opened here"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_are_read() {
        let fields = parse("# head\na: -1.5e3, b <c: 'x\\'y' \"z\">; d: [1, 2] [ext.e] { } f: WORD").unwrap();
        let names: Vec<&str> = fields.iter().map(|f| f.name).collect();
        assert_eq!(names, ["a", "b", "d", "d", "ext.e", "f"]);
        assert_eq!(fields[0].value, Value::Scalar("-1.5e3"));
        let Value::Message(inner) = &fields[1].value else { panic!() };
        assert_eq!(inner[0].value, Value::Text("x\\'y"));
    }

    #[test]
    fn any_text_is_safe() {
        for text in ["a", "a:", "a {", "a: {b: 1", "}", "a: \"x", "[", "a: [1", "é", "a: é", "#", "a: [", "a <}"] {
            let _ = parse(text);
        }
        assert!(parse(&"a {".repeat(200_000)).is_err());
    }
}
