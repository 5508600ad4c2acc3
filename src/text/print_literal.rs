//! Constants in HLO text.

use super::print_number::float;
use crate::ir::{Literal, LiteralValue, Primitive, Shape, ShapeTable};

/// How constants are printed.
#[derive(Clone, Copy)]
pub(super) struct LiteralStyle {
    /// Exactly.
    pub faithful: bool,
    /// `{...}` for more than ten elements.
    pub elide: bool,
    /// Each array with its shape, as `literal=` of a custom call wants it.
    pub shaped: bool,
}

/// What is left to be printed.
enum Work<'a> {
    Literal(&'a Literal),
    Text(&'static str),
}

/// Prints the value of a literal, without its shape.
pub(super) fn literal(out: &mut String, shapes: &ShapeTable, literal: &Literal, style: LiteralStyle) {
    if style.elide && matches!(literal.value, LiteralValue::Tuple(_)) {
        out.push_str("{...}");
        return;
    }
    let mut stack = vec![Work::Literal(literal)];
    while let Some(work) = stack.pop() {
        match work {
            Work::Text(text) => out.push_str(text),
            Work::Literal(Literal { shape, value: LiteralValue::Elided }) => {
                with_shape(out, shapes, *shape, style);
                out.push_str("{...}");
            }
            Work::Literal(Literal { value: LiteralValue::Token, .. }) => out.push_str("token[]"),
            Work::Literal(Literal { value: LiteralValue::Tuple(parts), .. }) => {
                out.push_str("( ");
                stack.push(Work::Text(" )"));
                for (i, part) in parts.iter().enumerate().rev() {
                    stack.push(Work::Literal(part));
                    if i != 0 {
                        stack.push(Work::Text(", "));
                    }
                }
            }
            Work::Literal(Literal { shape, value: LiteralValue::Dense(data) }) => {
                with_shape(out, shapes, *shape, style);
                if let Shape::Array(array) = shapes.get(*shape)
                    && let Some(p) = array.element.known()
                {
                    let dims: Vec<usize> = array.dims.iter().map(|d| usize::try_from(d.size).unwrap_or(0)).collect();
                    dense(out, p, &dims, data, style);
                }
            }
        }
    }
}

fn with_shape(out: &mut String, shapes: &ShapeTable, id: crate::ir::ShapeId, style: LiteralStyle) {
    if style.shaped {
        super::print_shape::shape(out, shapes, id, true);
        out.push(' ');
    }
}

/// Prints an array in nested braces. Walks the elements in order and not the dimensions, whose number may be large.
fn dense(out: &mut String, p: Primitive, dims: &[usize], data: &[u8], style: LiteralStyle) {
    let count = data.len() / p.literal_bytes();
    if style.elide && count > 10 && !dims.is_empty() {
        out.push_str("{...}");
        return;
    }
    let empty = dims.iter().position(|&d| d == 0);
    let levels = empty.unwrap_or(dims.len());
    let innermost = empty.is_none();
    // Elements below each level; a leaf is an element, or an array without any.
    let mut below = vec![1usize; levels];
    for level in (0..levels.saturating_sub(1)).rev() {
        below[level] = below[level + 1].saturating_mul(dims[level + 1]);
    }
    let leaves = dims[..levels].iter().product::<usize>();
    let tight = |level: usize| dims.len() == 1 || innermost && level + 1 == levels && dims[level] <= 1;
    // The outermost level that begins at a leaf: where an outer one begins, all inner ones do.
    let boundary = |leaf: usize| levels - (0..levels).rev().take_while(|&level| leaf.is_multiple_of(below[level] * dims[level])).count();
    for leaf in 0..leaves {
        let opened = boundary(leaf);
        if leaf != 0 {
            out.push_str(", ");
        }
        (opened..levels).for_each(|level| out.push_str(if tight(level) { "{" } else { "{ " }));
        match empty {
            Some(at) => out.push_str(if at + 1 == dims.len() { "{}" } else { "{  }" }),
            None => element(out, p, &data[leaf * p.literal_bytes()..][..p.literal_bytes()], dims.is_empty(), style),
        }
        let closed = boundary(leaf + 1);
        (closed..levels).rev().for_each(|level| out.push_str(if tight(level) { "}" } else { " }" }));
    }
}

fn element(out: &mut String, p: Primitive, bytes: &[u8], scalar: bool, style: LiteralStyle) {
    let bits = bytes.iter().rev().fold(0u128, |bits, &b| bits << 8 | u128::from(b));
    let low = bits as u64;
    match p {
        Primitive::Pred if scalar => out.push_str(if low == 0 { "false" } else { "true" }),
        Primitive::C64 | Primitive::C128 => {
            let part = if p == Primitive::C64 { Primitive::F32 } else { Primitive::F64 };
            let (re, im) = ((bits & (u128::MAX >> (128 - part.bits()))) as u64, (bits >> part.bits()) as u64);
            out.push('(');
            float(out, part, re, style.faithful);
            out.push_str(", ");
            float(out, part, im, style.faithful);
            out.push(')');
        }
        _ if p.is_float() => float(out, p, low, style.faithful),
        _ if p.is_signed_integer() => {
            let unused = 64 - p.bits();
            out.push_str(&((low << unused).cast_signed() >> unused).to_string());
        }
        _ => out.push_str(&low.to_string()),
    }
}
