//! The line `HloModule name, attributes`.

use super::common;
use super::cursor::Cursor;
use super::errors::{Res, fail};
use super::grammar::{self, Node, Rule, children, read, span_of};
use super::reader::Reader;
use super::{shapes::NoLayout, strings};
use crate::diag::{Diagnostic, Span};
use crate::ir::{AliasEntry, AsRead, EntryLayout};

const KNOWN: &str = "alias_passthrough_params, allow_spmd_sharding_propagation_to_output, allow_spmd_sharding_propagation_to_parameters, \
                     backend_config, buffer_donor, debug_attributes, entry_computation_layout, frontend_attributes, input_output_alias, \
                     is_scheduled, num_partitions, origin_recovery_table, replica_count";

impl<'t> Reader<'t> {
    /// Reads `HloModule name(, attribute=value)*`.
    pub(super) fn header(&mut self, cur: &mut Cursor<'t>) -> Res<()> {
        let head = read(cur, Rule::module_head)?;
        let raw = head.into_inner().last().map_or("", |n| n.as_str());
        let name = raw.strip_prefix('%').or_else(|| raw.strip_suffix(':')).unwrap_or(raw);
        if raw == name && strings::is_reserved(name) {
            let span = Span::new(cur.at - raw.len(), cur.at);
            return fail("P013", span, format!("expected the name of the module, found the reserved word `{name}`"));
        }
        self.module.name = name.into();
        let mut said: Vec<&'t str> = Vec::new();
        while cur.eat(b',') {
            cur.blanks();
            let start = cur.at;
            let key = cur.key("an attribute name")?;
            let span = Span::new(start, cur.at - 1);
            if said.contains(&key) {
                return fail("P020", span, format!("expected each attribute once, found `{key}` twice"));
            }
            said.push(key);
            self.header_attribute(cur, key, span)?;
        }
        Ok(())
    }

    fn header_attribute(&mut self, cur: &mut Cursor<'t>, key: &str, span: Span) -> Res<()> {
        match key {
            "is_scheduled" => self.module.is_scheduled = cur.boolean()?,
            "replica_count" => self.module.header.replica_count = cur.whole_int()?,
            "num_partitions" => self.module.header.num_partitions = cur.whole_int()?,
            "alias_passthrough_params" => self.module.header.alias_passthrough_params = cur.boolean()?,
            "input_output_alias" => self.module.header.input_output_alias = aliases(cur)?,
            "buffer_donor" => self.module.header.buffer_donor = donors(cur)?,
            "entry_computation_layout" => self.module.header.entry_layout = Some(self.entry_layout(cur)?),
            "frontend_attributes" => self.module.header.frontend_attributes = common::frontend_attributes(cur)?,
            "allow_spmd_sharding_propagation_to_parameters" => {
                self.module.header.allow_spmd_propagation_to_parameters = bools(cur)?;
            }
            "allow_spmd_sharding_propagation_to_output" => self.module.header.allow_spmd_propagation_to_output = bools(cur)?,
            "backend_config" => {
                let config: Box<[u8]> = cur.string_or_json()?.into();
                self.module.header.backend_config = Some(config).filter(|c| !c.is_empty());
            }
            "origin_recovery_table" => {
                let node = read(cur, Rule::recovery_table)?;
                check_recovery(cur.text, &node)?;
                self.module.header.origin_recovery_table = as_read(&node);
            }
            "debug_attributes" => {
                let node = read(cur, Rule::debug_attributes)?;
                check_debug(cur.text, &node)?;
                self.module.header.debug_attributes = as_read(&node);
            }
            _ => {
                let value = self.unknown_value(cur)?;
                self.module.header.unknown_text.push((key.into(), value.into()));
                let warning = Diagnostic::warning("P023", format!("unknown attribute `{key}` is kept as read"));
                self.errors.warn(warning.at(span, "").note(format!("allowed: {KNOWN}")));
            }
        }
        Ok(())
    }

    /// `{(shapes)->shape}`. An absent layout is the default one, as in XLA's parser.
    fn entry_layout(&mut self, cur: &mut Cursor<'t>) -> Res<EntryLayout> {
        cur.expect(b'{', "`{`")?;
        cur.expect(b'(', "`(` before the shapes of the parameters")?;
        let mut parameters = Vec::new();
        loop {
            if cur.eat(b')') {
                break;
            }
            parameters.push(self.shape_with(cur, NoLayout::Default)?);
            if cur.peek() != b')' {
                cur.expect(b',', "`,` or `)`")?;
            }
        }
        cur.blanks();
        if !cur.rest().starts_with("->") {
            return cur.expected("`->`");
        }
        cur.at += 2;
        let result = self.shape_with(cur, NoLayout::Default)?;
        cur.expect(b'}', "`}`")?;
        Ok(EntryLayout { parameters, result })
    }

    /// Aliased outputs must exist.
    pub(super) fn check_aliases(&self) -> Res<()> {
        let (_, result) = self.module.entry_shapes();
        for alias in &self.module.header.input_output_alias {
            if self.module.shapes.at(result, &alias.output).is_none() {
                let path: Vec<String> = alias.output.iter().map(i64::to_string).collect();
                let span = self.module.entry().span;
                let here = Span::new(span.start as usize, span.start as usize + 1);
                return fail("P062", here, format!("expected an output `{{{}}}` for `input_output_alias`, found none", path.join(",")));
            }
        }
        Ok(())
    }
}

fn as_read(node: &Node<'_>) -> Option<AsRead> {
    if node.clone().into_inner().next().is_none() { None } else { Some(AsRead::Text(node.as_str().into())) }
}

fn bools(cur: &mut Cursor<'_>) -> Res<Vec<bool>> {
    if cur.peek() == b'{' { common::braced_bools(cur) } else { cur.boolean().map(|b| vec![b]) }
}

fn aliases(cur: &mut Cursor<'_>) -> Res<Vec<AliasEntry>> {
    let node = read(cur, Rule::aliases)?;
    let text = cur.text;
    let mut out = Vec::new();
    for alias in node.into_inner() {
        let mut inner = alias.into_inner();
        let (Some(output), Some(parameter), Some(index)) = (inner.next(), inner.next(), inner.next()) else { continue };
        let must = match inner.next() {
            None => false,
            Some(kind) => match kind.as_str() {
                "may-alias" => false,
                "must-alias" => true,
                other => return fail("P026", span_of(text, &kind), format!("expected `may-alias` or `must-alias`, found `{other}`")),
            },
        };
        out.push(AliasEntry {
            output: grammar::ints(text, output)?,
            parameter: grammar::int(text, &parameter)?,
            index: grammar::ints(text, index)?,
            must,
        });
    }
    Ok(out)
}

fn donors(cur: &mut Cursor<'_>) -> Res<Vec<(i64, Vec<i64>)>> {
    let node = read(cur, Rule::donors)?;
    let text = cur.text;
    let donor = |donor: Node<'_>| {
        let mut inner = donor.into_inner();
        let parameter = inner.next().map_or(Ok(0), |n| grammar::int(text, &n))?;
        let index = inner.next().map_or_else(|| Ok(Vec::new()), |n| grammar::ints(text, n))?;
        Ok((parameter, index))
    };
    node.into_inner().map(donor).collect()
}

fn check_debug(text: &str, node: &Node<'_>) -> Res<()> {
    for entry in node.clone().into_inner() {
        for record in children(&entry, Rule::debug_record) {
            for field in record.into_inner() {
                let span = span_of(text, &field);
                let mut inner = field.into_inner();
                let (Some(key), Some(value)) = (inner.next(), inner.next()) else { continue };
                let fits = match grammar::key(&key) {
                    "log_mode" => matches!(value.as_str(), "default" | "fusion_debugger"),
                    "callback_id" | "op_id" => value.as_str().parse::<i64>().is_ok(),
                    "partitioned" => matches!(value.as_str(), "true" | "false"),
                    _ => false,
                };
                if !fits {
                    let known = "`log_mode=default`, `log_mode=fusion_debugger`, `callback_id=`, `partitioned=` or `op_id=`";
                    return fail("P026", span, format!("expected {known}"));
                }
            }
        }
    }
    Ok(())
}

/// Each recovery module must read; what it says is kept as read.
fn check_recovery(text: &str, node: &Node<'_>) -> Res<()> {
    for entry in node.clone().into_inner() {
        if let Some(module) = children(&entry, Rule::string).next() {
            let source = grammar::cursor_at(text, &module).string()?;
            if super::parse(&source).is_err() {
                return fail("P026", span_of(text, &module), "expected a module in this string");
            }
        }
    }
    Ok(())
}
