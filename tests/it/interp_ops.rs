//! Operations that XLA:CPU gives no answers for, and what is refused before anything runs.

use offc::interp::{Array, RunOptions, run};
use offc::ir::Primitive;

fn outputs(text: &str, inputs: Vec<Array>) -> Result<Vec<Array>, String> {
    let module = offc::text::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e:?}\n{text}")).module;
    match run(&module, &[inputs], RunOptions::default()) {
        Ok(mut outcome) => Ok(outcome.swap_remove(0).outputs),
        Err(errors) => Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

/// A module of one operation on its parameters.
fn single(parameters: &[&str], result: &str, op: &str) -> String {
    let lines: String = parameters.iter().enumerate().map(|(i, shape)| format!("  p{i} = {shape} parameter({i})\n")).collect();
    format!("HloModule m\n\nENTRY e {{\n{lines}  ROOT r = {result} {op}\n}}\n")
}

fn f32s(dims: &[usize], seed: usize) -> Array {
    let len = dims.iter().product();
    Array::of_f32(dims, &(0..len).map(|i: usize| ((i * 7 + seed) % 13) as f32 - 6.0).collect::<Vec<_>>())
}

#[test]
fn a_scaled_dot_scales_its_blocks() {
    let narrow = |dims: &[usize], seed| {
        let wide = f32s(dims, seed);
        Array::of_f64(Primitive::F8E4M3FN, dims, &(0..wide.len()).map(|i| wide.f64(i)).collect::<Vec<_>>())
    };
    let (x, y) = (narrow(&[3, 8], 1), narrow(&[2, 8], 4));
    let scales = |dims: &[usize], powers: &[i32]| {
        Array::of_f64(Primitive::F8E8M0FNU, dims, &powers.iter().map(|&p| 2f64.powi(p)).collect::<Vec<_>>())
    };
    let (sx, sy) = (scales(&[3, 2], &[0, 1, -2, 3, 2, -1]), scales(&[2, 1], &[1, -3]));
    let parameters = ["f8e4m3fn[3,8]", "f8e4m3fn[2,8]", "f8e8m0fnu[3,2]", "f8e8m0fnu[2,1]"];
    let text = single(&parameters, "f32[3,2]", "scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={1}");
    let found = outputs(&text, vec![x.clone(), y.clone(), sx.clone(), sy.clone()]).expect("it runs");
    for i in 0..3 {
        for j in 0..2 {
            let term = |k: usize| x.f64(i * 8 + k) * sx.f64(i * 2 + k / 4) * y.f64(j * 8 + k) * sy.f64(j);
            assert_eq!(found[0].f64(i * 2 + j), (0..8).map(term).sum::<f64>(), "{i} {j}");
        }
    }
}

#[test]
fn a_ragged_dot_runs_in_every_mode() {
    let groups = Array::of_i64(Primitive::S64, &[2], &[1, 2]);
    let parameters = ["f32[4,3]", "f32[2,3,2]", "s64[2]"];
    let op = "ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}";
    let (x, w) = (f32s(&[4, 3], 0), f32s(&[2, 3, 2], 5));
    let found = outputs(&single(&parameters, "f32[4,2]", op), vec![x.clone(), w.clone(), groups.clone()]).expect("it runs");
    for row in 0..4 {
        for column in 0..2 {
            let group = [Some(0), Some(1), Some(1), None][row];
            let sum = group.map_or(0.0, |g| (0..3).map(|k| x.f64(row * 3 + k) * w.f64((g * 3 + k) * 2 + column)).sum::<f64>());
            assert_eq!(found[0].f64(row * 2 + column), sum, "{row} {column}");
        }
    }
    // A batch dimension that is cut: an ordinary dot.
    let op = "ragged-dot(p0, p1, p2), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={0}";
    let (x, w) = (f32s(&[3, 2, 3], 0), f32s(&[3, 3, 2], 5));
    let ragged = single(&["f32[3,2,3]", "f32[3,3,2]", "s64[2]"], "f32[3,2,2]", op);
    let dot = single(
        &["f32[3,2,3]", "f32[3,3,2]"],
        "f32[3,2,2]",
        "dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    );
    let found = outputs(&ragged, vec![x.clone(), w.clone(), groups]).expect("it runs");
    assert_eq!(found, outputs(&dot, vec![x, w]).expect("it runs"));
}

#[test]
fn random_numbers_are_the_same_every_time() {
    let text = single(&["f32[]", "f32[]"], "f32[3,5]", "rng(p0, p1), distribution=rng_uniform");
    let limits = vec![Array::of_f32(&[], &[2.0]), Array::of_f32(&[], &[4.0])];
    let found = outputs(&text, limits.clone()).expect("it runs");
    assert!((0..15).all(|i| (2.0..4.0).contains(&found[0].f64(i))), "{:?}", found[0]);
    assert_eq!(found, outputs(&text, limits).expect("it runs"));
    let text = single(&["s32[]", "s32[]"], "s32[64]", "rng(p0, p1), distribution=rng_uniform");
    let found = outputs(&text, vec![Array::of_i64(Primitive::S32, &[], &[-2]), Array::of_i64(Primitive::S32, &[], &[2])]).expect("it runs");
    assert!((-2..2).all(|n| (0..64).any(|i| found[0].i64(i) == n)) && (0..64).all(|i| (-2..2).contains(&found[0].i64(i))));
}

#[test]
fn a_dynamic_reshape_to_a_static_shape_is_a_reshape() {
    let text = single(&["f32[2,6]", "s32[]", "s32[]"], "f32[3,4]", "dynamic-reshape(p0, p1, p2)");
    let x = f32s(&[2, 6], 3);
    let size = |n| Array::of_i64(Primitive::S32, &[], &[n]);
    let found = outputs(&text, vec![x.clone(), size(3), size(4)]).expect("it runs");
    assert_eq!((&found[0].dims, &found[0].data), (&vec![3, 4], &x.data));
}

#[test]
fn what_cannot_be_run_is_named_before_anything_runs() {
    let refused = |text: &str, word: &str| {
        let why = outputs(text, Vec::new()).expect_err(text);
        assert!(why.contains(word), "{why}");
    };
    refused(&single(&["f32[4]"], "f32[4]", "custom-call(p0), custom_call_target=\"my_kernel\""), "custom call `my_kernel`");
    refused(&single(&["f32[4]"], "f32[4]", "frobnicate(p0)"), "`frobnicate`");
    refused(&single(&["f32[4]"], "f32[<=4]", "copy(p0)"), "dynamic");
    refused("HloModule m\n\nENTRY e {\n  t = token[] after-all()\n  ROOT i = ((f32[3]), token[]) infeed(t)\n}\n", "infeed");
    // All at once.
    let two = "HloModule m\n\nENTRY e {\n  p = f32[4] parameter(0)\n  a = f32[4] custom-call(p), custom_call_target=\"one\"\n  \
               ROOT b = f32[4] custom-call(a), custom_call_target=\"other\"\n}\n";
    let why = outputs(two, Vec::new()).expect_err("two unknown calls");
    assert!(why.contains("`one`") && why.contains("`other`"), "{why}");
}

#[test]
fn arrays_without_elements_run() {
    for (result, op, fill) in [
        ("f32[0,3]", "slice(p0), slice={[2:2], [0:3]}", None),
        ("f32[4,3]", "pad(p1, zero), padding=2_2x0_0", Some(0.5)),
        ("f32[3]", "reduce(p1, zero), dimensions={0}, to_apply=plus", Some(0.5)),
        ("f32[0]", "reduce(p1, zero), dimensions={1}, to_apply=plus", None),
        ("f32[2,2]", "dot(p2, p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}", Some(0.0)),
        ("f32[0,3]", "sort(p1), dimensions={1}, to_apply=less", None),
        ("f32[2,3]", "concatenate(p1, p0), dimensions={0}", Some(1.0)),
        ("f32[0,2]", "broadcast(zero), dimensions={}", None),
        ("f32[0,3]", "dynamic-slice(p0, one, one), dynamic_slice_sizes={0,3}", None),
        ("f32[0]", "reshape(p1)", None),
    ] {
        let text = format!(
            "HloModule m\n\nplus {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}}\n\nless {{\n  \
             a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=LT\n}}\n\nENTRY e {{\n  \
             p0 = f32[2,3] parameter(0)\n  p1 = f32[0,3] parameter(1)\n  p2 = f32[2,0] parameter(2)\n  zero = f32[] constant(0.5)\n  \
             one = s32[] constant(1)\n  ROOT r = {result} {op}\n}}\n"
        );
        let inputs = vec![Array::of_f32(&[2, 3], &[1.0; 6]), Array::of_f32(&[0, 3], &[]), Array::of_f32(&[2, 0], &[])];
        let found = outputs(&text, inputs).unwrap_or_else(|e| panic!("{op}: {e}"));
        if let Some(value) = fill {
            assert!(!found[0].is_empty() && (0..found[0].len()).all(|i| found[0].f64(i) == value), "{op}: {:?}", found[0]);
        } else {
            assert!(found[0].is_empty(), "{op}");
        }
    }
}

#[test]
fn nested_tuples_branches_and_reductions_of_several_values_run() {
    let text = "HloModule m

argmax {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  v = f32[] select(g, a, b)
  k = s32[] select(g, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k)
}

down {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}

left {
  p = ((f32[4], s32[]), f32[]) parameter(0)
  q = (f32[4], s32[]) get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(q), index=0
  ROOT n = f32[4] negate(x)
}

right {
  p = ((f32[4], s32[]), f32[]) parameter(0)
  y = f32[] get-tuple-element(p), index=1
  ROOT n = f32[4] broadcast(y), dimensions={}
}

ENTRY e {
  x = f32[4] parameter(0)
  n = s32[] parameter(1)
  i = s32[4] iota(), iota_dimension=0
  low = f32[] constant(-inf)
  none = s32[] constant(-1)
  m = (f32[], s32[]) reduce(x, i, low, none), dimensions={0}, to_apply=argmax
  s = (f32[4], s32[4]) sort(x, i), dimensions={0}, is_stable=true, to_apply=down
  t = (f32[4], s32[]) tuple(x, n)
  f = f32[] constant(9)
  u = ((f32[4], s32[]), f32[]) tuple(t, f)
  b = f32[4] conditional(n, u, u), branch_computations={left, right}
  ROOT r = ((f32[], s32[]), (f32[4], s32[4]), f32[4]) tuple(m, s, b)
}
";
    let x = Array::of_f32(&[4], &[1.0, 7.0, 3.0, 7.0]);
    for (n, expected) in [(0, [-1.0f32, -7.0, -3.0, -7.0]), (1, [9.0; 4]), (-5, [9.0; 4])] {
        let found = outputs(text, vec![x.clone(), Array::of_i64(Primitive::S32, &[], &[n])]).expect("it runs");
        assert_eq!((found[0].f64(0), found[1].i64(0)), (7.0, 1));
        assert_eq!(found[2], Array::of_f32(&[4], &[7.0, 7.0, 3.0, 1.0]));
        assert_eq!((0..4).map(|i| found[3].i64(i)).collect::<Vec<_>>(), [1, 3, 2, 0]);
        assert_eq!(found[4], Array::of_f32(&[4], &expected), "branch {n}");
    }
}

#[test]
fn small_integers_and_small_floats_run() {
    for (element, text) in
        [("s4", "-8, 7, 3, -1"), ("u4", "15, 0, 7, 8"), ("f8e5m2", "1.5, -0, inf, 2"), ("f8e4m3b11fnuz", "1.5, 0.25, -3, 2")]
    {
        let module = format!(
            "HloModule m\n\nENTRY e {{\n  c = {element}[4] constant({{{text}}})\n  w = f32[4] convert(c)\n  n = {element}[4] convert(w)\n  \
             ROOT r = f32[4] convert(n)\n}}\n"
        );
        let found = outputs(&module, Vec::new()).unwrap_or_else(|e| panic!("{element}: {e}"));
        let expected: Vec<f64> = text.split(", ").map(|x| x.parse().expect("a number")).collect();
        assert_eq!((0..4).map(|i| found[0].f64(i)).collect::<Vec<_>>(), expected, "{element}");
    }
}
