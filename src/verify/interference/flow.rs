//! From the program to what is played: which cells share values and buffers, and the events in the order of the flattened schedule.

use rustc_hash::FxHashMap;

use super::cells::{Cell, Cells, Playing};
use super::in_place;
use crate::ir::{CompId, InstrId, Module, Op};

/// Playings may have so many instructions beyond four times the program's.
const SLACK: usize = 1 << 20;

/// The program calls its computations from so many places that playing them all is not possible.
#[derive(Debug)]
pub(super) struct TooLarge;

/// Something that happens at a time.
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// An instruction reads its operands and writes its results.
    Run(Playing, InstrId),
    /// A position is read by the end of a computation or by a done.
    Read(Cell, InstrId),
    /// A value is made without an instruction that runs: a parameter of the entry, the result of a conditional.
    Write(Cell),
    /// The value at `from` goes on as that at `to`, in the same buffer.
    Rename { from: Cell, to: Cell, by: InstrId },
    /// An asynchronous operation ends: its operand must be whole, but for what the operation itself (cells `own`) wrote there.
    Held { cell: Cell, by: InstrId, own: (Cell, Cell) },
    /// A branch of a conditional begins; the contents are those before the conditional.
    Branch(bool),
    /// All branches are over.
    Join,
}

/// The program as it is played.
pub(super) struct Flow {
    pub(super) cells: Cells,
    pub(super) events: Vec<Event>,
    /// Constants and parameters that are not donated.
    pub(super) fixed: Vec<Cell>,
}

/// What is to be done when a computation has been played.
enum After {
    Nothing,
    Condition,
    Body {
        at: Site,
    },
    /// A branch of a conditional; `last` ends it.
    Branch {
        at: Site,
        all: Vec<Playing>,
        last: bool,
    },
    Call(Site),
    Async(Site),
}

/// An instruction in a playing.
#[derive(Clone, Copy)]
struct Site {
    playing: Playing,
    id: InstrId,
}

struct Frame {
    playing: Playing,
    next: usize,
    after: After,
    /// `Some(first)` where a branch event comes first.
    branch: Option<bool>,
}

struct Builder<'m> {
    module: &'m Module,
    flow: Flow,
    stack: Vec<Frame>,
    /// Cells that an open asynchronous operation wrote, by its start's first cell.
    wrote: FxHashMap<Cell, (Cell, Cell)>,
    budget: usize,
}

impl Flow {
    /// Plays the schedule. The module must keep all other promises.
    pub(super) fn build(module: &Module) -> Result<Self, TooLarge> {
        let flow = Self { cells: Cells::new(module), events: Vec::new(), fixed: Vec::new() };
        let budget = module.live().count() * 4 + SLACK;
        let mut b = Builder { module, flow, stack: Vec::new(), wrote: FxHashMap::default(), budget };
        let entry = b.open(module.entry_id())?;
        b.entry(entry);
        b.push(entry, After::Nothing);
        b.run()?;
        b.outputs(entry);
        Ok(b.flow)
    }
}

impl<'m> Builder<'m> {
    fn cells(&mut self) -> &mut Cells {
        &mut self.flow.cells
    }

    fn event(&mut self, event: Event) {
        self.flow.events.push(event);
    }

    fn open(&mut self, comp: CompId) -> Result<Playing, TooLarge> {
        // Cells are limited as well as instructions: a tuple of thousands costs what it holds.
        let before = self.flow.cells.len() as usize;
        let playing = self.flow.cells.open(self.module, comp);
        let cost = self.module.comp(comp).order.len().max((self.flow.cells.len() as usize - before) / 64);
        self.budget = self.budget.checked_sub(cost).ok_or(TooLarge)?;
        Ok(playing)
    }

    fn push(&mut self, playing: Playing, after: After) {
        self.stack.push(Frame { playing, next: 0, after, branch: None });
    }

    fn all(&self, at: Site) -> std::ops::Range<Cell> {
        self.flow.cells.all(self.module, at.playing, at.id)
    }

    fn parameter(&self, playing: Playing, number: usize) -> Option<std::ops::Range<Cell>> {
        let id = *self.module.comp(playing.comp).parameters.get(number)?;
        Some(self.all(Site { playing, id }))
    }

    fn root(&self, playing: Playing) -> std::ops::Range<Cell> {
        self.all(Site { playing, id: self.module.comp(playing.comp).root })
    }

    fn operand(&self, at: Site, number: usize) -> std::ops::Range<Cell> {
        let id = self.module.instr(at.id).operands[number];
        self.all(Site { playing: at.playing, id })
    }

    /// Cell by cell: `cells` hold the values of `sources`.
    fn forward(&mut self, cells: std::ops::Range<Cell>, sources: std::ops::Range<Cell>) {
        for (cell, source) in cells.zip(sources) {
            self.cells().forward(cell, source);
        }
    }

    fn share(&mut self, a: std::ops::Range<Cell>, b: std::ops::Range<Cell>) {
        for (a, b) in a.zip(b) {
            self.cells().share(a, b);
        }
    }

    fn entry(&mut self, entry: Playing) {
        let header = &self.module.header;
        let mut fixed: Vec<Cell> = Vec::new();
        let parameters = self.module.entry().parameters.clone();
        for &id in &parameters {
            let cells = self.all(Site { playing: entry, id });
            cells.clone().for_each(|c| self.event(Event::Write(c)));
            fixed.extend(cells);
        }
        let donated =
            header.input_output_alias.iter().map(|a| (a.parameter, &a.index)).chain(header.buffer_donor.iter().map(|(p, i)| (*p, i)));
        let mut free = Vec::new();
        for (number, path) in donated {
            let Some(&id) = usize::try_from(number).ok().and_then(|n| parameters.get(n)) else { continue };
            let Some((first, count)) = self.flow.cells.leaves.at(self.module, self.module.instr(id).shape, path) else { continue };
            let base = self.flow.cells.of(entry, id) + first;
            free.extend(base..base + count);
        }
        free.sort_unstable();
        fixed.retain(|c| free.binary_search(c).is_err());
        self.flow.fixed = fixed;
        // Outputs that take the buffers of parameters.
        let root = self.root(entry);
        for alias in &header.input_output_alias {
            let Some(&id) = usize::try_from(alias.parameter).ok().and_then(|n| parameters.get(n)) else { continue };
            let output = self.flow.cells.leaves.at(self.module, self.module.instr(self.module.entry().root).shape, &alias.output);
            let input = self.flow.cells.leaves.at(self.module, self.module.instr(id).shape, &alias.index);
            let (Some((output, count)), Some((input, _))) = (output, input) else { continue };
            let (output, input) = (root.start + output, self.flow.cells.of(entry, id) + input);
            self.share(output..output + count, input..input + count);
        }
    }

    fn outputs(&mut self, entry: Playing) {
        let root = self.module.comp(entry.comp).root;
        self.root(entry).for_each(|c| self.event(Event::Read(c, root)));
    }

    fn run(&mut self) -> Result<(), TooLarge> {
        while let Some(frame) = self.stack.last_mut() {
            let playing = frame.playing;
            let first = frame.branch.take();
            let next = self.module.comp(playing.comp).order.get(frame.next).copied();
            frame.next += 1;
            if let Some(first) = first {
                self.event(Event::Branch(first));
            }
            match next {
                Some(id) => self.step(Site { playing, id })?,
                None => {
                    let frame = self.stack.pop().expect("it was there");
                    self.leave(frame);
                }
            }
        }
        Ok(())
    }

    /// What an instruction does to the cells, and the events that it makes.
    fn step(&mut self, at: Site) -> Result<(), TooLarge> {
        let module: &'m Module = self.module;
        let i = module.instr(at.id);
        let own = self.all(at);
        match &i.op {
            Op::Parameter { .. } => {}
            Op::Bitcast | Op::OptBarrier | Op::AddDependency | Op::Domain(_) => self.forward(own, self.operand(at, 0)),
            // A copy of a tuple copies only its table.
            Op::Copy if module.shapes.array(i.shape).is_none() => self.forward(own, self.operand(at, 0)),
            Op::Tuple => {
                let mut next = own.start;
                for number in 0..i.operands.len() {
                    let source = self.operand(at, number);
                    let end = next + (source.end - source.start);
                    self.forward(next..end, source);
                    next = end;
                }
            }
            Op::GetTupleElement { index } => {
                let tuple = module.instr(i.operands[0]).shape;
                let index = usize::try_from(*index).expect("H03 holds");
                let (first, count) = self.flow.cells.leaves.element(module, tuple, index);
                let source = self.operand(at, 0).start + first;
                self.forward(own, source..source + count);
            }
            Op::While { condition, body } => self.enter_loop(at, *condition, *body)?,
            Op::Conditional { branches, .. } => self.enter_branches(at, branches)?,
            Op::Call { to_apply, .. } => {
                let playing = self.open(*to_apply)?;
                self.pass(at, playing, 0);
                self.push(playing, After::Call(at));
            }
            Op::AsyncStart(start) => {
                let playing = self.open(start.calls)?;
                self.pass(at, playing, 0);
                self.push(playing, After::Async(at));
            }
            Op::AsyncUpdate(_) => self.forward(own, self.operand(at, 0)),
            Op::AsyncDone(_) | Op::CopyDone | Op::CollectiveDone(_) | Op::SendDone(_) | Op::RecvDone(_) => self.done(at),
            Op::CopyStart { .. } | Op::Send(_) | Op::Collective(_) => {
                self.start(at);
                self.generic(at);
            }
            Op::Constant(_) => {
                self.flow.fixed.extend(own);
                self.event(Event::Run(at.playing, at.id));
            }
            _ => self.generic(at),
        }
        Ok(())
    }

    /// An instruction that makes its values, some of them in place.
    fn generic(&mut self, at: Site) {
        let own = self.all(at).start;
        for pair in in_place::pairs(self.module, at.id) {
            let shape = |id: InstrId| self.module.instr(id).shape;
            let output = self.flow.cells.leaves.at(self.module, shape(at.id), &pair.output);
            let operand_id = self.module.instr(at.id).operands[pair.operand];
            let input = self.flow.cells.leaves.at(self.module, shape(operand_id), &pair.index);
            if let (Some((output, count)), Some((input, _))) = (output, input) {
                let input = self.operand(at, pair.operand).start + input;
                self.share(own + output..own + output + count, input..input + count);
            }
        }
        self.event(Event::Run(at.playing, at.id));
    }

    /// The operand that a start hands on in its own tuple.
    fn start(&mut self, at: Site) {
        let module = self.module;
        let i = module.instr(at.id);
        let own = self.all(at);
        let element = |index: usize| self.flow.cells.leaves.element(module, i.shape, index);
        match &i.op {
            Op::CopyStart { .. } => {
                let (first, count) = element(1);
                let source = self.operand(at, 0);
                self.forward(own.start + first..own.start + first + count, source);
            }
            Op::Send(_) => {
                let (first, count) = element(0);
                let source = self.operand(at, 0);
                self.forward(own.start + first..own.start + first + count, source);
            }
            // ((operands), (results), …); an all-reduce has results alone.
            Op::Collective(c) if c.start && c.kind != crate::ir::CollectiveKind::AllReduce => {
                let (mut next, count) = element(0);
                let end = own.start + next + count;
                next += own.start;
                for number in 0..i.operands.len() {
                    let source = self.operand(at, number);
                    let stop = (next + (source.end - source.start)).min(end);
                    self.forward(next..stop, source);
                    next = stop;
                }
            }
            _ => {}
        }
    }

    /// A done hands on the result of its start, and what the start reads must have lasted until now.
    fn done(&mut self, at: Site) {
        let module = self.module;
        let i = module.instr(at.id);
        let own = self.all(at);
        let operand = self.operand(at, 0);
        let shape = module.instr(i.operands[0]).shape;
        let index = match &i.op {
            Op::AsyncDone(_) => Some(1),
            Op::CopyDone | Op::RecvDone(_) => Some(0),
            Op::CollectiveDone(crate::ir::CollectiveKind::AllReduce) => None,
            Op::CollectiveDone(_) => Some(1),
            // A send gives back a token alone.
            _ => Some(usize::MAX),
        };
        match index {
            None => self.forward(own.clone(), operand.clone()),
            Some(index) => {
                let (first, count) = self.flow.cells.leaves.element(module, shape, index);
                let first = operand.start + first;
                // A receive's token is its own.
                self.forward(own.clone(), first..first + count);
            }
        }
        own.for_each(|c| self.event(Event::Read(c, at.id)));
        let mut start = i.operands[0];
        while let Op::AsyncUpdate(_) = module.instr(start).op {
            start = module.instr(start).operands[0];
        }
        let site = Site { playing: at.playing, id: start };
        let cells = self.all(site);
        let wrote = self.wrote.get(&cells.start).copied().unwrap_or((cells.start, cells.end));
        if !matches!(module.instr(start).op, Op::CopyStart { .. } | Op::Send(_) | Op::Collective(_) | Op::AsyncStart(_)) {
            return;
        }
        for number in 0..module.instr(start).operands.len() {
            self.operand(site, number).for_each(|cell| self.event(Event::Held { cell, by: at.id, own: wrote }));
        }
    }

    /// Parameters hold the values of the caller's operands, from `first` on.
    fn pass(&mut self, at: Site, playing: Playing, first: usize) {
        let count = self.module.instr(at.id).operands.len() - first;
        for number in 0..count {
            if let Some(parameter) = self.parameter(playing, number) {
                self.forward(parameter, self.operand(at, first + number));
            }
        }
    }

    fn enter_loop(&mut self, at: Site, condition: CompId, body: CompId) -> Result<(), TooLarge> {
        let condition = self.open(condition)?;
        let body = self.open(body)?;
        let init = self.operand(at, 0);
        let carried = self.parameter(body, 0).expect("S09 holds");
        let tested = self.parameter(condition, 0).expect("S09 holds");
        self.forward(tested, carried.clone());
        self.share(carried.clone(), init.clone());
        for (from, to) in init.zip(carried) {
            self.event(Event::Rename { from, to, by: at.id });
        }
        self.push(body, After::Body { at });
        self.push(condition, After::Condition);
        Ok(())
    }

    fn enter_branches(&mut self, at: Site, branches: &[CompId]) -> Result<(), TooLarge> {
        let index = self.operand(at, 0);
        index.for_each(|c| self.event(Event::Read(c, at.id)));
        let mut all = Vec::with_capacity(branches.len());
        for (number, &branch) in branches.iter().enumerate() {
            let playing = self.open(branch)?;
            if let Some(parameter) = self.parameter(playing, 0) {
                self.forward(parameter, self.operand(at, number + 1));
            }
            all.push(playing);
        }
        for (number, &playing) in all.iter().enumerate().rev() {
            let last = number + 1 == all.len();
            let after = After::Branch { at, all: if last { all.clone() } else { Vec::new() }, last };
            self.stack.push(Frame { playing, next: 0, after, branch: Some(number == 0) });
        }
        Ok(())
    }

    fn leave(&mut self, frame: Frame) {
        let playing = frame.playing;
        let root_id = self.module.comp(playing.comp).root;
        let root = self.root(playing);
        match frame.after {
            After::Nothing => {}
            After::Condition => root.for_each(|c| self.event(Event::Read(c, root_id))),
            After::Body { at } => {
                let carried = self.parameter(playing, 0).expect("S09 holds");
                let init = self.operand(at, 0);
                let own = self.all(at);
                for (((root, carried), init), own) in root.zip(carried).zip(init).zip(own) {
                    self.event(Event::Read(root, root_id));
                    self.cells().share(root, carried);
                    self.cells().share(own, carried);
                    if self.cells().value(root) == carried {
                        // Handed on unchanged: one value before, in and after the loop.
                        self.cells().forward(carried, init);
                        self.cells().forward(own, init);
                    } else {
                        self.event(Event::Rename { from: root, to: own, by: at.id });
                    }
                }
            }
            After::Branch { at, all, last } => {
                root.for_each(|c| self.event(Event::Read(c, root_id)));
                if last {
                    self.event(Event::Join);
                    let roots: Vec<_> = all.iter().map(|&p| self.root(p).start).collect();
                    for (offset, own) in (0..).zip(self.all(at)) {
                        let value = self.cells().value(roots[0] + offset);
                        let same = roots.iter().all(|&r| self.flow.cells.value(r + offset) == value);
                        roots.iter().for_each(|&r| self.flow.cells.share(own, r + offset));
                        if same {
                            self.cells().forward(own, value);
                        } else {
                            self.event(Event::Write(own));
                        }
                    }
                }
            }
            After::Call(at) => self.forward(self.all(at), root),
            After::Async(at) => {
                let own = self.all(at);
                let shape = self.module.instr(at.id).shape;
                let element = |index: usize| self.flow.cells.leaves.element(self.module, shape, index);
                let ((operands, given), (result, count)) = (element(0), element(1));
                let mut next = own.start + operands;
                let end = next + given;
                for number in 0..self.module.instr(at.id).operands.len() {
                    let source = self.operand(at, number);
                    let stop = (next + (source.end - source.start)).min(end);
                    self.forward(next..stop, source);
                    next = stop;
                }
                let result = own.start + result;
                self.forward(result..result + count, root);
                let wrote = (playing.base, self.flow.cells.len());
                self.wrote.insert(own.start, wrote);
            }
        }
    }
}
