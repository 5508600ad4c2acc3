//! The one integration test binary: a module for each kind of test.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod analysis;
mod cli;
mod conformance;
mod cost;
mod cuda;
mod cuda_driver;
mod cuda_ops;
mod filetests;
mod interp;
mod interp_equiv;
mod interp_layout;
mod interp_ops;
mod loop_passes;
mod machine;
mod ops;
mod plan;
mod protos;
mod random;
mod report;
mod roundtrip;
mod run_cli;
mod sim;
mod tidy;
mod trace;
mod verify;
