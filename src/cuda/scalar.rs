//! Elementwise operations as CUDA C expressions. Operands are names or literals; nothing is evaluated twice that costs.

use super::types::{ctype, finish, part};
use crate::ir::{Binary, CompareType, Direction, Primitive, Unary};

/// The function of a real type: `f` for `double`, `ff` for `float`.
fn call(element: Primitive, name: &str, args: &[&str]) -> String {
    let suffix = if element == Primitive::F64 { "" } else { "f" };
    format!("{name}{suffix}({})", args.join(", "))
}

/// Whether a result may differ between correct machines: functions that no standard rounds.
pub fn is_inexact(op: Unary) -> bool {
    use Unary::{
        Abs, Ceil, CountLeadingZeros, Floor, Imag, IsFinite, Negate, Not, PopCount, Real, RoundNearestAfz, RoundNearestEven, Sign, Sqrt,
    };
    !matches!(
        op,
        Abs | Ceil
            | CountLeadingZeros
            | Floor
            | Imag
            | IsFinite
            | Negate
            | Not
            | PopCount
            | Real
            | RoundNearestAfz
            | RoundNearestEven
            | Sign
            | Sqrt
    )
}

/// One operand of a complex type.
fn unary_complex(op: Unary, element: Primitive, x: &str) -> Option<String> {
    let t = ctype(part(element)?);
    let name = match op {
        Unary::Real => return Some(format!("{x}.re")),
        Unary::Imag => return Some(format!("{x}.im")),
        Unary::Abs => return Some(format!("({t})hypot((double){x}.re, (double){x}.im)")),
        Unary::Negate => return Some(format!("-{x}")),
        Unary::IsFinite => return Some(format!("(offc_finite({x}.re) && offc_finite({x}.im))")),
        Unary::Exp2 => return Some(format!("offc_to<{t}>(offc_::exponential(offc_::scale(offc_wide({x}), 0.693147180559945309417)))")),
        Unary::Log2 => return Some(format!("offc_to<{t}>(offc_::scale(offc_::log(offc_wide({x})), 1.44269504088896340736))")),
        Unary::Cbrt => return Some(format!("offc_to<{t}>(offc_::power(offc_wide({x}), offc_zz(1.0 / 3.0, 0.0)))")),
        Unary::Sign => "sign",
        Unary::Exponential => "exponential",
        Unary::ExponentialMinusOne => "exponential_minus_one",
        Unary::Log => "log",
        Unary::LogPlusOne => "log_plus_one",
        Unary::Sqrt => "sqrt",
        Unary::Rsqrt => "rsqrt",
        Unary::Logistic => "logistic",
        Unary::Sine => "sine",
        Unary::Cosine => "cosine",
        Unary::Sinh => "sinh",
        Unary::Cosh => "cosh",
        Unary::Tan => "tan",
        Unary::Tanh => "tanh",
        Unary::Asin => "asin",
        Unary::Acos => "acos",
        Unary::Asinh => "asinh",
        Unary::Acosh => "acosh",
        Unary::Atanh => "atanh",
        _ => return None,
    };
    Some(format!("offc_to<{t}>(offc_::{name}(offc_wide({x})))"))
}

/// Two operands of a complex type.
fn binary_complex(op: Binary, element: Primitive, a: &str, b: &str) -> Option<String> {
    let t = ctype(part(element)?);
    let call = |name: &str| Some(format!("offc_to<{t}>(offc_::{name}(offc_wide({a}), offc_wide({b})))"));
    match op {
        Binary::Add => Some(format!("{a} + {b}")),
        Binary::Subtract => Some(format!("{a} - {b}")),
        Binary::Multiply => Some(format!("{a} * {b}")),
        Binary::Divide => call("divide"),
        Binary::Power => call("power"),
        Binary::Atan2 => call("atan2"),
        _ => None,
    }
}

/// One operand of a type.
pub fn unary(op: Unary, element: Primitive, x: &str) -> Option<String> {
    if element.is_complex() {
        return unary_complex(op, element, x);
    }
    let real = element.is_float();
    let one = if element == Primitive::F64 { "1.0" } else { "1.0f" };
    let f = |name: &str| real.then(|| call(element, name, &[x]));
    let value = match op {
        Unary::Abs if real => f("fabs")?,
        Unary::Abs if element.is_signed_integer() => {
            format!("({x} < 0 ? ({t})(0 - ({u}){x}) : {x})", t = ctype(element), u = unsigned(element))
        }
        Unary::Abs | Unary::Real => x.to_string(),
        Unary::Imag => if element == Primitive::F64 { "0.0" } else { "0.0f" }.to_string(),
        Unary::Negate if real => format!("-{x}"),
        Unary::Negate if element.is_integer() => format!("({t})(0 - ({u}){x})", t = ctype(element), u = unsigned(element)),
        Unary::Not if element == Primitive::Pred => format!("!{x}"),
        Unary::Not if element.is_integer() => format!("~{x}"),
        Unary::Sign if real => format!("offc_sign({x})"),
        Unary::Sign if element.is_signed_integer() => format!("({x} > 0 ? 1 : {x} < 0 ? -1 : 0)"),
        Unary::Sign if element.is_integer() => format!("({x} != 0 ? 1u : 0u)"),
        Unary::PopCount if element.is_integer() => match element.bits() {
            64 => format!("__popcll({x})"),
            bits => format!("__popc((unsigned){x} & 0x{:x}u)", u32::MAX >> (32 - bits)),
        },
        Unary::CountLeadingZeros if element.is_integer() => match element.bits() {
            64 => format!("__clzll({x})"),
            bits => format!("(__clz((unsigned){x} & 0x{:x}u) - {})", u32::MAX >> (32 - bits), 32 - bits),
        },
        Unary::IsFinite if real => format!("({x} - {x} == {x} - {x})"),
        Unary::Ceil => f("ceil")?,
        Unary::Floor => f("floor")?,
        Unary::RoundNearestAfz => f("round")?,
        Unary::RoundNearestEven => f("rint")?,
        Unary::Sqrt => f("sqrt")?,
        Unary::Rsqrt if real => format!("{one} / {}", call(element, "sqrt", &[x])),
        Unary::Exponential => f("exp")?,
        Unary::ExponentialMinusOne => f("expm1")?,
        Unary::Exp2 => f("exp2")?,
        Unary::Log => f("log")?,
        Unary::LogPlusOne => f("log1p")?,
        Unary::Log2 => f("log2")?,
        Unary::Logistic if real => format!("{one} / ({one} + {})", call(element, "exp", &[&format!("-{x}")])),
        Unary::Tanh => f("tanh")?,
        Unary::Tan => f("tan")?,
        Unary::Sine => f("sin")?,
        Unary::Cosine => f("cos")?,
        Unary::Sinh => f("sinh")?,
        Unary::Cosh => f("cosh")?,
        Unary::Asin => f("asin")?,
        Unary::Acos => f("acos")?,
        Unary::Asinh => f("asinh")?,
        Unary::Acosh => f("acosh")?,
        Unary::Atanh => f("atanh")?,
        Unary::Cbrt => f("cbrt")?,
        Unary::Erf => f("erf")?,
        _ => return None,
    };
    Some(if op == Unary::IsFinite { value } else { finish(element, &value) })
}

fn unsigned(element: Primitive) -> &'static str {
    if element.bits() == 64 { "unsigned long long" } else { "unsigned" }
}

/// Two operands of a type.
pub fn binary(op: Binary, element: Primitive, a: &str, b: &str) -> Option<String> {
    if element.is_complex() {
        return binary_complex(op, element, a, b);
    }
    if op == Binary::Complex {
        return matches!(element, Primitive::F32 | Primitive::F64).then(|| format!("offc_complex<{}>({a}, {b})", ctype(element)));
    }
    let (t, u) = (ctype(element), unsigned(element));
    let real = element.is_float();
    let integer = element.is_integer();
    let pred = element == Primitive::Pred;
    let sign = |symbol: &str| match (real, integer) {
        (true, _) => Some(format!("{a} {symbol} {b}")),
        (_, true) => Some(format!("({t})(({u}){a} {symbol} ({u}){b})")),
        _ => None,
    };
    let value = match op {
        Binary::Add if pred => return Some(format!("({a} || {b})")),
        Binary::Multiply if pred => return Some(format!("({a} && {b})")),
        Binary::Add => sign("+")?,
        Binary::Subtract => sign("-")?,
        Binary::Multiply => sign("*")?,
        Binary::Divide if real => format!("{a} / {b}"),
        Binary::Divide if integer => format!("offc_div<{t}>({a}, {b})"),
        Binary::Remainder if real => call(element, "fmod", &[a, b]),
        Binary::Remainder if integer => format!("offc_rem<{t}>({a}, {b})"),
        Binary::Maximum if pred => return Some(format!("({a} || {b})")),
        Binary::Minimum if pred => return Some(format!("({a} && {b})")),
        Binary::Maximum if real => return Some(format!("offc_max({a}, {b})")),
        Binary::Minimum if real => return Some(format!("offc_min({a}, {b})")),
        Binary::Maximum => return Some(format!("offc_imax<{t}>({a}, {b})")),
        Binary::Minimum => return Some(format!("offc_imin<{t}>({a}, {b})")),
        Binary::Power if real => call(element, "pow", &[a, b]),
        Binary::Power if integer => format!("offc_pow<{t}>({a}, {b})"),
        Binary::Atan2 if real => call(element, "atan2", &[a, b]),
        Binary::And if pred => return Some(format!("({a} && {b})")),
        Binary::Or if pred => return Some(format!("({a} || {b})")),
        Binary::Xor if pred => return Some(format!("({a} != {b})")),
        Binary::And => format!("({a} & {b})"),
        Binary::Or => format!("({a} | {b})"),
        Binary::Xor => format!("({a} ^ {b})"),
        Binary::Mulhi if element == Primitive::S64 => format!("__mul64hi({a}, {b})"),
        Binary::Mulhi if element == Primitive::U64 => format!("__umul64hi({a}, {b})"),
        Binary::Mulhi if integer => {
            let wide = if element.is_signed_integer() { "long long" } else { "unsigned long long" };
            format!("({t})(({wide}){a} * ({wide}){b} >> {})", element.bits())
        }
        Binary::ShiftLeft if integer => format!("(({u}){b} >= {n}u ? ({t})0 : ({t})(({u}){a} << ({u}){b}))", n = element.bits()),
        Binary::ShiftRightLogical if integer => {
            let mask = u64::MAX >> (64 - element.bits());
            format!(
                "(({u}){b} >= {n}u ? ({t})0 : ({t})((({u}){a} & 0x{mask:x}u{l}) >> ({u}){b}))",
                n = element.bits(),
                l = if element.bits() == 64 { "ll" } else { "" }
            )
        }
        Binary::ShiftRightArithmetic if integer => {
            let wide = if element.bits() == 64 { "long long" } else { "int" };
            let unused = if element.bits() == 64 { 0 } else { 32 - element.bits() };
            let most = if element.bits() == 64 { 63 } else { 31 };
            format!("({t})((({wide})(({u}){a} << {unused}) >> {unused}) >> (({u}){b} >= {n}u ? {most} : (int){b}))", n = element.bits())
        }
        _ => return None,
    };
    Some(finish(element, &value))
}

/// A compare of two operands of a type.
pub fn compare(direction: Direction, ty: Option<CompareType>, element: Primitive, a: &str, b: &str) -> String {
    let symbol = match direction {
        Direction::Eq => "==",
        Direction::Ne => "!=",
        Direction::Ge => ">=",
        Direction::Gt => ">",
        Direction::Le => "<=",
        Direction::Lt => "<",
    };
    if ty == Some(CompareType::Total) && element.is_float() {
        return format!("(offc_total({a}) {symbol} offc_total({b}))");
    }
    format!("({a} {symbol} {b})")
}

/// A number of one type as another.
pub fn convert(from: Primitive, to: Primitive, x: &str) -> String {
    if from == to {
        return x.to_string();
    }
    if let Some(own) = part(from) {
        return match to {
            Primitive::Pred => format!("({x}.re != 0 || {x}.im != 0)"),
            Primitive::C64 => format!("offc_to<float>(offc_wide({x}))"),
            Primitive::C128 => format!("offc_wide({x})"),
            _ => convert(own, to, &format!("{x}.re")),
        };
    }
    if let Some(own) = part(to) {
        return format!("offc_complex<{}>({}, 0)", ctype(own), convert(from, own, x));
    }
    if to == Primitive::Pred {
        return format!("({x} != 0)");
    }
    if from == Primitive::F64 && to.is_float() && to.bits() <= 8 {
        // Rounded once.
        return finish(to, &format!("offc_odd({x})"));
    }
    if to == Primitive::F64 {
        return format!("(double){x}");
    }
    if to.is_float() {
        // Between narrow types by way of `float`, which holds each of them.
        return finish(to, &if from.is_float() && from != Primitive::F64 { x.to_string() } else { format!("(float){x}") });
    }
    if from.is_float() {
        let sign = if to.is_signed_integer() { "signed" } else { "unsigned" };
        return format!("({})offc_to_{sign}<{}>({x})", ctype(to), to.bits());
    }
    finish(to, &format!("({}){x}", ctype(to)))
}

/// To fewer bits, in the same type.
pub fn reduce_precision(element: Primitive, exponent: i32, mantissa: i32, x: &str) -> Option<String> {
    let (own_exponent, own_mantissa) = match element {
        Primitive::F16 => (5, 10),
        Primitive::BF16 => (8, 7),
        Primitive::F32 => (8, 23),
        Primitive::F64 => (11, 52),
        _ => return None,
    };
    let (e, m) = (exponent.clamp(1, own_exponent), mantissa.clamp(0, own_mantissa));
    Some(match element {
        Primitive::F64 => {
            format!(
                "__longlong_as_double((long long)offc_reduce_bits<unsigned long long,11,52>((unsigned long long)__double_as_longlong({x}), {e}, {m}))"
            )
        }
        Primitive::F32 => format!("__uint_as_float(offc_reduce_bits<unsigned,8,23>(__float_as_uint({x}), {e}, {m}))"),
        Primitive::BF16 => {
            format!("offc_bf16_load((unsigned short)offc_reduce_bits<unsigned,8,7>((unsigned)offc_bf16_store({x}), {e}, {m}))")
        }
        _ => format!("offc_float<5,10,15,0>::load(offc_reduce_bits<unsigned,5,10>(offc_float<5,10,15,0>::store({x}), {e}, {m}))"),
    })
}

/// The bits of a number as a number of another type of the same width.
pub fn bitcast(from: Primitive, to: Primitive, x: &str) -> Option<String> {
    if from.bits() != to.bits() || from.is_complex() != to.is_complex() {
        return None;
    }
    let stored = super::types::store(from, x);
    Some(match (from, to) {
        _ if from == to => x.to_string(),
        (Primitive::F32, _) => super::types::load(to, &format!("__float_as_uint({x})")).replace("__float_as_uint", cast(to)),
        (Primitive::F64, _) => format!("({})__double_as_longlong({x})", ctype(to)),
        (_, Primitive::F32) => format!("__uint_as_float((unsigned){x})"),
        (_, Primitive::F64) => format!("__longlong_as_double((long long){x})"),
        _ => super::types::load(to, &format!("(({}){stored})", super::types::storage(to))),
    })
}

/// How 32 bits of a float become an integer.
fn cast(to: Primitive) -> &'static str {
    if to == Primitive::S32 { "(int)__float_as_uint" } else { "__float_as_uint" }
}

/// The bits of a number, zero-extended to 64.
pub fn raw(element: Primitive, x: &str) -> Option<String> {
    if element.is_complex() {
        return None;
    }
    Some(match element {
        Primitive::F64 => format!("(unsigned long long)__double_as_longlong({x})"),
        Primitive::F32 => format!("(unsigned long long)__float_as_uint({x})"),
        p if p.bits() == 64 => format!("(unsigned long long){x}"),
        p => format!("((unsigned long long){} & 0x{:x}ull)", super::types::store(p, x), u64::MAX >> (64 - p.bits().max(8))),
    })
}

/// The number of some bits.
pub fn cooked(element: Primitive, bits: &str) -> Option<String> {
    if element.is_complex() {
        return None;
    }
    Some(match element {
        Primitive::F64 => format!("__longlong_as_double((long long)({bits}))"),
        Primitive::F32 => format!("__uint_as_float((unsigned)({bits}))"),
        p if p.bits() == 64 => format!("({})({bits})", ctype(p)),
        p if p.bits() == 32 => format!("({})(unsigned)({bits})", ctype(p)),
        p => super::types::load(p, &format!("({})({bits})", super::types::storage(p))),
    })
}
