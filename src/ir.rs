//! The program: one HLO module.
//!
//! [`Module`] owns an arena of instructions, an arena of computations and a table of interned shapes.
//! What an instruction *is* ([`Instruction`]) and where it *runs* ([`Computation::order`]) are apart: an
//! instruction that stands in no order is dead. Attributes that nobody interprets are typed data, mirrored from
//! XLA's messages, so that text and proto can both say them; fields of newer XLA versions are kept as raw bytes ([`Unknown`]).

mod attr;
mod calls;
mod compare;
mod edit;
mod element;
pub mod float;
mod header;
mod literal;
mod module;
mod op;
mod shape;
mod sharding;

pub use attr::*;
pub use compare::same;
pub use edit::Insertion;
pub use element::{ElementType, Primitive};
pub use header::*;
pub use literal::{Literal, LiteralValue};
pub use module::{Computation, Instruction, Module, ModuleProto, Operands};
pub use op::*;
pub use shape::{ArrayShape, Dim, Layout, Shape, ShapeTable, SplitConfig};
pub use sharding::*;

pub use crate::entity::{CompId, Entity, EntityMap, EntityVec, InstrId, ShapeId};

/// Device memory, the default space.
pub const DEVICE: i64 = 0;
/// Pinned host memory, written `S(5)` in a layout.
pub const HOST: i64 = 5;
