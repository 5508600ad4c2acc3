//! Shapes in HLO text. Shapes may nest deeply, so nothing here recurses.

use std::fmt::Write as _;

use crate::ir::{ArrayShape, Dim, Layout, Shape, ShapeId, ShapeTable};

/// What is left to be printed.
enum Work<'a> {
    Shape(ShapeId),
    Layout(&'a Layout),
    Text(&'static str),
    Index(usize),
}

/// Prints a shape.
pub(super) fn shape(out: &mut String, shapes: &ShapeTable, id: ShapeId, layouts: bool) {
    let mut stack = vec![Work::Shape(id)];
    while let Some(work) = stack.pop() {
        match work {
            Work::Text(text) => out.push_str(text),
            Work::Index(i) => write!(out, "/*index={i}*/").expect("a string takes all"),
            Work::Layout(layout) => put_layout(out, layout, &mut stack),
            Work::Shape(id) => match shapes.get(id) {
                Shape::Array(array) => {
                    put_array(out, array);
                    if let (true, Some(layout)) = (layouts, &array.layout) {
                        stack.push(Work::Layout(layout));
                    }
                }
                Shape::Token => out.push_str("token[]"),
                Shape::Opaque => out.push_str("opaque[]"),
                Shape::Buffer(inner) => {
                    out.push_str("b(");
                    stack.extend([Work::Text(")"), Work::Shape(*inner)]);
                }
                Shape::Tuple(elements) => {
                    out.push('(');
                    stack.push(Work::Text(")"));
                    push_list(&mut stack, elements);
                }
            },
        }
    }
}

/// Pushes shapes with separators, every fifth with its number.
fn push_list(stack: &mut Vec<Work<'_>>, elements: &[ShapeId]) {
    for (i, &element) in elements.iter().enumerate().rev() {
        stack.push(Work::Shape(element));
        if i != 0 && i % 5 == 0 {
            stack.push(Work::Index(i));
        }
        if i != 0 {
            stack.push(Work::Text(", "));
        }
    }
}

/// Prints `{(parameters)->result}`.
pub(super) fn entry_layout(out: &mut String, shapes: &ShapeTable, parameters: &[ShapeId], result: ShapeId) {
    out.push_str("{(");
    for (i, &parameter) in parameters.iter().enumerate() {
        if i != 0 {
            out.push_str(", ");
        }
        if i != 0 && i % 5 == 0 {
            write!(out, "/*index={i}*/").expect("a string takes all");
        }
        shape(out, shapes, parameter, true);
    }
    out.push_str(")->");
    shape(out, shapes, result, true);
    out.push('}');
}

fn put_array(out: &mut String, array: &ArrayShape) {
    out.push_str(array.element.name());
    out.push('[');
    for (i, d) in array.dims.iter().enumerate() {
        if i != 0 {
            out.push(',');
        }
        match *d {
            Dim { size: Dim::UNBOUNDED, .. } => out.push('?'),
            Dim { size, dynamic } => write!(out, "{}{size}", if dynamic { "<=" } else { "" }).expect("a string takes all"),
        }
    }
    out.push(']');
}

fn put_layout<'a>(out: &mut String, l: &'a Layout, stack: &mut Vec<Work<'a>>) {
    let mut props = String::new();
    dim_levels(&mut props, l);
    if !l.tiles.is_empty() {
        props.push('T');
        for tile in &l.tiles {
            let dims: Vec<String> = tile.iter().map(|&d| if d == i64::MIN { "*".into() } else { d.to_string() }).collect();
            write!(props, "({})", dims.join(",")).expect("a string takes all");
        }
    }
    let mut put = |name: &str, value: &dyn std::fmt::Display| write!(props, "{name}({value})").expect("a string takes all");
    if l.tail_padding_alignment_in_elements > 1 {
        put("L", &l.tail_padding_alignment_in_elements);
    }
    for (name, element) in [("#", &l.index_primitive_type), ("*", &l.pointer_primitive_type)] {
        if let Some(element) = element {
            put(name, &element.name());
        }
    }
    for (name, value) in [("E", l.element_size_in_bits), ("S", l.memory_space)] {
        if value != 0 {
            put(name, &value);
        }
    }
    if !l.split_configs.is_empty() {
        props.push_str("SC");
        for split in &l.split_configs {
            let indices: Vec<String> = split.split_indices.iter().map(i64::to_string).collect();
            write!(props, "({}:{})", split.dimension, indices.join(",")).expect("a string takes all");
        }
    }
    let prefix = (l.dynamic_shape_metadata_prefix_bytes != 0).then_some(l.dynamic_shape_metadata_prefix_bytes);
    if l.minor_to_major.is_empty() && props.is_empty() && l.physical_shape.is_none() && prefix.is_none() {
        return;
    }
    let order: Vec<String> = l.minor_to_major.iter().map(i64::to_string).collect();
    write!(out, "{{{}", order.join(",")).expect("a string takes all");
    if !props.is_empty() || l.physical_shape.is_some() || prefix.is_some() {
        write!(out, ":{props}").expect("a string takes all");
    }
    match l.physical_shape {
        // A layout with a physical shape has no prefix: only sparse arrays have the one and only dynamic ones the other.
        Some(physical) => {
            out.push_str("P(");
            stack.extend([Work::Text(")}"), Work::Shape(physical)]);
        }
        None => {
            if let Some(prefix) = prefix {
                write!(out, "M({prefix})").expect("a string takes all");
            }
            out.push('}');
        }
    }
}

/// `D(…)`, where a dimension is not plain.
fn dim_levels(props: &mut String, l: &Layout) {
    if l.dim_level_types.is_empty() {
        return;
    }
    let level = |(i, &ty): (usize, &i32)| {
        let letter = match ty {
            1 => "C",
            2 => "S",
            3 => "H",
            _ => "D",
        };
        let unique = l.dim_unique.get(i).copied().unwrap_or(true);
        let ordered = l.dim_ordered.get(i).copied().unwrap_or(true);
        format!("{letter}{}{}", if unique { "" } else { "+" }, if ordered { "" } else { "~" })
    };
    let levels: Vec<String> = l.dim_level_types.iter().enumerate().map(level).collect();
    write!(props, "D({})", levels.join(",")).expect("a string takes all");
}
