//! The summary of a rewrite: before, after, floor, what moves, every decision with its reason.

use std::fmt::Write as _;

use offc::analysis::Memory;
use offc::driver::{Figures, RewriteOptions, Rewritten, XlaRemat};
use offc::plan::{Decision, Residence};
use offc::units::{Bytes, Nanos};
use serde::Serialize;

use crate::outcome::Failure;
use crate::terminal::Style;

/// What was done, in figures.
#[derive(Serialize)]
pub struct Summary<'r> {
    schema_version: u32,
    module: &'r str,
    device: &'r str,
    /// Device bytes that were asked for.
    budget: Bytes,
    before: Side,
    after: Side,
    /// The lowest device bytes that the same steps reach.
    floor: Option<Bytes>,
    /// Predicted step time after over before.
    slowdown: f64,
    transfers: Transfers,
    recomputes: Recomputes,
    /// What XLA's own rematerialization makes of the result.
    xla_remat: &'r XlaRemat,
    /// Whether any step changed the program.
    changed: bool,
    /// What the steps tell that changed it, in order.
    log: Vec<String>,
    decisions: &'r [Decision],
}

#[derive(Serialize)]
struct Side {
    device: Bytes,
    host: Bytes,
    step_ns: Nanos,
    copy_wait_ns: Nanos,
    memory: Memory,
}

#[derive(Serialize)]
struct Transfers {
    out: usize,
    back: usize,
    /// Over the whole step, loops included.
    out_bytes: Bytes,
    back_bytes: Bytes,
}

#[derive(Serialize)]
struct Recomputes {
    values: usize,
    instructions: usize,
    /// Bytes of the values that are computed again.
    bytes: Bytes,
}

impl From<&Figures> for Side {
    fn from(figures: &Figures) -> Self {
        Self {
            device: figures.device(),
            host: Bytes(figures.memory.host_bytes()),
            step_ns: figures.step,
            copy_wait_ns: figures.copy_wait,
            memory: figures.memory,
        }
    }
}

impl<'r> Summary<'r> {
    /// Collects the figures.
    pub fn of(options: &'r RewriteOptions, rewritten: &'r Rewritten, floor: Option<Bytes>) -> Self {
        let (before, after) = (&rewritten.before, &rewritten.after);
        let mut transfers = Transfers { out: 0, back: 0, out_bytes: after.to_host, back_bytes: after.from_host };
        let mut recomputes = Recomputes { values: 0, instructions: 0, bytes: Bytes::ZERO };
        for decision in &rewritten.plan.decisions {
            match &decision.residence {
                Residence::Host { send, .. } => {
                    transfers.out += usize::from(send.is_some());
                    transfers.back += 1;
                }
                Residence::Recomputed { chain } => {
                    recomputes.values += 1;
                    recomputes.instructions += chain.len();
                    recomputes.bytes += Bytes(decision.bytes);
                }
            }
        }
        Self {
            schema_version: 1,
            module: &rewritten.module.name,
            device: &options.machine.name,
            budget: options.memory,
            before: before.into(),
            after: after.into(),
            floor,
            slowdown: if before.step.is_zero() { 1.0 } else { after.step.ratio(before.step) },
            transfers,
            recomputes,
            xla_remat: &rewritten.xla,
            changed: rewritten.log.entries.iter().any(|e| e.changed),
            log: rewritten.log.entries.iter().filter(|e| e.changed).map(|e| format!("{}: {}", e.pass, e.text)).collect(),
            decisions: &rewritten.plan.decisions,
        }
    }

    /// For programs.
    pub fn json(&self) -> Result<String, Failure> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Failure::Broken(format!("a summary does not become JSON: {e}")))?;
        Ok(text + "\n")
    }

    /// For people, with the `top` largest decisions; 0 means all.
    pub fn text(&self, top: usize, style: Style) -> String {
        let mut out = String::new();
        self.write(&mut out, if top == 0 { usize::MAX } else { top }, style).expect("a string takes all");
        out
    }

    fn write(&self, out: &mut String, top: usize, style: Style) -> std::fmt::Result {
        writeln!(out, "{} on {}, {} of device memory wanted", style.bold(self.module), self.device, self.budget)?;
        writeln!(out, "\n{:8}{:>11}{:>11}{:>18}", "", "device", "host", "predicted step")?;
        for (name, side) in [("before", &self.before), ("after", &self.after)] {
            let [device, host] = [side.device, side.host].map(|b| b.to_string());
            writeln!(out, "{name:8}{device:>11}{host:>11}{:>18}", side.step_ns.to_string())?;
        }
        if let Some(floor) = self.floor {
            writeln!(out, "{:8}{:>11}             lowest peak these steps find", "floor", floor.to_string())?;
        }
        if self.before.device <= self.budget && self.decisions.is_empty() && !self.changed {
            writeln!(out, "\nit fits as it is: nothing was changed")?;
            return self.write_xla(out);
        }
        writeln!(out)?;
        for line in &self.log {
            writeln!(out, "{line}")?;
        }
        let Transfers { out: sent, back, out_bytes, back_bytes } = self.transfers;
        let slower = (self.slowdown - 1.0) * 100.0;
        let wait = self.after.copy_wait_ns - self.before.copy_wait_ns;
        writeln!(out, "transfers   {sent} out ({out_bytes}), {back} back ({back_bytes})")?;
        writeln!(
            out,
            "recomputes  {} values ({}) by {} instructions",
            self.recomputes.values, self.recomputes.bytes, self.recomputes.instructions
        )?;
        writeln!(out, "slowdown    {slower:+.2} % predicted, of it waiting for copies {wait}")?;
        self.write_xla(out)?;
        if self.decisions.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{} decisions, the largest first:", self.decisions.len())?;
        let mut largest: Vec<&Decision> = self.decisions.iter().collect();
        largest.sort_by_key(|d| std::cmp::Reverse(d.bytes));
        let (shown, rest) = largest.split_at(largest.len().min(top));
        let names = shown.iter().map(|d| value(d).chars().count()).max().unwrap_or(0).min(36);
        for decision in shown {
            let what = match decision.residence {
                Residence::Host { .. } => "offload",
                Residence::Recomputed { .. } => "recompute",
            };
            writeln!(out, "  {:>10}  {what:9}  {:names$}  {}", Bytes(decision.bytes).to_string(), value(decision), decision.reason)?;
        }
        if !rest.is_empty() {
            let bytes: Bytes = rest.iter().map(|d| Bytes(d.bytes)).sum();
            writeln!(out, "  and {} smaller, {bytes} together; `--plan-out FILE.json` saves all", rest.len())?;
        }
        Ok(())
    }
}

impl Summary<'_> {
    /// What XLA's own rematerialization does, where it does anything or had to be heeded.
    fn write_xla(&self, out: &mut String) -> std::fmt::Result {
        let XlaRemat { memory, limit, tracker, acts, binding, slop_factor, .. } = self.xla_remat;
        let (Some(memory), Some(limit)) = (memory, limit) else { return Ok(()) };
        if !acts && !binding {
            return Ok(());
        }
        writeln!(out, "xla         its own rematerialization counts {tracker} (host memory too) and allows {limit} on a GPU of {memory}:")?;
        if *binding {
            return writeln!(
                out,
                "            the plan is tighter for it; XLA_FLAGS=--xla_gpu_memory_limit_slop_factor=1000 and `--xla-limit none` lift that"
            );
        }
        writeln!(out, "            it will act and compute more again as it sees fit")?;
        match slop_factor {
            Some(n) => writeln!(out, "            XLA_FLAGS=--xla_gpu_memory_limit_slop_factor={n} makes it leave the program alone"),
            None => writeln!(out, "            XLA_FLAGS=--xla_disable_hlo_passes=rematerialization makes it leave the program alone"),
        }
    }
}

fn value(decision: &Decision) -> String {
    match decision.value.output {
        Some(output) => format!("{}{{{output}}}", decision.value.instr),
        None => decision.value.instr.clone(),
    }
}
