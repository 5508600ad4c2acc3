//! Operands and the attributes of each opcode.

use super::print::Printer;
use super::print_attr::{braced, joined};
use super::print_contraction as contraction;
use super::print_literal::{LiteralStyle, literal};
use super::print_quote::{Name, quoted};
use super::print_shape::shape;
use super::print_sharding::{replica_groups, sharding};
use crate::ir::{
    Collective, CollectiveKind, CompId, CompareType, CustomCall, Gather, InstrId, Instruction, Literal, Op, OutputAlias, PadDim, Scan,
    Scatter, SliceDim, Transfer,
};

/// What stands between the parentheses.
pub(super) fn operands(p: &mut Printer<'_>, instr: &Instruction) {
    match &instr.op {
        Op::Parameter { number } => p.put(format_args!("{number}")),
        Op::Constant(value) => put_literal(p, value),
        _ => {
            for (i, &operand) in instr.operands.iter().enumerate() {
                if i != 0 {
                    p.out.push_str(", ");
                }
                if i != 0 && i % 5 == 0 {
                    p.put(format_args!("/*index={i}*/"));
                }
                p.put(format_args!("{}", Name(&p.module.instr(operand).name)));
            }
        }
    }
}

fn put_literal(p: &mut Printer<'_>, value: &Literal) {
    let style = LiteralStyle { faithful: !p.options.as_xla, elide: p.options.elide_constants, shaped: false };
    literal(&mut p.out, &p.module.shapes, value, style);
}

/// The attributes of an instruction's opcode, and those of the operation that it wraps where it is written in the short form.
pub(super) fn attributes(p: &mut Printer<'_>, instr: &Instruction, wrapped: Option<InstrId>) {
    if let Some(leaves) = &instr.attrs.parameter_replication {
        p.put(format_args!(", parameter_replication={}", braced(leaves, ",")));
    }
    match &instr.op {
        Op::AsyncStart(op) | Op::AsyncUpdate(op) | Op::AsyncDone(op) => {
            let start = matches!(instr.op, Op::AsyncStart(_));
            if let Some(thread) = &op.thread {
                p.out.push_str(", async_execution_thread=");
                quoted(&mut p.out, thread.as_bytes());
            }
            if let (true, Some(root)) = (start, wrapped) {
                op_attributes(p, &p.module.instr(root).op);
            }
            aliasing(p, &op.aliasing);
            if start && wrapped.is_none() {
                p.put(format_args!(", calls={}", comp(p, op.calls)));
            }
        }
        op => op_attributes(p, op),
    }
}

/// A computation's name.
fn comp<'m>(p: &Printer<'m>, id: CompId) -> Name<'m> {
    Name(&p.module.comp(id).name)
}

fn aliasing(p: &mut Printer<'_>, aliases: &[OutputAlias]) {
    if !aliases.is_empty() {
        let aliases = aliases.iter().map(|a| format!("{}: ({}, {})", braced(&a.output, ", "), a.operand, braced(&a.index, ", ")));
        let aliases: Vec<String> = aliases.collect();
        p.put(format_args!(", output_to_operand_aliasing={{{}}}", aliases.join(", ")));
    }
}

fn flag(p: &mut Printer<'_>, name: &str, value: bool) {
    if value {
        p.put(format_args!(", {name}=true"));
    }
}

fn op_attributes(p: &mut Printer<'_>, op: &Op) {
    match op {
        Op::Parameter { .. }
        | Op::Constant(_)
        | Op::PartitionId
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
        | Op::CollectiveDone(_)
        | Op::CopyDone => {}
        Op::AsyncStart(_) | Op::AsyncUpdate(_) | Op::AsyncDone(_) => {}
        Op::Iota { dimension } => p.put(format_args!(", iota_dimension={dimension}")),
        Op::Compare { direction, ty } => {
            p.put(format_args!(", direction={}", direction.name()));
            match ty {
                None => {}
                Some(CompareType::Total) => p.out.push_str(", order=TOTAL"),
                Some(ty) => p.put(format_args!(", type={}", ty.name())),
            }
        }
        Op::ReducePrecision { exponent_bits, mantissa_bits } => {
            p.put(format_args!(", exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}"));
        }
        Op::Map { dimensions, to_apply } | Op::Reduce { dimensions, to_apply } => {
            p.put(format_args!(", dimensions={}, to_apply={}", braced(dimensions, ","), comp(p, *to_apply)));
        }
        Op::Reshape { inferred_dimension } => {
            if let Some(d) = inferred_dimension {
                p.put(format_args!(", inferred_dimension={d}"));
            }
        }
        Op::Broadcast { dimensions } | Op::Transpose { dimensions } | Op::Reverse { dimensions } => {
            p.put(format_args!(", dimensions={}", braced(dimensions, ",")));
        }
        Op::Concatenate { dimension } | Op::GetDimensionSize { dimension } | Op::SetDimensionSize { dimension } => {
            p.put(format_args!(", dimensions={{{dimension}}}"));
        }
        Op::Pad { padding } => pad(p, padding),
        Op::Slice { dims } => slice(p, dims),
        Op::DynamicSlice { sizes } => p.put(format_args!(", dynamic_slice_sizes={}", braced(sizes, ","))),
        Op::Gather(op) => gather(p, op),
        Op::Scatter(op) => scatter(p, op),
        Op::Shuffle { dimensions, mode, shifts } => {
            p.put(format_args!(", dimensions={}, mode={mode}, shifts={}", braced(dimensions, ","), braced(shifts, ",")));
        }
        Op::Dot(op) | Op::ScaledDot(op) => contraction::dot(p, op),
        Op::RaggedDot { dot, lhs_ragged, rhs_group } => contraction::ragged_dot(p, dot, lhs_ragged, rhs_group),
        Op::Convolution(op) => contraction::convolution(p, op),
        Op::ReduceWindow { window, to_apply } => {
            contraction::window(p, window);
            p.put(format_args!(", to_apply={}", comp(p, *to_apply)));
        }
        Op::SelectAndScatter { window, select, scatter } => {
            contraction::window(p, window);
            p.put(format_args!(", select={}, scatter={}", comp(p, *select), comp(p, *scatter)));
        }
        Op::Scan(op) => scan(p, op),
        Op::Sort { dimension, is_stable, to_apply } => {
            p.put(format_args!(", dimensions={{{dimension}}}"));
            flag(p, "is_stable", *is_stable);
            p.put(format_args!(", to_apply={}", comp(p, *to_apply)));
        }
        Op::TopK { k, largest, is_stable } => p.put(format_args!(", k={k}, largest={largest}, is_stable={is_stable}")),
        Op::Fft { fft_type, fft_length } => {
            let name = usize::try_from(*fft_type).ok().and_then(|i| ["FFT", "IFFT", "RFFT", "IRFFT"].get(i).copied()).unwrap_or("FFT");
            p.put(format_args!(", fft_type={name}, fft_length={}", braced(fft_length, ",")));
        }
        Op::Cholesky { lower } => flag(p, "lower", *lower),
        Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
            flag(p, "left_side", *left_side);
            flag(p, "lower", *lower);
            flag(p, "unit_diagonal", *unit_diagonal);
            if let Some(name) = ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"].get(usize::try_from(*transpose_a - 1).unwrap_or(usize::MAX)) {
                p.put(format_args!(", transpose_a={name}"));
            }
        }
        Op::BatchNormTraining { epsilon, feature_index }
        | Op::BatchNormInference { epsilon, feature_index }
        | Op::BatchNormGrad { epsilon, feature_index } => {
            let mut text = String::new();
            super::print_number::float(&mut text, crate::ir::Primitive::F32, epsilon.to_bits().into(), !p.options.as_xla);
            p.put(format_args!(", epsilon={text}, feature_index={feature_index}"));
        }
        Op::Rng { distribution } => {
            let name = ["rng_invalid", "rng_uniform", "rng_normal"][usize::try_from(*distribution).unwrap_or(0).min(2)];
            p.put(format_args!(", distribution={name}"));
        }
        Op::RngBitGenerator { algorithm } => {
            let name = match algorithm {
                1 => "rng_three_fry",
                2 => "rng_philox",
                _ => "rng_default",
            };
            p.put(format_args!(", algorithm={name}"));
        }
        Op::RngGetAndUpdateState { delta } => p.put(format_args!(", delta={delta}")),
        Op::GetTupleElement { index } => p.put(format_args!(", index={index}")),
        Op::Domain(op) => {
            let (mut entry, mut exit) = (String::new(), String::new());
            sharding(&mut entry, &op.entry);
            sharding(&mut exit, &op.exit);
            p.put(format_args!(", domain={{kind=\"{}\", entry={entry}, exit={exit}}}", op.kind));
        }
        Op::While { condition, body } => p.put(format_args!(", condition={}, body={}", comp(p, *condition), comp(p, *body))),
        Op::Conditional { branches, predicated } => match (branches.as_slice(), predicated) {
            (&[yes, no], true) => p.put(format_args!(", true_computation={}, false_computation={}", comp(p, yes), comp(p, no))),
            (branches, _) => {
                let names: Vec<Name<'_>> = branches.iter().map(|&b| comp(p, b)).collect();
                p.put(format_args!(", branch_computations={}", braced(&names, ", ")));
            }
        },
        Op::Call { to_apply, is_composite } => {
            p.put(format_args!(", to_apply={}", comp(p, *to_apply)));
            flag(p, "is_composite", *is_composite);
        }
        Op::Fusion(op) => {
            p.put(format_args!(", kind={}", op.kind.name()));
            aliasing(p, &op.aliasing);
            p.put(format_args!(", calls={}", comp(p, op.calls)));
        }
        Op::CustomCall(op) => custom_call(p, op),
        Op::Collective(op) => collective(p, op),
        Op::CopyStart { cross_program_prefetch_index } => {
            if let Some(index) = cross_program_prefetch_index {
                p.put(format_args!(", cross_program_prefetch_index={index}"));
            }
        }
        Op::Send(op) | Op::SendDone(op) | Op::Recv(op) | Op::RecvDone(op) => transfer(p, op),
        Op::Infeed { config } => config_string(p, "infeed_config", config),
        Op::Outfeed { config, shape: id } => {
            p.out.push_str(", outfeed_shape=");
            shape(&mut p.out, &p.module.shapes, *id, true);
            config_string(p, "outfeed_config", config);
        }
        Op::Opaque(op) => {
            for (name, value) in &op.attributes {
                p.put(format_args!(", {name}={value}"));
            }
            if op.attributes.is_empty() && !op.called.is_empty() {
                let names: Vec<Name<'_>> = op.called.iter().map(|&b| comp(p, b)).collect();
                p.put(format_args!(", called_computations={}", braced(&names, ", ")));
            }
        }
    }
}

fn config_string(p: &mut Printer<'_>, name: &str, config: &[u8]) {
    if !config.is_empty() {
        p.put(format_args!(", {name}="));
        quoted(&mut p.out, config);
    }
}

fn pad(p: &mut Printer<'_>, padding: &[PadDim]) {
    let interior = padding.iter().any(|d| d.interior != 0);
    let dims = padding.iter().map(|d| match interior {
        true => format!("{}_{}_{}", d.low, d.high, d.interior),
        false => format!("{}_{}", d.low, d.high),
    });
    p.put(format_args!(", padding={}", dims.collect::<Vec<_>>().join("x")));
}

fn slice(p: &mut Printer<'_>, dims: &[SliceDim]) {
    let strided = dims.iter().any(|d| d.stride != 1);
    let dims = dims.iter().map(|d| match strided {
        true => format!("[{}:{}:{}]", d.start, d.limit, d.stride),
        false => format!("[{}:{}]", d.start, d.limit),
    });
    p.put(format_args!(", slice={{{}}}", dims.collect::<Vec<_>>().join(", ")));
}

fn gather(p: &mut Printer<'_>, op: &Gather) {
    let d = &op.dims;
    p.put(format_args!(
        ", offset_dims={}, collapsed_slice_dims={}, start_index_map={}",
        braced(&d.offset_dims, ","),
        braced(&d.collapsed_slice_dims, ","),
        braced(&d.start_index_map, ",")
    ));
    batching(p, "operand_batching_dims", &d.operand_batching_dims);
    batching(p, "start_indices_batching_dims", &d.start_indices_batching_dims);
    p.put(format_args!(", index_vector_dim={}, slice_sizes={}", d.index_vector_dim, braced(&op.slice_sizes, ",")));
    flag(p, "indices_are_sorted", op.indices_are_sorted);
}

fn batching(p: &mut Printer<'_>, name: &str, dims: &[i64]) {
    if !dims.is_empty() {
        p.put(format_args!(", {name}={}", braced(dims, ",")));
    }
}

fn scatter(p: &mut Printer<'_>, op: &Scatter) {
    let d = &op.dims;
    p.put(format_args!(
        ", update_window_dims={}, inserted_window_dims={}, scatter_dims_to_operand_dims={}",
        braced(&d.update_window_dims, ","),
        braced(&d.inserted_window_dims, ","),
        braced(&d.scatter_dims_to_operand_dims, ",")
    ));
    batching(p, "input_batching_dims", &d.input_batching_dims);
    batching(p, "scatter_indices_batching_dims", &d.scatter_indices_batching_dims);
    p.put(format_args!(", index_vector_dim={}", d.index_vector_dim));
    flag(p, "indices_are_sorted", op.indices_are_sorted);
    flag(p, "unique_indices", op.unique_indices);
    p.put(format_args!(", to_apply={}", comp(p, op.to_apply)));
}

fn scan(p: &mut Printer<'_>, op: &Scan) {
    p.put(format_args!(", dimensions={{{}}}, num_carries={}", op.dimension, op.num_carries));
    flag(p, "is_reverse", op.is_reverse);
    if let Some(is_associative) = op.is_associative {
        p.put(format_args!(", is_associative={is_associative}"));
    }
    p.put(format_args!(", to_apply={}", comp(p, op.to_apply)));
}

fn transfer(p: &mut Printer<'_>, op: &Transfer) {
    if let Some(id) = op.channel_id {
        p.put(format_args!(", channel_id={id}"));
    }
    flag(p, "is_host_transfer", op.is_host_transfer);
}

fn custom_call(p: &mut Printer<'_>, op: &CustomCall) {
    contraction::window(p, &op.window);
    if let Some(dims) = &op.dims {
        contraction::dim_labels(p, dims);
    }
    for (name, count) in [("feature_group_count", op.feature_group_count), ("batch_group_count", op.batch_group_count)] {
        if count > 1 {
            p.put(format_args!(", {name}={count}"));
        }
    }
    contraction::precision(p, &op.precision);
    match op.padding_type {
        1 => p.out.push_str(", padding_type=PADDING_VALID"),
        2 => p.out.push_str(", padding_type=PADDING_SAME"),
        _ => {}
    }
    p.out.push_str(", custom_call_target=");
    quoted(&mut p.out, op.target.as_bytes());
    if let Some(layouts) = &op.operand_layouts {
        p.out.push_str(", operand_layout_constraints={");
        for (i, &layout) in layouts.iter().enumerate() {
            p.out.push_str(if i == 0 { "" } else { ", " });
            shape(&mut p.out, &p.module.shapes, layout, true);
        }
        p.out.push('}');
    }
    flag(p, "custom_call_has_side_effect", op.has_side_effect);
    if let Some(value) = &op.literal {
        p.out.push_str(", literal=");
        let style = LiteralStyle { faithful: !p.options.as_xla, elide: p.options.elide_constants, shaped: true };
        literal(&mut p.out, &p.module.shapes, value, style);
    }
    aliasing(p, &op.aliasing);
    match op.schedule {
        1 => p.out.push_str(", schedule=SCHEDULE_LATEST"),
        2 => p.out.push_str(", schedule=SCHEDULE_EARLIEST"),
        _ => {}
    }
    let version = match op.api_version {
        2 => Some("STATUS_RETURNING"),
        3 => Some("STATUS_RETURNING_UNIFIED"),
        4 => Some("TYPED_FFI"),
        _ => None,
    };
    if let Some(version) = version {
        p.put(format_args!(", api_version=API_VERSION_{version}"));
    }
    match op.called.as_slice() {
        [] => {}
        &[one] if op.to_apply => p.put(format_args!(", to_apply={}", comp(p, one))),
        several => {
            let names: Vec<Name<'_>> = several.iter().map(|&c| comp(p, c)).collect();
            p.put(format_args!(", called_computations={}", braced(&names, ", ")));
        }
    }
}

fn collective(p: &mut Printer<'_>, op: &Collective) {
    use CollectiveKind as K;
    if let Some(id) = op.channel_id {
        p.put(format_args!(", channel_id={id}"));
    }
    if op.kind == K::Permute {
        let pairs: Vec<String> = op.source_target_pairs.iter().map(|(s, t)| format!("{{{s},{t}}}")).collect();
        p.put(format_args!(", source_target_pairs={{{}}}", pairs.join(",")));
        if !op.slice_sizes.is_empty() {
            let sizes: Vec<String> = op.slice_sizes.iter().map(|s| format!("{{{}}}", joined(s, ","))).collect();
            p.put(format_args!(", slice_sizes={{{}}}", sizes.join(",")));
        }
        return;
    }
    p.out.push_str(", replica_groups=");
    replica_groups(&mut p.out, &op.groups);
    flag(p, "constrain_layout", op.constrain_layout);
    let dimensions = |p: &mut Printer<'_>| {
        if !op.dimensions.is_empty() {
            p.put(format_args!(", dimensions={}", braced(&op.dimensions, ",")));
        }
    };
    // XLA prints the two in the other order for a gather.
    if op.kind == K::AllGather {
        dimensions(p);
    }
    flag(p, "use_global_device_ids", op.use_global_device_ids);
    if op.kind != K::AllGather {
        dimensions(p);
    }
    if matches!(op.kind, K::Broadcast | K::Reduce) {
        p.put(format_args!(", has_dynamic_root={}", op.has_dynamic_root));
    }
    if let Some(to_apply) = op.to_apply {
        p.put(format_args!(", to_apply={}", comp(p, to_apply)));
    }
}
