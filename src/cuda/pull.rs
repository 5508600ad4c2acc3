//! What an element of an operation is, in terms of elements of its operands.

use super::emit::{Emitted, Emitter, Place};
use super::graph::Ref;
use super::scalar;
use super::types::{Ty, ctype, storage};
use crate::ir::{Gather, InstrId, LiteralValue, Op, PadDim, Primitive};

fn unsupported<T>(what: impl std::fmt::Display) -> Emitted<T> {
    Err(format!("{what}: there is no kernel for it"))
}

/// A dimension's number.
pub(super) fn dim(d: i64) -> Emitted<usize> {
    usize::try_from(d).map_err(|_| format!("expected a dimension, found {d}"))
}

/// Dimension numbers.
pub(super) fn dims(list: &[i64]) -> Emitted<Vec<usize>> {
    list.iter().map(|&d| dim(d)).collect()
}

impl Emitter<'_, '_> {
    /// An element of an instruction's result.
    pub(super) fn compute(&mut self, array: Ref, id: InstrId, ty: &Ty, place: &Place) -> Emitted<String> {
        let module = self.graph.module;
        let op = &module.instr(id).op;
        let operands = self.graph.nodes[array.node].operands.clone();
        let c = ctype(ty.element);
        let from = |this: &Self, i: usize| this.graph.ty(operands[i]).clone();
        Ok(match op {
            Op::Unary(op) => {
                let x = self.same(operands[0], ty, place)?;
                let element = from(self, 0).element;
                self.inexact |= scalar::is_inexact(*op)
                    || element.is_complex() && matches!(op, crate::ir::Unary::Abs | crate::ir::Unary::Sqrt | crate::ir::Unary::Sign);
                match scalar::unary(*op, element, &x) {
                    Some(text) => self.bind(c, &text),
                    None => return unsupported(format!("`{}` of `{}`", op.name(), element.name())),
                }
            }
            Op::Binary(op) => {
                let (a, b) = (self.same(operands[0], ty, place)?, self.same(operands[1], ty, place)?);
                let element = from(self, 0).element;
                self.inexact |=
                    (element.is_float() || element.is_complex()) && matches!(op, crate::ir::Binary::Power | crate::ir::Binary::Atan2);
                match scalar::binary(*op, element, &a, &b) {
                    Some(text) => self.bind(c, &text),
                    None => return unsupported(format!("`{}` of `{}`", op.name(), element.name())),
                }
            }
            Op::Compare { direction, ty: order } => {
                let (a, b) = (self.same(operands[0], ty, place)?, self.same(operands[1], ty, place)?);
                let text = scalar::compare(*direction, *order, from(self, 0).element, &a, &b);
                self.bind(c, &text)
            }
            Op::Select => {
                let p = self.same(operands[0], ty, place)?;
                let (a, b) = (self.same(operands[1], ty, place)?, self.same(operands[2], ty, place)?);
                self.bind(c, &format!("{p} ? {a} : {b}"))
            }
            Op::Clamp => {
                let low = self.same(operands[0], ty, place)?;
                let x = self.same(operands[1], ty, place)?;
                let high = self.same(operands[2], ty, place)?;
                let clamped = scalar::binary(crate::ir::Binary::Maximum, ty.element, &low, &x).unwrap_or_default();
                let clamped = self.bind(c, &clamped);
                let clamped = scalar::binary(crate::ir::Binary::Minimum, ty.element, &clamped, &high).unwrap_or_default();
                self.bind(c, &clamped)
            }
            Op::Convert => {
                let x = self.same(operands[0], ty, place)?;
                self.bind(c, &scalar::convert(from(self, 0).element, ty.element, &x))
            }
            Op::ReducePrecision { exponent_bits, mantissa_bits } => {
                let x = self.same(operands[0], ty, place)?;
                match scalar::reduce_precision(ty.element, *exponent_bits, *mantissa_bits, &x) {
                    Some(text) => self.bind(c, &text),
                    None => x,
                }
            }
            Op::Map { to_apply, .. } => {
                let mut args = Vec::new();
                for &operand in &operands {
                    args.push((self.same(operand, ty, place)?, self.graph.ty(operand).clone()));
                }
                self.apply(*to_apply, &args)?.swap_remove(0)
            }
            Op::BitcastConvert if from(self, 0).element.bits() != ty.element.bits() => {
                let of = from(self, 0);
                self.other_width(operands[0], &of, ty, place)?
            }
            Op::StochasticConvert => {
                let (x, random) = (self.same(operands[0], ty, place)?, self.same(operands[1], ty, place)?);
                let (of, bits) = (from(self, 0).element, from(self, 1).element.bits());
                let top = i64::MAX >> (64 - ty.element.bits());
                let x = scalar::convert(of, Primitive::F64, &x);
                self.bind(c, &format!("({c})offc_stochastic({x}, (unsigned long long){random}, {bits}, {top}ll)"))
            }
            Op::SetDimensionSize { .. } => self.same(operands[0], ty, place)?,
            Op::BitcastConvert | Op::Bitcast | Op::Reshape { .. } => {
                let (to, of) = (ty.clone(), from(self, 0));
                let place = if matches!(op, Op::Reshape { .. }) { self.reshaped(&to, &of, place) } else { self.bitcast(&to, &of, place) };
                if let (true, Some(raw)) = (of.element != to.element, self.raw(operands[0], &of, &place)) {
                    return match scalar::cooked(to.element, &raw) {
                        Some(text) => Ok(self.bind(c, &text)),
                        None => unsupported(format!("`{}` to `{}`", op.opcode(), to.element.name())),
                    };
                }
                let x = self.element(operands[0], &place)?;
                match scalar::bitcast(of.element, to.element, &x) {
                    Some(text) => self.bind(c, &text),
                    None => return unsupported(format!("`{}` from `{}` to `{}`", op.opcode(), of.element.name(), to.element.name())),
                }
            }
            Op::Constant(value) => match &value.value {
                LiteralValue::Dense(data) => self.constant(ty, data, place)?,
                _ => return Err("a constant's data were left out when the module was printed".to_string()),
            },
            Op::Iota { dimension } => {
                let index = place.dims[dim(*dimension)?].clone();
                let text = scalar::convert(Primitive::S64, ty.element, &format!("(long long){index}"));
                self.bind(c, &text)
            }
            Op::PartitionId | Op::ReplicaId => "0u".to_string(),
            Op::GetDimensionSize { dimension } => from(self, 0).dims[dim(*dimension)?].to_string(),
            Op::Broadcast { dimensions } => {
                let index = dims(dimensions)?.into_iter().map(|d| place.dims[d].clone()).collect();
                self.element(operands[0], &Place::at(index))?
            }
            Op::Transpose { dimensions } => {
                let of = from(self, 0);
                let mut index = vec![String::new(); of.dims.len()];
                for (i, d) in dims(dimensions)?.into_iter().enumerate() {
                    index[d].clone_from(&place.dims[i]);
                }
                // A transposition that only renames what memory holds leaves the offset.
                let order: Vec<usize> = ty.order().into_iter().map(|d| dimensions[d] as usize).collect();
                let linear = place.linear.clone().filter(|_| order == of.order());
                self.element(operands[0], &Place { dims: index, linear })?
            }
            Op::Reverse { dimensions } => {
                let mut index = place.dims.clone();
                for d in dims(dimensions)? {
                    let last = (ty.dims[d] - 1).to_string();
                    let turned = self.times(&index[d], -1);
                    index[d] = self.add(&turned, &last);
                }
                self.element(operands[0], &Place::at(index))?
            }
            Op::Slice { dims } => {
                let mut index = Vec::new();
                for (i, slice) in place.dims.iter().zip(dims) {
                    let step = self.times(i, slice.stride);
                    index.push(self.add(&step, &slice.start.to_string()));
                }
                self.element(operands[0], &Place::at(index))?
            }
            Op::DynamicSlice { sizes } => {
                let of = from(self, 0);
                let starts = self.starts(&operands[1..], &of.dims, sizes)?;
                let mut index = Vec::new();
                for (i, start) in place.dims.iter().zip(&starts) {
                    index.push(self.add(start, i));
                }
                self.element(operands[0], &Place::at(index))?
            }
            Op::DynamicUpdateSlice => {
                let sizes = from(self, 1).dims;
                let starts = self.starts(&operands[2..], &ty.dims, &sizes)?;
                let mut inside = Vec::new();
                let mut index = Vec::new();
                for (((i, start), &size), &whole) in place.dims.iter().zip(&starts).zip(&sizes).zip(&ty.dims) {
                    if size < whole {
                        inside.push(format!("{i} >= {start} && {i} < {start} + {size}"));
                    }
                    index.push((i.clone(), start.clone()));
                }
                let out = self.declare(ty);
                self.open(&format!("if ({})", if inside.is_empty() { "true".to_string() } else { inside.join(" && ") }));
                let mut at = Vec::new();
                for (i, start) in &index {
                    at.push(if start == "0" { i.clone() } else { self.index(&format!("{i} - {start}")) });
                }
                let value = self.element(operands[1], &Place::at(at))?;
                self.line(&format!("{out} = {value};"));
                self.close();
                self.open("else");
                let value = self.element(operands[0], place)?;
                self.line(&format!("{out} = {value};"));
                self.close();
                out
            }
            Op::Concatenate { dimension } => self.concatenate(&operands, dim(*dimension)?, ty, place)?,
            Op::Pad { padding } => self.pad(&operands, padding, ty, place)?,
            Op::Gather(gather) => self.gather(gather, &operands, place)?,
            Op::CustomCall(call)
                if matches!(
                    &*call.target,
                    "Sharding"
                        | "SPMDFullToShardShape"
                        | "SPMDShardToFullShape"
                        | "annotate_device_placement"
                        | "MoveToHost"
                        | "MoveToDevice"
                        | "LayoutConstraint"
                        | "xla.sdy.FuncResultSharding"
                ) =>
            {
                self.same(operands[0], ty, place)?
            }
            other => return unsupported(format!("opcode `{}`", other.opcode())),
        })
    }

    /// An element of an operand at the same indices; scalars are repeated.
    fn same(&mut self, operand: Ref, ty: &Ty, place: &Place) -> Emitted<String> {
        let of = self.graph.ty(operand);
        if of.dims.is_empty() && !ty.dims.is_empty() {
            return self.element(operand, &Place::at(Vec::new()));
        }
        let linear = place.linear.clone().filter(|_| of.order() == ty.order());
        self.element(operand, &Place { dims: place.dims.clone(), linear })
    }

    /// An element whose bits are a part of the operand's, or several of them.
    fn other_width(&mut self, operand: Ref, of: &Ty, to: &Ty, place: &Place) -> Emitted<String> {
        let name = |ty: &Ty| ty.element.name().to_string();
        let refuse = || format!("`bitcast-convert` from `{}` to `{}`: there is no kernel for it", name(of), name(to));
        let (from, into) = (of.element.bits(), to.element.bits());
        let mut at = place.dims.clone();
        let bits = if into < from {
            let last = at.pop().ok_or_else(refuse)?;
            let x = self.element(operand, &Place::at(at))?;
            let raw = scalar::raw(of.element, &x).ok_or_else(refuse)?;
            self.bind("unsigned long long", &format!("({raw} >> ({last} * {into})) & 0x{:x}ull", u64::MAX >> (64 - into)))
        } else {
            let mut sum = Vec::new();
            for part in 0..into / from {
                let x = self.element(operand, &Place::at([&at[..], &[part.to_string()]].concat()))?;
                let raw = scalar::raw(of.element, &x).ok_or_else(refuse)?;
                sum.push(format!("({raw} << {})", part * from));
            }
            self.bind("unsigned long long", &sum.join(" | "))
        };
        let value = scalar::cooked(to.element, &bits).ok_or_else(refuse)?;
        Ok(self.bind(ctype(to.element), &value))
    }

    fn declare(&mut self, ty: &Ty) -> String {
        let name = self.fresh("w");
        self.line(&format!("{} {name};", ctype(ty.element)));
        name
    }

    /// The place of an element among the operand's, which have the same logical order.
    fn reshaped(&mut self, to: &Ty, of: &Ty, place: &Place) -> Place {
        if super::graph::is_row_major(to) && super::graph::is_row_major(of) {
            return self.bitcast(to, of, place);
        }
        let row_major = |ty: &Ty| Ty { minor_to_major: (0..ty.dims.len()).rev().collect(), ..ty.clone() };
        let offset = self.offset(&row_major(to), &Place::at(place.dims.clone()));
        Place::at(self.place(&row_major(of), &offset).dims)
    }
    /// The place of an element among the operand's, which lie in the same bytes.
    fn bitcast(&mut self, to: &Ty, of: &Ty, place: &Place) -> Place {
        let offset = self.offset(to, place);
        self.place(of, &offset)
    }

    /// Start indices, clamped so that a part of the given sizes lies inside.
    pub(super) fn starts(&mut self, operands: &[Ref], whole: &[i64], sizes: &[i64]) -> Emitted<Vec<String>> {
        let mut out = Vec::new();
        for (d, (&whole, &size)) in whole.iter().zip(sizes).enumerate() {
            let most = whole - size;
            if most <= 0 {
                out.push("0".to_string());
                continue;
            }
            let (operand, place) = match operands {
                [one] if self.graph.ty(*one).dims.len() == 1 => (*one, Place::at(vec![d.to_string()])),
                _ => (*operands.get(d).ok_or("a start index is missing")?, Place::at(Vec::new())),
            };
            let element = self.graph.ty(operand).element;
            let x = self.element(operand, &place)?;
            out.push(self.clamped(element, &x, most));
        }
        Ok(out)
    }
    /// An index from 0 to `most`.
    fn clamped(&mut self, element: Primitive, x: &str, most: i64) -> String {
        let below = if element.is_signed_integer() { format!("{x} < 0 ? 0 : ") } else { String::new() };
        let wide = if element.is_signed_integer() { "long long" } else { "unsigned long long" };
        self.index(&format!("({})({below}({wide}){x} > {most} ? ({wide}){most} : ({wide}){x})", self.index))
    }

    fn constant(&mut self, ty: &Ty, data: &[u8], place: &Place) -> Emitted<String> {
        let width = ty.element.literal_bytes();
        let value = |i: usize| super::types::literal_of(ty.element, &data[i * width..(i + 1) * width]);
        let count = usize::try_from(ty.elements()).unwrap_or(0);
        if count == 0 || (1..count).all(|i| data[i * width..(i + 1) * width] == data[..width]) {
            let zero = || super::types::literal_of(ty.element, &vec![0; width]);
            return Ok(if count == 0 { zero() } else { value(0) });
        }
        if count > 4096 {
            return unsupported(format!("a constant of {count} different elements in a fusion"));
        }
        // The table is in the logical order.
        let list: Vec<String> = (0..count).map(value).collect();
        let number = self.tables.len();
        if ty.element.is_complex() {
            return unsupported("a constant of different complex numbers in a fusion");
        }
        self.tables.push(format!("const {} table{number}[{count}] = {{{}}};", ctype(ty.element), list.join(", ")));
        let row_major = Ty { minor_to_major: (0..ty.dims.len()).rev().collect(), ..ty.clone() };
        let offset = self.offset(&row_major, &Place::at(place.dims.clone()));
        Ok(self.bind(ctype(ty.element), &format!("table{number}[{offset}]")))
    }

    fn concatenate(&mut self, operands: &[Ref], dimension: usize, ty: &Ty, place: &Place) -> Emitted<String> {
        let out = self.declare(ty);
        let mut start = 0;
        for (k, &operand) in operands.iter().enumerate() {
            let size = self.graph.ty(operand).dims[dimension];
            let last = k + 1 == operands.len();
            let head = if last { String::new() } else { format!("if ({} < {})", place.dims[dimension], start + size) };
            self.open(&if k == 0 { head } else { format!("else {head}") });
            let mut index = place.dims.clone();
            index[dimension] = self.add(&index[dimension], &(-start).to_string());
            let value = self.element(operand, &Place::at(index))?;
            self.line(&format!("{out} = {value};"));
            self.close();
            start += size;
        }
        Ok(out)
    }

    fn pad(&mut self, operands: &[Ref], padding: &[PadDim], ty: &Ty, place: &Place) -> Emitted<String> {
        let out = self.declare(ty);
        let fill = self.element(operands[1], &Place::at(Vec::new()))?;
        let of = self.graph.ty(operands[0]).clone();
        let mut inside = Vec::new();
        let mut index = Vec::new();
        for ((i, pad), &size) in place.dims.iter().zip(padding).zip(&of.dims) {
            let moved = self.add(i, &(-pad.low).to_string());
            let step = pad.interior + 1;
            if pad.low > 0 {
                inside.push(format!("{moved} >= 0"));
            }
            if step > 1 {
                inside.push(format!("{moved} % {step} == 0"));
            }
            if pad.high > 0 || step > 1 || pad.low < 0 {
                inside.push(format!("{moved} < {}", (size - 1) * step + 1));
            }
            index.push((moved, step));
        }
        if of.elements() == 0 {
            inside = vec!["false".to_string()];
        }
        self.line(&format!("{out} = {fill};"));
        self.open(&format!("if ({})", if inside.is_empty() { "true".to_string() } else { inside.join(" && ") }));
        let mut at = Vec::new();
        for (moved, step) in index {
            at.push(self.over(&moved, step));
        }
        let value = self.element(operands[0], &Place::at(at))?;
        self.line(&format!("{out} = {value};"));
        self.close();
        Ok(out)
    }

    fn gather(&mut self, gather: &Gather, operands: &[Ref], place: &Place) -> Emitted<String> {
        let numbers = &gather.dims;
        let (of, indices) = (self.graph.ty(operands[0]).clone(), self.graph.ty(operands[1]).clone());
        let offset_dims = dims(&numbers.offset_dims)?;
        let batch: Vec<String> = (0..place.dims.len()).filter(|d| !offset_dims.contains(d)).map(|d| place.dims[d].clone()).collect();
        let vector_dim = dim(numbers.index_vector_dim)?;
        let mut start = vec!["0".to_string(); of.dims.len()];
        for (k, d) in dims(&numbers.start_index_map)?.into_iter().enumerate() {
            let mut at = batch.clone();
            if vector_dim < indices.dims.len() {
                at.insert(vector_dim, k.to_string());
            }
            let x = self.element(operands[1], &Place::at(at))?;
            start[d] = self.clamped(indices.element, &x, (of.dims[d] - gather.slice_sizes[d]).max(0));
        }
        for (d, b) in dims(&numbers.operand_batching_dims)?.into_iter().zip(dims(&numbers.start_indices_batching_dims)?) {
            start[d].clone_from(&batch[if b > vector_dim { b - 1 } else { b }]);
        }
        let gone = [dims(&numbers.collapsed_slice_dims)?, dims(&numbers.operand_batching_dims)?].concat();
        let kept: Vec<usize> = (0..of.dims.len()).filter(|d| !gone.contains(d)).collect();
        for (&d, &o) in kept.iter().zip(&offset_dims) {
            start[d] = self.add(&start[d], &place.dims[o].clone());
        }
        self.element(operands[0], &Place::at(start))
    }

    /// A line that stores a number.
    pub(super) fn store(&mut self, memory: super::emit::Memory, ty: &Ty, offset: &str, value: &str) {
        let name = self.argument(memory, storage(ty.element));
        let stored = super::types::store(ty.element, value);
        self.line(&format!("{name}[{offset}] = {stored};"));
    }
}
