//! What a person looks at: tables and JSON, made from finished values only.
//!
//! A report is a value: its `Display` is the text of the command line, its `Serialize` the JSON. Both are deterministic.

mod peak;
mod simulate;
mod table;
mod trace;

pub use peak::{Holder, HolderKind, PeakReport};
pub use simulate::SimReport;
pub use trace::trace;
