//! Shape rules of operations that move elements and compute nothing.

use super::{Node, Rule, Trouble, Want, attribute, dimension, dimensions, sizes, unsuited};
use crate::ir::{ArrayShape, PadDim, Primitive, SliceDim};

/// H05: a bitcast is free to change type, sizes and layout, not the number of bytes.
pub(super) fn bitcast(n: &Node<'_>) -> Rule {
    let (from, to) = (n.array(0)?, n.result()?);
    if from.byte_size() == to.byte_size() || from.element.known().is_none() || to.element.known().is_none() {
        return Ok(Want::Any);
    }
    let message = format!("expected a bitcast of {} bytes to as many, found {}", from.byte_size(), to.byte_size());
    Err(Trouble { code: "H05", message })
}

pub(super) fn reshape(n: &Node<'_>) -> Rule {
    let (from, to) = (n.array(0)?, n.result()?);
    if from.elements() != to.elements() {
        return unsuited(format!(
            "expected as many elements in the result as in the operand, found {} and {}",
            to.elements(),
            from.elements()
        ));
    }
    Ok(Want::Array(from.element.clone(), sizes(to)))
}

pub(super) fn dynamic_reshape(n: &Node<'_>) -> Rule {
    let (from, to) = (n.array(0)?, n.result()?);
    if n.count() != to.dims.len() + 1 {
        return Err(sizes_needed(to.dims.len(), n.count() - 1));
    }
    (1..n.count()).try_for_each(|o| n.index(o))?;
    Ok(Want::Array(from.element.clone(), sizes(to)))
}

fn sizes_needed(rank: usize, found: usize) -> Trouble {
    Trouble { code: "S08", message: format!("expected a size for each of {rank} dimensions, found {found}") }
}

pub(super) fn broadcast(n: &Node<'_>, numbers: &[i64]) -> Rule {
    let (from, to) = (n.array(0)?, n.result()?);
    if numbers.len() != from.dims.len() {
        return attribute(format!(
            "expected a result dimension for each of {} operand dimensions, found {}",
            from.dims.len(),
            numbers.len()
        ));
    }
    for (i, d) in dimensions(numbers, to.dims.len())?.into_iter().enumerate() {
        if from.dims[i].size != to.dims[d].size {
            return attribute(format!(
                "expected dimension {d} of the result to have size {}, found {}",
                from.dims[i].size, to.dims[d].size
            ));
        }
    }
    Ok(Want::Array(from.element.clone(), sizes(to)))
}

pub(super) fn transpose(n: &Node<'_>, numbers: &[i64]) -> Rule {
    let a = n.array(0)?;
    let order = dimensions(numbers, a.dims.len())?;
    if order.len() != a.dims.len() {
        return attribute(format!("expected a permutation of {} dimensions, found {numbers:?}", a.dims.len()));
    }
    Ok(Want::Array(a.element.clone(), order.into_iter().map(|d| a.dims[d].size).collect()))
}

/// Also of shuffle: dimensions that exist, the shape unchanged.
pub(super) fn reverse(n: &Node<'_>, numbers: &[i64]) -> Rule {
    dimensions(numbers, n.array(0)?.dims.len())?;
    Ok(n.like(0))
}

pub(super) fn concatenate(n: &Node<'_>, number: i64) -> Rule {
    let first = n.array(0)?;
    let d = dimension(number, first.dims.len())?;
    let mut out = sizes(first);
    for operand in 1..n.count() {
        n.same_types(0, operand)?;
        let mut other = sizes(n.array(operand)?);
        let added = other.get(d).copied().unwrap_or(0);
        if other.len() == out.len() {
            other[d] = out[d];
        }
        if other != out {
            return unsuited(format!("expected operand {operand} to be as operand 0 but for dimension {d}"));
        }
        out[d] = out[d].saturating_add(added);
    }
    Ok(Want::Array(first.element.clone(), out))
}

pub(super) fn pad(n: &Node<'_>, padding: &[PadDim]) -> Rule {
    let a = n.array(0)?;
    n.scalar(1)?;
    n.same_types(0, 1)?;
    if padding.len() != a.dims.len() {
        return attribute(format!("expected padding for {} dimensions, found {}", a.dims.len(), padding.len()));
    }
    let mut out = Vec::with_capacity(padding.len());
    for (d, p) in a.dims.iter().zip(padding) {
        let between = d.size.saturating_sub(1).max(0).saturating_mul(p.interior);
        let size = d.size.saturating_add(p.low).saturating_add(p.high).saturating_add(between);
        if size < 0 || p.interior < 0 {
            return attribute(format!("expected padding that leaves a size of at least 0, found {size}"));
        }
        out.push(size);
    }
    Ok(Want::Array(a.element.clone(), out))
}

pub(super) fn slice(n: &Node<'_>, dims: &[SliceDim]) -> Rule {
    let a = n.array(0)?;
    if dims.len() != a.dims.len() {
        return attribute(format!("expected a range for each of {} dimensions, found {}", a.dims.len(), dims.len()));
    }
    let mut out = Vec::with_capacity(dims.len());
    for (d, s) in a.dims.iter().zip(dims) {
        if s.start < 0 || s.limit < s.start || s.limit > d.size || s.stride < 1 {
            return attribute(format!("expected a range inside of 0 to {}, found {}:{}:{}", d.size, s.start, s.limit, s.stride));
        }
        let length = s.limit - s.start;
        out.push(length / s.stride + i64::from(length % s.stride != 0));
    }
    Ok(Want::Array(a.element.clone(), out))
}

/// Whether an element type is an integer, as far as it is known.
pub(super) fn is_integer(a: &ArrayShape) -> bool {
    a.element.known().is_none_or(Primitive::is_integer)
}
