//! Real functions of `f32` and `f64`.

use crate::ir::{Binary, Unary};

/// A unary operation; [`Unary::IsFinite`] gives 1 or 0, what only integers have gives the operand.
#[inline]
pub fn unary_f64(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Abs => x.abs(),
        Unary::Acos => libm::acos(x),
        Unary::Acosh => acosh(x),
        Unary::Asin => libm::asin(x),
        Unary::Asinh => asinh(x),
        Unary::Atanh => atanh(x),
        Unary::Cbrt => libm::cbrt(x),
        Unary::Ceil => x.ceil(),
        Unary::Cosine => libm::cos(x),
        Unary::Cosh => libm::cosh(x),
        Unary::Erf => libm::erf(x),
        Unary::Exponential => libm::exp(x),
        Unary::ExponentialMinusOne => libm::expm1(x),
        Unary::Exp2 => libm::exp2(x),
        Unary::Floor => x.floor(),
        Unary::Imag => 0.0,
        Unary::IsFinite => f64::from(u8::from(x.is_finite())),
        Unary::Log => libm::log(x),
        Unary::LogPlusOne => libm::log1p(x),
        Unary::Log2 => libm::log2(x),
        Unary::Logistic => 1.0 / (1.0 + libm::exp(-x)),
        Unary::Negate => -x,
        Unary::RoundNearestAfz => x.round(),
        Unary::RoundNearestEven => x.round_ties_even(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Sign => sign(x),
        Unary::Sine => libm::sin(x),
        Unary::Sinh => libm::sinh(x),
        Unary::Sqrt => x.sqrt(),
        Unary::Tan => libm::tan(x),
        Unary::Tanh => libm::tanh(x),
        Unary::CountLeadingZeros | Unary::Not | Unary::PopCount | Unary::Real => x,
    }
}

/// A unary operation; [`Unary::IsFinite`] gives 1 or 0, what only integers have gives the operand. Exact where `f32` is (rounding, sign,
/// square root); the rest is computed in `f64` and rounded.
#[inline]
pub fn unary_f32(op: Unary, x: f32) -> f32 {
    let wide = f64::from(x);
    match op {
        Unary::Abs => x.abs(),
        Unary::Negate => -x,
        Unary::Ceil => x.ceil(),
        Unary::Floor => x.floor(),
        Unary::RoundNearestAfz => x.round(),
        Unary::RoundNearestEven => x.round_ties_even(),
        Unary::Sqrt => x.sqrt(),
        Unary::Exponential => exp(wide) as f32,
        Unary::Logistic => (1.0 / (1.0 + exp(-wide))) as f32,
        Unary::Tanh => tanh(wide) as f32,
        _ => unary_f64(op, wide) as f32,
    }
}

/// A binary operation; what only integers have gives the left operand.
#[inline]
pub fn binary_f64(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Remainder => a % b,
        Binary::Maximum => maximum(a, b),
        Binary::Minimum => -maximum(-a, -b),
        Binary::Power => libm::pow(a, b),
        Binary::Atan2 => libm::atan2(a, b),
        Binary::And
        | Binary::Complex
        | Binary::Mulhi
        | Binary::Or
        | Binary::ShiftLeft
        | Binary::ShiftRightArithmetic
        | Binary::ShiftRightLogical
        | Binary::Xor => a,
    }
}

/// A binary operation; what only integers have gives the left operand.
#[inline]
pub fn binary_f32(op: Binary, a: f32, b: f32) -> f32 {
    match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Remainder => a % b,
        Binary::Maximum => maximum_f32(a, b),
        Binary::Minimum => -maximum_f32(-a, -b),
        _ => binary_f64(op, a.into(), b.into()) as f32,
    }
}

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x } else { 1f64.copysign(x) }
}

/// The larger; NaN if one is; +0 is larger than -0.
fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        a + b
    } else if a > b || a == b && b.is_sign_negative() {
        a
    } else {
        b
    }
}

fn maximum_f32(a: f32, b: f32) -> f32 {
    let larger = if a > b || a == b && b.is_sign_negative() { a } else { b };
    if a.is_nan() || b.is_nan() { a + b } else { larger }
}

/// `libm::acosh` where it has no value, and without its overflow: for large numbers it is the logarithm of twice the number.
fn acosh(x: f64) -> f64 {
    if x < 1.0 {
        return f64::NAN;
    }
    if x > 1e300 { libm::log(x) + std::f64::consts::LN_2 } else { libm::acosh(x) }
}

fn asinh(x: f64) -> f64 {
    libm::asinh(x)
}

fn atanh(x: f64) -> f64 {
    if x.abs() > 1.0 {
        f64::NAN
    } else if x.abs() == 1.0 {
        f64::INFINITY.copysign(x)
    } else {
        libm::atanh(x)
    }
}

/// The exponential function for results that are rounded to `f32`: relative error below 1e-13, no branch, no table. The argument is reduced
/// to `r` in ±ln(2)/2, where the series to the 12th power is good to 2^-50.
#[inline]
fn exp(x: f64) -> f64 {
    const LN2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // `f32` overflows far before; keeps the exponent below in its bits. `clamp` passes a NaN on.
    let x = x.clamp(-700.0, 700.0);
    // Adding and taking away 1.5 × 2^52 rounds to an integer, which stands in the lowest bits of the sum.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let shifted = x * std::f64::consts::LOG2_E + SHIFT;
    let n = shifted - SHIFT;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let mut sum = 1.0 / 479_001_600.0;
    for factorial in [39_916_800.0, 3_628_800.0, 362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        sum = sum * r + 1.0 / factorial;
    }
    sum * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

/// The hyperbolic tangent for results that are rounded to `f32`; by its series near zero, where the quotient loses digits.
#[inline]
fn tanh(x: f64) -> f64 {
    let square = x * x;
    let series = x * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0 - square * 62.0 / 2835.0))));
    let quotient = 1.0 - 2.0 / (exp(2.0 * x) + 1.0);
    if square < 0.0025 { series } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_functions_are_as_good_as_f32_can_show() {
        let mut x = -120.0f64;
        while x < 120.0 {
            let near = |a: f64, b: f64| (a - b).abs() <= b.abs() * 1e-12;
            assert!(near(exp(x), libm::exp(x)), "exp({x})");
            assert!(near(tanh(x), libm::tanh(x)), "tanh({x}) {} {}", tanh(x), libm::tanh(x));
            let tiny = x * 1e-3;
            assert!(near(tanh(tiny), libm::tanh(tiny)), "tanh({tiny})");
            x += 0.007_3;
        }
        assert!(exp(f64::NAN).is_nan() && tanh(f64::NAN).is_nan());
        assert_eq!((exp(f64::NEG_INFINITY) as f32, exp(f64::INFINITY) as f32), (0.0, f32::INFINITY));
        assert_eq!((tanh(f64::NEG_INFINITY), tanh(-0.0).to_bits()), (-1.0, (-0.0f64).to_bits()));
    }

    #[test]
    fn zeros_and_nans() {
        assert_eq!(maximum(-0.0, 0.0).to_bits(), 0);
        assert_eq!(binary_f64(Binary::Minimum, 0.0, -0.0).to_bits(), (-0.0f64).to_bits());
        assert!(binary_f32(Binary::Minimum, f32::NAN, 1.0).is_nan() && binary_f32(Binary::Maximum, 1.0, f32::NAN).is_nan());
    }
}
