//! Shape rules of reductions, sorts and normalizations.

use super::window::windowed;
use super::{Node, Rule, Trouble, Want, dimension, dimensions, others, sizes, unsuited};
use crate::ir::{CompId, ElementType, Primitive, Window};

/// Half of the operands are arrays of equal sizes, the other half their initial scalars.
fn halves(n: &Node<'_>) -> Result<usize, Trouble> {
    let arrays = n.count() / 2;
    if !n.count().is_multiple_of(2) {
        return Err(Trouble { code: "S08", message: format!("expected as many initial values as arrays, found {} operands", n.count()) });
    }
    for k in 0..arrays {
        n.same_sizes(0, k)?;
        n.scalar(arrays + k)?;
    }
    Ok(arrays)
}

/// The element types that a combiner returns: accumulators may be wider than what they take in.
fn accumulated(n: &Node<'_>, to_apply: CompId, arrays: usize) -> Result<Vec<ElementType>, Trouble> {
    let shapes = &n.module.shapes;
    let root = n.module.instr(n.module.comp(to_apply).root).shape;
    let parts = if arrays == 1 { std::slice::from_ref(&root) } else { shapes.elements(root) };
    let types: Vec<ElementType> = parts.iter().filter_map(|&p| shapes.array(p)).map(|a| a.element.clone()).collect();
    if types.len() != arrays {
        return unsuited(format!("expected a combiner that returns {arrays} scalars"));
    }
    let wide = |p: &ElementType| p.known().is_none_or(|p| p.is_float());
    for (k, found) in types.iter().enumerate() {
        for operand in [k, arrays + k] {
            let given = &n.array(operand)?.element;
            if given != found && !(wide(given) && wide(found)) {
                return unsuited(format!("expected a combiner of `{}`, found one of `{}`", given.name(), found.name()));
            }
        }
    }
    Ok(types)
}

pub(super) fn reduce(n: &Node<'_>, numbers: &[i64], to_apply: CompId) -> Rule {
    let arrays = halves(n)?;
    let a = n.array(0)?;
    let reduced = dimensions(numbers, a.dims.len())?;
    let out: Vec<i64> = others(&reduced, a.dims.len()).into_iter().map(|d| a.dims[d].size).collect();
    let types = accumulated(n, to_apply, arrays)?;
    Ok(Want::bare_or_tuple(types.into_iter().map(|t| Want::Array(t, out.clone())).collect()))
}

pub(super) fn reduce_window(n: &Node<'_>, window: &Window, to_apply: CompId) -> Rule {
    let arrays = halves(n)?;
    let out = windowed(&sizes(n.array(0)?), window)?;
    let types = accumulated(n, to_apply, arrays)?;
    Ok(Want::bare_or_tuple(types.into_iter().map(|t| Want::Array(t, out.clone())).collect()))
}

pub(super) fn select_and_scatter(n: &Node<'_>, window: &Window) -> Rule {
    n.scalar(2)?;
    let swept = windowed(&sizes(n.array(0)?), window)?;
    if swept != sizes(n.array(1)?) {
        return unsuited(format!("expected a source of sizes {swept:?}, found {:?}", sizes(n.array(1)?)));
    }
    Ok(n.like(0))
}

pub(super) fn sort(n: &Node<'_>, number: i64) -> Rule {
    dimension(number, n.array(0)?.dims.len())?;
    for operand in 1..n.count() {
        n.same_sizes(0, operand)?;
    }
    Ok(Want::bare_or_tuple((0..n.count()).map(|o| n.like(o)).collect()))
}

pub(super) fn top_k(n: &Node<'_>, k: i64) -> Rule {
    let a = n.array(0)?;
    let mut out = sizes(a);
    match out.last_mut() {
        Some(last) if (0..=*last).contains(&k) => *last = k,
        _ => return unsuited(format!("expected a last dimension of at least {k}, found {:?}", sizes(a))),
    }
    Ok(Want::Tuple(vec![Want::Array(a.element.clone(), out.clone()), Want::Array(Primitive::S32.into(), out)]))
}

/// Batch normalizations: the result (or its gradient) as the operand, then one value a feature.
pub(super) fn batch_norm(n: &Node<'_>, feature: i64, results: usize) -> Rule {
    let a = n.array(0)?;
    let d = dimension(feature, a.dims.len())?;
    let features = Want::Array(a.element.clone(), vec![a.dims[d].size]);
    let vectors = if n.count() == 5 && results == 3 { 1..4 } else { 1..n.count() };
    for operand in vectors {
        if sizes(n.array(operand)?) != [a.dims[d].size] {
            return unsuited(format!("expected one value a feature as operand {operand}, found {:?}", sizes(n.array(operand)?)));
        }
    }
    let mut out = vec![n.like(0)];
    out.resize(results, features);
    Ok(Want::bare_or_tuple(out))
}
