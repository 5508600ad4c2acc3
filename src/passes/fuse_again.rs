//! `fuse-again`: gives back to kernels what a rewrite took from them.
//!
//! # What it does
//! Elementwise fusions that have no price of XLA's (they are new, or their computation changed) and cloned ones move into the fusions that read them,
//! where that moves fewer bytes. Kernels that XLA compiles by Triton for whole rows (softmax) take in what reads them, and what reduces
//! their rows, where those too work row by row: the exponentials, their sum and the quotient become one kernel again.
//!
//! # When it helps
//! After stacks are dropped: forward kernels are shaped for stacks that are no longer there, and clones write what a fused kernel would have kept in
//! registers.
//!
//! # Example
//! ```text
//! before                                        after
//! %r = bf16[8] fusion(%x), calls=%tanh          %y = bf16[8] fusion(%x, %z), calls=%tanh_add
//! %y = bf16[8] fusion(%r, %z), calls=%add
//! ```
//!
//! # Refuses
//! Where a product would meet a sum in one computation (the backend could round once instead of twice), where what the fusion reads is overwritten
//! before its reader runs.
//!
//! # Cost
//! O(fusions · users).
//!
//! # Source
//! XLA's `InstructionFusion`.

use rustc_hash::FxHashMap;

use crate::analysis::Users;
use crate::analysis::loops::{Kind, Loops};
use crate::ir::{CompId, FusionKind, InstrId, Module, Op};
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};

use super::drop_carried::sweep;
use super::inline::{Output, inline, is_elementwise};
use super::row_kernels::row_kernel;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct FuseAgain;

impl Pass for FuseAgain {
    fn name(&self) -> &'static str {
        "fuse-again"
    }
    fn run(&self, module: &mut Module, _: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let count = fuse_again(module);
        let text = format!("{count} fusions moved into their readers");
        log.entries.push(Entry { pass: self.name(), changed: count > 0, text, plan: None });
        Ok(Changed::from(count > 0))
    }
}

/// Smaller values are not worth a kernel's price of XLA's.
const SMALLEST: u64 = 1 << 12;

/// Fuses again in all loop bodies; returns how many fusions moved into their readers.
pub fn fuse_again(module: &mut Module) -> usize {
    let mut count = 0;
    let users = Users::of(module);
    let bodies: Vec<CompId> = Loops::of(module, &users).loops.iter().map(|l| l.body).collect();
    for body in bodies {
        while let Some(n) = one_round(module, body).or_else(|| row_kernel(module, body)) {
            count += n;
            sweep(module);
        }
    }
    count
}

/// Moves every candidate of a body into its readers once; `None` when there is none.
fn one_round(module: &mut Module, body: CompId) -> Option<usize> {
    let users = Users::of(module);
    let ends = overwritten(module, &users, body);
    let order = module.comp(body).order.clone();
    let place: FxHashMap<InstrId, usize> = order.iter().enumerate().map(|(n, &i)| (i, n)).collect();
    for &id in &order {
        let Some(from) = Output::of(module, id) else { continue };
        if !is_candidate(module, from) || module.shapes.byte_size(module.instr(id).shape) < SMALLEST {
            continue;
        }
        let readers = through_views(module, &users, id);
        let last = readers.iter().filter_map(|r| place.get(&r.0)).max().copied().unwrap_or(usize::MAX);
        let stays = module.instr(from.fusion).operands.iter().all(|&o| ends.get(&root_of(module, o)).is_none_or(|&end| last <= end));
        if readers.is_empty() || !stays || !readers.iter().all(|&(r, _)| takes_in(module, r)) || !pays(module, from, id, &readers) {
            continue;
        }
        let mut done = 0;
        for &(reader, operand) in &readers {
            if inline(module, from, reader, operand).is_some() {
                done += 1;
            }
        }
        if done > 0 {
            return Some(done);
        }
    }
    None
}

/// Who reads a value, and by which operand: the value or a bitcast of it.
pub(super) fn through_views(module: &Module, users: &Users, id: InstrId) -> Vec<(InstrId, InstrId)> {
    let mut views = vec![id];
    let mut out = Vec::new();
    while let Some(view) = views.pop() {
        for &user in users.users(view) {
            if matches!(module.instr(user).op, Op::Bitcast) {
                views.push(user);
            } else {
                out.push((user, view));
            }
        }
    }
    out
}

/// New or changed (no price), or a clone.
fn is_candidate(module: &Module, from: Output) -> bool {
    let instr = module.instr(from.fusion);
    let Op::Fusion(fusion) = &instr.op else { return false };
    let priced = instr.attrs.backend_config.as_ref().is_some_and(|c| std::str::from_utf8(c).is_ok_and(|t| t.contains("exec_time_us")));
    let is_clone = instr.name.contains(".remat");
    fusion.kind == FusionKind::Loop && fusion.aliasing.is_empty() && (!priced || is_clone) && is_elementwise(module, from)
}

fn takes_in(module: &Module, reader: InstrId) -> bool {
    let Op::Fusion(fusion) = &module.instr(reader).op else { return false };
    let updates = module.comp(fusion.calls).order.iter().any(|&i| matches!(module.instr(i).op, Op::DynamicUpdateSlice | Op::Scatter(_)));
    matches!(fusion.kind, FusionKind::Loop | FusionKind::Input) && fusion.aliasing.is_empty() && !updates
}

/// Whether fewer bytes move: the readers read what the fusion reads instead of what it wrote.
fn pays(module: &Module, from: Output, value: InstrId, readers: &[(InstrId, InstrId)]) -> bool {
    let bytes = |id: InstrId| module.shapes.byte_size(module.instr(id).shape);
    let Some(root) = from.root(module) else { return false };
    let needed = super::closure(module, root);
    let Op::Fusion(fusion) = &module.instr(from.fusion).op else { return false };
    let parameters = module.comp(fusion.calls).parameters.iter();
    let operands: Vec<InstrId> =
        parameters.zip(&module.instr(from.fusion).operands).filter(|(p, _)| needed.contains(p)).map(|(_, &o)| o).collect();
    let read: u64 = operands.iter().map(|&o| bytes(o)).sum();
    let before = read + bytes(value) * (1 + readers.len() as u64);
    let after: u64 = readers
        .iter()
        .map(|&(r, _)| operands.iter().filter(|o| !module.instr(r).operands.contains(o)).map(|&o| bytes(o)).sum::<u64>())
        .sum();
    after <= before
}

/// The instruction whose buffer a value lies in, through bitcasts.
pub(super) fn root_of(module: &Module, mut id: InstrId) -> InstrId {
    while let Op::Bitcast = module.instr(id).op {
        id = module.instr(id).operands[0];
    }
    id
}

/// Up to which place of a body's order each value that something overwrites in place may be read.
pub(super) fn overwritten(module: &Module, users: &Users, body: CompId) -> FxHashMap<InstrId, usize> {
    let order = &module.comp(body).order;
    let place: FxHashMap<InstrId, usize> = order.iter().enumerate().map(|(n, &i)| (i, n)).collect();
    let mut ends: FxHashMap<InstrId, usize> = FxHashMap::default();
    let mut end = |id: InstrId, at: usize| {
        let slot = ends.entry(id).or_insert(at);
        *slot = (*slot).min(at);
    };
    for (n, &id) in order.iter().enumerate() {
        for pair in crate::analysis::in_place_pairs(module, id) {
            if let Some(&operand) = module.instr(id).operands.get(pair.operand) {
                end(root_of(module, operand), n);
            }
        }
    }
    for this in Loops::of(module, users).loops.iter().filter(|l| l.body == body) {
        for element in this.elements.iter().filter(|e| e.kind != Kind::Invariant) {
            let mut next = root_of(module, element.next);
            if let Op::GetTupleElement { .. } = module.instr(next).op {
                next = module.instr(next).operands[0];
            }
            let at = place.get(&next).copied().unwrap_or(order.len());
            for &take in &element.takes {
                end(take, at);
            }
        }
    }
    ends
}
