//! Shardings, meshes and replica groups.

use super::common;
use super::cursor::Cursor;
use super::errors::{Res, fail};
use super::grammar::{Node, Rule, children, cursor_at, ints, read, span_of};
use crate::diag::Span;
use crate::ir::{AxisRef, DimSharding, Domain, Mesh, Metadata, NamedSharding, ReplicaGroups, ShardGroup, Sharding, ShardingKind};

/// `sharding={…}`: one, or a tuple of them.
pub(super) fn sharding(cur: &mut Cursor<'_>) -> Res<Sharding> {
    let node = read(cur, Rule::sharding)?;
    from_node(cur.text, node)
}

fn from_node(text: &str, node: Node<'_>) -> Res<Sharding> {
    let Some(inner) = node.into_inner().next() else { return Ok(Sharding::default()) };
    if inner.as_rule() == Rule::single_sharding {
        return one(text, &inner);
    }
    let tuple = inner.into_inner().map(|s| one(text, &s)).collect::<Res<_>>()?;
    Ok(Sharding { kind: ShardingKind::Tuple, tuple, ..Sharding::default() })
}

/// `domain={kind="sharding", entry={…}, exit={…}}`.
pub(super) fn domain(cur: &mut Cursor<'_>) -> Res<Domain> {
    let node = read(cur, Rule::domain)?;
    let text = cur.text;
    let span = span_of(text, &node);
    let (mut kind, mut entry, mut exit) = (None, None, None);
    for field in node.into_inner() {
        let is_entry = field.as_str().starts_with("entry");
        let mut value = cursor_at(text, &field);
        let _ = value.key("a field")?;
        let slot = match field.as_rule() {
            Rule::domain_kind => {
                kind = Some(value.text_string()?);
                continue;
            }
            _ if is_entry => &mut entry,
            _ => &mut exit,
        };
        if let Some(inner) = field.into_inner().find(|n| n.as_rule() == Rule::sharding) {
            *slot = Some(from_node(text, inner)?);
        }
    }
    match (kind, entry, exit) {
        (Some(kind), Some(entry), Some(exit)) if kind == "sharding" => Ok(Domain { kind: kind.into(), entry, exit }),
        (Some(kind), Some(_), Some(_)) => fail("P026", span, format!("expected the kind `sharding`, found `{kind}`")),
        _ => fail("P022", span, "expected `kind=`, `entry=` and `exit=`"),
    }
}

/// What the items between the braces of a sharding say, before they are put together.
#[derive(Default)]
struct Items {
    kinds: Vec<ShardingKind>,
    out: Sharding,
    has_devices: bool,
    is_iota: bool,
}

fn one(text: &str, node: &Node<'_>) -> Res<Sharding> {
    let span = span_of(text, node);
    let mut items = Items::default();
    for item in node.clone().into_inner() {
        if item.as_rule() == Rule::named_sharding {
            let named = Some(Box::new(named(text, item)?));
            return Ok(Sharding { named, ..Sharding::default() });
        }
        if let Some(part) = item.into_inner().next() {
            items.add(text, &part)?;
        }
    }
    items.finish(span)
}

impl Items {
    fn add(&mut self, text: &str, part: &Node<'_>) -> Res<()> {
        let span = span_of(text, part);
        let out = &mut self.out;
        match part.as_rule() {
            Rule::sharding_kind => self.kinds.push(kind(part)),
            Rule::single_device => out.devices.extend(ints(text, part.clone())?),
            Rule::devices => {
                if std::mem::replace(&mut self.has_devices, true) {
                    return fail("P020", span, "expected `devices=` once");
                }
                match children(part, Rule::iota).next() {
                    Some(iota) => {
                        self.is_iota = true;
                        (out.tile_dims, out.iota_reshape, out.iota_perm) = iota_parts(text, &iota)?;
                    }
                    None => {
                        out.tile_dims = children(part, Rule::dims).next().map_or_else(|| Ok(Vec::new()), |d| ints(text, d))?;
                        out.devices.extend(ints(text, part.clone())?);
                    }
                }
            }
            Rule::last_replicate => out.replicate_on_last_tile_dim = true,
            Rule::last_tile_dims => {
                out.last_tile_dims = children(part, Rule::sharding_kind).map(|k| kind(&k)).collect();
                if out.last_tile_dims.contains(&ShardingKind::Unknown) {
                    return fail("P026", span, "expected `manual`, `replicated`, `maximal` or `unreduced`, found `unknown`");
                }
            }
            Rule::shard_group => {
                let id = ints(text, part.clone())?;
                out.group = Some(ShardGroup { like: part.as_str().starts_with("shard_like"), id: id[0] });
            }
            _ => out.metadata = metadata_list(text, part)?,
        }
        Ok(())
    }

    fn finish(self, span: Span) -> Res<Sharding> {
        let mut out = self.out;
        let has = |kind| self.kinds.contains(&kind);
        let no_devices = out.devices.is_empty() && !self.has_devices;
        let wrong = |message: &str| fail("P026", span, message);
        if has(ShardingKind::Replicated) {
            if !no_devices {
                return wrong("expected no devices in a replicated sharding");
            }
            (out.kind, out.replicate_on_last_tile_dim) = (ShardingKind::Replicated, false);
        } else if has(ShardingKind::Maximal) {
            if out.devices.len() != 1 || self.is_iota {
                return wrong("expected exactly one device in a maximal sharding");
            }
            out.tile_dims.clear();
            out.kind = ShardingKind::Maximal;
        } else if let Some(kind) = [ShardingKind::Manual, ShardingKind::Unknown, ShardingKind::Unreduced].into_iter().find(|k| has(*k)) {
            if !no_devices {
                return wrong("expected no devices in this sharding");
            }
            out.kind = kind;
        } else {
            if out.tile_dims.is_empty() {
                return wrong("expected `replicated`, `maximal`, `manual`, `unknown`, `unreduced` or `devices=`");
            }
            let product = product(&out.tile_dims);
            let Some(product) = product.filter(|_| out.tile_dims.iter().all(|d| *d > 0)) else {
                return wrong("expected positive tile dimensions with a product in range");
            };
            if self.is_iota {
                if self::product(&out.iota_reshape) != Some(product) {
                    return wrong(&format!("expected an iota of {product} devices, the product of the tile dimensions"));
                }
            } else if usize::try_from(product) != Ok(out.devices.len()) {
                return wrong(&format!("expected {product} devices, the product of the tile dimensions, found {}", out.devices.len()));
            } else if out.devices.len() < 2 {
                return wrong("expected more than one device in a tiled sharding");
            }
            if out.last_tile_dims.len() > out.tile_dims.len() {
                return wrong("expected at most as many `last_tile_dims` as tile dimensions");
            }
            out.kind = ShardingKind::Other;
        }
        Ok(out)
    }
}

fn kind(node: &Node<'_>) -> ShardingKind {
    match node.as_str() {
        "replicated" => ShardingKind::Replicated,
        "maximal" => ShardingKind::Maximal,
        "manual" => ShardingKind::Manual,
        "unknown" => ShardingKind::Unknown,
        _ => ShardingKind::Unreduced,
    }
}

fn metadata_list(text: &str, node: &Node<'_>) -> Res<Vec<Metadata>> {
    let inner = children(node, Rule::sharding_metadata).next();
    children(inner.as_ref().unwrap_or(node), Rule::metadata).map(|m| common::metadata(&mut cursor_at(text, &m))).collect()
}

fn product(dims: &[i64]) -> Option<i64> {
    dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d))
}

/// Tile dimensions, reshape and transposition of `[2,2]<=[4]` or `[4,2]<=[2,4]T(1,0)`.
fn iota_parts(text: &str, node: &Node<'_>) -> Res<(Vec<i64>, Vec<i64>, Vec<i32>)> {
    let span = span_of(text, node);
    let mut dims = children(node, Rule::dims);
    let (tile, reshape) = match (dims.next(), dims.next()) {
        (Some(tile), Some(reshape)) => (ints(text, tile)?, ints(text, reshape)?),
        _ => return fail("P010", span, "expected `[…]<=[…]`"),
    };
    let perm = match children(node, Rule::perm).next() {
        Some(perm) if reshape.len() > 1 => ints(text, perm)?,
        Some(perm) => return fail("P026", span_of(text, &perm), "expected no transposition of one dimension"),
        None if reshape.len() == 1 => vec![0],
        None => return fail("P026", span, "expected `T(…)`, the transposition of more than one dimension"),
    };
    let in_range = |&p: &i64| i32::try_from(p).ok().filter(|p| usize::try_from(*p).is_ok_and(|p| p < reshape.len()));
    let perm: Option<Vec<i32>> = perm.iter().map(in_range).collect();
    match perm.filter(|p| p.len() == reshape.len()) {
        Some(perm) => Ok((tile, reshape, perm)),
        None => fail("P026", span, format!("expected {} dimension numbers below {0} in `T(…)`", reshape.len())),
    }
}

/// `replica_groups=` in its three spellings.
pub(super) fn replica_groups(cur: &mut Cursor<'_>) -> Res<ReplicaGroups> {
    let node = read(cur, Rule::groups)?;
    let text = cur.text;
    let span = span_of(text, &node);
    let mut inner = node.into_inner();
    let Some(first) = inner.next() else { return cur.expected("replica groups") };
    match first.as_rule() {
        Rule::mesh => {
            let mesh = mesh(text, first)?;
            let axes = inner.next().map_or_else(|| Ok(Vec::new()), |axes| axis_list(text, axes, &mesh))?;
            check_axes(&mesh, &[&axes], span)?;
            Ok(ReplicaGroups::Mesh { mesh, axes })
        }
        Rule::iota => {
            let (tile, reshape, perm) = iota_parts(text, &first)?;
            let [groups, devices] = *tile else {
                return fail("P026", span, format!("expected groups and devices a group, found {} dimensions", tile.len()));
            };
            if product(&tile).is_none() || product(&tile) != product(&reshape) {
                return fail("P026", span, "expected an iota of as many devices as the groups have together");
            }
            Ok(ReplicaGroups::Iota { groups, devices, reshape, perm })
        }
        _ => Ok(ReplicaGroups::List(first.into_inner().map(|group| ints(text, group)).collect::<Res<_>>()?)),
    }
}

fn mesh(text: &str, node: Node<'_>) -> Res<Mesh> {
    let mut out = Mesh::default();
    for part in node.into_inner() {
        match part.as_rule() {
            Rule::one_device => out.device_ids = ints(text, part)?,
            Rule::mesh_axis => {
                let name = cursor_at(text, &part).text_string()?;
                let size = ints(text, part.clone())?[0];
                if out.axes.iter().any(|(n, _)| **n == *name) {
                    return fail("P020", span_of(text, &part), format!("expected each axis once, found `{name}` twice"));
                }
                out.axes.push((name.into(), size));
            }
            _ => {
                let devices = out.axes.iter().try_fold(1i64, |n, (_, size)| n.checked_mul(*size));
                let span = span_of(text, &part);
                let count = match children(&part, Rule::dims).next() {
                    Some(dims) => {
                        let reshape = ints(text, dims)?;
                        let perm = children(&part, Rule::perm).next().map_or_else(|| Ok(Vec::new()), |p| ints(text, p))?;
                        let count = product(&reshape);
                        out.iota = Some((reshape, perm));
                        count
                    }
                    None => {
                        out.device_ids = ints(text, part.clone())?;
                        i64::try_from(out.device_ids.len()).ok()
                    }
                };
                if count != devices {
                    return fail("P026", span, format!("expected as many device ids as the mesh has devices, {}", devices.unwrap_or(0)));
                }
            }
        }
    }
    Ok(out)
}

fn axis_list(text: &str, node: Node<'_>, mesh: &Mesh) -> Res<Vec<AxisRef>> {
    children(&node, Rule::axis).map(|axis| axis_ref(text, &axis, mesh)).collect()
}

fn axis_ref(text: &str, node: &Node<'_>, mesh: &Mesh) -> Res<AxisRef> {
    let span = span_of(text, node);
    let name = cursor_at(text, node).text_string()?;
    let by_name = mesh.axes.iter().position(|(n, _)| **n == *name);
    let found = by_name.or_else(|| name.parse().ok().filter(|i| *i < mesh.axes.len()));
    let Some(position) = found else {
        let names: Vec<&str> = mesh.axes.iter().map(|(n, _)| &**n).collect();
        return fail("P026", span, format!("expected an axis of the mesh, one of `{}`, found `{name}`", names.join("`, `")));
    };
    let sub_axis = match *ints(text, node.clone())? {
        [pre, size] => Some((pre, size)),
        _ => None,
    };
    if let Some((pre, size)) = sub_axis {
        let whole = mesh.axes[position].1;
        let fits = pre >= 1 && size >= 2 && pre.checked_mul(size).is_some_and(|n| n <= whole && whole % n == 0);
        if !fits {
            return fail("P026", span, format!("expected a part `(pre)size` of an axis of {whole} devices"));
        }
    }
    Ok(AxisRef { axis: i64::try_from(position).expect("a mesh has few axes"), sub_axis })
}

/// Axes must not overlap, and parts of one axis that follow each other must be written as one; XLA aborts otherwise.
fn check_axes(mesh: &Mesh, lists: &[&[AxisRef]], span: Span) -> Res<()> {
    let range = |a: &AxisRef| {
        let whole = usize::try_from(a.axis).ok().and_then(|i| mesh.axes.get(i)).map_or(1, |(_, size)| *size);
        a.sub_axis.map_or((1, whole), |(pre, size)| (pre, pre.saturating_mul(size)))
    };
    let all: Vec<&AxisRef> = lists.iter().copied().flatten().collect();
    for (i, a) in all.iter().enumerate() {
        for b in &all[..i] {
            let ((a0, a1), (b0, b1)) = (range(a), range(b));
            let is_same = a.axis == b.axis && a.sub_axis == b.sub_axis;
            if a.axis == b.axis && (is_same || (a0 < b1 && b0 < a1)) {
                return fail("P026", span, "expected each part of an axis once");
            }
        }
    }
    for list in lists {
        for pair in list.windows(2) {
            if pair[0].axis == pair[1].axis && range(&pair[0]).1 == range(&pair[1]).0 {
                return fail("P026", span, "expected neighbouring parts of an axis to be written as one");
            }
        }
    }
    Ok(())
}

fn named(text: &str, node: Node<'_>) -> Res<NamedSharding> {
    let span = span_of(text, &node);
    let mut out = NamedSharding::default();
    let mut seen: Vec<&str> = Vec::new();
    for part in node.into_inner() {
        match part.as_rule() {
            Rule::mesh => out.mesh = mesh(text, part)?,
            Rule::named_whole => {
                let count = i64::try_from(out.mesh.axes.len()).expect("a mesh has few axes");
                let all = (0..count).map(|axis| AxisRef { axis, sub_axis: None }).collect();
                match part.as_str() {
                    "replicated" => {}
                    "manual" => out.manual = all,
                    _ => {
                        out.unreduced = all;
                        out.reduction = children(&part, Rule::reduction).next().map_or(0, |r| reduction(&r));
                    }
                }
            }
            Rule::dim_shardings => {
                for dim in part.into_inner() {
                    let is_closed = children(&dim, Rule::open_dim).next().is_none();
                    let axes = axis_list(text, dim, &out.mesh)?;
                    out.dims.push(DimSharding { axes, is_closed });
                }
            }
            _ => {
                let key = part.as_str().split(['=', '{']).next().unwrap_or_default().trim();
                if seen.contains(&key) {
                    return fail("P020", span_of(text, &part), format!("expected each field once, found `{key}` twice"));
                }
                seen.push(key);
                if key == "metadata" {
                    out.metadata = metadata_list(text, &part)?;
                    continue;
                }
                if let Some(op) = children(&part, Rule::reduction).next() {
                    if key != "unreduced" {
                        return fail("P026", span_of(text, &op), "expected a reduction for `unreduced=` only");
                    }
                    out.reduction = reduction(&op);
                }
                let axes = match children(&part, Rule::axes).next() {
                    Some(axes) => axis_list(text, axes, &out.mesh)?,
                    None => Vec::new(),
                };
                match key {
                    "replicated" => out.replicated = axes,
                    "manual" => out.manual = axes,
                    _ => out.unreduced = axes,
                }
            }
        }
    }
    let mut lists: Vec<&[AxisRef]> = out.dims.iter().map(|d| &*d.axes).collect();
    lists.extend([&*out.replicated, &*out.unreduced, &*out.manual]);
    check_axes(&out.mesh, &lists, span)?;
    Ok(out)
}

fn reduction(node: &Node<'_>) -> i32 {
    match node.as_str() {
        "sum" => 0,
        "max" => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(text: &str) -> Res<Sharding> {
        let mut cur = Cursor { text, at: 0 };
        let out = sharding(&mut cur)?;
        assert!(cur.peek() == 0, "{text}: left {}", cur.rest());
        Ok(out)
    }

    #[test]
    fn every_form() {
        for good in [
            "{replicated}",
            "{}",
            "{maximal device=3}",
            "{device=0 maximal}",
            "{devices=[2,1]0,1}",
            "{devices=[2,4]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}",
            "{devices=[2,1,2]<=[4] last_tile_dim_replicate shard_as 7 metadata={op_name=\"}\"}}",
            "{{replicated}, {mesh['x'=2], [{'x'}]}}",
            "{mesh['x'=2,'y'=4] [{'x', ?}, {}], replicated={'y':(1)2}, unreduced=max{}}",
            "{mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), [{'x'}, {}]}",
            "{mesh['x'=2], unreduced=max}",
            "{maximal_mesh[device_id=3]}",
        ] {
            assert!(read_one(good).is_ok(), "{good}");
        }
        for bad in [
            "{maximal}",
            "{devices=[2,2]0,1}",
            "{devices=[2,2]<=[2,2]}",
            "{devices=[2,1]<=[2]T(0)}",
            "{devices=[1,1]0}",
            "{{}}",
            "{replicated, manual}",
            "{mesh['x'=2]}",
            "{mesh['x'=2], [{'x'}, {'x'}]}",
            "{mesh['x'=2], [{?, 'x'}]}",
            "{mesh['x'=4], [{'x':(3)2}]}",
            "{mesh['x'=2,'y'=2], device_ids=(0,1), [{'x'}, {}]}",
        ] {
            assert!(read_one(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn groups() {
        let read = |text| replica_groups(&mut Cursor { text, at: 0 });
        assert_eq!(read("{{0,1},{2}}").unwrap(), ReplicaGroups::List(vec![vec![0, 1], vec![2]]));
        assert!(matches!(read("[4,2]<=[2,4]T(1,0)").unwrap(), ReplicaGroups::Iota { groups: 4, devices: 2, .. }));
        assert!(matches!(read("mesh['a'=2,'b'=4] {'b'}").unwrap(), ReplicaGroups::Mesh { .. }));
        for bad in ["[2,2,1]<=[4]", "[2,2]<=[8]", "{0,1}", "mesh['a'=2]", "mesh['a'=2,'b'=4] {'c'}"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
