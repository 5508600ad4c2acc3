//! Conversions between all element types, and `reduce-precision`.

use super::{Bits, complex, from_f32, int, to_f32};
use crate::ir::{Primitive, float};

/// `convert`: to nearest even between floats; towards zero, saturating, NaN to 0, from floats to integers; wrapping between integers;
/// different from zero to `pred`; a real number's imaginary part is 0, and a complex number's is dropped.
///
/// To `f16` and `bf16` the way goes through `f32`; to the types of 8 bits and less it is direct.
pub fn convert(from: Primitive, to: Primitive, bits: Bits) -> Bits {
    if from == to {
        return bits;
    }
    if from.is_complex() {
        let (re, im) = complex::load(from, bits);
        return match to {
            Primitive::Pred => (re != 0.0 || im != 0.0).into(),
            _ if to.is_complex() => complex::store(to, (re, im)),
            _ => of_f64(to, re),
        };
    }
    if to.is_complex() {
        let part = if to == Primitive::C64 { Primitive::F32 } else { Primitive::F64 };
        return convert(from, part, bits);
    }
    match from {
        Primitive::F64 => of_f64(to, f64::from_bits(bits as u64)),
        _ if from.is_float() => match to {
            _ if to.is_float() && to != Primitive::F64 => from_f32(to, to_f32(from, bits)),
            _ => of_f64(to, to_f32(from, bits).into()),
        },
        _ if to == Primitive::Pred => (bits != 0).into(),
        _ if !to.is_float() => u128::from(int::signed(from, bits as u64).cast_unsigned()) & (Bits::MAX >> (128 - to.bits())),
        _ => {
            let value = int::order(from, bits as u64);
            match to {
                Primitive::F64 => of_f64(to, value as f64),
                _ => from_f32(to, value as f32),
            }
        }
    }
}

fn of_f64(to: Primitive, value: f64) -> Bits {
    match to {
        Primitive::F32 | Primitive::F16 | Primitive::BF16 => from_f32(to, value as f32),
        _ => float::encode(to, value).into(),
    }
}

/// `reduce-precision`: the nearest number (ties to even) that has so few exponent and mantissa bits, in the operand's type. Too large
/// becomes infinity, too small for a normal number of that kind becomes zero. Types other than `f16`, `bf16`, `f32`, `f64`, and numbers of
/// bits that the type does not have, leave the operand as it is.
pub fn reduce_precision(element: Primitive, exponent_bits: i32, mantissa_bits: i32, bits: Bits) -> Bits {
    let (own_exponent, own_mantissa) = match element {
        Primitive::F16 => (5u32, 10u32),
        Primitive::BF16 => (8, 7),
        Primitive::F32 => (8, 23),
        Primitive::F64 => (11, 52),
        _ => return bits,
    };
    let exponent = u32::try_from(exponent_bits).unwrap_or(0).clamp(1, own_exponent);
    let mantissa = u32::try_from(mantissa_bits).unwrap_or(0).min(own_mantissa);
    let bits = bits as u64;
    let sign = bits & 1 << (own_exponent + own_mantissa);
    let magnitude = bits ^ sign;
    let infinity = ((1u64 << own_exponent) - 1) << own_mantissa;
    if magnitude > infinity {
        return bits.into();
    }
    let dropped = own_mantissa - mantissa;
    let rounded = if dropped == 0 {
        magnitude
    } else {
        let half = (1u64 << (dropped - 1)) - 1 + (magnitude >> dropped & 1);
        (magnitude + half) >> dropped << dropped
    };
    if exponent == own_exponent {
        return (sign | rounded).into();
    }
    let own_bias = (1u64 << (own_exponent - 1)) - 1;
    let bias = (1u64 << (exponent - 1)) - 1;
    let largest = (own_bias + bias) << own_mantissa | ((1u64 << own_mantissa) - 1);
    let smallest = (own_bias - bias + 1) << own_mantissa;
    let out = if rounded > largest {
        infinity
    } else if rounded < smallest {
        0
    } else {
        rounded
    };
    (sign | out).into()
}
