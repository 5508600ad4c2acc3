//! `stream-state`: optimizer state that lives in host memory between steps.
//!
//! # What it does
//! An entry parameter that only the optimizer's update reads, and that is donated to the output that replaces it, changes its memory space in the
//! entry's signature, and the output with it. It comes in just before its update and leaves after it: row by row where the update stands in a
//! loop (`sink-update`), else as a whole, one update ahead, with no more than two updates' states on the device.
//!
//! # When it helps
//! Moments take twice the bytes of the weights in f32, and are idle for most of the step. XLA cannot free an entry parameter within the step.
//!
//! # Example
//! ```text
//! before                                       after
//! %m = f32[4096] parameter(1)                  %m = f32[4096]{0:S(5)} parameter(1)
//! %u = (…) fusion(%p, %g, %m)                  %m.in.done = f32[4096] copy-done(%m.in.start)
//!                                              %u = (…) fusion(%p, %g, %m.in.done)
//!                                              %m.out.done = f32[4096]{0:S(5)} copy-done(%m.out.start)
//! ```
//!
//! # Refuses
//! Parameters with any other reader, or that are not donated to what the update makes of them.
//!
//! # Cost
//! Linear in the module, and in the entry for each state.
//!
//! # Source
//! Ren et al., "ZeRO-Offload", USENIX ATC 2021.

use rustc_hash::FxHashSet;

use crate::analysis::Users;
use crate::ir::{DEVICE, HOST, Insertion, InstrId, Module, Op, Shape, ShapeId};
use crate::pass::HostState;
use crate::rewrite::define_copy;

/// A state that an update in the entry reads and replaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Parameter number.
    pub number: i64,
    /// Its bytes.
    pub bytes: u64,
    parameter: InstrId,
    update: InstrId,
    replaced: InstrId,
    output: usize,
}

/// Whether the user allows a parameter to move.
pub(super) fn allows(module: &Module, allowed: &HostState, number: i64) -> bool {
    let Some(&parameter) = usize::try_from(number).ok().and_then(|n| module.entry().parameters.get(n)) else { return false };
    match allowed {
        HostState::Auto => true,
        HostState::Matching(pattern) => {
            let instr = module.instr(parameter);
            let called = instr.attrs.metadata.as_ref().map_or("", |m| &m.op_name);
            pattern.is_match(&instr.name) || pattern.is_match(called)
        }
    }
}

/// The states that updates in the entry replace, in the order of the updates.
pub(super) fn entry_states(module: &Module) -> Vec<Entry> {
    let users = Users::of(module);
    let order = &module.entry().order;
    let place = |id: InstrId| order.iter().position(|&i| i == id);
    let mut out: Vec<(usize, Entry)> = Vec::new();
    for (number, &parameter) in (0i64..).zip(&module.entry().parameters) {
        if let Some(state) = entry_state(module, &users, number, parameter)
            && let Some(at) = place(state.update)
        {
            out.push((at, state));
        }
    }
    out.sort_by_key(|(at, s)| (*at, s.number));
    out.into_iter().map(|(_, s)| s).collect()
}

fn entry_state(module: &Module, users: &Users, number: i64, parameter: InstrId) -> Option<Entry> {
    let shape = module.instr(parameter).shape;
    module.shapes.array(shape)?;
    let &[update] = users.users(parameter) else { return None };
    let fits = matches!(module.instr(update).op, Op::Fusion(_)) && module.shapes.memory_space(shape) == DEVICE;
    let mut aliases = module.header.input_output_alias.iter().filter(|a| a.parameter == number);
    let (Some(alias), None) = (aliases.next(), aliases.next()) else { return None };
    let &[output] = alias.output.as_slice() else { return None };
    let output = usize::try_from(output).ok()?;
    let root = module.entry().root;
    let replaced = *module.instr(root).operands.get(output)?;
    let made = match module.instr(replaced).op {
        Op::GetTupleElement { .. } => module.instr(replaced).operands[0],
        _ => replaced,
    };
    let ok = fits
        && matches!(module.instr(root).op, Op::Tuple)
        && alias.index.is_empty()
        && made == update
        && users.users(replaced).contains(&root)
        && module.instr(replaced).shape == shape
        && module.instr(root).operands.iter().filter(|&&o| o == replaced).count() == 1;
    ok.then(|| Entry { number, bytes: module.shapes.byte_size(shape), parameter, update, replaced, output })
}

/// Moves the states with these parameter numbers that updates in the entry replace; returns how many.
pub(super) fn host_in_entry(module: &mut Module, numbers: &FxHashSet<i64>) -> usize {
    let states: Vec<Entry> = entry_states(module).into_iter().filter(|s| numbers.contains(&s.number)).collect();
    if states.is_empty() {
        return 0;
    }
    let order = module.entry().order.clone();
    let place = |id: InstrId| order.iter().position(|&i| i == id).unwrap_or(order.len());
    let mut updates: Vec<InstrId> = states.iter().map(|s| s.update).collect();
    updates.dedup();
    let root = module.entry().root;
    let mut taken = module.names();
    let mut inserted = Vec::new();
    for state in &states {
        let which = updates.iter().position(|&u| u == state.update).unwrap_or(0);
        let at = place(state.update);
        // One update ahead; the first when the loops before it are done.
        let ahead = match which.checked_sub(1) {
            Some(previous) => place(updates[previous]),
            None => order[..at].iter().rposition(|&i| matches!(module.instr(i).op, Op::While { .. })).map_or(0, |p| p + 1),
        };
        let gone = updates.get(which + 1).map_or(place(root), |&next| place(next));
        let shape = module.instr(state.parameter).shape;
        module.instructions[state.parameter].shape = module.shapes.with_memory_space(shape, HOST);
        let name = module.instr(state.parameter).name.clone();
        let copy = define_copy(module, state.parameter, DEVICE, &format!("{name}.in"), &mut taken);
        inserted.push(Insertion { position: ahead.max(place(state.parameter) + 1), instr: copy.start });
        inserted.push(Insertion { position: at, instr: copy.done });
        for operand in &mut module.instructions[state.update].operands {
            if *operand == state.parameter {
                *operand = copy.done;
            }
        }
        let back = define_copy(module, state.replaced, HOST, &format!("{name}.out"), &mut taken);
        inserted.push(Insertion { position: place(state.replaced) + 1, instr: back.start });
        inserted.push(Insertion { position: gone.max(place(state.replaced) + 1), instr: back.done });
        module.instructions[root].operands[state.output] = back.done;
    }
    let entry = module.entry_id();
    module.splice(entry, inserted, &FxHashSet::default());
    follow_signature(module);
    states.len()
}

/// Makes the shapes of the entry's result and its layout say what the instructions say.
pub(super) fn follow_signature(module: &mut Module) {
    let entry = module.entry();
    let (root, parameters) = (entry.root, entry.parameters.clone());
    if matches!(module.instr(root).op, Op::Tuple) {
        let shapes: Vec<ShapeId> = module.instr(root).operands.iter().map(|&o| module.instr(o).shape).collect();
        module.instructions[root].shape = module.shapes.intern(Shape::Tuple(shapes));
    }
    let Some(mut layout) = module.header.entry_layout.clone() else { return };
    for (said, &parameter) in layout.parameters.iter_mut().zip(&parameters) {
        let space = module.shapes.memory_space(module.instr(parameter).shape);
        if module.shapes.array(*said).is_some() && module.shapes.memory_space(*said) != space {
            *said = module.shapes.with_memory_space(*said, space);
        }
    }
    if let Shape::Tuple(parts) = module.shapes.get(layout.result).clone() {
        let operands = module.instr(root).operands.clone();
        let mut new = Vec::new();
        for (part, &operand) in parts.into_iter().zip(&operands) {
            let space = module.shapes.memory_space(module.instr(operand).shape);
            let is_array = module.shapes.array(part).is_some();
            new.push(if is_array { module.shapes.with_memory_space(part, space) } else { part });
        }
        layout.result = module.shapes.intern(Shape::Tuple(new));
    }
    module.header.entry_layout = Some(layout);
}
