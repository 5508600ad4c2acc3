//! Allocations: which buffers lie where, as XLA assigns them.
//!
//! Source: `service/buffer_assignment.cc`, `service/heap_simulator/heap_simulator.cc` of XLA; GPU compiles with
//! a 256-byte alignment, buffers for constants, a whole-module schedule and no limit to a heap.
//! 1. Buffers are taken by size, largest first; of equal ones results first, then in post-order of the program from the entry down.
//! 2. A constant, an entry parameter and a table of pointers (tuple) each get an allocation of their own.
//! 3. Any other buffer goes into an existing allocation if it fits there: first where an operand of one of its values lies, then
//!    into donated parameters and results from the smallest up. It must be of the same memory space and not be alive together with what lies
//!    there (an instant shared by the last position of one and the definition of the other is allowed where [`super::sharing`] allows it);
//!    a result only goes where its size is met exactly. Never into constants, parameters that are not donated, tuples.
//! 4. A result that found no place gets an allocation of its own; everything else is left to one heap a memory space ([`super::heap`]).
//! 5. At the end, temporary allocations (heaps and tuples) of a memory space are laid end to end, each 256-aligned; the last is not
//!    padded. Which is the last follows from a partition of the list of allocations that swaps from the ends (`std::partition`).
//!
//! Cost: O((buffers × donated parameters and results + heap) log n).

use std::collections::{BTreeMap, BTreeSet};

use super::Analyses;
use super::aliases::{Buffer, BufferKind};
use super::heap::{Placement, place};
use super::heap_run::{HeapEvent, HeapRun};
use super::live::LiveRange;
use super::schedule::Time;
use super::sharing::may_share;
use crate::entity::{BufferId, ValueId};
use crate::ir::{CompId, Entity, EntityMap, InstrId, Module, Op};

/// XLA:GPU's alignment of temporary buffers (`gpu_constants.h`).
pub const ALIGNMENT: u64 = 256;

/// What an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationKind {
    /// An entry parameter (or a part of one).
    Parameter {
        /// Its number.
        number: i64,
        /// The position in its shape.
        position: u32,
        /// Whether an output is written over it.
        donated: bool,
    },
    /// A constant.
    Constant,
    /// A table of pointers.
    Tuple,
    /// A result that no parameter was donated for.
    Output,
    /// All that XLA placed by heap simulation.
    Heap,
}

/// One allocation.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// What it is.
    pub kind: AllocationKind,
    /// Bytes.
    pub bytes: u64,
    /// Memory space.
    pub color: i64,
    /// Whether (part of) the result may lie in it.
    pub live_out: bool,
}

impl Allocation {
    /// Whether XLA counts it as temporary.
    pub fn is_temp(&self) -> bool {
        !self.live_out && matches!(self.kind, AllocationKind::Tuple | AllocationKind::Heap | AllocationKind::Output)
    }
}

/// A value in a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InHeap {
    /// The heap.
    pub allocation: u32,
    /// Values of one group lie at one offset: aliases, and results that took over an operand's memory.
    pub group: u32,
    /// Whether another value took the memory over at the last instant of this one, which then does not count there.
    pub taken_over: bool,
}

/// Where everything lies.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// All allocations, in the order in which they were made.
    pub allocations: Vec<Allocation>,
    /// Allocation and offset of each buffer; `None` for buffers without bytes.
    of_buffer: Vec<Option<(u32, u64)>>,
    /// Values that lie in a heap.
    in_heap: EntityMap<ValueId, Option<InHeap>>,
    /// What each heap did, in order; one list a memory space, ascending.
    pub traces: Vec<(i64, Vec<(Time, HeapEvent)>)>,
    /// Bytes of constants in functions that are applied inside other instructions.
    pub applied_constants: u64,
    temp: BTreeMap<i64, u64>,
    bases: Vec<u64>,
}

impl Assignment {
    /// Assigns all buffers of the module.
    pub fn of(analyses: &Analyses<'_>) -> Self {
        let buffers = analyses.buffers();
        let mut this = Self {
            allocations: Vec::new(),
            of_buffer: vec![None; buffers.len()],
            in_heap: EntityMap::with_default(None),
            traces: Vec::new(),
            applied_constants: 0,
            temp: BTreeMap::new(),
            bases: Vec::new(),
        };
        let mut pool =
            Pool { analyses, assignment: &mut this, open: Vec::new(), contents: Vec::new(), taken: Vec::new(), waiting: Vec::new() };
        for buffer in assignment_order(analyses) {
            pool.assign(buffer);
        }
        let mut waiting = pool.waiting;
        waiting.sort_by_key(|&b| (buffers.get(b).color, b));
        for of_color in waiting.chunk_by(|&a, &b| buffers.get(a).color == buffers.get(b).color) {
            this.simulate(analyses, of_color);
        }
        this.combine(analyses.module());
        this
    }

    fn new_allocation(&mut self, buffer: BufferId, of: &Buffer, kind: AllocationKind) -> u32 {
        self.allocations.push(Allocation { kind, bytes: of.bytes, color: of.color, live_out: of.live_out });
        let index = u32::try_from(self.allocations.len() - 1).expect("fewer allocations than buffers");
        self.of_buffer[buffer.index()] = Some((index, 0));
        index
    }

    /// Runs the heap over the buffers of one memory space.
    fn simulate(&mut self, analyses: &Analyses<'_>, waiting: &[BufferId]) {
        let color = analyses.buffers().get(waiting[0]).color;
        let run = HeapRun::of(analyses, waiting);
        let Placement { offsets, height } = place(&run.groups, ALIGNMENT);
        let index = u32::try_from(self.allocations.len()).expect("fewer allocations than buffers");
        self.allocations.push(Allocation { kind: AllocationKind::Heap, bytes: height, color, live_out: false });
        for &buffer in waiting {
            for &value in &analyses.buffers().get(buffer).values {
                if let Some(group) = run.group[value] {
                    self.in_heap[value] = Some(InHeap { allocation: index, group, taken_over: run.released[value] });
                    self.of_buffer[buffer.index()] = Some((index, offsets[group as usize]));
                }
            }
        }
        self.traces.push((color, run.trace));
    }

    /// Lays temporary allocations end to end.
    fn combine(&mut self, module: &Module) {
        // Allocations of applied functions come last and are not temporary; they only take part in the swaps.
        let mut list: Vec<Option<usize>> = (0..self.allocations.len()).map(Some).collect();
        let (count, constants) = thread_local_values(module);
        self.applied_constants = constants;
        list.extend(std::iter::repeat_n(None, count));
        let is_temp = |item: Option<usize>| item.is_some_and(|i| self.allocations[i].is_temp());
        let (mut first, mut last) = (0, list.len());
        loop {
            while first < last && !is_temp(list[first]) {
                first += 1;
            }
            while first < last && is_temp(list[last - 1]) {
                last -= 1;
            }
            if first >= last {
                break;
            }
            list.swap(first, last - 1);
            first += 1;
            last -= 1;
        }
        self.bases = vec![0; self.allocations.len()];
        for index in list.into_iter().flatten() {
            let allocation = &self.allocations[index];
            if allocation.is_temp() {
                let total = self.temp.entry(allocation.color).or_insert(0);
                let base = total.next_multiple_of(ALIGNMENT);
                self.bases[index] = base;
                *total = base + allocation.bytes;
            }
        }
    }

    /// The allocation of a buffer and its offset there (for a temporary one in the combined temporary block of its memory space);
    /// `None` for a buffer without bytes.
    pub fn place_of(&self, buffer: BufferId) -> Option<(&Allocation, u64)> {
        let (index, offset) = self.of_buffer[buffer.index()]?;
        Some((&self.allocations[index as usize], self.bases[index as usize] + offset))
    }
    /// The heap and the group of a value; `None` where it lies elsewhere or has no bytes.
    pub fn in_heap(&self, value: ValueId) -> Option<InHeap> {
        self.in_heap[value]
    }
    /// The allocation of a buffer, by its place in `allocations`.
    pub fn allocation_of(&self, buffer: BufferId) -> Option<usize> {
        self.of_buffer[buffer.index()].map(|(index, _)| index as usize)
    }
    /// Bytes of the temporary block of a memory space.
    pub fn temp(&self, color: i64) -> u64 {
        self.temp.get(&color).copied().unwrap_or(0)
    }
}

/// The order in which buffers are given allocations.
fn assignment_order(analyses: &Analyses<'_>) -> Vec<BufferId> {
    let (module, values, buffers) = (analyses.module(), analyses.values(), analyses.buffers());
    let mut position = vec![0u32; module.instructions.len()];
    let mut next = 0;
    for (_, ids) in values.order().iter().rev() {
        for &id in ids {
            position[id.index()] = next;
            next += 1;
        }
    }
    let key = |id: BufferId| {
        let buffer = buffers.get(id);
        let first = buffer.values.iter().map(|&v| position[values.get(v).instr.index()]).min().expect("a buffer has a value");
        (std::cmp::Reverse(buffer.bytes), !buffer.live_out, first)
    };
    let mut order: Vec<BufferId> = buffers.iter().map(|(id, _)| id).collect();
    order.sort_by_cached_key(|&id| key(id));
    order
}

/// Allocations that may take more than one buffer, while buffers are being assigned.
struct Pool<'a, 'm> {
    analyses: &'a Analyses<'m>,
    assignment: &'a mut Assignment,
    /// Donated parameters and results, largest first.
    open: Vec<u32>,
    /// What lies in each allocation: values by their live ranges.
    contents: Vec<BTreeSet<(Time, Time, ValueId)>>,
    /// Spans of the clock that each allocation is taken all over.
    taken: Vec<Spans>,
    /// Buffers left to the heap.
    waiting: Vec<BufferId>,
}

impl Pool<'_, '_> {
    fn assign(&mut self, id: BufferId) {
        let buffer = self.analyses.buffers().get(id);
        match buffer.kind {
            BufferKind::Constant => self.open_new(id, buffer, AllocationKind::Constant),
            BufferKind::Parameter { number, position, donated } => {
                self.open_new(id, buffer, AllocationKind::Parameter { number, position, donated });
                if donated {
                    self.open.push(self.last());
                }
            }
            BufferKind::Tuple => self.open_new(id, buffer, AllocationKind::Tuple),
            BufferKind::Plain => {
                if !self.reuse(id, buffer) {
                    if buffer.live_out {
                        self.open_new(id, buffer, AllocationKind::Output);
                        self.open.push(self.last());
                    } else {
                        self.waiting.push(id);
                    }
                }
            }
        }
    }
    fn last(&self) -> u32 {
        u32::try_from(self.assignment.allocations.len() - 1).expect("fewer allocations than buffers")
    }
    fn open_new(&mut self, id: BufferId, buffer: &Buffer, kind: AllocationKind) {
        self.assignment.new_allocation(id, buffer, kind);
        self.contents.push(BTreeSet::new());
        self.taken.push(Spans(0));
        self.put(self.last(), buffer);
    }
    fn put(&mut self, allocation: u32, buffer: &Buffer) {
        for &value in &buffer.values {
            let range = self.analyses.buffers().range(value);
            self.contents[allocation as usize].insert((range.start, range.end, value));
            self.taken[allocation as usize].0 |= Spans::inside(self.analyses.schedule().end(), range).0;
        }
    }
    /// Puts the buffer into an allocation that exists, if it fits into one.
    fn reuse(&mut self, id: BufferId, buffer: &Buffer) -> bool {
        let (values, module) = (self.analyses.values(), self.analyses.module());
        let mut candidates: Vec<u32> = Vec::new();
        for &value in &buffer.values {
            let definition = values.get(value);
            if definition.position == 0 {
                for &operand in &module.instr(definition.instr).operands {
                    let place = values.at(operand, 0).and_then(|v| self.assignment.of_buffer[self.analyses.buffers().of_value(v).index()]);
                    candidates.extend(place.map(|(index, _)| index));
                }
            }
        }
        let found = candidates.into_iter().find(|&a| self.fits(a, buffer));
        let end = self.analyses.schedule().end();
        let wanted = buffer.values.iter().fold(0, |w, &v| w | Spans::touched(end, self.analyses.buffers().range(v)).0);
        let open = self.open.iter().rev().copied().filter(|&a| self.taken[a as usize].0 & wanted == 0);
        let found = found.or_else(|| open.into_iter().find(|&a| self.fits(a, buffer)));
        let Some(index) = found else { return false };
        self.assignment.of_buffer[id.index()] = Some((index, 0));
        self.assignment.allocations[index as usize].live_out |= buffer.live_out;
        self.put(index, buffer);
        true
    }
    fn fits(&self, index: u32, buffer: &Buffer) -> bool {
        let allocation = &self.assignment.allocations[index as usize];
        let reusable = match allocation.kind {
            AllocationKind::Parameter { donated, .. } => donated,
            AllocationKind::Output => true,
            AllocationKind::Constant | AllocationKind::Tuple | AllocationKind::Heap => false,
        };
        if !reusable
            || allocation.color != buffer.color
            || allocation.bytes < buffer.bytes
            || (buffer.live_out && allocation.bytes != buffer.bytes)
        {
            return false;
        }
        let contents = &self.contents[index as usize];
        buffer.values.iter().all(|&value| {
            let range = self.analyses.buffers().range(value);
            // Ranges in one allocation follow each other, so ends ascend with starts.
            let free = contents
                .range(..=(range.end, Time::MAX, ValueId::new(u32::MAX as usize)))
                .rev()
                .take_while(|(_, end, _)| *end >= range.start)
                .all(|&(_, _, other)| !interferes(self.analyses, value, other));
            free && !self.copies_from(index, value)
        })
    }
    /// A copy never lies where its operand does, at whatever times.
    fn copies_from(&self, index: u32, value: ValueId) -> bool {
        let (module, values) = (self.analyses.module(), self.analyses.values());
        let instr = module.instr(values.get(value).instr);
        matches!(instr.op, Op::Copy)
            && instr.operands.iter().any(|&operand| {
                let defined_there = |v: &ValueId| values.get(*v).instr == operand;
                values
                    .all(module, operand)
                    .filter(defined_there)
                    .any(|v| self.assignment.of_buffer[self.analyses.buffers().of_value(v).index()].is_some_and(|(a, _)| a == index))
            })
    }
}

/// A set of 64 equal spans of the clock, which rules most allocations out at once.
struct Spans(u64);

impl Spans {
    /// The spans that lie in a live range, both ends included.
    fn inside(end: Time, range: LiveRange) -> Self {
        Self::of(end, |first, last| range.start <= first && last <= range.end)
    }
    /// The spans of which a live range has at least two instants: more than two ranges that follow each other share.
    fn touched(end: Time, range: LiveRange) -> Self {
        Self::of(end, |first, last| range.start.max(first) < range.end.min(last))
    }
    fn of(end: Time, holds: impl Fn(Time, Time) -> bool) -> Self {
        let width = end / 64 + 1;
        Self((0..64).filter(|&i| holds(i * width, (i + 1) * width)).fold(0, |bits, i| bits | 1 << i))
    }
}

/// Whether two values cannot lie at one address because of when they live.
fn interferes(analyses: &Analyses<'_>, a: ValueId, b: ValueId) -> bool {
    let ranges = analyses.buffers();
    let (ra, rb) = (ranges.range(a), ranges.range(b));
    if ra.start > rb.end || rb.start > ra.end {
        return false;
    }
    if ra.end == rb.start {
        !takes_over(analyses, b, a)
    } else if rb.end == ra.start {
        !takes_over(analyses, a, b)
    } else {
        true
    }
}

/// Whether the instruction that defines `user` reads the other value, at whatever position, and may write over it there.
fn takes_over(analyses: &Analyses<'_>, user: ValueId, operand: ValueId) -> bool {
    let (module, values) = (analyses.module(), analyses.values());
    let user = values.get(user);
    module.instr(user.instr).operands.iter().any(|&read| {
        let here = (0u32..).zip(values.all(module, read)).filter(|(_, v)| *v == operand);
        here.map(|(position, _)| position)
            .any(|position| may_share(module, analyses.users(), &values.positions, (read, position), (user.instr, user.position)))
    })
}

/// How many allocations XLA makes for the little functions that are applied inside other instructions, fused ones apart, and how many bytes
/// of constants they hold.
fn thread_local_values(module: &Module) -> (usize, u64) {
    let mut seen = EntityMap::<CompId, bool>::with_default(false);
    let mut stack = vec![(module.entry_id(), false)];
    let (mut count, mut constants) = (0, 0);
    while let Some((comp, counted)) = stack.pop() {
        if std::mem::replace(&mut seen[comp], true) {
            continue;
        }
        for &id in &module.comp(comp).order {
            let instr = module.instr(id);
            let forwards = |i: InstrId| matches!(module.instr(i).op, Op::Bitcast | Op::GetTupleElement { .. });
            if counted && matches!(instr.op, Op::Constant(_)) {
                constants += module.shapes.leaf_bytes(instr.shape);
            }
            if counted && !forwards(id) {
                count += if matches!(instr.op, Op::Tuple) { 1 } else { module.shapes.positions(instr.shape).len() };
            }
            let applied = match instr.op {
                Op::Fusion(_) => Some(false),
                Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::AsyncStart(_) | Op::AsyncUpdate(_) | Op::AsyncDone(_) => {
                    Some(counted)
                }
                _ => Some(true),
            };
            stack.extend(instr.op.called().into_iter().zip(std::iter::repeat(applied.unwrap_or(false))));
        }
    }
    (count, constants)
}
