//! Collectives: what each partition gets of what all have brought.
//!
//! Devices are partitions of one replica. A reduction takes partitions in the order of their group.

use super::array::Array;
use super::error::Error;
use super::eval::{Evaluation, Value};
use super::exchange::Brought;
use super::kernel::{ArrayType, BLOCK, leaves};
use super::lanes::{Memory, Run};
use super::tape::Applied;
use crate::ir::{AxisRef, Collective, CollectiveKind, InstrId, Mesh, Op, ReplicaGroups};

/// The groups of devices that a spelling lists; none means all in one.
pub fn groups(groups: &ReplicaGroups) -> Option<Vec<Vec<i64>>> {
    match groups {
        ReplicaGroups::List(list) => Some(list.clone()),
        ReplicaGroups::Iota { groups, devices, reshape, perm } => {
            let perm: Vec<usize> = perm.iter().map(|&d| usize::try_from(d).ok()).collect::<Option<_>>()?;
            let all = iota(&positive(reshape)?, &perm);
            let (groups, devices) = (usize::try_from(*groups).ok()?, usize::try_from(*devices).ok()?);
            (devices > 0 && all.len() == groups * devices).then(|| all.chunks(devices).map(<[i64]>::to_vec).collect())
        }
        ReplicaGroups::Mesh { mesh, axes } => mesh_groups(mesh, axes),
    }
}

fn positive(values: &[i64]) -> Option<Vec<usize>> {
    values.iter().map(|&v| usize::try_from(v).ok()).collect()
}

/// `iota(dims)` transposed, as a list.
fn iota(dims: &[usize], perm: &[usize]) -> Vec<i64> {
    let strides = super::array::row_major(dims);
    let perm: Vec<usize> = if perm.is_empty() { (0..dims.len()).collect() } else { perm.to_vec() };
    let transposed: Vec<usize> = perm.iter().map(|&d| dims[d]).collect();
    super::array::indices(&transposed).map(|index| index.iter().zip(&perm).map(|(i, &d)| (i * strides[d]) as i64).sum()).collect()
}

/// One group for each place in the mesh's other axes; in it, the given axes vary, the last fastest.
fn mesh_groups(mesh: &Mesh, axes: &[AxisRef]) -> Option<Vec<Vec<i64>>> {
    let sizes = positive(&mesh.axes.iter().map(|(_, size)| *size).collect::<Vec<_>>())?;
    let total: usize = sizes.iter().product();
    let devices = match &mesh.iota {
        Some((dims, perm)) => iota(&positive(dims)?, &positive(perm)?),
        None if mesh.device_ids.is_empty() => (0..total as i64).collect(),
        None => mesh.device_ids.clone(),
    };
    // Axes cut at the bounds of the parts that are named.
    let mut fine: Vec<(usize, usize, usize)> = Vec::new();
    for (axis, &size) in sizes.iter().enumerate() {
        let mut cuts = vec![1, size];
        for part in axes.iter().filter(|a| a.axis == axis as i64).filter_map(|a| a.sub_axis) {
            let (pre, length) = (usize::try_from(part.0).ok()?, usize::try_from(part.1).ok()?);
            cuts.extend([pre, pre * length]);
        }
        cuts.sort_unstable();
        cuts.dedup();
        if cuts.windows(2).any(|w| w[0] == 0 || w[1] % w[0] != 0) {
            return None;
        }
        fine.extend(cuts.windows(2).map(|w| (axis, w[0], w[1] / w[0])));
        if size == 1 {
            fine.push((axis, 1, 1));
        }
    }
    let dims: Vec<usize> = fine.iter().map(|f| f.2).collect();
    let mut within = Vec::new();
    for axis in axes {
        let (start, end) = match axis.sub_axis {
            Some((pre, size)) => (usize::try_from(pre).ok()?, usize::try_from(pre * size).ok()?),
            None => (1, *sizes.get(usize::try_from(axis.axis).ok()?)?),
        };
        within.extend((0..fine.len()).filter(|&f| fine[f].0 as i64 == axis.axis && fine[f].1 >= start && fine[f].1 < end.max(2)));
    }
    let without: Vec<usize> = (0..fine.len()).filter(|f| !within.contains(f)).collect();
    let strides = super::array::row_major(&dims);
    let places = |chosen: &[usize]| -> Vec<usize> {
        let sizes: Vec<usize> = chosen.iter().map(|&f| dims[f]).collect();
        super::array::indices(&sizes).map(|index| index.iter().zip(chosen).map(|(i, &f)| i * strides[f]).sum()).collect()
    };
    let inner = places(&within);
    places(&without).into_iter().map(|at| inner.iter().map(|i| devices.get(at + i).copied()).collect()).collect()
}

impl Evaluation<'_, '_> {
    /// Carries out a collective or its start.
    pub(super) fn collective(&mut self, id: InstrId) -> Result<Value, Error> {
        let module = self.module();
        let Op::Collective(op) = &module.instr(id).op else { unreachable!("only collectives come here") };
        let fail = |message: String| Error::at(module, id, message);
        let mut operands = Vec::new();
        let mut mine = Vec::new();
        for (i, &operand) in module.instr(id).operands.iter().enumerate() {
            let value = self.operand_of(id, i)?;
            for (place, shape) in value.places().iter().zip(leaves(module, module.instr(operand).shape)) {
                self.check_read(id, place)?;
                mine.push(self.array(place, shape));
            }
            operands.push(value);
        }
        let me = self.identity().partition as usize;
        let brought = self.exchange().meet(me, &module.instr(id).name, mine).map_err(&fail)?;
        let function = match op.to_apply {
            Some(_) => Some(self.function(id).ok_or_else(|| fail("a collective without its function".to_string()))?),
            None => None,
        };
        let group = group_of(op, me, self.exchange().partitions()).map_err(&fail)?;
        let results = results(op, me, &group, &brought, function.as_deref()).map_err(fail)?;
        // A start's result is its operands beside the results, except for an all-reduce's.
        let shape = module.instr(id).shape;
        let beside = op.start && op.kind != CollectiveKind::AllReduce;
        let target = if beside { module.shapes.elements(shape)[1] } else { shape };
        let leaf = if beside { leaves(module, module.shapes.elements(shape)[0]).len() } else { 0 };
        let leaf = u32::try_from(leaf).expect("a tuple is small");
        let mut value = self.allocate(id, target, leaf)?;
        for ((place, leaf), array) in value.places().iter().zip(leaves(module, target)).zip(&results) {
            let ty = ArrayType::of(module, leaf).map_err(|e| Error::at(module, id, e))?;
            if ty.dims != array.dims || ty.element != array.element {
                return Err(Error::at(module, id, format!("expected {:?}, found {:?} from the partitions", ty.dims, array.dims)));
            }
            self.put(place, &ty, array);
        }
        self.written(id, leaf, &mut value);
        if op.start {
            self.depart(id, operands.iter().flat_map(Value::places).collect(), &value);
        }
        if !beside {
            return Ok(value);
        }
        let first = if operands.len() == 1 { operands.swap_remove(0) } else { Value::Tuple(operands) };
        let mut parts = vec![first, value];
        parts.resize(module.shapes.elements(shape).len().max(2), Value::Token);
        Ok(Value::Tuple(parts))
    }
}

/// The partitions that a partition talks to, itself among them.
fn group_of(op: &Collective, me: usize, partitions: usize) -> Result<Vec<usize>, String> {
    if op.kind == CollectiveKind::Permute {
        return Ok((0..partitions).collect());
    }
    let crosses = match op.kind {
        CollectiveKind::AllGather | CollectiveKind::AllReduce | CollectiveKind::ReduceScatter if !op.use_global_device_ids => {
            // Groups are of replicas, of which there is one; with a channel they span all partitions.
            return Ok(if op.channel_id.is_some() { (0..partitions).collect() } else { vec![me] });
        }
        _ => op.channel_id.is_some() || op.use_global_device_ids,
    };
    if !crosses {
        return Ok(vec![me]);
    }
    let groups = groups(&op.groups).ok_or("replica groups that do not fit together")?;
    if groups.is_empty() {
        return Ok((0..partitions).collect());
    }
    let mine = groups.into_iter().find(|g| g.contains(&(me as i64))).ok_or_else(|| format!("partition {me} is in no replica group"))?;
    let group: Vec<usize> = mine.iter().filter_map(|&d| usize::try_from(d).ok()).collect();
    match group.iter().find(|&&d| d >= partitions) {
        Some(d) => Err(format!("device {d} is in a replica group, but only {partitions} partitions run (`--partitions`)")),
        None => Ok(group),
    }
}

fn results(op: &Collective, me: usize, group: &[usize], brought: &Brought, function: Option<&Applied>) -> Result<Vec<Array>, String> {
    let count = brought[me].len();
    let place = group.iter().position(|&d| d == me).unwrap_or(0);
    let dimension = op.dimensions.first().map(|&d| usize::try_from(d).map_err(|_| "a dimension is negative")).transpose()?;
    let reduced = |i: usize| -> Result<Array, String> {
        let function = function.ok_or("a reduction without function")?;
        let (first, rest) = group.split_first().ok_or("an empty group")?;
        Ok(rest.iter().fold(brought[*first][i].clone(), |sum, &d| combine(function, &sum, &brought[d][i])))
    };
    match op.kind {
        CollectiveKind::AllGather => {
            let dimension = dimension.ok_or("an all-gather without dimension")?;
            Ok((0..count).map(|i| concatenate(&group.iter().map(|&d| &brought[d][i]).collect::<Vec<_>>(), dimension)).collect())
        }
        CollectiveKind::AllReduce => (0..count).map(reduced).collect(),
        CollectiveKind::ReduceScatter => {
            let dimension = dimension.ok_or("a reduce-scatter without dimension")?;
            (0..count).map(|i| part(&reduced(i)?, dimension, place, group.len())).collect()
        }
        CollectiveKind::AllToAll => match dimension {
            Some(dimension) => (0..count)
                .map(|i| {
                    let parts =
                        group.iter().map(|&d| part(&brought[d][i], dimension, place, group.len())).collect::<Result<Vec<_>, _>>()?;
                    Ok(concatenate(&parts.iter().collect::<Vec<_>>(), dimension))
                })
                .collect(),
            None if count == group.len() => Ok(group.iter().map(|&d| brought[d][place].clone()).collect()),
            None => Err("an all-to-all with more operands than devices in a group".to_string()),
        },
        CollectiveKind::Broadcast if !op.has_dynamic_root => Ok(brought[*group.first().ok_or("an empty group")?].clone()),
        CollectiveKind::Permute if op.slice_sizes.is_empty() => {
            let source = op.source_target_pairs.iter().find(|(_, target)| *target == me as i64).map(|&(source, _)| source);
            Ok(match source.and_then(|s| usize::try_from(s).ok()) {
                Some(source) => brought.get(source).ok_or_else(|| format!("partition {source} does not run (`--partitions`)"))?.clone(),
                None => brought[me].iter().map(|a| Array::zeros(a.element, &a.dims)).collect(),
            })
        }
        _ => Err(format!("`{}` in this form", op.kind.name())),
    }
}

/// Applies a function of two scalars to all elements.
fn combine(function: &Applied, a: &Array, b: &Array) -> Array {
    let mut out = a.clone();
    let buffers = [a, b].map(|array| {
        let buffer = super::buffer::Buffer::filled(array.data.len(), 0);
        buffer.write(0, &array.data);
        buffer
    });
    let mut blocks = function.tape.blocks(BLOCK.min(a.len()));
    let mut start = 0;
    while start < a.len() {
        let len = (a.len() - start).min(BLOCK);
        blocks.iter_mut().for_each(|b| b.resize(len));
        let memory = |i: usize| Memory { buffer: &buffers[i], offset: 0, element: a.element };
        let run = Run { at: start, len, stride: 1 };
        memory(0).load(run, &mut blocks[0], 0);
        memory(1).load(run, &mut blocks[1], 0);
        function.tape.run(&mut blocks, |_, _| unreachable!("an applied function reads nothing"));
        memory(0).store(run, &blocks[function.outputs[0] as usize], 0);
        start += len;
    }
    buffers[0].read(0, &mut out.data);
    out
}

/// Arrays one after the other in a dimension.
fn concatenate(arrays: &[&Array], dimension: usize) -> Array {
    let mut dims = arrays[0].dims.clone();
    dims[dimension] = arrays.iter().map(|a| a.dims[dimension]).sum();
    let mut out = Array::zeros(arrays[0].element, &dims);
    let outer: usize = dims[..dimension].iter().product();
    let mut at = 0;
    for row in 0..outer {
        for array in arrays {
            let bytes = array.data.len() / outer;
            out.data[at..at + bytes].copy_from_slice(&array.data[row * bytes..(row + 1) * bytes]);
            at += bytes;
        }
    }
    out
}

/// The `i`-th of `n` equal parts in a dimension.
fn part(array: &Array, dimension: usize, i: usize, n: usize) -> Result<Array, String> {
    let size = array.dims[dimension];
    if !size.is_multiple_of(n) {
        return Err(format!("dimension {dimension} of {size} elements does not part into {n}"));
    }
    let mut dims = array.dims.clone();
    dims[dimension] = size / n;
    let mut out = Array::zeros(array.element, &dims);
    let outer: usize = dims[..dimension].iter().product();
    let bytes = out.data.len() / outer.max(1);
    for row in 0..outer {
        let from = (row * n + i) * bytes;
        out.data[row * bytes..(row + 1) * bytes].copy_from_slice(&array.data[from..from + bytes]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_spellings_of_groups() {
        let iota = |perm: &[i32]| ReplicaGroups::Iota { groups: 2, devices: 2, reshape: vec![2, 2], perm: perm.to_vec() };
        assert_eq!(groups(&iota(&[])), Some(vec![vec![0, 1], vec![2, 3]]));
        assert_eq!(groups(&iota(&[1, 0])), Some(vec![vec![0, 2], vec![1, 3]]));
        let mesh = Mesh { axes: vec![("a".into(), 2), ("b".into(), 4)], ..Mesh::default() };
        let of = |axes: Vec<AxisRef>| groups(&ReplicaGroups::Mesh { mesh: mesh.clone(), axes });
        let axis = |axis, sub_axis| AxisRef { axis, sub_axis };
        assert_eq!(of(vec![axis(1, None)]), Some(vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]]));
        assert_eq!(of(vec![axis(0, None)]), Some(vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]));
        assert_eq!(of(vec![axis(1, Some((2, 2)))]), Some(vec![vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]]));
        assert_eq!(of(vec![axis(1, None), axis(0, None)]), Some(vec![vec![0, 4, 1, 5, 2, 6, 3, 7]]));
    }

    #[test]
    fn parts_and_the_whole() {
        let whole = Array::of_i64(crate::ir::Primitive::S32, &[2, 4], &[0, 1, 2, 3, 4, 5, 6, 7]);
        let parts: Vec<Array> = (0..2).map(|i| part(&whole, 1, i, 2).unwrap()).collect();
        assert_eq!((0..4).map(|i| parts[1].i64(i)).collect::<Vec<_>>(), [2, 3, 6, 7]);
        assert_eq!(concatenate(&parts.iter().collect::<Vec<_>>(), 1), whole);
    }
}
