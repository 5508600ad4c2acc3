//! Kernels of `fft`: every sum written out, in `double`, one dimension after the other. The work is the square of a dimension's length.

use super::emit::{Emitted, Emitter, Memory, Place};
use super::graph::Ref;
use super::linalg::row_major;
use super::lower::{BLOCK, Lowering};
use super::scalar::convert;
use super::source::Written;
use super::types::{Ty, ctype};
use crate::ir::Primitive;

/// Where a pass reads.
#[derive(Clone, Copy)]
enum From {
    Operand(Ref),
    Scratch(Memory),
}

/// One dimension's sums.
struct Pass {
    from: From,
    /// Sizes of what is read and what is written.
    before: Vec<i64>,
    after: Vec<i64>,
    dimension: usize,
    /// The length of the sums.
    length: i64,
    sign: f64,
    /// The result, if it is the last one.
    last: bool,
    scale: f64,
}

impl Lowering<'_> {
    /// A transform by the number of its `FftType`: 0 FFT, 1 IFFT, 2 RFFT, 3 IRFFT.
    pub(super) fn fft(&mut self, node: usize, fft_type: i32, lengths: &[i64]) -> Emitted<()> {
        let operand = self.graph.nodes[node].operands[0];
        let (from, to) = (self.graph.ty(operand).clone(), self.graph.nodes[node].results[0].clone());
        if to.elements() == 0 {
            return Ok(());
        }
        let rank = to.dims.len();
        let outer = rank.checked_sub(lengths.len()).ok_or("more lengths than dimensions")?;
        let total: i64 = lengths.iter().product();
        let inverse = fft_type == 1 || fft_type == 3;
        let sign = if inverse { 1.0 } else { -1.0 };
        // As the reference does it: of real numbers the last dimension is the first, to real numbers it is the last.
        let order: Vec<usize> = match fft_type {
            0..=2 => (outer..rank).rev().collect(),
            3 => (outer..rank).collect(),
            other => return Err(format!("a transform of number {other}: there is no kernel for it")),
        };
        let mut sizes = from.dims.clone();
        let mut source = From::Operand(operand);
        for (k, &dimension) in order.iter().enumerate() {
            let mut after = sizes.clone();
            after[dimension] = to.dims[dimension];
            let last = k + 1 == order.len();
            let pass = Pass {
                from: source,
                before: sizes,
                after: after.clone(),
                dimension,
                length: lengths[dimension - outer],
                sign,
                last,
                scale: if last && inverse { 1.0 / total as f64 } else { 1.0 },
            };
            let memory = if last {
                self.stored[&Ref { node, part: 0 }]
            } else {
                self.scratch(&Ty { element: Primitive::C128, dims: vec![after.iter().product()], minor_to_major: vec![0] })
            };
            self.pass(&pass, memory, &to)?;
            (sizes, source) = (after, From::Scratch(memory));
        }
        Ok(())
    }

    /// A thread a result.
    fn pass(&mut self, pass: &Pass, memory: Memory, to: &Ty) -> Emitted<()> {
        let (index, z) = (self.index, ctype(Primitive::C128));
        let count: i64 = pass.after.iter().product();
        let n = pass.length;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        e.inexact = true;
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {count}) return;"));
        let place = e.split("i", &row_major(pass.after.len()), &pass.after);
        e.line(&format!("{z} sum = offc_zz(0.0, 0.0);"));
        e.open(&format!("for ({index} j = 0; j < {n}; ++j)"));
        // Half a spectrum of real numbers stands for the whole: the other half is its conjugate.
        let known = pass.before[pass.dimension];
        let mut at = place.clone();
        at[pass.dimension] = if known < n { e.index(&format!("j < {known} ? j : {n} - j")) } else { "j".to_string() };
        let x = match pass.from {
            From::Operand(operand) => {
                let element = e.graph.ty(operand).element;
                let x = e.element(operand, &Place::at(at))?;
                convert(element, Primitive::C128, &x)
            }
            From::Scratch(scratch) => {
                let name = e.argument(scratch, z);
                let mut strides = vec![1; pass.before.len()];
                for d in (1..strides.len()).rev() {
                    strides[d - 1] = strides[d] * pass.before[d];
                }
                let offset = e.join(&at, &strides);
                format!("{name}[{offset}]")
            }
        };
        let x = if known < n { format!("(j < {known} ? {x} : offc_conj({x}))") } else { x };
        // The angle is reduced before it is a float.
        let k = &place[pass.dimension];
        e.line(&format!("const double turn = 2.0 * (double)((long long)j * {k} % {n}) / {n}.0;"));
        e.line(&format!("sum = sum + {x} * offc_zz(cospi(turn), {}sinpi(turn));", if pass.sign < 0.0 { "-" } else { "" }));
        e.close();
        let (offset, width);
        if pass.last {
            if pass.scale != 1.0 {
                let scale = super::types::literal(Primitive::F64, pass.scale.to_bits());
                e.line(&format!("sum = offc_::scale(sum, {scale});"));
            }
            offset = e.offset(to, &Place::at(place));
            e.store(memory, to, &offset, &convert(Primitive::C128, to.element, "sum"));
            width = to.element.literal_bytes();
        } else {
            let name = e.argument(memory, z);
            e.line(&format!("{name}[i] = sum;"));
            (offset, width) = ("i".to_string(), 16);
        }
        let text = e.finish()?;
        let written = Written::of(e, "fft", text, vec![(memory, offset, width)]);
        self.launch(written, (count + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }
}
