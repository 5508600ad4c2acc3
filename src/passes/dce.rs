//! `dce`: removes what nobody reads.
//!
//! # What it does
//! Takes instructions out of the order that have no reader, no side effect and no place in the program's signature, and computations
//! that nothing calls any more out of the listing. Control edges to what is gone go too.
//!
//! # When it helps
//! After a rewrite that redirected readers.
//!
//! # Example
//! ```text
//! before                                    after
//! %b = f32[4] bitcast(%a)                   ROOT %r = f32[2,2] negate(%a)
//! ROOT %r = f32[2,2] negate(%a)
//! ```
//!
//! # Cost
//! Linear in the module.
//!
//! # Source
//! Textbook mark and sweep from the roots of each computation.

use rustc_hash::FxHashSet;

use crate::ir::{CompId, EntityMap, InstrId, Module, Op};
use crate::pass::{Changed, Log, Pass, PassCx, PassError};

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct Dce;

impl Pass for Dce {
    fn name(&self) -> &'static str {
        "dce"
    }
    fn run(&self, module: &mut Module, _: &mut PassCx, _: &mut Log) -> Result<Changed, PassError> {
        let computations = module.listing.len();
        Ok(Changed::from(dce(module) > 0 || module.listing.len() < computations))
    }
}

/// Removes dead instructions and computations; returns how many instructions.
pub fn dce(module: &mut Module) -> usize {
    let mut count = 0;
    for comp in module.listing.clone() {
        count += one(module, comp);
    }
    module.drop_uncalled();
    count
}

fn one(module: &mut Module, comp: CompId) -> usize {
    let computation = module.comp(comp);
    let mut live = EntityMap::<InstrId, bool>::with_default(false);
    let keeps = |id: InstrId| id == computation.root || stays(module, id);
    let mut stack: Vec<InstrId> = computation.order.iter().copied().filter(|&id| keeps(id)).collect();
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut live[id], true) {
            stack.extend_from_slice(&module.instr(id).operands);
        }
    }
    let dead: FxHashSet<InstrId> = computation.order.iter().copied().filter(|&id| !live[id]).collect();
    if dead.is_empty() {
        return 0;
    }
    for id in computation.order.clone() {
        if live[id] && !module.instr(id).control_predecessors.is_empty() {
            module.instructions[id].control_predecessors.retain(|p| !dead.contains(p));
        }
    }
    module.splice(comp, Vec::new(), &dead);
    dead.len()
}

/// Whether an instruction stays though nobody reads it: it is part of the signature, or somebody outside notices that it runs. What an
/// asynchronous pair wraps decides for the pair.
pub(super) fn stays(module: &Module, id: InstrId) -> bool {
    match &module.instr(id).op {
        Op::AsyncStart(wrapped) | Op::AsyncUpdate(wrapped) | Op::AsyncDone(wrapped) => {
            let inner = &module.comp(wrapped.calls).order;
            inner.iter().any(|&i| !matches!(module.instr(i).op, Op::Parameter { .. }) && stays(module, i))
        }
        Op::Parameter { .. }
        | Op::Collective(_)
        | Op::CollectiveDone(_)
        | Op::CopyStart { .. }
        | Op::CopyDone
        | Op::Send(_)
        | Op::SendDone(_)
        | Op::Recv(_)
        | Op::RecvDone(_)
        | Op::Infeed { .. }
        | Op::Outfeed { .. }
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::Call { .. }
        | Op::AfterAll
        | Op::AddDependency
        | Op::RngGetAndUpdateState { .. }
        | Op::Rng { .. }
        | Op::Opaque(_) => true,
        Op::CustomCall(call) => call.has_side_effect,
        _ => false,
    }
}
