//! `LiteralProto`: elements stand in the order of the shape's layout there, and in row-major order in the IR.

use super::codec::{Cx, FieldCodec, Wire, put_message, read_one};
use super::shape::ShapeMessage;
use super::wire::{Bad, Message, Res, Rest, Writer};
use crate::diag::Diagnostic;
use crate::ir::{ArrayShape, Literal, LiteralValue, Primitive, Shape};

/// How a type's elements are written: the field, and the form.
#[derive(Clone, Copy)]
enum Form {
    /// A byte string of little-endian elements.
    Bytes,
    /// Packed numbers of the element's size; two a complex element.
    Fixed(usize),
    /// Packed variable-length numbers, sign-extended to 64 bits where signed.
    Varint,
}

fn form(p: Primitive) -> (u32, Form) {
    use Primitive as P;
    let bytes = |number| (number, Form::Bytes);
    match p {
        P::Pred => (2, Form::Varint),
        P::S32 => (4, Form::Varint),
        P::S64 => (5, Form::Varint),
        P::U32 => (6, Form::Varint),
        P::U64 => (7, Form::Varint),
        P::F32 => (8, Form::Fixed(4)),
        P::F64 => (9, Form::Fixed(8)),
        P::C64 => (12, Form::Fixed(4)),
        P::C128 => (18, Form::Fixed(8)),
        P::U8 => bytes(3),
        P::F16 => bytes(11),
        P::BF16 => bytes(13),
        P::S8 => bytes(15),
        P::U16 => bytes(16),
        P::S16 => bytes(17),
        // The types that came later have their field's number from `PrimitiveType`.
        P::S1 | P::S2 | P::S4 | P::U1 | P::U2 | P::U4 | P::F4E2M1FN | P::F6E2M3FN | P::F6E3M2FN => bytes(p.code().unsigned_abs()),
        P::F8E3M4 | P::F8E4M3 | P::F8E4M3FN | P::F8E4M3B11FNUZ | P::F8E4M3FNUZ | P::F8E5M2 | P::F8E5M2FNUZ | P::F8E8M0FNU => {
            bytes(p.code().unsigned_abs())
        }
    }
}

/// Rows that a constant without elements may have: text says each, though there are no data.
const MAX_EMPTY_ROWS: i64 = 1 << 20;

impl Wire for Literal {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let Some(ShapeMessage(shape)) = FieldCodec::pick(m, 1, cx)? else {
            return Err(Bad::new("B003", m.place, "expected a constant with a shape, found none"));
        };
        let value = match cx.shapes.get(shape).clone() {
            Shape::Array(array) => dense(m, &array)?,
            Shape::Tuple(parts) => {
                let literals: Vec<Self> = m.messages(10)?.into_iter().map(|sub| read_one(sub, 10, cx)).collect::<Res<_>>()?;
                if literals.len() != parts.len() {
                    let message = format!("expected {} constants in a tuple, found {}", parts.len(), literals.len());
                    return Err(Bad::new("B008", m.place, message));
                }
                LiteralValue::Tuple(literals)
            }
            Shape::Token => LiteralValue::Token,
            Shape::Opaque | Shape::Buffer(_) => return Err(Bad::new("B008", m.place, "expected a constant array, tuple or token")),
        };
        Ok(Self { shape, value })
    }

    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        put_message(&ShapeMessage(self.shape), w, 1, rest);
        match (&self.value, w.shapes.get(self.shape)) {
            (LiteralValue::Tuple(parts), _) => parts.iter().for_each(|p| put_message(p, w, 10, &mut Rest::default())),
            (LiteralValue::Dense(data), Shape::Array(array)) => put_dense(data, array, w),
            (LiteralValue::Elided, _) => {
                let remedy = "print the module again with its large constants (`--xla_dump_large_constants`), or convert from its proto";
                w.errors.push(
                    Diagnostic::error("B030", "a proto needs the data of every constant, found `{...}`, which stands for lost data")
                        .note(remedy),
                );
            }
            _ => {}
        }
    }
}

fn dense(m: &mut Message<'_>, array: &ArrayShape) -> Res<LiteralValue> {
    let Some(p) = array.element.known() else {
        return Err(Bad::new("B003", m.place, format!("expected a constant of a known element type, found `{}`", array.element.name())));
    };
    let (number, form) = form(p);
    let size = p.literal_bytes();
    let data = match form {
        Form::Bytes => m.take_all(number).iter().try_fold(Vec::new(), |mut out, f| {
            out.extend_from_slice(super::wire::bytes_of(f)?);
            Res::Ok(out)
        })?,
        Form::Fixed(width) => m.fixed(number, width)?,
        Form::Varint => m.varints(number)?.iter().flat_map(|v| v.to_le_bytes().into_iter().take(size)).collect(),
    };
    let expected = array.elements();
    if expected.checked_mul(size as u64) != Some(data.len() as u64) {
        let message = format!("expected {expected} elements of `{}` in a constant, found {} bytes of {size} each", p.name(), data.len());
        return Err(Bad::new("B008", m.place, message));
    }
    let rows = array.dims.iter().map(|d| d.size).take_while(|&size| size != 0).try_fold(1i64, i64::checked_mul);
    if expected == 0 && rows.is_none_or(|rows| rows > MAX_EMPTY_ROWS) {
        return Err(Bad::new("B008", m.place, format!("expected at most {MAX_EMPTY_ROWS} rows in a constant without elements")));
    }
    let Some(places) = places(array) else {
        return Err(Bad::new("B008", m.place, "expected a constant whose layout orders its dimensions"));
    };
    let data = match places {
        None => data,
        Some(places) => places.iter().flat_map(|&at| &data[at * size..][..size]).copied().collect(),
    };
    Ok(LiteralValue::Dense(data.into()))
}

fn put_dense(data: &[u8], array: &ArrayShape, w: &mut Writer<'_>) {
    // An unknown element type has been reported with its shape.
    let Some(p) = array.element.known() else { return };
    let (number, form) = form(p);
    let size = p.literal_bytes();
    if data.is_empty() {
        return;
    }
    let sorted: Vec<u8>;
    let data = match places(array) {
        Some(Some(places)) if places.len() * size == data.len() => {
            let mut out = vec![0; data.len()];
            for (from, &to) in places.iter().enumerate() {
                out[to * size..][..size].copy_from_slice(&data[from * size..][..size]);
            }
            sorted = out;
            &sorted
        }
        _ => data,
    };
    match form {
        Form::Bytes | Form::Fixed(_) => w.bytes(number, data),
        Form::Varint => {
            let value = |bytes: &[u8]| match (p, bytes) {
                (Primitive::S32, &[a, b, c, d]) => i64::from(i32::from_le_bytes([a, b, c, d])).cast_unsigned(),
                _ => bytes.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b)),
            };
            w.packed(number, data.chunks_exact(size).map(value));
        }
    }
}

/// For each element in row-major order its place in the order of the layout: `Some(None)` if the two orders are one, `None` if the
/// layout is not one of this rank. Costs O(elements).
#[expect(clippy::option_option, reason = "the inner one says that there is nothing to do")]
fn places(array: &ArrayShape) -> Option<Option<Vec<usize>>> {
    let rank = array.dims.len();
    let Some(layout) = &array.layout else { return Some(None) };
    let order: Vec<usize> = layout.minor_to_major.iter().map(|&d| usize::try_from(d).ok()).collect::<Option<_>>()?;
    if order.is_empty() || order.iter().rev().copied().eq(0..rank) {
        return Some(None);
    }
    let sizes: Vec<usize> = array.dims.iter().map(|d| usize::try_from(d.size).ok()).collect::<Option<_>>()?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..rank) {
        return None;
    }
    let mut strides = vec![0; rank];
    let mut stride = 1usize;
    for &d in &order {
        strides[d] = stride;
        stride = stride.checked_mul(sizes[d])?;
    }
    let mut out = Vec::with_capacity(stride);
    let mut index = vec![0; rank];
    let mut at = 0;
    for _ in 0..stride {
        out.push(at);
        for d in (0..rank).rev() {
            index[d] += 1;
            at += strides[d];
            if index[d] < sizes[d] {
                break;
            }
            at -= strides[d] * sizes[d];
            index[d] = 0;
        }
    }
    Some(Some(out))
}
