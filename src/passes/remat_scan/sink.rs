//! Loop invariants that are made of nothing (masks, broadcast constants) are made in the body, where they fuse into their readers.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Users;
use crate::analysis::loops::{Kind, Loop, Loops};
use crate::ir::{CompId, InstrId, Module, Op};
use crate::passes::loop_handle;
use crate::rewrite::LoopEdit;

/// Smaller invariants stay where they are.
const LEAST: u64 = 1 << 16;
/// An invariant made by more instructions stays where it is.
const MOST_STEPS: usize = 64;

/// Sinks them into every loop of a module whose calls have been inlined; returns names and bytes of what no loop carries any more.
pub(super) fn sink_invariants(module: &mut Module) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    let mut taken = module.names();
    let whiles: Vec<InstrId> = module.live().map(|(_, id)| id).filter(|&id| matches!(module.instr(id).op, Op::While { .. })).collect();
    for id in whiles {
        let users = Users::of(module);
        let loops = Loops::of(module, &users);
        let Some(this) = loops.of_while(id) else { continue };
        let alone = [this.body, this.condition].iter().all(|&c| users.callers(c).len() == 1) && users.users(this.init) == [id];
        if alone {
            out.extend(sink_into(module, this, &users, &mut taken));
        }
    }
    out
}

fn sink_into(module: &mut Module, this: &Loop, users: &Users, taken: &mut FxHashSet<Box<str>>) -> Vec<(String, u64)> {
    let mut edit = LoopEdit::default();
    let mut out = Vec::new();
    let mut made: FxHashMap<InstrId, InstrId> = FxHashMap::default();
    let mut new = Vec::new();
    for (n, element) in this.elements.iter().enumerate() {
        let bytes = module.shapes.leaf_bytes(module.instr(element.initial).shape);
        let in_condition = module
            .comp(this.condition)
            .order
            .iter()
            .any(|&i| matches!(module.instr(i).op, Op::GetTupleElement { index } if usize::try_from(index) == Ok(n)));
        if element.kind != Kind::Invariant
            || bytes < LEAST
            || in_condition
            || !users.users(this.parameter).iter().any(|u| element.takes.contains(u))
        {
            continue;
        }
        let Some(steps) = steps(module, this.home, element.initial) else { continue };
        for id in steps {
            if made.contains_key(&id) {
                continue;
            }
            let mut clone = module.instr(id).clone();
            clone.name = Module::fresh_name(&format!("{}.sunk", clone.name), taken);
            clone.operands = clone.operands.iter().map(|o| made[&through(module, *o)]).collect();
            clone.proto_id = 0;
            let copy = module.define(clone);
            made.insert(id, copy);
            new.push(copy);
        }
        let stands = made[&through(module, element.initial)];
        replace(module, this.body, &element.takes, stands);
        replace(module, this.home, &element.results, element.initial);
        edit.drop.push(n);
        out.push((module.instr(through(module, element.initial)).name.to_string(), bytes));
    }
    if edit.drop.is_empty() {
        return out;
    }
    let gone = |list: fn(&crate::analysis::loops::Element) -> &Vec<InstrId>| -> FxHashSet<InstrId> {
        edit.drop.iter().flat_map(|&n| list(&this.elements[n]).iter().copied()).collect()
    };
    let (takes, results) = (gone(|e| &e.takes), gone(|e| &e.results));
    let inserted = new.into_iter().map(|instr| crate::ir::Insertion { position: 0, instr }).collect();
    module.splice(this.body, inserted, &takes);
    module.splice(this.home, Vec::new(), &results);
    edit.apply(module, &loop_handle(this), &[]);
    out
}

/// The instructions that make a value of constants alone, in order; `None` if it is made of anything else, or by anything but plain
/// elementwise work.
fn steps(module: &Module, home: CompId, value: InstrId) -> Option<Vec<InstrId>> {
    let mut needed = FxHashSet::default();
    let mut stack = vec![through(module, value)];
    while let Some(id) = stack.pop() {
        if !needed.insert(id) {
            continue;
        }
        let instr = module.instr(id);
        let plain = match &instr.op {
            Op::Constant(_) => module.shapes.byte_size(instr.shape) < LEAST,
            Op::Iota { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare { .. }
            | Op::Select
            | Op::Convert
            | Op::Broadcast { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Slice { .. } => true,
            _ => false,
        };
        if !plain || needed.len() > MOST_STEPS || !instr.control_predecessors.is_empty() {
            return None;
        }
        stack.extend(instr.operands.iter().map(|&o| through(module, o)));
    }
    Some(module.comp(home).order.iter().copied().filter(|id| needed.contains(id)).collect())
}

/// What an element of a tuple that is made on the spot is.
fn through(module: &Module, mut id: InstrId) -> InstrId {
    while let Op::GetTupleElement { index } = module.instr(id).op {
        let tuple = module.instr(module.instr(id).operands[0]);
        let (Op::Tuple, Some(&part)) = (&tuple.op, usize::try_from(index).ok().and_then(|n| tuple.operands.get(n))) else { break };
        id = part;
    }
    id
}

fn replace(module: &mut Module, comp: CompId, old: &[InstrId], new: InstrId) {
    for id in module.comp(comp).order.clone() {
        for operand in &mut module.instructions[id].operands {
            if old.contains(operand) {
                *operand = new;
            }
        }
    }
}
