//! Evaluates integer scalars inside a loop, as far as they follow from constants and one counter.
//!
//! Just enough to read a loop's condition and its counter through fusions and copies. Depth and work are bounded: what is too deep or too much is
//! unknown, not wrong.

use rustc_hash::FxHashMap;

use crate::ir::{Binary, Direction, InstrId, LiteralValue, Module, Op, Unary};

/// Operands are followed no deeper than this.
const DEPTH: u32 = 64;
/// Instructions looked at for one value.
const STEPS: u32 = 4096;

/// What is known at a place: parts of the parameter of a loop's computation, or nothing (before the loop).
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) parts: &'a FxHashMap<i64, i64>,
}

struct Frame<'a> {
    parent: Option<&'a Frame<'a>>,
    operands: &'a [InstrId],
    known: Known<'a>,
}

struct Reader<'m> {
    module: &'m Module,
    steps: u32,
}

/// The value of an instruction, or of one part of it.
pub(super) fn value(module: &Module, id: InstrId, part: Option<i64>, known: Known<'_>) -> Option<i64> {
    Reader { module, steps: STEPS }.read(&Frame { parent: None, operands: &[], known }, id, part, 0)
}

impl Reader<'_> {
    fn read(&mut self, frame: &Frame<'_>, id: InstrId, part: Option<i64>, depth: u32) -> Option<i64> {
        self.steps = self.steps.checked_sub(1)?;
        if depth > DEPTH {
            return None;
        }
        let module = self.module;
        let instr = module.instr(id);
        let operand = |this: &mut Self, n: usize, part: Option<i64>| this.read(frame, *instr.operands.get(n)?, part, depth + 1);
        match (&instr.op, part) {
            (Op::Parameter { number }, _) => match frame.parent {
                Some(parent) => self.read(parent, *frame.operands.get(usize::try_from(*number).ok()?)?, part, depth + 1),
                None => frame.known.parts.get(&part?).copied(),
            },
            (Op::GetTupleElement { index }, None) => operand(self, 0, Some(*index)),
            (Op::Tuple, Some(n)) => operand(self, usize::try_from(n).ok()?, None),
            (Op::OptBarrier, _) => operand(self, 0, part),
            (Op::Fusion(fusion), _) => {
                let inner = Frame { parent: Some(frame), operands: &instr.operands, known: frame.known };
                self.read(&inner, module.comp(fusion.calls).root, part, depth + 1)
            }
            (_, Some(_)) => None,
            _ if !self.is_scalar(id) => None,
            (Op::Constant(literal), None) => self.constant(&literal.value, id),
            (Op::Copy | Op::Bitcast | Op::Reshape { .. } | Op::Convert | Op::Broadcast { .. }, None) => {
                if instr.operands.first().is_some_and(|&o| self.is_scalar(o)) { operand(self, 0, None) } else { None }
            }
            (Op::Unary(Unary::Not), None) => Some(i64::from(operand(self, 0, None)? == 0)),
            (Op::Unary(Unary::Negate), None) => operand(self, 0, None)?.checked_neg(),
            (Op::Binary(op), None) => {
                let (a, b) = (operand(self, 0, None)?, operand(self, 1, None)?);
                match op {
                    Binary::Add => a.checked_add(b),
                    Binary::Subtract => a.checked_sub(b),
                    Binary::Multiply => a.checked_mul(b),
                    Binary::And => Some(a & b),
                    Binary::Or => Some(a | b),
                    Binary::Maximum => Some(a.max(b)),
                    Binary::Minimum => Some(a.min(b)),
                    _ => None,
                }
            }
            (Op::Compare { direction, .. }, None) => {
                let (a, b) = (operand(self, 0, None)?, operand(self, 1, None)?);
                Some(i64::from(match direction {
                    Direction::Eq => a == b,
                    Direction::Ne => a != b,
                    Direction::Ge => a >= b,
                    Direction::Gt => a > b,
                    Direction::Le => a <= b,
                    Direction::Lt => a < b,
                }))
            }
            (Op::Select, None) => {
                let taken = if operand(self, 0, None)? != 0 { 1 } else { 2 };
                operand(self, taken, None)
            }
            _ => None,
        }
    }

    /// Whether the value is one integer or truth value.
    fn is_scalar(&self, id: InstrId) -> bool {
        self.module.shapes.array(self.module.instr(id).shape).is_some_and(|array| {
            let known = array.element.known();
            array.elements() == 1 && known.is_some_and(|p| p.is_integer() || p == crate::ir::Primitive::Pred)
        })
    }

    fn constant(&self, value: &LiteralValue, id: InstrId) -> Option<i64> {
        let LiteralValue::Dense(bytes) = value else { return None };
        let element = self.module.shapes.array(self.module.instr(id).shape)?.element.known()?;
        if bytes.is_empty() || bytes.len() > 8 {
            return None;
        }
        let negative = element.is_signed_integer() && bytes.last().is_some_and(|b| b & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        Some(i64::from_le_bytes(wide))
    }
}
