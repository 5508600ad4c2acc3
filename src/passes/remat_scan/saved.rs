//! What loops save for the loops that run them backwards, by name: for callers that carry the same choice out elsewhere.

use serde::Serialize;

use super::{inlined, pairs};
use crate::ir::Module;
use crate::units::Bytes;

/// A stack between two loops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// The loop that fills it.
    pub producer: String,
    /// The loop that reads it.
    pub consumer: String,
    /// The value of the producer's body that a row holds.
    pub value: String,
    /// The framework's name of that value; empty where it has none, as what the loop carries has none.
    pub op_name: String,
    /// Bytes of the stack, before partitioning.
    pub bytes: Bytes,
    /// Whether nothing but the two loops touches it.
    pub droppable: bool,
}

/// Every stack between two loops of a program before optimization, in program order. Costs a clone of the module, with its calls inlined.
pub fn saved(module: &Module) -> Vec<Saved> {
    let module = inlined(module);
    let name = |id| module.instr(id).name.to_string();
    let mut out = Vec::new();
    for pair in pairs(&module) {
        for stack in &pair.stacks {
            let initial = pair.producer.elements[stack.from].initial;
            out.push(Saved {
                producer: name(pair.producer.instr),
                consumer: name(pair.consumer.instr),
                value: name(stack.value),
                op_name: module.instr(stack.value).attrs.metadata.as_ref().map_or_else(String::new, |m| m.op_name.to_string()),
                bytes: Bytes(module.shapes.leaf_bytes(module.instr(initial).shape)),
                droppable: stack.droppable,
            });
        }
    }
    out
}
