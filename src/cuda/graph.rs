//! The values of one instruction, calls and fusions unfolded: what kernels pull elements from.

use rustc_hash::{FxHashMap, FxHashSet};

use super::types::Ty;
use crate::ir::{CompId, InstrId, Module, Op, Shape, ShapeId};

/// Computations nested in each other; programs have two or three, hostile ones any number.
const DEPTH: usize = 64;

/// One array of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ref {
    /// The node.
    pub node: usize,
    /// Which of its results.
    pub part: usize,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// An array of the instruction's operands.
    Param(usize),
    /// A scalar that a kernel has in a variable.
    Variable(String),
    /// Its operand, maybe in another layout.
    Same,
    /// An instruction.
    Op(InstrId),
}

/// An operation with its operands.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// The types of its results.
    pub results: Vec<Ty>,
    /// What it reads.
    pub operands: Vec<Ref>,
}

/// A value while the graph is built.
#[derive(Clone, Debug)]
pub enum Value {
    /// An array.
    Array(Ref),
    /// Values together; a token is an empty tuple.
    Tuple(Vec<Value>),
}

impl Value {
    /// The arrays in order.
    pub fn arrays(&self) -> Vec<Ref> {
        match self {
            Self::Array(array) => vec![*array],
            Self::Tuple(parts) => parts.iter().flat_map(Self::arrays).collect(),
        }
    }
}

/// The nodes, operands before users.
#[derive(Debug)]
pub struct Graph<'m> {
    /// The module.
    pub module: &'m Module,
    /// All nodes.
    pub nodes: Vec<Node>,
    depth: usize,
}

impl<'m> Graph<'m> {
    /// No node.
    pub fn new(module: &'m Module) -> Self {
        Self { module, nodes: Vec::new(), depth: 0 }
    }
    /// The type of an array.
    pub fn ty(&self, array: Ref) -> &Ty {
        &self.nodes[array.node].results[array.part]
    }
    /// The operation of a node, if it is one.
    pub fn op(&self, node: usize) -> Option<&'m Op> {
        match self.nodes[node].kind {
            Kind::Op(id) => Some(&self.module.instr(id).op),
            _ => None,
        }
    }
    fn push(&mut self, kind: Kind, results: Vec<Ty>, operands: Vec<Ref>) -> usize {
        self.nodes.push(Node { kind, results, operands });
        self.nodes.len() - 1
    }
    /// A scalar in a variable.
    pub fn variable(&mut self, ty: Ty, name: &str) -> Value {
        let node = self.push(Kind::Variable(name.to_string()), vec![ty], Vec::new());
        Value::Array(Ref { node, part: 0 })
    }
    /// The arrays of an operand, numbered from `next` on.
    pub fn parameter(&mut self, shape: ShapeId, next: &mut usize) -> Result<Value, String> {
        Ok(match self.module.shapes.get(shape) {
            Shape::Tuple(parts) => Value::Tuple(parts.iter().map(|&p| self.parameter(p, next)).collect::<Result<_, _>>()?),
            Shape::Array(_) => {
                let ty = Ty::of(self.module, shape)?;
                *next += 1;
                let node = self.push(Kind::Param(*next - 1), vec![ty], Vec::new());
                Value::Array(Ref { node, part: 0 })
            }
            Shape::Token => Value::Tuple(Vec::new()),
            Shape::Opaque | Shape::Buffer(_) => return Err("an operand is no array".to_string()),
        })
    }

    /// The result of a computation.
    pub fn computation(&mut self, comp: CompId, args: Vec<Value>) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("computations nest deeper than {DEPTH}"));
        }
        let module = self.module;
        let computation = module.comp(comp);
        let mut needed = FxHashSet::default();
        let mut stack = vec![computation.root];
        while let Some(id) = stack.pop() {
            if needed.insert(id) {
                stack.extend(&module.instr(id).operands);
            }
        }
        let mut values: FxHashMap<InstrId, Value> = FxHashMap::default();
        for (&id, arg) in computation.parameters.iter().zip(args) {
            values.insert(id, arg);
        }
        for &id in computation.order.iter().filter(|id| needed.contains(id)) {
            if values.contains_key(&id) {
                continue;
            }
            let operands: Vec<Value> = module.instr(id).operands.iter().map(|o| values[o].clone()).collect();
            let value = self.instruction(id, operands).map_err(|why| format!("{why} (in `{}`)", module.instr(id).name))?;
            values.insert(id, value);
        }
        self.depth -= 1;
        Ok(values[&computation.root].clone())
    }

    /// The value of an instruction.
    pub fn instruction(&mut self, id: InstrId, operands: Vec<Value>) -> Result<Value, String> {
        let module = self.module;
        let instr = module.instr(id);
        Ok(match &instr.op {
            Op::Tuple => Value::Tuple(operands),
            Op::AfterAll => Value::Tuple(Vec::new()),
            Op::GetTupleElement { index } => match (&operands[0], usize::try_from(*index)) {
                (Value::Tuple(parts), Ok(index)) if index < parts.len() => parts[index].clone(),
                _ => return Err("expected a tuple".to_string()),
            },
            Op::OptBarrier | Op::AddDependency | Op::Domain(_) => operands[0].clone(),
            Op::Fusion(fusion) => self.computation(fusion.calls, operands)?,
            Op::Call { to_apply, .. } => self.computation(*to_apply, operands)?,
            Op::CopyStart { .. } => {
                Value::Tuple(vec![self.same(operands[0].arrays()[0], Ty::of(module, module.shapes.elements(instr.shape)[0])?)])
            }
            Op::Copy if matches!(module.shapes.get(instr.shape), Shape::Array(_)) => {
                self.same(operands[0].arrays()[0], Ty::of(module, instr.shape)?)
            }
            Op::Copy => operands[0].clone(),
            _ => {
                let mut results = Vec::new();
                for leaf in module.shapes.leaves(instr.shape) {
                    results.push(Ty::of(module, leaf)?);
                }
                let count = results.len();
                let operands = operands.iter().flat_map(Value::arrays).collect();
                let node = self.push(Kind::Op(id), results, operands);
                match module.shapes.get(instr.shape) {
                    Shape::Array(_) => Value::Array(Ref { node, part: 0 }),
                    _ => Value::Tuple((0..count).map(|part| Value::Array(Ref { node, part })).collect()),
                }
            }
        })
    }

    fn same(&mut self, operand: Ref, ty: Ty) -> Value {
        let node = self.push(Kind::Same, vec![ty], vec![operand]);
        Value::Array(Ref { node, part: 0 })
    }

    /// The array that holds the same bytes in the same order, as far up as can be said.
    pub fn same_bytes(&self, array: Ref) -> Ref {
        let mut at = array;
        loop {
            let node = &self.nodes[at.node];
            let Some(&operand) = node.operands.first() else { return at };
            let (to, from) = (self.ty(at), self.ty(operand));
            let widths = to.element.bits() == from.element.bits();
            let same = match (&node.kind, self.op(at.node)) {
                (Kind::Same, _) => to.order() == from.order() && to.element == from.element,
                (_, Some(Op::Bitcast)) => widths,
                (_, Some(Op::Reshape { .. })) => is_row_major(to) && is_row_major(from),
                _ => false,
            };
            if !same {
                return at;
            }
            at = operand;
        }
    }

    /// The nodes that some arrays are computed of, themselves included, operands first.
    pub fn reachable(&self, of: &[Ref]) -> Vec<usize> {
        let mut seen = vec![false; self.nodes.len()];
        let mut stack: Vec<usize> = of.iter().map(|r| r.node).collect();
        while let Some(node) = stack.pop() {
            if !std::mem::replace(&mut seen[node], true) {
                stack.extend(self.nodes[node].operands.iter().map(|r| r.node));
            }
        }
        (0..self.nodes.len()).filter(|&n| seen[n]).collect()
    }
}

/// Whether memory holds the elements in the logical order.
pub fn is_row_major(ty: &Ty) -> bool {
    ty.order().windows(2).all(|w| w[0] > w[1])
}
