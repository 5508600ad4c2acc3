//! When things happened in a run. The clock is the caller's: nothing is decided by it.

use super::transfer::Direction;
use crate::ir::InstrId;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some moment that stays the same.
    fn now(&self) -> u64;
}

/// From when to when, by the run's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub begin: u64,
    /// When it had ended.
    pub end: u64,
}

impl Span {
    /// The nanoseconds between.
    pub fn nanos(self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// An instruction was computed, or partitions met.
    Compute,
    /// A transfer ran beside the program; the instruction is its start.
    Transfer(Direction),
    /// The program waited for a transfer; the instruction is its done.
    Wait,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The instruction.
    pub instr: InstrId,
    /// What it did.
    pub what: Measured,
    /// When.
    pub span: Span,
    /// Bytes that a transfer moved; 0 otherwise.
    pub bytes: u64,
}
