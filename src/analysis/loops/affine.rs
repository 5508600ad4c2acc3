//! Integers that are linear in one element of a loop's tuple.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use super::{Kind, Loop};
use crate::ir::{Binary, CompId, Direction, InstrId, LiteralValue, Module, Op, Primitive};

/// Expressions nested deeper than this are not looked into.
const MAX_DEPTH: usize = 48;

/// `scale · element + offset`; a constant where there is no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Affine {
    pub element: Option<usize>,
    pub scale: i64,
    pub offset: i64,
}

impl Affine {
    pub(super) fn constant(self) -> Option<i64> {
        (self.element.is_none() || self.scale == 0).then_some(self.offset)
    }
    fn of(offset: i64) -> Self {
        Self { element: None, scale: 0, offset }
    }
    fn plus(self, other: Self, sign: i64) -> Option<Self> {
        let element = match (self.element, other.element) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.or(b),
        };
        let scale = self.scale.checked_add(other.scale.checked_mul(sign)?)?;
        Some(Self { element, scale, offset: self.offset.checked_add(other.offset.checked_mul(sign)?)? })
    }
    fn times(self, factor: i64) -> Option<Self> {
        Some(Self { element: self.element, scale: self.scale.checked_mul(factor)?, offset: self.offset.checked_mul(factor)? })
    }
}

/// A row number in terms of the iteration, counted from 0: `scale · iteration + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// Rows an iteration: 1 forwards, −1 backwards, 0 always the same row.
    pub scale: i64,
    /// Row of the first iteration.
    pub offset: i64,
}

impl Index {
    /// The row of an iteration.
    pub fn at(self, iteration: i64) -> i64 {
        self.scale * iteration + self.offset
    }
    /// Whether the rows of `trips` iterations are exactly `0..rows`, each once.
    pub fn covers(self, trips: u64, rows: i64) -> bool {
        let Ok(trips) = i64::try_from(trips) else { return false };
        trips == rows && (self == Self { scale: 1, offset: 0 } || self == Self { scale: -1, offset: rows - 1 })
    }
}

/// Where expressions are evaluated: a loop body, or a computation called from one, with its parameters bound.
pub(super) struct Scope<'m> {
    module: &'m Module,
    parameter: Option<InstrId>,
    bound: Vec<(InstrId, Option<Affine>)>,
    /// Lowest value of each linear element, to decide `i < 0`.
    nonnegative: bool,
    /// What is known already: an expression that many others share is read once.
    known: RefCell<FxHashMap<InstrId, Option<Affine>>>,
}

impl<'m> Scope<'m> {
    /// The body of a loop with that parameter.
    pub(super) fn body(module: &'m Module, parameter: InstrId) -> Self {
        Self { module, parameter: Some(parameter), bound: Vec::new(), nonnegative: false, known: RefCell::default() }
    }
    /// Any computation: only constants are known.
    pub(super) fn plain(module: &'m Module) -> Self {
        Self { module, parameter: None, bound: Vec::new(), nonnegative: false, known: RefCell::default() }
    }
    /// A computation called by `caller`, with parameters bound to the caller's operands.
    pub(super) fn called(&self, caller: InstrId, comp: CompId) -> Self {
        self.called_at(caller, comp, 0)
    }
    /// The same scope where the indices are known to be rows of an array, so `i < 0` is false wherever JAX asks it.
    pub(super) fn rows(mut self) -> Self {
        self.nonnegative = true;
        self.known.get_mut().clear();
        self
    }

    /// The affine form of a scalar integer, if it has one.
    pub(super) fn affine(&self, id: InstrId) -> Option<Affine> {
        self.eval(id, 0)
    }

    fn eval(&self, id: InstrId, depth: usize) -> Option<Affine> {
        if depth > MAX_DEPTH || !self.is_integer(id) {
            return None;
        }
        if let Some(&known) = self.known.borrow().get(&id) {
            return known;
        }
        let found = self.eval_new(id, depth);
        self.known.borrow_mut().insert(id, found);
        found
    }

    fn eval_new(&self, id: InstrId, depth: usize) -> Option<Affine> {
        if let Some((_, bound)) = self.bound.iter().find(|(p, _)| *p == id) {
            return *bound;
        }
        let instr = self.module.instr(id);
        let operand = |n: usize| self.eval(*instr.operands.get(n)?, depth + 1);
        match &instr.op {
            Op::Constant(literal) => match &literal.value {
                LiteralValue::Dense(bytes) => integer(self.module, id, bytes).map(Affine::of),
                LiteralValue::Elided | LiteralValue::Tuple(_) | LiteralValue::Token => None,
            },
            Op::GetTupleElement { index } if Some(instr.operands[0]) == self.parameter => {
                self.is_integer(id).then_some(Affine { element: usize::try_from(*index).ok(), scale: 1, offset: 0 })
            }
            Op::Copy | Op::Bitcast | Op::Convert if self.is_integer(id) && self.is_integer(instr.operands[0]) => operand(0),
            Op::Binary(Binary::Add) => operand(0)?.plus(operand(1)?, 1),
            Op::Binary(Binary::Subtract) => operand(0)?.plus(operand(1)?, -1),
            Op::Binary(Binary::Multiply) => {
                let (a, b) = (operand(0)?, operand(1)?);
                if let Some(factor) = a.constant() { b.times(factor) } else { a.times(b.constant()?) }
            }
            // JAX makes indices positive by `select(i < 0, i + rows, i)`.
            Op::Select if self.nonnegative => {
                let Op::Compare { direction: Direction::Lt, .. } = self.module.instr(instr.operands[0]).op else { return None };
                let compare = self.module.instr(instr.operands[0]);
                let tested = self.eval(compare.operands[0], depth + 1)?;
                let zero = self.eval(compare.operands[1], depth + 1)?.constant()? == 0;
                let otherwise = operand(2)?;
                (zero && tested == otherwise).then_some(otherwise)
            }
            Op::Fusion(fusion) => {
                let inner = self.called_at(id, fusion.calls, depth + 1);
                inner.eval(self.module.comp(fusion.calls).root, depth + 1)
            }
            _ => None,
        }
    }

    fn called_at(&self, caller: InstrId, comp: CompId, depth: usize) -> Self {
        let operands = &self.module.instr(caller).operands;
        let bound = self.module.comp(comp).parameters.iter().zip(operands).map(|(&p, &o)| (p, self.eval(o, depth))).collect();
        Self { module: self.module, parameter: None, bound, nonnegative: self.nonnegative, known: RefCell::default() }
    }

    fn is_integer(&self, id: InstrId) -> bool {
        let array = self.module.shapes.array(self.module.instr(id).shape);
        array.is_some_and(|a| a.dims.is_empty() && a.element.known().is_some_and(Primitive::is_integer))
    }
}

fn integer(module: &Module, id: InstrId, bytes: &[u8]) -> Option<i64> {
    let array = module.shapes.array(module.instr(id).shape)?;
    let kind = array.element.known().filter(|k| k.is_integer())?;
    if !array.dims.is_empty() || bytes.len() > 8 {
        return None;
    }
    let mut wide = [if kind.is_signed_integer() && bytes.last()? & 0x80 != 0 { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Some(i64::from_le_bytes(wide))
}

/// The trip count that the condition `counter < limit` says.
pub(super) fn trips_of_condition(module: &Module, this: &Loop) -> Option<u64> {
    let parameter = *module.comp(this.condition).parameters.first()?;
    let scope = Scope::body(module, parameter);
    let mut root = module.comp(this.condition).root;
    let mut inner = scope;
    if let Op::Fusion(fusion) = &module.instr(root).op {
        inner = inner.called(root, fusion.calls);
        root = module.comp(fusion.calls).root;
    }
    let compare = module.instr(root);
    let Op::Compare { direction, .. } = compare.op else { return None };
    let (left, right) = (inner.affine(compare.operands[0])?, inner.affine(compare.operands[1])?);
    let limit = right.constant()?;
    let Kind::Linear { start: Some(start), step } = this.elements.get(left.element?)?.kind else { return None };
    if left.scale != 1 || left.offset != 0 || step <= 0 {
        return None;
    }
    let limit = match direction {
        Direction::Lt => limit,
        Direction::Le => limit.checked_add(1)?,
        _ => return None,
    };
    u64::try_from((limit - start).max(0).checked_add(step - 1)? / step).ok()
}
