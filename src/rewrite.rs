//! Carries out a plan. It decides nothing and analyses nothing: what a plan names is looked up, new instructions are spliced in.

mod apply;
mod copies;
mod fused;
mod loop_edit;
mod recompute;
mod resolve;

pub use apply::{Applied, ApplyError, apply};
pub use copies::{Copy, define_copy};
pub use fused::FusedBuilder;
pub use loop_edit::{LoopEdit, LoopHandle, NewElement, define_take};
