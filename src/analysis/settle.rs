//! What XLA:GPU still does to a scheduled module before it assigns buffers.
//!
//! Seen in the oracle's dumps of the module before and after (`xla_oracle.py check --dump`); all change the clock and the buffers:
//! * **An async collective that overlaps nothing becomes synchronous** (`GpuConvertAsyncCollectivesToSync`): between its `async-start` and `async-done` stand only
//!   parameters, constants, bitcasts, get-tuple-elements and other starts and dones of collectives. The collective then stands at the done's place, and
//!   the tuples of pointers are gone.
//! * **What nobody reads disappears** (`HloDCE`), and with it each result of a multi-output fusion that nobody takes, if all readers of the fusion are
//!   get-tuple-elements, no result is bound to an operand, no control edge touches it and it is not `kCustom`; a fusion with one result left returns
//!   it without a tuple, and operands that only a dropped result read are read no more.
//! * **An `opt-barrier` disappears** (`OptimizationBarrierExpander`), and so do the tuple before it and the get-tuple-elements after it.
//!
//! XLA also replaces copies of constants before a loop and the result tuple by new ones; that changes names only.
//! Identity is kept: an instruction that goes on existing keeps its id, and the done's id becomes the synchronous collective's.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{CompId, FusionKind, InstrId, Module, Op, Shape};

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
    /// Fusions some of whose results nobody takes, with the elements that are taken, ascending.
    narrowed: Vec<(InstrId, Vec<usize>)>,
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
        let dead: FxHashSet<InstrId> = dead(module, &computation.order, computation.root, &FxHashSet::default()).into_iter().collect();
        this.has_dead = !dead.is_empty();
        this.narrowed = narrowed(module, comp, &dead);
        // The one result that is left stands for the get-tuple-elements that took it.
        let alone: FxHashSet<InstrId> = this.narrowed.iter().filter(|(_, taken)| taken.len() == 1).map(|(id, _)| *id).collect();
        for &id in &computation.order {
            if let Op::GetTupleElement { .. } = module.instr(id).op
                && let Some(&fusion) = module.instr(id).operands.iter().find(|o| alone.contains(o))
                && !dead.contains(&id)
            {
                this.forwarded.insert(id, fusion);
            }
        }
        this
    }
    /// What is read instead of an instruction; a barrier may stand behind a fusion's get-tuple-element.
    fn now(&self, mut id: InstrId) -> InstrId {
        while let Some(&next) = self.forwarded.get(&id) {
            id = next;
        }
        id
    }
    fn is_empty(&self) -> bool {
        self.synchronous.is_empty() && self.forwarded.is_empty() && !self.has_dead && self.narrowed.is_empty()
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
        for (fusion, taken) in &self.narrowed {
            narrow(module, *fusion, taken);
        }
        let order = module.comp(comp).order.clone();
        let taken: FxHashMap<InstrId, &Vec<usize>> = self.narrowed.iter().map(|(id, taken)| (*id, taken)).collect();
        for &id in &order {
            let from = module.instr(id).operands.first().and_then(|o| taken.get(o));
            if let (Op::GetTupleElement { index }, Some(taken)) = (&mut module.instructions[id].op, from) {
                let place = taken.iter().position(|&k| i64::try_from(k) == Ok(*index)).unwrap_or(0);
                *index = i64::try_from(place).expect("a tuple is small");
            }
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

/// Fusions some of whose results nobody takes.
fn narrowed(module: &Module, comp: CompId, dead: &FxHashSet<InstrId>) -> Vec<(InstrId, Vec<usize>)> {
    let computation = module.comp(comp);
    let candidate = |id: InstrId| match &module.instr(id).op {
        Op::Fusion(f) => {
            let tuple = module.instr(module.comp(f.calls).root);
            let free = f.kind != FusionKind::Custom && f.aliasing.is_empty() && module.instr(id).control_predecessors.is_empty();
            (free && matches!(tuple.op, Op::Tuple)).then_some(tuple.operands.len())
        }
        _ => None,
    };
    let mut taken: FxHashMap<InstrId, BTreeSet<usize>> = FxHashMap::default();
    let mut kept: FxHashSet<InstrId> = FxHashSet::from_iter([computation.root]);
    for &id in computation.order.iter().filter(|id| !dead.contains(id)) {
        let instr = module.instr(id);
        kept.extend(instr.control_predecessors.iter().copied());
        match (&instr.op, instr.operands.first()) {
            (Op::GetTupleElement { index }, Some(&from)) => {
                taken.entry(from).or_default().extend(usize::try_from(*index));
            }
            _ => kept.extend(instr.operands.iter().copied()),
        }
    }
    let order = computation.order.iter().copied().filter(|id| !dead.contains(id) && !kept.contains(id));
    order
        .filter_map(|id| {
            let (results, taken) = (candidate(id)?, taken.get(&id)?);
            (taken.len() < results).then(|| (id, taken.iter().copied().collect()))
        })
        .collect()
}

/// Takes results out of a fusion, which owns its computation.
fn narrow(module: &mut Module, id: InstrId, taken: &[usize]) {
    let Op::Fusion(fusion) = &module.instr(id).op else { return };
    let body = fusion.calls;
    let tuple = module.comp(body).root;
    let results: Vec<InstrId> = taken.iter().map(|&k| module.instr(tuple).operands[k]).collect();
    let (root, shape) = match results[..] {
        [one] => (one, module.instr(one).shape),
        _ => {
            let parts = results.iter().map(|&r| module.instr(r).shape).collect();
            let shape = module.shapes.intern(Shape::Tuple(parts));
            let tuple_instr = &mut module.instructions[tuple];
            tuple_instr.operands = results.into();
            tuple_instr.shape = shape;
            (tuple, shape)
        }
    };
    module.instructions[id].shape = shape;
    let mut gone: FxHashSet<InstrId> = dead(module, &module.comp(body).order, root, &FxHashSet::default()).into_iter().collect();
    let mut read: FxHashSet<InstrId> = FxHashSet::from_iter([root]);
    for &inside in module.comp(body).order.iter().filter(|i| !gone.contains(i)) {
        read.extend(module.instr(inside).operands.iter().copied());
    }
    let parameters = std::mem::take(&mut module.computations[body].parameters);
    let operands = std::mem::take(&mut module.instructions[id].operands);
    for (parameter, operand) in parameters.into_iter().zip(operands) {
        if read.contains(&parameter) {
            let number = i64::try_from(module.comp(body).parameters.len()).expect("operands are few");
            module.instructions[parameter].op = Op::Parameter { number };
            module.computations[body].parameters.push(parameter);
            module.instructions[id].operands.push(operand);
        } else {
            gone.insert(parameter);
        }
    }
    module.splice(body, Vec::new(), &gone);
    module.computations[body].root = root;
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
