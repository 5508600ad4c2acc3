//! Complex numbers. `c64` adds, subtracts and multiplies in `f32`, part by part; everything else is computed in `f64`.

use crate::ir::{Binary, Primitive, Unary};

/// Real and imaginary part.
pub(super) type Complex = (f64, f64);

pub(super) fn load(element: Primitive, bits: u128) -> Complex {
    if element == Primitive::C64 {
        (f32::from_bits(bits as u32).into(), f32::from_bits((bits >> 32) as u32).into())
    } else {
        (f64::from_bits(bits as u64), f64::from_bits((bits >> 64) as u64))
    }
}

pub(super) fn store(element: Primitive, (re, im): Complex) -> u128 {
    if element == Primitive::C64 {
        u128::from((re as f32).to_bits()) | u128::from((im as f32).to_bits()) << 32
    } else {
        u128::from(re.to_bits()) | u128::from(im.to_bits()) << 64
    }
}

fn store_real(element: Primitive, value: f64) -> u128 {
    if element == Primitive::C64 { (value as f32).to_bits().into() } else { value.to_bits().into() }
}

/// The bits of the result: of a real number for `abs`, `real` and `imag`.
pub(super) fn unary(op: Unary, element: Primitive, x: u128) -> u128 {
    let z = load(element, x);
    let out = match op {
        Unary::Abs => return store_real(element, libm::hypot(z.0, z.1)),
        Unary::Real => return store_real(element, z.0),
        Unary::Imag => return store_real(element, z.1),
        Unary::IsFinite => return (z.0.is_finite() && z.1.is_finite()).into(),
        Unary::Negate => (-z.0, -z.1),
        Unary::Sign => sign(z),
        Unary::Exponential => exp(z),
        Unary::Exp2 => exp(scale(z, std::f64::consts::LN_2)),
        Unary::ExponentialMinusOne => exp_minus_one(z),
        Unary::Log => log(z),
        Unary::Log2 => scale(log(z), std::f64::consts::LOG2_E),
        Unary::LogPlusOne => log_plus_one(z),
        Unary::Sqrt => sqrt(z),
        Unary::Rsqrt => divide((1.0, 0.0), sqrt(z)),
        Unary::Cbrt => power(z, (1.0 / 3.0, 0.0)),
        Unary::Logistic => divide((1.0, 0.0), add((1.0, 0.0), exp((-z.0, -z.1)))),
        Unary::Sine => sine(z),
        Unary::Cosine => cosine(z),
        Unary::Sinh => times_minus_i(sine(times_i(z))),
        Unary::Cosh => cosine(times_i(z)),
        Unary::Tan => times_minus_i(tanh(times_i(z))),
        Unary::Tanh => tanh(z),
        Unary::Asin => times_minus_i(asinh(times_i(z))),
        Unary::Acos => acos(z),
        Unary::Asinh => asinh(z),
        Unary::Acosh => acosh(z),
        Unary::Atanh => atanh(z),
        Unary::Ceil
        | Unary::CountLeadingZeros
        | Unary::Erf
        | Unary::Floor
        | Unary::Not
        | Unary::PopCount
        | Unary::RoundNearestAfz
        | Unary::RoundNearestEven => z,
    };
    store(element, out)
}

/// The bits of the result.
pub(super) fn binary(op: Binary, element: Primitive, a: u128, b: u128) -> u128 {
    let (x, y) = (load(element, a), load(element, b));
    let out = match op {
        // Sums of two `f32` in `f64`, rounded, are the sums in `f32`.
        Binary::Add => add(x, y),
        Binary::Subtract => (x.0 - y.0, x.1 - y.1),
        Binary::Multiply if element == Primitive::C64 => {
            let ((a, b), (c, d)) = ((x.0 as f32, x.1 as f32), (y.0 as f32, y.1 as f32));
            ((a * c - b * d).into(), (a * d + b * c).into())
        }
        Binary::Multiply => multiply(x, y),
        Binary::Divide => divide(x, y),
        Binary::Power => power(x, y),
        Binary::Atan2 => atan2(x, y),
        _ => x,
    };
    store(element, out)
}

fn add(a: Complex, b: Complex) -> Complex {
    (a.0 + b.0, a.1 + b.1)
}

fn scale(z: Complex, by: f64) -> Complex {
    (z.0 * by, z.1 * by)
}

fn multiply(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

fn times_i(z: Complex) -> Complex {
    (-z.1, z.0)
}

fn times_minus_i(z: Complex) -> Complex {
    (z.1, -z.0)
}

/// Smith's division (1962), with C99's rules for infinite and zero divisors.
fn divide(x: Complex, y: Complex) -> Complex {
    if y == (0.0, 0.0) {
        let infinity = f64::INFINITY.copysign(y.0);
        return (infinity * x.0, infinity * x.1);
    }
    let infinite = |z: Complex| z.0.is_infinite() || z.1.is_infinite();
    let finite = |z: Complex| z.0.is_finite() && z.1.is_finite();
    let unit = |v: f64| if v.is_infinite() { 1f64.copysign(v) } else { 0f64.copysign(v) };
    if infinite(x) && finite(y) {
        let (a, b) = (unit(x.0), unit(x.1));
        return (f64::INFINITY * (a * y.0 + b * y.1), f64::INFINITY * (b * y.0 - a * y.1));
    }
    if infinite(y) && finite(x) {
        let (c, d) = (unit(y.0), unit(y.1));
        return (0.0 * (x.0 * c + x.1 * d), 0.0 * (x.1 * c - x.0 * d));
    }
    if y.0.abs() >= y.1.abs() {
        let ratio = y.1 / y.0;
        let denominator = y.0 + y.1 * ratio;
        ((x.0 + x.1 * ratio) / denominator, (x.1 - x.0 * ratio) / denominator)
    } else {
        let ratio = y.0 / y.1;
        let denominator = y.0 * ratio + y.1;
        ((x.0 * ratio + x.1) / denominator, (x.1 * ratio - x.0) / denominator)
    }
}

fn sign(z: Complex) -> Complex {
    let length = libm::hypot(z.0, z.1);
    if length == 0.0 { (0.0, 0.0) } else { (z.0 / length, z.1 / length) }
}

fn exp(z: Complex) -> Complex {
    let length = libm::exp(z.0);
    if z.1 == 0.0 {
        return (length, z.1);
    }
    if z.0 == f64::NEG_INFINITY && !z.1.is_finite() {
        return (0.0, 0.0);
    }
    // The square of the root reaches further than the exponential itself.
    if length.is_infinite() && z.0.is_finite() {
        let half = libm::exp(z.0 / 2.0);
        return (half * libm::cos(z.1) * half, half * libm::sin(z.1) * half);
    }
    (length * libm::cos(z.1), length * libm::sin(z.1))
}

fn exp_minus_one(z: Complex) -> Complex {
    let (sin, half) = (libm::sin(z.1), libm::sin(z.1 / 2.0));
    let grown = libm::expm1(z.0);
    // e^a cos b - 1 = (e^a - 1) cos b - 2 sin²(b/2), without cancelling.
    let im = if z.1 == 0.0 { z.1 } else { (grown + 1.0) * sin };
    (grown * libm::cos(z.1) - 2.0 * half * half, im)
}

fn log(z: Complex) -> Complex {
    (log_abs(z), libm::atan2(z.1, z.0))
}

/// The logarithm of the absolute value, exact near 1 and without overflow.
fn log_abs(z: Complex) -> f64 {
    let (large, small) = if z.0.abs() >= z.1.abs() { (z.0.abs(), z.1.abs()) } else { (z.1.abs(), z.0.abs()) };
    if large > 0.5 && large < 2.0 {
        // |z|² - 1 = (large - 1)(large + 1) + small².
        0.5 * libm::log1p((large - 1.0) * (large + 1.0) + small * small)
    } else {
        libm::log(libm::hypot(large, small))
    }
}

fn log_plus_one(z: Complex) -> Complex {
    // |1 + z|² - 1 = a(2 + a) + b².
    let excess = z.0 * (2.0 + z.0) + z.1 * z.1;
    let re = if excess.abs() < 0.5 { 0.5 * libm::log1p(excess) } else { log_abs((1.0 + z.0, z.1)) };
    (re, libm::atan2(z.1, 1.0 + z.0))
}

fn sqrt(z: Complex) -> Complex {
    let (a, b) = z;
    if a == 0.0 && b == 0.0 {
        return (0.0, b);
    }
    if b.is_infinite() {
        return (f64::INFINITY, b);
    }
    if a.is_infinite() {
        return match (a > 0.0, b.is_nan()) {
            (true, true) => (a, b),
            (true, false) => (a, 0f64.copysign(b)),
            (false, true) => (b, a),
            (false, false) => (0.0, f64::INFINITY.copysign(b)),
        };
    }
    // A quarter before and twice after keep the sum below the largest number.
    let big = a.abs().max(b.abs()) > 1e300;
    let (x, y) = if big { (a / 4.0, b / 4.0) } else { (a, b) };
    let root = ((libm::hypot(x, y) + x.abs()) / 2.0).sqrt();
    let (root, other) = if big { (2.0 * root, b / (4.0 * root)) } else { (root, b / (2.0 * root)) };
    if a >= 0.0 { (root, other) } else { (other.abs(), root.copysign(b)) }
}

fn power(x: Complex, y: Complex) -> Complex {
    if y == (0.0, 0.0) {
        return (1.0, 0.0);
    }
    if x == (0.0, 0.0) {
        return if y.0 > 0.0 {
            (0.0, 0.0)
        } else if y.0 < 0.0 && y.1 == 0.0 {
            (f64::INFINITY, 0.0)
        } else {
            (f64::NAN, f64::NAN)
        };
    }
    exp(multiply(y, log(x)))
}

fn sine(z: Complex) -> Complex {
    let (sinh, cosh) = (libm::sinh(z.1), libm::cosh(z.1));
    let re = if z.0 == 0.0 { z.0 } else { libm::sin(z.0) * cosh };
    let im = if sinh == 0.0 { sinh } else { libm::cos(z.0) * sinh };
    (re, im)
}

fn cosine(z: Complex) -> Complex {
    let (sinh, cosh) = (libm::sinh(z.1), libm::cosh(z.1));
    (libm::cos(z.0) * cosh, if z.0 == 0.0 || sinh == 0.0 { -z.0 * sinh } else { -libm::sin(z.0) * sinh })
}

fn tanh(z: Complex) -> Complex {
    if z.0.abs() > 20.0 {
        // cosh(2a) swamps cos(2b).
        let small = 4.0 * libm::exp(-2.0 * z.0.abs());
        return (1f64.copysign(z.0), small * libm::sin(z.1) * libm::cos(z.1));
    }
    let t = libm::tan(z.1);
    let sinh = libm::sinh(z.0);
    let cosh = libm::cosh(z.0);
    // Kahan's form.
    let beta = 1.0 + t * t;
    let rho = cosh;
    if t.is_infinite() {
        return (rho / sinh, 1.0 / t);
    }
    let denominator = 1.0 + beta * sinh * sinh;
    (beta * rho * sinh / denominator, t / denominator)
}

/// Kahan's formulas ("Branch cuts for complex elementary functions", 1987).
fn acos(z: Complex) -> Complex {
    let (minus, plus) = (sqrt((1.0 - z.0, -z.1)), sqrt((1.0 + z.0, z.1)));
    let re = 2.0 * libm::atan2(minus.0, plus.0);
    (re, libm::asinh(plus.0 * minus.1 - plus.1 * minus.0))
}

fn acosh(z: Complex) -> Complex {
    let (minus, plus) = (sqrt((z.0 - 1.0, z.1)), sqrt((z.0 + 1.0, z.1)));
    let re = libm::asinh(minus.0 * plus.0 + minus.1 * plus.1);
    (re, 2.0 * libm::atan2(minus.1, plus.0))
}

fn asinh(z: Complex) -> Complex {
    // asinh z = i asin(-i z); asin w = (atan(re w / re(√(1-w) √(1+w))), asinh(im(conj √(1-w) · √(1+w)))).
    let w = times_minus_i(z);
    let (minus, plus) = (sqrt((1.0 - w.0, -w.1)), sqrt((1.0 + w.0, w.1)));
    let asin = (libm::atan2(w.0, minus.0 * plus.0 - minus.1 * plus.1), libm::asinh(minus.0 * plus.1 - minus.1 * plus.0));
    times_i(asin)
}

fn atanh(z: Complex) -> Complex {
    // atanh z = (log1p(z) - log1p(-z)) / 2, with |1+z|²/|1-z|² = 1 + 4a / |1-z|².
    let (a, b) = z;
    let square = (1.0 - a) * (1.0 - a) + b * b;
    let re = if square.is_infinite() {
        let length = libm::hypot(a, b);
        a / length / length
    } else {
        0.25 * libm::log1p(4.0 * a / square)
    };
    let im = 0.5 * libm::atan2(2.0 * b, (1.0 - a) * (1.0 + a) - b * b);
    (re, im)
}

/// `-i log((x + i y) / √(x² + y²))`.
fn atan2(y: Complex, x: Complex) -> Complex {
    let root = sqrt(add(multiply(x, x), multiply(y, y)));
    times_minus_i(log(divide(add(x, times_i(y)), root)))
}
