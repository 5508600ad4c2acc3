//! Contractions.
//!
//! Each result is `((0 + a₀b₀) + a₁b₁) + …` with the contracted elements in row-major order of the contracted dimensions as the dot
//! lists them, each product and sum rounded to the accumulator's type; the result is rounded to its own type once, at the end. The
//! accumulator is `f32` for real types up to 32 bits, `f64`, 64-bit integers, complex doubles. No operation is fused or reordered, so every
//! machine gives the same bits; blocking (Goto and van de Geijn 2008) only decides what lies in cache.
//!
//! A fast contraction of real types up to 32 bits is left to a library instead ([`super::fast`]).

use super::run::Frame;
use crate::interp::elementwise::{Elementwise, apply};
use crate::interp::lanes::{Block, Lane, lane};
use crate::interp::view::Access;
use crate::ir::Primitive;

/// One batched matrix product.
pub struct Dot {
    /// Products side by side.
    pub batch: usize,
    /// Rows of the left operand and of the result.
    pub rows: usize,
    /// Columns of the right operand and of the result.
    pub columns: usize,
    /// What is summed over.
    pub depth: usize,
    /// The left operand: batch, rows, depth.
    pub left: Access,
    /// The right operand: batch, depth, columns.
    pub right: Access,
    /// The result: batch, rows, columns.
    pub to: Access,
    /// A type that operands are rounded to first.
    pub rounded: Option<Primitive>,
    /// If sums may be made in any order: what strides say of the operands and the result as batches of matrices.
    pub fast: Option<[Option<Access>; 3]>,
}

/// The type that an algorithm (its number in `PrecisionConfig.Algorithm`) rounds operands to first. Algorithms that make up for
/// rounding by several products come out as the exact one.
pub fn algorithm_type(algorithm: i32) -> Option<Primitive> {
    match algorithm {
        3 | 4 => Some(Primitive::F16),
        5 | 6 => Some(Primitive::BF16),
        _ => None,
    }
}

/// Rows of the left operand that are in work together.
const ROWS: usize = 64;
/// Columns of the right operand that are in work together.
const COLUMNS: usize = 256;
/// Depth that is in work together.
const DEPTH: usize = 256;
/// Rows and columns of a tile that is held in registers.
const TILE: (usize, usize) = (4, 8);

/// What products are made of.
trait Number: Copy {
    const ZERO: Self;
    fn add_product(self, a: Self, b: Self) -> Self;
}

impl Number for f32 {
    const ZERO: Self = 0.0;
    fn add_product(self, a: Self, b: Self) -> Self {
        self + a * b
    }
}

impl Number for f64 {
    const ZERO: Self = 0.0;
    fn add_product(self, a: Self, b: Self) -> Self {
        self + a * b
    }
}

impl Number for i64 {
    const ZERO: Self = 0;
    fn add_product(self, a: Self, b: Self) -> Self {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

impl Number for [f64; 2] {
    const ZERO: Self = [0.0; 2];
    fn add_product(self, a: Self, b: Self) -> Self {
        [self[0] + (a[0] * b[0] - a[1] * b[1]), self[1] + (a[0] * b[1] + a[1] * b[0])]
    }
}

impl Dot {
    /// Computes all products.
    pub(super) fn run(&self, frame: &Frame<'_>) -> Result<(), String> {
        let accumulator = match lane(self.to.element) {
            Lane::F32 => Primitive::F32,
            Lane::F64 => Primitive::F64,
            Lane::Int => Primitive::S64,
            Lane::Complex => Primitive::C128,
        };
        match accumulator {
            Primitive::F32 if self.fast.is_some() => super::fast::run(self, frame),
            Primitive::F32 => self.product::<f32>(
                frame,
                accumulator,
                |b| if let Block::F32(v) = b { v } else { unreachable!("a block of f32") },
                Block::F32,
            ),
            Primitive::F64 => self.product::<f64>(
                frame,
                accumulator,
                |b| if let Block::F64(v) = b { v } else { unreachable!("a block of f64") },
                Block::F64,
            ),
            Primitive::S64 => self.product::<i64>(
                frame,
                accumulator,
                |b| if let Block::Int(v) = b { v } else { unreachable!("a block of integers") },
                Block::Int,
            ),
            _ => self.product::<[f64; 2]>(
                frame,
                accumulator,
                |b| if let Block::Complex(v) = b { v } else { unreachable!("a complex block") },
                Block::Complex,
            ),
        }
    }

    fn product<T: Number>(
        &self,
        frame: &Frame<'_>,
        accumulator: Primitive,
        numbers: impl Fn(&Block) -> &[T],
        block: impl Fn(Vec<T>) -> Block,
    ) -> Result<(), String> {
        let (left, right, to) = (frame.bind(&self.left)?, frame.bind(&self.right)?, frame.bind(&self.to)?);
        let (mut left_scratch, mut right_scratch) = (Reader::new(self.rounded, accumulator), Reader::new(self.rounded, accumulator));
        let mut panel = [T::ZERO; DEPTH * COLUMNS];
        let mut strip = [T::ZERO; ROWS * DEPTH];
        let mut sums = vec![T::ZERO; self.rows.min(1024) * COLUMNS.min(self.columns.next_multiple_of(TILE.1))];
        let mut result = Block::zeros(lane(self.to.element), 0);
        for batch in 0..self.batch {
            for row_block in (0..self.rows).step_by(1024) {
                let rows = (self.rows - row_block).min(1024);
                for column in (0..self.columns).step_by(COLUMNS) {
                    let columns = (self.columns - column).min(COLUMNS);
                    let width = columns.next_multiple_of(TILE.1);
                    sums[..rows * width].fill(T::ZERO);
                    for deep in (0..self.depth).step_by(DEPTH) {
                        let depth = (self.depth - deep).min(DEPTH);
                        panel[..width * depth].fill(T::ZERO);
                        for k in 0..depth {
                            let start = (batch * self.depth + deep + k) * self.columns + column;
                            let row = right_scratch.read(&right, start, columns);
                            for (j, chunk) in numbers(row).chunks(TILE.1).enumerate() {
                                let from = (j * depth + k) * TILE.1;
                                panel[from..from + chunk.len()].copy_from_slice(chunk);
                            }
                        }
                        for row in (0..rows).step_by(ROWS) {
                            let count = (rows - row).min(ROWS);
                            for i in 0..count {
                                let start = (batch * self.rows + row_block + row + i) * self.depth + deep;
                                let row = left_scratch.read(&left, start, depth);
                                strip[i * depth..(i + 1) * depth].copy_from_slice(numbers(row));
                            }
                            multiply(
                                &strip[..count * depth],
                                &panel[..width * depth],
                                &mut sums[row * width..(row + count) * width],
                                depth,
                                width,
                            );
                        }
                    }
                    for row in 0..rows {
                        let values = block(sums[row * width..row * width + columns].to_vec());
                        result.resize(columns);
                        apply(Elementwise::Convert, accumulator, self.to.element, &[&values], &mut result);
                        to.store((batch * self.rows + row_block + row) * self.columns + column, columns, &result);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads stretches of an operand in the accumulator's type.
pub(super) struct Reader {
    /// The types that numbers go through after that of memory.
    types: Vec<Primitive>,
    /// As it stands in memory, and in those types.
    blocks: Vec<Block>,
}

impl Reader {
    pub(super) fn new(rounded: Option<Primitive>, accumulator: Primitive) -> Self {
        Self { types: rounded.into_iter().chain([accumulator]).collect(), blocks: Vec::new() }
    }
    /// Elements `start..start + len` of the row-major order.
    pub(super) fn read(&mut self, from: &super::run::Bound<'_>, start: usize, len: usize) -> &Block {
        let mut element = from.element();
        if self.blocks.is_empty() {
            self.blocks = [element].iter().chain(&self.types).map(|&t| Block::zeros(lane(t), len)).collect();
        }
        let mut at = 0;
        self.blocks[0].resize(len);
        from.load(start, len, &mut self.blocks[0]);
        for &next in &self.types {
            if element != next && !(next == Primitive::F32 && lane(element) == Lane::F32) {
                let (before, after) = self.blocks.split_at_mut(at + 1);
                after[0].resize(len);
                apply(Elementwise::Convert, element, next, &[&before[at]], &mut after[0]);
                // The next type's block stands one further on, whatever was skipped.
                at += 1;
            } else if at + 1 < self.blocks.len() {
                self.blocks.swap(at, at + 1);
                at += 1;
            }
            element = next;
        }
        &self.blocks[at]
    }
}

/// `sums += strip · panel`, where `strip` is rows of `depth`, `panel` slices of [`TILE`] columns, `sums` rows of `width`.
fn multiply<T: Number>(strip: &[T], panel: &[T], sums: &mut [T], depth: usize, width: usize) {
    if depth == 0 || width == 0 {
        return;
    }
    for (strip, sums) in strip.chunks(TILE.0 * depth).zip(sums.chunks_mut(TILE.0 * width)) {
        let rows = strip.len() / depth;
        for (j, slice) in panel.chunks_exact(TILE.1 * depth).enumerate() {
            let mut tile = [[T::ZERO; TILE.1]; TILE.0];
            for (i, row) in tile[..rows].iter_mut().enumerate() {
                row.copy_from_slice(&sums[i * width + j * TILE.1..][..TILE.1]);
            }
            if rows == TILE.0 {
                let [a, b, c, d]: [&[T]; TILE.0] = std::array::from_fn(|i| &strip[i * depth..(i + 1) * depth]);
                for ((((right, &a), &b), &c), &d) in slice.as_chunks::<{ TILE.1 }>().0.iter().zip(a).zip(b).zip(c).zip(d) {
                    for (row, left) in tile.iter_mut().zip([a, b, c, d]) {
                        for (sum, &right) in row.iter_mut().zip(right) {
                            *sum = sum.add_product(left, right);
                        }
                    }
                }
            } else {
                for (row, left) in tile.iter_mut().zip(strip.chunks_exact(depth)) {
                    for (right, &left) in slice.as_chunks::<{ TILE.1 }>().0.iter().zip(left) {
                        for (sum, &right) in row.iter_mut().zip(right) {
                            *sum = sum.add_product(left, right);
                        }
                    }
                }
            }
            for (i, row) in tile[..rows].iter().enumerate() {
                sums[i * width + j * TILE.1..][..TILE.1].copy_from_slice(row);
            }
        }
    }
}
