//! Moving data: sizes of dimensions, `scan`, and pieces that other operations cut and join.

use super::error::{OpError, Result, ensure};
use crate::interp::Array;
use crate::ir::{Primitive, Scan};

/// `get-dimension-size` of a static dimension.
fn get_dimension_size(operand: &Array, dimension: i64) -> Result<Array> {
    let d = usize::try_from(dimension).ok().and_then(|d| operand.dims.get(d));
    let d = d.ok_or_else(|| OpError(format!("expected a dimension of {:?}, found {dimension}", operand.dims)))?;
    Ok(Array::of_i64(Primitive::S32, &[], &[i64::try_from(*d).unwrap_or(i64::MAX)]))
}

/// `set-dimension-size` to the size that the dimension has; a smaller one would make the array dynamic.
pub fn set_dimension_size(operand: &Array, length: &Array, dimension: i64) -> Result<Array> {
    let own = get_dimension_size(operand, dimension)?.i64(0);
    ensure(length.i64(0) == own, || format!("expected the whole size {own}, found {}: dynamic sizes are not supported", length.i64(0)))?;
    Ok(operand.clone())
}

/// `bitcast-convert` to an element type and dimensions: a smaller type gets a last dimension more, a larger one loses it; the low bits come
/// first. `pred` counts as a byte.
pub fn bitcast_convert(operand: &Array, element: Primitive, dims: &[usize]) -> Result<Array> {
    let bits = |p: Primitive| p.bits() as usize;
    let (from, to) = (bits(operand.element), bits(element));
    let total = dims.iter().try_fold(to, |n, &d| n.checked_mul(d));
    ensure(total == Some(operand.len() * from), || {
        format!("expected as many bits as {:?} of `{}` has, found {dims:?} of `{}`", operand.dims, operand.element.name(), element.name())
    })?;
    let mut out = Array::zeros(element, dims);
    if from.is_multiple_of(8) && to.is_multiple_of(8) {
        out.data.copy_from_slice(&operand.data);
        return Ok(out);
    }
    // Below a byte, both sides are at most 64 bits wide wherever the dimensions are as they must be.
    for i in 0..out.len() {
        let mut value = 0;
        if to <= from {
            value = operand.bits(i * to / from) >> (i * to % from);
        } else {
            for part in 0..to / from {
                value |= operand.bits(i * (to / from) + part) << (part * from);
            }
        }
        out.set_bits(i, value & (u64::MAX >> 64usize.saturating_sub(to)));
    }
    Ok(out)
}

/// A part of an array along one dimension.
pub(super) fn part(array: &Array, dimension: usize, start: usize, size: usize) -> Array {
    let mut dims = array.dims.clone();
    let inner = dims[dimension + 1..].iter().product::<usize>() * array.width();
    let outer: usize = dims[..dimension].iter().product();
    let whole = dims[dimension] * inner;
    dims[dimension] = size;
    let mut data = Vec::with_capacity(outer * size * inner);
    for o in 0..outer {
        data.extend_from_slice(&array.data[o * whole + start * inner..o * whole + (start + size) * inner]);
    }
    Array { element: array.element, dims, data }
}

/// Arrays one after another along a dimension; they differ in no other. There is at least one.
pub(super) fn join(arrays: &[&Array], dimension: usize) -> Array {
    let mut dims = arrays[0].dims.clone();
    let outer: usize = dims[..dimension].iter().product();
    dims[dimension] = arrays.iter().map(|a| a.dims[dimension]).sum();
    let mut data = Vec::with_capacity(arrays.iter().map(|a| a.data.len()).sum());
    for o in 0..outer {
        for array in arrays {
            let row = array.data.len() / outer;
            data.extend_from_slice(&array.data[o * row..(o + 1) * row]);
        }
    }
    Array { element: arrays[0].element, dims, data }
}

/// `scan`: the body gets a slice of each scanned operand (without the scanned dimension), then the carries; it gives a slice of each output,
/// then the carries. The results are the outputs, then the last carries. `outputs` are the outputs' element types and dimensions.
///
/// # Errors
/// Those of the body, and operands that do not fit.
pub fn scan(
    op: &Scan,
    operands: &[&Array],
    outputs: &[(Primitive, Vec<usize>)],
    body: &mut dyn FnMut(Vec<Array>) -> Result<Vec<Array>>,
) -> Result<Vec<Array>> {
    let carries = usize::try_from(op.num_carries).ok().filter(|&n| n < operands.len());
    let dimension = usize::try_from(op.dimension).ok();
    ensure(carries.is_some() && dimension.is_some(), || "expected a scanned operand before the carries".into())?;
    let (carries, dimension) = (carries.expect("checked above"), dimension.expect("checked above"));
    let (scanned, initial) = operands.split_at(operands.len() - carries);
    let length = scanned[0].dims.get(dimension).copied();
    let fits = length.is_some()
        && scanned.iter().all(|a| a.dims.get(dimension).copied() == length)
        && outputs.iter().all(|(_, dims)| dims.get(dimension).copied() == length);
    ensure(fits, || format!("expected arrays of one length in dimension {dimension}"))?;
    let length = length.expect("checked above");
    let mut carried: Vec<Array> = initial.iter().map(|&a| a.clone()).collect();
    let mut pieces: Vec<Vec<Array>> = vec![Vec::new(); outputs.len()];
    for step in 0..length {
        let at = if op.is_reverse { length - 1 - step } else { step };
        let mut arguments: Vec<Array> = scanned.iter().map(|a| without(part(a, dimension, at, 1), dimension)).collect();
        arguments.append(&mut carried);
        let mut results = body(arguments)?;
        ensure(results.len() == outputs.len() + carries, || {
            format!("expected {} results of the body, found {}", outputs.len() + carries, results.len())
        })?;
        carried = results.split_off(outputs.len());
        for (list, (mut piece, (_, dims))) in pieces.iter_mut().zip(results.into_iter().zip(outputs)) {
            ensure(piece.dims.len() + 1 == dims.len(), || format!("expected a slice of {dims:?}, found {:?}", piece.dims))?;
            piece.dims.insert(dimension, 1);
            list.push(piece);
        }
    }
    let mut out = Vec::new();
    for (mut list, (element, dims)) in pieces.into_iter().zip(outputs) {
        if op.is_reverse {
            list.reverse();
        }
        out.push(if list.is_empty() { Array::zeros(*element, dims) } else { join(&list.iter().collect::<Vec<_>>(), dimension) });
    }
    out.append(&mut carried);
    Ok(out)
}

fn without(mut array: Array, dimension: usize) -> Array {
    array.dims.remove(dimension);
    array
}
