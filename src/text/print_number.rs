//! Numbers in HLO text: as C's `%g` writes them, with as many digits as XLA uses, and more where those do not read back.

use std::fmt::Write as _;

use crate::ir::Primitive;
use crate::ir::float::{decode, encode};

/// C's `%.{digits}g`.
pub(super) fn general(value: f64, digits: usize) -> String {
    if !value.is_finite() || value == 0.0 {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return format!(
            "{sign}{}",
            if value.is_nan() {
                "nan"
            } else if value == 0.0 {
                "0"
            } else {
                "inf"
            }
        );
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("`e` stands in it");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let digits = i32::try_from(digits).expect("few digits");
    if (-4..digits).contains(&exponent) {
        let places = usize::try_from(digits - 1 - exponent).expect("not negative");
        let fixed = format!("{value:.places$}");
        return strip_zeros(&fixed).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", strip_zeros(mantissa), exponent.abs())
}

fn strip_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// A double that is no element of a constant, in six digits or in as many as it takes.
pub(super) fn double(value: f64, faithful: bool) -> String {
    let short = general(value, 6);
    if !faithful || !value.is_finite() || short.parse() == Ok(value) {
        return short;
    }
    (7..=17).map(|digits| general(value, digits)).find(|text| text.parse() == Ok(value)).unwrap_or(short)
}

/// Digits that XLA tries, the second where the first does not read back.
fn digits(p: Primitive) -> (usize, usize) {
    match p {
        Primitive::F64 => (15, 17),
        Primitive::F32 => (6, 9),
        Primitive::BF16 => (4, 4),
        Primitive::F16 => (5, 5),
        Primitive::F8E5M2 | Primitive::F8E5M2FNUZ | Primitive::F8E8M0FNU | Primitive::F4E2M1FN | Primitive::F6E3M2FN => (2, 2),
        _ => (3, 3),
    }
}

/// Bits of the mantissa of types whose NaNs have payloads.
fn payload_bits(p: Primitive) -> Option<u32> {
    match p {
        Primitive::F64 => Some(52),
        Primitive::F32 => Some(23),
        Primitive::F16 => Some(10),
        Primitive::BF16 => Some(7),
        Primitive::F8E3M4 => Some(4),
        Primitive::F8E4M3 => Some(3),
        Primitive::F8E5M2 => Some(2),
        _ => None,
    }
}

/// An element of a real floating-point type.
pub(super) fn float(out: &mut String, p: Primitive, bits: u64, faithful: bool) {
    let value = decode(p, bits);
    if value.is_nan() {
        let sign = bits >> (p.bits() - 1) & 1 == 1 && p != Primitive::F8E8M0FNU;
        out.push_str(if sign { "-nan" } else { "nan" });
        if let Some(width) = payload_bits(p) {
            let payload = bits & ((1 << width) - 1);
            if payload != 1 << (width - 1) {
                write!(out, "(0x{payload:x})").expect("a string takes all");
            }
        }
        return;
    }
    if value == 0.0 && value.is_sign_negative() && faithful {
        // An integer token `-0` reads as 0.
        out.push_str("-0.0");
        return;
    }
    let reads_back = |text: &str| text.parse().is_ok_and(|value| encode(p, value) == bits);
    let (short, long) = digits(p);
    let mut text = general(value, short);
    if (short != long || faithful) && value.is_finite() && !reads_back(&text) {
        text = general(value, long);
        if faithful && !reads_back(&text) {
            text = (long + 1..=17).map(|digits| general(value, digits)).find(|text| reads_back(text)).unwrap_or(text);
        }
    }
    out.push_str(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_c_writes_them() {
        for (value, digits, text) in [
            (0.1, 6, "0.1"),
            (1e7, 6, "1e+07"),
            (123456.0, 6, "123456"),
            (1234567.0, 6, "1.23457e+06"),
            (0.0001, 6, "0.0001"),
            (0.00001234, 6, "1.234e-05"),
            (9.9999995, 6, "10"),
            (-2000.0, 15, "-2000"),
            (100000.0, 6, "100000"),
        ] {
            assert_eq!(general(value, digits), text);
        }
    }

    #[test]
    fn every_narrow_number_reads_back() {
        for &p in Primitive::ALL.iter().filter(|p| p.is_float() && p.bits() <= 16) {
            for bits in 0..1u64 << p.bits() {
                let value = decode(p, bits);
                let mut text = String::new();
                float(&mut text, p, bits, true);
                if !value.is_nan() {
                    assert_eq!(encode(p, text.parse().unwrap()), bits, "{p:?} {text}");
                }
            }
        }
    }

    #[test]
    fn as_xla_writes_them() {
        let f32 = |value: f32| {
            let mut out = String::new();
            float(&mut out, Primitive::F32, value.to_bits().into(), true);
            out
        };
        assert_eq!(f32(f32::MAX), "3.40282347e+38");
        assert_eq!(f32(1e-45), "1.4013e-45");
        assert_eq!(f32(-0.0), "-0.0");
        assert_eq!(f32(f32::from_bits(0x7f80_0001)), "nan(0x1)");
        assert_eq!(f32(-f32::NAN), "-nan");
        assert_eq!(f32(f32::NEG_INFINITY), "-inf");
    }
}
