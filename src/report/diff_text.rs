//! The text of `offc diff`, for a terminal of a hundred columns.

use std::fmt;

use super::diff::{DiffReport, Fate, GroupChange, Moved, Side};
use super::table::clip;
use crate::units::{Bytes, Nanos};

impl DiffReport {
    /// The report as text with at most `top` groups and opcodes each; 0 means all.
    pub fn text(&self, top: usize) -> String {
        Text { report: self, top: if top == 0 { usize::MAX } else { top } }.to_string()
    }
}

/// A figure of a module with its name.
type Column<T> = (&'static str, fn(&Side) -> T);

struct Text<'r> {
    report: &'r DiffReport,
    top: usize,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (&self.report.before, &self.report.after);
        collectives(f, self.report)?;
        writeln!(f, "\n  {:16} {:>18} {:>18} {:>18}", "", "before", "after", "change")?;
        let figures: [Column<u64>; 11] = [
            ("device memory", |s| s.device),
            ("argument", |s| s.memory.argument),
            ("output", |s| s.memory.output),
            ("alias", |s| s.memory.alias),
            ("temp", |s| s.memory.temp),
            ("peak", |s| s.memory.peak),
            ("pinned host", |s| s.host),
            ("host_argument", |s| s.memory.host_argument),
            ("host_output", |s| s.memory.host_output),
            ("host_temp", |s| s.memory.host_temp),
            ("floor", |s| s.floor),
        ];
        for (name, of) in figures {
            sizes(f, name, of(a), of(b))?;
        }
        let time = |s: &Side| Nanos::from_micros(s.step_us).to_string();
        let change = if a.step_us > 0.0 { format!("{:+.2} %", 100.0 * (b.step_us / a.step_us - 1.0)) } else { String::new() };
        writeln!(f, "  {:16} {:>18} {:>18} {:>18}", "predicted step", time(a), time(b), change)?;
        let count =
            |f: &mut fmt::Formatter<'_>, name: &str, a: u64, b: u64| writeln!(f, "  {name:16} {a:>18} {b:>18} {:>18}", signed(a, b));
        count(f, "instructions", a.instructions, b.instructions)?;
        let ways: [Column<Moved>; 3] =
            [("to host", |s| s.transfers.to_host), ("from host", |s| s.transfers.from_host), ("on device", |s| s.transfers.on_device)];
        for (name, of) in ways {
            let (a, b) = (of(a), of(b));
            if a != b || a.count > 0 {
                count(f, &format!("{name}, copies"), a.count, b.count)?;
                sizes(f, &format!("{name}, size"), a.bytes, b.bytes)?;
            }
        }
        for (name, side) in [("the first", a), ("the second", b)] {
            for l in &side.assumed_trips {
                writeln!(f, "  of {name} module's loop `{}` the trip count is not known: counted once", clip(l, 40))?;
            }
            if !side.scheduled {
                writeln!(f, "  {name} module is not scheduled: the order of its instructions stands in for a schedule")?;
            }
        }
        writeln!(f, "\nat the peaks, by role")?;
        for r in &self.report.roles {
            sizes(f, r.role.name(), r.before, r.after)?;
        }
        self.groups(f)?;
        self.opcodes(f)
    }
}

impl Text<'_> {
    fn groups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = &self.report.buffers;
        if groups.is_empty() {
            return writeln!(f, "\nthe same buffers are alive at both peaks");
        }
        writeln!(f, "\nbuffers that differ at the peaks")?;
        for g in groups.iter().take(self.top) {
            group(f, g)?;
        }
        if let Some(rest) = groups.get(self.top..).filter(|r| !r.is_empty()) {
            let sum = |of: fn(&GroupChange) -> u64| rest.iter().map(of).sum::<u64>();
            let (a, b) = (sum(|g| g.before.bytes), sum(|g| g.after.bytes));
            writeln!(f, "  {:>12}  {} smaller changes together", delta(a, b), rest.len())?;
        }
        Ok(())
    }

    fn opcodes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opcodes = &self.report.opcodes;
        if opcodes.is_empty() {
            return writeln!(f, "\nthe same number of instructions of every opcode");
        }
        writeln!(f, "\ninstructions by opcode")?;
        for o in opcodes.iter().take(self.top) {
            writeln!(f, "  {:>12}  {} ({} -> {})", signed(o.before, o.after), clip(&o.opcode, 50), o.before, o.after)?;
        }
        if let Some(rest) = opcodes.get(self.top..).filter(|r| !r.is_empty()) {
            writeln!(f, "  and {} opcodes with smaller changes", rest.len())?;
        }
        Ok(())
    }
}

fn collectives(f: &mut fmt::Formatter<'_>, r: &DiffReport) -> fmt::Result {
    let (a, b) = (&r.before.module, &r.after.module);
    writeln!(f, "{} -> {}", clip(a, 48), clip(b, 48))?;
    let c = &r.collectives;
    match &c.difference {
        Some(difference) => {
            writeln!(
                f,
                "COLLECTIVES DIFFER ({} before, {} after): devices that run these together would wait for ever",
                c.before, c.after
            )?;
            writeln!(f, "  {}", super::table::wrap(difference, 2))
        }
        None if c.before == 0 => writeln!(f, "collectives equal: neither has any"),
        None => writeln!(f, "collectives equal: {}, the same in kind, order, channel, groups and size", c.before),
    }
}

fn group(f: &mut fmt::Formatter<'_>, g: &GroupChange) -> fmt::Result {
    let fate = match g.fate {
        Fate::Gone => "gone",
        Fate::New => "new",
        Fate::Changed => "changed",
    };
    let count = if g.before.buffers == g.after.buffers {
        g.before.buffers.to_string()
    } else {
        format!("{} -> {}", g.before.buffers, g.after.buffers)
    };
    let place = if g.host { "on the host" } else { "" };
    let change = delta(g.before.bytes, g.after.bytes);
    let head = format!("  {change:>12}  {fate:8} {count:>12}  {:17} {:9} {place}", g.role.name(), g.pass.word());
    writeln!(f, "{}", head.trim_end())?;
    let file = g.source.as_deref().map(|s| s.rsplit('/').next().unwrap_or(s));
    let source = file.map_or_else(String::new, |file| format!(" ({})", clip(file, 30)));
    writeln!(f, "{:16}{}{source}", "", clip(&g.layer, 82 - source.chars().count()))
}

fn sizes(f: &mut fmt::Formatter<'_>, name: &str, a: u64, b: u64) -> fmt::Result {
    writeln!(f, "  {name:16} {:>18} {:>18} {:>18}", Bytes(a).to_string(), Bytes(b).to_string(), delta(a, b))
}

/// A change of a size, with its sign; `=` where there is none.
fn delta(a: u64, b: u64) -> String {
    match a.cmp(&b) {
        std::cmp::Ordering::Equal => "=".to_string(),
        std::cmp::Ordering::Less => format!("+{}", Bytes(b - a)),
        std::cmp::Ordering::Greater => format!("-{}", Bytes(a - b)),
    }
}

/// A change of a number.
fn signed(a: u64, b: u64) -> String {
    match a.cmp(&b) {
        std::cmp::Ordering::Equal => "=".to_string(),
        std::cmp::Ordering::Less => format!("+{}", b - a),
        std::cmp::Ordering::Greater => format!("-{}", a - b),
    }
}
