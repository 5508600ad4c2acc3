//! The interpreter as a judge: it accepts what the rewriter makes, and catches seeded faults.

use offc::driver::{RewriteOptions, Trouble, rewrite};
use offc::interp::{ArenaKind, Array, Placement, RunOptions, run};
use offc::ir::{InstrId, Module, Op};
use offc::units::Bytes;

use crate::interp::{arena, arrays, corpus, module, planned};

/// Inputs of a tiny step.
fn inputs(name: &str) -> Option<(Module, Vec<Array>)> {
    let folder = corpus()?;
    let of = if name.contains("unrolled") { name } else { "gpt3_tiny_none" };
    Some((module(&folder, name), arrays(&folder, &format!("{of}.in.npz"))))
}

#[test]
fn rewritten_steps_compute_the_same_bits() {
    let mut rewritten = 0;
    for name in ["gpt3_tiny_none", "gpt3_tiny_full", "gpt3_tiny_offload", "gpt3_tiny_unrolled_none"] {
        let Some((module, inputs)) = inputs(name) else { return };
        let expected = planned(&module, inputs.clone()).expect("the original runs").outputs;
        let machine = offc::machine::preset("h100-sxm").expect("a preset");
        let need = offc::analysis::Analyses::new(&module).memory().device_bytes();
        for percent in [99, 97, 95, 92, 88, 84, 80, 75] {
            let memory = Bytes(need * percent / 100);
            let options = RewriteOptions {
                machine: machine.clone(),
                memory,
                host_memory: None,
                host_state: None,
                truth: None,
                pipeline: None,
                xla_memory: None,
            };
            match rewrite(&module, &options) {
                Ok(result) => {
                    let found = planned(&result.module, inputs.clone()).unwrap_or_else(|e| panic!("{name} at {percent} %: {e:?}"));
                    assert!(expected == found.outputs, "{name} at {percent} %: an output differs");
                    rewritten += 1;
                }
                Err(Trouble::Infeasible(_)) => break,
                Err(trouble) => panic!("{name} at {percent} %: {trouble:?}"),
            }
        }
    }
    assert!(rewritten >= 4, "only {rewritten} steps could be rewritten");
}

/// What the run of a tiny step says with a changed plan.
fn with_plan(name: &str, change: impl FnOnce(&Module, &mut Placement)) -> Option<String> {
    let (module, inputs) = inputs(name)?;
    let module = offc::analysis::settle::settle(&module).unwrap_or(module);
    let mut placement = arena::placement(&module);
    change(&module, &mut placement);
    let errors =
        run(&module, &[inputs], RunOptions { placement: Some(&placement), ..RunOptions::default() }).expect_err("the fault is found");
    Some(errors[0].to_string())
}

/// The last instruction of the entry computation that reads another one's array in temporary memory, and that array's buffer.
fn read_late(module: &Module, placement: &Placement) -> (InstrId, u32) {
    let entry = module.entry();
    let found = entry.order.iter().rev().find_map(|&id| {
        if !matches!(module.instr(id).op, Op::Fusion(_)) {
            return None;
        }
        let fused = |o: &&InstrId| matches!(module.instr(**o).op, Op::Fusion(_)) && placement.buffer_of.contains_key(&(**o, 0));
        module.instr(id).operands.iter().find(fused).map(|o| (id, placement.buffer_of[&(*o, 0)]))
    });
    found.expect("some fusion reads another one's result")
}

#[test]
fn a_live_range_that_ends_too_early_is_caught() {
    let message = with_plan("gpt3_tiny_unrolled_none", |module, placement| {
        let (reader, buffer) = read_late(module, placement);
        let at = module.entry().order.iter().position(|&id| id == reader).expect("it stands there");
        placement.dying.entry(module.entry().order[at - 1]).or_default().push(buffer);
    });
    let Some(message) = message else { return };
    assert!(message.contains("its live range has ended"), "{message}");
}

#[test]
fn an_overlap_is_caught() {
    let message = with_plan("gpt3_tiny_full", |_, placement| {
        // The largest buffer of the device moves by a few bytes.
        let largest = placement.buffers.iter_mut().filter(|b| b.arena == ArenaKind::Device).max_by_key(|b| b.bytes);
        let buffer = largest.expect("there is a buffer");
        buffer.offset = if buffer.offset >= 64 { buffer.offset - 64 } else { buffer.offset + 64 };
    });
    let Some(message) = message else { return };
    assert!(message.contains("has been written over it") || message.contains("is planned at byte"), "{message}");
}

#[test]
fn an_arena_that_is_too_small_is_caught() {
    let message = with_plan("gpt3_tiny_full", |_, placement| placement.device -= 4);
    let Some(message) = message else { return };
    assert!(message.contains("the plan puts it at byte"), "{message}");
}

#[test]
fn a_missing_wait_is_caught() {
    // The stack that the step writes on the host is read while it is still being written.
    let text = "HloModule m, is_scheduled=true

ENTRY e {
  p = f32[1024]{0} parameter(0)
  s = (f32[1024]{0:S(5)}, f32[1024]{0}, u32[]) copy-start(p)
  g = f32[1024]{0:S(5)} get-tuple-element(s), index=0
  n = f32[1024]{0} negate(p)
  d = f32[1024]{0:S(5)} copy-done(s)
  c = f32[1024]{0} copy(WHAT)
  ROOT r = f32[1024]{0} add(c, n)
}
";
    let input = vec![Array::of_f32(&[1024], &[1.0; 1024])];
    let good = offc::text::parse(text.replace("WHAT", "d").as_bytes()).expect("it parses").module;
    assert!(planned(&good, input.clone()).expect("it runs").outputs[0].data.iter().all(|&b| b == 0));
    let bad = text.replace("  d = f32[1024]{0:S(5)} copy-done(s)\n", "").replace("WHAT", "g");
    let bad = offc::text::parse(bad.as_bytes()).expect("it parses").module;
    let message = planned(&bad, input).expect_err("the fault is found")[0].to_string();
    assert!(message.contains("a wait is missing"), "{message}");
}

/// What the rewriter makes of a tiny step at a budget, in percent of what it needs.
fn rewritten(name: &str, percent: u64, pipeline: Option<&str>) -> Option<(Module, Module, Vec<Array>)> {
    let (module, inputs) = inputs(name)?;
    let machine = offc::machine::preset("h100-sxm").expect("a preset");
    let need = offc::analysis::Analyses::new(&module).memory().device_bytes();
    let pipeline = pipeline.map(|p| p.parse().expect("a pipeline"));
    let options = RewriteOptions {
        machine,
        memory: Bytes(need * percent / 100),
        host_memory: None,
        host_state: None,
        truth: None,
        pipeline,
        xla_memory: None,
    };
    let result = rewrite(&module, &options).unwrap_or_else(|e| panic!("{name} at {percent} %: {e:?}")).module;
    Some((module, result, inputs))
}

#[test]
fn a_wait_dropped_from_a_rewritten_step_is_caught() {
    let Some((original, good, inputs)) = rewritten("gpt3_tiny_unrolled_none", 92, Some("fit{recompute=false},dce")) else { return };
    let dones: Vec<InstrId> = good.live().map(|(_, id)| id).filter(|&id| matches!(good.instr(id).op, Op::CopyDone)).collect();
    let old = |id: &InstrId| original.live().any(|(_, o)| original.instr(o).name == good.instr(*id).name);
    let mut dropped = 0;
    for &done in dones.iter().filter(|id| !old(id)) {
        // The value is named while it is still being copied.
        let mut bad = good.clone();
        bad.instructions[done].op = Op::GetTupleElement { index: 0 };
        let errors = planned(&bad, inputs.clone()).expect_err("the fault is found");
        let message = errors[0].to_string();
        assert!(message.contains("a wait is missing") || message.contains("is under way"), "{message}");
        dropped += 1;
        if dropped == 6 {
            break;
        }
    }
    assert!(dropped > 0, "the rewritten step has no copy of ours");
}

#[test]
fn a_recomputation_from_another_value_is_told() {
    let Some((original, good, inputs)) = rewritten("gpt3_tiny_unrolled_none", 92, Some("fit{offload=false},dce")) else { return };
    let names: std::collections::HashSet<&str> = original.live().map(|(_, id)| &*original.instr(id).name).collect();
    let expected = planned(&original, inputs.clone()).expect("the original runs").outputs;
    assert!(planned(&good, inputs.clone()).expect("the rewritten one runs").outputs == expected);
    // An instruction that is computed again reads an older value of the same shape.
    let order = &good.entry().order;
    let mut faults = 0;
    for (at, &id) in order.iter().enumerate().filter(|(_, id)| !names.contains(&*good.instr(**id).name)) {
        let Some((operand, older)) = good.instr(id).operands.iter().find_map(|&o| {
            let same = |older: &&InstrId| good.instr(**older).shape == good.instr(o).shape && **older != o;
            order[..at].iter().find(same).map(|&older| (o, older))
        }) else {
            continue;
        };
        let mut bad = good.clone();
        bad.instructions[id].operands.iter_mut().filter(|o| **o == operand).for_each(|o| *o = older);
        match planned(&bad, inputs.clone()) {
            Ok(found) => assert!(found.outputs != expected, "`{}` read `{}`", good.instr(id).name, good.instr(older).name),
            Err(errors) => assert!(!errors.is_empty()),
        }
        faults += 1;
        if faults == 4 {
            break;
        }
    }
    assert!(faults > 0, "the rewritten step computes nothing again from a value like another one");
}

#[test]
fn a_recomputation_from_what_was_overwritten_is_caught() {
    // `again` reads `a` after an update has been written over it in place: the plan must keep it elsewhere, and here does not.
    let text = "HloModule m, is_scheduled=true

ENTRY e {
  p = f32[4,8]{1,0} parameter(0)
  u = f32[1,8]{1,0} parameter(1)
  z = s32[] constant(0)
  a = f32[4,8]{1,0} negate(p)
  first = f32[4,8]{1,0} exponential(a)
  b = f32[4,8]{1,0} copy(a)
  d = f32[4,8]{1,0} dynamic-update-slice(b, u, z, z)
  again = f32[4,8]{1,0} exponential(a)
  s = f32[4,8]{1,0} add(d, first)
  ROOT r = f32[4,8]{1,0} add(s, again)
}
";
    let module = offc::text::parse(text.as_bytes()).expect("it parses").module;
    let inputs = vec![Array::of_f32(&[4, 8], &[0.5; 32]), Array::of_f32(&[1, 8], &[2.0; 8])];
    assert!(planned(&module, inputs.clone()).is_ok());
    let module = offc::analysis::settle::settle(&module).unwrap_or(module);
    let mut placement = arena::placement(&module);
    let named = |name: &str| module.live().find(|(_, id)| &*module.instr(*id).name == name).expect("it is there").1;
    // The copy shares the memory of what it copies.
    let shared = placement.buffer_of[&(named("a"), 0)];
    for name in ["b", "d"] {
        placement.buffer_of.insert((named(name), 0), shared);
    }
    placement.dying.clear();
    let errors =
        run(&module, &[inputs], RunOptions { placement: Some(&placement), ..RunOptions::default() }).expect_err("the fault is found");
    let message = errors[0].to_string();
    assert!(message.contains("`again`") && message.contains("has been written over it"), "{message}");
}

#[test]
fn a_wrapped_slice_runs_beside_the_program() {
    let text = "HloModule m, is_scheduled=true

taken {
  s = f32[4,1024]{1,0:S(5)} parameter(0)
  two = s32[] constant(2)
  zero = s32[] constant(0)
  ROOT r = f32[1,1024]{1,0} dynamic-slice(s, two, zero), dynamic_slice_sizes={1,1024}
}

ENTRY e {
  p = f32[4,1024]{1,0} parameter(0)
  h = (f32[4,1024]{1,0:S(5)}, f32[4,1024]{1,0}, u32[]) copy-start(p)
  d = f32[4,1024]{1,0:S(5)} copy-done(h)
  s = ((f32[4,1024]{1,0:S(5)}), f32[1,1024]{1,0}, u32[]) async-start(d), calls=taken
  n = f32[4,1024]{1,0} negate(p)
  t = f32[1,1024]{1,0} async-done(s)
  v = f32[1024]{0} bitcast(t)
  b = f32[4,1024]{1,0} broadcast(v), dimensions={1}
  ROOT r = f32[4,1024]{1,0} add(n, b)
}
";
    let values: Vec<f32> = (0..4096).map(|i| i as f32).collect();
    let module = offc::text::parse(text.as_bytes()).expect("it parses").module;
    let outputs = planned(&module, vec![Array::of_f32(&[4, 1024], &values)]).expect("it runs").outputs;
    assert!((0..4096).all(|i| outputs[0].f64(i) == (2048 + i % 1024) as f64 - i as f64));
}

#[test]
fn copies_beside_the_program_give_the_same_every_time() {
    let Some((_, module, inputs)) = rewritten("gpt3_tiny_unrolled_none", 92, Some("fit{recompute=false},dce")) else { return };
    let runs: Vec<Vec<Array>> = (0..4).map(|_| planned(&module, inputs.clone()).expect("it runs").outputs).collect();
    assert!(runs.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_wrong_slice_is_told_by_its_instruction() {
    let Some((module, inputs)) = inputs("gpt3_tiny_unrolled_none") else { return };
    let mut wrong = module.clone();
    let slice = wrong.live().map(|(_, id)| id).find(|&id| match &wrong.instr(id).op {
        Op::Slice { dims } => dims.iter().any(|d| d.start > 0),
        _ => false,
    });
    let slice = slice.expect("there is a slice");
    if let Op::Slice { dims } = &mut wrong.instructions[slice].op {
        let moved = dims.iter_mut().find(|d| d.start > 0).expect("it starts behind 0");
        (moved.start, moved.limit) = (moved.start - 1, moved.limit - 1);
    }
    let trace = |module: &Module| {
        let outcome = run(module, std::slice::from_ref(&inputs), RunOptions { trace: true, ..RunOptions::default() }).expect("it runs");
        outcome.into_iter().next().expect("one partition")
    };
    let (expected, found) = (trace(&module), trace(&wrong));
    assert!(expected.outputs != found.outputs);
    let (expected, found) = (expected.trace.expect("asked for"), found.trace.expect("asked for"));
    let (name, _) = expected.parts_from(&found).expect("they part");
    let caller = module.live().find(|(_, id)| *module.instr(*id).name == *name).expect("it has that name").1;
    let inside = |id: InstrId| module.instr(id).op.called().iter().any(|&c| module.comp(c).order.contains(&slice));
    assert!(caller == slice || inside(caller), "`{name}` does not hold the slice");
}
