//! Elements of arrays by their bits.

use super::scalar::Bits;
use crate::interp::Array;

/// The bits of an element.
#[inline]
pub fn load(array: &Array, index: usize) -> Bits {
    match array.element_bytes(index) {
        [a] => (*a).into(),
        [a, b] => u16::from_le_bytes([*a, *b]).into(),
        [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]).into(),
        bytes => {
            let mut all = [0; 16];
            all[..bytes.len()].copy_from_slice(bytes);
            Bits::from_le_bytes(all)
        }
    }
}

/// Overwrites an element by its bits.
#[inline]
pub fn store(array: &mut Array, index: usize, bits: Bits) {
    let width = array.width();
    array.data[index * width..(index + 1) * width].copy_from_slice(&bits.to_le_bytes()[..width]);
}

/// The elements of an `f32` array.
pub fn f32s(array: &Array) -> impl Iterator<Item = f32> {
    array.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}
