//! Calibration files: what was measured on the machine itself, over whatever its preset or description says.
//!
//! TOML, version 1. Every key may be left out; an unknown one is an error, so that a slip of the pen does not go unnoticed.
//!
//! ```toml
//! version = 1
//! name = "node17, 2026-08"          # told in reports
//!
//! [rates]                            # a number alone is GB/s, of arithmetic TFLOP/s
//! hbm = "3.0TB/s"
//! h2d = "52GB/s"
//! d2h = "48GB/s"
//! both_ways = "85GB/s"               # both directions at once
//! host_dram = "240GB/s"              # of one NUMA node
//! bus = "350GB/s"                    # a ring of collectives inside a node
//! network = "45GB/s"                 # a GPU's network card
//! matmul_f16 = "989TFLOP/s"          # the units' peak; also matmul_f64, _f32, _f8, _f4, _int8
//! vector_f32 = "67TFLOP/s"
//!
//! [latencies]
//! copy = "2us"
//! launch = "1us"
//! collective = "5us"
//! hop = "1us"
//! network_hop = "5us"
//!
//! [host]
//! numa_nodes = 2
//! gpus_per_node = 4
//! pinned = "64GiB"
//!
//! [opcodes]                          # a time for each run, or a factor on what is predicted
//! sort = "120us"
//! fusion = "1.05x"
//! "__cublas$gemm" = "1.1x"           # a custom call target
//!
//! [instructions]                     # by name; goes before opcodes
//! "fusion.92" = "538us"
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::Machine;
use crate::diag::{Diagnostic, Span};
use crate::units::{Bytes, BytesPerSec, FlopsPerSec, Nanos};

/// The version of calibration files; a reader refuses others.
pub const CALIBRATION_VERSION: i64 = 1;

/// What was measured for single instructions and opcodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Calibration {
    /// What the file calls itself; empty without one.
    pub name: String,
    /// By opcode or custom call target.
    pub opcodes: BTreeMap<String, Adjust>,
    /// By the instruction's name.
    pub instructions: BTreeMap<String, Adjust>,
}

/// A measured time, or a factor on a predicted one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Adjust {
    /// Each run takes this.
    Time(Nanos),
    /// Each run takes this many times the prediction.
    Factor(f64),
}

impl Calibration {
    /// Whether nothing is said of any instruction.
    pub fn is_empty(&self) -> bool {
        self.opcodes.is_empty() && self.instructions.is_empty()
    }
    /// What is said of an instruction: by its name, else by its custom call target, else by its opcode.
    pub fn of(&self, name: &str, target: Option<&str>, opcode: &str) -> Option<Adjust> {
        let by_target = || target.and_then(|t| self.opcodes.get(t));
        self.instructions.get(name).or_else(by_target).or_else(|| self.opcodes.get(opcode)).copied()
    }
}

/// Text or number, with its place.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Whole(i64),
    Real(f64),
}

type Words = BTreeMap<Spanned<String>, Spanned<Word>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Spanned<i64>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    rates: Words,
    #[serde(default)]
    latencies: Words,
    #[serde(default)]
    host: Words,
    #[serde(default)]
    opcodes: Words,
    #[serde(default)]
    instructions: Words,
}

/// Reads a calibration file and puts what it says over a machine. Errors carry codes `M04` (no TOML, or not of this form) and `M05` (a key or
/// value that means nothing, another version).
pub fn calibrate(mut machine: Machine, text: &str) -> Result<Machine, Vec<Diagnostic>> {
    let file: File = toml::from_str(text).map_err(|e| {
        // A place between two characters is shown at the next one.
        let place = e.span().unwrap_or(0..0);
        let at = Span::new(place.start, place.end.max(place.start + 1).min(text.len()).max(place.start));
        let message = e.message().lines().next().unwrap_or_default().to_string();
        vec![Diagnostic::error("M04", format!("the calibration file cannot be read: {message}")).at(at, "")]
    })?;
    let mut errors = Vec::new();
    if *file.version.get_ref() != CALIBRATION_VERSION {
        let said = format!("expected calibration version {CALIBRATION_VERSION}, found {}", file.version.get_ref());
        errors.push(Diagnostic::error("M05", said).at(span(&file.version), ""));
        return Err(errors);
    }
    let mut sections = Sections { machine: &mut machine, errors: &mut errors };
    sections.rates(&file.rates);
    sections.latencies(&file.latencies);
    sections.host(&file.host);
    let opcodes = sections.adjusts(&file.opcodes);
    let instructions = sections.adjusts(&file.instructions);
    machine.calibration = Calibration { name: file.name, opcodes, instructions };
    if errors.is_empty() { Ok(machine) } else { Err(errors) }
}

fn span<T>(of: &Spanned<T>) -> Span {
    Span::new(of.span().start, of.span().end)
}

impl Word {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Whole(n) => n.to_string(),
            Self::Real(n) => n.to_string(),
        }
    }
}

struct Sections<'a> {
    machine: &'a mut Machine,
    errors: &'a mut Vec<Diagnostic>,
}

impl Sections<'_> {
    fn unknown(&mut self, key: &Spanned<String>, expected: &[&str]) {
        let said = format!("unknown key `{}`: expected one of `{}`", key.get_ref(), expected.join("`, `"));
        self.errors.push(Diagnostic::error("M05", said).at(span(key), ""));
    }

    fn set<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self, word: &Spanned<Word>, to: impl FnOnce(&mut Machine) -> &mut T) {
        match word.get_ref().text().parse() {
            Ok(value) => *to(self.machine) = value,
            Err(e) => self.errors.push(Diagnostic::error("M05", e.to_string()).at(span(word), "")),
        }
    }

    fn rates(&mut self, words: &Words) {
        for (key, word) in words {
            type Rate = fn(&mut Machine) -> &mut BytesPerSec;
            type Peak = fn(&mut Machine) -> &mut FlopsPerSec;
            const RATES: [(&str, Rate); 7] = [
                ("hbm", |m| &mut m.hbm),
                ("h2d", |m| &mut m.h2d),
                ("d2h", |m| &mut m.d2h),
                ("both_ways", |m| &mut m.both_ways),
                ("host_dram", |m| &mut m.host.node_dram),
                ("bus", |m| &mut m.fabric.bus),
                ("network", |m| &mut m.fabric.network),
            ];
            const PEAKS: [(&str, Peak); 7] = [
                ("matmul_f64", |m| &mut m.matrix.f64),
                ("matmul_f32", |m| &mut m.matrix.f32),
                ("matmul_f16", |m| &mut m.matrix.f16),
                ("matmul_f8", |m| &mut m.matrix.f8),
                ("matmul_f4", |m| &mut m.matrix.f4),
                ("matmul_int8", |m| &mut m.matrix.int8),
                ("vector_f32", |m| &mut m.vector.f32),
            ];
            let name = key.get_ref().as_str();
            if let Some((_, to)) = RATES.iter().find(|r| r.0 == name) {
                self.set(word, *to);
            } else if let Some((_, to)) = PEAKS.iter().find(|r| r.0 == name) {
                self.set(word, *to);
            } else {
                let names: Vec<&str> = RATES.iter().map(|r| r.0).chain(PEAKS.iter().map(|r| r.0)).collect();
                self.unknown(key, &names);
            }
        }
    }

    fn latencies(&mut self, words: &Words) {
        for (key, word) in words {
            match key.get_ref().as_str() {
                "copy" => self.set(word, |m| &mut m.copy_latency),
                "launch" => self.set(word, |m| &mut m.launch_latency),
                "collective" => self.set(word, |m| &mut m.fabric.latency),
                "hop" => self.set(word, |m| &mut m.fabric.hop),
                "network_hop" => self.set(word, |m| &mut m.fabric.network_hop),
                _ => self.unknown(key, &["copy", "launch", "collective", "hop", "network_hop"]),
            }
        }
    }

    fn host(&mut self, words: &Words) {
        for (key, word) in words {
            match key.get_ref().as_str() {
                "pinned" => self.set(word, |m: &mut Machine| -> &mut Bytes { &mut m.host.pinned }),
                "numa_nodes" => self.count(word, |m| &mut m.host.numa_nodes),
                "gpus_per_node" => self.count(word, |m| &mut m.host.gpus_per_node),
                _ => self.unknown(key, &["numa_nodes", "gpus_per_node", "pinned"]),
            }
        }
    }

    fn count(&mut self, word: &Spanned<Word>, to: fn(&mut Machine) -> &mut u32) {
        match word.get_ref() {
            Word::Whole(n @ 1..=1024) => *to(self.machine) = u32::try_from(*n).expect("it is at most 1024"),
            other => {
                let said = format!("expected a count from 1 to 1024, found `{}`", other.text());
                self.errors.push(Diagnostic::error("M05", said).at(span(word), ""));
            }
        }
    }

    fn adjusts(&mut self, words: &Words) -> BTreeMap<String, Adjust> {
        let mut out = BTreeMap::new();
        for (key, word) in words {
            match adjust(&word.get_ref().text()) {
                Some(adjust) => {
                    out.insert(key.get_ref().clone(), adjust);
                }
                None => {
                    let said =
                        format!("expected a duration such as `120us` or a factor such as `1.05x`, found `{}`", word.get_ref().text());
                    self.errors.push(Diagnostic::error("M05", said).at(span(word), ""));
                }
            }
        }
        out
    }
}

fn adjust(text: &str) -> Option<Adjust> {
    match text.trim().strip_suffix('x') {
        Some(factor) => factor.trim().parse().ok().filter(|f: &f64| f.is_finite() && (0.0..=1e6).contains(f)).map(Adjust::Factor),
        None => text.parse().ok().map(Adjust::Time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::preset;

    fn read(text: &str) -> Result<Machine, Vec<Diagnostic>> {
        calibrate(preset("h100-sxm").unwrap(), text)
    }

    #[test]
    fn what_is_said_replaces_what_was() {
        let machine = read(
            "version = 1\n[rates]\nhbm = \"3TB/s\"\nh2d = 52\nmatmul_f16 = 700\n[latencies]\nlaunch = \"0\"\n[host]\ngpus_per_node = 8\n\
             [opcodes]\nsort = \"120us\"\n\"__cublas$gemm\" = \"1.1x\"\n[instructions]\n\"a.1\" = \"2 ms\"",
        )
        .unwrap();
        assert_eq!((machine.hbm, machine.h2d), (BytesPerSec::gb(3000.0), BytesPerSec::gb(52.0)));
        assert_eq!((machine.matrix.f16, machine.launch_latency), (FlopsPerSec::tera(700.0), Nanos::ZERO));
        let said = |name, target, opcode| machine.calibration.of(name, target, opcode);
        assert_eq!(said("a.1", None, "sort"), Some(Adjust::Time(Nanos(2_000_000))));
        assert_eq!(said("b", None, "sort"), Some(Adjust::Time(Nanos(120_000))));
        assert_eq!(said("b", Some("__cublas$gemm"), "custom-call"), Some(Adjust::Factor(1.1)));
        assert_eq!(said("b", None, "copy"), None);
    }

    #[test]
    fn all_slips_are_told_with_their_places() {
        let errors =
            read("version = 1\n[rates]\nhmb = \"3TB/s\"\nh2d = \"fast\"\n[host]\ngpus_per_node = 0\n[opcodes]\nsort = \"x\"").unwrap_err();
        let said: Vec<&str> = errors.iter().map(|d| d.message.as_str()).collect();
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said.iter().any(|s| s.starts_with("unknown key `hmb`")));
        assert!(errors.iter().all(|d| d.code == "M05" && !d.labels.is_empty()));
        assert_eq!(read("version = 2").unwrap_err()[0].code, "M05");
        for text in ["", "version = ", "version = 1\nrates = 3", "version = 1\nspeed = 3", "version = \"one\""] {
            assert_eq!(read(text).unwrap_err()[0].code, "M04", "{text}");
        }
    }
}
