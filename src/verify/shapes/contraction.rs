//! Shape rules of dot, convolution and linear algebra.

use super::window::windowed;
use super::{Node, Rule, Trouble, Want, attribute, dimension, dimensions, others, sizes, unsuited};
use crate::ir::{ArrayShape, Convolution, Dot, Primitive};

/// Which dimensions of each side are contracted and batched.
struct Sides {
    lhs_contracting: Vec<usize>,
    rhs_contracting: Vec<usize>,
    lhs_batch: Vec<usize>,
    rhs_batch: Vec<usize>,
}

impl Sides {
    fn new(dot: &Dot, lhs: &ArrayShape, rhs: &ArrayShape) -> Result<Self, Trouble> {
        let d = &dot.dims;
        let both = |a: &[i64], b: &[i64], rank: usize| dimensions(&[a, b].concat(), rank).map(|_| ());
        both(&d.lhs_contracting, &d.lhs_batch, lhs.dims.len())?;
        both(&d.rhs_contracting, &d.rhs_batch, rhs.dims.len())?;
        if d.lhs_batch.len() != d.rhs_batch.len() {
            return attribute(format!("expected as many batch dimensions on both sides, found {:?} and {:?}", d.lhs_batch, d.rhs_batch));
        }
        Ok(Self {
            lhs_contracting: dimensions(&d.lhs_contracting, lhs.dims.len())?,
            rhs_contracting: dimensions(&d.rhs_contracting, rhs.dims.len())?,
            lhs_batch: dimensions(&d.lhs_batch, lhs.dims.len())?,
            rhs_batch: dimensions(&d.rhs_batch, rhs.dims.len())?,
        })
    }
}

fn pairs(lhs: &ArrayShape, a: &[usize], rhs: &ArrayShape, b: &[usize], what: &str) -> Result<(), Trouble> {
    let (x, y) = (pick(lhs, a), pick(rhs, b));
    if x == y { Ok(()) } else { unsuited(format!("expected {what} dimensions of equal sizes, found {x:?} and {y:?}")) }
}

fn pick(a: &ArrayShape, dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&d| a.dims[d].size).collect()
}

/// Also of scaled-dot, whose scales follow. The result type is free: it is the type to accumulate in.
pub(super) fn dot(n: &Node<'_>, dot: &Dot) -> Rule {
    let (lhs, rhs) = (n.array(0)?, n.array(1)?);
    let s = Sides::new(dot, lhs, rhs)?;
    let result = n.result()?;
    let sparse = dot.extras.lhs_sparsity.is_some() || dot.extras.rhs_sparsity.is_some();
    if !sparse {
        pairs(lhs, &s.lhs_contracting, rhs, &s.rhs_contracting, "contracted")?;
    }
    pairs(lhs, &s.lhs_batch, rhs, &s.rhs_batch, "batch")?;
    let mut out = pick(lhs, &s.lhs_batch);
    out.extend(pick(lhs, &others(&[s.lhs_batch, s.lhs_contracting].concat(), lhs.dims.len())));
    out.extend(pick(rhs, &others(&[s.rhs_batch, s.rhs_contracting].concat(), rhs.dims.len())));
    Ok(Want::Array(result.element.clone(), out))
}

/// Groups along a free dimension of the left side choose a slice of the right; along a contracted one they add a dimension to the result.
pub(super) fn ragged_dot(n: &Node<'_>, dot: &Dot, lhs_ragged: &[i64], rhs_group: &[i64]) -> Rule {
    let (lhs, rhs) = (n.array(0)?, n.array(1)?);
    let s = Sides::new(dot, lhs, rhs)?;
    let [ragged] = lhs_ragged[..] else { return attribute(format!("expected one ragged dimension, found {lhs_ragged:?}")) };
    let ragged = dimension(ragged, lhs.dims.len())?;
    let group = dimensions(rhs_group, rhs.dims.len())?;
    pairs(lhs, &s.lhs_contracting, rhs, &s.rhs_contracting, "contracted")?;
    pairs(lhs, &s.lhs_batch, rhs, &s.rhs_batch, "batch")?;
    let mut out = Vec::new();
    if s.lhs_contracting.contains(&ragged) {
        let groups = n.array(2)?.dims.last().map_or(0, |d| d.size);
        out.push(groups);
    }
    out.extend(pick(lhs, &s.lhs_batch));
    out.extend(pick(lhs, &others(&[s.lhs_batch, s.lhs_contracting].concat(), lhs.dims.len())));
    out.extend(pick(rhs, &others(&dedup([s.rhs_batch, s.rhs_contracting, group].concat()), rhs.dims.len())));
    Ok(Want::Array(n.result()?.element.clone(), out))
}

fn dedup(mut dims: Vec<usize>) -> Vec<usize> {
    dims.sort_unstable();
    dims.dedup();
    dims
}

pub(super) fn convolution(n: &Node<'_>, c: &Convolution) -> Rule {
    let (input, kernel) = (n.array(0)?, n.array(1)?);
    let d = &c.dims;
    let rank = input.dims.len();
    let spatial = d.input_spatial.len();
    if kernel.dims.len() != rank || spatial + 2 != rank || d.kernel_spatial.len() != spatial || d.output_spatial.len() != spatial {
        return attribute(format!("expected labels for {rank} dimensions on both sides"));
    }
    let labels = |first: &[i64], rest: &[i64]| dimensions(&[first, rest].concat(), rank);
    let i = labels(&[d.input_batch, d.input_feature], &d.input_spatial)?;
    let k = labels(&[d.kernel_input_feature, d.kernel_output_feature], &d.kernel_spatial)?;
    let o = labels(&[d.output_batch, d.output_feature], &d.output_spatial)?;
    let (input, kernel) = (pick(input, &i), pick(kernel, &k));
    let (groups, batch_groups) = (c.feature_group_count.max(1), c.batch_group_count.max(1));
    let (batch, features) = (input[0], input[1]);
    let dense = c.extras.lhs_sparsity.is_none() && c.extras.rhs_sparsity.is_none();
    if dense && features != kernel[0].saturating_mul(groups) {
        return unsuited(format!("expected {} input features in {groups} groups, found {features}", kernel[0].saturating_mul(groups)));
    }
    if kernel[1] % groups != 0 || batch % batch_groups != 0 || kernel[1] % batch_groups != 0 {
        let message = format!(
            "expected groups that divide the features and the batch, found {groups} of {} and {batch_groups} of {batch}",
            kernel[1]
        );
        return unsuited(message);
    }
    let swept = windowed(&input[2..], &c.window)?;
    if c.window.iter().zip(&kernel[2..]).any(|(w, &k)| w.size != k) {
        return attribute(format!("expected a window as large as the kernel, {:?}", &kernel[2..]));
    }
    let mut out = vec![0; rank];
    out[o[0]] = batch / batch_groups;
    out[o[1]] = kernel[1];
    o[2..].iter().zip(swept).for_each(|(&d, size)| out[d] = size);
    Ok(Want::Array(n.result()?.element.clone(), out))
}

/// Types by their numbers: 0 FFT, 1 IFFT, 2 RFFT, 3 IRFFT.
pub(super) fn fft(n: &Node<'_>, fft_type: i32, length: &[i64]) -> Rule {
    let a = n.array(0)?;
    let Some(p) = a.element.known() else { return Ok(Want::Any) };
    if length.is_empty() || length.len() > 3 || length.len() > a.dims.len() {
        return attribute(format!("expected 1 to 3 lengths, as many as dimensions, found {}", length.len()));
    }
    let mut out = sizes(a);
    let first = out.len() - length.len();
    let halved = |size: i64| size / 2 + 1;
    let last = length.len() - 1;
    let (result, spectrum): (Primitive, bool) = match (fft_type, p) {
        (0 | 1, Primitive::C64 | Primitive::C128) => (p, false),
        (2, Primitive::F32) => (Primitive::C64, false),
        (2, Primitive::F64) => (Primitive::C128, false),
        (3, Primitive::C64) => (Primitive::F32, true),
        (3, Primitive::C128) => (Primitive::F64, true),
        _ => return unsuited(format!("this transform does not take `{}`", p.name())),
    };
    for (i, (&size, &length)) in out[first..].iter().zip(length).enumerate() {
        // An empty array may have any length, and a spectrum has half of its last.
        let expected = if spectrum && i == last && length != 0 { halved(length) } else { length };
        if size != expected && size != 0 {
            return attribute(format!("expected size {expected} for transform length {length}, found {size}"));
        }
    }
    match fft_type {
        2 => {
            *out.last_mut().expect("there is a length, so there is a dimension") = if length[last] == 0 { 0 } else { halved(length[last]) }
        }
        3 => *out.last_mut().expect("there is a length, so there is a dimension") = length[last],
        _ => {}
    }
    Ok(Want::Array(result.into(), out))
}

fn square(a: &ArrayShape) -> Result<(), Trouble> {
    match a.dims[..] {
        [.., x, y] if x.size == y.size => Ok(()),
        _ => unsuited(format!("expected square matrices, found {:?}", sizes(a))),
    }
}

pub(super) fn cholesky(n: &Node<'_>) -> Rule {
    square(n.array(0)?)?;
    Ok(n.like(0))
}

pub(super) fn triangular_solve(n: &Node<'_>, left_side: bool) -> Rule {
    n.same_types(0, 1)?;
    let (a, b) = (n.array(0)?, n.array(1)?);
    square(a)?;
    let rank = a.dims.len();
    let side = b.dims.len().checked_sub(if left_side { 2 } else { 1 }).map(|d| b.dims[d].size);
    if b.dims.len() != rank || sizes(a)[..rank - 2] != sizes(b)[..rank - 2] || side != Some(a.dims[rank - 1].size) {
        return unsuited(format!("expected operands that can be multiplied, found {:?} and {:?}", sizes(a), sizes(b)));
    }
    Ok(n.like(1))
}
