//! Kernels as text, and a module's worth of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::emit::{Access, Emitter, Memory};
use super::product::Product;

/// What comes before all kernels: exact conversions and arithmetic.
pub const PRELUDE: &str = concat!(include_str!("prelude.cu"), include_str!("complex.cu"));

/// One kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name; equal kernels have equal names.
    pub name: String,
    /// Its text.
    pub source: String,
    /// Whether its threads wait for each other.
    pub sync: bool,
    /// Whether its results may differ from a correct machine to the next: it calls functions that no standard rounds, or sums in an order
    /// that is not the reference's.
    pub inexact: bool,
}

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub kernel: String,
    /// Blocks.
    pub grid: u32,
    /// Threads a block.
    pub block: u32,
    /// What its arguments point to.
    pub args: Vec<Memory>,
    /// The matrix product that it is, if a library can compute it.
    pub product: Option<Product<Memory>>,
}

/// A kernel that was just written.
pub struct Written {
    kind: &'static str,
    text: String,
    memory: Vec<(Memory, &'static str)>,
    tables: Vec<String>,
    inexact: bool,
    /// What it reads.
    pub reads: Vec<Access>,
    /// What it writes: memory, offset, bytes of an element.
    pub writes: Vec<(Memory, String, usize)>,
}

impl Written {
    /// Takes what an emitter collected.
    pub fn of(emitter: Emitter<'_, '_>, kind: &'static str, text: String, writes: Vec<(Memory, String, usize)>) -> Self {
        Self { kind, text, memory: emitter.memory, tables: emitter.tables, inexact: emitter.inexact, reads: emitter.reads, writes }
    }

    /// The kernel, and its arguments.
    pub fn kernel(&self, aliases: &[(usize, usize, bool)], block: u32, sync: bool) -> (Kernel, Vec<Memory>) {
        let writes = |memory: Memory| self.writes.iter().any(|w| w.0 == memory);
        let used = |memory: Memory| self.memory.iter().any(|m| m.0 == memory);
        let shared = |memory: Memory| {
            // Two views of one memory, or memory that another argument lies in.
            self.memory.iter().filter(|m| m.0 == memory).count() > 1
                || aliases.iter().any(|&(p, o, _)| {
                    let (p, o) = (Memory::Param(p), Memory::Out(o));
                    (memory == p && used(o)) || (memory == o && used(p))
                })
        };
        let args: Vec<String> = self
            .memory
            .iter()
            .enumerate()
            .map(|(i, &(memory, storage))| {
                let constant = if writes(memory) { "" } else { "const " };
                let restrict = if shared(memory) { "" } else { " __restrict__" };
                format!("{constant}{storage}*{restrict} m{i}")
            })
            .collect();
        let mut body = format!("void __launch_bounds__({block}) NAME({}) {{\n", args.join(", "));
        for table in &self.tables {
            let _ = writeln!(body, "  static {table}");
        }
        body += &self.text;
        body += "}\n";
        let name = format!("{}_{:016x}", self.kind, fnv(&body));
        let source = format!("extern \"C\" __global__ {}", body.replacen("NAME", &name, 1));
        (Kernel { name, source, sync, inexact: self.inexact }, self.memory.iter().map(|m| m.0).collect())
    }
}

/// FNV-1a, 64 bits.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Kernels by their names, each once.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The kernels.
    pub kernels: BTreeMap<String, Kernel>,
}

impl Source {
    /// Takes kernels in.
    pub fn add(&mut self, kernels: impl IntoIterator<Item = Kernel>) {
        for kernel in kernels {
            self.kernels.entry(kernel.name.clone()).or_insert(kernel);
        }
    }
    /// The text of all kernels, the prelude first: CUDA C without include files.
    pub fn text(&self) -> String {
        let mut out = PRELUDE.to_string();
        for kernel in self.kernels.values() {
            out.push('\n');
            out += &kernel.source;
        }
        out
    }
}
