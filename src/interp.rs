//! Runs a program: the reference meaning of every operation.
//!
//! [`Program::new`] compiles a module's instructions, each alone, into loops ([`kernel`]); `Evaluation` walks the computations in their
//! order and runs them. Nothing here decides anything that could differ from run to run: sums have a fixed order ([`kernel`]), values are
//! passed in program order, partitions meet in the order of their programs. [`ops`] says what single elements become, and computes what no
//! loop does.

mod arena;
pub mod array;
mod buffer;
mod collective;
mod elementwise;
mod error;
mod eval;
mod exchange;
mod kernel;
mod lanes;
mod layouts;
pub mod npz;
pub mod ops;
mod placement;
mod program;
mod run;
mod tape;
mod timing;
mod trace;
mod transfer;
mod view;

pub use array::Array;
pub use error::Error;
pub use eval::{Identity, Observer, Value};
pub use exchange::{Alone, Exchange, Together};
pub use placement::{ArenaKind, HighWater, Placement, PlannedBuffer};
pub use program::Program;
pub use run::{Inputs, Outcome, Outputs, RunOptions, run, run_streamed};
pub use timing::{Clock, Measured, Span, Timed};
pub use trace::{Computed, Trace};
pub use transfer::Direction;
