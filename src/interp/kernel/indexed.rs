//! Gather and scatter.
//!
//! A gather clamps start indices so that slices lie inside; a scatter leaves out whole windows that do not. A scatter takes its updates
//! in the row-major order of their scatter dimensions, so duplicate indices combine in a fixed order.

use super::Action;
use super::build::{Builder, NodeId, Unsupported, Value};
use super::run::Frame;
use super::shape::ArrayType;
use crate::interp::array::indices;
use crate::interp::lanes::{Block, lane};
use crate::interp::tape::Applied;
use crate::interp::view::{View, coalesce, for_each_run};
use crate::ir::{self, InstrId};

/// How start indices say where a window lies.
pub struct Starts {
    /// Start indices: batch dimensions, then the components of an index.
    indices: View,
    /// The operand dimension of each component.
    components: Vec<usize>,
    /// Operand dimensions whose index is that of a batch dimension.
    batching: Vec<(usize, usize)>,
    /// The operand dimensions of a window.
    window: Vec<usize>,
}

/// A gather.
pub struct Gather {
    starts: Starts,
    operand: View,
    /// Batch dimensions, then window dimensions.
    to: View,
    slice_sizes: Vec<usize>,
}

/// A scatter into results that hold the operands already.
pub struct Scatter {
    starts: Starts,
    to: Vec<View>,
    /// Batch dimensions, then window dimensions.
    updates: Vec<View>,
    function: Applied,
}

fn sizes(values: &[i64]) -> Result<Vec<usize>, Unsupported> {
    values.iter().map(|&v| usize::try_from(v).map_err(|_| format!("expected a number of at least 0, found {v}"))).collect()
}

/// Dimension numbers of a gather or a scatter that say where windows lie.
struct Numbers<'a> {
    index_vector_dim: i64,
    components: &'a [i64],
    /// Operand dimensions that windows lack.
    lacking: &'a [i64],
    batching: &'a [i64],
    indices_batching: &'a [i64],
}

impl Builder<'_> {
    fn starts(&mut self, node: NodeId, rank: usize, numbers: &Numbers<'_>) -> Result<Starts, Unsupported> {
        let indices = self.stored(node);
        let vector = usize::try_from(numbers.index_vector_dim).map_err(|_| "index_vector_dim is negative")?;
        let mut order: Vec<usize> = (0..indices.dims.len()).filter(|&d| d != vector).collect();
        let indices = if vector < indices.dims.len() {
            order.push(vector);
            indices.transpose(&order)
        } else {
            let dims = [&indices.dims[..], &[1]].concat();
            indices.broadcast(&order, &dims)
        };
        let (lacking, batching) = (sizes(numbers.lacking)?, sizes(numbers.batching)?);
        let batch = sizes(numbers.indices_batching)?.into_iter().map(|d| if d > vector { d - 1 } else { d });
        let window = (0..rank).filter(|d| !lacking.contains(d) && !batching.contains(d)).collect();
        Ok(Starts { indices, components: sizes(numbers.components)?, batching: batching.into_iter().zip(batch).collect(), window })
    }

    pub(super) fn gather(
        &mut self,
        id: InstrId,
        op: &ir::Gather,
        operand: NodeId,
        indices: NodeId,
        ty: &ArrayType,
    ) -> Result<Value, Unsupported> {
        let operand = self.stored(operand);
        let numbers = Numbers {
            index_vector_dim: op.dims.index_vector_dim,
            components: &op.dims.start_index_map,
            lacking: &op.dims.collapsed_slice_dims,
            batching: &op.dims.operand_batching_dims,
            indices_batching: &op.dims.start_indices_batching_dims,
        };
        let starts = self.starts(indices, operand.dims.len(), &numbers)?;
        let offset = sizes(&op.dims.offset_dims)?;
        let to = self.destination(Some(id), 0, ty.element, &ty.dims);
        let batch: Vec<usize> = (0..ty.dims.len()).filter(|d| !offset.contains(d)).collect();
        let action = Gather { starts, operand, to: to.clone().transpose(&[batch, offset].concat()), slice_sizes: sizes(&op.slice_sizes)? };
        self.kernel.actions.push(Action::Gather(Box::new(action)));
        Ok(Value::Array(self.view(to)))
    }

    pub(super) fn scatter(&mut self, id: InstrId, op: &ir::Scatter, args: &[NodeId]) -> Result<Value, Unsupported> {
        let function = self.function(op.to_apply)?;
        let count = args.len() / 2;
        let mut to = Vec::new();
        for (leaf, &operand) in args[..count].iter().enumerate() {
            let (element, dims) = (self.element(operand), self.dims(operand).to_vec());
            let place = self.destination(Some(id), leaf, element, &dims);
            if let Some(from) = self.as_view(operand).cloned() {
                self.note_in_place(&from, &place);
            }
            self.store(operand, &place);
            to.push(place);
        }
        let numbers = Numbers {
            index_vector_dim: op.dims.index_vector_dim,
            components: &op.dims.scatter_dims_to_operand_dims,
            lacking: &op.dims.inserted_window_dims,
            batching: &op.dims.input_batching_dims,
            indices_batching: &op.dims.scatter_indices_batching_dims,
        };
        let starts = self.starts(args[count], to[0].dims.len(), &numbers)?;
        let window = sizes(&op.dims.update_window_dims)?;
        let mut updates = Vec::new();
        for &update in &args[count + 1..] {
            let view = self.stored(update);
            let batch: Vec<usize> = (0..view.dims.len()).filter(|d| !window.contains(d)).collect();
            updates.push(view.transpose(&[batch, window.clone()].concat()));
        }
        let values: Vec<Value> = to.iter().map(|view| Value::Array(self.view(view.clone()))).collect();
        self.kernel.actions.push(Action::Scatter(Box::new(Scatter { starts, to, updates, function })));
        Ok(if let [one] = values.as_slice() { one.clone() } else { Value::Tuple(values) })
    }
}

impl Starts {
    /// Calls `f` with each batch index and the operand index where its window starts, as the indices say.
    fn for_each(&self, frame: &Frame<'_>, rank: usize, mut f: impl FnMut(&[usize], &mut [i64])) -> Result<(), String> {
        let array = frame.read(&self.indices)?;
        let (count, batch) = self.indices.dims.split_last().expect("indices have a dimension of components");
        for (n, index) in indices(batch).enumerate() {
            let mut start = vec![0; rank];
            for (i, &d) in self.components.iter().enumerate() {
                start[d] = array.i64(n * count + i);
            }
            for &(d, b) in &self.batching {
                start[d] = index[b] as i64;
            }
            f(&index, &mut start);
        }
        Ok(())
    }
}

/// The offset of an index.
fn offset(view: &View, base: isize, index: impl Iterator<Item = isize>) -> isize {
    base + index.zip(&view.strides).map(|(i, s)| i * s).sum::<isize>()
}

/// Stretches of two arrays' windows that lie at equal distances: offsets, strides, lengths, in row-major order.
fn for_each_pair(dims: &[usize], a: (isize, &[isize]), b: (isize, &[isize]), mut f: impl FnMut(isize, isize, usize, isize, isize)) {
    let len = dims.iter().product();
    let (a_dims, a_steps) = coalesce(dims, a.1);
    let (b_dims, b_steps) = coalesce(dims, b.1);
    for_each_run(&a_dims, &a_steps, a.0, 0, len, |at, count, step, done| {
        for_each_run(&b_dims, &b_steps, b.0, done, count, |other, count, other_step, within| {
            f(at + within.cast_signed() * step, other, count, step, other_step);
        });
    });
}

impl Gather {
    /// Copies all slices.
    pub(super) fn run(&self, frame: &Frame<'_>) -> Result<(), String> {
        let (from_access, to_access) = (self.operand.access(), self.to.access());
        let (from, to) = (frame.bind(&from_access)?, frame.bind(&to_access)?);
        let batch = self.to.dims.len() - self.starts.window.len();
        let dims: Vec<usize> = self.starts.window.iter().map(|&d| self.slice_sizes[d]).collect();
        let steps: Vec<isize> = self.starts.window.iter().map(|&d| self.operand.strides[d]).collect();
        let mut block = Block::zeros(lane(self.operand.element), 0);
        self.starts.for_each(frame, self.operand.dims.len(), |index, start| {
            for ((start, &size), &slice) in start.iter_mut().zip(&self.operand.dims).zip(&self.slice_sizes) {
                *start = (*start).clamp(0, size.saturating_sub(slice) as i64);
            }
            let source = offset(&self.operand, from.base(), start.iter().map(|&i| i as isize));
            let target = offset(&self.to, to.base(), index.iter().map(|i| i.cast_signed()));
            for_each_pair(&dims, (source, &steps), (target, &self.to.strides[batch..]), |at, other, len, step, other_step| {
                block.resize(len);
                from.load_run(at, len, step, &mut block);
                to.store_run(other, len, other_step, &block);
            });
        })
    }
    /// What it reads and writes.
    pub(super) fn slots(&self) -> ([&View; 2], &View) {
        ([&self.operand, &self.starts.indices], &self.to)
    }
}

impl Scatter {
    /// Combines all updates with what is there.
    pub(super) fn run(&self, frame: &Frame<'_>) -> Result<(), String> {
        let to_accesses: Vec<_> = self.to.iter().map(View::access).collect();
        let update_accesses: Vec<_> = self.updates.iter().map(View::access).collect();
        let to: Vec<_> = to_accesses.iter().map(|a| frame.bind(a)).collect::<Result<_, _>>()?;
        let updates: Vec<_> = update_accesses.iter().map(|a| frame.bind(a)).collect::<Result<_, _>>()?;
        let (target, update) = (&self.to[0], &self.updates[0]);
        let batch = update.dims.len() - self.starts.window.len();
        let dims = &update.dims[batch..];
        let mut blocks = self.function.tape.blocks(0);
        self.starts.for_each(frame, target.dims.len(), |index, start| {
            let mut extent = vec![1; target.dims.len()];
            for (&d, &size) in self.starts.window.iter().zip(dims) {
                extent[d] = size as i64;
            }
            let inside = |((&start, &extent), &size): ((&i64, &i64), &usize)| start >= 0 && start.saturating_add(extent) <= size as i64;
            if !start.iter().zip(&extent).zip(&target.dims).all(inside) {
                return;
            }
            for_each_element_run(dims, |window, len| {
                blocks.iter_mut().for_each(|b| b.resize(len));
                for i in 0..to.len() {
                    let (from, step) = self.update_at(i, updates[i].base(), index, window);
                    updates[i].load_run(from, len, step, &mut blocks[to.len() + i]);
                    let (at, step) = self.target_at(i, to[i].base(), start, window);
                    to[i].load_run(at, len, step, &mut blocks[i]);
                }
                self.function.tape.run(&mut blocks, |_, _| unreachable!("an applied function reads nothing"));
                for (i, &output) in self.function.outputs.iter().enumerate() {
                    let (at, step) = self.target_at(i, to[i].base(), start, window);
                    to[i].store_run(at, len, step, &blocks[output as usize]);
                }
            });
        })
    }
    fn update_at(&self, i: usize, base: isize, index: &[usize], window: &[usize]) -> (isize, isize) {
        let view = &self.updates[i];
        let at = offset(view, base, index.iter().chain(window).map(|i| i.cast_signed()));
        (at, if window.is_empty() { 0 } else { view.strides[view.strides.len() - 1] })
    }
    fn target_at(&self, i: usize, base: isize, start: &[i64], window: &[usize]) -> (isize, isize) {
        let view = &self.to[i];
        let mut at = offset(view, base, start.iter().map(|&i| i as isize));
        for (&d, &i) in self.starts.window.iter().zip(window) {
            at += view.strides[d] * i.cast_signed();
        }
        (at, self.starts.window.last().map_or(0, |&d| view.strides[d]))
    }
    /// What it reads and writes.
    pub(super) fn slots(&self) -> (impl Iterator<Item = &View>, impl Iterator<Item = &View>) {
        (self.updates.iter().chain([&self.starts.indices]), self.to.iter())
    }
}

/// Calls `f` with the first index of each row of the dimensions and the row's length.
fn for_each_element_run(dims: &[usize], mut f: impl FnMut(&[usize], usize)) {
    let Some((&inner, outer)) = dims.split_last() else { return f(&[], 1) };
    if inner == 0 {
        return;
    }
    for mut index in indices(outer) {
        index.push(0);
        f(&index, inner);
    }
}
