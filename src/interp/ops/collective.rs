//! Collectives, as one member of a group sees them: `values` are the members' arrays in the order of the group, `place` is the member's own
//! place among them. Groups come from [`super::groups::participants`].
//!
//! Reductions combine in the order of the group: `f(f(x0, x1), x2)…`, the same for every member.

use super::data::{join, part};
use super::error::{OpError, Result, ensure, size};
use crate::interp::Array;

/// Combines two arrays of one shape, element by element.
pub type Combine<'f> = &'f dyn Fn(&Array, &Array) -> Array;

fn alike(values: &[&Array]) -> Result<()> {
    let fits = values.windows(2).all(|w| w[0].dims == w[1].dims && w[0].element == w[1].element) && !values.is_empty();
    ensure(fits, || "expected arrays of one shape in every group".into())
}

fn dimension(value: &Array, number: i64) -> Result<usize> {
    let d = size(number)?;
    ensure(d < value.dims.len(), || format!("expected a dimension of the operand, found {number}"))?;
    Ok(d)
}

/// `all-reduce`, also of each operand of a variadic one.
pub fn all_reduce(values: &[&Array], f: Combine<'_>) -> Result<Array> {
    alike(values)?;
    Ok(values[1..].iter().fold(values[0].clone(), |sum, value| f(&sum, value)))
}

/// `all-gather`: the members' arrays one after another along a dimension.
pub fn all_gather(values: &[&Array], along: i64) -> Result<Array> {
    alike(values)?;
    Ok(join(values, dimension(values[0], along)?))
}

/// The `place`-th of `members` equal parts of an array along a dimension: what `reduce-scatter` leaves of the sum.
pub fn share(value: &Array, along: i64, place: usize, members: usize) -> Result<Array> {
    let d = dimension(value, along)?;
    let whole = value.dims[d];
    ensure(members > 0 && whole.is_multiple_of(members), || {
        format!("expected a dimension that the size of every group divides, found {whole} for {members} members")
    })?;
    Ok(part(value, d, place * (whole / members), whole / members))
}

/// `all-to-all` of one operand along a dimension: the member's part of everybody's array, in the order of the group.
pub fn all_to_all(values: &[&Array], along: i64, place: usize) -> Result<Array> {
    alike(values)?;
    let parts = values.iter().map(|v| share(v, along, place, values.len())).collect::<Result<Vec<_>>>()?;
    Ok(join(&parts.iter().collect::<Vec<_>>(), dimension(values[0], along)?))
}

/// `collective-permute`: the array of whoever sends to `me`, zeros if nobody does. `values` are those of all partitions.
pub fn permute(values: &[&Array], pairs: &[(i64, i64)], me: usize) -> Result<Array> {
    for &(source, target) in pairs {
        ensure(size(source)?.max(size(target)?) < values.len(), || {
            format!("expected one of {} partitions, found {source} to {target} (`--partitions`)", values.len())
        })?;
    }
    let source = pairs.iter().find(|(_, target)| usize::try_from(*target).is_ok_and(|t| t == me));
    match source {
        Some(&(source, _)) => Ok(values[size(source)?].clone()),
        None => Ok(Array::zeros(values[me].element, &values[me].dims)),
    }
}

/// Operands of a `ragged-all-to-all` on one partition.
#[derive(Clone, Copy, Debug)]
pub struct Ragged<'a> {
    /// What is sent.
    pub input: &'a Array,
    /// What the result starts as.
    pub output: &'a Array,
    /// Where the pieces for each member start.
    pub input_offsets: &'a Array,
    /// How long they are.
    pub send_sizes: &'a Array,
    /// Where they start in the receiver's result.
    pub output_offsets: &'a Array,
    /// How long the pieces are that are received.
    pub recv_sizes: &'a Array,
}

impl<'a> Ragged<'a> {
    /// The operands in order.
    pub fn of(operands: &'a [Array]) -> Result<Self> {
        let [input, output, input_offsets, send_sizes, output_offsets, recv_sizes] = operands else {
            return Err(OpError(format!("expected 6 operands, found {}", operands.len())));
        };
        Ok(Self { input, output, input_offsets, send_sizes, output_offsets, recv_sizes })
    }
}

/// `ragged-all-to-all`: rows of the first dimension, cut as the senders say; a member may send several pieces to each.
pub fn ragged_all_to_all(values: &[Ragged<'_>], place: usize) -> Result<Array> {
    let mut out = values[place].output.clone();
    for v in values {
        let pieces = v.send_sizes.len();
        let fits = pieces.is_multiple_of(values.len())
            && [v.input_offsets, v.output_offsets].iter().all(|a| a.len() == pieces)
            && !v.input.dims.is_empty();
        ensure(fits, || format!("expected offsets and sizes for {} members, found {pieces}", values.len()))?;
        let row = v.input.dims[1..].iter().product::<usize>() * v.input.width();
        let each = pieces / values.len();
        for piece in place * each..(place + 1) * each {
            let (start, length, target) =
                (size(v.input_offsets.i64(piece))?, size(v.send_sizes.i64(piece))?, size(v.output_offsets.i64(piece))?);
            let cut = |start: usize| Some((start.checked_mul(row)?, start.checked_add(length)?.checked_mul(row)?));
            let source = cut(start).and_then(|(a, b)| v.input.data.get(a..b));
            let sink = cut(target).and_then(|(a, b)| out.data.get_mut(a..b));
            let (Some(source), Some(sink)) = (source, sink) else {
                return super::error::refuse(format!("expected {length} rows within the arrays, found them at {start} and {target}"));
            };
            sink.copy_from_slice(source);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Primitive;

    fn arrays(rows: &[&[i64]]) -> Vec<Array> {
        rows.iter().map(|r| Array::of_i64(Primitive::S32, &[r.len()], r)).collect()
    }

    fn show(array: &Array) -> Vec<i64> {
        (0..array.len()).map(|i| array.i64(i)).collect()
    }

    #[test]
    fn everybody_gets_their_share() {
        let owned = arrays(&[&[1, 2], &[3, 4], &[5, 6], &[7, 8]]);
        let values: Vec<&Array> = owned.iter().collect();
        let group = [values[3], values[1]];
        let add = |a: &Array, b: &Array| {
            let sums: Vec<i64> = (0..a.len()).map(|i| a.i64(i) + b.i64(i)).collect();
            Array::of_i64(a.element, &a.dims, &sums)
        };
        let sum = all_reduce(&group, &add).expect("sound");
        assert_eq!(show(&sum), [10, 12]);
        assert_eq!(show(&share(&sum, 0, 1, 2).expect("sound")), [12]);
        assert_eq!(show(&all_gather(&group, 0).expect("sound")), [7, 8, 3, 4]);
        assert_eq!(show(&all_to_all(&group, 0, 0).expect("sound")), [7, 3]);
        let pairs = [(0, 1), (1, 0), (2, 2)];
        assert_eq!(show(&permute(&values, &pairs, 0).expect("sound")), [3, 4]);
        assert_eq!(show(&permute(&values, &pairs, 3).expect("sound")), [0, 0]);
        assert!(all_gather(&values, 1).is_err() && permute(&values, &[(0, 4)], 0).is_err() && share(values[0], 0, 0, 4).is_err());
    }

    #[test]
    fn ragged_rows_land_where_the_sender_says() {
        let of = |v: &[i64]| Array::of_i64(Primitive::S32, &[v.len()], v);
        let first = [of(&[1, 2, 3]), of(&[0; 4]), of(&[0, 1]), of(&[1, 2]), of(&[0, 0]), of(&[1, 2])];
        let second = [of(&[4, 5, 6]), of(&[0; 4]), of(&[0, 2]), of(&[2, 1]), of(&[1, 2]), of(&[2, 1])];
        let values = [Ragged::of(&first).expect("six"), Ragged::of(&second).expect("six")];
        assert_eq!(show(&ragged_all_to_all(&values, 0).expect("sound")), [1, 4, 5, 0]);
        assert_eq!(show(&ragged_all_to_all(&values, 1).expect("sound")), [2, 3, 6, 0]);
        assert!(Ragged::of(&first[..5]).is_err());
    }
}
