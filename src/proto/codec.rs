//! Messages and fields as Rust types: one declaration says both how a message is read and how it is written.
//!
//! A field's type says its form on the wire ([`FieldCodec`]): numbers that are 0 and empty strings are left out, lists of numbers are
//! packed, `Option<T>` tells an absent message from an empty one. Messages implement [`Wire`], mostly through [`wire!`].

use super::wire::{Bad, Message, Res, Rest, Writer, bytes_of};
use crate::diag::Diagnostic;
use crate::ir::{ShapeTable, Unknown};

/// What reading carries along.
#[derive(Debug, Default)]
pub(super) struct Cx {
    pub shapes: ShapeTable,
    pub warnings: Vec<Diagnostic>,
    /// Contents of the module's table of metadata payloads.
    pub payloads: Vec<Box<[u8]>>,
}

impl Cx {
    /// Says that fields of a repeated message are lost, which no slot can hold.
    pub fn lost(&mut self, number: u32, rest: &Unknown) {
        if rest.0.is_some() && self.warnings.len() < 100 {
            self.warnings.push(Diagnostic::warning("B011", format!("an unknown field inside of repeated field {number} is lost")));
        }
    }
}

/// A message.
pub(super) trait Wire: Sized {
    /// Takes the fields that it knows.
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self>;
    /// The raw fields that it keeps itself, if it has a place for them.
    fn unknown(&mut self) -> Option<&mut Unknown> {
        None
    }
    /// What it keeps.
    fn kept(&self) -> Rest<'_> {
        Rest::default()
    }
    /// Writes its fields in the order of their numbers.
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>);
}

/// A field of a message.
pub(super) trait FieldCodec: Sized {
    fn pick(m: &mut Message<'_>, number: u32, cx: &mut Cx) -> Res<Self>;
    fn put(&self, w: &mut Writer<'_>, number: u32, rest: &mut Rest<'_>);
}

/// Reads a message and hands what it did not know to its own slot, else to `parent`.
pub(super) fn read_into<T: Wire>(mut m: Message<'_>, number: u32, parent: &mut Message<'_>, cx: &mut Cx) -> Res<T> {
    let mut value = T::read(&mut m, cx)?;
    let rest = m.rest();
    match value.unknown() {
        Some(slot) => *slot = rest,
        None => parent.keep(number, rest.0.as_deref().unwrap_or_default()),
    }
    Ok(value)
}

/// Reads one of several messages: what it did not know goes to its own slot, else it is lost with a warning.
pub(super) fn read_one<T: Wire>(mut m: Message<'_>, number: u32, cx: &mut Cx) -> Res<T> {
    let mut value = T::read(&mut m, cx)?;
    let rest = m.rest();
    match value.unknown() {
        Some(slot) => *slot = rest,
        None => cx.lost(number, &rest),
    }
    Ok(value)
}

/// Writes a message, even an empty one, with what it keeps itself and what its parent kept for it.
pub(super) fn put_message<T: Wire>(value: &T, w: &mut Writer<'_>, number: u32, rest: &mut Rest<'_>) {
    let mut kept = value.kept();
    kept.append(rest.take(number));
    w.message(number, kept, |w, kept| value.write(w, kept));
}

impl<T: Wire> FieldCodec for Option<T> {
    fn pick(m: &mut Message<'_>, number: u32, cx: &mut Cx) -> Res<Self> {
        m.message(number)?.map(|sub| read_into(sub, number, m, cx)).transpose()
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, rest: &mut Rest<'_>) {
        if let Some(value) = self {
            put_message(value, w, number, rest);
        }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        T::read(m, cx).map(Self::new)
    }
    fn unknown(&mut self) -> Option<&mut Unknown> {
        (**self).unknown()
    }
    fn kept(&self) -> Rest<'_> {
        (**self).kept()
    }
    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        (**self).write(w, rest);
    }
}

impl<T: Wire> FieldCodec for Vec<T> {
    fn pick(m: &mut Message<'_>, number: u32, cx: &mut Cx) -> Res<Self> {
        m.messages(number)?.into_iter().map(|sub| read_one(sub, number, cx)).collect()
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        self.iter().for_each(|value| put_message(value, w, number, &mut Rest::default()));
    }
}

impl FieldCodec for i64 {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.varint(number)?.unwrap_or(0).cast_signed())
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if *self != 0 {
            w.varint(number, self.cast_unsigned());
        }
    }
}

/// An `int32` or enum travels as the `int64` of its value.
fn narrow(value: u64) -> i32 {
    (value as u32).cast_signed()
}

fn widen(value: i32) -> u64 {
    i64::from(value).cast_unsigned()
}

impl FieldCodec for i32 {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(narrow(m.varint(number)?.unwrap_or(0)))
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if *self != 0 {
            w.varint(number, widen(*self));
        }
    }
}

impl FieldCodec for Option<i64> {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.varint(number)?.map(u64::cast_signed))
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if let Some(value) = self {
            w.varint(number, value.cast_unsigned());
        }
    }
}

impl FieldCodec for bool {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.varint(number)?.unwrap_or(0) != 0)
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if *self {
            w.varint(number, 1);
        }
    }
}

impl FieldCodec for f64 {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.double(number)?.unwrap_or(0.0))
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if self.to_bits() != 0 {
            w.double(number, *self);
        }
    }
}

impl FieldCodec for f32 {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.float(number)?.unwrap_or(0.0))
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if self.to_bits() != 0 {
            w.float(number, *self);
        }
    }
}

/// UTF-8 text of a field.
pub(super) fn text(bytes: &[u8], number: u32) -> Res<Box<str>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(e) => Err(Bad::new("B002", &bytes[e.valid_up_to()..], format!("expected UTF-8 text in field {number}"))),
    }
}

impl FieldCodec for Box<str> {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        text(m.bytes(number)?.unwrap_or_default(), number)
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if !self.is_empty() {
            w.bytes(number, self.as_bytes());
        }
    }
}

impl FieldCodec for Option<Box<str>> {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        m.bytes(number)?.map(|b| text(b, number)).transpose()
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if let Some(text) = self {
            w.bytes(number, text.as_bytes());
        }
    }
}

impl FieldCodec for Box<[u8]> {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.bytes(number)?.unwrap_or_default().into())
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if !self.is_empty() {
            w.bytes(number, self);
        }
    }
}

impl FieldCodec for Option<Box<[u8]>> {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.bytes(number)?.map(Into::into))
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        if let Some(bytes) = self {
            w.bytes(number, bytes);
        }
    }
}

impl FieldCodec for Vec<Box<str>> {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        m.take_all(number).iter().map(|f| text(bytes_of(f)?, number)).collect()
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        self.iter().for_each(|text| w.bytes(number, text.as_bytes()));
    }
}

impl FieldCodec for Vec<i64> {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.varints(number)?.into_iter().map(u64::cast_signed).collect())
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        w.packed(number, self.iter().map(|v| v.cast_unsigned()));
    }
}

impl FieldCodec for Vec<i32> {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.varints(number)?.into_iter().map(narrow).collect())
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        w.packed(number, self.iter().map(|&v| widen(v)));
    }
}

impl FieldCodec for Vec<bool> {
    fn pick(m: &mut Message<'_>, number: u32, _: &mut Cx) -> Res<Self> {
        Ok(m.varints(number)?.into_iter().map(|v| v != 0).collect())
    }
    fn put(&self, w: &mut Writer<'_>, number: u32, _: &mut Rest<'_>) {
        w.packed(number, self.iter().map(|&v| u64::from(v)));
    }
}

/// Declares a message: fields in the order of their numbers, and the slot for unknown ones if the type has it.
macro_rules! wire {
    ($type:ty { $($number:literal $field:ident),* $(,)? } $(unknown $unknown:ident)?) => {
        impl $crate::proto::codec::Wire for $type {
            fn read(m: &mut $crate::proto::wire::Message<'_>, cx: &mut $crate::proto::codec::Cx) -> $crate::proto::wire::Res<Self> {
                Ok(Self {
                    $($field: $crate::proto::codec::FieldCodec::pick(m, $number, cx)?,)*
                    $($unknown: $crate::ir::Unknown::default(),)?
                })
            }
            $(fn unknown(&mut self) -> Option<&mut $crate::ir::Unknown> {
                Some(&mut self.$unknown)
            }
            fn kept(&self) -> $crate::proto::wire::Rest<'_> {
                $crate::proto::wire::Rest::of(&self.$unknown)
            })?
            fn write(&self, w: &mut $crate::proto::wire::Writer<'_>, rest: &mut $crate::proto::wire::Rest<'_>) {
                $($crate::proto::codec::FieldCodec::put(&self.$field, w, $number, rest);)*
            }
        }
    };
}

pub(super) use wire;
