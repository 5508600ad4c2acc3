//! Matrix products as a library computes them: which dots are one, and how rows, columns and strides are named.
//!
//! cuBLAS knows column-major matrices with a leading dimension, and a stride from one of a batch to the next. Any two groups of dimensions that
//! memory holds like two dimensions, one of them without gaps, are such a matrix, as it is or transposed. A row-major product `C = A B` is
//! the column-major `Cᵀ = Bᵀ Aᵀ`: the same memory.

use super::types::Ty;
use crate::ir::Primitive;

/// `c = alpha · op(a) op(b) + beta · c`, of column-major matrices, `batch` times.
#[derive(Clone, Debug, PartialEq)]
pub struct Product<M> {
    /// The left operand: `m` × `k`, or `k` × `m` and transposed.
    pub a: M,
    /// The right operand: `k` × `n`, or `n` × `k` and transposed.
    pub b: M,
    /// The result: `m` × `n`.
    pub c: M,
    /// Whether the left one is transposed.
    pub transpose_a: bool,
    /// Whether the right one is transposed.
    pub transpose_b: bool,
    /// Rows, columns, summed elements.
    pub sizes: [i32; 3],
    /// Elements from one column to the next, of `a`, `b`, `c`.
    pub leading: [i32; 3],
    /// Elements from one of a batch to the next, of `a`, `b`, `c`.
    pub strides: [i64; 3],
    /// How many products.
    pub batch: i32,
    /// The operands' type.
    pub from: Primitive,
    /// The result's type.
    pub to: Primitive,
    /// The factor of the product.
    pub alpha: f64,
    /// The factor of what is there already.
    pub beta: f64,
}

impl<M> Product<M> {
    /// The same with other names for memory.
    pub fn map<N>(self, f: impl Fn(M) -> N) -> Product<N> {
        let Self { a, b, c, transpose_a, transpose_b, sizes, leading, strides, batch, from, to, alpha, beta } = self;
        Product { a: f(a), b: f(b), c: f(c), transpose_a, transpose_b, sizes, leading, strides, batch, from, to, alpha, beta }
    }
}

/// A group of dimensions as one: its size and stride. A group of one element has any stride: 0.
fn group(ty: &Ty, dims: &[usize]) -> Option<(i64, i64)> {
    let strides = ty.strides();
    let (mut size, mut stride) = (1, 0);
    for &d in dims.iter().rev().filter(|&&d| ty.dims[d] != 1) {
        if size == 1 {
            stride = strides[d];
        } else if strides[d] != stride * size {
            return None;
        }
        size *= ty.dims[d];
    }
    Some((size, stride))
}

/// A matrix in memory: whether its second group is the one without gaps (a row-major matrix), the leading dimension, the stride of a batch.
fn matrix(ty: &Ty, batch: &[usize], rows: &[usize], columns: &[usize]) -> Option<(bool, i64, i64)> {
    let ((_, stride), (m, row), (n, column)) = (group(ty, batch)?, group(ty, rows)?, group(ty, columns)?);
    // A dimension of one element has no stride that counts.
    let (row_major, leading) = match (m, n) {
        (1, 1) => (true, 1),
        (1, _) if column == 1 => (true, n),
        (1, _) => (false, column),
        (_, 1) if row == 1 => (false, m),
        (_, 1) => (true, row),
        _ if column == 1 => (true, row),
        _ if row == 1 => (false, column),
        _ => return None,
    };
    let least = if row_major { n } else { m };
    (leading >= least).then_some((row_major, leading, stride))
}

/// The dimensions of a dot: of the left side, the right side, and the result's batch, rows and columns.
pub(super) struct Sides<'a> {
    pub left: (&'a Ty, &'a [usize], &'a [usize], &'a [usize]),
    pub right: (&'a Ty, &'a [usize], &'a [usize], &'a [usize]),
    pub to: &'a Ty,
}

/// The product of a library that a dot is: `left` is batch, free and contracted dimensions, and so is `right`. `None`: none is.
pub(super) fn product<M: Copy>(sides: &Sides<'_>, memory: [M; 3], alpha: f64, beta: f64) -> Option<Product<M>> {
    let (a, a_batch, a_free, a_sum) = sides.left;
    let (b, b_batch, b_free, b_sum) = sides.right;
    let to = sides.to;
    let same = a.element == b.element
        && match a.element {
            Primitive::F64 => to.element == Primitive::F64,
            Primitive::F32 | Primitive::F16 | Primitive::BF16 => to.element == a.element || to.element == Primitive::F32,
            _ => false,
        };
    let size = |ty: &Ty, dims: &[usize]| dims.iter().map(|&d| ty.dims[d]).product::<i64>();
    let (m, n, k, batch) = (size(a, a_free), size(b, b_free), size(a, a_sum), size(a, a_batch));
    if !same || m * n * k * batch == 0 {
        return None;
    }
    let place = |from: usize, count: usize| (from..from + count).collect::<Vec<_>>();
    let (c_batch, c_rows) = (place(0, a_batch.len()), place(a_batch.len(), a_free.len()));
    let c_columns = place(a_batch.len() + a_free.len(), b_free.len());
    let left = matrix(a, a_batch, a_free, a_sum)?;
    let right = matrix(b, b_batch, b_sum, b_free)?;
    let (row_major, ldc, stride_c) = matrix(to, &c_batch, &c_rows, &c_columns)?;
    let element = a.element;
    let (mut a, mut b) = ((memory[0], m, left), (memory[1], n, right));
    if row_major {
        // A column-major reader sees a row-major matrix transposed: the factors change places.
        (a, b) = (b, a);
    }
    Some(Product {
        a: a.0,
        b: b.0,
        c: memory[2],
        transpose_a: a.2.0 != row_major,
        transpose_b: b.2.0 != row_major,
        sizes: [narrow(a.1)?, narrow(b.1)?, narrow(k)?],
        leading: [narrow(a.2.1)?, narrow(b.2.1)?, narrow(ldc)?],
        strides: [a.2.2, b.2.2, stride_c],
        batch: narrow(batch)?,
        from: element,
        to: to.element,
        alpha,
        beta,
    })
}

fn narrow(n: i64) -> Option<i32> {
    i32::try_from(n).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(dims: &[i64], minor_to_major: &[usize]) -> Ty {
        Ty { element: Primitive::F32, dims: dims.to_vec(), minor_to_major: minor_to_major.to_vec() }
    }

    #[test]
    fn row_major_is_the_transposed_product() {
        let (a, b, c) = (ty(&[5, 7], &[1, 0]), ty(&[7, 6], &[1, 0]), ty(&[5, 6], &[1, 0]));
        let sides = Sides { left: (&a, &[], &[0], &[1]), right: (&b, &[], &[1], &[0]), to: &c };
        let p = product(&sides, ["a", "b", "c"], 1.0, 0.0).expect("plain matrices");
        assert_eq!((p.a, p.b, p.sizes, p.leading), ("b", "a", [6, 5, 7], [6, 7, 6]));
        assert_eq!((p.transpose_a, p.transpose_b, p.batch), (false, false, 1));
    }

    #[test]
    fn what_memory_does_not_hold_as_a_matrix_is_none() {
        // Free dimensions 0 and 2 with the summed one between them.
        let (a, b, c) = (ty(&[2, 3, 4], &[2, 1, 0]), ty(&[3, 5], &[1, 0]), ty(&[2, 4, 5], &[2, 1, 0]));
        let sides = Sides { left: (&a, &[], &[0, 2], &[1]), right: (&b, &[], &[1], &[0]), to: &c };
        assert_eq!(product(&sides, [0, 1, 2], 1.0, 0.0), None);
    }
}
