//! What XLA:GPU still does to a scheduled module before it assigns buffers.
//!
//! Seen in the oracle's dumps of the module before and after (`xla_oracle.py check --dump`); all change the clock and the buffers:
//! * **An async collective that overlaps nothing becomes synchronous** (`GpuConvertAsyncCollectivesToSync`): between its `async-start` and `async-done` stand only
//!   parameters, constants, bitcasts, get-tuple-elements and other starts and dones of collectives. The collective then stands at the done's place, and
//!   the tuples of pointers are gone.
//! * **What nobody reads disappears** (`HloDCE`). Not modelled: XLA also drops a single result of a fusion that nobody takes, and with it the fusion's
//!   table of pointers. Modules as XLA makes them have none such; a rewrite that leaves some is counted a little too high (1,536 bytes of temp
//!   in six such fusions of `gpt3_760m_unrolled_none` fitted to 5 GiB).
//! * **An `opt-barrier` disappears** (`OptimizationBarrierExpander`), and so do the tuple before it and the get-tuple-elements after it.
//!
//! XLA also replaces copies of constants before a loop and the result tuple by new ones; that changes names only.
//! Identity is kept: an instruction that goes on existing keeps its id, and the done's id becomes the synchronous collective's.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{CompId, InstrId, Module, Op};

/// The module as XLA's buffer assignment sees it; `None` if it is the same. Costs O(instructions), and a copy of the module if it changes.
pub fn settle(module: &Module) -> Option<Module> {
    settle_some(module, true)
}

/// The module as XLA's rematerialization sees it: collectives are synchronous, but barriers still stand.
pub fn settle_collectives(module: &Module) -> Option<Module> {
    settle_some(module, false)
}

fn settle_some(module: &Module, barriers: bool) -> Option<Module> {
    if !module.is_scheduled {
        return None;
    }
    let mut edits: Vec<(CompId, Edit)> = Vec::new();
    for &comp in &module.listing {
        let edit = Edit::of(module, comp, barriers);
        if !edit.is_empty() {
            edits.push((comp, edit));
        }
    }
    if edits.is_empty() {
        return None;
    }
    let mut settled = module.clone();
    for (comp, edit) in edits {
        edit.apply(&mut settled, comp);
    }
    settled.drop_uncalled();
    Some(settled)
}

/// What changes in one computation.
#[derive(Default)]
struct Edit {
    /// Starts and dones of collectives that become synchronous.
    synchronous: Vec<(InstrId, InstrId)>,
    /// Instructions that vanish, with what their readers read instead.
    forwarded: FxHashMap<InstrId, InstrId>,
    /// Whether there is something that nobody reads.
    has_dead: bool,
}

impl Edit {
    fn of(module: &Module, comp: CompId, barriers: bool) -> Self {
        let mut this = Self::default();
        let mut in_flight = FxHashSet::default();
        for &id in &module.comp(comp).order {
            let instr = module.instr(id);
            match &instr.op {
                Op::AsyncStart(op) if is_collective(module, op.calls) => {
                    in_flight.insert(id);
                }
                Op::AsyncDone(op) if is_collective(module, op.calls) => {
                    let start = instr.operands[0];
                    if in_flight.remove(&start) {
                        this.synchronous.push((start, id));
                    }
                }
                Op::Parameter { .. } | Op::Constant(_) | Op::Bitcast | Op::GetTupleElement { .. } => {}
                _ => in_flight.clear(),
            }
            match &instr.op {
                Op::OptBarrier if barriers => {
                    let behind = this.now(instr.operands[0]);
                    this.forwarded.insert(id, behind);
                }
                // Only what reads a barrier; its operand stands before it, so it was met.
                Op::GetTupleElement { index } if this.forwarded.contains_key(&instr.operands[0]) => {
                    let tuple = module.instr(this.now(instr.operands[0]));
                    if matches!(tuple.op, Op::Tuple) {
                        let element = tuple.operands[usize::try_from(*index).expect("verified: the index is in range")];
                        let behind = this.now(element);
                        this.forwarded.insert(id, behind);
                    }
                }
                _ => {}
            }
        }
        let computation = module.comp(comp);
        this.has_dead = !dead(module, &computation.order, computation.root, &FxHashSet::default()).is_empty();
        this
    }
    fn now(&self, id: InstrId) -> InstrId {
        self.forwarded.get(&id).copied().unwrap_or(id)
    }
    fn is_empty(&self) -> bool {
        self.synchronous.is_empty() && self.forwarded.is_empty() && !self.has_dead
    }

    fn apply(self, module: &mut Module, comp: CompId) {
        let mut gone: FxHashSet<InstrId> = FxHashSet::default();
        for &(start, done) in &self.synchronous {
            let Op::AsyncStart(op) = &module.instr(start).op else { continue };
            let root = module.instr(module.comp(op.calls).root).clone();
            let operand = |id: &InstrId| match module.instr(*id).op {
                Op::Parameter { number } => usize::try_from(number).ok().and_then(|n| module.instr(start).operands.get(n)).copied(),
                _ => None,
            };
            let Some(operands) = root.operands.iter().map(operand).collect::<Option<Vec<_>>>() else { continue };
            let instr = &mut module.instructions[done];
            instr.op = root.op;
            instr.operands = operands.into();
            gone.insert(start);
        }
        let order = module.comp(comp).order.clone();
        for &id in &order {
            for operand in &mut module.instructions[id].operands {
                *operand = self.now(*operand);
            }
        }
        let root = self.now(module.comp(comp).root);
        gone.extend(self.forwarded.keys().copied());
        gone.extend(dead(module, &order, root, &gone));
        for &id in &order {
            module.instructions[id].control_predecessors.retain(|p| !gone.contains(p));
        }
        let listing: Vec<InstrId> = module.comp(comp).proto_listing.iter().copied().filter(|id| !gone.contains(id)).collect();
        module.splice(comp, Vec::new(), &gone);
        let computation = &mut module.computations[comp];
        computation.root = root;
        computation.proto_listing = listing;
    }
}

/// Instructions that nobody reads and that do nothing else, those that only such read included.
fn dead(module: &Module, order: &[InstrId], root: InstrId, gone: &FxHashSet<InstrId>) -> Vec<InstrId> {
    let mut read: FxHashSet<InstrId> = FxHashSet::from_iter([root]);
    let mut out = Vec::new();
    // Going backwards, readers come before what they read.
    for &id in order.iter().rev().filter(|id| !gone.contains(id)) {
        if read.contains(&id) || stays(&module.instr(id).op) {
            read.extend(module.instr(id).operands.iter().copied());
        } else {
            out.push(id);
        }
    }
    out
}

/// Whether an instruction stays though nobody reads it: it speaks to the world or to other devices, runs computations that may, or is not known.
fn stays(op: &Op) -> bool {
    match op {
        Op::Parameter { .. } | Op::Send(_) | Op::SendDone(_) | Op::Recv(_) | Op::RecvDone(_) | Op::Infeed { .. } | Op::Outfeed { .. } => {
            true
        }
        Op::Collective(_) | Op::CollectiveDone(_) | Op::AsyncStart(_) | Op::AsyncUpdate(_) | Op::AsyncDone(_) => true,
        Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::Rng { .. } | Op::RngGetAndUpdateState { .. } | Op::Opaque(_) => {
            true
        }
        Op::CustomCall(call) => call.has_side_effect,
        _ => false,
    }
}

/// Whether an async computation wraps a collective.
fn is_collective(module: &Module, comp: CompId) -> bool {
    matches!(module.instr(module.comp(comp).root).op, Op::Collective(_))
}
