//! The producer's body as a graph: what is made of what, and what may be made twice.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::loops::Kind;
use crate::ir::{CompId, InstrId, Module, Op};
use crate::plan::is_pure;

use super::pair::Pair;

/// Custom calls that only say how a value lies on the devices.
const PARTITIONING: &[&str] = &["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"];

/// Values of the producer's body.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    /// The body's order.
    order: Vec<InstrId>,
    operands: FxHashMap<InstrId, Vec<InstrId>>,
    /// The first instruction that takes an element out of the parameter stands for all that take it.
    first_take: FxHashMap<InstrId, InstrId>,
    parameter: InstrId,
    /// Elements that the consumer can be given: invariants and counters.
    given: FxHashSet<usize>,
}

impl Graph {
    /// Reads the producer's body.
    pub fn of(module: &Module, pair: &Pair) -> Self {
        let order = module.comp(pair.producer.body).order.clone();
        let mut first_take = FxHashMap::default();
        for element in &pair.producer.elements {
            if let Some(&first) = element.takes.first() {
                first_take.extend(element.takes.iter().map(|&t| (t, first)));
            }
        }
        let parameter = pair.producer.parameter;
        let mut this = Self { order, operands: FxHashMap::default(), first_take, parameter, given: FxHashSet::default() };
        for &id in &this.order {
            let operands = module.instr(id).operands.iter().filter(|&&o| o != parameter).map(|&o| this.canonical(o)).collect();
            this.operands.insert(id, operands);
        }
        for (n, element) in pair.producer.elements.iter().enumerate() {
            if matches!(element.kind, Kind::Invariant | Kind::Linear { start: Some(_), .. }) {
                this.given.insert(n);
            }
        }
        this
    }

    /// The instruction that stands for all that are the same element of the parameter.
    pub fn canonical(&self, id: InstrId) -> InstrId {
        self.first_take.get(&id).copied().unwrap_or(id)
    }

    /// The element of the parameter that an instruction takes out.
    pub fn element(&self, module: &Module, id: InstrId) -> Option<usize> {
        match module.instr(id).op {
            Op::GetTupleElement { index } if module.instr(id).operands[0] == self.parameter => usize::try_from(index).ok(),
            _ => None,
        }
    }

    /// Whether an element of the parameter is there in the consumer without any stack.
    pub fn is_given(&self, module: &Module, id: InstrId) -> bool {
        self.element(module, id).is_some_and(|n| self.given.contains(&n))
    }

    /// Whether an instruction (no element of the parameter) may be done again.
    pub fn clonable(&self, module: &Module, id: InstrId) -> bool {
        if self.element(module, id).is_some() || id == self.parameter {
            return false;
        }
        match &module.instr(id).op {
            Op::CustomCall(call) => !call.has_side_effect && PARTITIONING.contains(&&*call.target) || is_pure(module, id),
            // In a module without a schedule every instruction makes a value of its own: an update writes a copy.
            Op::OptBarrier | Op::DynamicUpdateSlice => true,
            Op::Scatter(scatter) => is_pure_function(module, scatter.to_apply),
            _ => is_pure(module, id),
        }
    }

    /// What an instruction is made of.
    pub fn operands(&self, id: InstrId) -> &[InstrId] {
        self.operands.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The seeds and all that they are made of, down to what `stops` says is there; in the body's order.
    pub fn closure(&self, seeds: &[InstrId], stops: impl Fn(InstrId) -> bool) -> Vec<InstrId> {
        let mut needed = FxHashSet::default();
        let mut stack = seeds.to_vec();
        while let Some(id) = stack.pop() {
            if needed.insert(id) && !stops(id) {
                stack.extend_from_slice(self.operands(id));
            }
        }
        self.order.iter().copied().filter(|id| needed.contains(id)).collect()
    }
}

fn is_pure_function(module: &Module, comp: CompId) -> bool {
    module.comp(comp).order.iter().all(|&i| matches!(module.instr(i).op, Op::Parameter { .. }) || is_pure(module, i))
}
