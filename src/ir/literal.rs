//! Constants.

use super::ShapeId;

/// A constant value with its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Literal {
    /// The shape; its layout is how a proto stores the elements.
    pub shape: ShapeId,
    /// The elements.
    pub value: LiteralValue,
}

/// The elements of a constant.
#[derive(Clone, Debug, PartialEq)]
pub enum LiteralValue {
    /// Little-endian elements in the logical row-major order, whatever the layout says; sub-byte types take one byte each
    /// (the value's bits in the low end), `pred` is 0 or 1, complex is real then imaginary. Bits are exact, NaN payloads included.
    Dense(Box<[u8]>),
    /// `{...}`: the data was left out when the module was printed, and is lost.
    Elided,
    /// A tuple's elements.
    Tuple(Vec<Literal>),
    /// A token.
    Token,
}
