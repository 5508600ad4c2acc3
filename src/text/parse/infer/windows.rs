//! Dimensions after padding and after a window.

use super::{Fit, misfit, plain};
use crate::ir::{ArrayShape, Dim, PadDim, Shape, WindowDim};

/// The shape of a pad.
pub(super) fn pad(array: &ArrayShape, value: &ArrayShape, padding: &[PadDim]) -> Fit<Shape> {
    if !value.dims.is_empty() || value.element != array.element {
        return misfit("expected a scalar of the same type for operand 1");
    }
    if padding.len() != array.dims.len() {
        return misfit(format!("expected padding of {} dimensions, found {}", array.dims.len(), padding.len()));
    }
    let mut dims = Vec::new();
    for (dim, pad) in array.dims.iter().zip(padding) {
        let inner = i128::from(dim.size) + i128::from((dim.size - 1).max(0)) * i128::from(pad.interior);
        let size = i64::try_from(inner + i128::from(pad.low) + i128::from(pad.high)).unwrap_or(-1);
        if size < 0 || pad.interior < 0 || dim.size < 0 {
            return misfit("expected padding that leaves no dimension negative");
        }
        dims.push(Dim { size, dynamic: dim.dynamic });
    }
    Ok(plain(array.element.clone(), dims))
}

/// The dimensions that a window leaves.
pub(super) fn apply(array: &ArrayShape, window: &[WindowDim]) -> Fit<Vec<Dim>> {
    if window.len() != array.dims.len() {
        return misfit(format!("expected a window of {} dimensions, found {}", array.dims.len(), window.len()));
    }
    array.dims.iter().zip(window).map(|(dim, w)| Ok(Dim { size: places(dim.size, w)?, dynamic: dim.dynamic })).collect()
}

/// The number of places of a window in a dimension.
pub(super) fn places(size: i64, w: &WindowDim) -> Fit<i64> {
    if w.size <= 0 || w.stride <= 0 || w.window_dilation <= 0 || w.base_dilation <= 0 || size < 0 {
        return misfit("expected positive sizes, strides and dilations");
    }
    let dilated = |n: i64, by: i64| if n == 0 { 0 } else { (i128::from(n) - 1) * i128::from(by) + 1 };
    let base = dilated(size, w.base_dilation) + i128::from(w.pad_low) + i128::from(w.pad_high);
    let reach = dilated(w.size, w.window_dilation);
    let count = if reach > base { 0 } else { (base - reach) / i128::from(w.stride) + 1 };
    i64::try_from(count).or_else(|_| misfit("expected sizes in range"))
}
