//! `sink-invariant`: makes in a loop's body what the loop carries unchanged though it is made of nothing.
//!
//! # What it does
//! An element that a loop passes on unchanged and that a fusion before the loop makes from constants alone (a mask, a broadcast number, an
//! iota) is made where the body reads it: inside the reading fusion where that is elementwise or where it is one repeated number, else by
//! a fusion just before the first reader.
//!
//! # When it helps
//! Masks of attention are as large as the scores of all heads, and alive over both passes.
//!
//! # Example
//! ```text
//! before                                                    after
//! entry: %m = f32[4096] fusion(), calls=%broadcast          body: %y = f32[4096] fusion(%x), calls=%broadcast_select
//! body:  %y = f32[4096] fusion(%m, %x), calls=%select
//! ```
//!
//! # Cost
//! Linear in the module for each element.
//!
//! # Source
//! The inverse of XLA's `WhileLoopExpensiveInvariantCodeMotion`.

use rustc_hash::FxHashSet;

use crate::analysis::Users;
use crate::analysis::loops::{Kind, Loops};
use crate::ir::{FusionKind, Insertion, InstrId, Module, Op};
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};

use super::drop_carried::sweep;
use super::inline::{Output, inline, is_elementwise, is_triton};

/// Smaller invariants stay where they are.
const SMALLEST: u64 = 1 << 12;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct SinkInvariant;

impl Pass for SinkInvariant {
    fn name(&self) -> &'static str {
        "sink-invariant"
    }
    fn run(&self, module: &mut Module, _: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let count = sink_invariants(module, false);
        let text = format!("{count} invariants made where loops read them");
        log.entries.push(Entry { pass: self.name(), changed: count > 0, text, plan: None });
        Ok(Changed::from(count > 0))
    }
}

/// Sinks invariants into all bodies; returns how many. With `only_free`, only those that every reader takes in.
pub fn sink_invariants(module: &mut Module, only_free: bool) -> usize {
    let mut count = 0;
    let loops = Loops::of(module, &Users::of(module)).loops.len();
    for n in 0..loops {
        let users = Users::of(module);
        let Some(this) = Loops::of(module, &users).loops.into_iter().nth(n) else { break };
        if users.callers(this.body).len() != 1 {
            continue;
        }
        for element in this.elements.iter().filter(|e| e.kind == Kind::Invariant && e.results.is_empty()) {
            let Some(from) = Output::of(module, origin(module, element.initial)) else { continue };
            let small = module.shapes.byte_size(module.instr(element.initial).shape) < SMALLEST;
            if small || !is_made_of_nothing(module, from) {
                continue;
            }
            let readers: Vec<(InstrId, InstrId)> =
                element.takes.iter().flat_map(|&t| users.users(t).iter().map(move |&u| (u, t))).collect();
            count += usize::from(sink(module, &readers, from, this.body, only_free));
        }
    }
    if count > 0 {
        sweep(module);
    }
    count
}

/// What made a value that loops before this one may have passed on unchanged.
fn origin(module: &Module, mut id: InstrId) -> InstrId {
    loop {
        let Op::GetTupleElement { index } = module.instr(id).op else { return id };
        let of = module.instr(id).operands[0];
        let Op::While { body, .. } = module.instr(of).op else { return id };
        let Ok(n) = usize::try_from(index) else { return id };
        let root = module.comp(body).root;
        let Some(&next) = module.instr(root).operands.get(n) else { return id };
        let Some(&parameter) = module.comp(body).parameters.first() else { return id };
        let same =
            matches!(module.instr(next).op, Op::GetTupleElement { index: i } if i == index) && module.instr(next).operands[0] == parameter;
        let Some(&init) = module.instr(of).operands.first() else { return id };
        match module.instr(init).op {
            Op::Tuple if same => id = module.instr(init).operands[n],
            _ => return id,
        }
    }
}

/// Whether it reads nothing.
fn is_made_of_nothing(module: &Module, from: Output) -> bool {
    let Op::Fusion(fusion) = &module.instr(from.fusion).op else { return false };
    let Some(root) = from.root(module) else { return false };
    let reads = super::closure(module, root).into_iter().any(|i| matches!(module.instr(i).op, Op::Parameter { .. }));
    fusion.kind == FusionKind::Loop && !reads && is_elementwise(module, from)
}

/// Whether it is one number all over.
fn is_one_number(module: &Module, from: Output) -> bool {
    let Some(root) = from.root(module) else { return false };
    super::closure(module, root).into_iter().all(|i| matches!(module.instr(i).op, Op::Constant(_) | Op::Broadcast { .. } | Op::Bitcast))
}

fn sink(module: &mut Module, readers: &[(InstrId, InstrId)], from: Output, body: crate::ir::CompId, only_free: bool) -> bool {
    let one_number = is_one_number(module, from);
    let takes_in = |module: &Module, reader: InstrId| {
        let Op::Fusion(fusion) = &module.instr(reader).op else { return false };
        matches!(fusion.kind, FusionKind::Loop | FusionKind::Input) || one_number && is_triton(module, reader)
    };
    let root = module.comp(body).root;
    if readers.iter().all(|&(r, _)| r == root) || only_free && !readers.iter().all(|&(r, _)| r == root || takes_in(module, r)) {
        return false;
    }
    let mut made: Option<InstrId> = None;
    let order = module.comp(body).order.clone();
    let mut readers = readers.to_vec();
    readers.sort_by_key(|&(r, _)| order.iter().position(|&i| i == r));
    for (reader, take) in readers {
        if reader == root {
            continue;
        }
        if takes_in(module, reader) && inline(module, from, reader, take).is_some() {
            continue;
        }
        let new = match made {
            Some(new) => new,
            None => {
                let Some(new) = clone_before(module, from, body, reader) else { return false };
                made = Some(new);
                new
            }
        };
        for operand in &mut module.instructions[reader].operands {
            if *operand == take {
                *operand = new;
            }
        }
    }
    true
}

/// A fusion of its own for one output, just before a reader.
fn clone_before(module: &mut Module, from: Output, body: crate::ir::CompId, reader: InstrId) -> Option<InstrId> {
    let root = from.root(module)?;
    let mut taken = module.names();
    let mut builder = crate::rewrite::FusedBuilder::new("fused_invariant", &mut taken);
    let mut known = rustc_hash::FxHashMap::default();
    let mut same = |module: &mut Module, id: InstrId| module.instr(id).shape;
    let inner = builder.clone_dag(module, root, &mut known, &mut same, &mut taken);
    let fusion = builder.finish(module, &[inner], "loop_invariant_fusion", &mut taken);
    let position = module.comp(body).order.iter().position(|&i| i == reader)?;
    module.splice(body, vec![Insertion { position, instr: fusion }], &FxHashSet::default());
    Some(fusion)
}
