//! Bytes over time: the memory curve, which counts instants, laid on the clock of a timeline.

use super::timeline::{Timeline, What};
use crate::analysis::{Analyses, Time};
use crate::units::{Bytes, Nanos};

/// Bytes in a memory space as time passes: each pair says how many from then on. Between two events the most that was alive counts, so the
/// largest is the peak of the curve, whatever the links. Costs O(events + instants).
pub fn bytes_over_time(timeline: &Timeline, analyses: &Analyses<'_>, color: i64) -> Vec<(Nanos, Bytes)> {
    let curve = analyses.curve(color);
    let schedule = analyses.schedule();
    let at = |from: Time, to: Time| {
        let most = curve.heap.get(from as usize..=to as usize).and_then(|h| h.iter().max()).copied().unwrap_or(0);
        Bytes(curve.fixed + most)
    };
    let mut out = vec![(Nanos::ZERO, Bytes(curve.fixed))];
    let mut last: Option<Time> = None;
    let mut push = |time: Nanos, bytes: Bytes| match out.last_mut() {
        Some(previous) if previous.1 == bytes => {}
        Some(previous) if previous.0 == time => previous.1 = previous.1.max(bytes),
        _ => out.push((time, bytes)),
    };
    for event in &timeline.events {
        if !matches!(event.what, What::Kernel | What::Start | What::Wait { .. } | What::Loop { .. }) {
            continue;
        }
        let Some(now) = schedule.time(event.instr) else { continue };
        let when = if matches!(event.what, What::Loop { .. }) { event.span.end } else { event.span.begin };
        let from = last.map_or(0, |l| if l < now { l + 1 } else { now });
        push(when, at(from, now));
        last = Some(now);
    }
    let end = schedule.end();
    if let Some(last) = last.filter(|&l| l < end) {
        push(timeline.step, at(last + 1, end));
    }
    out
}
