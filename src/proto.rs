//! `HloModuleProto`: XLA's binary form of a module, read and written without loss.
//!
//! The wire format is handled by hand ([`mod@wire`]), since generated code drops the fields that it does not know, and a newer XLA
//! adds some. Each message is a Rust type with a declaration of its fields ([`mod@codec`]); what nobody takes is kept as raw bytes in
//! the nearest [`crate::ir::Unknown`] and goes back to its place by field number. An unmodified module is written as it was read,
//! byte for byte as far as the writer was XLA.
//!
//! Two spellings of one thing have one form in the IR, that of text: an absent and an empty `metadata`, the identity permutation of
//! an iota, `tail_padding_alignment_in_elements` 0 and 1.

mod attrs;
mod codec;
mod container;
mod decode;
mod encode;
mod header;
mod literal;
mod op_read;
mod op_write;
mod shape;
mod sharding;
mod wire;

pub use container::{Container, find_module, replace_module};
pub use decode::{decode, decode_part};
pub use encode::encode;
