//! The array positions of all values, numbered, with two forests over them: what value a position holds, and what buffer it is in.

use crate::ir::{CompId, Entity, EntityMap, InstrId, Module, Shape, ShapeId};

/// An array position of a value, in one playing of its computation.
pub(super) type Cell = u32;

/// Where each shape's arrays stand among all its arrays (whatever is no tuple counts as one).
pub(super) struct Leaves {
    counts: Vec<u32>,
    /// For a tuple, the first array of each element.
    firsts: Vec<Box<[u32]>>,
}

impl Leaves {
    /// Counts the arrays of every shape; inner shapes have lower ids (S01).
    pub(super) fn new(module: &Module) -> Self {
        let mut leaves = Self { counts: Vec::new(), firsts: Vec::new() };
        for id in (0..module.shapes.len()).map(ShapeId::new) {
            let mut count = 0u32;
            let mut firsts = Vec::new();
            for &element in module.shapes.elements(id) {
                firsts.push(count);
                count = count.saturating_add(leaves.count(element));
            }
            let is_tuple = matches!(module.shapes.get(id), Shape::Tuple(_));
            leaves.counts.push(if is_tuple { count } else { 1 });
            leaves.firsts.push(firsts.into());
        }
        leaves
    }

    /// The number of arrays in a shape.
    pub(super) fn count(&self, id: ShapeId) -> u32 {
        self.counts[id.index()]
    }

    /// The first array of a tuple's element and the number of arrays in it; nothing for an element that is not there.
    pub(super) fn element(&self, module: &Module, id: ShapeId, index: usize) -> (u32, u32) {
        match (module.shapes.elements(id).get(index), self.firsts[id.index()].get(index)) {
            (Some(&element), Some(&first)) => (first, self.count(element)),
            _ => (0, 0),
        }
    }

    /// The first array at an index path and the number of arrays there.
    pub(super) fn at(&self, module: &Module, mut id: ShapeId, path: &[i64]) -> Option<(u32, u32)> {
        let mut first = 0;
        for &index in path {
            let index = usize::try_from(index).ok()?;
            first += self.element(module, id, index).0;
            id = *module.shapes.elements(id).get(index)?;
        }
        Some((first, self.count(id)))
    }
}

/// A playing of a computation: its instructions' cells follow from `base`.
#[derive(Clone, Copy)]
pub(super) struct Playing {
    pub(super) comp: CompId,
    pub(super) base: Cell,
}

/// The numbering and the two forests.
pub(super) struct Cells {
    pub(super) leaves: Leaves,
    /// The first cell of an instruction, from the base of its playing.
    first: EntityMap<InstrId, u32>,
    sizes: EntityMap<CompId, u32>,
    owner: Vec<InstrId>,
    value: Vec<Cell>,
    buffer: Vec<Cell>,
}

impl Cells {
    pub(super) fn new(module: &Module) -> Self {
        let leaves = Leaves::new(module);
        let mut first = EntityMap::with_default(0);
        let mut sizes = EntityMap::with_default(0);
        for &comp in &module.listing {
            let mut next = 0u32;
            for &id in &module.comp(comp).order {
                first[id] = next;
                next = next.saturating_add(leaves.count(module.instr(id).shape));
            }
            sizes[comp] = next;
        }
        Self { leaves, first, sizes, owner: Vec::new(), value: Vec::new(), buffer: Vec::new() }
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.value.len()).expect("the playings are limited")
    }

    /// Makes cells for one more playing of a computation; each holds its own value in its own buffer at first.
    pub(super) fn open(&mut self, module: &Module, comp: CompId) -> Playing {
        let base = self.len();
        let end = base + self.sizes[comp];
        self.value.extend(base..end);
        self.buffer.extend(base..end);
        for &id in &module.comp(comp).order {
            let count = self.leaves.count(module.instr(id).shape);
            self.owner.extend((0..count).map(|_| id));
        }
        Playing { comp, base }
    }

    /// The first cell of an instruction.
    pub(super) fn of(&self, playing: Playing, id: InstrId) -> Cell {
        playing.base + self.first[id]
    }

    /// All cells of an instruction.
    pub(super) fn all(&self, module: &Module, playing: Playing, id: InstrId) -> std::ops::Range<Cell> {
        let first = self.of(playing, id);
        first..first + self.leaves.count(module.instr(id).shape)
    }

    /// The instruction of a cell.
    pub(super) fn owner(&self, cell: Cell) -> InstrId {
        self.owner[cell as usize]
    }

    /// The cell at which the value of a cell was made.
    pub(super) fn value(&mut self, cell: Cell) -> Cell {
        find(&mut self.value, cell)
    }

    /// Says that `cell` holds the value of `source`, in the same buffer. `cell` must still hold its own.
    pub(super) fn forward(&mut self, cell: Cell, source: Cell) {
        let source_value = self.value(source);
        if source_value != cell {
            self.value[cell as usize] = source_value;
        }
        self.share(cell, source);
    }

    /// The name of the buffer of a cell.
    pub(super) fn buffer(&mut self, cell: Cell) -> Cell {
        find(&mut self.buffer, cell)
    }

    /// Puts two cells into one buffer.
    pub(super) fn share(&mut self, a: Cell, b: Cell) {
        let (a, b) = (self.buffer(a), self.buffer(b));
        // The older name stays: near-linear in practice with the halving of paths.
        self.buffer[a.max(b) as usize] = a.min(b);
    }
}

/// Finds the root of a tree, halving the path.
fn find(forest: &mut [Cell], mut cell: Cell) -> Cell {
    while forest[cell as usize] != cell {
        let up = forest[forest[cell as usize] as usize];
        forest[cell as usize] = up;
        cell = up;
    }
    cell
}
