//! Operations: what an instruction does, with everything that changes its meaning.
//!
//! Operations that nothing tells apart but their name are grouped ([`Unary`], [`Binary`], [`CollectiveKind`]); an opcode of a newer
//! XLA is [`Op::Opaque`]: kept word for word, never moved, never computed again.

use super::{
    CompId, ContractionExtras, ConvDims, DotDims, GatherDims, Literal, OutputAlias, PadDim, Precision, ReplicaGroups, ScatterDims, ShapeId,
    Sharding, SliceDim, Window,
};

macro_rules! named {
    ($(#[$doc:meta])* $enum:ident { $($variant:ident $name:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each variant is named as in HLO text")]
        pub enum $enum { $($variant),* }

        impl $enum {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            /// The spelling in HLO text.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
            /// The one of that spelling.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

named! {
    /// Elementwise operations of one operand without attributes other than `result_accuracy`.
    Unary {
        Abs "abs", Acos "acos", Acosh "acosh", Asin "asin", Asinh "asinh", Atanh "atanh", Cbrt "cbrt", Ceil "ceil",
        CountLeadingZeros "count-leading-zeros", Cosine "cosine", Cosh "cosh", Erf "erf", Exponential "exponential",
        ExponentialMinusOne "exponential-minus-one", Exp2 "exp2", Floor "floor", Imag "imag", IsFinite "is-finite", Log "log",
        LogPlusOne "log-plus-one", Log2 "log2", Logistic "logistic", Negate "negate", Not "not", PopCount "popcnt", Real "real",
        RoundNearestAfz "round-nearest-afz", RoundNearestEven "round-nearest-even", Rsqrt "rsqrt", Sign "sign", Sine "sine",
        Sinh "sinh", Sqrt "sqrt", Tan "tan", Tanh "tanh",
    }
}

named! {
    /// Elementwise operations of two operands without attributes.
    Binary {
        Add "add", And "and", Atan2 "atan2", Complex "complex", Divide "divide", Maximum "maximum", Minimum "minimum", Mulhi "mulhi",
        Multiply "multiply", Or "or", Power "power", Remainder "remainder", ShiftLeft "shift-left",
        ShiftRightArithmetic "shift-right-arithmetic", ShiftRightLogical "shift-right-logical", Subtract "subtract", Xor "xor",
    }
}

named! {
    /// `direction=` of a compare.
    Direction { Eq "EQ", Ne "NE", Ge "GE", Gt "GT", Le "LE", Lt "LT" }
}

named! {
    /// `type=` of a compare (a newer XLA writes `order=TOTAL`).
    CompareType { Float "FLOAT", Total "TOTALORDER", Signed "SIGNED", Unsigned "UNSIGNED" }
}

named! {
    /// `kind=` of a fusion.
    FusionKind { Loop "kLoop", Input "kInput", Output "kOutput", Custom "kCustom" }
}

named! {
    /// Collective operations, in the spelling without `-start`.
    CollectiveKind {
        AllGather "all-gather", AllReduce "all-reduce", ReduceScatter "reduce-scatter", AllToAll "all-to-all",
        Broadcast "collective-broadcast", Permute "collective-permute", RaggedAllToAll "ragged-all-to-all", Reduce "collective-reduce",
    }
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields are named as the attributes in HLO text")]
pub enum Op {
    Parameter {
        number: i64,
    },
    Constant(Box<Literal>),
    Iota {
        dimension: i64,
    },
    PartitionId,
    ReplicaId,

    Unary(Unary),
    Binary(Binary),
    /// `ty` is `None` where the text leaves it to the operand's type.
    Compare {
        direction: Direction,
        ty: Option<CompareType>,
    },
    Select,
    Clamp,
    Convert,
    BitcastConvert,
    StochasticConvert,
    ReducePrecision {
        exponent_bits: i32,
        mantissa_bits: i32,
    },
    Map {
        dimensions: Vec<i64>,
        to_apply: CompId,
    },

    Bitcast,
    Copy,
    Reshape {
        inferred_dimension: Option<i64>,
    },
    DynamicReshape,
    Broadcast {
        dimensions: Vec<i64>,
    },
    Transpose {
        dimensions: Vec<i64>,
    },
    Reverse {
        dimensions: Vec<i64>,
    },
    Concatenate {
        dimension: i64,
    },
    Pad {
        padding: Vec<PadDim>,
    },
    Slice {
        dims: Vec<SliceDim>,
    },
    DynamicSlice {
        sizes: Vec<i64>,
    },
    DynamicUpdateSlice,
    Gather(Box<Gather>),
    Scatter(Box<Scatter>),
    GetDimensionSize {
        dimension: i64,
    },
    SetDimensionSize {
        dimension: i64,
    },
    Shuffle {
        dimensions: Vec<i64>,
        mode: Box<str>,
        shifts: Vec<i64>,
    },

    Dot(Box<Dot>),
    RaggedDot {
        dot: Box<Dot>,
        lhs_ragged: Vec<i64>,
        rhs_group: Vec<i64>,
    },
    ScaledDot(Box<Dot>),
    Convolution(Box<Convolution>),
    Reduce {
        dimensions: Vec<i64>,
        to_apply: CompId,
    },
    ReduceWindow {
        window: Window,
        to_apply: CompId,
    },
    SelectAndScatter {
        window: Window,
        select: CompId,
        scatter: CompId,
    },
    Scan(Box<Scan>),
    Sort {
        dimension: i64,
        is_stable: bool,
        to_apply: CompId,
    },
    TopK {
        k: i64,
        largest: bool,
        is_stable: bool,
    },
    /// `fft_type` by its number in `FftType`.
    Fft {
        fft_type: i32,
        fft_length: Vec<i64>,
    },
    Cholesky {
        lower: bool,
    },
    /// `transpose_a` by its number in `TriangularSolveOptions.Transpose`.
    TriangularSolve {
        left_side: bool,
        lower: bool,
        unit_diagonal: bool,
        transpose_a: i32,
    },
    BatchNormTraining {
        epsilon: f32,
        feature_index: i64,
    },
    BatchNormInference {
        epsilon: f32,
        feature_index: i64,
    },
    BatchNormGrad {
        epsilon: f32,
        feature_index: i64,
    },

    /// `distribution` by its number in `RandomDistribution`.
    Rng {
        distribution: i32,
    },
    /// `algorithm` by its number in `RandomAlgorithm`.
    RngBitGenerator {
        algorithm: i32,
    },
    RngGetAndUpdateState {
        delta: i64,
    },

    Tuple,
    GetTupleElement {
        index: i64,
    },
    OptBarrier,
    AfterAll,
    AddDependency,
    Domain(Box<Domain>),

    While {
        condition: CompId,
        body: CompId,
    },
    /// A pred index has two branches (true first, `predicated`), an s32 index any number.
    Conditional {
        branches: Vec<CompId>,
        predicated: bool,
    },
    Call {
        to_apply: CompId,
        is_composite: bool,
    },
    Fusion(Box<Fusion>),
    CustomCall(Box<CustomCall>),

    /// A collective or, where `start` is set, its `-start`.
    Collective(Box<Collective>),
    /// `all-gather-done`, `all-reduce-done`, `collective-permute-done`.
    CollectiveDone(CollectiveKind),
    AsyncStart(Box<Async>),
    AsyncUpdate(Box<Async>),
    AsyncDone(Box<Async>),
    CopyStart {
        cross_program_prefetch_index: Option<i32>,
    },
    CopyDone,
    Send(Box<Transfer>),
    SendDone(Box<Transfer>),
    Recv(Box<Transfer>),
    RecvDone(Box<Transfer>),
    Infeed {
        config: Box<[u8]>,
    },
    Outfeed {
        config: Box<[u8]>,
        shape: ShapeId,
    },

    /// An opcode that this version does not know.
    Opaque(Box<Opaque>),
}

/// Attributes of a gather.
#[derive(Clone, Debug, PartialEq)]
pub struct Gather {
    /// Dimension numbers.
    pub dims: GatherDims,
    /// Slice sizes, one an operand dimension.
    pub slice_sizes: Vec<i64>,
    /// Whether the indices are sorted.
    pub indices_are_sorted: bool,
}

/// Attributes of a scatter: operands, indices, updates are its operands in that order.
#[derive(Clone, Debug, PartialEq)]
pub struct Scatter {
    /// Dimension numbers.
    pub dims: ScatterDims,
    /// Whether the indices are sorted.
    pub indices_are_sorted: bool,
    /// Whether the indices are unique.
    pub unique_indices: bool,
    /// The combiner.
    pub to_apply: CompId,
}

/// Attributes of a dot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dot {
    /// Dimension numbers.
    pub dims: DotDims,
    /// Precision and algorithm.
    pub precision: Precision,
    /// Sparsity and block scaling.
    pub extras: ContractionExtras,
}

/// Attributes of a convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    /// The window.
    pub window: Window,
    /// Dimension numbers.
    pub dims: ConvDims,
    /// Feature groups, 1 without.
    pub feature_group_count: i64,
    /// Batch groups, 1 without.
    pub batch_group_count: i64,
    /// Precision and algorithm.
    pub precision: Precision,
    /// Number of `ConvolutionKind`: 0 unset, 1 fprop, 2 dgrad, 3 wgrad.
    pub kind: i32,
    /// Sparsity and block scaling.
    pub extras: ContractionExtras,
}

/// Attributes of a scan.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// The scanned dimension.
    pub dimension: i64,
    /// Number of carries.
    pub num_carries: i64,
    /// Whether it runs backwards.
    pub is_reverse: bool,
    /// Whether the body is associative, if said.
    pub is_associative: Option<bool>,
    /// The body.
    pub to_apply: CompId,
}

/// Attributes of a domain.
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    /// `kind=`.
    pub kind: Box<str>,
    /// Entry sharding.
    pub entry: Sharding,
    /// Exit sharding.
    pub exit: Sharding,
}

/// A fusion owns its computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Fusion {
    /// How the emitter takes it.
    pub kind: FusionKind,
    /// The fused computation.
    pub calls: CompId,
    /// `output_to_operand_aliasing`.
    pub aliasing: Vec<OutputAlias>,
}

/// Attributes of a custom call; its backend config is with the common attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CustomCall {
    /// Which.
    pub target: Box<str>,
    /// Number of `CustomCallApiVersion`; 0 and 1 are not printed.
    pub api_version: i32,
    /// `called_computations={…}` or `to_apply=`.
    pub called: Vec<CompId>,
    /// Whether `called` was said as `to_apply`.
    pub to_apply: bool,
    /// Whether it has side effects.
    pub has_side_effect: bool,
    /// Number of `CustomCallSchedule`: 0 none, 1 latest, 2 earliest.
    pub schedule: i32,
    /// `operand_layout_constraints`; `None` where not said.
    pub operand_layouts: Option<Vec<ShapeId>>,
    /// `output_to_operand_aliasing`.
    pub aliasing: Vec<OutputAlias>,
    /// `literal=`.
    pub literal: Option<Box<Literal>>,
    /// `window=`.
    pub window: Window,
    /// `dim_labels=`.
    pub dims: Option<ConvDims>,
    /// Feature groups; 0 and 1 are not printed.
    pub feature_group_count: i64,
    /// Batch groups; 0 and 1 are not printed.
    pub batch_group_count: i64,
    /// Number of `PaddingType`: 0 not said, 1 valid, 2 same.
    pub padding_type: i32,
    /// `operand_precision=` and algorithm.
    pub precision: Precision,
}

/// Attributes of a collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Collective {
    /// Which.
    pub kind: CollectiveKind,
    /// Whether this is the `-start` of an asynchronous pair.
    pub start: bool,
    /// Who talks to whom; empty for a permute.
    pub groups: ReplicaGroups,
    /// `channel_id`.
    pub channel_id: Option<i64>,
    /// `use_global_device_ids`.
    pub use_global_device_ids: bool,
    /// `constrain_layout`.
    pub constrain_layout: bool,
    /// `dimensions` of all-gather, reduce-scatter, all-to-all.
    pub dimensions: Vec<i64>,
    /// `to_apply` of reductions.
    pub to_apply: Option<CompId>,
    /// `source_target_pairs` of a permute.
    pub source_target_pairs: Vec<(i64, i64)>,
    /// `slice_sizes` of an in-place permute.
    pub slice_sizes: Vec<Vec<i64>>,
    /// `has_dynamic_root`, where the opcode has it.
    pub has_dynamic_root: bool,
}

/// Attributes of `async-start`, `async-update` and `async-done`: the wrapped computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Async {
    /// The wrapped computation, the same along the chain.
    pub calls: CompId,
    /// `async_execution_thread`; `None` is `main`.
    pub thread: Option<Box<str>>,
    /// `output_to_operand_aliasing`.
    pub aliasing: Vec<OutputAlias>,
}

/// Attributes of send and recv and their dones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// `channel_id`.
    pub channel_id: Option<i64>,
    /// `is_host_transfer`.
    pub is_host_transfer: bool,
}

/// An opcode of a newer XLA.
#[derive(Clone, Debug, PartialEq)]
pub struct Opaque {
    /// The opcode.
    pub opcode: Box<str>,
    /// Its attributes as read, in order, without those that every opcode may carry.
    pub attributes: Vec<(Box<str>, Box<str>)>,
    /// Computations it calls, where a proto said so.
    pub called: Vec<CompId>,
}
