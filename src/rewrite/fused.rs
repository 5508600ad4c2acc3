//! Builds the computation of a new fusion out of pieces of others.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{CompId, Computation, Fusion, FusionKind, InstrId, Instruction, Module, Op, ShapeId};

/// A computation under construction.
#[derive(Debug)]
pub struct FusedBuilder {
    name: Box<str>,
    order: Vec<InstrId>,
    parameters: Vec<InstrId>,
    operands: Vec<InstrId>,
}

impl FusedBuilder {
    /// An empty computation called after `base`.
    pub fn new(base: &str, taken: &mut FxHashSet<Box<str>>) -> Self {
        Self { name: Module::fresh_name(base, taken), order: Vec::new(), parameters: Vec::new(), operands: Vec::new() }
    }
    /// The parameter that reads `operand`, an instruction outside; the same one each time it is asked for.
    pub fn parameter(&mut self, module: &mut Module, operand: InstrId, taken: &mut FxHashSet<Box<str>>) -> InstrId {
        if let Some(n) = self.operands.iter().position(|&o| o == operand) {
            return self.parameters[n];
        }
        let shape = module.instr(operand).shape;
        let number = i64::try_from(self.operands.len()).expect("parameters are few");
        let name = Module::fresh_name(&format!("param_{number}"), taken);
        let parameter = self.push(module, Instruction::new(name, shape, Op::Parameter { number }, []));
        self.operands.push(operand);
        self.parameters.push(parameter);
        parameter
    }
    /// Adds an instruction.
    pub fn push(&mut self, module: &mut Module, instr: Instruction) -> InstrId {
        let id = module.define(instr);
        self.order.push(id);
        id
    }
    /// Clones what `root` is made of, operands first, stopping at what `known` has; clones are added to `known`. `reshape` gives the shape
    /// of each clone. Iterative.
    pub fn clone_dag(
        &mut self,
        module: &mut Module,
        root: InstrId,
        known: &mut FxHashMap<InstrId, InstrId>,
        reshape: &mut dyn FnMut(&mut Module, InstrId) -> ShapeId,
        taken: &mut FxHashSet<Box<str>>,
    ) -> InstrId {
        let mut stack = vec![(root, false)];
        while let Some((id, operands_done)) = stack.pop() {
            if known.contains_key(&id) {
                continue;
            }
            if !operands_done {
                stack.push((id, true));
                stack.extend(module.instr(id).operands.iter().rev().map(|&o| (o, false)));
                continue;
            }
            let mut clone = module.instr(id).clone();
            clone.shape = reshape(module, id);
            clone.name = Module::fresh_name(&clone.name, taken);
            clone.proto_id = 0;
            clone.operands = clone.operands.iter().map(|o| known[o]).collect();
            clone.control_predecessors.clear();
            clone.attrs.backend_config = None;
            let copy = self.push(module, clone);
            known.insert(id, copy);
        }
        known[&root]
    }
    /// Finishes the computation with `roots` as its result (a tuple if there is more than one) and defines the fusion that calls it. What no
    /// root needs is left out, parameters too.
    pub fn finish(mut self, module: &mut Module, roots: &[InstrId], base: &str, taken: &mut FxHashSet<Box<str>>) -> InstrId {
        let root = match roots {
            &[only] => only,
            _ => {
                let shapes = roots.iter().map(|&r| module.instr(r).shape).collect();
                let shape = module.shapes.intern(crate::ir::Shape::Tuple(shapes));
                let name = Module::fresh_name("tuple", taken);
                self.push(module, Instruction::new(name, shape, Op::Tuple, roots.iter().copied()))
            }
        };
        self.prune(module, root);
        let shape = module.instr(root).shape;
        let mut computation = Computation::new(self.name);
        computation.order = self.order;
        computation.parameters = self.parameters;
        computation.root = root;
        let calls = module.computations.push(computation);
        list_first(module, calls);
        let op = Op::Fusion(Box::new(Fusion { kind: FusionKind::Loop, calls, aliasing: Vec::new() }));
        module.define(Instruction::new(Module::fresh_name(base, taken), shape, op, self.operands))
    }
}

impl FusedBuilder {
    /// Drops what `root` does not need, and renumbers the parameters.
    fn prune(&mut self, module: &mut Module, root: InstrId) {
        let mut needed = FxHashSet::default();
        let mut stack = vec![root];
        while let Some(id) = stack.pop() {
            if needed.insert(id) {
                stack.extend_from_slice(&module.instr(id).operands);
            }
        }
        self.order.retain(|i| needed.contains(i));
        let pairs = self.parameters.iter().copied().zip(self.operands.iter().copied());
        (self.parameters, self.operands) = pairs.filter(|(p, _)| needed.contains(p)).unzip();
        for (number, &parameter) in (0i64..).zip(&self.parameters) {
            module.instructions[parameter].op = Op::Parameter { number };
        }
    }
}

/// Puts a new computation, which calls nothing, where callees stand: first.
fn list_first(module: &mut Module, comp: CompId) {
    module.listing.insert(0, comp);
}
