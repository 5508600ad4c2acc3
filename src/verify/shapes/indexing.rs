//! Shape rules of slices at run-time positions, gather, scatter, and run-time sizes.

use super::movement::is_integer;
use super::{Node, Rule, Trouble, Want, attribute, dimension, dimensions, others, rising, sizes, unsuited};
use crate::ir::{Gather, Primitive, Scatter};

/// Start indices: a scalar a dimension, or one vector of them.
fn starts(n: &Node<'_>, first: usize, rank: usize) -> Result<(), Trouble> {
    let found = n.count() - first;
    if found == 1 && n.array(first)?.dims.len() == 1 {
        let size = n.array(first)?.dims[0].size;
        if usize::try_from(size) != Ok(rank) {
            return unsuited(format!("expected {rank} start indices, found {size}"));
        }
        return Ok(());
    }
    if found != rank {
        return Err(Trouble { code: "S08", message: format!("expected {rank} start indices, found {found}") });
    }
    for operand in first..n.count() {
        n.index(operand)?;
        n.same_types(first, operand)?;
    }
    Ok(())
}

pub(super) fn dynamic_slice(n: &Node<'_>, wanted: &[i64]) -> Rule {
    let a = n.array(0)?;
    if wanted.len() != a.dims.len() {
        return attribute(format!("expected {} slice sizes, found {}", a.dims.len(), wanted.len()));
    }
    if let Some((d, size)) = a.dims.iter().zip(wanted).find(|(d, size)| **size < 0 || **size > d.size) {
        return attribute(format!("expected a slice of at most {}, found {size}", d.size));
    }
    starts(n, 1, a.dims.len())?;
    Ok(Want::Array(a.element.clone(), wanted.to_vec()))
}

pub(super) fn dynamic_update_slice(n: &Node<'_>) -> Rule {
    let (a, update) = (n.array(0)?, n.array(1)?);
    n.same_types(0, 1)?;
    if update.dims.len() != a.dims.len() || a.dims.iter().zip(&update.dims).any(|(a, u)| u.size > a.size) {
        return unsuited(format!("expected an update inside of {:?}, found {:?}", sizes(a), sizes(update)));
    }
    starts(n, 2, a.dims.len())?;
    Ok(n.like(0))
}

/// Sizes of the indices without the dimension that holds their components.
fn batch_sizes(indices: &[i64], vector: usize) -> Vec<i64> {
    indices.iter().enumerate().filter(|(d, _)| *d != vector).map(|(_, &s)| s).collect()
}

/// The number of components of an index.
fn components(indices: &[i64], vector: i64) -> Result<(usize, i64), Trouble> {
    match usize::try_from(vector) {
        Ok(v) if v == indices.len() => Ok((v, 1)),
        Ok(v) if v < indices.len() => Ok((v, indices[v])),
        _ => attribute(format!("expected an index vector dimension up to {}, found {vector}", indices.len())),
    }
}

fn count(expected: i64, found: usize, what: &str) -> Result<(), Trouble> {
    if usize::try_from(expected) == Ok(found) {
        return Ok(());
    }
    attribute(format!("expected {expected} {what}, found {found}"))
}

pub(super) fn gather(n: &Node<'_>, gather: &Gather) -> Rule {
    let (a, indices) = (n.array(0)?, n.array(1)?);
    let g = &gather.dims;
    if !is_integer(indices) {
        return unsuited(format!("expected integers as indices, found `{}`", indices.element.name()));
    }
    let rank = a.dims.len();
    let indices = sizes(indices);
    let (vector, parts) = components(&indices, g.index_vector_dim)?;
    count(parts, g.start_index_map.len(), "dimensions in the start index map")?;
    dimensions(&g.start_index_map, rank)?;
    let mut dropped = rising(&g.collapsed_slice_dims, rank)?;
    dropped.extend(rising(&g.operand_batching_dims, rank)?);
    if gather.slice_sizes.len() != rank {
        return attribute(format!("expected {rank} slice sizes, found {}", gather.slice_sizes.len()));
    }
    if let Some((size, d)) = gather.slice_sizes.iter().zip(&a.dims).find(|(size, d)| **size < 0 || **size > d.size) {
        return attribute(format!("expected a slice of at most {}, found {size}", d.size));
    }
    let window: Vec<i64> = others(&dropped, rank).into_iter().map(|d| gather.slice_sizes[d]).collect();
    let mut batch = batch_sizes(&indices, vector).into_iter();
    let out_rank = window.len() + batch.len();
    let offsets = rising(&g.offset_dims, out_rank)?;
    count(i64::try_from(window.len()).unwrap_or(i64::MAX), offsets.len(), "offset dimensions")?;
    let mut window = window.into_iter();
    let mut is_offset = vec![false; out_rank];
    offsets.into_iter().for_each(|d| is_offset[d] = true);
    let next = |offset: &bool| if *offset { window.next() } else { batch.next() };
    Ok(Want::Array(a.element.clone(), is_offset.iter().filter_map(next).collect()))
}

pub(super) fn scatter(n: &Node<'_>, scatter: &Scatter) -> Rule {
    let s = &scatter.dims;
    if n.count().is_multiple_of(2) {
        return Err(Trouble {
            code: "S08",
            message: format!("expected operands, indices and as many updates, found {} operands", n.count()),
        });
    }
    let arrays = n.count() / 2;
    let indices = n.array(arrays)?;
    if !is_integer(indices) {
        return unsuited(format!("expected integers as indices, found `{}`", indices.element.name()));
    }
    let indices = sizes(indices);
    let (vector, parts) = components(&indices, s.index_vector_dim)?;
    count(parts, s.scatter_dims_to_operand_dims.len(), "dimensions in the map to operand dimensions")?;
    for k in 0..arrays {
        n.same_types(k, arrays + 1 + k)?;
        n.same_sizes(0, k)?;
        n.same_sizes(arrays + 1, arrays + 1 + k)?;
    }
    let (a, update) = (n.array(0)?, n.array(arrays + 1)?);
    let rank = a.dims.len();
    dimensions(&s.scatter_dims_to_operand_dims, rank)?;
    let mut dropped = rising(&s.inserted_window_dims, rank)?;
    dropped.extend(rising(&s.input_batching_dims, rank)?);
    let kept = others(&dropped, rank);
    let window = rising(&s.update_window_dims, update.dims.len())?;
    count(i64::try_from(kept.len()).unwrap_or(i64::MAX), window.len(), "window dimensions of the update")?;
    for (&u, &d) in window.iter().zip(&kept) {
        if update.dims[u].size > a.dims[d].size {
            return unsuited(format!("expected a window of at most {} in dimension {d}, found {}", a.dims[d].size, update.dims[u].size));
        }
    }
    let batch: Vec<i64> = others(&window, update.dims.len()).into_iter().map(|d| update.dims[d].size).collect();
    if batch != batch_sizes(&indices, vector) {
        return unsuited(format!("expected updates for {:?} indices, found {batch:?}", batch_sizes(&indices, vector)));
    }
    Ok(Want::bare_or_tuple((0..arrays).map(|k| n.like(k)).collect()))
}

pub(super) fn get_dimension_size(n: &Node<'_>, number: i64) -> Rule {
    dimension(number, n.array(0)?.dims.len())?;
    Ok(Want::scalar(Primitive::S32))
}

pub(super) fn set_dimension_size(n: &Node<'_>, number: i64) -> Rule {
    dimension(number, n.array(0)?.dims.len())?;
    n.index(1)?;
    Ok(n.like(0))
}
