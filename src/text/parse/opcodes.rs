//! Opcodes with their arity and the attributes each allows.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::attributes::Attr;
use crate::ir::{Binary, CollectiveKind, Unary};

/// What is built for an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Make {
    Parameter,
    Constant,
    Iota,
    PartitionId,
    ReplicaId,
    Unary(Unary),
    Binary(Binary),
    Compare,
    Select,
    Clamp,
    Convert,
    BitcastConvert,
    StochasticConvert,
    ReducePrecision,
    Map,
    Bitcast,
    Copy,
    Reshape,
    DynamicReshape,
    Broadcast,
    Transpose,
    Reverse,
    Concatenate,
    Pad,
    Slice,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Scatter,
    GetDimensionSize,
    SetDimensionSize,
    Shuffle,
    Dot,
    RaggedDot,
    ScaledDot,
    Convolution,
    Reduce,
    ReduceWindow,
    SelectAndScatter,
    Scan,
    Sort,
    TopK,
    Fft,
    Cholesky,
    TriangularSolve,
    BatchNormTraining,
    BatchNormInference,
    BatchNormGrad,
    Rng,
    RngBitGenerator,
    RngGetAndUpdateState,
    Tuple,
    GetTupleElement,
    OptBarrier,
    AfterAll,
    AddDependency,
    Domain,
    While,
    Conditional,
    Call,
    Fusion,
    CustomCall,
    Collective(CollectiveKind, bool),
    CollectiveDone(CollectiveKind),
    AsyncStart,
    AsyncUpdate,
    AsyncDone,
    CopyStart,
    CopyDone,
    Send,
    SendDone,
    Recv,
    RecvDone,
    Infeed,
    Outfeed,
    Opaque,
}

/// An opcode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opcode {
    /// What is built.
    pub(super) make: Make,
    /// Number of operands; `None` is any.
    pub(super) arity: Option<u8>,
    /// Set of the allowed attributes, beside the common ones.
    pub(super) allowed: u128,
    /// Whether the shape may be left out.
    pub(super) inferable: bool,
}

/// The spelling of an asynchronous opcode: `negate-start` is `negate` with [`Step::Start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Start,
    Update,
    Done,
}

/// The opcode of that name.
#[inline]
pub(super) fn find(name: &str) -> Option<&'static Opcode> {
    TABLE.get(name)
}

/// The opcode and step of a sugared name, if its opcode may be wrapped so.
pub(super) fn find_sugar(name: &str) -> Option<(&'static Opcode, Step)> {
    let (base, step) = split_step(name)?;
    let opcode = find(base)?;
    let own = matches!(
        opcode.make,
        Make::Collective(CollectiveKind::AllGather | CollectiveKind::AllReduce | CollectiveKind::Permute, _)
            | Make::Copy
            | Make::Send
            | Make::Recv
    );
    if own { None } else { Some((opcode, step)) }
}

/// A name without its step.
pub(super) fn split_step(name: &str) -> Option<(&str, Step)> {
    [("-start", Step::Start), ("-update", Step::Update), ("-done", Step::Done)]
        .into_iter()
        .find_map(|(suffix, step)| name.strip_suffix(suffix).map(|base| (base, step)))
}

static TABLE: LazyLock<FxHashMap<&'static str, Opcode>> = LazyLock::new(table);

fn table() -> FxHashMap<&'static str, Opcode> {
    use Attr as A;
    let mut table = FxHashMap::default();
    let set = |attrs: &[Attr]| attrs.iter().fold(0u128, |set, &a| set | a.bit());
    let mut add = |name: &'static str, make: Make, arity: i8, inferable: bool, attrs: &[Attr]| {
        let previous = table.insert(name, Opcode { make, arity: u8::try_from(arity).ok(), allowed: set(attrs), inferable });
        debug_assert!(previous.is_none(), "each opcode stands once");
    };
    for &op in Unary::ALL {
        let accurate = matches!(
            op,
            Unary::Acos
                | Unary::Acosh
                | Unary::Asin
                | Unary::Asinh
                | Unary::Atanh
                | Unary::Cbrt
                | Unary::Cosine
                | Unary::Cosh
                | Unary::Erf
                | Unary::Exponential
                | Unary::ExponentialMinusOne
                | Unary::Exp2
                | Unary::Log
                | Unary::LogPlusOne
                | Unary::Log2
                | Unary::Logistic
                | Unary::Rsqrt
                | Unary::Sine
                | Unary::Sinh
                | Unary::Sqrt
                | Unary::Tan
                | Unary::Tanh
        );
        add(op.name(), Make::Unary(op), 1, true, if accurate { &[A::ResultAccuracy] } else { &[] });
    }
    for &op in Binary::ALL {
        add(op.name(), Make::Binary(op), 2, true, &[]);
    }
    let contraction = [
        A::LhsContractingDims,
        A::RhsContractingDims,
        A::LhsBatchDims,
        A::RhsBatchDims,
        A::OperandPrecision,
        A::Algorithm,
        A::SparsityConfig,
        A::BlockScalingConfig,
    ];
    let ragged = [
        A::LhsContractingDims,
        A::RhsContractingDims,
        A::LhsBatchDims,
        A::RhsBatchDims,
        A::LhsRaggedDims,
        A::RhsGroupDims,
        A::OperandPrecision,
    ];
    let reduction = [A::ChannelId, A::ConstrainLayout, A::Mode, A::ReplicaGroups, A::ToApply, A::UseGlobalDeviceIds];
    let gathering = [A::ChannelId, A::ConstrainLayout, A::Dimensions, A::ReplicaGroups, A::UseGlobalDeviceIds];
    let permuting = [A::ChannelId, A::SliceSizes, A::SourceTargetPairs];
    let moving = [A::ChannelId, A::IsHostTransfer];
    let starting = [A::AsyncExecutionThread, A::Calls, A::OutputToOperandAliasing];

    add("parameter", Make::Parameter, 0, false, &[]);
    add("constant", Make::Constant, 0, false, &[]);
    add("iota", Make::Iota, 0, false, &[A::IotaDimension]);
    add("partition-id", Make::PartitionId, 0, true, &[]);
    add("replica-id", Make::ReplicaId, 0, true, &[]);
    add("compare", Make::Compare, 2, true, &[A::Direction, A::Type, A::Order]);
    add("select", Make::Select, 3, true, &[]);
    add("clamp", Make::Clamp, 3, true, &[]);
    add("convert", Make::Convert, 1, false, &[]);
    add("bitcast-convert", Make::BitcastConvert, 1, false, &[]);
    add("stochastic-convert", Make::StochasticConvert, 2, false, &[]);
    add("reduce-precision", Make::ReducePrecision, 1, false, &[A::ExponentBits, A::MantissaBits]);
    add("map", Make::Map, -1, true, &[A::ToApply, A::Dimensions]);
    add("bitcast", Make::Bitcast, 1, false, &[]);
    add("copy", Make::Copy, 1, true, &[]);
    add("reshape", Make::Reshape, 1, false, &[A::InferredDimension]);
    add("dynamic-reshape", Make::DynamicReshape, -1, false, &[]);
    add("broadcast", Make::Broadcast, 1, true, &[A::Dimensions]);
    add("transpose", Make::Transpose, 1, true, &[A::Dimensions]);
    add("reverse", Make::Reverse, 1, true, &[A::Dimensions]);
    add("concatenate", Make::Concatenate, -1, true, &[A::Dimensions]);
    add("pad", Make::Pad, 2, true, &[A::Padding]);
    add("slice", Make::Slice, 1, false, &[A::Slice]);
    add("dynamic-slice", Make::DynamicSlice, -1, false, &[A::DynamicSliceSizes]);
    add("dynamic-update-slice", Make::DynamicUpdateSlice, -1, false, &[]);
    add(
        "gather",
        Make::Gather,
        2,
        true,
        &[
            A::OffsetDims,
            A::CollapsedSliceDims,
            A::StartIndexMap,
            A::IndexVectorDim,
            A::SliceSizes,
            A::IndicesAreSorted,
            A::OperandBatchingDims,
            A::StartIndicesBatchingDims,
        ],
    );
    add(
        "scatter",
        Make::Scatter,
        -1,
        true,
        &[
            A::UpdateWindowDims,
            A::InsertedWindowDims,
            A::ScatterDimsToOperandDims,
            A::IndexVectorDim,
            A::IndicesAreSorted,
            A::UniqueIndices,
            A::InputBatchingDims,
            A::ScatterIndicesBatchingDims,
            A::ToApply,
        ],
    );
    add("get-dimension-size", Make::GetDimensionSize, 1, true, &[A::Dimensions]);
    add("set-dimension-size", Make::SetDimensionSize, 2, true, &[A::Dimensions]);
    add("shuffle", Make::Shuffle, 1, true, &[A::Dimensions, A::Mode, A::Shifts]);
    add("dot", Make::Dot, -1, true, &contraction);
    add("ragged-dot", Make::RaggedDot, 3, true, &ragged);
    add("scaled-dot", Make::ScaledDot, 4, true, &contraction[..6]);
    add(
        "convolution",
        Make::Convolution,
        -1,
        true,
        &[
            A::Window,
            A::DimLabels,
            A::FeatureGroupCount,
            A::BatchGroupCount,
            A::OperandPrecision,
            A::Algorithm,
            A::ConvolutionKind,
            A::SparsityConfig,
            A::BlockScalingConfig,
        ],
    );
    add("reduce", Make::Reduce, -1, true, &[A::Dimensions, A::ToApply]);
    add("reduce-window", Make::ReduceWindow, -1, true, &[A::Window, A::ToApply]);
    add("select-and-scatter", Make::SelectAndScatter, 3, true, &[A::Window, A::Select, A::Scatter]);
    add("scan", Make::Scan, -1, true, &[A::Dimensions, A::NumCarries, A::IsReverse, A::IsAssociative, A::ToApply]);
    add("sort", Make::Sort, -1, true, &[A::Dimensions, A::IsStable, A::ToApply]);
    add("topk", Make::TopK, 1, true, &[A::K, A::Largest, A::IsStable]);
    add("fft", Make::Fft, 1, true, &[A::FftType, A::FftLength]);
    add("cholesky", Make::Cholesky, 1, true, &[A::Lower]);
    add("triangular-solve", Make::TriangularSolve, 2, true, &[A::LeftSide, A::Lower, A::UnitDiagonal, A::TransposeA]);
    add("batch-norm-training", Make::BatchNormTraining, 3, true, &[A::Epsilon, A::FeatureIndex]);
    add("batch-norm-inference", Make::BatchNormInference, 5, true, &[A::Epsilon, A::FeatureIndex]);
    add("batch-norm-grad", Make::BatchNormGrad, 5, true, &[A::Epsilon, A::FeatureIndex]);
    add("rng", Make::Rng, -1, false, &[A::Distribution]);
    add("rng-bit-generator", Make::RngBitGenerator, 1, false, &[A::Algorithm]);
    add("rng-get-and-update-state", Make::RngGetAndUpdateState, 0, false, &[A::Delta]);
    add("tuple", Make::Tuple, -1, true, &[]);
    add("get-tuple-element", Make::GetTupleElement, 1, true, &[A::Index]);
    add("opt-barrier", Make::OptBarrier, 1, true, &[]);
    add("after-all", Make::AfterAll, -1, true, &[]);
    add("add-dependency", Make::AddDependency, 2, true, &[]);
    add("domain", Make::Domain, 1, true, &[A::Domain]);
    add("while", Make::While, 1, true, &[A::Condition, A::Body]);
    add("conditional", Make::Conditional, -1, true, &[A::BranchComputations, A::TrueComputation, A::FalseComputation]);
    add("call", Make::Call, -1, true, &[A::ToApply, A::IsComposite]);
    add("fusion", Make::Fusion, -1, false, &[A::Kind, A::Calls, A::OutputToOperandAliasing]);
    add(
        "custom-call",
        Make::CustomCall,
        -1,
        false,
        &[
            A::CustomCallTarget,
            A::ApiVersion,
            A::BatchGroupCount,
            A::CalledComputations,
            A::CustomCallHasSideEffect,
            A::DimLabels,
            A::FeatureGroupCount,
            A::Literal,
            A::OperandLayoutConstraints,
            A::OperandPrecision,
            A::OutputToOperandAliasing,
            A::PaddingType,
            A::Schedule,
            A::ToApply,
            A::Window,
        ],
    );
    for (name, start) in [("all-gather", false), ("all-gather-start", true)] {
        add(name, Make::Collective(CollectiveKind::AllGather, start), -1, false, &gathering);
    }
    for (name, start) in [("all-reduce", false), ("all-reduce-start", true)] {
        add(name, Make::Collective(CollectiveKind::AllReduce, start), -1, false, &reduction);
    }
    for (name, start) in [("collective-permute", false), ("collective-permute-start", true)] {
        add(name, Make::Collective(CollectiveKind::Permute, start), -1, false, &permuting);
    }
    let scattering: Vec<Attr> = reduction.iter().copied().chain([A::Dimensions]).collect();
    add("reduce-scatter", Make::Collective(CollectiveKind::ReduceScatter, false), -1, false, &scattering);
    add("all-to-all", Make::Collective(CollectiveKind::AllToAll, false), -1, false, &gathering[..4]);
    add(
        "ragged-all-to-all",
        Make::Collective(CollectiveKind::RaggedAllToAll, false),
        6,
        false,
        &[A::ChannelId, A::Dimensions, A::ReplicaGroups],
    );
    add(
        "collective-broadcast",
        Make::Collective(CollectiveKind::Broadcast, false),
        -1,
        false,
        &[A::ChannelId, A::HasDynamicRoot, A::ReplicaGroups],
    );
    add(
        "collective-reduce",
        Make::Collective(CollectiveKind::Reduce, false),
        -1,
        false,
        &[A::ChannelId, A::ConstrainLayout, A::HasDynamicRoot, A::ReplicaGroups, A::ToApply, A::UseGlobalDeviceIds],
    );
    add("all-gather-done", Make::CollectiveDone(CollectiveKind::AllGather), 1, false, &[]);
    add("all-reduce-done", Make::CollectiveDone(CollectiveKind::AllReduce), 1, false, &[]);
    add("collective-permute-done", Make::CollectiveDone(CollectiveKind::Permute), 1, false, &[]);
    add("async-start", Make::AsyncStart, -1, false, &starting);
    add("async-update", Make::AsyncUpdate, -1, false, &starting);
    add("async-done", Make::AsyncDone, 1, false, &starting[..2]);
    add("copy-start", Make::CopyStart, 1, false, &[A::CrossProgramPrefetchIndex]);
    add("copy-done", Make::CopyDone, 1, false, &[]);
    add("send", Make::Send, 2, false, &moving);
    add("send-done", Make::SendDone, 1, false, &moving);
    add("recv", Make::Recv, 1, false, &moving);
    add("recv-done", Make::RecvDone, 1, false, &moving);
    add("infeed", Make::Infeed, 1, false, &[A::InfeedConfig]);
    add("outfeed", Make::Outfeed, 2, false, &[A::OutfeedConfig, A::OutfeedShape]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sugar_is_for_opcodes_without_their_own_start() {
        assert!(find_sugar("negate-start").is_some() && find_sugar("fusion-done").is_some());
        assert!(find_sugar("copy-update").is_none() && find_sugar("all-reduce-update").is_none() && find_sugar("foo-start").is_none());
        assert!(find("collective-permute-done").is_some());
    }
}
