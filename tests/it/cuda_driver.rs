//! The whole CUDA backend against a stand-in for the driver (`tests/cuda/fake_driver.cpp`): missing waits, memory, measured times, matrix
//! products, where the host arena lies. Skipped where there is no C++ compiler.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::cuda::{compiler, folder};

/// The folder of the stand-in's libraries.
fn driver() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let compiler = compiler()?;
        let folder = folder("cuda-fake");
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda");
        let library = folder.join("libcuda.so.1");
        let out = Command::new(compiler)
            .args(["-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"])
            .arg(format!("-DSHIM=\"{}\"", here.join("shim.h").display()))
            .arg(here.join("fake_driver.cpp"))
            .arg("-o")
            .arg(&library)
            .arg("-ldl")
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        for name in ["libcuda.so", "libnvrtc.so", "libcublas.so"] {
            let link = folder.join(name);
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&library, link).unwrap();
        }
        Some(folder)
    });
    built.as_deref()
}

fn offload() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/gpt3_tiny_offload.pb")
}

fn offc(backend: &str, module: &Path, args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offc"));
    command.arg("run").arg(module).args(["--seed", "1", "--backend", backend]).args(args);
    if let Some(driver) = driver() {
        command.env("LD_LIBRARY_PATH", driver).env("OFFC_FAKE_DIR", driver);
    }
    command.envs(environment.iter().copied()).output().unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A line of what was said that begins so.
fn line(text: &str, begin: &str) -> String {
    text.lines().find(|l| l.starts_with(begin)).unwrap_or_else(|| panic!("no `{begin}` in {text}")).to_string()
}

/// Each wait is left out once in the record of one run: it is found by a pair of accesses that lose their order, or the program has the same
/// result in every legal order without it, because each pair that conflicts is ordered by something else. Then two are left out for real.
#[test]
fn every_wait_that_is_left_out_is_found_or_harmless() {
    if driver().is_none() {
        return;
    }
    let work = folder("cuda-waits");
    let file = |name: &str| work.join(name).display().to_string();
    let (report, first, second) = (file("races"), file("first.npz"), file("second.npz"));
    let out = offc("cuda", &offload(), &["--outputs", &first], &[("OFFC_FAKE_RACES", &report), ("OFFC_FAKE_SEED", "3")]);
    assert!(out.status.success(), "{}", said(&out));
    let text = std::fs::read_to_string(&report).unwrap();
    assert!(line(&text, "work").ends_with("races 0"), "{text}");
    let verdicts: Vec<&str> = text.lines().filter(|l| l.starts_with("wait")).collect();
    let is = |l: &&&str, what: &str| l.contains(what);
    let found: Vec<&&str> = verdicts.iter().filter(|l| is(l, " found: ")).collect();
    let harmless: Vec<&&str> = verdicts.iter().filter(|l| is(l, " harmless: ")).collect();
    println!("{} waits: {} found, {} harmless", verdicts.len(), found.len(), harmless.len());
    assert_eq!(found.len() + harmless.len(), verdicts.len(), "{text}");
    assert!(!found.is_empty() && !harmless.is_empty(), "{text}");
    let number = |l: &str| l.split(' ').nth(1).unwrap().to_string();
    let drop = |n: &str| {
        let environment = [("OFFC_FAKE_RACES", &*report), ("OFFC_FAKE_SEED", "3"), ("OFFC_FAKE_DROP", n)];
        offc("cuda", &offload(), &["--outputs", &second], &environment)
    };
    let out = drop(&number(found[found.len() / 2]));
    assert_eq!(out.status.code(), Some(70), "{}", said(&out));
    assert!(said(&out).contains("a wait is missing"), "{}", said(&out));
    let out = drop(&number(harmless[harmless.len() / 2]));
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(std::fs::read(first).unwrap(), std::fs::read(second).unwrap());
}

#[test]
fn the_arenas_are_used_as_planned() {
    if driver().is_none() {
        return;
    }
    let (cpu, cuda) = (offc("cpu", &offload(), &[], &[]), offc("cuda", &offload(), &[], &[]));
    assert!(cpu.status.success() && cuda.status.success(), "{}", said(&cuda));
    let (cpu, cuda) = (said(&cpu), said(&cuda));
    assert!(cuda.contains("poisoned"), "{cuda}");
    for arena in ["device arena: ", "host arena: "] {
        let numbers = |text: &str| -> Vec<u64> { line(text, arena).split(' ').filter_map(|w| w.parse().ok()).collect() };
        let (cpu, cuda) = (numbers(&cpu), numbers(&cuda));
        let &[planned, used, alive] = &cuda[..] else { panic!("{cuda:?}") };
        // The GPU's plan begins its blocks at multiples of 256 bytes; as many bytes are alive in it.
        assert_eq!((planned, alive), (used, cpu[2]), "{arena}");
        assert!(planned >= cpu[0] && planned < cpu[0] + cpu[0] / 8 + 4096, "{arena}{cuda:?} {cpu:?}");
    }
    let out = offc("cuda", &offload(), &["--arena", "2MB"], &[]);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("bytes) of device memory, the arena has 2000000 bytes"), "{}", said(&out));
    let out = offc("cuda", &offload(), &[], &[("OFFC_FAKE_MEMORY", "1000000")]);
    assert_eq!(out.status.code(), Some(3));
    assert!(said(&out).contains("cannot allocate"), "{}", said(&out));
}

/// The stand-in's clock: a microsecond a kernel and a nanosecond each of its threads; a nanosecond a byte to the host, half of one to the device.
#[test]
fn times_are_those_of_the_events() {
    if driver().is_none() {
        return;
    }
    let work = folder("cuda-timing");
    let path = work.join("step.hlo");
    let text = "HloModule step, is_scheduled=true, entry_computation_layout={(f32[1048576]{0})->f32[1048576]{0}}\n\nENTRY e {\n  \
        p = f32[1048576]{0} parameter(0)\n  n = f32[1048576]{0} negate(p)\n  \
        out = (f32[1048576]{0:S(5)}, f32[1048576]{0}, u32[]) copy-start(n)\n  there = f32[1048576]{0:S(5)} copy-done(out)\n  \
        in = (f32[1048576]{0}, f32[1048576]{0:S(5)}, u32[]) copy-start(there)\n  ROOT back = f32[1048576]{0} copy-done(in)\n}\n";
    std::fs::write(&path, text).unwrap();
    let trace = work.join("t.json");
    let out = offc("cuda", &path, &["--timing", &trace.display().to_string()], &[("OFFC_FAKE_CLOCK", "1")]);
    assert!(out.status.success(), "{}", said(&out));
    let calibration = std::fs::read_to_string(work.join("t.toml")).unwrap();
    // 4 MiB: 4.194304 ms to the host, half of that back; a float of milliseconds has 24 bits.
    for expected in ["h2d = 2.000", "d2h = 1.000"] {
        assert!(calibration.contains(expected), "{calibration}");
    }
    let time = |name: &str| -> f64 {
        let line = line(&calibration, &format!("\"{name}\""));
        line.split('"').nth(3).unwrap().trim_end_matches("ns").parse().unwrap()
    };
    for (name, expected) in [("out", 4_194_304.0), ("in", 2_097_152.0), ("n", 1_000.0 + 1_048_576.0 / 4.0)] {
        assert!((time(name) - expected).abs() < 2.0, "{name}: {} for {expected}", time(name));
    }
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |name: &str| events.iter().find(|e| e["name"] == name).unwrap_or_else(|| panic!("{name} in {json}"));
    assert_eq!((&of("out")["tid"], &of("in")["tid"], &of("out")["args"]["bytes"]), (&2.into(), &3.into(), &4_194_304.into()));
    let wait = of("wait at back")["dur"].as_f64().unwrap();
    assert!((wait - 2_097.152).abs() < 1.0, "{wait}");
}

/// Layouts of three dimensions, fastest first.
const LAYOUTS: [&str; 6] = ["2,1,0", "1,2,0", "2,0,1", "0,2,1", "1,0,2", "0,1,2"];

/// Dots of all pairs of layouts, of other types, and cuBLAS's own calls.
fn products() -> String {
    let (mut lines, mut parameters, mut results) = (String::new(), String::new(), Vec::new());
    let mut number = 0;
    let mut parameter = |shape: String| {
        let name = format!("p{number}");
        writeln!(parameters, "  {name} = {shape} parameter({number})").unwrap();
        number += 1;
        name
    };
    let dims = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}";
    let left: Vec<String> = LAYOUTS.iter().map(|l| parameter(format!("f32[2,5,7]{{{l}}}"))).collect();
    let right: Vec<String> = LAYOUTS.iter().map(|l| parameter(format!("f32[2,7,6]{{{l}}}"))).collect();
    let mut result = |shape: String, text: String| {
        let name = format!("d{}", results.len());
        writeln!(lines, "  {name} = {shape} {text}").unwrap();
        results.push((shape, name));
    };
    for (i, a) in left.iter().enumerate() {
        for (j, b) in right.iter().enumerate() {
            result(format!("f32[2,5,6]{{{}}}", LAYOUTS[(i + 2 * j) % 6]), format!("dot({a}, {b}), {dims}"));
        }
    }
    for (from, to) in [("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32"), ("f16", "f32"), ("f64", "f64")] {
        let (a, b) = (parameter(format!("{from}[9,4]{{1,0}}")), parameter(format!("{from}[3,4]{{1,0}}")));
        result(format!("{to}[9,3]{{1,0}}"), format!("dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"));
    }
    for (a, b, out, sums) in
        [("1,7", "7,5", "1,5", "{1} {0}"), ("7,1", "7,5", "1,5", "{0} {0}"), ("6,7", "7", "6", "{1} {0}"), ("7", "7", "", "{0} {0}")]
    {
        let (x, y) = (parameter(format!("f32[{a}]")), parameter(format!("f32[{b}]")));
        let (l, r) = sums.split_once(' ').unwrap();
        result(format!("f32[{out}]"), format!("dot({x}, {y}), lhs_contracting_dims={l}, rhs_contracting_dims={r}"));
    }
    let (a, b, c, bias) = (
        parameter("f32[4,8]{1,0}".into()),
        parameter("f32[8,6]{1,0}".into()),
        parameter("f32[4,6]{1,0}".into()),
        parameter("f32[6]".into()),
    );
    let config = |alpha: f64, beta: f64, epilogue: &str| {
        format!(
            "backend_config={{\"gemm_backend_config\":{{\"alpha_real\":{alpha},\"alpha_imag\":0,\"beta\":{beta},\"dot_dimension_numbers\":{{\
             \"lhs_contracting_dimensions\":[\"1\"],\"rhs_contracting_dimensions\":[\"0\"],\"lhs_batch_dimensions\":[],\"rhs_batch_dimensions\":[]}},\
             \"epilogue\":\"{epilogue}\"}}}}"
        )
    };
    for (target, operands, config) in [
        ("__cublas$gemm", format!("{a}, {b}"), config(1.0, 0.0, "DEFAULT")),
        ("__cublas$gemm", format!("{a}, {b}, {c}"), config(0.5, 2.0, "DEFAULT")),
        ("__cublas$lt$matmul", format!("{a}, {b}, {bias}"), config(1.0, 0.0, "BIAS_RELU")),
        ("__cublas$lt$matmul", format!("{a}, {b}, {c}, {bias}"), config(1.5, 1.0, "BIAS_GELU")),
    ] {
        result("f32[4,6]{1,0}".into(), format!("custom-call({operands}), custom_call_target=\"{target}\", {config}"));
    }
    let shapes: Vec<&str> = results.iter().map(|r| &*r.0).collect();
    let names: Vec<&str> = results.iter().map(|r| &*r.1).collect();
    format!("HloModule products\n\nENTRY e {{\n{parameters}{lines}  ROOT t = ({}) tuple({})\n}}\n", shapes.join(", "), names.join(", "))
}

/// The library's arguments mean what the dots say: the stand-in's library and the own kernels sum in the interpreter's order, so all three give
/// equal bits, up to what an activation rounds.
#[test]
fn the_library_multiplies_what_the_program_says() {
    if driver().is_none() {
        return;
    }
    let work = folder("cuda-products");
    let path = work.join("products.hlo");
    std::fs::write(&path, products()).unwrap();
    let file = |name: &str| work.join(name).display().to_string();
    let log = file("calls");
    let _ = std::fs::remove_file(&log);
    let run = |backend: &str, name: &str, environment: &[(&str, &str)]| {
        let out = offc(backend, &path, &["--outputs", &file(name)], environment);
        assert!(out.status.success(), "{}", said(&out));
        (offc::interp::npz::read(&std::fs::read(file(name)).unwrap()).unwrap(), said(&out))
    };
    let (cpu, _) = run("cpu", "cpu.npz", &[]);
    let (library, told) = run("cuda", "library.npz", &[("OFFC_FAKE_GEMM", &log)]);
    assert!(line(&told, "matrix products: ").starts_with("matrix products: 24 by cuBLAS, "), "{told}");
    let (own, told) = run("cuda", "own.npz", &[("OFFC_FAKE_NO_CUBLAS", "1")]);
    assert!(line(&told, "matrix products: 0 by cuBLAS, ").contains("cuBLAS does not start"), "{told}");
    let calls = std::fs::read_to_string(&log).unwrap();
    assert!(
        ["gemm NN", "gemm NT", "gemm TN", "gemm TT", "batch 2", "types 14 14", "types 2 0", "types 1 1", "beta 2"]
            .iter()
            .all(|c| calls.contains(c)),
        "{calls}"
    );
    // `f32` in `f32`: `CUBLAS_COMPUTE_32F`, and no partial sums in less.
    assert!(calls.lines().all(|l| l.contains("compute 68 math 16") || l.contains("types 1 1 compute 70")), "{calls}");
    for (name, expected) in &cpu {
        let exact = |found: &offc::interp::Array| found.data == expected.data;
        let near = |found: &offc::interp::Array| {
            (0..found.len()).all(|i| (found.f64(i) - expected.f64(i)).abs() <= 1e-6 * expected.f64(i).abs().max(1.0))
        };
        for found in [&library, &own] {
            let found = &found.iter().find(|f| f.0 == *name).unwrap().1;
            assert!(exact(found) || (name.starts_with("out48") && near(found)), "{name}: {found:?} for {expected:?}");
        }
    }
}

#[test]
fn the_host_arena_lies_near_the_gpu() {
    if driver().is_none() {
        return;
    }
    let work = folder("cuda-numa");
    for (path, text) in [("bus/pci/devices/0000:81:00.0/numa_node", "0\n"), ("devices/system/node/node0/cpulist", "0-15\n")] {
        let path = work.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let sysfs = work.display().to_string();
    let out = offc("cuda", &offload(), &[], &[("OFFC_SYSFS", &sysfs), ("OFFC_FAKE_PCI", "0:129:0")]);
    let told = line(&said(&out), "host arena l") + said(&out).lines().find(|l| l.starts_with("host arena the")).unwrap_or_default();
    assert!(told.contains("asked for node 0, where the GPU (0000:81:00.0) is"), "{told}");
    let out = offc("cuda", &offload(), &[], &[("OFFC_SYSFS", &sysfs), ("OFFC_FAKE_PCI", "0:1:0")]);
    assert!(said(&out).contains("the GPU's node is not known: no device 0000:01:00.0 is told of"), "{}", said(&out));
}
