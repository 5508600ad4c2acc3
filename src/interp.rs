//! Runs a program: the reference meaning of every operation.

pub mod array;
pub mod ops;

pub use array::Array;
