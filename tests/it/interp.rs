//! The interpreter against what XLA:CPU computes for the tiny training steps of the corpus.

use std::path::{Path, PathBuf};

use offc::interp::{Array, npz, run};
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

fn check(name: &str, arrays_of: &str, bound: f64) {
    let Some(folder) = corpus() else { return };
    let inputs = arrays(&folder, &format!("{arrays_of}.in.npz"));
    let expected = arrays(&folder, &format!("{arrays_of}.out.npz"));
    let found = run(&module(&folder, name), &[inputs], false).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    let found = distance(&expected, &found[0].outputs);
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
