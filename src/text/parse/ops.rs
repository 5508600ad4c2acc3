//! From opcodes to operations.

use super::attributes::{Attr as A, Value};
use super::build::Builder;
use super::errors::{Res, fail};
use super::opcodes::Make;
use super::reader::Reader;
use super::words;
use crate::ir::{
    Collective, CollectiveKind, CompareType, ContractionExtras, Convolution, CustomCall, Direction, Dot, DotDims, Fusion, FusionKind,
    Gather, GatherDims, Op, Precision, Primitive, ReplicaGroups, Scan, Scatter, ScatterDims, ShapeId, Transfer,
};

impl<'t> Reader<'t> {
    /// The operation of an opcode.
    pub(super) fn op(&mut self, make: Make, shape: Option<ShapeId>, b: &mut Builder<'_, 't>) -> Res<Op> {
        Ok(match make {
            Make::Unary(op) => Op::Unary(op),
            Make::Binary(op) => Op::Binary(op),
            Make::PartitionId => Op::PartitionId,
            Make::ReplicaId => Op::ReplicaId,
            Make::Select => Op::Select,
            Make::Clamp => Op::Clamp,
            Make::Convert => Op::Convert,
            Make::BitcastConvert => Op::BitcastConvert,
            Make::StochasticConvert => Op::StochasticConvert,
            Make::Bitcast => Op::Bitcast,
            Make::Copy => Op::Copy,
            Make::DynamicReshape => Op::DynamicReshape,
            Make::Tuple => Op::Tuple,
            Make::OptBarrier => Op::OptBarrier,
            Make::AfterAll => Op::AfterAll,
            Make::AddDependency => Op::AddDependency,
            Make::CopyDone => Op::CopyDone,
            Make::CollectiveDone(kind) => Op::CollectiveDone(kind),
            Make::Compare => compare(b)?,
            Make::Iota => Op::Iota { dimension: self.iota_dimension(shape, b)? },
            Make::ReducePrecision => {
                Op::ReducePrecision { exponent_bits: b.int32(A::ExponentBits)?, mantissa_bits: b.int32(A::MantissaBits)? }
            }
            Make::Map => self.map(shape, b)?,
            Make::Reshape => Op::Reshape { inferred_dimension: b.some_int(A::InferredDimension) },
            Make::Broadcast => Op::Broadcast { dimensions: self.broadcast_dimensions(b)? },
            Make::Transpose => Op::Transpose { dimensions: b.needed_ints(A::Dimensions)? },
            Make::Reverse => Op::Reverse { dimensions: b.needed_ints(A::Dimensions)? },
            Make::Concatenate => Op::Concatenate { dimension: b.one_int(A::Dimensions)? },
            Make::Pad => match b.attributes.take(A::Padding) {
                Some(Value::Padding(padding)) => Op::Pad { padding },
                _ => return b.missing(A::Padding),
            },
            Make::Slice => match b.attributes.take(A::Slice) {
                Some(Value::Slices(dims)) => Op::Slice { dims },
                _ => return b.missing(A::Slice),
            },
            Make::DynamicSlice => {
                self.slice_indices(b, 1)?;
                Op::DynamicSlice { sizes: b.needed_ints(A::DynamicSliceSizes)? }
            }
            Make::DynamicUpdateSlice => {
                self.slice_indices(b, 2)?;
                Op::DynamicUpdateSlice
            }
            Make::Gather => Op::Gather(Box::new(Gather {
                dims: GatherDims {
                    offset_dims: b.needed_ints(A::OffsetDims)?,
                    collapsed_slice_dims: b.needed_ints(A::CollapsedSliceDims)?,
                    start_index_map: b.needed_ints(A::StartIndexMap)?,
                    index_vector_dim: b.int(A::IndexVectorDim)?,
                    operand_batching_dims: b.ints(A::OperandBatchingDims),
                    start_indices_batching_dims: b.ints(A::StartIndicesBatchingDims),
                },
                slice_sizes: b.needed_ints(A::SliceSizes)?,
                indices_are_sorted: b.is(A::IndicesAreSorted),
            })),
            Make::Scatter => {
                if b.operands.len().is_multiple_of(2) {
                    return b.fail("P040", format!("expected an odd number of operands of `scatter`, found {}", b.operands.len()));
                }
                Op::Scatter(Box::new(Scatter {
                    dims: ScatterDims {
                        update_window_dims: b.needed_ints(A::UpdateWindowDims)?,
                        inserted_window_dims: b.needed_ints(A::InsertedWindowDims)?,
                        scatter_dims_to_operand_dims: b.needed_ints(A::ScatterDimsToOperandDims)?,
                        index_vector_dim: b.int(A::IndexVectorDim)?,
                        input_batching_dims: b.ints(A::InputBatchingDims),
                        scatter_indices_batching_dims: b.ints(A::ScatterIndicesBatchingDims),
                    },
                    indices_are_sorted: b.is(A::IndicesAreSorted),
                    unique_indices: b.is(A::UniqueIndices),
                    to_apply: b.comp(A::ToApply)?,
                }))
            }
            Make::GetDimensionSize => Op::GetDimensionSize { dimension: b.one_int(A::Dimensions)? },
            Make::SetDimensionSize => Op::SetDimensionSize { dimension: b.one_int(A::Dimensions)? },
            Make::Shuffle => Op::Shuffle {
                dimensions: b.needed_ints(A::Dimensions)?,
                mode: b.word(A::Mode, |w| if w == "rotate" { Some(w.into()) } else { None }, || "`rotate`".into())?,
                shifts: b.needed_ints(A::Shifts)?,
            },
            Make::Dot => {
                at_least_two(b)?;
                Op::Dot(Box::new(dot(b)?))
            }
            Make::ScaledDot => Op::ScaledDot(Box::new(dot(b)?)),
            Make::RaggedDot => {
                Op::RaggedDot { dot: Box::new(dot(b)?), lhs_ragged: b.ints(A::LhsRaggedDims), rhs_group: b.ints(A::RhsGroupDims) }
            }
            Make::Convolution => convolution(b)?,
            Make::Reduce => {
                pairs(b)?;
                Op::Reduce { dimensions: b.needed_ints(A::Dimensions)?, to_apply: b.comp(A::ToApply)? }
            }
            Make::ReduceWindow => {
                if b.operands.is_empty() {
                    return b.fail("P040", "expected at least an input and its initial value, found no operand");
                }
                pairs(b)?;
                Op::ReduceWindow { window: window(b), to_apply: b.comp(A::ToApply)? }
            }
            Make::SelectAndScatter => Op::SelectAndScatter { window: window(b), select: b.comp(A::Select)?, scatter: b.comp(A::Scatter)? },
            Make::Scan => scan(b)?,
            Make::Sort => Op::Sort { dimension: b.one_int(A::Dimensions)?, is_stable: b.is(A::IsStable), to_apply: b.comp(A::ToApply)? },
            Make::TopK => {
                Op::TopK { k: b.int(A::K)?, largest: b.flag(A::Largest).unwrap_or(true), is_stable: b.flag(A::IsStable).unwrap_or(true) }
            }
            Make::Fft => match b.number(A::FftType, words::FFT_TYPE)? {
                Some(fft_type) => Op::Fft { fft_type, fft_length: b.needed_ints(A::FftLength)? },
                None => return b.missing(A::FftType),
            },
            Make::Cholesky => Op::Cholesky { lower: b.is(A::Lower) },
            Make::TriangularSolve => Op::TriangularSolve {
                left_side: b.is(A::LeftSide),
                lower: b.is(A::Lower),
                unit_diagonal: b.is(A::UnitDiagonal),
                transpose_a: b.number(A::TransposeA, words::TRANSPOSE)?.unwrap_or(0),
            },
            Make::BatchNormTraining => Op::BatchNormTraining { epsilon: b.float(A::Epsilon)?, feature_index: b.int(A::FeatureIndex)? },
            Make::BatchNormInference => Op::BatchNormInference { epsilon: b.float(A::Epsilon)?, feature_index: b.int(A::FeatureIndex)? },
            Make::BatchNormGrad => Op::BatchNormGrad { epsilon: b.float(A::Epsilon)?, feature_index: b.int(A::FeatureIndex)? },
            Make::Rng => match b.number_any_case(A::Distribution, words::DISTRIBUTION)? {
                Some(distribution) => Op::Rng { distribution },
                None => return b.missing(A::Distribution),
            },
            Make::RngBitGenerator => match b.number_any_case(A::Algorithm, words::RNG_ALGORITHM)? {
                Some(algorithm) => Op::RngBitGenerator { algorithm },
                None => return b.missing(A::Algorithm),
            },
            Make::RngGetAndUpdateState => Op::RngGetAndUpdateState { delta: b.int(A::Delta)? },
            Make::GetTupleElement => Op::GetTupleElement { index: b.int(A::Index)? },
            Make::Domain => match b.attributes.take(A::Domain) {
                Some(Value::Domain(domain)) => Op::Domain(domain),
                _ => return b.missing(A::Domain),
            },
            Make::While => Op::While { condition: b.comp(A::Condition)?, body: b.comp(A::Body)? },
            Make::Conditional => self.conditional(b)?,
            Make::Call => Op::Call { to_apply: b.comp(A::ToApply)?, is_composite: b.is(A::IsComposite) },
            Make::Fusion => Op::Fusion(Box::new(Fusion {
                kind: b.word(A::Kind, FusionKind::from_name, || words::list(FusionKind::ALL.iter().map(|k| k.name())))?,
                calls: b.comp(A::Calls)?,
                aliasing: aliases(b),
            })),
            Make::CustomCall => self.custom_call(b)?,
            Make::Collective(kind, start) => collective(kind, start, b)?,
            Make::AsyncStart | Make::AsyncUpdate | Make::AsyncDone => self.async_op(make, shape, b)?,
            Make::CopyStart => Op::CopyStart {
                cross_program_prefetch_index: b
                    .some_int(A::CrossProgramPrefetchIndex)
                    .map(|n| i32::try_from(n).expect("the value was read as 32 bits")),
            },
            Make::Send => Op::Send(Box::new(transfer(b))),
            Make::SendDone => Op::SendDone(Box::new(transfer(b))),
            Make::Recv => Op::Recv(Box::new(transfer(b))),
            Make::RecvDone => Op::RecvDone(Box::new(transfer(b))),
            Make::Infeed => Op::Infeed { config: b.bytes(A::InfeedConfig) },
            Make::Outfeed => {
                let Some(&data) = b.operands.first() else { return b.fail("P040", "expected operands of `outfeed`, found none") };
                let shape = b.shape(A::OutfeedShape).unwrap_or_else(|| self.module.instr(data).shape);
                Op::Outfeed { config: b.bytes(A::OutfeedConfig), shape }
            }
            Make::Parameter | Make::Constant | Make::Opaque => {
                return b.fail("P060", format!("unexpected asynchronous form of `{}`: it crashes XLA's own parser", b.word));
            }
        })
    }

    fn iota_dimension(&self, shape: Option<ShapeId>, b: &mut Builder<'_, 't>) -> Res<i64> {
        let rank = shape.and_then(|s| self.module.shapes.array(s)).map_or(0, |a| a.dims.len());
        match b.some_int(A::IotaDimension) {
            Some(dimension) => Ok(dimension),
            None if rank == 1 => Ok(0),
            None => b.missing(A::IotaDimension),
        }
    }

    fn map(&self, shape: Option<ShapeId>, b: &mut Builder<'_, 't>) -> Res<Op> {
        let to_apply = b.comp(A::ToApply)?;
        let dimensions = if b.attributes.has(A::Dimensions) {
            b.ints(A::Dimensions)
        } else {
            // Without a written shape XLA takes none, which it then refuses.
            let rank = shape.and_then(|s| self.module.shapes.array(s)).map_or(0, |a| a.dims.len());
            (0..i64::try_from(rank).expect("a rank is small")).collect()
        };
        Ok(Op::Map { dimensions, to_apply })
    }

    fn broadcast_dimensions(&self, b: &mut Builder<'_, 't>) -> Res<Vec<i64>> {
        let operand = b.operands.first().map(|&o| self.module.instr(o).shape);
        let is_scalar = operand.and_then(|o| self.module.shapes.array(o)).is_some_and(|a| a.dims.is_empty());
        if b.attributes.has(A::Dimensions) || !is_scalar { b.needed_ints(A::Dimensions) } else { Ok(Vec::new()) }
    }

    /// The indices of a dynamic slice: one array, or one scalar a dimension of the first operand.
    fn slice_indices(&self, b: &Builder<'_, 't>, before: usize) -> Res<()> {
        let count = b.operands.len();
        if count < before {
            return b.fail("P040", format!("expected at least {before} operands of `{}`, found {count}", b.word));
        }
        let shape = |i: usize| self.module.shapes.array(self.module.instr(b.operands[i]).shape).map(|a| a.dims.len());
        let rank = shape(0).unwrap_or(0);
        let is_vector = count == before + 1 && shape(before) == Some(1);
        if is_vector || count == before + rank {
            return Ok(());
        }
        b.fail("P040", format!("expected {rank} indices, one a dimension of the first operand, found {}", count - before))
    }

    fn conditional(&mut self, b: &mut Builder<'_, 't>) -> Res<Op> {
        let Some(&first) = b.operands.first() else {
            return b.fail("P040", "expected at least one operand of `conditional`, found none");
        };
        let index = self.module.shapes.array(self.module.instr(first).shape).filter(|a| a.dims.is_empty()).and_then(|a| a.element.known());
        let predicated = match index {
            Some(Primitive::Pred) => true,
            Some(Primitive::S32) => false,
            _ => return b.fail("P043", "expected a scalar of `pred` or `s32` for the first operand of `conditional`"),
        };
        let wrong = if predicated { [A::BranchComputations, A::BranchComputations] } else { [A::TrueComputation, A::FalseComputation] };
        for attr in wrong {
            if let Some((_, span)) = b.attributes.take_at(attr) {
                let right = if predicated { "`true_computation` and `false_computation`" } else { "`branch_computations`" };
                return fail("P021", span, format!("unexpected attribute `{}`: expected {right} for this first operand", attr.name()));
            }
        }
        let branches = if predicated {
            vec![b.comp(A::TrueComputation)?, b.comp(A::FalseComputation)?]
        } else {
            match b.attributes.take(A::BranchComputations) {
                Some(Value::Comps(branches)) => branches,
                _ => return b.missing(A::BranchComputations),
            }
        };
        if branches.is_empty() || b.operands.len() != branches.len() + 1 {
            return b
                .fail("P040", format!("expected {} operands, the index and one a branch, found {}", branches.len() + 1, b.operands.len()));
        }
        Ok(Op::Conditional { branches, predicated })
    }

    fn custom_call(&mut self, b: &mut Builder<'_, 't>) -> Res<Op> {
        let target = b.needed_text(A::CustomCallTarget)?;
        let listed = match b.attributes.take(A::CalledComputations) {
            Some(Value::Comps(called)) => called,
            _ => Vec::new(),
        };
        let to_apply = if b.attributes.has(A::ToApply) { Some(b.comp(A::ToApply)?) } else { None };
        let operand_layouts = match b.attributes.take_at(A::OperandLayoutConstraints) {
            Some((Value::Shapes(shapes), span)) => {
                if shapes.len() != b.operands.len() {
                    return fail("P026", span, format!("expected {} shapes, one an operand, found {}", b.operands.len(), shapes.len()));
                }
                let fits = |(shape, &operand): (&ShapeId, _)| self.module.shapes.compatible(*shape, self.module.instr(operand).shape);
                if let Some(at) = shapes.iter().zip(b.operands).position(|pair| !fits(pair)) {
                    return fail("P041", span, format!("expected the shape of operand {at}, found another"));
                }
                Some(shapes)
            }
            _ => None,
        };
        Ok(Op::CustomCall(Box::new(CustomCall {
            target,
            api_version: b.number(A::ApiVersion, words::API_VERSION)?.unwrap_or(1),
            to_apply: to_apply.is_some(),
            called: to_apply.map_or(listed, |c| vec![c]),
            has_side_effect: b.is(A::CustomCallHasSideEffect),
            schedule: b.number(A::Schedule, words::SCHEDULE)?.unwrap_or(0),
            operand_layouts,
            aliasing: aliases(b),
            literal: match b.attributes.take(A::Literal) {
                Some(Value::Literal(literal)) => Some(literal),
                _ => None,
            },
            window: window(b),
            dims: match b.attributes.take(A::DimLabels) {
                Some(Value::ConvDims(dims)) => Some(*dims),
                _ => None,
            },
            feature_group_count: b.int_or(A::FeatureGroupCount, 1),
            batch_group_count: b.int_or(A::BatchGroupCount, 1),
            padding_type: b.number(A::PaddingType, words::PADDING_TYPE)?.unwrap_or(0),
            precision: precision(b)?,
        })))
    }
}

fn compare(b: &mut Builder<'_, '_>) -> Res<Op> {
    let direction = b.word(A::Direction, Direction::from_name, || words::list(Direction::ALL.iter().map(|d| d.name())))?;
    let ty = b.some_word(A::Type, CompareType::from_name, || words::list(CompareType::ALL.iter().map(|t| t.name())))?;
    let order = |word: &str| match word {
        "TOTAL" => Some(CompareType::Total),
        "PARTIAL" => Some(CompareType::Float),
        _ => None,
    };
    let order = b.some_word(A::Order, order, || "`TOTAL` or `PARTIAL`".into())?;
    if ty.is_some() && order.is_some() {
        return b.fail("P026", "expected `type` or `order`, found both");
    }
    Ok(Op::Compare { direction, ty: ty.or(order) })
}

fn pairs(b: &Builder<'_, '_>) -> Res<()> {
    if b.operands.len().is_multiple_of(2) {
        return Ok(());
    }
    b.fail("P040", format!("expected an even number of operands of `{}`, found {}", b.word, b.operands.len()))
}

fn at_least_two(b: &Builder<'_, '_>) -> Res<()> {
    if b.operands.len() >= 2 {
        return Ok(());
    }
    b.fail("P040", format!("expected at least 2 operands of `{}`, found {}", b.word, b.operands.len()))
}

fn window(b: &mut Builder<'_, '_>) -> crate::ir::Window {
    match b.attributes.take(A::Window) {
        Some(Value::Window(window)) => window,
        _ => Vec::new(),
    }
}

fn aliases(b: &mut Builder<'_, '_>) -> Vec<crate::ir::OutputAlias> {
    match b.attributes.take(A::OutputToOperandAliasing) {
        Some(Value::Aliases(aliases)) => aliases,
        _ => Vec::new(),
    }
}

fn precision(b: &mut Builder<'_, '_>) -> Res<Precision> {
    let operands = match b.attributes.take(A::OperandPrecision) {
        Some(Value::Precision(list)) => list,
        _ => Vec::new(),
    };
    let algorithm = b.number_any_case(A::Algorithm, words::ALGORITHM)?.unwrap_or(0);
    Ok(Precision { operands, algorithm, ..Precision::default() })
}

fn extras(b: &mut Builder<'_, '_>) -> ContractionExtras {
    let [lhs_sparsity, rhs_sparsity] = match b.attributes.take(A::SparsityConfig) {
        Some(Value::Sparsity(sides)) => sides,
        _ => [None, None],
    };
    ContractionExtras { lhs_sparsity, rhs_sparsity, block_scaling: b.text(A::BlockScalingConfig) }
}

fn dot(b: &mut Builder<'_, '_>) -> Res<Dot> {
    let dims = DotDims {
        lhs_contracting: b.ints(A::LhsContractingDims),
        rhs_contracting: b.ints(A::RhsContractingDims),
        lhs_batch: b.ints(A::LhsBatchDims),
        rhs_batch: b.ints(A::RhsBatchDims),
    };
    Ok(Dot { dims, precision: precision(b)?, extras: extras(b) })
}

fn convolution(b: &mut Builder<'_, '_>) -> Res<Op> {
    at_least_two(b)?;
    let dims = match b.attributes.take(A::DimLabels) {
        Some(Value::ConvDims(dims)) => *dims,
        _ => return b.missing(A::DimLabels),
    };
    Ok(Op::Convolution(Box::new(Convolution {
        window: window(b),
        dims,
        feature_group_count: b.int_or(A::FeatureGroupCount, 1),
        batch_group_count: b.int_or(A::BatchGroupCount, 1),
        precision: precision(b)?,
        kind: b.number(A::ConvolutionKind, words::CONVOLUTION_KIND)?.unwrap_or(0),
        extras: extras(b),
    })))
}

fn scan(b: &mut Builder<'_, '_>) -> Res<Op> {
    let scan = Scan {
        dimension: b.one_int(A::Dimensions)?,
        num_carries: b.int(A::NumCarries)?,
        is_reverse: b.is(A::IsReverse),
        is_associative: Some(b.is(A::IsAssociative)),
        to_apply: b.comp(A::ToApply)?,
    };
    if !usize::try_from(scan.num_carries).is_ok_and(|n| n <= b.operands.len()) {
        return b.fail("P040", format!("expected at least {} operands, the carries, found {}", scan.num_carries, b.operands.len()));
    }
    Ok(Op::Scan(Box::new(scan)))
}

fn transfer(b: &mut Builder<'_, '_>) -> Transfer {
    Transfer { channel_id: b.some_int(A::ChannelId), is_host_transfer: b.is(A::IsHostTransfer) }
}

fn collective(kind: CollectiveKind, start: bool, b: &mut Builder<'_, '_>) -> Res<Op> {
    use CollectiveKind as K;
    let groups = match b.attributes.take(A::ReplicaGroups) {
        Some(Value::Groups(groups)) => groups,
        _ => ReplicaGroups::default(),
    };
    let reduces = matches!(kind, K::AllReduce | K::ReduceScatter | K::Reduce);
    let mode = |w: &str| {
        if matches!(w, "cross_replica" | "cross_partition" | "cross_replica_and_partition" | "flattened_id") { Some(()) } else { None }
    };
    b.some_word(A::Mode, mode, || "`cross_replica`, `cross_partition`, `cross_replica_and_partition` or `flattened_id`".into())?;
    let channel_id = b.some_int(A::ChannelId);
    let use_global_device_ids = b.is(A::UseGlobalDeviceIds);
    if use_global_device_ids && channel_id.is_none() && matches!(kind, K::AllReduce | K::ReduceScatter) {
        return b.fail("P026", "expected a `channel_id` with `use_global_device_ids=true`");
    }
    let dimensions = match kind {
        K::AllGather | K::ReduceScatter => vec![b.one_int(A::Dimensions)?],
        K::AllToAll if b.attributes.has(A::Dimensions) => vec![b.one_int(A::Dimensions)?],
        _ => b.ints(A::Dimensions),
    };
    let mut source_target_pairs = Vec::new();
    let mut slice_sizes = Vec::new();
    if kind == K::Permute {
        let Some((Value::Lists(pairs), span)) = b.attributes.take_at(A::SourceTargetPairs) else { return b.missing(A::SourceTargetPairs) };
        for pair in pairs {
            match *pair {
                [source, target] => source_target_pairs.push((source, target)),
                ref other => return fail("P026", span, format!("expected pairs of source and target, found {} numbers", other.len())),
            }
        }
        if let Some(Value::Lists(sizes)) = b.attributes.take(A::SliceSizes) {
            slice_sizes = sizes;
        }
        if !slice_sizes.is_empty() && b.operands.len() != 4 {
            return b.fail("P040", format!("expected 4 operands of a permute with `slice_sizes`, found {}", b.operands.len()));
        }
    }
    Ok(Op::Collective(Box::new(Collective {
        kind,
        start,
        groups,
        channel_id,
        use_global_device_ids,
        constrain_layout: b.is(A::ConstrainLayout),
        dimensions,
        to_apply: if reduces { Some(b.comp(A::ToApply)?) } else { None },
        source_target_pairs,
        slice_sizes,
        has_dynamic_root: b.is(A::HasDynamicRoot),
    })))
}
