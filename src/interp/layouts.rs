//! Where values are passed on, their layouts are made what the receiver's shape says.
//!
//! A call's operand and the parameter it becomes, a loop's state before and after an iteration, a tuple's part and what takes it out: before
//! layouts are assigned the two shapes of such a pair may order their dimensions differently. The value is the logical array; its bytes are
//! put in the receiver's order. In a planned arena nothing may move, so there a difference is an error.

use super::array::Array;
use super::buffer::Place;
use super::error::Error;
use super::eval::{Evaluation, Value};
use super::kernel::ArrayType;
use super::view::{Slot, for_each_run};
use crate::ir::{InstrId, Module, Shape, ShapeId};

/// Whether the bytes of an array of one type are those of the same array of the other type.
fn alike(a: &ArrayType, b: &ArrayType) -> bool {
    let steps = |ty: &ArrayType| {
        let view = ty.view(Slot::Index);
        let counts = view.dims.iter().zip(view.strides).filter(|(d, _)| **d != 1).map(|(_, s)| s);
        counts.collect::<Vec<isize>>()
    };
    a.minor_to_major == b.minor_to_major || a.dims.contains(&0) || steps(a) == steps(b)
}

impl Evaluation<'_, '_> {
    /// A value of one shape as a value of another one that differs in layouts at most. `id` is who passes it on.
    pub(super) fn conformed(&self, id: InstrId, value: Value, from: ShapeId, to: ShapeId) -> Result<Value, Error> {
        if from == to { Ok(value) } else { self.conform(id, value, from, to) }
    }

    fn conform(&self, id: InstrId, value: Value, from: ShapeId, to: ShapeId) -> Result<Value, Error> {
        let module: &Module = self.module();
        match (value, module.shapes.get(from), module.shapes.get(to)) {
            (Value::Tuple(parts), Shape::Tuple(a), Shape::Tuple(b)) if parts.len() == a.len() && a.len() == b.len() => {
                let parts = parts.into_iter().zip(a.iter().zip(b)).map(|(v, (&a, &b))| self.conformed(id, v, a, b));
                Ok(Value::Tuple(parts.collect::<Result<_, _>>()?))
            }
            (Value::Array(place), Shape::Array(_), Shape::Array(_)) => {
                let (Ok(before), Ok(after)) = (ArrayType::of(module, from), ArrayType::of(module, to)) else {
                    return Err(Error::at(module, id, "a value is passed on as something that is no array"));
                };
                if before.dims != after.dims || before.element != after.element {
                    return Err(Error::at(module, id, "a value is passed on as one of another type"));
                }
                if alike(&before, &after) {
                    return Ok(Value::Array(place));
                }
                if self.is_planned() {
                    return Err(Error::at(module, id, "a value is passed on in another layout than its receiver's: a copy is missing"));
                }
                let moved = Place::fresh(after.bytes());
                put(&moved, &after, &read_array(module, &place, from));
                Ok(Value::Array(moved))
            }
            (value, ..) => Ok(value),
        }
    }
}

/// Writes an array in the order of a layout.
pub(super) fn put(place: &Place, ty: &ArrayType, array: &Array) {
    let access = ty.view(Slot::Index).access();
    let width = array.width();
    for_each_run(&access.dims, &access.strides, 0, 0, array.len(), |at, len, stride, from| {
        if stride == 1 {
            return place.buffer.write(place.offset + at.unsigned_abs() * width, &array.data[from * width..(from + len) * width]);
        }
        for i in 0..len {
            let to = (at + i.cast_signed() * stride).unsigned_abs() * width;
            place.buffer.write(place.offset + to, &array.data[(from + i) * width..(from + i + 1) * width]);
        }
    });
}

/// Reads an array that lies in the order of its shape's layout.
pub(super) fn read_array(module: &Module, place: &Place, shape: ShapeId) -> Array {
    let ty = ArrayType::of(module, shape).expect("all shapes were checked when the program was made ready");
    let mut array = Array::zeros(ty.element, &ty.dims);
    let access = ty.view(Slot::Index).access();
    let width = array.width();
    for_each_run(&access.dims, &access.strides, 0, 0, array.len(), |at, len, stride, to| {
        if stride == 1 {
            return place.buffer.read(place.offset + at.unsigned_abs() * width, &mut array.data[to * width..(to + len) * width]);
        }
        for i in 0..len {
            let from = (at + i.cast_signed() * stride).unsigned_abs() * width;
            place.buffer.read(place.offset + from, &mut array.data[(to + i) * width..(to + i + 1) * width]);
        }
    });
    array
}
