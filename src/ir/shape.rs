//! Shapes, interned: equal shapes have equal ids.

use rustc_hash::FxHashMap;

use super::{DEVICE, ElementType, EntityVec, ShapeId, Unknown};

/// The shape of a value.
#[expect(clippy::large_enum_variant, reason = "nearly all shapes are arrays, and each is stored once")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// An array.
    Array(ArrayShape),
    /// A tuple of values.
    Tuple(Vec<ShapeId>),
    /// An ordering token.
    Token,
    /// An opaque value.
    Opaque,
    /// A buffer that holds a value, `b(shape)`.
    Buffer(ShapeId),
}

/// Element type, dimensions, layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArrayShape {
    /// The element type.
    pub element: ElementType,
    /// Dimensions, most significant first in the logical order.
    pub dims: Vec<Dim>,
    /// The layout; `None` only in an entry layout that leaves the choice to the compiler (scalars included).
    pub layout: Option<Layout>,
    /// Fields of a newer proto.
    pub unknown: Unknown,
}

/// One dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    /// Elements; the bound if dynamic; [`Dim::UNBOUNDED`] for `?`.
    pub size: i64,
    /// Whether the size is only bounded (`<=n`, `?`).
    pub dynamic: bool,
}

impl Dim {
    /// The size of an unbounded dynamic dimension.
    pub const UNBOUNDED: i64 = i64::MIN;
}

/// How an array lies in memory. Fields are as in `LayoutProto`; zero or empty means "not said".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Dimensions from the fastest to the slowest varying.
    pub minor_to_major: Vec<i64>,
    /// Tiles `T(…)`, each a list of sizes; `i64::MIN` stands for `*`.
    pub tiles: Vec<Vec<i64>>,
    /// `L(n)`; 0 and 1 mean none.
    pub tail_padding_alignment_in_elements: i64,
    /// `E(bits)`.
    pub element_size_in_bits: i64,
    /// `S(space)`: [`DEVICE`] or [`super::HOST`] or another.
    pub memory_space: i64,
    /// `D(…)`: types by their numbers in `DimLevelType`, with unique and ordered flags where said.
    pub dim_level_types: Vec<i32>,
    /// Flags of `D(…)` (`+` means not unique).
    pub dim_unique: Vec<bool>,
    /// Flags of `D(…)` (`~` means not ordered).
    pub dim_ordered: Vec<bool>,
    /// `#(type)`.
    pub index_primitive_type: Option<ElementType>,
    /// `*(type)`.
    pub pointer_primitive_type: Option<ElementType>,
    /// `SC(dim:index,…)`.
    pub split_configs: Vec<SplitConfig>,
    /// `P(shape)`.
    pub physical_shape: Option<ShapeId>,
    /// `M(bytes)`.
    pub dynamic_shape_metadata_prefix_bytes: i64,
    /// Fields of a newer proto.
    pub unknown: Unknown,
}

/// One `SC(…)` of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SplitConfig {
    /// The dimension that is split.
    pub dimension: i64,
    /// Where.
    pub split_indices: Vec<i64>,
}

impl Layout {
    /// The layout with the last dimension fastest, in device memory.
    pub fn default_for(rank: usize) -> Self {
        Self { minor_to_major: (0..i64::try_from(rank).expect("a rank is small")).rev().collect(), ..Self::default() }
    }
}

impl ArrayShape {
    /// An array in the default layout.
    pub fn new(element: impl Into<ElementType>, dims: &[i64]) -> Self {
        Self {
            element: element.into(),
            dims: dims.iter().map(|&size| Dim { size, dynamic: false }).collect(),
            layout: Some(Layout::default_for(dims.len())),
            unknown: Unknown::default(),
        }
    }
    /// The number of elements (of the bound where dynamic), saturating; unbounded dimensions count as 0.
    pub fn elements(&self) -> u64 {
        self.dims.iter().fold(1u64, |n, d| n.saturating_mul(u64::try_from(d.size).unwrap_or(0)))
    }
    /// The memory space of the layout, [`DEVICE`] without one.
    pub fn memory_space(&self) -> i64 {
        self.layout.as_ref().map_or(DEVICE, |l| l.memory_space)
    }
    /// Bytes as `ShapeUtil::ByteSizeOf` counts them: elements times the element's bytes (packed where the layout says `E(bits)`, one
    /// byte each otherwise for sub-byte types), plus 4 bytes a dimension where one is dynamic. Unknown element types count as 0.
    pub fn byte_size(&self) -> u64 {
        let packed = self.layout.as_ref().map_or(0, |l| l.element_size_in_bits);
        let bits = match u64::try_from(packed) {
            Ok(bits) if bits > 0 => bits,
            _ => self.element.known().map_or(0, |p| u64::from(p.bits()).div_ceil(8) * 8),
        };
        let data = self.elements().saturating_mul(bits).div_ceil(8);
        let dynamic = self.dims.iter().any(|d| d.dynamic);
        data.saturating_add(if dynamic { 4 * self.dims.len() as u64 } else { 0 })
    }
}

/// The interned shapes of a module.
#[derive(Clone, Debug, Default)]
pub struct ShapeTable {
    shapes: EntityVec<ShapeId, Shape>,
    ids: FxHashMap<Shape, ShapeId>,
}

impl ShapeTable {
    /// The id of a shape, new or known.
    pub fn intern(&mut self, shape: Shape) -> ShapeId {
        if let Some(&id) = self.ids.get(&shape) {
            return id;
        }
        let id = self.shapes.push(shape.clone());
        self.ids.insert(shape, id);
        id
    }
    /// The shape of an id.
    pub fn get(&self, id: ShapeId) -> &Shape {
        &self.shapes[id]
    }
    /// The number of shapes.
    pub fn len(&self) -> usize {
        self.shapes.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }
    /// The array of an id, if it is one.
    pub fn array(&self, id: ShapeId) -> Option<&ArrayShape> {
        match self.get(id) {
            Shape::Array(array) => Some(array),
            _ => None,
        }
    }
    /// The elements of a tuple; empty for anything else.
    pub fn elements(&self, id: ShapeId) -> &[ShapeId] {
        match self.get(id) {
            Shape::Tuple(elements) => elements,
            _ => &[],
        }
    }
    /// The shape of the part at a tuple index path.
    pub fn at(&self, id: ShapeId, path: &[i64]) -> Option<ShapeId> {
        path.iter().try_fold(id, |id, &i| self.elements(id).get(usize::try_from(i).ok()?).copied())
    }
    /// All positions in a shape with their shapes, the shape itself first (path empty), in pre-order.
    pub fn positions(&self, id: ShapeId) -> Vec<(Vec<i64>, ShapeId)> {
        let mut out = Vec::new();
        let mut stack = vec![(Vec::new(), id)];
        while let Some((path, id)) = stack.pop() {
            for (i, &element) in self.elements(id).iter().enumerate().rev() {
                let mut inner: Vec<i64> = path.clone();
                inner.push(i64::try_from(i).expect("a tuple is small"));
                stack.push((inner, element));
            }
            out.push((path, id));
        }
        out
    }
    /// The arrays in a shape, in order.
    pub fn leaves(&self, id: ShapeId) -> Vec<ShapeId> {
        self.positions(id).into_iter().map(|(_, id)| id).filter(|&id| self.array(id).is_some()).collect()
    }
    /// Bytes of the top buffer alone, as XLA counts them: an array's bytes, 8 a tuple element, 0 for tokens and opaques.
    pub fn byte_size(&self, id: ShapeId) -> u64 {
        match self.get(id) {
            Shape::Array(array) => array.byte_size(),
            Shape::Tuple(elements) => 8 * elements.len() as u64,
            Shape::Buffer(inner) => self.byte_size(*inner),
            Shape::Token | Shape::Opaque => 0,
        }
    }
    /// Bytes of all arrays in a shape together.
    pub fn leaf_bytes(&self, id: ShapeId) -> u64 {
        self.leaves(id).iter().map(|&leaf| self.byte_size(leaf)).sum()
    }
    /// The memory space of an array; [`DEVICE`] for anything else.
    pub fn memory_space(&self, id: ShapeId) -> i64 {
        match self.get(id) {
            Shape::Array(array) => array.memory_space(),
            Shape::Buffer(inner) => self.memory_space(*inner),
            Shape::Tuple(_) | Shape::Token | Shape::Opaque => DEVICE,
        }
    }
    /// The same shape with every array in the given memory space.
    pub fn with_memory_space(&mut self, id: ShapeId, space: i64) -> ShapeId {
        match self.get(id).clone() {
            Shape::Array(mut array) => {
                let rank = array.dims.len();
                array.layout.get_or_insert_with(|| Layout::default_for(rank)).memory_space = space;
                self.intern(Shape::Array(array))
            }
            Shape::Tuple(elements) => {
                let elements = elements.into_iter().map(|e| self.with_memory_space(e, space)).collect();
                self.intern(Shape::Tuple(elements))
            }
            Shape::Buffer(inner) => {
                let inner = self.with_memory_space(inner, space);
                self.intern(Shape::Buffer(inner))
            }
            Shape::Token | Shape::Opaque => id,
        }
    }
    /// The shape of one leading row of an array, its other dimensions and its layout kept; anything without a leading dimension stays.
    pub fn leading_row(&mut self, id: ShapeId) -> ShapeId {
        let Shape::Array(array) = self.get(id) else { return id };
        let mut array = array.clone();
        if let Some(first) = array.dims.first_mut() {
            first.size = 1;
        }
        self.intern(Shape::Array(array))
    }
    /// Whether two shapes have equal element types and dimensions (`Shape::Compatible`: layouts do not matter).
    pub fn compatible(&self, a: ShapeId, b: ShapeId) -> bool {
        a == b
            || match (self.get(a), self.get(b)) {
                (Shape::Array(a), Shape::Array(b)) => a.element == b.element && a.dims == b.dims,
                (Shape::Tuple(a), Shape::Tuple(b)) => a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| self.compatible(a, b)),
                (Shape::Buffer(a), Shape::Buffer(b)) => self.compatible(*a, *b),
                _ => false,
            }
    }
}
