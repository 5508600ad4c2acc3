//! Elementwise operations on integers and `pred`, before they are wrapped.

use super::{map, zip};
use crate::ir::{Binary, Primitive, Unary};

/// One operand of a type.
pub fn unary(op: Unary, ty: Primitive, a: &[i64], out: &mut [i64]) {
    let bits = ty.bits();
    match op {
        Unary::Abs if ty.is_signed_integer() => map(a, out, i64::wrapping_abs),
        Unary::Abs | Unary::Real => out.copy_from_slice(a),
        Unary::Imag => out.fill(0),
        Unary::Negate => map(a, out, i64::wrapping_neg),
        Unary::Not if ty == Primitive::Pred => map(a, out, |x| i64::from(x == 0)),
        Unary::Not => map(a, out, |x| !x),
        Unary::PopCount => map(a, out, |x| i64::from(cut(x, bits).count_ones())),
        Unary::CountLeadingZeros => map(a, out, |x| i64::from(cut(x, bits).leading_zeros() - (64 - bits))),
        Unary::Sign if ty == Primitive::U64 => map(a, out, |x| i64::from(x != 0)),
        Unary::Sign => map(a, out, i64::signum),
        _ => unreachable!("the build checked that `{}` takes integers", op.name()),
    }
}

fn cut(x: i64, bits: u32) -> u64 {
    x.cast_unsigned() & (u64::MAX >> (64 - bits))
}

/// Two operands of a type.
pub fn binary(op: Binary, ty: Primitive, a: &[i64], b: &[i64], out: &mut [i64]) {
    let bits = ty.bits();
    let wide = ty == Primitive::U64;
    let beyond = move |b: i64| !(0..i64::from(bits)).contains(&b);
    match op {
        Binary::Add if ty == Primitive::Pred => zip(a, b, out, |a, b| a | b),
        Binary::Add => zip(a, b, out, i64::wrapping_add),
        Binary::Subtract => zip(a, b, out, i64::wrapping_sub),
        Binary::Multiply => zip(a, b, out, i64::wrapping_mul),
        Binary::Mulhi => zip(a, b, out, |a, b| high(ty, a, b)),
        Binary::Divide if wide => zip(a, b, out, |a, b| a.cast_unsigned().checked_div(b.cast_unsigned()).map_or(-1, u64::cast_signed)),
        Binary::Divide => zip(a, b, out, |a, b| if b == 0 { -1 } else { a.wrapping_div(b) }),
        Binary::Remainder if wide => zip(a, b, out, |a, b| a.cast_unsigned().checked_rem(b.cast_unsigned()).map_or(a, u64::cast_signed)),
        Binary::Remainder => zip(a, b, out, |a, b| if b == 0 { a } else { a.wrapping_rem(b) }),
        Binary::Maximum if wide => zip(a, b, out, |a, b| a.cast_unsigned().max(b.cast_unsigned()).cast_signed()),
        Binary::Maximum => zip(a, b, out, i64::max),
        Binary::Minimum if wide => zip(a, b, out, |a, b| a.cast_unsigned().min(b.cast_unsigned()).cast_signed()),
        Binary::Minimum => zip(a, b, out, i64::min),
        Binary::Power => zip(a, b, out, |a, b| power(ty, a, b)),
        Binary::And => zip(a, b, out, |a, b| a & b),
        Binary::Or => zip(a, b, out, |a, b| a | b),
        Binary::Xor => zip(a, b, out, |a, b| a ^ b),
        Binary::ShiftLeft => zip(a, b, out, |a, b| if beyond(b) { 0 } else { a << b }),
        Binary::ShiftRightLogical => zip(a, b, out, |a, b| if beyond(b) { 0 } else { (cut(a, bits) >> b).cast_signed() }),
        Binary::ShiftRightArithmetic => zip(a, b, out, |a, b| signed(a, bits) >> if beyond(b) { 63 } else { b }),
        Binary::Atan2 | Binary::Complex => unreachable!("the build checked that `{}` takes integers", op.name()),
    }
}

/// The number with the sign that its top bit says, whatever its type.
fn signed(x: i64, bits: u32) -> i64 {
    (x << (64 - bits)) >> (64 - bits)
}

/// The upper half of a product.
fn high(ty: Primitive, a: i64, b: i64) -> i64 {
    let bits = ty.bits();
    if ty.is_signed_integer() {
        ((i128::from(a) * i128::from(b)) >> bits) as i64
    } else {
        ((u128::from(a.cast_unsigned()) * u128::from(b.cast_unsigned())) >> bits) as i64
    }
}

/// An integer power; a negative exponent gives what is left of the fraction: 0, or the base if that is 1 or -1.
fn power(ty: Primitive, base: i64, exponent: i64) -> i64 {
    if ty.is_signed_integer() && exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut left) = (1i64, base, exponent.cast_unsigned());
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

    fn one(op: Binary, ty: Primitive, a: i64, b: i64) -> i64 {
        let mut out = [0];
        binary(op, ty, &[a], &[b], &mut out);
        crate::interp::lanes::wrap(ty, out[0])
    }

    #[test]
    fn division_never_fails() {
        assert_eq!(one(Binary::Divide, Primitive::S32, 7, 0), -1);
        assert_eq!(one(Binary::Divide, Primitive::U8, 7, 0), 255);
        assert_eq!(one(Binary::Divide, Primitive::S32, i64::from(i32::MIN), -1), i64::from(i32::MIN));
        assert_eq!(one(Binary::Divide, Primitive::U64, -1, 2), i64::MAX);
        assert_eq!(one(Binary::Remainder, Primitive::S32, 7, 0), 7);
        assert_eq!(one(Binary::Remainder, Primitive::S64, i64::MIN, -1), 0);
    }

    #[test]
    fn shifts_end_at_the_width() {
        assert_eq!(one(Binary::ShiftLeft, Primitive::S8, 1, 7), -128);
        assert_eq!(one(Binary::ShiftLeft, Primitive::S8, 1, 8), 0);
        assert_eq!(one(Binary::ShiftRightArithmetic, Primitive::S8, -128, 100), -1);
        assert_eq!(one(Binary::ShiftRightLogical, Primitive::S8, -128, 7), 1);
        assert_eq!(one(Binary::ShiftRightArithmetic, Primitive::U8, 0x80, 1), 0xc0);
    }

    #[test]
    fn powers_and_high_halves() {
        assert_eq!(one(Binary::Power, Primitive::S32, 3, 4), 81);
        assert_eq!(one(Binary::Power, Primitive::S32, -1, -3), -1);
        assert_eq!(one(Binary::Power, Primitive::S32, 2, -1), 0);
        assert_eq!(one(Binary::Mulhi, Primitive::U32, 0xffff_ffff, 0xffff_ffff), 0xffff_fffe);
    }
}
