//! The steps of a rewrite, by name.

pub mod dce;
pub mod fit;
