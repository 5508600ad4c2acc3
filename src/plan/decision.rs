//! A plan as data.
//!
//! A decision speaks of one *gap* of one value: a stretch of the program between two consecutive uses. Instructions are named, not
//! numbered, so that a plan outlives the process that made it. Whatever a plan says, carrying it out keeps the meaning of the program:
//! every copy of a value that a decision makes equals the value.

use serde::{Deserialize, Serialize};

/// The version of the JSON form; a reader refuses others.
pub const PLAN_VERSION: u32 = 1;

/// What to do to a module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// The module it was made for.
    pub module: String,
    /// Decisions in program order of their computation and of `needed_by`.
    pub decisions: Vec<Decision>,
}

/// How one value passes one gap between two of its uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The computation in which value and users stand.
    pub computation: String,
    /// The value.
    pub value: ValueName,
    /// Its bytes.
    pub bytes: u64,
    /// The first user after the gap. It and every later user read the copy that this decision makes, up to the next decision.
    pub needed_by: String,
    /// Where the value is in between.
    pub residence: Residence,
    /// Predicted loss of time over the step, in nanoseconds.
    pub cost_ns: f64,
    /// Why, for a person.
    pub reason: String,
}

/// A value: an instruction, or one element of the tuple it makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValueName {
    /// The instruction.
    pub instr: String,
    /// The element, where the instruction makes a tuple.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u32>,
}

/// Where a value is between two uses. Resident is what no decision says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Residence {
    /// In pinned host memory.
    Host {
        /// The way out; `None` if an earlier decision for this value already sent it.
        send: Option<Send>,
        /// The copy back starts before this instruction and is waited for before `needed_by`.
        fetch_before: String,
    },
    /// Nowhere: computed again just before `needed_by`.
    Recomputed {
        /// What is computed, in order; the last item is the value.
        chain: Vec<ChainItem>,
    },
}

/// A copy to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// It starts before this instruction.
    pub start_before: String,
    /// It is waited for, and the device buffer free, before this one.
    pub done_before: String,
}

/// One instruction computed again: the whole of it, or one output of a multi-output fusion.
pub type ChainItem = ValueName;

impl Plan {
    /// An empty plan.
    pub fn empty(module: &str) -> Self {
        Self { version: PLAN_VERSION, module: module.to_owned(), decisions: Vec::new() }
    }
    /// Bytes that go to the host, and bytes that come back, over one run of each computation.
    pub fn transfer_bytes(&self) -> (u64, u64) {
        self.decisions.iter().fold((0, 0), |(out, back), d| match &d.residence {
            Residence::Host { send, .. } => (out + if send.is_some() { d.bytes } else { 0 }, back + d.bytes),
            Residence::Recomputed { .. } => (out, back),
        })
    }
}
