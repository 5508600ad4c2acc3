//! What the heap is asked for, in order: XLA replays the clock and takes, at each instant, the values defined there one by one, then releases those that
//! end there (`HeapSimulator::RunComputation` in `service/heap_simulator/heap_simulator.cc`).
//!
//! A value of a buffer that already has memory shares it. A value that is alone in its buffer takes over the memory of an operand's value that
//! dies at that very instant, is alone in its buffer too, is defined by an operand itself, and may be written over ([`super::sharing`]); never for a `copy`. Its
//! release then comes before the sharing. Each request is a tick of the heap's clock.

use super::Analyses;
use super::heap::{Group, Tick};
use super::schedule::Time;
use super::sharing::may_share;
use crate::entity::{BufferId, ValueId};
use crate::ir::{Entity, EntityMap, Op};

/// What the heap did at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapEvent {
    /// A value got memory.
    Alloc(ValueId),
    /// A value got the memory of another one.
    Share(ValueId, ValueId),
    /// A value died.
    Free(ValueId),
}

/// The order of allocations and releases in one heap.
pub(super) struct HeapRun {
    pub groups: Vec<Group>,
    pub group: EntityMap<ValueId, Option<u32>>,
    /// Values whose memory another value took over.
    pub released: EntityMap<ValueId, bool>,
    pub trace: Vec<(Time, HeapEvent)>,
}

impl HeapRun {
    pub fn of(analyses: &Analyses<'_>, waiting: &[BufferId]) -> Self {
        let (module, values, buffers) = (analyses.module(), analyses.values(), analyses.buffers());
        let bytes = |v: ValueId| module.shapes.byte_size(values.get(v).shape);
        let mut this =
            Self { groups: Vec::new(), group: EntityMap::with_default(None), released: EntityMap::with_default(false), trace: Vec::new() };
        let mut assigned = EntityMap::<ValueId, bool>::with_default(false);
        let mut list: Vec<ValueId> =
            waiting.iter().flat_map(|&b| buffers.get(b).values.iter().copied()).filter(|&v| bytes(v) > 0).collect();
        list.sort_by_key(|&v| (buffers.range(v).start, buffers.range(v).end, v));
        for &value in &list {
            assigned[value] = true;
        }
        let mut by_end = list.clone();
        by_end.sort_by_key(|&v| (buffers.range(v).end, buffers.range(v).start, v));
        let mut interval = EntityMap::<ValueId, (u32, u32)>::with_default((0, 0));
        let mut first_of = EntityMap::<BufferId, Option<ValueId>>::with_default(None);
        let mut tick: Tick = 0;
        let (mut next_start, mut next_end) = (0, 0);
        while next_end < by_end.len() {
            let end = buffers.range(by_end[next_end]).end;
            let now = list.get(next_start).map_or(end, |&v| buffers.range(v).start.min(end));
            while let Some(&value) = list.get(next_start).filter(|&&v| buffers.range(v).start == now) {
                next_start += 1;
                let buffer = buffers.of_value(value);
                let shared = match first_of[buffer] {
                    Some(first) => Some(first),
                    None if buffers.get(buffer).values.len() == 1 => {
                        let operand = dying_operand(analyses, value, now, |v| assigned[v] && !this.released[v]);
                        if let Some(operand) = operand {
                            this.released[operand] = true;
                            this.free(&mut tick, now, operand, &interval);
                        }
                        operand
                    }
                    None => None,
                };
                let group = match shared {
                    Some(other) => {
                        this.trace.push((now, HeapEvent::Share(value, other)));
                        this.group[other].expect("it has memory")
                    }
                    None => {
                        this.trace.push((now, HeapEvent::Alloc(value)));
                        first_of[buffer] = Some(value);
                        let number = u32::try_from(value.index()).expect("values are numbered by u32");
                        this.groups.push(Group { intervals: Vec::new(), number });
                        u32::try_from(this.groups.len() - 1).expect("fewer groups than values")
                    }
                };
                this.group[value] = Some(group);
                let intervals = &mut this.groups[group as usize].intervals;
                interval[value] = (group, u32::try_from(intervals.len()).expect("fewer than values"));
                intervals.push((tick, tick, bytes(value)));
                tick += 1;
            }
            while let Some(&value) = by_end.get(next_end).filter(|&&v| buffers.range(v).end == now) {
                next_end += 1;
                if !this.released[value] {
                    this.free(&mut tick, now, value, &interval);
                }
            }
        }
        this
    }

    fn free(&mut self, tick: &mut Tick, now: Time, value: ValueId, interval: &EntityMap<ValueId, (u32, u32)>) {
        let (group, index) = interval[value];
        self.groups[group as usize].intervals[index as usize].1 = *tick;
        self.trace.push((now, HeapEvent::Free(value)));
        *tick += 1;
    }
}

/// A value that dies where `value` is defined, is read there and may be written over. Only buffers of one value take part.
fn dying_operand(analyses: &Analyses<'_>, value: ValueId, now: Time, in_heap: impl Fn(ValueId) -> bool) -> Option<ValueId> {
    let (module, values, buffers) = (analyses.module(), analyses.values(), analyses.buffers());
    let definition = values.get(value);
    let instr = module.instr(definition.instr);
    if matches!(instr.op, Op::Copy) {
        return None;
    }
    instr.operands.iter().find_map(|&operand| {
        let mut of_operand: Vec<ValueId> = values.all(module, operand).collect();
        of_operand.sort_unstable();
        of_operand.dedup();
        of_operand.into_iter().find(|&v| {
            let defined = values.get(v);
            buffers.get(buffers.of_value(v)).values.len() == 1
                && buffers.range(v).end == now
                && in_heap(v)
                && instr.operands.contains(&defined.instr)
                && may_share(
                    module,
                    analyses.users(),
                    &values.positions,
                    (defined.instr, defined.position),
                    (definition.instr, definition.position),
                )
        })
    })
}
