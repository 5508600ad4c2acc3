//! Plays the events: what does each buffer hold, and is it what is read?

use rustc_hash::{FxHashMap, FxHashSet};

use super::cells::{Cell, Playing};
use super::flow::{Event, Flow};
use super::in_place::may_overwrite;
use super::{Clash, ClashKind};
use crate::ir::{InstrId, Module};

/// No value yet.
const NOTHING: Cell = Cell::MAX;

struct State<'m, 'f> {
    module: &'m Module,
    flow: &'f mut Flow,
    /// The value that each buffer holds, by the buffer's name.
    holds: Vec<Cell>,
    /// The constant or lasting parameter of a buffer.
    fixed: FxHashMap<Cell, Cell>,
    /// Open conditionals.
    branches: Vec<Open>,
    seen: FxHashSet<(InstrId, InstrId, ClashKind)>,
    clashes: Vec<Clash>,
}

/// A conditional whose branches are being played.
#[derive(Default)]
struct Open {
    /// Buffers that the current branch changed, with what they held before.
    log: Vec<(Cell, Cell)>,
    /// What branches before it left in buffers.
    left: Vec<(Cell, Cell)>,
}

pub(super) fn play(module: &Module, flow: &mut Flow) -> Vec<Clash> {
    let events = std::mem::take(&mut flow.events);
    let holds = vec![NOTHING; flow.cells.len() as usize];
    let mut fixed = FxHashMap::default();
    for cell in std::mem::take(&mut flow.fixed) {
        fixed.entry(flow.cells.buffer(cell)).or_insert(cell);
    }
    let mut state = State { module, flow, holds, fixed, branches: Vec::new(), seen: FxHashSet::default(), clashes: Vec::new() };
    for event in events {
        state.event(event);
    }
    state.clashes
}

impl State<'_, '_> {
    fn event(&mut self, event: Event) {
        match event {
            Event::Run(playing, id) => self.run(playing, id),
            Event::Read(cell, by) => self.read(cell, by, None),
            Event::Held { cell, by, own } => self.read(cell, by, Some(own)),
            Event::Write(cell) => self.write(cell, None),
            Event::Rename { from, to, by } => {
                if self.flow.cells.value(from) != self.flow.cells.value(to) {
                    self.read(from, by, None);
                    let buffer = self.flow.cells.buffer(to);
                    self.put(buffer, to);
                }
            }
            Event::Branch(first) => {
                if first {
                    self.branches.push(Open::default());
                } else {
                    self.undo();
                }
            }
            Event::Join => {
                self.undo();
                let open = self.branches.pop().expect("a join ends a conditional");
                for (buffer, value) in open.left {
                    self.put(buffer, value);
                }
            }
        }
    }

    fn put(&mut self, buffer: Cell, value: Cell) {
        let before = std::mem::replace(&mut self.holds[buffer as usize], value);
        if let Some(open) = self.branches.last_mut() {
            open.log.push((buffer, before));
        }
    }

    /// Back to the contents before the conditional.
    fn undo(&mut self) {
        let Some(open) = self.branches.last_mut() else { return };
        let log = std::mem::take(&mut open.log);
        let mut left = std::mem::take(&mut open.left);
        for &(buffer, _) in &log {
            left.push((buffer, self.holds[buffer as usize]));
        }
        for (buffer, before) in log.into_iter().rev() {
            self.holds[buffer as usize] = before;
        }
        // What is as it was before is not worth a word.
        left.retain(|&(buffer, value)| self.holds[buffer as usize] != value);
        self.branches.last_mut().expect("it is open").left = left;
    }

    fn read(&mut self, cell: Cell, by: InstrId, own: Option<(Cell, Cell)>) {
        let value = self.flow.cells.value(cell);
        let buffer = self.flow.cells.buffer(cell);
        let found = self.holds[buffer as usize];
        // A context or token that nothing writes has no content to lose.
        if found == value || found == NOTHING || own.is_some_and(|(from, to)| (from..to).contains(&found)) {
            return;
        }
        let kind = if own.is_some() { ClashKind::Open } else { ClashKind::Late };
        self.clash(by, cell, value, found, kind);
    }

    fn write(&mut self, cell: Cell, by: Option<InstrId>) {
        let buffer = self.flow.cells.buffer(cell);
        if let (Some(by), Some(&fixed)) = (by, self.fixed.get(&buffer))
            && fixed != cell
        {
            self.clash(by, fixed, fixed, cell, ClashKind::Fixed);
        }
        self.put(buffer, cell);
    }

    fn clash(&mut self, reader: InstrId, read: Cell, value: Cell, writer: Cell, kind: ClashKind) {
        let [read, value, writer] = [read, value, writer].map(|cell| self.flow.cells.owner(cell));
        if self.seen.insert((value, writer, kind)) {
            self.clashes.push(Clash { reader, read, value, writer, kind });
        }
    }

    /// Reads all operands, then writes what the instruction itself makes.
    fn run(&mut self, playing: Playing, id: InstrId) {
        let module = self.module;
        let operands = &module.instr(id).operands;
        for &operand in operands {
            for cell in self.flow.cells.all(module, playing, operand) {
                self.read(cell, id, None);
            }
        }
        let own = self.flow.cells.all(module, playing, id);
        let first = own.start;
        // Values that are read here, by operand: needed only where one of them is overwritten.
        let mut read: Option<FxHashMap<Cell, Vec<usize>>> = None;
        for cell in own {
            if self.flow.cells.value(cell) != cell {
                continue;
            }
            let buffer = self.flow.cells.buffer(cell);
            let before = self.holds[buffer as usize];
            if before != NOTHING && before != cell {
                let read = read.get_or_insert_with(|| {
                    let mut map = FxHashMap::<Cell, Vec<usize>>::default();
                    for (number, &operand) in operands.iter().enumerate() {
                        for cell in self.flow.cells.all(module, playing, operand) {
                            map.entry(self.flow.cells.value(cell)).or_default().push(number);
                        }
                    }
                    map
                });
                let numbers = read.get(&before).cloned().unwrap_or_default();
                if numbers.iter().any(|&number| !may_overwrite(module, id, number, cell - first)) {
                    self.clash(id, before, before, cell, ClashKind::SameTime);
                }
            }
            self.write(cell, Some(id));
        }
    }
}
