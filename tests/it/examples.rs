//! Every example runs, as `cargo test` has built it.

use std::path::PathBuf;
use std::process::{Command, Output};

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gpt3_760m_unrolled_none.pb");

fn example(name: &str, args: &[&str]) -> Output {
    let test = std::env::current_exe().expect("a test is a program");
    let built: PathBuf = test.ancestors().nth(2).expect("it lies in `deps`").join("examples").join(name);
    Command::new(&built).args(args).output().unwrap_or_else(|e| panic!("{}: {e}: `cargo test` builds it", built.display()))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("examples print UTF-8")
}

#[test]
fn quickstart_prints_a_module_that_fits() {
    let done = example("quickstart", &[MODULE, "5GiB"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let printed = offc::text::parse(&done.stdout).expect("text comes out").module;
    assert!(offc::verify::verify(&printed).is_empty());
    assert!(offc::analysis::Analyses::new(&printed).memory().device_bytes() <= 5 << 30);
}

#[test]
fn custom_pass_runs_in_our_pipeline() {
    let done = example("custom_pass", &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("name-orphans: 3 instructions named"), "{}", text(&done.stdout));
}

#[test]
fn embed_problem_plans_without_hlo() {
    let done = example("embed_problem", &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    // The example itself asserts that what it found passes the check and fits.
    let printed = text(&done.stdout);
    assert!(printed.starts_with("peak ") && printed.contains(" before step "), "{printed}");
}
