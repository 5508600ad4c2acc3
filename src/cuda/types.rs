//! Array types, and how elements are written in CUDA C: as they are stored, and as they are computed with.
//!
//! Real types up to 32 bits are computed with as `float` and rounded to their own type after each operation, integers up to 32 bits as
//! `int` and `unsigned`, wrapped after each operation: as the reference interpreter does.

use crate::ir::{Layout, Module, Primitive, Shape, ShapeId};

/// An array's type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ty {
    /// The element type.
    pub element: Primitive,
    /// Dimensions.
    pub dims: Vec<i64>,
    /// The layout, fastest dimension first.
    pub minor_to_major: Vec<usize>,
}

impl Ty {
    /// The type of an array shape, or why there is no code for it.
    pub fn of(module: &Module, shape: ShapeId) -> Result<Self, String> {
        let Shape::Array(array) = module.shapes.get(shape) else { return Err("expected an array".to_string()) };
        let element = array.element.known().ok_or_else(|| format!("element type `{}` is not known", array.element.name()))?;
        if array.dims.iter().any(|d| d.dynamic || d.size < 0) {
            return Err("a shape has a dynamic dimension".to_string());
        }
        let dims: Vec<i64> = array.dims.iter().map(|d| d.size).collect();
        let total = dims.iter().try_fold(element.literal_bytes() as i64, |n, &d| n.checked_mul(d));
        total.ok_or("an array is too large")?;
        let default = Layout::default_for(dims.len());
        let layout = array.layout.as_ref().unwrap_or(&default);
        if !layout.tiles.is_empty() || !layout.dim_level_types.is_empty() || layout.tail_padding_alignment_in_elements > 1 {
            return Err("a layout has tiles, padding or sparse dimensions".to_string());
        }
        let minor_to_major: Vec<usize> = layout.minor_to_major.iter().filter_map(|&d| usize::try_from(d).ok()).collect();
        let mut sorted = minor_to_major.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..dims.len()) {
            return Err("a layout does not order the dimensions".to_string());
        }
        Ok(Self { element, dims, minor_to_major })
    }
    /// A scalar.
    pub fn scalar(element: Primitive) -> Self {
        Self { element, dims: Vec::new(), minor_to_major: Vec::new() }
    }
    /// The same dimensions and layout with another element type.
    pub fn with_element(&self, element: Primitive) -> Self {
        Self { element, ..self.clone() }
    }
    /// The number of elements.
    pub fn elements(&self) -> i64 {
        self.dims.iter().product()
    }
    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.elements()).expect("not negative") * self.element.literal_bytes()
    }
    /// Elements from one index to the next, in each dimension.
    pub fn strides(&self) -> Vec<i64> {
        let mut out = vec![0; self.dims.len()];
        let mut stride = 1;
        for &d in &self.minor_to_major {
            out[d] = stride;
            stride *= self.dims[d];
        }
        out
    }
    /// The dimensions in the order in which memory holds them, fastest first, without those of one element.
    pub fn order(&self) -> Vec<usize> {
        self.minor_to_major.iter().copied().filter(|&d| self.dims[d] != 1).collect()
    }
}

/// What an element is in memory.
pub fn storage(element: Primitive) -> &'static str {
    match element {
        Primitive::C128 => "offc_c<double>",
        Primitive::C64 => "offc_c<float>",
        Primitive::F64 => "double",
        Primitive::F32 => "float",
        Primitive::F16 | Primitive::BF16 | Primitive::U16 => "unsigned short",
        Primitive::S64 => "long long",
        Primitive::U64 => "unsigned long long",
        Primitive::S32 => "int",
        Primitive::U32 => "unsigned",
        Primitive::S16 => "short",
        _ => "unsigned char",
    }
}

/// What an element is while it is computed with.
pub fn ctype(element: Primitive) -> &'static str {
    match element {
        Primitive::C128 => "offc_c<double>",
        Primitive::C64 => "offc_c<float>",
        Primitive::F64 => "double",
        Primitive::Pred => "bool",
        Primitive::S64 => "long long",
        Primitive::U64 => "unsigned long long",
        p if p.is_float() => "float",
        p if p.is_signed_integer() => "int",
        _ => "unsigned",
    }
}

/// The struct of the prelude that converts a narrow float, if the type is one.
fn format(element: Primitive) -> Option<&'static str> {
    Some(match element {
        Primitive::F16 => "offc_float<5,10,15,0>",
        Primitive::F8E3M4 => "offc_float<3,4,3,0>",
        Primitive::F8E4M3 => "offc_float<4,3,7,0>",
        Primitive::F8E4M3FN => "offc_float<4,3,7,1>",
        Primitive::F8E4M3B11FNUZ => "offc_float<4,3,11,2>",
        Primitive::F8E4M3FNUZ => "offc_float<4,3,8,2>",
        Primitive::F8E5M2 => "offc_float<5,2,15,0>",
        Primitive::F8E5M2FNUZ => "offc_float<5,2,16,2>",
        Primitive::F4E2M1FN => "offc_float<2,1,1,3>",
        Primitive::F6E2M3FN => "offc_float<2,3,1,3>",
        Primitive::F6E3M2FN => "offc_float<3,2,3,3>",
        Primitive::F8E8M0FNU => "offc_e8m0",
        _ => return None,
    })
}

/// A stored element as a number.
pub fn load(element: Primitive, stored: &str) -> String {
    match element {
        Primitive::BF16 => format!("offc_bf16_load({stored})"),
        Primitive::Pred => format!("({stored} != 0)"),
        _ if format(element).is_some() => format!("{}::load({stored})", format(element).unwrap_or_default()),
        p if p.bits() < 8 && p.is_signed_integer() => wrap(p, &format!("(int){stored}")),
        Primitive::S8 => format!("(int)(signed char){stored}"),
        p if p.bits() < 32 && p.is_integer() => format!("({}){stored}", ctype(p)),
        _ => stored.to_string(),
    }
}

/// A number of that type as it is stored.
pub fn store(element: Primitive, value: &str) -> String {
    match element {
        Primitive::BF16 => format!("offc_bf16_store({value})"),
        Primitive::Pred => format!("({value} ? 1 : 0)"),
        _ if format(element).is_some() => format!("({}){}::store({value})", storage(element), format(element).unwrap_or_default()),
        p if p.bits() < 8 => format!("(unsigned char)({value} & {})", (1u32 << p.bits()) - 1),
        p if p.bits() < 32 => format!("({}){value}", storage(p)),
        _ => value.to_string(),
    }
}

/// What an operation gave, rounded or wrapped to the type.
pub fn finish(element: Primitive, value: &str) -> String {
    match element {
        Primitive::BF16 => format!("offc_bf16({value})"),
        _ if format(element).is_some() => format!("{}::round({value})", format(element).unwrap_or_default()),
        p if p.is_integer() && p.bits() < 32 => wrap(p, value),
        _ => value.to_string(),
    }
}

/// An integer cut to its bits.
fn wrap(element: Primitive, value: &str) -> String {
    let unused = 32 - element.bits();
    if element.is_signed_integer() {
        format!("((int)((unsigned)({value}) << {unused}) >> {unused})")
    } else {
        format!("((unsigned)({value}) & 0x{:x}u)", u32::MAX >> unused)
    }
}

/// A number of any type from its bytes.
pub fn literal_of(element: Primitive, bytes: &[u8]) -> String {
    let bits = |bytes: &[u8]| {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(all)
    };
    let Some(part) = part(element) else { return literal(element, bits(bytes)) };
    let (re, im) = bytes.split_at(bytes.len() / 2);
    format!("offc_complex<{}>({}, {})", ctype(part), literal(part, bits(re)), literal(part, bits(im)))
}

/// The type of a complex number's parts.
pub fn part(element: Primitive) -> Option<Primitive> {
    match element {
        Primitive::C64 => Some(Primitive::F32),
        Primitive::C128 => Some(Primitive::F64),
        _ => None,
    }
}

/// A number of that type from its bits (as a literal stores them).
pub fn literal(element: Primitive, bits: u64) -> String {
    match element {
        Primitive::F64 => format!("__longlong_as_double(0x{bits:x}ll)"),
        Primitive::F32 => float_literal(f32::from_bits(bits as u32)),
        Primitive::Pred => if bits != 0 { "true" } else { "false" }.to_string(),
        Primitive::S64 => format!("(long long)0x{bits:x}ull"),
        Primitive::U64 => format!("0x{bits:x}ull"),
        p if p.is_float() => float_literal(crate::ir::float::decode(p, bits) as f32),
        p if p.is_signed_integer() => {
            let unused = 64 - p.bits();
            match (bits << unused).cast_signed() >> unused {
                v if v == i64::from(i32::MIN) => "(-2147483647 - 1)".to_string(),
                v => format!("({v})"),
            }
        }
        _ => format!("{bits}u"),
    }
}

/// Small whole numbers as such, everything else by its bits.
fn float_literal(value: f32) -> String {
    if value.fract() == 0.0 && value.abs() < 1e6 && !(value == 0.0 && value.is_sign_negative()) {
        return if value < 0.0 { format!("({value:.1}f)") } else { format!("{value:.1}f") };
    }
    format!("__uint_as_float(0x{:08x}u)", value.to_bits())
}
