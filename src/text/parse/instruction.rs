//! One instruction: `[ROOT] name = [shape] opcode(operands), attributes`.

use super::attributes::Attributes;
use super::cursor::{Cursor, begins_word, is_word};
use super::errors::{Fail, Res, fail};
use super::grammar::{self, Rule, read};
use super::opcodes::{self, Make, Opcode, Step};
use super::reader::{Reader, Scope};
use super::{shapes, strings};
use crate::diag::{Diagnostic, Span};
use crate::ir::{InstrId, Instruction, Op, Opaque, Operands, ShapeId};

/// Bytes of a line in which the head of an instruction is looked for as printed.
const WINDOW: usize = 256;

/// Bytes of an opcode that is not known; longer words are none.
const LONGEST_OPCODE: usize = 64;

/// What stands before the operands.
#[derive(Clone, Copy)]
struct Head<'t> {
    is_root: bool,
    name: &'t str,
    name_span: Span,
    shape: Option<ShapeId>,
    opcode: &'t str,
}

/// An operation that was read and is not yet an instruction.
pub(super) struct Draft {
    pub(super) shape: ShapeId,
    pub(super) op: Op,
    pub(super) operands: Operands,
}

impl<'t> Reader<'t> {
    /// Reads an instruction and defines it.
    pub(super) fn statement(&mut self, scope: &mut Scope<'t>, cur: &mut Cursor<'t>) -> Res<()> {
        let start = cur.at;
        let head = match self.head(cur) {
            Some(head) => head,
            None => {
                cur.at = start;
                self.free_head(scope, cur)?
            }
        };
        let id = self.defined(scope, cur, start, &head).inspect_err(|_| {
            scope.broken.insert(head.name);
        })?;
        if head.is_root && scope.root.replace(id).is_some() {
            return fail("P034", head.name_span, format!("expected one `ROOT`, found another: `{}`", head.name));
        }
        Ok(())
    }

    fn defined(&mut self, scope: &mut Scope<'t>, cur: &mut Cursor<'t>, start: usize, head: &Head<'t>) -> Res<InstrId> {
        let opcode_at = cur.at;
        let id = self.operation(scope, cur, head, opcode_at, start)?;
        match scope.names.entry(head.name) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(id);
                Ok(id)
            }
            std::collections::hash_map::Entry::Occupied(_) => {
                fail("P035", head.name_span, format!("expected each name once in a computation, found `{}` twice", head.name))
            }
        }
    }

    /// The head as XLA prints it; `None` where it is written otherwise. The cursor ends behind the opcode.
    fn head(&mut self, cur: &mut Cursor<'t>) -> Option<Head<'t>> {
        let window = cur.rest().get(..WINDOW).unwrap_or(cur.rest());
        let base = cur.at;
        let node = grammar::matches(Rule::head, window)?;
        let end = base + node.as_span().end();
        let (mut is_root, mut name, mut name_at) = (false, "", 0);
        let (mut shape_at, mut shape, mut opcode) = (0, "", "");
        for part in node.into_inner() {
            let (from, to) = (base + part.as_span().start(), base + part.as_span().end());
            let piece = &self.text[from..to];
            match part.as_rule() {
                Rule::root => is_root = true,
                Rule::name => (name, name_at) = (piece, from),
                Rule::shape => (shape, shape_at) = (piece, from),
                _ => opcode = piece,
            }
        }
        let name_span = Span::new(name_at, name_at + name.len());
        let bare = name.strip_prefix('%');
        let plain = bare.unwrap_or(name);
        let is_name = plain.bytes().next().is_some_and(begins_word) && plain.bytes().all(is_word);
        if !is_name || strings::is_type_name(plain) || (bare.is_none() && strings::is_reserved(plain)) {
            return None;
        }
        if opcode.is_empty() {
            // A tuple shape follows.
            cur.at = end;
            let shape = self.shape(cur).ok()?;
            let opcode = cur.word()?;
            return Some(Head { is_root, name: plain, name_span, shape: Some(shape), opcode });
        }
        if !opcode.bytes().all(is_word) {
            return None;
        }
        let id = match self.shapes.get(shape) {
            Some(&id) => id,
            None => {
                let mut inside = Cursor { text: self.text, at: shape_at };
                let id = self.shape(&mut inside).ok()?;
                if inside.at != shape_at + shape.len() {
                    return None;
                }
                id
            }
        };
        cur.at = end - 1;
        Some(Head { is_root, name: plain, name_span, shape: Some(id), opcode })
    }

    /// The head in any spacing. In a single instruction, the name may be missing.
    fn free_head(&mut self, scope: &Scope<'t>, cur: &mut Cursor<'t>) -> Res<Head<'t>> {
        cur.blanks();
        let start = cur.at;
        let mut head = Head { is_root: false, name: "_", name_span: Span::new(start, start), shape: None, opcode: "" };
        let mut probe = *cur;
        match read(&mut probe, Rule::free_head) {
            Ok(node) => {
                *cur = probe;
                for part in node.into_inner() {
                    let span = grammar::span_of(self.text, &part);
                    let piece = &self.text[span.start as usize..span.end as usize];
                    if part.as_rule() == Rule::free_root {
                        head.is_root = true;
                        continue;
                    }
                    head.name_span = span;
                    head.name = piece.strip_prefix('%').or_else(|| piece.strip_suffix(':')).unwrap_or(piece);
                    if piece == head.name && strings::is_reserved(piece) {
                        return fail("P013", span, format!("expected the name of an instruction, found the reserved word `{piece}`"))
                            .map_err(|f| f.note(format!("`%{piece}` is a name, unless it is an element type")));
                    }
                    if self.text.as_bytes().get(span.end as usize) == Some(&b'=') && !piece.starts_with('%') {
                        return fail("P013", span, format!("expected a blank before `=`, or `%` before `{piece}`"));
                    }
                }
                if strings::is_type_name(head.name) {
                    return fail("P013", head.name_span, format!("expected a name that is no element type, found `{}`", head.name))
                        .map_err(|f| f.note(format!("`{}_` would do", head.name)));
                }
            }
            Err(_) if scope.is_free => {}
            Err(f) => return name_trouble(cur).unwrap_or(Err(f)),
        }
        if shapes::begins_shape(cur) {
            head.shape = Some(self.shape(cur)?);
        }
        match cur.word() {
            Some(word) => head.opcode = word,
            None => return cur.expected(if head.shape.is_some() { "an opcode" } else { "a shape or an opcode" }),
        }
        Ok(head)
    }

    /// Operands and attributes, at the cursor behind the opcode.
    fn operation(&mut self, scope: &mut Scope<'t>, cur: &mut Cursor<'t>, head: &Head<'t>, opcode_at: usize, start: usize) -> Res<InstrId> {
        let span = Span::new(opcode_at - head.opcode.len(), opcode_at);
        let (opcode, step) = self.opcode(head.opcode, span)?;
        cur.expect(b'(', "`(` and operands")?;
        let mut draft_operands = Operands::new();
        let mut special = None;
        match opcode.make {
            Make::Parameter | Make::Constant if step.is_none() => {
                special = Some(self.leaf(cur, opcode.make, head.opcode, span, head.shape)?);
            }
            _ => draft_operands = self.operands(scope, cur)?,
        }
        if let Some(arity) = opcode.arity
            && special.is_none()
            && step.is_none()
            && usize::from(arity) != draft_operands.len()
        {
            let plural = if arity == 1 { "" } else { "s" };
            return fail("P040", span, format!("expected {arity} operand{plural} of `{}`, found {}", head.opcode, draft_operands.len()));
        }
        let allowed = self.allowed(opcode, step);
        let mut attributes = self.attributes(scope, cur, &allowed)?;
        if let Some(at) = attributes.replication.take() {
            self.check_replication(opcode.make, head.shape, attributes.common.parameter_replication.as_deref(), at)?;
        }
        let draft = match (special, step) {
            (Some((shape, op)), _) => Draft { shape, op, operands: draft_operands },
            (None, Some(step)) => self.sugar(opcode, head.opcode, step, head.shape, draft_operands, &mut attributes, span)?,
            (None, None) if self.is_wrapped_collective(&opcode, head.shape, &draft_operands, &attributes) => {
                let (step, make) = match opcode.make {
                    Make::Collective(kind, _) => (Step::Start, Make::Collective(kind, false)),
                    other => (Step::Done, other),
                };
                self.sugar(Opcode { make, ..opcode }, head.opcode, step, head.shape, draft_operands, &mut attributes, span)?
            }
            (None, None) if opcode.make == Make::Opaque => {
                let Some(shape) = head.shape else { return no_shape(span, head.opcode) };
                let attributes = std::mem::take(&mut attributes.opaque);
                let op = Op::Opaque(Box::new(Opaque { opcode: head.opcode.into(), attributes, called: Vec::new() }));
                Draft { shape, op, operands: draft_operands }
            }
            (None, None) => self.build(&opcode, head.opcode, head.shape, draft_operands, &mut attributes, span)?,
        };
        let Attributes { common, control, .. } = attributes;
        let is_parameter = matches!(draft.op, Op::Parameter { .. });
        if step.is_some()
            && let Op::AsyncStart(made) = &draft.op
        {
            // XLA gives the operation that it wraps what the start says of itself, but for the sharding, which is of the start's tuple.
            let root = self.module.comp(made.calls).root;
            let mut inherited = common.clone();
            if inherited.sharding.is_some() {
                inherited.sharding = None;
            }
            self.module.instructions[root].attrs = inherited;
        }
        let id = self.module.define(Instruction {
            name: head.name.into(),
            shape: draft.shape,
            op: draft.op,
            operands: draft.operands,
            control_predecessors: control,
            attrs: common,
            span: Span::new(start, cur.at),
            proto_id: 0,
        });
        scope.order.push(id);
        if is_parameter && let Op::Parameter { number } = self.module.instr(id).op {
            scope.parameters.push((number, id));
        }
        Ok(id)
    }

    /// Defines an instruction that the text does not name, before the one that is being read.
    pub(super) fn define_unnamed(&mut self, scope: &mut Scope<'t>, name: String, draft: Draft, span: Span) -> InstrId {
        let mut instr = Instruction::new(name, draft.shape, draft.op, draft.operands);
        instr.span = span;
        let id = self.module.define(instr);
        scope.order.push(id);
        scope.unnamed.push(id);
        let name = self.module.instr(id).name.clone();
        scope.generated.entry(name).or_insert(id);
        id
    }

    /// The opcode of a word.
    pub(super) fn opcode(&mut self, word: &str, span: Span) -> Res<(Opcode, Option<Step>)> {
        if let Some(opcode) = opcodes::find(word) {
            return Ok((*opcode, None));
        }
        if let Some((opcode, step)) = opcodes::find_sugar(word) {
            return Ok((*opcode, Some(step)));
        }
        let base = opcodes::split_step(word).map_or(word, |(base, _)| base);
        if opcodes::find(base).is_some() {
            return fail("P010", span, format!("expected an opcode, found `{word}`: `{base}` has no such asynchronous form"));
        }
        let plausible = word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') && !strings::is_reserved(word);
        if !plausible || word.len() > LONGEST_OPCODE {
            return super::errors::expected(self.text, span.start as usize, "an opcode");
        }
        self.errors.warn(Diagnostic::warning("P024", format!("unknown opcode `{word}` is kept as read")).at(span, ""));
        Ok((Opcode { make: Make::Opaque, arity: None, allowed: 0, inferable: false }, None))
    }

    /// What stands between the parentheses of a parameter or a constant, and the `)`.
    pub(super) fn leaf(&mut self, cur: &mut Cursor<'t>, make: Make, word: &str, span: Span, shape: Option<ShapeId>) -> Res<(ShapeId, Op)> {
        if make == Make::Constant {
            let Some(shape) = shape else { return no_shape(span, word) };
            let literal = self.constant(cur, shape)?;
            cur.expect(b')', "`)` after a constant")?;
            return Ok((literal.shape, Op::Constant(Box::new(literal))));
        }
        cur.blanks();
        let at = cur.at;
        let number = cur.whole_int()?;
        if number < 0 {
            return fail("P037", cur.since(at), format!("expected a parameter number that is not negative, found {number}"));
        }
        cur.expect(b')', "`)` after the number of a parameter")?;
        let Some(shape) = shape else { return no_shape(span, word) };
        Ok((shape, Op::Parameter { number }))
    }

    fn check_replication(&self, make: Make, shape: Option<ShapeId>, flags: Option<&[bool]>, span: Span) -> Res<()> {
        if make != Make::Parameter {
            return fail("P021", span, "unexpected attribute `parameter_replication`: only parameters have it");
        }
        let is_leaf = |id: &ShapeId| !matches!(self.module.shapes.get(*id), crate::ir::Shape::Tuple(_));
        let leaves = shape.map_or(0, |s| self.module.shapes.positions(s).iter().filter(|(_, id)| is_leaf(id)).count());
        let count = flags.map_or(0, <[bool]>::len);
        if count == leaves {
            Ok(())
        } else {
            fail("P026", span, format!("expected {leaves} flags, one an array of the parameter, found {count}"))
        }
    }
}

/// The error that a shape must be written.
pub(super) fn no_shape<T>(span: Span, opcode: &str) -> Res<T> {
    fail("P042", span, format!("expected a shape before `{opcode}`: it does not follow from the operands"))
}

/// A better error for a name that is none.
fn name_trouble<T>(cur: &Cursor<'_>) -> Option<Result<T, Fail>> {
    let mut at = *cur;
    if at.rest().starts_with("ROOT") {
        at.at += 4;
    }
    at.blanks();
    let is_digit = |c: Cursor<'_>| c.byte().is_ascii_digit();
    if at.byte() == b'%' {
        at.at += 1;
        if !begins_word(at.byte()) {
            return Some(fail("P013", Span::new(at.at - 1, at.at + 1), "expected a letter or `_` after `%`"));
        }
    } else if is_digit(at) {
        return Some(fail("P013", Span::new(at.at, at.at + 1), "expected the name of an instruction, found a digit"));
    }
    None
}
