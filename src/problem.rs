//! A schedule of values as plain data: the planning problem without HLO.
//!
//! [`Problem`] says when values are made and read, how many bytes they hold, how they could be made again and what the links carry;
//! [`Solution`] says what leaves, what is made again and when; [`check`] replays a solution, sharing nothing with whoever found it.

mod check;
mod json;
mod model;

pub use check::{Checked, Violation, check};
pub use json::parse;
pub use model::{Choice, How, Instant, Link, Links, Problem, Recipe, Sent, Solution, Step, Value, ValueIndex};
