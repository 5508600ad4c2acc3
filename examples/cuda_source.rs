//! Prints the CUDA C of all kernels of some modules, each kernel once: `cargo run --example cuda_source -- MODULE…`. What has no kernel is
//! named on standard error. `scripts/cuda-compile` gives the text to NVRTC.

#[path = "../src/bin/offc/arena.rs"]
mod arena;

use std::collections::BTreeMap;

use offc::analysis::settle::settle;
use offc::cuda::program::align;
use offc::cuda::{Program, Source};
use offc::ir::Module;

/// The modules of a file: one, or a family of the operations' fixtures.
fn modules(path: &str) -> Vec<Module> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let parts: Vec<&[u8]> = match std::str::from_utf8(&bytes) {
        Ok(text) if text.starts_with("// case ") => {
            text.split("// case ").skip(1).filter_map(|part| Some(part.split_once('\n')?.1.as_bytes())).collect()
        }
        _ => vec![&bytes],
    };
    let read = |part: &&[u8]| offc::format::read(part).unwrap_or_else(|errors| panic!("{path}: {errors:?}")).module;
    parts.iter().map(read).collect()
}

fn main() {
    let mut source = Source::default();
    for path in std::env::args().skip(1) {
        let (mut kernels, mut count) = (Source::default(), 0);
        let mut reasons = BTreeMap::<String, String>::new();
        for module in modules(&path) {
            // What is not scheduled runs in the order in which it is written.
            let module = if module.is_scheduled { settle(&module).unwrap_or(module) } else { module };
            let placement = module.is_scheduled.then(|| align(&arena::placement(&module)));
            let (program, errors) = Program::parts(&module, placement.as_ref());
            count += errors.len();
            for error in errors {
                reasons.entry(error.message).or_insert_with(|| error.instruction.to_string());
            }
            kernels.add(program.source.kernels.into_values());
        }
        eprintln!("{path}: {} kernels, {count} instructions without one", kernels.kernels.len());
        for (reason, first) in reasons {
            eprintln!("  {reason} (first: `{first}`)");
        }
        source.add(kernels.kernels.into_values());
    }
    print!("{}", source.text());
}
