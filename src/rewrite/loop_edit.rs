//! Changes what a loop carries.
//!
//! A `while` and its computations agree on one tuple shape in seven places: initial tuple, the `while` itself, parameter and root of
//! the body, parameter of the condition, and the elements taken out of each. A [`LoopEdit`] says what the body returns for an element,
//! which elements go and which come; [`LoopEdit::apply`] rewrites all seven together. Costs O(body + uses).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{CompId, InstrId, Instruction, Module, Op, Shape, ShapeId};

/// A loop, by the instructions that hold its tuple.
#[derive(Clone, Copy, Debug)]
pub struct LoopHandle {
    /// The `while`.
    pub instr: InstrId,
    /// The computation it stands in.
    pub home: CompId,
    /// The body.
    pub body: CompId,
    /// The condition.
    pub condition: CompId,
    /// The initial tuple.
    pub init: InstrId,
    /// The body's parameter.
    pub parameter: InstrId,
    /// The body's root tuple.
    pub root: InstrId,
}

/// A new element.
#[derive(Clone, Copy, Debug)]
pub struct NewElement {
    /// What the loop starts with.
    pub initial: InstrId,
    /// What the body returns for it; `None` passes it on unchanged.
    pub next: Option<InstrId>,
}

/// What to change.
#[derive(Clone, Debug, Default)]
pub struct LoopEdit {
    /// Elements to drop, by their old indices; nothing may take them any more when the edit is applied.
    pub drop: Vec<usize>,
    /// Elements for which the body returns something else from now on.
    pub next: Vec<(usize, InstrId)>,
    /// Elements to add, after those that stay.
    pub add: Vec<NewElement>,
}

/// Adds an element to the body before the edit: the instruction that takes it out of the parameter. It is to be spliced in at the start of the body.
pub fn define_take(module: &mut Module, handle: &LoopHandle, index: usize, shape: ShapeId, taken: &mut FxHashSet<Box<str>>) -> InstrId {
    let index = i64::try_from(index).expect("a tuple is small");
    let name = Module::fresh_name("get-tuple-element", taken);
    module.define(Instruction::new(name, shape, Op::GetTupleElement { index }, [handle.parameter]))
}

impl LoopEdit {
    /// The index of the `n`-th added element after the edit.
    pub fn index_of_added(&self, module: &Module, handle: &LoopHandle, n: usize) -> usize {
        module.instr(handle.init).operands.len() - self.drop.len() + n
    }

    /// Carries the edit out. Takes with old indices are renumbered; takes of added elements must already bear their new index
    /// ([`LoopEdit::index_of_added`]) and be listed in `new_takes`.
    pub fn apply(&self, module: &mut Module, handle: &LoopHandle, new_takes: &[InstrId]) {
        let old = module.instr(handle.init).operands.len();
        let kept: Vec<usize> = (0..old).filter(|n| !self.drop.contains(n)).collect();
        let renumbered: FxHashMap<i64, i64> =
            (0i64..).zip(&kept).map(|(new, &old)| (i64::try_from(old).expect("a tuple is small"), new)).collect();
        let is_new: FxHashSet<InstrId> = new_takes.iter().copied().collect();
        let condition_parameter = module.comp(handle.condition).parameters.first().copied();
        for (comp, tuples) in [
            (handle.home, vec![handle.instr]),
            (handle.body, vec![handle.parameter]),
            (handle.condition, condition_parameter.into_iter().collect()),
        ] {
            for id in module.comp(comp).order.clone() {
                let instr = &mut module.instructions[id];
                if let Op::GetTupleElement { index } = &mut instr.op
                    && tuples.contains(&instr.operands[0])
                    && !is_new.contains(&id)
                {
                    *index = *renumbered.get(index).expect("nothing takes an element that is dropped");
                }
            }
        }
        let initial = self.operands(module, handle.init, &kept, |new| new.initial);
        let mut root = module.instr(handle.root).operands.clone();
        for &(n, next) in &self.next {
            root[n] = next;
        }
        module.instructions[handle.root].operands = root;
        let passed: Vec<Option<InstrId>> = self.passed_on(module, handle, new_takes);
        let mut added = passed.into_iter();
        let next = self.operands(module, handle.root, &kept, |new| {
            let passed = added.next().expect("one an added element");
            new.next.or(passed).expect("an element that is passed on has a take")
        });
        let shapes: Vec<ShapeId> = initial.iter().map(|&i| module.instr(i).shape).collect();
        let shape = module.shapes.intern(Shape::Tuple(shapes));
        module.instructions[handle.init].operands = initial;
        module.instructions[handle.root].operands = next;
        for id in
            [Some(handle.init), Some(handle.instr), Some(handle.parameter), Some(handle.root), condition_parameter].into_iter().flatten()
        {
            module.instructions[id].shape = shape;
        }
        for comp in [handle.home, handle.body, handle.condition] {
            module.computations[comp].proto_listing.clear();
        }
    }

    fn operands<'s>(
        &'s self,
        module: &Module,
        tuple: InstrId,
        kept: &[usize],
        mut added: impl FnMut(&'s NewElement) -> InstrId,
    ) -> crate::ir::Operands {
        let old = &module.instr(tuple).operands;
        kept.iter().map(|&n| old[n]).chain(self.add.iter().map(&mut added)).collect()
    }

    /// For each added element, the new take that stands for it.
    fn passed_on(&self, module: &Module, handle: &LoopHandle, new_takes: &[InstrId]) -> Vec<Option<InstrId>> {
        (0..self.add.len())
            .map(|n| {
                let index = i64::try_from(self.index_of_added(module, handle, n)).expect("a tuple is small");
                let of = |&&t: &&InstrId| {
                    matches!(module.instr(t).op, Op::GetTupleElement { index: i } if i == index)
                        && module.instr(t).operands[0] == handle.parameter
                };
                new_takes.iter().find(of).copied()
            })
            .collect()
    }
}
