//! A whole program as a list of steps: where everything lies is known before it runs, so nothing is decided while it does.
//!
//! Work goes to three streams: one computes, one moves bytes from the device to the host, one back. A stream waits for another only where
//! the program says so: a start waits for what was computed before it, a done lets the compute stream wait for its start. Control flow is
//! the host's: it reads the condition and goes on.

pub use super::layout::{aliases, align, arrange, logical};
use super::product::Product;
use super::source::Source;
use super::types::Ty;
use crate::interp::{ArenaKind, Error, Placement};
use crate::ir::{InstrId, Module};

/// A queue of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Kernels, and copies within a memory.
    Compute,
    /// From the device to the host.
    ToHost,
    /// From the host to the device.
    ToDevice,
}

impl Stream {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Compute, Self::ToHost, Self::ToDevice];
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::ToHost => "device to host",
            Self::ToDevice => "host to device",
        }
    }
}

/// Bytes of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The arena.
    pub arena: ArenaKind,
    /// The first byte.
    pub offset: usize,
    /// The number of bytes.
    pub bytes: usize,
}

impl Place {
    /// Whether they share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.arena == other.arena && self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }
}

/// What an argument of a kernel points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// A byte of an arena.
    Arena(ArenaKind, usize),
    /// A byte of the stream's scratch memory.
    Scratch(usize),
}

/// One kernel to launch.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCall {
    /// The kernel.
    pub kernel: String,
    /// Blocks.
    pub grid: u32,
    /// Threads a block.
    pub block: u32,
    /// Its arguments.
    pub args: Vec<Address>,
    /// What a library does instead, if there is one.
    pub product: Option<Product<Address>>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Kernels, one after the other.
    Kernels {
        /// The instruction they are.
        instr: InstrId,
        /// Where they run.
        stream: Stream,
        /// The kernels.
        calls: Vec<KernelCall>,
    },
    /// Bytes from one place to another.
    Copy {
        /// The instruction it is.
        instr: InstrId,
        /// Where it runs.
        stream: Stream,
        /// From.
        from: Place,
        /// To.
        to: Place,
    },
    /// An event happens when all work so far of a stream is done.
    Record {
        /// The instruction that asks for it.
        instr: InstrId,
        /// Its number.
        event: usize,
        /// The stream.
        stream: Stream,
    },
    /// A stream goes on when an event has happened.
    Wait {
        /// The instruction that asks for it.
        instr: InstrId,
        /// Its number.
        event: usize,
        /// The stream.
        stream: Stream,
    },
    /// A value is there from now on: for the record of what lies where.
    Written {
        /// The instruction that gives it.
        instr: InstrId,
        /// The planned buffers, and the bytes.
        parts: Vec<(u32, Place)>,
    },
    /// From now on nothing in some planned buffers is read until somebody writes there again.
    Ended {
        /// The last instruction that uses them.
        instr: InstrId,
        /// The buffers.
        buffers: Vec<u32>,
    },
    /// A loop.
    While {
        /// The instruction.
        instr: InstrId,
        /// Computes the condition.
        condition: Vec<Step>,
        /// The condition: one byte.
        go: Place,
        /// The body.
        body: Vec<Step>,
    },
    /// A choice.
    Conditional {
        /// The instruction.
        instr: InstrId,
        /// What is chosen by: a byte that is not 0 for the first branch, or a number of four bytes.
        choice: Place,
        /// The branches; the last one for a number that is none of them.
        branches: Vec<Vec<Step>>,
    },
}

/// A program made ready.
#[derive(Clone, Debug)]
pub struct Program {
    /// The steps.
    pub steps: Vec<Step>,
    /// The kernels.
    pub source: Source,
    /// Bytes of the device arena.
    pub device: usize,
    /// Bytes of the host arena.
    pub host: usize,
    /// Bytes of scratch memory that each stream needs beside the arenas, which the plan does not know of.
    pub scratch: [usize; 3],
    /// The number of events.
    pub events: usize,
    /// Where the arrays of the parameters go, and their types.
    pub parameters: Vec<(Place, Ty)>,
    /// What lies in memory before the first step: constants.
    pub constants: Vec<(Place, Vec<u8>)>,
    /// Where the arrays of the result are, and their types.
    pub results: Vec<(Place, Ty)>,
    /// Matrix products that a library may compute.
    pub products: usize,
}

impl Program {
    /// Makes a scheduled module ready that is settled and lies where a placement says; without one, any module in the order in which it is
    /// written, each value with memory of its own. The errors are all instructions that cannot be run.
    pub fn new(module: &Module, placement: Option<&Placement>) -> Result<Self, Vec<Error>> {
        let (program, errors) = Self::parts(module, placement);
        if errors.is_empty() { Ok(program) } else { Err(errors) }
    }

    /// What can be made ready, and the errors: for who looks at the kernels only.
    pub fn parts(module: &Module, placement: Option<&Placement>) -> (Self, Vec<Error>) {
        super::build::build(module, placement)
    }
}
