//! Module, computations, instructions.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::{Attrs, CompId, EntityVec, Header, InstrId, Op, Shape, ShapeId, ShapeTable, Unknown};
use crate::diag::Span;

/// Operands of an instruction.
pub type Operands = SmallVec<[InstrId; 2]>;

/// One HLO module.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Its name.
    pub name: Box<str>,
    /// The entry computation; `None` only while a module is being built.
    pub entry: Option<CompId>,
    /// The live computations in listing order (callees stand before callers once `text` or `proto` has read them).
    pub listing: Vec<CompId>,
    /// The arena of computations.
    pub computations: EntityVec<CompId, Computation>,
    /// The arena of instructions.
    pub instructions: EntityVec<InstrId, Instruction>,
    /// The interned shapes.
    pub shapes: ShapeTable,
    /// Whether the backend must keep the orders (`is_scheduled=true`).
    pub is_scheduled: bool,
    /// Header attributes and tables.
    pub header: Header,
    /// What only the proto form says.
    pub proto: ModuleProto,
}

/// Things of a module that only `HloModuleProto` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleProto {
    /// `id`.
    pub id: i64,
    /// The order in which the schedule names the computations, where it is not that of their ids.
    pub schedule_order: Vec<CompId>,
    /// Fields kept as read: cross-program prefetches, shardings, profiles, device assignment, payloads, newer fields.
    pub unknown: Unknown,
}

/// One computation.
#[derive(Clone, Debug)]
pub struct Computation {
    /// Its name, unique in the module.
    pub name: Box<str>,
    /// The sequence of its instructions: the clock. Definitions stand before uses.
    pub order: Vec<InstrId>,
    /// Its parameters, by number.
    pub parameters: Vec<InstrId>,
    /// The instruction whose value it returns.
    pub root: InstrId,
    /// `execution_thread`; `None` is `main`.
    pub thread: Option<Box<str>>,
    /// `backend_config` after the closing brace.
    pub backend_config: Option<Box<[u8]>>,
    /// Where it stands in the input text.
    pub span: Span,
    /// The id in a proto; 0 for none, `i64::MIN` for a real 0.
    pub proto_id: i64,
    /// The order in which a proto lists the instructions, where it is not `order`; emptied by any change.
    pub proto_listing: Vec<InstrId>,
    /// Fields of a newer proto.
    pub unknown: Unknown,
}

/// One instruction: a definition. Where it runs is said by [`Computation::order`].
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Its name, unique in its computation (XLA repeats names of fused instructions, even in scheduled modules).
    pub name: Box<str>,
    /// The shape of its value.
    pub shape: ShapeId,
    /// What it does.
    pub op: Op,
    /// What it reads.
    pub operands: Operands,
    /// What must run before it though it reads nothing of it.
    pub control_predecessors: Vec<InstrId>,
    /// What no analysis looks into.
    pub attrs: Attrs,
    /// Where it stands in the input text.
    pub span: Span,
    /// The id in a proto; 0 for none, `i64::MIN` for a real 0.
    pub proto_id: i64,
}

impl Instruction {
    /// An instruction with no attributes beyond its operation.
    pub fn new(name: impl Into<Box<str>>, shape: ShapeId, op: Op, operands: impl IntoIterator<Item = InstrId>) -> Self {
        Self {
            name: name.into(),
            shape,
            op,
            operands: operands.into_iter().collect(),
            control_predecessors: Vec::new(),
            attrs: Attrs::default(),
            span: Span::default(),
            proto_id: 0,
        }
    }
}

impl Computation {
    /// An empty computation, to be given its order, parameters and root.
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            order: Vec::new(),
            parameters: Vec::new(),
            root: super::Entity::new(0),
            thread: None,
            backend_config: None,
            span: Span::default(),
            proto_id: 0,
            proto_listing: Vec::new(),
            unknown: Unknown::default(),
        }
    }
}

impl Module {
    /// The instruction of that name.
    pub fn instr(&self, id: InstrId) -> &Instruction {
        &self.instructions[id]
    }
    /// The computation of that name.
    pub fn comp(&self, id: CompId) -> &Computation {
        &self.computations[id]
    }
    /// The entry computation.
    pub fn entry(&self) -> &Computation {
        self.comp(self.entry_id())
    }
    /// The name of the entry computation.
    pub fn entry_id(&self) -> CompId {
        self.entry.expect("a finished module has an entry computation")
    }
    /// The shape of an instruction's value.
    pub fn shape_of(&self, id: InstrId) -> &Shape {
        self.shapes.get(self.instr(id).shape)
    }
    /// The shapes of the entry's parameters and result as the caller sees them.
    pub fn entry_shapes(&self) -> (Vec<ShapeId>, ShapeId) {
        match &self.header.entry_layout {
            Some(layout) => (layout.parameters.clone(), layout.result),
            None => {
                let entry = self.entry();
                let shape = |&id: &InstrId| self.instr(id).shape;
                (entry.parameters.iter().map(shape).collect(), shape(&entry.root))
            }
        }
    }
    /// Live instructions of all computations in listing and program order.
    pub fn live(&self) -> impl Iterator<Item = (CompId, InstrId)> {
        self.listing.iter().flat_map(|&c| self.comp(c).order.iter().map(move |&i| (c, i)))
    }
    /// All live computations, callees before callers, the entry last; otherwise in listing order. The call graph must have no cycle.
    pub fn callees_first(&self) -> Vec<CompId> {
        let mut done = FxHashSet::default();
        let mut out = Vec::new();
        let mut roots: Vec<CompId> = self.listing.iter().rev().copied().filter(|&c| Some(c) != self.entry).collect();
        roots.insert(0, self.entry_id());
        while let Some(root) = roots.pop() {
            let mut stack = vec![(root, false)];
            while let Some((comp, children_done)) = stack.pop() {
                if children_done {
                    if done.insert(comp) {
                        out.push(comp);
                    }
                    continue;
                }
                if done.contains(&comp) {
                    continue;
                }
                stack.push((comp, true));
                let callees: Vec<CompId> = self.comp(comp).order.iter().flat_map(|&i| self.instr(i).op.called()).collect();
                stack.extend(callees.into_iter().rev().filter(|c| !done.contains(c)).map(|c| (c, false)));
            }
        }
        out
    }
}
