//! Layouts and views have no say in values: what is passed on is the logical array, and sums have one order.

use offc::driver::{RewriteOptions, Trouble, rewrite};
use offc::interp::{Array, RunOptions, run};
use offc::ir::Module;
use offc::units::Bytes;
use proptest::prelude::*;

use crate::interp::{arrays, corpus, module, planned};

fn outputs(text: &str, inputs: Vec<Array>, fast: bool) -> Vec<Array> {
    let module = offc::text::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e:?}\n{text}")).module;
    run(&module, &[inputs], RunOptions { fast, ..RunOptions::default() }).unwrap_or_else(|e| panic!("{e:?}\n{text}")).swap_remove(0).outputs
}

#[test]
fn a_value_that_is_passed_on_in_another_layout_is_the_same_array() {
    // Every step hands `f32[2,3]` to a receiver whose shape orders the dimensions the other way.
    let text = "HloModule m

g {
  p = f32[2,3]{1,0} parameter(0)
  ROOT n = f32[2,3]{0,1} negate(p)
}

same {
  p = f32[2,3]{0,1} parameter(0)
  ROOT c = f32[2,3]{1,0} copy(p)
}

more {
  s = (s32[], f32[2,3]{0,1}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], f32[2,3]{0,1}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2,3]{1,0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[2,3]{1,0} add(x, x)
  ROOT t = (s32[], f32[2,3]{1,0}) tuple(j, y)
}

ENTRY e {
  x = f32[2,3]{0,1} parameter(0)
  a = f32[2,3]{1,0} call(x), to_apply=g
  o = f32[2,3]{0,1} opt-barrier(a)
  z = s32[] constant(0)
  t = (s32[], f32[2,3]{1,0}) tuple(z, o)
  w = (s32[], f32[2,3]{1,0}) while(t), condition=more, body=body
  b = f32[2,3]{0,1} get-tuple-element(w), index=1
  yes = pred[] constant(true)
  c = f32[2,3]{0,1} conditional(yes, b, b), true_computation=g, false_computation=same
  ROOT r = (f32[2,3]{1,0}, f32[2,3]{0,1}) tuple(c, b)
}
";
    let numbers = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let found = outputs(text, vec![Array::of_f32(&[2, 3], &numbers)], false);
    assert_eq!(found[0], Array::of_f32(&[2, 3], &numbers.map(|x| 8.0 * x)));
    assert_eq!(found[1], Array::of_f32(&[2, 3], &numbers.map(|x| -8.0 * x)));
}

/// Numbers whose sums depend on their order.
fn numbers(dims: &[usize], seed: usize) -> Array {
    let len = dims.iter().product();
    let value = |i: usize| (((i + seed) * 7919 + seed * 104_729) % 100_003) as f32 / 1000.0 - 50.0;
    Array::of_f32(dims, &(0..len).map(value).collect::<Vec<_>>())
}

const OPERATIONS: &[(&str, [usize; 3], &str)] = &[
    ("f32[4,5,3]", [4, 5, 6], "dot(x, y), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={2}"),
    ("f32[5,3]", [4, 5, 6], "dot(x, y), lhs_contracting_dims={0,2}, rhs_contracting_dims={0,2}"),
    ("f32[5,3]", [4, 5, 6], "dot(x, y), lhs_contracting_dims={2,0}, rhs_contracting_dims={2,0}"),
    ("f32[5]", [4, 5, 6], "reduce(x, zero), dimensions={0,2}, to_apply=plus"),
    ("f32[4]", [4, 5, 6], "reduce(x, zero), dimensions={1,2}, to_apply=plus"),
    ("f32[]", [4, 5, 6], "reduce(x, zero), dimensions={0,1,2}, to_apply=plus"),
    ("f32[4,3,5]", [4, 5, 6], "reduce-window(x, zero), window={size=1x3x2}, to_apply=plus"),
    ("f32[4,3,3]", [4, 5, 6], "convolution(x, y), window={size=3}, dim_labels=b0f_0io->b0f"),
];

/// The operation with its operand `x` (and `y`) in a form: as it is in a layout, or read through a view in a fusion.
fn form(result: &str, op: &str, form: usize, layout: &str, y: &str) -> String {
    let plus = "plus {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n";
    let body = |x: &str| {
        let layout = if form < 6 { layout } else { "{2,1,0}" };
        let first = if form == 6 { "f32[6,4,5]{2,1,0}" } else { x };
        let steps = match form {
            // Turned, and turned back.
            6 => "  x = f32[4,5,6]{2,1,0} transpose(p), dimensions={1,2,0}\n".to_string(),
            // Backwards twice.
            7 => "  v = f32[4,5,6]{2,1,0} reverse(p), dimensions={0,2}\n  x = f32[4,5,6]{2,1,0} reverse(v), dimensions={0,2}\n".to_string(),
            // A part of a larger array.
            8 => "  v = f32[6,5,9]{2,1,0} pad(p, zero), padding=1_1x0_0x0_3\n  \
                  x = f32[4,5,6]{2,1,0} slice(v), slice={[1:5], [0:5], [0:6]}\n"
                .to_string(),
            _ => format!("  x = f32[4,5,6]{layout} copy(p)\n"),
        };
        format!("  p = {first} parameter(0)\n  y = {y} parameter(1)\n  zero = f32[] constant(0.125)\n{steps}  ROOT r = {result} {op}\n")
    };
    let x = format!("f32[4,5,6]{layout}");
    if form < 6 {
        return format!("HloModule m\n\n{plus}\nENTRY e {{\n{}}}\n", body(&x));
    }
    let x = if form == 6 { "f32[6,4,5]{2,1,0}" } else { "f32[4,5,6]{2,1,0}" };
    format!(
        "HloModule m\n\n{plus}\nfused {{\n{}}}\n\nENTRY e {{\n  p = {x} parameter(0)\n  q = {y} parameter(1)\n  \
         ROOT r = {result} fusion(p, q), kind=kLoop, calls=fused\n}}\n",
        body(x)
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_have_one_order_whatever_the_view(seed in 0usize..10_000) {
        let layouts = ["{2,1,0}", "{0,1,2}", "{1,2,0}", "{0,2,1}", "{2,0,1}", "{1,0,2}"];
        for (result, dims, op) in OPERATIONS {
            let x = numbers(dims, seed);
            let (y_dims, y) = match op.split_once('(').expect("an operation").0 {
                "convolution" => (vec![3, 6, 3], "f32[3,6,3]"),
                _ => (vec![4, 3, 6], "f32[4,3,6]"),
            };
            let other = numbers(&y_dims, seed + 1);
            let mut expected: Option<Vec<Array>> = None;
            for (number, layout) in layouts.iter().enumerate().chain([(6, &""), (7, &""), (8, &"")]) {
                let given = if number == 6 { turned(&x) } else { x.clone() };
                let found = outputs(&form(result, op, number, layout, y), vec![given, other.clone()], false);
                let expected = expected.get_or_insert_with(|| found.clone());
                prop_assert!(*expected == found, "{op} in form {number} {layout}");
            }
        }
    }
}

/// `f32[4,5,6]` with its last dimension first.
fn turned(x: &Array) -> Array {
    let mut out = Array::zeros(x.element, &[6, 4, 5]);
    for (i, index) in offc::interp::array::indices(&x.dims).enumerate() {
        out.set_element_bytes((index[2] * 4 + index[0]) * 5 + index[1], x.element_bytes(i));
    }
    out
}

#[test]
fn steps_rewritten_before_optimization_compute_the_same_bits() {
    let Some(folder) = corpus() else { return };
    let mut rewritten = 0;
    for name in ["gpt3_tiny_none", "gpt3_tiny_full", "gpt3_tiny_offload", "gpt3_tiny_unrolled_none"] {
        let original = module(&folder, &format!("{name}.pre.hlo"));
        let truth = module(&folder, name);
        let of = if name.contains("unrolled") { name } else { "gpt3_tiny_none" };
        let inputs = arrays(&folder, &format!("{of}.in.npz"));
        let expected = planned(&original, inputs.clone()).expect("the original runs").outputs;
        let need = offc::analysis::Analyses::new(&truth).memory().device_bytes();
        // At budgets; and, where hand-made checkpoints leave nothing to gain, with every row made again.
        let budgets = [95, 90, 85, 80, 75, 70].map(|percent| (percent, None));
        for (percent, pipeline) in budgets.into_iter().chain([(130, Some("remat-scan{keep=},dce"))]) {
            match before_optimization(&original, &truth, need * percent / 100, pipeline) {
                Ok(found) => {
                    let found = planned(&found, inputs.clone()).unwrap_or_else(|e| panic!("{name} at {percent} %: {e:?}"));
                    assert!(expected == found.outputs, "{name} at {percent} %: an output differs");
                    rewritten += 1;
                }
                // Unrolled layers have no scan: there is nothing that the pass knows.
                Err(Trouble::Infeasible(_) | Trouble::Input(_)) => {}
                Err(trouble) => panic!("{name} at {percent} %: {trouble:?}"),
            }
        }
    }
    println!("{rewritten} rewritten steps");
    assert!(rewritten >= 7, "only {rewritten} steps could be rewritten");
}

fn before_optimization(original: &Module, truth: &Module, memory: u64, pipeline: Option<&str>) -> Result<Module, Trouble> {
    let options = RewriteOptions {
        machine: offc::machine::preset("h100-sxm").expect("a preset"),
        memory: Bytes(memory),
        host_memory: None,
        host_state: None,
        truth: Some(truth.clone()),
        pipeline: pipeline.map(|p| p.parse().expect("a pipeline")),
        xla_memory: None,
    };
    rewrite(original, &options).map(|r| r.module)
}

#[test]
fn fast_contractions_of_bf16_are_near_the_exact_ones() {
    // Odd sizes, both operands in both layouts, a batch, results of both types.
    for (b, m, k, n) in [(1, 1, 1, 1), (1, 3, 33, 5), (2, 31, 64, 33), (1, 130, 129, 131), (3, 32, 32, 32), (1, 257, 300, 65), (1, 4, 0, 4)]
    {
        for (left, right, result) in
            [("{2,1,0}", "{2,1,0}", "bf16"), ("{1,2,0}", "{2,1,0}", "f32"), ("{2,1,0}", "{1,2,0}", "bf16"), ("{0,1,2}", "{1,0,2}", "f32")]
        {
            let text = format!(
                "HloModule m\n\nENTRY e {{\n  a = bf16[{b},{m},{k}]{left} parameter(0)\n  b = bf16[{b},{k},{n}]{right} parameter(1)\n  \
                 ROOT d = {result}[{b},{m},{n}]{{2,1,0}} dot(a, b), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}}, \
                 rhs_contracting_dims={{1}}\n}}\n"
            );
            let given = |dims: &[usize], seed: usize| {
                let wide = numbers(dims, seed);
                let values: Vec<f64> = (0..wide.len()).map(|i| wide.f64(i) / 50.0).collect();
                Array::of_f64(offc::ir::Primitive::BF16, dims, &values)
            };
            let inputs = vec![given(&[b, m, k], 3), given(&[b, k, n], 8)];
            let (exact, fast) = (outputs(&text, inputs.clone(), false), outputs(&text, inputs, true));
            // Products are at most 1; `f32` sums of `k` of them, then half a unit of the result's type.
            let bound = k as f64 * k as f64 * f64::from(f32::EPSILON) + if result == "bf16" { k as f64 / 128.0 } else { 0.0 };
            for i in 0..exact[0].len() {
                let distance = (exact[0].f64(i) - fast[0].f64(i)).abs();
                assert!(distance <= bound, "{b} x {m} x {k} x {n} {left} {right} {result} at {i}: {distance} beyond {bound}");
            }
        }
    }
}
