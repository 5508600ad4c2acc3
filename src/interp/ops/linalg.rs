//! `cholesky` and `triangular-solve`, in `f64` for real and pairs of `f64` for complex numbers; sums in ascending order of their index.

use super::elementwise::{load, store};
use super::error::{Result, ensure, refuse};
use super::number::Number;
use crate::interp::Array;

type Complex = (f64, f64);

fn conjugate(z: Complex) -> Complex {
    (z.0, -z.1)
}

/// `sum - a * b`.
fn subtract_product(sum: Complex, a: Complex, b: Complex) -> Complex {
    sum.add_product((-a.0, -a.1), b)
}

fn divide(a: Complex, b: Complex) -> Complex {
    if b.1 == 0.0 {
        return (a.0 / b.0, a.1 / b.0);
    }
    let square = b.0 * b.0 + b.1 * b.1;
    let (re, im) = Complex::default().add_product(a, conjugate(b));
    (re / square, im / square)
}

fn read(array: &Array, base: usize, n: usize) -> Vec<Complex> {
    (base..base + n).map(|i| Number::load(array.element, load(array, i))).collect()
}

fn write(array: &mut Array, base: usize, values: &[Complex]) {
    let element = array.element;
    for (i, value) in values.iter().enumerate() {
        let bits = if element.is_complex() { value.store(element) } else { value.0.store(element) };
        store(array, base + i, bits);
    }
}

/// Sizes of a square matrix in the last two dimensions, and the number of matrices.
fn square(array: &Array) -> Result<(usize, usize)> {
    match array.dims.as_slice() {
        [outer @ .., n, m] if n == m && (array.element.is_float() || array.element.is_complex()) => Ok((*n, outer.iter().product())),
        dims => refuse(format!("expected square matrices of real or complex numbers, found {dims:?}")),
    }
}

/// `cholesky`: the triangular factor, zero in the other half. Only the named half of the operand is read. A matrix that is not positive
/// definite gives NaN everywhere.
pub fn cholesky(operand: &Array, lower: bool) -> Result<Array> {
    let (n, count) = square(operand)?;
    let mut out = Array::zeros(operand.element, &operand.dims);
    for matrix in 0..count {
        let a = read(operand, matrix * n * n, n * n);
        // The lower half, whichever was given.
        let at = |i: usize, j: usize| if lower { a[i * n + j] } else { conjugate(a[j * n + i]) };
        let mut l = vec![Complex::default(); n * n];
        let mut definite = true;
        for j in 0..n {
            for i in j..n {
                let mut sum = if i == j { (at(i, j).0, 0.0) } else { at(i, j) };
                for k in 0..j {
                    sum = subtract_product(sum, l[i * n + k], conjugate(l[j * n + k]));
                }
                l[i * n + j] = if i == j {
                    definite &= sum.0 > 0.0;
                    (sum.0.sqrt(), 0.0)
                } else {
                    (sum.0 / l[j * n + j].0, sum.1 / l[j * n + j].0)
                };
            }
        }
        let entry = |i: usize, j: usize| match (definite, lower) {
            (false, _) => (f64::NAN, f64::NAN),
            (true, true) => l[i * n + j],
            (true, false) => conjugate(l[j * n + i]),
        };
        let values: Vec<Complex> = (0..n * n).map(|k| entry(k / n, k % n)).collect();
        write(&mut out, matrix * n * n, &values);
    }
    Ok(out)
}

/// What a triangular solve does; fields as in `TriangularSolveOptions`.
#[derive(Clone, Copy, Debug)]
pub struct TriangularOptions {
    /// `op(a) x = b` rather than `x op(a) = b`.
    pub left_side: bool,
    /// Whether the lower half of `a` is read.
    pub lower: bool,
    /// Whether the diagonal is taken for ones.
    pub unit_diagonal: bool,
    /// `op`: 1 none, 2 transposed, 3 transposed and conjugated.
    pub transpose_a: i32,
}

/// `triangular-solve`, by substitution.
pub fn triangular_solve(a: &Array, b: &Array, options: TriangularOptions) -> Result<Array> {
    let (n, count) = square(a)?;
    let rank = b.dims.len();
    let fits = rank == a.dims.len() && b.dims[..rank - 2] == a.dims[..rank - 2] && b.element == a.element;
    ensure(fits && b.dims[if options.left_side { rank - 2 } else { rank - 1 }] == n, || {
        format!("expected a right side for {:?}, found {:?}", a.dims, b.dims)
    })?;
    let (rows, columns) = (b.dims[rank - 2], b.dims[rank - 1]);
    let transposed = options.transpose_a >= 2;
    let mut out = Array::zeros(b.element, &b.dims);
    for matrix in 0..count {
        let matrix_a = read(a, matrix * n * n, n * n);
        let op = |i: usize, j: usize| {
            let value = if transposed { matrix_a[j * n + i] } else { matrix_a[i * n + j] };
            if options.transpose_a == 3 { conjugate(value) } else { value }
        };
        // `x op(a) = b` is `op(a)ᵀ xᵀ = bᵀ`.
        let coefficient = |i: usize, j: usize| if options.left_side { op(i, j) } else { op(j, i) };
        let is_lower = options.lower ^ transposed ^ !options.left_side;
        let mut x = read(b, matrix * rows * columns, rows * columns);
        let (lines, place): (usize, &dyn Fn(usize, usize) -> usize) =
            if options.left_side { (columns, &|i, line| i * columns + line) } else { (rows, &|i, line| line * columns + i) };
        for line in 0..lines {
            for step in 0..n {
                let i = if is_lower { step } else { n - 1 - step };
                let mut sum = x[place(i, line)];
                for k in if is_lower { 0..i } else { i + 1..n } {
                    sum = subtract_product(sum, coefficient(i, k), x[place(k, line)]);
                }
                x[place(i, line)] = if options.unit_diagonal { sum } else { divide(sum, coefficient(i, i)) };
            }
        }
        write(&mut out, matrix * rows * columns, &x);
    }
    Ok(out)
}
