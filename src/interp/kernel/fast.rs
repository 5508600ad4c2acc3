//! Fast contractions: the matrix product is `matrixmultiply`'s, rows are shared out among threads.
//!
//! Operands become `f32` first (narrower types exactly), sums are `f32` in an order that depends on the machine, the result is rounded to its
//! type once. Cost: copies of what is no `f32` matrix of equal steps where it lies.

#![expect(unsafe_code, reason = "the library takes pointers and strides")]

use super::BLOCK;
use super::dot::{Dot, Reader};
use super::run::{Bound, Frame};
use crate::interp::elementwise::{Elementwise, apply};
use crate::interp::lanes::{Block, lane};
use crate::interp::view::Access;
use crate::ir::Primitive;

/// Multiplications below which threads cost more than they give.
const WORTH_A_THREAD: usize = 1 << 20;

/// A matrix: its first number and the steps between rows and between columns.
#[derive(Clone, Copy)]
struct Matrix {
    start: *mut f32,
    steps: [isize; 2],
}

// SAFETY: what a matrix leads to is only touched by `product`, whose callers promise that it may.
unsafe impl Send for Matrix {}
// SAFETY: as above.
unsafe impl Sync for Matrix {}

impl Matrix {
    fn of(numbers: &mut [f32], columns: usize) -> Self {
        Self { start: numbers.as_mut_ptr(), steps: [columns.cast_signed(), 1] }
    }
    fn row(self, row: usize) -> Self {
        Self { start: self.start.wrapping_offset(row.cast_signed() * self.steps[0]), ..self }
    }
}

/// A batch of matrices of `f32` that can be used where they lie.
struct Batch {
    first: Matrix,
    step: isize,
}

impl Batch {
    /// `None` unless strides say it, its numbers are `f32` as they are, all of them in memory, and aligned.
    fn of(frame: &Frame<'_>, access: Option<&Access>) -> Result<Option<Self>, String> {
        let Some(access) = access.filter(|a| a.element == Primitive::F32 && !a.dims.contains(&0)) else { return Ok(None) };
        let base = frame.bind(access)?.base();
        let Some((buffer, offset)) = frame.place(access.slot) else { return Ok(None) };
        let [batch, row, column] = [0, 1, 2].map(|d| access.strides[d]);
        let reach: isize = access.dims.iter().zip(&access.strides).map(|(&d, &s)| (d - 1).cast_signed() * s).sum();
        let cells = &buffer.cells()[offset..];
        let inside = access.strides.iter().all(|&s| s >= 0) && base >= 0 && (base + reach + 1).unsigned_abs() * 4 <= cells.len();
        let start = cells.as_ptr().cast_mut().cast::<f32>();
        let fits = inside && start.is_aligned();
        Ok(fits.then(|| Self { first: Matrix { start: start.wrapping_offset(base), steps: [row, column] }, step: batch }))
    }
    fn matrix(&self, batch: usize) -> Matrix {
        Matrix { start: self.first.start.wrapping_offset(batch.cast_signed() * self.step), ..self.first }
    }
}

/// Computes all products of a contraction of real types up to 32 bits.
pub(super) fn run(dot: &Dot, frame: &Frame<'_>) -> Result<(), String> {
    let (rows, columns, depth) = (dot.rows, dot.columns, dot.depth);
    let there = |i: usize| Batch::of(frame, dot.fast.as_ref().and_then(|m| m[i].as_ref()).filter(|_| dot.rounded.is_none() || i == 2));
    let [left, right, to] = [there(0)?, there(1)?, there(2)?];
    // What cannot be used where it lies is copied.
    let space = |lies: &Option<Batch>, len: usize| vec![0.0; if lies.is_some() { 0 } else { len }];
    let (mut a, mut b, mut c) = (space(&left, rows * depth), space(&right, depth * columns), space(&to, rows * columns));
    for batch in 0..dot.batch {
        let operand = |lies: &Option<Batch>, access: &Access, copy: &mut [f32], columns: usize| -> Result<Matrix, String> {
            if let Some(lies) = lies {
                return Ok(lies.matrix(batch));
            }
            numbers(dot, &frame.bind(access)?, batch * copy.len(), copy);
            Ok(Matrix::of(copy, columns))
        };
        let (x, y) = (operand(&left, &dot.left, &mut a, depth)?, operand(&right, &dot.right, &mut b, columns)?);
        let z = to.as_ref().map_or_else(|| Matrix::of(&mut c, columns), |lies| lies.matrix(batch));
        // SAFETY: all three lie in memory of ours, checked by `Batch::of` or just made; a result never lies where operands do (`Kernel::run`
        // sees to it), and two of its elements never lie at one place.
        unsafe { product(x, y, z, [rows, depth, columns]) };
        if to.is_none() {
            store(dot, &frame.bind(&dot.to)?, batch * c.len(), &c);
        }
    }
    Ok(())
}

fn numbers(dot: &Dot, from: &Bound<'_>, start: usize, out: &mut [f32]) {
    let mut reader = Reader::new(dot.rounded, Primitive::F32);
    for (i, chunk) in out.chunks_mut(BLOCK).enumerate() {
        let Block::F32(block) = reader.read(from, start + i * BLOCK, chunk.len()) else { unreachable!("a block of f32") };
        chunk.copy_from_slice(block);
    }
}

fn store(dot: &Dot, to: &Bound<'_>, start: usize, from: &[f32]) {
    let mut values = Block::F32(Vec::new());
    let mut out = Block::zeros(lane(dot.to.element), 0);
    for (i, chunk) in from.chunks(BLOCK).enumerate() {
        if let Block::F32(v) = &mut values {
            v.clear();
            v.extend_from_slice(chunk);
        }
        out.resize(chunk.len());
        apply(Elementwise::Convert, Primitive::F32, dot.to.element, &[&values], &mut out);
        to.store(start + i * BLOCK, chunk.len(), &out);
    }
}

/// `c = a · b`.
///
/// # Safety
/// The matrices lie in memory of `f32` that nobody writes meanwhile, `c`'s elements apart from each other and from `a` and `b`.
unsafe fn product(a: Matrix, b: Matrix, c: Matrix, [rows, depth, columns]: [usize; 3]) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(rows * depth * columns / WORTH_A_THREAD).min(rows).max(1);
    let share = rows.div_ceil(threads).max(1);
    let part = |first: usize| {
        let (a, b, c, rows) = (a.row(first), b.row(0), c.row(first), share.min(rows - first));
        // SAFETY: the caller's; the parts have rows of their own.
        unsafe {
            matrixmultiply::sgemm(
                rows, depth, columns, 1.0, a.start, a.steps[0], a.steps[1], b.start, b.steps[0], b.steps[1], 0.0, c.start, c.steps[0],
                c.steps[1],
            );
        }
    };
    std::thread::scope(|scope| {
        for first in (share..rows).step_by(share) {
            scope.spawn(move || part(first));
        }
        if rows > 0 {
            part(0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_rows() {
        let (rows, depth, columns) = (130, 129, 131);
        let numbers = |n: usize, k: usize| (0..n).map(|i| ((i * k) % 7) as f32 - 3.0).collect::<Vec<_>>();
        let (mut a, mut b) = (numbers(rows * depth, 3), numbers(depth * columns, 5));
        let mut c = vec![f32::NAN; rows * columns];
        let matrices = (Matrix::of(&mut a, depth), Matrix::of(&mut b, columns), Matrix::of(&mut c, columns));
        // SAFETY: three vectors of those sizes.
        unsafe { product(matrices.0, matrices.1, matrices.2, [rows, depth, columns]) };
        // Small integers: every order gives the same.
        for i in [0, 64, 129] {
            for j in [0, 65, 130] {
                let sum: f32 = (0..depth).map(|k| a[i * depth + k] * b[k * columns + j]).sum();
                assert_eq!(c[i * columns + j].to_bits(), sum.to_bits());
            }
        }
    }
}
