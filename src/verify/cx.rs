//! What all checks share: the module, who stands where, who uses whom, and the list of complaints.

use std::fmt::Write as _;

use crate::diag::{Code, Diagnostic};
use crate::ir::{ArrayShape, CompId, Dim, Entity, EntityMap, InstrId, Instruction, Module, Shape, ShapeId, ShapeTable};

/// Characters of a shape that are shown at most: a loop's tuple has thousands.
const SHOWN: usize = 120;
/// Nesting of a shape that is shown at most.
const SHOWN_DEPTH: usize = 6;

/// The state of one verification.
pub(super) struct Cx<'m> {
    pub(super) module: &'m Module,
    /// The computation in whose order an instruction stands; filled by `structure`.
    pub(super) home: EntityMap<InstrId, Option<CompId>>,
    out: Vec<Diagnostic>,
}

impl<'m> Cx<'m> {
    pub(super) fn new(module: &'m Module) -> Self {
        Self { module, home: EntityMap::with_default(None), out: Vec::new() }
    }

    /// Whether there is an error already.
    pub(super) fn failed(&self) -> bool {
        self.out.iter().any(Diagnostic::is_error)
    }

    pub(super) fn finish(self) -> Vec<Diagnostic> {
        self.out
    }

    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        if self.out.len() < super::MOST {
            self.out.push(diagnostic);
        }
    }

    /// An error at an instruction. Where the input has no text, a note names the computation.
    pub(super) fn error(&mut self, code: Code, id: InstrId, message: impl Into<String>) {
        let diagnostic = self.error_at(code, id, message);
        self.push(diagnostic);
    }

    /// As [`Cx::error`], to be completed and pushed by the caller.
    pub(super) fn error_at(&self, code: Code, id: InstrId, message: impl Into<String>) -> Diagnostic {
        let instr = self.module.instr(id);
        let diagnostic = Diagnostic::error(code, message).at(instr.span, "");
        match self.home[id] {
            Some(comp) if instr.span.is_none() => diagnostic.note(format!("in computation `{}`", self.module.comp(comp).name)),
            _ => diagnostic,
        }
    }

    /// An error of a whole computation.
    pub(super) fn error_in(&mut self, code: Code, comp: CompId, message: impl Into<String>) {
        let span = self.module.comp(comp).span;
        self.push(Diagnostic::error(code, message).at(span, ""));
    }

    /// An error of the header.
    pub(super) fn error_of_module(&mut self, code: Code, message: impl Into<String>) {
        self.push(Diagnostic::error(code, message));
    }

    pub(super) fn instr(&self, id: InstrId) -> &'m Instruction {
        self.module.instr(id)
    }

    pub(super) fn name(&self, id: InstrId) -> &'m str {
        &self.module.instr(id).name
    }

    pub(super) fn show(&self, id: ShapeId) -> String {
        show(&self.module.shapes, id)
    }
}

/// Users of each instruction in its computation, in program order, an entry an operand.
pub(super) fn users(module: &Module) -> EntityMap<InstrId, Vec<InstrId>> {
    let mut users = EntityMap::<InstrId, Vec<InstrId>>::with_default(Vec::new());
    for (_, id) in module.live() {
        for &operand in &module.instr(id).operands {
            users[operand].push(id);
        }
    }
    users
}

/// A shape as text, clipped.
pub(super) fn show(shapes: &ShapeTable, id: ShapeId) -> String {
    let mut out = String::new();
    show_into(&mut out, shapes, id, 0);
    if let Some((at, _)) = out.char_indices().nth(SHOWN) {
        out.truncate(at);
        out.push('…');
    }
    out
}

fn show_into(out: &mut String, shapes: &ShapeTable, id: ShapeId, depth: usize) {
    if out.len() > SHOWN {
        return;
    }
    if depth > SHOWN_DEPTH {
        out.push('…');
        return;
    }
    match shapes.get(id) {
        Shape::Array(array) => show_array(out, array),
        Shape::Tuple(elements) => {
            out.push('(');
            for (i, &element) in elements.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                show_into(out, shapes, element, depth + 1);
                if out.len() > SHOWN {
                    break;
                }
            }
            out.push(')');
        }
        Shape::Token => out.push_str("token[]"),
        Shape::Opaque => out.push_str("opaque[]"),
        Shape::Buffer(inner) => {
            out.push_str("b(");
            show_into(out, shapes, *inner, depth + 1);
            out.push(')');
        }
    }
}

fn show_array(out: &mut String, array: &ArrayShape) {
    show_dims(out, array.element.name(), array.dims.iter().map(|d| d.size));
    let Some(layout) = &array.layout else { return };
    let default = layout.minor_to_major.iter().rev().enumerate().all(|(i, &d)| i64::try_from(i) == Ok(d));
    if layout.memory_space == 0 && default {
        return;
    }
    let order: Vec<String> = layout.minor_to_major.iter().map(i64::to_string).collect();
    write!(out, "{{{}", order.join(",")).expect("a string takes all");
    if layout.memory_space != 0 {
        write!(out, ":S({})", layout.memory_space).expect("a string takes all");
    }
    out.push('}');
}

/// `f32[2,?]`.
pub(super) fn show_dims(out: &mut String, element: &str, sizes: impl IntoIterator<Item = i64>) {
    let size = |n: i64| if n == Dim::UNBOUNDED { "?".to_owned() } else { n.to_string() };
    let sizes: Vec<String> = sizes.into_iter().map(size).collect();
    write!(out, "{element}[{}]", sizes.join(",")).expect("a string takes all");
}

/// Whether two shapes have equal element types and sizes; an unbounded dimension fits any, layouts and dynamic marks do not matter.
pub(super) fn compatible(shapes: &ShapeTable, a: ShapeId, b: ShapeId) -> bool {
    pairwise(shapes, a, b, |a, b| {
        let fits = |(a, b): (&Dim, &Dim)| a.size == b.size || a.size == Dim::UNBOUNDED || b.size == Dim::UNBOUNDED;
        a.element == b.element && a.dims.len() == b.dims.len() && a.dims.iter().zip(&b.dims).all(fits)
    })
}

/// As [`compatible`], with equal orders of dimensions and memory spaces where both have a layout.
pub(super) fn same_placement(shapes: &ShapeTable, a: ShapeId, b: ShapeId) -> bool {
    compatible(shapes, a, b)
        && pairwise(shapes, a, b, |a, b| match (&a.layout, &b.layout) {
            (Some(a), Some(b)) => a.minor_to_major == b.minor_to_major && a.memory_space == b.memory_space,
            _ => a.memory_space() == b.memory_space(),
        })
}

/// As [`compatible`], with equal memory spaces.
pub(super) fn same_spaces(shapes: &ShapeTable, a: ShapeId, b: ShapeId) -> bool {
    pairwise(shapes, a, b, |a, b| a.memory_space() == b.memory_space())
}

/// Whether two shapes have the same structure and all their arrays fit, without recursion: shapes may nest thousands deep.
fn pairwise(shapes: &ShapeTable, a: ShapeId, b: ShapeId, fits: impl Fn(&ArrayShape, &ArrayShape) -> bool) -> bool {
    let mut stack = vec![(a, b)];
    while let Some((a, b)) = stack.pop() {
        if a == b {
            continue;
        }
        match (shapes.get(a), shapes.get(b)) {
            (Shape::Array(a), Shape::Array(b)) if fits(a, b) => {}
            (Shape::Tuple(a), Shape::Tuple(b)) if a.len() == b.len() => stack.extend(a.iter().copied().zip(b.iter().copied())),
            (Shape::Buffer(a), Shape::Buffer(b)) => stack.push((*a, *b)),
            _ => return false,
        }
    }
    true
}

/// Whether some array of the shape is in that memory space, without recursion.
pub(super) fn touches(shapes: &ShapeTable, id: ShapeId, space: i64) -> bool {
    let mut stack = vec![id];
    while let Some(id) = stack.pop() {
        match shapes.get(id) {
            Shape::Array(array) if array.memory_space() == space => return true,
            Shape::Tuple(elements) => stack.extend(elements),
            Shape::Buffer(inner) => stack.push(*inner),
            Shape::Array(_) | Shape::Token | Shape::Opaque => {}
        }
    }
    false
}

/// Whether a name is of the arena with `len` items.
pub(super) fn inside<K: Entity>(key: K, len: usize) -> bool {
    key.index() < len
}
