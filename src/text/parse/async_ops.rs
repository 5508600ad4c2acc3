//! Asynchronous operations: `async-start` and its kin, and the sugar `negate-start`, for which the wrapped computation is made here.

use super::attributes::{Attr, Attributes, Value};
use super::build::Builder;
use super::errors::{Res, fail};
use super::instruction::{Draft, no_shape};
use super::opcodes::{Make, Opcode, Step};
use super::reader::Reader;
use crate::diag::Span;
use crate::ir::{Async, CompId, Computation, InstrId, Instruction, Op, Operands, Shape, ShapeId};

impl<'t> Reader<'t> {
    /// `async-start`, `async-update`, `async-done`.
    pub(super) fn async_op(&mut self, make: Make, shape: Option<ShapeId>, b: &mut Builder<'_, 't>) -> Res<Op> {
        let calls = if b.attributes.has(Attr::Calls) { Some(b.comp(Attr::Calls)?) } else { None };
        let thread = thread(b.attributes);
        if make == Make::AsyncStart {
            self.check_form(shape, b.span)?;
            let Some(calls) = calls else { return b.missing(Attr::Calls) };
            let aliasing = aliasing(b.attributes);
            return Ok(Op::AsyncStart(Box::new(Async { calls, thread: thread.flatten(), aliasing })));
        }
        let start = self.start_of(b.operands, b.span, b.word)?;
        if let Some(calls) = calls
            && calls != start.calls
        {
            let name = &self.module.comp(start.calls).name;
            return b.fail("P060", format!("expected the computation of the start, `{name}`, found another"));
        }
        self.follow(make == Make::AsyncUpdate, start, thread, shape, b.attributes, b.span)
    }

    /// `negate-start` and so on.
    #[expect(clippy::too_many_arguments, reason = "they are the parts of one instruction")]
    pub(super) fn sugar(
        &mut self,
        opcode: Opcode,
        word: &str,
        step: Step,
        shape: Option<ShapeId>,
        operands: Operands,
        attributes: &mut Attributes<'t>,
        span: Span,
    ) -> Res<Draft> {
        let Some(shape) = shape else { return no_shape(span, word) };
        if step == Step::Start {
            let op = self.wrapped(&opcode, word, shape, &operands, attributes, span)?;
            return Ok(Draft { shape, op, operands });
        }
        let start = self.start_of(&operands, span, word)?;
        let root = self.module.comp(start.calls).root;
        let found = self.module.instr(root).op.opcode();
        let base = super::opcodes::split_step(word).map_or(word, |(base, _)| base);
        if found != base {
            return fail("P060", span, format!("expected the operation of the start, `{found}`, found `{base}`"));
        }
        if step == Step::Update && operands.len() > 1 {
            self.bind_late(start.calls, shape, &operands[1..]);
        }
        let thread = thread(attributes);
        let op = self.follow(step == Step::Update, start, thread, Some(shape), attributes, span)?;
        Ok(Draft { shape, op, operands })
    }

    /// Whether a collective's start is in truth the sugar of a wrapped one: XLA prints both alike. Only the latter has its operands in
    /// a tuple of one; of several operands the two cannot be told apart, but XLA's `AsyncCollectiveCreator` makes all of a module in one form,
    /// so that another start of the text tells.
    pub(super) fn is_wrapped_collective(
        &self,
        opcode: &Opcode,
        shape: Option<ShapeId>,
        operands: &Operands,
        attributes: &Attributes<'t>,
    ) -> bool {
        let Some(shape) = shape else { return false };
        let shapes = &self.module.shapes;
        match opcode.make {
            Make::Collective(_, true) => {
                let first = shapes.elements(shape).first().copied();
                let is_tuple = first.is_some_and(|f| matches!(shapes.get(f), Shape::Tuple(_)));
                is_tuple && (operands.len() == 1 || attributes.has(Attr::OutputToOperandAliasing) || self.wraps_collectives())
            }
            Make::CollectiveDone(_) => {
                operands.first().is_some_and(|&o| matches!(self.module.instr(o).op, Op::AsyncStart(_) | Op::AsyncUpdate(_)))
            }
            _ => false,
        }
    }

    fn wraps_collectives(&self) -> bool {
        *self
            .wraps_collectives
            .get_or_init(|| ["all-gather-start(", "all-reduce-start("].iter().any(|word| has_tuple_of_one(self.text, word)))
    }

    fn wrapped(
        &mut self,
        opcode: &Opcode,
        word: &str,
        shape: ShapeId,
        operands: &Operands,
        attributes: &mut Attributes<'t>,
        span: Span,
    ) -> Res<Op> {
        self.check_form(Some(shape), span)?;
        let base = super::opcodes::split_step(word).map_or(word, |(base, _)| base);
        if matches!(opcode.make, Make::Parameter | Make::Constant | Make::AsyncStart | Make::AsyncUpdate | Make::AsyncDone) {
            return fail("P060", span, format!("unexpected asynchronous form of `{base}`: it crashes XLA's own parser"));
        }
        if let Some(arity) = opcode.arity
            && usize::from(arity) != operands.len()
        {
            if operands.is_empty() && self.module.is_scheduled {
                return fail(
                    "P060",
                    span,
                    "expected the operands at the start: binding them later crashes XLA's parser of scheduled modules",
                );
            }
            self.late.push((span, arity, None));
        }
        let result = self.module.shapes.elements(shape)[1];
        let mut order = Vec::new();
        for (number, &operand) in (0i64..).zip(operands) {
            let shape = self.module.instr(operand).shape;
            order.push(self.module.define(Instruction::new(format!("param_{number}"), shape, Op::Parameter { number }, [])));
        }
        let parameters: Operands = order.iter().copied().collect();
        let thread = thread(attributes).flatten();
        let aliasing = aliasing(attributes);
        let draft = self.build(opcode, base, Some(result), parameters, attributes, span)?;
        let root = self.module.define(Instruction::new(base, draft.shape, draft.op, draft.operands));
        if let Some((.., late @ None)) = self.late.last_mut() {
            *late = Some(root);
        }
        let parameters = order.clone();
        order.push(root);
        let computation = Computation { order, parameters, root, thread: thread.clone(), span, ..Computation::new("async_wrapped") };
        let calls = self.module.computations.push(computation);
        self.module.listing.push(calls);
        self.unnamed.push(calls);
        Ok(Op::AsyncStart(Box::new(Async { calls, thread, aliasing })))
    }

    /// Operands that an update adds become parameters of the wrapped computation.
    fn bind_late(&mut self, calls: CompId, shape: ShapeId, operands: &[InstrId]) {
        let root = self.module.comp(calls).root;
        for &operand in operands {
            let number = i64::try_from(self.module.comp(calls).parameters.len()).expect("a computation has few parameters");
            let shape = self.module.instr(operand).shape;
            let id = self.module.define(Instruction::new(format!("param_{number}"), shape, Op::Parameter { number }, []));
            let computation = &mut self.module.computations[calls];
            let end = computation.order.len() - 1;
            computation.order.insert(end, id);
            computation.parameters.push(id);
            self.module.instructions[root].operands.push(id);
        }
        if let Some(&result) = self.module.shapes.elements(shape).get(1) {
            self.module.instructions[root].shape = result;
        }
    }

    /// Operations that were started without all operands must have got them by the end.
    pub(super) fn check_late(&self) -> Res<()> {
        for &(span, arity, root) in &self.late {
            let count = root.map_or(0, |root| self.module.instr(root).operands.len());
            if count != usize::from(arity) {
                return fail("P040", span, format!("expected {arity} operands at the start or at an update, found {count}"));
            }
        }
        Ok(())
    }

    fn start_of(&self, operands: &Operands, span: Span, word: &str) -> Res<Async> {
        let Some(&first) = operands.first() else {
            return fail("P040", span, format!("expected an operand of `{word}`, found none"));
        };
        match &self.module.instr(first).op {
            Op::AsyncStart(op) | Op::AsyncUpdate(op) => Ok((**op).clone()),
            _ => {
                let name = &self.module.instr(first).name;
                fail("P060", span, format!("expected an asynchronous start or update for the operand, found `{name}`"))
            }
        }
    }

    fn follow(
        &mut self,
        is_update: bool,
        start: Async,
        thread: Option<Option<Box<str>>>,
        shape: Option<ShapeId>,
        attributes: &mut Attributes<'t>,
        span: Span,
    ) -> Res<Op> {
        if let Some(thread) = thread
            && thread != start.thread
        {
            let name = |t: &Option<Box<str>>| t.as_deref().unwrap_or("main").to_owned();
            return fail("P060", span, format!("expected the thread of the start, `{}`, found `{}`", name(&start.thread), name(&thread)));
        }
        if is_update {
            self.check_form(shape, span)?;
        }
        let op = Box::new(Async { calls: start.calls, thread: start.thread, aliasing: aliasing(attributes) });
        Ok(if is_update { Op::AsyncUpdate(op) } else { Op::AsyncDone(op) })
    }

    /// The shape of a start or update is `((operands…), result, …)`.
    fn check_form(&self, shape: Option<ShapeId>, span: Span) -> Res<()> {
        let shapes = &self.module.shapes;
        let fits = shape.is_some_and(|s| match shapes.elements(s) {
            [first, _, ..] => matches!(shapes.get(*first), Shape::Tuple(_)),
            _ => false,
        });
        if fits { Ok(()) } else { fail("P060", span, "expected a shape of the form `((operands…), result, …)`") }
    }
}

/// The thread that is said: `Some(None)` is `main`.
fn thread(attributes: &mut Attributes<'_>) -> Option<Option<Box<str>>> {
    match attributes.take(Attr::AsyncExecutionThread) {
        Some(Value::Text(thread)) => Some(if matches!(&*thread, "main" | "") { None } else { Some(thread) }),
        _ => None,
    }
}

fn aliasing(attributes: &mut Attributes<'_>) -> Vec<crate::ir::OutputAlias> {
    match attributes.take(Attr::OutputToOperandAliasing) {
        Some(Value::Aliases(aliases)) => aliases,
        _ => Vec::new(),
    }
}

/// Whether some line with that word begins its shape with a tuple of one: `a = ((f32[4]{0}), f32[8]{0}) WORD`.
fn has_tuple_of_one(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        let Some((_, shape)) = line.split_once(" = ((") else { return false };
        let mut depth = 0u32;
        for c in shape.chars() {
            match c {
                '[' | '{' | '(' => depth += 1,
                ')' if depth == 0 => return true,
                ']' | '}' | ')' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => return false,
                _ => {}
            }
        }
        false
    })
}
