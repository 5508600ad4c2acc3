//! From `HloModuleProto` to the IR.
//!
//! As XLA demands, a computation must stand before its callers and an operand before its users; so neither the call graph nor the
//! data flow has a cycle. Cost: linear.

use rustc_hash::FxHashMap;

use super::attrs::FrontendAttributes;
use super::codec::{Cx, FieldCodec};
use super::header;
use super::op_read::{self, OpCx};
use super::shape::ShapeMessage;
use super::wire::{Bad, Message, Res, bytes_of};
use crate::diag::{Diagnostic, Span};
use crate::ir::{CommonAttrs, CompId, Computation, InstrId, Instruction, Metadata, Module, ModuleProto, Op, Shape, Sharding, ShardingKind};

/// Stands in `proto_id` for an id that really is 0, since 0 there means "none".
pub(super) const ID_ZERO: i64 = i64::MIN;

fn to_ir_id(id: i64) -> i64 {
    if id == 0 { ID_ZERO } else { id }
}

/// Reads a serialized `HloModuleProto`. Warnings come with the module; any error means that there is none.
///
/// # Errors
/// The bytes are no such message, or it breaks what XLA demands of one: located by the offset of the byte.
pub fn decode(bytes: &[u8]) -> Result<(Module, Vec<Diagnostic>), Vec<Diagnostic>> {
    decode_part(bytes, bytes)
}

/// Like [`decode`], for a module that is a part of a file: offsets are those in `file`.
///
/// # Errors
/// As [`decode`].
pub fn decode_part(file: &[u8], bytes: &[u8]) -> Result<(Module, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut reader = Reader {
        module: Module::default(),
        computations: FxHashMap::default(),
        cx: Cx::default(),
        schedule: FxHashMap::default(),
        schedule_order: Vec::new(),
    };
    match Message::top(bytes).and_then(|m| reader.module(m)) {
        Ok(()) => {
            reader.module.shapes = reader.cx.shapes;
            Ok((reader.module, reader.cx.warnings))
        }
        Err(bad) => Err(vec![bad.diagnostic(file)]),
    }
}

struct Reader {
    module: Module,
    computations: FxHashMap<i64, CompId>,
    cx: Cx,
    /// Sequences of instruction ids by computation id.
    schedule: FxHashMap<i64, Vec<i64>>,
    /// Its computations as they come.
    schedule_order: Vec<i64>,
}

impl Reader {
    fn module(&mut self, mut m: Message<'_>) -> Res<()> {
        let place = m.place;
        let cx = &mut self.cx;
        self.module.name = FieldCodec::pick(&mut m, 1, cx)?;
        let entry_name: Box<str> = FieldCodec::pick(&mut m, 2, cx)?;
        let entry_id = i64::pick(&mut m, 6, cx)?;
        let computations = m.messages(3)?;
        if computations.is_empty() {
            return Err(Bad::new("B006", place, "expected a module with a computation, found none"));
        }
        let id = FieldCodec::pick(&mut m, 5, cx)?;
        self.read_schedule(&mut m)?;
        // The table is looked at by metadata and stays where it is.
        let payloads = m.take_all(22);
        self.cx.payloads = payloads.iter().map(|f| bytes_of(f).map(Into::into)).collect::<Res<_>>()?;
        for field in &payloads {
            m.give_back(*field);
        }
        self.module.header = header::read(&mut m, &mut self.cx)?;
        for computation in computations {
            self.computation(computation)?;
        }
        let Some(&entry) = self.computations.get(&entry_id) else {
            return Err(Bad::new("B004", place, format!("expected the entry computation {entry_id} among the computations")));
        };
        if *self.module.comp(entry).name != *entry_name && !entry_name.is_empty() {
            let found = &self.module.comp(entry).name;
            return Err(Bad::new("B005", place, format!("expected the entry computation to be called `{entry_name}`, found `{found}`")));
        }
        if entry_name.is_empty() {
            m.keep_mark(2);
        }
        self.module.entry = Some(entry);
        let mut schedule_order = Vec::with_capacity(self.schedule_order.len());
        for id in &self.schedule_order {
            match self.computations.get(id) {
                Some(&comp) => schedule_order.push(comp),
                None => return Err(Bad::new("B004", place, format!("expected a schedule of known computations, found one of {id}"))),
            }
        }
        if self.schedule_order.is_sorted() {
            schedule_order.clear();
        }
        self.module.proto = ModuleProto { id, schedule_order, unknown: m.rest() };
        Ok(())
    }

    fn read_schedule(&mut self, m: &mut Message<'_>) -> Res<()> {
        let Some(mut schedule) = m.message(7)? else { return Ok(()) };
        self.module.is_scheduled = true;
        for mut entry in schedule.messages(1)? {
            let id = i64::pick(&mut entry, 1, &mut self.cx)?;
            let mut sequence = entry.message(2)?;
            let ids = sequence.as_mut().map(|s| Vec::pick(s, 1, &mut self.cx)).transpose()?.unwrap_or_default();
            self.schedule_order.push(id);
            self.schedule.insert(id, ids);
        }
        m.keep(7, schedule.rest().0.as_deref().unwrap_or_default());
        Ok(())
    }

    fn computation(&mut self, mut m: Message<'_>) -> Res<()> {
        let place = m.place;
        let id = i64::pick(&mut m, 5, &mut self.cx)?;
        let mut computation = Computation::new(Box::<str>::pick(&mut m, 1, &mut self.cx)?);
        let root = i64::pick(&mut m, 6, &mut self.cx)?;
        // The program shape repeats what the instructions say, and field 7 who calls; both are written anew.
        m.take_all(4);
        m.take_all(7);
        computation.proto_id = to_ir_id(id);
        let thread: Option<Box<str>> = Option::pick(&mut m, 8, &mut self.cx)?;
        computation.thread = thread.filter(|t| !t.is_empty());
        computation.backend_config = FieldCodec::pick(&mut m, 9, &mut self.cx)?;
        let mut ids = FxHashMap::default();
        let mut listing = Vec::new();
        let mut preds = Vec::new();
        for instruction in m.messages(2)? {
            let instr = self.instruction(instruction, &mut ids, &mut preds)?;
            listing.push(instr);
        }
        let name = computation.name.clone();
        let bad = |code, message: String| Bad::new(code, place, format!("in computation `{name}`: {message}"));
        for (user, pred) in preds {
            let Some(&pred) = ids.get(&pred) else {
                return Err(bad("B004", format!("expected the control predecessor {pred} among its instructions")));
            };
            self.module.instructions[user].control_predecessors.push(pred);
        }
        let Some(&root) = ids.get(&root) else {
            return Err(bad("B004", format!("expected the root {root} among its instructions")));
        };
        computation.root = root;
        computation.parameters = self.parameters(&listing).map_err(|message| bad("B006", message))?;
        match self.schedule.get(&id) {
            None => computation.order = listing,
            Some(sequence) => {
                let order: Vec<InstrId> = sequence.iter().filter_map(|id| ids.get(id).copied()).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                sorted.dedup();
                if sorted.len() != listing.len() || order.len() != listing.len() || sequence.len() != listing.len() {
                    let message =
                        format!("expected a schedule of its {} instructions, each once, found {} ids", listing.len(), sequence.len());
                    return Err(bad("B007", message));
                }
                if order != listing {
                    computation.proto_listing = listing;
                }
                computation.order = order;
            }
        }
        computation.unknown = m.rest();
        let comp = self.module.computations.push(computation);
        self.module.listing.push(comp);
        if self.computations.insert(id, comp).is_some() {
            return Err(Bad::new("B005", place, format!("expected computation ids to differ, found {id} twice")));
        }
        Ok(())
    }

    fn parameters(&self, listing: &[InstrId]) -> Result<Vec<InstrId>, String> {
        let mut found: Vec<(i64, InstrId)> = Vec::new();
        for &id in listing {
            if let Op::Parameter { number } = self.module.instr(id).op {
                found.push((number, id));
            }
        }
        found.sort_unstable();
        for (expected, (number, _)) in (0..).zip(&found) {
            if *number != expected {
                return Err(format!("expected parameter numbers from 0 without gaps, found {number} for {expected}"));
            }
        }
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    fn instruction(&mut self, mut m: Message<'_>, ids: &mut FxHashMap<i64, InstrId>, preds: &mut Vec<(InstrId, i64)>) -> Res<InstrId> {
        let place = m.place;
        let cx = &mut self.cx;
        let name: Box<str> = FieldCodec::pick(&mut m, 1, cx)?;
        let bad = |code, message: String| Bad::new(code, place, format!("in instruction `{name}`: {message}"));
        let opcode: Box<str> = FieldCodec::pick(&mut m, 2, cx)?;
        if opcode.is_empty() {
            return Err(bad("B006", "expected an opcode, found none".into()));
        }
        let Some(ShapeMessage(shape)) = FieldCodec::pick(&mut m, 3, cx)? else {
            return Err(bad("B006", "expected a shape, found none".into()));
        };
        let id = i64::pick(&mut m, 35, cx)?;
        let mut operands = Vec::new();
        for operand in Vec::<i64>::pick(&mut m, 36, cx)? {
            match ids.get(&operand) {
                Some(&operand) => operands.push(operand),
                None => return Err(bad("B004", format!("expected operand {operand} to stand before its user"))),
            }
        }
        let control = Vec::<i64>::pick(&mut m, 37, cx)?;
        let attributes = Option::<TextAttributes>::pick(&mut m, header::TEXT_ONLY, cx)?.unwrap_or_default();
        let mut x = OpCx { cx, computations: &self.computations, instructions: &self.module.instructions, operands: &operands };
        let mut op = op_read::op(&mut m, &opcode, &mut x).map_err(|mut e| {
            e.message = format!("in instruction `{name}`: {}", e.message);
            e
        })?;
        if let Op::Opaque(op) = &mut op {
            op.attributes = header::from_messages(attributes.opaque);
            let warning = Diagnostic::warning("B010", format!("opcode `{opcode}` of instruction `{name}` is not known to this version"));
            self.cx.warnings.push(warning.note("it is kept as it is, never moved and never computed again"));
        }
        if let Op::GetTupleElement { index } = op
            && let Some(&operand) = operands.first()
            && !matches!(self.cx.shapes.get(self.module.instr(operand).shape),
                Shape::Tuple(parts) if usize::try_from(index).is_ok_and(|i| i < parts.len()))
        {
            return Err(bad("B006", format!("expected index {index} to be one of its operand's tuple")));
        }
        let mut attrs = self.attrs(&mut m)?;
        attrs.unknown_text = header::from_messages(attributes.unknown);
        attrs.unknown = m.rest();
        let instr = Instruction {
            name: name.clone(),
            shape,
            op,
            operands: operands.into(),
            control_predecessors: Vec::new(),
            attrs: attrs.into(),
            span: Span::default(),
            proto_id: to_ir_id(id),
        };
        let instr = self.module.define(instr);
        preds.extend(control.into_iter().map(|pred| (instr, pred)));
        if ids.insert(id, instr).is_some() {
            return Err(bad("B005", format!("expected instruction ids to differ, found {id} twice")));
        }
        Ok(instr)
    }

    fn attrs(&mut self, m: &mut Message<'_>) -> Res<CommonAttrs> {
        let cx = &mut self.cx;
        let mut sharding: Option<Box<Sharding>> = FieldCodec::pick(m, 40, cx)?;
        if let Some(sharding) = &mut sharding {
            drop_reduction_note(sharding);
        }
        Ok(CommonAttrs {
            metadata: Option::pick(m, 7, cx)?.filter(|md| *md != Metadata::default()).map(Box::new),
            backend_config: Option::pick(m, 43, cx)?,
            sharding,
            frontend_attributes: Option::<FrontendAttributes>::pick(m, 68, cx)?.map(|f| f.0).unwrap_or_default(),
            statistics: Option::pick(m, 82, cx)?.filter(|s| *s != crate::ir::Statistics::default()).map(Box::new),
            origin: Option::pick(m, 88, cx)?,
            parameter_replication: op_read::parameter_replication(m, cx)?,
            result_accuracy: Option::pick(m, 91, cx)?,
            ..CommonAttrs::default()
        })
    }
}

/// XLA says the reduction of an `unreduced` sharding in a metadata entry, and adds one more each time that it reads its own text. The
/// entry is left out here and written again.
fn drop_reduction_note(sharding: &mut Sharding) {
    let unreduced = sharding.kind == ShardingKind::Unreduced || sharding.last_tile_dims.contains(&ShardingKind::Unreduced);
    if unreduced && sharding.named.is_none() {
        sharding.metadata.retain(|md| !(&*md.op_type == "sdy::reduction_op" && &*md.op_name == "SUM"));
    }
    sharding.tuple.iter_mut().for_each(drop_reduction_note);
}

/// What only text can say of an instruction.
#[derive(Default)]
pub(super) struct TextAttributes {
    pub unknown: Vec<header::TextAttribute>,
    pub opaque: Vec<header::TextAttribute>,
}

super::codec::wire!(TextAttributes { 1 unknown, 2 opaque });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_input_has_no_computation() {
        assert_eq!(decode(&[]).unwrap_err()[0].code, "B006");
    }

    #[test]
    fn ids_of_zero_are_told_from_none() {
        assert_eq!((to_ir_id(0), to_ir_id(7)), (ID_ZERO, 7));
    }
}
