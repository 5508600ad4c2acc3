//! Reading and printing HLO text, in bytes a second: `cargo bench --bench parse [FILTER]`.
//!
//! The texts are those of `../shared/corpus`; without them nothing is measured. Compare with XLA's own parser on the same machine:
//! `xla_oracle.py parse ../shared/corpus/*.hlo`.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

/// The texts of the corpus, by name.
fn corpus() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "hlo")).map(|p| p.display().to_string()).collect();
    names.sort();
    names
}

#[divan::bench(args = corpus())]
fn parse(bencher: Bencher<'_, '_>, path: &str) {
    let text = std::fs::read(path).expect("a listed file can be read");
    bencher.counter(BytesCount::new(text.len())).bench(|| offc::text::parse(black_box(&text)));
}

#[divan::bench(args = corpus())]
fn print(bencher: Bencher<'_, '_>, path: &str) {
    let text = std::fs::read(path).expect("a listed file can be read");
    let module = offc::text::parse(&text).expect("the corpus reads").module;
    bencher.counter(BytesCount::new(text.len())).bench(|| offc::text::print(black_box(&module)));
}
