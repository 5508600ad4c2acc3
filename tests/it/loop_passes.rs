//! What the passes for loops leave computes the same bits, on small programs and on the tiny steps of the corpus.

use std::path::Path;

use offc::driver::{RewriteOptions, Rewritten, Trouble, rewrite};
use offc::interp::Array;
use offc::ir::Module;
use offc::pass::HostState;
use offc::units::Bytes;

use crate::filetests::files;
use crate::interp::{arrays, corpus, module, planned};

fn rewritten(module: &Module, memory: u64, passes: &str) -> Option<Module> {
    with_state(module, memory, passes, None).map(|r| r.module)
}

fn with_state(module: &Module, memory: u64, passes: &str, host_state: Option<HostState>) -> Option<Rewritten> {
    let machine = offc::machine::preset("h100-sxm").expect("a preset");
    let pipeline = Some(passes.parse().expect("a pipeline"));
    match rewrite(
        module,
        &RewriteOptions { machine, memory: Bytes(memory), host_memory: None, host_state, truth: None, xla_memory: None, pipeline },
    ) {
        Ok(result) => Some(result),
        Err(Trouble::Infeasible(_)) => None,
        Err(trouble) => panic!("{}: {passes}: {trouble:?}", module.name),
    }
}

/// Numbers of no particular kind for the entry's parameters.
fn inputs(module: &Module) -> Vec<Array> {
    let (parameters, _) = module.entry_shapes();
    let shape = |id| module.shapes.array(id).expect("the small programs take arrays");
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1u32 << 24) - 0.5
    };
    let array = |id| {
        let dims: Vec<usize> = shape(id).dims.iter().map(|d| usize::try_from(d.size).expect("a size")).collect();
        let values: Vec<f64> = (0..dims.iter().product()).map(|_| next()).collect();
        Array::of_f64(shape(id).element.known().expect("a known type"), &dims, &values)
    };
    parameters.into_iter().map(array).collect()
}

#[test]
fn small_programs_compute_the_same_bits() {
    let mut count = 0;
    for path in files(Path::new("tests/filetests/rewrite"), "hlo") {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.starts_with("stack_") && !name.starts_with("sink_") {
            continue;
        }
        let text = std::fs::read(&path).expect("a readable file");
        let module = offc::text::parse(&text).expect("it parses").module;
        let expected = planned(&module, inputs(&module)).expect("the original runs").outputs;
        for passes in [
            "recompute-stack",
            "offload-stack",
            "offload-stack,pipeline-rows",
            "recompute-stack{offload=true}",
            "sink-update",
            "loops",
            "fuse-again",
            "reschedule",
            "slice-invariant",
            "drop-carried",
        ] {
            let Some(result) = rewritten(&module, 1, passes) else { continue };
            let found = planned(&result, inputs(&module)).unwrap_or_else(|e| panic!("{name}: {passes}: {e:?}")).outputs;
            assert!(expected == found, "{name}: {passes}: an output differs");
            count += 1;
        }
    }
    assert!(count >= 100, "only {count} programs were compared");
}

#[test]
fn tiny_steps_compute_the_same_bits_after_every_pass_at_the_lowest_budget() {
    let Some(folder) = corpus() else { return };
    for name in ["gpt3_tiny_none", "gpt3_tiny_full"] {
        let original = module(&folder, name);
        let inputs = || arrays(&folder, "gpt3_tiny_none.in.npz");
        let expected = planned(&original, inputs()).expect("the original runs").outputs;
        for passes in ["recompute-stack", "offload-stack", "offload-stack,pipeline-rows", "sink-update", "fuse-again", "loops"] {
            let Some(result) = rewritten(&original, 1, passes) else { continue };
            let found = planned(&result, inputs()).unwrap_or_else(|e| panic!("{name}: {passes}: {e:?}")).outputs;
            assert!(expected == found, "{name}: {passes}: an output differs");
        }
    }
}

/// Rows of states cross the link in the iterations beside theirs: the first and the last, one alone, odd numbers.
#[test]
fn states_on_the_host_compute_the_same_bits() {
    let text = std::fs::read_to_string("tests/filetests/rewrite/sink_update.hlo").expect("a readable file");
    let text = text.replace(",8]", ",1024]").replace("[8]", "[1024]");
    for trips in [1, 2, 3, 4, 7] {
        let text = text.replace("[4,1024]", &format!("[{trips},1024]")).replace("constant(3)", &format!("constant({})", trips - 1));
        let text = text.replace("constant(4)", &format!("constant({trips})")).replace("\"n\":\"4\"", &format!("\"n\":\"{trips}\""));
        let module = offc::text::parse(text.as_bytes()).expect("it parses").module;
        let expected = planned(&module, inputs(&module)).expect("the original runs").outputs;
        for passes in ["loops", "loops,pipeline-rows", "loops,pipeline-rows,dce"] {
            let result = with_state(&module, 1, passes, Some(HostState::Auto)).expect("no pass refuses");
            let found = planned(&result.module, inputs(&module)).unwrap_or_else(|e| panic!("{trips} trips: {passes}: {e:?}")).outputs;
            assert!(expected == found, "{trips} trips: {passes}: an output differs");
            let crosses = result.log.entries.iter().any(|e| e.pass == "pipeline-rows" && e.changed);
            // One row saves nothing on the host.
            assert_eq!(crosses, passes != "loops" && trips > 1, "{trips} trips: {passes}");
        }
    }
}
