//! From the fields of an instruction to its [`Op`].

use rustc_hash::FxHashMap;

use super::attrs::{BlockScaling, Cholesky, Dims, RaggedDot, Replication, Shuffle, SourceTarget, SparsityConfig, TriangularSolve};
use super::codec::{Cx, FieldCodec};
use super::shape::ShapeMessage;
use super::sharding::{DeviceList, Group, IotaGroups, MeshGroups};
use super::wire::{Bad, Message, Res};
use crate::ir::{
    Async, Binary, Collective, CollectiveKind, CompId, CompareType, ContractionExtras, Convolution, CustomCall, Direction, Domain, Dot,
    DotDims, EntityVec, Fusion, FusionKind, Gather, InstrId, Instruction, Literal, Op, Opaque, PadDim, Primitive, ReplicaGroups, Scan,
    Scatter, ShapeId, Sharding, Transfer, Unary, WindowDim,
};

/// What an operation's fields refer to.
pub(super) struct OpCx<'x> {
    pub cx: &'x mut Cx,
    pub computations: &'x FxHashMap<i64, CompId>,
    pub instructions: &'x EntityVec<InstrId, Instruction>,
    pub operands: &'x [InstrId],
}

impl OpCx<'_> {
    fn operand_shape(&self, i: usize) -> Option<ShapeId> {
        self.operands.get(i).map(|&o| self.instructions[o].shape)
    }
    fn element(&self, i: usize) -> Option<Primitive> {
        self.cx.shapes.array(self.operand_shape(i)?)?.element.known()
    }
    /// Takes a field of any type.
    fn get<T: FieldCodec>(&mut self, m: &mut Message<'_>, number: u32) -> Res<T> {
        T::pick(m, number, self.cx)
    }
    /// Takes the one dimension of an operation that has one.
    fn dimension(&mut self, m: &mut Message<'_>) -> Res<i64> {
        match *self.get::<Vec<i64>>(m, 14)? {
            [d] => Ok(d),
            ref other => Err(Bad::new("B006", m.place, format!("expected one dimension, found {}", other.len()))),
        }
    }
}

/// Reads what an instruction does. Fields that the operation does not have stay in the message.
pub(super) fn op(m: &mut Message<'_>, opcode: &str, x: &mut OpCx<'_>) -> Res<Op> {
    let place = m.place;
    let marked = m.has(38);
    let mut called = Vec::new();
    for id in x.get::<Vec<i64>>(m, 38)? {
        match x.computations.get(&id) {
            Some(&comp) => called.push(comp),
            None => return Err(Bad::new("B004", place, format!("expected called computation {id} to stand before its caller"))),
        }
    }
    let wanted = |n: usize| {
        if called.len() == n {
            return Ok(());
        }
        Err(Bad::new("B006", place, format!("expected {n} called computations of `{opcode}`, found {}", called.len())))
    };
    let one = || wanted(1).map(|()| called[0]);
    if let Some(unary) = Unary::from_name(opcode) {
        return Ok(Op::Unary(unary));
    }
    if let Some(binary) = Binary::from_name(opcode) {
        return Ok(Op::Binary(binary));
    }
    Ok(match opcode {
        "parameter" => Op::Parameter { number: x.get(m, 9)? },
        "constant" => match x.get::<Option<Literal>>(m, 8)? {
            Some(literal) => Op::Constant(Box::new(literal)),
            None => return Err(Bad::new("B006", place, "expected a constant with a literal, found none")),
        },
        "iota" => Op::Iota { dimension: x.dimension(m)? },
        "partition-id" => Op::PartitionId,
        "replica-id" => Op::ReplicaId,
        "compare" => compare(m, x)?,
        "select" => Op::Select,
        "clamp" => Op::Clamp,
        "convert" => Op::Convert,
        "bitcast-convert" => Op::BitcastConvert,
        "stochastic-convert" => Op::StochasticConvert,
        "reduce-precision" => Op::ReducePrecision { exponent_bits: x.get(m, 18)?, mantissa_bits: x.get(m, 19)? },
        "map" => Op::Map { dimensions: x.get(m, 14)?, to_apply: one()? },
        "bitcast" => Op::Bitcast,
        "copy" => Op::Copy,
        "reshape" => Op::Reshape { inferred_dimension: if m.has(14) { Some(x.dimension(m)?) } else { None } },
        "dynamic-reshape" => Op::DynamicReshape,
        "broadcast" => Op::Broadcast { dimensions: x.get(m, 14)? },
        "transpose" => Op::Transpose { dimensions: x.get(m, 14)? },
        "reverse" => Op::Reverse { dimensions: x.get(m, 14)? },
        "concatenate" => Op::Concatenate { dimension: x.dimension(m)? },
        "pad" => Op::Pad { padding: x.get::<Option<Dims<PadDim>>>(m, 21)?.unwrap_or_default().dims },
        "slice" => Op::Slice { dims: x.get(m, 17)? },
        "dynamic-slice" => Op::DynamicSlice { sizes: x.get(m, 20)? },
        "dynamic-update-slice" => Op::DynamicUpdateSlice,
        "gather" => Op::Gather(Box::new(Gather {
            dims: x.get::<Option<_>>(m, 33)?.unwrap_or_default(),
            slice_sizes: x.get(m, 34)?,
            indices_are_sorted: x.get(m, 67)?,
        })),
        "scatter" => Op::Scatter(Box::new(Scatter {
            dims: x.get::<Option<_>>(m, 48)?.unwrap_or_default(),
            indices_are_sorted: x.get(m, 67)?,
            unique_indices: x.get(m, 69)?,
            to_apply: one()?,
        })),
        "get-dimension-size" => Op::GetDimensionSize { dimension: x.dimension(m)? },
        "set-dimension-size" => Op::SetDimensionSize { dimension: x.dimension(m)? },
        "shuffle" => {
            let shuffle = x.get::<Option<Shuffle>>(m, 103)?.unwrap_or_default();
            Op::Shuffle { dimensions: x.get(m, 14)?, mode: "rotate".into(), shifts: shuffle.rotate.unwrap_or_default().shifts }
        }
        "dot" => {
            let dims = x.get::<Option<DotDims>>(m, 30)?.unwrap_or_default();
            Op::Dot(Box::new(dot(m, dims, x)?))
        }
        "scaled-dot" => {
            let dims = x.get::<Option<DotDims>>(m, 30)?.unwrap_or_default();
            Op::ScaledDot(Box::new(dot(m, dims, x)?))
        }
        "ragged-dot" => {
            let ragged = x.get::<Option<RaggedDot>>(m, 90)?;
            let RaggedDot { dot: dims, lhs_ragged, rhs_group } =
                ragged.unwrap_or(RaggedDot { dot: None, lhs_ragged: Vec::new(), rhs_group: Vec::new() });
            Op::RaggedDot { dot: Box::new(dot(m, dims.unwrap_or_default(), x)?), lhs_ragged, rhs_group }
        }
        "convolution" => Op::Convolution(Box::new(Convolution {
            window: x.get::<Option<Dims<WindowDim>>>(m, 15)?.unwrap_or_default().dims,
            dims: x.get::<Option<_>>(m, 16)?.unwrap_or_default(),
            feature_group_count: x.get::<i64>(m, 50)?.max(1),
            batch_group_count: x.get::<i64>(m, 58)?.max(1),
            precision: x.get::<Option<_>>(m, 51)?.unwrap_or_default(),
            kind: x.get(m, 97)?,
            extras: extras(m, x)?,
        })),
        "reduce" => Op::Reduce { dimensions: x.get(m, 14)?, to_apply: one()? },
        "reduce-window" => Op::ReduceWindow { window: x.get::<Option<Dims<WindowDim>>>(m, 15)?.unwrap_or_default().dims, to_apply: one()? },
        "select-and-scatter" => {
            wanted(2)?;
            let window = x.get::<Option<Dims<WindowDim>>>(m, 15)?.unwrap_or_default().dims;
            Op::SelectAndScatter { window, select: called[0], scatter: called[1] }
        }
        "scan" => Op::Scan(Box::new(Scan {
            dimension: x.dimension(m)?,
            num_carries: x.get(m, 95)?,
            is_reverse: x.get(m, 94)?,
            is_associative: match x.get::<i32>(m, 96)? {
                0 => None,
                other => Some(other == 1),
            },
            to_apply: one()?,
        })),
        "sort" => Op::Sort { dimension: x.dimension(m)?, is_stable: x.get(m, 60)?, to_apply: one()? },
        "topk" => Op::TopK { k: x.get(m, 81)?, largest: x.get(m, 85)?, is_stable: x.get(m, 60)? },
        "fft" => Op::Fft { fft_type: x.get(m, 31)?, fft_length: x.get(m, 32)? },
        "cholesky" => Op::Cholesky { lower: x.get::<Option<Cholesky>>(m, 62)?.is_some_and(|o| o.lower) },
        "triangular-solve" => match x.get::<Option<TriangularSolve>>(m, 59)? {
            Some(TriangularSolve { left_side, lower, unit_diagonal, transpose_a }) => {
                Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a }
            }
            None => Op::TriangularSolve { left_side: false, lower: false, unit_diagonal: false, transpose_a: 0 },
        },
        "batch-norm-training" => Op::BatchNormTraining { epsilon: x.get(m, 24)?, feature_index: x.get(m, 25)? },
        "batch-norm-inference" => Op::BatchNormInference { epsilon: x.get(m, 24)?, feature_index: x.get(m, 25)? },
        "batch-norm-grad" => Op::BatchNormGrad { epsilon: x.get(m, 24)?, feature_index: x.get(m, 25)? },
        "rng" => Op::Rng { distribution: x.get(m, 23)? },
        "rng-bit-generator" => Op::RngBitGenerator { algorithm: x.get(m, 70)? },
        "rng-get-and-update-state" => Op::RngGetAndUpdateState { delta: x.get(m, 66)? },
        "tuple" => Op::Tuple,
        "get-tuple-element" => Op::GetTupleElement { index: x.get(m, 13)? },
        "opt-barrier" => Op::OptBarrier,
        "after-all" => Op::AfterAll,
        "add-dependency" => Op::AddDependency,
        "domain" => Op::Domain(Box::new(Domain {
            kind: "sharding".into(),
            // The fields bear the other side's names.
            entry: x.get::<Option<Sharding>>(m, 55)?.unwrap_or_default(),
            exit: x.get::<Option<Sharding>>(m, 54)?.unwrap_or_default(),
        })),
        "while" => {
            wanted(2)?;
            Op::While { body: called[0], condition: called[1] }
        }
        "conditional" => Op::Conditional { predicated: x.element(0) == Some(Primitive::Pred), branches: called },
        "call" => Op::Call { to_apply: one()?, is_composite: x.get(m, 89)? },
        "fusion" => {
            let kind = x.get::<Box<str>>(m, 11)?;
            let Some(kind) = FusionKind::from_name(&kind) else {
                return Err(Bad::new("B006", place, format!("expected a kind of fusion (`kLoop`, …), found `{kind}`")));
            };
            Op::Fusion(Box::new(Fusion { kind, calls: one()?, aliasing: x.get(m, 74)? }))
        }
        "custom-call" => Op::CustomCall(Box::new(custom_call(m, called, x)?)),
        "async-start" => Op::AsyncStart(Box::new(Async { calls: one()?, thread: x.get(m, 79)?, aliasing: x.get(m, 74)? })),
        "async-update" | "async-done" => {
            // The wrapped computation is said by the start of the chain; older versions say it here too, and that is remembered.
            if marked {
                m.keep_mark(38);
            }
            let start = x.operands.first().map(|&o| &x.instructions[o].op);
            let Some(Op::AsyncStart(start) | Op::AsyncUpdate(start)) = start else {
                return Err(Bad::new(
                    "B006",
                    place,
                    format!("expected the operand of `{opcode}` to be an `async-start` or `async-update`"),
                ));
            };
            let chained = Box::new(Async { calls: start.calls, thread: x.get(m, 79)?, aliasing: x.get(m, 74)? });
            if opcode == "async-done" { Op::AsyncDone(chained) } else { Op::AsyncUpdate(chained) }
        }
        "all-gather-done" => Op::CollectiveDone(CollectiveKind::AllGather),
        "all-reduce-done" => Op::CollectiveDone(CollectiveKind::AllReduce),
        "collective-permute-done" => Op::CollectiveDone(CollectiveKind::Permute),
        "copy-start" => Op::CopyStart { cross_program_prefetch_index: m.varint(80)?.map(|v| (v as u32).cast_signed()) },
        "copy-done" => Op::CopyDone,
        "send" => Op::Send(Box::new(transfer(m, x)?)),
        "send-done" => Op::SendDone(Box::new(transfer(m, x)?)),
        "recv" => Op::Recv(Box::new(transfer(m, x)?)),
        "recv-done" => Op::RecvDone(Box::new(transfer(m, x)?)),
        "infeed" => Op::Infeed { config: x.get(m, 27)? },
        "outfeed" => match x.get::<Option<ShapeMessage>>(m, 29)? {
            Some(ShapeMessage(shape)) => Op::Outfeed { config: x.get(m, 22)?, shape },
            None => return Err(Bad::new("B006", place, "expected an outfeed with a shape, found none")),
        },
        _ => match collective_kind(opcode) {
            Some((kind, start)) => Op::Collective(Box::new(collective(m, kind, start, &called, x)?)),
            None => Op::Opaque(Box::new(Opaque { opcode: opcode.into(), attributes: Vec::new(), called })),
        },
    })
}

/// The kind and whether it is a start.
fn collective_kind(opcode: &str) -> Option<(CollectiveKind, bool)> {
    let kind = CollectiveKind::from_name(opcode.strip_suffix("-start").unwrap_or(opcode))?;
    let start = opcode.ends_with("-start");
    let starts = matches!(kind, CollectiveKind::AllGather | CollectiveKind::AllReduce | CollectiveKind::Permute);
    (!start || starts).then_some((kind, start))
}

/// The type that a comparison has where nothing else is said.
pub(super) fn default_compare(p: Option<Primitive>) -> CompareType {
    match p {
        Some(p) if p.is_signed_integer() => CompareType::Signed,
        Some(p) if p.is_unsigned_integer() || p == Primitive::Pred => CompareType::Unsigned,
        _ => CompareType::Float,
    }
}

fn compare(m: &mut Message<'_>, x: &mut OpCx<'_>) -> Res<Op> {
    let name = x.get::<Box<str>>(m, 63)?;
    let Some(direction) = Direction::from_name(&name) else {
        return Err(Bad::new("B006", m.place, format!("expected a direction (`EQ`, …), found `{name}`")));
    };
    let default = default_compare(x.element(0));
    let old = x.get::<Option<Box<str>>>(m, 72)?;
    let order = x.get::<Option<Box<str>>>(m, 102)?;
    if old.is_some() {
        m.keep_mark(72);
    }
    if order.is_none() {
        m.keep_mark(102);
    }
    let ty = match (old.as_deref(), order.as_deref()) {
        (Some(name), _) => CompareType::from_name(name),
        (None, Some("TOTAL")) if default == CompareType::Float => Some(CompareType::Total),
        (None, _) => None,
    };
    Ok(Op::Compare { direction, ty: ty.filter(|&t| t != default) })
}

fn dot(m: &mut Message<'_>, dims: DotDims, x: &mut OpCx<'_>) -> Res<Dot> {
    Ok(Dot { dims, precision: x.get::<Option<_>>(m, 51)?.unwrap_or_default(), extras: extras(m, x)? })
}

fn extras(m: &mut Message<'_>, x: &mut OpCx<'_>) -> Res<ContractionExtras> {
    let SparsityConfig { lhs, rhs } = x.get::<Option<_>>(m, 98)?.unwrap_or_default();
    let scaling = x.get::<Option<BlockScaling>>(m, 101)?;
    Ok(ContractionExtras { lhs_sparsity: lhs, rhs_sparsity: rhs, block_scaling: scaling.and_then(|s| s.to_text()) })
}

fn custom_call(m: &mut Message<'_>, called: Vec<CompId>, x: &mut OpCx<'_>) -> Res<CustomCall> {
    let constrain = x.get::<bool>(m, 56)?;
    let shapes: Vec<ShapeMessage> = x.get(m, 57)?;
    Ok(CustomCall {
        target: x.get(m, 28)?,
        api_version: x.get(m, 77)?,
        called,
        to_apply: false,
        has_side_effect: x.get(m, 65)?,
        schedule: x.get(m, 76)?,
        operand_layouts: constrain.then(|| shapes.iter().map(|s| s.0).collect()),
        aliasing: x.get(m, 74)?,
        literal: x.get(m, 8)?,
        window: x.get::<Option<Dims<WindowDim>>>(m, 15)?.unwrap_or_default().dims,
        dims: x.get(m, 16)?,
        feature_group_count: x.get(m, 50)?,
        batch_group_count: x.get(m, 58)?,
        padding_type: x.get(m, 75)?,
        precision: x.get::<Option<_>>(m, 51)?.unwrap_or_default(),
    })
}

fn transfer(m: &mut Message<'_>, x: &mut OpCx<'_>) -> Res<Transfer> {
    Ok(Transfer { channel_id: x.get(m, 26)?, is_host_transfer: x.get(m, 47)? })
}

fn collective(m: &mut Message<'_>, kind: CollectiveKind, start: bool, called: &[CompId], x: &mut OpCx<'_>) -> Res<Collective> {
    let pairs: Vec<SourceTarget> = x.get(m, 52)?;
    let sizes: Vec<i64> = if kind == CollectiveKind::Permute { x.get(m, 20)? } else { Vec::new() };
    let rank = x.operand_shape(0).and_then(|s| x.cx.shapes.array(s)).map_or(0, |a| a.dims.len());
    let chunk = if rank == 0 || !sizes.len().is_multiple_of(rank) { sizes.len().max(1) } else { rank };
    let reduces = matches!(kind, CollectiveKind::AllReduce | CollectiveKind::ReduceScatter | CollectiveKind::Reduce);
    if called.len() != usize::from(reduces) {
        let message = format!("expected {} called computations of `{}`, found {}", u8::from(reduces), kind.name(), called.len());
        return Err(Bad::new("B006", m.place, message));
    }
    let has_dimensions = matches!(
        kind,
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll | CollectiveKind::RaggedAllToAll
    );
    Ok(Collective {
        kind,
        start,
        groups: groups(m, x)?,
        channel_id: x.get(m, 26)?,
        use_global_device_ids: x.get(m, 71)?,
        constrain_layout: x.get(m, 56)?,
        dimensions: if has_dimensions { x.get(m, 14)? } else { Vec::new() },
        to_apply: called.first().copied(),
        source_target_pairs: pairs.iter().map(|p| (p.source, p.target)).collect(),
        slice_sizes: sizes.chunks(chunk).map(<[i64]>::to_vec).collect(),
        has_dynamic_root: x.get(m, 100)?,
    })
}

fn groups(m: &mut Message<'_>, x: &mut OpCx<'_>) -> Res<ReplicaGroups> {
    let list = |groups: Vec<Group>| ReplicaGroups::List(groups.into_iter().map(|g| g.ids).collect());
    if let Some(mesh) = x.get::<Option<MeshGroups>>(m, 93)? {
        return Ok(ReplicaGroups::Mesh { mesh: mesh.mesh.unwrap_or_default(), axes: mesh.axes });
    }
    if let Some(IotaGroups { groups, devices, reshape, perm }) = x.get(m, 92)? {
        // The identity permutation is not said in text.
        let perm = if perm.iter().copied().eq(0..i32::try_from(perm.len()).unwrap_or(i32::MAX)) { Vec::new() } else { perm };
        return Ok(ReplicaGroups::Iota { groups, devices, reshape, perm });
    }
    if let Some(DeviceList { groups }) = x.get(m, 87)? {
        return Ok(list(groups));
    }
    let old: Vec<Group> = x.get(m, 49)?;
    if !old.is_empty() {
        m.keep_mark(49);
    }
    Ok(list(old))
}

/// Reads `ParameterReplication`.
pub(super) fn parameter_replication(m: &mut Message<'_>, cx: &mut Cx) -> Res<Option<Vec<bool>>> {
    Ok(Option::<Replication>::pick(m, 61, cx)?.map(|r| r.leaves))
}
