//! Values that two computations make alike.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{InstrId, Module, Op};

use super::graph::{Rows, peel};
use super::pair::Pair;
use super::readers::holder;

/// Whether two values inside called computations are the same function of the same values outside. Each side is the computation's parameters,
/// the operands that they show, and the value. Attributes count, prices and names do not. What stands behind bitcasts counts as equal.
pub(super) fn same_computation(module: &Module, one: (&[InstrId], &[InstrId], InstrId), other: (&[InstrId], &[InstrId], InstrId)) -> bool {
    let shown = |side: (&[InstrId], &[InstrId], InstrId), p: InstrId| -> Option<InstrId> {
        let n = side.0.iter().position(|&q| q == p)?;
        side.1.get(n).map(|&o| peel(module, o))
    };
    let mut pairs: FxHashMap<InstrId, InstrId> = FxHashMap::default();
    let mut stack = vec![(peel(module, one.2), peel(module, other.2))];
    while let Some((a, b)) = stack.pop() {
        if pairs.get(&a) == Some(&b) {
            continue;
        }
        let (left, right) = (module.instr(a), module.instr(b));
        if let Op::Parameter { .. } = left.op {
            if shown(one, a).is_none() || shown(one, a) != shown(other, b) {
                return false;
            }
            pairs.insert(a, b);
            continue;
        }
        let called = !left.op.called().is_empty();
        if called || left.op != right.op || left.shape != right.shape || left.operands.len() != right.operands.len() {
            return false;
        }
        pairs.insert(a, b);
        for (&x, &y) in left.operands.iter().zip(&right.operands) {
            // Between two operations a bitcast changes what dimensions mean, so it must be the same on both sides.
            if module.instr(x).shape != module.instr(y).shape {
                return false;
            }
            stack.push((peel(module, x), peel(module, y)));
        }
    }
    true
}

/// Results of collectives in the producer that the consumer's body has too, for the same row: from the former to the latter.
pub(super) fn gathered_again(module: &Module, pair: &Pair, rows: &Rows) -> FxHashMap<InstrId, InstrId> {
    let mut as_produced: FxHashMap<InstrId, InstrId> = FxHashMap::default();
    for (stack, &value) in pair.stacks.iter().zip(&rows.values).filter(|(s, _)| s.between.is_empty()) {
        for read in &stack.reads {
            if let Some(shown) = holder(module, read) {
                as_produced.insert(shown, value);
            }
        }
    }
    let mut out = FxHashMap::default();
    let mut taken = FxHashSet::default();
    for &id in &module.comp(pair.consumer.body).order {
        let instr = module.instr(id);
        let found = match &instr.op {
            Op::Collective(_) | Op::AsyncStart(_) => module.comp(pair.producer.body).order.iter().copied().find(|&p| {
                !taken.contains(&p)
                    && without_channel(module, p).is_some_and(|op| Some(op) == without_channel(module, id))
                    && module.instr(p).shape == instr.shape
                    && module.instr(p).operands.len() == instr.operands.len()
                    && module.instr(p).operands.iter().zip(&instr.operands).all(|(&a, &b)| {
                        module.instr(a).shape == module.instr(b).shape && as_produced.get(&peel(module, b)) == Some(&peel(module, a))
                    })
            }),
            Op::CollectiveDone(_) | Op::AsyncDone(_) => as_produced.get(&instr.operands[0]).and_then(|start| {
                let ends = |p: InstrId| matches!(module.instr(p).op, Op::CollectiveDone(_) | Op::AsyncDone(_));
                let is_done = |&p: &InstrId| ends(p) && module.instr(p).operands[0] == *start;
                module.comp(pair.producer.body).order.iter().copied().find(is_done)
            }),
            _ => None,
        };
        if let Some(produced) = found.filter(|_| !as_produced.contains_key(&id)) {
            taken.insert(produced);
            as_produced.insert(id, produced);
            out.insert(produced, id);
        }
    }
    out
}

fn without_channel(module: &Module, id: InstrId) -> Option<Op> {
    let collective = match &module.instr(id).op {
        Op::Collective(collective) => collective,
        Op::AsyncStart(wrapped) => match &module.instr(module.comp(wrapped.calls).root).op {
            Op::Collective(collective) => collective,
            _ => return None,
        },
        _ => return None,
    };
    let mut collective = collective.clone();
    collective.channel_id = None;
    // What another order of addition could change is no copy.
    collective.to_apply.is_none().then_some(Op::Collective(collective))
}
