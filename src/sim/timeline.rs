//! What a run of the program takes, as data.

use crate::cost::{PriceSource, TripSource};
use crate::ir::{EntityMap, InstrId};
use crate::units::{Bytes, Nanos};

/// Where work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Kernels, in order.
    Compute,
    /// Copies from device to host.
    ToHost,
    /// Copies from host to device.
    FromHost,
    /// Copies within device memory.
    OnDevice,
    /// Collectives.
    Collective,
    /// Kernels on another stream.
    Beside,
}

impl Lane {
    /// The lanes beside the compute stream.
    pub const BESIDE: [Self; 5] = [Self::ToHost, Self::FromHost, Self::OnDevice, Self::Collective, Self::Beside];
    /// A word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::ToHost => "to host",
            Self::FromHost => "from host",
            Self::OnDevice => "on device",
            Self::Collective => "collectives",
            Self::Beside => "other stream",
        }
    }
    /// Position among [`Lane::BESIDE`]; of the compute stream 0, which nobody asks for.
    pub(super) fn beside(self) -> usize {
        (self as usize).saturating_sub(1)
    }
}

/// From when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First instant.
    pub begin: Nanos,
    /// Last instant.
    pub end: Nanos,
}

impl Span {
    /// How long.
    pub fn time(self) -> Nanos {
        self.end - self.begin
    }
}

/// One thing that happened. Loops appear with the iterations that were played; the others are one [`What::Repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The instruction.
    pub instr: InstrId,
    /// Where.
    pub lane: Lane,
    /// When.
    pub span: Span,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A kernel ran (or, taking no time, memory was allocated).
    Kernel,
    /// The compute stream handed work to a lane.
    Start,
    /// A lane did the work.
    Work {
        /// When it was handed over.
        issued: Nanos,
        /// Bytes that were copied; 0 of collectives and kernels.
        bytes: Bytes,
    },
    /// The compute stream came to a `-done`, and waited for this lane if that took time.
    Wait {
        /// The lane.
        on: Lane,
    },
    /// One iteration of a loop, as played.
    Iteration,
    /// Further iterations of a loop (or another run of a called computation) that go like one that was played.
    Repeat {
        /// How many.
        times: u64,
    },
    /// A whole loop.
    Loop {
        /// How often its body ran.
        trips: u64,
    },
}

/// How long the compute stream waited at one instruction, over the whole step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The instruction that waits.
    pub at: InstrId,
    /// What it waits for.
    pub on: Lane,
    /// How long, all runs together.
    pub total: Nanos,
}

/// How often a loop ran, and whether that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopRun {
    /// The `while`.
    pub instr: InstrId,
    /// The number.
    pub trips: u64,
    /// How it is known; `None` where the caller said it.
    pub source: Option<TripSource>,
}

impl LoopRun {
    /// How the trip count is known, in words.
    pub fn how(&self) -> &'static str {
        match self.source {
            Some(TripSource::Known) => "written in the module",
            Some(TripSource::Derived) => "derived from its condition",
            Some(TripSource::Assumed) => "assumed",
            None => "given",
        }
    }
}

/// What a reader of the figures must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A loop's trip count is not known: one iteration was assumed.
    AssumedTrips(InstrId),
    /// A custom call or an opcode that cannot be priced: its bytes over the rate of memory were taken.
    Unpriced(InstrId),
    /// Computations nest so deep that the innermost were left out.
    TooDeep,
}

/// What a run of the program takes, and where.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The step: to the end of the last kernel and the last copy.
    pub step: Nanos,
    /// Time in which kernels run.
    pub compute: Nanos,
    /// Time in which the compute stream waits for copies of any kind.
    pub copy_wait: Nanos,
    /// Time in which the compute stream waits for collectives.
    pub collective_wait: Nanos,
    /// Time in which the compute stream waits for kernels on other streams.
    pub beside_wait: Nanos,
    /// Time after the last kernel in which copies and collectives end.
    pub tail: Nanos,
    /// Bytes to the host over the step.
    pub to_host: Bytes,
    /// Bytes from the host over the step.
    pub from_host: Bytes,
    /// Bytes copied within device memory over the step.
    pub on_device: Bytes,
    /// How long each lane beside the compute stream works, in the order of [`Lane::BESIDE`].
    pub busy: [Nanos; Lane::BESIDE.len()],
    /// How long the compute stream waits for each of them.
    pub waits: [Nanos; Lane::BESIDE.len()],
    /// Time of kernels by how their prices are known, in the order of [`PriceSource::ALL`].
    pub by_source: [Nanos; PriceSource::ALL.len()],
    /// When the compute stream comes to each instruction for the first time.
    pub begin: EntityMap<InstrId, Nanos>,
    /// What happened, in the order in which it ended on each lane.
    pub events: Vec<Event>,
    /// Stalls by instruction, in program order.
    pub stalls: Vec<Stall>,
    /// Loops that ran, in program order.
    pub loops: Vec<LoopRun>,
    /// What a reader must know.
    pub notes: Vec<Note>,
    pub(super) first: EntityMap<InstrId, Option<Span>>,
    pub(super) steady: EntityMap<InstrId, Option<Span>>,
}

impl Timeline {
    /// When an instruction ran for the first time: a kernel, the work that a `-start` handed over, the wait of a `-done`.
    pub fn first(&self, id: InstrId) -> Option<Span> {
        self.first[id]
    }
    /// The same in the steady state of its loop: in the last iteration that was played; the first run where there was only one.
    pub fn steady(&self, id: InstrId) -> Option<Span> {
        self.steady[id].or(self.first[id])
    }
    /// The part of the time of host copies that was hidden behind kernels, from 0 to 1; `None` without copies.
    pub fn overlap(&self) -> Option<f64> {
        let pair = |of: &[Nanos; Lane::BESIDE.len()]| of[Lane::ToHost.beside()] + of[Lane::FromHost.beside()];
        let busy = pair(&self.busy);
        (!busy.is_zero()).then(|| 1.0 - (pair(&self.waits) + self.tail).min(busy).ratio(busy))
    }
    /// How long a lane works; of the compute stream, how long kernels run.
    pub fn busy(&self, lane: Lane) -> Nanos {
        if lane == Lane::Compute { self.compute } else { self.busy[lane.beside()] }
    }
    /// Time of kernels by how their prices are known: a word and a time each.
    pub fn sources(&self) -> impl Iterator<Item = (&'static str, Nanos)> {
        PriceSource::ALL.iter().zip(self.by_source).map(|(source, time)| (source.name(), time))
    }
    /// How long the compute stream waits for a lane.
    pub fn wait(&self, lane: Lane) -> Nanos {
        if lane == Lane::Compute { Nanos::ZERO } else { self.waits[lane.beside()] }
    }
}
