//! A place in the text, and the few tokens that are read by hand: blanks, words, numbers, strings, JSON.

use std::borrow::Cow;

use super::errors::{Res, expected, fail};
use super::strings;
use crate::diag::Span;

/// A place in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'t> {
    /// The whole text.
    pub(super) text: &'t str,
    /// The offset of the next byte.
    pub(super) at: usize,
}

/// Whether a byte may stand in a word.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

/// Whether a byte may begin a word.
pub(super) fn begins_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

impl<'t> Cursor<'t> {
    /// The next byte; 0 at the end, where no rule accepts it.
    #[inline]
    pub(super) fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }
    /// The byte after the next.
    #[inline]
    pub(super) fn second(&self) -> u8 {
        self.text.as_bytes().get(self.at + 1).copied().unwrap_or(0)
    }
    /// Whether this is the end of the text.
    pub(super) fn at_end(&self) -> bool {
        self.at >= self.text.len()
    }
    /// The text from here.
    #[inline]
    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }
    /// The span from an earlier place to here.
    pub(super) fn since(&self, start: usize) -> Span {
        Span::new(start, self.at)
    }
    /// Skips white space and comments. A comment that does not end is left, to be found by what is expected next.
    #[inline]
    pub(super) fn blanks(&mut self) {
        loop {
            match self.byte() {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                b'/' => {
                    if !self.comment() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
    fn comment(&mut self) -> bool {
        let rest = &self.text[self.at + 1..];
        let length = match self.second() {
            b'/' => rest.find(['\n', '\r']).unwrap_or(rest.len()),
            b'*' => match rest[1..].find("*/") {
                Some(n) => n + 3,
                None => return false,
            },
            _ => return false,
        };
        self.at += 1 + length;
        true
    }
    /// The next byte that is not blank.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        self.blanks();
        self.byte()
    }
    /// Takes a byte, after blanks, if it is the next.
    #[inline]
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }
    /// Takes a byte, after blanks.
    pub(super) fn expect(&mut self, byte: u8, what: &str) -> Res<()> {
        if self.eat(byte) { Ok(()) } else { self.expected(what) }
    }
    /// The error that something else was expected here.
    pub(super) fn expected<T>(&self, what: &str) -> Res<T> {
        if self.rest().starts_with("/*") {
            return fail("P011", Span::new(self.at, self.at + 2), "expected `*/`, found the end of the file")
                .map_err(|f| f.note("the comment that begins here does not end"));
        }
        expected(self.text, self.at, what)
    }
    /// A word, after blanks, if one is next.
    #[inline]
    pub(super) fn word(&mut self) -> Option<&'t str> {
        let first = self.peek();
        if begins_word(first) { Some(self.word_here()) } else { None }
    }
    /// The word characters from here, perhaps none.
    #[inline]
    pub(super) fn word_here(&mut self) -> &'t str {
        let rest = &self.text.as_bytes()[self.at..];
        let length = rest.iter().position(|&b| !is_word(b)).unwrap_or(rest.len());
        let word = &self.text[self.at..self.at + length];
        self.at += length;
        word
    }
    /// The key of a `key=value`, after blanks; the `=` follows at once.
    pub(super) fn key(&mut self, what: &str) -> Res<&'t str> {
        self.blanks();
        let start = self.at;
        match self.word() {
            Some(word) if self.byte() == b'=' => {
                self.at += 1;
                Ok(word)
            }
            Some(_) => {
                let found = *self;
                self.at = start;
                if matches!(Cursor { ..found }.peek(), b'=') {
                    return expected(self.text, found.at, "`=` right after the name");
                }
                self.expected(what)
            }
            None => self.expected(what),
        }
    }
    /// An integer, after blanks, and where it stands; up to `u64::MAX`, which reads as its bits, as in XLA.
    pub(super) fn int(&mut self) -> Res<i64> {
        self.blanks();
        let start = self.at;
        let digits = self.text.as_bytes()[start + usize::from(self.byte() == b'-')..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return self.expected("an integer");
        }
        self.at += digits + usize::from(self.byte() == b'-');
        parse_int(&self.text[start..self.at], self.since(start))
    }
    /// An integer that is a whole token: not the beginning of a decimal or of another word.
    pub(super) fn whole_int(&mut self) -> Res<i64> {
        self.blanks();
        let start = self.at;
        let value = self.int()?;
        if is_word(self.byte()) {
            self.at = start;
            return self.expected("an integer");
        }
        Ok(value)
    }
    /// `true` or `false`, after blanks.
    pub(super) fn boolean(&mut self) -> Res<bool> {
        self.blanks();
        let start = self.at;
        match self.word() {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => {
                self.at = start;
                self.expected("`true` or `false`")
            }
        }
    }
    /// `{1, 2}` after blanks.
    pub(super) fn ints(&mut self) -> Res<Vec<i64>> {
        self.expect(b'{', "`{`")?;
        let mut out = Vec::new();
        if self.eat(b'}') {
            return Ok(out);
        }
        loop {
            out.push(self.int()?);
            match self.peek() {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(out);
                }
                _ => return self.expected("`,` or `}`"),
            }
        }
    }
    /// A quoted string, after blanks, without its quotes and escapes.
    pub(super) fn string(&mut self) -> Res<Cow<'t, [u8]>> {
        let (raw, escaped, at) = self.raw_string()?;
        if escaped { strings::unescape(raw, at).map(Cow::Owned) } else { Ok(Cow::Borrowed(raw.as_bytes())) }
    }
    /// What stands between quotes, whether it has escapes, and where it begins.
    fn raw_string(&mut self) -> Res<(&'t str, bool, usize)> {
        let quote = self.peek();
        if quote != b'"' && quote != b'\'' {
            return self.expected("a string");
        }
        let start = self.at;
        let body = start + 1;
        let bytes = self.text.as_bytes();
        let mut end = body;
        let mut escaped = false;
        loop {
            match bytes.get(end) {
                None => return fail("P011", Span::new(start, start + 1), "expected the end of the string, found the end of the file"),
                Some(b'\\') => {
                    escaped = true;
                    end += 1 + self.text[end + 1..].chars().next().map_or(0, char::len_utf8);
                }
                Some(&byte) if byte == quote => break,
                Some(_) => end += 1,
            }
        }
        self.at = end + 1;
        Ok((&self.text[body..end], escaped, body))
    }
    /// A quoted string that is text.
    pub(super) fn text_string(&mut self) -> Res<Cow<'t, str>> {
        self.blanks();
        let start = self.at;
        let (raw, escaped, at) = self.raw_string()?;
        if !escaped {
            return Ok(Cow::Borrowed(raw));
        }
        match String::from_utf8(strings::unescape(raw, at)?) {
            Ok(text) => Ok(Cow::Owned(text)),
            Err(_) => fail("P012", self.since(start), "expected text, found a string whose escapes are not UTF-8"),
        }
    }
    /// A JSON dictionary as read, after blanks: balanced braces, strings skipped, otherwise any bytes.
    pub(super) fn json(&mut self) -> Res<&'t str> {
        if self.peek() != b'{' {
            return self.expected("`{`");
        }
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut depth = 0usize;
        let mut at = start;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'{' => depth += 1,
                b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        self.at = at;
                        return Ok(&self.text[start..at]);
                    }
                }
                b'"' => {
                    while let Some(&byte) = bytes.get(at) {
                        at += 1 + usize::from(byte == b'\\');
                        if byte == b'"' {
                            break;
                        }
                    }
                }
                _ => {}
            }
        }
        fail("P011", Span::new(start, start + 1), "expected `}`, found the end of the file")
    }
    /// A string or a JSON dictionary, as bytes.
    pub(super) fn string_or_json(&mut self) -> Res<Cow<'t, [u8]>> {
        match self.peek() {
            b'{' => self.json().map(|s| Cow::Borrowed(s.as_bytes())),
            b'"' | b'\'' => self.string(),
            _ => self.expected("a string or a JSON dictionary"),
        }
    }
    /// A name: `%name`, or a word that is not reserved, with a `:` that XLA's lexer takes along. Gives the name without `%`.
    pub(super) fn name(&mut self, what: &str) -> Res<&'t str> {
        let first = self.peek();
        let start = self.at;
        if first == b'%' {
            self.at += 1;
            if !begins_word(self.byte()) {
                return fail("P013", Span::new(start, start + 1), "expected a letter or `_` after `%`");
            }
            return Ok(self.word_here());
        }
        let Some(word) = self.word() else { return self.expected(what) };
        match self.byte() {
            b':' => self.at += 1,
            b'=' => {
                return expected(self.text, self.at, "a blank before `=`")
                    .map_err(|f| f.note(format!("`{word}=` reads as an attribute; `%{word}=` is a name")));
            }
            _ => {
                if strings::is_reserved(word) {
                    self.at = start;
                    let span = Span::new(start, start + word.len());
                    return fail("P013", span, format!("expected {what}, found the reserved word `{word}`"));
                }
            }
        }
        Ok(word)
    }
}

/// The value of the digits, as XLA reads them: up to `u64::MAX`, which becomes its bits.
pub(super) fn parse_int(digits: &str, span: Span) -> Res<i64> {
    let value = digits.parse::<i64>().ok().or_else(|| digits.parse::<u64>().ok().map(u64::cast_signed));
    match value {
        Some(value) => Ok(value),
        None => fail("P015", span, "expected a 64-bit integer"),
    }
}
