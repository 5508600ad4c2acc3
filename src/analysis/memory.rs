//! The figures that XLA reports for a compiled module (`memory_analysis()`).
//!
//! Source: `pjrt/compiled_memory_stats.cc`, `ComputePeakMemoryImpl` in `service/buffer_assignment.cc`. Argument is the sum of the entry's parameter
//! allocations, alias those of them that are results too, output everything that holds a result, temp everything else but constants. `peak` is parameters,
//! constants and results of all memory spaces, plus the most that a heap holds at once, without gaps, tuple tables not counted; of two heaps
//! (device and host) the larger counts (seen in `gpt3_1b3_offload`, where the host's is larger).

use serde::Serialize;

use super::Analyses;
use super::assignment::{AllocationKind, HeapEvent};
use crate::entity::BufferId;
use crate::ir::{EntityMap, HOST};

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
}

impl Memory {
    /// Counts the bytes of an assignment.
    pub fn of(analyses: &Analyses<'_>) -> Self {
        let assignment = analyses.assignment();
        let mut this = Self::default();
        let mut fixed = 0;
        for allocation in &assignment.allocations {
            let host = allocation.color == HOST;
            let is_parameter = matches!(allocation.kind, AllocationKind::Parameter { .. });
            if is_parameter {
                *(if host { &mut this.host_argument } else { &mut this.argument }) += allocation.bytes;
                if allocation.live_out && !host {
                    this.alias += allocation.bytes;
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
        let heaps = assignment.traces.iter().map(|(_, trace)| heap_peak(analyses, trace.iter().map(|(_, e)| *e)));
        this.peak = fixed + heaps.max().unwrap_or(0);
        this
    }

    /// Bytes of device memory that the step needs: argument + output − alias + temp.
    pub fn device_bytes(&self) -> u64 {
        (self.argument + self.output + self.temp).saturating_sub(self.alias)
    }
    /// Bytes of pinned host memory that the step needs at most (results that are written over parameters count twice).
    pub fn host_bytes(&self) -> u64 {
        self.host_argument + self.host_output + self.host_temp
    }
}

/// The most that is alive at once in a heap.
fn heap_peak(analyses: &Analyses<'_>, events: impl Iterator<Item = HeapEvent>) -> u64 {
    let (module, values) = (analyses.module(), analyses.values());
    let bytes = |v| module.shapes.byte_size(values.get(v).shape);
    let mut holder = EntityMap::with_default(None);
    let mut holds = EntityMap::with_default(0u32);
    let (mut now, mut peak) = (0u64, 0u64);
    for event in events {
        match event {
            HeapEvent::Alloc(value) => {
                holder[value] = Some(value);
                holds[value] = 1;
                now += bytes(value);
            }
            HeapEvent::Share(value, other) => {
                let first = holder[other].expect("it has memory");
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
        peak = peak.max(now);
    }
    peak
}

/// Bytes in a memory space at every instant: what is fixed (parameters, constants, results) and what lives in the heap.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Bytes that are there all the time.
    pub fixed: u64,
    /// Bytes of heap buffers alive at each instant of the clock, one entry an instant plus one for the end.
    pub heap: Vec<u64>,
}

impl Curve {
    /// The curve of one memory space. Costs O(values + instants).
    pub fn of(analyses: &Analyses<'_>, color: i64) -> Self {
        let (buffers, assignment) = (analyses.buffers(), analyses.assignment());
        let end = analyses.schedule().end() as usize + 1;
        let mut change = vec![0i64; end + 1];
        for (_, buffer) in buffers.iter().filter(|(id, b)| b.color == color && is_in_heap(analyses, *id)) {
            let bytes = i64::try_from(buffer.bytes).unwrap_or(i64::MAX);
            for (from, to) in alive(analyses, buffer) {
                change[from as usize] += bytes;
                change[to as usize + 1] -= bytes;
            }
        }
        let fixed = assignment.allocations.iter().filter(|a| a.color == color && !a.is_temp()).map(|a| a.bytes).sum();
        let mut now = 0i64;
        let heap = change[..end]
            .iter()
            .map(|c| {
                now += c;
                u64::try_from(now).unwrap_or(0)
            })
            .collect();
        Self { fixed, heap }
    }
    /// The first instant at which most is alive, and how much.
    pub fn peak(&self) -> (usize, u64) {
        let (at, &most) = self.heap.iter().enumerate().rev().max_by_key(|(_, bytes)| **bytes).unwrap_or((0, &0));
        (at, self.fixed + most)
    }
}

/// Whether a buffer lies in a heap.
pub fn is_in_heap(analyses: &Analyses<'_>, buffer: BufferId) -> bool {
    analyses.assignment().place_of(buffer).is_some_and(|(a, _)| a.kind == AllocationKind::Heap)
}

/// The instants at which one of a buffer's values is alive, as disjoint ranges with both ends included.
pub fn alive(analyses: &Analyses<'_>, buffer: &super::Buffer) -> Vec<(super::Time, super::Time)> {
    let mut ranges: Vec<(super::Time, super::Time)> =
        buffer.values.iter().map(|&v| analyses.buffers().range(v)).map(|r| (r.start, r.end)).collect();
    ranges.sort_unstable();
    let mut out: Vec<(super::Time, super::Time)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 + 1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}
