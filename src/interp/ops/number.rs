//! Numbers that contractions compute with, whatever the element type.

use super::scalar::{self, Bits};
use crate::ir::Primitive;

/// A type to accumulate in.
pub(super) trait Number: Copy + Default {
    /// From an element's bits, exactly.
    fn load(element: Primitive, bits: Bits) -> Self;
    /// To an element's bits, rounded once.
    fn store(self, element: Primitive) -> Bits;
    /// `self + a * b`, the product rounded before the sum.
    fn add_product(self, a: Self, b: Self) -> Self;
}

impl Number for f32 {
    #[inline]
    fn load(element: Primitive, bits: Bits) -> Self {
        if element == Primitive::F32 {
            f32::from_bits(bits as u32)
        } else {
            Number::load(Primitive::F32, scalar::convert(element, Primitive::F32, bits))
        }
    }
    fn store(self, element: Primitive) -> Bits {
        scalar::convert(Primitive::F32, element, self.to_bits().into())
    }
    #[inline]
    fn add_product(self, a: Self, b: Self) -> Self {
        self + a * b
    }
}

impl Number for f64 {
    fn load(element: Primitive, bits: Bits) -> Self {
        f64::from_bits(scalar::convert(element, Primitive::F64, bits) as u64)
    }
    fn store(self, element: Primitive) -> Bits {
        scalar::convert(Primitive::F64, element, self.to_bits().into())
    }
    #[inline]
    fn add_product(self, a: Self, b: Self) -> Self {
        self + a * b
    }
}

/// Integers of all widths: the low bits of a product depend on nothing above them.
impl Number for i64 {
    fn load(element: Primitive, bits: Bits) -> Self {
        if element.is_signed_integer() {
            let unused = 64 - element.bits();
            ((bits as u64) << unused).cast_signed() >> unused
        } else {
            (bits as u64).cast_signed()
        }
    }
    fn store(self, element: Primitive) -> Bits {
        scalar::convert(Primitive::S64, element, u128::from(self.cast_unsigned()))
    }
    #[inline]
    fn add_product(self, a: Self, b: Self) -> Self {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

impl Number for (f32, f32) {
    fn load(element: Primitive, bits: Bits) -> Self {
        let bits = scalar::convert(element, Primitive::C64, bits);
        (f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32))
    }
    fn store(self, element: Primitive) -> Bits {
        let bits = u128::from(self.0.to_bits()) | u128::from(self.1.to_bits()) << 32;
        scalar::convert(Primitive::C64, element, bits)
    }
    #[inline]
    fn add_product(self, a: Self, b: Self) -> Self {
        (self.0 + (a.0 * b.0 - a.1 * b.1), self.1 + (a.0 * b.1 + a.1 * b.0))
    }
}

impl Number for (f64, f64) {
    fn load(element: Primitive, bits: Bits) -> Self {
        let bits = scalar::convert(element, Primitive::C128, bits);
        (f64::from_bits(bits as u64), f64::from_bits((bits >> 64) as u64))
    }
    fn store(self, element: Primitive) -> Bits {
        let bits = u128::from(self.0.to_bits()) | u128::from(self.1.to_bits()) << 64;
        scalar::convert(Primitive::C128, element, bits)
    }
    #[inline]
    fn add_product(self, a: Self, b: Self) -> Self {
        (self.0 + (a.0 * b.0 - a.1 * b.1), self.1 + (a.0 * b.1 + a.1 * b.0))
    }
}
