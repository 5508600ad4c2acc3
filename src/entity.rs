//! Dense names for things, and maps from those names.
//!
//! An entity is a `u32` with a type: it names one item of one arena, is never reused and never
//! means anything in another arena. [`EntityVec`] is the arena; [`EntityMap`] is a side table with
//! a default for what was never set.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A dense name: an index with a type.
pub trait Entity: Copy + Eq + Ord {
    /// The entity of the `index`-th item.
    fn new(index: usize) -> Self;
    /// The position of the item in its arena.
    fn index(self) -> usize;
}

/// Declares a dense `u32` name.
macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl Entity for $name {
            fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("an arena holds fewer than 2^32 items"))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

entity! {
    /// One instruction of a module.
    InstrId, "i"
}
entity! {
    /// One computation of a module.
    CompId, "c"
}
entity! {
    /// One interned shape of a module: equal shapes have equal ids.
    ShapeId, "s"
}
entity! {
    /// One value of the data flow: a definition, or a merge of definitions, at one position of one instruction's result.
    ValueId, "v"
}
entity! {
    /// One logical buffer: values that must lie at one address.
    BufferId, "b"
}

/// An arena: items by their dense names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityVec<K, V> {
    items: Vec<V>,
    key: PhantomData<K>,
}

impl<K: Entity, V> EntityVec<K, V> {
    /// An empty arena.
    pub fn new() -> Self {
        Self { items: Vec::new(), key: PhantomData }
    }
    /// Adds an item and names it.
    pub fn push(&mut self, item: V) -> K {
        let key = K::new(self.items.len());
        self.items.push(item);
        key
    }
    /// The number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// All names, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = K> + ExactSizeIterator + use<K, V> {
        (0..self.items.len()).map(K::new)
    }
    /// All items with their names, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(i, v)| (K::new(i), v))
    }
    /// All items, in order.
    pub fn values(&self) -> std::slice::Iter<'_, V> {
        self.items.iter()
    }
    /// All items, in order, to be changed.
    pub fn values_mut(&mut self) -> std::slice::IterMut<'_, V> {
        self.items.iter_mut()
    }
    /// The item of that name, if it is of this arena.
    pub fn get(&self, key: K) -> Option<&V> {
        self.items.get(key.index())
    }
}

impl<K: Entity, V> Default for EntityVec<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Entity, V> Index<K> for EntityVec<K, V> {
    type Output = V;
    fn index(&self, key: K) -> &V {
        &self.items[key.index()]
    }
}

impl<K: Entity, V> IndexMut<K> for EntityVec<K, V> {
    fn index_mut(&mut self, key: K) -> &mut V {
        &mut self.items[key.index()]
    }
}

/// A side table: a value for every name, a default where none was set.
#[derive(Clone, Debug)]
pub struct EntityMap<K, V> {
    items: Vec<V>,
    default: V,
    key: PhantomData<K>,
}

impl<K: Entity, V: Clone> EntityMap<K, V> {
    /// A table where every name maps to `default`.
    pub fn with_default(default: V) -> Self {
        Self { items: Vec::new(), default, key: PhantomData }
    }
}

impl<K: Entity, V: Clone> Index<K> for EntityMap<K, V> {
    type Output = V;
    fn index(&self, key: K) -> &V {
        self.items.get(key.index()).unwrap_or(&self.default)
    }
}

impl<K: Entity, V: Clone> IndexMut<K> for EntityMap<K, V> {
    fn index_mut(&mut self, key: K) -> &mut V {
        if key.index() >= self.items.len() {
            self.items.resize(key.index() + 1, self.default.clone());
        }
        &mut self.items[key.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_a_default_and_grows() {
        let mut map = EntityMap::<InstrId, u8>::with_default(7);
        assert_eq!(map[InstrId::new(4)], 7);
        map[InstrId::new(4)] = 1;
        assert_eq!((map[InstrId::new(3)], map[InstrId::new(4)]), (7, 1));
    }
}
