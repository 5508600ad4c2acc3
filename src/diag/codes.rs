//! Every diagnostic code with its explanation: what `offc explain CODE` prints.

mod driver;
mod instance;
mod machine;
mod proto;
mod text;
mod verify;

/// The explanation of a code.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// The code.
    pub code: &'static str,
    /// One sentence: what is wrong.
    pub title: &'static str,
    /// Why it matters and what to do.
    pub text: &'static str,
}

/// All explanations, sorted by code.
pub fn explanations() -> impl Iterator<Item = &'static Explanation> {
    TABLES.iter().flat_map(|t| t.iter())
}

/// The explanation of a code, whatever its case.
pub fn explain(code: &str) -> Option<&'static Explanation> {
    explanations().find(|e| e.code.eq_ignore_ascii_case(code))
}

/// One table a room, so that each room's codes stand together.
static TABLES: &[&[Explanation]] = &[machine::TABLE, instance::TABLE, proto::TABLE, driver::TABLE, text::TABLE, verify::TABLE];
