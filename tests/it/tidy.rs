//! The house rules that a machine can hold: layering, docs, sizes, forbidden words. ARCHITECTURE.md says why; this is the law.
//!
//! A room is `src/NAME.rs` with `src/NAME/`. Everything here looks at text: simple, and hard to get round by accident.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::filetests::files;

/// Which rooms a room may use. A room that stands in the tree must stand here.
const ROOMS: &[(&str, &[&str])] = &[
    ("entity", &[]),
    ("units", &[]),
    ("diag", &[]),
    ("machine", &["units", "diag"]),
    ("ir", &["entity", "units", "diag"]),
    ("text", &["entity", "diag", "ir"]),
    ("proto", &["entity", "diag", "ir"]),
    ("format", &["text", "proto", "diag", "ir"]),
    ("verify", &["entity", "diag", "ir"]),
    ("interp", &["entity", "units", "machine", "ir"]),
    ("cuda", &["entity", "units", "ir", "interp"]),
    ("cost", &["units", "machine", "ir"]),
    ("analysis", &["entity", "units", "machine", "ir", "cost"]),
    ("sim", &["entity", "units", "machine", "ir", "cost", "analysis"]),
    ("pack", &["diag"]),
    ("problem", &["entity", "units", "diag"]),
    ("solve", &["entity", "units", "problem"]),
    ("plan", &["entity", "units", "machine", "ir", "cost", "analysis", "sim", "problem", "solve"]),
    ("rewrite", &["entity", "ir", "plan"]),
    ("pass", &["units", "diag", "machine", "ir", "verify"]),
    ("passes", &["entity", "units", "diag", "machine", "ir", "cost", "pass", "analysis", "plan", "rewrite", "sim", "verify"]),
    ("report", &["entity", "units", "ir", "cost", "analysis", "sim", "plan"]),
    ("driver", ALL),
    ("embed", ALL),
    ("lib", ALL),
];

/// May use every room.
const ALL: &[&str] = &["*"];

/// Edges that must never come into the table above: the judge shares nothing with the judged.
const NEVER: &[(&str, &str)] = &[
    ("plan", "rewrite"),
    ("rewrite", "analysis"),
    ("verify", "plan"),
    ("verify", "rewrite"),
    ("verify", "analysis"),
    ("sim", "plan"),
    ("sim", "rewrite"),
    ("interp", "plan"),
    ("interp", "rewrite"),
];

/// Lines that a source file has at most.
const LONGEST_FILE: usize = 600;

/// What only `src/bin` may name: it alone touches the world.
const WORLD: &[&str] =
    &["std::env", "std::fs", "std::time", "std::process", "std::net", "std::io::stdin", "std::io::stdout", "Instant::now", "SystemTime"];

/// Crates whose types stay out of public signatures.
const PRIVATE_CRATES: &[&str] = &["egg::", "pest::", "petgraph::", "highs::", "good_lp::", "prost::"];

/// One source file.
struct Source {
    path: PathBuf,
    /// Its path below the repository, with slashes.
    name: String,
    text: String,
}

impl Source {
    /// The room it belongs to; `None` for the binary.
    fn room(&self) -> Option<&str> {
        let inner = self.name.strip_prefix("src/")?;
        let room = inner.split('/').next()?.trim_end_matches(".rs");
        (room != "bin").then_some(room)
    }

    /// Lines outside test modules, without comments, with their numbers. A test module is what follows `#[cfg(test)]` at the margin, to the
    /// next closing brace at the margin; a file of tests is declared so by its parent and named `tests.rs`.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let all_tests = self.name.ends_with("/tests.rs");
        let mut in_tests = false;
        self.text.lines().enumerate().filter_map(move |(i, line)| {
            in_tests |= line.starts_with("#[cfg(test)]");
            let skip = in_tests || all_tests;
            if line.starts_with('}') || (in_tests && line.starts_with("mod ") && line.ends_with(';')) {
                in_tests = false;
            }
            let code = line.split("// ").next().unwrap_or_default();
            (!skip && !line.trim_start().starts_with("//")).then_some((i + 1, code))
        })
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folders: &[&str]) -> Vec<Source> {
    let paths = folders.iter().flat_map(|f| files(&root().join(f), ".rs"));
    let read = |path: PathBuf| Source {
        name: path.strip_prefix(root()).expect("it was found there").to_string_lossy().replace('\\', "/"),
        text: std::fs::read_to_string(&path).expect("a source file is text"),
        path,
    };
    paths.map(read).collect()
}

/// Rooms named after `crate::` in a line of code; a braced list names several.
fn uses(code: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for (at, mark) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + mark.len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            for part in list.split_inclusive(['{', '}', ',']) {
                if depth == 0 {
                    out.extend(word(part));
                }
                depth += i32::from(part.ends_with('{')) - i32::from(part.ends_with('}'));
            }
        } else {
            out.extend(word(rest));
        }
    }
    out
}

fn word(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())).unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

/// Fails with all complaints at once.
fn report(complaints: &str) {
    assert!(complaints.is_empty(), "\n{complaints}");
}

#[test]
fn rooms_use_only_the_rooms_below_them() {
    let table: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    let mut complaints = String::new();
    for source in sources(&["src"]) {
        let Some(room) = source.room() else { continue };
        let Some(allowed) = table.get(room) else {
            writeln!(complaints, "{}: the room `{room}` does not stand in the table of tests/it/tidy.rs", source.name)
                .expect("a string takes all");
            continue;
        };
        for (line, code) in source.code() {
            for used in uses(code) {
                if table.contains_key(used) && used != room && *allowed != ALL && !allowed.contains(&used) {
                    writeln!(complaints, "{}:{line}: `{room}` may not use `{used}`", source.name).expect("a string takes all");
                }
            }
        }
    }
    report(&complaints);
}

#[test]
fn the_table_has_no_forbidden_edge() {
    for (from, to) in NEVER {
        let allowed = ROOMS.iter().find(|r| r.0 == *from).expect("it stands in the table").1;
        assert!(!allowed.contains(to), "`{from}` must not know `{to}`");
    }
    for (i, (room, allowed)) in ROOMS.iter().enumerate() {
        // No arrow upwards: what a room uses stands before it in the table.
        let later = allowed.iter().find(|used| **used != "*" && !ROOMS[..i].iter().any(|(name, _)| name == *used));
        assert!(later.is_none(), "`{room}` uses `{}`, which is not below it", later.unwrap_or(&""));
    }
}

#[test]
fn every_file_has_a_module_doc_and_is_short() {
    let mut complaints = String::new();
    for source in sources(&["src", "tests/it", "benches"]) {
        if !source.text.starts_with("//!") {
            writeln!(complaints, "{}: a file begins with a `//!` doc", source.name).expect("a string takes all");
        }
        let lines = source.text.lines().count();
        if lines > LONGEST_FILE {
            writeln!(complaints, "{}: {lines} lines, at most {LONGEST_FILE}", source.name).expect("a string takes all");
        }
    }
    report(&complaints);
}

#[test]
fn no_forbidden_words() {
    let mut complaints = String::new();
    let unwrap = concat!(".un", "wrap()");
    let allow = concat!("#[al", "low");
    let inner_allow = concat!("#![al", "low");
    for source in sources(&["src", "tests/it", "benches"]) {
        let library = source.room().is_some();
        let product = source.path.starts_with(root().join("src"));
        for (line, text) in source.text.lines().enumerate() {
            if text.contains(allow) || text.contains(inner_allow) {
                writeln!(complaints, "{}:{}: `#[expect(lint, reason = …)]`, never `allow`", source.name, line + 1)
                    .expect("a string takes all");
            }
        }
        for (line, code) in source.code() {
            if product && code.contains(unwrap) {
                writeln!(complaints, "{}:{line}: `expect(\"why it holds\")`, not `unwrap`", source.name).expect("a string takes all");
            }
            for name in WORLD.iter().filter(|name| library && code.contains(**name)) {
                writeln!(complaints, "{}:{line}: only `src/bin` may use `{name}`", source.name).expect("a string takes all");
            }
        }
    }
    report(&complaints);
}

#[test]
fn no_foreign_type_in_a_public_signature() {
    let mut complaints = String::new();
    for source in sources(&["src"]) {
        let mut signature = String::new();
        for (line, code) in source.code() {
            if !signature.is_empty() || code.trim_start().starts_with("pub fn ") {
                signature += code;
            }
            if !signature.is_empty() && (signature.contains('{') || signature.contains(';')) {
                for name in PRIVATE_CRATES.iter().filter(|name| signature.contains(**name)) {
                    writeln!(complaints, "{}:{line}: `{name}` in a public signature", source.name).expect("a string takes all");
                }
                signature.clear();
            }
        }
    }
    report(&complaints);
}

#[test]
fn architecture_names_every_room() {
    let mut complaints = String::new();
    for document in ["ARCHITECTURE.md", "README.md"] {
        // While the house is being built the documents come last.
        let Ok(text) = std::fs::read_to_string(root().join(document)) else { continue };
        for source in sources(&["src"]) {
            let Some(room) = source.room().filter(|r| *r != "lib") else { continue };
            let top = source.name == format!("src/{room}.rs");
            if document == "ARCHITECTURE.md" && top && !text.contains(&format!("`{room}`")) {
                writeln!(complaints, "{document} does not mention `{room}`").expect("a string takes all");
            }
        }
        if document == "README.md" && !text.contains("ARCHITECTURE.md") {
            writeln!(complaints, "{document} does not lead to ARCHITECTURE.md").expect("a string takes all");
        }
    }
    report(&complaints);
}

#[test]
fn the_scanner_reads_use_lists() {
    assert_eq!(uses("use crate::{ir::{Module, Op}, diag::Span, text};"), ["ir", "diag", "text"]);
    assert_eq!(uses("    let x = crate::verify::verify(&m); crate::plan::f()"), ["verify", "plan"]);
    assert_eq!(uses("use offc_crate::ir; $crate::ir"), Vec::<&str>::new());
}
