//! From the names of a plan to the instructions of one computation.

use rustc_hash::FxHashMap;

use super::apply::ApplyError;
use crate::ir::{CompId, InstrId, Module, Op};
use crate::plan::ValueName;

/// A value: an instruction, or one element of the tuple it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Value {
    pub instr: InstrId,
    pub output: Option<u32>,
}

/// Names and positions of one computation.
pub(super) struct Scope<'m> {
    computation: &'m str,
    by_name: FxHashMap<&'m str, (usize, InstrId)>,
}

impl<'m> Scope<'m> {
    pub(super) fn new(module: &'m Module, comp: CompId) -> Self {
        let order = module.comp(comp).order.iter().enumerate();
        let by_name = order.map(|(position, &i)| (&*module.instr(i).name, (position, i))).collect();
        Self { computation: &module.comp(comp).name, by_name }
    }
    pub(super) fn position(&self, name: &str) -> Result<usize, ApplyError> {
        self.find(name).map(|(position, _)| position)
    }
    pub(super) fn value(&self, name: &ValueName) -> Result<(usize, Value), ApplyError> {
        self.find(&name.instr).map(|(position, instr)| (position, Value { instr, output: name.output }))
    }
    fn find(&self, name: &str) -> Result<(usize, InstrId), ApplyError> {
        let missing = || ApplyError::NoSuchInstruction { computation: self.computation.to_owned(), name: name.to_owned() };
        self.by_name.get(name).copied().ok_or_else(missing)
    }
}

/// The value that an instruction shows in another form (bitcasts, tuple elements), and the views from it to the instruction, innermost
/// first; an instruction that is no view is its own value.
pub(super) fn trace(module: &Module, mut id: InstrId) -> (Value, Vec<InstrId>) {
    let mut views = Vec::new();
    loop {
        let instr = module.instr(id);
        match &instr.op {
            Op::Bitcast => {
                views.push(id);
                id = instr.operands[0];
            }
            Op::GetTupleElement { index } => {
                views.reverse();
                return (Value { instr: instr.operands[0], output: u32::try_from(*index).ok() }, views);
            }
            _ => {
                views.reverse();
                return (Value { instr: id, output: None }, views);
            }
        }
    }
}
