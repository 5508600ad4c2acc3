//! `offc` makes a compiled JAX/XLA training step fit a GPU memory budget, bit for bit.
//!
//! # A tour
//! Three doors, by what the host has:
//!
//! 1. **Bytes.** [`embed::rewrite`] takes a module (HLO text or proto) and options as JSON, and gives the same kind of module and a report as
//!    JSON. The C interface (`capi/offc.h`) and the Python package (`python/`) are made of it.
//! 2. **Programs.** [`format::read`] turns bytes into an [`ir::Module`]; [`driver::rewrite`] does all of the work on one, or a
//!    [`pass::Pipeline`] of named [`passes`] and passes of the host's own; [`text::print`] and [`format::write`] turn it into bytes again.
//!    `examples/quickstart.rs` and `examples/custom_pass.rs` are short.
//! 3. **No program at all.** A [`problem::Problem`] says when values are made and read; [`solve::solve`] says what to move and what to make again,
//!    with a bound on what any solution can reach; [`problem::check`] replays the answer. `examples/embed_problem.rs` shows it.
//!
//! To look without changing: [`analysis::Analyses`] (buffers, live ranges, peak), [`sim::simulate`] (what a step takes), [`report`] (what
//! people read), [`verify::verify`] (is it well formed), [`interp`] (what it computes).
//!
//! ```
//! use offc::driver::{RewriteOptions, rewrite};
//! use offc::{machine, text, units::Bytes};
//!
//! let step = b"HloModule step, is_scheduled=true
//! ENTRY main {
//!   p = f32[8]{0} parameter(0)
//!   ROOT n = f32[8]{0} negate(p)
//! }";
//! let module = text::parse(step).expect("the text is well formed").module;
//! let machine = machine::preset("h100-sxm").expect("it is a preset");
//! let options = RewriteOptions {
//!     xla_memory: Some(machine.memory),
//!     machine,
//!     memory: Bytes(1 << 20),
//!     host_memory: None,
//!     host_state: None,
//!     truth: None,
//!     pipeline: None,
//! };
//! let done = rewrite(&module, &options).expect("it fits as it is");
//! assert_eq!(done.after.device(), Bytes(64));
//! ```
//!
//! The same input and options give the same bytes: no clock, thread, environment or hash order decides anything.

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
