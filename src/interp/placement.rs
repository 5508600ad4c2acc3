//! Where a plan says that values lie, as plain data: whoever plans fills it in, the interpreter holds the program to it.

use rustc_hash::FxHashMap;

use crate::ir::InstrId;

/// A block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArenaKind {
    /// The device's.
    Device,
    /// Pinned memory of the host.
    Host,
}

impl ArenaKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
        }
    }
}

/// Bytes that values take in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBuffer {
    /// The arena.
    pub arena: ArenaKind,
    /// The first byte.
    pub offset: usize,
    /// The number of bytes.
    pub bytes: usize,
}

/// Where everything lies, and until when.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Bytes of the device arena.
    pub device: usize,
    /// Bytes of the host arena.
    pub host: usize,
    /// All buffers.
    pub buffers: Vec<PlannedBuffer>,
    /// The buffer of each array of each instruction's result (arrays numbered in order), for all instructions that run with memory of their
    /// own; arrays without bytes may be missing.
    pub buffer_of: FxHashMap<(InstrId, u32), u32>,
    /// The buffers in which nothing is alive from the end of an instruction on, until somebody writes there again.
    pub dying: FxHashMap<InstrId, Vec<u32>>,
}

impl Placement {
    /// The buffer of an array of an instruction's result; `None` if the plan does not say.
    pub fn buffer(&self, id: InstrId, leaf: u32) -> Option<PlannedBuffer> {
        self.buffers.get(*self.buffer_of.get(&(id, leaf))? as usize).copied()
    }
    /// Bytes of an arena.
    pub fn size(&self, arena: ArenaKind) -> usize {
        match arena {
            ArenaKind::Device => self.device,
            ArenaKind::Host => self.host,
        }
    }
    /// Whether a buffer holds so many bytes and lies in its arena; if not, what is wrong.
    pub fn check(&self, planned: PlannedBuffer, bytes: usize) -> Result<(), String> {
        let (name, size) = (planned.arena.name(), self.size(planned.arena));
        if bytes > planned.bytes {
            return Err(format!("the plan gives it {} bytes of the {name} arena, but it has {bytes}", planned.bytes));
        }
        match planned.offset.checked_add(bytes) {
            Some(end) if end <= size => Ok(()),
            _ => Err(format!("the plan puts it at byte {} of the {name} arena, which has {size}", planned.offset)),
        }
    }
}

/// What a run needed of an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HighWater {
    /// Bytes of the device arena that ever held a value, counted up to the last one.
    pub device: usize,
    /// The same of the host arena.
    pub host: usize,
    /// The most bytes of the device arena that held values at one time.
    pub device_alive: usize,
    /// The same of the host arena.
    pub host_alive: usize,
}
