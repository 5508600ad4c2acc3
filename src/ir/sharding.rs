//! Shardings, as `OpSharding` and `NamedShardingProto` say them. No analysis looks inside; they are kept and printed back.

use super::{Metadata, Unknown};

/// `sharding={…}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharding {
    /// The form.
    pub kind: ShardingKind,
    /// `devices=[…]`.
    pub tile_dims: Vec<i64>,
    /// The device list of version 1, or the one device of `maximal`.
    pub devices: Vec<i64>,
    /// `<=[…]` of version 2.
    pub iota_reshape: Vec<i64>,
    /// `T(…)` of version 2.
    pub iota_perm: Vec<i32>,
    /// `last_tile_dim_replicate`.
    pub replicate_on_last_tile_dim: bool,
    /// `last_tile_dims={…}`.
    pub last_tile_dims: Vec<ShardingKind>,
    /// Elements of a tuple sharding.
    pub tuple: Vec<Sharding>,
    /// `metadata={…}`.
    pub metadata: Vec<Metadata>,
    /// `shard_as N` or `shard_like N`.
    pub group: Option<ShardGroup>,
    /// The mesh form.
    pub named: Option<Box<NamedSharding>>,
    /// Fields of a newer proto, and `tile_shape`.
    pub unknown: Unknown,
}

/// `OpSharding.Type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is named as in OpSharding.Type")]
pub enum ShardingKind {
    #[default]
    Replicated,
    Maximal,
    Tuple,
    Other,
    Manual,
    Unknown,
    Unreduced,
}

/// Membership in a shard group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardGroup {
    /// `shard_like` rather than `shard_as`.
    pub like: bool,
    /// The group's number.
    pub id: i64,
}

/// `{mesh['x'=2], [{'x'}, {}], …}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedSharding {
    /// The mesh.
    pub mesh: Mesh,
    /// One entry a dimension.
    pub dims: Vec<DimSharding>,
    /// `replicated={…}`.
    pub replicated: Vec<AxisRef>,
    /// `unreduced={…}`.
    pub unreduced: Vec<AxisRef>,
    /// Number of `ReductionOpProto` of `unreduced`: 0 sum, 1 max, 2 min.
    pub reduction: i32,
    /// `manual={…}`.
    pub manual: Vec<AxisRef>,
    /// `metadata={…}`.
    pub metadata: Vec<Metadata>,
    /// Fields of a newer proto.
    pub unknown: Unknown,
}

/// How one dimension is split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DimSharding {
    /// Axes, major first.
    pub axes: Vec<AxisRef>,
    /// Not closed is written `?`.
    pub is_closed: bool,
}

/// A mesh axis or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AxisRef {
    /// Position in the mesh.
    pub axis: i64,
    /// `:(pre)size`.
    pub sub_axis: Option<(i64, i64)>,
}

/// A device mesh; no axes and one device id is `maximal_mesh`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mesh {
    /// Names and sizes.
    pub axes: Vec<(Box<str>, i64)>,
    /// `device_ids=(…)`; empty means iota.
    pub device_ids: Vec<i64>,
    /// `([…]T(…))`: reshape and transposition of the iota.
    pub iota: Option<(Vec<i64>, Vec<i64>)>,
    /// Fields of a newer proto.
    pub unknown: Unknown,
}
