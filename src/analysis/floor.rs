//! The least that any plan could reach.
//!
//! Whatever leaves the device and whatever is computed again, parameters, results and constants stay where the program's signature says, and while
//! an instruction runs, what it reads and writes is there. Of operands that are only sliced the slice counts, since a plan may keep the rest
//! on the host, and a fill (a broadcast of one number) forces nothing, since it can be made where and as far as it is read. So no plan that keeps the program's instructions goes below: fixed bytes, and the most that one instruction touches besides. Cost:
//! linear in the program.

use super::assignment::AllocationKind;
use super::sharing::may_share;
use super::{Analyses, BufferKind};
use crate::cost::roofline::touched;
use crate::entity::BufferId;
use crate::ir::{CollectiveKind, InstrId, Module, Op};

/// The least that any plan could reach, and what forces it.
#[derive(Clone, Debug)]
pub struct Floor {
    /// Bytes.
    pub bytes: u64,
    /// Of them, parameters, results and constants.
    pub fixed: u64,
    /// The instruction that needs most beside them; `None` if nothing does.
    pub at: Option<InstrId>,
    /// What it reads and writes: buffer and bytes, largest first.
    pub needs: Vec<(BufferId, u64)>,
}

impl Floor {
    /// The floor of one memory space.
    pub fn of(analyses: &Analyses<'_>, color: i64) -> Self {
        let fixed = analyses.curve(color).fixed;
        let mut best = Self { bytes: fixed, fixed, at: None, needs: Vec::new() };
        for &id in &analyses.schedule().sequence {
            if !runs(&analyses.module().instr(id).op) || is_fill(analyses.module(), id) {
                continue;
            }
            let needs = needs(analyses, id, color);
            let bytes = fixed.saturating_add(needs.iter().map(|n| n.1).sum());
            if bytes > best.bytes {
                best = Self { bytes, fixed, at: Some(id), needs };
            }
        }
        best.needs.sort_by_key(|&(buffer, bytes)| (std::cmp::Reverse(bytes), buffer));
        best
    }
}

/// Whether an instruction touches memory at the instant where it stands.
fn runs(op: &Op) -> bool {
    match op {
        Op::Collective(c) => !c.start || matches!(c.kind, CollectiveKind::AllReduce | CollectiveKind::AllGather),
        Op::Parameter { .. }
        | Op::Constant(_)
        | Op::Bitcast
        | Op::Tuple
        | Op::GetTupleElement { .. }
        | Op::OptBarrier
        | Op::AfterAll
        | Op::AddDependency
        | Op::Domain(_)
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::Call { .. }
        | Op::AsyncStart(_)
        | Op::AsyncUpdate(_)
        | Op::AsyncDone(_)
        | Op::CollectiveDone(_)
        | Op::CopyStart { .. }
        | Op::CopyDone
        | Op::Send(_)
        | Op::SendDone(_)
        | Op::Recv(_)
        | Op::RecvDone(_) => false,
        _ => true,
    }
}

/// Whether an instruction only repeats numbers: the first values of stacks, mostly.
fn is_fill(module: &Module, id: InstrId) -> bool {
    let instr = module.instr(id);
    let id = if let Op::Fusion(fusion) = &instr.op { module.comp(fusion.calls).root } else { id };
    let scalar = |&o: &InstrId| module.shapes.array(module.instr(o).shape).is_some_and(|a| a.elements() == 1);
    let repeats = |mut id: InstrId| {
        while matches!(module.instr(id).op, Op::Copy | Op::Bitcast | Op::Reshape { .. } | Op::Transpose { .. }) {
            id = module.instr(id).operands[0];
        }
        matches!(module.instr(id).op, Op::Broadcast { .. })
    };
    let root = module.instr(id);
    let only_repeats = repeats(id) || (matches!(root.op, Op::Tuple) && root.operands.iter().all(|&o| repeats(o)));
    only_repeats && instr.operands.iter().all(scalar)
}

/// What an instruction reads and writes of buffers that are not fixed. A result that may be written over an operand takes no memory of its own.
fn needs(analyses: &Analyses<'_>, id: InstrId, color: i64) -> Vec<(BufferId, u64)> {
    let module = analyses.module();
    let touched = touched(module, id);
    let mut out: Vec<(BufferId, u64)> = Vec::new();
    let mut add = |buffer: BufferId, bytes: u64| match out.iter_mut().find(|(b, _)| *b == buffer) {
        // An update in place reads and writes the same bytes.
        Some(known) => known.1 = known.1.max(bytes),
        None => out.push((buffer, bytes)),
    };
    let mut lent: Vec<(InstrId, u32)> = Vec::new();
    for (&operand, &bytes) in module.instr(id).operands.iter().zip(&touched.read) {
        for (position, buffer, part) in parts(analyses, operand, bytes) {
            lent.push((operand, position));
            if is_free(analyses, buffer, color) {
                add(buffer, part);
            }
        }
    }
    let positions = &analyses.values().positions;
    for (position, buffer, part) in parts(analyses, id, touched.written) {
        let over = lent.iter().position(|&operand| may_share(module, analyses.users(), positions, operand, (id, position)));
        match over {
            Some(n) => {
                lent.swap_remove(n);
            }
            None if is_free(analyses, buffer, color) => add(buffer, part),
            None => {}
        }
    }
    out
}

/// The arrays of a value with their positions and buffers, and so many of the bytes as each can hold, in order.
fn parts(analyses: &Analyses<'_>, id: InstrId, bytes: u64) -> Vec<(u32, BufferId, u64)> {
    let module = analyses.module();
    let mut left = bytes;
    let mut out = Vec::new();
    for (position, value) in (0u32..).zip(analyses.values().all(module, id)) {
        let shape = analyses.values().get(value).shape;
        if module.shapes.array(shape).is_some() && left > 0 {
            let part = module.shapes.byte_size(shape).min(left);
            left -= part;
            out.push((position, analyses.buffers().of_value(value), part));
        }
    }
    out
}

/// Whether a plan could do something about a buffer: it is on the device, and neither parameter, result nor constant, nor lies in one.
fn is_free(analyses: &Analyses<'_>, id: BufferId, color: i64) -> bool {
    let buffer = analyses.buffers().get(id);
    let in_heap = analyses.assignment().place_of(id).is_some_and(|(a, _)| a.kind == AllocationKind::Heap);
    buffer.color == color && in_heap && !buffer.is_pinned() && buffer.kind == BufferKind::Plain
}
