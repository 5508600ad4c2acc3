//! Attributes of dots, convolutions and windows.

use super::print::Printer;
use super::print_attr::{braced, joined};
use crate::ir::{ContractionExtras, ConvDims, Convolution, Dot, DotDims, Precision, Sparsity, WindowDim};

/// Names of `PrecisionConfig.Algorithm` without `ALG_`, by number.
const ALGORITHMS: [&str; 14] = [
    "unset",
    "dot_any_f8_any_f8_f32",
    "dot_any_f8_any_f8_f32_fast_accum",
    "dot_f16_f16_f16",
    "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16",
    "dot_bf16_bf16_f32",
    "dot_bf16_bf16_f32_x3",
    "dot_bf16_bf16_f32_x6",
    "dot_tf32_tf32_f32",
    "dot_tf32_tf32_f32_x3",
    "dot_f32_f32_f32",
    "dot_f64_f64_f64",
    "dot_bf16_bf16_f32_x9",
];

/// `operand_precision={…}, algorithm=…`.
pub(super) fn precision(p: &mut Printer<'_>, precision: &Precision) {
    if precision.operands.iter().any(|&o| o != 0) {
        let names: Vec<&str> =
            precision.operands.iter().map(|o| if *o == 2 { "highest" } else { ["default", "high"][usize::from(*o == 1)] }).collect();
        p.put(format_args!(", operand_precision={{{}}}", names.join(",")));
    }
    if precision.algorithm != 0 {
        let name = usize::try_from(precision.algorithm).ok().and_then(|i| ALGORITHMS.get(i).copied()).unwrap_or(ALGORITHMS[0]);
        p.put(format_args!(", algorithm={name}"));
    }
}

fn dims(p: &mut Printer<'_>, d: &DotDims) {
    if !d.lhs_batch.is_empty() {
        p.put(format_args!(", lhs_batch_dims={}", braced(&d.lhs_batch, ",")));
    }
    p.put(format_args!(", lhs_contracting_dims={}", braced(&d.lhs_contracting, ",")));
    if !d.rhs_batch.is_empty() {
        p.put(format_args!(", rhs_batch_dims={}", braced(&d.rhs_batch, ",")));
    }
    p.put(format_args!(", rhs_contracting_dims={}", braced(&d.rhs_contracting, ",")));
}

pub(super) fn dot(p: &mut Printer<'_>, op: &Dot) {
    dims(p, &op.dims);
    precision(p, &op.precision);
    extras(p, &op.extras);
}

pub(super) fn ragged_dot(p: &mut Printer<'_>, op: &Dot, lhs_ragged: &[i64], rhs_group: &[i64]) {
    dims(p, &op.dims);
    p.put(format_args!(", lhs_ragged_dims={}, rhs_group_dims={}", braced(lhs_ragged, ","), braced(rhs_group, ",")));
    precision(p, &op.precision);
    extras(p, &op.extras);
}

pub(super) fn convolution(p: &mut Printer<'_>, op: &Convolution) {
    window(p, &op.window);
    dim_labels(p, &op.dims);
    for (name, count) in [("feature_group_count", op.feature_group_count), ("batch_group_count", op.batch_group_count)] {
        if count != 1 {
            p.put(format_args!(", {name}={count}"));
        }
    }
    if let Some(kind) = ["fprop", "dgrad", "wgrad"].get(usize::try_from(op.kind - 1).unwrap_or(usize::MAX)) {
        p.put(format_args!(", convolution_kind={kind}"));
    }
    precision(p, &op.precision);
    extras(p, &op.extras);
}

fn extras(p: &mut Printer<'_>, extras: &ContractionExtras) {
    let side = |name: &str, s: &Option<Sparsity>| {
        let s = s.as_ref()?;
        let Sparsity { num_non_zero, block_size, dimension, stride, idx } = s;
        Some(format!("{name}={{sparsity={num_non_zero}x{block_size} dimension={dimension} stride={stride} idx={idx}}}"))
    };
    let sides: Vec<String> = [side("lhs", &extras.lhs_sparsity), side("rhs", &extras.rhs_sparsity)].into_iter().flatten().collect();
    if !sides.is_empty() {
        p.put(format_args!(", sparsity_config={{{}}}", sides.join(" ")));
    }
    if let Some(text) = &extras.block_scaling {
        p.put(format_args!(", block_scaling_config={text}"));
    }
}

/// `window={…}`, nothing for none.
pub(super) fn window(p: &mut Printer<'_>, dims: &[WindowDim]) {
    if dims.is_empty() {
        return;
    }
    let by = |f: &dyn Fn(&WindowDim) -> String| dims.iter().map(f).collect::<Vec<_>>().join("x");
    p.put(format_args!(", window={{size={}", by(&|d| d.size.to_string())));
    if dims.iter().any(|d| d.stride != 1) {
        p.put(format_args!(" stride={}", by(&|d| d.stride.to_string())));
    }
    if dims.iter().any(|d| (d.pad_low, d.pad_high) != (0, 0)) {
        p.put(format_args!(" pad={}", by(&|d| format!("{}_{}", d.pad_low, d.pad_high))));
    }
    if dims.iter().any(|d| d.base_dilation != 1) {
        p.put(format_args!(" lhs_dilate={}", by(&|d| d.base_dilation.to_string())));
    }
    if dims.iter().any(|d| d.window_dilation != 1) {
        p.put(format_args!(" rhs_dilate={}", by(&|d| d.window_dilation.to_string())));
    }
    if dims.iter().any(|d| d.reversal) {
        p.put(format_args!(" rhs_reversal={}", by(&|d| u8::from(d.reversal).to_string())));
    }
    p.out.push('}');
}

/// `dim_labels=b01f_01io->b01f`.
pub(super) fn dim_labels(p: &mut Printer<'_>, d: &ConvDims) {
    let labels = |named: [(i64, char); 2], spatial: &[i64]| {
        let last = named.iter().map(|(at, _)| *at).chain(spatial.iter().copied()).max().unwrap_or(0);
        let mut out: Vec<String> = vec!["?".into(); usize::try_from(last).map_or(0, |n| n.min(64)) + 1];
        let spatial = spatial.iter().enumerate().map(|(i, &at)| (at, i.to_string()));
        for (at, label) in named.into_iter().map(|(at, c)| (at, c.to_string())).chain(spatial) {
            if let Some(slot) = usize::try_from(at).ok().and_then(|at| out.get_mut(at)) {
                *slot = label;
            }
        }
        joined(&out, "")
    };
    let input = labels([(d.input_batch, 'b'), (d.input_feature, 'f')], &d.input_spatial);
    let kernel = labels([(d.kernel_input_feature, 'i'), (d.kernel_output_feature, 'o')], &d.kernel_spatial);
    let output = labels([(d.output_batch, 'b'), (d.output_feature, 'f')], &d.output_spatial);
    p.put(format_args!(", dim_labels={input}_{kernel}->{output}"));
}
