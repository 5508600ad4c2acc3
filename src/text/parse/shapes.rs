//! Shapes: arrays by the grammar, tuples with a stack of our own; one look-up for an array that was read before.

use super::cursor::{Cursor, begins_word, is_word};
use super::errors::{Res, fail};
use super::grammar::{self, Node, Rule, children, int, ints, read, span_of};
use super::reader::Reader;
use crate::diag::{Diagnostic, Span};
use crate::ir::{ArrayShape, Dim, ElementType, Layout, Primitive, Shape, ShapeId, SplitConfig, Unknown};

/// Tuples within tuples. XLA crashes somewhere beyond.
const DEPTH: usize = 4096;

/// Whether an absent layout means the default one or the compiler's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoLayout {
    Default,
    #[expect(dead_code, reason = "the entry layout reads shapes its own way today")]
    Free,
}

/// Whether a shape begins at the cursor: `(`, `type[` or `b(`.
pub(super) fn begins_shape(cur: &mut Cursor<'_>) -> bool {
    let first = cur.peek();
    if first == b'(' {
        return true;
    }
    if !begins_word(first) {
        return false;
    }
    let mut ahead = *cur;
    let word = ahead.word_here();
    let next = ahead.peek();
    next == b'[' || (word == "b" && next == b'(')
}

impl<'t> Reader<'t> {
    /// A shape; arrays without a layout get the default one.
    pub(super) fn shape(&mut self, cur: &mut Cursor<'t>) -> Res<ShapeId> {
        self.shape_with(cur, NoLayout::Default)
    }

    /// A shape.
    pub(super) fn shape_with(&mut self, cur: &mut Cursor<'t>, no_layout: NoLayout) -> Res<ShapeId> {
        if cur.peek() != b'(' {
            return self.leaf_shape(cur, no_layout);
        }
        let start = cur.at;
        let mut stack: Vec<Vec<ShapeId>> = Vec::new();
        loop {
            let mut done = if cur.eat(b'(') {
                stack.push(Vec::new());
                if stack.len() > DEPTH {
                    return fail("P014", Span::new(start, start + 1), format!("expected at most {DEPTH} tuples within each other"));
                }
                if cur.peek() != b')' {
                    continue;
                }
                None
            } else {
                Some(self.leaf_shape(cur, no_layout)?)
            };
            // A shape is complete, or a tuple is empty.
            loop {
                if let Some(shape) = done {
                    match stack.last_mut() {
                        Some(tuple) => tuple.push(shape),
                        None => return Ok(shape),
                    }
                    if cur.eat(b',') {
                        break;
                    }
                }
                cur.expect(b')', "`,` or `)`")?;
                let tuple = stack.pop().expect("a parenthesis was opened");
                done = Some(self.module.shapes.intern(Shape::Tuple(tuple)));
            }
        }
    }

    /// A list of shapes in braces.
    pub(super) fn shape_list(&mut self, cur: &mut Cursor<'t>) -> Res<Vec<ShapeId>> {
        cur.expect(b'{', "`{`")?;
        let mut out = Vec::new();
        if cur.eat(b'}') {
            return Ok(out);
        }
        loop {
            out.push(self.shape(cur)?);
            if cur.eat(b'}') {
                return Ok(out);
            }
            cur.expect(b',', "`,` or `}`")?;
        }
    }

    fn leaf_shape(&mut self, cur: &mut Cursor<'t>, no_layout: NoLayout) -> Res<ShapeId> {
        cur.blanks();
        let start = cur.at;
        let quick = quick_end(cur.text.as_bytes(), start);
        if let Some(end) = quick
            && no_layout == NoLayout::Default
            && let Some(&id) = self.shapes.get(&cur.text[start..end])
        {
            cur.at = end;
            return Ok(id);
        }
        let shape = self.new_leaf(cur, no_layout)?;
        let id = self.module.shapes.intern(shape);
        if let Some(end) = quick
            && no_layout == NoLayout::Default
            && cur.text[start..cur.at].trim_ascii_end().len() == end - start
        {
            // The rule may have taken blanks, looking for a layout.
            cur.at = end;
            self.shapes.insert(&cur.text[start..end], id);
        }
        Ok(id)
    }

    fn new_leaf(&mut self, cur: &mut Cursor<'t>, no_layout: NoLayout) -> Res<Shape> {
        if cur.byte() == b'b' {
            let mut ahead = *cur;
            if ahead.word_here() == "b" && ahead.eat(b'(') {
                return self.buffer(cur, ahead, no_layout);
            }
        }
        if !begins_word(cur.byte()) {
            return cur.expected("a shape");
        }
        let node = read(cur, Rule::array)?;
        self.array(cur.text, node, no_layout)
    }

    fn buffer(&mut self, cur: &mut Cursor<'t>, inside: Cursor<'t>, no_layout: NoLayout) -> Res<Shape> {
        *cur = inside;
        cur.blanks();
        let node = read(cur, Rule::array)?;
        let span = span_of(cur.text, &node);
        let shape = self.array(cur.text, node, no_layout)?;
        if !matches!(shape, Shape::Array(_)) {
            return fail("P026", span, "expected an array in a buffer");
        }
        cur.expect(b')', "`)`")?;
        Ok(Shape::Buffer(self.module.shapes.intern(shape)))
    }

    fn array(&mut self, text: &str, node: Node<'_>, no_layout: NoLayout) -> Res<Shape> {
        let span = span_of(text, &node);
        let mut dims = Vec::new();
        let mut layout = None;
        let mut element = ElementType::from(Primitive::Pred);
        for part in node.into_inner() {
            match part.as_rule() {
                Rule::element => match part.as_str() {
                    name @ ("token" | "opaque") => {
                        let whole = &text[span.start as usize..span.end as usize];
                        if whole.bytes().any(|b| b.is_ascii_digit() || b == b'?' || b == b'{') {
                            return fail("P026", span, format!("expected `{name}[]` without dimensions or layout"));
                        }
                        return Ok(if name == "token" { Shape::Token } else { Shape::Opaque });
                    }
                    name => element = self.element(name, span_of(text, &part))?,
                },
                Rule::dim => dims.push(dim(text, part)?),
                _ => layout = Some(self.layout(text, part)?),
            }
        }
        if let Some(layout) = &layout
            && layout.minor_to_major.len() != dims.len()
            && !layout.minor_to_major.is_empty()
        {
            let message = format!("expected a layout of {} dimensions, found {}", dims.len(), layout.minor_to_major.len());
            return fail("P050", span, message);
        }
        if no_layout == NoLayout::Default && layout.is_none() {
            layout = Some(Layout::default_for(dims.len()));
        }
        Ok(Shape::Array(ArrayShape { element, dims, layout, unknown: Unknown::default() }))
    }

    fn element(&mut self, name: &str, span: Span) -> Res<ElementType> {
        if let Some(primitive) = Primitive::from_name(name) {
            return Ok(primitive.into());
        }
        if !could_be_a_type(name) {
            return fail("P010", span, format!("expected an element type, found `{name}`"));
        }
        self.errors.warn(Diagnostic::warning("P025", format!("unknown element type `{name}` is kept as read")).at(span, ""));
        Ok(ElementType::Unknown(name.into()))
    }

    fn layout(&mut self, text: &str, node: Node<'_>) -> Res<Layout> {
        let mut out = Layout::default();
        for part in node.into_inner() {
            let span = span_of(text, &part);
            let single = |part: Node<'_>| ints(text, part).map(|n| n[0]);
            match part.as_rule() {
                Rule::minor_to_major => out.minor_to_major = ints(text, part)?,
                Rule::levels => {
                    for level in children(&part, Rule::level) {
                        let kind = children(&level, Rule::level_type).next().map_or("D", |n| n.as_str());
                        out.dim_level_types.push(["D", "C", "S", "H"].iter().position(|k| *k == kind).map_or(0, |i| i as i32));
                        out.dim_unique.push(children(&level, Rule::not_unique).next().is_none());
                        out.dim_ordered.push(children(&level, Rule::not_ordered).next().is_none());
                    }
                }
                Rule::tiles => {
                    out.tiles = children(&part, Rule::tile).map(|t| tile(text, &t)).collect::<Res<_>>()?;
                    if out.tiles.is_empty() {
                        out.tiles.push(Vec::new());
                    }
                }
                Rule::tail => {
                    out.tail_padding_alignment_in_elements = single(part)?;
                    if out.tail_padding_alignment_in_elements < 0 {
                        return fail("P050", span, "expected an alignment that is not negative");
                    }
                }
                Rule::index_type | Rule::pointer_type => {
                    let is_index = part.as_rule() == Rule::index_type;
                    let Some(name) = children(&part, Rule::element).next() else { continue };
                    let element = self.element(name.as_str(), span_of(text, &name))?;
                    *(if is_index { &mut out.index_primitive_type } else { &mut out.pointer_primitive_type }) = Some(element);
                }
                Rule::bits => out.element_size_in_bits = single(part)?,
                #[expect(clippy::cast_possible_truncation, reason = "XLA keeps the memory space in 8 bits")]
                Rule::space => out.memory_space = i64::from(single(part)? as i8),
                Rule::splits => {
                    for split in children(&part, Rule::split) {
                        let numbers = ints(text, split)?;
                        out.split_configs.push(SplitConfig { dimension: numbers[0], split_indices: numbers[1..].to_vec() });
                    }
                }
                Rule::prefix => out.dynamic_shape_metadata_prefix_bytes = single(part)?,
                _ => return fail("P050", span, "expected no physical shape: only sparse arrays have one"),
            }
        }
        Ok(out)
    }
}

/// Whether a name looks like those of element types: `s3`, `bf8`, `f4e2m1fn`.
fn could_be_a_type(name: &str) -> bool {
    let letters = name.bytes().take_while(u8::is_ascii_alphabetic).count();
    let digits = name[letters..].bytes().take_while(u8::is_ascii_digit).count();
    let rest = &name[letters + digits..];
    let is_format = rest.starts_with('e') && rest.contains('m') && rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    matches!(&name[..letters], "s" | "u" | "f" | "c" | "bf" | "tf") && (1..=3).contains(&digits) && (rest.is_empty() || is_format)
}

fn dim(text: &str, node: Node<'_>) -> Res<Dim> {
    let span = span_of(text, &node);
    let bounded = children(&node, Rule::at_most).next().is_some();
    match children(&node, Rule::int).next() {
        None => Ok(Dim { size: Dim::UNBOUNDED, dynamic: true }),
        Some(number) => {
            let size = int(text, &number)?;
            if size < 0 {
                return fail("P015", span, format!("expected a dimension that is not negative, found {}", number.as_str()));
            }
            Ok(Dim { size, dynamic: bounded })
        }
    }
}

fn tile(text: &str, node: &Node<'_>) -> Res<Vec<i64>> {
    let size = |n: Node<'_>| {
        if n.as_str() == "*" {
            return Ok(i64::MIN);
        }
        let span = span_of(text, &n);
        match grammar::ints(text, n)?[0] {
            size if size >= 0 => Ok(size),
            size => fail("P050", span, format!("expected a tile size that is not negative, found {size}")),
        }
    };
    children(node, Rule::tile_size).map(size).collect()
}

/// Where an array that is written without blanks ends, by its brackets alone.
#[inline]
fn quick_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while is_word(*bytes.get(at)?) {
        at += 1;
    }
    if bytes[at] != b'[' {
        return None;
    }
    loop {
        at += 1;
        match *bytes.get(at)? {
            b']' => break,
            b'0'..=b'9' | b',' | b'<' | b'=' | b'?' => {}
            _ => return None,
        }
    }
    at += 1;
    if bytes.get(at) != Some(&b'{') || !matches!(*bytes.get(at + 1)?, b'0'..=b'9' | b':' | b'-') {
        // A layout may still follow after blanks; let the grammar look.
        let next = bytes[at..].iter().find(|b| !b.is_ascii_whitespace()).copied();
        return if matches!(next, Some(b'{' | b'/')) { None } else { Some(at) };
    }
    loop {
        at += 1;
        match *bytes.get(at)? {
            b'}' => return Some(at + 1),
            b'{' | b' ' | b'\n' | b'/' => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Shape, usize), ()> {
        let mut reader = Reader::new(text);
        let mut cur = Cursor { text, at: 0 };
        let id = reader.shape(&mut cur).map_err(|_| ())?;
        Ok((reader.module.shapes.get(id).clone(), cur.at))
    }

    #[test]
    fn arrays() {
        for good in [
            "f32[]",
            "f32[2,<=3,?]{2,1,0}",
            "f32 [ 2 ] {0}",
            "s4[8,128]{1,0:T(8,128)(2,*)L(2)#(u32)*(u8)E(4)S(5)SC(0:1,2)(1:)M(8)}",
            "f32[]{:S(5)}",
            "f32[2]{0:D(C+~)}",
            "token[]",
            "b(f32[2]{0})",
            "((), (f32[2], /*index=1*/s32[]))",
        ] {
            assert_eq!(read(good).map(|(_, end)| end), Ok(good.len()), "{good}");
        }
        for bad in [
            "f32",
            "f32[-1]",
            "f32[2]{1,0}",
            "f32[2]{0:S(5)T(2)}",
            "f32[2]{0:T(-2)}",
            "F32[2]",
            "(f32[2],)",
            "token[2]",
            "b(token[])",
            "f32[2]{0:P(f32[2]{0})}",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(read("f32[2]{}").map(|(_, end)| end), Ok(6), "an empty layout is none");
    }

    #[test]
    fn a_layout_that_is_not_said_is_the_default() {
        assert_eq!(read("f32[2,3]").unwrap().0, read("f32[2,3]{1,0}").unwrap().0);
        assert_eq!(read("f32[]").unwrap().0, Shape::Array(ArrayShape::new(Primitive::F32, &[])));
    }

    #[test]
    fn a_deep_nest_is_an_error() {
        let deep = "(".repeat(200_000);
        assert!(read(&deep).is_err());
        let fine = format!("{}f32[]{}", "(".repeat(4000), ")".repeat(4000));
        assert!(read(&fine).is_ok());
    }
}
