//! The `offc` command.
fn main() {}
