//! Collectives, on the arrays of all partitions at once: `values[p]` is partition `p`'s. Groups come from [`super::groups::participants`].
//!
//! Reductions add in the order of the group: `f(f(x0, x1), x2)…`, the same for every member.

use super::combine::Combiner;
use super::data::{join, part};
use super::elementwise::{load, store};
use super::error::{Result, ensure, size};
use crate::interp::Array;

fn alike(values: &[&Array], groups: &[Vec<usize>]) -> Result<()> {
    let same = |g: &Vec<usize>| g.iter().all(|&p| values[p].dims == values[g[0]].dims && values[p].element == values[g[0]].element);
    let fits = groups.iter().flatten().all(|&p| p < values.len()) && groups.iter().all(same);
    ensure(fits, || "expected arrays of one shape in every group".into())
}

fn dimension(values: &[&Array], number: i64) -> Result<usize> {
    let d = size(number)?;
    ensure(values.iter().all(|v| d < v.dims.len()), || format!("expected a dimension of the operand, found {number}"))?;
    Ok(d)
}

/// Gives every member of every group what `of` makes for it, from the group and its place in it; others keep their own.
fn for_members(values: &[&Array], groups: &[Vec<usize>], mut of: impl FnMut(&[usize], usize) -> Array) -> Vec<Array> {
    let mut out: Vec<Array> = values.iter().map(|&v| v.clone()).collect();
    for group in groups {
        for (place, &p) in group.iter().enumerate() {
            out[p] = of(group, place);
        }
    }
    out
}

fn reduced(values: &[&Array], group: &[usize], f: &mut Combiner<'_>) -> Array {
    let mut sum = values[group[0]].clone();
    for &p in &group[1..] {
        for i in 0..sum.len() {
            let bits = f.one(sum.element, load(&sum, i), load(values[p], i));
            store(&mut sum, i, bits);
        }
    }
    sum
}

/// `all-reduce` of one operand; a variadic one is this for each.
pub fn all_reduce(values: &[&Array], groups: &[Vec<usize>], mut f: Combiner<'_>) -> Result<Vec<Array>> {
    alike(values, groups)?;
    let sums: Vec<Array> = groups.iter().map(|g| reduced(values, g, &mut f)).collect();
    let mut sums = sums.iter();
    let mut sum = None;
    Ok(for_members(values, groups, |_, place| {
        if place == 0 {
            sum = sums.next();
        }
        sum.expect("a sum a group").clone()
    }))
}

/// `all-gather`: the members' arrays one after another along a dimension.
pub fn all_gather(values: &[&Array], groups: &[Vec<usize>], along: i64) -> Result<Vec<Array>> {
    alike(values, groups)?;
    let d = dimension(values, along)?;
    Ok(for_members(values, groups, |group, _| join(&group.iter().map(|&p| values[p].clone()).collect::<Vec<_>>(), d)))
}

/// `reduce-scatter`: each member's part, along a dimension, of the sum.
pub fn reduce_scatter(values: &[&Array], groups: &[Vec<usize>], along: i64, f: Combiner<'_>) -> Result<Vec<Array>> {
    let d = dimension(values, along)?;
    divides(values, groups, d)?;
    let sums = all_reduce(values, groups, f)?;
    Ok(for_members(values, groups, |group, place| {
        let share = sums[group[place]].dims[d] / group.len();
        part(&sums[group[place]], d, place * share, share)
    }))
}

fn divides(values: &[&Array], groups: &[Vec<usize>], d: usize) -> Result<()> {
    let fits = groups.iter().all(|g| g.iter().all(|&p| p < values.len() && values[p].dims[d].is_multiple_of(g.len())));
    ensure(fits, || "expected a dimension that the size of every group divides".into())
}

/// `all-to-all` of one operand along a dimension: each member's array is cut into as many parts as the group has members; a member gets
/// its part of everybody's, in the order of the group.
pub fn all_to_all(values: &[&Array], groups: &[Vec<usize>], along: i64) -> Result<Vec<Array>> {
    alike(values, groups)?;
    let d = dimension(values, along)?;
    divides(values, groups, d)?;
    Ok(for_members(values, groups, |group, place| {
        let share = values[group[place]].dims[d] / group.len();
        join(&group.iter().map(|&p| part(values[p], d, place * share, share)).collect::<Vec<_>>(), d)
    }))
}

/// `all-to-all` of as many operands as a group has members, `values[p][i]`: result `i` of a member is what member `i` holds for it.
pub fn all_to_all_tuple(values: &[Vec<&Array>], groups: &[Vec<usize>]) -> Result<Vec<Vec<Array>>> {
    let fits = groups.iter().all(|g| g.iter().all(|&p| p < values.len() && values[p].len() == g.len()));
    ensure(fits, || "expected as many operands as a group has members".into())?;
    let mut out: Vec<Vec<Array>> = values.iter().map(|v| v.iter().map(|&a| a.clone()).collect()).collect();
    for group in groups {
        for (place, &p) in group.iter().enumerate() {
            out[p] = group.iter().map(|&from| values[from][place].clone()).collect();
        }
    }
    Ok(out)
}

/// `collective-permute`: every target gets its source's array, everybody else zeros.
pub fn permute(values: &[&Array], pairs: &[(i64, i64)]) -> Result<Vec<Array>> {
    let mut out: Vec<Array> = values.iter().map(|v| Array::zeros(v.element, &v.dims)).collect();
    for &(source, target) in pairs {
        let (source, target) = (size(source)?, size(target)?);
        ensure(source < values.len() && target < values.len(), || format!("expected partitions, found {source} to {target}"))?;
        out[target] = values[source].clone();
    }
    Ok(out)
}

/// `collective-broadcast`: everybody gets the array of the group's first; who is in no group gets zeros.
pub fn broadcast(values: &[&Array], groups: &[Vec<usize>]) -> Result<Vec<Array>> {
    alike(values, groups)?;
    let zeros: Vec<Array> = values.iter().map(|v| Array::zeros(v.element, &v.dims)).collect();
    Ok(for_members(&zeros.iter().collect::<Vec<_>>(), groups, |group, _| values[group[0]].clone()))
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

/// `ragged-all-to-all`: rows of the first dimension, cut as the members say; a member may send several pieces to each.
pub fn ragged_all_to_all(values: &[Ragged<'_>], groups: &[Vec<usize>]) -> Result<Vec<Array>> {
    let mut out: Vec<Array> = values.iter().map(|v| v.output.clone()).collect();
    for group in groups {
        for &from in group {
            let v = values.get(from).ok_or_else(|| super::OpError(format!("expected a partition, found {from}")))?;
            let pieces = v.send_sizes.len();
            let fits = pieces.is_multiple_of(group.len())
                && [v.input_offsets, v.output_offsets].iter().all(|a| a.len() == pieces)
                && !v.input.dims.is_empty();
            ensure(fits, || format!("expected offsets and sizes for {} members, found {pieces}", group.len()))?;
            let row = v.input.dims[1..].iter().product::<usize>() * v.input.width();
            for piece in 0..pieces {
                let to = group[piece / (pieces / group.len())];
                let (start, length, target) =
                    (size(v.input_offsets.i64(piece))?, size(v.send_sizes.i64(piece))?, size(v.output_offsets.i64(piece))?);
                let cut = |start: usize| Some((start.checked_mul(row)?, start.checked_add(length)?.checked_mul(row)?));
                let source = cut(start).and_then(|(a, b)| v.input.data.get(a..b));
                let place = cut(target).and_then(|(a, b)| out[to].data.get_mut(a..b));
                let (Some(source), Some(place)) = (source, place) else {
                    return super::error::refuse(format!("expected {length} rows within the arrays, found them at {start} and {target}"));
                };
                place.copy_from_slice(source);
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Binary, Primitive};

    fn arrays(rows: &[&[i64]]) -> Vec<Array> {
        rows.iter().map(|r| Array::of_i64(Primitive::S32, &[r.len()], r)).collect()
    }

    fn show(arrays: &[Array]) -> Vec<Vec<i64>> {
        arrays.iter().map(|a| (0..a.len()).map(|i| a.i64(i)).collect()).collect()
    }

    #[test]
    fn everybody_gets_their_share() {
        let owned = arrays(&[&[1, 2], &[3, 4], &[5, 6], &[7, 8]]);
        let values: Vec<&Array> = owned.iter().collect();
        let groups = [vec![0, 2], vec![3, 1]];
        let sum = all_reduce(&values, &groups, Combiner::Known(Binary::Add)).expect("sound");
        assert_eq!(show(&sum), [[6, 8], [10, 12], [6, 8], [10, 12]]);
        let gathered = all_gather(&values, &groups, 0).expect("sound");
        assert_eq!(show(&gathered), [[1, 2, 5, 6], [7, 8, 3, 4], [1, 2, 5, 6], [7, 8, 3, 4]]);
        let scattered = reduce_scatter(&values, &groups, 0, Combiner::Known(Binary::Add)).expect("sound");
        assert_eq!(show(&scattered), [[6], [12], [8], [10]]);
        let swapped = all_to_all(&values, &groups, 0).expect("sound");
        assert_eq!(show(&swapped), [[1, 5], [8, 4], [2, 6], [7, 3]]);
        assert_eq!(show(&permute(&values, &[(0, 1), (1, 0), (2, 2)]).expect("sound")), [[3, 4], [1, 2], [5, 6], [0, 0]]);
        assert_eq!(show(&broadcast(&values, &[vec![1, 2]]).expect("sound")), [[0, 0], [3, 4], [3, 4], [0, 0]]);
        assert!(all_gather(&values, &groups, 1).is_err() && permute(&values, &[(0, 4)]).is_err());
    }

    #[test]
    fn ragged_rows_land_where_the_sender_says() {
        let of = |v: &[i64]| Array::of_i64(Primitive::S32, &[v.len()], v);
        let input = [of(&[1, 2, 3]), of(&[4, 5, 6])];
        let output = [of(&[0; 4]), of(&[0; 4])];
        let starts = [of(&[0, 1]), of(&[0, 2])];
        let sizes = [of(&[1, 2]), of(&[2, 1])];
        let places = [of(&[0, 0]), of(&[1, 2])];
        let received = [of(&[1, 2]), of(&[2, 1])];
        let values: Vec<Ragged<'_>> = (0..2)
            .map(|p| Ragged {
                input: &input[p],
                output: &output[p],
                input_offsets: &starts[p],
                send_sizes: &sizes[p],
                output_offsets: &places[p],
                recv_sizes: &received[p],
            })
            .collect();
        assert_eq!(show(&ragged_all_to_all(&values, &[vec![0, 1]]).expect("sound")), [[1, 4, 5, 0], [2, 3, 6, 0]]);
    }
}
