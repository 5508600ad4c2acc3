//! Who talks to whom: the groups of a collective.

use super::error::{Result, ensure, refuse, size, sizes};
use super::index::{are_dims, at, each, pick};
use crate::interp::array::row_major;
use crate::ir::{AxisRef, Collective, CollectiveKind, Mesh, ReplicaGroups};

/// The numbers of an iota of these dimensions, transposed, in row-major order.
fn transposed_iota(dims: &[usize], perm: &[usize]) -> Vec<i64> {
    let strides = pick(&row_major(dims), perm);
    let mut out = Vec::new();
    each(&pick(dims, perm), |index| out.push(at(index, &strides) as i64));
    out
}

/// The product, unless it is above what a list of devices can be.
fn checked_product(dims: &[usize]) -> Result<usize> {
    let product = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= 1 << 24);
    product.map_or_else(|| refuse(format!("expected a sensible number of devices, found {dims:?}")), Ok)
}

/// The lists that the groups say; none for `{}`.
///
/// # Errors
/// Groups that contradict themselves.
pub fn group_lists(groups: &ReplicaGroups) -> Result<Vec<Vec<i64>>> {
    match groups {
        ReplicaGroups::List(lists) => Ok(lists.iter().filter(|l| !l.is_empty()).cloned().collect()),
        ReplicaGroups::Iota { groups, devices, reshape, perm } => {
            let (count, devices, dims) = (size(*groups)?, size(*devices)?, sizes(reshape)?);
            let perm = sizes(&perm.iter().map(|&p| i64::from(p)).collect::<Vec<_>>())?;
            let perm = if perm.is_empty() { (0..dims.len()).collect() } else { perm };
            let fits =
                perm.len() == dims.len() && are_dims(&perm, dims.len()) && checked_product(&dims)? == checked_product(&[count, devices])?;
            ensure(fits, || format!("expected {count} groups of {devices} devices, found an iota of {dims:?}"))?;
            Ok(transposed_iota(&dims, &perm).chunks(devices.max(1)).map(<[i64]>::to_vec).collect())
        }
        ReplicaGroups::Mesh { mesh, axes } => of_mesh(mesh, axes),
    }
}

/// Splits every axis at its sub-axes, puts those that form a group last, in the order named.
fn of_mesh(mesh: &Mesh, axes: &[AxisRef]) -> Result<Vec<Vec<i64>>> {
    let sizes_of_axes = sizes(&mesh.axes.iter().map(|(_, n)| *n).collect::<Vec<_>>())?;
    let total = checked_product(&sizes_of_axes)?;
    let devices: Vec<i64> = match &mesh.iota {
        Some((dims, perm)) => {
            let (dims, perm) = (sizes(dims)?, sizes(perm)?);
            let perm = if perm.is_empty() { (0..dims.len()).collect() } else { perm };
            ensure(perm.len() == dims.len() && are_dims(&perm, dims.len()), || "expected a transposition of the mesh's iota".into())?;
            checked_product(&dims)?;
            transposed_iota(&dims, &perm)
        }
        None if mesh.device_ids.is_empty() => (0..total as i64).collect(),
        None => mesh.device_ids.clone(),
    };
    ensure(devices.len() == total, || format!("expected {total} devices of a mesh, found {}", devices.len()))?;
    // Cuts: where an axis is split, as products of the parts before.
    let mut cuts: Vec<Vec<usize>> = sizes_of_axes.iter().map(|&n| vec![1, n]).collect();
    let mut ranges = Vec::new();
    for axis in axes {
        let number = size(axis.axis)?;
        let Some(list) = cuts.get_mut(number) else { return refuse(format!("expected an axis of the mesh, found number {number}")) };
        let (before, part) = match axis.sub_axis {
            Some((before, part)) => (size(before)?, size(part)?),
            None => (1, sizes_of_axes[number]),
        };
        ensure(before > 0 && part > 0 && sizes_of_axes[number].is_multiple_of(before.saturating_mul(part)), || {
            format!("expected a part of an axis of {}, found ({before}){part}", sizes_of_axes[number])
        })?;
        list.extend([before, before * part]);
        ranges.push((number, before, before * part));
    }
    let (mut dims, mut owner) = (Vec::new(), Vec::new());
    for (number, list) in cuts.iter_mut().enumerate() {
        list.sort_unstable();
        list.dedup();
        for pair in list.windows(2) {
            ensure(pair[1].is_multiple_of(pair[0]), || "expected parts of an axis that divide each other".into())?;
            dims.push(pair[1] / pair[0]);
            owner.push((number, pair[0], pair[1]));
        }
    }
    let mut inner = Vec::new();
    for (number, from, to) in ranges {
        inner.extend((0..dims.len()).filter(|&d| owner[d].0 == number && owner[d].1 >= from && owner[d].2 <= to));
    }
    ensure(are_dims(&inner, dims.len()), || "expected every axis once".into())?;
    let order: Vec<usize> = (0..dims.len()).filter(|d| !inner.contains(d)).chain(inner.iter().copied()).collect();
    let per_group = inner.iter().map(|&d| dims[d]).product::<usize>().max(1);
    let places = transposed_iota(&dims, &order);
    Ok(places.chunks(per_group).map(|group| group.iter().map(|&p| devices[p as usize]).collect()).collect())
}

/// The groups of partitions that a collective joins, for one replica of `partitions`: every partition is in exactly one.
///
/// # Errors
/// Groups that name a device twice or one that is not there.
pub fn participants(op: &Collective, partitions: usize) -> Result<Vec<Vec<usize>>> {
    // Without a channel the groups are of replicas, of which there is one; with one and no global ids, of replicas with all their partitions.
    let across_replicas = op.channel_id.is_none();
    let has_ids =
        !matches!(op.kind, CollectiveKind::AllToAll | CollectiveKind::Broadcast | CollectiveKind::RaggedAllToAll | CollectiveKind::Permute);
    let lists = group_lists(&op.groups)?;
    if across_replicas || (has_ids && !op.use_global_device_ids) {
        let only = |list: &Vec<i64>| list.as_slice() == [0];
        ensure(lists.iter().all(only) && lists.len() <= 1, || format!("expected groups of the one replica, found {lists:?}"))?;
        let all: Vec<usize> = (0..partitions).collect();
        return Ok(if across_replicas { all.into_iter().map(|p| vec![p]).collect() } else { vec![all] });
    }
    if lists.is_empty() {
        return Ok(vec![(0..partitions).collect()]);
    }
    let groups: Vec<Vec<usize>> = lists.iter().map(|l| sizes(l)).collect::<Result<_>>()?;
    let all: Vec<usize> = groups.concat();
    ensure(are_dims(&all, partitions) && all.len() == partitions, || {
        format!("expected each of {partitions} partitions once, found {lists:?}")
    })?;
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(groups: ReplicaGroups) -> Vec<Vec<i64>> {
        group_lists(&groups).expect("they are sound")
    }

    #[test]
    fn the_three_spellings_say_the_same() {
        let expected = vec![vec![0, 2], vec![1, 3]];
        assert_eq!(lists(ReplicaGroups::List(expected.clone())), expected);
        assert_eq!(lists(ReplicaGroups::Iota { groups: 2, devices: 2, reshape: vec![2, 2], perm: vec![1, 0] }), expected);
        let mesh = Mesh { axes: vec![("a".into(), 2), ("b".into(), 2)], ..Mesh::default() };
        let axes = vec![AxisRef { axis: 0, sub_axis: None }];
        assert_eq!(lists(ReplicaGroups::Mesh { mesh: mesh.clone(), axes }), expected);
        let both = vec![AxisRef { axis: 1, sub_axis: None }, AxisRef { axis: 0, sub_axis: None }];
        assert_eq!(lists(ReplicaGroups::Mesh { mesh, axes: both }), [[0, 2, 1, 3]]);
        let mesh = Mesh { axes: vec![("a".into(), 8)], ..Mesh::default() };
        let axes = vec![AxisRef { axis: 0, sub_axis: Some((2, 2)) }];
        assert_eq!(lists(ReplicaGroups::Mesh { mesh, axes }), [[0, 2], [1, 3], [4, 6], [5, 7]]);
    }

    #[test]
    fn nonsense_is_refused() {
        let huge = ReplicaGroups::Iota { groups: i64::MAX, devices: 2, reshape: vec![i64::MAX, 2], perm: vec![] };
        assert!(group_lists(&huge).is_err());
        let mesh = Mesh { axes: vec![("a".into(), 4)], ..Mesh::default() };
        let axes = vec![AxisRef { axis: 0, sub_axis: Some((3, 2)) }];
        assert!(group_lists(&ReplicaGroups::Mesh { mesh, axes }).is_err());
    }
}
