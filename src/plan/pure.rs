//! What may be computed again: operations whose result depends on their operands alone and that nobody else can notice.

use crate::ir::{CompId, InstrId, Module, Op};

/// Custom calls that are known to be pure functions of their operands.
const PURE_TARGETS: &[&str] = &["__cublas$", "__cudnn$", "__triton$", "__onednn$"];
/// Computations nested deeper than this are not looked into, and count as impure.
const MAX_NESTING: usize = 16;

/// Whether an instruction may be computed again.
pub fn is_pure(module: &Module, id: InstrId) -> bool {
    pure(module, id, 0)
}

fn computation(module: &Module, comp: CompId, nesting: usize) -> bool {
    nesting < MAX_NESTING
        && module.comp(comp).order.iter().all(|&i| matches!(module.instr(i).op, Op::Parameter { .. }) || pure(module, i, nesting))
}

fn pure(module: &Module, id: InstrId, nesting: usize) -> bool {
    let op = &module.instr(id).op;
    match op {
        Op::Constant(_)
        | Op::Iota { .. }
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare { .. }
        | Op::Select
        | Op::Clamp
        | Op::Convert
        | Op::BitcastConvert
        | Op::ReducePrecision { .. }
        | Op::Bitcast
        | Op::Copy
        | Op::Reshape { .. }
        | Op::Broadcast { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Concatenate { .. }
        | Op::Pad { .. }
        | Op::Slice { .. }
        | Op::DynamicSlice { .. }
        | Op::Gather(_)
        | Op::Dot(_)
        | Op::ScaledDot(_)
        | Op::RaggedDot { .. }
        | Op::Convolution(_)
        | Op::TopK { .. }
        | Op::Fft { .. }
        | Op::Cholesky { .. }
        | Op::TriangularSolve { .. }
        | Op::BatchNormTraining { .. }
        | Op::BatchNormInference { .. }
        | Op::BatchNormGrad { .. }
        | Op::Shuffle { .. }
        | Op::Tuple
        | Op::GetTupleElement { .. } => true,
        // A fused update in place would be a second writer of its buffer; alone inside a fusion it writes a buffer of the clone.
        Op::DynamicUpdateSlice => nesting > 0,
        Op::Scatter(_) => nesting > 0 && op.called().into_iter().all(|c| computation(module, c, nesting + 1)),
        Op::Map { .. }
        | Op::Reduce { .. }
        | Op::ReduceWindow { .. }
        | Op::SelectAndScatter { .. }
        | Op::Scan(_)
        | Op::Sort { .. }
        | Op::Fusion(_) => op.called().into_iter().all(|c| computation(module, c, nesting + 1)),
        Op::CustomCall(call) => {
            !call.has_side_effect && call.aliasing.is_empty() && PURE_TARGETS.iter().any(|t| call.target.starts_with(t))
        }
        // A parameter is nobody's to make; the bits of a random generator with state differ at the second call; a stochastic conversion
        // is told its bits, but is rare enough to leave alone; sizes of dynamic shapes change what others see.
        Op::Parameter { .. }
        | Op::Rng { .. }
        | Op::RngBitGenerator { .. }
        | Op::RngGetAndUpdateState { .. }
        | Op::StochasticConvert
        | Op::DynamicReshape
        | Op::GetDimensionSize { .. }
        | Op::SetDimensionSize { .. } => false,
        // A second collective would deadlock the other replicas; the rest is control flow, ordering or someone else's buffer.
        Op::PartitionId
        | Op::ReplicaId
        | Op::OptBarrier
        | Op::AfterAll
        | Op::AddDependency
        | Op::Domain(_)
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::Call { .. }
        | Op::Collective(_)
        | Op::CollectiveDone(_)
        | Op::AsyncStart(_)
        | Op::AsyncUpdate(_)
        | Op::AsyncDone(_)
        | Op::CopyStart { .. }
        | Op::CopyDone
        | Op::Send(_)
        | Op::SendDone(_)
        | Op::Recv(_)
        | Op::RecvDone(_)
        | Op::Infeed { .. }
        | Op::Outfeed { .. }
        | Op::Opaque(_) => false,
    }
}
