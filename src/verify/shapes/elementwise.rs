//! Shape rules of operations that work element by element, and of what makes arrays from nothing.

use super::{Node, Rule, Trouble, Want, attribute, dimension, sizes, unsuited};
use crate::ir::{ArrayShape, Binary, CompId, Direction, Literal, LiteralValue, Primitive, Unary};

fn complex_parts(p: Primitive) -> Primitive {
    match p {
        Primitive::C64 => Primitive::F32,
        Primitive::C128 => Primitive::F64,
        other => other,
    }
}

/// The type that an operation gives for one of its operand's, or `None` where it does not take that.
fn unary_type(op: Unary, p: Primitive) -> Option<Primitive> {
    let numeric = p != Primitive::Pred;
    let fractional = p.is_float() || p.is_complex();
    let fits = match op {
        Unary::Abs | Unary::Sign | Unary::Negate => numeric,
        Unary::Not => p.is_integer() || p == Primitive::Pred,
        Unary::CountLeadingZeros | Unary::PopCount => p.is_integer(),
        Unary::IsFinite | Unary::Ceil | Unary::Floor | Unary::RoundNearestAfz | Unary::RoundNearestEven | Unary::Erf => p.is_float(),
        Unary::Real | Unary::Imag => fractional,
        Unary::Acos
        | Unary::Acosh
        | Unary::Asin
        | Unary::Asinh
        | Unary::Atanh
        | Unary::Cbrt
        | Unary::Cosine
        | Unary::Cosh
        | Unary::Exponential
        | Unary::ExponentialMinusOne
        | Unary::Exp2
        | Unary::Log
        | Unary::LogPlusOne
        | Unary::Log2
        | Unary::Logistic
        | Unary::Rsqrt
        | Unary::Sine
        | Unary::Sinh
        | Unary::Sqrt
        | Unary::Tan
        | Unary::Tanh => fractional,
    };
    let result = match op {
        Unary::Abs | Unary::Real | Unary::Imag => complex_parts(p),
        Unary::IsFinite => Primitive::Pred,
        _ => p,
    };
    fits.then_some(result)
}

pub(super) fn unary(n: &Node<'_>, op: Unary) -> Rule {
    let a = n.array(0)?;
    let Some(p) = a.element.known() else { return Ok(Want::Any) };
    match unary_type(op, p) {
        Some(result) => Ok(Want::Array(result.into(), sizes(a))),
        None => unsuited(format!("`{}` does not take `{}`", op.name(), p.name())),
    }
}

fn binary_type(op: Binary, p: Primitive) -> Option<Primitive> {
    let numeric = p != Primitive::Pred;
    let fits = match op {
        Binary::Add | Binary::Multiply | Binary::Maximum | Binary::Minimum => true,
        Binary::Subtract | Binary::Divide | Binary::Power => numeric,
        Binary::Remainder => numeric && !p.is_complex(),
        Binary::And | Binary::Or | Binary::Xor => p.is_integer() || !numeric,
        Binary::Mulhi | Binary::ShiftLeft | Binary::ShiftRightArithmetic | Binary::ShiftRightLogical => p.is_integer(),
        Binary::Atan2 => p.is_float() || p.is_complex(),
        Binary::Complex => matches!(p, Primitive::F32 | Primitive::F64),
    };
    let result = match (op, p) {
        (Binary::Complex, Primitive::F32) => Primitive::C64,
        (Binary::Complex, _) => Primitive::C128,
        _ => p,
    };
    fits.then_some(result)
}

pub(super) fn binary(n: &Node<'_>, op: Binary) -> Rule {
    n.same_sizes(0, 1)?;
    n.same_types(0, 1)?;
    let a = n.array(0)?;
    let Some(p) = a.element.known() else { return Ok(Want::Any) };
    match binary_type(op, p) {
        Some(result) => Ok(Want::Array(result.into(), sizes(a))),
        None => unsuited(format!("`{}` does not take `{}`", op.name(), p.name())),
    }
}

pub(super) fn compare(n: &Node<'_>, direction: Direction) -> Rule {
    n.same_sizes(0, 1)?;
    n.same_types(0, 1)?;
    let a = n.array(0)?;
    if a.element.known().is_some_and(Primitive::is_complex) && !matches!(direction, Direction::Eq | Direction::Ne) {
        return unsuited(format!("complex numbers have no order, found direction `{}`", direction.name()));
    }
    Ok(Want::Array(Primitive::Pred.into(), sizes(a)))
}

pub(super) fn select(n: &Node<'_>) -> Rule {
    let pred = n.array(0)?;
    if pred.element != Primitive::Pred.into() {
        return unsuited(format!("expected `pred` as operand 0, found `{}`", pred.element.name()));
    }
    n.same_sizes(0, 1)?;
    n.same_sizes(1, 2)?;
    n.same_types(1, 2)?;
    Ok(n.like(1))
}

pub(super) fn clamp(n: &Node<'_>) -> Rule {
    n.same_types(0, 1)?;
    n.same_types(1, 2)?;
    for bound in [0, 2] {
        if !n.array(bound)?.dims.is_empty() {
            n.same_sizes(bound, 1)?;
        }
    }
    Ok(n.like(1))
}

pub(super) fn convert(n: &Node<'_>) -> Rule {
    let (from, to) = (n.array(0)?, n.result()?);
    let complex = |a: &ArrayShape| a.element.known().is_some_and(Primitive::is_complex);
    if complex(from) && !complex(to) {
        return unsuited(format!("`{}` does not convert to `{}`", from.element.name(), to.element.name()));
    }
    Ok(Want::Array(to.element.clone(), sizes(from)))
}

pub(super) fn bitcast_convert(n: &Node<'_>) -> Rule {
    let (from, to) = (n.array(0)?, n.result()?);
    let (Some(a), Some(b)) = (from.element.known(), to.element.known()) else { return Ok(Want::Any) };
    // Sub-byte types count their own bits here; a `pred` is a byte.
    let (a, b) = (i64::from(a.bits()), i64::from(b.bits()));
    let mut dims = sizes(from);
    if a > b && a % b == 0 {
        dims.push(a / b);
    } else if a < b {
        match dims.pop() {
            Some(last) if b % a == 0 && last == b / a => {}
            _ => return unsuited(format!("expected a last dimension of {}, found {:?}", b / a, sizes(from))),
        }
    }
    Ok(Want::Array(to.element.clone(), dims))
}

pub(super) fn stochastic_convert(n: &Node<'_>) -> Rule {
    n.same_sizes(0, 1)?;
    let (a, random) = (n.array(0)?, n.array(1)?);
    if let (Some(a), Some(r)) = (a.element.known(), random.element.known())
        && !(r.is_unsigned_integer() && r.bits() == a.bits())
    {
        return unsuited(format!("expected unsigned bits as wide as `{}`, found `{}`", a.name(), r.name()));
    }
    Ok(Want::Array(n.result()?.element.clone(), sizes(a)))
}

pub(super) fn reduce_precision(n: &Node<'_>, exponent: i32, mantissa: i32) -> Rule {
    let a = n.array(0)?;
    if !a.element.known().is_none_or(Primitive::is_float) {
        return unsuited(format!("expected a floating-point operand, found `{}`", a.element.name()));
    }
    if exponent < 1 || mantissa < 0 {
        return attribute(format!("expected at least 1 exponent bit and 0 mantissa bits, found {exponent} and {mantissa}"));
    }
    Ok(n.like(0))
}

pub(super) fn map(n: &Node<'_>, to_apply: CompId) -> Rule {
    for operand in 1..n.count() {
        n.same_sizes(0, operand)?;
    }
    let root = n.module.instr(n.module.comp(to_apply).root).shape;
    match n.module.shapes.array(root) {
        Some(root) => Ok(Want::Array(root.element.clone(), sizes(n.array(0)?))),
        None => unsuited("expected a computation that returns a scalar"),
    }
}

pub(super) fn iota(n: &Node<'_>, number: i64) -> Rule {
    dimension(number, n.result()?.dims.len())?;
    Ok(Want::Any)
}

/// H06 beside the shape: walks a tuple's elements without recursion.
pub(super) fn constant(n: &Node<'_>, literal: &Literal) -> Rule {
    let shapes = &n.module.shapes;
    let mut open = vec![literal];
    while let Some(literal) = open.pop() {
        let wrong = match (&literal.value, shapes.array(literal.shape)) {
            (LiteralValue::Dense(bytes), Some(array)) => {
                let size = array.element.known().map_or(0, Primitive::literal_bytes) as u64;
                size > 0 && array.elements().saturating_mul(size) != bytes.len() as u64
            }
            (LiteralValue::Tuple(elements), None) => {
                open.extend(elements);
                elements.len() != shapes.elements(literal.shape).len()
            }
            (LiteralValue::Elided, Some(_)) | (LiteralValue::Token, None) => false,
            _ => true,
        };
        if wrong {
            let message = format!("the elements of the constant do not fill `{}`", super::show(shapes, literal.shape));
            return Err(Trouble { code: "H06", message });
        }
    }
    Ok(Want::Like(literal.shape))
}
