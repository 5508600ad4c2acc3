//! What a step takes, and where its time goes.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::table::{clip, percent, wrap};
use crate::ir::{InstrId, Module, Op};
use crate::sim::{Lane, Note, Timeline};
use crate::units::{Bytes, Nanos};

/// The report of `offc simulate`. Times are in nanoseconds where they say `_ns`, microseconds where `_us`; sizes in bytes where they say so.
#[derive(Clone, Debug, Serialize)]
pub struct SimReport {
    /// Version of the JSON form.
    pub schema_version: u32,
    /// The module's name.
    pub module: String,
    /// The machine's name.
    pub device: String,
    /// What the calibration calls itself, if there is one.
    pub calibration: Option<String>,
    /// The step.
    pub step_us: f64,
    /// Kernels.
    pub compute_us: f64,
    /// Waiting for copies.
    pub copy_wait_us: f64,
    /// Waiting for collectives.
    pub coll_wait_us: f64,
    /// Bytes to the host, in 10⁹.
    pub d2h_gb: f64,
    /// Bytes from the host, in 10⁹.
    pub h2d_gb: f64,
    /// The step.
    pub step_ns: u64,
    /// After the last kernel, until copies and collectives have ended.
    pub tail_ns: u64,
    /// Bytes to the host.
    pub to_host_bytes: u64,
    /// Bytes from the host.
    pub from_host_bytes: u64,
    /// Bytes copied within device memory.
    pub on_device_bytes: u64,
    /// The part of host copies' time that is hidden behind kernels; `null` without such copies.
    pub overlap: Option<f64>,
    /// Each lane with its work and what is waited for it.
    pub lanes: Vec<LaneRow>,
    /// Time of kernels by how their prices are known.
    pub kernel_ns_by_price: BTreeMap<&'static str, u64>,
    /// Loops that ran.
    pub loops: Vec<LoopRow>,
    /// Where the compute stream waits, longest first.
    pub stalls: Vec<StallRow>,
    /// Custom calls whose price is a guess.
    pub unpriced: Vec<Unpriced>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Every instruction that takes time: its first run and its run in the steady state of its loop.
    pub instructions: Vec<InstrRow>,
}

/// One lane.
#[derive(Clone, Debug, Serialize)]
pub struct LaneRow {
    /// Its name.
    pub lane: &'static str,
    /// How long it works.
    pub busy_ns: u64,
    /// How long the compute stream waits for it.
    pub wait_ns: u64,
}

/// One loop.
#[derive(Clone, Debug, Serialize)]
pub struct LoopRow {
    /// The `while`.
    pub name: String,
    /// How often its body runs.
    pub trips: u64,
    /// How that is known.
    pub how: &'static str,
}

/// One place where the compute stream waits.
#[derive(Clone, Debug, Serialize)]
pub struct StallRow {
    /// The instruction that waits.
    pub at: String,
    /// The lane that it waits for.
    pub lane: &'static str,
    /// How long, all runs together.
    pub total_ns: u64,
    /// The framework's name.
    pub op_name: String,
}

/// One custom call whose price is a guess.
#[derive(Clone, Debug, Serialize)]
pub struct Unpriced {
    /// The instruction.
    pub name: String,
    /// Its target or opcode.
    pub target: String,
}

/// One instruction.
#[derive(Clone, Debug, Serialize)]
pub struct InstrRow {
    /// Its name.
    pub name: String,
    /// Begin and end of its first run.
    pub first_ns: (u64, u64),
    /// Begin and end in the steady state.
    pub steady_ns: (u64, u64),
}

impl SimReport {
    /// Makes the report. `device` and `calibration` are only told. `host` are the bytes of pinned memory that the program takes and may take,
    /// with the name of what limits them.
    pub fn of(module: &Module, timeline: &Timeline, device: &str, calibration: Option<&str>, host: (u64, u64, &str)) -> Self {
        let name = |id: InstrId| module.instr(id).name.to_string();
        let op_name = |id: InstrId| module.instr(id).attrs.metadata.as_ref().map_or_else(String::new, |m| m.op_name.to_string());
        let lanes = std::iter::once(Lane::Compute).chain(Lane::BESIDE);
        let lanes = lanes.map(|l| LaneRow { lane: l.name(), busy_ns: timeline.busy(l).get(), wait_ns: timeline.wait(l).get() });
        let mut stalls: Vec<StallRow> = timeline
            .stalls
            .iter()
            .map(|s| StallRow { at: name(s.at), lane: s.on.name(), total_ns: s.total.get(), op_name: op_name(s.at) })
            .collect();
        stalls.sort_by_key(|s| std::cmp::Reverse(s.total_ns));
        let target = |id: InstrId| match &module.instr(id).op {
            Op::CustomCall(call) => call.target.to_string(),
            op => op.opcode().to_string(),
        };
        let unpriced = timeline.notes.iter().filter_map(|n| match n {
            Note::Unpriced(id) => Some(Unpriced { name: name(*id), target: target(*id) }),
            Note::AssumedTrips(_) | Note::TooDeep => None,
        });
        let instructions = module.live().filter_map(|(_, id)| {
            let (first, steady) = (timeline.first(id)?, timeline.steady(id)?);
            let pair = |s: crate::sim::Span| (s.begin.get(), s.end.get());
            Some(InstrRow { name: name(id), first_ns: pair(first), steady_ns: pair(steady) })
        });
        let loops = timeline.loops.iter().map(|l| LoopRow { name: name(l.instr), trips: l.trips, how: l.how() });
        let (needs, may, limit) = host;
        let mut notes = notes(module, timeline);
        if needs > may {
            notes.push(format!("the program takes {} of pinned host memory and may take {}: raise {limit}", Bytes(needs), Bytes(may)));
        }
        Self {
            schema_version: 1,
            module: module.name.to_string(),
            device: device.to_string(),
            calibration: calibration.map(str::to_string),
            step_us: timeline.step.micros(),
            compute_us: timeline.compute.micros(),
            copy_wait_us: timeline.copy_wait.micros(),
            coll_wait_us: timeline.collective_wait.micros(),
            d2h_gb: timeline.to_host.as_f64() / 1e9,
            h2d_gb: timeline.from_host.as_f64() / 1e9,
            step_ns: timeline.step.get(),
            tail_ns: timeline.tail.get(),
            to_host_bytes: timeline.to_host.get(),
            from_host_bytes: timeline.from_host.get(),
            on_device_bytes: timeline.on_device.get(),
            overlap: timeline.overlap(),
            lanes: lanes.collect(),
            kernel_ns_by_price: timeline.sources().map(|(name, time)| (name, time.get())).collect(),
            loops: loops.collect(),
            stalls,
            unpriced: unpriced.collect(),
            notes,
            instructions: instructions.collect(),
        }
    }
}

/// Sentences about assumptions; of unpriced calls the targets with their numbers.
fn notes(module: &Module, timeline: &Timeline) -> Vec<String> {
    let mut out = Vec::new();
    let mut targets: BTreeMap<&str, usize> = BTreeMap::new();
    for note in &timeline.notes {
        match note {
            Note::AssumedTrips(id) => {
                let name = &module.instr(*id).name;
                out.push(format!("nothing tells how often the loop `{name}` runs: once is assumed; say --trips {name}=N if you know"));
            }
            Note::Unpriced(id) => match &module.instr(*id).op {
                Op::CustomCall(call) => *targets.entry(&call.target).or_insert(0) += 1,
                op => *targets.entry(op.opcode()).or_insert(0) += 1,
            },
            Note::TooDeep => out.push("computations nest deeper than 100: the innermost are taken to cost nothing".to_string()),
        }
    }
    let of_target = |(target, n): (&str, usize)| {
        format!("{n} of `{target}` cannot be priced: bytes over the rate of memory are taken; a calibration file can say more")
    };
    out.extend(targets.into_iter().map(of_target));
    out
}

/// Rows of the text.
const TOP: usize = 10;

impl fmt::Display for SimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = |n: u64| Nanos(n).to_string();
        writeln!(f, "{}: a step takes {} on {}", self.module, ns(self.step_ns), self.device)?;
        if let Some(name) = &self.calibration {
            writeln!(f, "  calibrated by `{name}`")?;
        }
        let row = |f: &mut fmt::Formatter<'_>, what: &str, time: u64| {
            writeln!(f, "  {what:32}{:>11}  {:>7}", ns(time), percent(time, self.step_ns))
        };
        row(f, "kernels", self.lanes[0].busy_ns)?;
        for lane in self.lanes.iter().skip(1).filter(|l| l.wait_ns > 0) {
            row(f, &format!("waiting for {}", waited(lane.lane)), lane.wait_ns)?;
        }
        if self.tail_ns > 0 {
            row(f, "after the last kernel", self.tail_ns)?;
        }
        let bytes = |lane: &str| match lane {
            "to host" => Some(self.to_host_bytes),
            "from host" => Some(self.from_host_bytes),
            "on device" => Some(self.on_device_bytes),
            _ => None,
        };
        let working: Vec<&LaneRow> = self.lanes.iter().skip(1).filter(|l| l.busy_ns > 0).collect();
        if !working.is_empty() {
            writeln!(f, "\n  {:14}{:>11}  {:>11}  {:>11}", "beside", "busy", "waited for", "bytes")?;
        }
        for lane in working {
            let bytes = bytes(lane.lane).map_or_else(String::new, |b| Bytes(b).to_string());
            let line = format!("  {:14}{:>11}  {:>11}  {bytes:>11}", lane.lane, ns(lane.busy_ns), ns(lane.wait_ns));
            writeln!(f, "{}", line.trim_end())?;
        }
        if let Some(overlap) = self.overlap {
            writeln!(f, "  {:.1} % of the time of host copies is hidden", overlap * 100.0)?;
        }
        if !self.stalls.is_empty() {
            writeln!(f, "\n  longest waits, all runs together")?;
        }
        for stall in self.stalls.iter().take(TOP) {
            let line = format!("  {:>11}  {:14}{:32}  {}", ns(stall.total_ns), stall.lane, clip(&stall.at, 32), clip(&stall.op_name, 37));
            writeln!(f, "{}", line.trim_end())?;
        }
        if let Some(rest) = self.stalls.get(TOP..).filter(|rest| !rest.is_empty()) {
            writeln!(f, "  {:>11}  in {} shorter ones", ns(rest.iter().map(|s| s.total_ns).sum()), rest.len())?;
        }
        if !self.loops.is_empty() {
            writeln!(f, "\n  loops")?;
        }
        for l in self.loops.iter().take(TOP) {
            writeln!(f, "  {:>11}  {}, {}", format!("{} x", l.trips), clip(&l.name, 40), l.how)?;
        }
        if self.loops.len() > TOP {
            writeln!(f, "  and {} more", self.loops.len() - TOP)?;
        }
        let known = self.kernel_ns_by_price.iter().filter(|(_, ns)| **ns > 0);
        let known: Vec<String> = known.map(|(name, time)| format!("{name} {}", percent(*time, self.lanes[0].busy_ns))).collect();
        if !known.is_empty() {
            writeln!(f, "\n  prices of kernels: {}", known.join(", "))?;
        }
        for note in &self.notes {
            writeln!(f, "{}", wrap(&format!("  note: {note}"), 8))?;
        }
        Ok(())
    }
}

fn waited(lane: &str) -> &str {
    match lane {
        "to host" => "copies to host",
        "from host" => "copies from host",
        "on device" => "copies on device",
        "other stream" => "another stream",
        _ => lane,
    }
}
