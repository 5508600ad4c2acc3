//! Two modules side by side: what a rewrite changed of memory, transfers and instructions, and whether the collectives stayed.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::names::Pass;
use super::peak::{Holder, PeakReport};
use super::roles::Role;
use crate::analysis::memory::Memory;
use crate::cost::transfer::{self, Direction};
use crate::cost::{TripSource, trips};
use crate::entity::CompId;
use crate::ir::{EntityMap, Module, Op};

/// The report of `offc diff`. All sizes are bytes.
#[derive(Clone, Debug, Serialize)]
pub struct DiffReport {
    /// Version of the JSON form.
    pub schema_version: u32,
    /// The first module.
    pub before: Side,
    /// The second module.
    pub after: Side,
    /// Whether both do the same collectives.
    pub collectives: Collectives,
    /// What holds memory at each module's peak, by role, in the order of [`Role::ALL`].
    pub roles: Vec<RoleChange>,
    /// Groups of buffers that differ at the two peaks, the largest change first.
    pub buffers: Vec<GroupChange>,
    /// Opcodes whose number differs, the largest change first.
    pub opcodes: Vec<OpcodeChange>,
}

/// One of two modules.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The module's name.
    pub module: String,
    /// Whether it is scheduled.
    pub scheduled: bool,
    /// XLA's figures.
    #[serde(flatten)]
    pub memory: Memory,
    /// Argument + output − alias + temp.
    pub device: u64,
    /// The same of pinned host memory, without the alias.
    pub host: u64,
    /// The least that any plan could reach.
    pub floor: u64,
    /// What runs at the peak.
    pub at: Option<String>,
    /// The predicted step, in microseconds.
    pub step_us: f64,
    /// Live instructions, those inside fusions included.
    pub instructions: u64,
    /// Copies over the link and within the device, each counted as often as its loops run.
    pub transfers: Transfers,
    /// Loops whose trip count nobody can tell: one iteration was assumed.
    pub assumed_trips: Vec<String>,
}

/// Copies by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Transfers {
    /// From device to host.
    pub to_host: Moved,
    /// From host to device.
    pub from_host: Moved,
    /// Asynchronous copies within the device.
    pub on_device: Moved,
}

/// How often and how much in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Copies.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The collectives of two modules.
#[derive(Clone, Debug, Serialize)]
pub struct Collectives {
    /// Whether they are the same in kind, order, channel, groups and size.
    pub equal: bool,
    /// How many the first module has.
    pub before: usize,
    /// How many the second has.
    pub after: usize,
    /// The first difference.
    pub difference: Option<String>,
}

/// One role at the two peaks.
#[derive(Clone, Debug, Serialize)]
pub struct RoleChange {
    /// Which.
    pub role: Role,
    /// Bytes in the first module.
    pub before: u64,
    /// Bytes in the second.
    pub after: u64,
}

/// What became of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// Only the first module holds it at its peak.
    Gone,
    /// Only the second module holds it at its peak.
    New,
    /// Both, in different number or size.
    Changed,
}

/// A group of buffers that differs at the two peaks.
#[derive(Clone, Debug, Serialize)]
pub struct GroupChange {
    /// What became of it.
    pub fate: Fate,
    /// Whether it lies in pinned host memory.
    pub host: bool,
    /// What it is for.
    pub role: Role,
    /// The pass that makes it.
    pub pass: Pass,
    /// The framework's name without the numbers of layers, else the instruction's name without its number.
    pub layer: String,
    /// File and line.
    pub source: Option<String>,
    /// In the first module.
    pub before: Held,
    /// In the second.
    pub after: Held,
}

/// Buffers and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Buffers.
    pub buffers: u64,
    /// Bytes.
    pub bytes: u64,
}

/// One opcode.
#[derive(Clone, Debug, Serialize)]
pub struct OpcodeChange {
    /// Its name.
    pub opcode: String,
    /// Instructions in the first module.
    pub before: u64,
    /// In the second.
    pub after: u64,
}

/// One of two modules with what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct DiffInput<'a> {
    /// The module.
    pub module: &'a Module,
    /// Its peak.
    pub peak: &'a PeakReport,
    /// Its predicted step in microseconds.
    pub step_us: f64,
}

impl DiffReport {
    /// Compares two modules; `difference` is the first one that a check of their collectives found. Linear in both, and sorts what differs.
    pub fn of(before: DiffInput<'_>, after: DiffInput<'_>, difference: Option<String>) -> Self {
        let bytes = |input: &DiffInput<'_>, role| input.peak.roles.iter().find(|r| r.role == role).map_or(0, |r| r.bytes);
        let roles = Role::ALL.map(|role| RoleChange { role, before: bytes(&before, role), after: bytes(&after, role) });
        let collectives = |m: &Module| m.live().filter(|&(_, id)| matches!(m.instr(id).op, Op::Collective(_))).count();
        Self {
            schema_version: 1,
            collectives: Collectives {
                equal: difference.is_none(),
                before: collectives(before.module),
                after: collectives(after.module),
                difference,
            },
            roles: roles.into_iter().filter(|r| r.before + r.after > 0).collect(),
            buffers: groups(before.peak, after.peak),
            opcodes: opcodes(before.module, after.module),
            before: side(before),
            after: side(after),
        }
    }
}

fn side(input: DiffInput<'_>) -> Side {
    let (module, peak) = (input.module, input.peak);
    let mut assumed_trips = Vec::new();
    let transfers = transfers(module, &mut assumed_trips);
    Side {
        module: peak.module.clone(),
        scheduled: peak.scheduled,
        memory: peak.memory,
        device: peak.device,
        host: peak.host,
        floor: peak.floor.bytes,
        at: peak.at.clone(),
        step_us: input.step_us,
        instructions: module.live().count() as u64,
        transfers,
        assumed_trips,
    }
}

/// All copies of a step. A conditional counts each branch once.
fn transfers(module: &Module, assumed: &mut Vec<String>) -> Transfers {
    let mut runs: EntityMap<CompId, u64> = EntityMap::with_default(0);
    runs[module.entry_id()] = 1;
    let mut out = Transfers::default();
    for comp in module.callees_first().into_iter().rev() {
        let times = runs[comp];
        for &id in &module.comp(comp).order {
            let op = &module.instr(id).op;
            if let Some(copy) = transfer::of(module, id) {
                let moved = match copy.direction {
                    Direction::ToHost => &mut out.to_host,
                    Direction::FromHost => &mut out.from_host,
                    Direction::OnDevice => &mut out.on_device,
                };
                moved.count = moved.count.saturating_add(times);
                moved.bytes = moved.bytes.saturating_add(times.saturating_mul(copy.bytes.get()));
            }
            let again = match op {
                Op::While { .. } => {
                    let known = trips(module, id);
                    if known.source == TripSource::Assumed {
                        assumed.push(module.instr(id).name.to_string());
                    }
                    known.count
                }
                _ => 1,
            };
            for callee in op.called() {
                runs[callee] = runs[callee].saturating_add(times.saturating_mul(again));
            }
        }
    }
    assumed.sort();
    out
}

fn groups(before: &PeakReport, after: &PeakReport) -> Vec<GroupChange> {
    let mut out: Vec<GroupChange> = Vec::new();
    let mut known = FxHashMap::default();
    let sides = [(before, false), (after, true)];
    for (report, second) in sides {
        let device = report.alive.iter().map(|h| (h, false));
        for (h, host) in device.chain(report.host_alive.iter().map(|h| (h, true))) {
            let layer = if h.layer.is_empty() { without_number(&h.name) } else { &h.layer };
            let key = (host, h.role, h.pass, layer, h.source.as_deref());
            let at = *known.entry(key).or_insert_with(|| {
                let (layer, source) = (layer.to_string(), h.source.clone());
                let none = Held::default();
                out.push(GroupChange { fate: Fate::Changed, host, role: h.role, pass: h.pass, layer, source, before: none, after: none });
                out.len() - 1
            });
            let held = if second { &mut out[at].after } else { &mut out[at].before };
            add(held, h);
        }
    }
    out.retain(|g| g.before != g.after);
    for group in &mut out {
        group.fate = match (group.before.buffers, group.after.buffers) {
            (_, 0) => Fate::Gone,
            (0, _) => Fate::New,
            _ => Fate::Changed,
        };
    }
    out.sort_by_key(|g| std::cmp::Reverse(g.before.bytes.abs_diff(g.after.bytes)));
    out
}

fn add(held: &mut Held, h: &Holder) {
    held.buffers += 1;
    held.bytes += h.bytes;
}

/// An instruction's name without the number that makes it unique, and without an index.
fn without_number(name: &str) -> &str {
    let name = name.split('{').next().unwrap_or(name);
    match name.rsplit_once('.') {
        Some((stem, number)) if number.bytes().all(|b| b.is_ascii_digit()) => stem,
        _ => name,
    }
}

fn opcodes(before: &Module, after: &Module) -> Vec<OpcodeChange> {
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (_, id) in before.live() {
        counts.entry(before.instr(id).op.opcode().to_string()).or_default().0 += 1;
    }
    for (_, id) in after.live() {
        counts.entry(after.instr(id).op.opcode().to_string()).or_default().1 += 1;
    }
    let changed = counts.into_iter().filter(|(_, (a, b))| a != b);
    let mut out: Vec<OpcodeChange> = changed.map(|(opcode, (before, after))| OpcodeChange { opcode, before, after }).collect();
    out.sort_by_key(|o| std::cmp::Reverse(o.before.abs_diff(o.after)));
    out
}
