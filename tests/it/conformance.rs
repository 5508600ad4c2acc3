//! XLA's verdict on small probes of the grammar, and its canonical form of those that it accepts.
//!
//! `tests/conformance/probes.jsonl` holds one probe a line: its text, what XLA's own parser said (`accept`, `reject` or `crash`), and how it
//! printed what it accepted. Here, too, a crash must be a rejection.

use offc::text::parse;
use serde::Deserialize;

/// Probes whose verdict differs on purpose: an opcode or attribute that XLA does not know is kept, because XLA grows.
const KEPT: &[&str] = &["058_header_unknown_attr", "139_opcode_unknown", "141_attr_unknown"];

#[derive(Deserialize)]
struct Probe {
    name: String,
    verdict: String,
    #[serde(default)]
    why: String,
    text: String,
}

fn probes() -> Vec<Probe> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/probes.jsonl");
    let text = std::fs::read_to_string(path).expect("the probes are in the repository");
    text.lines().map(|l| serde_json::from_str(l).expect("each line is a probe")).collect()
}

#[test]
fn the_verdict_is_that_of_xla() {
    let mut wrong = Vec::new();
    for probe in probes() {
        let expected = probe.verdict == "accept" || KEPT.contains(&&*probe.name);
        let found = parse(probe.text.as_bytes());
        let warns = found.as_ref().is_ok_and(|p| !p.warnings.is_empty());
        if found.is_ok() != expected || KEPT.contains(&&*probe.name) && !warns {
            let said = found.err().map(|d| d[0].message.clone()).unwrap_or_default();
            wrong.push(format!("{}: XLA says {} ({}), we say {said}", probe.name, probe.verdict, probe.why));
        }
    }
    assert!(wrong.is_empty(), "{} verdicts differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_program_of_the_corpus_reads() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus");
    let Ok(entries) = std::fs::read_dir(corpus) else {
        println!("skipped: there is no ../shared/corpus");
        return;
    };
    let mut paths: Vec<_> =
        entries.map(|e| e.expect("a folder can be listed").path()).filter(|p| p.extension().is_some_and(|e| e == "hlo")).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read(&path).expect("a listed file can be read");
        match parse(&text) {
            Ok(parsed) => assert!(!parsed.module.entry().order.is_empty()),
            Err(errors) => panic!("{}:\n{}", path.display(), offc::diag::render(&errors, &path.display().to_string(), &text, false)),
        }
    }
}

/// The codes of what is wrong with a text.
fn codes(text: &[u8]) -> Vec<&'static str> {
    parse(text).err().into_iter().flatten().map(|d| d.code).collect()
}

#[test]
fn bytes_that_are_no_text_are_shown() {
    let errors = parse(b"HloModule m\nENTRY e { \xff }").expect_err("it is not UTF-8");
    assert_eq!((errors[0].code, errors[0].labels[0].span.start), ("P001", 22));
}

#[test]
fn reading_stops_after_a_hundred_errors() {
    let text = format!("HloModule m\nENTRY e {{\n{}}}\n", "  a = f32[] negate(b)\n".repeat(500));
    let codes = codes(text.as_bytes());
    assert_eq!((codes.len(), codes.last().copied()), (101, Some("P003")));
}

#[test]
fn a_cut_text_is_rejected() {
    let text = "HloModule m\n\nENTRY e {\n  p = f32[2]{0} parameter(0), metadata={op_name=\"a\" stack_frame_id=1}\n  ROOT c = f32[2]{0} constant({1, 2})\n}\n";
    assert!(parse(text.as_bytes()).is_ok());
    for end in 0..text.len() - 2 {
        assert!(parse(&text.as_bytes()[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn deep_nests_are_errors() {
    let program = |line: String| format!("HloModule m\nENTRY e {{\n  p = f32[2] parameter(0)\n  ROOT r = {line}\n}}\n");
    let n = 200_000;
    for line in [
        format!("f32[2] {}p{}", "negate(".repeat(n), ")".repeat(n)),
        format!("{}f32[2]{} custom-call(p), custom_call_target=\"x\"", "(".repeat(n), ")".repeat(n)),
        format!("f32[2] constant({}1{})", "{".repeat(n), "}".repeat(n)),
        format!("f32[2] negate(p), sharding={}{}", "{".repeat(n), "}".repeat(n)),
        format!("f32[2] negate(p), origin={{{}{}}}", "(".repeat(n), ")".repeat(n)),
    ] {
        assert!(!codes(program(line).as_bytes()).is_empty());
    }
}
