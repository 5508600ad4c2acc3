//! `offc` makes a compiled JAX/XLA training step fit a GPU memory budget, bit for bit.

pub mod analysis;
pub mod cost;
pub mod cuda;
pub mod diag;
pub mod driver;
pub mod embed;
pub mod entity;
pub mod format;
pub mod interp;
pub mod ir;
pub mod machine;
pub mod pack;
pub mod pass;
pub mod passes;
pub mod plan;
pub mod problem;
pub mod proto;
pub mod report;
pub mod rewrite;
pub mod sim;
pub mod solve;
pub mod text;
pub mod units;
pub mod verify;
