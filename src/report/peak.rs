//! What a step needs of memory, and what is alive when it needs most.

use std::fmt;

use serde::Serialize;

use crate::analysis::memory::{Alive, Memory, alive_at};
use crate::analysis::settle::settle;
use crate::analysis::{Analyses, BufferKind, Time};
use crate::ir::{ArrayShape, DEVICE, InstrId, Module, Shape};
use crate::units::Bytes;

/// The report of `offc peak`.
#[derive(Clone, Debug, Serialize)]
pub struct PeakReport {
    /// Version of the JSON form.
    pub schema_version: u32,
    /// The module's name.
    pub module: String,
    /// Whether the module is scheduled; if not, the order of its instructions stands in for a schedule.
    pub scheduled: bool,
    /// XLA's figures.
    #[serde(flatten)]
    pub memory: Memory,
    /// Argument + output − alias + temp: what a budget is compared with.
    pub device: u64,
    /// The same of pinned host memory, without the alias (XLA does not tell it).
    pub host: u64,
    /// The instruction that runs when most device memory is in use; `None` if nothing runs.
    pub at: Option<String>,
    /// Where it stands on the clock, from 0, and how many instants there are.
    pub instant: (usize, usize),
    /// Bytes of the buffers in `alive`.
    pub alive_bytes: u64,
    /// Device buffers alive at that instant, largest first, then in program order.
    pub alive: Vec<Holder>,
}

/// One device buffer alive at the peak.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// The instruction that makes its first value; `{i}` tells the element of a tuple.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Whose it is.
    pub kind: HolderKind,
    /// The shape of its first value, without layout.
    pub shape: String,
    /// The framework's name of the instruction; may be empty.
    pub op_name: String,
    /// First and last instant at which it is alive.
    pub live: (Time, Time),
}

/// Whose a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HolderKind {
    /// An entry parameter: the caller holds it for the whole step.
    Argument,
    /// A part of the result.
    Output,
    /// Part of the program.
    Constant,
    /// A temporary.
    Temp,
}

impl PeakReport {
    /// Looks at a module as XLA settles it. Costs what the buffer assignment costs, and O(buffers · log) to sort.
    pub fn of(analyses: &Analyses<'_>) -> Self {
        match settle(analyses.module()) {
            Some(settled) => Self::of_settled(&Analyses::new(&settled)),
            None => Self::of_settled(analyses),
        }
    }

    fn of_settled(analyses: &Analyses<'_>) -> Self {
        let module = analyses.module();
        let memory = *analyses.memory();
        let (instant, _) = analyses.curve(DEVICE).peak();
        let schedule = analyses.schedule();
        let time = Time::try_from(instant).expect("the clock counts in this type");
        let held: Vec<Holder> = alive_at(analyses, DEVICE, time).iter().map(|a| holder(analyses, *a)).collect();
        Self {
            schema_version: 1,
            module: module.name.to_string(),
            scheduled: schedule.is_scheduled,
            memory,
            device: memory.device_bytes(),
            host: memory.host_bytes(),
            at: schedule.sequence.get(instant).map(|&id| module.instr(id).name.to_string()),
            instant: (instant, schedule.end() as usize),
            alive_bytes: held.iter().map(|h| h.bytes).sum(),
            alive: held,
        }
    }

    /// The report as text with at most `top` buffers; 0 means all.
    pub fn text(&self, top: usize) -> String {
        Text { report: self, top: if top == 0 { usize::MAX } else { top } }.to_string()
    }
}

fn holder(analyses: &Analyses<'_>, alive: Alive) -> Holder {
    let (module, values) = (analyses.module(), analyses.values());
    let buffer = analyses.buffers().get(alive.buffer);
    let first = values.get(alive.value);
    let instr = module.instr(first.instr);
    // A loop's parameter has no name of its own; what it is merged with has one.
    let named = |id: InstrId| module.instr(id).attrs.metadata.as_ref().map(|m| m.op_name.to_string()).filter(|name| !name.is_empty());
    let aliases = || buffer.values.iter().find_map(|&v| named(values.get(v).instr));
    let op_name = named(first.instr).or_else(aliases).unwrap_or_default();
    let kind = match buffer.kind {
        BufferKind::Parameter { .. } => HolderKind::Argument,
        BufferKind::Constant => HolderKind::Constant,
        _ if buffer.live_out => HolderKind::Output,
        BufferKind::Tuple | BufferKind::Plain => HolderKind::Temp,
    };
    Holder {
        name: place(module, first.instr, &values.positions.path(module, instr.shape, first.position)),
        bytes: alive.bytes,
        kind,
        shape: shape(module.shapes.get(first.shape)),
        op_name,
        live: buffer.live,
    }
}

fn place(module: &Module, id: InstrId, path: &[i64]) -> String {
    let name = &module.instr(id).name;
    let path: Vec<String> = path.iter().map(i64::to_string).collect();
    if path.is_empty() { name.to_string() } else { format!("{name}{{{}}}", path.join(",")) }
}

fn shape(shape: &Shape) -> String {
    match shape {
        Shape::Array(ArrayShape { element, dims, .. }) => {
            let dims: Vec<String> = dims.iter().map(|d| d.size.to_string()).collect();
            format!("{}[{}]", element.name(), dims.join(","))
        }
        Shape::Tuple(_) => "tuple".to_string(),
        Shape::Token => "token".to_string(),
        Shape::Opaque => "opaque".to_string(),
        Shape::Buffer(_) => "buffer".to_string(),
    }
}

struct Text<'r> {
    report: &'r PeakReport,
    top: usize,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (r, m) = (self.report, &self.report.memory);
        writeln!(f, "{}: {} of device memory", r.module, Bytes(r.device))?;
        if !r.scheduled {
            writeln!(f, "not scheduled: the order of the instructions stands in for a schedule, which XLA will choose itself")?;
        }
        let mut row = |name, bytes: u64, note| writeln!(f, "  {name:14}{:>11}  {bytes:>15} bytes{note}", Bytes(bytes).to_string());
        row("argument", m.argument, "")?;
        row("output", m.output, "")?;
        row("alias", m.alias, "  outputs written over arguments")?;
        row("temp", m.temp, "")?;
        row("peak", m.peak, "  what XLA reports as peak: alive at once, without gaps")?;
        for (name, bytes) in [("host_argument", m.host_argument), ("host_output", m.host_output), ("host_temp", m.host_temp)] {
            row(name, bytes, "")?;
        }
        let Some(at) = &r.at else { return Ok(()) };
        let (instant, end) = r.instant;
        writeln!(
            f,
            "\nalive at the peak, while `{at}` runs (instant {instant} of {end}): {} buffers, {}",
            r.alive.len(),
            Bytes(r.alive_bytes)
        )?;
        let shown = &r.alive[..r.alive.len().min(self.top)];
        let wide = |text: fn(&Holder) -> &str| shown.iter().map(|h| text(h).chars().count()).max().unwrap_or(0).min(40);
        let (names, shapes) = (wide(|h| &h.name), wide(|h| &h.shape));
        for h in shown {
            let kind = match h.kind {
                HolderKind::Argument => "argument",
                HolderKind::Output => "output",
                HolderKind::Constant => "constant",
                HolderKind::Temp => "temp",
            };
            let line = format!("  {:>10}  {kind:8}  {:names$}  {:shapes$}  {}", Bytes(h.bytes).to_string(), h.name, h.shape, h.op_name);
            writeln!(f, "{}", clip(line.trim_end()))?;
        }
        if shown.len() < r.alive.len() {
            let rest = &r.alive[shown.len()..];
            writeln!(f, "  and {} smaller, {} together", rest.len(), Bytes(rest.iter().map(|h| h.bytes).sum()))?;
        }
        Ok(())
    }
}

/// Takes the middle out of what is wider than the terminal is taken to be: the end of an op name tells most.
fn clip(line: &str) -> String {
    const WIDTH: usize = 100;
    let length = line.chars().count();
    if length <= WIDTH {
        return line.to_string();
    }
    let at = line.rfind("  ").map_or(0, |i| line[..i].chars().count() + 2).min(WIDTH - 20);
    let head: String = line.chars().take(at).collect();
    let tail: String = line.chars().skip(length - (WIDTH - at - 1)).collect();
    format!("{head}…{tail}")
}
