//! What a module says beside its computations, both ways.
//!
//! `HloModuleProto` cannot say some things that text can: they travel in field [`TEXT_ONLY`], which XLA skips as unknown
//! and drops when it writes the module again.

use super::codec::{Cx, FieldCodec, Wire, put_message, wire};
use super::shape::ShapeMessage;
use super::wire::{Bad, Message, Res, Rest, Writer};
use crate::ir::{AliasEntry, AsRead, EntryLayout, FileLocation, Header, StackFrame, StackFrames};

/// The number of our own field in a module and in an instruction: what only text can say.
pub(super) const TEXT_ONLY: u32 = 0x0FFC;

/// `ProgramShapeProto`.
#[derive(Default)]
pub(super) struct ProgramShape {
    pub parameters: Vec<ShapeMessage>,
    pub result: Option<ShapeMessage>,
    pub names: Vec<Box<str>>,
}

wire!(ProgramShape { 1 parameters, 2 result, 3 names });

impl Wire for AliasEntry {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let (output, parameter, index) = (FieldCodec::pick(m, 1, cx)?, FieldCodec::pick(m, 2, cx)?, FieldCodec::pick(m, 3, cx)?);
        match i32::pick(m, 4, cx)? {
            kind @ 1..=2 => Ok(Self { output, parameter, index, must: kind == 2 }),
            kind => Err(Bad::new("B002", m.place, format!("expected alias kind 1 (may) or 2 (must), found {kind}"))),
        }
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        self.output.put(w, 1, rest);
        self.parameter.put(w, 2, rest);
        self.index.put(w, 3, rest);
        (1 + i32::from(self.must)).put(w, 4, rest);
    }
}

struct Aliases {
    entries: Vec<AliasEntry>,
}

wire!(Aliases { 1 entries });

struct Donors {
    entries: Vec<Donor>,
}

struct Donor {
    parameter: i64,
    index: Vec<i64>,
}

wire!(Donors { 1 entries });
wire!(Donor { 1 parameter, 2 index });

wire!(StackFrames { 1 files, 2 functions, 3 locations, 4 frames } unknown unknown);
wire!(FileLocation { 1 file, 2 function, 3 line, 4 column, 5 end_line, 6 end_column });
wire!(StackFrame { 1 location, 2 parent });

/// What only text can say of a module.
#[derive(Default, PartialEq)]
struct TextOnly {
    replica_count: i64,
    num_partitions: i64,
    alias_passthrough_params: bool,
    allow_to_parameters: Vec<bool>,
    allow_to_output: Vec<bool>,
    attributes: Vec<TextAttribute>,
    origin_recovery_table: Option<Box<str>>,
    debug_attributes: Option<Box<str>>,
}

wire!(TextOnly {
    1 replica_count, 2 num_partitions, 3 alias_passthrough_params, 4 allow_to_parameters, 5 allow_to_output, 6 attributes,
    7 origin_recovery_table, 8 debug_attributes,
});

/// An attribute as text.
#[derive(PartialEq)]
pub(super) struct TextAttribute {
    pub name: Box<str>,
    pub value: Box<str>,
}

wire!(TextAttribute { 1 name, 2 value });

/// Name and value as messages.
pub(super) fn to_messages(attributes: &[(Box<str>, Box<str>)]) -> Vec<TextAttribute> {
    attributes.iter().map(|(name, value)| TextAttribute { name: name.clone(), value: value.clone() }).collect()
}

/// Name and value from messages.
pub(super) fn from_messages(attributes: Vec<TextAttribute>) -> Vec<(Box<str>, Box<str>)> {
    attributes.into_iter().map(|a| (a.name, a.value)).collect()
}

fn raw_fields(m: &mut Message<'_>, number: u32) -> Option<AsRead> {
    let fields = m.take_all(number);
    (!fields.is_empty()).then(|| AsRead::Proto(fields.iter().flat_map(|f| f.raw).copied().collect()))
}

/// Reads the header from the fields of a module.
pub(super) fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Header> {
    let entry_layout = match Option::<ProgramShape>::pick(m, 4, cx)? {
        None => None,
        Some(ProgramShape { parameters, result: Some(result), names }) => {
            if !names.iter().enumerate().all(|(i, name)| **name == *default_name(i)) || names.len() != parameters.len() {
                // Real names stand here in some files; they serve nothing and are kept.
                let mut content = Writer::new(&cx.shapes);
                names.put(&mut content, 3, &mut Rest::default());
                if content.out.is_empty() { m.keep_mark(4) } else { m.keep(4, &content.out) }
            }
            Some(EntryLayout { parameters: parameters.iter().map(|p| p.0).collect(), result: result.0 })
        }
        Some(_) => return Err(Bad::new("B006", m.place, "expected a program shape with a result, found none")),
    };
    let text: TextOnly = Option::pick(m, TEXT_ONLY, cx)?.unwrap_or_default();
    let frontend: Option<super::attrs::FrontendAttributes> = FieldCodec::pick(m, 19, cx)?;
    Ok(Header {
        replica_count: text.replica_count,
        num_partitions: text.num_partitions,
        input_output_alias: Option::<Aliases>::pick(m, 8, cx)?.map(|a| a.entries).unwrap_or_default(),
        buffer_donor: Option::<Donors>::pick(m, 18, cx)?
            .map(|d| d.entries.into_iter().map(|d| (d.parameter, d.index)).collect())
            .unwrap_or_default(),
        alias_passthrough_params: text.alias_passthrough_params,
        entry_layout,
        allow_spmd_propagation_to_parameters: text.allow_to_parameters,
        allow_spmd_propagation_to_output: text.allow_to_output,
        frontend_attributes: frontend.map(|f| f.0).unwrap_or_default(),
        origin_recovery_table: raw_fields(m, 20).or(text.origin_recovery_table.map(AsRead::Text)),
        debug_attributes: raw_fields(m, 24).or(text.debug_attributes.map(AsRead::Text)),
        backend_config: FieldCodec::pick(m, 25, cx)?,
        frames: Option::<StackFrames>::pick(m, 17, cx)?.unwrap_or_default(),
        unknown_text: from_messages(text.attributes),
    })
}

fn default_name(i: usize) -> String {
    format!("p{i}")
}

/// Writes the fields of the header, except for computations, ids and schedule. Fields need not come in order.
pub(super) fn write(header: &Header, layout: &EntryLayout, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
    let names = if rest.has(4) { Vec::new() } else { (0..layout.parameters.len()).map(|i| default_name(i).into()).collect() };
    let parameters = layout.parameters.iter().map(|&p| ShapeMessage(p)).collect();
    put_message(&ProgramShape { parameters, result: Some(ShapeMessage(layout.result)), names }, w, 4, rest);
    put_message(&Aliases { entries: header.input_output_alias.clone() }, w, 8, rest);
    if !header.frames.is_empty() || header.frames.unknown.0.is_some() {
        put_message(&header.frames, w, 17, rest);
    }
    let donors = header.buffer_donor.iter().map(|(parameter, index)| Donor { parameter: *parameter, index: index.clone() });
    put_message(&Donors { entries: donors.collect() }, w, 18, rest);
    put_message(&super::attrs::FrontendAttributes(header.frontend_attributes.clone()), w, 19, rest);
    let mut text = TextOnly {
        replica_count: header.replica_count,
        num_partitions: header.num_partitions,
        alias_passthrough_params: header.alias_passthrough_params,
        allow_to_parameters: header.allow_spmd_propagation_to_parameters.clone(),
        allow_to_output: header.allow_spmd_propagation_to_output.clone(),
        attributes: to_messages(&header.unknown_text),
        ..TextOnly::default()
    };
    for (kept, slot) in
        [(&header.origin_recovery_table, &mut text.origin_recovery_table), (&header.debug_attributes, &mut text.debug_attributes)]
    {
        match kept {
            Some(AsRead::Proto(raw)) => w.out.extend_from_slice(raw),
            Some(AsRead::Text(text)) => *slot = Some(text.clone()),
            None => {}
        }
    }
    header.backend_config.put(w, 25, rest);
    if text != TextOnly::default() {
        put_message(&text, w, TEXT_ONLY, rest);
    }
}
