//! Integers and `pred`: everything wraps, nothing traps.
//!
//! Division by zero gives all ones (-1, or the largest unsigned number), and leaves the dividend as the remainder; shifts by the width or
//! more give what shifting one by one would; a negative power is the whole part of the reciprocal. XLA takes an odd
//! number's exponent modulo 64, and so do we.

use crate::ir::{Binary, Primitive, Unary};

fn mask(element: Primitive) -> u64 {
    if element == Primitive::Pred { 1 } else { u64::MAX >> (64 - element.bits()) }
}

/// Sign-extended if the type is signed.
pub(super) fn signed(element: Primitive, bits: u64) -> i64 {
    let unused = 64 - element.bits();
    if element.is_signed_integer() { (bits << unused).cast_signed() >> unused } else { bits.cast_signed() }
}

/// A number that orders as the values do.
pub(super) fn order(element: Primitive, bits: u64) -> i128 {
    if element.is_signed_integer() { signed(element, bits).into() } else { bits.into() }
}

/// The bits of the result.
pub(super) fn unary(op: Unary, element: Primitive, x: u64) -> u64 {
    let value = signed(element, x);
    let out = match op {
        Unary::Abs => value.wrapping_abs().cast_unsigned(),
        Unary::Negate => value.wrapping_neg().cast_unsigned(),
        Unary::Not => !x,
        Unary::Sign if element.is_signed_integer() => value.signum().cast_unsigned(),
        Unary::Sign => u64::from(x != 0),
        Unary::PopCount => u64::from(x.count_ones()),
        Unary::CountLeadingZeros => u64::from(x.leading_zeros() + element.bits() - 64),
        Unary::IsFinite => 1,
        _ => x,
    };
    out & mask(element)
}

/// The bits of the result.
pub(super) fn binary(op: Binary, element: Primitive, a: u64, b: u64) -> u64 {
    let is_signed = element.is_signed_integer();
    let (x, y) = (signed(element, a), signed(element, b));
    let beyond = b >= u64::from(element.bits());
    let out = match op {
        Binary::Add if element == Primitive::Pred => a | b,
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::Multiply => a.wrapping_mul(b),
        Binary::Divide | Binary::Remainder if b == 0 => {
            if op == Binary::Divide {
                u64::MAX
            } else {
                a
            }
        }
        Binary::Divide if is_signed => x.wrapping_div(y).cast_unsigned(),
        Binary::Divide => a / b,
        Binary::Remainder if is_signed => x.wrapping_rem(y).cast_unsigned(),
        Binary::Remainder => a % b,
        Binary::Maximum if order(element, a) >= order(element, b) => a,
        Binary::Maximum => b,
        Binary::Minimum if order(element, a) <= order(element, b) => a,
        Binary::Minimum => b,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Mulhi if is_signed => ((i128::from(x) * i128::from(y)) >> element.bits()) as u64,
        Binary::Mulhi => ((u128::from(a) * u128::from(b)) >> element.bits()) as u64,
        Binary::Power => power(element, a, b),
        Binary::ShiftLeft if beyond => 0,
        Binary::ShiftLeft => a << b,
        Binary::ShiftRightLogical if beyond => 0,
        Binary::ShiftRightLogical => a >> b,
        Binary::ShiftRightArithmetic => {
            let unused = 64 - element.bits();
            let wide = (a << unused).cast_signed() >> unused;
            (wide >> if beyond { 63 } else { b }).cast_unsigned()
        }
        Binary::Atan2 | Binary::Complex => a,
    };
    out & mask(element)
}

fn power(element: Primitive, base: u64, exponent: u64) -> u64 {
    let (x, n) = (signed(element, base), signed(element, exponent));
    if element.is_signed_integer() && n < 0 {
        return match x {
            1 => 1,
            -1 => {
                if n % 2 == 0 {
                    1
                } else {
                    u64::MAX
                }
            }
            _ => 0,
        };
    }
    let (mut result, mut square, mut left) = (1u64, base, exponent % 64);
    if exponent >= 64 && base.is_multiple_of(2) {
        return 0;
    }
    while left > 0 {
        if left & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_traps() {
        use Primitive::{S4, S8, U8, U64};
        assert_eq!(binary(Binary::Divide, S8, 0x80, 0xff), 0x80);
        assert_eq!(binary(Binary::Remainder, S8, 0x80, 0xff), 0);
        assert_eq!(binary(Binary::Divide, U8, 7, 0), 0xff);
        assert_eq!(binary(Binary::Remainder, S8, 0xf9, 0), 0xf9);
        assert_eq!(binary(Binary::ShiftRightArithmetic, U8, 0x80, 9), 0xff);
        assert_eq!(binary(Binary::ShiftLeft, U64, 1, 64), 0);
        assert_eq!(binary(Binary::Mulhi, S8, 0x80, 0x80), 0x40);
        assert_eq!(binary(Binary::Mulhi, U64, u64::MAX, u64::MAX), u64::MAX - 1);
        assert_eq!(binary(Binary::Power, S8, 0xff, 0xfd), 0xff);
        assert_eq!(unary(Unary::CountLeadingZeros, S4, 1), 3);
        assert_eq!(unary(Unary::Abs, S8, 0x80), 0x80);
        assert_eq!(unary(Unary::Not, Primitive::Pred, 1), 0);
    }
}
