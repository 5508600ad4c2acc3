//! Runs a program on a GPU: CUDA C for every instruction, and a driver that launches it.
//!
//! [`lower::compile`] writes kernels from the program alone; it shares nothing with the interpreter, which judges it.
//! [`Program`] is a module's list of steps, [`backend`] carries it out: the host queues work on three streams and decides nothing but loops.
//! The text has no include files and depends on nothing but the program: equal programs give equal bytes.

pub mod backend;
mod blas;
mod build;
mod contract;
mod driver;
mod emit;
mod fft;
mod gemm;
mod graph;
mod layout;
mod ledger;
mod linalg;
mod lower;
mod memory;
mod norm;
mod numa;
mod product;
pub mod program;
mod pull;
mod random;
mod reduce;
mod scalar;
mod source;
mod special;
pub mod types;

pub use emit::Memory;
pub use lower::{Code, compile};
pub use program::Program;
pub use source::{Kernel, Launch, PRELUDE, Source};
