//! Property P12 of a pass: collectives stay as they are, or other devices wait for ever.

use std::collections::BTreeSet;

use crate::ir::{Collective, CollectiveKind, CompId, InstrId, Module, Op};

/// Whether two programs run the same collectives in the same order: kinds, channels, groups, pairs, sizes, and as many dones.
/// A computation counts where it is first called. Both modules must keep promises S01–S07.
///
/// # Errors
/// The first difference, as a sentence.
pub fn same_collectives(before: &Module, after: &Module) -> Result<(), String> {
    let (old, new) = (sequence(before), sequence(after));
    for (at, pair) in old.iter().zip(&new).enumerate() {
        let (Some(a), Some(b)) = (say(before, *pair.0), say(after, *pair.1)) else { continue };
        if a != b {
            return Err(format!("collective {at}: expected `{a}`, found `{b}`"));
        }
    }
    if old.len() != new.len() {
        return Err(format!("expected {} collectives and dones, found {}", old.len(), new.len()));
    }
    Ok(())
}

/// All live instructions in the order in which they run, each computation once.
pub(super) fn flattened(module: &Module) -> Vec<InstrId> {
    let mut seen = BTreeSet::<CompId>::new();
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

/// What must not change of a collective; for a done, its kind.
fn say(module: &Module, id: InstrId) -> Option<String> {
    let instr = module.instr(id);
    let elements: u64 = module.shapes.leaves(instr.shape).iter().filter_map(|&l| module.shapes.array(l)).map(|a| a.elements()).sum();
    match &instr.op {
        Op::Collective(c) => Some(signature(c, elements)),
        Op::CollectiveDone(kind) => Some(format!("{}-done", kind.name())),
        _ => None,
    }
}

fn signature(c: &Collective, elements: u64) -> String {
    let Collective { kind, start, groups, channel_id, use_global_device_ids, dimensions, source_target_pairs, .. } = c;
    let kind: &CollectiveKind = kind;
    let word = if *start { "-start" } else { "" };
    format!(
        "{}{word} of {elements} elements, channel {channel_id:?}, groups {groups:?}, global {use_global_device_ids}, \
         dimensions {dimensions:?}, pairs {source_target_pairs:?}",
        kind.name()
    )
}
