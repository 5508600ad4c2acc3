//! A rewrite's summary as a person reads it.

use std::fmt::Write as _;

use offc::driver::{Summary, Transfers, XlaRemat};
use offc::plan::{Decision, Residence};
use offc::units::Bytes;

use crate::outcome::Failure;
use crate::terminal::Style;

/// For programs.
pub fn json(summary: &Summary<'_>) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(summary).map_err(|e| Failure::Broken(format!("a summary does not become JSON: {e}")))?;
    Ok(text + "\n")
}

/// For people, with the `top` largest decisions; 0 means all.
pub fn text(summary: &Summary<'_>, top: usize, style: Style) -> String {
    let mut out = String::new();
    write(summary, &mut out, if top == 0 { usize::MAX } else { top }, style).expect("a string takes all");
    out
}

fn write(summary: &Summary<'_>, out: &mut String, top: usize, style: Style) -> std::fmt::Result {
    writeln!(out, "{} on {}, {} of device memory wanted", style.bold(summary.module), summary.device, summary.budget)?;
    writeln!(out, "\n{:8}{:>11}{:>11}{:>18}", "", "device", "host", "predicted step")?;
    for (name, side) in [("before", &summary.before), ("after", &summary.after)] {
        let [device, host] = [side.device, side.host].map(|b| b.to_string());
        writeln!(out, "{name:8}{device:>11}{host:>11}{:>18}", side.step_ns.to_string())?;
    }
    if let Some(floor) = summary.floor {
        writeln!(out, "{:8}{:>11}             lowest peak these steps find", "floor", floor.to_string())?;
    }
    if summary.before.device <= summary.budget && summary.decisions.is_empty() && !summary.changed {
        writeln!(out, "\nit fits as it is: nothing was changed")?;
        return write_xla(summary.xla_remat, out);
    }
    writeln!(out)?;
    for line in &summary.log {
        writeln!(out, "{line}")?;
    }
    let Transfers { out: sent, back, out_bytes, back_bytes } = summary.transfers;
    let slower = (summary.slowdown - 1.0) * 100.0;
    let wait = summary.after.copy_wait_ns - summary.before.copy_wait_ns;
    writeln!(out, "transfers   {sent} out ({out_bytes}), {back} back ({back_bytes})")?;
    writeln!(
        out,
        "recomputes  {} values ({}) by {} instructions",
        summary.recomputes.values, summary.recomputes.bytes, summary.recomputes.instructions
    )?;
    writeln!(out, "slowdown    {slower:+.2} % predicted, of it waiting for copies {wait}")?;
    write_xla(summary.xla_remat, out)?;
    if summary.decisions.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{} decisions, the largest first:", summary.decisions.len())?;
    let mut largest: Vec<&Decision> = summary.decisions.iter().collect();
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

/// What XLA's own rematerialization does, where it does anything or had to be heeded.
fn write_xla(xla: &XlaRemat, out: &mut String) -> std::fmt::Result {
    let XlaRemat { memory, limit, tracker, acts, binding, slop_factor, .. } = xla;
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

fn value(decision: &Decision) -> String {
    match decision.value.output {
        Some(output) => format!("{}{{{output}}}", decision.value.instr),
        None => decision.value.instr.clone(),
    }
}
