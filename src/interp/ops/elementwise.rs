//! Elementwise operations on whole arrays: one loop a type for the common types, bits one by one for the rest.

use super::scalar::{self, Bits, binary_f32, binary_f64, unary_f32, unary_f64};
use crate::interp::Array;
use crate::ir::{Binary, CompareType, Direction, Primitive, Unary};

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

fn fill(element: Primitive, dims: &[usize], f: impl Fn(usize) -> Bits) -> Array {
    let mut out = Array::zeros(element, dims);
    for i in 0..out.len() {
        store(&mut out, i, f(i));
    }
    out
}

/// The elements of an `f32` array.
pub fn f32s(array: &Array) -> impl Iterator<Item = f32> {
    array.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// The elements of an `f64` array.
pub fn f64s(array: &Array) -> impl Iterator<Item = f64> {
    array.data.chunks_exact(8).map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
}

fn u16s(array: &Array) -> impl Iterator<Item = u16> {
    array.data.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
}

fn collect<const N: usize>(element: Primitive, dims: &[usize], values: impl Iterator<Item = [u8; N]>) -> Array {
    let mut out = Array::zeros(element, dims);
    for (to, from) in out.data.chunks_exact_mut(N).zip(values) {
        to.copy_from_slice(&from);
    }
    out
}

/// A unary operation on every element; the type is [`scalar::unary_element`].
pub fn unary(op: Unary, x: &Array) -> Array {
    let element = scalar::unary_element(op, x.element);
    match x.element {
        _ if op == Unary::IsFinite => fill(element, &x.dims, |i| scalar::unary(op, x.element, load(x, i))),
        Primitive::F32 => collect(element, &x.dims, f32s(x).map(|v| unary_f32(op, v).to_le_bytes())),
        Primitive::F64 => collect(element, &x.dims, f64s(x).map(|v| unary_f64(op, v).to_le_bytes())),
        Primitive::BF16 => {
            let of = |v| scalar::bf16_from_f32(unary_f32(op, scalar::bf16_to_f32(v))).to_le_bytes();
            collect(element, &x.dims, u16s(x).map(of))
        }
        Primitive::F16 => {
            let of = |v| scalar::f16_from_f32(unary_f32(op, scalar::f16_to_f32(v))).to_le_bytes();
            collect(element, &x.dims, u16s(x).map(of))
        }
        _ => fill(element, &x.dims, |i| scalar::unary(op, x.element, load(x, i))),
    }
}

/// A binary operation on every pair of elements of two arrays of one shape; the type is [`scalar::binary_element`].
pub fn binary(op: Binary, a: &Array, b: &Array) -> Array {
    let element = scalar::binary_element(op, a.element);
    match a.element {
        _ if op == Binary::Complex => fill(element, &a.dims, |i| scalar::binary(op, a.element, load(a, i), load(b, i))),
        Primitive::F32 => collect(element, &a.dims, f32s(a).zip(f32s(b)).map(|(x, y)| binary_f32(op, x, y).to_le_bytes())),
        Primitive::F64 => collect(element, &a.dims, f64s(a).zip(f64s(b)).map(|(x, y)| binary_f64(op, x, y).to_le_bytes())),
        Primitive::BF16 => {
            let of = |(x, y)| scalar::bf16_from_f32(binary_f32(op, scalar::bf16_to_f32(x), scalar::bf16_to_f32(y))).to_le_bytes();
            collect(element, &a.dims, u16s(a).zip(u16s(b)).map(of))
        }
        _ => fill(element, &a.dims, |i| scalar::binary(op, a.element, load(a, i), load(b, i))),
    }
}

/// `compare` of two arrays of one shape.
pub fn compare(direction: Direction, ty: Option<CompareType>, a: &Array, b: &Array) -> Array {
    fill(Primitive::Pred, &a.dims, |i| scalar::compare(direction, ty, a.element, load(a, i), load(b, i)).into())
}

/// `select`: of `on` where the `pred` (an array of the shape, or a scalar) is set, of `off` elsewhere.
pub fn select(pred: &Array, on: &Array, off: &Array) -> Array {
    if pred.dims.is_empty() {
        return if pred.data[0] != 0 { on.clone() } else { off.clone() };
    }
    let mut out = off.clone();
    let width = on.width();
    for (i, _) in pred.data.iter().enumerate().filter(|(_, set)| **set != 0) {
        out.data[i * width..(i + 1) * width].copy_from_slice(on.element_bytes(i));
    }
    out
}

/// `clamp`: the bounds are arrays of the shape, or scalars.
pub fn clamp(low: &Array, x: &Array, high: &Array) -> Array {
    let at = |bound: &Array, i: usize| load(bound, if bound.dims.is_empty() { 0 } else { i });
    fill(x.element, &x.dims, |i| scalar::clamp(x.element, at(low, i), load(x, i), at(high, i)))
}

/// `convert` of every element.
pub fn convert(x: &Array, to: Primitive) -> Array {
    match (x.element, to) {
        (from, to) if from == to => x.clone(),
        (Primitive::BF16, Primitive::F32) => collect(to, &x.dims, u16s(x).map(|v| scalar::bf16_to_f32(v).to_le_bytes())),
        (Primitive::F16, Primitive::F32) => collect(to, &x.dims, u16s(x).map(|v| scalar::f16_to_f32(v).to_le_bytes())),
        (Primitive::F32, Primitive::BF16) => collect(to, &x.dims, f32s(x).map(|v| scalar::bf16_from_f32(v).to_le_bytes())),
        (Primitive::F32, Primitive::F16) => collect(to, &x.dims, f32s(x).map(|v| scalar::f16_from_f32(v).to_le_bytes())),
        (from, to) => fill(to, &x.dims, |i| scalar::convert(from, to, load(x, i))),
    }
}

/// `reduce-precision` of every element.
pub fn reduce_precision(x: &Array, exponent_bits: i32, mantissa_bits: i32) -> Array {
    fill(x.element, &x.dims, |i| scalar::reduce_precision(x.element, exponent_bits, mantissa_bits, load(x, i)))
}
