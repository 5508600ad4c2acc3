//! `sink-update`: moves the optimizer's update of a scanned layer's weights into the loop that makes the gradient.
//!
//! # What it does
//! A backward loop fills a stack with the gradient of each layer; after the loop one elementwise fusion reads it together with parameter
//! and moments and writes their new values. Where nothing else reads the stack, each row of the update moves to the iteration that makes
//! the row of the gradient: the stack is never there. The update falls into one fusion for the states that depend on their own row and the
//! gradient alone, and one for each level of states that also read those (the parameter reads both moments): a row read from one updated stack must not reach
//! another stack's update in the same fusion, or XLA emits it over whole stacks.
//!
//! # When it helps
//! The gradient stacks are as large as the weights in the gradient's stored type, and often all alive at once when the backward loop ends.
//!
//! # Example
//! ```text
//! before                                                 after
//! body:  %g' = dynamic-update-slice(%g, %row, %i, ..)    body:  %m' = dynamic-update-slice(%m, 0.9·%m[i] + 0.1·%row, %i, ..)
//! entry: %m' = fusion(%m, get-tuple-element(%while))     entry: %m' = get-tuple-element(%while)
//! ```
//!
//! A program that fits its budget is left alone.
//!
//! # Refuses
//! Updates that read anything that is not a scalar from before the loop (a global norm), states that are not donated to the very output that replaces
//! them, states with another reader after the loop or a reader in the body that is not this row before its update.
//!
//! # Cost
//! Linear in the module for each stack.
//!
//! # Source
//! Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources" (LOMO), 2023, does it by hand in a framework.

mod row;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::loops::{Access, Kind, Loop, Loops, Write};
use crate::analysis::{Analyses, Users};
use crate::ir::{CompId, Dim, HOST, Insertion, InstrId, Instruction, Module, Op};
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};
use crate::rewrite::{LoopEdit, LoopHandle, NewElement, define_take};

use super::stacks::{asynchronous, counter_element, row_number, slice_row, top, write_row};
use row::row_fusion;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct SinkUpdate;

impl Pass for SinkUpdate {
    fn name(&self) -> &'static str {
        "sink-update"
    }
    fn run(&self, module: &mut Module, cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        if Analyses::new(module).memory().device_bytes() <= cx.memory.get() {
            return Ok(Changed::No);
        }
        let count = sink_updates(module);
        let text = format!("{count} updates moved into the loop that makes their gradient");
        log.entries.push(Entry { pass: self.name(), changed: count > 0, text, plan: None });
        Ok(Changed::from(count > 0))
    }
}

/// Moves every update that can be moved; returns how many.
pub fn sink_updates(module: &mut Module) -> usize {
    sink_hosted(module, &FxHashSet::default())
}

/// Moves every update that can be moved, with the states of the entry parameters `hosted` in host memory where that can be: their rows come in at
/// the top of the iteration and leave after the update. Those parameters and the outputs that replace them change their memory space.
pub(super) fn sink_hosted(module: &mut Module, hosted: &FxHashSet<i64>) -> usize {
    let mut count = 0;
    while let Some(mut sink) = find(module) {
        for state in &mut sink.states {
            let Op::Parameter { number } = module.instr(state.parameter).op else { continue };
            state.hosted = hosted.contains(&number) && state.element.is_none() && sink.index.is_some() && !state.read_later;
        }
        apply(module, &sink);
        super::dce::dce(module);
        count += 1;
    }
    count
}

/// States that an update in a loop could stream from the host: parameter numbers with their bytes, those whose update comes first in the body first.
pub(super) fn streamable(module: &Module) -> Vec<(i64, u64)> {
    let mut module = module.clone();
    let mut out: Vec<(usize, usize, i64, u64)> = Vec::new();
    while let Some(sink) = find(&module) {
        for state in sink.states.iter().filter(|s| s.element.is_none() && !s.read_later && sink.index.is_some()) {
            if let Op::Parameter { number } = module.instr(state.parameter).op {
                let bytes = module.shapes.byte_size(module.instr(state.parameter).shape);
                out.push((sink.position * 1000 / module.comp(sink.this.body).order.len().max(1), out.len(), number, bytes));
            }
        }
        apply(&mut module, &sink);
        super::dce::dce(&mut module);
    }
    out.sort_unstable();
    out.into_iter().map(|(_, _, number, bytes)| (number, bytes)).collect()
}

/// An update that can move.
#[derive(Debug)]
struct Sink {
    this: LoopHandle,
    /// The stack of gradients.
    gradient: usize,
    write: Write,
    /// Position in the body after which the update may stand.
    position: usize,
    /// The fusion after the loop, and which of its operands is the gradient.
    update: InstrId,
    gradient_operand: usize,
    states: Vec<State>,
    /// Scalar operands of the update.
    scalars: Vec<usize>,
    /// The loop, and the row of an iteration as `scale · iteration + offset`, where rows may come from the host.
    index: Option<(Loop, (i64, i64))>,
}

/// One state that the update rewrites.
#[derive(Debug)]
struct State {
    /// The entry parameter.
    parameter: InstrId,
    /// Which operand of the update it is.
    operand: usize,
    /// Which output of the update replaces it.
    output: usize,
    /// The loop's element that already carries it, unchanged.
    element: Option<usize>,
    /// 0 if its new value depends on its own row and the gradient alone; else one more than those it reads.
    level: usize,
    /// Whether anything but the result of the program reads the new value.
    read_later: bool,
    /// Whether it lives in host memory.
    hosted: bool,
}

fn find(module: &Module) -> Option<Sink> {
    let users = Users::of(module);
    let loops = Loops::of(module, &users);
    loops
        .loops
        .iter()
        .filter(|l| l.home == module.entry_id())
        .find_map(|this| (0..this.elements.len()).find_map(|element| candidate(module, &users, this, element)))
}

fn candidate(module: &Module, users: &Users, this: &Loop, gradient: usize) -> Option<Sink> {
    let Kind::Stack(write) = this.elements[gradient].kind else { return None };
    let Access::Fused { fusion: writer } = write.access else { return None };
    let stack = module.instr(this.elements[gradient].initial).shape;
    let dims = &module.shapes.array(stack)?.dims;
    let updated = module.shapes.array(module.instr(module.instr(write.update).operands[0]).shape)?;
    if write.rows.dimension(updated) != Some(0) || !write.rows.is_leading(updated) || updated.dims != *dims {
        return None;
    }
    if !write.index.covers(this.trips?, dims.first()?.size)
        || !this.reads(module, users, gradient)?.is_empty()
        || dims.iter().any(|d| d.dynamic)
    {
        return None;
    }
    if users.callers(this.body).len() != 1 || !matches!(module.instr(this.elements[gradient].next).op, Op::Fusion(_)) {
        return None;
    }
    let &[result] = this.elements[gradient].results.as_slice() else { return None };
    let &[update] = users.users(result) else { return None };
    let Op::Fusion(fusion) = &module.instr(update).op else { return None };
    let operands = &module.instr(update).operands;
    let gradient_operand = operands.iter().position(|&o| o == result)?;
    if operands.iter().filter(|&&o| o == result).count() != 1 || !fusion.aliasing.is_empty() {
        return None;
    }
    let computation = module.comp(fusion.calls);
    let outputs: Vec<InstrId> = match module.instr(computation.root).op {
        Op::Tuple => module.instr(computation.root).operands.to_vec(),
        _ => vec![computation.root],
    };
    if !computation.order.iter().all(|&i| i == computation.root && outputs.len() > 1 || is_elementwise(module, i, dims)) {
        return None;
    }
    let mut states = Vec::new();
    let mut scalars = Vec::new();
    for (n, &operand) in operands.iter().enumerate() {
        if n == gradient_operand {
            continue;
        }
        let shape = module.shapes.array(module.instr(operand).shape)?;
        if shape.dims.is_empty() {
            scalars.push(n);
        } else {
            states.push(state(module, users, this, update, n, outputs.len())?);
        }
    }
    let order = &module.entry().order;
    let place = |id: InstrId| order.iter().position(|&i| i == id);
    let start = place(this.init)?;
    if states.len() != outputs.len() || scalars.iter().any(|&n| place(operands[n]).is_none_or(|p| p > start)) {
        return None;
    }
    levels(module, fusion.calls, &outputs, gradient_operand, &mut states)?;
    let body = &module.comp(this.body).order;
    let mut position = ready(module, this.body, writer, write.update)?;
    for state in &states {
        if let Some(element) = state.element {
            for read in this.reads(module, users, element)? {
                let done = match read.access {
                    Access::Plain => read.slice,
                    Access::Fused { fusion } => fusion,
                    Access::Async { done, .. } => done,
                };
                if read.index != write.index || read.rows != write.rows {
                    return None;
                }
                position = position.max(body.iter().position(|&i| i == done)? + 1);
            }
        }
    }
    let handle = super::loop_handle(this);
    let mirrored = write.index.scale == -1;
    let index = (mirrored && counter_element(module, this).is_some()).then(|| (this.clone(), (write.index.scale, write.index.offset)));
    Some(Sink { index, this: handle, gradient, write, position, update, gradient_operand, states, scalars })
}

/// The place in a body from which on everything is there that the row of a writer is made of.
fn ready(module: &Module, body: CompId, writer: InstrId, update: InstrId) -> Option<usize> {
    let Op::Fusion(fusion) = &module.instr(writer).op else { return None };
    let needed = row::reachable(module, &module.instr(update).operands[1..]);
    let pairs = module.comp(fusion.calls).parameters.iter().zip(&module.instr(writer).operands);
    let order = &module.comp(body).order;
    let place = |id: InstrId| order.iter().position(|&i| i == id);
    pairs.filter(|(p, _)| needed.contains(p)).map(|(_, &o)| place(o).map(|p| p + 1)).try_fold(0, |a, b| Some(a.max(b?)))
}

/// Whether an instruction of the update works on each element alone, from parameters of the stack's dimensions and scalars.
fn is_elementwise(module: &Module, id: InstrId, dims: &[Dim]) -> bool {
    let instr = module.instr(id);
    let Some(shape) = module.shapes.array(instr.shape) else { return false };
    let fits = shape.dims.is_empty() || shape.dims == dims;
    fits && match &instr.op {
        Op::Parameter { .. } | Op::Unary(_) | Op::Binary(_) | Op::Compare { .. } | Op::Select | Op::Clamp | Op::Convert | Op::Copy => true,
        Op::ReducePrecision { .. } => true,
        Op::Constant(_) => shape.dims.is_empty(),
        Op::Broadcast { dimensions } => dimensions.is_empty(),
        _ => false,
    }
}

/// The state behind an operand of the update, if it is donated to the output that replaces it and nobody reads the old one later.
fn state(module: &Module, users: &Users, this: &Loop, update: InstrId, operand: usize, outputs: usize) -> Option<State> {
    let parameter = module.instr(update).operands[operand];
    let Op::Parameter { number } = module.instr(parameter).op else { return None };
    let root = module.entry().root;
    let mut alias = module.header.input_output_alias.iter().filter(|a| a.parameter == number && a.index.is_empty());
    let &[at] = alias.next()?.output.as_slice() else { return None };
    let replaced = *module.instr(root).operands.get(usize::try_from(at).ok()?)?;
    let output = match module.instr(replaced).op {
        Op::GetTupleElement { index } if module.instr(replaced).operands[0] == update => usize::try_from(index).ok()?,
        _ if replaced == update && outputs == 1 => 0,
        _ => return None,
    };
    if alias.next().is_some() || module.instr(root).operands.iter().filter(|&&o| o == replaced).count() != 1 {
        return None;
    }
    // The element that carries the old value, unchanged and once.
    let carried: Vec<usize> = (0..this.elements.len()).filter(|&n| this.elements[n].initial == parameter).collect();
    let element = match carried.as_slice() {
        [] => None,
        &[n] if this.elements[n].kind == Kind::Invariant && this.elements[n].results.is_empty() => Some(n),
        _ => return None,
    };
    let order = &module.entry().order;
    let place = |id: InstrId| order.iter().position(|&i| i == id);
    let end = place(this.instr)?;
    let ok = |&user: &InstrId| user == update || user == this.init || place(user).is_some_and(|p| p < end && reads_at_once(module, user));
    if module.instr(update).operands.iter().filter(|&&o| o == parameter).count() != 1 || !users.users(parameter).iter().all(ok) {
        return None;
    }
    let earlier_loops_pass_it_on = users.users(parameter).iter().filter(|&&u| matches!(module.instr(u).op, Op::Tuple) && u != this.init);
    for &tuple in earlier_loops_pass_it_on {
        // Another loop before this one that carries it unchanged, and whose result nobody takes.
        let &[other] = users.users(tuple) else { return None };
        let taken = users.users(other).iter().any(|&u| {
            matches!(module.instr(u).op, Op::GetTupleElement { index } if module.instr(tuple).operands.get(usize::try_from(index).unwrap_or(usize::MAX)) == Some(&parameter))
        });
        if taken || !matches!(module.instr(other).op, Op::While { .. }) || place(other)? > end {
            return None;
        }
    }
    let read_later =
        users.users(replaced).iter().any(|&u| u != root && u != update && !matches!(module.instr(u).op, Op::GetTupleElement { .. }));
    Some(State { parameter, operand, output, element, level: 0, read_later, hosted: false })
}

/// Whether a reader is done with its operand when it has run, or hands it to a loop that ends before the next instruction.
fn reads_at_once(module: &Module, user: InstrId) -> bool {
    !matches!(
        module.instr(user).op,
        Op::Bitcast
            | Op::GetTupleElement { .. }
            | Op::OptBarrier
            | Op::AsyncStart(_)
            | Op::CopyStart { .. }
            | Op::AddDependency
            | Op::Call { .. }
            | Op::Conditional { .. }
    )
}

/// Orders the states: the new value of each must depend on its own row, the gradient, scalars and new values of lower levels alone.
fn levels(module: &Module, comp: crate::ir::CompId, outputs: &[InstrId], gradient: usize, states: &mut [State]) -> Option<()> {
    let by_output: FxHashMap<InstrId, usize> = outputs.iter().enumerate().map(|(n, &o)| (o, n)).collect();
    if by_output.len() != outputs.len() {
        return None;
    }
    let parameters = &module.comp(comp).parameters;
    let mut reads: Vec<Vec<usize>> = Vec::new();
    for state in states.iter() {
        let own = *parameters.get(state.operand)?;
        let root = outputs[state.output];
        let (mut seen, mut stack, mut others) = (FxHashSet::default(), vec![root], Vec::new());
        while let Some(id) = stack.pop() {
            if !seen.insert(id) {
                continue;
            }
            if let Some(&other) = by_output.get(&id).filter(|_| id != root) {
                others.push(states.iter().position(|s| s.output == other)?);
                continue;
            }
            if let Op::Parameter { number } = module.instr(id).op {
                let is_state = states.iter().any(|s| usize::try_from(number) == Ok(s.operand));
                if is_state && id != own && usize::try_from(number) != Ok(gradient) {
                    return None;
                }
            }
            stack.extend_from_slice(&module.instr(id).operands);
        }
        reads.push(others);
    }
    for _ in 0..states.len() {
        for n in 0..states.len() {
            states[n].level = reads[n].iter().map(|&o| states[o].level + 1).max().unwrap_or(0);
        }
    }
    let ordered = (0..states.len()).all(|n| reads[n].iter().all(|&o| states[o].level < states[n].level));
    ordered.then_some(())
}

fn apply(module: &mut Module, sink: &Sink) {
    let mut taken = module.names();
    let handle = &sink.this;
    let mut edit = LoopEdit { drop: vec![sink.gradient], ..LoopEdit::default() };
    let update_operands = module.instr(sink.update).operands.clone();
    let mut new_takes = Vec::new();
    let mut inserted = Vec::new();
    parameters_first(module, sink);
    for state in sink.states.iter().filter(|s| s.hosted) {
        let shape = module.instr(state.parameter).shape;
        module.instructions[state.parameter].shape = module.shapes.with_memory_space(shape, HOST);
    }
    // An element for each state and scalar that the loop does not carry yet.
    let mut add = |module: &mut Module, edit: &mut LoopEdit, initial: InstrId, taken: &mut FxHashSet<Box<str>>| {
        let index = edit.index_of_added(module, handle, edit.add.len());
        edit.add.push(NewElement { initial, next: None });
        let shape = module.instr(initial).shape;
        let take = define_take(module, handle, index, shape, taken);
        new_takes.push(take);
        inserted.push(Insertion { position: 1, instr: take });
        take
    };
    let mut slots = Vec::new();
    let mut takes = FxHashMap::default();
    for state in &sink.states {
        let carried = state.element.and_then(|n| existing_take(module, handle, n));
        let slot = match (state.element, carried) {
            (Some(n), Some(take)) => {
                takes.insert(state.operand, take);
                Slot::Old(n)
            }
            _ => {
                let n = edit.add.len();
                takes.insert(state.operand, add(module, &mut edit, state.parameter, &mut taken));
                Slot::New(n)
            }
        };
        slots.push(slot);
    }
    for &n in &sink.scalars {
        takes.insert(n, add(module, &mut edit, update_operands[n], &mut taken));
    }
    // Rows of states in host memory start to come in at the top.
    let stacks = takes.clone();
    let row = sink.index.as_ref().filter(|_| sink.states.iter().any(|s| s.hosted)).map(|(this, row)| {
        let number = row_number(module, this, *row, &mut inserted, &mut taken).expect("`candidate` has looked for a counter");
        (number, *row, top(module, this))
    });
    for state in sink.states.iter().filter(|s| s.hosted) {
        let (number, map, first) = row.expect("hosted states have a row");
        let slice =
            slice_row(module, stacks[&state.operand], sink.write.rows, (number, map), &mut taken).expect("states have the stack's rows");
        let (start, done) = asynchronous(module, slice, &mut taken);
        inserted.push(Insertion { position: first, instr: start });
        inserted.push(Insertion { position: sink.position, instr: done });
        takes.insert(state.operand, done);
    }
    // The fusions, level by level.
    let mut next = FxHashMap::default();
    let levels = sink.states.iter().map(|s| s.level).max().unwrap_or(0);
    for group in (0..=levels).flat_map(|level| [(level, true), (level, false)]) {
        if !sink.states.iter().any(|s| (s.level, s.hosted) == group) {
            continue;
        }
        let made = row_fusion(module, sink, group, &takes, &next, &mut taken);
        inserted.push(Insertion { position: sink.position, instr: made.fusion });
        for (state, element) in made.outputs {
            if element != made.fusion {
                inserted.push(Insertion { position: sink.position, instr: element });
            }
            next.insert(state, element);
        }
    }
    // New rows of states in host memory leave, and have left when the iteration ends.
    let last = module.comp(handle.body).order.iter().position(|&i| i == handle.root).expect("the root stands in its computation");
    for (n, state) in sink.states.iter().enumerate().filter(|(_, s)| s.hosted) {
        let (number, map, _) = row.expect("hosted states have a row");
        let (stack, value) = (stacks[&state.operand], next[&n]);
        let update = write_row(module, stack, value, (number, map), &mut taken).expect("states have the stack's rows");
        let (start, done) = asynchronous(module, update, &mut taken);
        inserted.push(Insertion { position: sink.position, instr: start });
        inserted.push(Insertion { position: last, instr: done });
        next.insert(n, done);
    }
    for (n, slot) in slots.iter().enumerate() {
        match *slot {
            Slot::Old(element) => edit.next.push((element, next[&n])),
            Slot::New(added) => edit.add[added].next = Some(next[&n]),
        }
    }
    module.splice(handle.body, inserted, &FxHashSet::default());
    // After the loop: results come from it; the update and what it took go with the next sweep.
    let mut results = Vec::new();
    let kept_before = |n: usize| n - usize::from(n > sink.gradient);
    let while_place = module.comp(handle.home).order.iter().position(|&i| i == handle.instr).expect("the loop stands in its computation");
    let Op::Fusion(fusion) = &module.instr(sink.update).op else { unreachable!("`candidate` takes fusions only") };
    let update_computation = fusion.calls;
    for (n, state) in sink.states.iter().enumerate() {
        let index = match slots[n] {
            Slot::Old(element) => kept_before(element),
            Slot::New(added) => edit.index_of_added(module, handle, added),
        };
        let shape = module.instr(state.parameter).shape;
        let name = Module::fresh_name("get-tuple-element", &mut taken);
        let index = i64::try_from(index).expect("a tuple is small");
        let result = module.define(Instruction::new(name, shape, Op::GetTupleElement { index }, [handle.instr]));
        results.push(result);
        // Everybody after the loop reads the new value there; other updates too, such as a parameter's that follows its moment's.
        let single = !matches!(module.instr(module.comp(update_computation).root).op, Op::Tuple);
        for reader in module.comp(handle.home).order.clone() {
            for operand in 0..module.instr(reader).operands.len() {
                let old = module.instr(reader).operands[operand];
                let replaced = match module.instr(old).op {
                    Op::GetTupleElement { index } => {
                        module.instr(old).operands[0] == sink.update && usize::try_from(index) == Ok(state.output)
                    }
                    _ => old == sink.update && single,
                };
                if replaced {
                    module.instructions[reader].operands[operand] = result;
                }
            }
        }
    }
    let removed = update_and_takes(module, sink);
    let after: Vec<Insertion> = results.iter().map(|&instr| Insertion { position: while_place + 1, instr }).collect();
    module.splice(handle.home, after, &removed);
    new_takes.extend(results);
    drop_writer(module, sink, &new_takes);
    edit.apply(module, handle, &new_takes);
    if sink.states.iter().any(|s| s.hosted) {
        super::stream_state::follow_signature(module);
    }
}

/// Moves the states' parameters to the front of the entry: the loop starts with them now.
fn parameters_first(module: &mut Module, sink: &Sink) {
    let parameters = sink.states.iter().map(|s| s.parameter);
    let inserted = parameters.clone().map(|instr| Insertion { position: 0, instr }).collect();
    module.splice(sink.this.home, inserted, &parameters.collect());
}

#[derive(Clone, Copy)]
enum Slot {
    Old(usize),
    New(usize),
}

fn existing_take(module: &Module, handle: &LoopHandle, element: usize) -> Option<InstrId> {
    let is = |&&i: &&InstrId| {
        let instr = module.instr(i);
        matches!(instr.op, Op::GetTupleElement { index } if usize::try_from(index) == Ok(element)) && instr.operands[0] == handle.parameter
    };
    module.comp(handle.body).order.iter().find(is).copied()
}

/// The update fusion, the takes of its outputs, and the take of the gradient.
fn update_and_takes(module: &Module, sink: &Sink) -> FxHashSet<InstrId> {
    let order = &module.comp(sink.this.home).order;
    let of_update = |&&i: &&InstrId| matches!(module.instr(i).op, Op::GetTupleElement { .. }) && module.instr(i).operands[0] == sink.update;
    let mut removed: FxHashSet<InstrId> = order.iter().filter(of_update).copied().collect();
    removed.insert(sink.update);
    removed.insert(module.instr(sink.update).operands[sink.gradient_operand]);
    removed
}

/// Takes the write of the gradient, and what takes the stack, out of the body. New takes may bear the stack's old index already.
fn drop_writer(module: &mut Module, sink: &Sink, new_takes: &[InstrId]) {
    let Access::Fused { fusion: writer } = sink.write.access else { unreachable!("`candidate` takes fused writes only") };
    let body = sink.this.body;
    let mut removed: FxHashSet<InstrId> = [writer].into_iter().collect();
    for &id in &module.comp(body).order {
        let instr = module.instr(id);
        if matches!(instr.op, Op::GetTupleElement { index } if usize::try_from(index) == Ok(sink.gradient))
            && instr.operands[0] == sink.this.parameter
            && !new_takes.contains(&id)
        {
            removed.insert(id);
        }
    }
    // The root still names the writer until the edit drops the element: give it something that stays.
    let stays = sink.this.parameter;
    module.instructions[sink.this.root].operands[sink.gradient] = stays;
    for id in module.comp(body).order.clone() {
        module.instructions[id].control_predecessors.retain(|p| !removed.contains(p));
    }
    module.splice(body, Vec::new(), &removed);
}
