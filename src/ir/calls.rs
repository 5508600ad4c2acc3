//! What can be asked of any operation: its name in text and the computations it calls.

use smallvec::SmallVec;

use super::{CollectiveKind, CompId, Op};

impl Op {
    /// The opcode in HLO text (async wrappers by their plain name).
    pub fn opcode(&self) -> &str {
        match self {
            Self::Parameter { .. } => "parameter",
            Self::Constant(_) => "constant",
            Self::Iota { .. } => "iota",
            Self::PartitionId => "partition-id",
            Self::ReplicaId => "replica-id",
            Self::Unary(op) => op.name(),
            Self::Binary(op) => op.name(),
            Self::Compare { .. } => "compare",
            Self::Select => "select",
            Self::Clamp => "clamp",
            Self::Convert => "convert",
            Self::BitcastConvert => "bitcast-convert",
            Self::StochasticConvert => "stochastic-convert",
            Self::ReducePrecision { .. } => "reduce-precision",
            Self::Map { .. } => "map",
            Self::Bitcast => "bitcast",
            Self::Copy => "copy",
            Self::Reshape { .. } => "reshape",
            Self::DynamicReshape => "dynamic-reshape",
            Self::Broadcast { .. } => "broadcast",
            Self::Transpose { .. } => "transpose",
            Self::Reverse { .. } => "reverse",
            Self::Concatenate { .. } => "concatenate",
            Self::Pad { .. } => "pad",
            Self::Slice { .. } => "slice",
            Self::DynamicSlice { .. } => "dynamic-slice",
            Self::DynamicUpdateSlice => "dynamic-update-slice",
            Self::Gather(_) => "gather",
            Self::Scatter(_) => "scatter",
            Self::GetDimensionSize { .. } => "get-dimension-size",
            Self::SetDimensionSize { .. } => "set-dimension-size",
            Self::Shuffle { .. } => "shuffle",
            Self::Dot(_) => "dot",
            Self::RaggedDot { .. } => "ragged-dot",
            Self::ScaledDot(_) => "scaled-dot",
            Self::Convolution(_) => "convolution",
            Self::Reduce { .. } => "reduce",
            Self::ReduceWindow { .. } => "reduce-window",
            Self::SelectAndScatter { .. } => "select-and-scatter",
            Self::Scan(_) => "scan",
            Self::Sort { .. } => "sort",
            Self::TopK { .. } => "topk",
            Self::Fft { .. } => "fft",
            Self::Cholesky { .. } => "cholesky",
            Self::TriangularSolve { .. } => "triangular-solve",
            Self::BatchNormTraining { .. } => "batch-norm-training",
            Self::BatchNormInference { .. } => "batch-norm-inference",
            Self::BatchNormGrad { .. } => "batch-norm-grad",
            Self::Rng { .. } => "rng",
            Self::RngBitGenerator { .. } => "rng-bit-generator",
            Self::RngGetAndUpdateState { .. } => "rng-get-and-update-state",
            Self::Tuple => "tuple",
            Self::GetTupleElement { .. } => "get-tuple-element",
            Self::OptBarrier => "opt-barrier",
            Self::AfterAll => "after-all",
            Self::AddDependency => "add-dependency",
            Self::Domain(_) => "domain",
            Self::While { .. } => "while",
            Self::Conditional { .. } => "conditional",
            Self::Call { .. } => "call",
            Self::Fusion(_) => "fusion",
            Self::CustomCall(_) => "custom-call",
            Self::Collective(c) if c.start => match c.kind {
                CollectiveKind::AllGather => "all-gather-start",
                CollectiveKind::AllReduce => "all-reduce-start",
                _ => "collective-permute-start",
            },
            Self::Collective(c) => c.kind.name(),
            Self::CollectiveDone(kind) => match kind {
                CollectiveKind::AllGather => "all-gather-done",
                CollectiveKind::AllReduce => "all-reduce-done",
                _ => "collective-permute-done",
            },
            Self::AsyncStart(_) => "async-start",
            Self::AsyncUpdate(_) => "async-update",
            Self::AsyncDone(_) => "async-done",
            Self::CopyStart { .. } => "copy-start",
            Self::CopyDone => "copy-done",
            Self::Send(_) => "send",
            Self::SendDone(_) => "send-done",
            Self::Recv(_) => "recv",
            Self::RecvDone(_) => "recv-done",
            Self::Infeed { .. } => "infeed",
            Self::Outfeed { .. } => "outfeed",
            Self::Opaque(op) => &op.opcode,
        }
    }

    /// The computations it calls, in the order of `called_computation_ids`.
    pub fn called(&self) -> SmallVec<[CompId; 2]> {
        let mut out = SmallVec::new();
        self.for_each_called(&mut |c| out.push(c));
        out
    }

    /// Replaces every called computation.
    pub fn map_called(&mut self, f: &mut impl FnMut(CompId) -> CompId) {
        match self {
            Self::Map { to_apply, .. }
            | Self::Reduce { to_apply, .. }
            | Self::ReduceWindow { to_apply, .. }
            | Self::Sort { to_apply, .. }
            | Self::Call { to_apply, .. } => *to_apply = f(*to_apply),
            Self::Scatter(op) => op.to_apply = f(op.to_apply),
            Self::Scan(op) => op.to_apply = f(op.to_apply),
            Self::SelectAndScatter { select, scatter, .. } => {
                *select = f(*select);
                *scatter = f(*scatter);
            }
            Self::While { condition, body } => {
                *body = f(*body);
                *condition = f(*condition);
            }
            Self::Conditional { branches, .. } => branches.iter_mut().for_each(|c| *c = f(*c)),
            Self::Fusion(op) => op.calls = f(op.calls),
            Self::CustomCall(op) => op.called.iter_mut().for_each(|c| *c = f(*c)),
            Self::Opaque(op) => op.called.iter_mut().for_each(|c| *c = f(*c)),
            Self::Collective(op) => op.to_apply = op.to_apply.map(f),
            Self::AsyncStart(op) | Self::AsyncUpdate(op) | Self::AsyncDone(op) => op.calls = f(op.calls),
            _ => {}
        }
    }

    fn for_each_called(&self, f: &mut impl FnMut(CompId)) {
        match self {
            Self::Map { to_apply, .. }
            | Self::Reduce { to_apply, .. }
            | Self::ReduceWindow { to_apply, .. }
            | Self::Sort { to_apply, .. }
            | Self::Call { to_apply, .. } => f(*to_apply),
            Self::Scatter(op) => f(op.to_apply),
            Self::Scan(op) => f(op.to_apply),
            Self::SelectAndScatter { select, scatter, .. } => {
                f(*select);
                f(*scatter);
            }
            Self::While { condition, body } => {
                f(*body);
                f(*condition);
            }
            Self::Conditional { branches, .. } => branches.iter().copied().for_each(f),
            Self::Fusion(op) => f(op.calls),
            Self::CustomCall(op) => op.called.iter().copied().for_each(f),
            Self::Opaque(op) => op.called.iter().copied().for_each(f),
            Self::Collective(op) => op.to_apply.into_iter().for_each(f),
            Self::AsyncStart(op) | Self::AsyncUpdate(op) | Self::AsyncDone(op) => f(op.calls),
            _ => {}
        }
    }
}
