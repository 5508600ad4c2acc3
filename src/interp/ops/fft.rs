//! `fft`: forward, inverse, real to complex and back, over the last one to three (or more) dimensions.
//!
//! Cooley and Tukey's splitting (1965) by the smallest prime factor, in `f64` whatever the type, with every root of unity computed from its
//! reduced angle; a prime length is summed directly. Cost: n × (sum of the prime factors of n) a line.

use super::elementwise::{load, store};
use super::error::{Result, ensure, refuse, sizes};
use super::index::each;
use super::number::Number;
use crate::interp::Array;
use crate::ir::Primitive;

type Complex = (f64, f64);

fn add(a: Complex, b: Complex) -> Complex {
    (a.0 + b.0, a.1 + b.1)
}

fn multiply(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// All `n` roots of unity, turning as the sign says.
fn roots(n: usize, sign: f64) -> Vec<Complex> {
    let root = |j: usize| {
        // Eighths of a turn are exact; the angle stays below an eighth.
        let (eighth, rest) = (8 * j / n, 8 * j % n);
        let (turned, forward) = if eighth.is_multiple_of(2) { (rest, true) } else { (n - rest, false) };
        let angle = std::f64::consts::FRAC_PI_4 * turned as f64 / n as f64;
        let (c, s) = (libm::cos(angle), libm::sin(angle));
        let (c, s) = match (eighth.div_ceil(2) % 4, forward) {
            (0, true) => (c, s),
            (1, false) => (s, c),
            (1, true) => (-s, c),
            (2, false) => (-c, s),
            (2, true) => (-c, -s),
            (3, false) => (-s, -c),
            (3, true) => (s, -c),
            _ => (c, -s),
        };
        (c, sign * s)
    };
    (0..n).map(root).collect()
}

/// The transform of a line, not scaled.
fn transform(line: &[Complex], sign: f64) -> Vec<Complex> {
    let n = line.len();
    if n <= 1 {
        return line.to_vec();
    }
    step(line, 1, n, &roots(n, sign))
}

/// The transform of the `n` elements of `line` that stand `stride` apart. `roots` are those of the whole length. As deep as `n` has prime
/// factors.
fn step(line: &[Complex], stride: usize, n: usize, roots: &[Complex]) -> Vec<Complex> {
    if n == 1 {
        return vec![line[0]];
    }
    let prime = (2..).take_while(|p| p * p <= n).find(|p| n.is_multiple_of(*p)).unwrap_or(n);
    let m = n / prime;
    let parts: Vec<Vec<Complex>> = (0..prime).map(|r| step(&line[r * stride..], stride * prime, m, roots)).collect();
    let scale = roots.len() / n;
    let sum = |k: usize| {
        let term = |(r, part): (usize, &Vec<Complex>)| multiply(part[k % m], roots[r * k % n * scale]);
        parts.iter().enumerate().map(term).fold((0.0, 0.0), add)
    };
    (0..n).map(sum).collect()
}

/// Transforms every line along a dimension.
fn along(data: &mut [Complex], dims: &[usize], dimension: usize, sign: f64) {
    let n = dims[dimension];
    let stride: usize = dims[dimension + 1..].iter().product();
    let mut outer = dims.to_vec();
    outer[dimension] = n.min(1);
    let strides = crate::interp::array::row_major(dims);
    each(&outer, |index| {
        let base = super::index::at(index, &strides);
        let line: Vec<Complex> = (0..n).map(|i| data[base + i * stride]).collect();
        for (i, value) in transform(&line, sign).into_iter().enumerate() {
            data[base + i * stride] = value;
        }
    });
}

/// `fft` by the number of its `FftType`: 0 FFT, 1 IFFT, 2 RFFT, 3 IRFFT; `lengths` are of the last dimensions, of the real side.
pub fn fft(operand: &Array, fft_type: i32, lengths: &[i64]) -> Result<Array> {
    let lengths = sizes(lengths)?;
    let rank = operand.dims.len();
    ensure(!lengths.is_empty() && lengths.len() <= rank, || format!("expected lengths of dimensions of {:?}", operand.dims))?;
    let outer = rank - lengths.len();
    let last = *lengths.last().expect("not empty");
    let real = [&operand.dims[..outer], &lengths].concat();
    let mut half = real.clone();
    half[rank - 1] = if last == 0 { 0 } else { last / 2 + 1 };
    let expected = if fft_type == 3 { &half } else { &real };
    ensure(operand.dims == *expected, || format!("expected an operand of {expected:?}, found {:?}", operand.dims))?;
    let element = match (fft_type, operand.element) {
        (0 | 1, Primitive::C64) | (2, Primitive::F32) => Primitive::C64,
        (0 | 1, Primitive::C128) | (2, Primitive::F64) => Primitive::C128,
        (3, Primitive::C64) => Primitive::F32,
        (3, Primitive::C128) => Primitive::F64,
        _ => return refuse(format!("expected a transform of real or complex numbers, found {fft_type} of `{}`", operand.element.name())),
    };
    let mut data: Vec<Complex> = (0..operand.len()).map(|i| Number::load(operand.element, load(operand, i))).collect();
    let total: usize = lengths.iter().product();
    let scale = if fft_type == 1 || fft_type == 3 { 1.0 / total as f64 } else { 1.0 };
    let dims = match fft_type {
        0 | 1 => {
            let sign = if fft_type == 0 { -1.0 } else { 1.0 };
            (outer..rank).rev().for_each(|d| along(&mut data, &real, d, sign));
            real
        }
        2 => {
            along(&mut data, &real, rank - 1, -1.0);
            data = data.chunks(last.max(1)).flat_map(|line| line[..half[rank - 1].min(line.len())].to_vec()).collect();
            (outer..rank - 1).rev().for_each(|d| along(&mut data, &half, d, -1.0));
            half
        }
        _ => {
            (outer..rank - 1).for_each(|d| along(&mut data, &half, d, 1.0));
            // The other half of the spectrum of real numbers is the conjugate of the first.
            let whole = |line: &[Complex]| -> Vec<Complex> {
                (0..last).map(|k| if k < line.len() { line[k] } else { (line[last - k].0, -line[last - k].1) }).collect()
            };
            data = data.chunks(half[rank - 1].max(1)).flat_map(whole).collect();
            along(&mut data, &real, rank - 1, 1.0);
            real
        }
    };
    let mut out = Array::zeros(element, &dims);
    for (i, (re, im)) in data.into_iter().enumerate() {
        let value: Complex = (re * scale, im * scale);
        let bits = if element.is_complex() { value.store(element) } else { value.0.store(element) };
        store(&mut out, i, bits);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_on_the_circle() {
        for n in 1..40 {
            for (j, root) in roots(n, 1.0).into_iter().enumerate() {
                let angle = std::f64::consts::TAU * j as f64 / n as f64;
                assert!((root.0 - angle.cos()).abs() < 4e-15 && (root.1 - angle.sin()).abs() < 4e-15, "{j} of {n}: {root:?}");
            }
        }
    }
}
