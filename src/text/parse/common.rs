//! Attributes that every opcode may carry: metadata, frontend attributes, statistics, origin.

use super::cursor::Cursor;
use super::errors::{Res, fail};
use super::grammar::{self, Rule, children, read, span_of};
use crate::diag::Span;
use crate::ir::{Metadata, Origin, OriginalArray, Payload, ResultAccuracy, Statistics};

/// Tuples within tuples of an origin.
const ORIGIN_DEPTH: usize = 64;

/// An integer of 32 bits.
pub(super) fn int32(cur: &mut Cursor<'_>) -> Res<i32> {
    cur.blanks();
    let start = cur.at;
    let value = cur.whole_int()?;
    i32::try_from(value).or_else(|_| fail("P015", cur.since(start), format!("expected a 32-bit integer, found {value}")))
}

/// A number, decimal or integer, `nan` included.
pub(super) fn float(cur: &mut Cursor<'_>) -> Res<f64> {
    let node = read(cur, Rule::number)?;
    number(cur.text, &node)
}

/// The value of a `number` node.
fn number(text: &str, node: &grammar::Node<'_>) -> Res<f64> {
    let digits = node.as_str();
    let value: f64 = match digits.parse::<i64>() {
        #[expect(clippy::cast_precision_loss, reason = "XLA reads an integer so where a decimal is expected")]
        Ok(int) => int as f64,
        Err(_) => digits.parse().expect("the rule matches numbers only"),
    };
    if value.is_infinite() { fail("P015", span_of(text, node), "expected a number in the range of a double") } else { Ok(value) }
}

/// A number in the range of a float.
pub(super) fn float32(cur: &mut Cursor<'_>) -> Res<f64> {
    cur.blanks();
    let start = cur.at;
    let value = float(cur)?;
    if value.is_finite() && value.abs() > f64::from(f32::MAX) {
        return fail("P015", cur.since(start), "expected a number in the range of a float");
    }
    Ok(value)
}

/// `{true, false}`.
pub(super) fn braced_bools(cur: &mut Cursor<'_>) -> Res<Vec<bool>> {
    cur.expect(b'{', "`{`")?;
    let mut out = Vec::new();
    if cur.eat(b'}') {
        return Ok(out);
    }
    loop {
        out.push(cur.boolean()?);
        if cur.eat(b'}') {
            return Ok(out);
        }
        cur.expect(b',', "`,` or `}`")?;
    }
}

/// `metadata={…}`: fields with commas or blanks between them.
pub(super) fn metadata(cur: &mut Cursor<'_>) -> Res<Metadata> {
    cur.expect(b'{', "`{`")?;
    let mut out = Metadata::default();
    let mut seen = 0u32;
    loop {
        if cur.eat(b'}') {
            return Ok(out);
        }
        cur.eat(b',');
        cur.blanks();
        let start = cur.at;
        let key = cur.key("a field of metadata or `}`")?;
        let field = match key {
            "op_name" => 0,
            "scheduling_name" => 1,
            "stack_frame_id" => 2,
            "op_type" => 3,
            "source_file" => 4,
            "source_line" => 5,
            "source_end_line" => 6,
            "source_column" => 7,
            "source_end_column" => 8,
            "profile_type" => 9,
            "deduplicated_name" => 10,
            "metadata_payload" => 11,
            _ => {
                let known = "op_type, op_name, source_file, source_line, source_end_line, source_column, source_end_column, profile_type, \
                             deduplicated_name, scheduling_name, stack_frame_id, metadata_payload";
                return fail("P021", Span::new(start, cur.at - 1), format!("unexpected metadata field `{key}`"))
                    .map_err(|f| f.note(format!("allowed: {known}")));
            }
        };
        if seen & (1 << field) != 0 {
            return fail("P020", Span::new(start, cur.at - 1), format!("expected each field once, found `{key}` twice"));
        }
        seen |= 1 << field;
        match field {
            0 => out.op_name = cur.text_string()?.into(),
            1 => out.scheduling_name = cur.text_string()?.into(),
            2 => out.stack_frame_id = int32(cur)?,
            3 => out.op_type = cur.text_string()?.into(),
            4 => out.source_file = cur.text_string()?.into(),
            5 => out.source_line = int32(cur)?,
            6 => out.source_end_line = int32(cur)?,
            7 => out.source_column = int32(cur)?,
            8 => out.source_end_column = int32(cur)?,
            9 => out.profile_type = profile_types(cur)?,
            10 => out.deduplicated_name = cur.text_string()?.into(),
            _ => out.payload = Some(Payload { value: cur.string()?.into(), id: 0 }),
        }
    }
}

fn profile_types(cur: &mut Cursor<'_>) -> Res<Vec<i32>> {
    cur.blanks();
    let start = cur.at;
    let numbers = cur.ints()?;
    let known = |&n: &i64| if (0..=3).contains(&n) { i32::try_from(n).ok() } else { None };
    let out: Option<Vec<i32>> = numbers.iter().map(known).collect();
    out.map_or_else(|| fail("P026", cur.since(start), "expected profile types from 0 to 3"), Ok)
}

/// `frontend_attributes={a="b",c={json}}`, sorted by key; the last of equal keys wins.
pub(super) fn frontend_attributes(cur: &mut Cursor<'_>) -> Res<Vec<(Box<str>, Box<str>)>> {
    cur.expect(b'{', "`{`")?;
    let mut out: Vec<(Box<str>, Box<str>)> = Vec::new();
    if cur.eat(b'}') {
        return Ok(out);
    }
    loop {
        let key = cur.key("the name of a frontend attribute")?;
        let value: Box<str> = match cur.peek() {
            b'{' => cur.json()?.into(),
            b'"' | b'\'' => cur.text_string()?.into(),
            _ => return cur.expected("a string or a JSON dictionary"),
        };
        match out.binary_search_by(|(k, _)| (**k).cmp(key)) {
            Ok(at) => out[at].1 = value,
            Err(at) => out.insert(at, (key.into(), value)),
        }
        if cur.eat(b'}') {
            return Ok(out);
        }
        cur.expect(b',', "`,` or `}`")?;
    }
}

/// `statistics={visualizing_index=0,a=1.5}`; `None` where it says nothing.
pub(super) fn statistics(cur: &mut Cursor<'_>) -> Res<Option<Statistics>> {
    let node = read(cur, Rule::statistics)?;
    let mut out = Statistics::default();
    for (i, statistic) in children(&node, Rule::statistic).enumerate() {
        let span = span_of(cur.text, &statistic);
        let mut parts = statistic.into_inner();
        let (Some(key), Some(value)) = (parts.next(), parts.next()) else { continue };
        if i == 0 {
            // XLA takes the first for the index, whatever its name.
            match value.as_str().parse() {
                Ok(index) => out.visualizing_index = index,
                Err(_) => return fail("P026", span, "expected `visualizing_index=` with an integer first"),
            }
        } else {
            out.stats.push((grammar::key(&key).into(), number(cur.text, &value)?));
        }
    }
    Ok(if out == Statistics::default() { None } else { Some(out) })
}

/// `origin={…}`: a tree of original arrays in parentheses, or a synthetic call.
pub(super) fn origin(cur: &mut Cursor<'_>) -> Res<Origin> {
    cur.expect(b'{', "`{`")?;
    let mut out = Origin::default();
    if cur.eat(b'}') {
        return Ok(out);
    }
    if cur.peek() == b'[' {
        read(cur, Rule::synthetic)?;
        out.is_synthetic_call = true;
        out.call = Some("".into());
    } else {
        // The index path of what comes next; its length is the depth.
        let mut path: Vec<i64> = Vec::new();
        loop {
            if cur.eat(b'(') {
                if cur.peek() != b')' {
                    // Each leaf keeps its whole path, so an unbounded depth would cost more memory than the text.
                    if path.len() == ORIGIN_DEPTH {
                        return fail("P014", cur.since(cur.at - 1), format!("expected at most {ORIGIN_DEPTH} tuples within each other"));
                    }
                    path.push(0);
                    continue;
                }
                cur.at += 1;
            } else {
                let leaf = original_array(cur)?;
                out.elements.push((path.clone(), leaf));
            }
            while !path.is_empty() && cur.eat(b')') {
                path.pop();
            }
            match path.last_mut() {
                None => break,
                Some(index) => {
                    cur.expect(b',', "`,` or `)`")?;
                    *index += 1;
                }
            }
        }
        if cur.eat(b',') {
            cur.expect(b'[', "`[` and the name of a call")?;
            let name: Box<str> = cur.text_string()?.into();
            cur.expect(b']', "`]`")?;
            out.is_synthetic_call = out.elements.is_empty() && name.is_empty();
            out.call = Some(name);
        }
    }
    cur.expect(b'}', "`}`")?;
    Ok(out)
}

/// `{}` or `{"name" {0,1}}`.
pub(super) fn original_array(cur: &mut Cursor<'_>) -> Res<Option<OriginalArray>> {
    cur.expect(b'{', "`{` or `(`")?;
    if cur.eat(b'}') {
        return Ok(None);
    }
    let instruction = cur.text_string()?.into();
    let index = if cur.peek() == b'{' { cur.ints()? } else { Vec::new() };
    cur.expect(b'}', "`}`")?;
    Ok(Some(OriginalArray { instruction, index }))
}

/// `result_accuracy={…}`.
pub(super) fn result_accuracy(cur: &mut Cursor<'_>) -> Res<ResultAccuracy> {
    let node = read(cur, Rule::accuracy)?;
    let text = cur.text;
    let Some(kind) = node.into_inner().next() else { return cur.expected("an accuracy") };
    if kind.as_rule() == Rule::accuracy_mode {
        return match kind.as_str() {
            "default" => Ok(ResultAccuracy::Default),
            "highest" => Ok(ResultAccuracy::Highest),
            other => fail("P026", span_of(text, &kind), format!("expected `default` or `highest`, found `{other}`")),
        };
    }
    let (mut atol, mut rtol, mut ulps) = (0.0, 0.0, 0.0);
    for field in children(&kind, Rule::tolerance_field) {
        let span = span_of(text, &field);
        let mut parts = field.into_inner();
        let (Some(key), Some(value)) = (parts.next(), parts.next()) else { continue };
        let number = number(text, &value)?;
        if number < 0.0 || number.is_nan() {
            return fail("P026", span, "expected a tolerance that is not negative");
        }
        match grammar::key(&key) {
            "atol" => atol = number,
            "rtol" => rtol = number,
            "ulps" => ulps = number,
            other => return fail("P026", span, format!("expected `atol`, `rtol` or `ulps`, found `{other}`")),
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "XLA drops the fraction of ulps; the cast saturates")]
    Ok(ResultAccuracy::Tolerance { atol, rtol, ulps: ulps as i64 })
}
