//! CUDA C without a GPU: the kernels of the tiny programs run on the CPU, through a shim (`tests/cuda/shim.h`), and must give what the
//! interpreter gives. Skipped where there is no C++ compiler.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use offc::analysis::settle::settle;
use offc::cuda::program::{aliases, align, arrange, logical};
use offc::cuda::types::Ty;
use offc::cuda::{Code, Memory, Source, compile, program};
use offc::interp::{Array, Placement, RunOptions, run};
use offc::ir::{Computation, InstrId, Instruction, Module, Op, Primitive};

use crate::interp::{arena::placement, corpus, module};

/// A C++ compiler, if there is one.
pub fn compiler() -> Option<&'static str> {
    let found = ["g++", "clang++"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        eprintln!("skipped: no C++ compiler is here");
    }
    found
}

/// A folder of its own for a test.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    folder
}

/// The program that runs kernels: a file of `tests/cuda` behind them.
pub fn build(source: &Source, folder: &Path, compiler: &str, main: &str, optimize: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda");
    let mut text = format!("#include \"{}\"\n{}\nstatic const shim::Entry ENTRIES[] = {{\n", here.join("shim.h").display(), source.text());
    for kernel in source.kernels.values() {
        writeln!(text, "  {{\"{0}\", shim::entry({0}), {1}}},", kernel.name, kernel.sync).expect("a string takes all");
    }
    text += "};\n";
    for part in ["cases.h", main] {
        text += &std::fs::read_to_string(here.join(part)).expect("it is here");
    }
    let (file, program) = (folder.join("kernels.cpp"), folder.join("kernels"));
    std::fs::write(&file, text).expect("it can be written");
    let flags = ["-std=c++20", optimize, "-ffp-contract=off", "-fwrapv", "-Wno-unknown-pragmas"];
    let out = Command::new(compiler).args(flags).arg(&file).arg("-o").arg(&program).output().expect("it was found");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    program
}

/// One instruction to be run both ways.
struct Case {
    id: InstrId,
    code: Code,
    inputs: Vec<Array>,
    aliases: Vec<(usize, usize, bool)>,
}

/// SplitMix64 (Steele, Lea and Flood 2014).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn made(ty: &Ty, state: &mut u64) -> Array {
    let dims: Vec<usize> = ty.dims.iter().map(|&d| usize::try_from(d).expect("sizes are not negative")).collect();
    let mut out = Array::zeros(ty.element, &dims);
    for i in 0..out.len() {
        let unit = (random(state) >> 11) as f64 / (1u64 << 53) as f64;
        if ty.element.is_float() {
            out.set_f64(i, 0.1 + 1.5 * unit);
        } else if ty.element == Primitive::Pred {
            out.set_i64(i, i64::from(unit < 0.5));
        } else {
            out.set_i64(i, (unit * 8.0) as i64);
        }
    }
    out
}

/// The arrays of an instruction's operands, and of its result.
fn types(module: &Module, id: InstrId) -> (Vec<Ty>, Vec<Ty>) {
    let of = |id: InstrId| {
        let leaves = module.shapes.leaves(module.instr(id).shape);
        leaves.into_iter().map(|l| Ty::of(module, l).expect("the corpus has dense arrays")).collect::<Vec<_>>()
    };
    (module.instr(id).operands.iter().flat_map(|&o| of(o)).collect(), of(id))
}

/// A module that does nothing but one instruction.
fn alone(module: &Module, id: InstrId) -> Module {
    let mut out = module.clone();
    let mut instr = module.instr(id).clone();
    let mut comp = Computation::new("alone");
    for (number, &operand) in module.instr(id).operands.iter().enumerate() {
        let op = Op::Parameter { number: i64::try_from(number).expect("few operands") };
        let parameter = out.instructions.push(Instruction::new(format!("operand{number}"), module.instr(operand).shape, op, []));
        comp.parameters.push(parameter);
        comp.order.push(parameter);
        instr.operands[number] = parameter;
    }
    instr.control_predecessors.clear();
    comp.root = out.instructions.push(instr);
    comp.order.push(comp.root);
    let entry = out.computations.push(comp);
    out.listing.push(entry);
    out.entry = Some(entry);
    out.is_scheduled = false;
    out
}

/// Where the arrays of an instruction lie.
fn places(placement: &Placement, id: InstrId, types: &[Ty]) -> Vec<program::Place> {
    let place = |(leaf, ty): (u32, &Ty)| {
        let planned = placement.buffer_of.get(&(id, leaf)).map(|&b| placement.buffers[b as usize]);
        let (arena, offset) = planned.map_or((offc::interp::ArenaKind::Device, 0), |p| (p.arena, p.offset));
        program::Place { arena, offset, bytes: planned.map_or(0, |_| ty.bytes()) }
    };
    (0..).zip(types).map(place).collect()
}

/// Instructions that have kernels, those with the same kernels once: with memory of their own, and as a plan places them.
fn cases(module: &Module, source: &mut Source) -> Vec<Case> {
    let placement = align(&placement(module));
    let mut out: BTreeMap<String, Case> = BTreeMap::new();
    let mut state = 7;
    for comp in module.callees_first() {
        // What is inside a fusion has no place of its own.
        let order = &module.comp(comp).order;
        if !order.iter().any(|&id| placement.buffer_of.contains_key(&(id, 0))) {
            continue;
        }
        for &id in order {
            let instr = module.instr(id);
            let plain =
                matches!(instr.op, Op::Fusion(_) | Op::CustomCall(_) | Op::Dot(_) | Op::Reduce { .. } | Op::Copy | Op::Broadcast { .. })
                    || matches!(instr.op, Op::Unary(_) | Op::Binary(_) | Op::Compare { .. } | Op::Select | Op::Convert | Op::Iota { .. })
                    || matches!(instr.op, Op::DynamicSlice { .. } | Op::DynamicUpdateSlice | Op::Transpose { .. } | Op::Slice { .. });
            if !plain {
                continue;
            }
            let (from, to) = types(module, id);
            let mut operands = Vec::new();
            for &operand in &instr.operands {
                let own: Vec<Ty> =
                    module.shapes.leaves(module.instr(operand).shape).into_iter().map(|l| Ty::of(module, l).expect("dense")).collect();
                operands.extend(places(&placement, operand, &own));
            }
            let planned = aliases(&operands, &places(&placement, id, &to));
            for aliases in [Vec::new(), planned] {
                let Ok(code) = compile(module, id, &aliases) else { continue };
                source.add(code.kernels.clone());
                // Only what begins where an operand does can be tried with memories that are whole arrays.
                if code.launches.is_empty() || aliases.iter().any(|a| !a.2) {
                    continue;
                }
                let inputs = from.iter().map(|ty| made(ty, &mut state)).collect();
                out.entry(format!("{:?} {aliases:?}", code.launches)).or_insert(Case { id, code, inputs, aliases });
            }
        }
    }
    out.into_values().collect()
}

/// The cases as the runner reads them.
fn script(module: &Module, cases: &[Case]) -> Vec<u8> {
    let mut out = Vec::new();
    let number = |out: &mut Vec<u8>, n: usize| out.extend((n as u64).to_le_bytes());
    number(&mut out, cases.len());
    for case in cases {
        let (from, to) = types(module, case.id);
        let memories = Memories::of(case, from.len(), to.len());
        number(&mut out, memories.count);
        for (ty, array) in from.iter().zip(&case.inputs) {
            let mut bytes = arrange(array, ty);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            number(&mut out, bytes.len());
            out.extend(bytes);
        }
        for size in
            to.iter().enumerate().filter(|(o, _)| memories.out[*o] >= from.len()).map(|(_, ty)| ty.bytes()).chain(case.code.scratch.clone())
        {
            let size = size.next_multiple_of(8);
            number(&mut out, size);
            out.resize(out.len() + size, 0xcb);
        }
        number(&mut out, case.code.launches.len());
        for launch in &case.code.launches {
            number(&mut out, launch.kernel.len());
            out.extend(launch.kernel.bytes());
            number(&mut out, launch.grid as usize);
            number(&mut out, launch.block as usize);
            number(&mut out, launch.args.len());
            for &memory in &launch.args {
                number(&mut out, memories.number(memory));
            }
        }
    }
    out
}

/// Numbers of memories: operands, results that do not lie where one does, scratch.
struct Memories {
    out: Vec<usize>,
    first_scratch: usize,
    count: usize,
}

impl Memories {
    fn of(case: &Case, from: usize, to: usize) -> Self {
        let mut next = from;
        let out = (0..to)
            .map(|o| {
                case.aliases.iter().find(|a| a.1 == o).map_or_else(
                    || {
                        next += 1;
                        next - 1
                    },
                    |a| a.0,
                )
            })
            .collect();
        Self { out, first_scratch: next, count: next + case.code.scratch.len() }
    }
    fn number(&self, memory: Memory) -> usize {
        match memory {
            Memory::Param(i) => i,
            Memory::Out(i) => self.out[i],
            Memory::Scratch(i) => self.first_scratch + i,
        }
    }
}

/// How far apart two arrays may be: not at all, or a few units of the type's last place of the largest number.
fn compare(expected: &Array, found: &Array, inexact: bool) -> Result<(), String> {
    if expected.data == found.data {
        return Ok(());
    }
    if !expected.element.is_float() || !inexact {
        let at = (0..expected.len()).find(|&i| expected.element_bytes(i) != found.element_bytes(i)).expect("they differ");
        return Err(format!("element {at}: expected {}, found {}", expected.f64(at), found.f64(at)));
    }
    let unit = match expected.element {
        Primitive::F64 => 1e-13,
        Primitive::F32 => 4e-6,
        Primitive::F16 => 2e-3,
        // A sum of hundreds that is rounded to eight bits after each addition, in another order.
        _ => 4e-2,
    };
    let scale = (0..expected.len()).map(|i| expected.f64(i).abs()).filter(|v| v.is_finite()).fold(1e-30, f64::max);
    for i in 0..expected.len() {
        let (a, b) = (expected.f64(i), found.f64(i));
        let same = a == b || (a.is_nan() && b.is_nan());
        if !same && ((a - b).abs() / scale).partial_cmp(&unit) != Some(std::cmp::Ordering::Less) {
            return Err(format!("element {i}: expected {a}, found {b}, largest {scale}"));
        }
    }
    Ok(())
}

fn check(name: &str) {
    let (Some(corpus), Some(compiler)) = (corpus(), compiler()) else { return };
    let module = module(&corpus, name);
    let module = settle(&module).unwrap_or(module);
    let mut source = Source::default();
    let cases = cases(&module, &mut source);
    let folder = folder(&format!("cuda-{name}"));
    let program = build(&source, &folder, compiler, "run_kernels.cpp", "-O1");
    std::fs::write(folder.join("in"), script(&module, &cases)).expect("it can be written");
    let mut complaints = String::new();
    for seed in ["0", "1"] {
        let out = Command::new(&program).arg(folder.join("in")).arg(folder.join("out")).arg(seed).output().expect("it was built");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let bytes = std::fs::read(folder.join("out")).expect("it was written");
        let mut at = 0;
        for case in &cases {
            let (from, to) = types(&module, case.id);
            let memories = Memories::of(case, from.len(), to.len());
            let mut ends: Vec<usize> = from.iter().map(Ty::bytes).collect();
            ends.extend(to.iter().enumerate().filter(|(o, _)| memories.out[*o] >= from.len()).map(|(_, ty)| ty.bytes()));
            ends.extend(&case.code.scratch);
            let starts: Vec<usize> = ends
                .iter()
                .map(|size| {
                    at += size.next_multiple_of(8);
                    at - size.next_multiple_of(8)
                })
                .collect();
            if seed == "0" || !case.code.launches.is_empty() {
                let reference = run(&alone(&module, case.id), std::slice::from_ref(&case.inputs), RunOptions::default());
                let reference = reference.unwrap_or_else(|e| panic!("{}: {e:?}", module.instr(case.id).name)).swap_remove(0).outputs;
                let inexact = case.code.launches.iter().any(|l| source.kernels[&l.kernel].inexact);
                for (o, ty) in to.iter().enumerate() {
                    let written = case.code.launches.iter().any(|l| l.args.contains(&Memory::Out(o)));
                    let found = logical(&bytes[starts[memories.out[o]]..][..ty.bytes()], ty);
                    if let Err(why) = compare(&reference[o], &found, inexact)
                        && written
                    {
                        let kernels: Vec<&str> = case.code.launches.iter().map(|l| &*l.kernel).collect();
                        let instr = &module.instr(case.id).name;
                        writeln!(complaints, "{instr} out{o} {:?} seed {seed} {kernels:?}: {why}", case.aliases)
                            .expect("a string takes all");
                    }
                }
            }
        }
    }
    assert!(complaints.is_empty(), "{} cases\n{complaints}", cases.len());
    eprintln!("{name}: {} cases, {} kernels", cases.len(), source.kernels.len());
}

#[test]
fn kernels_of_a_step_agree_with_the_interpreter() {
    check("gpt3_tiny_none");
}

#[test]
fn kernels_of_an_offloaded_step_agree_with_the_interpreter() {
    check("gpt3_tiny_offload");
}

#[test]
fn kernels_of_an_unrolled_step_agree_with_the_interpreter() {
    check("gpt3_tiny_unrolled_none");
}

#[test]
fn a_machine_without_a_gpu_is_told_so() {
    let Err(why) = offc::cuda::backend::available() else { return };
    assert!(why.contains("GPU"), "{why}");
    let path = folder("cuda-none").join("m.hlo");
    std::fs::write(&path, "HloModule m, is_scheduled=true\n\nENTRY e {\n  ROOT p = f32[8]{0} parameter(0)\n}\n")
        .expect("it can be written");
    let out = Command::new(env!("CARGO_BIN_EXE_offc")).args(["run", "--backend", "cuda"]).arg(&path).output().expect("the binary starts");
    assert_eq!(out.status.code(), Some(2));
    let message = String::from_utf8_lossy(&out.stderr);
    assert!(message.contains(&why), "{message}");
}
