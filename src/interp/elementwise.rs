//! Elementwise operations on blocks of numbers.
//!
//! Each number is computed alone, as [`ops::scalar`](super::ops::scalar) says, in its lane ([`super::lanes`]), then rounded or wrapped to the
//! element type, so a result depends on nothing but its operands' bits. The common operations have a loop each, which the compiler
//! vectorises; it computes the same.

use super::lanes::{Block, complex_bits, complex_of, round, wrap};
use super::ops::scalar::{self, Bits};
use crate::ir::{Binary, Direction, Primitive, Unary, float};

/// An operation that takes numbers at one index to a number at that index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Elementwise {
    /// One operand.
    Unary(Unary),
    /// Two operands.
    Binary(Binary),
    /// Two operands of one type to `pred`.
    Compare(Direction),
    /// Two floats to `pred`, NaN and the sign of zero ordered by their bits.
    CompareTotal(Direction),
    /// `pred` chooses.
    Select,
    /// Low, value, high.
    Clamp,
    /// To another type.
    Convert,
    /// To fewer bits, in the same type.
    ReducePrecision {
        /// Bits of the exponent.
        exponent: i32,
        /// Bits of the mantissa.
        mantissa: i32,
    },
}

/// Whether an operation takes one type to another.
pub fn has_unary(op: Unary, from: Primitive, to: Primitive) -> bool {
    scalar::has_unary(op, from) && scalar::unary_element(op, from) == to
}

/// Whether an operation takes two of a type to another.
pub fn has_binary(op: Binary, from: Primitive, to: Primitive) -> bool {
    scalar::has_binary(op, from) && scalar::binary_element(op, from) == to
}

/// Computes a block: operands of type `from` (the last one's, which is the branches' for a select), results of type `to`. All blocks have the same length.
pub fn apply(op: Elementwise, from: Primitive, to: Primitive, args: &[&Block], out: &mut Block) {
    match op {
        Elementwise::Unary(op) => unary(op, from, args[0], out),
        Elementwise::Binary(op) => binary(op, from, args[0], args[1], out),
        Elementwise::Compare(direction) => compare(direction, from, args[0], args[1], out),
        Elementwise::CompareTotal(direction) => compare_total(direction, args[0], args[1], out),
        Elementwise::Select => return select(args[0], args[1], args[2], out),
        Elementwise::Clamp => {
            let mut low = out.clone();
            binary(Binary::Maximum, from, args[0], args[1], &mut low);
            binary(Binary::Minimum, from, &low, args[2], out);
        }
        Elementwise::Convert => return convert(from, to, args[0], out),
        Elementwise::ReducePrecision { exponent, mantissa } => reduce_precision(from, exponent, mantissa, args[0], out),
    }
    finish(to, out);
}

/// Rounds or wraps numbers to the element type.
fn finish(to: Primitive, out: &mut Block) {
    match out {
        Block::F32(v) => match to {
            Primitive::F32 => {}
            // Spelled out, so that the loops are compiled for the type.
            Primitive::BF16 => v.iter_mut().for_each(|x| *x = round(Primitive::BF16, *x)),
            to => v.iter_mut().for_each(|x| *x = round(to, *x)),
        },
        Block::Int(v) => match to.bits() {
            64 => {}
            _ if to == Primitive::Pred => {}
            _ => v.iter_mut().for_each(|x| *x = wrap(to, *x)),
        },
        Block::Complex(v) if to == Primitive::C64 => {
            v.iter_mut().for_each(|[re, im]| (*re, *im) = (f64::from(*re as f32), f64::from(*im as f32)));
        }
        Block::F64(_) | Block::Complex(_) => {}
    }
}

fn map<A: Copy, R>(a: &[A], out: &mut [R], f: impl Fn(A) -> R) {
    for (out, &a) in out.iter_mut().zip(a) {
        *out = f(a);
    }
}

fn zip<A: Copy, B: Copy, R>(a: &[A], b: &[B], out: &mut [R], f: impl Fn(A, B) -> R) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
}

/// Calls a function with the operation as a constant where it is a common one.
macro_rules! constant {
    ($kind:ident, $op:expr, [$($common:ident),*], |$chosen:ident| $call:expr) => {
        match $op {
            $($kind::$common => { const CHOSEN: $kind = $kind::$common; let $chosen = CHOSEN; $call })*
            $chosen => $call,
        }
    };
}

/// The bits of a number in an integer lane.
fn bits_of(element: Primitive, value: i64) -> Bits {
    Bits::from(value.cast_unsigned() & (u64::MAX >> (64 - element.bits())))
}

fn unary(op: Unary, from: Primitive, a: &Block, out: &mut Block) {
    match (a, out) {
        (Block::F32(a), Block::F32(out)) => {
            constant!(Unary, op, [Abs, Ceil, Exponential, Floor, Logistic, Negate, Rsqrt, Sqrt, Tanh], |op| map(a, out, |x| {
                scalar::unary_f32(op, x)
            }))
        }
        (Block::F64(a), Block::F64(out)) => constant!(Unary, op, [Abs, Negate, Sqrt], |op| map(a, out, |x| scalar::unary_f64(op, x))),
        (Block::F32(a), Block::Int(out)) => map(a, out, |x| i64::from(x.is_finite())),
        (Block::F64(a), Block::Int(out)) => map(a, out, |x| i64::from(x.is_finite())),
        (Block::Int(a), Block::Int(out)) => map(a, out, |x| scalar::unary(op, from, bits_of(from, x)) as i64),
        (Block::Complex(a), Block::Complex(out)) => map(a, out, |x| complex_of(from, scalar::unary(op, from, complex_bits(from, x)))),
        (Block::Complex(a), Block::F32(out)) => map(a, out, |x| f32::from_bits(scalar::unary(op, from, complex_bits(from, x)) as u32)),
        (Block::Complex(a), Block::F64(out)) => map(a, out, |x| f64::from_bits(scalar::unary(op, from, complex_bits(from, x)) as u64)),
        (Block::Complex(a), Block::Int(out)) => map(a, out, |x| scalar::unary(op, from, complex_bits(from, x)) as i64),
        _ => unreachable!("the build checked the types of `{}`", op.name()),
    }
}

fn binary(op: Binary, from: Primitive, a: &Block, b: &Block, out: &mut Block) {
    match (a, b, out) {
        (Block::F32(a), Block::F32(b), Block::F32(out)) => {
            constant!(Binary, op, [Add, Divide, Maximum, Minimum, Multiply, Subtract], |op| zip(a, b, out, |a, b| scalar::binary_f32(
                op, a, b
            )))
        }
        (Block::F64(a), Block::F64(b), Block::F64(out)) => {
            constant!(Binary, op, [Add, Divide, Maximum, Minimum, Multiply, Subtract], |op| zip(a, b, out, |a, b| scalar::binary_f64(
                op, a, b
            )))
        }
        (Block::Int(a), Block::Int(b), Block::Int(out)) => match op {
            Binary::Add if from != Primitive::Pred => zip(a, b, out, i64::wrapping_add),
            Binary::Subtract => zip(a, b, out, i64::wrapping_sub),
            Binary::Multiply => zip(a, b, out, i64::wrapping_mul),
            Binary::And => zip(a, b, out, |a, b| a & b),
            Binary::Or => zip(a, b, out, |a, b| a | b),
            Binary::Xor => zip(a, b, out, |a, b| a ^ b),
            _ => zip(a, b, out, |a, b| scalar::binary(op, from, bits_of(from, a), bits_of(from, b)) as i64),
        },
        (Block::Complex(a), Block::Complex(b), Block::Complex(out)) => {
            zip(a, b, out, |a, b| complex_of(from, scalar::binary(op, from, complex_bits(from, a), complex_bits(from, b))));
        }
        (Block::F32(a), Block::F32(b), Block::Complex(out)) => zip(a, b, out, |a, b| [f64::from(a), f64::from(b)]),
        (Block::F64(a), Block::F64(b), Block::Complex(out)) => zip(a, b, out, |a, b| [a, b]),
        _ => unreachable!("the build checked the types of `{}`", op.name()),
    }
}

fn ordered<T: PartialOrd + Copy>(direction: Direction, a: &[T], b: &[T], out: &mut [i64]) {
    match direction {
        Direction::Eq => zip(a, b, out, |a, b| i64::from(a == b)),
        Direction::Ne => zip(a, b, out, |a, b| i64::from(a != b)),
        Direction::Ge => zip(a, b, out, |a, b| i64::from(a >= b)),
        Direction::Gt => zip(a, b, out, |a, b| i64::from(a > b)),
        Direction::Le => zip(a, b, out, |a, b| i64::from(a <= b)),
        Direction::Lt => zip(a, b, out, |a, b| i64::from(a < b)),
    }
}

fn compare(direction: Direction, from: Primitive, a: &Block, b: &Block, out: &mut Block) {
    let Block::Int(out) = out else { unreachable!("a compare gives pred") };
    match (a, b) {
        (Block::F32(a), Block::F32(b)) => ordered(direction, a, b, out),
        (Block::F64(a), Block::F64(b)) => ordered(direction, a, b, out),
        (Block::Int(a), Block::Int(b)) if from == Primitive::U64 => {
            let unsigned = |v: &[i64]| v.iter().map(|x| x.cast_unsigned()).collect::<Vec<u64>>();
            ordered(direction, &unsigned(a), &unsigned(b), out);
        }
        (Block::Int(a), Block::Int(b)) => ordered(direction, a, b, out),
        (Block::Complex(a), Block::Complex(b)) => {
            let equal = |a: [f64; 2], b: [f64; 2]| a[0] == b[0] && a[1] == b[1];
            zip(a, b, out, |a, b| i64::from(equal(a, b) == (direction == Direction::Eq)));
        }
        _ => unreachable!("operands of a compare have one type"),
    }
}

/// Bits as an integer that orders floats: negative numbers reversed below positive ones.
fn total_key(element: Primitive, bits: u64) -> i64 {
    let unused = 64 - element.bits();
    let signed = (bits << unused).cast_signed() >> unused;
    if signed < 0 { signed ^ (i64::MAX >> unused) } else { signed }
}

fn compare_total(direction: Direction, a: &Block, b: &Block, out: &mut Block) {
    let keys = |block: &Block| -> Vec<i64> {
        match block {
            // A narrower type has the order of its numbers as `f32`, of its NaNs that of their signs.
            Block::F32(v) => v.iter().map(|&x| total_key(Primitive::F32, x.to_bits().into())).collect(),
            Block::F64(v) => v.iter().map(|&x| total_key(Primitive::F64, x.to_bits())).collect(),
            _ => unreachable!("only floats have a total order of their own"),
        }
    };
    let Block::Int(out) = out else { unreachable!("a compare gives pred") };
    ordered(direction, &keys(a), &keys(b), out);
}

fn choose<T: Copy>(pred: &[i64], a: &[T], b: &[T], out: &mut [T]) {
    for (((out, &p), &a), &b) in out.iter_mut().zip(pred).zip(a).zip(b) {
        *out = if p != 0 { a } else { b };
    }
}

fn select(pred: &Block, a: &Block, b: &Block, out: &mut Block) {
    let Block::Int(pred) = pred else { unreachable!("the first operand of a select is pred") };
    match (a, b, out) {
        (Block::F32(a), Block::F32(b), Block::F32(out)) => choose(pred, a, b, out),
        (Block::F64(a), Block::F64(b), Block::F64(out)) => choose(pred, a, b, out),
        (Block::Int(a), Block::Int(b), Block::Int(out)) => choose(pred, a, b, out),
        (Block::Complex(a), Block::Complex(b), Block::Complex(out)) => choose(pred, a, b, out),
        _ => unreachable!("branches of a select have the result's type"),
    }
}

fn convert(from: Primitive, to: Primitive, a: &Block, out: &mut Block) {
    match (a, &mut *out) {
        (Block::F32(a), Block::F32(out)) => {
            out.copy_from_slice(a);
            if from == to {
                return;
            }
        }
        (Block::F32(a), Block::F64(out)) => map(a, out, f64::from),
        (Block::F64(a), Block::F32(out)) => return map(a, out, |x| narrow(to, x)),
        (Block::F64(a), Block::F64(out)) => out.copy_from_slice(a),
        (Block::F32(a), Block::Int(out)) => return map(a, out, |x| truncate(to, f64::from(x))),
        (Block::F64(a), Block::Int(out)) => return map(a, out, |x| truncate(to, x)),
        (Block::Int(a), Block::F32(out)) if from == Primitive::U64 => map(a, out, |x| x.cast_unsigned() as f32),
        (Block::Int(a), Block::F32(out)) => map(a, out, |x| x as f32),
        (Block::Int(a), Block::F64(out)) if from == Primitive::U64 => map(a, out, |x| x.cast_unsigned() as f64),
        (Block::Int(a), Block::F64(out)) => map(a, out, |x| x as f64),
        (Block::Int(a), Block::Int(out)) if to == Primitive::Pred => map(a, out, |x| i64::from(x != 0)),
        (Block::Int(a), Block::Int(out)) => out.copy_from_slice(a),
        (Block::F32(a), Block::Complex(out)) => map(a, out, |x| [f64::from(x), 0.0]),
        (Block::F64(a), Block::Complex(out)) => map(a, out, |x| [x, 0.0]),
        (Block::Int(a), Block::Complex(out)) if from == Primitive::U64 => map(a, out, |x| [x.cast_unsigned() as f64, 0.0]),
        (Block::Int(a), Block::Complex(out)) => map(a, out, |x| [x as f64, 0.0]),
        (Block::Complex(a), Block::Complex(out)) => out.copy_from_slice(a),
        (Block::Complex(a), Block::F32(out)) => return map(a, out, |[re, _]| narrow(to, re)),
        (Block::Complex(a), Block::F64(out)) => map(a, out, |[re, _]| re),
        (Block::Complex(a), Block::Int(out)) if to == Primitive::Pred => map(a, out, |[re, im]| i64::from(re != 0.0 || im != 0.0)),
        (Block::Complex(a), Block::Int(out)) => return map(a, out, |[re, _]| truncate(to, re)),
    }
    finish(to, out);
}

/// A double as a real type of at most 32 bits.
fn narrow(to: Primitive, value: f64) -> f32 {
    if to == Primitive::F32 { value as f32 } else { float::decode(to, float::encode(to, value)) as f32 }
}

/// A float as an integer: truncated, saturating, NaN is 0; as `pred`, whether it is not zero.
fn truncate(to: Primitive, value: f64) -> i64 {
    match to {
        Primitive::Pred => i64::from(value != 0.0),
        Primitive::U64 => (value as u64).cast_signed(),
        _ if to.is_signed_integer() => {
            let top = i64::MAX >> (64 - to.bits());
            (value as i64).clamp(-top - 1, top)
        }
        _ => (value as i64).clamp(0, i64::MAX >> (63 - to.bits())),
    }
}

fn reduce_precision(element: Primitive, exponent: i32, mantissa: i32, a: &Block, out: &mut Block) {
    let reduce = |bits: u64| scalar::reduce_precision(element, exponent, mantissa, bits.into()) as u64;
    match (a, out) {
        (Block::F32(a), Block::F32(out)) if element == Primitive::F32 => {
            map(a, out, |x| f32::from_bits(reduce(x.to_bits().into()) as u32));
        }
        (Block::F32(a), Block::F32(out)) => {
            map(a, out, |x| float::decode(element, reduce(float::encode(element, f64::from(x)))) as f32);
        }
        (Block::F64(a), Block::F64(out)) => map(a, out, |x| f64::from_bits(reduce(x.to_bits()))),
        _ => unreachable!("the build checked that reduce-precision is of floats"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::lane;
    use super::*;

    fn floats(op: Elementwise, to: Primitive, args: &[&[f32]]) -> Vec<f32> {
        let blocks: Vec<Block> = args.iter().map(|a| Block::F32(a.to_vec())).collect();
        let mut out = Block::zeros(lane(to), args[0].len());
        apply(op, to, to, &blocks.iter().collect::<Vec<_>>(), &mut out);
        let Block::F32(out) = out else { panic!("floats in, floats out") };
        out
    }

    #[test]
    fn narrow_floats_are_rounded_after_each_operation() {
        let sum = floats(Elementwise::Binary(Binary::Add), Primitive::BF16, &[&[256.0, 1.0], &[1.0, 0.001]]);
        assert_eq!(sum, [256.0, 1.0]);
    }

    #[test]
    fn maximum_passes_nan_on() {
        let max = floats(Elementwise::Binary(Binary::Maximum), Primitive::F32, &[&[f32::NAN, 1.0, -0.0], &[1.0, f32::NAN, 0.0]]);
        assert!(max[0].is_nan() && max[1].is_nan() && max[2].is_sign_positive());
    }

    #[test]
    fn floats_become_integers_saturating() {
        let found: Vec<i64> = [3.9, -3.9, 1e10, -1e10, f64::NAN].iter().map(|&x| truncate(Primitive::S32, x)).collect();
        assert_eq!(found, [3, -3, i64::from(i32::MAX), i64::from(i32::MIN), 0]);
        assert_eq!([truncate(Primitive::U8, -1.0), truncate(Primitive::U8, 300.0), truncate(Primitive::S4, 9.0)], [0, 255, 7]);
    }

    #[test]
    fn the_total_order_orders_zeros_and_nan() {
        let key = |x: f32| total_key(Primitive::F32, u64::from(x.to_bits()));
        assert!(
            key(-f32::NAN) < key(f32::NEG_INFINITY) && key(-1.0) < key(-0.5) && key(-0.0) < key(0.0) && key(f32::INFINITY) < key(f32::NAN)
        );
    }
}
