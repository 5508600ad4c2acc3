//! How two values become one.

use super::scalar::{self, Bits};
use crate::ir::{Binary, Primitive};

/// The computation that a reduction or a scatter calls.
pub enum Combiner<'a> {
    /// One operation on one value.
    Known(Binary),
    /// Anything, on one value an operand: the accumulators are the computation's first parameters and receive its results.
    Any(&'a mut dyn FnMut(&mut [Bits], &[Bits])),
}

impl Combiner<'_> {
    /// `accumulators = f(accumulators, values)`; a known operation treats the values one by one.
    pub fn apply(&mut self, elements: &[Primitive], accumulators: &mut [Bits], values: &[Bits]) {
        match self {
            Self::Known(op) => {
                for ((element, a), b) in elements.iter().zip(accumulators).zip(values) {
                    *a = scalar::binary(*op, *element, *a, *b);
                }
            }
            Self::Any(f) => f(accumulators, values),
        }
    }
    /// `f(accumulator, value)` of a computation with one value.
    pub fn one(&mut self, element: Primitive, accumulator: Bits, value: Bits) -> Bits {
        let mut accumulators = [accumulator];
        self.apply(&[element], &mut accumulators, &[value]);
        accumulators[0]
    }
}
