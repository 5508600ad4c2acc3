//! `drop-carried`: takes out of loops what they carry for nobody.
//!
//! # What it does
//! An element of a loop's tuple that nobody takes after the loop, and that in the body only serves to make itself, goes: its initial value,
//! its update in the body, its place in all seven shapes. Dead instructions, dead outputs of fusions and dead elements are swept in turn until
//! nothing changes, so that a stack whose last reader has gone disappears from every loop on its way.
//!
//! # When it helps
//! After a rewrite that made a loop's reader look elsewhere.
//!
//! # Example
//! ```text
//! before                                              after
//! body:  %s' = dynamic-update-slice(%s, %row, %i)     body:  ROOT %t = (s32[]) tuple(%i')
//!        ROOT %t = (s32[], f32[8,4]) tuple(%i', %s')
//! ```
//!
//! # Cost
//! Linear in the module for each loop that another one feeds.
//!
//! # Source
//! XLA's `WhileLoopSimplifier` removes dead elements the same way.

use rustc_hash::FxHashSet;

use crate::analysis::Users;
use crate::analysis::loops::{Loop, Loops};
use crate::ir::{InstrId, Module, Op};
use crate::pass::{Changed, Log, Pass, PassCx, PassError};
use crate::rewrite::LoopEdit;

use super::dce::{dce, stays};
use super::trim_outputs::trim_outputs;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct DropCarried;

impl Pass for DropCarried {
    fn name(&self) -> &'static str {
        "drop-carried"
    }
    fn run(&self, module: &mut Module, _: &mut PassCx, _: &mut Log) -> Result<Changed, PassError> {
        Ok(Changed::from(sweep(module)))
    }
}

/// Sweeps dead instructions, outputs and elements until nothing changes; whether anything did.
pub fn sweep(module: &mut Module) -> bool {
    let mut changed = false;
    loop {
        let mut again = dce(module) > 0;
        again |= trim_outputs(module) > 0;
        again |= drop_elements(module) > 0;
        if !again {
            return changed;
        }
        changed = true;
    }
}

/// Drops dead elements of all loops; returns how many.
fn drop_elements(module: &mut Module) -> usize {
    let users = Users::of(module);
    let mut count = 0;
    for this in Loops::of(module, &users).loops {
        if !is_alone(module, &users, &this) {
            continue;
        }
        let (live, marked) = live(module, &users, &this);
        let drop: Vec<usize> = (0..this.elements.len()).filter(|n| !live[*n]).collect();
        if drop.is_empty() {
            continue;
        }
        count += drop.len();
        let handle = super::loop_handle(&this);
        let keeps = |id: &InstrId| marked.contains(id) || *id == this.root || matches!(module.instr(*id).op, Op::Parameter { .. });
        let gone: FxHashSet<InstrId> = module.comp(this.body).order.iter().copied().filter(|i| !keeps(i)).collect();
        for &n in &drop {
            module.instructions[this.root].operands[n] = this.parameter;
        }
        for id in module.comp(this.body).order.clone() {
            if !module.instr(id).control_predecessors.is_empty() {
                module.instructions[id].control_predecessors.retain(|p| !gone.contains(p));
            }
        }
        module.splice(this.body, Vec::new(), &gone);
        LoopEdit { drop, ..LoopEdit::default() }.apply(module, &handle, &[]);
    }
    count
}

/// Whether the tuple's seven places belong to this loop alone and are only taken apart.
fn is_alone(module: &Module, users: &Users, this: &Loop) -> bool {
    let taken_apart = |id: InstrId| users.users(id).iter().all(|&u| matches!(module.instr(u).op, Op::GetTupleElement { .. }));
    let condition = module.comp(this.condition).parameters.first();
    users.callers(this.body).len() == 1
        && users.callers(this.condition).len() == 1
        && users.users(this.init) == [this.instr]
        && users.users(this.root).is_empty()
        && module.comp(this.home).root != this.instr
        && taken_apart(this.instr)
        && taken_apart(this.parameter)
        && condition.is_some_and(|&p| taken_apart(p))
}

/// Which elements somebody needs, and the instructions of the body that make them or that others notice.
fn live(module: &Module, users: &Users, this: &Loop) -> (Vec<bool>, FxHashSet<InstrId>) {
    let index = |id: InstrId| match module.instr(id).op {
        Op::GetTupleElement { index } => usize::try_from(index).ok(),
        _ => None,
    };
    let mut live: Vec<bool> = this.elements.iter().map(|e| !e.results.is_empty()).collect();
    for &user in module.comp(this.condition).parameters.first().map_or(&[][..], |&p| users.users(p)) {
        if let Some(n) = index(user) {
            live[n] = true;
        }
    }
    let noticed = |&&id: &&InstrId| stays(module, id) && !matches!(module.instr(id).op, Op::Parameter { .. });
    let mut stack: Vec<InstrId> = module.comp(this.body).order.iter().filter(noticed).copied().collect();
    stack.extend((0..live.len()).filter(|&n| live[n]).map(|n| this.elements[n].next));
    let mut marked = FxHashSet::default();
    while let Some(id) = stack.pop() {
        if !marked.insert(id) {
            continue;
        }
        let operands = &module.instr(id).operands;
        stack.extend_from_slice(operands);
        if operands.first() == Some(&this.parameter)
            && let Some(n) = index(id)
            && !std::mem::replace(&mut live[n], true)
        {
            stack.push(this.elements[n].next);
        }
    }
    (live, marked)
}
