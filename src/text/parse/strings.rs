//! Escapes in strings, and words that are no names.

use super::errors::{Res, fail};
use crate::diag::Span;
use crate::ir::Primitive;

/// Undoes C escapes. `at` is the offset of `raw` in the text.
pub(super) fn unescape(raw: &str, at: usize) -> Res<Vec<u8>> {
    let bytes = raw.as_bytes();
    let mut out = Vec::with_capacity(raw.len());
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] != b'\\' {
            out.push(bytes[i]);
            i += 1;
            continue;
        }
        let start = i;
        let kind = bytes.get(i + 1).copied().unwrap_or(0);
        i += 2;
        let number = |from: usize, most: usize, radix: u32| {
            let length = bytes[from..].iter().take(most).take_while(|b| char::from(**b).is_digit(radix)).count();
            (u32::from_str_radix(&raw[from..from + length], radix).ok(), from + length)
        };
        let single = match kind {
            b'n' => Some(b'\n'),
            b't' => Some(b'\t'),
            b'r' => Some(b'\r'),
            b'a' => Some(7),
            b'b' => Some(8),
            b'f' => Some(12),
            b'v' => Some(11),
            b'\\' | b'"' | b'\'' | b'?' => Some(kind),
            b'0'..=b'7' => {
                let (value, end) = number(i - 1, 3, 8);
                i = end;
                value.and_then(|v| u8::try_from(v).ok())
            }
            b'x' | b'X' => {
                let (value, end) = number(i, usize::MAX, 16);
                i = end;
                value.and_then(|v| u8::try_from(v).ok())
            }
            b'u' | b'U' => {
                let digits = if kind == b'u' { 4 } else { 8 };
                let (value, end) = number(i, digits, 16);
                let scalar = value.filter(|_| end - i == digits).and_then(char::from_u32);
                if let Some(c) = scalar {
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    i = end;
                    continue;
                }
                None
            }
            _ => None,
        };
        match single {
            Some(byte) => out.push(byte),
            None => {
                let length = raw[start + 1..].chars().next().map_or(1, |c| 1 + c.len_utf8());
                return fail("P012", Span::new(at + start, at + start + length), "expected a C escape");
            }
        }
    }
    Ok(out)
}

/// Whether a word cannot be a name unless `%` stands before it: keywords and element types.
pub(super) fn is_reserved(word: &str) -> bool {
    is_keyword(word) || is_type_name(word)
}

/// Whether a word is an element type, which cannot be the name of an instruction at all.
pub(super) fn is_type_name(word: &str) -> bool {
    // Names of instructions are many and types few: look at the first bytes before comparing.
    match word.as_bytes() {
        [b's' | b'u' | b'f' | b'c', digit, ..] | [b'b', b'f', digit, ..] if digit.is_ascii_digit() => Primitive::from_name(word).is_some(),
        _ => matches!(word, "pred" | "token" | "opaque"),
    }
}

fn is_keyword(word: &str) -> bool {
    matches!(word.as_bytes()[0], b't' | b'f' | b'i' | b'n' | b'H' | b'E' | b'R' | b'F' | b'S' | b'm' | b'r' | b'l' | b's' | b'u')
        && matches!(
            word,
            "true"
                | "false"
                | "inf"
                | "nan"
                | "HloModule"
                | "ENTRY"
                | "ROOT"
                | "FileLocations"
                | "FileNames"
                | "FunctionNames"
                | "StackFrames"
                | "maximal"
                | "replicated"
                | "manual"
                | "last_tile_dim_replicate"
                | "shard_as"
                | "shard_like"
                | "unknown"
                | "unreduced"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_c() {
        assert_eq!(unescape(r#"a\n\x41\101\u00e9\"\\"#, 0).unwrap(), "a\nAA\u{e9}\"\\".as_bytes());
        assert!(unescape(r"\q", 0).is_err());
        assert!(unescape(r"\777", 0).is_err());
        assert!(unescape(r"\u12", 0).is_err());
        assert!(unescape("\\", 0).is_err());
    }

    #[test]
    fn types_are_reserved() {
        assert!(is_reserved("f32") && is_reserved("f8e4m3b11fnuz") && is_reserved("token") && is_reserved("inf"));
        assert!(!is_reserved("tuple") && !is_reserved("buffer") && !is_reserved("b") && !is_reserved("f33"));
    }
}
