//! Attributes that every opcode may carry, and small lists.

use std::fmt::{Display, Write as _};

use super::print_number::double;
use super::print_quote::{Name, json_or_quoted, quoted};
use super::print_sharding::sharding;
use crate::ir::{CommonAttrs, Metadata, Origin, ResultAccuracy};

/// `{a,b}`.
pub(super) fn braced<T: Display>(items: &[T], separator: &str) -> String {
    format!("{{{}}}", joined(items, separator))
}

/// `a,b`.
pub(super) fn joined<T: Display>(items: &[T], separator: &str) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    items.join(separator)
}

/// `{op_name="…" …}`.
pub(super) fn metadata(out: &mut String, md: &Metadata) {
    out.push('{');
    let start = out.len();
    let blank = |out: &mut String| {
        if out.len() != start {
            out.push(' ');
        }
    };
    let string = |out: &mut String, name: &str, value: &[u8]| {
        if !value.is_empty() {
            blank(out);
            write!(out, "{name}=").expect("a string takes all");
            quoted(out, value);
        }
    };
    let number = |out: &mut String, name: &str, value: i32| {
        if value != 0 {
            blank(out);
            write!(out, "{name}={value}").expect("a string takes all");
        }
    };
    string(out, "op_type", md.op_type.as_bytes());
    string(out, "op_name", md.op_name.as_bytes());
    string(out, "source_file", md.source_file.as_bytes());
    number(out, "source_line", md.source_line);
    number(out, "source_end_line", md.source_end_line);
    number(out, "source_column", md.source_column);
    number(out, "source_end_column", md.source_end_column);
    if !md.profile_type.is_empty() {
        blank(out);
        write!(out, "profile_type={}", braced(&md.profile_type, ",")).expect("a string takes all");
    }
    string(out, "deduplicated_name", md.deduplicated_name.as_bytes());
    string(out, "scheduling_name", md.scheduling_name.as_bytes());
    number(out, "stack_frame_id", md.stack_frame_id);
    if let Some(payload) = &md.payload {
        string(out, "metadata_payload", &payload.value);
    }
    out.push('}');
}

/// Attributes of one instruction and how to print them.
pub(super) struct Item<'a> {
    pub attrs: &'a CommonAttrs,
    pub faithful: bool,
}

/// Prints the attributes in XLA's order, all but `parameter_replication`, which stands with the attributes of the opcode.
pub(super) fn common(out: &mut String, item: &Item<'_>, predecessors: &[Name<'_>]) {
    let attrs = item.attrs;
    if let Some(s) = &attrs.sharding {
        out.push_str(", sharding=");
        sharding(out, s);
    }
    frontend_attributes(out, &attrs.frontend_attributes);
    if !predecessors.is_empty() {
        write!(out, ", control-predecessors={}", braced(predecessors, ", ")).expect("a string takes all");
    }
    if let Some(s) = &attrs.statistics {
        write!(out, ", statistics={{visualizing_index={}", s.visualizing_index).expect("a string takes all");
        for (name, value) in &s.stats {
            write!(out, ",{name}={}", double(*value, item.faithful)).expect("a string takes all");
        }
        out.push('}');
    }
    if let Some(accuracy) = attrs.result_accuracy {
        result_accuracy(out, accuracy, item.faithful);
    }
    if let Some(o) = &attrs.origin {
        out.push_str(", origin={");
        origin(out, o);
        out.push('}');
    }
    for (name, value) in &attrs.unknown_text {
        write!(out, ", {name}={value}").expect("a string takes all");
    }
    if let Some(md) = &attrs.metadata {
        let start = out.len();
        out.push_str(", metadata=");
        metadata(out, md);
        if out.ends_with("={}") {
            out.truncate(start);
        }
    }
    if let Some(config) = &attrs.backend_config {
        out.push_str(", backend_config=");
        json_or_quoted(out, config);
    }
}

/// `, frontend_attributes={a="b",c={…}}`.
pub(super) fn frontend_attributes(out: &mut String, attributes: &[(Box<str>, Box<str>)]) {
    for (i, (key, value)) in attributes.iter().enumerate() {
        out.push_str(if i == 0 { ", frontend_attributes={" } else { "," });
        write!(out, "{key}=").expect("a string takes all");
        json_or_quoted(out, value.as_bytes());
    }
    if !attributes.is_empty() {
        out.push('}');
    }
}

fn result_accuracy(out: &mut String, accuracy: ResultAccuracy, faithful: bool) {
    out.push_str(", result_accuracy=");
    match accuracy {
        ResultAccuracy::Default => out.push_str("{mode=default}"),
        ResultAccuracy::Highest => out.push_str("{mode=highest}"),
        ResultAccuracy::Tolerance { atol, rtol, ulps } => {
            let (atol, rtol) = (double(atol, faithful), double(rtol, faithful));
            write!(out, "{{tolerance={{atol={atol},rtol={rtol},ulps={ulps}}}}}").expect("a string takes all");
        }
    }
}

/// Leaves in nested parentheses, as their index paths say.
fn origin(out: &mut String, o: &Origin) {
    if o.is_synthetic_call && o.elements.is_empty() && o.call.as_ref().is_none_or(|c| c.is_empty()) {
        out.push_str(if o.call.is_some() { "(),[\"\"]" } else { "[synthetic_call]" });
        return;
    }
    if o.elements.is_empty() {
        out.push_str("()");
    }
    let mut open = 0;
    let mut last: &[i64] = &[];
    for (i, (path, array)) in o.elements.iter().enumerate() {
        let common = if i == 0 { 0 } else { path.iter().zip(last).take_while(|(a, b)| a == b).count() };
        if i != 0 {
            while open > common + 1 {
                out.push(')');
                open -= 1;
            }
            out.push_str(", ");
        }
        while open < path.len() {
            out.push('(');
            open += 1;
        }
        out.push('{');
        if let Some(array) = array {
            quoted(out, array.instruction.as_bytes());
            if !array.index.is_empty() {
                write!(out, " {{{}}}", joined(&array.index, ",")).expect("a string takes all");
            }
        }
        out.push('}');
        last = path;
    }
    (0..open).for_each(|_| out.push(')'));
    if let Some(call) = &o.call {
        out.push_str(",[");
        quoted(out, call.as_bytes());
        out.push(']');
    }
}
