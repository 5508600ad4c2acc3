//! Prints the CUDA C of all kernels of some modules, each kernel once: `cargo run --example cuda_source -- MODULE…`. What has no kernel is
//! named on standard error. `scripts/cuda-compile` gives the text to NVRTC.

#[path = "../src/bin/offc/arena.rs"]
mod arena;

use std::collections::BTreeSet;

use offc::analysis::settle::settle;
use offc::cuda::program::align;
use offc::cuda::{Program, Source};

fn main() {
    let mut source = Source::default();
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let module = match offc::format::read(&bytes) {
            Ok(read) => read.module,
            Err(errors) => panic!("{path}: {errors:?}"),
        };
        let module = settle(&module).unwrap_or(module);
        let placement = align(&arena::placement(&module));
        let (program, errors) = Program::parts(&module, Some(&placement));
        let reasons: BTreeSet<&str> = errors.iter().map(|e| &*e.message).collect();
        eprintln!("{path}: {} kernels, {} instructions without one", program.source.kernels.len(), errors.len());
        for reason in reasons {
            let first = errors.iter().find(|e| e.message == reason).map(|e| e.instruction.clone()).unwrap_or_default();
            eprintln!("  {reason} (first: `{first}`)");
        }
        source.add(program.source.kernels.into_values());
    }
    print!("{}", source.text());
}
