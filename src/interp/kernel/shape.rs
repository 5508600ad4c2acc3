//! Shapes as kernels see them.

use crate::interp::view::{Slot, View};
use crate::ir::{Layout, Module, Primitive, Shape, ShapeId};

/// An array's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayType {
    /// The element type.
    pub element: Primitive,
    /// Dimensions.
    pub dims: Vec<usize>,
    /// The layout, fastest dimension first.
    pub minor_to_major: Vec<usize>,
}

impl ArrayType {
    /// The type of an array shape, or why it cannot be computed with.
    pub fn of(module: &Module, shape: ShapeId) -> Result<Self, String> {
        let Shape::Array(array) = module.shapes.get(shape) else { return Err("expected an array".to_string()) };
        let element = array.element.known().ok_or_else(|| format!("element type `{}` is not known", array.element.name()))?;
        if array.dims.iter().any(|d| d.dynamic) {
            return Err("a shape has a dynamic dimension".to_string());
        }
        let dims: Vec<usize> =
            array.dims.iter().map(|d| usize::try_from(d.size)).collect::<Result<_, _>>().map_err(|_| "a dimension is negative")?;
        dims.iter()
            .try_fold(element.literal_bytes(), |n, &d| n.checked_mul(d))
            .filter(|&n| n < isize::MAX as usize)
            .ok_or("an array is too large")?;
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
    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.element.literal_bytes()
    }
    /// All of a memory that holds such an array.
    pub fn view(&self, slot: Slot) -> View {
        View::of_layout(slot, self.element, &self.dims, &self.minor_to_major)
    }
}

/// The arrays in a shape, in order; tokens are left out.
pub fn leaves(module: &Module, shape: ShapeId) -> Vec<ShapeId> {
    module.shapes.leaves(shape)
}
