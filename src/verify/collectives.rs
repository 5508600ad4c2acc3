//! Property P12 of a pass: collectives stay as they are, or other devices wait for ever.

use rustc_hash::FxHashSet;

use crate::diag::Diagnostic;
use crate::ir::{CompId, InstrId, Module, Op};

/// V12: what differs between the collectives of two programs in kind, order, channel, groups, pairs or size, or in the number of dones; the first
/// difference only. A computation counts where it is first called. Both modules must keep promises S01–S07.
pub fn same_collectives(before: &Module, after: &Module) -> Vec<Diagnostic> {
    let (old, new) = (sequence(before), sequence(after));
    for (at, pair) in old.iter().zip(&new).enumerate() {
        let (a, b) = (say(before, *pair.0), say(after, *pair.1));
        if a != b {
            let message = format!("collective {at}: expected {a}, found {b}");
            let after = after.instr(*pair.1);
            return vec![Diagnostic::error("V12", message).at(after.span, "").note(format!(
                "`{}` is now `{}`",
                before.instr(*pair.0).name,
                after.name
            ))];
        }
    }
    if old.len() == new.len() {
        return Vec::new();
    }
    vec![Diagnostic::error("V12", format!("expected {} collectives and dones, found {}", old.len(), new.len()))]
}

/// All live instructions in the order in which they run, each computation once.
pub(super) fn flattened(module: &Module) -> Vec<InstrId> {
    let mut seen = FxHashSet::<CompId>::default();
    let mut out = Vec::new();
    let mut stack = vec![(module.entry_id(), 0)];
    seen.insert(module.entry_id());
    while let Some((comp, at)) = stack.pop() {
        let Some(&id) = module.comp(comp).order.get(at) else { continue };
        stack.push((comp, at + 1));
        out.push(id);
        stack.extend(module.instr(id).op.called().into_iter().rev().filter(|c| seen.insert(*c)).map(|c| (c, 0)));
    }
    out
}

/// Collectives in order; then their dones, which may move between them.
fn sequence(module: &Module) -> Vec<InstrId> {
    let all = flattened(module);
    let (mut starts, mut dones) = (Vec::new(), Vec::new());
    for id in all {
        match &module.instr(id).op {
            Op::Collective(_) => starts.push(id),
            Op::CollectiveDone(_) => dones.push(id),
            _ => {}
        }
    }
    starts.append(&mut dones);
    starts
}

/// What must not change of a collective; of a done, its kind.
fn say(module: &Module, id: InstrId) -> String {
    let instr = module.instr(id);
    let Op::Collective(c) = &instr.op else { return format!("`{}`", instr.op.opcode()) };
    let leaves = module.shapes.leaves(instr.shape);
    let elements: u64 = leaves.iter().filter_map(|&l| module.shapes.array(l)).fold(0, |n, a| n.saturating_add(a.elements()));
    format!(
        "`{}` of {elements} elements, channel {:?}, groups {:?}, global {}, dimensions {:?}, pairs {:?}",
        instr.op.opcode(),
        c.channel_id,
        c.groups,
        c.use_global_device_ids,
        c.dimensions,
        c.source_target_pairs
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Collective, CollectiveKind, Computation, Instruction, ReplicaGroups, ShapeTable};

    fn program(channels: &[i64]) -> Module {
        let mut m = Module::default();
        let shape = ShapeTable::intern(&mut m.shapes, crate::ir::Shape::Array(crate::ir::ArrayShape::new(crate::ir::Primitive::F32, &[8])));
        let mut order = vec![m.define(Instruction::new("p", shape, Op::Parameter { number: 0 }, []))];
        for &channel in channels {
            let op = Collective {
                kind: CollectiveKind::Permute,
                start: false,
                groups: ReplicaGroups::default(),
                channel_id: Some(channel),
                use_global_device_ids: false,
                constrain_layout: false,
                dimensions: Vec::new(),
                to_apply: None,
                source_target_pairs: vec![(0, 1)],
                slice_sizes: Vec::new(),
                has_dynamic_root: false,
            };
            let last = *order.last().expect("it begins with a parameter");
            order.push(m.define(Instruction::new(format!("c{channel}"), shape, Op::Collective(Box::new(op)), [last])));
        }
        let root = *order.last().expect("it begins with a parameter");
        let entry = m.computations.push(Computation { parameters: vec![order[0]], order, root, ..Computation::new("e") });
        m.listing.push(entry);
        m.entry = Some(entry);
        m
    }

    #[test]
    fn v12_collectives_that_change_places_or_vanish() {
        let before = program(&[1, 2]);
        assert!(same_collectives(&before, &program(&[1, 2])).is_empty());
        for other in [program(&[2, 1]), program(&[1]), program(&[1, 2, 3])] {
            assert_eq!(same_collectives(&before, &other)[0].code, "V12");
        }
    }
}
