//! Bits of every real element type as numbers, and back.
//!
//! Formats are rows of a table: exponent and mantissa bits, bias, and what stands for what overflows. Rounding is to nearest, ties to even,
//! from the double itself for the 8-bit and smaller types, by way of `f32` for `f16` and `bf16`: so does XLA's parser. The 8-bit and
//! smaller types agree with ml_dtypes bit for bit (the tests compare checksums over all `f16` and `bf16` inputs).

use super::Primitive;

/// What a format does beyond its largest number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beyond {
    /// Infinities and NaNs with payloads, as in IEEE 754.
    Infinity,
    /// One NaN a sign, all bits set; no infinity.
    Nan,
    /// One NaN, the pattern of -0; no infinity, no negative zero.
    UnsignedNan,
    /// Neither: saturates, and a NaN becomes a zero of the other sign.
    Saturate,
}

#[derive(Clone, Copy)]
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    beyond: Beyond,
}

fn format(p: Primitive) -> Option<Format> {
    use Beyond::{Infinity, Nan, Saturate, UnsignedNan};
    let row = |exponent_bits, mantissa_bits, bias, beyond| Some(Format { exponent_bits, mantissa_bits, bias, beyond });
    match p {
        Primitive::F16 => row(5, 10, 15, Infinity),
        Primitive::BF16 => row(8, 7, 127, Infinity),
        Primitive::F8E3M4 => row(3, 4, 3, Infinity),
        Primitive::F8E4M3 => row(4, 3, 7, Infinity),
        Primitive::F8E4M3FN => row(4, 3, 7, Nan),
        Primitive::F8E4M3B11FNUZ => row(4, 3, 11, UnsignedNan),
        Primitive::F8E4M3FNUZ => row(4, 3, 8, UnsignedNan),
        Primitive::F8E5M2 => row(5, 2, 15, Infinity),
        Primitive::F8E5M2FNUZ => row(5, 2, 16, UnsignedNan),
        Primitive::F4E2M1FN => row(2, 1, 1, Saturate),
        Primitive::F6E2M3FN => row(2, 3, 1, Saturate),
        Primitive::F6E3M2FN => row(3, 2, 3, Saturate),
        _ => None,
    }
}

impl Format {
    fn sign_bit(self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }
    fn mantissa_mask(self) -> u64 {
        (1 << self.mantissa_bits) - 1
    }
    /// The largest finite number.
    fn largest(self) -> u64 {
        match self.beyond {
            Beyond::Infinity => (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1,
            Beyond::Nan => self.sign_bit() - 2,
            Beyond::UnsignedNan | Beyond::Saturate => self.sign_bit() - 1,
        }
    }
    fn decode(self, bits: u64) -> f64 {
        let sign = if bits & self.sign_bit() == 0 { 1.0 } else { -1.0 };
        let magnitude = bits & (self.sign_bit() - 1);
        if self.beyond == Beyond::UnsignedNan && magnitude == 0 {
            return if sign < 0.0 { f64::NAN } else { 0.0 };
        }
        if magnitude > self.largest() {
            let infinite = self.beyond == Beyond::Infinity && magnitude & self.mantissa_mask() == 0;
            return sign * if infinite { f64::INFINITY } else { f64::NAN };
        }
        let exponent = i32::try_from(magnitude >> self.mantissa_bits).expect("an exponent is small");
        let mantissa = magnitude & self.mantissa_mask();
        let implicit = if exponent == 0 { 0 } else { 1 << self.mantissa_bits };
        let scale = exponent.max(1) - self.bias - self.mantissa_bits.cast_signed();
        sign * (mantissa | implicit) as f64 * power_of_two(scale)
    }
    fn encode(self, value: f64) -> u64 {
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        if value.is_nan() {
            return match self.beyond {
                Beyond::Infinity => sign | (self.largest() + 1) | 1 << (self.mantissa_bits - 1),
                Beyond::Nan => sign | (self.sign_bit() - 1),
                Beyond::UnsignedNan => self.sign_bit(),
                Beyond::Saturate => sign ^ self.sign_bit(),
            };
        }
        let magnitude = self.round(value.abs());
        match self.beyond {
            _ if magnitude <= self.largest() => {}
            Beyond::Infinity => return sign | (self.largest() + 1),
            Beyond::Nan => return sign | (self.sign_bit() - 1),
            Beyond::UnsignedNan => return self.sign_bit(),
            Beyond::Saturate => return sign | self.largest(),
        }
        if magnitude == 0 && self.beyond == Beyond::UnsignedNan { 0 } else { sign | magnitude }
    }
    /// The pattern of a number of at least 0, rounded; larger than the largest one if it overflows.
    fn round(self, value: f64) -> u64 {
        if value == 0.0 {
            return 0;
        }
        let (exponent, mantissa) = split(value);
        if exponent > 1 << self.exponent_bits {
            return self.sign_bit();
        }
        let target = exponent.max(1 - self.bias);
        let shift = 52 - self.mantissa_bits + (target - exponent).unsigned_abs();
        let base = u64::try_from(target + self.bias - 1).expect("the exponent is at least the smallest") << self.mantissa_bits;
        base + shift_round(mantissa, shift)
    }
}

/// Exponent and 53-bit mantissa of a positive number. Numbers below `f64::MIN_POSITIVE` come out too large, which rounds to 0 in any format.
fn split(value: f64) -> (i32, u64) {
    let bits = value.to_bits();
    let exponent = i32::try_from(bits >> 52 & 0x7ff).expect("eleven bits") - 1023;
    (exponent, bits & ((1 << 52) - 1) | 1 << 52)
}

/// `mantissa / 2^shift`, rounded to nearest, ties to even.
fn shift_round(mantissa: u64, shift: u32) -> u64 {
    if shift == 0 {
        return mantissa;
    }
    if shift > 54 {
        return 0;
    }
    let (kept, half) = (mantissa >> shift, 1 << (shift - 1));
    let rest = mantissa & ((1 << shift) - 1);
    kept + u64::from(rest > half || rest == half && kept & 1 == 1)
}

/// 2 to the power of a number from -1022 to 1023.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(u64::try_from(exponent + 1023).expect("the exponent is in range") << 52)
}

/// The number that `bits` stand for. Integers and `pred` are converted; a complex type has no such number and gives NaN.
pub fn decode(p: Primitive, bits: u64) -> f64 {
    match p {
        Primitive::F64 => f64::from_bits(bits),
        Primitive::F32 => f64::from(f32::from_bits(bits as u32)),
        Primitive::F8E8M0FNU => match bits & 0xff {
            0xff => f64::NAN,
            bits => power_of_two(bits as i32 - 127),
        },
        Primitive::C64 | Primitive::C128 => f64::NAN,
        _ => match format(p) {
            Some(format) => format.decode(bits),
            None => {
                let unused = 64 - p.bits();
                if p.is_signed_integer() { (bits << unused).cast_signed().wrapping_shr(unused) as f64 } else { bits as f64 }
            }
        },
    }
}

/// The bits nearest to a number, ties to even. What overflows becomes what the type has for it: infinity, NaN, or the largest number.
/// `f8e8m0fnu` has no zero and no sign: both give its NaN. Integers saturate; complex types give 0.
pub fn encode(p: Primitive, value: f64) -> u64 {
    match p {
        Primitive::F64 => value.to_bits(),
        Primitive::F32 => u64::from((value as f32).to_bits()),
        Primitive::F16 | Primitive::BF16 => format(p).expect("a row of the table").encode(f64::from(value as f32)),
        Primitive::F8E8M0FNU => encode_exponent(value),
        Primitive::C64 | Primitive::C128 => 0,
        _ => match format(p) {
            Some(format) => format.encode(value),
            None if p == Primitive::Pred => u64::from(value != 0.0),
            None => {
                let mask = u64::MAX >> (64 - p.bits());
                if p.is_signed_integer() {
                    let top = i64::MAX >> (64 - p.bits());
                    (value as i64).clamp(-top - 1, top).cast_unsigned() & mask
                } else {
                    (value as u64).min(mask)
                }
            }
        },
    }
}

/// `f8e8m0fnu`: nothing but an exponent.
fn encode_exponent(value: f64) -> u64 {
    if value.is_nan() || value <= 0.0 {
        return 0xff;
    }
    let (exponent, mantissa) = split(value);
    let low = exponent + 127;
    // ml_dtypes rounds ties up, and up from anything above the smallest number to the next.
    let up = match low {
        ..0 => return 0,
        0 => mantissa != 1 << 52,
        _ => mantissa >> 51 == 3,
    };
    u64::try_from(low + i32::from(up)).map_or(0xff, |bits| bits.min(0xff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
        bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    }

    /// Checksums made with ml_dtypes 0.6: of all numbers as little-endian doubles (NaN as eight bytes 0xff), of all `f16` patterns
    /// converted (NaN as 0xee), of all `bf16` patterns converted.
    const ML_DTYPES: &[(Primitive, u64, u64, u64)] = &[
        (Primitive::BF16, 0xba4d8118f06e97b5, 0xb1469bc42a474641, 0x662b152b54977a99),
        (Primitive::F16, 0x5616f7e89b6a3d85, 0xc60dd264c5a041a5, 0x7c36656701c788e5),
        (Primitive::F8E3M4, 0xa1fd8618ba1c9b25, 0xace1b7e77edee4a5, 0xfa5ee381b0f96465),
        (Primitive::F8E4M3, 0x5ffd42c04f15f25, 0x88def1f3b3d857a5, 0x4f637c65f0b64ca5),
        (Primitive::F8E4M3FN, 0xea498f85ce605f09, 0x467e53ade3a6825, 0xbb02fd2fdc982d15),
        (Primitive::F8E4M3B11FNUZ, 0x27a50ab4faba8a9d, 0xe59565690695dfa5, 0xd5790c7b1acd5325),
        (Primitive::F8E4M3FNUZ, 0xbcad08644f5fedcd, 0x8b8164958b4ddfa5, 0xcdc95891c2005325),
        (Primitive::F8E5M2, 0x701604e6ba552e45, 0x38500b3f9a0d23a5, 0xa292cc880330b625),
        (Primitive::F8E5M2FNUZ, 0x92f2f3daabea651d, 0x32d3096a1125d9a5, 0x128040695bf5c425),
        (Primitive::F8E8M0FNU, 0xa9cafead2f905368, 0x5f06d2c41e4b0306, 0xdb6c82953489f09b),
        (Primitive::F4E2M1FN, 0xb7a536e39150e235, 0xf272207f370a152d, 0xa55414bb722191ad),
        (Primitive::F6E2M3FN, 0xec0cc051702db885, 0xa0422848e2ccd85, 0xb56da631c32b9ef5),
        (Primitive::F6E3M2FN, 0xa1716230c365c5f5, 0x2b1fff927b90605, 0xe0f0acc537ca8c5),
    ];

    fn converted(to: Primitive, from: Primitive) -> u64 {
        let wide = to.bits() == 16;
        fnv((0..=0xffff).flat_map(|bits| {
            let value = decode(from, bits);
            let bits = if value.is_nan() { 0xee } else { encode(to, value) };
            bits.to_le_bytes().into_iter().take(if wide { 2 } else { 1 })
        }))
    }

    #[test]
    fn all_agree_with_ml_dtypes() {
        for &(p, decoded, from_f16, from_bf16) in ML_DTYPES {
            let numbers = (0..1 << p.bits()).flat_map(|bits| {
                let value = decode(p, bits);
                if value.is_nan() { [0xff; 8] } else { value.to_le_bytes() }
            });
            assert_eq!(fnv(numbers), decoded, "{p:?} decoded");
            assert_eq!(converted(p, Primitive::F16), from_f16, "f16 to {p:?}");
            assert_eq!(converted(p, Primitive::BF16), from_bf16, "bf16 to {p:?}");
        }
    }

    #[test]
    fn all_bits_survive() {
        for &(p, ..) in ML_DTYPES {
            for bits in 0..1u64 << p.bits() {
                let value = decode(p, bits);
                assert!(value.is_nan() || encode(p, value) == bits, "{p:?} {bits:#x} {value}");
            }
        }
        assert_eq!(decode(Primitive::S4, 0xd), -3.0);
        assert_eq!(encode(Primitive::S4, -3.0), 0xd);
    }

    #[test]
    fn rounding_is_xlas() {
        // Seen in XLA's parser: just above a tie, f16 and bf16 lose the excess on the way through f32, the 8-bit types do not.
        assert_eq!(encode(Primitive::F16, 1.0004882812509095), 0x3c00);
        assert_eq!(encode(Primitive::BF16, 1.0039062500009095), 0x3f80);
        assert_eq!(encode(Primitive::F8E4M3FN, 1.0625000000000002), 0x39);
        assert_eq!(encode(Primitive::F8E8M0FNU, 1.4999999999999998), 0x7f);
        assert_eq!(encode(Primitive::F8E8M0FNU, 1e-50), 0);
        assert_eq!(encode(Primitive::F4E2M1FN, f64::NAN), 8);
        assert_eq!(encode(Primitive::F4E2M1FN, 100.0), 7);
    }
}
