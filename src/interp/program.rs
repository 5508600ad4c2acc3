//! A program made ready: every instruction compiled, or named as one that cannot be run.

use std::cell::Cell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::collective::refused;
use super::error::Error;
use super::kernel::{ArrayType, Kernel, compile, function, leaves};
use super::ops::rng::INITIAL_STATE;
use super::placement::Placement;
use super::tape::Applied;
use crate::ir::{CompId, EntityMap, InstrId, Module, Op};

/// Computations that call each other, one in the other; a loop in a loop is two. Deeper ones are refused.
const DEPTH: usize = 64;

/// A program made ready.
pub struct Program<'m> {
    /// The module.
    pub module: &'m Module,
    /// Whether contractions may add up in another order.
    fast: bool,
    /// What computes each instruction that is neither control flow nor a name for parts of others.
    kernels: EntityMap<InstrId, Option<Rc<Kernel>>>,
    /// The functions of collectives.
    functions: FxHashMap<InstrId, Rc<Applied>>,
    /// The state of the random numbers.
    random: Rc<Cell<u128>>,
    /// The operands that nobody reads after an instruction, in its computation.
    pub(super) dying: FxHashMap<InstrId, Vec<InstrId>>,
    /// Get-tuple-elements after which nobody asks for that part of the tuple.
    pub(super) last_part: EntityMap<InstrId, bool>,
}

/// How an instruction is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The evaluator itself does it: values are named or passed on, computations called.
    Control,
    /// It exchanges values with other partitions.
    Exchange,
    /// A kernel computes it.
    Kernel,
}

/// How an instruction is carried out, or why not.
pub(super) fn way(module: &Module, id: InstrId) -> Result<Way, String> {
    let instr = module.instr(id);
    Ok(match &instr.op {
        Op::Parameter { .. }
        | Op::Tuple
        | Op::GetTupleElement { .. }
        | Op::OptBarrier
        | Op::AfterAll
        | Op::AddDependency
        | Op::Domain(_)
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::Call { .. }
        | Op::PartitionId
        | Op::ReplicaId
        | Op::AsyncStart(_)
        | Op::AsyncUpdate(_)
        | Op::AsyncDone(_)
        | Op::CopyDone
        | Op::CollectiveDone(_) => Way::Control,
        Op::Bitcast => {
            let element = |id: InstrId| ArrayType::of(module, module.instr(id).shape).map(|ty| ty.element);
            if element(id)?.bits() == element(instr.operands[0])?.bits() { Way::Control } else { Way::Kernel }
        }
        // A collective in a fusion is met on the way through it.
        Op::Fusion(fusion) if has_collective(module, fusion.calls) => Way::Control,
        Op::Collective(_) => Way::Exchange,
        Op::Send(_) | Op::SendDone(_) | Op::Recv(_) | Op::RecvDone(_) | Op::Infeed { .. } | Op::Outfeed { .. } => {
            return Err(format!("opcode `{}` talks to the outside", instr.op.opcode()));
        }
        Op::Opaque(op) => return Err(format!("opcode `{}` is not known", op.opcode)),
        _ => Way::Kernel,
    })
}

impl<'m> Program<'m> {
    /// Compiles everything that the entry computation reaches. Costs as much as the program has instructions; the errors are all of the
    /// instructions that cannot be run, in program order.
    pub fn new(module: &'m Module, fast: bool) -> Result<Self, Vec<Error>> {
        let mut this = Self {
            module,
            fast,
            kernels: EntityMap::with_default(None),
            functions: FxHashMap::default(),
            random: Rc::new(Cell::new(INITIAL_STATE)),
            dying: FxHashMap::default(),
            last_part: EntityMap::with_default(false),
        };
        let mut errors = Vec::new();
        for comp in called(module).map_err(|e| vec![e])? {
            this.measure(comp);
            for &id in &module.comp(comp).order {
                if let Err(message) = this.prepare(id) {
                    errors.push(Error::at(module, id, message));
                }
            }
        }
        if errors.is_empty() { Ok(this) } else { Err(errors) }
    }

    /// The number of arrays that the entry computation takes.
    pub(super) fn inputs(&self) -> usize {
        let entry = self.module.entry();
        entry.parameters.iter().map(|&p| leaves(self.module, self.module.instr(p).shape).len()).sum()
    }

    /// What a plan cannot hold, in program order: values larger than their buffers, buffers that reach beyond their arena.
    pub(super) fn misplaced(&self, placement: &Placement) -> Vec<Error> {
        let module = self.module;
        let mut errors = Vec::new();
        for comp in called(module).unwrap_or_default() {
            for &id in &module.comp(comp).order {
                for (leaf, shape) in (0..).zip(leaves(module, module.instr(id).shape)) {
                    let (Ok(ty), Some(planned)) = (ArrayType::of(module, shape), placement.buffer(id, leaf)) else { continue };
                    if let Err(why) = placement.check(planned, ty.bytes()) {
                        errors.push(Error::at(module, id, why));
                    }
                }
            }
        }
        errors
    }

    fn prepare(&mut self, id: InstrId) -> Result<(), String> {
        let module = self.module;
        for shape in leaves(module, module.instr(id).shape) {
            ArrayType::of(module, shape)?;
        }
        if way(module, id)? == Way::Kernel {
            self.kernels[id] = Some(Rc::new(compile(module, id, &self.random, self.fast)?));
        }
        if let Op::Collective(op) = &module.instr(id).op {
            if let Some(to_apply) = op.to_apply {
                self.functions.insert(id, Rc::new(function(module, to_apply)?));
            }
            if let Some(why) = refused(op) {
                return Err(format!("opcode `{}`: {why}", module.instr(id).op.opcode()));
            }
        }
        Ok(())
    }

    /// Finds the last readers.
    fn measure(&mut self, comp: CompId) {
        let module = self.module;
        let computation = module.comp(comp);
        let mut seen = EntityMap::<InstrId, bool>::with_default(false);
        let mut parts: FxHashMap<(InstrId, i64), ()> = FxHashMap::default();
        seen[computation.root] = true;
        for &id in computation.order.iter().rev() {
            let instr = module.instr(id);
            for &operand in &instr.operands {
                if !std::mem::replace(&mut seen[operand], true) {
                    self.dying.entry(id).or_default().push(operand);
                }
            }
            match instr.op {
                Op::GetTupleElement { index } => {
                    let whole = parts.contains_key(&(instr.operands[0], -1));
                    let last = parts.insert((instr.operands[0], index), ()).is_none();
                    self.last_part[id] = last && !whole && instr.operands[0] != computation.root;
                }
                _ => instr.operands.iter().for_each(|&o| {
                    parts.insert((o, -1), ());
                }),
            }
        }
    }

    pub(super) fn function(&self, id: InstrId) -> Option<Rc<Applied>> {
        self.functions.get(&id).cloned()
    }
    pub(super) fn kernel(&self, id: InstrId) -> Option<Rc<Kernel>> {
        self.kernels[id].clone()
    }
}

/// The computations that run with values of their own, callees first.
fn called(module: &Module) -> Result<Vec<CompId>, Error> {
    let mut depth = EntityMap::<CompId, usize>::with_default(0);
    let mut out = Vec::new();
    let mut reached = EntityMap::<CompId, bool>::with_default(false);
    reached[module.entry_id()] = true;
    for comp in module.callees_first().into_iter().rev() {
        if !reached[comp] {
            continue;
        }
        out.push(comp);
        for &id in &module.comp(comp).order {
            let op = &module.instr(id).op;
            let fused = matches!(op, Op::Fusion(fusion) if has_collective(module, fusion.calls));
            if !fused && !matches!(op, Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::AsyncStart(_)) {
                continue;
            }
            for callee in op.called() {
                reached[callee] = true;
                depth[callee] = depth[callee].max(depth[comp] + 1);
                if depth[callee] > DEPTH {
                    return Err(Error::at(module, id, format!("computations nest deeper than {DEPTH}")));
                }
            }
        }
    }
    out.reverse();
    Ok(out)
}

/// Whether a computation holds a collective.
fn has_collective(module: &Module, comp: CompId) -> bool {
    module.comp(comp).order.iter().any(|&id| matches!(module.instr(id).op, Op::Collective(_)))
}
