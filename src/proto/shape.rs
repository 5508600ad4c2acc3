//! `ShapeProto` and `LayoutProto`.
//!
//! Two spellings of one thing get one form in the IR, that of the text: `tail_padding_alignment_in_elements` 1 is 0, and
//! `is_dynamic_dimension` is written for every dimension, as XLA does.

use super::codec::{Cx, FieldCodec, Wire, put_message, read_one, wire};
use super::wire::{Bad, Message, Res, Rest, Writer};
use crate::diag::Diagnostic;
use crate::ir::{ArrayShape, Dim, ElementType, Layout, Primitive, Shape, ShapeId, SplitConfig, Unknown};

const TUPLE: i32 = 13;
const OPAQUE: i32 = 14;
const TOKEN: i32 = 17;
const BUFFER: i32 = 34;

/// A shape as a message; it stands in the table of shapes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShapeMessage(pub ShapeId);

/// The name that text would give to the type of a number: unknown ones say the number.
fn element(code: i32) -> ElementType {
    Primitive::from_code(code).map_or_else(|| ElementType::Unknown(format!("primitive_type_{code}").into()), ElementType::Known)
}

fn code(element: &ElementType, w: &mut Writer<'_>) -> i32 {
    match element {
        ElementType::Known(p) => p.code(),
        ElementType::Unknown(name) => name.strip_prefix("primitive_type_").and_then(|n| n.parse().ok()).unwrap_or_else(|| {
            w.errors.push(Diagnostic::error("B031", format!("a proto cannot say the element type `{name}`, whose number is not known")));
            0
        }),
    }
}

impl Wire for ShapeMessage {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        let code = i32::pick(m, 2, cx)?;
        let parts = Vec::<Self>::pick(m, 4, cx)?;
        let dims = Vec::<i64>::pick(m, 3, cx)?;
        let dynamic = Vec::<bool>::pick(m, 6, cx)?;
        let layout = Option::<Layout>::pick(m, 5, cx)?;
        let shape = match code {
            TUPLE => Shape::Tuple(parts.iter().map(|p| p.0).collect()),
            TOKEN => Shape::Token,
            OPAQUE => Shape::Opaque,
            BUFFER => match parts[..] {
                [Self(inner)] => Shape::Buffer(inner),
                _ => return Err(Bad::new("B003", m.place, format!("expected one shape in a buffer, found {}", parts.len()))),
            },
            0 => return Err(Bad::new("B003", m.place, "expected a shape with an element type, found none")),
            _ => {
                let flag = |i: usize| dynamic.get(i).copied().unwrap_or(false);
                if let Some(bad) = dims.iter().find(|&&d| d < 0 && d != Dim::UNBOUNDED) {
                    return Err(Bad::new("B003", m.place, format!("expected dimensions of at least 0, found {bad}")));
                }
                let dims = dims.iter().enumerate().map(|(i, &size)| Dim { size, dynamic: flag(i) }).collect();
                Shape::Array(ArrayShape { element: element(code), dims, layout, unknown: Unknown::default() })
            }
        };
        Ok(Self(match shape {
            Shape::Array(mut array) => {
                // The array is interned with what it keeps, so that is taken here and not left to the caller.
                array.unknown = m.take_rest();
                cx.shapes.intern(Shape::Array(array))
            }
            other => cx.shapes.intern(other),
        }))
    }

    fn write(&self, w: &mut Writer<'_>, rest: &mut Rest<'_>) {
        let (shapes, start) = (w.shapes, w.out.len());
        match shapes.get(self.0) {
            Shape::Array(array) => {
                let mut kept = Rest::of(&array.unknown);
                code(&array.element, w).put(w, 2, rest);
                array.dims.iter().map(|d| d.size).collect::<Vec<_>>().put(w, 3, rest);
                array.layout.put(w, 5, &mut kept);
                array.dims.iter().map(|d| d.dynamic).collect::<Vec<_>>().put(w, 6, rest);
                w.merge(start, &kept);
            }
            Shape::Tuple(parts) => {
                TUPLE.put(w, 2, rest);
                parts.iter().for_each(|&p| put_message(&Self(p), w, 4, &mut Rest::default()));
            }
            Shape::Token => TOKEN.put(w, 2, rest),
            Shape::Opaque => OPAQUE.put(w, 2, rest),
            Shape::Buffer(inner) => {
                BUFFER.put(w, 2, rest);
                put_message(&Self(*inner), w, 4, rest);
            }
        }
    }
}

/// The element type of a sparse layout's arrays.
fn index_type(m: &mut Message<'_>, number: u32) -> Res<Option<ElementType>> {
    Ok(m.varint(number)?.filter(|&v| v != 0).map(|v| element(i32::try_from(v).unwrap_or(i32::MAX))))
}

impl Wire for Layout {
    fn read(m: &mut Message<'_>, cx: &mut Cx) -> Res<Self> {
        Ok(Self {
            minor_to_major: FieldCodec::pick(m, 1, cx)?,
            tiles: m.messages(6)?.into_iter().map(|t| read_one::<Tile>(t, 6, cx).map(|t| t.dims)).collect::<Res<_>>()?,
            element_size_in_bits: FieldCodec::pick(m, 7, cx)?,
            memory_space: FieldCodec::pick(m, 8, cx)?,
            dim_level_types: FieldCodec::pick(m, 9, cx)?,
            physical_shape: Option::<ShapeMessage>::pick(m, 10, cx)?.map(|s| s.0),
            index_primitive_type: index_type(m, 11)?,
            pointer_primitive_type: index_type(m, 12)?,
            dim_unique: FieldCodec::pick(m, 13, cx)?,
            dim_ordered: FieldCodec::pick(m, 14, cx)?,
            dynamic_shape_metadata_prefix_bytes: FieldCodec::pick(m, 15, cx)?,
            tail_padding_alignment_in_elements: Some(i64::pick(m, 16, cx)?).filter(|&n| n != 1).unwrap_or(0),
            split_configs: FieldCodec::pick(m, 17, cx)?,
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
        self.minor_to_major.put(w, 1, rest);
        self.tiles.iter().for_each(|t| put_message(&Tile { dims: t.clone() }, w, 6, &mut Rest::default()));
        self.element_size_in_bits.put(w, 7, rest);
        self.memory_space.put(w, 8, rest);
        self.dim_level_types.put(w, 9, rest);
        self.physical_shape.map(ShapeMessage).put(w, 10, rest);
        for (number, element) in [(11, &self.index_primitive_type), (12, &self.pointer_primitive_type)] {
            if let Some(element) = element {
                code(element, w).put(w, number, rest);
            }
        }
        self.dim_unique.put(w, 13, rest);
        self.dim_ordered.put(w, 14, rest);
        self.dynamic_shape_metadata_prefix_bytes.put(w, 15, rest);
        self.tail_padding_alignment_in_elements.max(1).put(w, 16, rest);
        self.split_configs.put(w, 17, rest);
    }
}

/// `TileProto`.
struct Tile {
    dims: Vec<i64>,
}

wire!(Tile { 1 dims });
wire!(SplitConfig { 1 dimension, 2 split_indices });
