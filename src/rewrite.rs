//! Carries out a plan. It decides nothing and analyses nothing: what a plan names is looked up, new instructions are spliced in.

mod apply;
mod copies;
mod recompute;
mod resolve;

pub use apply::{Applied, ApplyError, apply};
