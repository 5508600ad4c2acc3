//! The discrete-event engine.

use crate::cost::{Prices, trip_count};
use crate::ir::{CompId, EntityMap, HOST, InstrId, Module, Op, ShapeId};
use crate::machine::Machine;
use crate::units::{Bytes, BytesPerSec, Nanos};

/// What a run of the program takes, and where.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The step.
    pub step: Nanos,
    /// Time in which kernels run.
    pub compute: Nanos,
    /// Time in which the compute stream waits for copies.
    pub copy_wait: Nanos,
    /// Time in which the compute stream waits for collectives.
    pub collective_wait: Nanos,
    /// Bytes to the host over the step.
    pub to_host: Bytes,
    /// Bytes from the host over the step.
    pub from_host: Bytes,
    /// When each instruction begins, in the first iteration of its loop.
    pub begin: EntityMap<InstrId, Nanos>,
}

/// Totals that grow as the program runs.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    now: Nanos,
    compute: Nanos,
    copy_wait: Nanos,
    collective_wait: Nanos,
    to_host: Bytes,
    from_host: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    ToHost,
    FromHost,
    OnDevice,
    Collective,
}

/// Rate and latency of collectives: what an FSDP step over a few nodes sees of its fabric.
const COLLECTIVE_RATE: BytesPerSec = BytesPerSec(100_000_000_000);
const COLLECTIVE_LATENCY: Nanos = Nanos(5_000);
/// Loops nested deeper than this are taken to cost nothing; no program has them.
const MAX_NESTING: usize = 64;

struct Engine<'a> {
    module: &'a Module,
    machine: &'a Machine,
    prices: &'a Prices,
    total: Busy,
    free_at: [Nanos; 4],
    done_at: EntityMap<InstrId, Option<(Queue, Nanos)>>,
    begin: EntityMap<InstrId, Nanos>,
    seen: EntityMap<CompId, bool>,
}

/// Plays `module` once.
pub fn simulate(module: &Module, machine: &Machine, prices: &Prices) -> Timeline {
    let mut engine = Engine {
        module,
        machine,
        prices,
        total: Busy::default(),
        free_at: [Nanos::ZERO; 4],
        done_at: EntityMap::with_default(None),
        begin: EntityMap::with_default(Nanos::ZERO),
        seen: EntityMap::with_default(false),
    };
    engine.run(module.entry_id(), 0);
    let Busy { now, compute, copy_wait, collective_wait, to_host, from_host } = engine.total;
    let step = now.max(engine.free_at[Queue::ToHost as usize]);
    Timeline { step, compute, copy_wait, collective_wait, to_host, from_host, begin: engine.begin }
}

impl Engine<'_> {
    fn run(&mut self, comp: CompId, nesting: usize) {
        if nesting > MAX_NESTING {
            return;
        }
        let module = self.module;
        let first = !std::mem::replace(&mut self.seen[comp], true);
        for &id in &module.comp(comp).order {
            if first {
                self.begin[id] = self.total.now;
            }
            self.step(id, nesting);
        }
    }

    fn step(&mut self, id: InstrId, nesting: usize) {
        let module = self.module;
        let instr = module.instr(id);
        match &instr.op {
            Op::While { body, .. } => self.repeat(*body, trip_count(module, id).unwrap_or(1), nesting + 1),
            Op::Call { to_apply, .. } => self.run(*to_apply, nesting + 1),
            Op::Conditional { branches, .. } => self.heaviest(branches, nesting + 1),
            Op::CopyStart { .. } => {
                let shapes = module.shapes.elements(instr.shape);
                let (to, from) = (shapes.first().copied().unwrap_or(instr.shape), shapes.get(1).copied().unwrap_or(instr.shape));
                self.start_copy(id, self.direction(from, to), Bytes(module.shapes.byte_size(to)));
            }
            Op::AsyncStart(wrapped) => {
                let (queue, bytes) = self.async_copy(wrapped.calls);
                self.start_copy(id, queue, bytes);
            }
            Op::Collective(collective) => {
                let shape =
                    if collective.start { module.shapes.leaf_bytes(instr.shape) / 2 } else { module.shapes.leaf_bytes(instr.shape) };
                let end = self.enqueue(Queue::Collective, COLLECTIVE_LATENCY + Bytes(shape) / COLLECTIVE_RATE);
                if collective.start { self.done_at[id] = Some((Queue::Collective, end)) } else { self.wait(Queue::Collective, end) }
            }
            Op::CopyDone | Op::AsyncDone(_) | Op::CollectiveDone(_) => {
                if let Some((queue, end)) = instr.operands.first().and_then(|&o| self.done_at[o]) {
                    self.wait(queue, end);
                }
            }
            Op::AsyncUpdate(_) => self.done_at[id] = instr.operands.first().and_then(|&o| self.done_at[o]),
            _ => {
                let time = self.prices.time(id);
                self.total.now += time;
                self.total.compute += time;
            }
        }
    }

    fn start_copy(&mut self, id: InstrId, queue: Queue, bytes: Bytes) {
        let time = match queue {
            Queue::ToHost => self.machine.offload_time(bytes),
            Queue::FromHost => self.machine.reload_time(bytes),
            Queue::OnDevice | Queue::Collective => self.machine.copy_latency + self.machine.hbm_time(bytes * 2),
        };
        match queue {
            Queue::ToHost => self.total.to_host += bytes,
            Queue::FromHost => self.total.from_host += bytes,
            Queue::OnDevice | Queue::Collective => {}
        }
        let end = self.enqueue(queue, time);
        self.done_at[id] = Some((queue, end));
    }

    fn enqueue(&mut self, queue: Queue, time: Nanos) -> Nanos {
        let free_at = &mut self.free_at[queue as usize];
        *free_at = self.total.now.max(*free_at) + time;
        *free_at
    }

    fn wait(&mut self, queue: Queue, end: Nanos) {
        let stall = end - self.total.now;
        let wait = if queue == Queue::Collective { &mut self.total.collective_wait } else { &mut self.total.copy_wait };
        *wait += stall;
        self.total.now += stall;
    }

    fn direction(&self, from: ShapeId, to: ShapeId) -> Queue {
        match (self.module.shapes.memory_space(from) == HOST, self.module.shapes.memory_space(to) == HOST) {
            (false, true) => Queue::ToHost,
            (true, false) => Queue::FromHost,
            _ => Queue::OnDevice,
        }
    }

    /// Direction and bytes of a wrapped slice (host to device) or update (device to host); on the device where no host buffer is touched.
    fn async_copy(&self, comp: CompId) -> (Queue, Bytes) {
        let module = self.module;
        let mut comp = comp;
        while let Op::Fusion(fusion) = &module.instr(module.comp(comp).root).op {
            comp = fusion.calls;
        }
        let root = module.instr(module.comp(comp).root);
        let space = |id: InstrId| module.shapes.memory_space(module.instr(id).shape);
        match (&root.op, root.operands.as_slice()) {
            (Op::DynamicUpdateSlice, &[base, update, ..]) => {
                let bytes = Bytes(module.shapes.leaf_bytes(module.instr(update).shape));
                (if space(base) == HOST { Queue::ToHost } else { Queue::OnDevice }, bytes)
            }
            (_, operands) => {
                let from_host = operands.iter().any(|&o| space(o) == HOST);
                (if from_host { Queue::FromHost } else { Queue::OnDevice }, Bytes(module.shapes.leaf_bytes(root.shape)))
            }
        }
    }

    /// Plays a body until its steady state and extrapolates the rest.
    fn repeat(&mut self, body: CompId, trips: u64, nesting: usize) {
        let played = trips.min(if nesting <= 2 { 4 } else { 2 });
        let mut before = self.total;
        for _ in 0..played {
            before = self.total;
            self.run(body, nesting);
        }
        let rest = trips - played;
        let after = self.total;
        let step = after.now - before.now;
        self.total = Busy {
            now: after.now + step * rest,
            compute: after.compute + (after.compute - before.compute) * rest,
            copy_wait: after.copy_wait + (after.copy_wait - before.copy_wait) * rest,
            collective_wait: after.collective_wait + (after.collective_wait - before.collective_wait) * rest,
            to_host: after.to_host + (after.to_host - before.to_host) * rest,
            from_host: after.from_host + (after.from_host - before.from_host) * rest,
        };
        for free_at in &mut self.free_at {
            *free_at += step * rest;
        }
    }

    /// Plays every branch from here and keeps the one that ends last.
    fn heaviest(&mut self, branches: &[CompId], nesting: usize) {
        let (start, free) = (self.total, self.free_at);
        let mut worst = (start, free);
        for &branch in branches {
            (self.total, self.free_at) = (start, free);
            self.run(branch, nesting);
            if self.total.now > worst.0.now {
                worst = (self.total, self.free_at);
            }
        }
        (self.total, self.free_at) = worst;
    }
}
