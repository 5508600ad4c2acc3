//! Contractions in the interpreter: in the documented order, and fast. `cargo bench --bench interp`; `scripts/dot-speed` compares with XLA:CPU.

use divan::Bencher;
use divan::counter::ItemsCount;
use offc::interp::{Array, RunOptions, run};
use offc::ir::{Module, Primitive};

fn main() {
    divan::main();
}

fn square(element: Primitive, n: usize) -> (Module, Vec<Array>) {
    let t = element.name();
    let text = format!(
        "HloModule m\n\nENTRY e {{\n  a = {t}[{n},{n}] parameter(0)\n  b = {t}[{n},{n}] parameter(1)\n  ROOT d = {t}[{n},{n}] dot(a, b), \
         lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}\n"
    );
    let module = offc::text::parse(text.as_bytes()).expect("it parses").module;
    let values: Vec<f64> = (0..n * n).map(|i| (i * 7919 % 1009) as f64 / 1009.0 - 0.5).collect();
    let input = Array::of_f64(element, &[n, n], &values);
    (module, vec![input.clone(), input])
}

fn bench(bencher: Bencher<'_, '_>, element: Primitive, n: usize, fast: bool) {
    let (module, inputs) = square(element, n);
    let options = RunOptions { fast, ..RunOptions::default() };
    bencher.counter(ItemsCount::new(2 * n * n * n)).bench(|| run(&module, std::slice::from_ref(&inputs), options));
}

#[divan::bench(args = [128, 512, 1024], max_time = 3)]
fn f32_exact(bencher: Bencher<'_, '_>, n: usize) {
    bench(bencher, Primitive::F32, n, false);
}

#[divan::bench(args = [128, 512, 1024], max_time = 3)]
fn f32_fast(bencher: Bencher<'_, '_>, n: usize) {
    bench(bencher, Primitive::F32, n, true);
}

#[divan::bench(args = [128, 512, 1024], max_time = 3)]
fn bf16_exact(bencher: Bencher<'_, '_>, n: usize) {
    bench(bencher, Primitive::BF16, n, false);
}

#[divan::bench(args = [128, 512, 1024], max_time = 3)]
fn bf16_fast(bencher: Bencher<'_, '_>, n: usize) {
    bench(bencher, Primitive::BF16, n, true);
}
