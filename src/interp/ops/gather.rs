//! `gather` and `scatter`.
//!
//! Both walk the index vectors in row-major order. A gather moves a slice that would reach over the edge to where it just fits; a scatter
//! leaves out an update whose window would reach over the edge, all of it. Updates of one place join in order.

use super::combine::Combiner;
use super::elementwise::{load, store};
use super::error::{OpError, Result, ensure, size, sizes};
use super::index::{are_dims, at, each, pick};
use super::scalar::Bits;
use crate::interp::Array;
use crate::ir::{Gather, Primitive, Scatter};

/// Index vectors: where the components lie and which operand dimension each says.
struct Indices<'a> {
    array: &'a Array,
    strides: Vec<usize>,
    /// The dimension of the components; the rank if each index is one number.
    vector_dim: usize,
    /// Dimensions that are not the components'.
    batch_dims: Vec<usize>,
    /// Operand dimension of each component.
    map: Vec<usize>,
    /// Pairs of an operand dimension and the place of its index among `batch_dims`.
    batching: Vec<(usize, usize)>,
}

impl<'a> Indices<'a> {
    fn new(array: &'a Array, rank: usize, vector_dim: i64, map: &[i64], operand_batching: &[i64], batching: &[i64]) -> Result<Self> {
        let (vector_dim, map) = (size(vector_dim)?, sizes(map)?);
        let indices_rank = array.dims.len();
        ensure(array.element.is_integer(), || format!("expected integers as indices, found `{}`", array.element.name()))?;
        let components = if vector_dim == indices_rank { 1 } else { array.dims.get(vector_dim).copied().unwrap_or(0) };
        ensure(vector_dim <= indices_rank && components == map.len() && are_dims(&map, rank), || {
            format!("expected index vectors of {} components, found {components}", map.len())
        })?;
        let batch_dims: Vec<usize> = (0..indices_rank).filter(|&d| d != vector_dim).collect();
        let (operand_batching, batching) = (sizes(operand_batching)?, sizes(batching)?);
        ensure(operand_batching.len() == batching.len() && are_dims(&operand_batching, rank), || {
            format!("expected as many batching dimensions, found {} and {}", operand_batching.len(), batching.len())
        })?;
        let place = |d: &usize| batch_dims.iter().position(|b| b == d);
        let places: Option<Vec<usize>> = batching.iter().map(place).collect();
        let places = places.ok_or_else(|| OpError("expected batching dimensions of the indices".into()))?;
        let strides = array.strides();
        Ok(Self { array, strides, vector_dim, batch_dims, map, batching: operand_batching.into_iter().zip(places).collect() })
    }
    fn batch_sizes(&self) -> Vec<usize> {
        pick(&self.array.dims, &self.batch_dims)
    }
    /// The start in every operand dimension that the index vector at `batch` says, 0 where it says none.
    fn start(&self, batch: &[usize], start: &mut [i64]) {
        start.fill(0);
        let base: usize = batch.iter().zip(&self.batch_dims).map(|(i, &d)| i * self.strides[d]).sum();
        for (k, &d) in self.map.iter().enumerate() {
            let linear = if self.vector_dim == self.array.dims.len() { base } else { base + k * self.strides[self.vector_dim] };
            let value = self.array.i64(linear);
            start[d] = if self.array.element == Primitive::U64 && value < 0 { i64::MAX } else { value };
        }
        for &(d, place) in &self.batching {
            start[d] = batch[place] as i64;
        }
    }
}

/// `gather`.
pub fn gather(operand: &Array, indices: &Array, op: &Gather) -> Result<Array> {
    let rank = operand.dims.len();
    let dims = &op.dims;
    let vectors = Indices::new(
        indices,
        rank,
        dims.index_vector_dim,
        &dims.start_index_map,
        &dims.operand_batching_dims,
        &dims.start_indices_batching_dims,
    )?;
    let slice = sizes(&op.slice_sizes)?;
    let fits = slice.len() == rank && slice.iter().zip(&operand.dims).all(|(s, d)| s <= d);
    ensure(fits, || format!("expected slices of {:?} at most, found {slice:?}", operand.dims))?;
    let gone = [sizes(&dims.collapsed_slice_dims)?, sizes(&dims.operand_batching_dims)?].concat();
    let kept: Vec<usize> = (0..rank).filter(|d| !gone.contains(d)).collect();
    let offset_dims = sizes(&dims.offset_dims)?;
    let out_rank = offset_dims.len() + vectors.batch_dims.len();
    ensure(gone.iter().all(|&d| d < rank && slice[d] <= 1) && offset_dims.len() == kept.len() && are_dims(&offset_dims, out_rank), || {
        format!("expected an offset dimension for each of {kept:?}, found {offset_dims:?}")
    })?;
    let batch_out: Vec<usize> = (0..out_rank).filter(|d| !offset_dims.contains(d)).collect();
    let (batch_sizes, window) = (vectors.batch_sizes(), pick(&slice, &kept));
    let mut out_dims = vec![0; out_rank];
    for (&d, &n) in offset_dims.iter().zip(&window).chain(batch_out.iter().zip(&batch_sizes)) {
        out_dims[d] = n;
    }
    let mut out = Array::zeros(operand.element, &out_dims);
    if slice.contains(&0) {
        return Ok(out);
    }
    let (from, to) = (operand.strides(), out.strides());
    let (window_from, window_to, batch_to) = (pick(&from, &kept), pick(&to, &offset_dims), pick(&to, &batch_out));
    let mut start = vec![0; rank];
    each(&batch_sizes, |batch| {
        vectors.start(batch, &mut start);
        let clamped = start.iter().enumerate().map(|(d, &s)| s.clamp(0, (operand.dims[d] - slice[d]) as i64) as usize * from[d]);
        let (source, target): (usize, usize) = (clamped.sum(), at(batch, &batch_to));
        each(&window, |offset| {
            out.set_element_bytes(target + at(offset, &window_to), operand.element_bytes(source + at(offset, &window_from)));
        });
    });
    Ok(out)
}

/// `scatter`: each operand with the updates of its own, at the same places: `f(there, update)`.
pub fn scatter(operands: &[&Array], indices: &Array, updates: &[&Array], op: &Scatter, mut f: Combiner<'_>) -> Result<Vec<Array>> {
    let first = operands.first().ok_or_else(|| OpError("expected an operand to scatter to, found none".into()))?;
    let update = updates.first().ok_or_else(|| OpError("expected updates, found none".into()))?;
    let fits =
        operands.len() == updates.len() && operands.iter().all(|o| o.dims == first.dims) && updates.iter().all(|u| u.dims == update.dims);
    ensure(fits, || "expected operands of one shape, and as many updates of one shape".into())?;
    let (rank, dims) = (first.dims.len(), &op.dims);
    let vectors = Indices::new(
        indices,
        rank,
        dims.index_vector_dim,
        &dims.scatter_dims_to_operand_dims,
        &dims.input_batching_dims,
        &dims.scatter_indices_batching_dims,
    )?;
    let gone = [sizes(&dims.inserted_window_dims)?, sizes(&dims.input_batching_dims)?].concat();
    let kept: Vec<usize> = (0..rank).filter(|d| !gone.contains(d)).collect();
    let window_dims = sizes(&dims.update_window_dims)?;
    let update_rank = update.dims.len();
    let batch_out: Vec<usize> = (0..update_rank).filter(|d| !window_dims.contains(d)).collect();
    let batch_sizes = vectors.batch_sizes();
    let fits = are_dims(&window_dims, update_rank) && window_dims.len() == kept.len() && pick(&update.dims, &batch_out) == batch_sizes;
    ensure(fits, || format!("expected updates of windows over {kept:?} for indices of {batch_sizes:?}, found {:?}", update.dims))?;
    let window = pick(&update.dims, &window_dims);
    // The window in every operand dimension; 1 where it has none.
    let mut full = vec![1; rank];
    for (&d, &n) in kept.iter().zip(&window) {
        full[d] = n;
    }
    let elements: Vec<Primitive> = operands.iter().map(|o| o.element).collect();
    let mut out: Vec<Array> = operands.iter().map(|&o| o.clone()).collect();
    let (to, from) = (first.strides(), update.strides());
    let (window_to, window_from, batch_from) = (pick(&to, &kept), pick(&from, &window_dims), pick(&from, &batch_out));
    let mut start = vec![0; rank];
    let (mut there, mut values): (Vec<Bits>, Vec<Bits>) = (vec![0; operands.len()], vec![0; operands.len()]);
    each(&batch_sizes, |batch| {
        vectors.start(batch, &mut start);
        let inside = |d: usize| start[d] >= 0 && full[d] <= first.dims[d] && start[d] <= (first.dims[d] - full[d]) as i64;
        if !(0..rank).all(inside) {
            return;
        }
        let target: usize = start.iter().zip(&to).map(|(&s, stride)| s as usize * stride).sum();
        let source = at(batch, &batch_from);
        each(&window, |offset| {
            let (target, source) = (target + at(offset, &window_to), source + at(offset, &window_from));
            for k in 0..out.len() {
                there[k] = load(&out[k], target);
                values[k] = load(updates[k], source);
            }
            f.apply(&elements, &mut there, &values);
            for (array, &bits) in out.iter_mut().zip(&there) {
                store(array, target, bits);
            }
        });
    });
    Ok(out)
}
