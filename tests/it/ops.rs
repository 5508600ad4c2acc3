//! Every operation against XLA:CPU's answers, kept in `tests/fixtures/ops` by `scripts/op-fixtures` (its Python tells the form).
//!
//! XLA:CPU takes subnormal numbers for zeros, the interpreter keeps them: an answer may also be that of operands without subnormal numbers,
//! and a subnormal result may be zero. Every case runs through the interpreter itself, in two layouts.
//!
//! | edge | families |
//! |---|---|
//! | NaN, infinities, subnormal numbers, -0 | `unary_real`, `binary`, `compare` (also the total order), `convert`, `reductions`, `dots`, `convolution`, `movement` |
//! | saturating conversions, NaN to 0; wrapping ones | `convert`; `control` (stochastic) |
//! | wrapping arithmetic, division by zero, shifts too far | `binary` |
//! | starts beyond the bounds, of all index types | `movement` (dynamic-slice, dynamic-update-slice), `indexing` (gather clamps, scatter leaves out) |
//! | branch numbers beyond the branches | `control` |
//! | duplicate scatter indices, the last one wins | `indexing` |
//! | stability, keys that are equal, several keys | `sorting` |
//! | ties and NaN of an argmax | `reductions` |
//! | dimensions without elements | `movement`, `dots`, `reductions`, `convolution`, `windows`, `indexing`, `sorting`, `transforms`, `scans` |
//! | negative and interior padding | `movement`, `windows`, `convolution` |
//!
//! Run with `--nocapture` for the table of operations, types and largest deviations.

#![expect(clippy::unwrap_used, reason = "fixtures are sound, or the test fails")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use offc::interp::{Array, RunOptions};
use offc::ir::{Layout, Module, Primitive, Shape, ShapeId, float};

/// How far a result may be from the answer.
#[derive(Clone, Copy)]
pub enum Rule {
    Exact,
    /// Units in the last place of the element type (of the larger part of a complex number).
    Ulps(f64),
    /// Times the largest absolute value of the output.
    Close(f64),
}

pub struct Case {
    pub name: String,
    pub rule: Rule,
    pub module: Module,
    /// Of all partitions, one after another.
    pub inputs: Vec<Array>,
    outputs: Vec<Array>,
    pub partitions: usize,
}

pub fn cases(family: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ops");
    let text = std::fs::read_to_string(folder.join(format!("{family}.hlo"))).unwrap();
    let packed = std::fs::read(folder.join(format!("{family}.bin"))).unwrap();
    let mut data = Vec::new();
    flate2::read::ZlibDecoder::new(packed.as_slice()).read_to_end(&mut data).unwrap();
    let mut data = data.as_slice();
    let mut out = Vec::new();
    for part in text.split("// case ").skip(1) {
        let (head, body) = part.split_once('\n').unwrap();
        let mut words = head.split(' ');
        let name = words.next().unwrap().to_string();
        let rule = match words.next().unwrap().split_once('=') {
            None => Rule::Exact,
            Some(("ulps", n)) => Rule::Ulps(n.parse().unwrap()),
            Some((_, n)) => Rule::Close(n.parse().unwrap()),
        };
        let parsed = offc::text::parse(body.as_bytes());
        let module = parsed.unwrap_or_else(|e| panic!("{name}: {e:?}")).module;
        let entry = module.entry();
        let take = |shape: ShapeId, data: &mut &[u8]| -> Vec<Array> {
            let arrays = module.shapes.leaves(shape).into_iter().map(|leaf| {
                let Shape::Array(array) = module.shapes.get(leaf) else { unreachable!("a leaf is an array") };
                let dims: Vec<usize> = array.dims.iter().map(|d| d.size as usize).collect();
                let mut out = Array::zeros(array.element.known().unwrap(), &dims);
                let (own, rest) = data.split_at(out.data.len());
                out.data.copy_from_slice(own);
                // NumPy extends the sign of a small integer over its byte.
                if out.element.bits() < 8 {
                    out.data.iter_mut().for_each(|b| *b &= 0xff >> (8 - out.element.bits()));
                }
                *data = rest;
                out
            });
            arrays.collect()
        };
        let partitions: usize = words.find_map(|w| w.strip_prefix("partitions=")).map_or(1, |n| n.parse().unwrap());
        let params: Vec<ShapeId> = entry.parameters.iter().map(|&p| module.instr(p).shape).collect();
        let inputs = (0..partitions).flat_map(|_| params.clone()).flat_map(|p| take(p, &mut data)).collect();
        let outputs = (0..partitions).flat_map(|_| take(module.instr(entry.root).shape, &mut data)).collect();
        out.push(Case { name, rule, module, inputs, outputs, partitions });
    }
    assert!(data.is_empty(), "{family}: {} bytes too many", data.len());
    out
}

/// What the interpreter makes of a case, of all partitions one after another.
fn run(module: &Module, case: &Case, inputs: &[Array]) -> Result<Vec<Array>, String> {
    let each = inputs.len() / case.partitions;
    let inputs: Vec<Vec<Array>> = (0..case.partitions).map(|p| inputs[p * each..(p + 1) * each].to_vec()).collect();
    let outcomes = offc::interp::run(module, &inputs, RunOptions::default());
    let outcomes = outcomes.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    Ok(outcomes.into_iter().flat_map(|o| o.outputs).collect())
}

/// The program with every array of the entry computation laid out the other way round: the first dimension is the fastest.
pub fn turned(module: &Module) -> Module {
    let mut out = module.clone();
    for id in module.entry().order.clone() {
        out.instructions[id].shape = turned_shape(&mut out, module.instr(id).shape);
    }
    out
}

fn turned_shape(module: &mut Module, shape: ShapeId) -> ShapeId {
    let shape = match module.shapes.get(shape).clone() {
        Shape::Array(mut array) => {
            let mut layout = array.layout.unwrap_or_else(|| Layout::default_for(array.dims.len()));
            layout.minor_to_major.reverse();
            array.layout = Some(layout);
            Shape::Array(array)
        }
        Shape::Tuple(parts) => Shape::Tuple(parts.into_iter().map(|p| turned_shape(module, p)).collect()),
        other => other,
    };
    module.shapes.intern(shape)
}

/// Subnormal numbers as zeros of their sign.
fn flushed(array: &Array) -> Array {
    let mut out = array.clone();
    let (bytes, exponent_mask, sign_mask): (usize, u64, u64) = match array.element {
        Primitive::F32 | Primitive::C64 => (4, 0x7f80_0000, 0x8000_0000),
        Primitive::F64 | Primitive::C128 => (8, 0x7ff << 52, 1 << 63),
        Primitive::BF16 => (2, 0x7f80, 0x8000),
        _ => return out,
    };
    for part in out.data.chunks_exact_mut(bytes) {
        let mut bits = [0; 8];
        bits[..bytes].copy_from_slice(part);
        let bits = u64::from_le_bytes(bits);
        if bits & exponent_mask == 0 {
            part.copy_from_slice(&(bits & sign_mask).to_le_bytes()[..bytes]);
        }
    }
    out
}

/// The distance of two numbers in units in the last place; zeros of different sign are one unit apart.
fn ulps(element: Primitive, a: u64, b: u64) -> f64 {
    let key = |bits: u64| {
        let unused = 64 - element.bits();
        let signed = (bits << unused).cast_signed() >> unused;
        if signed < 0 { -1 - i128::from(signed & (i64::MAX >> unused)) } else { i128::from(signed) }
    };
    (key(a) - key(b)).unsigned_abs() as f64
}

/// The deviation of one element, in the units of the rule; infinite where a NaN or an infinity does not match.
pub fn deviation(rule: Rule, scale: f64, ours: &Array, theirs: &Array, i: usize) -> f64 {
    if ours.element_bytes(i) == theirs.element_bytes(i) {
        return 0.0;
    }
    let element = ours.element;
    if element.is_complex() {
        let (a, b) = (ours.complex(i), theirs.complex(i));
        let same = |x: f64, y: f64| x == y || x.is_nan() && y.is_nan();
        if same(a.0, b.0) && same(a.1, b.1) {
            return 0.0;
        }
        let distance = (a.0 - b.0).abs().max((a.1 - b.1).abs());
        let size = b.0.abs().max(b.1.abs());
        let unit = if element == Primitive::C64 { f64::from(f32::EPSILON) } else { f64::EPSILON };
        let finite = distance.is_finite() && size.is_finite();
        return match rule {
            _ if !finite => f64::INFINITY,
            Rule::Close(_) => distance / scale,
            _ => distance / (size * unit),
        };
    }
    let (a, b) = (ours.bits(i), theirs.bits(i));
    if !element.is_float() {
        return (ours.i64(i) as f64 - theirs.i64(i) as f64).abs().max(1.0);
    }
    let (x, y) = (float::decode(element, a), float::decode(element, b));
    match rule {
        _ if x.is_nan() && y.is_nan() => 0.0,
        _ if x.is_nan() != y.is_nan() => f64::INFINITY,
        Rule::Close(_) if x == y => 0.0,
        Rule::Close(_) => (x - y).abs() / scale,
        Rule::Exact | Rule::Ulps(_) => ulps(element, a, b),
    }
}

fn bound(rule: Rule) -> f64 {
    match rule {
        Rule::Exact => 0.0,
        Rule::Ulps(n) | Rule::Close(n) => n,
    }
}

/// The largest deviation of a case, or what is wrong.
fn check(case: &Case) -> Result<f64, String> {
    let ours = run(&case.module, case, &case.inputs)?;
    let elsewhere = run(&turned(&case.module), case, &case.inputs).map_err(|why| format!("in another layout: {why}"))?;
    if let Some(k) = (0..ours.len()).find(|&k| ours[k] != elsewhere[k]) {
        return Err(format!("output {k} depends on the layout"));
    }
    if ours.len() != case.outputs.len() {
        return Err(format!("{} outputs for {}", ours.len(), case.outputs.len()));
    }
    let other = run(&case.module, case, &case.inputs.iter().map(flushed).collect::<Vec<_>>())?;
    let mut worst: f64 = 0.0;
    for (k, (ours, theirs)) in ours.iter().zip(&case.outputs).enumerate() {
        if ours.dims != theirs.dims || ours.element != theirs.element {
            return Err(format!("output {k} is {:?}{:?} for {:?}{:?}", ours.element, ours.dims, theirs.element, theirs.dims));
        }
        let number = |i| if theirs.element.is_complex() { theirs.complex(i).0.hypot(theirs.complex(i).1) } else { theirs.f64(i).abs() };
        let scale = (0..theirs.len()).map(number).filter(|x| x.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
        let (short, without) = (flushed(ours), flushed(&other[k]));
        for i in 0..ours.len() {
            let distances = [ours, &short, &without].map(|a| deviation(case.rule, scale, a, theirs, i));
            let distance = distances.into_iter().fold(f64::INFINITY, f64::min);
            if distance > bound(case.rule) {
                let from: Vec<String> = case.inputs.iter().filter(|a| a.dims == ours.dims).map(|a| show(a, i)).collect();
                let found = format!("{} for {}", show(ours, i), show(theirs, i));
                return Err(format!("output {k} element {i}: {found}, {distance:.3} away; operands {}", from.join(", ")));
            }
            worst = worst.max(distance);
        }
    }
    Ok(worst)
}

fn show(array: &Array, i: usize) -> String {
    match array.element {
        e if e.is_complex() => format!("{:?}", array.complex(i)),
        e if e.is_float() => format!("{:e} ({:#x})", array.f64(i), array.bits(i)),
        _ => array.i64(i).to_string(),
    }
}

/// Holds a family to its rules; prints its table.
fn family(name: &str) {
    let (mut wrong, mut table) = (Vec::new(), BTreeMap::<(String, &str), Vec<String>>::new());
    let cases = cases(name);
    for case in &cases {
        match check(case) {
            Ok(worst) => {
                let (op, ty) = case.name.split_once('_').unwrap_or((&case.name, ""));
                let unit = match case.rule {
                    Rule::Exact => "exact",
                    Rule::Ulps(_) => "ulps",
                    Rule::Close(_) => "of the largest",
                };
                let entry = table.entry((op.to_string(), unit)).or_default();
                entry.push(if matches!(case.rule, Rule::Exact) { ty.to_string() } else { format!("{ty}={worst:.2e}") });
            }
            Err(message) => wrong.push(format!("{}: {message}", case.name)),
        }
    }
    for ((op, unit), types) in &table {
        println!("{name} {op} ({unit}): {}", types.join(" "));
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

macro_rules! families {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { family(stringify!($name)); })* };
}

families! {
    unary_real, unary_other, binary, compare, convert, convolution, cudnn, windows, sorting, indexing, random, transforms, matrices, norms,
    collectives, scans, movement, dots, reductions, control
}
