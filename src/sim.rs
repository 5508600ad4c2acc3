//! Plays a scheduled program on a machine.
//!
//! One compute stream runs kernels in order. Copies to the host, copies from the host and collectives each have a queue, first in first
//! out; a `-start` puts work there, a `-done` waits for it. A loop is played for a few iterations until it is in its steady state,
//! which is then extrapolated over the trip count. Costs O(instructions · 4^nesting).

mod engine;

pub use engine::{Timeline, simulate};
