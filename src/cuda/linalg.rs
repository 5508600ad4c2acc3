//! Kernels of `cholesky` and `triangular-solve`: simple ones, in `double` (pairs of them for complex numbers), sums in ascending order of their
//! index as the reference interpreter's.

use super::emit::{Emitted, Emitter, Memory, Place};
use super::graph::Ref;
use super::lower::{BLOCK, Lowering};
use super::scalar::convert;
use super::source::Written;
use super::types::{Ty, ctype};
use crate::ir::{Op, Primitive};

/// What an element is computed in.
pub(super) fn wide(element: Primitive) -> Primitive {
    if element.is_complex() { Primitive::C128 } else { Primitive::F64 }
}

/// Dimensions in the logical order, the last one fastest.
pub(super) fn row_major(count: usize) -> Vec<usize> {
    (0..count).rev().collect()
}

impl Lowering<'_> {
    /// Scratch memory of as many wide numbers as an array has elements.
    fn wide_scratch(&mut self, ty: &Ty) -> Memory {
        self.scratch(&Ty { element: wide(ty.element), dims: vec![ty.elements()], minor_to_major: vec![0] })
    }

    /// A thread a matrix.
    pub(super) fn cholesky(&mut self, node: usize, lower: bool) -> Emitted<()> {
        let operand = self.graph.nodes[node].operands[0];
        let to = self.graph.nodes[node].results[0].clone();
        if to.elements() == 0 {
            return Ok(());
        }
        let rank = to.dims.len();
        let (n, outer) = (to.dims[rank - 1], to.dims[..rank - 2].to_vec());
        let count: i64 = outer.iter().product();
        let factor = self.wide_scratch(&to);
        let (kind, index) = (wide(to.element), self.index);
        let w = ctype(kind);
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        e.inexact = true;
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {count}) return;"));
        let batch = e.split("i", &row_major(outer.len()), &outer);
        let memory = e.argument(factor, w);
        e.line(&format!("{w}* l = {memory} + i * {};", n * n));
        e.line("bool definite = true;");
        e.open(&format!("for ({index} c = 0; c < {n}; ++c)"));
        e.open(&format!("for ({index} r = c; r < {n}; ++r)"));
        let (row, column) = if lower { ("r", "c") } else { ("c", "r") };
        let x = e.element(operand, &Place::at([&batch[..], &[row.to_string(), column.to_string()]].concat()))?;
        let x = convert(to.element, kind, &x);
        let x = if lower { x } else { format!("offc_conj({x})") };
        e.line(&format!("{w} sum = {x};"));
        e.line(&format!("if (r == c) sum = offc_of<{w}>(offc_real(sum));"));
        e.line(&format!("for ({index} k = 0; k < c; ++k) sum = sum - l[r * {n} + k] * offc_conj(l[c * {n} + k]);"));
        e.line("if (r == c && !(offc_real(sum) > 0.0)) definite = false;");
        e.line(&format!("l[r * {n} + c] = r == c ? offc_of<{w}>(sqrt(offc_real(sum))) : offc_over(sum, offc_real(l[c * {n} + c]));"));
        e.close();
        e.close();
        e.open(&format!("for ({index} r = 0; r < {n}; ++r)"));
        e.open(&format!("for ({index} c = 0; c < {n}; ++c)"));
        let (inside, entry) = if lower { ("c <= r", format!("l[r * {n} + c]")) } else { ("r <= c", format!("offc_conj(l[c * {n} + r])")) };
        e.line(&format!("{w} value = offc_of<{w}>(0.0);"));
        e.line(&format!("if (!definite) value = offc_nan<{w}>(); else if ({inside}) value = {entry};"));
        let offset = e.offset(&to, &Place::at([&batch[..], &["r".to_string(), "c".to_string()]].concat()));
        let out = e.stored[&Ref { node, part: 0 }];
        e.store(out, &to, &offset, &convert(kind, to.element, "value"));
        e.close();
        e.close();
        let text = e.finish()?;
        let writes = vec![(factor, "l".to_string(), kind.literal_bytes()), (out, offset, to.element.literal_bytes())];
        let written = Written::of(e, "cholesky", text, writes);
        self.launch(written, (count + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// A thread a line of the right side, by substitution.
    pub(super) fn triangular_solve(&mut self, node: usize) -> Emitted<()> {
        let Some(&Op::TriangularSolve { left_side, lower, unit_diagonal, transpose_a }) = self.graph.op(node) else {
            unreachable!("a triangular solve")
        };
        let operands = self.graph.nodes[node].operands.clone();
        let to = self.graph.nodes[node].results[0].clone();
        if to.elements() == 0 {
            return Ok(());
        }
        let rank = to.dims.len();
        let (rows, columns) = (to.dims[rank - 2], to.dims[rank - 1]);
        let (n, lines) = if left_side { (rows, columns) } else { (columns, rows) };
        let outer = to.dims[..rank - 2].to_vec();
        let count = outer.iter().product::<i64>() * lines;
        let solved = self.wide_scratch(&to);
        let (kind, index) = (wide(to.element), self.index);
        let w = ctype(kind);
        let transposed = transpose_a >= 2;
        let is_lower = lower ^ transposed ^ !left_side;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        e.inexact = true;
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {count}) return;"));
        let (matrix, line) = (e.over("i", lines), e.rest("i", lines));
        let batch = e.split(&matrix, &row_major(outer.len()), &outer);
        let memory = e.argument(solved, w);
        e.line(&format!("{w}* x = {memory} + i * {n};"));
        let at = |r: &str| {
            let pair = if left_side { [r.to_string(), line.clone()] } else { [line.clone(), r.to_string()] };
            Place::at([&batch[..], &pair].concat())
        };
        // The coefficient of row `r`, column `k` of the system that is solved.
        let coefficient = |e: &mut Emitter<'_, '_>, r: &str, k: &str| -> Emitted<String> {
            let pair = if transposed == left_side { [k.to_string(), r.to_string()] } else { [r.to_string(), k.to_string()] };
            let value = e.element(operands[0], &Place::at([&batch[..], &pair].concat()))?;
            let value = convert(to.element, kind, &value);
            Ok(if transpose_a == 3 { format!("offc_conj({value})") } else { value })
        };
        e.open(&format!("for ({index} step = 0; step < {n}; ++step)"));
        e.line(&format!("const {index} r = {};", if is_lower { "step".to_string() } else { format!("{} - step", n - 1) }));
        let right = e.element(operands[1], &at("r"))?;
        e.line(&format!("{w} sum = {};", convert(to.element, kind, &right)));
        let (from, end) = if is_lower { ("0".to_string(), "r".to_string()) } else { ("r + 1".to_string(), n.to_string()) };
        e.open(&format!("for ({index} k = {from}; k < {end}; ++k)"));
        let factor = coefficient(&mut e, "r", "k")?;
        e.line(&format!("sum = sum - {factor} * x[k];"));
        e.close();
        if unit_diagonal {
            e.line("x[r] = sum;");
        } else {
            let diagonal = coefficient(&mut e, "r", "r")?;
            e.line(&format!("x[r] = offc_quotient(sum, {diagonal});"));
        }
        e.close();
        e.open(&format!("for ({index} r = 0; r < {n}; ++r)"));
        let offset = e.offset(&to, &at("r"));
        let out = e.stored[&Ref { node, part: 0 }];
        e.store(out, &to, &offset, &convert(kind, to.element, "x[r]"));
        e.close();
        let text = e.finish()?;
        let writes = vec![(solved, "x".to_string(), kind.literal_bytes()), (out, offset, to.element.literal_bytes())];
        let written = Written::of(e, "solve", text, writes);
        self.launch(written, (count + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }
}
