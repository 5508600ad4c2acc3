//! Prices one instruction on a machine.
//!
//! In order of trust: XLA's own estimate where the module carries one (`reification_cost`, the entry `sol`), else a roofline: the larger of
//! bytes moved over the rate of device memory and arithmetic over its peak ([`roofline`]). XLA prices Triton softmax and norm fusions at
//! 0.01 us; such a price is not believed. Loops, calls and conditionals have no price of their own: `sim` plays their bodies.
//! Source of the roofline: Williams, Waterman, Patterson, "Roofline", CACM 2009. Linear in the size of a fused computation.

mod backend;
pub mod roofline;

pub use backend::{reified_time, trip_count};

use crate::ir::{EntityMap, InstrId, Module, Op};
use crate::machine::Machine;
use crate::units::Nanos;

/// What one execution of an instruction takes, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Time on the compute stream.
    pub time: Nanos,
    /// How it is known.
    pub source: PriceSource,
}

/// How a price is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceSource {
    /// It runs no kernel.
    Free,
    /// XLA's own estimate.
    Reified,
    /// Bytes and arithmetic over the machine's rates.
    Roofline,
    /// A custom call that nobody can look into: its operands and results over the rate of memory.
    Unpriced,
}

/// Prices of all live instructions that run on the compute stream.
#[derive(Clone, Debug)]
pub struct Prices {
    of: EntityMap<InstrId, Price>,
}

impl Prices {
    /// Prices every live instruction of `module`.
    pub fn new(module: &Module, machine: &Machine) -> Self {
        let mut of = EntityMap::with_default(FREE);
        for (_, id) in module.live() {
            of[id] = price(module, id, machine);
        }
        Self { of }
    }
    /// The price of one.
    pub fn get(&self, id: InstrId) -> Price {
        self.of[id]
    }
    /// The time of one.
    pub fn time(&self, id: InstrId) -> Nanos {
        self.of[id].time
    }
}

const FREE: Price = Price { time: Nanos::ZERO, source: PriceSource::Free };

/// XLA's price at or below which a Triton kernel counts as not priced.
const TRITON_UNPRICED: Nanos = Nanos(20);

/// Prices one instruction.
pub fn price(module: &Module, id: InstrId, machine: &Machine) -> Price {
    let instr = module.instr(id);
    if runs_no_kernel(&instr.op) {
        return FREE;
    }
    let config = backend::Config::of(instr);
    if let Some(time) = config.reified()
        && !time.is_zero()
        && !(config.is_triton() && time <= TRITON_UNPRICED)
    {
        return Price { time, source: PriceSource::Reified };
    }
    let source = if matches!(instr.op, Op::CustomCall(_) | Op::Opaque(_)) { PriceSource::Unpriced } else { PriceSource::Roofline };
    Price { time: roofline::time(module, id, machine), source }
}

/// Whether an instruction takes no time on the compute stream: it names, waits, hands to another stream, or is priced through its body.
fn runs_no_kernel(op: &Op) -> bool {
    match op {
        Op::Parameter { .. }
        | Op::Constant(_)
        | Op::PartitionId
        | Op::ReplicaId
        | Op::Bitcast
        | Op::Tuple
        | Op::GetTupleElement { .. }
        | Op::OptBarrier
        | Op::AfterAll
        | Op::AddDependency
        | Op::Domain(_)
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::Call { .. }
        | Op::Collective(_)
        | Op::CollectiveDone(_)
        | Op::AsyncStart(_)
        | Op::AsyncUpdate(_)
        | Op::AsyncDone(_)
        | Op::CopyStart { .. }
        | Op::CopyDone
        | Op::Send(_)
        | Op::SendDone(_)
        | Op::Recv(_)
        | Op::RecvDone(_) => true,
        Op::CustomCall(call) => &*call.target == "AllocateBuffer",
        _ => false,
    }
}
