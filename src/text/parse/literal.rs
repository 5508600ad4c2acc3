//! Constants: the elements as XLA reads them, with its checks.

use super::cursor::{Cursor, is_word, parse_int};
use super::errors::{Res, fail};
use super::reader::Reader;
use crate::diag::Span;
use crate::ir::{ArrayShape, ElementType, Literal, LiteralValue, Primitive, Shape, ShapeId, float};

/// Tuples within tuples.
const DEPTH: usize = 4096;

/// Elements that a bare value may stand for.
const MOST_ZEROS: u64 = 1 << 20;

impl<'t> Reader<'t> {
    /// The value of `constant(…)` of a shape, up to the `)`, which is left. A bounded dimension becomes a static one, as in XLA.
    pub(super) fn constant(&mut self, cur: &mut Cursor<'t>, shape: ShapeId) -> Res<Literal> {
        let mut open: Vec<(ShapeId, Vec<Literal>)> = Vec::new();
        let mut next = shape;
        loop {
            let mut done = if let Shape::Tuple(elements) = self.module.shapes.get(next) {
                let first = elements.first().copied();
                cur.expect(b'(', "`(` before the elements of a tuple")?;
                open.push((next, Vec::new()));
                if open.len() > DEPTH {
                    return fail("P014", cur.since(cur.at - 1), format!("expected at most {DEPTH} tuples within each other"));
                }
                match first {
                    Some(first) => {
                        next = first;
                        continue;
                    }
                    None => None,
                }
            } else {
                Some(self.array_literal(cur, next)?)
            };
            loop {
                if let Some(literal) = done {
                    let Some((tuple, elements)) = open.last_mut() else { return Ok(literal) };
                    elements.push(literal);
                    if let Some(&element) = self.module.shapes.elements(*tuple).get(elements.len()) {
                        cur.expect(b',', "`,` and the next element of the tuple")?;
                        next = element;
                        break;
                    }
                }
                cur.expect(b')', "`)` after the elements of a tuple")?;
                let (_, elements) = open.pop().expect("a parenthesis was opened");
                let shape = Shape::Tuple(elements.iter().map(|e| e.shape).collect());
                done = Some(Literal { shape: self.module.shapes.intern(shape), value: LiteralValue::Tuple(elements) });
            }
        }
    }

    /// `literal=` of a custom call: a shape and its elements, or a tuple of such.
    pub(super) fn shaped_literal(&mut self, cur: &mut Cursor<'t>) -> Res<Literal> {
        let mut open: Vec<Vec<Literal>> = Vec::new();
        loop {
            let mut done = if cur.eat(b'(') {
                open.push(Vec::new());
                if open.len() > DEPTH {
                    return fail("P014", cur.since(cur.at - 1), format!("expected at most {DEPTH} tuples within each other"));
                }
                if cur.peek() != b')' {
                    continue;
                }
                None
            } else {
                let shape = self.shape(cur)?;
                Some(self.array_literal(cur, shape)?)
            };
            loop {
                if let Some(literal) = done {
                    match open.last_mut() {
                        Some(elements) => elements.push(literal),
                        None => return Ok(literal),
                    }
                    if cur.eat(b',') {
                        break;
                    }
                }
                cur.expect(b')', "`,` or `)`")?;
                let elements = open.pop().expect("a parenthesis was opened");
                let shape = Shape::Tuple(elements.iter().map(|e| e.shape).collect());
                done = Some(Literal { shape: self.module.shapes.intern(shape), value: LiteralValue::Tuple(elements) });
            }
        }
    }

    fn array_literal(&mut self, cur: &mut Cursor<'t>, shape: ShapeId) -> Res<Literal> {
        cur.blanks();
        let start = cur.at;
        let Shape::Array(array) = self.module.shapes.get(shape).clone() else {
            return fail("P051", Span::new(start, start + 1), "expected an array: only arrays and tuples of them have a constant");
        };
        let (shape, array) = if array.dims.iter().any(|d| d.dynamic) {
            let mut fixed = array;
            if fixed.dims.iter().any(|d| d.size < 0) {
                return fail("P051", Span::new(start, start + 1), "expected a constant of known size");
            }
            fixed.dims.iter_mut().for_each(|d| d.dynamic = false);
            (self.module.shapes.intern(Shape::Array(fixed.clone())), fixed)
        } else {
            (shape, array)
        };
        let value = match array.element {
            ElementType::Known(primitive) => elements(cur, &array, primitive)?,
            ElementType::Unknown(_) => {
                return fail("P051", Span::new(start, start + 1), "expected a known element type: its constants cannot be read");
            }
        };
        Ok(Literal { shape, value })
    }
}

/// The elements of an array; commas are blanks, as in XLA.
fn elements(cur: &mut Cursor<'_>, array: &ArrayShape, primitive: Primitive) -> Res<LiteralValue> {
    let rank = array.dims.len();
    let mut out = Vec::with_capacity(usize::try_from(array.elements()).map_or(0, |n| n.min(16)) * primitive.literal_bytes());
    if rank == 0 {
        if cur.peek() == b'{' {
            return fail("P051", Span::new(cur.at, cur.at + 1), "expected no braces: the constant is a scalar");
        }
        if cur.rest().starts_with("...") {
            return fail("P051", Span::new(cur.at, cur.at + 3), "expected a value: only arrays may be left out as `{...}`");
        }
        element(cur, primitive, &mut out)?;
        return Ok(LiteralValue::Dense(out.into()));
    }
    let count_all = array.elements();
    if !matches!(cur.peek(), b'{' | b'.' | b',' | b')') && (1..=MOST_ZEROS).contains(&count_all) {
        // XLA takes a bare value for the first element and fills the rest with zeros.
        element(cur, primitive, &mut out)?;
        out.resize(usize::try_from(count_all).unwrap_or(0) * out.len(), 0);
        return Ok(LiteralValue::Dense(out.into()));
    }
    let mut seen = vec![0i64; rank];
    let mut depth = 0;
    let mut elided = false;
    loop {
        let byte = cur.peek();
        let at = cur.at;
        let here = Span::new(at, at + 1);
        match byte {
            b',' if depth > 0 => cur.at += 1,
            b'{' => {
                if depth == rank {
                    return fail("P051", here, format!("expected {rank} nested braces, found more"));
                }
                if depth > 0 {
                    count(&mut seen, array, depth - 1, here)?;
                }
                depth += 1;
                cur.at += 1;
            }
            b'}' if depth > 0 => {
                depth -= 1;
                if !elided && seen[depth] != array.dims[depth].size {
                    let message = format!("expected {} elements in dimension {depth}, found {}", array.dims[depth].size, seen[depth]);
                    return fail("P051", here, message);
                }
                seen[depth] = 0;
                cur.at += 1;
                if depth == 0 {
                    return Ok(if elided { LiteralValue::Elided } else { LiteralValue::Dense(out.into()) });
                }
            }
            b'.' if cur.rest().starts_with("...") => {
                if depth != 1 {
                    return fail(
                        "P051",
                        Span::new(at, at + 3),
                        format!("expected `...` in the outermost braces only, found it in {depth}"),
                    );
                }
                elided = true;
                cur.at += 3;
                while cur.eat(b',') {}
                if cur.peek() != b'}' {
                    return cur.expected("`}` after `...`");
                }
            }
            _ if depth != rank => {
                let what = if depth == 0 { "`{`" } else { "`{` or `}`" };
                let (span, found) = super::errors::token(cur.text, at);
                return fail("P051", span, format!("expected {what}: the constant has {rank} dimensions, found {found} in {depth} braces"));
            }
            _ => {
                count(&mut seen, array, depth - 1, here)?;
                element(cur, primitive, &mut out)?;
            }
        }
    }
}

fn count(seen: &mut [i64], array: &ArrayShape, dim: usize, here: Span) -> Res<()> {
    seen[dim] += 1;
    if seen[dim] > array.dims[dim].size {
        return fail("P051", here, format!("expected {} elements in dimension {dim}, found more", array.dims[dim].size));
    }
    Ok(())
}

/// One element, appended as its little-endian bytes.
#[inline]
fn element(cur: &mut Cursor<'_>, primitive: Primitive, out: &mut Vec<u8>) -> Res<()> {
    if primitive.is_complex() {
        let part = if primitive == Primitive::C64 { Primitive::F32 } else { Primitive::F64 };
        cur.expect(b'(', "`(` before a complex number")?;
        real(cur, part, out)?;
        cur.expect(b',', "`,` after the real part")?;
        real(cur, part, out)?;
        return cur.expect(b')', "`)` after a complex number");
    }
    if primitive.is_float() {
        return real(cur, primitive, out);
    }
    let start = {
        cur.blanks();
        cur.at
    };
    if primitive == Primitive::Pred && super::cursor::begins_word(cur.byte()) {
        out.push(u8::from(cur.boolean()?));
        return Ok(());
    }
    let value = integer(cur)?;
    if primitive == Primitive::Pred {
        out.push(u8::from(value != 0));
        return Ok(());
    }
    let bits = primitive.bits();
    let fits = match (primitive.is_signed_integer(), bits) {
        (_, 64) => true,
        (true, bits) => (-(1i64 << (bits - 1))..1i64 << (bits - 1)).contains(&value),
        (false, bits) => (0..1i64 << bits).contains(&value),
    };
    if !fits {
        return fail("P052", cur.since(start), format!("expected a value in the range of `{}`, found {value}", primitive.name()));
    }
    // Sub-byte types keep their bits in the low end of a byte.
    let mask = if bits < 8 { (1u8 << bits) - 1 } else { u8::MAX };
    let bytes = value.to_le_bytes();
    out.push(bytes[0] & mask);
    out.extend_from_slice(&bytes[1..primitive.literal_bytes()]);
    Ok(())
}

/// An integer that is a whole token.
fn integer(cur: &mut Cursor<'_>) -> Res<i64> {
    cur.blanks();
    match number_token(cur) {
        Some((digits, true)) => {
            let span = cur.since(cur.at - digits.len());
            parse_int(digits, span)
        }
        Some((digits, false)) => {
            let at = cur.at - digits.len();
            super::errors::expected(cur.text, at, "an integer")
        }
        None => cur.expected("an integer"),
    }
}

/// The longest number from here, and whether it is an integer; `None` where there is none or where it is part of another token.
#[inline]
fn number_token<'t>(cur: &mut Cursor<'t>) -> Option<(&'t str, bool)> {
    let bytes = &cur.text.as_bytes()[cur.at..];
    let digits = |mut i: usize| {
        while bytes.get(i).is_some_and(u8::is_ascii_digit) {
            i += 1;
        }
        i
    };
    let first = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(first);
    let mut end = whole;
    if bytes.get(end) == Some(&b'.') && (whole > first || (first == 1 && bytes.get(end + 1).is_some_and(u8::is_ascii_digit))) {
        end = digits(end + 1);
    } else if whole == first {
        return None;
    }
    let mut is_int = end == whole;
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
            is_int = false;
        }
    }
    if bytes.get(end).is_some_and(|b| is_word(*b) && *b != b'-') {
        return None;
    }
    let token = &cur.text[cur.at..cur.at + end];
    cur.at += end;
    Some((token, is_int))
}

/// A real number of a float type.
#[inline]
fn real(cur: &mut Cursor<'_>, primitive: Primitive, out: &mut Vec<u8>) -> Res<()> {
    cur.blanks();
    let start = cur.at;
    let bits = match number_token(cur) {
        Some((digits, is_int)) => {
            let span = Span::new(start, cur.at);
            // An integer goes through 64 bits, so `-0` is the positive zero and `18446744073709551615` is -1.
            #[expect(clippy::cast_precision_loss, reason = "XLA converts an integer token so")]
            let value = if is_int { parse_int(digits, span)? as f64 } else { digits.parse::<f64>().expect("the token is a number") };
            if primitive == Primitive::F32 {
                #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest float is meant")]
                let single = value as f32;
                if single.is_finite() {
                    out.extend_from_slice(&single.to_le_bytes());
                    return Ok(());
                }
            }
            let bits = float::encode(primitive, value);
            let is_kept = float::decode(primitive, bits).is_finite() && (primitive != Primitive::F8E8M0FNU || value > 0.0);
            if !is_kept || value.is_infinite() {
                return fail("P052", span, format!("expected a value in the range of `{}`, found {digits}", primitive.name()));
            }
            bits
        }
        None => special(cur, primitive)?,
    };
    out.extend_from_slice(&bits.to_le_bytes()[..primitive.literal_bytes()]);
    Ok(())
}

/// `inf`, `-inf`, `nan`, `-nan`, `nan(0x1)`.
fn special(cur: &mut Cursor<'_>, primitive: Primitive) -> Res<u64> {
    let start = cur.at;
    let negative = cur.byte() == b'-';
    cur.at += usize::from(negative);
    let word = cur.word_here();
    let sign = if negative { -1.0 } else { 1.0 };
    match word {
        "inf" => Ok(float::encode(primitive, f64::INFINITY * sign)),
        "nan" if cur.byte() == b'(' => payload(cur, start, primitive, negative),
        "nan" => Ok(float::encode(primitive, f64::NAN.copysign(sign))),
        _ => {
            cur.at = start;
            cur.expected("a number")
        }
    }
}

fn payload(cur: &mut Cursor<'_>, start: usize, primitive: Primitive, negative: bool) -> Res<u64> {
    let at = cur.at;
    cur.at += 1;
    let word = cur.word_here();
    let value = word.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let (Some(value), b')') = (value, cur.byte()) else {
        cur.at = at;
        return cur.expected("a NaN payload like `(0x1)`");
    };
    cur.at += 1;
    let span = cur.since(start);
    // Bits of the mantissa, for the types whose NaNs have one.
    let mantissa = match primitive {
        Primitive::F64 => 52,
        Primitive::F32 => 23,
        Primitive::F16 => 10,
        Primitive::BF16 => 7,
        Primitive::F8E5M2 => 2,
        Primitive::F8E4M3 => 3,
        Primitive::F8E3M4 => 4,
        _ => return fail("P052", span, format!("expected a NaN without payload: `{}` has none", primitive.name())),
    };
    let mask = (1u64 << mantissa) - 1;
    if value == 0 || value > mask {
        return fail("P052", span, format!("expected a NaN payload from 0x1 to {mask:#x}"));
    }
    let width = primitive.bits();
    let exponent = ((1u64 << (width - 1 - mantissa)) - 1) << mantissa;
    Ok((u64::from(negative) << (width - 1)) | exponent | value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(shape: &str, text: &str) -> Result<LiteralValue, ()> {
        let mut reader = Reader::new(shape);
        let id = reader.shape(&mut Cursor { text: shape, at: 0 }).expect("the shape is right");
        let joined = format!("{text})");
        let mut reader = Reader { module: reader.module, ..Reader::new(&joined) };
        let mut cur = Cursor { text: &joined, at: 0 };
        let literal = reader.constant(&mut cur, id).map_err(|_| ())?;
        if cur.peek() == b')' { Ok(literal.value) } else { Err(()) }
    }

    fn floats(shape: &str, text: &str) -> Vec<f32> {
        let Ok(LiteralValue::Dense(bytes)) = read(shape, text) else { panic!("{text}") };
        bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    #[test]
    fn commas_are_blanks() {
        for text in ["{1, 2, 3}", "{1 2 3}", "{,1,,2,3,}", "{1/*x*/2 3.}"] {
            assert_eq!(floats("f32[3]", text), [1.0, 2.0, 3.0], "{text}");
        }
        assert_eq!(floats("f32[2]", "{1-1}"), [1.0, -1.0]);
    }

    #[test]
    fn negative_zero_needs_a_point() {
        assert!(floats("f32[]", "-0")[0].is_sign_positive() && floats("f32[]", "-0.0")[0].is_sign_negative());
        assert_eq!(floats("f32[]", "18446744073709551615"), [-1.0]);
    }

    #[test]
    fn payloads_are_kept() {
        assert_eq!(floats("f32[]", "-nan(0x7fffff)")[0].to_bits(), 0xffff_ffff);
        assert_eq!(floats("f32[]", "nan(0xAB)")[0].to_bits(), 0x7f80_00ab);
        for (shape, bad) in
            [("f32[]", "nan(0x0)"), ("f32[]", "nan(0x800000)"), ("f8e4m3fn[]", "nan(0x1)"), ("f8e5m2[]", "nan(0x4)"), ("f32[]", "nan(12)")]
        {
            assert!(read(shape, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges() {
        for (shape, good) in [
            ("s8[]", "-128"),
            ("u64[]", "-1"),
            ("s64[]", "9223372036854775808"),
            ("s1[]", "-1"),
            ("f16[]", "65504"),
            ("f4e2m1fn[]", "100"),
            ("f8e4m3[]", "241"),
            ("f8e4m3fn[]", "inf"),
            ("f32[]", "1e-50"),
            ("pred[]", "-1"),
            ("s32[]", "18446744073709551615"),
            ("f8e8m0fnu[]", "1e-39"),
        ] {
            assert!(read(shape, good).is_ok(), "{shape} {good}");
        }
        for (shape, bad) in [
            ("s8[]", "128"),
            ("u8[]", "-1"),
            ("s1[]", "1"),
            ("f16[]", "65520"),
            ("f32[]", "1e39"),
            ("f64[]", "1e999"),
            ("f8e4m3fn[]", "500"),
            ("f8e8m0fnu[]", "0"),
            ("f8e8m0fnu[]", "-1"),
            ("s32[]", "1.0"),
            ("s32[]", "1e3"),
            ("pred[]", "1.0"),
            ("f32[]", "true"),
            ("f32[]", ".5"),
            ("f32[]", "+1"),
            ("s32[1]", "{0_1}"),
            ("s64[]", "-9223372036854775809"),
        ] {
            assert!(read(shape, bad).is_err(), "{shape} {bad}");
        }
    }

    #[test]
    fn braces_nest_by_rank() {
        assert!(read("f32[2,0]", "{ {}, {} }").is_ok() && read("f32[0,3]", "{}").is_ok());
        assert_eq!(read("f32[4]", "{1, ...}"), Ok(LiteralValue::Elided));
        assert_eq!(read("f32[2,2]", "{{1,2},...}"), Ok(LiteralValue::Elided));
        assert!(read("(f32[], (s32[2]))", "(1, ({1, 2}))").is_ok());
        for (shape, bad) in [
            ("f32[3]", "{1, 2}"),
            ("f32[3]", "{1, 2, 3, 4}"),
            ("f32[3]", "1, 2, 3"),
            ("f32[0]", "1"),
            ("f32[]", "{1}"),
            ("f32[2,2]", "{1, 2, 3, 4}"),
            ("f32[2,2]", "{{{1}, 2}, {3, 4}}"),
            ("f32[2,10]", "{{...},{...}}"),
            ("f32[]", "{...}"),
            ("(f32[], s32[])", "(1)"),
            ("(f32[])", "{...}"),
            ("token[]", ""),
        ] {
            assert!(read(shape, bad).is_err(), "{shape} {bad}");
        }
    }
}
