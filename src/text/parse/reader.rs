//! One text on its way to a module: what was read so far, and the steps of a whole file.

use std::cell::OnceCell;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Parsed;
use super::computation::Body;
use super::cursor::Cursor;
use super::errors::{Errors, Res, fail};
use crate::diag::{Diagnostic, Span};
use crate::ir::{CompId, Entity, InstrId, Module, Op, ShapeId};

/// A text on its way to a module.
pub(super) struct Reader<'t> {
    pub(super) text: &'t str,
    pub(super) module: Module,
    pub(super) errors: Errors,
    /// Arrays by their text, default layouts filled in.
    pub(super) shapes: FxHashMap<&'t str, ShapeId>,
    /// Computations by name.
    pub(super) comps: FxHashMap<&'t str, CompId>,
    /// Computations that were to be defined but had errors.
    pub(super) broken: FxHashSet<&'t str>,
    /// Computations without a name in the text, which get one at the end.
    pub(super) unnamed: Vec<CompId>,
    /// Computations within instructions within computations …
    pub(super) depth: usize,
    /// Asynchronous sugar that was started without all its operands: its place, its number of operands, the wrapped operation.
    pub(super) late: Vec<(Span, u8, Option<InstrId>)>,
    /// Number of rows of the table of stack frames, if there are tables.
    pub(super) frames: Option<usize>,
    /// Whether the compiler that wrote this text wraps its asynchronous collectives; found out when it matters.
    pub(super) wraps_collectives: OnceCell<bool>,
}

/// The instructions of a computation while it is read.
#[derive(Default)]
pub(super) struct Scope<'t> {
    /// Instructions by name.
    pub(super) names: FxHashMap<&'t str, InstrId>,
    /// Names that were to be defined but had errors.
    pub(super) broken: FxHashSet<&'t str>,
    /// `name#index` that was read before.
    pub(super) parts: FxHashMap<(InstrId, i64), InstrId>,
    /// The names that were made for instructions without one; the text may use them.
    pub(super) generated: FxHashMap<Box<str>, InstrId>,
    /// Instructions that the text does not name.
    pub(super) unnamed: Vec<InstrId>,
    pub(super) order: Vec<InstrId>,
    /// Parameters in the order they stand, with their numbers.
    pub(super) parameters: Vec<(i64, InstrId)>,
    pub(super) root: Option<InstrId>,
    /// Whether operands that are not defined become parameters.
    pub(super) is_free: bool,
    /// Whether some instruction had an error.
    pub(super) has_errors: bool,
}

impl<'t> Scope<'t> {
    /// The instruction of that name.
    #[inline]
    pub(super) fn resolve(&self, name: &str, span: Span) -> Res<InstrId> {
        match self.names.get(name) {
            Some(&id) => Ok(id),
            None if self.broken.contains(name) => Err(super::errors::Fail::silent()),
            None => fail("P036", span, format!("expected an instruction that stands before this one, found `{name}`")),
        }
    }
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            module: Module::default(),
            errors: Errors::default(),
            shapes: FxHashMap::default(),
            comps: FxHashMap::default(),
            broken: FxHashSet::default(),
            unnamed: Vec::new(),
            depth: 0,
            late: Vec::new(),
            frames: None,
            wraps_collectives: OnceCell::new(),
        }
    }

    /// Reads the whole text.
    pub(super) fn read(mut self) -> Result<Parsed, Vec<Diagnostic>> {
        let mut cur = Cursor { text: self.text, at: 0 };
        if let Err(f) = self.file(&mut cur) {
            self.errors.fail(f);
        }
        if self.errors.any() {
            return Err(self.errors.into_list(cur.at));
        }
        self.name_the_unnamed();
        Ok(Parsed { module: self.module, warnings: self.errors.into_list(cur.at) })
    }

    fn file(&mut self, cur: &mut Cursor<'t>) -> Res<()> {
        cur.blanks();
        if !begins_module(*cur) {
            return self.single_instruction(cur);
        }
        let has_header = starts_with_word(cur, "HloModule");
        if has_header && let Err(f) = self.header(cur).and_then(|()| self.tables(cur)) {
            let from = f.place().unwrap_or(cur.at).max(cur.at);
            self.errors.fail(f);
            cur.at = next_head(self.text, from);
        }
        let mut entry = None;
        let mut count = 0usize;
        while !cur.at_end() && !self.errors.full() {
            if cur.peek() == 0 && cur.at_end() {
                break;
            }
            let start = cur.at;
            count += 1;
            if let Err(f) = self.computation(cur, &mut entry) {
                let from = f.place().unwrap_or(start).max(start);
                self.errors.fail(f);
                cur.at = next_head(self.text, from.max(cur.at));
            }
        }
        if self.errors.any() {
            return Ok(());
        }
        let last = self.module.listing.last().copied();
        let Some(entry) = entry.or(last) else {
            debug_assert!(count == 0);
            return cur.expected("a computation").map_err(|f| f.note("a module has at least one computation"));
        };
        self.module.entry = Some(entry);
        if !has_header {
            self.module.name = format!("module_{}", self.module.comp(entry).name).into();
        }
        self.check_late()?;
        self.check_aliases()?;
        self.check_async_calls()
    }

    /// `[name =] [shape] opcode(operands), attributes`: a module of one computation whose parameters are the undefined operands.
    fn single_instruction(&mut self, cur: &mut Cursor<'t>) -> Res<()> {
        if cur.at_end() {
            return fail("P033", Span::new(cur.at, cur.at), "expected a module or an instruction, found nothing");
        }
        let mut scope = Scope { is_free: true, ..Scope::default() };
        self.statement(&mut scope, cur)?;
        if cur.peek() != 0 || !cur.at_end() {
            return cur
                .expected("the end of the file after a single instruction")
                .map_err(|f| f.note("a module begins with `HloModule`, with `ENTRY` or with `name {`"));
        }
        self.module.name = "_".into();
        self.module.is_scheduled = true;
        let span = Span::new(0, self.text.len());
        let id = self.finish_computation("_", scope, Body { span, result: None, thread: None, backend_config: None })?;
        self.module.entry = Some(id);
        Ok(())
    }

    /// Gives names to the computations that the text did not name.
    fn name_the_unnamed(&mut self) {
        if !self.unnamed.is_empty() {
            let mut taken: FxHashSet<Box<str>> = self.module.listing.iter().map(|&c| self.module.comp(c).name.clone()).collect();
            for &comp in &self.unnamed {
                let base = std::mem::take(&mut self.module.computations[comp].name);
                self.module.computations[comp].name = Module::fresh_name(&base, &mut taken);
            }
        }
    }

    /// A computation that runs asynchronously is called by asynchronous operations only.
    fn check_async_calls(&mut self) -> Res<()> {
        let mut is_async = vec![false; self.module.computations.len()];
        let mut any = false;
        for instr in self.module.instructions.values() {
            if let Op::AsyncStart(op) = &instr.op {
                is_async[op.calls.index()] = true;
                any = true;
            }
        }
        if !any {
            return Ok(());
        }
        for (_, id) in self.module.live() {
            let instr = self.module.instr(id);
            if matches!(instr.op, Op::AsyncStart(_) | Op::AsyncUpdate(_) | Op::AsyncDone(_)) {
                continue;
            }
            if let Some(comp) = instr.op.called().into_iter().find(|c| is_async[c.index()]) {
                let name = &self.module.comp(comp).name;
                return fail("P060", instr.span, format!("expected only asynchronous callers of `{name}`, which `async-start` calls"));
            }
        }
        Ok(())
    }

    /// Whether a stack frame exists; a warning if not.
    pub(super) fn check_frame(&mut self, frame: i32, span: Span) {
        let exists = frame == 0 || self.frames.is_none() || usize::try_from(frame).is_ok_and(|f| Some(f) <= self.frames);
        if !exists {
            let message = format!("expected a stack frame from 1 to {}, found {frame}", self.frames.unwrap_or(0));
            self.errors.warn(Diagnostic::warning("P061", message).at(span, ""));
        }
    }
}

fn starts_with_word(cur: &Cursor<'_>, word: &str) -> bool {
    cur.rest().starts_with(word) && !cur.rest().as_bytes().get(word.len()).is_some_and(|b| super::cursor::is_word(*b))
}

fn begins_module(cur: Cursor<'_>) -> bool {
    if starts_with_word(&cur, "HloModule") || starts_with_word(&cur, "ENTRY") {
        return true;
    }
    let mut ahead = cur;
    if ahead.byte() == b'%' {
        ahead.at += 1;
    }
    !ahead.word_here().is_empty() && ahead.peek() == b'{'
}

/// The next line that looks like the head of a computation: not indented, `{` at its end.
pub(super) fn next_head(text: &str, from: usize) -> usize {
    let mut at = from.min(text.len());
    loop {
        match text[at..].find('\n') {
            None => return text.len(),
            Some(n) => at += n + 1,
        }
        if is_head(text, at) {
            return at;
        }
    }
}

/// Whether the line at `at` is not indented, begins a name and ends with `{`.
pub(super) fn is_head(text: &str, at: usize) -> bool {
    let bytes = &text.as_bytes()[at..];
    let begins = bytes.first().is_some_and(|b| *b == b'%' || super::cursor::begins_word(*b));
    if !begins {
        return false;
    }
    let line = bytes.iter().position(|b| *b == b'\n').map_or(bytes, |n| &bytes[..n]);
    line.trim_ascii_end().last() == Some(&b'{')
}
