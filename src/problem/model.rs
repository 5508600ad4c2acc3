//! Problem and solution.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, BytesPerSec, Nanos};

/// A position on the clock: an index into [`Problem::steps`].
pub type Instant = u32;

/// An index into [`Problem::values`].
pub type ValueIndex = u32;

/// What is to be planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// What runs, in order. The body of a loop stands once, between what comes before and after the loop.
    pub steps: Vec<Step>,
    /// What may move or be made again, and what recipes read.
    pub values: Vec<Value>,
    /// The links to host memory.
    pub links: Links,
    /// Device memory that may be used at any instant.
    pub device_memory: Bytes,
    /// Host memory that may be used.
    pub host_memory: Bytes,
    /// Device and host memory together that may be used at any instant; all there is where nothing is said. XLA's own rematerialization counts so.
    #[serde(default = "unlimited")]
    pub total_memory: Bytes,
}

fn unlimited() -> Bytes {
    Bytes::MAX
}

/// One instruction on the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Time of all its runs together.
    pub time: Nanos,
    /// How often it runs in one run of the program.
    pub runs: u64,
    /// The computation it stands in, by any number; a choice for a value names only steps of the value's computation.
    pub frame: u32,
    /// The first step of what runs inside it (a loop's body stands just before its loop); itself where nothing does. What is put before
    /// this step runs at `enter`.
    pub enter: Instant,
    /// Device memory that is taken while it runs and that no choice changes.
    pub fixed: Bytes,
}

/// One value. It takes device memory from `born` to its last use; both ends included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// For people.
    pub name: String,
    /// Its size.
    pub bytes: Bytes,
    /// The step that makes it.
    pub born: Instant,
    /// The steps that read it, ascending, after `born`.
    pub uses: Vec<Instant>,
    /// The last step at which it can still be read: its buffer may be overwritten in place afterwards.
    pub valid_to: Instant,
    /// Whether it may leave between two uses.
    pub movable: bool,
    /// How to make it again.
    pub recipe: Option<Recipe>,
}

/// How to make a value again from others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// Time of all runs together.
    pub time: Nanos,
    /// The values it reads.
    pub inputs: Vec<ValueIndex>,
    /// The last step at which what it reads besides `inputs` is still there.
    pub valid_to: Instant,
}

/// Both directions of the link to host memory; each a queue, first in first out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Links {
    /// From device to host.
    pub out: Link,
    /// From host to device.
    pub back: Link,
}

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Its rate.
    pub rate: BytesPerSec,
    /// What each copy costs before its first byte.
    pub latency: Nanos,
}

impl Link {
    /// The time of `runs` copies of `bytes` each.
    pub fn time(&self, bytes: Bytes, runs: u64) -> Nanos {
        (self.latency + bytes / self.rate) * runs
    }
}

impl Problem {
    /// How often the computation runs in which a value stands.
    pub fn runs(&self, value: &Value) -> u64 {
        self.steps.get(value.born as usize).map_or(1, |s| s.runs.max(1))
    }
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Solution {
    /// Choices; every value resident where none says otherwise.
    pub choices: Vec<Choice>,
}

/// How one value passes one gap between two of its uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The value.
    pub value: ValueIndex,
    /// The use before the gap (`born` counts as one).
    pub after: Instant,
    /// The use after the gap.
    pub needed_at: Instant,
    /// Where it is in between.
    pub how: How,
    /// Predicted loss of time.
    pub cost: Nanos,
}

/// Where a value is during a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// In host memory.
    Host {
        /// The copy out; `None` where an earlier choice left a copy on the host.
        sent: Option<Sent>,
        /// The copy back is issued before this step; the device buffer is taken from here on.
        fetch: Instant,
    },
    /// Made again just before `needed_at`, after the values that its making lacks; the value itself is last.
    Recomputed {
        /// In order of making.
        chain: Vec<ValueIndex>,
    },
}

/// A copy to the host, by the steps before which its two halves stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// It is issued before this step.
    pub start: Instant,
    /// It is waited for before this step; the device buffer is free from here on.
    pub done: Instant,
}

impl Choice {
    /// The steps `from..to` in which the value takes no device memory. Recomputation takes it at `needed_at`.
    pub fn absent(&self, problem: &Problem) -> (Instant, Instant) {
        let enter = |at: Instant| problem.steps[at as usize].enter;
        match &self.how {
            How::Host { sent, fetch } => (sent.map_or(self.after + 1, |s| enter(s.done)), enter(*fetch)),
            How::Recomputed { .. } => (self.after + 1, enter(self.needed_at)),
        }
    }
}
