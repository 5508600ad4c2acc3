//! Prices one instruction on a machine.
//!
//! In order of trust:
//! 1. a calibration of the machine, by instruction, by custom call target, by opcode ([`crate::machine::Calibration`]);
//! 2. XLA's own estimate where the module carries one (`reification_cost`, the entry `sol`). XLA prices Triton softmax and norm fusions at 0.01 us;
//!    such a price is not believed. These estimates are for the device that the module was compiled for;
//! 3. what is known of libraries: matrix products, convolutions and attention behind custom calls ([`custom`]);
//! 4. a roofline: the largest of bytes moved over the rate of device memory and arithmetic over what the units reach ([`roofline`]).
//!
//! A custom call that none of these understands is priced by its bytes and listed as unpriced. No kernel takes less than a launch.
//! Loops, calls and conditionals have no price of their own: `sim` plays their bodies. Collectives ([`collective`]) and copies
//! ([`transfer`]) run beside the compute stream and have a time there.
//! Source of the roofline: Williams, Waterman, Patterson, "Roofline", CACM 2009. Linear in the size of a fused computation.

mod backend;
pub mod collective;
pub mod custom;
pub mod roofline;
mod scalar;
pub mod transfer;
mod trips;

pub use backend::reified_time;
pub use transfer::{Direction, Transfer};
pub use trips::{TripCount, TripSource, trip_count, trips};

use crate::ir::{CompId, EntityMap, InstrId, Instruction, Module, Op};
use crate::machine::{Adjust, Machine};
use crate::units::{Bytes, Nanos};

/// What one execution of an instruction takes, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Time on the compute stream.
    pub time: Nanos,
    /// Time beside the compute stream: of a collective, or of a copy where it is calibrated. Other copies take what their link gives.
    pub beside: Option<Nanos>,
    /// Of `time`, how long device memory would be busy if it did nothing else.
    pub memory: Nanos,
    /// How it is known.
    pub source: PriceSource,
    /// Bytes that the kernel itself writes over the link into host memory.
    pub to_host: Bytes,
    /// Bytes that the kernel itself reads over the link from host memory.
    pub from_host: Bytes,
}

/// How a price is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PriceSource {
    /// It runs no kernel.
    Free,
    /// Measured, by a calibration file.
    Calibrated,
    /// XLA's own estimate.
    Reified,
    /// A library's kernel whose arithmetic is known.
    Library,
    /// Bytes and arithmetic over the machine's rates.
    Roofline,
    /// A custom call that nobody can look into: its operands and results over the rate of memory.
    Unpriced,
}

impl PriceSource {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Free, Self::Calibrated, Self::Reified, Self::Library, Self::Roofline, Self::Unpriced];
    /// A word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Calibrated => "calibrated",
            Self::Reified => "xla",
            Self::Library => "library",
            Self::Roofline => "roofline",
            Self::Unpriced => "unpriced",
        }
    }
}

/// Prices of all live instructions that take part in the schedule; what stands in fusions and applied functions is priced with its caller.
#[derive(Clone, Debug)]
pub struct Prices {
    of: EntityMap<InstrId, Price>,
    unpriced: Vec<InstrId>,
}

impl Prices {
    /// Prices every live instruction of `module`.
    pub fn new(module: &Module, machine: &Machine) -> Self {
        let mut of = EntityMap::with_default(FREE);
        let mut unpriced = Vec::new();
        let applied = applied(module);
        for (comp, id) in module.live() {
            if applied[comp] {
                continue;
            }
            of[id] = price(module, id, machine);
            if of[id].source == PriceSource::Unpriced {
                unpriced.push(id);
            }
        }
        Self { of, unpriced }
    }
    /// The price of one.
    pub fn get(&self, id: InstrId) -> Price {
        self.of[id]
    }
    /// The time of one on the compute stream.
    pub fn time(&self, id: InstrId) -> Nanos {
        self.of[id].time
    }
    /// The instructions whose price is a guess from their bytes alone, in listing order.
    pub fn unpriced(&self) -> &[InstrId] {
        &self.unpriced
    }
}

/// Computations that run inside an instruction: fusions, reducers, comparators.
fn applied(module: &Module) -> EntityMap<CompId, bool> {
    let mut applied = EntityMap::with_default(false);
    for (_, id) in module.live() {
        let op = &module.instr(id).op;
        let plays = matches!(
            op,
            Op::While { .. } | Op::Call { .. } | Op::Conditional { .. } | Op::AsyncStart(_) | Op::AsyncUpdate(_) | Op::AsyncDone(_)
        );
        if !plays {
            op.called().into_iter().for_each(|c| applied[c] = true);
        }
    }
    applied
}

const FREE: Price =
    Price { time: Nanos::ZERO, beside: None, memory: Nanos::ZERO, source: PriceSource::Free, to_host: Bytes::ZERO, from_host: Bytes::ZERO };

/// XLA's price at or below which a Triton kernel counts as not priced.
const TRITON_UNPRICED: Nanos = Nanos(20);

/// Prices one instruction.
pub fn price(module: &Module, id: InstrId, machine: &Machine) -> Price {
    let instr = module.instr(id);
    let measured = calibrated(instr, machine);
    if runs_no_kernel(&instr.op) {
        return beside(module, id, machine, measured);
    }
    let model = modelled(module, id, machine);
    match measured {
        Some(Adjust::Time(time)) => Price { time, memory: model.memory.min(time), source: PriceSource::Calibrated, ..model },
        Some(Adjust::Factor(factor)) => {
            let scale = |t: Nanos| Nanos::from_f64(t.as_f64() * factor);
            Price { time: scale(model.time), memory: scale(model.memory), source: PriceSource::Calibrated, ..model }
        }
        None => model,
    }
}

fn modelled(module: &Module, id: InstrId, machine: &Machine) -> Price {
    let instr = module.instr(id);
    let config = backend::Config::of(instr);
    let mut work = roofline::work(module, id);
    let mut math = roofline::math_type(module, id);
    let mut source = PriceSource::Roofline;
    match &instr.op {
        Op::CustomCall(call) => match custom::work(module, instr, call, &config) {
            Some(known) => (work, math, source) = (known.work, known.math, PriceSource::Library),
            None => source = PriceSource::Unpriced,
        },
        Op::Opaque(_) => source = PriceSource::Unpriced,
        _ => {}
    }
    let mut time = roofline::time_of(work, math, machine);
    if let Some(reified) = config.reified()
        && !reified.is_zero()
        && !(config.is_triton() && reified <= TRITON_UNPRICED)
    {
        (time, source) = (reified.max(machine.launch_latency), PriceSource::Reified);
    }
    let memory = machine.hbm_time(work.bytes).min(time);
    Price { time, beside: None, memory, source, to_host: work.host_written, from_host: work.host_read }
}

/// The price of what takes no time on the compute stream.
fn beside(module: &Module, id: InstrId, machine: &Machine, measured: Option<Adjust>) -> Price {
    let model = collective::of(module, id).map(|c| collective::time(&c, machine));
    let copies = || transfer::of(module, id).map(|t| transfer::time_alone(t, machine));
    match measured {
        Some(Adjust::Time(time)) => Price { beside: Some(time), source: PriceSource::Calibrated, ..FREE },
        Some(Adjust::Factor(factor)) => {
            let time = model.or_else(copies).map(|t| Nanos::from_f64(t.as_f64() * factor));
            Price { beside: time, source: if time.is_some() { PriceSource::Calibrated } else { PriceSource::Free }, ..FREE }
        }
        None => Price { beside: model, ..FREE },
    }
}

fn calibrated(instr: &Instruction, machine: &Machine) -> Option<Adjust> {
    if machine.calibration.is_empty() {
        return None;
    }
    let target = match &instr.op {
        Op::CustomCall(call) => Some(&*call.target),
        _ => None,
    };
    machine.calibration.of(&instr.name, target, instr.op.opcode())
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
        Op::CustomCall(call) => custom::is_free(&call.target),
        _ => false,
    }
}
