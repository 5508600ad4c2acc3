//! Where arrays lie: plans that kernels can use, what shares memory, elements in the order of a layout.

use super::program::Place;
use super::types::Ty;
use crate::interp::{ArenaKind, Array, Placement};

/// The same plan with every block of memory that values share at a multiple of 256 bytes, as kernels that read in vectors need it: a plan laid
/// end to end gives parameters any byte. What shares bytes keeps its distance.
pub fn align(placement: &Placement) -> Placement {
    const ALIGNMENT: usize = 256;
    let mut out = placement.clone();
    for kind in [ArenaKind::Device, ArenaKind::Host] {
        let mut order: Vec<usize> = (0..out.buffers.len()).filter(|&b| out.buffers[b].arena == kind && out.buffers[b].bytes > 0).collect();
        order.sort_by_key(|&b| (out.buffers[b].offset, b));
        // A block ends where the next buffer begins beyond all before it.
        let (mut end, mut shift, mut top) = (0, 0isize, 0);
        for b in order {
            let planned = placement.buffers[b];
            if planned.offset >= end {
                let at = end.checked_add_signed(shift).unwrap_or(0).max(top).next_multiple_of(ALIGNMENT);
                shift = at.cast_signed() - planned.offset.cast_signed();
            }
            out.buffers[b].offset = planned.offset.checked_add_signed(shift).unwrap_or(0);
            end = end.max(planned.offset + planned.bytes);
            top = top.max(out.buffers[b].offset + planned.bytes);
        }
        for buffer in out.buffers.iter_mut().filter(|b| b.arena == kind && b.bytes == 0) {
            buffer.offset = 0;
        }
        match kind {
            ArenaKind::Device => out.device = top,
            ArenaKind::Host => out.host = top,
        }
    }
    out
}

/// Pairs of an operand and a result that share bytes, and whether they begin at the same byte.
pub fn aliases(operands: &[Place], results: &[Place]) -> Vec<(usize, usize, bool)> {
    let mut out = Vec::new();
    for (o, result) in results.iter().enumerate() {
        for (p, operand) in operands.iter().enumerate() {
            if operand.overlaps(result) {
                out.push((p, o, operand.offset == result.offset));
            }
        }
    }
    out
}

/// An array's bytes in the order of a layout.
pub fn arrange(array: &Array, ty: &Ty) -> Vec<u8> {
    let mut out = vec![0; array.data.len()];
    let width = array.width();
    for (logical, physical) in offsets(ty).enumerate() {
        out[physical * width..][..width].copy_from_slice(array.element_bytes(logical));
    }
    out
}

/// The array whose bytes lie in the order of a layout.
pub fn logical(bytes: &[u8], ty: &Ty) -> Array {
    let dims: Vec<usize> = ty.dims.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
    let mut out = Array::zeros(ty.element, &dims);
    let width = out.width();
    for (logical, physical) in offsets(ty).enumerate() {
        out.data[logical * width..][..width].copy_from_slice(&bytes[physical * width..][..width]);
    }
    out
}

/// The offset in memory of each element in the logical order.
fn offsets(ty: &Ty) -> impl Iterator<Item = usize> + use<> {
    let (dims, strides) = (ty.dims.clone(), ty.strides());
    let total = usize::try_from(ty.elements()).unwrap_or(0);
    (0..total).map(move |mut linear| {
        let mut at = 0;
        for (&size, &stride) in dims.iter().zip(&strides).rev() {
            let size = usize::try_from(size).unwrap_or(1).max(1);
            at += linear % size * usize::try_from(stride).unwrap_or(0);
            linear /= size;
        }
        at
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::PlannedBuffer;

    #[test]
    fn blocks_are_aligned_and_keep_what_they_share() {
        let buffer = |offset, bytes| PlannedBuffer { arena: ArenaKind::Device, offset, bytes };
        // Two that overlap, one that follows at an odd byte, one in a gap that ends there.
        let buffers = vec![buffer(0, 1000), buffer(512, 600), buffer(1113, 4), buffer(1117, 0), buffer(1117, 300)];
        let placement = Placement { device: 1417, buffers, ..Placement::default() };
        let aligned = align(&placement);
        let offsets: Vec<usize> = aligned.buffers.iter().map(|b| b.offset).collect();
        assert_eq!((offsets, aligned.device), (vec![0, 512, 1280, 0, 1536], 1836));
    }

    #[test]
    fn bytes_go_to_a_layout_and_back() {
        let ty = Ty { element: crate::ir::Primitive::S32, dims: vec![2, 3], minor_to_major: vec![0, 1] };
        let array = Array::of_i64(ty.element, &[2, 3], &[0, 1, 2, 3, 4, 5]);
        let bytes = arrange(&array, &ty);
        let words: Vec<u8> = bytes.iter().copied().step_by(4).collect();
        assert_eq!(words, [0, 3, 1, 4, 2, 5]);
        assert_eq!(logical(&bytes, &ty), array);
    }
}
