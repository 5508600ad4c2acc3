//! Operations that write their result where an operand lies.
//!
//! Source: `HloDataflowAnalysis::GetInPlaceInputOutputPairs` and `alias_info.cc`: dynamic-update-slice and set-dimension-size on operand 0,
//! scatter on its operands, all-reduce-start on all of them, ragged-all-to-all on operand 1, whatever `output_to_operand_aliasing` says, and a
//! fusion whose result comes, through nothing but tuples, bitcasts and reshapes, from such an operation on one of its parameters.

use crate::ir::{CollectiveKind, InstrId, Module, Op, OutputAlias, Shape};

/// An operand's part and the part of the result that must lie at the same address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Which operand.
    pub operand: usize,
    /// Index path in it.
    pub operand_path: Vec<i64>,
    /// Index path in the result.
    pub output_path: Vec<i64>,
}

/// The pairs of an instruction, in the order of the result's parts. Costs O(fused instructions on the paths).
pub fn in_place_pairs(module: &Module, id: InstrId) -> Vec<InPlace> {
    let instr = module.instr(id);
    match &instr.op {
        Op::Fusion(fusion) => {
            let mut pairs = declared(&fusion.aliasing);
            let root = module.comp(fusion.calls).root;
            let leaves =
                module.shapes.positions(instr.shape).into_iter().filter(|(_, s)| !matches!(module.shapes.get(*s), Shape::Tuple(_)));
            for (path, _) in leaves {
                if let Some((parameter, operand_path)) = fused_source(module, root, &path)
                    && !pairs.iter().any(|p| p.output_path == path)
                {
                    pairs.push(InPlace { operand: parameter, operand_path, output_path: path });
                }
            }
            pairs
        }
        Op::CustomCall(call) => declared(&call.aliasing),
        // An asynchronous all-reduce says so here.
        Op::AsyncStart(start) => declared(&start.aliasing),
        _ => direct(module, id),
    }
}

fn declared(aliasing: &[OutputAlias]) -> Vec<InPlace> {
    aliasing
        .iter()
        .map(|a| InPlace {
            operand: usize::try_from(a.operand).expect("verified: the operand exists"),
            operand_path: a.index.clone(),
            output_path: a.output.clone(),
        })
        .collect()
}

/// Pairs of operations that are in place by themselves.
fn direct(module: &Module, id: InstrId) -> Vec<InPlace> {
    let instr = module.instr(id);
    let is_tuple = matches!(module.shapes.get(instr.shape), Shape::Tuple(_));
    let pair = |operand: usize, output_path: Vec<i64>| InPlace { operand, operand_path: Vec::new(), output_path };
    let each = |n: usize| {
        if is_tuple {
            (0i64..).take(n).map(|i| pair(usize::try_from(i).expect("small"), vec![i])).collect()
        } else {
            vec![pair(0, Vec::new())]
        }
    };
    match &instr.op {
        Op::DynamicUpdateSlice | Op::SetDimensionSize { .. } => vec![pair(0, Vec::new())],
        Op::Scatter(_) => each(instr.operands.len() / 2),
        Op::Collective(c) if c.start && c.kind == CollectiveKind::AllReduce => each(instr.operands.len()),
        Op::Collective(c) if c.kind == CollectiveKind::RaggedAllToAll => vec![pair(1, Vec::new())],
        // In place where it is given the destination: operands are input, destination and the two offsets.
        Op::Collective(c) if c.kind == CollectiveKind::Permute && instr.operands.len() == 4 => {
            if c.start {
                vec![pair(1, vec![1])]
            } else {
                vec![pair(1, Vec::new())]
            }
        }
        _ => Vec::new(),
    }
}

/// Follows tuples and their elements backwards.
fn through_tuples(module: &Module, mut id: InstrId, path: &[i64]) -> (InstrId, Vec<i64>) {
    // Kept with the next index last.
    let mut path: Vec<i64> = path.iter().rev().copied().collect();
    loop {
        let instr = module.instr(id);
        match &instr.op {
            Op::GetTupleElement { index } => {
                path.push(*index);
                id = instr.operands[0];
            }
            Op::Tuple if !path.is_empty() => {
                let index = path.pop().expect("not empty");
                id = instr.operands[usize::try_from(index).expect("verified: the index is in range")];
            }
            _ => return (id, path.into_iter().rev().collect()),
        }
    }
}

/// Follows tuples, bitcasts and reshapes backwards.
fn through_no_ops(module: &Module, id: InstrId, path: &[i64]) -> (InstrId, Vec<i64>) {
    let (mut id, mut path) = through_tuples(module, id, path);
    while let Op::Bitcast | Op::Reshape { .. } = module.instr(id).op {
        (id, path) = through_tuples(module, module.instr(id).operands[0], &path);
    }
    (id, path)
}

/// The parameter of a fusion that its result at `path` is written over, if there is one.
fn fused_source(module: &Module, root: InstrId, path: &[i64]) -> Option<(usize, Vec<i64>)> {
    let (mut id, mut path) = through_no_ops(module, root, path);
    // A chain of in-place operations is in place as a whole; each step goes to an earlier instruction.
    let pairs = match &module.instr(id).op {
        Op::Fusion(_) | Op::CustomCall(_) => in_place_pairs(module, id),
        _ => direct(module, id),
    };
    let pair = pairs.into_iter().find(|p| p.output_path == path)?;
    (id, path) = through_no_ops(module, module.instr(id).operands[pair.operand], &pair.operand_path);
    match module.instr(id).op {
        Op::Parameter { number } => Some((usize::try_from(number).ok()?, path)),
        _ => None,
    }
}
