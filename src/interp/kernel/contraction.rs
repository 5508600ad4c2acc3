//! Lowers dot and what is a dot by another name.

use super::Action;
use super::build::{Builder, Move, NodeId, Unsupported, Value};
use super::dot::{Dot, algorithm_type};
use super::shape::ArrayType;
use crate::interp::elementwise::Elementwise;
use crate::interp::lanes::{Lane, lane};
use crate::interp::view::{Access, View};
use crate::ir::{Binary, DotDims, InstrId, Primitive};

fn sizes(values: &[i64]) -> Result<Vec<usize>, Unsupported> {
    values.iter().map(|&v| usize::try_from(v).map_err(|_| format!("expected a number of at least 0, found {v}"))).collect()
}

impl Builder<'_> {
    pub(super) fn dot(
        &mut self,
        id: InstrId,
        dot: &crate::ir::Dot,
        lhs: NodeId,
        rhs: NodeId,
        ty: &ArrayType,
    ) -> Result<Value, Unsupported> {
        if dot.extras != crate::ir::ContractionExtras::default() {
            return Err("a sparse or block-scaled dot".to_string());
        }
        let rounded = algorithm_type(dot.precision.algorithm);
        let to = self.destination(Some(id), 0, ty.element, &ty.dims);
        self.contract(&dot.dims, rounded, lhs, rhs, to.clone())?;
        Ok(Value::Array(self.view(to)))
    }

    /// An operand of a scaled dot: each block of equal sizes times its scale, in `f32`. A scalar scales all of it.
    pub(super) fn scaled(&mut self, value: NodeId, scale: NodeId) -> Result<NodeId, Unsupported> {
        if [value, scale].iter().any(|&n| lane(self.element(n)) != Lane::F32) {
            return Err(format!("a scaled dot of `{}` and `{}`", self.element(value).name(), self.element(scale).name()));
        }
        let (dims, blocks) = (self.dims(value).to_vec(), self.dims(scale).to_vec());
        let wide = self.compute(Elementwise::Convert, Primitive::F32, &[value]);
        let mut scale = self.compute(Elementwise::Convert, Primitive::F32, &[scale]);
        if blocks.is_empty() {
            scale = self.moved(scale, &Move::Broadcast { dimensions: Vec::new(), dims });
        } else {
            if blocks.len() != dims.len() || dims.iter().zip(&blocks).any(|(&d, &b)| b == 0 || d % b != 0) {
                return Err(format!("scales of dimensions {blocks:?} for {dims:?}"));
            }
            // The place of a block, and the place in it, side by side.
            let split = dims.iter().zip(&blocks).flat_map(|(&d, &b)| [b, d / b]).collect();
            let dimensions = (0..dims.len()).map(|d| 2 * d).collect();
            scale = self.moved(scale, &Move::Broadcast { dimensions, dims: split });
            scale = self.moved(scale, &Move::Reshape(dims));
        }
        Ok(self.compute(Elementwise::Binary(Binary::Multiply), Primitive::F32, &[wide, scale]))
    }

    /// Adds a contraction that writes `to`, whose dimensions are batch, left free, right free ones in order.
    pub(super) fn contract(
        &mut self,
        dims: &DotDims,
        rounded: Option<Primitive>,
        lhs: NodeId,
        rhs: NodeId,
        to: View,
    ) -> Result<(), Unsupported> {
        let (lhs, rhs) = (self.stored(lhs), self.stored(rhs));
        let (lhs_contracting, rhs_contracting) = (sizes(&dims.lhs_contracting)?, sizes(&dims.rhs_contracting)?);
        let (lhs_batch, rhs_batch) = (sizes(&dims.lhs_batch)?, sizes(&dims.rhs_batch)?);
        let free = |rank: usize, a: &[usize], b: &[usize]| (0..rank).filter(|d| !a.contains(d) && !b.contains(d)).collect::<Vec<_>>();
        let lhs_free = free(lhs.dims.len(), &lhs_contracting, &lhs_batch);
        let rhs_free = free(rhs.dims.len(), &rhs_contracting, &rhs_batch);
        let product = |of: &[usize], dims: &[usize]| dims.iter().map(|&d| of[d]).product::<usize>();
        let (batch, rows) = (product(&lhs.dims, &lhs_batch), product(&lhs.dims, &lhs_free));
        let (depth, columns) = (product(&lhs.dims, &lhs_contracting), product(&rhs.dims, &rhs_free));
        let left = lhs.transpose(&[lhs_batch, lhs_free, lhs_contracting].concat());
        let right = rhs.transpose(&[rhs_batch, rhs_contracting, rhs_free].concat());
        if to.len() != batch * rows * columns || right.len() != batch * depth * columns {
            return Err("a dot whose dimensions do not fit together".to_string());
        }
        // Not coalesced: three dimensions, three strides.
        let matrix = |view: &View, dims: [usize; 3]| {
            let View { slot, element, dims, strides, base, dynamic } = view.clone().reshape(&dims)?;
            Some(Access { slot, element, dims, strides, base, dynamic })
        };
        let matrices =
            || [matrix(&left, [batch, rows, depth]), matrix(&right, [batch, depth, columns]), matrix(&to, [batch, rows, columns])];
        let fast = self.fast.then(matrices);
        self.kernel.actions.push(Action::Dot(Box::new(Dot {
            batch,
            rows,
            columns,
            depth,
            left: left.access(),
            right: right.access(),
            to: to.access(),
            rounded,
            fast,
        })));
        Ok(())
    }
}
