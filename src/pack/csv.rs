//! The table of buffers: a line `id,lower,upper,size` first, then a buffer a line, alive in `lower..upper`; further columns are ignored.

use std::fmt::Write as _;

use crate::diag::{Diagnostic, Span};

use super::Buffer;

/// What a table holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The name of each buffer, as written.
    pub ids: Vec<String>,
    /// The buffers, in order.
    pub buffers: Vec<Buffer>,
}

const COLUMNS: [&str; 4] = ["id", "lower", "upper", "size"];
/// Errors that are told at most.
const ERRORS: usize = 20;
/// All sizes together stay below this, so that no sum of offsets wraps.
const LARGEST: u64 = 1 << 62;

/// Reads a table.
///
/// # Errors
/// `O01` for a line that cannot be read, at most 20.
pub fn parse(text: &str) -> Result<Table, Vec<Diagnostic>> {
    let mut table = Table::default();
    let mut errors = Vec::new();
    let mut columns = None;
    let mut at = 0;
    let mut total = 0u64;
    for line in text.split_inclusive('\n') {
        let (start, row) = (at, line.trim());
        at += line.len();
        if row.is_empty() || errors.len() >= ERRORS {
            continue;
        }
        let span = Span::new(start, start + line.trim_end().len());
        let fields: Vec<&str> = row.split(',').map(str::trim).collect();
        let Some(places) = columns else {
            let places = COLUMNS.map(|name| fields.iter().position(|f| *f == name));
            match places {
                [Some(id), Some(lower), Some(upper), Some(size)] => columns = Some([id, lower, upper, size]),
                _ => return Err(vec![Diagnostic::error("O01", "expected the header `id,lower,upper,size`").at(span, "found this line")]),
            }
            continue;
        };
        match buffer(&fields, places, &mut total) {
            Ok(buffer) => {
                table.ids.push(fields[places[0]].to_string());
                table.buffers.push(buffer);
            }
            Err(said) => errors.push(Diagnostic::error("O01", said).at(span, "")),
        }
    }
    if columns.is_none() {
        errors.push(Diagnostic::error("O01", "expected the header `id,lower,upper,size`, found an empty file"));
    }
    if errors.is_empty() { Ok(table) } else { Err(errors) }
}

fn buffer(fields: &[&str], places: [usize; 4], total: &mut u64) -> Result<Buffer, String> {
    let field =
        |n: usize| fields.get(places[n]).copied().ok_or_else(|| format!("expected {} columns, found {}", places.len(), fields.len()));
    field(0)?;
    let time = |n: usize| {
        let text = field(n)?;
        text.parse().map_err(|_| format!("expected `{}` to be a whole number below 2^32, found `{text}`", COLUMNS[n]))
    };
    let (lower, upper): (u32, u32) = (time(1)?, time(2)?);
    let text = field(3)?;
    let size: u64 = text.parse().map_err(|_| format!("expected `size` to be a whole number, found `{text}`"))?;
    if lower > upper {
        return Err(format!("expected `lower` to be at most `upper`, found {lower} and {upper}"));
    }
    *total = total.saturating_add(size);
    if *total > LARGEST {
        return Err("expected sizes whose sum is at most 2^62".to_string());
    }
    Ok(Buffer { lower, upper, size })
}

/// Writes `id,offset`, a buffer a line.
pub fn write(ids: &[String], offsets: &[u64]) -> String {
    let mut out = String::from("id,offset\n");
    for (id, offset) in ids.iter().zip(offsets) {
        let _ = writeln!(out, "{id},{offset}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read() {
        let table = parse("id,lower,upper,size\r\nb1,0,3,4\n\nb2, 3,9,4\n").expect("it is one");
        assert_eq!(table.ids, ["b1", "b2"]);
        assert_eq!(table.buffers[1], Buffer { lower: 3, upper: 9, size: 4 });
        assert_eq!(write(&table.ids, &[8, 0]), "id,offset\nb1,8\nb2,0\n");
    }

    #[test]
    fn o01_says_what_cannot_be_read() {
        for text in
            ["", "id,lower,upper\n", "id,lower,upper,size\na,1,2\n", "id,lower,upper,size\na,3,2,1\n", "id,lower,upper,size\na,0,1,-1\n"]
        {
            let errors = parse(text).expect_err("it is no table");
            assert_eq!(errors[0].code, "O01");
        }
        let huge = format!("id,lower,upper,size\na,0,1,{0}\nb,0,1,{0}\n", 1u64 << 62);
        assert_eq!(parse(&huge).expect_err("it is too large").len(), 1);
    }
}
