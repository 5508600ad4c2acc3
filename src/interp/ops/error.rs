//! Why an operation cannot be carried out.

use std::fmt;

/// Operands and attributes that do not fit together, or a form that is not supported; says "expected X, found Y" where it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpError(pub String);

/// What an operation gives.
pub type Result<T> = std::result::Result<T, OpError>;

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpError {}

/// Refuses with a message.
pub(super) fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(OpError(message.into()))
}

/// Goes on only if `holds`.
pub(super) fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(OpError(message())) }
}

/// Dimension numbers or sizes of an attribute as `usize`.
pub(super) fn sizes(values: &[i64]) -> Result<Vec<usize>> {
    values.iter().map(|&v| size(v)).collect()
}

/// A dimension number or a size of an attribute as `usize`.
pub(super) fn size(value: i64) -> Result<usize> {
    usize::try_from(value).map_err(|_| OpError(format!("expected a number of at least 0, found {value}")))
}
