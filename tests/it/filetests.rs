//! File tests: every `tests/filetests/**/*.hlo` is a program whose comments say what must come of it.
//!
//! ```text
//! // The promise that is tested, in one sentence.
//! // test: verify
//! // args: --memory 1GiB
//! HloModule m
//! ENTRY e {
//!   a = f32[2]{0} parameter(0)
//!   // error[H010]: expected `f32[2]`
//!   ROOT b = f32[3]{0} negate(a)      // error[H010]: also on the line itself
//! }
//! ```
//!
//! * `test:` names one of [`KINDS`]: a function from the case to diagnostics and, for some kinds, a text.
//! * `args:` is split at blanks and given to the kind, spelled as on the command line.
//! * `error[CODE]: TEXT` and `warning[CODE]: TEXT` stand on the line that the diagnostic points at, or on lines of their own directly
//!   before it; TEXT is a part of the message. A diagnostic without a place matches wherever its code and text do. What is
//!   expected must come, and nothing else may.
//! * The text is compared with `snapshots/` at the same path (`cargo insta review` accepts a new one; never where `CI` is set). A snapshot
//!   whose test is gone fails.
//!
//! `FILETEST=verify/while cargo test filetests` runs the files whose path contains that.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use offc::diag::{Diagnostic, LineIndex, Severity};

/// What a kind of test is given.
pub struct Case {
    /// The whole file.
    pub text: String,
    /// The words of `args:`.
    pub args: Vec<String>,
}

/// What came of a case.
#[derive(Default)]
pub struct Outcome {
    /// Everything that was said about the program.
    pub diagnostics: Vec<Diagnostic>,
    /// The text to compare with the snapshot; `None` for kinds without one.
    pub snapshot: Option<String>,
}

/// A kind of test.
type Kind = fn(&Case) -> Outcome;

/// The kinds of tests. To add one, write a function and a row.
const KINDS: &[(&str, Kind)] =
    &[("cuda", cuda), ("parse", parse), ("peak", peak), ("print", print), ("verify", verify), ("rewrite", rewrite), ("simulate", simulate)];

/// Only what reading says.
fn parse(case: &Case) -> Outcome {
    assert!(case.args.is_empty(), "this kind takes no arguments");
    match offc::text::parse(case.text.as_bytes()) {
        Ok(parsed) => Outcome { diagnostics: parsed.warnings, snapshot: None },
        Err(diagnostics) => Outcome { diagnostics, snapshot: None },
    }
}

/// What `offc peak` prints, and what XLA's rematerialization counts.
fn peak(case: &Case) -> Outcome {
    with_module(case, |module, outcome| {
        let machine = offc::machine::preset("h100-sxm").expect("there is such a preset");
        let settled = offc::analysis::settle::settle(module);
        let tracker = offc::analysis::remat::RematTracker::of(module);
        let module = settled.as_ref().unwrap_or(module);
        let timeline = offc::sim::simulate(module, &machine, &offc::cost::Prices::new(module, &machine));
        let at = case.args.iter().position(|a| a == "--at").and_then(|n| case.args.get(n + 1));
        let at = at.map(|name| module.live().map(|(_, id)| id).find(|&id| *module.instr(id).name == **name).expect("`--at` names it"));
        let report = offc::report::PeakReport::of(&offc::analysis::Analyses::new(module), &timeline, at).text(20, false);
        outcome.snapshot = Some(format!("{report}\ntracker: {} bytes beside {} pinned\n", tracker.peak, tracker.pinned));
    })
}

/// The kernels of the entry computation's instructions, each with its launches.
fn cuda(case: &Case) -> Outcome {
    with_module(case, |module, outcome| {
        let mut text = String::new();
        for &id in &module.entry().order {
            let instr = module.instr(id);
            if matches!(instr.op, offc::ir::Op::Parameter { .. } | offc::ir::Op::Constant(_)) {
                continue;
            }
            writeln!(text, "// {}", instr.name).expect("a string takes all");
            // `args: --in-place` lets the result lie where the first operand lies.
            let aliases: &[_] = if case.args.iter().any(|a| a == "--in-place") { &[(0, 0, true)] } else { &[] };
            match offc::cuda::compile(module, id, aliases) {
                Ok(code) => {
                    for (launch, kernel) in code.launches.iter().zip(&code.kernels) {
                        let args: Vec<String> = launch.args.iter().map(|a| format!("{a:?}")).collect();
                        writeln!(text, "// {} x {}: {}\n{}", launch.grid, launch.block, args.join(" "), kernel.source)
                            .expect("a string takes all");
                    }
                }
                Err(why) => writeln!(text, "// {why}\n").expect("a string takes all"),
            }
        }
        outcome.snapshot = Some(text);
    })
}

/// The module as it is printed again.
fn print(case: &Case) -> Outcome {
    with_module(case, |module, outcome| outcome.snapshot = Some(offc::text::print(module)))
}

/// What the verifier says, beside reading.
fn verify(case: &Case) -> Outcome {
    with_module(case, |module, outcome| outcome.diagnostics.extend(offc::verify::verify(module)))
}

/// The program after `--passes` (the default pipeline without) for `--memory` on an H100, with what the passes tell.
fn rewrite(case: &Case) -> Outcome {
    let arg = |name: &str| case.args.iter().position(|a| a == name).and_then(|n| case.args.get(n + 1));
    with_module(case, |module, outcome| {
        let options = offc::driver::RewriteOptions {
            machine: offc::machine::preset("h100-sxm").expect("there is such a preset"),
            memory: arg("--memory").expect("`args:` names the memory").parse().expect("a size"),
            host_memory: None,
            host_state: arg("--host-state").map(|s| s.parse().expect("`auto` or a pattern")),
            pipeline: arg("--passes").map(|p| p.parse().expect("a pipeline")),
            truth: None,
            xla_memory: arg("--xla-limit").map(|size| size.parse().expect("a size")),
        };
        let text = match offc::driver::rewrite(module, &options) {
            Ok(rewritten) => {
                let told = rewritten.log.entries.iter().map(|e| format!("// {}: {}\n", e.pass, e.text));
                let why = rewritten.plan.decisions.iter().map(|d| format!("// {}: {}\n", d.value.instr, d.reason));
                let figures = format!("// {} -> {}\n", rewritten.before.device(), rewritten.after.device());
                figures + &told.chain(why).collect::<String>() + &offc::text::print(&rewritten.module)
            }
            Err(offc::driver::Trouble::Infeasible(infeasible)) => format!("{infeasible}\n"),
            Err(offc::driver::Trouble::Input(diagnostics)) => {
                outcome.diagnostics.extend(diagnostics);
                return;
            }
            Err(trouble) => panic!("{trouble:?}"),
        };
        outcome.snapshot = Some(text);
    })
}

/// What `offc simulate` prints for an H100, with `--trips LOOP=N` and `--contention`. With `--corpus NAME` the program is that of the corpus beside the
/// repository, and nothing is compared where that is not here.
fn simulate(case: &Case) -> Outcome {
    let arg = |name: &str| case.args.iter().position(|a| a == name).and_then(|n| case.args.get(n + 1));
    let report = |module: &offc::ir::Module| {
        let machine = offc::machine::preset("h100-sxm").expect("there is such a preset");
        let trips =
            arg("--trips").map(|t| t.split_once('=').expect("LOOP=N")).map(|(name, n)| (name.to_owned(), n.parse().expect("a number")));
        let options = offc::sim::Options { contention: case.args.iter().any(|a| a == "--contention"), trips: trips.into_iter().collect() };
        let prices = offc::cost::Prices::new(module, &machine);
        let timeline = offc::sim::simulate_with(module, &machine, &prices, &options);
        let host = offc::analysis::Analyses::new(module).memory().host_bytes();
        let limit = (host, machine.host.pinned.get(), offc::machine::PINNED_VARIABLE);
        offc::report::SimReport::of(module, &timeline, &machine.name, None, limit).to_string()
    };
    let Some(name) = arg("--corpus") else {
        return with_module(case, |module, outcome| outcome.snapshot = Some(report(module)));
    };
    let path = root("../shared/corpus").join(format!("{name}.pb"));
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("skipped: {} is not here", path.display());
        return Outcome::default();
    };
    let (module, _) = offc::proto::decode(&bytes).expect("the corpus decodes");
    Outcome { snapshot: Some(report(&module)), ..Outcome::default() }
}

/// Reads the program of a case and hands it on if there is one.
pub fn with_module(case: &Case, f: impl FnOnce(&offc::ir::Module, &mut Outcome)) -> Outcome {
    let mut outcome = Outcome::default();
    match offc::text::parse(case.text.as_bytes()) {
        Ok(parsed) => {
            outcome.diagnostics = parsed.warnings;
            f(&parsed.module, &mut outcome);
        }
        Err(diagnostics) => outcome.diagnostics = diagnostics,
    }
    outcome
}

/// Codes that no text can provoke, with the unit test that does.
const PROVOKED_ELSEWHERE: &[(&str, &str)] = &[
    ("B001", "src/format.rs"),
    ("B002", "tests/it/protos.rs"),
    ("B003", "tests/it/protos.rs"),
    ("B004", "tests/it/protos.rs"),
    ("B005", "tests/it/protos.rs"),
    ("B006", "src/proto/decode.rs"),
    ("B007", "tests/it/protos.rs"),
    ("B008", "tests/it/protos.rs"),
    ("B009", "tests/it/protos.rs"),
    ("B010", "tests/it/protos.rs"),
    ("B011", "tests/it/protos.rs"),
    ("B020", "src/format.rs"),
    ("B021", "src/format.rs"),
    ("B022", "src/format.rs"),
    ("H06", "src/verify/tests.rs"),
    ("Q01", "src/verify/tests.rs"),
    ("Q02", "src/verify/tests.rs"),
    ("S01", "src/verify/tests.rs"),
    ("S02", "src/verify/tests.rs"),
    ("S03", "src/verify/tests.rs"),
    ("S04", "src/verify/tests.rs"),
    ("S05", "src/verify/tests.rs"),
    ("S06", "src/verify/tests.rs"),
    ("S07", "src/verify/tests.rs"),
    ("S08", "src/verify/tests.rs"),
    ("S17", "src/verify/tests.rs"),
    ("V12", "src/verify/collectives.rs"),
    ("B030", "tests/it/protos.rs"),
    ("B031", "tests/it/protos.rs"),
    ("O01", "src/pack/csv.rs"),
    ("O02", "src/problem/json.rs"),
    ("P001", "tests/it/conformance.rs"),
    ("P002", "needs a text of 4 GiB"),
    ("P003", "tests/it/conformance.rs"),
    ("M01", "tests/it/machine.rs, from tests/filetests/machine/*.txtpb"),
    ("M02", "tests/it/machine.rs, from tests/filetests/machine/*.txtpb"),
    ("M03", "tests/it/machine.rs, from tests/filetests/machine/*.txtpb"),
    ("M04", "tests/it/machine.rs, from tests/filetests/machine/*.toml"),
    ("M05", "tests/it/machine.rs, from tests/filetests/machine/*.toml"),
];

fn root(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// All files below `folder` with that ending, sorted.
pub fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut stack = vec![folder.to_path_buf()];
    while let Some(folder) = stack.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder can be listed").path();
            if path.is_dir() {
                stack.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                out.push(path);
            }
        }
    }
    out.sort();
    out
}

/// One `error[CODE]: TEXT`.
#[derive(Debug)]
struct Expected {
    line: usize,
    severity: Severity,
    code: String,
    text: String,
}

/// The directives of one file.
struct FileTest {
    kind: String,
    expected: Vec<Expected>,
    case: Case,
}

impl FileTest {
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).expect("a listed file can be read");
        let text = String::from_utf8(bytes).map_err(|_| "a file test is UTF-8".to_owned())?;
        let first = text.lines().next().unwrap_or_default();
        let sentence = first.strip_prefix("// ").is_some_and(|s| s.ends_with('.') && !s.contains(": KIND"));
        if !sentence {
            return Err("the first line must be a comment with one sentence: the promise tested".into());
        }
        let (mut kind, mut args, mut expected) = (None, Vec::new(), Vec::new());
        let mut waiting: Vec<Expected> = Vec::new();
        let last = text.lines().count() + 1;
        for (number, line) in text.lines().enumerate().map(|(i, l)| (i + 1, l)) {
            let own_line = line.trim_start().starts_with("//");
            if own_line && let Some(word) = directive(line, "test:") {
                kind = Some(word.to_owned());
            } else if own_line && let Some(words) = directive(line, "args:") {
                args.extend(words.split_whitespace().map(str::to_owned));
            }
            let found = annotation(line, number)?;
            if own_line {
                waiting.extend(found);
                continue;
            }
            expected.extend(waiting.drain(..).map(|e| Expected { line: number, ..e }));
            expected.extend(found);
        }
        expected.extend(waiting.into_iter().map(|e| Expected { line: last, ..e }));
        let kind = kind.ok_or("a line `// test: KIND` is missing")?;
        Ok(Self { kind, expected, case: Case { text, args } })
    }

    /// Everything that differs from what was expected.
    fn run(&self, path: &Path) -> Result<(), String> {
        let (_, kind) = KINDS.iter().find(|(name, _)| *name == self.kind).ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|k| k.0).collect();
            format!("unknown kind `{}`, expected one of {}", self.kind, known.join(", "))
        })?;
        let outcome = kind(&self.case);
        let mut trouble = self.compare(&outcome.diagnostics);
        if let Some(text) = outcome.snapshot
            && let Err(message) = compare_snapshot(path, &text)
        {
            trouble += &message;
        }
        if trouble.is_empty() { Ok(()) } else { Err(trouble) }
    }

    fn compare(&self, diagnostics: &[Diagnostic]) -> String {
        let index = LineIndex::new(self.case.text.as_bytes());
        let mut open: Vec<&Expected> = self.expected.iter().collect();
        let mut trouble = String::new();
        for d in diagnostics {
            let line = d.labels.first().map(|l| index.position(l.span.start).line);
            let fits = |e: &&Expected| {
                e.code == d.code && e.severity == d.severity && d.message.contains(&e.text) && line.is_none_or(|l| l == e.line)
            };
            if let Some(found) = open.iter().position(fits) {
                open.remove(found);
            } else {
                let place = line.map_or("without a place".to_owned(), |l| format!("on line {l}"));
                writeln!(trouble, "  unexpected {place}: {}[{}]: {}", word(d.severity), d.code, d.message).expect("a string takes all");
            }
        }
        for e in open {
            writeln!(trouble, "  missing on line {}: {}[{}]: {}", e.line, word(e.severity), e.code, e.text).expect("a string takes all");
        }
        trouble
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn directive<'t>(line: &'t str, name: &str) -> Option<&'t str> {
    line.trim_start().strip_prefix("//")?.trim_start().strip_prefix(name).map(str::trim)
}

fn annotation(line: &str, number: usize) -> Result<Option<Expected>, String> {
    let found = [("// error[", Severity::Error), ("// warning[", Severity::Warning)];
    let found = found.iter().find_map(|(mark, severity)| Some((line.find(mark)? + mark.len(), *severity)));
    let Some((start, severity)) = found else { return Ok(None) };
    let (code, text) = line[start..].split_once("]:").ok_or_else(|| format!("line {number}: expected `error[CODE]: TEXT`"))?;
    Ok(Some(Expected { line: number, severity, code: code.to_owned(), text: text.trim().to_owned() }))
}

/// The path of a file test without its folder and ending, such as `verify/while_shapes`.
fn stem(path: &Path) -> PathBuf {
    path.strip_prefix(root("tests/filetests")).expect("it was found there").with_extension("")
}

fn compare_snapshot(path: &Path, text: &str) -> Result<(), String> {
    let stem = stem(path);
    let name = stem.file_name().expect("a file has a name").to_string_lossy().into_owned();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root("snapshots").join(stem.parent().expect("a file test stands in a folder")));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let compared = catch_unwind(AssertUnwindSafe(|| settings.bind(|| insta::assert_snapshot!(name, text))));
    compared.map_err(|_| "  the text differs from its snapshot (see above; `cargo insta review`)\n".to_owned())
}

#[test]
fn filetests() {
    let blessing = |name: &str| std::env::var(name).is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "no" | "auto"));
    assert!(
        std::env::var_os("CI").is_none() || !(blessing("INSTA_UPDATE") || blessing("INSTA_FORCE_UPDATE")),
        "snapshots are never blessed in CI"
    );
    let only = std::env::var("FILETEST").unwrap_or_default();
    let mut trouble = String::new();
    let mut failed = 0;
    for path in files(&root("tests/filetests"), ".hlo") {
        if !path.to_string_lossy().contains(&only) {
            continue;
        }
        let result = catch_unwind(|| FileTest::read(&path).and_then(|test| test.run(&path)));
        let message = match result {
            Ok(Ok(())) => continue,
            Ok(Err(message)) => message,
            Err(_) => "  it panicked (see above)\n".to_owned(),
        };
        failed += 1;
        writeln!(trouble, "{}:\n{message}", stem(&path).display()).expect("a string takes all");
    }
    assert!(failed == 0, "{failed} file tests failed\n{trouble}");
}

#[test]
fn every_code_is_provoked() {
    let mut provoked: BTreeSet<String> = PROVOKED_ELSEWHERE.iter().map(|(code, _)| (*code).to_owned()).collect();
    for path in files(&root("tests/filetests"), ".hlo") {
        let test = FileTest::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        provoked.extend(test.expected.into_iter().map(|e| e.code));
    }
    let known: Vec<&str> = offc::diag::explanations().map(|e| e.code).collect();
    // The parser's file tests come as a folder.
    let parse_is_tested = root("tests/filetests/parse").exists();
    let silent = known.iter().filter(|code| !provoked.contains(**code) && (parse_is_tested || !code.starts_with('P')));
    let silent: Vec<&&str> = silent.collect();
    assert!(silent.is_empty(), "no file test provokes {silent:?}");
    let unknown: Vec<&String> = provoked.iter().filter(|code| !known.contains(&code.as_str())).collect();
    assert!(unknown.is_empty(), "no explanation of {unknown:?}");
    let unique: BTreeSet<&str> = known.iter().copied().collect();
    assert_eq!(unique.len(), known.len(), "a code stands in two tables");
}

#[test]
fn no_snapshot_is_orphaned() {
    let snapshots = root("snapshots");
    for path in files(&snapshots, ".snap") {
        let stem = path.strip_prefix(&snapshots).expect("it was found there").with_extension("hlo");
        assert!(root("tests/filetests").join(&stem).is_file(), "the test of {} is gone: delete the snapshot", path.display());
    }
}
