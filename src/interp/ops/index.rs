//! Walking over indices of several dimensions without allocating.

/// Moves an index on in row-major order; `false` after the last one, when it is all zeros again. No dimension may be 0.
pub(super) fn advance(index: &mut [usize], dims: &[usize]) -> bool {
    for d in (0..dims.len()).rev() {
        index[d] += 1;
        if index[d] < dims[d] {
            return true;
        }
        index[d] = 0;
    }
    false
}

/// Calls with every index in row-major order; not at all if a dimension is 0, once for a scalar.
pub(super) fn each(dims: &[usize], mut f: impl FnMut(&[usize])) {
    if dims.contains(&0) {
        return;
    }
    let mut index = vec![0; dims.len()];
    loop {
        f(&index);
        if !advance(&mut index, dims) {
            return;
        }
    }
}

/// The position of an index among elements of these strides.
pub(super) fn at(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, s)| i * s).sum()
}

/// Dimensions in another order: `dims[order[0]], dims[order[1]], …`.
pub(super) fn pick(dims: &[usize], order: &[usize]) -> Vec<usize> {
    order.iter().map(|&d| dims[d]).collect()
}

/// Whether the numbers are different dimensions of a rank.
pub(super) fn are_dims(numbers: &[usize], rank: usize) -> bool {
    numbers.iter().enumerate().all(|(i, &d)| d < rank && !numbers[..i].contains(&d))
}
