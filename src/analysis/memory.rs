//! The figures that XLA reports for a compiled module (`memory_analysis()`).
//!
//! Source: `pjrt/compiled_memory_stats.cc`, `ComputePeakMemoryImpl` in `service/buffer_assignment.cc`. Argument is the sum of the entry's parameter
//! allocations, alias those of them that are results too, output everything that holds a result, temp everything else but constants. `peak` is parameters,
//! constants and results of all memory spaces, plus the most that a heap holds at once, without gaps, tuple tables not counted; of two heaps
//! (device and host) the larger counts (seen in `gpt3_1b3_offload`, where the host's is larger).

use serde::Serialize;

use super::Analyses;
use super::Time;
use super::assignment::AllocationKind;
use super::heap_run::HeapEvent;
use crate::entity::{BufferId, ValueId};
use crate::ir::{DEVICE, EntityMap, HOST};

/// Bytes by use, as in XLA's `CompiledMemoryStats`; `host_*` are pinned host memory, `S(5)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Parameters.
    pub argument: u64,
    /// Results, donated parameters included.
    pub output: u64,
    /// Donated parameters.
    pub alias: u64,
    /// Temporaries.
    pub temp: u64,
    /// XLA's peak: fixed allocations of all memory spaces and the fuller heap, without fragmentation.
    pub peak: u64,
    /// Parameters on the host.
    pub host_argument: u64,
    /// Results on the host.
    pub host_output: u64,
    /// Temporaries on the host.
    pub host_temp: u64,
    /// Donated parameters on the host. XLA does not report it.
    #[serde(skip)]
    pub host_alias: u64,
}

impl Memory {
    /// Counts the bytes of an assignment.
    pub fn of(analyses: &Analyses<'_>) -> Self {
        let assignment = analyses.assignment();
        let mut this = Self::default();
        let mut fixed = assignment.applied_constants;
        for allocation in &assignment.allocations {
            let host = allocation.color == HOST;
            let is_parameter = matches!(allocation.kind, AllocationKind::Parameter { .. });
            if is_parameter {
                *(if host { &mut this.host_argument } else { &mut this.argument }) += allocation.bytes;
                if allocation.live_out {
                    *(if host { &mut this.host_alias } else { &mut this.alias }) += allocation.bytes;
                }
            }
            if allocation.live_out {
                *(if host { &mut this.host_output } else { &mut this.output }) += allocation.bytes;
            }
            if is_parameter || allocation.live_out || allocation.kind == AllocationKind::Constant {
                fixed += allocation.bytes;
            }
        }
        let colors: std::collections::BTreeSet<i64> = assignment.allocations.iter().map(|a| a.color).collect();
        for color in colors {
            *(if color == HOST { &mut this.host_temp } else { &mut this.temp }) += assignment.temp(color);
        }
        let heaps = assignment.traces.iter().map(|(_, trace)| replay(analyses, trace).map(|(_, bytes)| bytes).max().unwrap_or(0));
        this.peak = fixed + heaps.max().unwrap_or(0);
        this
    }

    /// Bytes of device memory that the step needs: argument + output − alias + temp.
    pub fn device_bytes(&self) -> u64 {
        (self.argument + self.output + self.temp).saturating_sub(self.alias)
    }
    /// Bytes of pinned host memory that the step needs: a result that is written over a parameter has no buffer of its own.
    pub fn host_bytes(&self) -> u64 {
        (self.host_argument + self.host_output + self.host_temp).saturating_sub(self.host_alias)
    }
}

/// Bytes in a heap after each event, with the instant of the event. A group counts once, while one of its values is alive.
fn replay<'a>(analyses: &'a Analyses<'_>, trace: &'a [(Time, HeapEvent)]) -> impl Iterator<Item = (Time, u64)> + 'a {
    let (module, values) = (analyses.module(), analyses.values());
    let bytes = |v: ValueId| module.shapes.byte_size(values.get(v).shape);
    let mut holder = EntityMap::with_default(None);
    let mut holds = EntityMap::with_default(0u32);
    let mut now = 0u64;
    trace.iter().map(move |&(time, event)| {
        match event {
            HeapEvent::Alloc(value) => {
                holder[value] = Some(value);
                holds[value] = 1;
                now += bytes(value);
            }
            HeapEvent::Share(value, other) => {
                let first: ValueId = holder[other].expect("it has memory");
                holder[value] = Some(first);
                if holds[first] == 0 {
                    now += bytes(first);
                }
                holds[first] += 1;
            }
            HeapEvent::Free(value) => {
                let first = holder[value].expect("it has memory");
                holds[first] -= 1;
                if holds[first] == 0 {
                    now -= bytes(first);
                }
            }
        }
        (time, now)
    })
}

/// Bytes in a memory space at every instant: what is fixed (parameters, constants, results) and what lives in the heap.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Bytes that are there all the time.
    pub fixed: u64,
    /// Bytes alive in the heap at each instant of the clock, and one entry for the end; results that take over an operand's memory count once.
    pub heap: Vec<u64>,
}

impl Curve {
    /// The curve of one memory space. Costs O(values + instants) once buffers are assigned.
    pub fn of(analyses: &Analyses<'_>, color: i64) -> Self {
        let assignment = analyses.assignment();
        let mut heap = vec![0u64; analyses.schedule().end() as usize + 1];
        let (mut from, mut now) = (0usize, 0u64);
        let trace = assignment.traces.iter().find(|(c, _)| *c == color).map_or(&[][..], |(_, trace)| trace);
        for (time, bytes) in replay(analyses, trace) {
            let time = time as usize;
            if time >= from {
                heap[from..=time].fill(now);
                from = time + 1;
            }
            heap[time] = heap[time].max(bytes);
            now = bytes;
        }
        heap[from..].fill(now);
        let allocations = assignment.allocations.iter().filter(|a| a.color == color && !a.is_temp());
        let applied = if color == DEVICE { assignment.applied_constants } else { 0 };
        Self { fixed: allocations.map(|a| a.bytes).sum::<u64>() + applied, heap }
    }
    /// The first instant at which most is alive, and how much.
    pub fn peak(&self) -> (usize, u64) {
        let (at, &most) = self.heap.iter().enumerate().rev().max_by_key(|(_, bytes)| **bytes).unwrap_or((0, &0));
        (at, self.fixed + most)
    }
}

/// Something that holds memory at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    /// The buffer; of several that share memory, the one that is alive or the latest.
    pub buffer: BufferId,
    /// The value of it that is alive, or its first.
    pub value: ValueId,
    /// Bytes that it holds.
    pub bytes: u64,
}

/// What holds memory of one memory space at an instant, largest first, then by the number of the value: fixed allocations, and what is alive in the heap.
/// Without constants of applied functions; the sum is otherwise that of the [`Curve`]. Costs O(values · log).
pub fn alive_at(analyses: &Analyses<'_>, color: i64, time: Time) -> Vec<Alive> {
    let (buffers, assignment, module) = (analyses.buffers(), analyses.assignment(), analyses.module());
    // One entry for each fixed allocation and each group of a heap.
    let mut fixed = vec![None::<(bool, Time, Alive)>; assignment.allocations.len()];
    let mut heap = rustc_hash::FxHashMap::<u32, (bool, Time, Alive)>::default();
    for (id, buffer) in buffers.iter().filter(|(_, b)| b.color == color && b.bytes > 0) {
        let Some(index) = assignment.allocation_of(id) else { continue };
        let allocation = &assignment.allocations[index];
        for &value in &buffer.values {
            let range = buffers.range(value);
            let place = assignment.in_heap(value);
            let now = range.start <= time && time <= range.end && !place.is_some_and(|p| p.taken_over && range.end == time);
            let bytes = if place.is_some() { module.shapes.byte_size(analyses.values().get(value).shape) } else { allocation.bytes };
            let entry = (now, if now { range.start } else { 0 }, Alive { buffer: id, value, bytes });
            match place {
                Some(place) if now => {
                    let best = heap.entry(place.group).or_insert(entry);
                    *best = later(*best, entry);
                }
                None if !allocation.is_temp() => {
                    let best = fixed[index].get_or_insert(entry);
                    *best = later(*best, entry);
                }
                _ => {}
            }
        }
    }
    let mut out: Vec<Alive> = fixed.into_iter().flatten().chain(heap.into_values()).map(|(_, _, alive)| alive).collect();
    out.sort_by_key(|a| (std::cmp::Reverse(a.bytes), a.value));
    out
}

/// Of two holders of one place the one that is alive, or the later.
fn later(a: (bool, Time, Alive), b: (bool, Time, Alive)) -> (bool, Time, Alive) {
    if (b.0, b.1) > (a.0, a.1) { b } else { a }
}

/// Whether a buffer lies in a heap.
pub fn is_in_heap(analyses: &Analyses<'_>, buffer: BufferId) -> bool {
    analyses.assignment().place_of(buffer).is_some_and(|(a, _)| a.kind == AllocationKind::Heap)
}

/// The instants at which one of a buffer's values is alive, as disjoint ranges with both ends included.
pub fn alive(analyses: &Analyses<'_>, buffer: &super::Buffer) -> Vec<(Time, Time)> {
    let mut ranges: Vec<(Time, Time)> = buffer.values.iter().map(|&v| analyses.buffers().range(v)).map(|r| (r.start, r.end)).collect();
    ranges.sort_unstable();
    let mut out: Vec<(Time, Time)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 + 1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}
