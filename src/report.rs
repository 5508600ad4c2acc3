//! What a person looks at: tables and JSON, made from finished values only.
//!
//! A report is a value: its `Display` is the text of the command line, its `Serialize` the JSON. Both are deterministic.

mod diff;
mod diff_text;
mod names;
mod peak;
mod peak_text;
mod roles;
mod simulate;
mod subject;
mod table;
mod trace;

pub use diff::{DiffInput, DiffReport, Fate, GroupChange, Moved, Side, Transfers};
pub use names::Pass;
pub use peak::{FloorRow, Group, Holder, HolderKind, PeakReport, RoleRow, Until};
pub use roles::Role;
pub use simulate::SimReport;
pub use trace::trace;
