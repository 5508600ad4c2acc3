//! Analyses on a synthetic training step: every activation lives from the forward to the backward pass, so that half the program is alive at
//! the peak; one in a hundred goes to the host and comes back; parameters are donated. `cargo bench --bench analysis`.
//!
//! Wanted of 100,000 instructions, on one core: buffers, liveness and peak in 2 s, simulation in 1 s, all in 1 GiB; ten times the instructions in little
//! more than ten times the time. The most memory that the process ever held is told at the end (Linux).

use divan::Bencher;
use offc::analysis::Analyses;
use offc::cost::Prices;
use offc::ir::{AliasEntry, ArrayShape, Binary, Computation, DEVICE, HOST, InstrId, Instruction, Module, Op, Primitive, Shape, ShapeId};
use offc::machine::preset;
use offc::sim::{bytes_over_time, simulate};

fn main() {
    divan::main();
    // Of all benches that ran: `cargo bench --bench analysis -- simulation` tells that of one.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(most) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        println!("most resident memory: {}", most.trim());
    }
}

/// A scheduled step of about `n` instructions: `n / 2` forward, as many backward, one parameter and one update every hundred.
fn step(n: usize) -> Module {
    let mut module = Module { name: "step".into(), is_scheduled: true, ..Module::default() };
    // Sizes differ, so that the heap has something to decide.
    let shapes: Vec<ShapeId> = (1..=50).map(|k| module.shapes.intern(Shape::Array(ArrayShape::new(Primitive::F32, &[k * 1000])))).collect();
    let shape = |i: usize| shapes[(i * 7919) % shapes.len()];
    let mut comp = Computation::new("main");
    let define = |module: &mut Module, comp: &mut Computation, name: String, shape: ShapeId, op: Op, operands: &[InstrId]| {
        let id = module.define(Instruction::new(name, shape, op, operands.iter().copied()));
        comp.order.push(id);
        id
    };
    let parameters: Vec<InstrId> = (0..n / 100)
        .map(|i| {
            define(
                &mut module,
                &mut comp,
                format!("p{i}"),
                shape(i),
                Op::Parameter { number: i64::try_from(i).expect("few parameters") },
                &[],
            )
        })
        .collect();
    let mut activations = vec![parameters[0]];
    // A copy from one memory space to the other.
    let context = module.shapes.intern(Shape::Array(ArrayShape::new(Primitive::U32, &[])));
    let copy = |module: &mut Module, comp: &mut Computation, name: String, of: InstrId, space: i64| {
        let from = module.instr(of).shape;
        let to = module.shapes.with_memory_space(from, space);
        let tuple = module.shapes.intern(Shape::Tuple([to, from, context].into_iter().collect()));
        let start = define(module, comp, format!("{name}s"), tuple, Op::CopyStart { cross_program_prefetch_index: None }, &[of]);
        define(module, comp, format!("{name}d"), to, Op::CopyDone, &[start])
    };
    let mut on_host = vec![None; n / 2];
    for i in 1..n / 2 {
        let operands = [activations[i - 1], parameters[i % parameters.len()]];
        activations.push(define(&mut module, &mut comp, format!("x{i}"), shape(i), Op::Binary(Binary::Add), &operands));
        if i % 100 == 50 && i < n / 4 {
            on_host[i] = Some(copy(&mut module, &mut comp, format!("out{i}"), activations[i], HOST));
        }
    }
    let mut gradient = activations[n / 2 - 1];
    let mut results = Vec::new();
    for i in (1..n / 2).rev() {
        if let Some(hosted) = on_host[i] {
            activations[i] = copy(&mut module, &mut comp, format!("in{i}"), hosted, DEVICE);
        }
        gradient = define(&mut module, &mut comp, format!("g{i}"), shape(i + 1), Op::Binary(Binary::Multiply), &[gradient, activations[i]]);
        if i % 50 == 0 && i / 50 < parameters.len() {
            let k = i / 50;
            let update = [parameters[k], gradient];
            results.push((k, define(&mut module, &mut comp, format!("u{k}"), shape(k), Op::Binary(Binary::Subtract), &update)));
        }
    }
    results.sort_unstable();
    // The last gradient is a result of its own, so that nothing is made for nobody.
    let elements: Vec<InstrId> = results.iter().map(|r| r.1).chain([gradient]).collect();
    let tuple = module.shapes.intern(Shape::Tuple(elements.iter().map(|&e| module.instr(e).shape).collect()));
    for (i, (k, _)) in results.iter().enumerate() {
        let number = |n: usize| i64::try_from(n).expect("few values");
        let alias = AliasEntry { output: vec![number(i)], parameter: number(*k), index: Vec::new(), must: false };
        module.header.input_output_alias.push(alias);
    }
    let root = define(&mut module, &mut comp, "result".into(), tuple, Op::Tuple, &elements);
    comp.root = root;
    comp.parameters = parameters;
    let entry = module.computations.push(comp);
    module.listing.push(entry);
    module.entry = Some(entry);
    module
}

#[divan::bench(args = [10_000, 100_000], sample_count = 3)]
fn buffers(bencher: Bencher, n: usize) {
    let module = step(n);
    bencher.bench_local(|| Analyses::new(&module).buffers().len());
}

#[divan::bench(args = [10_000, 100_000], sample_count = 3)]
fn buffers_liveness_and_peak(bencher: Bencher, n: usize) {
    let module = step(n);
    bencher.bench_local(|| {
        let analyses = Analyses::new(&module);
        (analyses.memory().device_bytes(), analyses.curve(DEVICE).peak())
    });
}

#[divan::bench(args = [10_000, 100_000], sample_count = 3)]
fn simulation(bencher: Bencher, n: usize) {
    let module = step(n);
    let machine = preset("h100-sxm").expect("there is such a preset");
    bencher.bench_local(|| simulate(&module, &machine, &Prices::new(&module, &machine)).step);
}

/// With the counters of a trace, for which buffers are assigned.
#[divan::bench(args = [10_000, 100_000], sample_count = 3)]
fn simulation_with_memory_over_time(bencher: Bencher, n: usize) {
    let module = step(n);
    let machine = preset("h100-sxm").expect("there is such a preset");
    bencher.bench_local(|| {
        let timeline = simulate(&module, &machine, &Prices::new(&module, &machine));
        bytes_over_time(&timeline, &Analyses::new(&module), DEVICE).len()
    });
}
