//! Sizes that a sliding window gives, for convolutions and window reductions.

use super::{Trouble, attribute};
use crate::ir::WindowDim;

/// The number of positions of a window along each dimension.
pub(super) fn windowed(base: &[i64], window: &[WindowDim]) -> Result<Vec<i64>, Trouble> {
    if base.len() != window.len() {
        return attribute(format!("expected a window of {} dimensions, found {}", base.len(), window.len()));
    }
    let each = |(&size, w): (&i64, &WindowDim)| {
        if w.size < 1 || w.stride < 1 || w.window_dilation < 1 || w.base_dilation < 1 {
            return attribute(format!("expected window sizes, strides and dilations of at least 1, found {w:?}"));
        }
        let padded = dilated(size, w.base_dilation).saturating_add(w.pad_low).saturating_add(w.pad_high);
        let covered = dilated(w.size, w.window_dilation);
        Ok(if padded < covered || padded <= 0 { 0 } else { (padded - covered) / w.stride + 1 })
    };
    base.iter().zip(window).map(each).collect()
}

fn dilated(size: i64, dilation: i64) -> i64 {
    if size == 0 { 0 } else { (size - 1).saturating_mul(dilation).saturating_add(1) }
}
