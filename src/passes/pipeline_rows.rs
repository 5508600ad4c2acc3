//! `pipeline-rows`: moves rows over the link while other iterations compute.
//!
//! # What it does
//! A loop that works on one row of a stack in host memory an iteration reads the row and writes it back by asynchronous copies within the
//! iteration. Where there is not enough time for that, the row of the next iteration is read in this one and carried in an element of the loop's
//! tuple, or the row that this iteration made is carried and written in the next one. The first row is then read before the loop, the last
//! one written after it. Starts and dones move to where the link is free.
//!
//! # When it helps
//! Optimizer states in host memory, whose updates stand late in the body that makes their gradients; stacks in host memory that a body reads early.
//!
//! # Example
//! ```text
//! before                                           after
//! body: %u' = async-update(%s, %m', %i)            body: %u' = async-update(%s, %m.last, %i + 1)
//!       ROOT tuple(.., %u')                              ROOT tuple(.., %u', %m')
//! ```
//!
//! # Exactness
//! In the first iteration the carried write has no row of an iteration before it; its index is outside the stack and clamped to the first row that
//! the loop works on, and it writes there what stands there. In the last iteration the carried read is clamped likewise and nobody uses
//! what it reads. Read and write of one stack follow one another as they did.
//!
//! # Cost
//! One simulation, and four small timetables a loop.
//!
//! # Source
//! Lam, "Software Pipelining: An Effective Scheduling Technique for VLIW Machines", PLDI 1988.

mod timetable;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Users;
use crate::analysis::loops::{Access, Index, Kind, Loop, Loops, Rows};
use crate::cost::{Prices, transfer};
use crate::ir::{HOST, Insertion, InstrId, Instruction, Module, Op};
use crate::machine::Machine;
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};
use crate::rewrite::{LoopEdit, NewElement, define_take};
use crate::sim::simulate;
use crate::units::{BytesPerSec, Nanos};

use super::loop_handle;
use super::stacks::{asynchronous, counter_element, iteration_number, scalar_constant, slice_row, write_row, zero_fill};
use timetable::{Item, ReadWindow, Timetable, Way, WriteWindow, timetable};

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct PipelineRows;

impl Pass for PipelineRows {
    fn name(&self) -> &'static str {
        "pipeline-rows"
    }
    fn run(&self, module: &mut Module, cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let count = pipeline_rows(module, &cx.machine);
        let text = format!("{count} transfers of rows moved to another iteration");
        log.entries.push(Entry { pass: self.name(), changed: count > 0, text, plan: None });
        Ok(Changed::from(count > 0))
    }
}

/// Moves transfers of rows to where the link is free; returns how many cross into another iteration. Where none does, nothing changes.
pub(super) fn pipeline_rows(module: &mut Module, machine: &Machine) -> usize {
    let count = Loops::of(module, &Users::of(module)).loops.len();
    let mut crossing = 0;
    let mut reached = None;
    for n in 0..count {
        let users = Users::of(module);
        let Some(this) = Loops::of(module, &users).loops.into_iter().nth(n) else { break };
        if this.home != module.entry_id() || users.callers(this.body).len() != 1 || this.trips.is_none_or(|t| t == 0) {
            continue;
        }
        let stacks = stacks(module, &users, &this);
        if stacks.is_empty() {
            continue;
        }
        let reached = reached.get_or_insert_with(|| {
            let prices = Prices::new(module, machine);
            simulate(module, &boundless(machine), &prices)
        });
        let times = times(module, &this, |id| reached.steady(id).map(|s| (s.begin, s.end)));
        let items: Vec<Item> = stacks.iter().map(|s| s.item(module, machine)).collect();
        let table = timetable(&times, &items);
        let across = table.across.iter().flatten().filter(|&&a| a).count();
        if across > 0 {
            apply(module, &this, &stacks, &table);
            crossing += across;
        }
    }
    if crossing > 0 {
        super::dce::dce(module);
    }
    crossing
}

/// The same machine with a link that takes no time.
fn boundless(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    let fast = BytesPerSec::gb(1e6);
    (machine.h2d, machine.d2h, machine.both_ways, machine.host.node_dram) = (fast, fast, fast, fast);
    machine.copy_latency = Nanos::ZERO;
    machine
}

/// When each position of a body is reached, and last when its root is.
fn times(module: &Module, this: &Loop, span: impl Fn(InstrId) -> Option<(Nanos, Nanos)>) -> Vec<Nanos> {
    let order = &module.comp(this.body).order;
    let root = order.iter().position(|&i| i == this.root).unwrap_or(order.len() - 1);
    let order = &order[..=root];
    let runs = |id: InstrId| !matches!(module.instr(id).op, Op::AsyncStart(_) | Op::CopyStart { .. } | Op::Collective(_));
    let spans: Vec<Option<(Nanos, Nanos)>> = order.iter().map(|&id| span(id).filter(|_| runs(id))).collect();
    let start = spans.iter().flatten().map(|s| s.0).min().unwrap_or(Nanos::ZERO);
    let mut now = start;
    let mut out = Vec::new();
    for span in spans {
        now = now.max(span.map_or(now, |s| s.0));
        out.push(now - start);
        now = now.max(span.map_or(now, |s| s.1));
    }
    out
}

/// A stack in host memory whose rows a loop moves.
#[derive(Debug)]
struct Stack {
    element: usize,
    rows: Rows,
    read: Option<Read>,
    write: Option<Write>,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    start: InstrId,
    done: InstrId,
    index: Index,
    first: usize,
    over: usize,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    start: InstrId,
    done: InstrId,
    index: Index,
    value: InstrId,
    born: usize,
    made: usize,
}

impl Stack {
    fn item(&self, module: &Module, machine: &Machine) -> Item {
        let time = |id| transfer::of(module, id).map_or(Nanos::ZERO, |t| transfer::time_alone(t, machine));
        let bytes = self.read.map_or_else(
            || self.write.map_or(0, |w| module.shapes.byte_size(module.instr(w.value).shape)),
            |r| module.shapes.byte_size(module.instr(r.done).shape),
        );
        Item {
            read: self.read.map(|r| ReadWindow { time: time(r.start), first: r.first, over: r.over }),
            write: self.write.map(|w| WriteWindow { time: time(w.start), born: w.born, made: w.made }),
            bytes,
        }
    }
}

/// The stacks in host memory whose rows can be moved at other times.
fn stacks(module: &Module, users: &Users, this: &Loop) -> Vec<Stack> {
    if counter_element(module, this).is_none() {
        return Vec::new();
    }
    let order = &module.comp(this.body).order;
    let place: FxHashMap<InstrId, usize> = order.iter().enumerate().map(|(n, &i)| (i, n)).collect();
    let controlled: FxHashSet<InstrId> = order.iter().flat_map(|&i| module.instr(i).control_predecessors.iter().copied()).collect();
    let free = |id: InstrId| module.instr(id).control_predecessors.is_empty() && !controlled.contains(&id);
    let on_host = |n: &usize| module.shapes.memory_space(module.instr(this.elements[*n].initial).shape) == HOST;
    (0..this.elements.len())
        .filter(on_host)
        .filter_map(|n| stack(module, users, this, n, &place))
        .filter(|s| s.read.is_none_or(|r| free(r.start) && free(r.done)) && s.write.is_none_or(|w| free(w.start) && free(w.done)))
        .collect()
}

fn stack(module: &Module, users: &Users, this: &Loop, element: usize, place: &FxHashMap<InstrId, usize>) -> Option<Stack> {
    let at = &this.elements[element];
    let array = module.shapes.array(module.instr(at.initial).shape)?;
    let mut reads = this.reads(module, users, element)?;
    let read = reads.pop();
    if !reads.is_empty() {
        return None;
    }
    let steps = |index: Index| matches!(index.scale, 1 | -1);
    let read = match read {
        None => None,
        Some(read) => {
            let Access::Async { start, done } = read.access else { return None };
            let ok = steps(read.index) && read.rows.is_leading(array) && read.rows.dimension(array) == Some(0);
            let over = last_use(module, users, done, place)? + 1;
            ok.then_some(())?;
            Some((Read { start, done, index: read.index, first: *place.get(&done)?, over }, read.rows))
        }
    };
    let write = match at.kind {
        Kind::Invariant => None,
        Kind::Stack(write) => {
            let Access::Async { start, done } = write.access else { return None };
            let &[_, value, ..] = module.instr(start).operands.as_slice() else { return None };
            let base = source(module, value);
            let root = &module.instr(this.root).operands;
            let ok = steps(write.index)
                && write.rows.is_leading(array)
                && write.rows.dimension(array) == Some(0)
                && at.next == done
                && users.users(done) == [this.root]
                && root.iter().filter(|&&o| o == done).count() == 1
                && !root.iter().any(|&o| source(module, o) == base)
                && module.shapes.memory_space(module.instr(value).shape) != HOST
                && !matches!(module.instr(base).op, Op::Parameter { .. })
                && !at.results.is_empty();
            ok.then_some(())?;
            let made = *place.get(&start)?;
            Some((Write { start, done, index: write.index, value, born: *place.get(&base)?, made }, write.rows))
        }
        Kind::Linear { .. } | Kind::Carried => return None,
    };
    // The row that a carried write finds must be the one that is read.
    if let (Some((r, _)), Some((w, _))) = (&read, &write) {
        (r.index == w.index && place.get(&r.done)? < place.get(&w.start)?).then_some(())?;
    }
    let rows = read.map(|r| r.1).or(write.map(|w| w.1))?;
    Some(Stack { element, rows, read: read.map(|r| r.0), write: write.map(|w| w.0) })
}

/// The instruction whose buffer a value lies in, through what only renames it.
fn source(module: &Module, mut id: InstrId) -> InstrId {
    while let Op::Bitcast | Op::GetTupleElement { .. } | Op::OptBarrier = module.instr(id).op {
        id = module.instr(id).operands[0];
    }
    id
}

/// The position of the last instruction of a body that reads a value, also under another name; `None` where it leaves the body.
fn last_use(module: &Module, users: &Users, value: InstrId, place: &FxHashMap<InstrId, usize>) -> Option<usize> {
    let mut last = *place.get(&value)?;
    let mut names = vec![value];
    while let Some(name) = names.pop() {
        for &user in users.users(name) {
            last = last.max(*place.get(&user)?);
            match module.instr(user).op {
                Op::Tuple => return None,
                Op::Bitcast | Op::GetTupleElement { .. } | Op::OptBarrier | Op::AsyncStart(_) | Op::CopyStart { .. } => names.push(user),
                _ => {}
            }
        }
    }
    Some(last)
}

/// What is being built.
struct Builder<'a> {
    this: &'a Loop,
    edit: LoopEdit,
    takes: Vec<InstrId>,
    body: Vec<Insertion>,
    home: Vec<Insertion>,
    removed: FxHashSet<InstrId>,
    numbers: FxHashMap<(i64, i64), InstrId>,
    taken: FxHashSet<Box<str>>,
    top: usize,
}

fn apply(module: &mut Module, this: &Loop, stacks: &[Stack], table: &Timetable) {
    let mut builder = Builder {
        this,
        edit: LoopEdit::default(),
        takes: Vec::new(),
        body: Vec::new(),
        home: Vec::new(),
        removed: FxHashSet::default(),
        numbers: FxHashMap::default(),
        taken: module.names(),
        top: super::stacks::top(module, this),
    };
    let mut moved: Vec<Moved> = stacks.iter().zip(&table.across).map(|(s, &across)| builder.prepare(module, s, across)).collect();
    let mut after = Vec::new();
    for event in &table.events {
        let (stack, state) = (&stacks[event.item], &mut moved[event.item]);
        let instr = match (event.way, event.starts) {
            (Way::Read, true) => {
                let row = shifted(stack.read.expect("it reads").index, i64::from(state.across[0]));
                let number = builder.number(module, row);
                let slice =
                    slice_row(module, state.stack, stack.rows, (number, row), &mut builder.taken).expect("`stack` has seen the rows");
                let (start, done) = asynchronous(module, slice, &mut builder.taken);
                state.pending[0] = Some(done);
                start
            }
            (Way::Write, true) => {
                let row = shifted(stack.write.expect("it writes").index, -i64::from(state.across[1]));
                let number = builder.number(module, row);
                let update =
                    write_row(module, state.stack, state.value, (number, row), &mut builder.taken).expect("`stack` has seen the rows");
                let (start, done) = asynchronous(module, update, &mut builder.taken);
                state.pending[1] = Some(done);
                start
            }
            (way, false) => {
                let done = state.pending[way as usize].take().expect("what is waited for has started");
                match way {
                    Way::Read if state.across[0] => builder.edit.add[state.slots[0]].next = Some(done),
                    Way::Read => state.row = Some(done),
                    Way::Write => state.stack = done,
                }
                done
            }
        };
        builder.body.push(Insertion { position: event.position, instr });
    }
    for (stack, state) in stacks.iter().zip(&moved) {
        if let (Some(read), Some(row)) = (stack.read, state.row) {
            rename(module, this, read.done, row);
        }
        if stack.write.is_some() {
            builder.edit.next.push((stack.element, state.stack));
        }
        if state.across[1] {
            after.extend(builder.last_write(module, stack, state.slots[1]));
        }
    }
    let handle = loop_handle(this);
    module.splice(this.body, builder.body, &builder.removed);
    module.splice(this.home, builder.home, &FxHashSet::default());
    builder.edit.apply(module, &handle, &builder.takes);
    for (old, new, except) in after {
        for id in module.entry().order.clone() {
            if id != except {
                module.instructions[id].operands.iter_mut().filter(|o| **o == old).for_each(|o| *o = new);
            }
        }
    }
}

/// The row of the iteration `by` iterations later, as `scale · iteration + offset`.
fn shifted(index: Index, by: i64) -> (i64, i64) {
    (index.scale, index.offset + by * index.scale)
}

fn rename(module: &mut Module, this: &Loop, old: InstrId, new: InstrId) {
    for id in module.comp(this.body).order.clone() {
        module.instructions[id].operands.iter_mut().filter(|o| **o == old).for_each(|o| *o = new);
    }
}

/// How far a stack's transfers are built.
struct Moved {
    across: [bool; 2],
    /// Added elements that carry the row read and the row to write.
    slots: [usize; 2],
    /// The stack as it is, the row to write, and the row read within the iteration.
    stack: InstrId,
    value: InstrId,
    row: Option<InstrId>,
    pending: [Option<InstrId>; 2],
}

impl Builder<'_> {
    /// Elements for what crosses, and what they start with.
    fn prepare(&mut self, module: &mut Module, stack: &Stack, across: [bool; 2]) -> Moved {
        let stacked = module.instr(self.this.elements[stack.element].initial).shape;
        let take = define_take(module, &loop_handle(self.this), stack.element, stacked, &mut self.taken);
        self.body.push(Insertion { position: self.top, instr: take });
        self.takes.push(take);
        for id in stack.read.iter().flat_map(|r| [r.start, r.done]).chain(stack.write.iter().flat_map(|w| [w.start, w.done])) {
            self.removed.insert(id);
        }
        let first = stack.read.filter(|_| across[0] || across[1]).map(|read| self.first_read(module, stack, read));
        let mut moved = Moved { across, slots: [0; 2], stack: take, value: take, row: None, pending: [None; 2] };
        if let (true, Some(first)) = (across[0], first) {
            let (slot, carried) = self.slot(module, first);
            moved.slots[0] = slot;
            moved.row = Some(carried);
        }
        if let Some(write) = stack.write {
            moved.value = write.value;
            if across[1] {
                let start = self.first_row(module, write.value, first.map(|f| (f, across[0])));
                (moved.slots[1], moved.value) = self.slot(module, start);
                self.edit.add[moved.slots[1]].next = Some(write.value);
            }
        }
        moved
    }

    /// A new element, and its take.
    fn slot(&mut self, module: &mut Module, initial: InstrId) -> (usize, InstrId) {
        let handle = loop_handle(self.this);
        let slot = self.edit.add.len();
        let index = self.edit.index_of_added(module, &handle, slot);
        let take = define_take(module, &handle, index, module.instr(initial).shape, &mut self.taken);
        self.edit.add.push(NewElement { initial, next: None });
        self.takes.push(take);
        self.body.push(Insertion { position: self.top, instr: take });
        (slot, take)
    }

    /// What an element that carries a row to write starts with: the row that stands where it will be written, if anybody reads that.
    fn first_row(&mut self, module: &mut Module, value: InstrId, read: Option<(InstrId, bool)>) -> InstrId {
        let shape = module.instr(value).shape;
        let position = self.home_position(module, self.this.init);
        let Some((row, is_carried)) = read else {
            let fill = zero_fill(module, shape, &mut self.taken).expect("rows have elements");
            self.home.push(Insertion { position, instr: fill });
            return fill;
        };
        let mut row = row;
        if is_carried {
            // Two elements are two buffers.
            let name = Module::fresh_name("copy", &mut self.taken);
            row = module.define(Instruction::new(name, module.instr(row).shape, Op::Copy, [row]));
            self.home.push(Insertion { position, instr: row });
        }
        if module.instr(row).shape != shape {
            let name = Module::fresh_name("bitcast", &mut self.taken);
            row = module.define(Instruction::new(name, shape, Op::Bitcast, [row]));
            self.home.push(Insertion { position, instr: row });
        }
        row
    }

    /// Reads the row of the first iteration before the loop; returns it.
    fn first_read(&mut self, module: &mut Module, stack: &Stack, read: Read) -> InstrId {
        let initial = self.this.elements[stack.element].initial;
        let end = self.home_position(module, self.this.init);
        let order = &module.entry().order;
        // Before the last loop or from where the stack is there, whichever is later: the link is free then.
        let there = order.iter().position(|&i| i == initial).map_or(0, |p| p + 1);
        let earlier = order[..end].iter().rposition(|&i| matches!(module.instr(i).op, Op::While { .. })).map_or(there, |p| p + 1);
        let start = earlier.max(there).min(end);
        let map = (0, read.index.at(0));
        let number = scalar_constant(module, map.1, &mut self.taken);
        let slice = slice_row(module, initial, stack.rows, (number, map), &mut self.taken).expect("`stack` has seen the rows");
        let (begin, done) = asynchronous(module, slice, &mut self.taken);
        self.home.push(Insertion { position: start, instr: number });
        self.home.push(Insertion { position: start, instr: begin });
        self.home.push(Insertion { position: end, instr: done });
        done
    }

    /// Writes the row of the last iteration after the loop. Returns what replaces each result of the loop, and by whom not.
    fn last_write(&mut self, module: &mut Module, stack: &Stack, slot: usize) -> Vec<(InstrId, InstrId, InstrId)> {
        let (this, write) = (self.this, stack.write.expect("it writes"));
        let results = this.elements[stack.element].results.clone();
        let users = Users::of(module);
        let readers = results.iter().flat_map(|&r| users.users(r)).map(|&u| self.home_position(module, u));
        let end = readers.min().unwrap_or(module.entry().order.len() - 1);
        let index = self.edit.index_of_added(module, &loop_handle(this), slot);
        let name = Module::fresh_name("get-tuple-element", &mut self.taken);
        let op = Op::GetTupleElement { index: i64::try_from(index).expect("a tuple is small") };
        let row = module.define(Instruction::new(name, module.instr(write.value).shape, op, [this.instr]));
        self.takes.push(row);
        let trips = i64::try_from(this.trips.unwrap_or(1)).expect("rows are counted in 64 bits");
        let map = (0, write.index.at(trips - 1));
        let number = scalar_constant(module, map.1, &mut self.taken);
        let update = write_row(module, results[0], row, (number, map), &mut self.taken).expect("`stack` has seen the rows");
        let (begin, done) = asynchronous(module, update, &mut self.taken);
        let start = self.home_position(module, this.instr).max(self.home_position(module, results[0])) + 1;
        for instr in [row, number, begin] {
            self.home.push(Insertion { position: start, instr });
        }
        self.home.push(Insertion { position: end, instr: done });
        results.into_iter().map(|result| (result, done, begin)).collect()
    }

    fn home_position(&self, module: &Module, id: InstrId) -> usize {
        module.comp(self.this.home).order.iter().position(|&i| i == id).expect("it stands beside the loop")
    }

    /// The number of a row, made at the top of the body.
    fn number(&mut self, module: &mut Module, row: (i64, i64)) -> InstrId {
        if let Some(&number) = self.numbers.get(&row) {
            return number;
        }
        let number = iteration_number(module, self.this, row, &mut self.body, &mut self.taken).expect("`stacks` has looked for a counter");
        self.numbers.insert(row, number);
        number
    }
}
