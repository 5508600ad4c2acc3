//! What a run took: a trace for Perfetto, a calibration file, and the prediction beside the measurement.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use offc::cost::Prices;
use offc::interp::{Clock, Direction, Measured, Timed};
use offc::ir::{InstrId, Module};
use offc::machine::{CALIBRATION_VERSION, Machine};
use offc::sim::simulate;
use offc::units::Nanos;

use crate::files::Pending;
use crate::outcome::Failure;

/// The process's monotonic clock.
pub struct Monotonic(Instant);

impl Monotonic {
    /// Starts at zero.
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Monotonic {
    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Transfers below this many bytes say more of a copy's latency than of the link's rate.
const RATE_FROM: u64 = 1 << 20;
/// Lines of the list of the worst predictions.
const WORST: usize = 10;

/// The calibration file that belongs to a trace.
pub fn calibration_path(trace: &Path) -> PathBuf {
    trace.with_extension("toml")
}

/// Writes the trace and the calibration; gives what is to be told.
pub fn write(trace: &Path, module: &Module, timed: &[Timed], machine: &Machine, backend: &str) -> Result<String, Failure> {
    let calibration = calibration_path(trace);
    let name = format!("{} on {backend}", module.name);
    let files = [Pending::stream(trace, events(module, timed))?, Pending::write(&calibration, toml(&name, module, timed).into_bytes())?];
    for file in files {
        file.commit()?;
    }
    Ok(compared(module, timed, machine))
}

// ---- the trace

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text becomes JSON")
}

/// The thread of a measurement, and its name.
fn thread(what: Measured) -> (u32, &'static str) {
    match what {
        Measured::Compute | Measured::Wait => (1, "compute"),
        Measured::Transfer(Direction::ToHost) => (2, "to host"),
        Measured::Transfer(Direction::FromHost) => (3, "from host"),
    }
}

fn events<'a>(module: &'a Module, timed: &'a [Timed]) -> impl Iterator<Item = String> + 'a {
    let micros = |nanos: u64| format!("{}.{:03}", nanos / 1000, nanos % 1000);
    let head = format!(
        "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{{\"name\":{}}}}}",
        quoted(&module.name)
    );
    let threads = [Measured::Compute, Measured::Transfer(Direction::ToHost), Measured::Transfer(Direction::FromHost)].map(|what| {
        let (id, name) = thread(what);
        format!(",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{id},\"args\":{{\"name\":\"{name}\"}}}}")
    });
    let slices = timed.iter().map(move |t| {
        let instr = module.instr(t.instr);
        let name = if t.what == Measured::Wait { format!("wait at {}", instr.name) } else { instr.name.to_string() };
        let bytes = if t.bytes > 0 { format!(",\"bytes\":{}", t.bytes) } else { String::new() };
        format!(
            ",\n{{\"name\":{},\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":1,\"tid\":{},\"args\":{{\"opcode\":{}{bytes}}}}}",
            quoted(&name),
            micros(t.span.begin),
            micros(t.span.nanos()),
            thread(t.what).0,
            quoted(instr.op.opcode())
        )
    });
    std::iter::once(head).chain(threads).chain(slices).chain(std::iter::once("\n]}\n".to_string()))
}

// ---- the calibration

/// Each instruction's mean time, in the order of the program's names: its own work, not the wait for somebody else's.
fn means(module: &Module, timed: &[Timed]) -> BTreeMap<InstrId, u64> {
    let mut sums = BTreeMap::<InstrId, (u64, u64)>::new();
    for t in timed.iter().filter(|t| t.what != Measured::Wait && !module.instr(t.instr).name.is_empty()) {
        let (sum, runs) = sums.entry(t.instr).or_default();
        *sum = sum.saturating_add(t.span.nanos());
        *runs += 1;
    }
    sums.into_iter().map(|(id, (sum, runs))| (id, sum.div_ceil(runs))).collect()
}

fn toml(name: &str, module: &Module, timed: &[Timed]) -> String {
    let mut out =
        format!("# Written by `offc run --timing`; read by `--calibration`.\nversion = {CALIBRATION_VERSION}\nname = {}\n", quoted(name));
    let mut rates = String::new();
    for (key, direction) in [("h2d", Direction::FromHost), ("d2h", Direction::ToHost)] {
        let large = timed.iter().filter(|t| t.what == Measured::Transfer(direction) && t.bytes >= RATE_FROM);
        let (bytes, nanos) = large.fold((0u64, 0u64), |(b, n), t| (b + t.bytes, n + t.span.nanos()));
        if bytes > 0 && nanos > 0 {
            writeln!(rates, "{key} = {:.3}", bytes as f64 / nanos as f64).expect("a string takes all");
        }
    }
    if !rates.is_empty() {
        write!(out, "\n[rates]  # GB/s, of transfers of 1 MiB and more\n{rates}").expect("a string takes all");
    }
    out += "\n[instructions]\n";
    let mut lines: Vec<(&str, u64)> = means(module, timed).into_iter().map(|(id, mean)| (&*module.instr(id).name, mean)).collect();
    lines.sort_unstable();
    lines.dedup_by_key(|line| line.0);
    for (name, mean) in lines {
        writeln!(out, "{} = \"{mean}ns\"", quoted(name)).expect("a string takes all");
    }
    out
}

// ---- the comparison

/// Ranks from 0; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut out = vec![0.0; values.len()];
    for group in order.chunk_by(|&a, &b| values[a].total_cmp(&values[b]).is_eq()) {
        let first = order.iter().position(|i| *i == group[0]).unwrap_or(0);
        let rank = first as f64 + (group.len() - 1) as f64 / 2.0;
        group.iter().for_each(|&i| out[i] = rank);
    }
    out
}

/// Spearman's rank correlation; `None` of fewer than two pairs, or where one side is all alike.
fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (a, b) = (ranks(&a), ranks(&b));
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let scale = (product(&a, &a) * product(&b, &b)).sqrt();
    (scale > 0.0).then(|| product(&a, &b) / scale)
}

/// The prediction beside the measurement.
fn compared(module: &Module, timed: &[Timed], machine: &Machine) -> String {
    let timeline = simulate(module, machine, &Prices::new(module, machine));
    let means = means(module, timed);
    let both: Vec<(InstrId, f64, f64)> = means
        .iter()
        .filter_map(|(&id, &mean)| {
            let predicted = timeline.steady(id)?.time();
            (!predicted.is_zero() && mean > 0).then_some((id, predicted.get() as f64, mean as f64))
        })
        .collect();
    let total = timed.iter().map(|t| t.span.end).max().unwrap_or(0) - timed.iter().map(|t| t.span.begin).min().unwrap_or(0);
    let waits: u64 = timed.iter().filter(|t| t.what == Measured::Wait).map(|t| t.span.nanos()).sum();
    let mut out = format!(
        "measured: {} a step, {} of it waiting for transfers; predicted for {}: {}\n",
        Nanos(total),
        Nanos(waits),
        machine.name,
        timeline.step
    );
    let pairs: Vec<(f64, f64)> = both.iter().map(|&(_, p, m)| (p, m)).collect();
    let Some(correlation) = rank_correlation(&pairs) else { return out + "too few instructions to compare\n" };
    let mut ratios: Vec<f64> = pairs.iter().map(|(p, m)| m / p).collect();
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    writeln!(out, "{} instructions: rank correlation {correlation:.3}, measured / predicted {median:.3} at the median", pairs.len())
        .expect("a string takes all");
    let mut worst = both;
    let off = |p: f64, m: f64| (m / p / median).ln().abs();
    worst.sort_by(|a, b| off(b.1, b.2).total_cmp(&off(a.1, a.2)).then(a.0.cmp(&b.0)));
    writeln!(out, "farthest from the median:\n{:>12}  {:>12}  {:>9}  instruction", "predicted", "measured", "of median")
        .expect("a string takes all");
    for (id, p, m) in worst.into_iter().take(WORST) {
        let instr = module.instr(id);
        let (predicted, measured) = (Nanos(p as u64).to_string(), Nanos(m as u64).to_string());
        writeln!(out, "{predicted:>12}  {measured:>12}  {:>8.3}x  {} ({})", m / p / median, instr.name, instr.op.opcode())
            .expect("a string takes all");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation_is_spearmans() {
        let of = |pairs: &[(f64, f64)]| rank_correlation(pairs).map(|r| (r * 1e6).round() / 1e6);
        assert_eq!(of(&[(1.0, 10.0), (2.0, 20.0), (3.0, 1000.0)]), Some(1.0));
        assert_eq!(of(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]), Some(-1.0));
        // With a tie: ranks 0, 1.5, 1.5, 3 against 0, 2, 1, 3.
        assert_eq!(of(&[(1.0, 1.0), (2.0, 5.0), (2.0, 4.0), (9.0, 6.0)]), Some(0.948_683));
        assert_eq!(of(&[(1.0, 1.0)]), None);
        assert_eq!(of(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
