//! What an instruction must write where an operand is, and what it may: XLA's rules (facts of its alias analysis), said anew.

use crate::ir::{CollectiveKind, CompId, EntityMap, InstrId, Module, Op, OutputAlias};
use crate::verify::cx::compatible;

/// A part of the result that is written where a part of an operand is.
pub(super) struct Pair {
    pub(super) output: Vec<i64>,
    pub(super) operand: usize,
    pub(super) index: Vec<i64>,
}

/// The places that must be one buffer.
pub(super) fn pairs(module: &Module, id: InstrId) -> Vec<Pair> {
    let i = module.instr(id);
    let whole = |operand: usize| Pair { output: Vec::new(), operand, index: Vec::new() };
    match &i.op {
        Op::DynamicUpdateSlice => vec![whole(0)],
        Op::SetDimensionSize { .. } if compatible(&module.shapes, module.instr(i.operands[0]).shape, i.shape) => vec![whole(0)],
        Op::Scatter(_) => each(i.operands.len() / 2),
        Op::Collective(c) if c.start && c.kind == CollectiveKind::AllReduce => each(i.operands.len()),
        Op::Collective(c) if c.kind == CollectiveKind::Permute && i.operands.len() == 4 => {
            vec![Pair { output: if c.start { vec![1] } else { Vec::new() }, operand: 1, index: Vec::new() }]
        }
        Op::Collective(c) if c.kind == CollectiveKind::RaggedAllToAll && i.operands.len() > 1 => vec![whole(1)],
        Op::CustomCall(call) => said(&call.aliasing, i.operands.len()),
        Op::Fusion(fusion) => {
            let mut out = said(&fusion.aliasing, i.operands.len());
            out.extend(fused(module, fusion.calls));
            out
        }
        _ => Vec::new(),
    }
}

/// Result `k` where operand `k` is; a bare result where there is one.
fn each(count: usize) -> Vec<Pair> {
    let output = |k: usize| if count == 1 { Vec::new() } else { vec![i64::try_from(k).expect("operands are few")] };
    (0..count).map(|k| Pair { output: output(k), operand: k, index: Vec::new() }).collect()
}

fn said(aliasing: &[OutputAlias], operands: usize) -> Vec<Pair> {
    let pair = |a: &OutputAlias| {
        let operand = usize::try_from(a.operand).ok().filter(|&o| o < operands)?;
        Some(Pair { output: a.output.clone(), operand, index: a.index.clone() })
    };
    aliasing.iter().filter_map(pair).collect()
}

/// A fusion writes in place what its roots do, if that reaches a parameter by way of what moves nothing.
fn fused(module: &Module, comp: CompId) -> Vec<Pair> {
    let c = module.comp(comp);
    let root = module.instr(c.root);
    let roots = if matches!(root.op, Op::Tuple) { root.operands.to_vec() } else { vec![c.root] };
    let mut out = Vec::new();
    for (k, &root_k) in roots.iter().enumerate() {
        let made = behind(module, root_k);
        let operands = match &module.instr(made).op {
            Op::DynamicUpdateSlice => 1,
            Op::Scatter(_) if module.instr(made).operands.len() == 3 => 1,
            _ => 0,
        };
        for &operand in &module.instr(made).operands[..operands] {
            if let Op::Parameter { number } = module.instr(behind(module, operand)).op {
                let output = if matches!(root.op, Op::Tuple) { vec![i64::try_from(k).expect("results are few")] } else { Vec::new() };
                let operand = usize::try_from(number).expect("S04 holds");
                out.push(Pair { output, operand, index: Vec::new() });
            }
        }
    }
    out
}

/// What a bitcast or reshape stands for.
fn behind(module: &Module, mut id: InstrId) -> InstrId {
    while let Op::Bitcast | Op::Reshape { .. } = module.instr(id).op {
        id = module.instr(id).operands[0];
    }
    id
}

/// Whether an instruction may write a result where its operand is, reading it at the same time: every element that it writes depends on no
/// other element of that operand. `output` and `operand` are positions among the arrays of the result and the operand.
pub(super) fn may_overwrite(module: &Module, id: InstrId, operand: usize, output: u32) -> bool {
    let i = module.instr(id);
    let k = usize::try_from(output).expect("it is an index");
    match &i.op {
        // What an operation says of itself is believed.
        Op::Fusion(fusion) if fusion.aliasing.iter().any(|a| usize::try_from(a.operand) == Ok(operand)) => true,
        Op::CustomCall(call) if call.aliasing.iter().any(|a| usize::try_from(a.operand) == Ok(operand)) => true,
        Op::Fusion(fusion) => pointwise(module, fusion.calls, operand, k),
        Op::Collective(_) | Op::Sort { .. } => operand == k,
        Op::Scatter(_) => operand == k || operand < i.operands.len() / 2,
        Op::CustomCall(call) => call.target.starts_with("__cublas") && operand == 2 && k == 0,
        Op::TriangularSolve { .. } => operand == 1,
        // What it copies is what is there.
        Op::Copy => true,
        op => elementwise(op, operand) && same_width(module, i.operands[operand], id),
    }
}

/// Whether each element of the result depends on one element of the operand, at the same position.
fn elementwise(op: &Op, operand: usize) -> bool {
    match op {
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare { .. }
        | Op::Select
        | Op::Clamp
        | Op::Convert
        | Op::BitcastConvert
        | Op::StochasticConvert
        | Op::ReducePrecision { .. }
        | Op::Map { .. }
        | Op::Bitcast
        | Op::Reshape { .. }
        | Op::Tuple
        | Op::Copy
        | Op::OptBarrier
        | Op::SetDimensionSize { .. } => true,
        Op::DynamicUpdateSlice => operand == 0,
        Op::Scatter(_) => operand == 0,
        _ => false,
    }
}

fn same_width(module: &Module, a: InstrId, b: InstrId) -> bool {
    module.shapes.byte_size(module.instr(a).shape) == module.shapes.byte_size(module.instr(b).shape)
}

/// Whether a fused computation uses a parameter only element by element, so that result `output` may be written over it. A slice of what an
/// update replaces at the same place counts as such; so does a reduction of the parameter beside that result, which reads each element when it is
/// written.
fn pointwise(module: &Module, comp: CompId, parameter: usize, output: usize) -> bool {
    /// How a fused value depends on the parameter.
    #[derive(Clone, Copy, PartialEq)]
    enum Reach {
        Not,
        /// Element by element.
        Whole,
        /// Element by element of a slice.
        Slice,
        /// By way of a reduction.
        Reduced,
    }
    let c = module.comp(comp);
    let Some(&parameter) = c.parameters.get(parameter) else { return false };
    let updates = c.order.iter().map(|&id| module.instr(id)).filter(|i| matches!(i.op, Op::DynamicUpdateSlice));
    let updates: Vec<&[InstrId]> = updates.map(|i| &i.operands[2..]).collect();
    let mut reach = EntityMap::<InstrId, Reach>::with_default(Reach::Not);
    reach[parameter] = Reach::Whole;
    for &id in &c.order {
        let i = module.instr(id);
        for (number, &operand) in i.operands.iter().enumerate() {
            let from = reach[operand];
            let to = match &i.op {
                _ if from == Reach::Not => continue,
                Op::Tuple => continue,
                op if elementwise(op, number) => from,
                Op::DynamicSlice { .. } if number == 0 && from == Reach::Whole && updates.contains(&&i.operands[1..]) => Reach::Slice,
                // The slice goes back where it came from.
                Op::DynamicUpdateSlice if number == 1 && from == Reach::Slice => Reach::Whole,
                Op::Reduce { .. } if number < i.operands.len() / 2 && from == Reach::Whole => Reach::Reduced,
                Op::GetTupleElement { .. } if from == Reach::Reduced => Reach::Reduced,
                _ => return false,
            };
            if reach[id] != Reach::Not && reach[id] != to {
                return false;
            }
            reach[id] = to;
        }
    }
    let root = module.instr(c.root);
    let written = if matches!(root.op, Op::Tuple) { root.operands.get(output).copied() } else { Some(c.root) };
    written.is_some_and(|w| reach[w] != Reach::Reduced)
}
