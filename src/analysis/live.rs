//! When each value is alive.
//!
//! From its definition (a parameter's is its computation's start, one under an async-start is that start) to its last reader or last position,
//! whichever is later: what a root returns lives to the end of its computation, what an async computation returns to the done, an entry
//! parameter that no output is written over to the end of the program; reading by a while counts at its body's parameter, since the body's
//! values follow there. Both ends are included. Source: XLA's `HloLiveRange` (`hlo/utils/hlo_live_range.cc`).
//! Cost: O(positions + operands).

use rustc_hash::FxHashSet;

use super::schedule::{Schedule, Time};
use super::users::Users;
use super::values::Values;
use crate::entity::ValueId;
use crate::ir::{CompId, Entity, InstrId, Module, Op};

/// When a value is alive, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRange {
    /// First instant.
    pub start: Time,
    /// Last instant.
    pub end: Time,
}

/// The live range of every value.
#[derive(Clone, Debug)]
pub struct LiveRanges {
    ranges: Vec<LiveRange>,
}

impl LiveRanges {
    /// Measures all values.
    pub fn of(module: &Module, users: &Users, schedule: &Schedule, values: &Values) -> Self {
        let mut ranges: Vec<LiveRange> = values
            .iter()
            .map(|(_, value)| {
                let start = start(module, users, schedule, value.instr);
                LiveRange { start, end: start }
            })
            .collect();
        for &(comp, ref ids) in values.order() {
            for &id in ids {
                let Some(readers) = Readers::of(module, users, schedule, id) else { continue };
                let end = position_end(module, users, schedule, comp, id);
                for (position, value) in (0u32..).zip(values.all(module, id)) {
                    let range = &mut ranges[value.index()];
                    range.end = range.end.max(end).max(if position == 0 { readers.top } else { readers.parts });
                }
            }
        }
        let donated: FxHashSet<(i64, &[i64])> = module.header.input_output_alias.iter().map(|a| (a.parameter, &a.index[..])).collect();
        for &parameter in &module.entry().parameters {
            let Op::Parameter { number } = module.instr(parameter).op else { continue };
            for (position, value) in (0u32..).zip(values.all(module, parameter)) {
                let path = values.positions.path(module, module.instr(parameter).shape, position);
                if !donated.contains(&(number, &path[..])) {
                    ranges[value.index()].end = schedule.end();
                }
            }
        }
        Self { ranges }
    }

    /// When a value is alive.
    pub fn of_value(&self, value: ValueId) -> LiveRange {
        self.ranges[value.index()]
    }

    /// Makes the values of one buffer follow each other: each ends where the next starts, and what outlives the next lends it its end.
    pub(super) fn normalize(&mut self, buffer: &[ValueId]) {
        if buffer.len() < 2 {
            return;
        }
        let mut order = buffer.to_vec();
        order.sort_by_key(|v| (self.ranges[v.index()].start, self.ranges[v.index()].end, *v));
        for pair in order.windows(2) {
            let (first, second) = (self.ranges[pair[0].index()], self.ranges[pair[1].index()]);
            self.ranges[pair[1].index()].end = first.end.max(second.end);
            self.ranges[pair[0].index()].end = first.end.min(second.start);
        }
    }
}

/// The last readers of an instruction's top and of its parts.
struct Readers {
    top: Time,
    parts: Time,
}

impl Readers {
    fn of(module: &Module, users: &Users, schedule: &Schedule, id: InstrId) -> Option<Self> {
        let mut this = Self { top: schedule.time(id)?, parts: 0 };
        for &user in users.users(id) {
            let (top, parts) = match &module.instr(user).op {
                // They pass everything on; that they are positions of the value counts elsewhere.
                Op::Domain(_) | Op::Tuple => (false, false),
                Op::GetTupleElement { .. } | Op::Copy => (true, false),
                _ => (true, true),
            };
            let at = match &module.instr(user).op {
                Op::While { body, .. } => module.comp(*body).parameters.first().copied().unwrap_or(user),
                _ => user,
            };
            let time = schedule.time(at).unwrap_or(0);
            if top {
                this.top = this.top.max(time);
            }
            if parts {
                this.parts = this.parts.max(time);
            }
        }
        Some(this)
    }
}

fn start(module: &Module, users: &Users, schedule: &Schedule, id: InstrId) -> Time {
    let comp = users.home(id).expect("a value is defined by a live instruction");
    if let Some(start) = schedule.async_start(comp) {
        return schedule.time(start).expect("a flattened async start has a time");
    }
    match module.instr(id).op {
        Op::Parameter { .. } => schedule.span(comp).expect("values are defined on the clock").0,
        _ => schedule.time(id).expect("values are defined on the clock"),
    }
}

/// Until when a value lives because it stands at an instruction.
fn position_end(module: &Module, users: &Users, schedule: &Schedule, comp: CompId, id: InstrId) -> Time {
    if let Some(done) = schedule.async_start(comp).and_then(|start| users.async_done(module, start)) {
        return schedule.time(done).unwrap_or(0);
    }
    if module.comp(comp).root == id {
        return schedule.span(comp).expect("values are defined on the clock").1;
    }
    schedule.time(id).expect("values are defined on the clock")
}
