//! Blocks of numbers that loops compute on, and how elements in memory become such numbers.
//!
//! Four kinds of lanes serve all element types: `f32` for every real type up to 32 bits (narrow types are rounded after each operation),
//! `f64`, `i64` for integers and `pred` (wrapped after each operation; a `u64` by its bits), two `f64` for complex types.

use std::sync::OnceLock;

use super::buffer::Buffer;
use super::ops::Bits;
use super::ops::scalar::{bf16_from_f32, f16_from_f32, f16_to_f32};
use crate::ir::{Primitive, float};

/// The kind of lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Real types up to 32 bits.
    F32,
    /// `f64`.
    F64,
    /// Integers and `pred`.
    Int,
    /// Complex types.
    Complex,
}

/// The lane of an element type.
pub fn lane(element: Primitive) -> Lane {
    match element {
        Primitive::F64 => Lane::F64,
        Primitive::C64 | Primitive::C128 => Lane::Complex,
        p if p.is_float() => Lane::F32,
        _ => Lane::Int,
    }
}

/// Numbers of one kind.
#[derive(Clone, Debug)]
pub enum Block {
    /// Of real types up to 32 bits.
    F32(Vec<f32>),
    /// Of `f64`.
    F64(Vec<f64>),
    /// Of integers and `pred`.
    Int(Vec<i64>),
    /// Of complex types.
    Complex(Vec<[f64; 2]>),
}

impl Block {
    /// Zeros.
    pub fn zeros(lane: Lane, len: usize) -> Self {
        match lane {
            Lane::F32 => Self::F32(vec![0.0; len]),
            Lane::F64 => Self::F64(vec![0.0; len]),
            Lane::Int => Self::Int(vec![0; len]),
            Lane::Complex => Self::Complex(vec![[0.0; 2]; len]),
        }
    }
    /// Makes it that long; what is new is zero.
    pub fn resize(&mut self, len: usize) {
        match self {
            Self::F32(v) => v.resize(len, 0.0),
            Self::F64(v) => v.resize(len, 0.0),
            Self::Int(v) => v.resize(len, 0),
            Self::Complex(v) => v.resize(len, [0.0; 2]),
        }
    }
    /// Copies numbers of the same kind to a place in this block.
    pub fn set(&mut self, at: usize, from: &Self, range: std::ops::Range<usize>) {
        match (self, from) {
            (Self::F32(to), Self::F32(from)) => to[at..at + range.len()].copy_from_slice(&from[range]),
            (Self::F64(to), Self::F64(from)) => to[at..at + range.len()].copy_from_slice(&from[range]),
            (Self::Int(to), Self::Int(from)) => to[at..at + range.len()].copy_from_slice(&from[range]),
            (Self::Complex(to), Self::Complex(from)) => to[at..at + range.len()].copy_from_slice(&from[range]),
            _ => unreachable!("blocks of one kind"),
        }
    }
    /// The bits of its first number, which is of an element type.
    pub fn bits(&self, element: Primitive) -> Bits {
        match self {
            Self::F32(v) => match element {
                Primitive::F32 => v[0].to_bits().into(),
                Primitive::BF16 => bf16_from_f32(v[0]).into(),
                Primitive::F16 => f16_from_f32(v[0]).into(),
                p => float::encode(p, f64::from(v[0])).into(),
            },
            Self::F64(v) => v[0].to_bits().into(),
            Self::Int(v) => Bits::from(v[0].cast_unsigned() & (u64::MAX >> (64 - element.bits()))),
            Self::Complex(v) => complex_bits(element, v[0]),
        }
    }
    /// Overwrites its first number, which is of an element type, by its bits.
    pub fn set_bits(&mut self, element: Primitive, bits: Bits) {
        match self {
            Self::F32(v) => {
                v[0] = match element {
                    Primitive::F32 => f32::from_bits(bits as u32),
                    Primitive::BF16 => f32::from_bits((bits as u32) << 16),
                    Primitive::F16 => f16_to_f32(bits as u16),
                    p => small_floats(p)[bits as usize & 0xff],
                }
            }
            Self::F64(v) => v[0] = f64::from_bits(bits as u64),
            Self::Int(v) => v[0] = wrap(element, bits as i64),
            Self::Complex(v) => v[0] = complex_of(element, bits),
        }
    }
    /// Fills the whole block with one of its kind's numbers.
    pub fn splat(&mut self, from: &Self, index: usize) {
        match (self, from) {
            (Self::F32(to), Self::F32(from)) => to.fill(from[index]),
            (Self::F64(to), Self::F64(from)) => to.fill(from[index]),
            (Self::Int(to), Self::Int(from)) => to.fill(from[index]),
            (Self::Complex(to), Self::Complex(from)) => to.fill(from[index]),
            _ => unreachable!("blocks of one kind"),
        }
    }
}

/// Elements that follow each other in memory or stand at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The first, counted in elements.
    pub at: usize,
    /// How many.
    pub len: usize,
    /// The distance in elements.
    pub stride: isize,
}

/// Copies runs of elements between memory and blocks.
pub struct Memory<'a> {
    /// The memory.
    pub buffer: &'a Buffer,
    /// The byte where element 0 lies.
    pub offset: usize,
    /// The element type.
    pub element: Primitive,
}

impl Memory<'_> {
    /// Reads a run into a block from an index on.
    pub fn load(&self, run: Run, block: &mut Block, to: usize) {
        let to = to..to + run.len;
        match block {
            Block::F32(v) => match self.element {
                Primitive::F32 => self.gather::<4, f32>(run, &mut v[to], f32::from_le_bytes),
                Primitive::BF16 => self.gather::<2, f32>(run, &mut v[to], |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
                Primitive::F16 => self.gather::<2, f32>(run, &mut v[to], |b| f16_to_f32(u16::from_le_bytes(b))),
                p => {
                    let table = small_floats(p);
                    self.gather::<1, f32>(run, &mut v[to], |b| table[usize::from(b[0])]);
                }
            },
            Block::F64(v) => self.gather::<8, f64>(run, &mut v[to], f64::from_le_bytes),
            Block::Int(v) => {
                let out = &mut v[to];
                match self.element {
                    Primitive::S64 | Primitive::U64 => self.gather::<8, i64>(run, out, i64::from_le_bytes),
                    Primitive::S32 => self.gather::<4, i64>(run, out, |b| i64::from(i32::from_le_bytes(b))),
                    Primitive::U32 => self.gather::<4, i64>(run, out, |b| i64::from(u32::from_le_bytes(b))),
                    Primitive::S16 => self.gather::<2, i64>(run, out, |b| i64::from(i16::from_le_bytes(b))),
                    Primitive::U16 => self.gather::<2, i64>(run, out, |b| i64::from(u16::from_le_bytes(b))),
                    p => self.gather::<1, i64>(run, out, |b| wrap(p, i64::from(b[0]))),
                }
            }
            Block::Complex(v) => match self.element {
                Primitive::C64 => self.gather::<8, [f64; 2]>(run, &mut v[to], |b| {
                    let part = |at: usize| f64::from(f32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]));
                    [part(0), part(4)]
                }),
                _ => self.gather::<16, [f64; 2]>(run, &mut v[to], |b| {
                    let (re, im) = b.split_at(8);
                    [re, im].map(|half| f64::from_le_bytes(half.try_into().expect("eight bytes")))
                }),
            },
        }
    }

    /// Writes a run from a block, which holds numbers of the element type (already rounded or wrapped).
    pub fn store(&self, run: Run, block: &Block, from: usize) {
        let from = from..from + run.len;
        match block {
            Block::F32(v) => match self.element {
                Primitive::F32 => self.scatter::<4, f32>(run, &v[from], f32::to_le_bytes),
                Primitive::BF16 => self.scatter::<2, f32>(run, &v[from], |x| bf16_from_f32(x).to_le_bytes()),
                Primitive::F16 => self.scatter::<2, f32>(run, &v[from], |x| f16_from_f32(x).to_le_bytes()),
                p => self.scatter::<1, f32>(run, &v[from], |x| [float::encode(p, f64::from(x)) as u8]),
            },
            Block::F64(v) => self.scatter::<8, f64>(run, &v[from], f64::to_le_bytes),
            Block::Int(v) => {
                let from = &v[from];
                match self.element.bits() {
                    64 => self.scatter::<8, i64>(run, from, i64::to_le_bytes),
                    32 => self.scatter::<4, i64>(run, from, |x| (x as u32).to_le_bytes()),
                    16 => self.scatter::<2, i64>(run, from, |x| (x as u16).to_le_bytes()),
                    8 => self.scatter::<1, i64>(run, from, |x| [x as u8]),
                    bits => self.scatter::<1, i64>(run, from, |x| [x as u8 & (0xff >> (8 - bits))]),
                }
            }
            Block::Complex(v) => match self.element {
                Primitive::C64 => self.scatter::<8, [f64; 2]>(run, &v[from], |[re, im]| {
                    let ([a, b, c, d], [e, f, g, h]) = ((re as f32).to_le_bytes(), (im as f32).to_le_bytes());
                    [a, b, c, d, e, f, g, h]
                }),
                _ => self.scatter::<16, [f64; 2]>(run, &v[from], |[re, im]| {
                    let mut out = [0; 16];
                    out[..8].copy_from_slice(&re.to_le_bytes());
                    out[8..].copy_from_slice(&im.to_le_bytes());
                    out
                }),
            },
        }
    }

    fn gather<const W: usize, T: Copy>(&self, run: Run, out: &mut [T], decode: impl Fn([u8; W]) -> T) {
        let cells = &self.buffer.cells()[self.offset..];
        if run.stride == 1 {
            let cells = &cells[run.at * W..(run.at + run.len) * W];
            for (to, from) in out.iter_mut().zip(cells.as_chunks::<W>().0) {
                *to = decode(std::array::from_fn(|i| from[i].get()));
            }
        } else if run.stride == 0 && run.len > 0 {
            let from = &cells[run.at * W..(run.at + 1) * W];
            out.fill(decode(std::array::from_fn(|i| from[i].get())));
        } else {
            let elements = cells.as_chunks::<W>().0;
            let mut at = run.at.cast_signed();
            for to in out {
                let from = &elements[at.cast_unsigned()];
                *to = decode(std::array::from_fn(|i| from[i].get()));
                at += run.stride;
            }
        }
    }

    fn scatter<const W: usize, T: Copy>(&self, run: Run, from: &[T], encode: impl Fn(T) -> [u8; W]) {
        let cells = &self.buffer.cells()[self.offset..];
        if run.stride == 1 {
            let cells = &cells[run.at * W..(run.at + run.len) * W];
            for (to, &from) in cells.as_chunks::<W>().0.iter().zip(from) {
                for (cell, byte) in to.iter().zip(encode(from)) {
                    cell.set(byte);
                }
            }
        } else {
            let elements = cells.as_chunks::<W>().0;
            let mut at = run.at.cast_signed();
            for &from in from {
                for (cell, byte) in elements[at.cast_unsigned()].iter().zip(encode(from)) {
                    cell.set(byte);
                }
                at += run.stride;
            }
        }
    }
}

/// The bits of a number in a complex lane.
pub fn complex_bits(element: Primitive, [re, im]: [f64; 2]) -> Bits {
    match element {
        Primitive::C64 => Bits::from((re as f32).to_bits()) | Bits::from((im as f32).to_bits()) << 32,
        _ => Bits::from(re.to_bits()) | Bits::from(im.to_bits()) << 64,
    }
}

/// The number in a complex lane of some bits.
pub fn complex_of(element: Primitive, bits: Bits) -> [f64; 2] {
    match element {
        Primitive::C64 => [f64::from(f32::from_bits(bits as u32)), f64::from(f32::from_bits((bits >> 32) as u32))],
        _ => [f64::from_bits(bits as u64), f64::from_bits((bits >> 64) as u64)],
    }
}

/// An integer cut to its type: sign-extended if signed, else zero-extended; `pred` is what it was.
pub fn wrap(element: Primitive, value: i64) -> i64 {
    let unused = 64 - element.bits();
    let bits = value << unused;
    if element.is_signed_integer() { bits >> unused } else { (bits.cast_unsigned() >> unused).cast_signed() }
}

/// A number rounded to a real type of at most 32 bits.
pub fn round(element: Primitive, value: f32) -> f32 {
    match element {
        Primitive::F32 => value,
        Primitive::BF16 => f32::from_bits(u32::from(bf16_from_f32(value)) << 16),
        Primitive::F16 => f16_to_f32(f16_from_f32(value)),
        p => small_floats(p)[float::encode(p, f64::from(value)) as usize],
    }
}

/// The numbers of all bytes of an 8-bit or smaller real type.
fn small_floats(element: Primitive) -> &'static [f32; 256] {
    static TABLES: [OnceLock<Box<[f32; 256]>>; 64] = [const { OnceLock::new() }; 64];
    let index = usize::try_from(element.code()).expect("codes are small");
    let mask = 0xff >> (8 - element.bits().min(8));
    let number = |byte: usize| {
        let (bits, sign) = (byte as u64 & mask, 1 << (element.bits().min(8) - 1));
        let value = float::decode(element, bits) as f32;
        // Which NaN it is only a total order asks, by the sign; some types have one NaN alone.
        let negative = value.is_nan() && bits & sign != 0 && float::decode(element, bits ^ sign).is_nan();
        if negative { f32::NAN.copysign(-1.0) } else { value }
    };
    TABLES[index].get_or_init(|| Box::new(std::array::from_fn(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_go_through_memory_unchanged() {
        for &element in Primitive::ALL {
            let width = element.literal_bytes();
            let mask = if element == Primitive::Pred { 1 } else { 0xff >> (8 - element.bits().min(8)) };
            let bytes: Vec<u8> = (0..width * 6).map(|i| (i * 37 + 1) as u8 & mask).collect();
            let (from, to) = (Buffer::filled(bytes.len(), 0), Buffer::filled(bytes.len(), 0));
            from.write(0, &bytes);
            let mut block = Block::zeros(lane(element), 6);
            for (at, stride) in [(0, 2), (1, 2)] {
                let run = Run { at, len: 3, stride };
                Memory { buffer: &from, offset: 0, element }.load(run, &mut block, 0);
                Memory { buffer: &to, offset: 0, element }.store(run, &block, 0);
            }
            let mut found = vec![0; bytes.len()];
            to.read(0, &mut found);
            assert_eq!(found, bytes, "{}", element.name());
        }
    }
}
