//! Fast contractions: the matrix product is `matrixmultiply`'s, rows are shared out among threads; `bf16` is left to the processor's tiles
//! where there are some ([`super::amx`]).
//!
//! Operands become `f32` first (narrower types exactly) unless both are `bf16` and there are tiles; sums are `f32` in an order that depends on
//! the machine, the result is rounded to its type once. What is given up beside the order: tiles take `bf16` numbers and sums below the least
//! normal one for zero. Cost: copies of what is no matrix of equal steps where it lies.

#![expect(unsafe_code, reason = "the library takes pointers and strides")]

use super::BLOCK;
use super::amx::{self, Results};
use super::dot::{Dot, Reader};
use super::matrix::{Batch, Matrix};
use super::run::{Bound, Frame};
use crate::interp::elementwise::{Elementwise, apply};
use crate::interp::lanes::{Block, lane};
use crate::interp::view::Access;
use crate::ir::Primitive;

/// Multiplications below which threads cost more than they give.
const WORTH_A_THREAD: usize = 1 << 20;

/// Computes all products of a contraction of real types up to 32 bits.
pub(super) fn run(dot: &Dot, frame: &Frame<'_>) -> Result<(), String> {
    let narrow = |access: &Access| dot.rounded.unwrap_or(access.element) == Primitive::BF16;
    if narrow(&dot.left) && narrow(&dot.right) && amx::available() { run_bf16(dot, frame) } else { run_f32(dot, frame) }
}

/// What strides say of an operand or the result.
fn strided(dot: &Dot, which: usize) -> Option<&Access> {
    dot.fast.as_ref().and_then(|m| m[which].as_ref())
}

/// By the library, in `f32`.
fn run_f32(dot: &Dot, frame: &Frame<'_>) -> Result<(), String> {
    let [rows, depth, columns] = [dot.rows, dot.depth, dot.columns];
    let there = |i: usize| Batch::of(frame, strided(dot, i).filter(|_| dot.rounded.is_none() || i == 2), Primitive::F32);
    let [left, right, to] = [there(0)?, there(1)?, there(2)?];
    // What cannot be used where it lies is copied.
    let space = |lies: &Option<Batch<f32>>, len: usize| vec![0.0; if lies.is_some() { 0 } else { len }];
    let (mut a, mut b, mut c) = (space(&left, rows * depth), space(&right, depth * columns), space(&to, rows * columns));
    for batch in 0..dot.batch {
        let operand = |lies: &Option<Batch<f32>>, access: &Access, copy: &mut [f32], columns: usize| -> Result<Matrix<f32>, String> {
            if let Some(lies) = lies {
                return Ok(lies.matrix(batch));
            }
            let start = batch * copy.len();
            numbers(dot, &frame.bind(access)?, start, copy.len(), |at, block| copy[at..at + block.len()].copy_from_slice(block));
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

/// On the processor's tiles, of `bf16`.
fn run_bf16(dot: &Dot, frame: &Frame<'_>) -> Result<(), String> {
    let [rows, depth, columns] = [dot.rows, dot.depth, dot.columns];
    let there = |i: usize| Batch::<u16>::of(frame, strided(dot, i), Primitive::BF16);
    let [left, right, narrow] = [there(0)?, there(1)?, there(2)?];
    let wide = Batch::<f32>::of(frame, strided(dot, 2), Primitive::F32)?;
    let space = |lies: &Option<Batch<u16>>, len: usize| vec![0u16; if lies.is_some() { 0 } else { len }];
    let (mut a, mut b) = (space(&left, rows * depth), space(&right, depth * columns));
    let mut c = vec![0.0; if narrow.is_some() || wide.is_some() { 0 } else { rows * columns }];
    for batch in 0..dot.batch {
        let operand = |lies: &Option<Batch<u16>>, access: &Access, copy: &mut [u16], columns: usize| -> Result<Matrix<u16>, String> {
            if let Some(lies) = lies {
                return Ok(lies.matrix(batch));
            }
            // The upper halves: the numbers are `bf16`s.
            numbers(dot, &frame.bind(access)?, batch * copy.len(), copy.len(), |at, block| {
                copy[at..at + block.len()].iter_mut().zip(block).for_each(|(to, x)| *to = (x.to_bits() >> 16) as u16);
            });
            Ok(Matrix::of(copy, columns))
        };
        let (x, y) = (operand(&left, &dot.left, &mut a, depth)?, operand(&right, &dot.right, &mut b, columns)?);
        let z = match (&narrow, &wide) {
            (Some(lies), _) => Results::Bf16(lies.matrix(batch)),
            (None, Some(lies)) => Results::F32(lies.matrix(batch)),
            (None, None) => Results::F32(Matrix::of(&mut c, columns)),
        };
        // SAFETY: as in `run_f32`.
        unsafe { amx::product(x, y, z, [rows, depth, columns]) };
        if narrow.is_none() && wide.is_none() {
            store(dot, &frame.bind(&dot.to)?, batch * c.len(), &c);
        }
    }
    Ok(())
}

/// Reads an operand's elements in row-major order from number `start` on; `put` takes them a block after another, by their place.
fn numbers(dot: &Dot, from: &Bound<'_>, start: usize, len: usize, mut put: impl FnMut(usize, &[f32])) {
    let mut reader = Reader::new(dot.rounded, Primitive::F32);
    for at in (0..len).step_by(BLOCK) {
        let Block::F32(block) = reader.read(from, start + at, BLOCK.min(len - at)) else { unreachable!("a block of f32") };
        put(at, block);
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
unsafe fn product(a: Matrix<f32>, b: Matrix<f32>, c: Matrix<f32>, [rows, depth, columns]: [usize; 3]) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(rows * depth * columns / WORTH_A_THREAD).min(rows).max(1);
    let share = rows.div_ceil(threads).max(1);
    let part = |first: usize| {
        // All of each is captured, not the pointers in them.
        let (a, b, c, rows) = (a.below(first), b.below(0), c.below(first), share.min(rows - first));
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
