//! Positions of a shape, numbered: the shape itself is 0, its parts follow in pre-order.

use crate::ir::{Entity, Module, Shape, ShapeId};

/// How many positions each shape has and where a tuple's parts start.
#[derive(Clone, Debug, Default)]
pub struct Positions {
    count: Vec<u32>,
    first_part: Vec<u32>,
    part_starts: Vec<u32>,
}

impl Positions {
    /// Costs O(shapes and their parts). A tuple's parts are interned before it, so one pass in id order is enough.
    pub fn of(module: &Module) -> Self {
        let mut this = Self::default();
        for index in 0..module.shapes.len() {
            this.first_part.push(u32::try_from(this.part_starts.len()).expect("shapes have fewer than 2^32 parts"));
            let mut total = 1u32;
            for &part in module.shapes.elements(ShapeId::new(index)) {
                this.part_starts.push(total);
                total = total.saturating_add(this.count[part.index()]);
            }
            this.count.push(total);
        }
        this
    }
    /// The number of positions.
    pub fn count(&self, shape: ShapeId) -> u32 {
        self.count[shape.index()]
    }
    /// The position of the `i`-th part of a tuple.
    pub fn part(&self, shape: ShapeId, i: usize) -> u32 {
        self.part_starts[self.first_part[shape.index()] as usize + i]
    }
    /// The position at an index path, if the shape has it.
    pub fn at(&self, module: &Module, shape: ShapeId, path: &[i64]) -> Option<u32> {
        let mut shape = shape;
        let mut position = 0;
        for &i in path {
            let i = usize::try_from(i).ok()?;
            let part = *module.shapes.elements(shape).get(i)?;
            position += self.part(shape, i);
            shape = part;
        }
        Some(position)
    }
    /// The element of a tuple in which a position other than 0 lies, and the position there. Costs O(log width).
    pub fn element(&self, module: &Module, shape: ShapeId, position: u32) -> (usize, u32) {
        let from = self.first_part[shape.index()] as usize;
        let starts = &self.part_starts[from..from + module.shapes.elements(shape).len()];
        let i = starts.partition_point(|&start| start <= position) - 1;
        (i, position - starts[i])
    }
    /// The index path of a position. Costs O(depth × log width).
    pub fn path(&self, module: &Module, shape: ShapeId, position: u32) -> Vec<i64> {
        let mut path = Vec::new();
        let (mut shape, mut rest) = (shape, position);
        while rest > 0 {
            let (i, inside) = self.element(module, shape, rest);
            path.push(i64::try_from(i).expect("a tuple is small"));
            rest = inside;
            shape = module.shapes.elements(shape)[i];
        }
        path
    }
    /// The shapes at all positions, in order.
    pub fn shapes(&self, module: &Module, shape: ShapeId) -> Vec<ShapeId> {
        let mut out = Vec::with_capacity(self.count(shape) as usize);
        let mut stack = vec![shape];
        while let Some(shape) = stack.pop() {
            out.push(shape);
            if let Shape::Tuple(parts) = module.shapes.get(shape) {
                stack.extend(parts.iter().rev());
            }
        }
        out
    }
}
