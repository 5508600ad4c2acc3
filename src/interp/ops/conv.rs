//! Convolution, in XLA's sense: all dimension numbers, strides, padding of either sign, both dilations, groups, reversal.
//!
//! Every form becomes one loop on packed operands: inputs as `[batch][position][group][feature]`, kernels as
//! `[group][offset][input feature][output feature]`. An element of the result is a sum from zero over the window's offsets in row-major
//! order and, inside, over the input features in ascending order. Types smaller than `f32` and `f32` itself add in `f32`, `f64` in `f64`,
//! integers wrap, complex numbers add part by part; the sum is rounded once to the result's type. What lies in the padding adds nothing.
//!
//! Cost: one multiplication an offset, input feature and output element; the packed copies of both operands.

use super::elementwise::{load, store};
use super::error::{Result, ensure, refuse, size, sizes};
use super::index::{advance, are_dims, at, each, pick};
use super::number::Number;
use crate::interp::Array;
use crate::interp::array::row_major;
use crate::ir::{ConvDims, Primitive, WindowDim};

/// Dimension numbers of one operand: batch-like, feature-like, spatial.
pub(super) struct Places {
    /// Batch of an input or output; input features of a kernel.
    pub first: usize,
    /// Features of an input or output; output features of a kernel.
    pub second: usize,
    /// Spatial dimensions.
    pub spatial: Vec<usize>,
}

impl Places {
    fn new(array_rank: usize, first: i64, second: i64, spatial: &[i64]) -> Result<Self> {
        let out = Self { first: size(first)?, second: size(second)?, spatial: sizes(spatial)? };
        let all = [&[out.first, out.second], out.spatial.as_slice()].concat();
        ensure(all.len() == array_rank && are_dims(&all, array_rank), || {
            format!("expected dimension numbers of an array of {array_rank} dimensions, found {all:?}")
        })?;
        Ok(out)
    }
    pub(super) fn input(dims: &ConvDims, rank: usize) -> Result<Self> {
        Self::new(rank, dims.input_batch, dims.input_feature, &dims.input_spatial)
    }
    pub(super) fn kernel(dims: &ConvDims, rank: usize) -> Result<Self> {
        Self::new(rank, dims.kernel_input_feature, dims.kernel_output_feature, &dims.kernel_spatial)
    }
    pub(super) fn output(dims: &ConvDims, rank: usize) -> Result<Self> {
        Self::new(rank, dims.output_batch, dims.output_feature, &dims.output_spatial)
    }
}

/// The loop, without its data.
pub(super) struct Loop {
    pub batch: usize,
    pub groups: usize,
    /// Input features a group.
    pub inputs: usize,
    /// Output features a group.
    pub outputs: usize,
    /// Spatial sizes of the input.
    pub input: Vec<usize>,
    /// Spatial sizes of the output.
    pub output: Vec<usize>,
    /// The window; `pad_high` does not matter here.
    pub window: Vec<WindowDim>,
}

/// The number of steps that a window makes along a dimension.
pub(super) fn steps(input: usize, w: &WindowDim) -> Result<usize> {
    let valid = w.size >= 0 && w.stride >= 1 && w.window_dilation >= 1 && w.base_dilation >= 1;
    ensure(valid, || format!("expected a window with strides and dilations of at least 1, found {w:?}"))?;
    let overflow = || super::OpError(format!("window {w:?} is too large"));
    let spread = |n: i64, dilation: i64| {
        if n == 0 { Some(0) } else { (n - 1).checked_mul(dilation)?.checked_add(1) }
    };
    let base = spread(i64::try_from(input).map_err(|_| overflow())?, w.base_dilation).ok_or_else(overflow)?;
    let padded = base.checked_add(w.pad_low).and_then(|n| n.checked_add(w.pad_high)).ok_or_else(overflow)?;
    let window = spread(w.size, w.window_dilation).ok_or_else(overflow)?;
    Ok(if padded < window || padded <= 0 { 0 } else { size((padded - window) / w.stride + 1)? })
}

/// The input position that an output position sees through an offset of the window, if it is one.
#[inline]
pub(super) fn seen(w: &WindowDim, input: usize, output: usize, offset: usize) -> Option<usize> {
    let at = output as i64 * w.stride - w.pad_low + offset as i64 * w.window_dilation;
    if at < 0 || at % w.base_dilation != 0 {
        return None;
    }
    let at = (at / w.base_dilation) as usize;
    (at < input).then_some(at)
}

/// `convolution`; `element` and `dims` are the result's.
pub fn convolution(lhs: &Array, rhs: &Array, op: &crate::ir::Convolution, element: Primitive, dims: &[usize]) -> Result<Array> {
    let groups = Groups { feature: op.feature_group_count, batch: op.batch_group_count };
    forward(lhs, rhs, &op.window, &op.dims, groups, element, dims)
}

/// Feature and batch groups; 0 and 1 mean none.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    pub feature: i64,
    pub batch: i64,
}

/// A convolution given by its parts.
pub(super) fn forward(
    lhs: &Array,
    rhs: &Array,
    window: &[WindowDim],
    numbers: &ConvDims,
    groups: Groups,
    element: Primitive,
    dims: &[usize],
) -> Result<Array> {
    let (input, kernel) = (Places::input(numbers, lhs.dims.len())?, Places::kernel(numbers, rhs.dims.len())?);
    let output = Places::output(numbers, dims.len())?;
    let (features, batches) = (size(groups.feature.max(1))?, size(groups.batch.max(1))?);
    ensure(features == 1 || batches == 1, || "expected feature groups or batch groups, found both".into())?;
    let groups = features.max(batches);
    let batch = lhs.dims[input.first];
    ensure(batch.is_multiple_of(batches), || format!("expected a batch that {batches} divides, found {batch}"))?;
    let spatial = pick(&lhs.dims, &input.spatial);
    ensure(window.len() == spatial.len(), || format!("expected a window of {} dimensions, found {}", spatial.len(), window.len()))?;
    let out_features = rhs.dims[kernel.second];
    let plan = Loop {
        batch: batch / batches,
        groups,
        inputs: rhs.dims[kernel.first],
        outputs: out_features / groups,
        output: spatial.iter().zip(window).map(|(&n, w)| steps(n, w)).collect::<Result<_>>()?,
        input: spatial,
        window: window.to_vec(),
    };
    ensure(plan.inputs * features == lhs.dims[input.second] && plan.outputs * groups == out_features, || {
        format!("expected features that {groups} groups divide, found {} and {out_features}", lhs.dims[input.second])
    })?;
    let sizes_fit = pick(&rhs.dims, &kernel.spatial).iter().zip(window).all(|(&n, w)| n as i64 == w.size);
    ensure(sizes_fit, || format!("expected a kernel of the window's sizes, found {:?}", rhs.dims))?;
    let mut expected = vec![0; dims.len()];
    expected[output.first] = plan.batch;
    expected[output.second] = out_features;
    for (&d, &n) in output.spatial.iter().zip(&plan.output) {
        expected[d] = n;
    }
    ensure(expected == dims, || format!("expected a result of {expected:?}, found {dims:?}"))?;
    let job = Forward { plan, lhs, rhs, input, kernel, output, batches };
    by_type(&job, lhs.element, rhs.element, element, dims)
}

struct Forward<'a> {
    plan: Loop,
    lhs: &'a Array,
    rhs: &'a Array,
    input: Places,
    kernel: Places,
    output: Places,
    batches: usize,
}

impl Job for Forward<'_> {
    fn compute<N: Number>(&self, element: Primitive, dims: &[usize]) -> Array {
        let Loop { batch, groups, inputs, outputs, ref window, .. } = self.plan;
        // Batch groups are feature groups whose features lie in other batches.
        let lhs = pack(self.lhs, &self.input, |i, position| {
            let (group, b, f) = if self.batches > 1 {
                (i.first / batch, i.first % batch, i.second)
            } else {
                (i.second / inputs, i.first, i.second % inputs)
            };
            ((b * i.positions + position) * groups + group) * inputs + f
        });
        let reversed: Vec<bool> = window.iter().map(|w| w.reversal).collect();
        let rhs = pack_reversed(self.rhs, &self.kernel, &reversed, |i, position| {
            ((i.second / outputs * i.positions + position) * inputs + i.first) * outputs + i.second % outputs
        });
        let sums: Vec<N> = self.plan.run(&lhs, &rhs);
        unpack(&sums, &self.output, element, dims, |i, position| (i.first * i.positions + position) * outputs * groups + i.second)
    }
}

/// Something to compute with a number type yet to be chosen.
pub(super) trait Job {
    /// Computes the result.
    fn compute<N: Number>(&self, element: Primitive, dims: &[usize]) -> Array;
}

/// Computes in the number type that the element types ask for.
pub(super) fn by_type(job: &impl Job, lhs: Primitive, rhs: Primitive, element: Primitive, dims: &[usize]) -> Result<Array> {
    let any = |p: Primitive| lhs == p || rhs == p;
    if any(Primitive::C128) {
        Ok(job.compute::<(f64, f64)>(element, dims))
    } else if any(Primitive::C64) {
        Ok(job.compute::<(f32, f32)>(element, dims))
    } else if any(Primitive::F64) || element == Primitive::F64 {
        Ok(job.compute::<f64>(element, dims))
    } else if lhs.is_float() || rhs.is_float() {
        Ok(job.compute::<f32>(element, dims))
    } else if element.is_complex() {
        refuse(format!("expected a result of the operands' kind, found `{}`", element.name()))
    } else {
        Ok(job.compute::<i64>(element, dims))
    }
}

/// Where an element stands, apart from its position in the spatial dimensions.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub first: usize,
    pub second: usize,
    /// The number of spatial positions.
    pub positions: usize,
}

/// The elements of an array, each at the place that `to` gives it: from its spot and its linear spatial position.
pub(super) fn pack<N: Number>(array: &Array, places: &Places, to: impl Fn(Spot, usize) -> usize) -> Vec<N> {
    pack_reversed(array, places, &vec![false; places.spatial.len()], to)
}

/// [`pack`], with spatial dimensions turned round.
pub(super) fn pack_reversed<N: Number>(array: &Array, places: &Places, reversed: &[bool], to: impl Fn(Spot, usize) -> usize) -> Vec<N> {
    let mut out = vec![N::default(); array.len()];
    walk(&array.dims, places, reversed, |linear, spot, position| out[to(spot, position)] = N::load(array.element, load(array, linear)));
    out
}

/// The array of packed elements, each found where `from` says.
pub(super) fn unpack<N: Number>(
    packed: &[N],
    places: &Places,
    element: Primitive,
    dims: &[usize],
    from: impl Fn(Spot, usize) -> usize,
) -> Array {
    let mut out = Array::zeros(element, dims);
    walk(dims, places, &vec![false; places.spatial.len()], |linear, spot, position| {
        store(&mut out, linear, packed[from(spot, position)].store(element));
    });
    out
}

fn walk(dims: &[usize], places: &Places, reversed: &[bool], mut f: impl FnMut(usize, Spot, usize)) {
    let spatial = pick(dims, &places.spatial);
    let strides = row_major(&spatial);
    let positions = spatial.iter().product();
    let mut linear = 0;
    each(dims, |index| {
        let place = |(i, &d): (usize, &usize)| {
            let at = if reversed[i] { spatial[i] - 1 - index[d] } else { index[d] };
            at * strides[i]
        };
        let position = places.spatial.iter().enumerate().map(place).sum();
        f(linear, Spot { first: index[places.first], second: index[places.second], positions }, position);
        linear += 1;
    });
}

impl Loop {
    /// The sums as `[batch][position][group][output feature]`.
    pub(super) fn run<N: Number>(&self, lhs: &[N], rhs: &[N]) -> Vec<N> {
        let offsets: Vec<usize> = self.window.iter().map(|w| w.size as usize).collect();
        let (input_strides, offset_strides) = (row_major(&self.input), row_major(&offsets));
        let (positions, inputs): (usize, usize) = (self.output.iter().product(), self.input.iter().product());
        let count: usize = offsets.iter().product();
        let mut out = vec![N::default(); self.batch * positions * self.groups * self.outputs];
        if out.is_empty() || inputs == 0 || count == 0 || self.inputs == 0 {
            return out;
        }
        let mut rows = out.chunks_exact_mut(self.groups * self.outputs);
        let mut visible = Vec::new();
        for b in 0..self.batch {
            let mut position = vec![0; self.output.len()];
            loop {
                self.visible(&position, &offsets, &input_strides, &offset_strides, &mut visible);
                let row = rows.next().expect("a row a batch and position");
                for (g, sums) in row.chunks_exact_mut(self.outputs).enumerate() {
                    for &(from, offset) in &visible {
                        let x = &lhs[((b * inputs + from) * self.groups + g) * self.inputs..][..self.inputs];
                        let w = &rhs[(g * count + offset) * self.inputs * self.outputs..][..self.inputs * self.outputs];
                        accumulate(sums, x, w);
                    }
                }
                if !advance(&mut position, &self.output) {
                    break;
                }
            }
        }
        out
    }

    /// Input positions and offsets that an output position sees, in the order of the offsets.
    fn visible(
        &self,
        position: &[usize],
        offsets: &[usize],
        input_strides: &[usize],
        offset_strides: &[usize],
        out: &mut Vec<(usize, usize)>,
    ) {
        out.clear();
        each(offsets, |offset| {
            let mut from = 0;
            for (d, w) in self.window.iter().enumerate() {
                match seen(w, self.input[d], position[d], offset[d]) {
                    Some(at) => from += at * input_strides[d],
                    None => return,
                }
            }
            out.push((from, at(offset, offset_strides)));
        });
    }
}

/// `sums[o] += x[i] * w[i][o]`, for `i` ascending. Four at a time, in the same order, so that the sums stay in registers a little longer.
fn accumulate<N: Number>(sums: &mut [N], x: &[N], w: &[N]) {
    let n = sums.len();
    let (blocks, rest) = x.as_chunks::<4>();
    for (block, w) in blocks.iter().zip(w.chunks_exact(4 * n)) {
        let (w0, w) = w.split_at(n);
        let (w1, w) = w.split_at(n);
        let (w2, w3) = w.split_at(n);
        for ((((sum, a), b), c), d) in sums.iter_mut().zip(w0).zip(w1).zip(w2).zip(w3) {
            *sum = sum.add_product(block[0], *a).add_product(block[1], *b).add_product(block[2], *c).add_product(block[3], *d);
        }
    }
    for (x, w) in rest.iter().zip(w[blocks.len() * 4 * n..].chunks_exact(n)) {
        for (sum, w) in sums.iter_mut().zip(w) {
            *sum = sum.add_product(*x, *w);
        }
    }
}
