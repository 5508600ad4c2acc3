//! From the IR to `HloModuleProto`.
//!
//! Fields come in the order of their numbers, as Google's writer puts them, and what was kept on reading returns to its place: the proto
//! of an unmodified module is the one that was read. New computations and instructions get ids in XLA's style: an instruction's
//! is the computation's times 2³² plus a number of its own.

use rustc_hash::{FxHashMap, FxHashSet};

use super::attrs::FrontendAttributes;
use super::codec::{FieldCodec, put_message};
use super::decode::{ID_ZERO, TextAttributes};
use super::header::{self, ProgramShape, TEXT_ONLY, to_messages};
use super::op_write;
use super::shape::ShapeMessage;
use super::wire::{Rest, Value, Writer};
use crate::diag::Diagnostic;
use crate::ir::{
    CompId, Computation, EntityMap, EntryLayout, InstrId, Instruction, Metadata, Module, Op, Sharding, ShardingKind, Statistics,
};

/// Writes a module as `HloModuleProto`.
///
/// # Errors
/// What a proto cannot hold: constants whose data were left out of the text, element types without a number, messages nested too deeply.
pub fn encode(module: &Module) -> Result<Vec<u8>, Vec<Diagnostic>> {
    let mut w = Writer::new(&module.shapes);
    let mut rest = Rest::of(&module.proto.unknown);
    w.payloads = rest.values(22).filter_map(|v| if let Value::Bytes(b) = v { Some(b) } else { None }).collect();
    let order = module.callees_first();
    let e = Encoder { module, ids: Ids::assign(module, &order), fusions: fusions(module), renamed: renamed(module, &order) };
    w.bytes(1, module.name.as_bytes());
    if !rest.take_mark(2) {
        w.bytes(2, module.entry().name.as_bytes());
    }
    for &comp in &order {
        e.computation(comp, &mut w);
    }
    module.proto.id.put(&mut w, 5, &mut rest);
    e.ids.computations[module.entry_id()].put(&mut w, 6, &mut rest);
    if module.is_scheduled {
        e.schedule(&order, &mut w, &mut rest);
    }
    let (parameters, result) = module.entry_shapes();
    header::write(&module.header, &EntryLayout { parameters, result }, &mut w, &mut rest);
    w.merge(0, &rest);
    w.sort(0);
    if w.errors.is_empty() { Ok(w.out) } else { Err(w.errors) }
}

/// Computations that some fusion owns.
fn fusions(module: &Module) -> FxHashSet<CompId> {
    let calls = |id: InstrId| if let Op::Fusion(f) = &module.instr(id).op { Some(f.calls) } else { None };
    module.live().filter_map(|(_, id)| calls(id)).collect()
}

/// New names of instructions whose names an earlier one bears: text scopes names by computation, a proto does not.
fn renamed(module: &Module, order: &[CompId]) -> FxHashMap<InstrId, Box<str>> {
    let live = || order.iter().flat_map(|&c| module.comp(c).order.iter().copied());
    let mut taken = FxHashSet::default();
    let again: Vec<InstrId> = live().filter(|&id| !taken.insert(module.instr(id).name.clone())).collect();
    again.into_iter().map(|id| (id, Module::fresh_name(&module.instr(id).name, &mut taken))).collect()
}

/// The ids of all live computations and instructions.
struct Ids {
    computations: EntityMap<CompId, i64>,
    instructions: EntityMap<InstrId, i64>,
}

fn from_ir_id(id: i64) -> Option<i64> {
    match id {
        0 => None,
        ID_ZERO => Some(0),
        id => Some(id),
    }
}

impl Ids {
    /// Keeps the ids that are there and gives fresh ones to the rest; of two with one id the first keeps it.
    fn assign(module: &Module, order: &[CompId]) -> Self {
        let mut ids = Self { computations: EntityMap::with_default(0), instructions: EntityMap::with_default(0) };
        let kept: Vec<i64> = order.iter().filter_map(|&c| from_ir_id(module.comp(c).proto_id)).collect();
        let mut next = kept.iter().max().map_or(0, |&max| max.saturating_add(1));
        let mut taken = FxHashSet::default();
        for &comp in order {
            let id = from_ir_id(module.comp(comp).proto_id).filter(|&id| taken.insert(id));
            ids.computations[comp] = id.unwrap_or_else(|| {
                next += 1;
                next - 1
            });
        }
        let live = || order.iter().flat_map(|&c| module.comp(c).order.iter().map(move |&i| (c, i)));
        let mut taken = FxHashSet::default();
        let mut fresh = Vec::new();
        for (comp, instr) in live() {
            match from_ir_id(module.instr(instr).proto_id).filter(|&id| taken.insert(id)) {
                Some(id) => ids.instructions[instr] = id,
                None => fresh.push((comp, instr)),
            }
        }
        let mut local = EntityMap::<CompId, i64>::with_default(0);
        for &comp in order {
            let numbers = module.comp(comp).order.iter().filter_map(|&i| from_ir_id(module.instr(i).proto_id));
            local[comp] = numbers.map(|id| (id & 0xffff_ffff) + 1).max().unwrap_or(0);
        }
        for (comp, instr) in fresh {
            let base = ids.computations[comp].wrapping_shl(32);
            let id = loop {
                let id = base.wrapping_add(local[comp]);
                local[comp] += 1;
                if taken.insert(id) {
                    break id;
                }
            };
            ids.instructions[instr] = id;
        }
        ids
    }
}

struct Encoder<'m> {
    module: &'m Module,
    ids: Ids,
    fusions: FxHashSet<CompId>,
    renamed: FxHashMap<InstrId, Box<str>>,
}

impl Encoder<'_> {
    fn schedule(&self, order: &[CompId], w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        let mut wanted = self.module.proto.schedule_order.clone();
        wanted.retain(|c| order.contains(c) || self.fusions.contains(c));
        let mut others: Vec<CompId> = order.iter().copied().filter(|c| !self.fusions.contains(c)).collect();
        let known: FxHashSet<CompId> = wanted.iter().copied().collect();
        others.retain(|c| !known.contains(c));
        others.sort_by_key(|&c| self.ids.computations[c]);
        wanted.extend(others);
        let kept = rest.take(7);
        w.message(7, kept, |w, _| {
            for comp in wanted {
                w.message(1, Rest::default(), |w, _| {
                    w.varint(1, self.ids.computations[comp].cast_unsigned());
                    w.message(2, Rest::default(), |w, _| {
                        let sequence = &self.module.comp(comp).order;
                        w.packed(1, sequence.iter().map(|&i| self.ids.instructions[i].cast_unsigned()));
                    });
                });
            }
        });
    }

    fn computation(&self, id: CompId, w: &mut Writer<'_>) {
        let module = self.module;
        let comp = module.comp(id);
        w.message(3, Rest::of(&comp.unknown), |w, rest| {
            w.bytes(1, comp.name.as_bytes());
            let listing = if comp.proto_listing.len() == comp.order.len() { &comp.proto_listing } else { &comp.order };
            for &instr in listing {
                self.instruction(instr, w);
            }
            put_message(&self.program_shape(comp), w, 4, rest);
            self.ids.computations[id].put(w, 5, rest);
            self.ids.instructions[comp.root].put(w, 6, rest);
            self.fusions.contains(&id).put(w, 7, rest);
            comp.thread.put(w, 8, rest);
            comp.backend_config.put(w, 9, rest);
        });
    }

    fn name(&self, id: InstrId) -> &str {
        self.renamed.get(&id).unwrap_or(&self.module.instr(id).name)
    }

    fn program_shape(&self, comp: &Computation) -> ProgramShape {
        let shape = |&id: &InstrId| ShapeMessage(self.module.instr(id).shape);
        ProgramShape {
            parameters: comp.parameters.iter().map(shape).collect(),
            result: Some(shape(&comp.root)),
            names: comp.parameters.iter().map(|&p| self.name(p).into()).collect(),
        }
    }

    fn instruction(&self, id: InstrId, w: &mut Writer<'_>) {
        let instr = self.module.instr(id);
        let attrs = &*instr.attrs;
        w.message(2, Rest::of(&attrs.unknown), |w, rest| {
            let start = w.out.len();
            w.bytes(1, self.name(id).as_bytes());
            w.bytes(2, instr.op.opcode().as_bytes());
            put_message(&ShapeMessage(instr.shape), w, 3, rest);
            match &attrs.metadata {
                Some(metadata) => put_message(&**metadata, w, 7, rest),
                None => put_message(&Metadata::default(), w, 7, rest),
            }
            self.ids.instructions[id].put(w, 35, rest);
            let ids = |ids: &[InstrId]| ids.iter().map(|&i| self.ids.instructions[i]).collect::<Vec<i64>>();
            ids(&instr.operands).put(w, 36, rest);
            ids(&instr.control_predecessors).put(w, 37, rest);
            self.called(instr, w, rest);
            attrs.backend_config.put(w, 43, rest);
            if let Some(sharding) = &attrs.sharding {
                put_message(&with_reduction_note(sharding), w, 40, rest);
            }
            put_message(&FrontendAttributes(attrs.frontend_attributes.clone()), w, 68, rest);
            match &attrs.statistics {
                Some(statistics) => put_message(&**statistics, w, 82, rest),
                None => put_message(&Statistics::default(), w, 82, rest),
            }
            attrs.origin.put(w, 88, rest);
            attrs.result_accuracy.put(w, 91, rest);
            let mut unknown = op_write::op(self.module, instr, w, rest);
            unknown.extend(attrs.unknown_text.iter().cloned());
            let opaque = if let Op::Opaque(op) = &instr.op { to_messages(&op.attributes) } else { Vec::new() };
            if !unknown.is_empty() || !opaque.is_empty() {
                put_message(&TextAttributes { unknown: to_messages(&unknown), opaque }, w, TEXT_ONLY, rest);
            }
            w.sort(start);
        });
    }

    fn called(&self, instr: &Instruction, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        let chained = matches!(instr.op, Op::AsyncUpdate(_) | Op::AsyncDone(_));
        // Older versions say the wrapped computation again along the chain.
        if !chained || rest.take_mark(38) {
            let called: Vec<i64> = instr.op.called().iter().map(|&c| self.ids.computations[c]).collect();
            called.put(w, 38, rest);
        }
    }
}

/// The inverse of `drop_reduction_note`.
fn with_reduction_note(sharding: &Sharding) -> Sharding {
    let mut sharding = sharding.clone();
    let note = Metadata { op_type: "sdy::reduction_op".into(), op_name: "SUM".into(), ..Metadata::default() };
    let mut all = vec![&mut sharding];
    while let Some(s) = all.pop() {
        let unreduced = s.kind == ShardingKind::Unreduced || s.last_tile_dims.contains(&ShardingKind::Unreduced);
        if unreduced && s.named.is_none() && !s.metadata.iter().any(|md| *md.op_type == *note.op_type) {
            s.metadata.push(note.clone());
        }
        all.extend(&mut s.tuple);
    }
    sharding
}
