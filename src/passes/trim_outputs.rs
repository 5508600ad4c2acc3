//! `trim-outputs`: takes outputs that nobody reads out of multi-output fusions.
//!
//! # What it does
//! A fusion whose root is a tuple computes every element of it. Elements that no reader takes leave the root, and what only they needed
//! leaves the fused computation; a fusion with one output left is no tuple any more.
//!
//! # When it helps
//! After a rewrite that took readers away: a zero fill of five stacks, of which two are still there, allocates all five.
//!
//! # Example
//! ```text
//! before                                         after
//! %f = (f32[8], f32[8]) fusion(%x)               %f = f32[8] fusion(%x)
//! %a = f32[8] get-tuple-element(%f), index=1     (readers of %a read %f)
//! ```
//!
//! # Cost
//! Linear in the module.
//!
//! # Source
//! Dead code elimination, one level further down.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{CompId, InstrId, Module, Op, Shape};
use crate::pass::{Changed, Log, Pass, PassCx, PassError};

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct TrimOutputs;

impl Pass for TrimOutputs {
    fn name(&self) -> &'static str {
        "trim-outputs"
    }
    fn run(&self, module: &mut Module, _: &mut PassCx, _: &mut Log) -> Result<Changed, PassError> {
        Ok(Changed::from(trim_outputs(module) > 0))
    }
}

/// Trims every fusion of the module; returns how many outputs went.
pub fn trim_outputs(module: &mut Module) -> usize {
    let mut count = 0;
    for comp in module.listing.clone() {
        let mut takes: FxHashMap<InstrId, Vec<InstrId>> = FxHashMap::default();
        let mut held = FxHashSet::default();
        for &id in &module.comp(comp).order {
            let instr = module.instr(id);
            for &operand in &instr.operands {
                match instr.op {
                    Op::GetTupleElement { .. } => takes.entry(operand).or_default().push(id),
                    _ => {
                        held.insert(operand);
                    }
                }
            }
        }
        held.insert(module.comp(comp).root);
        for id in module.comp(comp).order.clone() {
            if let Op::Fusion(fusion) = &module.instr(id).op
                && fusion.aliasing.is_empty()
                && !held.contains(&id)
                && let Some(takes) = takes.get(&id)
            {
                let calls = fusion.calls;
                count += trim(module, comp, id, calls, takes);
            }
        }
    }
    count
}

fn trim(module: &mut Module, comp: CompId, fusion: InstrId, calls: CompId, takes: &[InstrId]) -> usize {
    let root = module.comp(calls).root;
    let outputs = module.instr(root).operands.to_vec();
    if !matches!(module.instr(root).op, Op::Tuple) {
        return 0;
    }
    let index = |module: &Module, take: InstrId| match module.instr(take).op {
        Op::GetTupleElement { index } => usize::try_from(index).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let mut kept: Vec<usize> = takes.iter().map(|&t| index(module, t)).collect();
    kept.sort_unstable();
    kept.dedup();
    if kept.is_empty() || kept.len() == outputs.len() || kept.iter().any(|&n| n >= outputs.len()) {
        return 0;
    }
    let roots: Vec<InstrId> = kept.iter().map(|&n| outputs[n]).collect();
    if let &[only] = roots.as_slice() {
        let order: Vec<InstrId> = module.comp(calls).order.iter().copied().filter(|&i| i != root).collect();
        module.computations[calls].order = order;
        module.computations[calls].root = only;
        module.instructions[fusion].shape = module.instr(only).shape;
        for &take in takes {
            replace(module, comp, take, fusion);
        }
    } else {
        let shapes = roots.iter().map(|&r| module.instr(r).shape).collect();
        let shape = module.shapes.intern(Shape::Tuple(shapes));
        module.instructions[root].operands = roots.iter().copied().collect();
        module.instructions[root].shape = shape;
        module.instructions[fusion].shape = shape;
        for &take in takes {
            let new = kept.binary_search(&index(module, take)).expect("a taken output is kept");
            module.instructions[take].op = Op::GetTupleElement { index: i64::try_from(new).expect("outputs are few") };
        }
    }
    module.instructions[fusion].attrs.backend_config = None;
    prune_fusion(module, fusion);
    outputs.len() - kept.len()
}

fn replace(module: &mut Module, comp: CompId, old: InstrId, new: InstrId) {
    for id in module.comp(comp).order.clone() {
        for operand in &mut module.instructions[id].operands {
            if *operand == old {
                *operand = new;
            }
        }
    }
    if module.comp(comp).root == old {
        module.computations[comp].root = new;
    }
}

/// Drops from a fusion's computation what its root does not need, parameters and their operands too. The computation must be its own.
pub(super) fn prune_fusion(module: &mut Module, fusion: InstrId) {
    let Op::Fusion(op) = &module.instr(fusion).op else { return };
    let calls = op.calls;
    let mut needed = FxHashSet::default();
    let mut stack = vec![module.comp(calls).root];
    while let Some(id) = stack.pop() {
        if needed.insert(id) {
            stack.extend_from_slice(&module.instr(id).operands);
        }
    }
    let computation = &mut module.computations[calls];
    computation.order.retain(|i| needed.contains(i));
    computation.proto_listing.clear();
    let parameters = std::mem::take(&mut computation.parameters);
    let operands = std::mem::take(&mut module.instructions[fusion].operands);
    let kept: Vec<(InstrId, InstrId)> = parameters.into_iter().zip(operands).filter(|(p, _)| needed.contains(p)).collect();
    for (number, &(parameter, operand)) in (0i64..).zip(&kept) {
        module.instructions[parameter].op = Op::Parameter { number };
        module.computations[calls].parameters.push(parameter);
        module.instructions[fusion].operands.push(operand);
    }
}
