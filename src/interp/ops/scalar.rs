//! Elementwise operations on one element of any type, given and returned as its bits.
//!
//! Types smaller than `f32` compute in `f32` and round once, as XLA:CPU does. Transcendental functions of `f32` compute in `f64` and round,
//! so they are right to within a hair of half a unit in the last place; those of `f64` are `libm`'s, within about one unit.

mod complex;
mod convert;
mod int;
mod real;
mod small;

pub use convert::{convert, reduce_precision};
pub use real::{binary_f32, binary_f64, unary_f32, unary_f64};
pub use small::{bf16_from_f32, bf16_to_f32, f16_from_f32, f16_to_f32};

use crate::ir::{Binary, CompareType, Direction, Primitive, Unary, float};

/// The bits of one element, zero-extended; a complex number has its real part in the low half of its own width.
pub type Bits = u128;

/// The element type that a unary operation gives.
pub fn unary_element(op: Unary, element: Primitive) -> Primitive {
    match (op, element) {
        (Unary::IsFinite, _) => Primitive::Pred,
        (Unary::Abs | Unary::Real | Unary::Imag, Primitive::C64) => Primitive::F32,
        (Unary::Abs | Unary::Real | Unary::Imag, Primitive::C128) => Primitive::F64,
        _ => element,
    }
}

/// The element type that a binary operation gives.
pub fn binary_element(op: Binary, element: Primitive) -> Primitive {
    match (op, element) {
        (Binary::Complex, Primitive::F32) => Primitive::C64,
        (Binary::Complex, Primitive::F64) => Primitive::C128,
        _ => element,
    }
}

/// The value of a type smaller than `f32`, or of `f32`.
pub(super) fn to_f32(element: Primitive, bits: Bits) -> f32 {
    match element {
        Primitive::F32 => f32::from_bits(bits as u32),
        Primitive::BF16 => bf16_to_f32(bits as u16),
        Primitive::F16 => f16_to_f32(bits as u16),
        _ => float::decode(element, bits as u64) as f32,
    }
}

/// The bits of a type smaller than `f32`, or of `f32`.
pub(super) fn from_f32(element: Primitive, value: f32) -> Bits {
    match element {
        Primitive::F32 => value.to_bits().into(),
        Primitive::BF16 => bf16_from_f32(value).into(),
        Primitive::F16 => f16_from_f32(value).into(),
        _ => float::encode(element, value.into()).into(),
    }
}

/// One operand. Operations that a type does not have leave it as it is.
pub fn unary(op: Unary, element: Primitive, x: Bits) -> Bits {
    match element {
        Primitive::F64 if op == Unary::IsFinite => f64::from_bits(x as u64).is_finite().into(),
        Primitive::F64 => unary_f64(op, f64::from_bits(x as u64)).to_bits().into(),
        Primitive::C64 | Primitive::C128 => complex::unary(op, element, x),
        _ if element.is_float() => {
            let value = to_f32(element, x);
            if op == Unary::IsFinite { value.is_finite().into() } else { from_f32(element, unary_f32(op, value)) }
        }
        _ => int::unary(op, element, x as u64).into(),
    }
}

/// Two operands of one type. Operations that a type does not have give the left operand.
pub fn binary(op: Binary, element: Primitive, a: Bits, b: Bits) -> Bits {
    match element {
        Primitive::F32 if op == Binary::Complex => a | b << 32,
        Primitive::F64 if op == Binary::Complex => a | b << 64,
        Primitive::F64 => binary_f64(op, f64::from_bits(a as u64), f64::from_bits(b as u64)).to_bits().into(),
        Primitive::C64 | Primitive::C128 => complex::binary(op, element, a, b),
        _ if element.is_float() => from_f32(element, binary_f32(op, to_f32(element, a), to_f32(element, b))),
        _ => int::binary(op, element, a as u64, b as u64).into(),
    }
}

/// Whether `a DIRECTION b`. Without a type, floats compare as IEEE 754 says (a NaN differs from everything), integers by their sign.
pub fn compare(direction: Direction, ty: Option<CompareType>, element: Primitive, a: Bits, b: Bits) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let ordering = if element.is_complex() {
        return match direction {
            Direction::Ne => complex::load(element, a) != complex::load(element, b),
            _ => complex::load(element, a) == complex::load(element, b),
        };
    } else if !element.is_float() {
        Some(int::order(element, a as u64).cmp(&int::order(element, b as u64)))
    } else if ty == Some(CompareType::Total) {
        Some(total_order(element, a).cmp(&total_order(element, b)))
    } else {
        value(element, a).partial_cmp(&value(element, b))
    };
    match direction {
        Direction::Eq => ordering == Some(Equal),
        Direction::Ne => ordering != Some(Equal),
        Direction::Lt => ordering == Some(Less),
        Direction::Gt => ordering == Some(Greater),
        Direction::Le => matches!(ordering, Some(Less | Equal)),
        Direction::Ge => matches!(ordering, Some(Greater | Equal)),
    }
}

fn value(element: Primitive, bits: Bits) -> f64 {
    match element {
        Primitive::F64 => f64::from_bits(bits as u64),
        _ => to_f32(element, bits).into(),
    }
}

/// A number that orders the bits of a float as `TOTALORDER`: -NaN, -infinity, …, -0, +0, …, infinity, NaN.
pub(super) fn total_order(element: Primitive, bits: Bits) -> i64 {
    let unused = 64 - element.bits();
    let signed = ((bits as u64) << unused).cast_signed() >> unused;
    if signed < 0 { signed ^ i64::MAX } else { signed }
}

/// A number that orders as integers (and `pred`) of the type do.
pub(super) fn int_order(element: Primitive, bits: Bits) -> i128 {
    int::order(element, bits as u64)
}

/// `clamp(low, x, high)`: the smaller of `high` and the larger of `low` and `x`; NaN where one is.
pub fn clamp(element: Primitive, low: Bits, x: Bits, high: Bits) -> Bits {
    binary(Binary::Minimum, element, binary(Binary::Maximum, element, low, x), high)
}

/// Whether the operation can be carried out on the type.
pub fn has_unary(op: Unary, element: Primitive) -> bool {
    use Unary::{Abs, CountLeadingZeros, Erf, Imag, IsFinite, Negate, Not, PopCount, Real, RoundNearestAfz, RoundNearestEven, Sign};
    match op {
        Not => !element.is_float() && !element.is_complex(),
        PopCount | CountLeadingZeros => element.is_integer(),
        Abs | Negate | Sign => element != Primitive::Pred,
        Real | Imag => element.is_float() || element.is_complex(),
        IsFinite | RoundNearestAfz | RoundNearestEven | Unary::Ceil | Unary::Floor | Erf => element.is_float(),
        _ => element.is_float() || element.is_complex(),
    }
}

/// Whether the operation can be carried out on the type.
pub fn has_binary(op: Binary, element: Primitive) -> bool {
    use Binary::{
        Add, And, Atan2, Complex, Divide, Maximum, Minimum, Mulhi, Multiply, Or, Power, Remainder, ShiftLeft, ShiftRightArithmetic,
        ShiftRightLogical, Subtract, Xor,
    };
    match op {
        And | Or | Xor => element.is_integer() || element == Primitive::Pred,
        ShiftLeft | ShiftRightArithmetic | ShiftRightLogical | Mulhi => element.is_integer(),
        Complex => matches!(element, Primitive::F32 | Primitive::F64),
        Atan2 => element.is_float() || element.is_complex(),
        Remainder => element != Primitive::Pred && !element.is_complex(),
        Divide | Power | Subtract => element != Primitive::Pred,
        Add | Multiply | Maximum | Minimum => !(element.is_complex() && matches!(op, Maximum | Minimum)),
    }
}
