//! Copies of instructions that compute a value again.

use rustc_hash::{FxHashMap, FxHashSet};

use super::resolve::Value;
use crate::ir::{CompId, Computation, InstrId, Instruction, Module, Op};

/// Clones what makes `value`: the whole instruction, or only the computation of one output where it is a fusion with a tuple root.
/// The operands are the original's (all of them, or those that the one output needs); the caller redirects them. Returns the
/// instructions to splice, in order; the last is the value itself.
pub(super) fn clone_value(module: &mut Module, value: Value, taken: &mut FxHashSet<Box<str>>) -> Vec<InstrId> {
    let mut clone = module.instr(value.instr).clone();
    clone.name = Module::fresh_name(&format!("{}.remat", clone.name), taken);
    clone.control_predecessors.clear();
    clone.proto_id = 0;
    if let (Some(output), Op::Fusion(fusion)) = (value.output, &clone.op)
        && let Some(single) = single_output(module, fusion.calls, output, taken)
    {
        clone.shape = module.instr(module.comp(single.computation).root).shape;
        clone.operands = single.parameters.iter().map(|&p| clone.operands[p]).collect();
        let Op::Fusion(fusion) = &mut clone.op else { unreachable!("the instruction is a fusion") };
        fusion.calls = single.computation;
        fusion.aliasing.clear();
        rename(&mut clone);
        // XLA's price and launch choices are of the whole fusion: they do not hold for a part of it.
        clone.attrs.backend_config = None;
        return vec![module.define(clone)];
    }
    own_callees(module, &mut clone, taken);
    rename(&mut clone);
    let id = module.define(clone);
    match value.output {
        None => vec![id],
        Some(output) => {
            let shape = module.shapes.elements(module.instr(id).shape)[output as usize];
            let name = Module::fresh_name(&format!("{}.{output}", module.instr(id).name), taken);
            let gte = Instruction::new(name, shape, Op::GetTupleElement { index: i64::from(output) }, [id]);
            vec![id, module.define(gte)]
        }
    }
}

fn rename(instr: &mut Instruction) {
    let name = instr.name.clone();
    if let Some(metadata) = &mut instr.attrs.metadata {
        metadata.scheduling_name = name;
    }
}

/// Gives a clone its own copies of the computations that a fusion owns.
fn own_callees(module: &mut Module, instr: &mut Instruction, taken: &mut FxHashSet<Box<str>>) {
    if matches!(instr.op, Op::Fusion(_)) {
        instr.op.map_called(&mut |c| module.clone_computation(c, taken));
    }
}

struct SingleOutput {
    computation: CompId,
    /// Numbers of the original parameters that are still read, in order.
    parameters: Vec<usize>,
}

/// A copy of a fused computation that yields only element `output` of its root tuple; `None` if its root is no tuple.
fn single_output(module: &mut Module, comp: CompId, output: u32, taken: &mut FxHashSet<Box<str>>) -> Option<SingleOutput> {
    let root = module.comp(comp).root;
    if !matches!(module.instr(root).op, Op::Tuple) {
        return None;
    }
    let new_root = *module.instr(root).operands.get(output as usize)?;
    let mut needed = FxHashSet::default();
    let mut stack = vec![new_root];
    while let Some(id) = stack.pop() {
        if needed.insert(id) {
            stack.extend_from_slice(&module.instr(id).operands);
        }
    }
    let order: Vec<InstrId> = module.comp(comp).order.iter().copied().filter(|i| needed.contains(i)).collect();
    let mut copies = FxHashMap::default();
    let mut computation = Computation::new(Module::fresh_name(&format!("{}.remat", module.comp(comp).name), taken));
    computation.thread.clone_from(&module.comp(comp).thread);
    let mut parameters = Vec::new();
    for (number, &parameter) in module.comp(comp).parameters.iter().enumerate() {
        if needed.contains(&parameter) {
            parameters.push(number);
        }
    }
    for id in order {
        let mut instr = module.instr(id).clone();
        instr.name = Module::fresh_name(&instr.name, taken);
        instr.proto_id = 0;
        instr.operands = instr.operands.iter().map(|o| copies[o]).collect();
        instr.control_predecessors.clear();
        own_callees(module, &mut instr, taken);
        if let Op::Parameter { number } = &mut instr.op {
            let old = usize::try_from(*number).expect("parameters are numbered from 0");
            let new = parameters.binary_search(&old).expect("a needed parameter is in the list");
            *number = i64::try_from(new).expect("parameters are few");
        }
        let copy = module.define(instr);
        copies.insert(id, copy);
        computation.order.push(copy);
    }
    computation.root = copies[&new_root];
    let old = module.comp(comp).parameters.clone();
    computation.parameters = parameters.iter().map(|&n| copies[&old[n]]).collect();
    let computation = module.computations.push(computation);
    let at = module.listing.iter().position(|&c| c == comp).map_or(module.listing.len(), |i| i + 1);
    module.listing.insert(at, computation);
    Some(SingleOutput { computation, parameters })
}
