//! Every operation of the interpreter's fixtures as CUDA C, on the CPU through the shim: whole programs, in two layouts, against the interpreter.
//! What has no kernel is printed with the reason (`--nocapture`). Skipped where there is no C++ compiler.

#![expect(clippy::unwrap_used, reason = "fixtures are sound, or the test fails")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use offc::cuda::program::{Address, Place, Step, arrange, logical};
use offc::cuda::{Program, Source};
use offc::interp::{ArenaKind, Array, RunOptions};
use offc::ir::Module;

use crate::cuda::{build, compiler, folder};
use crate::ops::{Rule, cases, deviation, turned};

/// One program to be run both ways.
struct One {
    name: String,
    rule: Rule,
    program: Program,
    inputs: Vec<Array>,
    expected: Vec<Array>,
}

fn number(out: &mut Vec<u8>, n: usize) {
    out.extend((n as u64).to_le_bytes());
}

fn place(out: &mut Vec<u8>, place: Place) {
    number(out, usize::from(place.arena == ArenaKind::Host));
    number(out, place.offset);
}

fn steps(out: &mut Vec<u8>, list: &[Step]) {
    let mut count = 0;
    let mut body = Vec::new();
    for step in list {
        match step {
            Step::Kernels { stream, calls, .. } => {
                for call in calls {
                    count += 1;
                    number(&mut body, 0);
                    number(&mut body, call.kernel.len());
                    body.extend(call.kernel.bytes());
                    number(&mut body, call.grid as usize);
                    number(&mut body, call.block as usize);
                    number(&mut body, call.args.len());
                    for &arg in &call.args {
                        match arg {
                            Address::Arena(arena, offset) => place(&mut body, Place { arena, offset, bytes: 0 }),
                            Address::Scratch(offset) => {
                                number(&mut body, 2 + *stream as usize);
                                number(&mut body, offset);
                            }
                        }
                    }
                }
            }
            Step::Copy { from, to, .. } => {
                count += 1;
                number(&mut body, 1);
                place(&mut body, *from);
                place(&mut body, *to);
                number(&mut body, from.bytes);
            }
            Step::While { condition, go, body: inner, .. } => {
                count += 1;
                number(&mut body, 2);
                steps(&mut body, condition);
                place(&mut body, *go);
                steps(&mut body, inner);
            }
            Step::Conditional { choice, branches, .. } => {
                count += 1;
                number(&mut body, 3);
                place(&mut body, *choice);
                number(&mut body, choice.bytes);
                number(&mut body, branches.len());
                branches.iter().for_each(|branch| steps(&mut body, branch));
            }
            // One stream needs no order, and nothing dies.
            Step::Record { .. } | Step::Wait { .. } | Step::Written { .. } | Step::Ended { .. } => {}
        }
    }
    number(out, count);
    out.extend(body);
}

fn script(all: &[One]) -> Vec<u8> {
    let mut out = Vec::new();
    number(&mut out, all.len());
    for one in all {
        let p = &one.program;
        [p.device, p.host].into_iter().chain(p.scratch).for_each(|size| number(&mut out, size));
        number(&mut out, p.constants.len() + one.inputs.len());
        let given = p.parameters.iter().zip(&one.inputs).map(|((at, ty), array)| (*at, arrange(array, ty)));
        for (at, bytes) in p.constants.iter().cloned().chain(given) {
            place(&mut out, at);
            number(&mut out, bytes.len());
            out.extend(bytes);
        }
        steps(&mut out, &p.steps);
        number(&mut out, p.results.len());
        for (at, ty) in &p.results {
            place(&mut out, *at);
            number(&mut out, ty.bytes());
        }
    }
    out
}

/// Whether an array is what is expected: to the bit (any NaN is one) where the kernels are exact, else as near as XLA's answer is to be.
fn same(rule: Rule, inexact: bool, expected: &Array, found: &Array) -> Result<(), String> {
    let scale =
        (0..expected.len()).map(|i| expected.complex(i).0.hypot(expected.complex(i).1)).filter(|x| x.is_finite()).fold(1e-30, f64::max);
    for i in 0..expected.len() {
        let bound = match rule {
            _ if !inexact => 0.0,
            Rule::Exact => 2.0,
            // Two mathematical libraries, each so far from the truth.
            Rule::Ulps(n) => 2.0 * n,
            Rule::Close(n) => 2.0 * n,
        };
        let distance = deviation(rule, scale, found, expected, i);
        let nan = |a: &Array| a.element.is_float() && a.f64(i).is_nan();
        // Functions may give zero for a subnormal number.
        let tiny = |a: &Array| a.element.is_float() && a.f64(i).abs() < f64::from(f32::MIN_POSITIVE);
        if distance > bound && !(nan(expected) && nan(found)) && !(inexact && tiny(expected) && tiny(found)) {
            return Err(format!("element {i}: {:?} for {:?}, {distance:.3} away", found.complex(i), expected.complex(i)));
        }
    }
    Ok(())
}

fn family(name: &str) {
    let Some(compiler) = compiler() else { return };
    let mut refused = BTreeMap::<String, Vec<String>>::new();
    let mut source = Source::default();
    let mut all = Vec::new();
    for case in cases(name) {
        if case.partitions > 1 {
            refused.entry("needs several partitions; one GPU runs one".to_string()).or_default().push(case.name);
            continue;
        }
        let run = |module: &Module| offc::interp::run(module, std::slice::from_ref(&case.inputs), RunOptions::default());
        let expected = run(&case.module).unwrap().swap_remove(0).outputs;
        let modules = [(case.name.clone(), case.module.clone()), (format!("{} turned", case.name), turned(&case.module))];
        for (name, module) in modules {
            match Program::new(&module, None) {
                Ok(program) => {
                    source.add(program.source.kernels.values().cloned());
                    all.push(One { name, rule: case.rule, program, inputs: case.inputs.clone(), expected: expected.clone() });
                }
                Err(errors) => refused.entry(errors[0].message.clone()).or_default().push(name),
            }
        }
    }
    let mut complaints = String::new();
    if !all.is_empty() {
        let folder = folder(&format!("cuda-ops-{name}"));
        let program = build(&source, &folder, compiler, "run_program.cpp", "-O0");
        std::fs::write(folder.join("in"), script(&all)).unwrap();
        let out = Command::new(&program).arg(folder.join("in")).arg(folder.join("out")).output().unwrap();
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
        let bytes = std::fs::read(folder.join("out")).unwrap();
        let mut at = 0;
        for one in &all {
            let inexact = one.program.source.kernels.values().any(|k| k.inexact);
            for (k, ((_, ty), expected)) in one.program.results.iter().zip(&one.expected).enumerate() {
                let found = logical(&bytes[at..at + ty.bytes()], ty);
                at += ty.bytes();
                if let Err(why) = same(one.rule, inexact, expected, &found) {
                    writeln!(complaints, "{} out{k}: {why}", one.name).unwrap();
                }
            }
        }
    }
    let count: usize = refused.values().map(Vec::len).sum();
    println!("{name}: {} programs run, {} kernels, {count} programs refused", all.len(), source.kernels.len());
    for (why, names) in &refused {
        println!("  refused {}: {why} (first: {})", names.len(), names[0]);
    }
    assert!(complaints.is_empty(), "{name}:\n{complaints}");
    assert!(all.is_empty() == matches!(name, "collectives" | "scans"), "{name}: {refused:?}");
}

macro_rules! families {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { family(stringify!($name)); })* };
}

families! {
    unary_real, unary_other, binary, compare, convert, convolution, cudnn, windows, sorting, indexing, random, transforms, matrices, norms,
    collectives, scans, movement, dots, reductions, control
}
