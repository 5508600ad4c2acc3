//! Dense arrays in the logical order: what operations outside of loops compute on.

use crate::ir::{Literal, LiteralValue, Primitive, ShapeTable, float};

/// An array: little-endian elements in the logical row-major order, whatever layout a program gives it.
///
/// Elements are stored as in [`LiteralValue::Dense`]: sub-byte types take one byte each (the value's bits in the low end), `pred` is 0
/// or 1, complex is real then imaginary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The element type.
    pub element: Primitive,
    /// Dimensions, most significant first; none for a scalar.
    pub dims: Vec<usize>,
    /// `elements × element.literal_bytes()` bytes.
    pub data: Vec<u8>,
}

impl Array {
    /// An array of zeros (of `+0.0` for floats; `f8e8m0fnu`, which has no zero, gets its smallest number).
    pub fn zeros(element: Primitive, dims: &[usize]) -> Self {
        let bytes = dims.iter().product::<usize>() * element.literal_bytes();
        Self { element, dims: dims.to_vec(), data: vec![0; bytes] }
    }
    /// An array of the bytes given; their number must fit the dimensions.
    pub fn new(element: Primitive, dims: &[usize], data: Vec<u8>) -> Self {
        assert_eq!(data.len(), dims.iter().product::<usize>() * element.literal_bytes(), "the data fill the dimensions");
        Self { element, dims: dims.to_vec(), data }
    }
    /// An array of `f32`.
    pub fn of_f32(dims: &[usize], values: &[f32]) -> Self {
        Self::new(Primitive::F32, dims, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }
    /// An array of a real type, each number rounded to it as [`float::encode`] does.
    pub fn of_f64(element: Primitive, dims: &[usize], values: &[f64]) -> Self {
        let mut out = Self::zeros(element, dims);
        for (i, &value) in values.iter().enumerate() {
            out.set_bits(i, float::encode(element, value));
        }
        out
    }
    /// An array of an integer type or `pred`; numbers are cut to its bits.
    pub fn of_i64(element: Primitive, dims: &[usize], values: &[i64]) -> Self {
        let mut out = Self::zeros(element, dims);
        for (i, &value) in values.iter().enumerate() {
            out.set_i64(i, value);
        }
        out
    }
    /// A constant's array; `None` if its data were left out, or if it is none of a known element type.
    pub fn of_literal(shapes: &ShapeTable, literal: &Literal) -> Option<Self> {
        let shape = shapes.array(literal.shape)?;
        let dims = shape.dims.iter().map(|d| usize::try_from(d.size).ok()).collect::<Option<Vec<_>>>()?;
        match &literal.value {
            LiteralValue::Dense(data) => Some(Self { element: shape.element.known()?, dims, data: data.to_vec() }),
            LiteralValue::Elided | LiteralValue::Tuple(_) | LiteralValue::Token => None,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }
    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }
    /// Bytes of one element.
    pub fn width(&self) -> usize {
        self.element.literal_bytes()
    }
    /// The bytes of an element.
    pub fn element_bytes(&self, index: usize) -> &[u8] {
        let width = self.width();
        &self.data[index * width..(index + 1) * width]
    }
    /// Overwrites an element by its bytes.
    pub fn set_element_bytes(&mut self, index: usize, bytes: &[u8]) {
        let width = self.width();
        self.data[index * width..(index + 1) * width].copy_from_slice(bytes);
    }
    /// The bits of an element, zero-extended; for `c128` its real part only.
    pub fn bits(&self, index: usize) -> u64 {
        let bytes = self.element_bytes(index);
        let mut all = [0; 8];
        let n = bytes.len().min(8);
        all[..n].copy_from_slice(&bytes[..n]);
        u64::from_le_bytes(all)
    }
    /// Overwrites an element of at most 64 bits by its bits.
    pub fn set_bits(&mut self, index: usize, bits: u64) {
        let width = self.width();
        self.set_element_bytes(index, &bits.to_le_bytes()[..width]);
    }
    /// An element of a real type, an integer type or `pred` as a number (rounded for 64-bit integers).
    pub fn f64(&self, index: usize) -> f64 {
        if self.element == Primitive::U64 { self.bits(index) as f64 } else { float::decode(self.element, self.bits(index)) }
    }
    /// Overwrites an element of a real type, rounded as [`float::encode`] does.
    pub fn set_f64(&mut self, index: usize, value: f64) {
        self.set_bits(index, float::encode(self.element, value));
    }
    /// An element of an integer type or `pred`: sign-extended if signed; a `u64` above `i64::MAX` comes out negative.
    pub fn i64(&self, index: usize) -> i64 {
        let unused = 64 - self.element.bits();
        let bits = self.bits(index) << unused;
        if self.element.is_signed_integer() { bits.cast_signed() >> unused } else { (bits >> unused).cast_signed() }
    }
    /// Overwrites an element of an integer type, cut to its bits; `pred` becomes 0 or 1.
    pub fn set_i64(&mut self, index: usize, value: i64) {
        let bits = match self.element {
            Primitive::Pred => u64::from(value != 0),
            element => value.cast_unsigned() & (u64::MAX >> (64 - element.bits())),
        };
        self.set_bits(index, bits);
    }
    /// An element of a complex or real type as real and imaginary part.
    pub fn complex(&self, index: usize) -> (f64, f64) {
        let bytes = self.element_bytes(index);
        match self.element {
            Primitive::C64 => {
                let part = |at: usize| f64::from(f32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
                (part(0), part(4))
            }
            Primitive::C128 => {
                let part = |at: usize| f64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
                (part(0), part(8))
            }
            _ => (self.f64(index), 0.0),
        }
    }
    /// Overwrites an element of a complex type (the real part alone, of a real one), rounded.
    pub fn set_complex(&mut self, index: usize, (re, im): (f64, f64)) {
        match self.element {
            Primitive::C64 => {
                let (re, im) = ((re as f32).to_le_bytes(), (im as f32).to_le_bytes());
                self.set_element_bytes(index, &[re, im].concat());
            }
            Primitive::C128 => self.set_element_bytes(index, &[re.to_le_bytes(), im.to_le_bytes()].concat()),
            _ => self.set_f64(index, re),
        }
    }
    /// The distance in elements between neighbours in each dimension.
    pub fn strides(&self) -> Vec<usize> {
        row_major(&self.dims)
    }
}

/// Strides in elements of the row-major order.
pub fn row_major(dims: &[usize]) -> Vec<usize> {
    let mut out = vec![1; dims.len()];
    for d in (1..dims.len()).rev() {
        out[d - 1] = out[d] * dims[d];
    }
    out
}

/// All indices of the dimensions in row-major order; one empty index for a scalar.
pub fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let total: usize = dims.iter().product();
    let dims = dims.to_vec();
    (0..total).map(move |mut linear| {
        let mut index = vec![0; dims.len()];
        for d in (0..dims.len()).rev() {
            index[d] = linear % dims[d];
            linear /= dims[d];
        }
        index
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_were_written() {
        let mut ints = Array::of_i64(Primitive::S4, &[2, 2], &[-8, 7, 9, -1]);
        assert_eq!((0..4).map(|i| ints.i64(i)).collect::<Vec<_>>(), [-8, 7, -7, -1]);
        ints.set_i64(0, 3);
        assert_eq!(ints.data, [3, 7, 9, 15]);
        let floats = Array::of_f64(Primitive::BF16, &[2], &[1.0, -2.5]);
        assert_eq!((floats.f64(0), floats.f64(1), floats.data.len()), (1.0, -2.5, 4));
        let mut complex = Array::zeros(Primitive::C64, &[1]);
        complex.set_complex(0, (1.5, -2.0));
        assert_eq!(complex.complex(0), (1.5, -2.0));
    }

    #[test]
    fn indices_go_in_row_major_order() {
        assert_eq!(indices(&[2, 2]).collect::<Vec<_>>(), [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(indices(&[]).count(), 1);
        assert_eq!(row_major(&[2, 3, 4]), [12, 4, 1]);
    }
}
