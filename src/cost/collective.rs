//! Collectives by message size and group.
//!
//! Ring algorithms are bound by what passes through one GPU: of `n` members, an all-gather or reduce-scatter passes `(n − 1) / n` of the whole,
//! an all-reduce twice that, an all-to-all `(n − 1) / n` of what one GPU holds, a permute and a broadcast all of it. A group inside one
//! node (or one NVLink domain) runs at what its fabric reaches. A group across nodes is bound by the network: a ring enters and leaves
//! each node once, over as many network cards as the group has GPUs there; an all-to-all sends what leaves the node over the GPU's own
//! card. A call takes a latency, and each step around the ring a hop.
//! Source: the cost model of ring collectives in Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
//! MPICH", 2005, and NCCL's own account of bus bandwidth (nccl-tests, PERFORMANCE.md).

use crate::ir::{Collective, CollectiveKind, CompId, InstrId, Mesh, Module, Op, ReplicaGroups, ShapeId};
use crate::machine::Machine;
use crate::units::{Bytes, Nanos};

use super::transfer::hero;

/// What a collective moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Which.
    pub kind: CollectiveKind,
    /// The larger of what goes in and what comes out at one GPU.
    pub bytes: Bytes,
    /// Members of a group.
    pub members: u64,
    /// How a group lies: it takes one of so many devices in a row.
    pub stride: u64,
}

/// The message of a collective, or of an async start that wraps one.
pub fn of(module: &Module, id: InstrId) -> Option<Message> {
    let instr = module.instr(id);
    match &instr.op {
        Op::Collective(collective) => {
            let parts = module.shapes.elements(instr.shape);
            // The result of a start holds operands and results.
            let out: u64 = match (collective.start, collective.kind) {
                (true, CollectiveKind::AllGather | CollectiveKind::Permute) => parts.get(1).map_or(0, |&s| module.shapes.leaf_bytes(s)),
                _ => module.shapes.leaf_bytes(instr.shape),
            };
            Some(message(module, collective, &inputs(module, id), out))
        }
        Op::AsyncStart(wrapped) => wrapped_collective(module, wrapped.calls),
        _ => None,
    }
}

fn wrapped_collective(module: &Module, comp: CompId) -> Option<Message> {
    let id = hero(module, comp);
    let Op::Collective(collective) = &module.instr(id).op else { return None };
    Some(message(module, collective, &inputs(module, id), module.shapes.leaf_bytes(module.instr(id).shape)))
}

fn inputs(module: &Module, id: InstrId) -> Vec<ShapeId> {
    module.instr(id).operands.iter().map(|&o| module.instr(o).shape).collect()
}

fn message(module: &Module, collective: &Collective, inputs: &[ShapeId], out: u64) -> Message {
    let within: u64 = inputs.iter().map(|&s| module.shapes.leaf_bytes(s)).sum();
    let all =
        u64::try_from(module.header.replica_count.max(1)).unwrap_or(1) * u64::try_from(module.header.num_partitions.max(1)).unwrap_or(1);
    let (members, stride) = match collective.kind {
        CollectiveKind::Permute => (2, permute_distance(&collective.source_target_pairs)),
        _ => group(&collective.groups, all),
    };
    Message { kind: collective.kind, bytes: Bytes(within.max(out)), members, stride }
}

fn permute_distance(pairs: &[(i64, i64)]) -> u64 {
    pairs.iter().map(|(a, b)| a.abs_diff(*b)).min().unwrap_or(1).max(1)
}

/// Size of a group and the distance of its neighbours.
fn group(groups: &ReplicaGroups, all: u64) -> (u64, u64) {
    let positive = |n: i64| u64::try_from(n).unwrap_or(1).max(1);
    match groups {
        ReplicaGroups::List(list) => match list.iter().max_by_key(|g| g.len()) {
            Some(group) if !group.is_empty() => {
                (group.len() as u64, group.windows(2).map(|w| w[0].abs_diff(w[1])).min().unwrap_or(1).max(1))
            }
            _ => (all, 1),
        },
        ReplicaGroups::Iota { devices, reshape, perm, .. } => {
            // The members of a group run along the last axis after the transposition.
            let axis = perm.last().map_or(reshape.len().saturating_sub(1), |&p| usize::try_from(p).unwrap_or(0));
            let stride = reshape.iter().skip(axis + 1).fold(1u64, |n, &d| n.saturating_mul(positive(d)));
            (positive(*devices), stride)
        }
        ReplicaGroups::Mesh { mesh, axes } => {
            let size = |axis: &crate::ir::AxisRef| axis.sub_axis.map_or_else(|| axis_size(mesh, axis.axis), |(_, size)| positive(size));
            let members = axes.iter().map(size).fold(1, u64::saturating_mul);
            let last = axes.iter().map(|a| a.axis).max().unwrap_or(0);
            let inner = usize::try_from(last).unwrap_or(0) + 1;
            let stride = mesh.axes.iter().skip(inner).map(|(_, n)| positive(*n)).fold(1, u64::saturating_mul);
            (members, stride)
        }
    }
}

fn axis_size(mesh: &Mesh, axis: i64) -> u64 {
    usize::try_from(axis).ok().and_then(|a| mesh.axes.get(a)).and_then(|(_, n)| u64::try_from(*n).ok()).unwrap_or(1).max(1)
}

/// What a collective takes with nothing beside it.
pub fn time(message: &Message, machine: &Machine) -> Nanos {
    let fabric = &machine.fabric;
    let node = u64::from(fabric.gpus.max(1));
    let members = message.members.max(1);
    // Members of the group in one node: neighbours stand `stride` apart.
    let local = (node / message.stride.clamp(1, node)).clamp(1, members);
    let nodes = members.div_ceil(local);
    let part =
        |bytes: Bytes, of: u64| Bytes(u64::try_from(u128::from(bytes.get()) * u128::from(of - 1) / u128::from(of)).unwrap_or(u64::MAX));
    let ring = if nodes > 1 { fabric.bus.min(fabric.network * local) } else { fabric.bus };
    let hops = fabric.hop * (local - 1) + fabric.network_hop * (nodes - 1);
    let moved = match message.kind {
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::Reduce => part(message.bytes, members) / ring,
        CollectiveKind::AllReduce => (part(message.bytes, members) * 2) / ring,
        CollectiveKind::AllToAll | CollectiveKind::RaggedAllToAll => {
            let away = if nodes > 1 { part(message.bytes, nodes) / fabric.network } else { Nanos::ZERO };
            away.max(part(message.bytes, members) / fabric.bus)
        }
        CollectiveKind::Broadcast => message.bytes / ring,
        CollectiveKind::Permute => message.bytes / if message.stride >= node { fabric.network } else { fabric.bus },
    };
    if members == 1 { fabric.latency } else { fabric.latency + hops + moved }
}
