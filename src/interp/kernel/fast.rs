//! Fast contractions: the matrix product is `matrixmultiply`'s, rows are shared out among threads.
//!
//! Operands become `f32` first (narrower types exactly), sums are `f32` in an order that depends on the machine, the result is rounded to its
//! type once. Cost: copies of both operands and of the result as `f32`.

#![expect(unsafe_code, reason = "the library takes pointers and strides")]

use super::BLOCK;
use super::dot::{Dot, Reader};
use super::run::{Bound, Frame};
use crate::interp::elementwise::{Elementwise, apply};
use crate::interp::lanes::{Block, lane};
use crate::ir::Primitive;

/// Multiplications below which threads cost more than they give.
const WORTH_A_THREAD: usize = 1 << 20;

/// Computes all products of a contraction of real types up to 32 bits.
pub(super) fn run(dot: &Dot, frame: &Frame<'_>) -> Result<(), String> {
    let (left, right, to) = (frame.bind(&dot.left)?, frame.bind(&dot.right)?, frame.bind(&dot.to)?);
    let (rows, columns, depth) = (dot.rows, dot.columns, dot.depth);
    let mut a = vec![0.0; rows * depth];
    let mut b = vec![0.0; depth * columns];
    let mut c = vec![0.0; rows * columns];
    for batch in 0..dot.batch {
        numbers(dot, &left, batch * a.len(), &mut a);
        numbers(dot, &right, batch * b.len(), &mut b);
        product(&a, &b, &mut c, [rows, depth, columns]);
        store(dot, &to, batch * c.len(), &c);
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

/// `c = a · b`, all of them row-major.
fn product(a: &[f32], b: &[f32], c: &mut [f32], [rows, depth, columns]: [usize; 3]) {
    if rows == 0 || columns == 0 || depth == 0 {
        return c.fill(0.0);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(rows * depth * columns / WORTH_A_THREAD).min(rows).max(1);
    let share = rows.div_ceil(threads);
    let part = |a: &[f32], c: &mut [f32]| {
        let rows = a.len() / depth;
        assert!(a.len() == rows * depth && b.len() == depth * columns && c.len() == rows * columns, "the parts fit together");
        let (depth_step, column_step) = (depth.cast_signed(), columns.cast_signed());
        // SAFETY: the pointers are to `rows × depth`, `depth × columns` and `rows × columns` numbers, as was just checked, in the row-major
        // order that the strides say; the result is ours alone.
        unsafe {
            matrixmultiply::sgemm(
                rows,
                depth,
                columns,
                1.0,
                a.as_ptr(),
                depth_step,
                1,
                b.as_ptr(),
                column_step,
                1,
                0.0,
                c.as_mut_ptr(),
                column_step,
                1,
            );
        }
    };
    let mut parts = a.chunks(share * depth).zip(c.chunks_mut(share * columns));
    let Some(mine) = parts.next() else { return };
    std::thread::scope(|scope| {
        for (a, c) in parts {
            scope.spawn(|| part(a, c));
        }
        part(mine.0, mine.1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_rows() {
        let (rows, depth, columns) = (130, 129, 131);
        let numbers = |n: usize, k: usize| (0..n).map(|i| ((i * k) % 7) as f32 - 3.0).collect::<Vec<_>>();
        let (a, b) = (numbers(rows * depth, 3), numbers(depth * columns, 5));
        let mut c = vec![f32::NAN; rows * columns];
        product(&a, &b, &mut c, [rows, depth, columns]);
        // Small integers: every order gives the same.
        for i in [0, 64, 129] {
            for j in [0, 65, 130] {
                let sum: f32 = (0..depth).map(|k| a[i * depth + k] * b[k * columns + j]).sum();
                assert_eq!(c[i * columns + j].to_bits(), sum.to_bits());
            }
        }
        product(&[], &[], &mut c, [rows, 0, columns]);
        assert!(c.iter().all(|x| *x == 0.0));
    }
}
