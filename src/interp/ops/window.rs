//! `reduce-window` and `select-and-scatter`.
//!
//! A window's elements come in row-major order; what lies in the padding or between dilated elements does not come at all.

use super::combine::Combiner;
use super::conv::{seen, steps};
use super::elementwise::{load, store};
use super::error::{OpError, Result, ensure};
use super::index::each;
use super::scalar::Bits;
use crate::interp::Array;
use crate::interp::array::row_major;
use crate::ir::{Binary, Primitive, WindowDim};

/// Sizes of the result of sliding a window.
fn slid(dims: &[usize], window: &[WindowDim]) -> Result<Vec<usize>> {
    ensure(dims.len() == window.len(), || format!("expected a window of {} dimensions, found {}", dims.len(), window.len()))?;
    dims.iter().zip(window).map(|(&n, w)| steps(n, w)).collect()
}

fn offsets(window: &[WindowDim]) -> Vec<usize> {
    window.iter().map(|w| w.size as usize).collect()
}

/// The linear position that an offset of the window at `place` sees.
fn visible(window: &[WindowDim], dims: &[usize], strides: &[usize], place: &[usize], offset: &[usize]) -> Option<usize> {
    let mut linear = 0;
    for (d, w) in window.iter().enumerate() {
        // Reversal does not change which elements a window sees, only their order.
        let offset = if w.reversal { w.size as usize - 1 - offset[d] } else { offset[d] };
        linear += seen(w, dims[d], place[d], offset)? * strides[d];
    }
    Some(linear)
}

/// `reduce-window` of operands of one shape, with an initial value each: `f(…f(f(init, x0), x1)…)` in every window.
pub fn reduce_window(operands: &[&Array], inits: &[Bits], window: &[WindowDim], mut f: Combiner<'_>) -> Result<Vec<Array>> {
    let first = operands.first().ok_or_else(|| OpError("expected an operand to reduce, found none".into()))?;
    let fits = operands.len() == inits.len() && operands.iter().all(|o| o.dims == first.dims);
    ensure(fits, || "expected operands of one shape and as many initial values".into())?;
    let (dims, offsets, strides) = (slid(&first.dims, window)?, offsets(window), first.strides());
    if let (&Combiner::Known(op), [operand], Primitive::F32) = (&f, operands, first.element)
        && matches!(op, Binary::Add | Binary::Maximum | Binary::Minimum | Binary::Multiply)
    {
        return Ok(vec![reduce_f32(operand, f32::from_bits(inits[0] as u32), window, &dims, op)]);
    }
    let elements: Vec<Primitive> = operands.iter().map(|o| o.element).collect();
    let mut out: Vec<Array> = operands.iter().map(|o| Array::zeros(o.element, &dims)).collect();
    let (mut accumulators, mut values) = (inits.to_vec(), inits.to_vec());
    let mut linear = 0;
    each(&dims, |place| {
        accumulators.copy_from_slice(inits);
        each(&offsets, |offset| {
            if let Some(at) = visible(window, &first.dims, &strides, place, offset) {
                for (value, operand) in values.iter_mut().zip(operands) {
                    *value = load(operand, at);
                }
                f.apply(&elements, &mut accumulators, &values);
            }
        });
        for (array, &bits) in out.iter_mut().zip(&accumulators) {
            store(array, linear, bits);
        }
        linear += 1;
    });
    Ok(out)
}

fn reduce_f32(operand: &Array, init: f32, window: &[WindowDim], dims: &[usize], op: Binary) -> Array {
    let values: Vec<f32> = super::elementwise::f32s(operand).collect();
    let (offsets, strides) = (offsets(window), operand.strides());
    let mut out = Vec::with_capacity(dims.iter().product());
    each(dims, |place| {
        let mut sum = init;
        each(&offsets, |offset| {
            if let Some(at) = visible(window, &operand.dims, &strides, place, offset) {
                sum = super::scalar::binary_f32(op, sum, values[at]);
            }
        });
        out.push(sum);
    });
    Array::of_f32(dims, &out)
}

/// `select-and-scatter`: every element of `source` goes to the element of its window that `select` keeps against the others, and joins what
/// is there by `scatter(there, element)`; the result starts as `init` everywhere. Source elements come in row-major order.
pub fn select_and_scatter(
    operand: &Array,
    source: &Array,
    init: Bits,
    window: &[WindowDim],
    select: &mut dyn FnMut(Bits, Bits) -> bool,
    mut scatter: Combiner<'_>,
) -> Result<Array> {
    let dims = slid(&operand.dims, window)?;
    ensure(dims == source.dims, || format!("expected a source of {dims:?}, found {:?}", source.dims))?;
    let (offsets, strides) = (offsets(window), row_major(&operand.dims));
    let mut out = Array::zeros(source.element, &operand.dims);
    for i in 0..out.len() {
        store(&mut out, i, init);
    }
    let mut linear = 0;
    each(&dims, |place| {
        let mut kept: Option<(usize, Bits)> = None;
        each(&offsets, |offset| {
            if let Some(at) = visible(window, &operand.dims, &strides, place, offset) {
                let value = load(operand, at);
                if kept.is_none_or(|(_, best)| !select(best, value)) {
                    kept = Some((at, value));
                }
            }
        });
        if let Some((at, _)) = kept {
            let joined = scatter.one(source.element, load(&out, at), load(source, linear));
            store(&mut out, at, joined);
        }
        linear += 1;
    });
    Ok(out)
}
