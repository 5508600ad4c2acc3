//! Whether two modules are one program, said the same way.
//!
//! Compared are names, operations, operands, orders, attributes and shapes by value; not compared are places in a text, arena numbers,
//! the order of the listing, proto ids, and what only a proto says ([`Unknown`], payload numbers). Two spellings of one thing count as one:
//! a precision of nothing but defaults, a custom call's API version and group counts 0 and 1. Cost: linear, but for deep shapes.

use rustc_hash::FxHashMap;

use super::{
    ArrayShape, CommonAttrs, CompId, Computation, Header, InstrId, Layout, Literal, LiteralValue, Metadata, Module, Op, Precision,
    ReplicaGroups, Shape, ShapeId, ShapeTable, Sharding, Unknown,
};

/// Whether two modules are the same.
///
/// # Errors
/// The first difference, as a sentence.
pub fn same(a: &Module, b: &Module) -> Result<(), String> {
    let mut cx = Comparison { shapes: ShapeTable::default(), computations: FxHashMap::default() };
    equal("names of the module", &a.name, &b.name)?;
    equal("`is_scheduled`", &a.is_scheduled, &b.is_scheduled)?;
    equal("entry", &&a.entry().name, &&b.entry().name)?;
    equal("number of computations", &a.listing.len(), &b.listing.len())?;
    for &comp in &a.listing {
        cx.computations.insert(a.comp(comp).name.clone(), comp);
    }
    headers(&mut cx, a, b)?;
    for &comp in &b.listing {
        let theirs = b.comp(comp);
        let Some(&ours) = cx.computations.get(&theirs.name) else { return Err(format!("computation `{}` is new", theirs.name)) };
        computations(&mut cx, (a, a.comp(ours)), (b, theirs)).map_err(|e| format!("computation `{}`: {e}", theirs.name))?;
    }
    Ok(())
}

struct Comparison {
    /// The shapes of both, to be compared by their numbers.
    shapes: ShapeTable,
    /// The computations of the first, by name.
    computations: FxHashMap<Box<str>, CompId>,
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, a: &T, b: &T) -> Result<(), String> {
    if a == b {
        return Ok(());
    }
    let (a, b) = (format!("{a:?}"), format!("{b:?}"));
    // Long values: what stands before the difference, and the difference.
    let at = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count().saturating_sub(80);
    let clip = |value: &str| value.chars().skip(at).take(200).collect::<String>();
    Err(format!("{what}: {} is not {}", clip(&a), clip(&b)))
}

fn headers(cx: &mut Comparison, a: &Module, b: &Module) -> Result<(), String> {
    let shapes = |cx: &mut Comparison, m: &Module| {
        let (parameters, result) = m.entry_shapes();
        let parameters: Vec<ShapeId> = parameters.iter().map(|&p| cx.shape(m, p)).collect();
        (parameters, cx.shape(m, result))
    };
    let (ours, theirs) = (shapes(cx, a), shapes(cx, b));
    equal("`entry_computation_layout`", &ours, &theirs)?;
    let said = |h: &Header| {
        let mut h = Header { entry_layout: None, ..h.clone() };
        h.frames.unknown = Unknown::default();
        // Each form keeps these in its own words.
        h.origin_recovery_table = None;
        h.debug_attributes = None;
        h
    };
    equal("header", &said(&a.header), &said(&b.header))
}

fn computations(cx: &mut Comparison, a: (&Module, &Computation), b: (&Module, &Computation)) -> Result<(), String> {
    let ((am, a), (bm, b)) = (a, b);
    let names = |m: &Module, ids: &[InstrId]| ids.iter().map(|&i| m.instr(i).name.clone()).collect::<Vec<_>>();
    equal("order", &names(am, &a.order), &names(bm, &b.order))?;
    equal("parameters", &names(am, &a.parameters), &names(bm, &b.parameters))?;
    equal("root", &names(am, &[a.root]), &names(bm, &[b.root]))?;
    equal("`execution_thread`", &a.thread, &b.thread)?;
    equal("`backend_config`", &a.backend_config, &b.backend_config)?;
    for (&ai, &bi) in a.order.iter().zip(&b.order) {
        let (ours, theirs) = (am.instr(ai), bm.instr(bi));
        let in_instruction = |e: String| format!("instruction `{}`: {e}", ours.name);
        equal("shape", &cx.shape(am, ours.shape), &cx.shape(bm, theirs.shape)).map_err(in_instruction)?;
        equal("operands", &names(am, &ours.operands), &names(bm, &theirs.operands)).map_err(in_instruction)?;
        let preds = (names(am, &ours.control_predecessors), names(bm, &theirs.control_predecessors));
        equal("`control-predecessors`", &preds.0, &preds.1).map_err(in_instruction)?;
        equal("operation", &cx.op(am, &ours.op), &cx.op(bm, &theirs.op)).map_err(in_instruction)?;
        equal("attributes", &attrs(&ours.attrs), &attrs(&theirs.attrs)).map_err(in_instruction)?;
    }
    Ok(())
}

impl Comparison {
    /// The number that a shape has here, whatever module it is from.
    fn shape(&mut self, m: &Module, id: ShapeId) -> ShapeId {
        let shape = match m.shapes.get(id) {
            Shape::Array(array) => {
                let layout = array.layout.as_ref().map(|l| Layout {
                    physical_shape: l.physical_shape.map(|p| self.shape(m, p)),
                    unknown: Unknown::default(),
                    ..l.clone()
                });
                Shape::Array(ArrayShape { layout, unknown: Unknown::default(), ..array.clone() })
            }
            Shape::Tuple(elements) => Shape::Tuple(elements.iter().map(|&e| self.shape(m, e)).collect()),
            Shape::Buffer(inner) => Shape::Buffer(self.shape(m, *inner)),
            Shape::Token => Shape::Token,
            Shape::Opaque => Shape::Opaque,
        };
        self.shapes.intern(shape)
    }

    fn literal(&mut self, m: &Module, literal: &Literal) -> Literal {
        let value = match &literal.value {
            LiteralValue::Tuple(parts) => LiteralValue::Tuple(parts.iter().map(|p| self.literal(m, p)).collect()),
            other => other.clone(),
        };
        Literal { shape: self.shape(m, literal.shape), value }
    }

    /// An operation with shapes and computations by their numbers here, and with one spelling for what has several.
    fn op(&mut self, m: &Module, op: &Op) -> Op {
        let mut op = op.clone();
        op.map_called(&mut |c| self.computations.get(&m.comp(c).name).copied().unwrap_or(c));
        match &mut op {
            Op::Constant(literal) => **literal = self.literal(m, literal),
            Op::Outfeed { shape, .. } => *shape = self.shape(m, *shape),
            Op::CustomCall(call) => {
                call.api_version = call.api_version.max(1);
                call.feature_group_count = call.feature_group_count.max(1);
                call.batch_group_count = call.batch_group_count.max(1);
                call.to_apply = false;
                precision(&mut call.precision);
                if let Some(literal) = &mut call.literal {
                    **literal = self.literal(m, literal);
                }
                for shape in call.operand_layouts.iter_mut().flatten() {
                    *shape = self.shape(m, *shape);
                }
                if let Some(dims) = &mut call.dims {
                    dims.unknown = Unknown::default();
                }
            }
            Op::Dot(dot) | Op::ScaledDot(dot) | Op::RaggedDot { dot, .. } => precision(&mut dot.precision),
            Op::Convolution(convolution) => {
                precision(&mut convolution.precision);
                convolution.dims.unknown = Unknown::default();
            }
            // Left out of a text it means no.
            Op::Scan(scan) => scan.is_associative = Some(scan.is_associative == Some(true)),
            Op::Collective(collective) => {
                if let ReplicaGroups::Iota { perm, .. } = &mut collective.groups
                    && perm.is_sorted()
                {
                    perm.clear();
                }
            }
            Op::Domain(domain) => [&mut domain.entry, &mut domain.exit].into_iter().for_each(sharding),
            _ => {}
        }
        op
    }
}

fn precision(p: &mut Precision) {
    p.unknown = Unknown::default();
    if p.operands.iter().all(|&o| o == 0) {
        p.operands.clear();
    }
}

fn metadata(md: &mut Metadata) {
    md.unknown = Unknown::default();
    if let Some(payload) = &mut md.payload {
        payload.id = 0;
    }
}

fn sharding(s: &mut Sharding) {
    s.unknown = Unknown::default();
    s.metadata.iter_mut().for_each(metadata);
    if let Some(named) = &mut s.named {
        named.unknown = Unknown::default();
        named.mesh.unknown = Unknown::default();
        named.metadata.iter_mut().for_each(metadata);
    }
    s.tuple.iter_mut().for_each(sharding);
}

fn attrs(attrs: &CommonAttrs) -> CommonAttrs {
    let mut attrs = CommonAttrs { unknown: Unknown::default(), ..attrs.clone() };
    if let Some(md) = &mut attrs.metadata {
        metadata(md);
    }
    attrs.metadata.take_if(|md| **md == Metadata::default());
    if let Some(s) = &mut attrs.sharding {
        sharding(s);
    }
    if let Some(origin) = &mut attrs.origin {
        origin.unknown = Unknown::default();
    }
    attrs
}
