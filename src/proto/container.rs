//! Messages that hold a module: what XLA dumps, caches and snapshots.
//!
//! | message | module in | beside it |
//! |---|---|---|
//! | `HloModuleProto` | itself | |
//! | `HloProto` | 1 | 3 buffer assignment |
//! | `HloModuleProtoWithConfig` | 1 | 2 config |
//! | `HloUnoptimizedSnapshot` | 1 | 2 inputs, 3 version (a number) |
//! | `HloSnapshot` | 1 of 1 | arguments, result, platform; buffer assignment in 3 of 1 |
//!
//! No message says which it is; that follows from where a module is found, and from the kinds of the other fields.

use super::wire::{Message, Rest, Value, Writer};
use crate::ir::ShapeTable;

/// Which message holds the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// `HloModuleProto`.
    Module,
    /// `HloProto`.
    Hlo,
    /// `HloModuleProtoWithConfig`.
    WithConfig,
    /// `HloUnoptimizedSnapshot`.
    UnoptimizedSnapshot,
    /// `HloSnapshot`.
    Snapshot,
}

impl Container {
    /// The message's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Module => "HloModuleProto",
            Self::Hlo => "HloProto",
            Self::WithConfig => "HloModuleProtoWithConfig",
            Self::UnoptimizedSnapshot => "HloUnoptimizedSnapshot",
            Self::Snapshot => "HloSnapshot",
        }
    }
}

/// Finds the module in a message: the container and the module's bytes. `None` if there is no module where any container has it.
pub fn find_module(bytes: &[u8]) -> Option<(Container, &[u8])> {
    let top = Fields::of(bytes)?;
    if top.is_module() {
        return Some((Container::Module, bytes));
    }
    let first = top.bytes(1)?;
    let inner = Fields::of(first)?;
    if inner.is_module() {
        let container = if top.has_number(3) {
            Container::UnoptimizedSnapshot
        } else if top.bytes(2).is_some() && top.bytes(3).is_none() {
            Container::WithConfig
        } else {
            Container::Hlo
        };
        return Some((container, first));
    }
    let innermost = inner.bytes(1)?;
    Fields::of(innermost)?.is_module().then_some((Container::Snapshot, innermost))
}

/// Puts another module where the one of `bytes` was. All else stays, but for the buffer assignment, which is of the old module.
///
/// `bytes` must be what [`find_module`] named `container` for; anything else gives just the module.
pub fn replace_module(container: Container, bytes: &[u8], module: &[u8]) -> Vec<u8> {
    const ASSIGNMENT: u32 = 3;
    let shapes = ShapeTable::default();
    let mut w = Writer::new(&shapes);
    let mut rest = Rest::of_bytes(bytes);
    match container {
        Container::Module => return module.to_vec(),
        Container::Hlo => {
            rest.take_mark(1);
            rest.take_mark(ASSIGNMENT);
            w.bytes(1, module);
        }
        Container::WithConfig | Container::UnoptimizedSnapshot => {
            rest.take_mark(1);
            w.bytes(1, module);
        }
        Container::Snapshot => {
            let mut hlo = rest.take(1);
            hlo.take_mark(1);
            hlo.take_mark(ASSIGNMENT);
            w.message(1, hlo, |w, _| w.bytes(1, module));
        }
    }
    w.merge(0, &rest);
    w.out
}

/// The fields of what may be a message.
struct Fields<'a>(Rest<'a>);

impl<'a> Fields<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        Message::top(bytes).ok().map(|_| Self(Rest::of_bytes(bytes)))
    }
    fn bytes(&self, number: u32) -> Option<&'a [u8]> {
        self.0.values(number).find_map(|v| if let Value::Bytes(b) = v { Some(b) } else { None })
    }
    fn has_number(&self, number: u32) -> bool {
        self.0.values(number).any(|v| matches!(v, Value::Varint(_)))
    }
    /// Whether these are fields of an `HloModuleProto`: a name, and computations with instructions that have opcodes.
    fn is_module(&self) -> bool {
        let named = self.bytes(1).is_none_or(|name| std::str::from_utf8(name).is_ok());
        let opcode = || {
            let computation = Self::of(self.bytes(3)?)?;
            let instruction = Self::of(computation.bytes(2)?)?;
            std::str::from_utf8(instruction.bytes(2)?).ok()
        };
        named && opcode().is_some_and(|op| op.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of fields with byte strings.
    fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
        let shapes = ShapeTable::default();
        let mut w = Writer::new(&shapes);
        fields.iter().for_each(|(number, content)| w.bytes(*number, content));
        w.out
    }

    #[test]
    fn modules_are_found_where_containers_have_them() {
        let instruction = message(&[(1, b"p"), (2, b"parameter")]);
        let computation = message(&[(1, b"e"), (2, &instruction)]);
        let module = message(&[(1, b"m"), (2, b"e"), (3, &computation)]);
        let mut with_version = message(&[(1, &module), (2, b"")]);
        with_version.extend([24, 1]);
        let hlo = message(&[(1, &module), (3, b"")]);
        for (bytes, container) in [
            (module.clone(), Container::Module),
            (hlo.clone(), Container::Hlo),
            (message(&[(1, &module)]), Container::Hlo),
            (message(&[(1, &module), (2, b"")]), Container::WithConfig),
            (with_version, Container::UnoptimizedSnapshot),
            (message(&[(1, &hlo), (4, b"CUDA")]), Container::Snapshot),
        ] {
            assert_eq!(find_module(&bytes), Some((container, &module[..])), "{container:?}");
            let replaced = replace_module(container, &bytes, &module);
            assert_eq!(find_module(&replaced).map(|(_, m)| m), Some(&module[..]), "{container:?}");
        }
        assert_eq!(replace_module(Container::Hlo, &hlo, &module), message(&[(1, &module)]));
        assert_eq!(find_module(b"\x0a\x01x"), None);
    }
}
