//! The one integration test binary: a module for each kind of test.

mod analysis;
mod conformance;
mod filetests;
mod machine;
mod plan;
mod tidy;
mod verify;
