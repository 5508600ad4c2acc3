//! Views: how an index of an array becomes a place in memory.
//!
//! Every operation that only moves indices about (broadcast, transpose, reverse, slice, most reshapes and bitcasts) is a view of what it
//! reads: an offset and a stride a dimension, as in any strided array library, plus offsets known only when the program runs. An iota is a
//! view whose elements are the offsets themselves.

use super::array::row_major;
use crate::ir::{PadDim, Primitive, SliceDim};

/// Which memory a view is of; a kernel is told where each lies when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// An operand.
    Param(usize),
    /// A result.
    Out(usize),
    /// Scratch memory of the kernel.
    Temp(usize),
    /// A constant.
    Const(usize),
    /// None: an element is its own offset.
    Index,
}

/// An offset read when the program runs: `min(max(index, 0), max) · stride`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dynamic {
    /// A scalar of an integer type.
    pub index: View,
    /// The largest index.
    pub max: i64,
    /// Elements a step.
    pub stride: isize,
}

/// A view of memory as an array.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The memory.
    pub slot: Slot,
    /// Its element type.
    pub element: Primitive,
    /// Dimensions, most significant first.
    pub dims: Vec<usize>,
    /// Elements from one index to the next in each dimension.
    pub strides: Vec<isize>,
    /// The element at index 0.
    pub base: isize,
    /// Offsets known only at run time.
    pub dynamic: Vec<Dynamic>,
}

impl View {
    /// All of a memory, row-major.
    pub fn dense(slot: Slot, element: Primitive, dims: &[usize]) -> Self {
        let strides = row_major(dims).into_iter().map(usize::cast_signed).collect();
        Self { slot, element, dims: dims.to_vec(), strides, base: 0, dynamic: Vec::new() }
    }
    /// All of a memory, in the order of a layout (fastest dimension first).
    pub fn of_layout(slot: Slot, element: Primitive, dims: &[usize], minor_to_major: &[usize]) -> Self {
        let mut strides = vec![0; dims.len()];
        let mut stride = 1isize;
        for &d in minor_to_major {
            strides[d] = stride;
            stride *= dims[d].cast_signed();
        }
        Self { slot, element, dims: dims.to_vec(), strides, base: 0, dynamic: Vec::new() }
    }
    /// The indices of one dimension.
    pub fn iota(element: Primitive, dims: &[usize], dimension: usize) -> Self {
        let mut strides = vec![0; dims.len()];
        strides[dimension] = 1;
        Self { slot: Slot::Index, element, dims: dims.to_vec(), strides, base: 0, dynamic: Vec::new() }
    }
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }
    /// Dimension `dimensions[i]` of the result is dimension `i` of this one; the others repeat it.
    pub fn broadcast(mut self, dimensions: &[usize], dims: &[usize]) -> Self {
        let mut strides = vec![0; dims.len()];
        for (&d, &stride) in dimensions.iter().zip(&self.strides) {
            strides[d] = stride;
        }
        self.strides = strides;
        self.dims = dims.to_vec();
        self
    }
    /// Dimension `i` of the result is dimension `dimensions[i]` of this one.
    pub fn transpose(mut self, dimensions: &[usize]) -> Self {
        self.strides = dimensions.iter().map(|&d| self.strides[d]).collect();
        self.dims = dimensions.iter().map(|&d| self.dims[d]).collect();
        self
    }
    /// These dimensions run backwards.
    pub fn reverse(mut self, dimensions: &[usize]) -> Self {
        for &d in dimensions {
            self.base += self.strides[d] * self.dims[d].saturating_sub(1).cast_signed();
            self.strides[d] = -self.strides[d];
        }
        self
    }
    /// A part; bounds are within the dimensions, steps positive.
    pub fn slice(mut self, slices: &[SliceDim]) -> Self {
        for (d, slice) in slices.iter().enumerate() {
            let (start, stride) = (slice.start as isize, slice.stride as isize);
            self.base += self.strides[d] * start;
            self.strides[d] *= stride;
            self.dims[d] = usize::try_from((slice.limit - slice.start).max(0)).expect("not negative").div_ceil(stride.unsigned_abs());
        }
        self
    }
    /// A part of the given sizes from indices on that are read at run time, clamped so that the part lies inside.
    pub fn dynamic_slice(mut self, indices: &[Self], sizes: &[usize]) -> Self {
        for (d, index) in indices.iter().enumerate() {
            let max = (self.dims[d] - sizes[d]) as i64;
            if max > 0 {
                self.dynamic.push(Dynamic { index: index.clone(), max, stride: self.strides[d] });
            }
        }
        self.dims = sizes.to_vec();
        self
    }
    /// Where an operand of these dimensions lies when it is padded to this view; only what is added before and between counts, neither is
    /// negative.
    pub fn inside_padding(mut self, padding: &[PadDim], dims: &[usize]) -> Self {
        for (d, pad) in padding.iter().enumerate() {
            self.base += self.strides[d] * pad.low as isize;
            self.strides[d] *= pad.interior as isize + 1;
        }
        self.dims = dims.to_vec();
        self
    }
    /// The same elements in the same row-major order with other dimensions; `None` if no strides say that.
    pub fn reshape(mut self, dims: &[usize]) -> Option<Self> {
        if dims.contains(&0) {
            self.strides = vec![0; dims.len()];
            self.dims = dims.to_vec();
            return Some(self);
        }
        let (sizes, steps) = coalesce(&self.dims, &self.strides);
        let mut segments = sizes.into_iter().zip(steps).rev();
        let (mut left, mut step) = segments.next().unwrap_or((1, 0));
        let mut strides = vec![0; dims.len()];
        for (d, &size) in dims.iter().enumerate().rev() {
            if size == 1 {
                continue;
            }
            if left == 1 {
                (left, step) = segments.next()?;
            }
            if left % size != 0 {
                return None;
            }
            strides[d] = step;
            step *= size.cast_signed();
            left /= size;
        }
        self.strides = strides;
        self.dims = dims.to_vec();
        Some(self)
    }
    /// The same bytes read with other dimensions: both layouts fastest dimension first. `None` if no strides say that.
    pub fn bitcast(self, from: &[usize], dims: &[usize], to: &[usize]) -> Option<Self> {
        let from_major: Vec<usize> = from.iter().rev().copied().collect();
        let to_major: Vec<usize> = to.iter().rev().copied().collect();
        let physical: Vec<usize> = to_major.iter().map(|&d| dims[d]).collect();
        Some(self.transpose(&from_major).reshape(&physical)?.transpose(&inverse(&to_major)))
    }
    /// What a loop needs of it.
    pub fn access(&self) -> Access {
        let (dims, strides) = coalesce(&self.dims, &self.strides);
        Access { slot: self.slot, element: self.element, dims, strides, base: self.base, dynamic: self.dynamic.clone() }
    }
}

/// The inverse of a permutation.
pub fn inverse(permutation: &[usize]) -> Vec<usize> {
    let mut out = vec![0; permutation.len()];
    for (i, &d) in permutation.iter().enumerate() {
        out[d] = i;
    }
    out
}

/// The fewest dimensions that visit the same offsets in the same order.
pub fn coalesce(dims: &[usize], strides: &[isize]) -> (Vec<usize>, Vec<isize>) {
    let (mut sizes, mut steps) = (Vec::<usize>::new(), Vec::<isize>::new());
    for (&size, &step) in dims.iter().zip(strides) {
        if size == 1 {
            continue;
        }
        match (sizes.last_mut(), steps.last_mut()) {
            (Some(outer), Some(outer_step)) if *outer_step == step * size.cast_signed() => {
                *outer *= size;
                *outer_step = step;
            }
            _ => {
                sizes.push(size);
                steps.push(step);
            }
        }
    }
    (sizes, steps)
}

/// A view as a loop visits it: in row-major order, by the number of the element in that order.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The memory.
    pub slot: Slot,
    /// Its element type.
    pub element: Primitive,
    /// Coalesced dimensions.
    pub dims: Vec<usize>,
    /// Their strides.
    pub strides: Vec<isize>,
    /// The element at index 0.
    pub base: isize,
    /// Offsets known only at run time.
    pub dynamic: Vec<Dynamic>,
}

/// Calls `f(offset, count, stride, done)` for stretches of elements `start..start + len` of the row-major order that lie at equal distances.
pub fn for_each_run(
    dims: &[usize],
    strides: &[isize],
    base: isize,
    start: usize,
    len: usize,
    mut f: impl FnMut(isize, usize, isize, usize),
) {
    if len == 0 {
        return;
    }
    let Some((&inner, outer)) = dims.split_last() else { return f(base, len, 0, 0) };
    let step = strides[outer.len()];
    let mut index = smallvec::SmallVec::<[usize; 6]>::from_elem(0, outer.len());
    let mut rest = start / inner.max(1);
    let mut at = start % inner.max(1);
    let mut offset = base;
    for d in (0..outer.len()).rev() {
        index[d] = rest % outer[d];
        rest /= outer[d];
        offset += index[d].cast_signed() * strides[d];
    }
    let mut done = 0;
    while done < len {
        let count = (inner - at).min(len - done);
        f(offset + at.cast_signed() * step, count, step, done);
        done += count;
        at = 0;
        for d in (0..outer.len()).rev() {
            index[d] += 1;
            offset += strides[d];
            if index[d] < outer[d] {
                break;
            }
            offset -= strides[d] * outer[d].cast_signed();
            index[d] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(view: &View) -> Vec<isize> {
        let access = view.access();
        let mut out = Vec::new();
        // In pieces of five, to begin in the middle of rows.
        for start in (0..view.len()).step_by(5) {
            let len = (view.len() - start).min(5);
            for_each_run(&access.dims, &access.strides, access.base, start, len, |at, count, stride, _| {
                out.extend((0..count.cast_signed()).map(|i| at + i * stride));
            });
        }
        out
    }

    #[test]
    fn views_compose() {
        let view = View::dense(Slot::Param(0), Primitive::F32, &[2, 3]);
        assert_eq!(offsets(&view.clone().transpose(&[1, 0])), [0, 3, 1, 4, 2, 5]);
        assert_eq!(offsets(&view.clone().reverse(&[1])), [2, 1, 0, 5, 4, 3]);
        assert_eq!(offsets(&view.clone().broadcast(&[0, 2], &[2, 2, 3])), [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
        let slice = |start, limit, stride| SliceDim { start, limit, stride };
        assert_eq!(offsets(&view.clone().slice(&[slice(1, 2, 1), slice(0, 3, 2)])), [3, 5]);
        assert_eq!(offsets(&view.clone().transpose(&[1, 0]).slice(&[slice(1, 3, 1), slice(0, 2, 1)])), [1, 4, 2, 5]);
    }

    #[test]
    fn reshapes_that_strides_can_say() {
        let view = View::dense(Slot::Param(0), Primitive::F32, &[4, 6]);
        assert_eq!(offsets(&view.clone().reshape(&[2, 2, 1, 6]).unwrap()), (0..24).collect::<Vec<_>>());
        let turned = view.clone().transpose(&[1, 0]);
        assert!(turned.clone().reshape(&[24]).is_none());
        assert_eq!(turned.clone().reshape(&[2, 3, 2, 2]).unwrap().strides, [3, 1, 12, 6]);
        let repeated = View::dense(Slot::Param(0), Primitive::F32, &[6]).broadcast(&[1], &[4, 6]);
        assert_eq!(repeated.clone().reshape(&[2, 2, 2, 3]).unwrap().strides, [0, 0, 3, 1]);
        assert_eq!(View::dense(Slot::Param(0), Primitive::F32, &[1]).reshape(&[]).unwrap().dims, [0usize; 0]);
    }

    #[test]
    fn a_bitcast_reads_the_same_bytes() {
        // f32[64,192]{1,0} of f32[192,64]{0,1} is a transposition.
        let view = View::of_layout(Slot::Param(0), Primitive::F32, &[192, 64], &[0, 1]);
        assert_eq!(view.strides, [1, 192]);
        let cast = view.bitcast(&[0, 1], &[64, 192], &[1, 0]).unwrap();
        assert_eq!(cast.strides, [192, 1]);
    }
}
