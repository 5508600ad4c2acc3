//! The one way to change a program: new instructions go to the arena, then one stable splice an edited computation.

use rustc_hash::FxHashSet;

use super::{CompId, Computation, EntityMap, InstrId, Instruction, Module, Op};

/// Where a new instruction goes: before the instruction that stands at `position` of the old order (`order.len()` is the end).
/// Instructions for one position keep the order in which they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Insertion {
    /// Position in the order before the splice.
    pub position: usize,
    /// The new instruction.
    pub instr: InstrId,
}

impl Module {
    /// Adds an instruction to the arena. It runs nowhere until it is spliced into an order.
    pub fn define(&mut self, instr: Instruction) -> InstrId {
        self.instructions.push(instr)
    }

    /// Rebuilds the order of a computation: `inserted` go to their positions (stable), `removed` leave it. Costs O(order + inserted).
    pub fn splice(&mut self, comp: CompId, mut inserted: Vec<Insertion>, removed: &FxHashSet<InstrId>) {
        inserted.sort_by_key(|i| i.position);
        let computation = &mut self.computations[comp];
        let old = std::mem::take(&mut computation.order);
        let mut order = Vec::with_capacity(old.len() + inserted.len());
        let mut next = inserted.into_iter().peekable();
        for (position, instr) in old.into_iter().enumerate() {
            while let Some(i) = next.next_if(|i| i.position <= position) {
                order.push(i.instr);
            }
            if !removed.contains(&instr) {
                order.push(instr);
            }
        }
        order.extend(next.map(|i| i.instr));
        computation.order = order;
        computation.proto_listing.clear();
    }

    /// A name that no live instruction and no computation bears: `base`, else `base.1`, `base.2` … The caller keeps `taken`.
    pub fn fresh_name(base: &str, taken: &mut FxHashSet<Box<str>>) -> Box<str> {
        if taken.insert(base.into()) {
            return base.into();
        }
        (1u64..)
            .map(|n| Box::<str>::from(format!("{base}.{n}")))
            .find(|name| taken.insert(name.clone()))
            .expect("there are more numbers than names")
    }

    /// All names of live instructions and computations.
    pub fn names(&self) -> FxHashSet<Box<str>> {
        let instructions = self.live().map(|(_, i)| self.instr(i).name.clone());
        let computations = self.listing.iter().map(|&c| self.comp(c).name.clone());
        instructions.chain(computations).collect()
    }

    /// Copies a computation and, recursively, the ones it calls, since a fusion owns its computation. Copies get fresh names and stand
    /// in the listing just after their originals.
    pub fn clone_computation(&mut self, comp: CompId, taken: &mut FxHashSet<Box<str>>) -> CompId {
        let original = self.comp(comp).clone();
        let mut copies = EntityMap::<InstrId, Option<InstrId>>::with_default(None);
        let mut order = Vec::with_capacity(original.order.len());
        for &id in &original.order {
            let mut instr = self.instr(id).clone();
            instr.name = Self::fresh_name(&instr.name, taken);
            instr.proto_id = 0;
            let copied = |id: &InstrId| copies[*id].expect("operands stand before their users");
            instr.operands = instr.operands.iter().map(copied).collect();
            instr.control_predecessors = instr.control_predecessors.iter().map(copied).collect();
            if owns_callees(&instr.op) {
                let mut op = instr.op.clone();
                op.map_called(&mut |c| self.clone_computation(c, taken));
                instr.op = op;
            }
            let copy = self.define(instr);
            copies[id] = Some(copy);
            order.push(copy);
        }
        let copied = |id: InstrId| copies[id].expect("the order holds every instruction of the computation");
        let copy = Computation {
            name: Self::fresh_name(&original.name, taken),
            parameters: original.parameters.iter().map(|&p| copied(p)).collect(),
            root: copied(original.root),
            proto_id: 0,
            proto_listing: Vec::new(),
            order,
            ..original
        };
        let copy = self.computations.push(copy);
        let at = self.listing.iter().position(|&c| c == comp).map_or(self.listing.len(), |i| i + 1);
        self.listing.insert(at, copy);
        copy
    }

    /// Removes computations that nothing reachable from the entry calls from the listing.
    pub fn drop_uncalled(&mut self) {
        let mut reached = EntityMap::<CompId, bool>::with_default(false);
        let mut stack = vec![self.entry_id()];
        while let Some(comp) = stack.pop() {
            if !std::mem::replace(&mut reached[comp], true) {
                stack.extend(self.comp(comp).order.iter().flat_map(|&i| self.instr(i).op.called()));
            }
        }
        self.listing.retain(|&c| reached[c]);
    }
}

/// Whether each instruction of this kind needs a copy of its own of what it calls (XLA's verifier demands it).
fn owns_callees(op: &Op) -> bool {
    matches!(
        op,
        Op::Fusion(_)
            | Op::AsyncStart(_)
            | Op::AsyncUpdate(_)
            | Op::AsyncDone(_)
            | Op::While { .. }
            | Op::Conditional { .. }
            | Op::Call { .. }
    )
}
