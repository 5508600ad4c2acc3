//! Shardings, meshes and replica groups in HLO text. Tuples of shardings nest once in what XLA accepts, and the parser bounds it.

use std::fmt::Write as _;

use super::print_attr::{joined, metadata};
use super::print_quote::quoted;
use crate::ir::{AxisRef, Mesh, Metadata, NamedSharding, ReplicaGroups, Sharding, ShardingKind};

/// `{…}`.
pub(super) fn sharding(out: &mut String, s: &Sharding) {
    match &s.named {
        Some(named) => self::named(out, named),
        None => unnamed(out, s),
    }
}

fn kind(k: ShardingKind) -> &'static str {
    match k {
        ShardingKind::Replicated => "replicated",
        ShardingKind::Maximal => "maximal",
        ShardingKind::Tuple => "",
        ShardingKind::Other => "devices",
        ShardingKind::Manual => "manual",
        ShardingKind::Unknown => "unknown",
        ShardingKind::Unreduced => "unreduced",
    }
}

fn unnamed(out: &mut String, s: &Sharding) {
    out.push('{');
    match s.kind {
        ShardingKind::Tuple => {
            for (i, element) in s.tuple.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                sharding(out, element);
            }
        }
        ShardingKind::Maximal => write!(out, "maximal device={}", joined(&s.devices, ",")).expect("a string takes all"),
        ShardingKind::Other => {
            write!(out, "devices=[{}]", joined(&s.tile_dims, ",")).expect("a string takes all");
            if s.iota_reshape.is_empty() {
                out.push_str(&joined(&s.devices, ","));
            } else {
                iota(out, &s.iota_reshape, &s.iota_perm);
            }
            if s.replicate_on_last_tile_dim {
                out.push_str(" last_tile_dim_replicate");
            }
            if !s.last_tile_dims.is_empty() {
                let dims: Vec<&str> = s.last_tile_dims.iter().map(|&k| kind(k)).collect();
                write!(out, " last_tile_dims={{{}}}", dims.join(", ")).expect("a string takes all");
            }
        }
        other => out.push_str(kind(other)),
    }
    if let Some(group) = s.group {
        write!(out, " {} {}", if group.like { "shard_like" } else { "shard_as" }, group.id).expect("a string takes all");
    }
    match &s.metadata[..] {
        [] => {}
        [one] => {
            out.push_str(" metadata=");
            metadata(out, one);
        }
        several => {
            out.push_str(" metadata=");
            metadata_list(out, several);
        }
    }
    out.push('}');
}

fn metadata_list(out: &mut String, list: &[Metadata]) {
    for (i, md) in list.iter().enumerate() {
        out.push_str(if i == 0 { "{" } else { ", " });
        metadata(out, md);
    }
    out.push('}');
}

/// `<=[8]` or `<=[2,4]T(1,0)`.
fn iota(out: &mut String, reshape: &[i64], perm: &[i32]) {
    write!(out, "<=[{}]", joined(reshape, ",")).expect("a string takes all");
    // XLA's parser wants the transposition of more than one dimension even where it is none.
    if reshape.len() > 1 {
        write!(out, "T({})", joined(perm, ",")).expect("a string takes all");
    }
}

fn named(out: &mut String, s: &NamedSharding) {
    out.push('{');
    if let ([], [device], None) = (&s.mesh.axes[..], &s.mesh.device_ids[..], &s.mesh.iota) {
        write!(out, "single_device[device_id={device}]").expect("a string takes all");
    } else {
        mesh(out, &s.mesh);
        axes_of_dims(out, s);
    }
    if !s.metadata.is_empty() {
        out.push_str(", metadata=");
        metadata_list(out, &s.metadata);
    }
    out.push('}');
}

fn axes_of_dims(out: &mut String, s: &NamedSharding) {
    let all = |axes: &[AxisRef]| {
        axes.len() == s.mesh.axes.len() && !axes.is_empty() && (0..).zip(axes).all(|(i, a)| a.axis == i && a.sub_axis.is_none())
    };
    let reduction = match s.reduction {
        1 => "max",
        2 => "min",
        _ => "",
    };
    if s.dims.is_empty() {
        match (&s.replicated[..], &s.unreduced[..], &s.manual[..]) {
            ([], [], []) => return out.push_str(", replicated"),
            ([], [], manual) if all(manual) => return out.push_str(", manual"),
            ([], unreduced, []) if all(unreduced) => {
                let equals = if reduction.is_empty() { "" } else { "=" };
                return write!(out, ", unreduced{equals}{reduction}").expect("a string takes all");
            }
            _ => {}
        }
    }
    out.push_str(", [");
    for (i, dim) in s.dims.iter().enumerate() {
        out.push_str(if i == 0 { "{" } else { ", {" });
        let mut names: Vec<String> = dim.axes.iter().map(|a| axis(&s.mesh, a)).collect();
        if !dim.is_closed {
            names.push("?".into());
        }
        write!(out, "{}}}", names.join(", ")).expect("a string takes all");
    }
    out.push(']');
    for (name, axes) in [("replicated=", &s.replicated), (&format!("unreduced={reduction}"), &s.unreduced), ("manual=", &s.manual)] {
        if !axes.is_empty() {
            let axes: Vec<String> = axes.iter().map(|a| axis(&s.mesh, a)).collect();
            write!(out, ", {name}{{{}}}", axes.join(", ")).expect("a string takes all");
        }
    }
}

/// A name in single quotes.
fn single_quoted(name: &str) -> String {
    let mut out = String::new();
    quoted(&mut out, name.as_bytes());
    format!("'{}'", &out[1..out.len() - 1])
}

/// `'a'` or `'a':(1)2`; an axis that the mesh lacks by its number.
fn axis(mesh: &Mesh, a: &AxisRef) -> String {
    let name = usize::try_from(a.axis).ok().and_then(|i| mesh.axes.get(i));
    let mut out = name.map_or_else(|| format!("'{}'", a.axis), |(name, _)| single_quoted(name));
    if let Some((pre, size)) = a.sub_axis {
        write!(out, ":({pre}){size}").expect("a string takes all");
    }
    out
}

fn mesh(out: &mut String, m: &Mesh) {
    if let ([], [device], None) = (&m.axes[..], &m.device_ids[..], &m.iota) {
        write!(out, "single_device[device_id={device}]").expect("a string takes all");
        return;
    }
    let axes: Vec<String> = m.axes.iter().map(|(name, size)| format!("{}={size}", single_quoted(name))).collect();
    write!(out, "mesh[{}]", axes.join(",")).expect("a string takes all");
    if let Some((reshape, perm)) = &m.iota {
        write!(out, ", device_ids=([{}]T({}))", joined(reshape, ","), joined(perm, ",")).expect("a string takes all");
    } else if !m.device_ids.is_empty() {
        write!(out, ", device_ids=({})", joined(&m.device_ids, ",")).expect("a string takes all");
    }
}

/// The value of `replica_groups=`.
pub(super) fn replica_groups(out: &mut String, groups: &ReplicaGroups) {
    match groups {
        ReplicaGroups::List(groups) => {
            let groups: Vec<String> = groups.iter().map(|g| format!("{{{}}}", joined(g, ","))).collect();
            write!(out, "{{{}}}", groups.join(",")).expect("a string takes all");
        }
        ReplicaGroups::Iota { groups, devices, reshape, perm } => {
            write!(out, "[{groups},{devices}]").expect("a string takes all");
            iota(out, reshape, perm);
        }
        ReplicaGroups::Mesh { mesh: m, axes } => {
            mesh(out, m);
            let axes: Vec<String> = axes.iter().map(|a| axis(m, a)).collect();
            write!(out, " {{{}}}", axes.join(",")).expect("a string takes all");
        }
    }
}
