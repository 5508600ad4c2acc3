//! Shape rules of asynchronous chains, copies, sends and receives, feeds.

use super::{Node, Rule, Trouble, Want, unsuited};
use crate::ir::{Op, Primitive, Shape, ShapeId};

fn parts<'m>(n: &Node<'m>, id: ShapeId, least: usize) -> Result<&'m [ShapeId], Trouble> {
    match n.module.shapes.get(id) {
        Shape::Tuple(elements) if elements.len() >= least => Ok(elements),
        _ => unsuited(format!("expected a tuple of at least {least} elements, found `{}`", super::show(&n.module.shapes, id))),
    }
}

/// `((operands…), result, context…)`. The result was compared with the wrapped computation's (S10).
pub(super) fn async_start(n: &Node<'_>) -> Rule {
    let elements = parts(n, n.instr.shape, 2)?;
    let mut all = vec![Want::Tuple((0..n.count()).map(|o| n.like(o)).collect())];
    all.resize_with(elements.len(), || Want::Any);
    Ok(Want::Tuple(all))
}

/// As its operand, but for operands that come late: then these and the result.
pub(super) fn async_update(n: &Node<'_>) -> Rule {
    if n.count() == 1 {
        return Ok(n.like(0));
    }
    let elements = parts(n, n.instr.shape, 2)?;
    let before = parts(n, n.shape(0), 2)?;
    let mut operands: Vec<Want> = parts(n, before[0], 0)?.iter().map(|&e| Want::Like(e)).collect();
    operands.extend((1..n.count()).map(|o| n.like(o)));
    let mut all = vec![Want::Tuple(operands)];
    all.resize_with(elements.len(), || Want::Any);
    Ok(Want::Tuple(all))
}

pub(super) fn async_done(n: &Node<'_>) -> Rule {
    Ok(Want::Like(parts(n, n.shape(0), 2)?[1]))
}

pub(super) fn copy_done(n: &Node<'_>) -> Rule {
    match n.module.instr(n.instr.operands[0]).op {
        Op::CopyStart { .. } => Ok(Want::Like(parts(n, n.shape(0), 2)?[0])),
        // Promise V8.
        _ => Ok(Want::Any),
    }
}

pub(super) fn send(n: &Node<'_>) -> Rule {
    Ok(Want::Tuple(vec![n.like(0), Want::scalar(Primitive::U32), Want::Token]))
}

pub(super) fn recv(n: &Node<'_>) -> Rule {
    Ok(Want::Tuple(vec![Want::Like(parts(n, n.instr.shape, 3)?[0]), Want::scalar(Primitive::U32), Want::Token]))
}

pub(super) fn recv_done(n: &Node<'_>) -> Rule {
    Ok(Want::Tuple(vec![Want::Like(parts(n, n.shape(0), 3)?[0]), Want::Token]))
}

pub(super) fn infeed(n: &Node<'_>) -> Rule {
    Ok(Want::Tuple(vec![Want::Like(parts(n, n.instr.shape, 2)?[0]), Want::Token]))
}
