//! Random programs: what the rewriter makes of them, with copies to the host and recomputation at random budgets, computes the same bits in
//! the arenas that are planned for it.

use std::cell::RefCell;
use std::fmt::Write as _;

use offc::driver::{RewriteOptions, Trouble, rewrite};
use offc::interp::Array;
use offc::ir::{Module, Op, Primitive};
use offc::plan::Residence;
use offc::units::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

use crate::interp::planned;

/// A random step of a program: what it does, and which earlier values it reads, counted back.
type Draft = (u8, usize, usize);

/// What a step makes of values `a` and `b`, all of them `f32[R,C]`; `N` is the step's name. Several lines, the last one defines `N`.
const STEPS: &[&str] = &[
    "N = TT negate(a)",
    "N = TT multiply(a, b)",
    "N = TT add(a, b)",
    "N = TT subtract(b, a)",
    "N = TT tanh(a)",
    "N = TT sine(a)",
    "N = TT fusion(a, b), kind=kLoop, calls=gate",
    "N = TT fusion(a), kind=kLoop, calls=narrow",
    "N = TT fusion(a, bias), kind=kLoop, calls=shifted",
    "N = TT dot(a, weights), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "Nt = f32[C,R]{1,0} transpose(a), dimensions={1,0}\n  Nb = TT bitcast(Nt)\n  N = TT add(Nb, b)",
    "Nr = f32[C]{0} fusion(a), kind=kInput, calls=sums\n  N = TT fusion(b, Nr), kind=kLoop, calls=shifted",
    "Nu = f32[1,C]{1,0} slice(a), slice={[0:1], [0:C]}\n  Nc = TT copy(b)\n  N = TT dynamic-update-slice(Nc, Nu, row, zero)",
    "Nd = f32[1,C]{1,0} dynamic-slice(a, row, zero), dynamic_slice_sizes={1,C}\n  N = TT fusion(b, Nd), kind=kLoop, calls=rowed",
];

/// The computations that steps call.
const CALLED: &str = "
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

gate {
  a = TT parameter(0)
  b = TT parameter(1)
  l = TT logistic(a)
  ROOT r = TT multiply(l, b)
}

narrow {
  a = TT parameter(0)
  n = bf16[R,C]{1,0} convert(a)
  ROOT r = TT convert(n)
}

shifted {
  a = TT parameter(0)
  v = f32[C]{0} parameter(1)
  w = TT broadcast(v), dimensions={1}
  ROOT r = TT add(a, w)
}

rowed {
  a = TT parameter(0)
  v = f32[1,C]{1,0} parameter(1)
  f = f32[C]{0} bitcast(v)
  w = TT broadcast(f), dimensions={1}
  ROOT r = TT multiply(a, w)
}

sums {
  a = TT parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[C]{0} reduce(a, z), dimensions={0}, to_apply=plus
}
";

/// Loops as JAX scans layers: the first one puts a value of each iteration on a stack, the second one takes them off in the opposite order.
const LOOPS: &str = "
more {
  s = (s32[], TT, f32[5,R,C]{2,1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}

forward {
  s = (s32[], TT, f32[5,R,C]{2,1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = TT get-tuple-element(s), index=1
  stack = f32[5,R,C]{2,1,0} get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  row = f32[1,R,C]{2,1,0} bitcast(x)
  kept = f32[5,R,C]{2,1,0} dynamic-update-slice(stack, row, i, zero, zero)
  y = TT cosine(x)
  j = s32[] add(i, one)
  ROOT t = (s32[], TT, f32[5,R,C]{2,1,0}) tuple(j, y, kept)
}

still {
  s = (s32[], TT, f32[5,R,C]{2,1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}

backward {
  s = (s32[], TT, f32[5,R,C]{2,1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = TT get-tuple-element(s), index=1
  stack = f32[5,R,C]{2,1,0} get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  last = s32[] constant(4)
  k = s32[] subtract(last, i)
  row = f32[1,R,C]{2,1,0} dynamic-slice(stack, k, zero, zero), dynamic_slice_sizes={1,R,C}
  v = TT bitcast(row)
  y = TT multiply(x, v)
  j = s32[] add(i, one)
  ROOT t = (s32[], TT, f32[5,R,C]{2,1,0}) tuple(j, y, stack)
}
";

/// The loop forward from a value, and the one backward from another.
const LOOP_STEPS: [&str; 2] = [
    "fi = s32[] copy(zero)\n  fx = TT copy(a)\n  fz = f32[] constant(0)\n  fs = f32[5,R,C]{2,1,0} broadcast(fz), dimensions={}\n  \
     ft = (s32[], TT, f32[5,R,C]{2,1,0}) tuple(fi, fx, fs)\n  \
     fw = (s32[], TT, f32[5,R,C]{2,1,0}) while(ft), condition=more, body=forward\n  \
     N = TT get-tuple-element(fw), index=1\n  fk = f32[5,R,C]{2,1,0} get-tuple-element(fw), index=2",
    "bi = s32[] copy(zero)\n  bx = TT copy(a)\n  bt = (s32[], TT, f32[5,R,C]{2,1,0}) tuple(bi, bx, fk)\n  \
     bw = (s32[], TT, f32[5,R,C]{2,1,0}) while(bt), condition=still, body=backward\n  N = TT get-tuple-element(bw), index=1",
];

/// A step of training in small: values are made one after another, then read again in the opposite order.
fn program(drafts: &[Draft], rows: usize, columns: usize, looped: bool) -> String {
    let mut lines = String::new();
    let mut values = vec!["x".to_string()];
    for (i, &(step, a, b)) in drafts.iter().enumerate() {
        let back = |n: usize| values[values.len() - 1 - n % values.len()].as_str();
        let name = format!("v{i}");
        let line = STEPS[usize::from(step) % STEPS.len()];
        writeln!(lines, "  {}", filled(line, &name, back(a), back(b))).expect("a string takes all");
        values.push(name);
    }
    let mut gradient = values[values.len() - 1].clone();
    if looped {
        for (i, line) in LOOP_STEPS.into_iter().enumerate() {
            let name = format!("loop{i}");
            writeln!(lines, "  {}", filled(line, &name, &gradient, "")).expect("a string takes all");
            gradient = format!("after{i}");
            writeln!(lines, "  {gradient} = TT negate({name})").expect("a string takes all");
        }
    }
    for (i, &(step, _, _)) in drafts.iter().enumerate().rev() {
        let name = format!("g{i}");
        let line = STEPS[[1, 6, 2, 9, 11][usize::from(step / 16) % 5]];
        writeln!(lines, "  {}", filled(line, &name, &gradient, &values[i])).expect("a string takes all");
        gradient = name;
    }
    let called = own_computations(&mut lines) + if looped { LOOPS } else { "" };
    let text = format!(
        "HloModule random, is_scheduled=true\n{called}\nENTRY e {{\n  x = TT parameter(0)\n  weights = f32[C,C]{{1,0}} parameter(1)\n  \
         bias = f32[C]{{0}} parameter(2)\n  row = s32[] parameter(3)\n  zero = s32[] constant(0)\n{lines}  ROOT out = (TT, TT) tuple({gradient}, {})\n}}\n",
        values[values.len() / 2 + 1]
    );
    let text = text.replace("TT", "f32[R,C]{1,0}");
    text.replace("[R,C]", &format!("[{rows},{columns}]"))
        .replace("[C,R]", &format!("[{columns},{rows}]"))
        .replace("[C,C]", &format!("[{columns},{columns}]"))
        .replace("[5,R,C]", &format!("[5,{rows},{columns}]"))
        .replace("[1,R,C]", &format!("[1,{rows},{columns}]"))
        .replace("{1,R,C}", &format!("{{1,{rows},{columns}}}"))
        .replace("[1,C]", &format!("[1,{columns}]"))
        .replace("[C]", &format!("[{columns}]"))
        .replace("[0:C]", &format!("[0:{columns}]"))
        .replace("{1,C}", &format!("{{1,{columns}}}"))
}

/// Gives every fusion a computation of its own: their texts, and their names in the lines.
fn own_computations(lines: &mut String) -> String {
    let (plus, fused) = CALLED.trim().split_once("\n\n").expect("the sum stands first");
    let mut out = format!("{plus}\n");
    let mut renamed = String::new();
    for (i, line) in lines.lines().enumerate() {
        match line.split_once("calls=") {
            Some((head, name)) => {
                let body = fused.split("\n\n").find_map(|c| c.strip_prefix(name)).expect("a computation of that name");
                write!(out, "\n{name}{i}{body}\n").expect("a string takes all");
                writeln!(renamed, "{head}calls={name}{i}").expect("a string takes all");
            }
            None => writeln!(renamed, "{line}").expect("a string takes all"),
        }
    }
    *lines = renamed;
    out
}

/// A line with its names: `N` stands at the head of words, `a` and `b` as whole operands.
fn filled(line: &str, name: &str, a: &str, b: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in line.chars().chain(['\n']) {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
            word.push(c);
            continue;
        }
        match word.as_str() {
            "a" => out += a,
            "b" => out += b,
            w if w.starts_with('N') && w.len() <= 2 => out += &format!("{name}{}", &w[1..]),
            w => out += w,
        }
        word.clear();
        out.push(c);
    }
    out.trim_end().to_string()
}

fn inputs(module: &Module) -> Vec<Array> {
    let parameters = module.entry().parameters.iter().map(|&p| module.shapes.array(module.instr(p).shape).expect("arrays"));
    let make = |(n, shape): (usize, &offc::ir::ArrayShape)| {
        let dims: Vec<usize> = shape.dims.iter().map(|d| usize::try_from(d.size).expect("sizes are small")).collect();
        let len: usize = dims.iter().product();
        if shape.element.known() == Some(Primitive::S32) {
            return Array::of_i64(Primitive::S32, &dims, &[2]);
        }
        // Numbers that are no powers of two, so that sums in another order differ.
        let values: Vec<f32> = (0..len).map(|i| ((i * 7919 + n * 31 + 17) % 1009) as f32 / 1009.0 - 0.47).collect();
        Array::of_f32(&dims, &values)
    };
    parameters.enumerate().map(make).collect()
}

/// How many programs were changed and compared, and what was done to them.
#[derive(Debug, Default)]
struct Tally {
    compared: usize,
    offloaded: usize,
    recomputed: usize,
    both: usize,
    looped: usize,
    /// Programs whose peak no plan lowers; others are drawn for them.
    fixed: usize,
}

/// What a program is asked to fit in: so much of the way from the lowest peak that a plan reaches to what it takes as it is.
#[derive(Clone, Copy, Debug)]
struct Ask {
    percent: u64,
    /// Host memory that it may take, in percent of the same.
    host: Option<u64>,
    pipeline: Option<&'static str>,
}

fn fitted(module: &Module, need: u64, ask: Ask) -> Result<Option<(offc::driver::Rewritten, u64)>, Trouble> {
    let at = |memory: u64| {
        let options = RewriteOptions {
            machine: offc::machine::preset("h100-sxm").expect("a preset"),
            memory: Bytes(memory),
            host_memory: ask.host.map(|percent| Bytes(need * percent / 100)),
            host_state: None,
            truth: None,
            pipeline: ask.pipeline.map(|p| p.parse().expect("a pipeline")),
            xla_memory: None,
        };
        match rewrite(module, &options) {
            Ok(rewritten) => Ok(Ok(rewritten)),
            Err(Trouble::Infeasible(why)) => Ok(Err(why.floor.get())),
            Err(trouble) => Err(trouble),
        }
    };
    // What is reached depends on what is asked, so the floor is a start, and each refusal tells another one.
    let mut floor = match at(need / 4)? {
        Ok(rewritten) => return Ok(Some((rewritten, need / 4))),
        Err(floor) => floor,
    };
    for _ in 0..6 {
        let memory = floor + need.saturating_sub(floor) * ask.percent / 100;
        if memory >= need {
            return Ok(None);
        }
        match at(memory)? {
            Ok(rewritten) => return Ok(Some((rewritten, memory))),
            Err(other) => floor = other.max(memory + 1),
        }
    }
    Ok(None)
}

fn holds(text: &str, looped: bool, ask: Ask, tally: &RefCell<Tally>) -> Result<(), TestCaseError> {
    let module = offc::text::parse(text.as_bytes()).map_err(|e| TestCaseError::fail(format!("{e:?}\n{text}")))?.module;
    let need = offc::analysis::Analyses::new(&module).memory().device_bytes();
    let Some((rewritten, memory)) = fitted(&module, need, ask).map_err(|trouble| TestCaseError::fail(format!("{trouble:?}\n{text}")))?
    else {
        tally.borrow_mut().fixed += 1;
        return Err(TestCaseError::reject("no plan lowers its peak"));
    };
    let inputs = inputs(&module);
    let expected = planned(&module, inputs.clone()).map_err(|e| TestCaseError::fail(format!("the original: {e:?}\n{text}")))?;
    let found = planned(&rewritten.module, inputs).map_err(|e| TestCaseError::fail(format!("the rewritten one: {e:?}\n{text}")))?;
    prop_assert!(expected.outputs == found.outputs, "an output differs with {} bytes\n{}", memory, text);
    // A budget does not count constants; here all of them are scalars.
    let constants = rewritten.module.live().filter(|(_, id)| matches!(rewritten.module.instr(*id).op, Op::Constant(_))).count() as u64;
    prop_assert!(found.high_water.device as u64 <= memory + 4 * constants, "it takes more than {} bytes\n{}", memory, text);
    let offloaded = found.high_water.host > 0;
    let recomputed = rewritten.plan.decisions.iter().any(|d| matches!(d.residence, Residence::Recomputed { .. }));
    let mut tally = tally.borrow_mut();
    tally.compared += 1;
    tally.offloaded += usize::from(offloaded);
    tally.recomputed += usize::from(recomputed);
    tally.both += usize::from(offloaded && recomputed);
    tally.looped += usize::from(looped);
    Ok(())
}

#[test]
fn rewritten_random_programs_compute_the_same_bits() {
    const CASES: u32 = 1000;
    let config = ProptestConfig { cases: CASES, max_global_rejects: 4 * CASES, failure_persistence: None, ..ProptestConfig::default() };
    let draft = (any::<u8>(), 0usize..6, 0usize..6);
    let shapes = prop::sample::select(vec![(4usize, 16usize), (8, 8), (8, 24), (3, 33), (16, 16)]);
    let pipelines = prop::sample::select(vec![None, None, Some("fit{recompute=false},dce"), Some("fit{offload=false},dce")]);
    let asks = (0u64..90, prop::option::weighted(0.5, 5u64..40), pipelines);
    let asks = asks.prop_map(|(percent, host, pipeline)| Ask { percent, host, pipeline });
    let cases = (prop::collection::vec(draft, 4..18), shapes, asks, prop::bool::weighted(0.25));
    let tally = RefCell::new(Tally::default());
    let result =
        TestRunner::new_with_rng(config, proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha))
            .run(&cases, |(drafts, (rows, columns), ask, looped)| holds(&program(&drafts, rows, columns, looped), looped, ask, &tally));
    let tally = tally.into_inner();
    println!("{tally:?}");
    if let Err(failure) = result {
        panic!("{failure}");
    }
    let enough = tally.compared >= CASES as usize && tally.offloaded >= 200 && tally.recomputed >= 300 && tally.both >= 20;
    assert!(enough, "too little was rewritten: {tally:?}");
}
