//! `offc` makes a compiled JAX/XLA training step fit a GPU memory budget, bit for bit.

pub mod analysis;
pub mod diag;
pub mod entity;
pub mod ir;
pub mod machine;
pub mod proto;
pub mod report;
pub mod text;
pub mod units;
