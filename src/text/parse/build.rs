//! The operation of an opcode, its operands and attributes, with the checks that XLA makes when it builds one.

use super::attributes::{Attr, Attributes, Value};
use super::errors::{Res, fail};
use super::infer::{self, Misfit};
use super::instruction::{Draft, no_shape};
use super::opcodes::{Opcode, Step};
use super::reader::Reader;
use super::words::{self, Words};
use crate::diag::Span;
use crate::ir::{ArrayShape, CompId, Op, Operands, Primitive, Shape, ShapeId};

/// An operation while it is built: where its opcode stands and what was said.
pub(super) struct Builder<'a, 't> {
    pub(super) word: &'a str,
    pub(super) span: Span,
    pub(super) attributes: &'a mut Attributes<'t>,
    pub(super) operands: &'a Operands,
}

impl<'t> Builder<'_, 't> {
    pub(super) fn fail<T>(&self, code: &'static str, message: impl Into<String>) -> Res<T> {
        fail(code, self.span, message)
    }
    /// The value of an attribute that must be said.
    fn needed(&mut self, attr: Attr) -> Res<Value<'t>> {
        match self.attributes.take(attr) {
            Some(value) => Ok(value),
            None => self.fail("P022", format!("expected the attribute `{}` of `{}`", attr.name(), self.word)),
        }
    }
    pub(super) fn comp(&mut self, attr: Attr) -> Res<CompId> {
        match self.needed(attr)? {
            Value::Comp(id) => Ok(id),
            other => unreachable_value(attr, &other),
        }
    }
    pub(super) fn int(&mut self, attr: Attr) -> Res<i64> {
        match self.needed(attr)? {
            Value::Int(n) => Ok(n),
            other => unreachable_value(attr, &other),
        }
    }
    pub(super) fn int_or(&mut self, attr: Attr, default: i64) -> i64 {
        match self.attributes.take(attr) {
            Some(Value::Int(n)) => n,
            _ => default,
        }
    }
    pub(super) fn int32(&mut self, attr: Attr) -> Res<i32> {
        self.int(attr).map(|n| i32::try_from(n).expect("the value was read as 32 bits"))
    }
    pub(super) fn some_int(&mut self, attr: Attr) -> Option<i64> {
        match self.attributes.take(attr) {
            Some(Value::Int(n)) => Some(n),
            _ => None,
        }
    }
    pub(super) fn flag(&mut self, attr: Attr) -> Option<bool> {
        match self.attributes.take(attr) {
            Some(Value::Bool(b)) => Some(b),
            _ => None,
        }
    }
    pub(super) fn is(&mut self, attr: Attr) -> bool {
        self.flag(attr).unwrap_or(false)
    }
    /// The integers of an attribute, none if it is not said.
    pub(super) fn ints(&mut self, attr: Attr) -> Vec<i64> {
        match self.attributes.take(attr) {
            Some(Value::Ints(list)) => list,
            _ => Vec::new(),
        }
    }
    pub(super) fn needed_ints(&mut self, attr: Attr) -> Res<Vec<i64>> {
        match self.needed(attr)? {
            Value::Ints(list) => Ok(list),
            other => unreachable_value(attr, &other),
        }
    }
    /// The one integer of a list.
    pub(super) fn one_int(&mut self, attr: Attr) -> Res<i64> {
        match *self.needed_ints(attr)? {
            [one] => Ok(one),
            ref list => self.fail("P026", format!("expected one number in `{}`, found {}", attr.name(), list.len())),
        }
    }
    pub(super) fn float(&mut self, attr: Attr) -> Res<f32> {
        match self.needed(attr)? {
            #[expect(clippy::cast_possible_truncation, reason = "the attribute is a float")]
            Value::Float(f) => Ok(f as f32),
            other => unreachable_value(attr, &other),
        }
    }
    pub(super) fn text(&mut self, attr: Attr) -> Option<Box<str>> {
        match self.attributes.take(attr) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }
    pub(super) fn needed_text(&mut self, attr: Attr) -> Res<Box<str>> {
        match self.needed(attr)? {
            Value::Text(text) => Ok(text),
            other => unreachable_value(attr, &other),
        }
    }
    pub(super) fn bytes(&mut self, attr: Attr) -> Box<[u8]> {
        match self.attributes.take(attr) {
            Some(Value::Bytes(bytes)) => bytes,
            _ => Box::default(),
        }
    }
    pub(super) fn shape(&mut self, attr: Attr) -> Option<ShapeId> {
        match self.attributes.take(attr) {
            Some(Value::Shape(shape)) => Some(shape),
            _ => None,
        }
    }
    /// What a word stands for, if it is said.
    pub(super) fn some_word<T>(
        &mut self,
        attr: Attr,
        known: impl FnOnce(&str) -> Option<T>,
        names: impl FnOnce() -> String,
    ) -> Res<Option<T>> {
        match self.attributes.take_at(attr) {
            Some((Value::Word(word), span)) => match known(word) {
                Some(value) => Ok(Some(value)),
                None => fail("P026", span, format!("expected {}, found `{word}`", names())),
            },
            _ => Ok(None),
        }
    }
    pub(super) fn word<T>(&mut self, attr: Attr, known: impl FnOnce(&str) -> Option<T>, names: impl FnOnce() -> String) -> Res<T> {
        match self.some_word(attr, known, names)? {
            Some(value) => Ok(value),
            None => self.fail("P022", format!("expected the attribute `{}` of `{}`", attr.name(), self.word)),
        }
    }
    /// The number of a word, if it is said.
    pub(super) fn number(&mut self, attr: Attr, words: Words) -> Res<Option<i32>> {
        self.some_word(attr, |w| words::number(words, w), || words::list(words.iter().map(|w| w.0)))
    }
    /// The number of a word in any case.
    pub(super) fn number_any_case(&mut self, attr: Attr, words: Words) -> Res<Option<i32>> {
        self.some_word(attr, |w| words::number_any_case(words, w), || words::list(words.iter().map(|w| w.0)))
    }
    pub(super) fn missing<T>(&self, attr: Attr) -> Res<T> {
        self.fail("P022", format!("expected the attribute `{}` of `{}`", attr.name(), self.word))
    }
}

fn unreachable_value<T>(attr: Attr, value: &Value<'_>) -> Res<T> {
    unreachable!("`{}` is read by its kind, found {value:?}", attr.name())
}

impl<'t> Reader<'t> {
    /// The opcode with the attributes that its asynchronous form allows.
    pub(super) fn allowed(&self, opcode: Opcode, step: Option<Step>) -> Opcode {
        let (thread, aliasing) = (Attr::AsyncExecutionThread.bit(), Attr::OutputToOperandAliasing.bit());
        let allowed = match step {
            None => opcode.allowed,
            Some(Step::Start) => opcode.allowed | thread | aliasing,
            Some(Step::Update) => thread | aliasing,
            Some(Step::Done) => thread,
        };
        Opcode { allowed, ..opcode }
    }

    /// Builds an operation; the shape is inferred if it is not said.
    pub(super) fn build(
        &mut self,
        opcode: &Opcode,
        word: &str,
        shape: Option<ShapeId>,
        operands: Operands,
        attributes: &mut Attributes<'t>,
        span: Span,
    ) -> Res<Draft> {
        if shape.is_none() && !opcode.inferable {
            return no_shape(span, word);
        }
        let mut builder = Builder { word, span, attributes, operands: &operands };
        let op = self.op(opcode.make, shape, &mut builder)?;
        let shape = match shape {
            Some(shape) => self.checked_shape(&op, shape, &operands, word, span)?,
            None => match infer::shape(&mut self.module, &op, &operands) {
                Ok(shape) => shape,
                Err(Misfit(why)) => return fail("P043", span, format!("{why}, operands of `{word}`")),
            },
        };
        Ok(Draft { shape, op, operands })
    }

    /// The shape that XLA gives an operation that was written with one: mostly that one.
    fn checked_shape(&mut self, op: &Op, shape: ShapeId, operands: &Operands, word: &str, span: Span) -> Res<ShapeId> {
        let first = operands.first().map(|&o| self.module.instr(o).shape);
        let shapes = &mut self.module.shapes;
        let scalar = Shape::Array(ArrayShape::new(Primitive::U32, &[]));
        let wrong = |message: String| fail("P043", span, message);
        match (op, first) {
            (Op::AfterAll | Op::SendDone(_), _) => Ok(shapes.intern(Shape::Token)),
            (Op::PartitionId | Op::ReplicaId, _) if *shapes.get(shape) != scalar => {
                wrong(format!("expected the shape `u32[]` of `{word}`"))
            }
            (Op::Infeed { .. }, _) if shapes.elements(shape).is_empty() => wrong("expected a tuple for the shape of `infeed`".into()),
            (Op::Recv(_), _) => match shapes.elements(shape).first() {
                Some(&data) => {
                    let parts = vec![data, shapes.intern(scalar), shapes.intern(Shape::Token)];
                    Ok(shapes.intern(Shape::Tuple(parts)))
                }
                None => wrong("expected a tuple for the shape of `recv`".into()),
            },
            (Op::Tuple, _) => match shapes.get(shape) {
                Shape::Tuple(elements) if elements.len() == operands.len() => Ok(shape),
                Shape::Tuple(elements) => {
                    fail("P040", span, format!("expected {} operands of `tuple`, one an element, found {}", elements.len(), operands.len()))
                }
                _ => wrong("expected a tuple for the shape of `tuple`".into()),
            },
            (Op::Send(_) | Op::RecvDone(_) | Op::GetTupleElement { .. } | Op::Reshape { .. } | Op::DynamicReshape, None) => {
                fail("P040", span, format!("expected at least one operand of `{word}`, found none"))
            }
            (Op::Send(_), Some(data)) => {
                let parts = vec![data, shapes.intern(scalar), shapes.intern(Shape::Token)];
                Ok(shapes.intern(Shape::Tuple(parts)))
            }
            (Op::RecvDone(_), Some(first)) => match shapes.elements(first).first() {
                Some(&data) => {
                    let parts = vec![data, shapes.intern(Shape::Token)];
                    Ok(shapes.intern(Shape::Tuple(parts)))
                }
                None => wrong("expected a tuple for the operand of `recv-done`".into()),
            },
            (Op::GetTupleElement { index }, Some(first)) => {
                let count = shapes.elements(first).len();
                let is_tuple = matches!(shapes.get(first), Shape::Tuple(_));
                if *index < 0 || is_tuple && usize::try_from(*index).is_ok_and(|i| i >= count) {
                    return fail("P044", span, format!("expected an index below {count}, the elements of the tuple, found {index}"));
                }
                Ok(shape)
            }
            (Op::Reshape { .. }, Some(first)) => {
                let count = |id: ShapeId| shapes.array(id).filter(|a| a.dims.iter().all(|d| d.size >= 0)).map(ArrayShape::elements);
                match (count(shape), count(first)) {
                    (Some(a), Some(b)) if a != b => wrong(format!("expected as many elements as in the operand, which has {b}, found {a}")),
                    _ => Ok(shape),
                }
            }
            (Op::DynamicReshape, Some(_)) => {
                let rank = shapes.array(shape).map_or(0, |a| a.dims.len());
                let sizes = operands.len() - 1;
                if sizes == rank {
                    return Ok(shape);
                }
                fail("P040", span, format!("expected an operand and {rank} sizes, one a dimension of the result, found {sizes}"))
            }
            _ => Ok(shape),
        }
    }
}
