//! From an [`Op`] to the fields of its instruction, the mirror image of [`super::op_read`]. Fields need not come in order.

use super::attrs::{BlockScaling, Cholesky, Dims, RaggedDot, Replication, Rotate, Shuffle, SourceTarget, SparsityConfig, TriangularSolve};
use super::codec::{FieldCodec, put_message};
use super::op_read::default_compare;
use super::shape::ShapeMessage;
use super::sharding::{DeviceList, Group, IotaGroups, MeshGroups};
use super::wire::{Rest, Writer};
use crate::ir::{
    Collective, CollectiveKind, CompareType, ContractionExtras, Convolution, CustomCall, Instruction, Module, Op, PadDim, Precision,
    ReplicaGroups, Transfer, WindowDim,
};

/// Attributes that only text can say: name and value.
type TextOnly = Vec<(Box<str>, Box<str>)>;

/// Writes the fields that say what an instruction does, except for opcode and called computations. Returns what only text can say.
pub(super) fn op(module: &Module, instr: &Instruction, w: &mut Writer<'_>, rest: &mut Rest<'_>) -> TextOnly {
    let mut text_only = Vec::new();
    // XLA's parser says the default for every operand; a proto is written as it was read.
    let fill = if instr.proto_id == 0 { instr.operands.len() } else { 0 };
    match &instr.op {
        Op::Parameter { number } => number.put(w, 9, rest),
        Op::Constant(literal) => put_message(&**literal, w, 8, rest),
        Op::Iota { dimension }
        | Op::Concatenate { dimension }
        | Op::GetDimensionSize { dimension }
        | Op::SetDimensionSize { dimension } => vec![*dimension].put(w, 14, rest),
        Op::PartitionId
        | Op::ReplicaId
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Clamp
        | Op::Convert
        | Op::BitcastConvert
        | Op::StochasticConvert
        | Op::Bitcast
        | Op::Copy
        | Op::DynamicReshape
        | Op::DynamicUpdateSlice
        | Op::Tuple
        | Op::OptBarrier
        | Op::AfterAll
        | Op::AddDependency
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::CollectiveDone(_)
        | Op::CopyDone => {}
        Op::Compare { direction, ty } => {
            w.bytes(63, direction.name().as_bytes());
            let element = instr.operands.first().and_then(|&o| module.shapes.array(module.instr(o).shape)?.element.known());
            let ty = ty.unwrap_or_else(|| default_compare(element));
            if rest.take_mark(72) {
                w.bytes(72, ty.name().as_bytes());
            }
            if !rest.take_mark(102) {
                let order: &str = if ty == CompareType::Float { "PARTIAL" } else { "TOTAL" };
                w.bytes(102, order.as_bytes());
            }
        }
        Op::ReducePrecision { exponent_bits, mantissa_bits } => {
            exponent_bits.put(w, 18, rest);
            mantissa_bits.put(w, 19, rest);
        }
        Op::Map { dimensions, .. }
        | Op::Reduce { dimensions, .. }
        | Op::Broadcast { dimensions }
        | Op::Transpose { dimensions }
        | Op::Reverse { dimensions } => dimensions.put(w, 14, rest),
        Op::Reshape { inferred_dimension } => inferred_dimension.iter().copied().collect::<Vec<_>>().put(w, 14, rest),
        Op::Pad { padding } => put_message(&Dims::<PadDim> { dims: padding.clone() }, w, 21, rest),
        Op::Slice { dims } => dims.put(w, 17, rest),
        Op::DynamicSlice { sizes } => sizes.put(w, 20, rest),
        Op::Gather(op) => {
            put_message(&op.dims, w, 33, rest);
            op.slice_sizes.put(w, 34, rest);
            op.indices_are_sorted.put(w, 67, rest);
        }
        Op::Scatter(op) => {
            put_message(&op.dims, w, 48, rest);
            op.indices_are_sorted.put(w, 67, rest);
            op.unique_indices.put(w, 69, rest);
        }
        Op::Shuffle { dimensions, shifts, .. } => {
            dimensions.put(w, 14, rest);
            put_message(&Shuffle { rotate: Some(Rotate { shifts: shifts.clone() }) }, w, 103, rest);
        }
        Op::Dot(op) => {
            put_message(&op.dims, w, 30, rest);
            precision(&op.precision, fill, w, rest);
            extras(&op.extras, true, w, rest, &mut text_only);
        }
        Op::ScaledDot(op) => {
            put_message(&op.dims, w, 30, rest);
            precision(&op.precision, fill, w, rest);
            extras(&op.extras, false, w, rest, &mut text_only);
        }
        Op::RaggedDot { dot: op, lhs_ragged, rhs_group } => {
            let ragged = RaggedDot { dot: Some(op.dims.clone()), lhs_ragged: lhs_ragged.clone(), rhs_group: rhs_group.clone() };
            put_message(&ragged, w, 90, rest);
            precision(&op.precision, fill, w, rest);
            extras(&op.extras, false, w, rest, &mut text_only);
        }
        Op::Convolution(op) => convolution(op, fill, w, rest, &mut text_only),
        Op::ReduceWindow { window, .. } | Op::SelectAndScatter { window, .. } => {
            put_message(&Dims::<WindowDim> { dims: window.clone() }, w, 15, rest);
        }
        Op::Scan(op) => {
            vec![op.dimension].put(w, 14, rest);
            op.is_reverse.put(w, 94, rest);
            op.num_carries.put(w, 95, rest);
            // Left out of a text it means no; left out of a proto, nothing.
            let unsaid = if instr.proto_id == 0 { 2 } else { 0 };
            op.is_associative.map_or(unsaid, |yes| if yes { 1 } else { 2 }).put(w, 96, rest);
        }
        Op::Sort { dimension, is_stable, .. } => {
            vec![*dimension].put(w, 14, rest);
            is_stable.put(w, 60, rest);
        }
        Op::TopK { k, largest, is_stable } => {
            is_stable.put(w, 60, rest);
            k.put(w, 81, rest);
            largest.put(w, 85, rest);
        }
        Op::Fft { fft_type, fft_length } => {
            fft_type.put(w, 31, rest);
            fft_length.put(w, 32, rest);
        }
        Op::Cholesky { lower } => put_message(&Cholesky { lower: *lower }, w, 62, rest),
        &Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
            put_message(&TriangularSolve { left_side, lower, unit_diagonal, transpose_a }, w, 59, rest);
        }
        Op::BatchNormTraining { epsilon, feature_index }
        | Op::BatchNormInference { epsilon, feature_index }
        | Op::BatchNormGrad { epsilon, feature_index } => {
            epsilon.put(w, 24, rest);
            feature_index.put(w, 25, rest);
        }
        Op::Rng { distribution } => distribution.put(w, 23, rest),
        Op::RngBitGenerator { algorithm } => algorithm.put(w, 70, rest),
        Op::RngGetAndUpdateState { delta } => delta.put(w, 66, rest),
        Op::GetTupleElement { index } => index.put(w, 13, rest),
        Op::Domain(op) => {
            // The fields bear the other side's names.
            put_message(&op.exit, w, 54, rest);
            put_message(&op.entry, w, 55, rest);
        }
        Op::Call { is_composite, .. } => is_composite.put(w, 89, rest),
        Op::Fusion(op) => {
            w.bytes(11, op.kind.name().as_bytes());
            op.aliasing.put(w, 74, rest);
        }
        Op::CustomCall(op) => custom_call(op, fill, w, rest),
        Op::Collective(op) => collective(op, w, rest),
        Op::AsyncStart(op) | Op::AsyncUpdate(op) | Op::AsyncDone(op) => {
            op.thread.put(w, 79, rest);
            op.aliasing.put(w, 74, rest);
        }
        Op::CopyStart { cross_program_prefetch_index } => {
            if let Some(index) = cross_program_prefetch_index {
                w.varint(80, i64::from(*index).cast_unsigned());
            }
        }
        Op::Send(op) | Op::SendDone(op) | Op::Recv(op) | Op::RecvDone(op) => transfer(op, w, rest),
        Op::Infeed { config } => config.put(w, 27, rest),
        Op::Outfeed { config, shape } => {
            config.put(w, 22, rest);
            put_message(&ShapeMessage(*shape), w, 29, rest);
        }
        // All its fields were kept as they are.
        Op::Opaque(_) => {}
    }
    if let Some(leaves) = &instr.attrs.parameter_replication {
        put_message(&Replication { leaves: leaves.clone() }, w, 61, rest);
    }
    text_only
}

fn precision(p: &Precision, fill: usize, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
    if fill > 0 && p.operands.is_empty() {
        put_message(&Precision { operands: vec![0; fill], ..p.clone() }, w, 51, rest);
    } else {
        put_message(p, w, 51, rest);
    }
}

/// XLA writes both messages of a dot and a convolution even where they say nothing.
fn extras(extras: &ContractionExtras, always: bool, w: &mut Writer<'_>, rest: &mut Rest<'_>, text_only: &mut TextOnly) {
    let sparsity = SparsityConfig { lhs: extras.lhs_sparsity.clone(), rhs: extras.rhs_sparsity.clone() };
    if always || sparsity.lhs.is_some() || sparsity.rhs.is_some() {
        put_message(&sparsity, w, 98, rest);
    }
    let scaling = match &extras.block_scaling {
        None => always.then_some(BlockScaling { lhs: None, rhs: None }),
        Some(text) => BlockScaling::from_text(text),
    };
    match (scaling, &extras.block_scaling) {
        (Some(scaling), _) => put_message(&scaling, w, 101, rest),
        (None, Some(text)) => text_only.push(("block_scaling_config".into(), text.clone())),
        (None, None) => {}
    }
}

fn convolution(op: &Convolution, fill: usize, w: &mut Writer<'_>, rest: &mut Rest<'_>, text_only: &mut TextOnly) {
    put_message(&Dims::<WindowDim> { dims: op.window.clone() }, w, 15, rest);
    put_message(&op.dims, w, 16, rest);
    op.feature_group_count.put(w, 50, rest);
    op.batch_group_count.put(w, 58, rest);
    op.kind.put(w, 97, rest);
    precision(&op.precision, fill, w, rest);
    extras(&op.extras, true, w, rest, text_only);
}

fn custom_call(op: &CustomCall, fill: usize, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
    w.bytes(28, op.target.as_bytes());
    if !op.window.is_empty() {
        put_message(&Dims::<WindowDim> { dims: op.window.clone() }, w, 15, rest);
    }
    op.dims.put(w, 16, rest);
    // Unspecified means 1 to XLA, which writes that.
    op.feature_group_count.max(1).put(w, 50, rest);
    op.batch_group_count.max(1).put(w, 58, rest);
    op.api_version.max(1).put(w, 77, rest);
    op.has_side_effect.put(w, 65, rest);
    op.aliasing.put(w, 74, rest);
    op.padding_type.put(w, 75, rest);
    op.schedule.put(w, 76, rest);
    if let Some(literal) = &op.literal {
        put_message(&**literal, w, 8, rest);
    }
    if let Some(layouts) = &op.operand_layouts {
        true.put(w, 56, rest);
        layouts.iter().map(|&s| ShapeMessage(s)).collect::<Vec<_>>().put(w, 57, rest);
    }
    precision(&op.precision, fill, w, rest);
}

fn transfer(op: &Transfer, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
    op.channel_id.put(w, 26, rest);
    op.is_host_transfer.put(w, 47, rest);
}

fn collective(op: &Collective, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
    op.channel_id.put(w, 26, rest);
    op.use_global_device_ids.put(w, 71, rest);
    op.constrain_layout.put(w, 56, rest);
    op.dimensions.put(w, 14, rest);
    op.has_dynamic_root.put(w, 100, rest);
    if op.kind == CollectiveKind::Permute {
        op.source_target_pairs.iter().map(|&(source, target)| SourceTarget { source, target }).collect::<Vec<_>>().put(w, 52, rest);
        op.slice_sizes.concat().put(w, 20, rest);
        return;
    }
    match &op.groups {
        ReplicaGroups::List(groups) => {
            let groups: Vec<Group> = groups.iter().map(|ids| Group { ids: ids.clone() }).collect();
            if rest.take_mark(49) {
                groups.put(w, 49, rest);
            } else {
                put_message(&DeviceList { groups }, w, 87, rest);
            }
        }
        ReplicaGroups::Iota { groups, devices, reshape, perm } => {
            let rank = i32::try_from(reshape.len()).unwrap_or(i32::MAX);
            let perm = if perm.is_empty() { (0..rank).collect() } else { perm.clone() };
            put_message(&IotaGroups { groups: *groups, devices: *devices, reshape: reshape.clone(), perm }, w, 92, rest);
        }
        ReplicaGroups::Mesh { mesh, axes } => {
            put_message(&MeshGroups { mesh: Some(mesh.clone()), axes: axes.clone() }, w, 93, rest);
        }
    }
}
