//! `sort` and `topk`.
//!
//! Merge sort from below (stable, at most n⌈log₂ n⌉ comparisons): a comparator that contradicts itself gives some order, never a failure.

use super::elementwise::load;
use super::error::{OpError, Result, ensure};
use super::index::each;
use super::scalar::{self, Bits};
use crate::interp::Array;
use crate::ir::Primitive;

/// Positions in the order of `less`, equal ones as they were.
fn sorted(n: usize, mut less: impl FnMut(usize, usize) -> bool) -> Vec<usize> {
    let mut from: Vec<usize> = (0..n).collect();
    let mut to = vec![0; n];
    let mut width = 1;
    while width < n {
        for start in (0..n).step_by(2 * width) {
            let (middle, end) = ((start + width).min(n), (start + 2 * width).min(n));
            let (mut left, mut right) = (start, middle);
            for slot in &mut to[start..end] {
                let take_right = left == middle || right < end && less(from[right], from[left]);
                let taken = if take_right { &mut right } else { &mut left };
                *slot = from[*taken];
                *taken += 1;
            }
        }
        std::mem::swap(&mut from, &mut to);
        width *= 2;
    }
    from
}

/// `sort` of operands of one shape along a dimension. The comparator gets a left and a right element of each operand in turn and says whether
/// the left ones come first; always stable.
pub fn sort(operands: &[&Array], dimension: i64, less: &mut dyn FnMut(&[Bits]) -> bool) -> Result<Vec<Array>> {
    let first = operands.first().ok_or_else(|| OpError("expected an operand to sort, found none".into()))?;
    let dimension = usize::try_from(dimension).ok().filter(|&d| d < first.dims.len());
    let fits = dimension.is_some() && operands.iter().all(|o| o.dims == first.dims);
    ensure(fits, || format!("expected operands of one shape with the sorted dimension, found {:?}", first.dims))?;
    let dimension = dimension.expect("checked above");
    let n = first.dims[dimension];
    let stride: usize = first.dims[dimension + 1..].iter().product();
    let mut outer = first.dims.clone();
    outer[dimension] = n.min(1);
    let strides = first.strides();
    let mut out: Vec<Array> = operands.iter().map(|&o| o.clone()).collect();
    let mut arguments = vec![0; 2 * operands.len()];
    each(&outer, |index| {
        let base = super::index::at(index, &strides);
        let columns: Vec<Vec<Bits>> = operands.iter().map(|o| (0..n).map(|i| load(o, base + i * stride)).collect()).collect();
        let order = sorted(n, |a, b| {
            for (k, column) in columns.iter().enumerate() {
                arguments[2 * k] = column[a];
                arguments[2 * k + 1] = column[b];
            }
            less(&arguments)
        });
        for (array, operand) in out.iter_mut().zip(operands) {
            for (i, &from) in order.iter().enumerate() {
                array.set_element_bytes(base + i * stride, operand.element_bytes(base + from * stride));
            }
        }
    });
    Ok(out)
}

/// `topk` along the last dimension: the `k` largest (or smallest) elements in order, and where they were, as `s32`. Equal elements come in
/// the order of their positions; floats are in total order, so that NaN is the largest.
pub fn topk(operand: &Array, k: i64, largest: bool) -> Result<[Array; 2]> {
    let n = operand.dims.last().copied().unwrap_or(0);
    let k = usize::try_from(k).ok().filter(|&k| k <= n && !operand.dims.is_empty());
    ensure(k.is_some(), || format!("expected at most as many as the last dimension of {:?} has", operand.dims))?;
    let k = k.expect("checked above");
    let mut dims = operand.dims.clone();
    *dims.last_mut().expect("an array with a dimension") = k;
    let (mut values, mut positions) = (Array::zeros(operand.element, &dims), Array::zeros(Primitive::S32, &dims));
    let rank = |i: usize| -> i128 {
        let bits = load(operand, i);
        if operand.element.is_float() {
            scalar::total_order(operand.element, bits).into()
        } else {
            scalar::int_order(operand.element, bits)
        }
    };
    let rows: usize = operand.dims[..operand.dims.len() - 1].iter().product();
    for row in 0..rows {
        let keys: Vec<i128> = (0..n).map(|i| rank(row * n + i)).collect();
        let order = sorted(n, |a, b| if largest { keys[a] > keys[b] } else { keys[a] < keys[b] });
        for (i, &from) in order[..k].iter().enumerate() {
            values.set_element_bytes(row * k + i, operand.element_bytes(row * n + from));
            positions.set_i64(row * k + i, from as i64);
        }
    }
    Ok([values, positions])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparator_that_contradicts_itself_does_no_harm() {
        for n in 0..40 {
            let mut toss = 7u32;
            let mut order = sorted(n, |_, _| {
                toss = toss.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                toss & 0x1_0000 != 0
            });
            order.sort_unstable();
            assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn equal_elements_keep_their_order() {
        let keys = [3, 1, 2, 1, 3, 2, 1];
        assert_eq!(sorted(7, |a, b| keys[a] < keys[b]), [1, 3, 6, 2, 5, 0, 4]);
    }
}
