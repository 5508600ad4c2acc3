//! Operands: names, `name#index`, and operations within operands, split with a stack of our own.

use super::attributes::Attributes;
use super::cursor::{Cursor, begins_word};
use super::errors::{Res, fail};
use super::instruction::Draft;
use super::opcodes::{Make, Opcode, Step};
use super::reader::{Reader, Scope};
use super::shapes;
use crate::diag::Span;
use crate::ir::{InstrId, Op, Operands, ShapeId};

/// Operations within operands. XLA crashes somewhere between 1,000 and 2,000.
const DEPTH: usize = 1000;

/// An operation whose operands are being read.
struct Open<'t> {
    opcode: Opcode,
    step: Option<Step>,
    word: &'t str,
    span: Span,
    shape: Option<ShapeId>,
    /// The operands of the operation around it.
    outer: Operands,
}

impl<'t> Reader<'t> {
    /// The operands behind `(`, up to and with `)`. Commas may be more than one, as in XLA.
    pub(super) fn operands(&mut self, scope: &mut Scope<'t>, cur: &mut Cursor<'t>) -> Res<Operands> {
        let mut operands = Operands::new();
        let mut open: Vec<Open<'t>> = Vec::new();
        loop {
            let operand = match cur.peek() {
                b',' => {
                    cur.at += 1;
                    continue;
                }
                b')' => {
                    cur.at += 1;
                    let Some(mut inner) = open.pop() else { return Ok(operands) };
                    let arguments = std::mem::replace(&mut operands, std::mem::take(&mut inner.outer));
                    self.nested(scope, &inner, arguments)?
                }
                _ => match self.operand(scope, cur, open.len() + operands.len())? {
                    Operand::Value(id) => id,
                    Operand::Opens(opcode, step, word, span, shape) => {
                        if open.len() == DEPTH {
                            return fail("P014", span, format!("expected at most {DEPTH} operations within each other"));
                        }
                        open.push(Open { opcode, step, word, span, shape, outer: std::mem::take(&mut operands) });
                        continue;
                    }
                },
            };
            operands.push(operand);
            if !matches!(cur.peek(), b',' | b')') {
                return cur.expected("`,` or `)` after an operand");
            }
        }
    }

    fn operand(&mut self, scope: &mut Scope<'t>, cur: &mut Cursor<'t>, position: usize) -> Res<Operand<'t>> {
        let start = cur.at;
        let mut shape = None;
        if cur.byte() != b'%' && shapes::begins_shape(cur) {
            let id = self.shape(cur)?;
            shape = Some((id, cur.since(start)));
            if scope.is_free && matches!(cur.peek(), b',' | b')') {
                return Ok(Operand::Value(self.free_parameter(scope, None, position, id, cur.since(start))));
            }
        }
        let at = {
            cur.blanks();
            cur.at
        };
        if begins_word(cur.byte()) {
            let mut ahead = *cur;
            let word = ahead.word_here();
            let span = ahead.since(at);
            if ahead.eat(b'(') {
                *cur = ahead;
                let (opcode, step) = self.opcode(word, span)?;
                let shape = shape.map(|(id, _)| id);
                if step.is_none() && matches!(opcode.make, Make::Parameter | Make::Constant) {
                    return self.nested_leaf(scope, cur, opcode, word, span, shape).map(Operand::Value);
                }
                if opcode.make == Make::Opaque {
                    return fail("P010", span, format!("expected the name of an operand, found `{word}(`"));
                }
                return Ok(Operand::Opens(opcode, step, word, span, shape));
            }
        }
        let name = cur.name("an operand")?;
        let mut id = match scope.names.get(name).or_else(|| scope.generated.get(name)) {
            Some(&id) => id,
            None if scope.is_free => match shape {
                Some((id, _)) => self.free_parameter(scope, Some(name), position, id, cur.since(at)),
                None => return scope.resolve(name, cur.since(at)).map(Operand::Value),
            },
            None => scope.resolve(name, cur.since(at))?,
        };
        while cur.peek() == b'#' {
            cur.at += 1;
            let index_at = cur.at;
            let index = cur.int()?;
            id = self.part(scope, id, index, cur.since(index_at))?;
        }
        if let Some((declared, span)) = shape
            && !self.module.shapes.compatible(declared, self.module.instr(id).shape)
        {
            return fail("P041", span, format!("expected the shape of `{name}`, found another"));
        }
        Ok(Operand::Value(id))
    }

    /// `name#index`: the element of a tuple.
    fn part(&mut self, scope: &mut Scope<'t>, tuple: InstrId, index: i64, span: Span) -> Res<InstrId> {
        if let Some(&id) = scope.parts.get(&(tuple, index)) {
            return Ok(id);
        }
        let from = self.module.instr(tuple);
        let Some(shape) = self.module.shapes.at(from.shape, &[index]) else {
            let count = self.module.shapes.elements(from.shape).len();
            return fail("P044", span, format!("expected an index below {count}, the elements of `{}`, found {index}", from.name));
        };
        let name = format!("{}_{index}", from.name);
        let draft = Draft { shape, op: Op::GetTupleElement { index }, operands: [tuple].into_iter().collect() };
        let id = self.define_unnamed(scope, name, draft, span);
        scope.parts.insert((tuple, index), id);
        Ok(id)
    }

    fn nested(&mut self, scope: &mut Scope<'t>, open: &Open<'t>, operands: Operands) -> Res<InstrId> {
        let (word, span) = (open.word, open.span);
        let mut attributes = Attributes::default();
        if let Some(step) = open.step {
            let draft = self.sugar(open.opcode, word, step, open.shape, operands, &mut attributes, span)?;
            let name = format!("{}.anon", draft.op.opcode());
            return Ok(self.define_unnamed(scope, name, draft, span));
        }
        if let Some(arity) = open.opcode.arity
            && usize::from(arity) != operands.len()
        {
            return fail("P040", span, format!("expected {arity} operands of `{word}`, found {}", operands.len()));
        }
        let draft = self.build(&open.opcode, word, open.shape, operands, &mut attributes, span)?;
        Ok(self.define_unnamed(scope, format!("{word}.anon"), draft, span))
    }

    /// A parameter or a constant in the place of an operand.
    fn nested_leaf(
        &mut self,
        scope: &mut Scope<'t>,
        cur: &mut Cursor<'t>,
        opcode: Opcode,
        word: &str,
        span: Span,
        shape: Option<ShapeId>,
    ) -> Res<InstrId> {
        let (shape, op) = self.leaf(cur, opcode.make, word, span, shape)?;
        let number = if let Op::Parameter { number } = op { Some(number) } else { None };
        let id = self.define_unnamed(scope, format!("{word}.anon"), Draft { shape, op, operands: Operands::new() }, span);
        scope.parameters.extend(number.map(|n| (n, id)));
        Ok(id)
    }

    /// A parameter for an operand of a single instruction.
    fn free_parameter(&mut self, scope: &mut Scope<'t>, name: Option<&'t str>, position: usize, shape: ShapeId, span: Span) -> InstrId {
        let number = i64::try_from(scope.parameters.len()).expect("there are fewer parameters than bytes");
        let text = name.map_or_else(|| format!("_{position}"), str::to_owned);
        let id = self.define_unnamed(scope, text, Draft { shape, op: Op::Parameter { number }, operands: Operands::new() }, span);
        if let Some(name) = name {
            scope.names.insert(name, id);
            scope.unnamed.pop();
        }
        scope.parameters.push((number, id));
        id
    }
}

enum Operand<'t> {
    Value(InstrId),
    Opens(Opcode, Option<Step>, &'t str, Span, Option<ShapeId>),
}
