//! The command line: exit statuses, what goes where, and that a failure leaves files alone.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const GOOD: &str = "HloModule m, is_scheduled=true

ENTRY e {
  p = f32[8]{0} parameter(0)
  n = f32[8]{0} negate(p)
  ROOT r = f32[8]{0} add(n, p)
}
";
const BAD: &str = "HloModule m\n\nENTRY e {\n  p = f32[8]{0} parameter(0)\n  ROOT r = f32[8]{0} negate(q)\n}\n";

fn offc() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offc"));
    command.env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

pub fn run(args: &[&str]) -> Output {
    offc().args(args).output().expect("the binary starts")
}

fn run_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child =
        offc().args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    // A binary that refuses its arguments has ended before it reads.
    match child.stdin.take().expect("it is piped").write_all(input) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => panic!("the binary reads: {e}"),
        _ => {}
    }
    child.wait_with_output().expect("the binary ends")
}

pub fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("reports are UTF-8")
}

pub fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("messages are UTF-8")
}

pub fn status(output: &Output) -> i32 {
    output.status.code().expect("it ends by itself")
}

/// A folder that goes away with its test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("paths of tests are UTF-8").to_string()
    }
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(&self.0).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn help_and_version_say_what_there_is() {
    let help = run(&["--help"]);
    assert_eq!(status(&help), 0);
    for word in ["rewrite", "peak", "check", "convert", "devices", "explain", "completions", "Exit status"] {
        assert!(out(&help).contains(word), "{word}");
    }
    assert_eq!(out(&run(&["--version"])), concat!("offc ", env!("CARGO_PKG_VERSION"), "\n"));
    for command in ["rewrite", "peak", "check", "convert", "devices", "explain", "completions"] {
        assert!(out(&run(&[command, "--help"])).contains("Example"), "{command}");
    }
}

#[test]
fn a_wrong_command_line_is_status_2() {
    for args in
        [&[][..], &["frobnicate"], &["explain", "Z999"], &["devices", "h100"], &["peak", "no/such/file"], &["devices", "no/such.txtpb"]]
    {
        let output = run(args);
        assert_eq!((status(&output), out(&output)), (2, ""), "{args:?}: {}", err(&output));
    }
    assert!(err(&run(&["devices", "h100"])).contains("h100-sxm"));
    for memory in ["5", "5 parsecs", ""] {
        let output = run_with_input(&["rewrite", "-", "--device", "h100-sxm", "--memory", memory], GOOD.as_bytes());
        assert!(status(&output) == 2 || memory == "5", "{memory}");
    }
}

#[test]
fn every_device_is_listed() {
    for name in offc::machine::presets().into_iter().map(|m| m.name) {
        assert!(out(&run(&["devices"])).contains(&name));
        assert_eq!(status(&run(&["devices", &name.replace('-', "_")])), 0);
    }
    let json: serde_json::Value = serde_json::from_str(out(&run(&["devices", "--json"]))).unwrap();
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["devices"][0]["memory"], 80u64 << 30);
}

#[test]
fn a_device_description_may_be_wrong() {
    let folder = Folder::new("device");
    let spec = folder.file("gpu.txtpb", b"gpu_device_info {\n  core_count: none\n}\n");
    let output = run(&["devices", &spec]);
    assert_eq!(status(&output), 3);
    assert!(err(&output).contains("gpu.txtpb:2:15: error[M02]"), "{}", err(&output));
}

#[test]
fn every_code_is_explained() {
    for e in offc::diag::explanations() {
        assert!(out(&run(&["explain", &e.code.to_lowercase()])).starts_with(e.code));
    }
    assert_eq!(out(&run(&["explain"])).lines().count(), offc::diag::explanations().count());
}

#[test]
fn completions_are_scripts() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(out(&run(&["completions", shell])).contains("offc"));
    }
}

#[test]
fn check_says_one_line_a_file() {
    let folder = Folder::new("check");
    let (good, bad) = (folder.file("good.hlo", GOOD.as_bytes()), folder.file("bad.hlo", BAD.as_bytes()));
    let output = run(&["check", &good, &bad]);
    assert_eq!(status(&output), 3);
    let lines: Vec<&str> = out(&output).lines().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0], format!("accept\t{good}"));
    assert!(lines[1].starts_with(&format!("reject\t{bad}\tP")), "{}", lines[1]);
    assert!(err(&output).contains("bad.hlo:5:"), "{}", err(&output));
    assert_eq!(status(&run(&["check", "--verify", &good])), 0);
    assert_eq!(status(&run(&["check", &good, &folder.path("absent")])), 2);
    let json: serde_json::Value = serde_json::from_str(out(&run(&["check", "--json", &good, &bad]))).unwrap();
    assert_eq!((&json["files"][0]["verdict"], &json["files"][1]["verdict"]), (&"accept".into(), &"reject".into()));
    let stdin = run_with_input(&["check", "-"], BAD.as_bytes());
    assert!(out(&stdin).starts_with("reject\t-\tP"), "{}", out(&stdin));
}

#[test]
fn convert_goes_both_ways_by_content() {
    let folder = Folder::new("convert");
    // The name of the input says nothing.
    let text = folder.file("text.pb", GOOD.as_bytes());
    let [proto, back, zipped] = ["a.pb", "b.hlo", "c.hlo.gz"].map(|n| folder.path(n));
    for (from, to) in [(&text, &proto), (&proto, &back), (&proto, &zipped)] {
        let output = run(&["convert", from, to]);
        assert_eq!((status(&output), out(&output)), (0, ""), "{}", err(&output));
    }
    assert!(std::fs::read_to_string(&back).unwrap().contains("negate("));
    assert_eq!(&std::fs::read(&zipped).unwrap()[..2], b"\x1f\x8b");
    let again = run(&["convert", &zipped, "-", "--emit", "hlo"]);
    assert_eq!(out(&again), std::fs::read_to_string(&back).unwrap());
}

#[test]
fn a_failure_leaves_the_output_alone() {
    let folder = Folder::new("alone");
    let bad = folder.file("bad.hlo", BAD.as_bytes());
    let target = folder.file("out.hlo", b"before");
    let output = run(&["convert", &bad, &target]);
    assert_eq!(status(&output), 3);
    assert!(err(&output).contains("error[P"), "{}", err(&output));
    assert_eq!(std::fs::read(&target).unwrap(), b"before");
    assert_eq!(folder.names(), ["bad.hlo", "out.hlo"]);
    let good = folder.file("good.hlo", GOOD.as_bytes());
    assert_eq!(status(&run(&["convert", &good, &folder.path("no/such/folder.pb")])), 2);
    assert_eq!(status(&run(&["convert", &good, folder.0.to_str().unwrap()])), 2);
    assert_eq!(folder.names(), ["bad.hlo", "good.hlo", "out.hlo"]);
}

#[test]
fn peak_counts_bytes() {
    let folder = Folder::new("peak");
    let file = folder.file("m.hlo", GOOD.as_bytes());
    let json: serde_json::Value = serde_json::from_str(out(&run(&["peak", &file, "--json"]))).unwrap();
    for (key, bytes) in [("argument", 32), ("output", 32), ("alias", 0), ("host_argument", 0), ("host_output", 0), ("host_temp", 0)] {
        assert_eq!(json[key], bytes, "{key}");
    }
    assert!(json["peak"].as_u64().unwrap() >= 64);
    let text = run_with_input(&["peak", "-"], GOOD.as_bytes());
    assert_eq!(status(&text), 0, "{}", err(&text));
    assert!(out(&text).contains("argument"), "{}", out(&text));
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = offc().args(["devices", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((status(&output), err(&output)), (0, ""));
}

#[test]
fn colour_comes_when_asked_for() {
    let plain = run(&["explain", "Z9"]);
    assert!(!err(&plain).contains('\x1b'));
    let bright = run(&["--color", "always", "explain", "Z9"]);
    assert!(err(&bright).contains("\x1b[1;31m"));
}

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gpt3_760m_unrolled_none.pb");

#[test]
fn rewrite_makes_the_example_fit_and_does_so_twice() {
    let folder = Folder::new("rewrite");
    let [a, b, plan_a, plan_b] = ["a.pb", "b.pb", "a.json", "b.json"].map(|n| folder.path(n));
    for (out_file, plan) in [(&a, &plan_a), (&b, &plan_b)] {
        let output = run(&["rewrite", EXAMPLE, "-o", out_file, "--device", "h100_sxm", "--memory", "5GiB", "--plan-out", plan, "--json"]);
        assert_eq!((status(&output), out(&output)), (0, ""), "{}", err(&output));
        let summary: serde_json::Value = serde_json::from_str(err(&output)).unwrap();
        let bytes = |side: &str| summary[side]["device"].as_u64().unwrap();
        assert!(bytes("after") <= 5 << 30 && bytes("before") > 7 << 30, "{summary}");
        assert!(summary["floor"].as_u64().unwrap() <= bytes("after"));
        let peak: serde_json::Value = serde_json::from_str(out(&run(&["peak", out_file, "--json"]))).unwrap();
        assert_eq!(peak["device"].as_u64().unwrap(), bytes("after"), "what is written takes what was promised");
    }
    assert!(std::fs::read(&a).unwrap() == std::fs::read(&b).unwrap(), "two runs write the same bytes");
    assert!(std::fs::read(&plan_a).unwrap() == std::fs::read(&plan_b).unwrap(), "two runs save the same plan");
    assert_eq!(out(&run(&["check", "--verify", &a])), format!("accept\t{a}\n"));
}

/// XLA's own rematerialization counts host memory too: where its limit binds the plan computes more again, where no plan helps it is said.
#[test]
fn rewrite_heeds_the_limit_of_xla_itself() {
    let told = |input: &str, memory: &str, limit: &str| -> serde_json::Value {
        let output =
            run(&["rewrite", input, "-o", "/dev/null", "--device", "h100-sxm", "--memory", memory, "--xla-limit", limit, "--json"]);
        assert_eq!(status(&output), 0, "{}", err(&output));
        serde_json::from_str(err(&output)).unwrap()
    };
    let bound = told(EXAMPLE, "5GiB", "7GiB");
    let xla = &bound["xla_remat"];
    assert_eq!((&xla["binding"], &xla["acts"]), (&true.into(), &false.into()), "{xla}");
    assert!(xla["tracker"].as_u64() <= xla["limit"].as_u64() && bound["after"]["device"].as_u64().unwrap() <= 5 << 30);
    // 32 MiB are counted, whatever is done.
    let small = "tests/filetests/rewrite/offload.hlo";
    let acts = told(small, "33MiB", "50MiB");
    let xla = &acts["xla_remat"];
    assert_eq!((&xla["acts"], &xla["slop_factor"], &xla["tracker"]), (&true.into(), &115.into(), &(32 << 20).into()), "{xla}");
    let output = run(&["rewrite", small, "-o", "/dev/null", "--device", "h100-sxm", "--memory", "33MiB", "--xla-limit", "50MiB"]);
    assert!(err(&output).contains("xla_gpu_memory_limit_slop_factor=115"), "{}", err(&output));
    assert_eq!(told(small, "33MiB", "none")["xla_remat"]["acts"], false);
}

#[test]
fn a_budget_that_cannot_be_met_is_status_1() {
    let folder = Folder::new("infeasible");
    let (target, plan) = (folder.file("out.pb", b"before"), folder.path("plan.json"));
    let output = run(&["rewrite", EXAMPLE, "-o", &target, "--device", "h100-sxm", "--memory", "1GiB", "--plan-out", &plan]);
    assert_eq!((status(&output), out(&output)), (1, ""));
    assert!(err(&output).contains("the lowest peak found is"), "{}", err(&output));
    assert_eq!(std::fs::read(&target).unwrap(), b"before");
    assert_eq!(folder.names(), ["out.pb"]);
    let json = run(&["rewrite", EXAMPLE, "-o", &target, "--device", "h100-sxm", "--memory", "1GiB", "--json"]);
    let told: serde_json::Value = serde_json::from_str(err(&json)).unwrap();
    assert!(told["floor"].as_u64().unwrap() > 1 << 30);
}

#[test]
fn what_fits_is_not_changed() {
    let folder = Folder::new("fits");
    let target = folder.path("out.hlo");
    let output = run_with_input(&["rewrite", "-", "-o", &target, "--device", "h100-sxm", "--memory", "1MiB"], GOOD.as_bytes());
    assert_eq!(status(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("nothing was changed"), "{}", err(&output));
    let canonical = run_with_input(&["convert", "-", "-", "--emit", "hlo"], GOOD.as_bytes());
    assert_eq!(std::fs::read_to_string(&target).unwrap(), out(&canonical));
}

#[test]
fn a_wrong_pipeline_is_told() {
    for passes in ["frobnicate", "fit{", "fit{warp=true}"] {
        let output = run(&["rewrite", EXAMPLE, "--device", "h100-sxm", "--memory", "5GiB", "--passes", passes, "--emit", "hlo"]);
        assert_eq!((status(&output), out(&output)), (2, ""), "{passes}: {}", err(&output));
    }
}

/// Every `$ offc …` block of the README is what the command prints. `OFFC_BLESS=1 cargo test readme` writes what it prints now.
#[test]
fn the_readme_shows_real_output() {
    let folder = Folder::new("readme");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let mut written = String::new();
    let mut lines = readme.lines();
    let mut blocks = 0;
    while let Some(line) = lines.next() {
        written += line;
        written.push('\n');
        let Some(command) = line.strip_prefix("$ offc ") else { continue };
        let words = command.split(' ').map(|w| if w.starts_with("examples/") { EXAMPLE } else { w });
        let output = offc().args(words).current_dir(&folder.0).output().unwrap();
        assert_eq!(status(&output), 0, "{}", err(&output));
        written += &format!("{}{}```\n", out(&output), err(&output));
        lines.by_ref().find(|l| *l == "```").expect("a block ends");
        blocks += 1;
    }
    assert!(blocks >= 2);
    if std::env::var_os("OFFC_BLESS").is_some() && std::env::var_os("CI").is_none() {
        std::fs::write(&path, written).unwrap();
    } else {
        assert!(readme == written, "README.md is out of date (`OFFC_BLESS=1 cargo test readme`); it should read\n{written}");
    }
}

#[test]
fn pack_writes_offsets_or_says_why_not() {
    let table = b"id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";
    let packed = run_with_input(&["pack", "-", "--capacity", "12"], table);
    assert_eq!(status(&packed), 0);
    assert_eq!(out(&packed).lines().count(), 6);
    assert!(out(&packed).starts_with("id,offset\nb1,"));
    let json = run_with_input(&["pack", "-", "--json"], table);
    assert!(out(&json).contains("\"height\": 12") && out(&json).contains("\"gap_pct\": 0.0"));
    let tight = run_with_input(&["pack", "-", "--capacity", "11"], table);
    assert_eq!((status(&tight), err(&tight).contains("12 bytes are alive at once")), (1, true));
    let bad = run_with_input(&["pack", "-"], b"id,lower,upper\n");
    assert_eq!((status(&bad), err(&bad).contains("O01")), (3, true));
}

#[test]
fn solve_tells_overhead_bound_and_decisions() {
    let graph = br#"{"mem_kib":[4,4,1,4],"cost_10us":[1,2,3,1],"fixed_kib":0,"edges":[[0,1],[1,2],[2,3],[0,3]]}"#;
    let solved = run_with_input(&["solve", "-", "--memory", "9KiB", "--json"], graph);
    assert_eq!(status(&solved), 0, "{}", err(&solved));
    for key in ["overhead_pct", "bound_pct", "gap", "seconds", "decisions"] {
        assert!(out(&solved).contains(&format!("\"{key}\"")), "{key}");
    }
    let tight = run_with_input(&["solve", "-", "--memory", "4KiB"], graph);
    assert_eq!(status(&tight), 1);
    let bad = run_with_input(&["solve", "-", "--memory", "4KiB"], b"{}");
    assert_eq!((status(&bad), err(&bad).contains("O02")), (3, true));
}
