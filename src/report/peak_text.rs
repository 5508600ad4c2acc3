//! The text of `offc peak`, for a terminal of a hundred columns.

use std::fmt;

use super::peak::{FloorRow, Group, Holder, HolderKind, PeakReport, groups};
use super::table::{clip, percent};
use crate::units::{Bytes, Nanos};

impl PeakReport {
    /// The report as text with at most `top` groups; 0 means all. With `buffers`, single buffers instead of groups.
    pub fn text(&self, top: usize, buffers: bool) -> String {
        Text { report: self, top: if top == 0 { usize::MAX } else { top }, buffers }.to_string()
    }
}

struct Text<'r> {
    report: &'r PeakReport,
    top: usize,
    buffers: bool,
}

/// Host buffers that are shown.
const HOST_ROWS: usize = 5;

/// One row: a group of buffers or a single one.
struct Row<'r> {
    bytes: u64,
    count: usize,
    same_shape: bool,
    /// The largest.
    of: &'r Holder,
    /// The one that stays longest.
    longest: &'r Holder,
    layer: &'r str,
}

impl<'r> Row<'r> {
    fn single(h: &'r Holder) -> Self {
        Self { bytes: h.bytes, count: 1, same_shape: true, of: h, longest: h, layer: &h.op_name }
    }
    fn group(g: &'r Group, alive: &'r [Holder]) -> Self {
        let (of, longest) = (&alive[g.largest], &alive[g.longest]);
        let layer = if g.buffers == 1 && of.kind == HolderKind::Argument { &of.op_name } else { &g.layer };
        Self { bytes: g.bytes, count: g.buffers, same_shape: g.same_shape, of, longest, layer }
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = self.report;
        figures(f, r)?;
        let (instant, end) = r.instant;
        let what = if r.is_peak { "alive at the peak" } else { "alive" };
        let when = Nanos::from_micros(r.at_us);
        let tail = format!(" (instant {instant} of {end}, {when}): {}", Bytes(r.alive_bytes));
        let room = 85usize.saturating_sub(what.len() + tail.chars().count()).min(30);
        let at = r.at.as_deref().map_or_else(|| "at the end".to_string(), |at| format!("while `{}` runs", clip(at, room)));
        writeln!(f, "\n{what}, {at}{tail}")?;
        for role in &r.roles {
            let share = percent(role.bytes, r.alive_bytes);
            writeln!(f, "  {:>10}  {share:>7}  {:17} {:>5} {}", size(role.bytes), role.role.name(), role.buffers, plural(role.buffers))?;
        }
        writeln!(f)?;
        self.rows(f, &r.alive, &r.groups, r.alive_bytes, self.top)?;
        if !r.host_alive.is_empty() {
            let (instant, bytes) = (r.host_instant, Bytes(r.host_alive_bytes));
            writeln!(f, "\npinned host memory at its fullest (instant {instant} of {end}): {bytes}")?;
            self.rows(f, &r.host_alive, &groups(&r.host_alive), r.host_alive_bytes, self.top.min(HOST_ROWS))?;
        }
        Ok(())
    }
}

impl Text<'_> {
    fn rows(&self, f: &mut fmt::Formatter<'_>, alive: &[Holder], groups: &[Group], whole: u64, top: usize) -> fmt::Result {
        let rows: Vec<Row<'_>> =
            if self.buffers { alive.iter().map(Row::single).collect() } else { groups.iter().map(|g| Row::group(g, alive)).collect() };
        for row in rows.iter().take(top) {
            line(f, row, whole)?;
        }
        if let Some(rest) = rows.get(top..).filter(|rest| !rest.is_empty()) {
            let bytes = rest.iter().map(|row| row.bytes).sum();
            writeln!(f, "  {:>10}  {:>7}  in {} smaller ones", size(bytes), percent(bytes, whole), rest.len())?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, row: &Row<'_>, whole: u64) -> fmt::Result {
    let h = row.of;
    let shape = match (row.count, row.same_shape) {
        (1, _) => h.shape.clone(),
        (n, true) => format!("{n} x {}", h.shape),
        (n, false) => format!("{n}, up to {}", h.shape),
    };
    let shape = clip(&shape, 34);
    // Shape and name share 49 columns, the name gets at least 14.
    let name = clip(&h.name, 49 - shape.chars().count().max(22));
    let pass = if h.kind == HolderKind::Argument { "argument" } else { h.pass.word() };
    let (bytes, share) = (size(row.bytes), percent(row.bytes, whole));
    let head = format!("  {bytes:>10}  {share:>7}  {:16} {pass:8} {shape:22} {name}", h.role.name());
    writeln!(f, "{}", head.trim_end())?;
    let file = h.source.as_deref().map(|s| s.rsplit('/').next().unwrap_or(s));
    let from = match (row.layer.is_empty(), file) {
        (true, None) => String::new(),
        (true, Some(file)) => clip(file, 77),
        (false, None) => clip(row.layer, 77),
        (false, Some(file)) => {
            let file = clip(file, 30);
            format!("{} ({file})", clip(row.layer, 74 - file.chars().count()))
        }
    };
    if !from.is_empty() {
        writeln!(f, "{:23}{from}", "")?;
    }
    why(row.longest, row.count > 1).map_or(Ok(()), |why| writeln!(f, "{:23}{why}", ""))
}

fn figures(f: &mut fmt::Formatter<'_>, r: &PeakReport) -> fmt::Result {
    let m = &r.memory;
    writeln!(f, "{}: {} of device memory", r.module, Bytes(r.device))?;
    if !r.scheduled {
        writeln!(f, "not scheduled: the order of the instructions stands in for a schedule, which XLA will choose itself")?;
    }
    let row = |f: &mut fmt::Formatter<'_>, name, bytes: u64, note| {
        writeln!(f, "  {name:14}{:>11}  {bytes:>15} bytes{note}", Bytes(bytes).to_string())
    };
    row(f, "argument", m.argument, "")?;
    row(f, "output", m.output, "")?;
    row(f, "alias", m.alias, "  outputs written over arguments")?;
    row(f, "temp", m.temp, "")?;
    row(f, "peak", m.peak, "  as XLA reports it: alive at once, without gaps")?;
    for (name, bytes) in [("host_argument", m.host_argument), ("host_output", m.host_output), ("host_temp", m.host_temp)] {
        row(f, name, bytes, "")?;
    }
    row(f, "floor", r.floor.bytes, "  least of any plan that keeps the instructions")?;
    forced(f, &r.floor)
}

/// What forces the floor.
fn forced(f: &mut fmt::Formatter<'_>, floor: &FloorRow) -> fmt::Result {
    let fixed = Bytes(floor.fixed);
    let Some(at) = &floor.at else { return writeln!(f, "{:16}forced by parameters, results and constants", "") };
    let head = format!("{fixed} of parameters, results, constants, {} for `", Bytes(floor.bytes - floor.fixed));
    let name = clip(at, 82usize.saturating_sub(head.chars().count()));
    writeln!(f, "{:16}{head}{name}`:", "")?;
    for (name, bytes) in floor.needs.iter().take(3) {
        writeln!(f, "{:16}{:>11}  {}", "", Bytes(*bytes).to_string(), clip(name, 60))?;
    }
    if let Some(rest) = floor.needs.get(3..).filter(|rest| !rest.is_empty()) {
        writeln!(f, "{:16}{:>11}  in {} more", "", Bytes(rest.iter().map(|n| n.1).sum()).to_string(), rest.len())?;
    }
    Ok(())
}

/// Why a buffer is still alive, where its role does not say it; of the last one of `several`.
fn why(h: &Holder, several: bool) -> Option<String> {
    if h.kind != HolderKind::Temp {
        return None;
    }
    let the_last = if several { "the last " } else { "" };
    let Some(reader) = &h.until.last_reader else { return Some(format!("{the_last}held to the end")) };
    let n = h.until.instructions;
    if n == 0 {
        return Some("used by this instruction last".to_string());
    }
    let (head, ends) = if h.until.is_loop { ("until loop `", " ends") } else { ("until `", "") };
    let (unit, away) = (if n == 1 { "instruction" } else { "instructions" }, Nanos::from_micros(h.until.us));
    let tail = format!("`{ends}, {n} {unit} and {away} away");
    let room = 77usize.saturating_sub(the_last.len() + head.len() + tail.chars().count());
    Some(format!("{the_last}{head}{}{tail}", clip(reader, room)))
}

fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "buffer" } else { "buffers" }
}
