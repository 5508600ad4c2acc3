//! The messages of attributes, in the order of `xla_data.proto`.

use super::codec::{Cx, FieldCodec, Wire, put_message, read_one, wire};
use super::wire::{Message, Res, Rest, Writer};
use crate::ir::{
    ConvDims, DotDims, GatherDims, Metadata, Origin, OriginalArray, OutputAlias, PadDim, Payload, Precision, ResultAccuracy, ScatterDims,
    SliceDim, Sparsity, Statistics, WindowDim,
};

wire!(Metadata {
    1 op_type, 2 op_name, 3 source_file, 4 source_line, 5 profile_type, 12 deduplicated_name, 15 stack_frame_id, 16 scheduling_name,
    17 source_end_line, 18 source_column, 19 source_end_column, 20 payload,
} unknown unknown);

impl Wire for Payload {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let mut payload = Self { value: FieldCodec::pick(m, 1, cx)?, id: FieldCodec::pick(m, 2, cx)? };
        let row = usize::try_from(payload.id).ok().and_then(|id| cx.payloads.get(id));
        if let (true, Some(value)) = (payload.value.is_empty(), row) {
            payload.value = value.clone();
        }
        Ok(payload)
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        let row = usize::try_from(self.id).ok().and_then(|id| w.payloads.get(id));
        if self.value.is_empty() || row == Some(&&*self.value) {
            w.varint(2, self.id.cast_unsigned());
        } else {
            self.value.put(w, 1, rest);
        }
    }
}

impl Wire for Statistics {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let visualizing_index = FieldCodec::pick(m, 1, cx)?;
        let stats = Vec::<Statistic>::pick(m, 2, cx)?;
        Ok(Self { visualizing_index, stats: stats.into_iter().map(|s| (s.name, s.value)).collect() })
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        self.visualizing_index.put(w, 1, rest);
        let stats: Vec<_> = self.stats.iter().map(|(name, value)| Statistic { name: name.clone(), value: *value }).collect();
        stats.put(w, 2, rest);
    }
}

struct Statistic {
    name: Box<str>,
    value: f64,
}

wire!(Statistic { 1 name, 2 value });

impl Wire for Origin {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let elements = Vec::<OriginElement>::pick(m, 1, cx)?;
        Ok(Self {
            elements: elements.into_iter().map(|e| (e.index, e.array)).collect(),
            is_synthetic_call: FieldCodec::pick(m, 2, cx)?,
            call: FieldCodec::pick(m, 3, cx)?,
            unknown: crate::ir::Unknown::default(),
        })
    }
    fn unknown(&mut self) -> Option<&mut crate::ir::Unknown> {
        Some(&mut self.unknown)
    }
    fn kept(&self) -> Rest<'_> {
        Rest::of(&self.unknown)
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        let elements: Vec<_> =
            self.elements.iter().map(|(index, array)| OriginElement { index: index.clone(), array: array.clone() }).collect();
        elements.put(w, 1, rest);
        self.is_synthetic_call.put(w, 2, rest);
        self.call.put(w, 3, rest);
    }
}

struct OriginElement {
    index: Vec<i64>,
    array: Option<OriginalArray>,
}

wire!(OriginElement { 1 index, 2 array });
wire!(OriginalArray { 1 instruction, 2 index });

impl Wire for ResultAccuracy {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let tolerance = m.message(2)?.map(|t| read_one::<Tolerance>(t, 2, cx)).transpose()?;
        Ok(match (tolerance, i32::pick(m, 1, cx)?) {
            (Some(Tolerance { atol, rtol, ulps }), _) => Self::Tolerance { atol, rtol, ulps },
            (None, 0) => Self::Default,
            (None, _) => Self::Highest,
        })
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        match *self {
            Self::Default => w.varint(1, 0),
            Self::Highest => w.varint(1, 1),
            Self::Tolerance { atol, rtol, ulps } => put_message(&Tolerance { atol, rtol, ulps }, w, 2, rest),
        }
    }
}

struct Tolerance {
    atol: f64,
    rtol: f64,
    ulps: i64,
}

wire!(Tolerance { 1 atol, 2 rtol, 3 ulps });

wire!(WindowDim { 1 size, 2 stride, 3 pad_low, 4 pad_high, 5 window_dilation, 6 base_dilation, 7 reversal });
wire!(PadDim { 1 low, 2 high, 3 interior });
wire!(SliceDim { 1 start, 2 limit, 3 stride });
wire!(DotDims { 1 lhs_contracting, 2 rhs_contracting, 3 lhs_batch, 4 rhs_batch });
wire!(ConvDims {
    3 kernel_input_feature, 4 kernel_output_feature, 6 kernel_spatial, 7 input_batch, 8 input_feature, 9 output_batch,
    10 output_feature, 11 input_spatial, 12 output_spatial,
} unknown unknown);
wire!(GatherDims {
    1 offset_dims, 2 collapsed_slice_dims, 3 start_index_map, 4 index_vector_dim, 5 operand_batching_dims, 6 start_indices_batching_dims,
});
wire!(ScatterDims {
    1 update_window_dims, 2 inserted_window_dims, 3 scatter_dims_to_operand_dims, 4 index_vector_dim, 5 input_batching_dims,
    6 scatter_indices_batching_dims,
});
wire!(Precision { 1 operands, 2 algorithm } unknown unknown);
wire!(Sparsity { 1 num_non_zero, 2 block_size, 3 dimension, 4 stride, 5 idx });
wire!(OutputAlias { 1 output, 2 operand, 3 index });

/// `Window` and `PaddingConfig`: nothing but their dimensions.
#[derive(Default)]
pub(super) struct Dims<T> {
    pub dims: Vec<T>,
}

wire!(Dims<WindowDim> { 1 dims });
wire!(Dims<PadDim> { 1 dims });

/// `ParameterReplication`.
pub(super) struct Replication {
    pub leaves: Vec<bool>,
}

wire!(Replication { 1 leaves });

/// `SparsityConfig`.
#[derive(Default)]
pub(super) struct SparsityConfig {
    pub lhs: Option<Sparsity>,
    pub rhs: Option<Sparsity>,
}

wire!(SparsityConfig { 1 lhs, 2 rhs });

/// `FrontendAttributes`: a map, kept sorted by its keys; the last of equal keys wins.
#[derive(Default)]
pub(super) struct FrontendAttributes(pub Vec<(Box<str>, Box<str>)>);

impl Wire for FrontendAttributes {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let mut entries: Vec<_> = Vec::<Entry>::pick(m, 1, cx)?.into_iter().map(|e| (e.key, e.value)).collect();
        entries.reverse();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, first| later.0 == first.0);
        Ok(Self(entries))
    }
    fn write(&self, w: &mut Writer<'_>, _: &mut Rest<'_>) {
        for (key, value) in &self.0 {
            w.message(1, Rest::default(), |w, _| {
                w.bytes(1, key.as_bytes());
                w.bytes(2, value.as_bytes());
            });
        }
    }
}

struct Entry {
    key: Box<str>,
    value: Box<str>,
}

wire!(Entry { 1 key, 2 value });

/// `TriangularSolveOptions`.
pub(super) struct TriangularSolve {
    pub left_side: bool,
    pub lower: bool,
    pub unit_diagonal: bool,
    pub transpose_a: i32,
}

wire!(TriangularSolve { 1 left_side, 2 lower, 3 unit_diagonal, 4 transpose_a });

/// `CholeskyOptions`.
pub(super) struct Cholesky {
    pub lower: bool,
}

wire!(Cholesky { 1 lower });

/// `RaggedDotDimensionNumbers`.
pub(super) struct RaggedDot {
    pub dot: Option<DotDims>,
    pub lhs_ragged: Vec<i64>,
    pub rhs_group: Vec<i64>,
}

wire!(RaggedDot { 1 dot, 2 lhs_ragged, 3 rhs_group });

/// `SourceTarget`.
pub(super) struct SourceTarget {
    pub source: i64,
    pub target: i64,
}

wire!(SourceTarget { 1 source, 2 target });

/// The shuffle of a newer XLA: a rotation by some shifts.
#[derive(Default)]
pub(super) struct Shuffle {
    pub rotate: Option<Rotate>,
}

/// A rotation.
#[derive(Default)]
pub(super) struct Rotate {
    pub shifts: Vec<i64>,
}

wire!(Shuffle { 1 rotate });
wire!(Rotate { 1 shifts });

/// `block_scaling_config` has no typed form in the IR: it is kept as text.
pub(super) struct BlockScaling {
    pub lhs: Option<Scaling>,
    pub rhs: Option<Scaling>,
}

pub(super) struct Scaling {
    pub scale_idx: Option<i64>,
    pub zero_idx: Option<i64>,
    pub strides: Vec<i64>,
    pub steps: Vec<i64>,
}

wire!(BlockScaling { 1 lhs, 2 rhs });
wire!(Scaling { 1 scale_idx, 2 zero_idx, 3 strides, 4 steps });

impl BlockScaling {
    /// The text of the attribute's value; `None` if it says nothing.
    pub fn to_text(&self) -> Option<Box<str>> {
        let side = |name: &str, side: &Option<Scaling>| {
            let s = side.as_ref()?;
            let mut parts = Vec::new();
            parts.extend(s.scale_idx.map(|n| format!("scale_idx={n}")));
            parts.extend(s.zero_idx.map(|n| format!("zero_idx={n}")));
            for (name, dims) in [("strides", &s.strides), ("steps", &s.steps)] {
                if !dims.is_empty() {
                    let dims: Vec<String> = dims.iter().map(i64::to_string).collect();
                    parts.push(format!("{name}={}", dims.join("x")));
                }
            }
            Some(format!("{name}={{{}}}", parts.join(" ")))
        };
        let sides: Vec<String> = [side("lhs", &self.lhs), side("rhs", &self.rhs)].into_iter().flatten().collect();
        (!sides.is_empty()).then(|| format!("{{{}}}", sides.join(" ")).into())
    }

    /// Reads the text of the attribute's value; `None` if it is not of the known form.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut inner = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
        let mut out = Self { lhs: None, rhs: None };
        while !inner.is_empty() {
            let (name, rest) = inner.split_once("={")?;
            let (body, rest) = rest.split_once('}')?;
            let slot = match name.trim() {
                "lhs" => &mut out.lhs,
                "rhs" => &mut out.rhs,
                _ => return None,
            };
            let mut side = Scaling { scale_idx: None, zero_idx: None, strides: Vec::new(), steps: Vec::new() };
            for part in body.split([' ', ',']).filter(|p| !p.is_empty()) {
                let (name, value) = part.split_once('=')?;
                let dims = || value.split('x').map(|d| d.parse().ok()).collect::<Option<Vec<i64>>>();
                match name {
                    "scale_idx" => side.scale_idx = Some(value.parse().ok()?),
                    "zero_idx" => side.zero_idx = Some(value.parse().ok()?),
                    "strides" => side.strides = dims()?,
                    "steps" => side.steps = dims()?,
                    _ => return None,
                }
            }
            *slot = Some(side);
            inner = rest.trim_start_matches([' ', ',']);
        }
        Some(out)
    }
}
