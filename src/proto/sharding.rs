//! The messages of shardings, meshes and replica groups.

use super::codec::{Cx, FieldCodec, Wire, wire};
use super::wire::{Bad, Message, Res, Rest, Writer};
use crate::ir::{AxisRef, DimSharding, Mesh, NamedSharding, ShardGroup, Sharding, ShardingKind, Unknown};

fn kind(number: u64, place: &[u8]) -> Res<ShardingKind> {
    use ShardingKind as K;
    const KINDS: [ShardingKind; 7] = [K::Replicated, K::Maximal, K::Tuple, K::Other, K::Manual, K::Unknown, K::Unreduced];
    usize::try_from(number)
        .ok()
        .and_then(|n| KINDS.get(n).copied())
        .ok_or_else(|| Bad::new("B002", place, format!("expected a kind of sharding from 0 to 6, found {number}")))
}

fn number(kind: ShardingKind) -> u64 {
    match kind {
        ShardingKind::Replicated => 0,
        ShardingKind::Maximal => 1,
        ShardingKind::Tuple => 2,
        ShardingKind::Other => 3,
        ShardingKind::Manual => 4,
        ShardingKind::Unknown => 5,
        ShardingKind::Unreduced => 6,
    }
}

impl Wire for Sharding {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let place = m.place;
        let is_group = bool::pick(m, 11, cx)?;
        let (id, like) = if is_group { (FieldCodec::pick(m, 12, cx)?, i32::pick(m, 13, cx)? == 1) } else { (0, false) };
        Ok(Self {
            kind: kind(m.varint(1)?.unwrap_or(0), place)?,
            tile_dims: FieldCodec::pick(m, 3, cx)?,
            devices: FieldCodec::pick(m, 4, cx)?,
            tuple: FieldCodec::pick(m, 5, cx)?,
            replicate_on_last_tile_dim: FieldCodec::pick(m, 6, cx)?,
            metadata: FieldCodec::pick(m, 7, cx)?,
            last_tile_dims: m.varints(8)?.into_iter().map(|n| kind(n, place)).collect::<Res<_>>()?,
            iota_reshape: FieldCodec::pick(m, 9, cx)?,
            iota_perm: FieldCodec::pick(m, 10, cx)?,
            group: is_group.then_some(ShardGroup { like, id }),
            named: FieldCodec::pick(m, 14, cx)?,
            unknown: Unknown::default(),
        })
    }
    fn unknown(&mut self) -> Option<&mut Unknown> {
        Some(&mut self.unknown)
    }
    fn kept(&self) -> Rest<'_> {
        Rest::of(&self.unknown)
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        number(self.kind).cast_signed().put(w, 1, rest);
        self.tile_dims.put(w, 3, rest);
        self.devices.put(w, 4, rest);
        self.tuple.put(w, 5, rest);
        self.replicate_on_last_tile_dim.put(w, 6, rest);
        self.metadata.put(w, 7, rest);
        w.packed(8, self.last_tile_dims.iter().map(|&k| number(k)));
        self.iota_reshape.put(w, 9, rest);
        self.iota_perm.put(w, 10, rest);
        if let Some(group) = self.group {
            true.put(w, 11, rest);
            group.id.put(w, 12, rest);
            i32::from(group.like).put(w, 13, rest);
        }
        self.named.put(w, 14, rest);
    }
}

impl Wire for NamedSharding {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        Ok(Self {
            mesh: Option::<Mesh>::pick(m, 2, cx)?.unwrap_or_default(),
            dims: FieldCodec::pick(m, 3, cx)?,
            replicated: FieldCodec::pick(m, 4, cx)?,
            unreduced: FieldCodec::pick(m, 5, cx)?,
            metadata: FieldCodec::pick(m, 6, cx)?,
            manual: FieldCodec::pick(m, 7, cx)?,
            reduction: FieldCodec::pick(m, 8, cx)?,
            unknown: Unknown::default(),
        })
    }
    fn unknown(&mut self) -> Option<&mut Unknown> {
        Some(&mut self.unknown)
    }
    fn kept(&self) -> Rest<'_> {
        Rest::of(&self.unknown)
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        super::codec::put_message(&self.mesh, w, 2, rest);
        self.dims.put(w, 3, rest);
        self.replicated.put(w, 4, rest);
        self.unreduced.put(w, 5, rest);
        self.metadata.put(w, 6, rest);
        self.manual.put(w, 7, rest);
        self.reduction.put(w, 8, rest);
    }
}

wire!(DimSharding { 1 axes, 2 is_closed });

impl Wire for AxisRef {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        Ok(Self { axis: FieldCodec::pick(m, 1, cx)?, sub_axis: Option::<SubAxis>::pick(m, 2, cx)?.map(|s| (s.pre, s.size)) })
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        self.axis.put(w, 1, rest);
        self.sub_axis.map(|(pre, size)| SubAxis { pre, size }).put(w, 2, rest);
    }
}

struct SubAxis {
    pre: i64,
    size: i64,
}

wire!(SubAxis { 1 pre, 2 size });

impl Wire for Mesh {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let axes = Vec::<MeshAxis>::pick(m, 1, cx)?;
        Ok(Self {
            axes: axes.into_iter().map(|a| (a.name, a.size)).collect(),
            device_ids: FieldCodec::pick(m, 2, cx)?,
            iota: Option::<Iota>::pick(m, 3, cx)?.map(|i| (i.reshape, i.perm)),
            unknown: Unknown::default(),
        })
    }
    fn unknown(&mut self) -> Option<&mut Unknown> {
        Some(&mut self.unknown)
    }
    fn kept(&self) -> Rest<'_> {
        Rest::of(&self.unknown)
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        let axes: Vec<_> = self.axes.iter().map(|(name, size)| MeshAxis { name: name.clone(), size: *size }).collect();
        axes.put(w, 1, rest);
        self.device_ids.put(w, 2, rest);
        self.iota.clone().map(|(reshape, perm)| Iota { reshape, perm }).put(w, 3, rest);
    }
}

struct MeshAxis {
    name: Box<str>,
    size: i64,
}

wire!(MeshAxis { 1 name, 2 size });

struct Iota {
    reshape: Vec<i64>,
    perm: Vec<i64>,
}

wire!(Iota { 1 reshape, 2 perm });

/// `ReplicaGroup`.
pub(super) struct Group {
    pub ids: Vec<i64>,
}

wire!(Group { 1 ids });

/// `CollectiveDeviceListProto`.
pub(super) struct DeviceList {
    pub groups: Vec<Group>,
}

wire!(DeviceList { 1 groups });

/// `IotaReplicaGroupListProto`.
pub(super) struct IotaGroups {
    pub groups: i64,
    pub devices: i64,
    pub reshape: Vec<i64>,
    pub perm: Vec<i32>,
}

wire!(IotaGroups { 1 groups, 2 devices, 3 reshape, 4 perm });

/// `MeshAxesReplicaGroupListProto`.
pub(super) struct MeshGroups {
    pub mesh: Option<Mesh>,
    pub axes: Vec<AxisRef>,
}

wire!(MeshGroups { 1 mesh, 2 axes });
