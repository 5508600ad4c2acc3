//! Attributes of an instruction: `, name=value` after the operands.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::cursor::{Cursor, begins_word};
use super::errors::{Res, fail};
use super::grammar::{Rule, read};
use super::opcodes::{Make, Opcode};
use super::reader::{Reader, Scope};
use super::{common, lists, sharding};
use crate::diag::{Diagnostic, Span};
use crate::ir::{
    Attrs, CollectiveKind, CompId, ConvDims, Domain, InstrId, Literal, OutputAlias, PadDim, ReplicaGroups, ShapeId, SliceDim, Sparsity,
    Window,
};

macro_rules! attributes {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// An attribute of some opcode, or a common one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Attr { $($variant),* }

        impl Attr {
            const ALL: &[Self] = &[$(Self::$variant),*];
            /// The spelling.
            pub(super) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
            /// The attribute of that spelling.
            #[inline]
            fn from_name(name: &str) -> Option<Self> {
                static TABLE: LazyLock<FxHashMap<&'static str, Attr>> = LazyLock::new(|| Attr::ALL.iter().map(|&a| (a.name(), a)).collect());
                TABLE.get(name).copied()
            }
        }
    };
}

attributes! {
    Metadata "metadata", BackendConfig "backend_config", Calls "calls", Kind "kind", Dimensions "dimensions", Index "index",
    ToApply "to_apply", FrontendAttributes "frontend_attributes", Sharding "sharding", ControlPredecessors "control-predecessors",
    Statistics "statistics", ParameterReplication "parameter_replication", Origin "origin",
    Slice "slice", DynamicSliceSizes "dynamic_slice_sizes", Direction "direction",
    LhsContractingDims "lhs_contracting_dims", RhsContractingDims "rhs_contracting_dims", LhsBatchDims "lhs_batch_dims",
    RhsBatchDims "rhs_batch_dims", OperandPrecision "operand_precision", Algorithm "algorithm", SparsityConfig "sparsity_config",
    BlockScalingConfig "block_scaling_config", LhsRaggedDims "lhs_ragged_dims", RhsGroupDims "rhs_group_dims",
    ResultAccuracy "result_accuracy", IotaDimension "iota_dimension", Type "type", Order "order", ExponentBits "exponent_bits",
    MantissaBits "mantissa_bits", InferredDimension "inferred_dimension", Padding "padding", OffsetDims "offset_dims",
    CollapsedSliceDims "collapsed_slice_dims", StartIndexMap "start_index_map", IndexVectorDim "index_vector_dim",
    SliceSizes "slice_sizes", IndicesAreSorted "indices_are_sorted", OperandBatchingDims "operand_batching_dims",
    StartIndicesBatchingDims "start_indices_batching_dims", UpdateWindowDims "update_window_dims",
    InsertedWindowDims "inserted_window_dims", ScatterDimsToOperandDims "scatter_dims_to_operand_dims",
    UniqueIndices "unique_indices", InputBatchingDims "input_batching_dims",
    ScatterIndicesBatchingDims "scatter_indices_batching_dims", Mode "mode", Shifts "shifts", Window "window", DimLabels "dim_labels",
    FeatureGroupCount "feature_group_count", BatchGroupCount "batch_group_count", ConvolutionKind "convolution_kind",
    Select "select", Scatter "scatter", NumCarries "num_carries", IsReverse "is_reverse", IsAssociative "is_associative",
    IsStable "is_stable", K "k", Largest "largest", FftType "fft_type", FftLength "fft_length", Lower "lower", LeftSide "left_side",
    UnitDiagonal "unit_diagonal", TransposeA "transpose_a", Epsilon "epsilon", FeatureIndex "feature_index",
    Distribution "distribution", Delta "delta", Domain "domain", Condition "condition", Body "body",
    BranchComputations "branch_computations", TrueComputation "true_computation", FalseComputation "false_computation",
    IsComposite "is_composite", OutputToOperandAliasing "output_to_operand_aliasing", CustomCallTarget "custom_call_target",
    ApiVersion "api_version", CalledComputations "called_computations", CustomCallHasSideEffect "custom_call_has_side_effect",
    Literal "literal", OperandLayoutConstraints "operand_layout_constraints", PaddingType "padding_type", Schedule "schedule",
    ChannelId "channel_id", ConstrainLayout "constrain_layout", ReplicaGroups "replica_groups",
    UseGlobalDeviceIds "use_global_device_ids", SourceTargetPairs "source_target_pairs", HasDynamicRoot "has_dynamic_root",
    IsHostTransfer "is_host_transfer", AsyncExecutionThread "async_execution_thread",
    CrossProgramPrefetchIndex "cross_program_prefetch_index", InfeedConfig "infeed_config", OutfeedConfig "outfeed_config",
    OutfeedShape "outfeed_shape",
}

impl Attr {
    /// The attribute as a set.
    pub(super) const fn bit(self) -> u128 {
        1 << (self as u32)
    }
}

/// What every opcode allows.
const COMMON: u128 = {
    let all = [
        Attr::Metadata,
        Attr::BackendConfig,
        Attr::FrontendAttributes,
        Attr::Sharding,
        Attr::ControlPredecessors,
        Attr::Statistics,
        Attr::ParameterReplication,
        Attr::Origin,
    ];
    let (mut set, mut i) = (0, 0);
    while i < all.len() {
        set |= all[i].bit();
        i += 1;
    }
    set
};

/// The value of an attribute that some opcode gives a meaning.
#[derive(Debug)]
pub(super) enum Value<'t> {
    Int(i64),
    Bool(bool),
    Float(f64),
    Ints(Vec<i64>),
    Lists(Vec<Vec<i64>>),
    Word(&'t str),
    Bytes(Box<[u8]>),
    Text(Box<str>),
    Comp(CompId),
    Comps(Vec<CompId>),
    Window(Window),
    ConvDims(Box<ConvDims>),
    Padding(Vec<PadDim>),
    Slices(Vec<SliceDim>),
    Groups(ReplicaGroups),
    Precision(Vec<i32>),
    Sparsity([Option<Sparsity>; 2]),
    Aliases(Vec<OutputAlias>),
    Shapes(Vec<ShapeId>),
    Shape(ShapeId),
    Literal(Box<Literal>),
    Domain(Box<Domain>),
}

/// All attributes of one instruction.
#[derive(Default)]
pub(super) struct Attributes<'t> {
    said: u128,
    values: SmallVec<[(Attr, Value<'t>, Span); 3]>,
    /// The common ones.
    pub(super) common: Attrs,
    /// `control-predecessors`.
    pub(super) control: Vec<InstrId>,
    /// Attributes of an opcode that is not known.
    pub(super) opaque: Vec<(Box<str>, Box<str>)>,
    /// Whether `parameter_replication` was said, and where.
    pub(super) replication: Option<Span>,
}

impl<'t> Attributes<'t> {
    /// Whether an attribute was said.
    pub(super) fn has(&self, attr: Attr) -> bool {
        self.said & attr.bit() != 0
    }
    /// Takes the value of an attribute.
    pub(super) fn take(&mut self, attr: Attr) -> Option<Value<'t>> {
        self.take_at(attr).map(|(value, _)| value)
    }
    /// Takes the value of an attribute and its place.
    pub(super) fn take_at(&mut self, attr: Attr) -> Option<(Value<'t>, Span)> {
        if !self.has(attr) {
            return None;
        }
        let at = self.values.iter().position(|(a, ..)| *a == attr)?;
        let (_, value, span) = self.values.swap_remove(at);
        Some((value, span))
    }
}

impl<'t> Reader<'t> {
    /// Reads the attributes that follow the operands of an instruction of `opcode`, whose name ends at `named`.
    pub(super) fn attributes(&mut self, scope: &mut Scope<'t>, cur: &mut Cursor<'t>, opcode: &Opcode) -> Res<Attributes<'t>> {
        let mut out = Attributes::default();
        while cur.eat(b',') {
            cur.blanks();
            let start = cur.at;
            let name = cur.key("an attribute name")?;
            let span = Span::new(start, cur.at - 1);
            let attr = Attr::from_name(name);
            let allowed = attr.is_some_and(|a| (opcode.allowed | COMMON) & a.bit() != 0 || may_grow(opcode, a));
            match attr {
                Some(attr) if allowed => {
                    if out.has(attr) {
                        return fail("P020", span, format!("expected each attribute once, found `{name}` twice"));
                    }
                    out.said |= attr.bit();
                    self.attribute(scope, cur, opcode, attr, span, &mut out)?;
                }
                Some(_) if opcode.make != Make::Opaque => {
                    return fail("P021", span, format!("unexpected attribute `{name}`")).map_err(|f| f.note(allowed_note(opcode)));
                }
                _ => {
                    let value = self.unknown_value(cur)?;
                    if opcode.make == Make::Opaque {
                        if out.opaque.iter().any(|(n, _)| **n == *name) {
                            return fail("P020", span, format!("expected each attribute once, found `{name}` twice"));
                        }
                        out.opaque.push((name.into(), value.into()));
                        continue;
                    }
                    if out.common.unknown_text.iter().any(|(n, _)| **n == *name) {
                        return fail("P020", span, format!("expected each attribute once, found `{name}` twice"));
                    }
                    out.common.unknown_text.push((name.into(), value.into()));
                    let warning = Diagnostic::warning("P023", format!("unknown attribute `{name}` is kept as read"));
                    self.errors.warn(warning.at(span, "").note(allowed_note(opcode)));
                }
            }
        }
        Ok(out)
    }

    fn attribute(
        &mut self,
        scope: &mut Scope<'t>,
        cur: &mut Cursor<'t>,
        opcode: &Opcode,
        attr: Attr,
        span: Span,
        out: &mut Attributes<'t>,
    ) -> Res<()> {
        use Attr as A;
        let value = match attr {
            A::Metadata => {
                out.common.metadata = Some(Box::new(common::metadata(cur)?));
                if let Some(m) = &out.common.metadata {
                    self.check_frame(m.stack_frame_id, span);
                }
                return Ok(());
            }
            A::BackendConfig => {
                out.common.backend_config = Some(cur.string_or_json()?.into());
                return Ok(());
            }
            A::FrontendAttributes => {
                out.common.frontend_attributes = common::frontend_attributes(cur)?;
                return Ok(());
            }
            A::Sharding => {
                out.common.sharding = Some(Box::new(sharding::sharding(cur)?));
                return Ok(());
            }
            A::Statistics => {
                out.common.statistics = common::statistics(cur)?.map(Box::new);
                return Ok(());
            }
            A::Origin => {
                out.common.origin = Some(Box::new(common::origin(cur)?));
                return Ok(());
            }
            A::ParameterReplication => {
                out.common.parameter_replication = Some(common::braced_bools(cur)?);
                out.replication = Some(span);
                return Ok(());
            }
            A::ResultAccuracy => {
                out.common.result_accuracy = Some(common::result_accuracy(cur)?);
                return Ok(());
            }
            A::ControlPredecessors => {
                out.control = self.control_predecessors(scope, cur)?;
                return Ok(());
            }
            A::ToApply | A::Calls | A::Condition | A::Body | A::Select | A::Scatter | A::TrueComputation | A::FalseComputation => {
                Value::Comp(self.called(cur)?)
            }
            A::BranchComputations | A::CalledComputations => Value::Comps(self.called_list(cur)?),
            A::SliceSizes if matches!(opcode.make, Make::Collective(CollectiveKind::Permute, _)) => Value::Lists(lists::int_lists(cur)?),
            A::SourceTargetPairs => Value::Lists(lists::int_lists(cur)?),
            A::Dimensions
            | A::DynamicSliceSizes
            | A::LhsContractingDims
            | A::RhsContractingDims
            | A::LhsBatchDims
            | A::RhsBatchDims
            | A::LhsRaggedDims
            | A::RhsGroupDims
            | A::OffsetDims
            | A::CollapsedSliceDims
            | A::StartIndexMap
            | A::SliceSizes
            | A::OperandBatchingDims
            | A::StartIndicesBatchingDims
            | A::UpdateWindowDims
            | A::InsertedWindowDims
            | A::ScatterDimsToOperandDims
            | A::InputBatchingDims
            | A::ScatterIndicesBatchingDims
            | A::Shifts
            | A::FftLength => Value::Ints(cur.ints()?),
            A::Index
            | A::IotaDimension
            | A::InferredDimension
            | A::IndexVectorDim
            | A::FeatureGroupCount
            | A::BatchGroupCount
            | A::NumCarries
            | A::K
            | A::FeatureIndex
            | A::Delta
            | A::ChannelId => Value::Int(cur.whole_int()?),
            A::ExponentBits | A::MantissaBits | A::CrossProgramPrefetchIndex => Value::Int(i64::from(common::int32(cur)?)),
            A::IndicesAreSorted
            | A::UniqueIndices
            | A::IsReverse
            | A::IsAssociative
            | A::IsStable
            | A::Largest
            | A::Lower
            | A::LeftSide
            | A::UnitDiagonal
            | A::IsComposite
            | A::CustomCallHasSideEffect
            | A::ConstrainLayout
            | A::UseGlobalDeviceIds
            | A::HasDynamicRoot
            | A::IsHostTransfer => Value::Bool(cur.boolean()?),
            A::Kind
            | A::Direction
            | A::Type
            | A::Order
            | A::Algorithm
            | A::Mode
            | A::ConvolutionKind
            | A::FftType
            | A::TransposeA
            | A::Distribution
            | A::ApiVersion
            | A::PaddingType
            | A::Schedule => match cur.word() {
                Some(word) => {
                    let span = Span::new(cur.at - word.len(), cur.at);
                    out.values.push((attr, Value::Word(word), span));
                    return Ok(());
                }
                None => return cur.expected("a word"),
            },
            A::Epsilon => Value::Float(common::float32(cur)?),
            A::CustomCallTarget | A::AsyncExecutionThread => Value::Text(cur.text_string()?.into()),
            A::InfeedConfig | A::OutfeedConfig => Value::Bytes(cur.string()?.into()),
            A::Slice => Value::Slices(lists::slices(cur)?),
            A::Padding => Value::Padding(lists::padding(cur)?),
            A::Window => Value::Window(lists::window(cur)?),
            A::DimLabels => Value::ConvDims(Box::new(lists::dim_labels(cur)?)),
            A::OperandPrecision => Value::Precision(lists::precision(cur)?),
            A::SparsityConfig => Value::Sparsity(lists::sparsity(cur)?),
            A::BlockScalingConfig => {
                let node = read(cur, Rule::block_scaling)?;
                Value::Text(lists::block_scaling(cur.text, &node)?)
            }
            A::OutputToOperandAliasing => Value::Aliases(lists::output_aliases(cur)?),
            A::ReplicaGroups => Value::Groups(sharding::replica_groups(cur)?),
            A::Domain => Value::Domain(Box::new(sharding::domain(cur)?)),
            A::OperandLayoutConstraints => Value::Shapes(self.shape_list(cur)?),
            A::OutfeedShape => Value::Shape(self.shape(cur)?),
            A::Literal => Value::Literal(Box::new(self.shaped_literal(cur)?)),
        };
        out.values.push((attr, value, span));
        Ok(())
    }

    fn control_predecessors(&mut self, scope: &mut Scope<'t>, cur: &mut Cursor<'t>) -> Res<Vec<InstrId>> {
        cur.expect(b'{', "`{`")?;
        let mut out = Vec::new();
        loop {
            cur.blanks();
            let start = cur.at;
            let name = cur.name("the name of an instruction")?;
            let id = scope.resolve(name, cur.since(start))?;
            if !out.contains(&id) {
                out.push(id);
            }
            if cur.eat(b'}') {
                return Ok(out);
            }
            cur.expect(b',', "`,` or `}`")?;
        }
    }

    /// The value of an attribute that is not known, as read: tokens up to a comma outside of all brackets, or to the end of the line.
    pub(super) fn unknown_value(&mut self, cur: &mut Cursor<'t>) -> Res<&'t str> {
        cur.blanks();
        let start = cur.at;
        let mut open: Vec<u8> = Vec::new();
        loop {
            let byte = cur.byte();
            match byte {
                b'"' | b'\'' => drop(cur.string()?),
                b'{' if open.is_empty() => drop(cur.json()?),
                b'(' | b'[' | b'{' => {
                    open.push(byte);
                    cur.at += 1;
                }
                b')' | b']' | b'}' => {
                    match (open.pop(), byte) {
                        (Some(b'('), b')') | (Some(b'['), b']') | (Some(b'{'), b'}') => cur.at += 1,
                        (None, _) => break,
                        _ => return cur.expected("a matching bracket"),
                    };
                }
                b',' | b'\n' | b'\r' if open.is_empty() => break,
                b' ' | b'\t' if open.is_empty() => {
                    let end = cur.at;
                    let mut ahead = *cur;
                    ahead.blanks();
                    if !matches!(ahead.byte(), b'{' | b'[' | b'(') || ahead.text[end..ahead.at].contains('\n') {
                        break;
                    }
                    *cur = ahead;
                }
                b' ' | b'\t' | b'\n' | b'\r' | b',' => cur.at += 1,
                b'/' => {
                    let before = cur.at;
                    cur.blanks();
                    if cur.at == before {
                        return cur.expected("a value");
                    }
                }
                _ if begins_word(byte) || byte.is_ascii_digit() => drop(cur.word_here()),
                b'-' | b'.' | b'?' | b'<' | b'>' | b'=' | b'*' | b'#' | b'+' | b'~' | b':' | b'%' => cur.at += 1,
                _ => return cur.expected("a value"),
            }
        }
        if let Some(&bracket) = open.last() {
            return cur.expected(&format!("the end of `{}`", char::from(bracket)));
        }
        if cur.at == start { cur.expected("a value") } else { Ok(&cur.text[start..cur.at]) }
    }
}

/// Attributes that XLA prints on opcodes whose text its own parser does not accept with them.
fn may_grow(opcode: &Opcode, attr: Attr) -> bool {
    attr == Attr::OutputToOperandAliasing && matches!(opcode.make, Make::Collective(..) | Make::AsyncDone | Make::CollectiveDone(_))
}

fn allowed_note(opcode: &Opcode) -> String {
    let mut names: Vec<&str> = Attr::ALL.iter().filter(|a| opcode.allowed & a.bit() != 0).map(|a| a.name()).collect();
    names.sort_unstable();
    let common = "sharding, frontend_attributes, statistics, parameter_replication, control-predecessors, origin, metadata, backend_config";
    if names.is_empty() { format!("allowed: {common}") } else { format!("allowed: {}; and {common}", names.join(", ")) }
}
