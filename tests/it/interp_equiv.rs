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
            let options = RewriteOptions { machine: machine.clone(), memory, host_memory: None, pipeline: None, xla_memory: None };
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
