//! `reschedule`: brings late consumers of large values before the loop that they wait behind.
//!
//! # What it does
//! A value that is made before a loop and read only after it is alive all through the loop. Where its reader needs nothing from the loop and its
//! result is smaller than what it sets free, the reader moves to just before the loop.
//!
//! # When it helps
//! Schedulers that hide latency defer gradients of weights: the logits stay until the gradient of the last layer's weights is made, behind the
//! whole backward pass.
//!
//! # Example
//! ```text
//! before                                  after
//! %w = (…) while(..)                      %g = f32[8] fusion(%logits)
//! %g = f32[8] fusion(%logits)             %w = (…) while(..)
//! ```
//!
//! # Refuses
//! Readers that are not pure, that update in place, that control edges name, or that depend on the loop. The order of collectives stays.
//!
//! # Cost
//! Linear in the module for each loop and each reader moved.
//!
//! # Source
//! Kernighan, "Optimal Sequential Partitions of Graphs", JACM 1971, for what is alive across a cut.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Users;
use crate::ir::{Insertion, InstrId, Module, Op};
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};
use crate::plan::is_pure;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct Reschedule;

impl Pass for Reschedule {
    fn name(&self) -> &'static str {
        "reschedule"
    }
    fn run(&self, module: &mut Module, _: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let count = reschedule(module);
        let text = format!("{count} late readers moved before loops");
        log.entries.push(Entry { pass: self.name(), changed: count > 0, text, plan: None });
        Ok(Changed::from(count > 0))
    }
}

/// Moves late readers before the loops of the entry; returns how many.
pub(super) fn reschedule(module: &mut Module) -> usize {
    let entry = module.entry_id();
    let loops: Vec<InstrId> = module.entry().order.iter().copied().filter(|&i| matches!(module.instr(i).op, Op::While { .. })).collect();
    let mut count = 0;
    // From the last to the first: what has moved before one loop may move before an earlier one.
    for &this in loops.iter().rev() {
        while let Some(moved) = late_reader(module, this) {
            let order = &module.entry().order;
            let position = order.iter().position(|&i| i == this).expect("a loop of the entry stands there");
            let in_order: Vec<InstrId> = order.iter().copied().filter(|i| moved.contains(i)).collect();
            let inserted = in_order.into_iter().map(|instr| Insertion { position, instr }).collect();
            // Out first: an instruction stands once.
            module.splice(entry, Vec::new(), &moved);
            module.splice(entry, inserted, &FxHashSet::default());
            count += 1;
        }
    }
    count
}

/// A reader after the loop that frees more than it makes when it runs before, with the renamings that it needs and those of its result.
fn late_reader(module: &Module, this: InstrId) -> Option<FxHashSet<InstrId>> {
    let users = Users::of(module);
    let order = &module.entry().order;
    let place: FxHashMap<InstrId, usize> = order.iter().enumerate().map(|(n, &i)| (i, n)).collect();
    let start = *place.get(&this)?;
    let controlled: FxHashSet<InstrId> = order.iter().flat_map(|&i| module.instr(i).control_predecessors.iter().copied()).collect();
    let free = |id: InstrId| module.instr(id).control_predecessors.is_empty() && !controlled.contains(&id);
    order[start + 1..].iter().find_map(|&reader| {
        let instr = module.instr(reader);
        let runs = matches!(instr.op, Op::Fusion(_) | Op::Dot(_) | Op::CustomCall(_)) && is_pure(module, reader);
        if !runs || !free(reader) || updates_in_place(module, reader) {
            return None;
        }
        // What it reads, behind renamings, all of it from before the loop.
        let mut moved: FxHashSet<InstrId> = [reader].into_iter().collect();
        let mut read = FxHashSet::default();
        for &operand in &instr.operands {
            let mut id = operand;
            while matches!(module.instr(id).op, Op::Bitcast | Op::GetTupleElement { .. }) {
                if place.get(&id)? > &start {
                    if !free(id) {
                        return None;
                    }
                    moved.insert(id);
                }
                if matches!(module.instr(id).op, Op::GetTupleElement { .. }) {
                    break;
                }
                id = module.instr(id).operands[0];
            }
            let made = if let Op::GetTupleElement { .. } = module.instr(id).op { module.instr(id).operands[0] } else { id };
            if place.get(&made)? >= &start {
                return None;
            }
            read.insert(id);
        }
        let freed: u64 = read.iter().filter(|&&v| dies(module, &users, &place, (start, this), v, &moved)).map(|&v| bytes(module, v)).sum();
        (freed > 2 * bytes(module, reader)).then_some(moved)
    })
}

fn bytes(module: &Module, id: InstrId) -> u64 {
    module.shapes.leaf_bytes(module.instr(id).shape)
}

/// Whether a value is gone when the loop starts if `moved` run before it.
fn dies(
    module: &Module,
    users: &Users,
    place: &FxHashMap<InstrId, usize>,
    (start, this): (usize, InstrId),
    value: InstrId,
    moved: &FxHashSet<InstrId>,
) -> bool {
    if matches!(module.instr(value).op, Op::Parameter { .. } | Op::Constant(_)) {
        return false;
    }
    let mut names = vec![value];
    // Every other take of the same output names the same buffer.
    if let Op::GetTupleElement { index } = module.instr(value).op {
        let of = module.instr(value).operands[0];
        if matches!(module.instr(of).op, Op::While { .. } | Op::Parameter { .. }) {
            return false;
        }
        names.extend(
            users.users(of).iter().filter(|&&u| u != value && matches!(module.instr(u).op, Op::GetTupleElement { index: i } if i == index)),
        );
    }
    let init = module.instr(this).operands[0];
    while let Some(name) = names.pop() {
        for &user in users.users(name) {
            let late = place.get(&user).is_none_or(|&p| p > start) && !moved.contains(&user);
            if late || user == init || matches!(module.instr(user).op, Op::Tuple) {
                return false;
            }
            if matches!(module.instr(user).op, Op::Bitcast | Op::OptBarrier | Op::AsyncStart(_) | Op::CopyStart { .. }) {
                names.push(user);
            }
        }
    }
    true
}

/// Whether an instruction may write where an operand lies by necessity.
fn updates_in_place(module: &Module, id: InstrId) -> bool {
    let in_place = |id: InstrId| matches!(module.instr(id).op, Op::DynamicUpdateSlice | Op::Scatter(_));
    match &module.instr(id).op {
        Op::Fusion(fusion) => !fusion.aliasing.is_empty() || module.comp(fusion.calls).order.iter().any(|&i| in_place(i)),
        Op::CustomCall(call) => !call.aliasing.is_empty(),
        _ => in_place(id),
    }
}
