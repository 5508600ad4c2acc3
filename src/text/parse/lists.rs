//! Attribute values that are lists of numbers in some dress: windows, paddings, slices, dimension labels, aliases, precision.

use super::cursor::{Cursor, parse_int};
use super::errors::{Res, fail};
use super::grammar::{self, Node, Rule, children, read, span_of};
use super::words;
use crate::ir::{ConvDims, OutputAlias, PadDim, SliceDim, Sparsity, Window, WindowDim};

/// `{{0,1},{2,3}}`.
pub(super) fn int_lists(cur: &mut Cursor<'_>) -> Res<Vec<Vec<i64>>> {
    let node = read(cur, Rule::int_lists)?;
    node.into_inner().map(|list| grammar::ints(cur.text, list)).collect()
}

/// `{[0:4:1], [0:8]}`.
pub(super) fn slices(cur: &mut Cursor<'_>) -> Res<Vec<SliceDim>> {
    let node = read(cur, Rule::slices)?;
    let mut out = Vec::new();
    for slice in node.into_inner() {
        let span = span_of(cur.text, &slice);
        match *grammar::ints(cur.text, slice)? {
            [start, limit] => out.push(SliceDim { start, limit, stride: 1 }),
            [start, limit, stride] => out.push(SliceDim { start, limit, stride }),
            ref other => {
                let message = format!("expected `[start:limit]` or `[start:limit:step]`, found {} numbers", other.len());
                return fail("P026", span, message);
            }
        }
    }
    Ok(out)
}

/// Numbers that stand between single characters: the parts of `3x3` and `0_0`.
fn parts<'a>(text: &'a str, node: &'a Node<'_>, separator: char) -> impl Iterator<Item = Res<i64>> + 'a {
    let mut at = span_of(text, node).start as usize;
    node.as_str().split(separator).map(move |part| {
        let span = crate::diag::Span::new(at, at + part.len());
        at += part.len() + 1;
        parse_int(part, span)
    })
}

/// `0_0x1_1_2`.
pub(super) fn padding(cur: &mut Cursor<'_>) -> Res<Vec<PadDim>> {
    let node = read(cur, Rule::pad_config)?;
    children(&node, Rule::pad).map(|pad| pad_dim(cur.text, &pad)).collect()
}

fn pad_dim(text: &str, pad: &Node<'_>) -> Res<PadDim> {
    let numbers: Vec<i64> = parts(text, pad, '_').collect::<Res<_>>()?;
    Ok(PadDim { low: numbers[0], high: numbers[1], interior: numbers.get(2).copied().unwrap_or(0) })
}

/// `{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=… rhs_dilate=… rhs_reversal=…}`.
pub(super) fn window(cur: &mut Cursor<'_>) -> Res<Window> {
    let node = read(cur, Rule::window)?;
    let text = cur.text;
    let mut out: Window = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    let fields: Vec<Node<'_>> = node.into_inner().collect();
    let size_first = |f: &&Node<'_>| !f.as_str().starts_with("size=");
    let mut ordered: Vec<&Node<'_>> = fields.iter().collect();
    ordered.sort_by_key(size_first);
    for field in ordered {
        let span = span_of(text, field);
        let mut inner = field.clone().into_inner();
        let (Some(key), Some(value)) = (inner.next(), inner.next()) else { continue };
        let key = grammar::key(&key);
        if seen.contains(&key) {
            return fail("P020", span, format!("expected each field once, found `{key}` twice"));
        }
        seen.push(key);
        if (key == "pad") != (value.as_rule() == Rule::window_pads) {
            let wanted = if key == "pad" { "padding like `1_1x0_0`" } else { "sizes like `3x3`" };
            return fail("P026", span, format!("expected {wanted}"));
        }
        let count = value.as_str().split('x').count();
        if key == "size" {
            out = vec![WindowDim::default(); count];
        } else if count != out.len() {
            return fail("P026", span, format!("expected as many dimensions as in `size=`, which has {}, found {count}", out.len()));
        }
        if key == "pad" {
            for (dim, pad) in out.iter_mut().zip(children(&value, Rule::window_pad)) {
                let pad = pad_dim(text, &pad)?;
                (dim.pad_low, dim.pad_high) = (pad.low, pad.high);
            }
            continue;
        }
        for (dim, number) in out.iter_mut().zip(parts(text, &value, 'x')) {
            let number = number?;
            match key {
                "size" => dim.size = number,
                "stride" => dim.stride = number,
                "lhs_dilate" => dim.base_dilation = number,
                "rhs_dilate" => dim.window_dilation = number,
                "rhs_reversal" => dim.reversal = number == 1,
                _ => return fail("P021", span, format!("unexpected window field `{key}`")),
            }
        }
    }
    Ok(out)
}

/// `b01f_01io->b01f`.
pub(super) fn dim_labels(cur: &mut Cursor<'_>) -> Res<ConvDims> {
    let node = read(cur, Rule::dim_labels)?;
    let span = span_of(cur.text, &node);
    let all = node.as_str();
    let (input, rest) = all.split_once('_').expect("the rule has a `_`");
    let (kernel, output) = rest.split_once("->").expect("the rule has a `->`");
    let sides = [side(input, "bf"), side(kernel, "io"), side(output, "bf")];
    let [Some(input), Some(kernel), Some(output)] = sides else {
        return fail("P026", span, "expected labels like `b01f_01io->b01f`: each letter and digit at most once, digits from 0 on");
    };
    if input.spatial.len() != kernel.spatial.len() || input.spatial.len() != output.spatial.len() {
        let counts = format!("{}, {} and {}", input.spatial.len(), kernel.spatial.len(), output.spatial.len());
        return fail("P026", span, format!("expected equally many spatial dimensions on all sides, found {counts}"));
    }
    Ok(ConvDims {
        input_batch: input.letters[0],
        input_feature: input.letters[1],
        input_spatial: input.spatial,
        kernel_input_feature: kernel.letters[0],
        kernel_output_feature: kernel.letters[1],
        kernel_spatial: kernel.spatial,
        output_batch: output.letters[0],
        output_feature: output.letters[1],
        output_spatial: output.spatial,
        ..ConvDims::default()
    })
}

struct Side {
    letters: [i64; 2],
    spatial: Vec<i64>,
}

fn side(labels: &str, letters: &str) -> Option<Side> {
    let digits = labels.bytes().filter(u8::is_ascii_digit).count();
    let mut out = Side { letters: [0, 0], spatial: vec![-1; digits] };
    let mut seen = 0u128;
    for (position, label) in (0i64..).zip(labels.bytes()) {
        if label == b'?' {
            continue;
        }
        if seen & (1 << label) != 0 {
            return None;
        }
        seen |= 1 << label;
        if label.is_ascii_digit() {
            *out.spatial.get_mut(usize::from(label - b'0'))? = position;
        } else {
            out.letters[letters.bytes().position(|l| l == label)?] = position;
        }
    }
    if labels.len() < 2 { None } else { Some(out) }
}

/// `{highest,default}`.
pub(super) fn precision(cur: &mut Cursor<'_>) -> Res<Vec<i32>> {
    let node = read(cur, Rule::precisions)?;
    let number = |word: Node<'_>| {
        words::number_any_case(words::PRECISION, word.as_str()).map_or_else(
            || {
                let names = words::list(words::PRECISION.iter().map(|w| w.0));
                fail("P026", span_of(cur.text, &word), format!("expected {names}, found `{}`", word.as_str()))
            },
            Ok,
        )
    };
    node.into_inner().map(number).collect()
}

/// `{lhs={sparsity=2x4 dimension=1 stride=1 idx=2} rhs={…}}`.
pub(super) fn sparsity(cur: &mut Cursor<'_>) -> Res<[Option<Sparsity>; 2]> {
    let node = read(cur, Rule::sparsity)?;
    let text = cur.text;
    let mut out = [None, None];
    for side in node.into_inner() {
        let right = side.as_str().starts_with("rhs");
        let mut one = Sparsity::default();
        for field in children(&side, Rule::side_field) {
            let span = span_of(text, &field);
            let mut inner = field.into_inner();
            let (Some(key), Some(value)) = (inner.next(), inner.next()) else { continue };
            let numbers: Vec<i64> = parts(text, &value, 'x').collect::<Res<_>>()?;
            match (grammar::key(&key), &*numbers) {
                ("sparsity", &[num, block]) => (one.num_non_zero, one.block_size) = (num, block),
                ("dimension", &[n]) => one.dimension = n,
                ("stride", &[n]) => one.stride = n,
                ("idx", &[n]) => one.idx = i32::try_from(n).or_else(|_| fail("P015", span, "expected a 32-bit integer"))?,
                _ => return fail("P026", span, "expected `sparsity=NxM`, `dimension=`, `stride=` or `idx=`"),
            }
        }
        out[usize::from(right)] = Some(one);
    }
    Ok(out)
}

/// `{lhs={scale_idx=2 zero_idx=3 strides=1x32 steps=1x1} rhs={…}}`, kept as read.
pub(super) fn block_scaling(text: &str, node: &Node<'_>) -> Res<Box<str>> {
    for side in node.clone().into_inner() {
        for field in children(&side, Rule::side_field) {
            if let Some(key) = field.clone().into_inner().next()
                && !matches!(grammar::key(&key), "scale_idx" | "zero_idx" | "strides" | "steps")
            {
                return fail("P026", span_of(text, &field), "expected `scale_idx=`, `zero_idx=`, `strides=` or `steps=`");
            }
        }
    }
    Ok(node.as_str().into())
}

/// `{ {0}: (1, {}), … }`.
pub(super) fn output_aliases(cur: &mut Cursor<'_>) -> Res<Vec<OutputAlias>> {
    let node = read(cur, Rule::output_aliases)?;
    let text = cur.text;
    let mut out = Vec::new();
    for alias in node.into_inner() {
        let mut inner = alias.into_inner();
        let (Some(output), Some(operand), Some(index)) = (inner.next(), inner.next(), inner.next()) else { continue };
        out.push(OutputAlias {
            output: grammar::ints(text, output)?,
            operand: grammar::int(text, &operand)?,
            index: grammar::ints(text, index)?,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cur(text: &str) -> Cursor<'_> {
        Cursor { text, at: 0 }
    }

    #[test]
    fn windows() {
        let window = window(&mut cur("{pad=1_2x-1_0 size=3x4 rhs_reversal=0x1}")).unwrap();
        assert_eq!(window[0], WindowDim { size: 3, pad_low: 1, pad_high: 2, ..WindowDim::default() });
        assert_eq!(window[1], WindowDim { size: 4, pad_low: -1, reversal: true, ..WindowDim::default() });
        for bad in
            ["{stride=2}", "{size=3 pad=1_1x1_1}", "{size=3 size=3}", "{size=3x3 foo=1x1}", "{size=3,stride=1}", "{size=3 pad=1_1_1}"]
        {
            assert!(super::window(&mut cur(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels() {
        let dims = dim_labels(&mut cur("b0?f_0io->b0f")).unwrap();
        assert_eq!((dims.input_batch, dims.input_feature, dims.input_spatial), (0, 3, vec![1]));
        for bad in ["b02f_01io->b01f", "b0f_0io->b01f", "b0f_0oo->b0f", "b_io->bf"] {
            assert!(dim_labels(&mut cur(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn pads() {
        let dims = padding(&mut cur("0_0x-1_2_3")).unwrap();
        assert_eq!(dims, [PadDim::default(), PadDim { low: -1, high: 2, interior: 3 }]);
    }
}
