//! Names, strings and JSON values in HLO text.

use std::fmt;

/// A name with its `%`.
#[derive(Clone, Copy)]
pub(super) struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// A string in double quotes with C escapes; all but printable ASCII in octal, as `absl::CEscape` does.
pub(super) fn quoted(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for &b in bytes {
        match b {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' | b'\'' | b'\\' => {
                out.push('\\');
                out.push(char::from(b));
            }
            0x20..0x7f => out.push(char::from(b)),
            _ => {
                out.push('\\');
                out.extend([b >> 6, b >> 3 & 7, b & 7].map(|digit| char::from(b'0' + digit)));
            }
        }
    }
    out.push('"');
}

/// A value that reads as a JSON dictionary as it is, any other as a string.
pub(super) fn json_or_quoted(out: &mut String, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) if lexes_as_dict(bytes) => out.push_str(text),
        _ => quoted(out, bytes),
    }
}

/// Whether the parser takes exactly these bytes for a dictionary: braces balance at the last byte and not before, braces in strings apart.
fn lexes_as_dict(bytes: &[u8]) -> bool {
    if bytes.first() != Some(&b'{') {
        return false;
    }
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        at += 1;
        match b {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at == bytes.len();
                }
            }
            b'"' => loop {
                match bytes.get(at) {
                    Some(b'"') => {
                        at += 1;
                        break;
                    }
                    Some(b'\\') if bytes.get(at + 1).is_some_and(|&b| b != b'\n') => at += 2,
                    Some(b'\\') | None => return false,
                    Some(_) => at += 1,
                }
            },
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_and_strings() {
        for (text, dict) in [("{}", true), ("{\"}\":{}}", true), ("{}}", false), ("{\"a}", false), ("x", false), ("{xyz !@$}", true)] {
            assert_eq!(lexes_as_dict(text.as_bytes()), dict, "{text}");
        }
        let mut out = String::new();
        quoted(&mut out, "é\n\"'\u{7f}".as_bytes());
        assert_eq!(out, "\"\\303\\251\\n\\\"\\'\\177\"");
    }
}
