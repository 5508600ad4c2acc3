//! The one integration test binary: a module for each kind of test.

mod cli;
mod analysis;
mod conformance;
mod filetests;
mod interp;
mod interp_equiv;
mod machine;
mod plan;
mod roundtrip;
mod ops;
mod tidy;
mod verify;
