//! Shapes of dots, convolutions, gathers and Fourier transforms.

use super::{Fit, index, misfit, plain, windows};
use crate::ir::{ArrayShape, Convolution, Dim, DotDims, ElementType, Gather, Primitive, Shape};

fn positions(dims: &[i64], rank: usize) -> Fit<Vec<usize>> {
    let out: Vec<usize> = dims.iter().map(|&d| index(d, rank)).collect::<Fit<_>>()?;
    let mut sorted = out.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() == out.len() { Ok(out) } else { misfit("expected each dimension once") }
}

/// The wider of two element types, as XLA picks it for a contraction.
fn wider(a: &ElementType, b: &ElementType) -> ElementType {
    match (a.known(), b.known()) {
        (Some(x), Some(y)) if y.bits() > x.bits() => y.into(),
        _ => a.clone(),
    }
}

/// Batch dimensions, then the free ones of the left, then of the right.
pub(super) fn dot(lhs: &ArrayShape, rhs: &ArrayShape, dims: &DotDims) -> Fit<Shape> {
    let lc = positions(&dims.lhs_contracting, lhs.dims.len())?;
    let rc = positions(&dims.rhs_contracting, rhs.dims.len())?;
    let lb = positions(&dims.lhs_batch, lhs.dims.len())?;
    let rb = positions(&dims.rhs_batch, rhs.dims.len())?;
    let equal = |a: &[usize], b: &[usize]| a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| lhs.dims[a].size == rhs.dims[b].size);
    if !equal(&lc, &rc) {
        return misfit("expected equal contracting dimensions");
    }
    if !equal(&lb, &rb) {
        return misfit("expected equal batch dimensions");
    }
    let free = |array: &ArrayShape, a: &[usize], b: &[usize]| -> Vec<Dim> {
        array.dims.iter().enumerate().filter(|(i, _)| !a.contains(i) && !b.contains(i)).map(|(_, d)| *d).collect()
    };
    let mut out: Vec<Dim> = lb.iter().map(|&d| lhs.dims[d]).collect();
    out.extend(free(lhs, &lc, &lb));
    out.extend(free(rhs, &rc, &rb));
    Ok(plain(wider(&lhs.element, &rhs.element), out))
}

/// A dot whose right side has a group dimension for the ragged one of the left, or whose result has one.
pub(super) fn ragged(lhs: &ArrayShape, rhs: &ArrayShape, groups: &ArrayShape, dims: &DotDims, ragged: &[i64], group: &[i64]) -> Fit<Shape> {
    let [ragged] = *ragged else { return misfit("expected one ragged dimension") };
    let ragged_at = index(ragged, lhs.dims.len())?;
    let Some(&count) = groups.dims.last() else { return misfit("expected an array of group sizes for operand 2") };
    let is_contracting = dims.lhs_contracting.contains(&ragged);
    let is_batch = dims.lhs_batch.contains(&ragged);
    let lc = positions(&dims.lhs_contracting, lhs.dims.len())?;
    let rc = positions(&dims.rhs_contracting, rhs.dims.len())?;
    let lb = positions(&dims.lhs_batch, lhs.dims.len())?;
    let rb = positions(&dims.rhs_batch, rhs.dims.len())?;
    let rg = positions(group, rhs.dims.len())?;
    let equal = |a: &[usize], b: &[usize]| a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| lhs.dims[a].size == rhs.dims[b].size);
    if !equal(&lc, &rc) || !equal(&lb, &rb) {
        return misfit("expected equal contracting and batch dimensions");
    }
    if (is_contracting || is_batch) != rg.is_empty() || rg.len() > 1 || rg.first().is_some_and(|&d| rhs.dims[d].size != count.size) {
        return misfit("expected a group dimension of the right side as long as operand 2, unless the ragged one is contracted");
    }
    let mut out: Vec<Dim> = if is_contracting { vec![count] } else { Vec::new() };
    out.extend(lb.iter().map(|&d| lhs.dims[d]));
    let left = (0..lhs.dims.len()).filter(|d| !lc.contains(d) && !lb.contains(d));
    out.extend(left.map(|d| lhs.dims[d]));
    let right = (0..rhs.dims.len()).filter(|d| !rc.contains(d) && !rb.contains(d) && !rg.contains(d));
    out.extend(right.map(|d| rhs.dims[d]));
    let _ = ragged_at;
    Ok(plain(wider(&lhs.element, &rhs.element), out))
}

/// A convolution.
pub(super) fn convolution(lhs: &ArrayShape, rhs: &ArrayShape, op: &Convolution) -> Fit<Shape> {
    let dims = &op.dims;
    let rank = dims.input_spatial.len() + 2;
    if lhs.dims.len() != rank || rhs.dims.len() != rank || op.window.len() + 2 != rank {
        return misfit(format!("expected arrays of {rank} dimensions and a window of {}", rank - 2));
    }
    let at = |array: &ArrayShape, d: i64| index(d, rank).map(|d| array.dims[d].size);
    if op.batch_group_count <= 0 || op.feature_group_count <= 0 {
        return misfit("expected positive group counts");
    }
    let (batch, feature) = (at(lhs, dims.input_batch)?, at(lhs, dims.input_feature)?);
    if at(rhs, dims.kernel_input_feature)?.saturating_mul(op.feature_group_count) != feature {
        return misfit("expected as many input features in the kernel, times the groups");
    }
    let fixed = |size| Dim { size, dynamic: false };
    let mut out = vec![fixed(0); rank];
    out[index(dims.output_batch, rank)?] = fixed(batch / op.batch_group_count);
    out[index(dims.output_feature, rank)?] = fixed(at(rhs, dims.kernel_output_feature)?);
    for (i, w) in op.window.iter().enumerate() {
        if at(rhs, dims.kernel_spatial[i])? != w.size {
            return misfit("expected the window to be as large as the kernel");
        }
        out[index(dims.output_spatial[i], rank)?] = fixed(windows::places(at(lhs, dims.input_spatial[i])?, w)?);
    }
    Ok(plain(wider(&lhs.element, &rhs.element), out))
}

/// A gather.
pub(super) fn gather(operand: &ArrayShape, indices: &ArrayShape, op: &Gather) -> Fit<Shape> {
    if indices.element.known().is_some_and(|p| !p.is_integer()) {
        return misfit("expected integers for operand 1");
    }
    let dims = &op.dims;
    if op.slice_sizes.len() != operand.dims.len() {
        return misfit(format!("expected {} slice sizes, found {}", operand.dims.len(), op.slice_sizes.len()));
    }
    let vector = match usize::try_from(dims.index_vector_dim) {
        Ok(d) if d <= indices.dims.len() => d,
        _ => return misfit("expected an index vector dimension of operand 1"),
    };
    let gone = |d: &usize| {
        let d = i64::try_from(*d).unwrap_or(-1);
        dims.collapsed_slice_dims.contains(&d) || dims.operand_batching_dims.contains(&d)
    };
    let mut window = (0..operand.dims.len()).filter(|d| !gone(d)).map(|d| op.slice_sizes[d]);
    let mut batch = (0..indices.dims.len()).filter(|d| *d != vector).map(|d| indices.dims[d]);
    let rank = dims.offset_dims.len() + indices.dims.len() - usize::from(vector < indices.dims.len());
    let mut out = Vec::with_capacity(rank);
    for d in 0..rank {
        let is_offset = dims.offset_dims.contains(&i64::try_from(d).unwrap_or(-1));
        let next = if is_offset { window.next().map(|size| Dim { size, dynamic: false }) } else { batch.next() };
        match next {
            Some(dim) if dim.size >= 0 => out.push(dim),
            _ => return misfit("expected as many offset dimensions as the slice keeps"),
        }
    }
    if window.next().is_some() || batch.next().is_some() {
        return misfit("expected as many offset dimensions as the slice keeps");
    }
    Ok(plain(operand.element.clone(), out))
}

/// A Fourier transform.
pub(super) fn fft(array: &ArrayShape, kind: i32, length: &[i64]) -> Fit<Shape> {
    let rank = length.len();
    if !(1..=3).contains(&rank) || array.dims.len() < rank {
        return misfit("expected one to three transformed dimensions");
    }
    let mut dims = array.dims.clone();
    let last = dims.len() - 1;
    let element = match (kind, array.element.known()) {
        (0 | 1, Some(p)) if p.is_complex() => array.element.clone(),
        (2, Some(Primitive::F32)) => Primitive::C64.into(),
        (2, Some(Primitive::F64)) => Primitive::C128.into(),
        (3, Some(Primitive::C64)) => Primitive::F32.into(),
        (3, Some(Primitive::C128)) => Primitive::F64.into(),
        _ => return misfit("expected complex numbers, or real ones for RFFT"),
    };
    let full = length[rank - 1];
    if full < 0 {
        return misfit("expected a length that is not negative");
    }
    match kind {
        2 => dims[last].size = if full == 0 { 0 } else { full / 2 + 1 },
        3 => dims[last].size = full,
        _ => {}
    }
    Ok(plain(element, dims))
}
