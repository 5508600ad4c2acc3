//! `ragged-dot`: a dot one of whose left dimensions is cut into groups of rows, whose sizes are known when the program runs.
//!
//! Where the cut dimension is free, each group meets a right matrix of its own, and rows beyond the groups give zero; where it is contracted,
//! each group gives a result of its own; where it is a batch dimension, the groups change nothing. Sums have the order of
//! [`dot`](super::super::kernel::Dot). Cost: a step for each product, no blocking.

use super::error::{Result, ensure, refuse, sizes};
use super::index::{at, each, pick};
use crate::interp::Array;
use crate::ir::{DotDims, Primitive};

/// Attributes of a ragged dot.
#[derive(Clone, Debug)]
pub struct RaggedDims {
    /// Contracted and batch dimensions.
    pub dot: DotDims,
    /// The left operand's dimension that is cut.
    pub ragged: usize,
    /// The right operand's dimension that counts the groups.
    pub group: Option<usize>,
}

/// Where sums of products are made.
trait Sum: Copy {
    const ZERO: Self;
    fn add(self, a: &Array, i: usize, b: &Array, j: usize) -> Self;
    fn put(self, out: &mut Array, i: usize);
}

impl Sum for f32 {
    const ZERO: Self = 0.0;
    fn add(self, a: &Array, i: usize, b: &Array, j: usize) -> Self {
        self + a.f64(i) as Self * b.f64(j) as Self
    }
    fn put(self, out: &mut Array, i: usize) {
        out.set_f64(i, self.into());
    }
}

impl Sum for f64 {
    const ZERO: Self = 0.0;
    fn add(self, a: &Array, i: usize, b: &Array, j: usize) -> Self {
        self + a.f64(i) * b.f64(j)
    }
    fn put(self, out: &mut Array, i: usize) {
        out.set_f64(i, self);
    }
}

impl Sum for i64 {
    const ZERO: Self = 0;
    fn add(self, a: &Array, i: usize, b: &Array, j: usize) -> Self {
        self.wrapping_add(a.i64(i).wrapping_mul(b.i64(j)))
    }
    fn put(self, out: &mut Array, i: usize) {
        out.set_i64(i, self);
    }
}

/// The product of `lhs` and `rhs`, whose groups have the sizes that `groups` says, one after another.
pub fn ragged_dot(lhs: &Array, rhs: &Array, groups: &Array, dims: &RaggedDims, element: Primitive, shape: &[usize]) -> Result<Array> {
    match element {
        Primitive::F64 => product::<f64>(lhs, rhs, groups, dims, element, shape),
        e if e.is_complex() => refuse("a ragged dot of complex numbers"),
        e if e.is_integer() => product::<i64>(lhs, rhs, groups, dims, element, shape),
        _ => product::<f32>(lhs, rhs, groups, dims, element, shape),
    }
}

fn product<T: Sum>(lhs: &Array, rhs: &Array, groups: &Array, dims: &RaggedDims, element: Primitive, shape: &[usize]) -> Result<Array> {
    let (left_contracted, right_contracted) = (sizes(&dims.dot.lhs_contracting)?, sizes(&dims.dot.rhs_contracting)?);
    let (left_batch, right_batch) = (sizes(&dims.dot.lhs_batch)?, sizes(&dims.dot.rhs_batch)?);
    let free = |rank: usize, taken: &[usize]| (0..rank).filter(|d| !taken.contains(d)).collect::<Vec<_>>();
    let left_free = free(lhs.dims.len(), &[left_contracted.as_slice(), &left_batch].concat());
    let right_free = free(rhs.dims.len(), &[right_contracted.as_slice(), &right_batch, dims.group.as_slice()].concat());
    ensure(groups.dims.len() == 1, || "expected one list of group sizes".into())?;
    // Where each group ends.
    let mut end = 0usize;
    let ends: Vec<usize> = (0..groups.len())
        .map(|g| {
            end = end.saturating_add(usize::try_from(groups.i64(g)).unwrap_or(0));
            end
        })
        .collect();
    let by_group = left_contracted.contains(&dims.ragged);
    let batch = pick(&lhs.dims, &left_batch);
    let (rows, columns) = (pick(&lhs.dims, &left_free), pick(&rhs.dims, &right_free));
    let depth = pick(&lhs.dims, &left_contracted);
    let outer: &[usize] = if by_group { &[ends.len()] } else { &[] };
    let all = [outer, &batch, &rows, &columns].concat();
    ensure(all == shape && depth == pick(&rhs.dims, &right_contracted) && batch == pick(&rhs.dims, &right_batch), || {
        format!("expected dimensions that make {shape:?}, found {all:?}")
    })?;
    let (left_strides, right_strides) = (lhs.strides(), rhs.strides());
    let mut out = Array::zeros(element, shape);
    let mut number = 0;
    each(shape, |index| {
        let (group, rest) = index.split_at(outer.len());
        let (b, rest) = rest.split_at(batch.len());
        let (i, j) = rest.split_at(rows.len());
        let left: usize = left_batch.iter().zip(b).chain(left_free.iter().zip(i)).map(|(&d, i)| i * left_strides[d]).sum();
        let mut right: usize = right_batch.iter().zip(b).chain(right_free.iter().zip(j)).map(|(&d, i)| i * right_strides[d]).sum();
        // The rows of the cut dimension that count.
        let mut counted = 0..usize::MAX;
        if let Some(&g) = group.first() {
            counted = if g == 0 { 0 } else { ends[g - 1] }..ends[g];
        } else if let (Some(d), Some(place)) = (dims.group, left_free.iter().position(|&d| d == dims.ragged)) {
            match ends.iter().position(|&end| i[place] < end) {
                Some(g) => right += g * right_strides[d],
                None => counted = 0..0,
            }
        }
        let mut sum = T::ZERO;
        let (from_left, from_right) = (pick(&left_strides, &left_contracted), pick(&right_strides, &right_contracted));
        let ragged = left_contracted.iter().position(|&d| d == dims.ragged);
        if !counted.is_empty() {
            each(&depth, |k| {
                if ragged.is_none_or(|place| counted.contains(&k[place])) {
                    sum = sum.add(lhs, left + at(k, &from_left), rhs, right + at(k, &from_right));
                }
            });
        }
        sum.put(&mut out, number);
        number += 1;
    });
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(dims: &[usize]) -> Array {
        Array::of_f32(dims, &(0..dims.iter().product()).map(|i: usize| (i * 7 % 11) as f32 - 5.0).collect::<Vec<_>>())
    }

    #[test]
    fn groups_of_rows_meet_matrices_of_their_own() {
        let (lhs, rhs) = (numbers(&[5, 2]), numbers(&[3, 2, 4]));
        let groups = Array::of_i64(Primitive::S32, &[3], &[2, 0, 2]);
        let dot = DotDims { lhs_contracting: vec![1], rhs_contracting: vec![1], lhs_batch: vec![], rhs_batch: vec![] };
        let dims = RaggedDims { dot, ragged: 0, group: Some(0) };
        let found = ragged_dot(&lhs, &rhs, &groups, &dims, Primitive::F32, &[5, 4]).expect("sound");
        for row in 0..5 {
            for column in 0..4 {
                let group = [0, 0, 2, 2, 9][row];
                let term = |k: usize| if group == 9 { 0.0 } else { lhs.f64(row * 2 + k) * rhs.f64((group * 2 + k) * 4 + column) };
                assert_eq!(found.f64(row * 4 + column), term(0) + term(1), "{row} {column}");
            }
        }
    }

    #[test]
    fn groups_of_what_is_contracted_give_results_of_their_own() {
        let (lhs, rhs) = (numbers(&[2, 5]), numbers(&[5, 3]));
        let groups = Array::of_i64(Primitive::S32, &[2], &[1, 3]);
        let dot = DotDims { lhs_contracting: vec![1], rhs_contracting: vec![0], lhs_batch: vec![], rhs_batch: vec![] };
        let dims = RaggedDims { dot, ragged: 1, group: None };
        let found = ragged_dot(&lhs, &rhs, &groups, &dims, Primitive::F32, &[2, 2, 3]).expect("sound");
        for (group, range) in [(0, 0..1), (1, 1..4)] {
            for i in 0..6 {
                let sum: f64 = range.clone().map(|k| lhs.f64(i / 3 * 5 + k) * rhs.f64(k * 3 + i % 3)).sum();
                assert_eq!(found.f64(group * 6 + i), sum);
            }
        }
        assert!(ragged_dot(&lhs, &rhs, &groups, &dims, Primitive::F32, &[2, 3]).is_err());
    }
}
