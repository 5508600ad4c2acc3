//! Custom calls whose work is known: matrix products by cuBLAS, convolutions and attention by cuDNN.
//!
//! A matrix product says in its config what it contracts; a convolution has its window in its filter's shape; an attention kernel says the shape
//! of the scores that it never stores: two products forward, five backward, half of them where the mask is causal. Sorts and the like stay
//! with their bytes.

use crate::ir::{CustomCall, InstrId, Instruction, Module};
use crate::machine::MathType;
use crate::units::Flops;

use super::backend::{Attention, Config, Gemm};
use super::roofline::{Work, element_math, host_aware_bytes, matrix_work};

/// What a library's kernel does.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Bytes and arithmetic.
    pub work: Work,
    /// The kind of arithmetic.
    pub math: MathType,
}

/// Custom calls that run no kernel: allocation and annotations.
pub fn is_free(target: &str) -> bool {
    matches!(
        target,
        "AllocateBuffer"
            | "CreateBuffer"
            | "MoveToHost"
            | "MoveToDevice"
            | "PinToDevice"
            | "PinToDeviceSram"
            | "annotate_device_placement"
            | "Sharding"
            | "SPMDFullToShardShape"
            | "SPMDShardToFullShape"
            | "LayoutConstraint"
            | "xla.sdy.FuncResultSharding"
    )
}

/// The work of a custom call, where its target is known.
pub(super) fn work(module: &Module, instr: &Instruction, call: &CustomCall, config: &Config) -> Option<Known> {
    let target = &*call.target;
    if target.starts_with("__cublas$") {
        return gemm(module, instr, config.gemm_backend_config.as_ref()?);
    }
    if target.starts_with("__cudnn$conv") {
        return convolution(module, instr, call);
    }
    if target.starts_with("__cudnn$fmha") {
        return attention(module, instr, config.cudnn_fmha_backend_config.as_ref()?, target.contains("Backward"));
    }
    None
}

fn elements(module: &Module, id: InstrId) -> Option<u64> {
    Some(module.shapes.array(module.instr(id).shape)?.elements())
}

/// The first array of a result; what follows it is workspace.
fn result(module: &Module, instr: &Instruction) -> Option<u64> {
    let first = module.shapes.elements(instr.shape).first().copied().unwrap_or(instr.shape);
    Some(module.shapes.array(first)?.elements())
}

fn gemm(module: &Module, instr: &Instruction, gemm: &Gemm) -> Option<Known> {
    let lhs = module.shapes.array(module.instr(*instr.operands.first()?).shape)?;
    let rhs = elements(module, *instr.operands.get(1)?)?;
    let dims = &gemm.dot_dimension_numbers.lhs_contracting_dimensions;
    let k: u64 = dims.iter().filter_map(|&d| u64::try_from(lhs.dims.get(usize::try_from(d).ok()?)?.size).ok()).product();
    let (k, out) = (k.max(1), result(module, instr)?);
    let work = host_aware_bytes(module, instr).with(matrix_work(out, lhs.elements() / k, rhs / k, k));
    Some(Known { work, math: element_math(lhs.element.known()) })
}

fn convolution(module: &Module, instr: &Instruction, call: &CustomCall) -> Option<Known> {
    let dims = call.dims.as_ref()?;
    let (&first, &second) = (instr.operands.first()?, instr.operands.get(1)?);
    let output = result(module, instr)?;
    let first_result = module.shapes.elements(instr.shape).first().copied().unwrap_or(instr.shape);
    // Which of operands and result are the filter and the activation after the filter.
    let (filter, after) = match &*call.target {
        "__cudnn$convBackwardFilter" => (first_result, elements(module, second)?),
        "__cudnn$convBackwardInput" => (module.instr(second).shape, elements(module, first)?),
        _ => (module.instr(second).shape, output),
    };
    let filter = module.shapes.array(filter)?;
    let out_features = usize::try_from(dims.kernel_output_feature).ok().and_then(|d| filter.dims.get(d));
    let out_features = out_features.and_then(|d| u64::try_from(d.size).ok()).filter(|&n| n > 0)?;
    let depth = (filter.elements() / out_features).max(1);
    let work = host_aware_bytes(module, instr).with(matrix_work(after, after / out_features, out_features, depth));
    let math = element_math(module.shapes.array(module.instr(first).shape)?.element.known());
    Some(Known { work, math })
}

fn attention(module: &Module, instr: &Instruction, config: &Attention, backward: bool) -> Option<Known> {
    let dims = &config.intermediate_tensor_shape.dimensions;
    let sizes: Option<Vec<u64>> = dims.iter().map(|&d| u64::try_from(d).ok().filter(|&d| d > 0)).collect();
    let [batch, heads, queries, keys] = sizes?[..] else { return None };
    let query = module.shapes.array(module.instr(*instr.operands.first()?).shape)?;
    let depth = (query.elements() / batch.checked_mul(heads)?.checked_mul(queries)?).max(1);
    let scores = batch.saturating_mul(heads).saturating_mul(queries).saturating_mul(keys);
    let products = if backward { 5 } else { 2 };
    let flops = scores.saturating_mul(2 * depth).saturating_mul(products) / if config.mask_type.contains("CAUSAL") { 2 } else { 1 };
    // A fused attention kernel reaches somewhat less of the units than a plain product: 70 % forward, 55 % backward.
    let flops = flops.saturating_mul(100) / if backward { 55 } else { 70 };
    let work = Work { matrix: Flops(flops), tiles: u64::MAX, ..host_aware_bytes(module, instr) };
    Some(Known { work, math: element_math(query.element.known()) })
}
