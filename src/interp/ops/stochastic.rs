//! `stochastic-convert`: a float to a signed integer, rounded away from zero as often as random bits are below its fraction.
//!
//! Source: XLA's `HloEvaluator`. Infinities and numbers out of range saturate, NaN becomes 0.

use super::error::{Result, ensure};
use crate::interp::Array;
use crate::ir::Primitive;

/// Converts every element with the random number beside it, which is as wide as the element.
///
/// # Errors
/// Operands that do not fit, or a result that is no signed integer.
pub fn stochastic_convert(operand: &Array, random: &Array, element: Primitive) -> Result<Array> {
    let fits = operand.dims == random.dims && operand.element.is_float() && random.element.bits() == operand.element.bits();
    ensure(fits && element.is_signed_integer(), || {
        let names = [operand.element, random.element, element].map(Primitive::name).join("`, `");
        format!("expected floats, as many random bits and a signed integer type, found `{names}`")
    })?;
    let mut out = Array::zeros(element, &operand.dims);
    let top = i64::MAX >> (64 - element.bits());
    for i in 0..out.len() {
        out.set_i64(i, round(operand.f64(i), random.bits(i), random.element.bits(), top));
    }
    Ok(out)
}

fn round(value: f64, random: u64, bits: u32, top: i64) -> i64 {
    if value.is_nan() {
        return 0;
    }
    if value >= top as f64 {
        return top;
    }
    if value <= -(top as f64) - 1.0 {
        return -top - 1;
    }
    let size = value.abs();
    let whole = size as i64;
    let fraction = size - whole as f64;
    // 0 ≤ fraction < 1: the product is below 2^bits.
    let threshold = (fraction * 2f64.powi(bits.cast_signed())) as u64;
    let whole = if fraction != 0.0 && random < threshold { whole + 1 } else { whole };
    if value < 0.0 { -whole } else { whole.min(top) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bits_decide_by_the_fraction() {
        let of = |v: &[f32]| Array::of_f32(&[v.len()], v);
        let random = |n: i64| Array::of_i64(Primitive::U32, &[6], &[n; 6]);
        let values = of(&[1.25, -1.25, 300.0, f32::NAN, f32::NEG_INFINITY, 2.0]);
        let show = |random: &Array| {
            let out = stochastic_convert(&values, random, Primitive::S8).expect("sound");
            (0..6).map(|i| out.i64(i)).collect::<Vec<_>>()
        };
        assert_eq!(show(&random(0)), [2, -2, 127, 0, -128, 2]);
        assert_eq!(show(&random(1 << 31)), [1, -1, 127, 0, -128, 2]);
        assert!(stochastic_convert(&values, &random(0), Primitive::U8).is_err());
    }
}
