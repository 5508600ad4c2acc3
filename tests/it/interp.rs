//! The interpreter against what XLA:CPU computes for the tiny training steps of the corpus.

#[path = "../../src/bin/offc/arena.rs"]
pub mod arena;

use std::path::{Path, PathBuf};

use offc::analysis::settle::settle;
use offc::interp::{Array, Outcome, RunOptions, npz, run};
use offc::ir::Module;

/// The corpus, if it is here.
pub fn corpus() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: {} is not here", folder.display());
    None
}

/// A module of the corpus: `NAME.pb`, or `NAME.hlo` where the name says so.
pub fn module(folder: &Path, name: &str) -> Module {
    if name.ends_with(".hlo") {
        let text = std::fs::read(folder.join(name)).expect("the corpus is readable");
        return offc::text::parse(&text).expect("the corpus parses").module;
    }
    offc::proto::decode(&std::fs::read(folder.join(format!("{name}.pb"))).expect("the corpus is readable")).expect("the corpus decodes").0
}

/// The arrays of an archive of the corpus in the order of their numbers.
pub fn arrays(folder: &Path, name: &str) -> Vec<Array> {
    let mut arrays = npz::read(&std::fs::read(folder.join(name)).expect("the corpus is readable")).expect("the corpus is well formed");
    arrays.sort_by_key(|(key, _)| key.trim_start_matches(char::is_alphabetic).parse::<usize>().expect("keys are numbered"));
    arrays.into_iter().map(|(_, array)| array).collect()
}

/// The largest difference relative to the largest value, over all outputs.
fn distance(expected: &[Array], found: &[Array]) -> f64 {
    assert_eq!(expected.len(), found.len());
    let mut worst = 0.0f64;
    for (a, b) in expected.iter().zip(found) {
        assert_eq!((a.element, &a.dims), (b.element, &b.dims));
        let scale = (0..a.len()).map(|i| a.f64(i).abs()).fold(1e-30, f64::max);
        for i in 0..a.len() {
            let difference = (a.f64(i) - b.f64(i)).abs() / scale;
            worst = if difference.is_nan() { f64::INFINITY } else { worst.max(difference) };
        }
    }
    worst
}

/// Runs a module; a scheduled one in arenas of the planned size, all of which it must use.
pub fn planned(module: &Module, inputs: Vec<Array>) -> Result<Outcome, Vec<offc::interp::Error>> {
    if !module.is_scheduled {
        return run(module, &[inputs], RunOptions::default()).map(|mut o| o.swap_remove(0));
    }
    let settled = settle(module);
    let module = settled.as_ref().unwrap_or(module);
    let placement = arena::placement(module);
    let outcome = run(module, &[inputs], RunOptions { placement: Some(&placement), ..RunOptions::default() })?.swap_remove(0);
    assert_eq!((outcome.high_water.device, outcome.high_water.host), (placement.device, placement.host));
    Ok(outcome)
}

fn check(name: &str, arrays_of: &str, bound: f64) {
    let Some(folder) = corpus() else { return };
    let inputs = arrays(&folder, &format!("{arrays_of}.in.npz"));
    let expected = arrays(&folder, &format!("{arrays_of}.out.npz"));
    let found = planned(&module(&folder, name), inputs).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    let found = distance(&expected, &found.outputs);
    assert!(found <= bound, "{name}: {found} of the largest value, expected at most {bound}");
}

#[test]
fn optimized_steps_compute_what_xla_computes() {
    check("gpt3_tiny_none", "gpt3_tiny_none", 2e-3);
    check("gpt3_tiny_full", "gpt3_tiny_none", 2e-3);
    check("gpt3_tiny_offload", "gpt3_tiny_none", 2e-3);
    check("gpt3_tiny_unrolled_none", "gpt3_tiny_unrolled_none", 2e-3);
}

#[test]
fn steps_before_optimization_compute_what_xla_computes() {
    for name in ["gpt3_tiny_none", "gpt3_tiny_unrolled_none"] {
        check(&format!("{name}.pre.hlo"), name, 2e-3);
    }
    check("gpt3_tiny_full.pre.hlo", "gpt3_tiny_none", 2e-3);
    check("gpt3_tiny_offload.pre.hlo", "gpt3_tiny_none", 2e-3);
}

#[test]
fn four_partitions_compute_what_one_does() {
    let Some(folder) = corpus() else { return };
    let whole = arrays(&folder, "gpt3_tiny_none.in.npz");
    let expected = arrays(&folder, "gpt3_tiny_none.out.npz");
    let module = module(&folder, "gpt3_tiny_none_fsdp4");
    let types: Vec<Vec<usize>> = module
        .entry()
        .parameters
        .iter()
        .map(|&p| {
            let shape = module.shapes.array(module.instr(p).shape).expect("parameters are arrays");
            shape.dims.iter().map(|d| usize::try_from(d.size).expect("sizes are small")).collect()
        })
        .collect();
    let part = |p: usize| whole.iter().zip(&types).map(|(a, dims)| slice(a, dims, p)).collect();
    let inputs: Vec<Vec<Array>> = (0..4).map(part).collect();
    let settled = settle(&module).unwrap_or(module);
    let placement = arena::placement(&settled);
    let found = run(&settled, &inputs, RunOptions { placement: Some(&placement), ..RunOptions::default() }).expect("it runs");
    for (p, outcome) in found.iter().enumerate() {
        let expected: Vec<Array> = expected.iter().zip(&outcome.outputs).map(|(a, found)| slice(a, &found.dims, p)).collect();
        let distance = distance(&expected, &outcome.outputs);
        assert!(distance <= 2e-3, "partition {p}: {distance}");
    }
}

/// The part of an array that a partition has: it is cut along the dimension that is larger.
fn slice(array: &Array, dims: &[usize], partition: usize) -> Array {
    let mut out = Array::zeros(array.element, dims);
    let start: Vec<usize> = array.dims.iter().zip(dims).map(|(whole, part)| if whole == part { 0 } else { part * partition }).collect();
    for (i, index) in offc::interp::array::indices(dims).enumerate() {
        let at: usize = index.iter().zip(&start).zip(array.strides()).map(|((i, s), stride)| (i + s) * stride).sum();
        out.set_element_bytes(i, array.element_bytes(at));
    }
    out
}
