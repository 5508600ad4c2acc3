//! What each instruction computed, as fingerprints, and where two programs part.

use std::hash::Hasher as _;

use rustc_hash::{FxHashMap, FxHasher};

use super::eval::{Observer, Value, read_array};
use super::kernel::leaves;
use super::program::{Way, way};
use crate::ir::{InstrId, Module};

/// Fingerprints of everything that was computed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Names of instructions and fingerprints of their values.
    pub computed: Vec<(Box<str>, u64)>,
}

impl Trace {
    /// The first instruction of this trace whose value differs from that of the same name in another one, and how often it had run before.
    /// Names that only one of the two knows do not count.
    pub fn parts_from(&self, other: &Self) -> Option<(&str, usize)> {
        let mut theirs: FxHashMap<&str, Vec<u64>> = FxHashMap::default();
        for (name, print) in &other.computed {
            theirs.entry(name).or_default().push(*print);
        }
        let mut runs: FxHashMap<&str, usize> = FxHashMap::default();
        for (name, print) in &self.computed {
            let run = runs.entry(name).or_insert(0);
            if theirs.get(&**name).and_then(|prints| prints.get(*run)).is_some_and(|other| other != print) {
                return Some((name, *run));
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
        let mut hasher = FxHasher::default();
        for (place, shape) in value.places().iter().zip(leaves(self.module, self.module.instr(id).shape)) {
            hasher.write(&read_array(self.module, place, shape).data);
        }
        self.trace.computed.push((self.module.instr(id).name.clone(), hasher.finish()));
    }
}

#[cfg(test)]
mod tests {
    use super::Trace;

    #[test]
    fn the_first_difference_by_name_and_run() {
        let trace = |list: &[(&str, u64)]| Trace { computed: list.iter().map(|&(n, p)| (n.into(), p)).collect() };
        let one = trace(&[("a", 1), ("b", 2), ("b", 3), ("c", 4)]);
        let other = trace(&[("a", 1), ("copy", 9), ("b", 2), ("b", 5), ("c", 6)]);
        assert_eq!(one.parts_from(&other), Some(("b", 1)));
        assert_eq!(one.parts_from(&one), None);
    }
}
