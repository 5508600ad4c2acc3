//! Collectives: where partitions meet, and what each gets of what all have brought ([`super::ops::collective`]).
//!
//! Devices are partitions of one replica.

use super::array::Array;
use super::error::Error;
use super::eval::{Evaluation, Value};
use super::exchange::Brought;
use super::kernel::{ArrayType, BLOCK, leaves};
use super::lanes::{Memory, Run};
use super::layouts::put;
use super::ops::collective::{Ragged, all_gather, all_reduce, all_to_all, permute, ragged_all_to_all, share};
use super::ops::{OpError, groups};
use super::tape::Applied;
use crate::ir::{Collective, CollectiveKind, InstrId, Op};

/// Why a collective cannot be carried out in its form; `None` if it can.
pub(super) fn refused(op: &Collective) -> Option<&'static str> {
    if op.kind == CollectiveKind::Reduce {
        return Some("it reduces to one partition");
    }
    if op.has_dynamic_root {
        return Some("its root is known only when the program runs");
    }
    (!op.slice_sizes.is_empty()).then_some("it permutes parts in place")
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
        let function = self.function(id);
        let results = results(op, me, &brought, function.as_deref()).map_err(|OpError(why)| fail(why))?;
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
            put(place, &ty, array);
        }
        self.written(id, leaf, &mut value);
        if op.start {
            self.depart(id, operands.iter().flat_map(Value::places).collect(), &value, None);
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

fn results(op: &Collective, me: usize, brought: &Brought, function: Option<&Applied>) -> Result<Vec<Array>, OpError> {
    let wrong = |why: &str| OpError(why.to_string());
    let everybody = |i: usize| brought.iter().map(|b| &b[i]).collect::<Vec<_>>();
    let count = brought[me].len();
    if op.kind == CollectiveKind::Permute {
        // Without a channel the pairs are of replicas, of which there is one.
        let copies = op.channel_id.is_none();
        let of = |i: usize| if copies { Ok(brought[me][i].clone()) } else { permute(&everybody(i), &op.source_target_pairs, me) };
        return (0..count).map(of).collect();
    }
    let groups = groups::participants(op, brought.len())?;
    let group = groups.iter().find(|g| g.contains(&me)).ok_or_else(|| wrong("this partition is in no replica group"))?;
    let place = group.iter().position(|&d| d == me).unwrap_or(0);
    let of = |i: usize| group.iter().map(|&d| &brought[d][i]).collect::<Vec<_>>();
    let along = op.dimensions.first().copied();
    let dimension = || along.ok_or_else(|| wrong("it says no dimension"));
    let sum = |i: usize| {
        let function = function.ok_or_else(|| wrong("a reduction without function"))?;
        all_reduce(&of(i), &|a, b| combine(function, a, b))
    };
    match op.kind {
        CollectiveKind::AllGather => (0..count).map(|i| all_gather(&of(i), dimension()?)).collect(),
        CollectiveKind::AllReduce => (0..count).map(sum).collect(),
        CollectiveKind::ReduceScatter => (0..count).map(|i| share(&sum(i)?, dimension()?, place, group.len())).collect(),
        CollectiveKind::AllToAll => match along {
            Some(along) => (0..count).map(|i| all_to_all(&of(i), along, place)).collect(),
            None if count == group.len() => Ok(group.iter().map(|&d| brought[d][place].clone()).collect()),
            None => Err(wrong("expected as many operands as a group has members")),
        },
        CollectiveKind::Broadcast => Ok(brought[group[0]].clone()),
        CollectiveKind::RaggedAllToAll => {
            let values = group.iter().map(|&d| Ragged::of(&brought[d])).collect::<Result<Vec<_>, _>>()?;
            Ok(vec![ragged_all_to_all(&values, place)?])
        }
        CollectiveKind::Permute | CollectiveKind::Reduce => Err(wrong("it is refused before anything runs")),
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
