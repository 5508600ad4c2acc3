//! Runs a program: the reference meaning of every operation.

pub mod array;

pub use array::Array;
