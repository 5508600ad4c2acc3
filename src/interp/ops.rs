//! The meaning of the operations that stand apart from the control flow: pure functions on dense arrays and typed attributes.
//!
//! Exact and deterministic: no thread, no hash order, no mathematics of the platform (`libm` is the same code everywhere). Every sum has a
//! fixed order, told by the module that makes it. Where the meaning of a value is a matter of taste, XLA:CPU decides, with one exception:
//! subnormal numbers are kept, as XLA:GPU does; XLA:CPU takes them for zeros.
//!
//! Shapes and attributes need not fit each other: what does not is refused with [`OpError`]. Arrays must hold as many bytes as they say.

pub mod collective;
mod combine;
mod conv;
mod cudnn;
mod data;
pub mod elementwise;
mod error;
mod fft;
pub mod groups;
mod index;
mod linalg;
mod norm;
mod number;
mod ragged;
pub mod rng;
pub mod scalar;
mod sort;
mod stochastic;
mod window;

pub use combine::Combiner;
pub use conv::convolution;
pub use cudnn::{cudnn_conv, is_cudnn_conv};
pub use data::{bitcast_convert, scan, set_dimension_size};
pub use error::{OpError, Result};
pub use fft::fft;
pub use linalg::{TriangularOptions, cholesky, triangular_solve};
pub use norm::{batch_norm_grad, batch_norm_inference, batch_norm_training};
pub use ragged::{RaggedDims, ragged_dot};
pub use scalar::Bits;
pub use sort::{sort, topk};
pub use stochastic::stochastic_convert;
pub use window::{reduce_window, select_and_scatter};
