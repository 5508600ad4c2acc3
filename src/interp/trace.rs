//! What each instruction computed, as fingerprints, and where two programs part.

use std::hash::Hasher as _;

use rustc_hash::{FxHashMap, FxHasher};

use super::eval::{Observer, Value};
use super::kernel::leaves;
use super::layouts::read_array;
use super::program::{Way, way};
use crate::ir::{InstrId, Module};

/// Fingerprints of everything that was computed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What was computed.
    pub computed: Vec<Computed>,
}

/// What an instruction computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computed {
    /// The instruction's name.
    pub name: Box<str>,
    /// A fingerprint of its opcode and the types of its arrays: programs use one name for different things.
    pub kind: u64,
    /// A fingerprint of its value.
    pub value: u64,
}

impl Trace {
    /// The first instruction of this trace whose value differs from that of the same name and kind in another one, and how often it had run
    /// before. What only one of the two knows does not count.
    pub fn parts_from(&self, other: &Self) -> Option<(&str, usize)> {
        let mut theirs: FxHashMap<(&str, u64), Vec<u64>> = FxHashMap::default();
        for c in &other.computed {
            theirs.entry((&c.name, c.kind)).or_default().push(c.value);
        }
        let mut runs: FxHashMap<(&str, u64), usize> = FxHashMap::default();
        for c in &self.computed {
            let run = runs.entry((&c.name, c.kind)).or_insert(0);
            if theirs.get(&(&*c.name, c.kind)).and_then(|values| values.get(*run)).is_some_and(|&other| other != c.value) {
                return Some((&c.name, *run));
            }
            *run += 1;
        }
        None
    }
}

/// Takes fingerprints of arrays in their logical order, so that layouts do not count.
pub(super) struct Recorder<'m> {
    module: &'m Module,
    trace: Trace,
}

impl<'m> Recorder<'m> {
    pub(super) fn new(module: &'m Module) -> Self {
        Self { module, trace: Trace::default() }
    }
    pub(super) fn finish(self) -> Trace {
        self.trace
    }
}

impl Observer for Recorder<'_> {
    fn computed(&mut self, id: InstrId, value: &Value) {
        // Values that are only passed on would say the same again.
        if matches!(way(self.module, id), Ok(Way::Control)) {
            return;
        }
        let instr = self.module.instr(id);
        let (mut value_hash, mut kind) = (FxHasher::default(), FxHasher::default());
        kind.write(instr.op.opcode().as_bytes());
        for (place, shape) in value.places().iter().zip(leaves(self.module, instr.shape)) {
            let array = read_array(self.module, place, shape);
            kind.write(array.element.name().as_bytes());
            array.dims.iter().for_each(|&d| kind.write_usize(d));
            value_hash.write(&array.data);
        }
        self.trace.computed.push(Computed { name: instr.name.clone(), kind: kind.finish(), value: value_hash.finish() });
    }
}

#[cfg(test)]
mod tests {
    use super::{Computed, Trace};

    #[test]
    fn the_first_difference_by_name_and_run() {
        let computed = |&(name, kind, value): &(&str, u64, u64)| Computed { name: name.into(), kind, value };
        let trace = |list: &[(&str, u64, u64)]| Trace { computed: list.iter().map(computed).collect() };
        let one = trace(&[("a", 0, 1), ("d", 0, 7), ("b", 0, 2), ("b", 0, 3), ("c", 0, 4)]);
        let other = trace(&[("a", 0, 1), ("d", 1, 8), ("copy", 0, 9), ("b", 0, 2), ("b", 0, 5), ("c", 0, 6)]);
        assert_eq!(one.parts_from(&other), Some(("b", 1)));
        assert_eq!(one.parts_from(&one), None);
    }
}
