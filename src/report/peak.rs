//! What holds a step's memory, and why.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::names::{Pass, layer_name, op_name, source};
use super::roles::{Role, Roles, maker};
use super::subject::subject;
use crate::analysis::floor::Floor;
use crate::analysis::memory::{Alive, Memory, alive, alive_at};
use crate::analysis::{Analyses, BufferKind, Time};
use crate::ir::{ArrayShape, DEVICE, HOST, InstrId, Module, Op, Shape, ShapeId};
use crate::sim::{Timeline, What};
use crate::units::Nanos;

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
    /// The instruction that runs at the instant that is shown; `None` at the very end.
    pub at: Option<String>,
    /// Where it stands on the clock, from 0, and how many instants there are.
    pub instant: (usize, usize),
    /// When it begins, in microseconds from the step's start, in the first iteration of its loop.
    pub at_us: f64,
    /// Whether it is the peak.
    pub is_peak: bool,
    /// Bytes alive at that instant.
    pub alive_bytes: u64,
    /// The same by role, largest first.
    pub roles: Vec<RoleRow>,
    /// The same by role, pass, place in a layer and line of source, largest first.
    pub groups: Vec<Group>,
    /// Device buffers alive at that instant, largest first, then in program order.
    pub alive: Vec<Holder>,
    /// The instant at which pinned host memory is fullest.
    pub host_instant: usize,
    /// Bytes of pinned host memory alive then.
    pub host_alive_bytes: u64,
    /// Host buffers alive then.
    pub host_alive: Vec<Holder>,
    /// The least that any plan could reach.
    pub floor: FloorRow,
}

/// One role.
#[derive(Clone, Debug, Serialize)]
pub struct RoleRow {
    /// Which.
    pub role: Role,
    /// Buffers.
    pub buffers: usize,
    /// Bytes.
    pub bytes: u64,
}

/// Buffers that are the same in every layer.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// What they are for.
    pub role: Role,
    /// The pass that makes them.
    pub pass: Pass,
    /// The framework's name without the numbers of layers.
    pub layer: String,
    /// File and line.
    pub source: Option<String>,
    /// Buffers.
    pub buffers: usize,
    /// Bytes.
    pub bytes: u64,
    /// Whether all are of one shape.
    pub same_shape: bool,
    /// The largest, by its position in `alive`.
    pub largest: usize,
    /// The one that stays alive longest, by its position in `alive`.
    pub longest: usize,
}

/// One buffer that is alive.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// The instruction that makes the value that is alive; `{i}` tells the element of a tuple.
    pub name: String,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Whose it is.
    pub kind: HolderKind,
    /// What it is for.
    pub role: Role,
    /// The pass that makes it.
    pub pass: Pass,
    /// The shape of the value, without layout.
    pub shape: String,
    /// The framework's name of what makes it; may be empty.
    pub op_name: String,
    /// The same without the numbers of layers.
    pub layer: String,
    /// File and line.
    pub source: Option<String>,
    /// First and last instant at which the buffer is alive.
    pub live: (Time, Time),
    /// Why it is still alive.
    pub until: Until,
}

/// Why a buffer is still alive.
#[derive(Clone, Debug, Serialize)]
pub struct Until {
    /// The last instruction that reads it, or that what is written over it waits for; `None` for what is held to the end whoever reads it.
    pub last_reader: Option<String>,
    /// Whether that is a loop, which holds what it reads until it ends.
    pub is_loop: bool,
    /// Its framework's name.
    pub op_name: String,
    /// How many instructions away, those of a loop's body counted once.
    pub instructions: u64,
    /// How many microseconds away, from instruction to instruction in the first iterations of their loops; to the end of a loop.
    pub us: f64,
}

/// The least that any plan could reach.
#[derive(Clone, Debug, Serialize)]
pub struct FloorRow {
    /// Bytes of device memory.
    pub bytes: u64,
    /// Of them, parameters, results and constants.
    pub fixed: u64,
    /// The instruction that needs the rest.
    pub at: Option<String>,
    /// What it reads and writes: name and bytes, largest first.
    pub needs: Vec<(String, u64)>,
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
    /// Looks at a module that XLA has settled ([`crate::analysis::settle`]) and a timeline of it, at the peak or at an instruction.
    /// Costs what the buffer assignment costs, and O(buffers · log) to sort.
    pub fn of(analyses: &Analyses<'_>, timeline: &Timeline, at: Option<InstrId>) -> Self {
        let module = analyses.module();
        let schedule = analyses.schedule();
        let peak = analyses.curve(DEVICE).peak().0;
        let wanted = at.and_then(|id| schedule.time(id)).map_or(peak, |time| time as usize);
        let roles = Roles::of(analyses);
        let clock = Clock::of(analyses, timeline);
        let time = Time::try_from(wanted).expect("the clock counts in this type");
        let holders = |color: i64, time: Time| -> Vec<Holder> {
            alive_at(analyses, color, time).iter().map(|a| holder(analyses, &roles, &clock, time, a)).collect()
        };
        let held = holders(DEVICE, time);
        let host_peak = Time::try_from(analyses.curve(HOST).peak().0).expect("the clock counts in this type");
        let host = holders(HOST, host_peak);
        let running = schedule.sequence.get(wanted).copied();
        let memory = *analyses.memory();
        Self {
            schema_version: 1,
            module: module.name.to_string(),
            scheduled: schedule.is_scheduled,
            memory,
            device: memory.device_bytes(),
            host: memory.host_bytes(),
            at: running.map(|id| module.instr(id).name.to_string()),
            instant: (wanted, schedule.end() as usize),
            at_us: running.map_or(timeline.step, |id| timeline.begin[id]).micros(),
            is_peak: wanted == peak,
            alive_bytes: held.iter().map(|h| h.bytes).sum(),
            roles: by_role(&held),
            groups: groups(&held),
            alive: held,
            host_instant: host_peak as usize,
            host_alive_bytes: host.iter().map(|h| h.bytes).sum(),
            host_alive: host,
            floor: floor(analyses),
        }
    }
}

fn by_role(held: &[Holder]) -> Vec<RoleRow> {
    let row = |role: Role| {
        let of_role = held.iter().filter(|h| h.role == role);
        RoleRow { role, buffers: of_role.clone().count(), bytes: of_role.map(|h| h.bytes).sum() }
    };
    let mut rows: Vec<RoleRow> = Role::ALL.into_iter().map(row).filter(|r| r.buffers > 0).collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.bytes));
    rows
}

pub(super) fn groups(held: &[Holder]) -> Vec<Group> {
    let mut out: Vec<Group> = Vec::new();
    let mut known = FxHashMap::default();
    for (n, h) in held.iter().enumerate() {
        let key = (h.role, h.pass, h.layer.as_str(), h.source.as_deref());
        let at = *known.entry(key).or_insert_with(|| {
            let (layer, source) = (h.layer.clone(), h.source.clone());
            let group = Group { role: h.role, pass: h.pass, layer, source, buffers: 0, bytes: 0, same_shape: true, largest: n, longest: n };
            out.push(group);
            out.len() - 1
        });
        let group = &mut out[at];
        group.buffers += 1;
        group.bytes += h.bytes;
        group.same_shape &= held[group.largest].shape == h.shape;
        if held[group.longest].until.instructions < h.until.instructions {
            group.longest = n;
        }
    }
    out.sort_by_key(|g| (std::cmp::Reverse(g.bytes), g.largest));
    out
}

fn holder(analyses: &Analyses<'_>, roles: &Roles<'_, '_>, clock: &Clock<'_, '_>, time: Time, alive: &Alive) -> Holder {
    let (module, values) = (analyses.module(), analyses.values());
    let buffer = analyses.buffers().get(alive.buffer);
    let value = values.get(alive.value);
    let made = maker(analyses, alive);
    let maker = values.get(made).instr;
    let kind = match buffer.kind {
        BufferKind::Parameter { .. } => HolderKind::Argument,
        BufferKind::Constant => HolderKind::Constant,
        _ if buffer.live_out => HolderKind::Output,
        BufferKind::Tuple | BufferKind::Plain => HolderKind::Temp,
    };
    let end = last_instant(analyses, alive, time);
    let subject = subject(analyses, made);
    let name = op_name(module, subject);
    let own = op_name(module, maker);
    Holder {
        name: place(module, value.instr, &values.positions.path(module, module.instr(value.instr).shape, value.position)),
        bytes: alive.bytes,
        kind,
        role: roles.role(alive, maker, end),
        pass: Pass::of(if own.is_empty() { name } else { own }),
        shape: shape(module, value.shape),
        op_name: name.to_string(),
        layer: layer_name(name),
        source: source(module, subject).or_else(|| source(module, maker)),
        live: buffer.live,
        until: until(analyses, clock, time, end, kind == HolderKind::Temp),
    }
}

/// The last instant of the stretch in which a buffer is alive without a break.
fn last_instant(analyses: &Analyses<'_>, of: &Alive, time: Time) -> Time {
    let ranges = alive(analyses, analyses.buffers().get(of.buffer));
    ranges.iter().find(|&&(from, to)| from <= time && time <= to).map_or(time, |&(_, to)| to)
}

/// When the instants of the schedule come in a timeline, in the first iterations of their loops.
struct Clock<'a, 'm> {
    analyses: &'a Analyses<'m>,
    timeline: &'a Timeline,
    /// When each loop is over.
    loop_ends: FxHashMap<InstrId, Nanos>,
}

impl<'a, 'm> Clock<'a, 'm> {
    fn of(analyses: &'a Analyses<'m>, timeline: &'a Timeline) -> Self {
        let mut loop_ends = FxHashMap::default();
        for event in timeline.events.iter().filter(|e| matches!(e.what, What::Loop { .. })) {
            loop_ends.entry(event.instr).or_insert(event.span.end);
        }
        Self { analyses, timeline, loop_ends }
    }

    /// What calls computations stands behind them on the clock: its instant is its end.
    fn at(&self, instant: Time) -> Nanos {
        let sequence = &self.analyses.schedule().sequence;
        let Some(&id) = sequence.get(instant as usize) else { return self.timeline.step };
        match self.analyses.module().instr(id).op {
            Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } => {
                let next = || sequence.get(instant as usize + 1).map_or(self.timeline.step, |&id| self.timeline.begin[id]);
                self.loop_ends.get(&id).copied().unwrap_or_else(next)
            }
            _ => self.timeline.begin[id],
        }
    }
}

fn until(analyses: &Analyses<'_>, clock: &Clock<'_, '_>, time: Time, end: Time, ends: bool) -> Until {
    let module = analyses.module();
    let sequence = &analyses.schedule().sequence;
    let reader = sequence.get(end as usize).filter(|_| ends).map(|&id| reader(analyses, id));
    Until {
        last_reader: reader.map(|id| module.instr(id).name.to_string()),
        is_loop: reader.is_some_and(|id| matches!(module.instr(id).op, Op::While { .. })),
        op_name: reader.map_or_else(String::new, |id| op_name(module, id).to_string()),
        instructions: u64::from(end.saturating_sub(time)),
        us: (clock.at(end) - clock.at(time)).micros(),
    }
}

/// The instruction to name at an instant: for the parameter of a loop's body, the loop.
fn reader(analyses: &Analyses<'_>, id: InstrId) -> InstrId {
    let module = analyses.module();
    let home = analyses.users().home(id);
    match (&module.instr(id).op, home) {
        (Op::Parameter { .. }, Some(home)) => analyses.users().callers(home).first().copied().unwrap_or(id),
        _ => id,
    }
}

fn floor(analyses: &Analyses<'_>) -> FloorRow {
    let (module, values) = (analyses.module(), analyses.values());
    let floor = Floor::of(analyses, DEVICE);
    let name = |buffer| {
        let first = values.get(analyses.buffers().get(buffer).values[0]);
        place(module, first.instr, &values.positions.path(module, module.instr(first.instr).shape, first.position))
    };
    FloorRow {
        bytes: floor.bytes,
        fixed: floor.fixed,
        at: floor.at.map(|id| module.instr(id).name.to_string()),
        needs: floor.needs.iter().map(|&(buffer, bytes)| (name(buffer), bytes)).collect(),
    }
}

fn place(module: &Module, id: InstrId, path: &[i64]) -> String {
    let name = &module.instr(id).name;
    let path: Vec<String> = path.iter().map(i64::to_string).collect();
    if path.is_empty() { name.to_string() } else { format!("{name}{{{}}}", path.join(",")) }
}

fn shape(module: &Module, id: ShapeId) -> String {
    match module.shapes.get(id) {
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
