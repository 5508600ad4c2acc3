//! The meaning of the operations that stand apart from the control flow: pure functions on dense arrays and typed attributes.
//!
//! Exact and deterministic: no thread, no hash order, no mathematics of the platform (`libm` is the same code everywhere). Every sum has a
//! fixed order, told by the function that makes it. Where the meaning of a value is a matter of taste, XLA:CPU decides, with one exception:
//! subnormal numbers are kept, as XLA:GPU does; XLA:CPU takes them for zeros.

pub mod elementwise;
mod error;
pub mod scalar;

pub use error::{OpError, Result};
pub use scalar::Bits;
