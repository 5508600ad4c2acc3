//! Queues beside the compute stream.
//!
//! Each lane serves one job at a time, first in first out. A job waits its latency and then moves its bytes at the rate that holds while it
//! does. Without contention that rate never changes and a job's time is known when it is queued, to the nanosecond.
//!
//! With contention: the two directions of the host link share the rate that it gives both ways, and the GPU's share of host memory; what
//! crosses the link takes its part of device memory's rate first; what is left is shared evenly between a kernel, as far as it wants it, and
//! a copy within device memory. A kernel that gets less than it wants is slower by that ratio.

use std::collections::VecDeque;

use super::timeline::Lane;
use crate::entity::InstrId;
use crate::ir::EntityMap;
use crate::machine::Machine;
use crate::units::{Bytes, BytesPerSec, Nanos};

/// Work for a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) instr: InstrId,
    pub(super) issued: Nanos,
    pub(super) begin: Nanos,
    /// Time before the first byte; all of it where the time is fixed.
    wait: Nanos,
    /// Bytes on the lane that are left.
    left: Bytes,
}

/// A job that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) lane: Lane,
    pub(super) job: Job,
    pub(super) end: Nanos,
}

/// One part in a million; a kernel alone runs at a million of them.
const FULL: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub(super) struct Lanes<'m> {
    machine: &'m Machine,
    contention: bool,
    pub(super) now: Nanos,
    queues: [VecDeque<Job>; Lane::BESIDE.len()],
    open: EntityMap<InstrId, u32>,
    waiting: usize,
}

/// Rates while nothing changes: of each lane's head in its byte phase, and of the kernel in parts of [`FULL`].
struct Rates {
    lanes: [BytesPerSec; Lane::BESIDE.len()],
    kernel: u64,
}

impl<'m> Lanes<'m> {
    pub(super) fn new(machine: &'m Machine, contention: bool, now: Nanos) -> Self {
        Self { machine, contention, now, queues: Default::default(), open: EntityMap::with_default(0), waiting: 0 }
    }
    /// Whether no lane has work.
    pub(super) fn idle(&self) -> bool {
        self.waiting == 0
    }
    /// The instructions whose work is at the heads of the lanes.
    pub(super) fn heads(&self) -> [Option<InstrId>; Lane::BESIDE.len()] {
        std::array::from_fn(|i| self.queues[i].front().map(|job| job.instr))
    }
    /// Whether an instruction's work has not ended.
    pub(super) fn is_open(&self, instr: InstrId) -> bool {
        self.open[instr] > 0
    }

    /// Queues work of a fixed time.
    pub(super) fn push_fixed(&mut self, lane: Lane, instr: InstrId, time: Nanos) {
        self.push(lane, Job { instr, issued: self.now, begin: self.now, wait: time, left: Bytes::ZERO });
    }
    /// Queues a copy.
    pub(super) fn push_copy(&mut self, lane: Lane, instr: InstrId, bytes: Bytes) {
        let moved = if lane == Lane::OnDevice { bytes * 2 } else { bytes };
        if self.contention {
            let wait = self.machine.copy_latency;
            self.push(lane, Job { instr, issued: self.now, begin: self.now, wait, left: moved });
        } else {
            self.push_fixed(lane, instr, self.machine.copy_latency + moved / self.alone(lane));
        }
    }
    fn push(&mut self, lane: Lane, job: Job) {
        self.queues[lane.beside()].push_back(job);
        self.open[job.instr] += 1;
        self.waiting += 1;
    }

    fn alone(&self, lane: Lane) -> BytesPerSec {
        match lane {
            Lane::ToHost => self.machine.to_host_rate(),
            Lane::FromHost => self.machine.from_host_rate(),
            Lane::OnDevice | Lane::Compute | Lane::Collective | Lane::Beside => self.machine.hbm,
        }
    }

    /// Rates beside a kernel that wants `demand` millionths of device memory's rate.
    fn rates(&self, demand: u64) -> Rates {
        let moves = |lane: Lane| self.queues[lane.beside()].front().is_some_and(|job| job.wait.is_zero() && !job.left.is_zero());
        let mut rates = Rates { lanes: Lane::BESIDE.map(|lane| self.alone(lane)), kernel: FULL };
        if !self.contention {
            return rates;
        }
        let (out, back) = (rates.lanes[Lane::ToHost.beside()], rates.lanes[Lane::FromHost.beside()]);
        let (mut out, mut back) =
            (if moves(Lane::ToHost) { out } else { BytesPerSec::ZERO }, if moves(Lane::FromHost) { back } else { BytesPerSec::ZERO });
        let limit = self.machine.both_ways.min(self.machine.host.share());
        if !out.is_zero() && !back.is_zero() && (out + back) > limit {
            let scaled = |rate: BytesPerSec| part(limit, rate.get(), (out + back).get());
            (out, back) = (scaled(out), scaled(back));
            rates.lanes[Lane::ToHost.beside()] = out;
            rates.lanes[Lane::FromHost.beside()] = back;
        }
        let free = self.machine.hbm - out - back;
        let wanted = part(self.machine.hbm, demand, FULL);
        let copies = moves(Lane::OnDevice);
        let fair = if copies { BytesPerSec(free.get() / 2) } else { free };
        let kernel = wanted.min(fair.max(BytesPerSec(1)));
        if kernel < wanted {
            rates.kernel = (u128::from(kernel.get()) * u128::from(FULL) / u128::from(wanted.get())).max(1) as u64;
        }
        if copies {
            rates.lanes[Lane::OnDevice.beside()] = (free - kernel).max(BytesPerSec(1));
        }
        rates
    }

    /// When the first head ends, if rates stay.
    pub(super) fn next_end(&self) -> Option<Nanos> {
        let rates = self.rates(0);
        let heads = self.queues.iter().zip(rates.lanes).filter_map(|(queue, rate)| queue.front().map(|job| job.wait + job.left / rate));
        heads.min().map(|left| self.now + left)
    }

    /// Moves to the next change or to `until`, whichever is sooner.
    fn turn(&mut self, until: Nanos, rates: &Rates, ended: &mut Vec<Ended>) {
        let phase = |job: &Job, rate: BytesPerSec| if job.wait.is_zero() { job.left / rate } else { job.wait };
        let heads = self.queues.iter().zip(rates.lanes).filter_map(|(queue, rate)| queue.front().map(|job| phase(job, rate)));
        let passed = heads.min().map_or(until - self.now, |next| next.min(until - self.now));
        self.now += passed;
        for lane in Lane::BESIDE {
            let rate = rates.lanes[lane.beside()];
            let queue = &mut self.queues[lane.beside()];
            let Some(job) = queue.front_mut() else { continue };
            if !job.wait.is_zero() {
                job.wait -= passed;
            } else if job.left / rate <= passed {
                job.left = Bytes::ZERO;
            } else {
                job.left -= rate * passed;
            }
            if job.wait.is_zero() && job.left.is_zero() {
                let job = *job;
                queue.pop_front();
                self.waiting -= 1;
                self.open[job.instr] -= 1;
                ended.push(Ended { lane, job, end: self.now });
                if let Some(next) = queue.front_mut() {
                    next.begin = next.begin.max(self.now);
                }
            }
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, until: Nanos, ended: &mut Vec<Ended>) {
        while self.now < until {
            if self.idle() {
                self.now = until;
                return;
            }
            let rates = self.rates(0);
            self.turn(until, &rates, ended);
        }
    }

    /// Runs a kernel that takes `time` alone, of which device memory is busy for `memory`.
    pub(super) fn kernel(&mut self, time: Nanos, memory: Nanos, ended: &mut Vec<Ended>) {
        if !self.contention || time.is_zero() {
            return self.pass(self.now + time, ended);
        }
        let demand = (u128::from(memory.get()) * u128::from(FULL) / u128::from(time.get())).min(u128::from(FULL)) as u64;
        // What is left of it, in millionths of a nanosecond at full speed.
        let mut left = u128::from(time.get()) * u128::from(FULL);
        while left > 0 {
            let rates = self.rates(demand);
            let speed = u128::from(rates.kernel);
            let end = self.now + Nanos(u64::try_from(left.div_ceil(speed)).unwrap_or(u64::MAX));
            let before = self.now;
            if self.idle() {
                self.now = end;
                return;
            }
            self.turn(end, &rates, ended);
            left = left.saturating_sub(u128::from((self.now - before).get()) * speed);
            if self.now == Nanos::MAX {
                return;
            }
        }
    }

    /// Lets time pass until an instruction's work has ended.
    pub(super) fn finish(&mut self, instr: InstrId, ended: &mut Vec<Ended>) {
        while self.is_open(instr) && self.now < Nanos::MAX {
            let rates = self.rates(0);
            self.turn(Nanos::MAX, &rates, ended);
        }
    }
    /// Lets time pass until all work has ended.
    pub(super) fn finish_all(&mut self, ended: &mut Vec<Ended>) {
        while !self.idle() && self.now < Nanos::MAX {
            let rates = self.rates(0);
            self.turn(Nanos::MAX, &rates, ended);
        }
    }
}

/// `rate · numerator / denominator`.
fn part(rate: BytesPerSec, numerator: u64, denominator: u64) -> BytesPerSec {
    let scaled = u128::from(rate.get()) * u128::from(numerator) / u128::from(denominator.max(1));
    BytesPerSec(u64::try_from(scaled).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Entity;
    use crate::machine::preset;

    fn id(n: usize) -> InstrId {
        InstrId::new(n)
    }

    #[test]
    fn a_lane_serves_one_after_the_other() {
        let machine = preset("h100-sxm").unwrap();
        let mut lanes = Lanes::new(&machine, false, Nanos::ZERO);
        lanes.push_copy(Lane::ToHost, id(0), Bytes(50_000));
        lanes.push_copy(Lane::ToHost, id(1), Bytes(50_000));
        lanes.push_copy(Lane::FromHost, id(2), Bytes(50_000));
        let mut ended = Vec::new();
        lanes.finish(id(1), &mut ended);
        let ends: Vec<(usize, u64, u64)> = ended.iter().map(|e| (e.job.instr.index(), e.job.begin.get(), e.end.get())).collect();
        assert_eq!(ends, [(0, 0, 3_000), (2, 0, 3_000), (1, 3_000, 6_000)]);
    }

    #[test]
    fn with_contention_both_ways_share_and_memory_bound_kernels_give_way() {
        let mut machine = preset("h100-sxm").unwrap();
        machine.copy_latency = Nanos::ZERO;
        (machine.both_ways, machine.hbm) = (BytesPerSec::gb(50.0), BytesPerSec::gb(1000.0));
        let mut lanes = Lanes::new(&machine, true, Nanos::ZERO);
        lanes.push_copy(Lane::ToHost, id(0), Bytes(50_000));
        lanes.push_copy(Lane::FromHost, id(1), Bytes(50_000));
        let mut ended = Vec::new();
        lanes.finish_all(&mut ended);
        assert_eq!(lanes.now, Nanos(2_000));
        // A kernel that wants all of device memory beside a copy within it: half each.
        lanes.push_copy(Lane::OnDevice, id(2), Bytes(500_000));
        lanes.kernel(Nanos(1_000), Nanos(1_000), &mut ended);
        assert_eq!(lanes.now, Nanos(4_000));
        // One that computes is not slowed.
        lanes.push_copy(Lane::OnDevice, id(3), Bytes(500_000));
        lanes.kernel(Nanos(1_000), Nanos(100), &mut ended);
        assert_eq!(lanes.now, Nanos(5_000));
    }
}
