//! The four tables between header and computations: file names, function names, places, stack frames.

use super::cursor::Cursor;
use super::errors::{Res, fail};
use super::grammar::{self, Rule, children, read, span_of};
use super::reader::Reader;
use crate::diag::Span;
use crate::ir::{FileLocation, StackFrame};

impl<'t> Reader<'t> {
    /// Reads the tables, if there are any. Where the first heading stands, all four must, in order.
    pub(super) fn tables(&mut self, cur: &mut Cursor<'t>) -> Res<()> {
        if !heading(cur, "FileNames") {
            return Ok(());
        }
        self.module.header.frames.files = names(cur)?;
        expect_heading(cur, "FunctionNames")?;
        self.module.header.frames.functions = names(cur)?;
        expect_heading(cur, "FileLocations")?;
        while cur.peek().is_ascii_digit() {
            let (row, span) = row(cur)?;
            let [file, function, line, end_line, column, end_column] =
                fields(&row, span, ["file_name_id", "function_name_id", "line", "end_line", "column", "end_column"])?;
            self.module.header.frames.locations.push(FileLocation { file, function, line, end_line, column, end_column });
        }
        expect_heading(cur, "StackFrames")?;
        while cur.peek().is_ascii_digit() {
            let (row, span) = row(cur)?;
            let [location, parent] = fields(&row, span, ["file_location_id", "parent_frame_id"])?;
            // The text counts a frame's caller from 1 for "none".
            let parent = parent.saturating_sub(1);
            self.module.header.frames.frames.push(StackFrame { location, parent });
        }
        self.frames = Some(self.module.header.frames.frames.len());
        Ok(())
    }
}

fn heading(cur: &mut Cursor<'_>, heading: &str) -> bool {
    let mut ahead = *cur;
    let found = ahead.word() == Some(heading);
    if found {
        *cur = ahead;
    }
    found
}

fn expect_heading(cur: &mut Cursor<'_>, name: &str) -> Res<()> {
    if heading(cur, name) { Ok(()) } else { cur.expected(&format!("`{name}`, the next table")) }
}

fn names(cur: &mut Cursor<'_>) -> Res<Vec<Box<str>>> {
    let mut out = Vec::new();
    while cur.peek().is_ascii_digit() {
        cur.whole_int()?;
        out.push(cur.text_string()?.into());
    }
    Ok(out)
}

type Row<'t> = Vec<(&'t str, i64, Span)>;

fn row<'t>(cur: &mut Cursor<'t>) -> Res<(Row<'t>, Span)> {
    let node = read(cur, Rule::place_row)?;
    let text = cur.text;
    let span = span_of(text, &node);
    let mut out = Vec::new();
    for field in children(&node, Rule::place_field) {
        let span = span_of(text, &field);
        let mut inner = field.into_inner();
        let (Some(key), Some(value)) = (inner.next(), inner.next()) else { continue };
        let value = grammar::int(text, &value)?;
        let name = grammar::key(&key);
        let start = name.as_ptr() as usize - text.as_ptr() as usize;
        out.push((&text[start..start + name.len()], value, span));
    }
    Ok((out, span))
}

/// The values of exactly these fields, in this order.
fn fields<const N: usize>(row: &Row<'_>, span: Span, names: [&str; N]) -> Res<[i32; N]> {
    let mut out = [None; N];
    for &(key, value, span) in row {
        let Some(at) = names.iter().position(|n| *n == key) else {
            return fail("P021", span, format!("unexpected field `{key}`: expected {}", names.join(", ")));
        };
        let Ok(value) = i32::try_from(value) else {
            return fail("P015", span, format!("expected a 32-bit integer, found {value}"));
        };
        if out[at].replace(value).is_some() {
            return fail("P020", span, format!("expected each field once, found `{key}` twice"));
        }
    }
    if let Some(at) = out.iter().position(Option::is_none) {
        return fail("P022", span, format!("expected the field `{}` of this row", names[at]));
    }
    Ok(out.map(|v| v.expect("each was checked above")))
}
