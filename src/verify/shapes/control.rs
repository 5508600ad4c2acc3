//! Shape rules of containers, custom calls and random state.

use super::{Node, Rule, Want, attribute, unsuited};
use crate::ir::{CustomCall, Shape};
use crate::verify::cx::{compatible, show};

pub(super) fn get_tuple_element(n: &Node<'_>, index: i64) -> Rule {
    let id = n.shape(0);
    let Shape::Tuple(elements) = n.module.shapes.get(id) else {
        return unsuited(format!("expected a tuple, found `{}`", show(&n.module.shapes, id)));
    };
    match usize::try_from(index).ok().and_then(|i| elements.get(i)) {
        Some(&element) => Ok(Want::Like(element)),
        None => attribute(format!("expected an index below {}, found {index}", elements.len())),
    }
}

/// Any shape; what it says of operand layouts and of aliasing must be about what there is.
pub(super) fn custom_call(n: &Node<'_>, call: &CustomCall) -> Rule {
    let shapes = &n.module.shapes;
    if let Some(layouts) = &call.operand_layouts {
        if layouts.len() != n.count() {
            return attribute(format!("expected layouts of {} operands, found {}", n.count(), layouts.len()));
        }
        if let Some(o) = (0..n.count()).find(|&o| !compatible(shapes, layouts[o], n.shape(o))) {
            return attribute(format!(
                "expected a layout of `{}` for operand {o}, found `{}`",
                show(shapes, n.shape(o)),
                show(shapes, layouts[o])
            ));
        }
    }
    for alias in &call.aliasing {
        let output = shapes.at(n.instr.shape, &alias.output);
        let operand = usize::try_from(alias.operand).ok().filter(|&o| o < n.count()).and_then(|o| shapes.at(n.shape(o), &alias.index));
        match (output, operand) {
            (Some(a), Some(b)) if compatible(shapes, a, b) => {}
            _ => return attribute(format!("expected an output and an operand of one shape to alias, found {alias:?}")),
        }
    }
    Ok(Want::Any)
}

/// The new state and the bits, or (older) the bits alone.
pub(super) fn rng_bit_generator(n: &Node<'_>) -> Rule {
    match n.module.shapes.get(n.instr.shape) {
        Shape::Tuple(_) => Ok(Want::Tuple(vec![n.like(0), Want::Any])),
        _ => Ok(Want::Any),
    }
}
