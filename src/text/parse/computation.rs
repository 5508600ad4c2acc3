//! Computations: name, signature, body, attributes.

use super::cursor::Cursor;
use super::errors::{Res, fail};
use super::grammar::{Rule, read};
use super::reader::{Reader, Scope, is_head};
use super::strings;
use crate::diag::Span;
use crate::ir::{CompId, Computation, Entity, InstrId, Module, ShapeId};

/// Computations within instructions. XLA crashes somewhere between 1,000 and 2,000.
const DEPTH: usize = 100;

/// What stands around the instructions of a computation.
pub(super) struct Body {
    pub(super) span: Span,
    /// The result that the signature declares.
    pub(super) result: Option<(ShapeId, Span)>,
    pub(super) thread: Option<Box<str>>,
    pub(super) backend_config: Option<Box<[u8]>>,
}

impl<'t> Reader<'t> {
    /// Reads `[ENTRY] name [signature] { … } [attributes]`.
    pub(super) fn computation(&mut self, cur: &mut Cursor<'t>, entry: &mut Option<CompId>) -> Res<()> {
        cur.blanks();
        let start = cur.at;
        let head = read(cur, Rule::computation_head)?;
        let is_entry = head.as_str().starts_with("ENTRY") && head.clone().into_inner().count() == 2;
        let raw = head.into_inner().last().map_or("", |n| n.as_str());
        let name_span = Span::new(cur.at - raw.len(), cur.at);
        let name = raw.strip_prefix('%').or_else(|| raw.strip_suffix(':')).unwrap_or(raw);
        if raw == name && strings::is_reserved(name) {
            return fail("P013", name_span, format!("expected the name of a computation, found the reserved word `{name}`"));
        }
        let result = if cur.peek() == b'(' { Some(self.signature(cur)?) } else { None };
        cur.expect(b'{', "`{` and instructions")?;
        let scope = self.body(cur, start);
        let (thread, backend_config) = self.computation_attributes(cur)?;
        let span = Span::new(start, cur.at);
        if scope.has_errors {
            self.broken.insert(name);
            return Ok(());
        }
        // The computation was read to its end: what is wrong with it as a whole is said, and reading goes on right behind it.
        let body = Body { span, result, thread, backend_config };
        let is_second = is_entry && entry.is_some();
        match self.named_computation(name, name_span, is_second, scope, body) {
            Ok(id) if is_entry => *entry = Some(id),
            Ok(_) => {}
            Err(f) => self.errors.fail(f),
        }
        Ok(())
    }

    fn named_computation(&mut self, name: &'t str, name_span: Span, is_second_entry: bool, scope: Scope<'t>, body: Body) -> Res<CompId> {
        if self.comps.contains_key(name) {
            return fail("P030", name_span, format!("expected each computation once, found `{name}` twice"));
        }
        if is_second_entry {
            let start = body.span.start as usize;
            return fail("P032", Span::new(start, start + 5), "expected one `ENTRY`, found another");
        }
        let id = self.finish_computation(name, scope, body).inspect_err(|_| {
            self.broken.insert(name);
        })?;
        self.comps.insert(name, id);
        Ok(id)
    }

    /// `(p: shape, …) -> shape`: gives the result; the parameters are only looked at for their form, as in XLA.
    fn signature(&mut self, cur: &mut Cursor<'t>) -> Res<(ShapeId, Span)> {
        cur.expect(b'(', "`(`")?;
        if !cur.eat(b')') {
            loop {
                if cur.word().is_none() || cur.byte() != b':' {
                    return cur.expected("the name of a parameter with `:`");
                }
                cur.at += 1;
                self.shape(cur)?;
                if cur.eat(b')') {
                    break;
                }
                cur.expect(b',', "`,` or `)`")?;
            }
        }
        cur.blanks();
        if !cur.rest().starts_with("->") {
            return cur.expected("`->`");
        }
        cur.at += 2;
        cur.blanks();
        let start = cur.at;
        let shape = self.shape(cur)?;
        Ok((shape, cur.since(start)))
    }

    #[expect(clippy::type_complexity, reason = "thread and backend config, each said or not")]
    fn computation_attributes(&mut self, cur: &mut Cursor<'t>) -> Res<(Option<Box<str>>, Option<Box<[u8]>>)> {
        let (mut thread, mut config) = (None, None);
        while cur.eat(b',') {
            cur.blanks();
            let start = cur.at;
            let name = cur.key("an attribute name")?;
            let span = Span::new(start, cur.at - 1);
            let again = match name {
                "execution_thread" => thread.replace(Box::from(cur.text_string()?)).is_some(),
                "backend_config" => config.replace(Box::from(cur.string_or_json()?)).is_some(),
                _ => {
                    return fail("P021", span, format!("unexpected attribute `{name}` of a computation"))
                        .map_err(|f| f.note("allowed: backend_config, execution_thread"));
                }
            };
            if again {
                return fail("P020", span, format!("expected each attribute once, found `{name}` twice"));
            }
        }
        Ok((thread.filter(|t| !matches!(&**t, "main" | "")), config.filter(|c| !<[u8]>::is_empty(c))))
    }

    /// The instructions up to and with the closing brace. Errors are kept; reading goes on at the next instruction.
    fn body(&mut self, cur: &mut Cursor<'t>, opened: usize) -> Scope<'t> {
        let mut scope = Scope::default();
        loop {
            if cur.eat(b'}') {
                break;
            }
            if cur.at_end() {
                if !scope.has_errors {
                    let span = Span::new(opened, opened + 1);
                    let error = fail::<()>("P011", span, "expected `}` at the end of this computation, found the end of the file");
                    self.keep(error, &mut scope);
                }
                break;
            }
            let start = cur.at;
            if let Err(f) = self.statement(&mut scope, cur) {
                // What was consumed is not read again: a computation in an attribute has said its errors.
                let consumed = start + self.text[start..cur.at.max(start)].trim_end().len();
                let from = f.place().unwrap_or(start).max(consumed);
                self.keep(Err(f), &mut scope);
                if self.errors.full() || self.resume(cur, from) {
                    break;
                }
            }
        }
        scope
    }

    fn keep(&mut self, result: Res<()>, scope: &mut Scope<'t>) {
        if let Err(f) = result {
            scope.has_errors = true;
            self.errors.fail(f);
        }
    }

    /// Moves the cursor to the next line that looks like an instruction or like the end of the computation. Whether the computation is over.
    fn resume(&self, cur: &mut Cursor<'t>, from: usize) -> bool {
        let text = self.text;
        let mut at = from.min(text.len());
        loop {
            match text[at..].find('\n') {
                None => {
                    cur.at = text.len();
                    return true;
                }
                Some(n) => at += n + 1,
            }
            let mut line = Cursor { text, at };
            if is_head(text, at) {
                cur.at = at;
                return true;
            }
            line.at += text[at..].len() - text[at..].trim_start_matches([' ', '\t']).len();
            if line.byte() == b'}' || looks_like_instruction(line) {
                cur.at = line.at;
                return false;
            }
        }
    }

    /// Makes a computation of instructions.
    pub(super) fn finish_computation(&mut self, name: &'t str, scope: Scope<'t>, body: Body) -> Res<CompId> {
        let here = Span::new(body.span.start as usize, body.span.start as usize + 1);
        let Some(&last) = scope.order.last() else {
            return fail("P033", here, format!("expected at least one instruction in `{name}`"));
        };
        let parameters = self.parameters(&scope)?;
        let root = scope.root.unwrap_or(last);
        if let Some((result, span)) = body.result
            && !self.module.shapes.compatible(result, self.module.instr(root).shape)
        {
            let root = &self.module.instr(root).name;
            return fail("P038", span, format!("expected the shape of the root `{root}` in the signature"));
        }
        let mut taken: rustc_hash::FxHashSet<Box<str>> = rustc_hash::FxHashSet::default();
        if !scope.unnamed.is_empty() {
            taken.extend(scope.names.keys().map(|n| Box::from(*n)));
            for &id in &scope.unnamed {
                let name = Module::fresh_name(&self.module.instr(id).name.clone(), &mut taken);
                self.module.instructions[id].name = name;
            }
        }
        let computation = Computation {
            order: scope.order,
            parameters,
            root,
            thread: body.thread,
            backend_config: body.backend_config,
            span: body.span,
            ..Computation::new(name)
        };
        let id = self.module.computations.push(computation);
        self.module.listing.push(id);
        Ok(id)
    }

    fn parameters(&self, scope: &Scope<'t>) -> Res<Vec<InstrId>> {
        let count = scope.parameters.len();
        let nobody = InstrId::new(u32::MAX as usize);
        let mut out = vec![nobody; count];
        for &(number, id) in &scope.parameters {
            let span = self.module.instr(id).span;
            match usize::try_from(number).ok().and_then(|n| out.get_mut(n)) {
                None => return fail("P037", span, format!("expected parameter numbers from 0 to {}, found {number}", count - 1)),
                Some(place) if *place != nobody => {
                    return fail("P037", span, format!("expected each parameter number once, found {number} twice"));
                }
                Some(place) => *place = id,
            }
        }
        Ok(out)
    }

    /// A computation written in the place of its name: `{ … }`.
    pub(super) fn inline_computation(&mut self, cur: &mut Cursor<'t>) -> Res<CompId> {
        let start = cur.at;
        if self.depth == DEPTH {
            return fail("P014", Span::new(start, start + 1), format!("expected at most {DEPTH} computations within each other"));
        }
        cur.expect(b'{', "`{`")?;
        self.depth += 1;
        let scope = self.body(cur, start);
        self.depth -= 1;
        if scope.has_errors {
            return Err(super::errors::Fail::silent());
        }
        let body = Body { span: cur.since(start), result: None, thread: None, backend_config: None };
        let id = self.finish_computation("_", scope, body)?;
        self.unnamed.push(id);
        Ok(id)
    }
}

/// `[ROOT] [%]name =` at the cursor.
fn looks_like_instruction(mut cur: Cursor<'_>) -> bool {
    if cur.rest().starts_with("ROOT ") {
        cur.at += 5;
    }
    if cur.byte() == b'%' {
        cur.at += 1;
    } else if !super::cursor::begins_word(cur.byte()) {
        return false;
    }
    if cur.word_here().is_empty() || cur.byte() != b' ' && cur.byte() != b'=' {
        return false;
    }
    cur.at += usize::from(cur.byte() == b' ');
    cur.byte() == b'='
}
