//! The fusions that update one row of the states.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::loops::Access;
use crate::ir::{InstrId, Instruction, Module, Op};
use crate::rewrite::FusedBuilder;

use super::Sink;

/// A fusion that updates one row of some states.
pub(super) struct Made {
    pub fusion: InstrId,
    /// State number and the instruction that holds its new stack, or its new row where the stack is in host memory.
    pub outputs: Vec<(usize, InstrId)>,
}

/// One fusion that updates one row of every state of a level that lives in device memory, or of every one that lives in host memory. `takes` and
/// `next` hold, by operand and by state, the stacks before and after; for states in host memory rows.
pub(super) fn row_fusion(
    module: &mut Module,
    sink: &Sink,
    (level, hosted): (usize, bool),
    takes: &FxHashMap<usize, InstrId>,
    next: &FxHashMap<usize, InstrId>,
    taken: &mut FxHashSet<Box<str>>,
) -> Made {
    let Access::Fused { fusion: writer } = sink.write.access else { unreachable!("`candidate` takes fused writes only") };
    let Op::Fusion(update) = &module.instr(sink.update).op else { unreachable!("`candidate` takes fusions only") };
    let update_comp = update.calls;
    let Op::Fusion(write) = &module.instr(writer).op else { unreachable!("`candidate` takes fusions only") };
    let write_comp = write.calls;
    let mut builder = FusedBuilder::new(if hosted { "fused_update" } else { "fused_dynamic_update_slice" }, taken);
    // The row of the gradient and its index, as the writer makes them.
    let mut written = FxHashMap::default();
    let writer_operands = module.instr(writer).operands.clone();
    let needed = reachable(module, &module.instr(sink.write.update).operands[1..]);
    for (number, &parameter) in module.comp(write_comp).parameters.clone().iter().enumerate() {
        if needed.contains(&parameter) {
            written.insert(parameter, builder.parameter(module, writer_operands[number], taken));
        }
    }
    let mut same = |module: &mut Module, id: InstrId| module.instr(id).shape;
    let written_operands = module.instr(sink.write.update).operands.clone();
    let row_and_index: Vec<InstrId> =
        written_operands[1..].iter().copied().map(|o| builder.clone_dag(module, o, &mut written, &mut same, taken)).collect();
    let (row, index) = (row_and_index[0], row_and_index[1..].to_vec());
    // The update on rows.
    let outputs: Vec<InstrId> = match module.instr(module.comp(update_comp).root).op {
        Op::Tuple => module.instr(module.comp(update_comp).root).operands.to_vec(),
        _ => vec![module.comp(update_comp).root],
    };
    let parameters = module.comp(update_comp).parameters.clone();
    let mut known = FxHashMap::default();
    known.insert(parameters[sink.gradient_operand], row);
    for &n in &sink.scalars {
        known.insert(parameters[n], builder.parameter(module, takes[&n], taken));
    }
    for (n, state) in sink.states.iter().enumerate() {
        if state.level < level {
            let stack = builder.parameter(module, next[&n], taken);
            let row = if state.hosted { stack } else { slice_row(module, &mut builder, stack, &index, taken) };
            known.insert(outputs[state.output], row);
        } else if state.level == level && state.hosted == hosted {
            let stack = builder.parameter(module, takes[&state.operand], taken);
            let row = if hosted { stack } else { slice_row(module, &mut builder, stack, &index, taken) };
            known.insert(parameters[state.operand], row);
        }
    }
    let mut row_shape = |module: &mut Module, id: InstrId| module.shapes.leading_row(module.instr(id).shape);
    let mut roots = Vec::new();
    let mut states = Vec::new();
    for (n, state) in sink.states.iter().enumerate().filter(|(_, s)| s.level == level && s.hosted == hosted) {
        let value = builder.clone_dag(module, outputs[state.output], &mut known, &mut row_shape, taken);
        states.push(n);
        if hosted {
            roots.push(value);
            continue;
        }
        let stack = builder.parameter(module, takes[&state.operand], taken);
        let name = Module::fresh_name("dynamic_update_slice", taken);
        let operands = [stack, value].into_iter().chain(index.iter().copied());
        let shape = module.instr(stack).shape;
        roots.push(builder.push(module, Instruction::new(name, shape, Op::DynamicUpdateSlice, operands)));
    }
    let name = if hosted { "loop_update_fusion" } else { "loop_dynamic_update_slice_fusion" };
    let fusion = builder.finish(module, &roots, name, taken);
    let outputs = states.iter().enumerate().map(|(output, &n)| {
        if states.len() == 1 {
            return (n, fusion);
        }
        let shape = module.shapes.elements(module.instr(fusion).shape)[output];
        let name = Module::fresh_name("get-tuple-element", taken);
        let index = i64::try_from(output).expect("outputs are few");
        (n, module.define(Instruction::new(name, shape, Op::GetTupleElement { index }, [fusion])))
    });
    let outputs = outputs.collect();
    Made { fusion, outputs }
}

pub(super) fn reachable(module: &Module, roots: &[InstrId]) -> FxHashSet<InstrId> {
    let mut seen = FxHashSet::default();
    let mut stack = roots.to_vec();
    while let Some(id) = stack.pop() {
        if seen.insert(id) {
            stack.extend_from_slice(&module.instr(id).operands);
        }
    }
    seen
}

fn slice_row(
    module: &mut Module,
    builder: &mut FusedBuilder,
    stack: InstrId,
    index: &[InstrId],
    taken: &mut FxHashSet<Box<str>>,
) -> InstrId {
    let shape = module.shapes.leading_row(module.instr(stack).shape);
    let sizes = module.shapes.array(shape).map_or_else(Vec::new, |a| a.dims.iter().map(|d| d.size).collect());
    let name = Module::fresh_name("dynamic_slice", taken);
    let operands = [stack].into_iter().chain(index.iter().copied());
    builder.push(module, Instruction::new(name, shape, Op::DynamicSlice { sizes }, operands))
}
