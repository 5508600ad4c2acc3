//! Kernels: one instruction, or a whole fusion, compiled into a few loops over memory.
//!
//! [`build`](mod@build) lowers instructions to a graph of *views* ([`super::view`]), which cost nothing, and *elementwise operations*, which are computed
//! only inside the loop of whoever needs them. A loop visits a row-major sequence of elements in blocks of [`BLOCK`]: it loads blocks
//! through views, runs a tape of elementwise steps ([`super::tape`]) and feeds sinks: a store through a view, or a reduction. What is no
//! view, elementwise or a reduction (dot, concatenate, pad, dynamic-update-slice …) is an action between loops that writes memory.
//! Fused values are therefore mostly never stored; one is when an operation other than an elementwise one reads it.
//!
//! A reduction combines `init` with the elements of each result in the row-major order of its operand, whatever the layout and
//! whatever else the loop does: equal programs give equal bits.

mod amx;
mod assemble;
mod build;
mod contraction;
mod dot;
mod fast;
mod gemm;
mod indexed;
mod lower;
mod matrix;
mod moves;
mod run;
mod shape;
mod special;

pub use dot::Dot;
pub use lower::{compile, function};
pub use shape::{ArrayType, leaves};

use super::array::Array;
use super::buffer::Buffer;
use super::tape::{Applied, Register, Tape};
use super::view::{Access, View};

/// Elements of a block.
pub const BLOCK: usize = 1024;

/// What a kernel does, in order.
pub enum Action {
    /// A loop.
    Loop(Box<Loop>),
    /// A contraction.
    Dot(Box<Dot>),
    /// A function of whole arrays.
    Call(Box<Call>),
    /// A gather.
    Gather(Box<indexed::Gather>),
    /// A scatter.
    Scatter(Box<indexed::Scatter>),
}

/// A loop over a row-major sequence of elements.
pub struct Loop {
    /// The number of elements.
    pub len: usize,
    /// What is read.
    pub loads: Vec<Access>,
    /// What is computed of it.
    pub tape: Tape,
    /// What becomes of that.
    pub sinks: Vec<Sink>,
}

/// What a loop does with a block.
pub enum Sink {
    /// Writes it.
    Store {
        /// The block.
        from: Register,
        /// Where to.
        to: Access,
    },
    /// Reduces it.
    Reduce(Box<Reduction>),
}

/// A reduction over some dimensions of the loop's elements.
pub struct Reduction {
    /// The blocks to reduce.
    pub inputs: Vec<Register>,
    /// A scalar for each.
    pub inits: Vec<Access>,
    /// Dimensions of the elements, coalesced, and the strides by which they visit the results.
    pub dims: Vec<usize>,
    /// See `dims`; 0 where a dimension is reduced.
    pub strides: Vec<isize>,
    /// The number of results.
    pub count: usize,
    /// Combines results so far with elements.
    pub function: Applied,
    /// Where the results go.
    pub to: Vec<Access>,
}

/// A function of whole arrays.
pub struct Call {
    /// Operands.
    pub inputs: Vec<View>,
    /// Results.
    pub outputs: Vec<View>,
    /// The function; it fails with a reason.
    pub function: ArrayFunction,
}

/// Where a result may be written over an operand without a copy: it begins as that operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The operand.
    pub param: usize,
    /// The result.
    pub out: usize,
}

/// A compiled instruction.
pub struct Kernel {
    /// What is done.
    pub actions: Vec<Action>,
    /// Bytes of scratch memories.
    pub temps: Vec<usize>,
    /// Constants.
    pub consts: Vec<Buffer>,
    /// Results that begin as operands.
    pub in_place: Vec<InPlace>,
}

/// A function of whole arrays; it fails with a reason.
pub type ArrayFunction = Box<dyn Fn(Vec<Array>) -> Result<Vec<Array>, String>>;
