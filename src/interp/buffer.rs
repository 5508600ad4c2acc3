//! Memory that values lie in.

use std::cell::Cell;
use std::rc::Rc;

use super::array::Array;
use crate::ir::Primitive;

/// A block of bytes that several values may lie in. Cheap to clone: clones are the same memory. It belongs to one thread.
#[derive(Clone, Debug)]
pub struct Buffer(Rc<[Cell<u8>]>);

impl Buffer {
    /// Bytes that are all alike.
    pub fn filled(bytes: usize, with: u8) -> Self {
        Self((0..bytes).map(|_| Cell::new(with)).collect())
    }
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether two are the same memory.
    pub fn same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
    /// Whether exactly so many clones of it exist, itself included.
    pub fn is_held_by(&self, clones: usize) -> bool {
        Rc::strong_count(&self.0) == clones
    }
    /// The bytes as cells.
    pub fn cells(&self) -> &[Cell<u8>] {
        &self.0
    }
    /// Copies bytes out.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = &self.0[at..at + into.len()];
        for (to, from) in into.iter_mut().zip(from) {
            *to = from.get();
        }
    }
    /// Copies bytes in.
    pub fn write(&self, at: usize, from: &[u8]) {
        for (to, &from) in self.0[at..at + from.len()].iter().zip(from) {
            to.set(from);
        }
    }
    /// Overwrites a range with one byte.
    pub fn fill(&self, at: usize, bytes: usize, with: u8) {
        for cell in &self.0[at..at + bytes] {
            cell.set(with);
        }
    }
    /// Copies between buffers, or within one as if there were a copy between.
    pub fn copy(from: &Self, at: usize, to: &Self, target: usize, bytes: usize) {
        if from.same(to) && at == target {
            return;
        }
        let (source, sink) = (&from.0[at..at + bytes], &to.0[target..target + bytes]);
        if from.same(to) && target > at {
            for (to, from) in sink.iter().zip(source).rev() {
                to.set(from.get());
            }
        } else {
            for (to, from) in sink.iter().zip(source) {
                to.set(from.get());
            }
        }
    }
}

/// Where an array lies: its bytes follow each other from an offset on, in the order of the layout its shape has.
#[derive(Clone, Debug)]
pub struct Place {
    /// The memory.
    pub buffer: Buffer,
    /// The first byte.
    pub offset: usize,
    /// The number of bytes.
    pub bytes: usize,
    /// The stamp of the value in an arena ([`super::arena`]); 0 elsewhere.
    pub stamp: u64,
}

impl Place {
    /// A place of its own, poisoned.
    pub fn fresh(bytes: usize) -> Self {
        Self { buffer: Buffer::filled(bytes, POISON), offset: 0, bytes, stamp: 0 }
    }
    /// A place of its own that holds an array's bytes.
    pub fn of_bytes_of(array: &Array) -> Self {
        let place = Self::fresh(array.data.len());
        place.buffer.write(0, &array.data);
        place
    }
    /// The array of that type whose bytes it holds, in the logical order.
    pub fn to_array(&self, element: Primitive, dims: &[usize]) -> Array {
        let mut array = Array::zeros(element, dims);
        self.buffer.read(self.offset, &mut array.data);
        array
    }
    /// Whether two places share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.buffer.same(&other.buffer) && self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }
    /// Whether two places are one.
    pub fn is(&self, other: &Self) -> bool {
        self.buffer.same(&other.buffer) && self.offset == other.offset && self.bytes == other.bytes
    }
}

/// What memory holds that nobody has written: as a float of any width a negative number that no program computes with by chance.
pub const POISON: u8 = 0xcb;
