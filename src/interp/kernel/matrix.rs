//! Batches of matrices as libraries and assembly take them: where they lie, as a pointer and steps.

#![expect(unsafe_code, reason = "threads share what pointers lead to")]

use super::run::Frame;
use crate::interp::view::Access;
use crate::ir::Primitive;

/// A matrix: its first number and the steps between rows and between columns.
#[derive(Clone, Copy)]
pub(super) struct Matrix<T> {
    /// The number in the first row and column.
    pub start: *mut T,
    /// Numbers from one row to the next, from one column to the next.
    pub steps: [isize; 2],
}

// SAFETY: it is a place, no access; whoever reads or writes there says why that is sound.
unsafe impl<T> Send for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Matrix<T> {}

impl<T: Copy> Matrix<T> {
    /// A row-major matrix.
    pub fn of(numbers: &mut [T], columns: usize) -> Self {
        Self { start: numbers.as_mut_ptr(), steps: [columns.cast_signed(), 1] }
    }
    /// Where a number lies.
    pub fn at(self, row: usize, column: usize) -> *mut T {
        self.start.wrapping_offset(row.cast_signed() * self.steps[0] + column.cast_signed() * self.steps[1])
    }
    /// The rows from one on down.
    pub fn below(self, row: usize) -> Self {
        Self { start: self.at(row, 0), ..self }
    }
}

/// A batch of matrices that can be used where they lie.
pub(super) struct Batch<T> {
    first: Matrix<T>,
    step: isize,
}

impl<T: Copy> Batch<T> {
    /// `None` unless strides say it, its numbers are `element`s, which `T` is the form of, all of them in memory, and aligned.
    pub fn of(frame: &Frame<'_>, access: Option<&Access>, element: Primitive) -> Result<Option<Self>, String> {
        let Some(access) = access.filter(|a| a.element == element && !a.dims.contains(&0)) else { return Ok(None) };
        let base = frame.bind(access)?.base();
        let Some((buffer, offset)) = frame.place(access.slot) else { return Ok(None) };
        let [batch, row, column] = [0, 1, 2].map(|d| access.strides[d]);
        let reach: isize = access.dims.iter().zip(&access.strides).map(|(&d, &s)| (d - 1).cast_signed() * s).sum();
        let cells = &buffer.cells()[offset..];
        let inside = access.strides.iter().all(|&s| s >= 0)
            && base >= 0
            && element.literal_bytes() == size_of::<T>()
            && (base + reach + 1).unsigned_abs() * size_of::<T>() <= cells.len();
        let start = cells.as_ptr().cast_mut().cast::<T>();
        let fits = inside && start.is_aligned();
        Ok(fits.then(|| Self { first: Matrix { start: start.wrapping_offset(base), steps: [row, column] }, step: batch }))
    }
    /// A matrix of the batch.
    pub fn matrix(&self, batch: usize) -> Matrix<T> {
        Matrix { start: self.first.start.wrapping_offset(batch.cast_signed() * self.step), ..self.first }
    }
}
