//! The protobuf wire format: messages as lists of fields, in the order they stand.
//!
//! A message is read whole into a [`Message`]; whoever understands a field *takes* it, and what nobody took is kept as raw bytes
//! ([`Message::rest`]). Writing is the mirror image: what was kept is merged back by field number ([`Writer::message`]), so that a
//! message of a newer XLA loses nothing. Nesting is bounded by [`MAX_DEPTH`], as in Google's own reader.

use smallvec::SmallVec;

use crate::diag::{Code, Diagnostic};
use crate::ir::{ShapeTable, Unknown};

/// Levels of messages in messages; what `CodedInputStream` allows.
pub(super) const MAX_DEPTH: usize = 100;

/// Trouble at a place of the input, which is remembered by its address: the offset is known only at the top.
#[derive(Debug)]
pub(super) struct Bad {
    pub code: Code,
    pub message: String,
    address: usize,
}

pub(super) type Res<T> = Result<T, Box<Bad>>;

impl Bad {
    /// Trouble at the first byte of `place`, which must be part of the input for the offset to be said.
    pub fn new(code: Code, place: &[u8], message: impl Into<String>) -> Box<Self> {
        Box::new(Self { code, message: message.into(), address: place.as_ptr() as usize })
    }
    /// The diagnostic, with the offset in `input`.
    pub fn diagnostic(&self, input: &[u8]) -> Diagnostic {
        match self.address.checked_sub(input.as_ptr() as usize) {
            Some(offset) if offset <= input.len() => Diagnostic::error(self.code, format!("at byte {offset}: {}", self.message)),
            _ => Diagnostic::error(self.code, self.message.clone()),
        }
    }
}

/// The content of one field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// One field as it stands: `raw` holds tag and content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub number: u32,
    pub value: Value<'a>,
    pub raw: &'a [u8],
}

/// Reads a base-128 number.
pub(super) fn varint(bytes: &mut &[u8]) -> Res<u64> {
    let start = *bytes;
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let Some((&byte, rest)) = bytes.split_first() else {
            return Err(Bad::new("B001", start, "expected a number, found the end of its message"));
        };
        *bytes = rest;
        // The tenth byte holds the last bit; Google's reader drops the others too.
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Bad::new("B001", start, "expected a number of at most 10 bytes"))
}

fn split<'a>(bytes: &mut &'a [u8], n: u64) -> Res<&'a [u8]> {
    match usize::try_from(n).ok().and_then(|n| bytes.split_at_checked(n)) {
        Some((head, tail)) => {
            *bytes = tail;
            Ok(head)
        }
        None => Err(Bad::new("B001", bytes, format!("expected {n} bytes, found {} to the end of the message", bytes.len()))),
    }
}

/// Reads the next field of a message.
pub(super) fn field<'a>(bytes: &mut &'a [u8]) -> Res<Field<'a>> {
    let start = *bytes;
    let key = varint(bytes)?;
    let number = u32::try_from(key >> 3).ok().filter(|n| (1..1 << 29).contains(n));
    let Some(number) = number else {
        return Err(Bad::new("B001", start, format!("expected a field number from 1 to 536870911, found {}", key >> 3)));
    };
    let value = match key & 7 {
        0 => Value::Varint(varint(bytes)?),
        1 => Value::Fixed64(u64::from_le_bytes(split(bytes, 8)?.try_into().expect("split off 8 bytes"))),
        2 => {
            let length = varint(bytes)?;
            Value::Bytes(split(bytes, length)?)
        }
        5 => Value::Fixed32(u32::from_le_bytes(split(bytes, 4)?.try_into().expect("split off 4 bytes"))),
        other => return Err(Bad::new("B001", start, format!("expected wire type 0, 1, 2 or 5, found {other}"))),
    };
    Ok(Field { number, value, raw: &start[..start.len() - bytes.len()] })
}

/// A message: its fields that nobody has taken yet.
#[derive(Debug)]
pub(super) struct Message<'a> {
    fields: SmallVec<[Field<'a>; 8]>,
    kept: Vec<u8>,
    pub place: &'a [u8],
    depth: usize,
}

impl<'a> Message<'a> {
    /// The outermost message.
    pub fn top(bytes: &'a [u8]) -> Res<Self> {
        Self::parse(&[bytes], 0)
    }
    /// Reads a message given in parts: a singular field that stands several times is merged.
    fn parse(parts: &[&'a [u8]], depth: usize) -> Res<Self> {
        let place = parts.first().copied().unwrap_or_default();
        if depth > MAX_DEPTH {
            return Err(Bad::new("B009", place, format!("expected at most {MAX_DEPTH} messages in one another")));
        }
        let mut fields = SmallVec::new();
        for part in parts {
            let mut bytes = *part;
            while !bytes.is_empty() {
                fields.push(field(&mut bytes)?);
            }
        }
        Ok(Self { fields, kept: Vec::new(), place, depth })
    }
    /// Whether a field stands in the message.
    pub fn has(&self, number: u32) -> bool {
        self.fields.iter().any(|f| f.number == number)
    }
    /// Takes the fields of a number, in order.
    pub fn take_all(&mut self, number: u32) -> SmallVec<[Field<'a>; 1]> {
        let mut out = SmallVec::new();
        if self.has(number) {
            self.fields.retain(|f| {
                let ours = f.number == number;
                if ours {
                    out.push(*f);
                }
                !ours
            });
        }
        out
    }
    /// Takes a number; the last wins.
    pub fn varint(&mut self, number: u32) -> Res<Option<u64>> {
        match self.take_all(number).last() {
            None => Ok(None),
            Some(Field { value: Value::Varint(v), .. }) => Ok(Some(*v)),
            Some(f) => Err(wrong_type(f, "a number")),
        }
    }
    /// Takes a byte string; the last wins.
    pub fn bytes(&mut self, number: u32) -> Res<Option<&'a [u8]>> {
        match self.take_all(number).last() {
            None => Ok(None),
            Some(f) => Ok(Some(bytes_of(f)?)),
        }
    }
    /// Takes a message; several are merged.
    pub fn message(&mut self, number: u32) -> Res<Option<Message<'a>>> {
        let fields = self.take_all(number);
        if fields.is_empty() {
            return Ok(None);
        }
        let parts = fields.iter().map(bytes_of).collect::<Res<SmallVec<[&[u8]; 1]>>>()?;
        Self::parse(&parts, self.depth + 1).map(Some)
    }
    /// Takes repeated messages.
    pub fn messages(&mut self, number: u32) -> Res<Vec<Message<'a>>> {
        let depth = self.depth + 1;
        self.take_all(number).iter().map(|f| Self::parse(&[bytes_of(f)?], depth)).collect()
    }
    /// Takes repeated numbers, packed or not.
    pub fn varints(&mut self, number: u32) -> Res<Vec<u64>> {
        let mut out = Vec::new();
        for f in self.take_all(number) {
            match f.value {
                Value::Varint(v) => out.push(v),
                Value::Bytes(mut bytes) => {
                    while !bytes.is_empty() {
                        out.push(varint(&mut bytes)?);
                    }
                }
                _ => return Err(wrong_type(&f, "numbers")),
            }
        }
        Ok(out)
    }
    /// Takes repeated fixed-size numbers of `size` bytes, packed or not, as their bytes.
    pub fn fixed(&mut self, number: u32, size: usize) -> Res<Vec<u8>> {
        let mut out = Vec::new();
        for f in self.take_all(number) {
            match f.value {
                Value::Bytes(bytes) if bytes.len().is_multiple_of(size) => out.extend_from_slice(bytes),
                Value::Fixed32(v) if size == 4 => out.extend_from_slice(&v.to_le_bytes()),
                Value::Fixed64(v) if size == 8 => out.extend_from_slice(&v.to_le_bytes()),
                _ => return Err(wrong_type(&f, &format!("numbers of {size} bytes"))),
            }
        }
        Ok(out)
    }
    /// Takes a double; the last wins.
    pub fn double(&mut self, number: u32) -> Res<Option<f64>> {
        match self.take_all(number).last() {
            None => Ok(None),
            Some(Field { value: Value::Fixed64(v), .. }) => Ok(Some(f64::from_bits(*v))),
            Some(f) => Err(wrong_type(f, "a double")),
        }
    }
    /// Takes a float; the last wins.
    pub fn float(&mut self, number: u32) -> Res<Option<f32>> {
        match self.take_all(number).last() {
            None => Ok(None),
            Some(Field { value: Value::Fixed32(v), .. }) => Ok(Some(f32::from_bits(*v))),
            Some(f) => Err(wrong_type(f, "a float")),
        }
    }
    /// Keeps the content of a singular message that was not understood, to be merged when written.
    pub fn keep(&mut self, number: u32, content: &[u8]) {
        if !content.is_empty() {
            put_bytes(&mut self.kept, number, content);
        }
    }
    /// Keeps a byte string, even an empty one.
    pub fn keep_bytes(&mut self, number: u32, content: &[u8]) {
        put_bytes(&mut self.kept, number, content);
    }
    /// Marks a field that was understood but needs to be known as present when written.
    pub fn keep_mark(&mut self, number: u32) {
        self.keep_bytes(number, &[]);
    }
    /// Returns a field that was only looked at.
    pub fn give_back(&mut self, field: Field<'a>) {
        self.fields.push(field);
    }
    /// What nobody took, as raw fields.
    pub fn rest(mut self) -> Unknown {
        self.take_rest()
    }
    /// Takes what nobody took, as raw fields.
    pub fn take_rest(&mut self) -> Unknown {
        if self.fields.is_empty() && self.kept.is_empty() {
            return Unknown(None);
        }
        let mut out: Vec<u8> = self.fields.drain(..).flat_map(|f| f.raw).copied().collect();
        out.append(&mut self.kept);
        Unknown(Some(out.into()))
    }
}

pub(super) fn bytes_of<'a>(f: &Field<'a>) -> Res<&'a [u8]> {
    match f.value {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(wrong_type(f, "bytes")),
    }
}

fn wrong_type(f: &Field<'_>, expected: &str) -> Box<Bad> {
    let found = match f.value {
        Value::Varint(_) => "a number",
        Value::Fixed64(_) => "8 bytes",
        Value::Bytes(_) => "a byte string",
        Value::Fixed32(_) => "4 bytes",
    };
    Bad::new("B002", f.raw, format!("expected {expected} in field {}, found {found}", f.number))
}

/// Fields kept from reading, on their way back.
#[derive(Debug, Default)]
pub(super) struct Rest<'a>(Vec<Field<'a>>);

impl<'a> Rest<'a> {
    /// The fields of an [`Unknown`].
    pub fn of(unknown: &'a Unknown) -> Self {
        unknown.0.as_deref().map_or_else(Self::default, Self::of_bytes)
    }
    /// The fields in some bytes, as far as they are any.
    pub fn of_bytes(mut bytes: &'a [u8]) -> Self {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            match field(&mut bytes) {
                Ok(f) => out.push(f),
                Err(_) => break,
            }
        }
        Self(out)
    }
    /// Takes the contents of a singular message.
    pub fn take(&mut self, number: u32) -> Self {
        let mut out = Vec::new();
        self.0.retain(|f| {
            let ours = f.number == number;
            if let (true, Value::Bytes(bytes)) = (ours, f.value) {
                out.extend(Self::of_bytes(bytes).0);
            }
            !ours
        });
        Self(out)
    }
    /// The contents of the fields of a number.
    pub fn values(&self, number: u32) -> impl Iterator<Item = Value<'a>> {
        self.0.iter().filter(move |f| f.number == number).map(|f| f.value)
    }
    /// Whether a field of that number was kept.
    pub fn has(&self, number: u32) -> bool {
        self.0.iter().any(|f| f.number == number)
    }
    /// Adds the fields of another.
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }
    /// Whether a field of that number was kept; takes it.
    pub fn take_mark(&mut self, number: u32) -> bool {
        let before = self.0.len();
        self.0.retain(|f| f.number != number);
        before != self.0.len()
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn put_bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// Writes messages.
#[derive(Debug)]
pub(super) struct Writer<'m> {
    pub out: Vec<u8>,
    pub shapes: &'m ShapeTable,
    /// Contents of the module's table of metadata payloads.
    pub payloads: Vec<&'m [u8]>,
    pub errors: Vec<Diagnostic>,
    depth: usize,
}

impl<'m> Writer<'m> {
    pub fn new(shapes: &'m ShapeTable) -> Self {
        Self { out: Vec::new(), shapes, payloads: Vec::new(), errors: Vec::new(), depth: 0 }
    }
    /// A number, even 0.
    pub fn varint(&mut self, number: u32, value: u64) {
        put_varint(&mut self.out, u64::from(number) << 3);
        put_varint(&mut self.out, value);
    }
    /// A byte string, even an empty one.
    pub fn bytes(&mut self, number: u32, content: &[u8]) {
        put_bytes(&mut self.out, number, content);
    }
    /// A double.
    pub fn double(&mut self, number: u32, value: f64) {
        put_varint(&mut self.out, u64::from(number) << 3 | 1);
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
    }
    /// A float.
    pub fn float(&mut self, number: u32, value: f32) {
        put_varint(&mut self.out, u64::from(number) << 3 | 5);
        self.out.extend_from_slice(&value.to_bits().to_le_bytes());
    }
    /// Numbers, packed; nothing for none.
    pub fn packed(&mut self, number: u32, values: impl ExactSizeIterator<Item = u64>) {
        if values.len() > 0 {
            self.message(number, Rest::default(), |w, _| values.for_each(|v| put_varint(&mut w.out, v)));
        }
    }
    /// A message, even an empty one: what `f` writes, with the fields of `rest` merged by their numbers. `f` may take from `rest`.
    pub fn message<'r>(&mut self, number: u32, mut rest: Rest<'r>, f: impl FnOnce(&mut Self, &mut Rest<'r>)) {
        put_varint(&mut self.out, u64::from(number) << 3 | 2);
        let start = self.out.len();
        if self.depth >= MAX_DEPTH {
            if !self.errors.iter().any(|e| e.code == "B009") {
                self.errors.push(Diagnostic::error("B009", format!("a proto holds at most {MAX_DEPTH} messages in one another")));
            }
            self.out.push(0);
            return;
        }
        self.depth += 1;
        f(self, &mut rest);
        self.depth -= 1;
        self.merge(start, &rest);
        let length = self.out.len() - start;
        let mut prefix = Vec::with_capacity(5);
        put_varint(&mut prefix, length as u64);
        self.out.splice(start..start, prefix);
    }
    /// Merges kept fields into the fields written since `start`, by their numbers.
    pub fn merge(&mut self, start: usize, rest: &Rest<'_>) {
        if !rest.0.is_empty() {
            rest.0.iter().for_each(|f| self.out.extend_from_slice(f.raw));
            self.sort(start);
        }
    }
    /// Sorts the fields written since `start` by their numbers, as Google's writer does; those of one number keep their order.
    pub fn sort(&mut self, start: usize) {
        let fields = Rest::of_bytes(&self.out[start..]).0;
        if !fields.is_sorted_by_key(|f| f.number) {
            let mut sorted = fields;
            sorted.sort_by_key(|f| f.number);
            let sorted: Vec<u8> = sorted.iter().flat_map(|f| f.raw).copied().collect();
            self.out.truncate(start);
            self.out.extend_from_slice(&sorted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_fields_return_to_their_places() {
        // 1: 5, 9: "x", 2: 7, 4: { 1: 3 }
        let bytes = [8, 5, 74, 1, b'x', 16, 7, 34, 2, 8, 3];
        let mut m = Message::top(&bytes).unwrap();
        assert_eq!(m.varint(2).unwrap(), Some(7));
        let sub = m.message(4).unwrap().unwrap();
        let inner = sub.rest();
        m.keep(4, inner.0.as_deref().unwrap());
        let unknown = m.rest();
        let shapes = ShapeTable::default();
        let mut w = Writer::new(&shapes);
        let mut rest = Rest::of(&unknown);
        w.varint(2, 7);
        let sub = rest.take(4);
        w.message(4, sub, |w, _| w.varint(2, 1));
        w.merge(0, &rest);
        assert_eq!(w.out, [8, 5, 16, 7, 34, 4, 8, 3, 16, 1, 74, 1, b'x']);
    }

    #[test]
    fn trouble_is_located() {
        let bytes = [8, 5, 18, 200, 1, 0];
        let bad = Message::top(&bytes).unwrap_err().diagnostic(&bytes);
        assert_eq!(bad.message, "at byte 5: expected 200 bytes, found 1 to the end of the message");
        assert_eq!(Message::top(&[8, 0x80]).unwrap_err().code, "B001");
    }
}
