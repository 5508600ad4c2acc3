//! Promises S13–S15, V6: the header agrees with the entry computation.

use rustc_hash::FxHashSet;

use super::callees::parameter;
use super::cx::{Cx, compatible, same_placement};

pub(super) fn check(cx: &mut Cx<'_>) {
    layout(cx);
    aliases(cx);
}

/// S13.
fn layout(cx: &mut Cx<'_>) {
    let m = cx.module;
    let Some(layout) = &m.header.entry_layout else { return };
    let entry = m.entry();
    if layout.parameters.len() != entry.parameters.len() {
        let message = format!(
            "expected {} parameters in the entry layout as `{}` has, found {}",
            entry.parameters.len(),
            entry.name,
            layout.parameters.len()
        );
        cx.error_in("S13", cx.module.entry_id(), message);
        return;
    }
    for (number, (&declared, &parameter)) in layout.parameters.iter().zip(&entry.parameters).enumerate() {
        let found = m.instr(parameter).shape;
        if !compatible(&m.shapes, declared, found) {
            let (declared, found) = (cx.show(declared), cx.show(found));
            cx.error("S13", parameter, format!("expected parameter {number} as in the entry layout, `{declared}`, found `{found}`"));
        }
    }
    let found = m.instr(entry.root).shape;
    if !compatible(&m.shapes, layout.result, found) {
        let (declared, found) = (cx.show(layout.result), cx.show(found));
        cx.error("S13", entry.root, format!("expected the result as in the entry layout, `{declared}`, found `{found}`"));
    }
}

/// S14, S15, V6.
fn aliases(cx: &mut Cx<'_>) {
    let m = cx.module;
    let root = m.entry().root;
    let (mut outputs, mut inputs) = (FxHashSet::default(), FxHashSet::default());
    for alias in &m.header.input_output_alias {
        let say = format!("alias of output {{{}}} with parameter {} {{{}}}", path(&alias.output), alias.parameter, path(&alias.index));
        let Some(output) = m.shapes.at(m.instr(root).shape, &alias.output) else {
            cx.error("S14", root, format!("{say}: there is no such output"));
            continue;
        };
        let Some(parameter) = parameter(cx, alias.parameter) else {
            cx.error("S14", root, format!("{say}: there is no such parameter"));
            continue;
        };
        let Some(input) = m.shapes.at(m.instr(parameter).shape, &alias.index) else {
            cx.error("S14", parameter, format!("{say}: there is no such part of the parameter"));
            continue;
        };
        if !outputs.insert(&alias.output) {
            cx.error("S14", root, format!("{say}: the output is aliased already"));
        } else if !inputs.insert((alias.parameter, &alias.index)) {
            cx.error("S14", parameter, format!("{say}: the parameter is aliased already"));
        } else if !same_placement(&m.shapes, output, input) {
            let (output, input) = (cx.show(output), cx.show(input));
            let d = cx.error_at("V6", root, format!("{say}: expected equal shapes, found `{output}` and `{input}`"));
            let d = d.at(m.instr(parameter).span, "the parameter");
            cx.push(d);
        }
    }
    for (number, index) in &m.header.buffer_donor {
        let say = format!("donation of parameter {number} {{{}}}", path(index));
        match parameter(cx, *number) {
            Some(p) if m.shapes.at(m.instr(p).shape, index).is_none() => cx.error("S15", p, format!("{say}: there is no such part")),
            None => cx.error("S15", root, format!("{say}: there is no such parameter")),
            Some(p) if !inputs.insert((*number, index)) => cx.error("S15", p, format!("{say}: it is aliased or donated already")),
            Some(_) => {}
        }
    }
}

/// An index path, as in the header.
fn path(index: &[i64]) -> String {
    index.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}
