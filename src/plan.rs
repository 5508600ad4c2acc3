//! Decides what leaves, what is computed again, and when.
//!
//! [`Plan`] is the decision as data: it names instructions, can be saved, read, edited and replayed by `rewrite::apply`.

mod decision;
mod model;
mod pure;

pub use decision::{ChainItem, Decision, PLAN_VERSION, Plan, Residence, Send, ValueName};
pub use model::{Model, model};
pub use pure::is_pure;

pub use crate::solve::{Found, WORK, Ways, search, search_within};
