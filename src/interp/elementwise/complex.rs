//! Elementwise operations on complex numbers, in doubles.

use crate::ir::{Binary, Unary};

type Complex = [f64; 2];

fn multiply([a, b]: Complex, [c, d]: Complex) -> Complex {
    [a * c - b * d, a * d + b * c]
}

/// By the larger part of the divisor (Smith 1962), so that nothing overflows on the way.
fn divide([a, b]: Complex, [c, d]: Complex) -> Complex {
    if c.abs() >= d.abs() {
        let (r, q) = (d / c, c + d * (d / c));
        [(a + b * r) / q, (b - a * r) / q]
    } else {
        let (r, q) = (c / d, d + c * (c / d));
        [(a * r + b) / q, (b * r - a) / q]
    }
}

fn exp([re, im]: Complex) -> Complex {
    let scale = re.exp();
    if im == 0.0 { [scale, im] } else { [scale * im.cos(), scale * im.sin()] }
}

fn log([re, im]: Complex) -> Complex {
    [re.hypot(im).ln(), im.atan2(re)]
}

fn sqrt([re, im]: Complex) -> Complex {
    if re == 0.0 && im == 0.0 {
        return [0.0, im];
    }
    let half = ((re.abs() + re.hypot(im)) / 2.0).sqrt();
    if re >= 0.0 { [half, im / (2.0 * half)] } else { [im.abs() / (2.0 * half), half.copysign(im)] }
}

fn sinh([re, im]: Complex) -> Complex {
    [re.sinh() * im.cos(), re.cosh() * im.sin()]
}

fn cosh([re, im]: Complex) -> Complex {
    [re.cosh() * im.cos(), re.sinh() * im.sin()]
}

fn tanh([re, im]: Complex) -> Complex {
    // cosh² - sin² = cos² + sinh²; large arguments overflow before the quotient does.
    if re.abs() > 350.0 {
        return [re.signum(), 0.0];
    }
    let scale = im.cos() * im.cos() + re.sinh() * re.sinh();
    [re.sinh() * re.cosh() / scale, im.sin() * im.cos() / scale]
}

fn power(a: Complex, b: Complex) -> Complex {
    if a == [0.0, 0.0] {
        return if b == [0.0, 0.0] { [1.0, 0.0] } else { [0.0, 0.0] };
    }
    exp(multiply(b, log(a)))
}

/// One operand, complex result.
pub fn unary(op: Unary, x: Complex) -> Complex {
    let [re, im] = x;
    match op {
        Unary::Negate => [-re, -im],
        Unary::Exponential => exp(x),
        Unary::Exp2 => exp([re * std::f64::consts::LN_2, im * std::f64::consts::LN_2]),
        Unary::ExponentialMinusOne => {
            let half = (im / 2.0).sin();
            [re.exp_m1() * im.cos() - 2.0 * half * half, re.exp() * im.sin()]
        }
        Unary::Log => log(x),
        Unary::Log2 => log(x).map(|part| part / std::f64::consts::LN_2),
        Unary::LogPlusOne => log([re + 1.0, im]),
        Unary::Sqrt => sqrt(x),
        Unary::Rsqrt => divide([1.0, 0.0], sqrt(x)),
        Unary::Cbrt => power(x, [1.0 / 3.0, 0.0]),
        Unary::Sine => {
            let [a, b] = sinh([-im, re]);
            [b, -a]
        }
        Unary::Cosine => cosh([-im, re]),
        Unary::Tan => {
            let [a, b] = tanh([-im, re]);
            [b, -a]
        }
        Unary::Sinh => sinh(x),
        Unary::Cosh => cosh(x),
        Unary::Tanh => tanh(x),
        Unary::Logistic => {
            let [a, b] = exp([-re, -im]);
            divide([1.0, 0.0], [1.0 + a, b])
        }
        Unary::Sign => {
            let size = re.hypot(im);
            if size == 0.0 || size.is_nan() { x } else { [re / size, im / size] }
        }
        _ => unreachable!("the build checked that `{}` takes complex numbers", op.name()),
    }
}

/// One operand, real result.
pub fn part(op: Unary, [re, im]: Complex) -> f64 {
    match op {
        Unary::Real => re,
        Unary::Imag => im,
        Unary::Abs => re.hypot(im),
        _ => unreachable!("the build checked that `{}` gives real numbers", op.name()),
    }
}

/// Two operands.
pub fn binary(op: Binary, a: Complex, b: Complex) -> Complex {
    match op {
        Binary::Add => [a[0] + b[0], a[1] + b[1]],
        Binary::Subtract => [a[0] - b[0], a[1] - b[1]],
        Binary::Multiply => multiply(a, b),
        Binary::Divide => divide(a, b),
        Binary::Power => power(a, b),
        _ => unreachable!("the build checked that `{}` takes complex numbers", op.name()),
    }
}

/// Whether an operation of one operand has a complex version.
pub fn has_unary(op: Unary) -> bool {
    use Unary::{Abs, Cbrt, Cosh, Cosine, Exp2, Exponential, ExponentialMinusOne, Imag, IsFinite, Log, Log2, LogPlusOne, Logistic};
    use Unary::{Negate, Real, Rsqrt, Sign, Sine, Sinh, Sqrt, Tan, Tanh};
    [Abs, Cbrt, Cosh, Cosine, Exp2, Exponential, ExponentialMinusOne, Imag, IsFinite, Log, Log2, LogPlusOne, Logistic].contains(&op)
        || [Negate, Real, Rsqrt, Sign, Sine, Sinh, Sqrt, Tan, Tanh].contains(&op)
}

/// Whether an operation of two operands has a complex version.
pub fn has_binary(op: Binary) -> bool {
    matches!(op, Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses_undo_each_other() {
        let near = |a: Complex, b: Complex| (a[0] - b[0]).hypot(a[1] - b[1]) < 1e-12;
        for x in [[1.5, -2.0], [-0.3, 0.7], [-2.0, -0.1]] {
            assert!(near(multiply(unary(Unary::Sqrt, x), unary(Unary::Sqrt, x)), x));
            assert!(near(exp(log(x)), x));
            assert!(near(multiply(divide([1.0, 0.0], x), x), [1.0, 0.0]));
            let (sine, cosine) = (unary(Unary::Sine, x), unary(Unary::Cosine, x));
            assert!(near(binary(Binary::Add, multiply(sine, sine), multiply(cosine, cosine)), [1.0, 0.0]));
            assert!(near(divide(sine, cosine), unary(Unary::Tan, x)));
        }
    }
}
