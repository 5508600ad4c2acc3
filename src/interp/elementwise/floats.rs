//! Elementwise operations on real numbers.

use super::{map, zip};
use crate::ir::{Binary, Unary};

macro_rules! float_ops {
    ($unary:ident, $binary:ident, $t:ty) => {
        /// One operand.
        pub fn $unary(op: Unary, a: &[$t], out: &mut [$t]) {
            match op {
                Unary::Abs => map(a, out, <$t>::abs),
                Unary::Acos => map(a, out, <$t>::acos),
                Unary::Acosh => map(a, out, <$t>::acosh),
                Unary::Asin => map(a, out, <$t>::asin),
                Unary::Asinh => map(a, out, <$t>::asinh),
                Unary::Atanh => map(a, out, <$t>::atanh),
                Unary::Cbrt => map(a, out, <$t>::cbrt),
                Unary::Ceil => map(a, out, <$t>::ceil),
                Unary::Cosine => map(a, out, <$t>::cos),
                Unary::Cosh => map(a, out, <$t>::cosh),
                Unary::Erf => map(a, out, |x| erf(f64::from(x)) as $t),
                Unary::Exponential => map(a, out, <$t>::exp),
                Unary::ExponentialMinusOne => map(a, out, <$t>::exp_m1),
                Unary::Exp2 => map(a, out, <$t>::exp2),
                Unary::Floor => map(a, out, <$t>::floor),
                Unary::Imag => out.fill(0.0),
                Unary::Log => map(a, out, <$t>::ln),
                Unary::LogPlusOne => map(a, out, <$t>::ln_1p),
                Unary::Log2 => map(a, out, <$t>::log2),
                Unary::Logistic => map(a, out, |x| 1.0 / (1.0 + (-x).exp())),
                Unary::Negate => map(a, out, |x| -x),
                Unary::Real => out.copy_from_slice(a),
                Unary::RoundNearestAfz => map(a, out, <$t>::round),
                Unary::RoundNearestEven => map(a, out, <$t>::round_ties_even),
                Unary::Rsqrt => map(a, out, |x| 1.0 / x.sqrt()),
                // NaN and zeros stay what they are.
                Unary::Sign => map(a, out, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }),
                Unary::Sine => map(a, out, <$t>::sin),
                Unary::Sinh => map(a, out, <$t>::sinh),
                Unary::Sqrt => map(a, out, <$t>::sqrt),
                Unary::Tan => map(a, out, <$t>::tan),
                Unary::Tanh => map(a, out, <$t>::tanh),
                Unary::CountLeadingZeros | Unary::IsFinite | Unary::Not | Unary::PopCount => {
                    unreachable!("`{}` does not give floats", op.name())
                }
            }
        }

        /// Two operands.
        pub fn $binary(op: Binary, a: &[$t], b: &[$t], out: &mut [$t]) {
            match op {
                Binary::Add => zip(a, b, out, |a, b| a + b),
                Binary::Subtract => zip(a, b, out, |a, b| a - b),
                Binary::Multiply => zip(a, b, out, |a, b| a * b),
                Binary::Divide => zip(a, b, out, |a, b| a / b),
                Binary::Remainder => zip(a, b, out, |a, b| a % b),
                Binary::Maximum => zip(a, b, out, |a: $t, b: $t| {
                    if a > b || a.is_nan() || a == b && a.is_sign_positive() { a } else { b }
                }),
                Binary::Minimum => zip(a, b, out, |a: $t, b: $t| {
                    if a < b || a.is_nan() || a == b && a.is_sign_negative() { a } else { b }
                }),
                Binary::Power => zip(a, b, out, <$t>::powf),
                Binary::Atan2 => zip(a, b, out, <$t>::atan2),
                Binary::And
                | Binary::Or
                | Binary::Xor
                | Binary::Complex
                | Binary::Mulhi
                | Binary::ShiftLeft
                | Binary::ShiftRightArithmetic
                | Binary::ShiftRightLogical => unreachable!("`{}` does not take floats to floats", op.name()),
            }
        }
    };
}

float_ops!(unary_f32, binary_f32, f32);
float_ops!(unary_f64, binary_f64, f64);

/// The error function, by its series of positive terms `2/√π · e^(-x²) · Σ 2ⁿ x^(2n+1) / (1·3·…·(2n+1))`. Costs about 10 + 6 x² terms.
#[expect(clippy::unnecessary_cast, reason = "the macro converts to either width")]
pub fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > sum.abs() * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn the_error_function_is_exact_to_a_few_ulps() {
        // Abramowitz and Stegun, table 7.1.
        for (x, expected) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0), (-1.0, -0.842_700_792_9)] {
            assert!((erf(x) - expected).abs() < 1e-10, "erf({x}) = {}", erf(x));
        }
        assert_eq!((erf(5.9999), erf(7.0), erf(f64::NEG_INFINITY)), (1.0, 1.0, -1.0));
    }
}
