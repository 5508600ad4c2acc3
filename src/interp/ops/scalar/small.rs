//! `f16` and `bf16` from and to `f32`: without tables and nearly without branches, so that loops over them are vectorised.

/// The value of a `bf16`.
#[inline]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest `bf16`, ties to even. A NaN stays one and keeps its sign and the upper part of its payload.
#[inline]
pub fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let kept = if value.is_nan() { bits | 0x40_0000 } else { rounded };
    (kept >> 16) as u16
}

/// The value of an `f16`.
#[inline]
pub fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff);
    let sign = u32::from(bits & 0x8000) << 16;
    // The exponent's bias differs by 112: 2^112 corrects it, for subnormal numbers too.
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude << 13 | 0x7f80_0000;
    f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { finite })
}

/// The nearest `f16`, ties to even; infinity from 65520 on. A NaN stays one and keeps its sign and the upper part of its payload.
#[inline]
pub fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Adding 0.5 leaves the subnormal's mantissa, rounded, in the lowest bits.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    let nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    let out = if magnitude > 0x7f80_0000 {
        nan
    } else if magnitude >= 65520f32.to_bits() {
        0x7c00
    } else if magnitude < (113 << 23) {
        subnormal
    } else {
        normal
    };
    (sign | out) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Primitive, float};

    #[test]
    fn they_agree_with_the_table_of_formats() {
        for bits in 0..=u16::MAX {
            for (p, to, from) in [
                (Primitive::F16, f16_to_f32 as fn(u16) -> f32, f16_from_f32 as fn(f32) -> u16),
                (Primitive::BF16, bf16_to_f32, bf16_from_f32),
            ] {
                let expected = float::decode(p, bits.into());
                let value = to(bits);
                assert!(f64::from(value).to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan(), "{p:?} {bits:#x}");
                for near in [value, value * 1.000_244_1, value * 0.999_633_8, f32::from_bits(value.to_bits() ^ 0x1000), value / 3.0] {
                    let expected = float::encode(p, near.into());
                    assert!(u64::from(from(near)) == expected || near.is_nan() && to(from(near)).is_nan(), "{p:?} {near:e}");
                }
            }
        }
    }
}
