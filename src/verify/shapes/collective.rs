//! Shape rules of collectives and of their `-start` and `-done`.

use super::{Node, Rule, Trouble, Want, attribute, dimension, dimensions, sizes, unsuited};
use crate::ir::{Collective, CollectiveKind, ReplicaGroups, Shape, ShapeId};

/// Devices a group, where the groups say it.
fn group_size(groups: &ReplicaGroups) -> Option<i64> {
    match groups {
        ReplicaGroups::List(list) => list.first().map(|g| i64::try_from(g.len()).unwrap_or(i64::MAX)),
        ReplicaGroups::Iota { devices, .. } => Some(*devices),
        ReplicaGroups::Mesh { .. } => None,
    }
}

pub(super) fn collective(n: &Node<'_>, c: &Collective) -> Rule {
    if !c.start {
        return result(n, c, n.instr.shape);
    }
    if c.kind == CollectiveKind::AllReduce {
        return result(n, c, n.instr.shape);
    }
    // ((operands), (results), context…), bare where there is one.
    let Shape::Tuple(elements) = n.module.shapes.get(n.instr.shape) else { return unsuited("expected a tuple of operand and result") };
    if elements.len() < 2 {
        return unsuited(format!("expected operand and result in the tuple, found {} elements", elements.len()));
    }
    let operands: Vec<Want> = (0..n.count()).map(|o| n.like(o)).collect();
    let mut bare = Want::Tuple(operands.clone());
    if n.count() == 1 && n.module.shapes.array(elements[0]).is_some() {
        bare = n.like(0);
    }
    let output = result(n, c, elements[1])?;
    let mut all = vec![bare, output];
    all.resize_with(elements.len(), || Want::Any);
    Ok(Want::Tuple(all))
}

/// The shape of the result proper; `declared` is where its size along the gathered dimension is read.
fn result(n: &Node<'_>, c: &Collective, declared: ShapeId) -> Rule {
    // A root that is known at run time comes as a last operand.
    let values = n.count().saturating_sub(usize::from(c.has_dynamic_root));
    let same = || Want::bare_or_tuple((0..values).map(|o| n.like(o)).collect());
    match c.kind {
        CollectiveKind::AllReduce | CollectiveKind::Broadcast | CollectiveKind::Reduce => Ok(same()),
        // In place, with offsets: operands, results, offsets.
        CollectiveKind::Permute if n.count() == 4 => Ok(n.like(1)),
        CollectiveKind::Permute => Ok(same()),
        CollectiveKind::RaggedAllToAll => Ok(if n.count() > 1 { n.like(1) } else { Want::Any }),
        CollectiveKind::AllToAll => {
            if let (1, true) = (n.count(), n.module.shapes.array(n.shape(0)).is_some()) {
                dimensions(&c.dimensions, n.array(0)?.dims.len())?;
            }
            Ok(same())
        }
        CollectiveKind::AllGather => {
            scaled(n, c, declared, |given, times| Some(given.saturating_mul(times)), |given, found| found / given.max(1))
        }
        CollectiveKind::ReduceScatter => {
            let divide = |given: i64, times: i64| (times > 0 && given % times == 0).then(|| given / times);
            scaled(n, c, declared, divide, |given, found| given / found.max(1))
        }
    }
}

/// All-gather and reduce-scatter: one dimension grows or shrinks by the size of a group, as declared where the groups do not say it.
fn scaled(
    n: &Node<'_>,
    c: &Collective,
    declared: ShapeId,
    apply: impl Fn(i64, i64) -> Option<i64>,
    ratio: impl Fn(i64, i64) -> i64,
) -> Rule {
    let [number] = c.dimensions[..] else { return attribute(format!("expected one dimension, found {:?}", c.dimensions)) };
    let shapes = &n.module.shapes;
    let results = if shapes.array(declared).is_some() { vec![declared] } else { shapes.elements(declared).to_vec() };
    if results.len() != n.count() {
        return unsuited(format!("expected {} results, found {}", n.count(), results.len()));
    }
    let mut wants = Vec::new();
    for (operand, &result) in results.iter().enumerate() {
        let a = n.array(operand)?;
        let d = dimension(number, a.dims.len())?;
        let found = shapes.array(result).and_then(|r| r.dims.get(d)).map_or(0, |d| d.size);
        // A group of one may stand for all devices.
        let times = group_size(&c.groups).filter(|&size| size > 1).unwrap_or_else(|| ratio(a.dims[d].size, found).max(1));
        let mut out = sizes(a);
        out[d] = apply(out[d], times).ok_or_else(|| odd(out[d], times))?;
        wants.push(Want::Array(a.element.clone(), out));
    }
    Ok(Want::bare_or_tuple(wants))
}

fn odd(size: i64, times: i64) -> Trouble {
    Trouble { code: "H02", message: format!("expected a dimension that {times} devices can share, found {size}") }
}

/// The result of the start.
pub(super) fn done(n: &Node<'_>, kind: CollectiveKind) -> Rule {
    if kind == CollectiveKind::AllReduce {
        return Ok(n.like(0));
    }
    Ok(n.module.shapes.elements(n.shape(0)).get(1).map_or(Want::Any, |&e| Want::Like(e)))
}
