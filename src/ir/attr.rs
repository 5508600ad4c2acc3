//! Typed attribute values, mirrored from XLA's messages.

use super::Sharding;

/// Raw proto fields that this version does not know, in the order they were read; empty for a text input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unknown(pub Option<Box<[u8]>>);

/// What every opcode may carry and no analysis looks into, plus what a newer XLA may have added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommonAttrs {
    /// `metadata={…}`.
    pub metadata: Option<Box<Metadata>>,
    /// `backend_config=…`: JSON or any bytes.
    pub backend_config: Option<Box<[u8]>>,
    /// `sharding={…}`.
    pub sharding: Option<Box<Sharding>>,
    /// `frontend_attributes={…}`, sorted by key (a proto map has no order), last wins.
    pub frontend_attributes: Vec<(Box<str>, Box<str>)>,
    /// `statistics={…}`.
    pub statistics: Option<Box<Statistics>>,
    /// `origin={…}`.
    pub origin: Option<Box<Origin>>,
    /// `parameter_replication={…}`.
    pub parameter_replication: Option<Vec<bool>>,
    /// `result_accuracy={…}` of a unary operation.
    pub result_accuracy: Option<ResultAccuracy>,
    /// Attributes unknown to this version: name and value as read.
    pub unknown_text: Vec<(Box<str>, Box<str>)>,
    /// Fields of a newer proto, and known ones that say nothing in text.
    pub unknown: Unknown,
}

/// The common attributes of one instruction. Reads as [`CommonAttrs`]; costs one word where there are none. A write makes room for them.
#[derive(Clone, Default)]
pub struct Attrs(Option<Box<CommonAttrs>>);

impl Attrs {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.as_deref().is_none_or(|attrs| *attrs == NO_ATTRS)
    }
}

static NO_ATTRS: CommonAttrs = CommonAttrs {
    metadata: None,
    backend_config: None,
    sharding: None,
    frontend_attributes: Vec::new(),
    statistics: None,
    origin: None,
    parameter_replication: None,
    result_accuracy: None,
    unknown_text: Vec::new(),
    unknown: Unknown(None),
};

impl std::ops::Deref for Attrs {
    type Target = CommonAttrs;
    fn deref(&self) -> &CommonAttrs {
        self.0.as_deref().unwrap_or(&NO_ATTRS)
    }
}

impl std::ops::DerefMut for Attrs {
    fn deref_mut(&mut self) -> &mut CommonAttrs {
        self.0.get_or_insert_default()
    }
}

impl From<CommonAttrs> for Attrs {
    fn from(attrs: CommonAttrs) -> Self {
        if attrs == NO_ATTRS { Self(None) } else { Self(Some(Box::new(attrs))) }
    }
}

impl PartialEq for Attrs {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for Attrs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// `OpMetadata`; empty strings and zeros mean "not said".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// The framework's operation type.
    pub op_type: Box<str>,
    /// The framework's name path.
    pub op_name: Box<str>,
    /// Source file.
    pub source_file: Box<str>,
    /// First line.
    pub source_line: i32,
    /// Last line.
    pub source_end_line: i32,
    /// First column.
    pub source_column: i32,
    /// Last column.
    pub source_end_column: i32,
    /// Numbers of `ProfileType`.
    pub profile_type: Vec<i32>,
    /// Name of the instruction that this one duplicates.
    pub deduplicated_name: Box<str>,
    /// Name used for scheduling.
    pub scheduling_name: Box<str>,
    /// Row of the module's stack-frame table; 0 is none.
    pub stack_frame_id: i32,
    /// `metadata_payload` value, if said (proto field 20).
    pub payload: Option<Payload>,
    /// Other proto fields.
    pub unknown: Unknown,
}

/// `Payload`: bytes by value or by the number of a module payload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Payload {
    /// The bytes.
    pub value: Box<[u8]>,
    /// The number.
    pub id: i64,
}

/// `statistics={visualizing_index=0,a=1.5}`; values are kept as the bits of a double.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Which to show.
    pub visualizing_index: i64,
    /// Names and values.
    pub stats: Vec<(Box<str>, f64)>,
}

/// `origin={…}`: where the value came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// `{[synthetic_call]}`.
    pub is_synthetic_call: bool,
    /// The name of the call, `,["name"]` after the leaves, in newer versions.
    pub call: Option<Box<str>>,
    /// Leaves in order: the index path in this shape and the original array, `None` where it is unknown.
    pub elements: Vec<(Vec<i64>, Option<OriginalArray>)>,
    /// Fields of a newer proto.
    pub unknown: Unknown,
}

/// An array of the program before optimization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginalArray {
    /// Name of the instruction.
    pub instruction: Box<str>,
    /// Index path in its shape.
    pub index: Vec<i64>,
}

/// `result_accuracy={…}`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ResultAccuracy {
    /// `mode=default`.
    Default,
    /// `mode=highest`.
    Highest,
    /// `tolerance={atol=, rtol=, ulps=}`.
    Tolerance {
        /// Absolute.
        atol: f64,
        /// Relative.
        rtol: f64,
        /// Units in the last place.
        ulps: i64,
    },
}

/// One dimension of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowDim {
    /// Elements of the window.
    pub size: i64,
    /// Step.
    pub stride: i64,
    /// Padding before; may be negative.
    pub pad_low: i64,
    /// Padding after; may be negative.
    pub pad_high: i64,
    /// Distance of window elements (`rhs_dilate`).
    pub window_dilation: i64,
    /// Distance of base elements (`lhs_dilate`).
    pub base_dilation: i64,
    /// Whether the window runs backwards.
    pub reversal: bool,
}

impl Default for WindowDim {
    fn default() -> Self {
        Self { size: 1, stride: 1, pad_low: 0, pad_high: 0, window_dilation: 1, base_dilation: 1, reversal: false }
    }
}

/// `window={…}`: a list of dimensions.
pub type Window = Vec<WindowDim>;

/// One dimension of `padding=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PadDim {
    /// Before; may be negative.
    pub low: i64,
    /// After; may be negative.
    pub high: i64,
    /// Between elements.
    pub interior: i64,
}

/// One dimension of `slice={…}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SliceDim {
    /// First.
    pub start: i64,
    /// One past the last.
    pub limit: i64,
    /// Step.
    pub stride: i64,
}

/// `lhs_contracting_dims` and friends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DotDims {
    /// Contracted dimensions of the left operand.
    pub lhs_contracting: Vec<i64>,
    /// Contracted dimensions of the right operand.
    pub rhs_contracting: Vec<i64>,
    /// Batch dimensions of the left operand.
    pub lhs_batch: Vec<i64>,
    /// Batch dimensions of the right operand.
    pub rhs_batch: Vec<i64>,
}

/// `dim_labels=b01f_01io->b01f`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConvDims {
    /// Batch dimension of the input.
    pub input_batch: i64,
    /// Feature dimension of the input.
    pub input_feature: i64,
    /// Spatial dimensions of the input.
    pub input_spatial: Vec<i64>,
    /// Input-feature dimension of the kernel.
    pub kernel_input_feature: i64,
    /// Output-feature dimension of the kernel.
    pub kernel_output_feature: i64,
    /// Spatial dimensions of the kernel.
    pub kernel_spatial: Vec<i64>,
    /// Batch dimension of the output.
    pub output_batch: i64,
    /// Feature dimension of the output.
    pub output_feature: i64,
    /// Spatial dimensions of the output.
    pub output_spatial: Vec<i64>,
    /// Fields of a newer proto.
    pub unknown: Unknown,
}

/// Dimension numbers of a gather.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GatherDims {
    /// Output dimensions that come from the slice.
    pub offset_dims: Vec<i64>,
    /// Slice dimensions that vanish.
    pub collapsed_slice_dims: Vec<i64>,
    /// Operand dimension of each index component.
    pub start_index_map: Vec<i64>,
    /// Dimension of the indices that holds the components.
    pub index_vector_dim: i64,
    /// Batching dimensions of the operand.
    pub operand_batching_dims: Vec<i64>,
    /// Batching dimensions of the indices.
    pub start_indices_batching_dims: Vec<i64>,
}

/// Dimension numbers of a scatter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScatterDims {
    /// Update dimensions that are windows.
    pub update_window_dims: Vec<i64>,
    /// Operand dimensions that windows lack.
    pub inserted_window_dims: Vec<i64>,
    /// Operand dimension of each index component.
    pub scatter_dims_to_operand_dims: Vec<i64>,
    /// Dimension of the indices that holds the components.
    pub index_vector_dim: i64,
    /// Batching dimensions of the operand.
    pub input_batching_dims: Vec<i64>,
    /// Batching dimensions of the indices.
    pub scatter_indices_batching_dims: Vec<i64>,
}

/// `operand_precision={…}, algorithm=…` by their numbers in `PrecisionConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Precision {
    /// 0 default, 1 high, 2 highest, an entry an operand; empty means all default.
    pub operands: Vec<i32>,
    /// `PrecisionConfig.Algorithm`; 0 unset.
    pub algorithm: i32,
    /// Fields of a newer proto.
    pub unknown: Unknown,
}

/// One side of `sparsity_config={…}`: `{sparsity=2x4 dimension=1 stride=1 idx=2}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sparsity {
    /// Non-zero elements a block.
    pub num_non_zero: i64,
    /// Elements a block.
    pub block_size: i64,
    /// Sparse dimension.
    pub dimension: i64,
    /// Stride.
    pub stride: i64,
    /// Operand that holds the metadata.
    pub idx: i32,
}

/// Extensions of `dot` and `convolution` in newer versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContractionExtras {
    /// `sparsity_config` of the left operand.
    pub lhs_sparsity: Option<Sparsity>,
    /// `sparsity_config` of the right operand.
    pub rhs_sparsity: Option<Sparsity>,
    /// `block_scaling_config={…}` as read.
    pub block_scaling: Option<Box<str>>,
}

/// One `{out}: (operand, {idx})` of `output_to_operand_aliasing`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutputAlias {
    /// Index path in the output.
    pub output: Vec<i64>,
    /// Which operand.
    pub operand: i64,
    /// Index path in it.
    pub index: Vec<i64>,
}

/// `replica_groups=` in its three spellings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaGroups {
    /// `{{0,1},{2,3}}` or `{}` (all replicas).
    List(Vec<Vec<i64>>),
    /// `[2,2]<=[4]T(1,0)`.
    Iota {
        /// Number of groups.
        groups: i64,
        /// Devices a group.
        devices: i64,
        /// Dimensions of the iota.
        reshape: Vec<i64>,
        /// Its transposition; empty for none.
        perm: Vec<i32>,
    },
    /// `mesh['a'=2,'b'=4] {'b'}`.
    Mesh {
        /// The mesh.
        mesh: super::Mesh,
        /// The axes that form a group.
        axes: Vec<super::AxisRef>,
    },
}

impl Default for ReplicaGroups {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}
