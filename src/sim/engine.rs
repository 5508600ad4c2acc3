//! The player: goes through the program as the compute stream does.

use super::Options;
use super::lanes::{Ended, Lanes};
use super::timeline::{Event, Lane, LoopRun, Note, Span, Stall, Timeline, What};
use crate::cost::{Direction, PriceSource, Prices, TripCount, TripSource, collective, transfer, trips};
use crate::ir::{CompId, EntityMap, InstrId, Module, Op};
use crate::machine::Machine;
use crate::units::{Bytes, Nanos};

/// Calls and loops nested deeper than this are taken to cost nothing; no program has them.
const MAX_NESTING: usize = 100;
/// Iterations of one loop that are played while copies from outside it are under way; the rest goes like one by itself.
const ODD_ITERATIONS: u32 = 64;
/// Instructions played again for copies from outside, for each instruction of the program, before computations go as they go by themselves.
const FUEL_FACTOR: u64 = 32;

/// What a stretch of the program adds up to.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    compute: Nanos,
    waits: [Nanos; Lane::BESIDE.len()],
    busy: [Nanos; Lane::BESIDE.len()],
    by_source: [Nanos; PriceSource::ALL.len()],
    to_host: Bytes,
    from_host: Bytes,
    on_device: Bytes,
}

impl Totals {
    /// Adds `times` of what came between `before` and `after`.
    fn add(&mut self, before: &Self, after: &Self, times: u64) {
        self.compute += (after.compute - before.compute) * times;
        let each = |of: &mut [Nanos], before: &[Nanos], after: &[Nanos]| {
            for ((to, before), after) in of.iter_mut().zip(before).zip(after) {
                *to += (*after - *before) * times;
            }
        };
        each(&mut self.waits, &before.waits, &after.waits);
        each(&mut self.busy, &before.busy, &after.busy);
        each(&mut self.by_source, &before.by_source, &after.by_source);
        self.to_host += (after.to_host - before.to_host) * times;
        self.from_host += (after.from_host - before.from_host) * times;
        self.on_device += (after.on_device - before.on_device) * times;
    }
}

/// One run of a computation, to be counted again.
#[derive(Clone, Debug)]
struct Run {
    time: Nanos,
    totals: Totals,
    log: Vec<Entry>,
    /// Whether all queues were empty before and after.
    idle: bool,
}

/// What is added up by instruction at the end.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// A wait.
    Stall(InstrId, Lane, Nanos),
    /// An earlier run, so many times.
    Again(usize, u64),
}

struct Player<'a> {
    module: &'a Module,
    machine: &'a Machine,
    prices: &'a Prices,
    options: &'a Options,
    lanes: Lanes<'a>,
    ended: Vec<Ended>,
    totals: Totals,
    log: Vec<Entry>,
    /// Runs in the order in which they ended: an entry of a run names an earlier one.
    runs: Vec<Run>,
    from_idle: EntityMap<CompId, Option<usize>>,
    trips: EntityMap<InstrId, Option<TripCount>>,
    fuel: u64,
    recording: bool,
    too_deep: bool,
    reached: EntityMap<InstrId, bool>,
    timeline: Timeline,
}

/// Plays a program.
pub(super) fn play(module: &Module, machine: &Machine, prices: &Prices, options: &Options) -> Timeline {
    let size: usize = module.listing.iter().map(|&c| module.comp(c).order.len()).sum();
    let mut player = Player {
        module,
        machine,
        prices,
        options,
        lanes: Lanes::new(machine, options.contention, Nanos::ZERO),
        ended: Vec::new(),
        totals: Totals::default(),
        log: Vec::new(),
        runs: Vec::new(),
        from_idle: EntityMap::with_default(None),
        trips: EntityMap::with_default(None),
        fuel: (size as u64 * FUEL_FACTOR).max(1 << 20),
        recording: true,
        too_deep: false,
        reached: EntityMap::with_default(false),
        timeline: Timeline::empty(),
    };
    player.play(module.entry_id(), 0);
    let last = player.lanes.now;
    player.lanes.finish_all(&mut player.ended);
    player.settle();
    player.timeline.tail = player.lanes.now - last;
    player.finish()
}

impl Timeline {
    fn empty() -> Self {
        Self {
            step: Nanos::ZERO,
            compute: Nanos::ZERO,
            copy_wait: Nanos::ZERO,
            collective_wait: Nanos::ZERO,
            beside_wait: Nanos::ZERO,
            tail: Nanos::ZERO,
            to_host: Bytes::ZERO,
            from_host: Bytes::ZERO,
            on_device: Bytes::ZERO,
            busy: Default::default(),
            waits: Default::default(),
            by_source: Default::default(),
            begin: EntityMap::with_default(Nanos::ZERO),
            events: Vec::new(),
            stalls: Vec::new(),
            loops: Vec::new(),
            notes: Vec::new(),
            first: EntityMap::with_default(None),
            steady: EntityMap::with_default(None),
        }
    }
}

impl Player<'_> {
    fn play(&mut self, comp: CompId, nesting: usize) {
        if nesting > MAX_NESTING {
            self.too_deep = true;
            return;
        }
        let module = self.module;
        for &id in &module.comp(comp).order {
            if self.recording && !std::mem::replace(&mut self.reached[id], true) {
                self.timeline.begin[id] = self.lanes.now;
            }
            self.step(id, nesting);
        }
        self.fuel = self.fuel.saturating_sub(module.comp(comp).order.len() as u64);
    }

    fn step(&mut self, id: InstrId, nesting: usize) {
        let instr = self.module.instr(id);
        match &instr.op {
            Op::While { condition, body } => self.repeat(id, *condition, *body, nesting + 1),
            Op::Call { to_apply, .. } => self.call(id, *to_apply, nesting + 1),
            Op::Conditional { branches, .. } => {
                if let Some(branch) = self.longest(branches, nesting + 1) {
                    self.call(id, branch, nesting + 1);
                }
            }
            Op::CopyStart { .. } | Op::AsyncStart(_) | Op::Collective(_) => self.start(id, nesting),
            Op::CopyDone | Op::AsyncDone(_) | Op::CollectiveDone(_) => self.wait(id, self.starts_at(id)),
            Op::Parameter { .. }
            | Op::Constant(_)
            | Op::Bitcast
            | Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::AsyncUpdate(_)
            | Op::OptBarrier
            | Op::AfterAll
            | Op::AddDependency
            | Op::Domain(_) => {}
            _ => self.kernel(id),
        }
    }

    fn kernel(&mut self, id: InstrId) {
        let price = self.prices.get(id);
        let begin = self.lanes.now;
        self.lanes.kernel(price.time, price.memory, &mut self.ended);
        let took = self.lanes.now - begin;
        self.totals.compute += took;
        self.totals.by_source[price.source as usize] += took;
        self.totals.to_host += price.to_host;
        self.totals.from_host += price.from_host;
        self.record(id, Lane::Compute, begin, What::Kernel);
    }

    /// Hands work to a lane. A collective that is not asynchronous is waited for at once.
    fn start(&mut self, id: InstrId, nesting: usize) {
        let module = self.module;
        let op = &module.instr(id).op;
        let copy = transfer::of(module, id);
        let fixed = self.prices.get(id).beside;
        let lane = match copy.map(|c| c.direction) {
            Some(Direction::ToHost) => Lane::ToHost,
            Some(Direction::FromHost) => Lane::FromHost,
            Some(Direction::OnDevice) => Lane::OnDevice,
            None if collective::of(module, id).is_some() => Lane::Collective,
            None => Lane::Beside,
        };
        match (fixed, copy, op) {
            (Some(time), _, _) => self.lanes.push_fixed(lane, id, time),
            (None, Some(copy), _) => self.lanes.push_copy(lane, id, copy.bytes),
            (None, None, Op::AsyncStart(wrapped)) => {
                let run = self.alone(wrapped.calls, nesting + 1);
                let time = run.map_or(Nanos::ZERO, |run| self.runs[run].time);
                self.lanes.push_fixed(lane, id, time);
            }
            (None, None, _) => return,
        }
        match lane {
            Lane::ToHost => self.totals.to_host += copy.map_or(Bytes::ZERO, |c| c.bytes),
            Lane::FromHost => self.totals.from_host += copy.map_or(Bytes::ZERO, |c| c.bytes),
            Lane::OnDevice => self.totals.on_device += copy.map_or(Bytes::ZERO, |c| c.bytes),
            Lane::Compute | Lane::Collective | Lane::Beside => {}
        }
        self.record(id, Lane::Compute, self.lanes.now, What::Start);
        if matches!(op, Op::Collective(c) if !c.start) {
            self.wait(id, Some((id, Lane::Collective)));
        }
    }

    /// The start that a `-done` waits for, through updates, and its lane.
    fn starts_at(&self, done: InstrId) -> Option<(InstrId, Lane)> {
        let module = self.module;
        let mut at = *module.instr(done).operands.first()?;
        // Operands stand before users, so the chain ends.
        while matches!(module.instr(at).op, Op::AsyncUpdate(_)) {
            at = *module.instr(at).operands.first()?;
        }
        let lane = match transfer::of(module, at).map(|t| t.direction) {
            Some(Direction::ToHost) => Lane::ToHost,
            Some(Direction::FromHost) => Lane::FromHost,
            Some(Direction::OnDevice) => Lane::OnDevice,
            None if collective::of(module, at).is_some() => Lane::Collective,
            None => Lane::Beside,
        };
        Some((at, lane))
    }

    fn wait(&mut self, id: InstrId, on: Option<(InstrId, Lane)>) {
        let Some((start, lane)) = on else { return };
        let begin = self.lanes.now;
        self.lanes.finish(start, &mut self.ended);
        let stall = self.lanes.now - begin;
        self.totals.waits[lane.beside()] += stall;
        if !stall.is_zero() {
            self.log.push(Entry::Stall(id, lane, stall));
        }
        self.record(id, Lane::Compute, begin, What::Wait { on: lane });
    }

    /// Writes down what has happened on the compute stream since `begin`, after what ended beside it.
    fn record(&mut self, id: InstrId, lane: Lane, begin: Nanos, what: What) {
        self.settle();
        if self.recording {
            let span = Span { begin, end: self.lanes.now };
            if !matches!(what, What::Start) {
                self.note_span(id, span);
            }
            self.timeline.events.push(Event { instr: id, lane, span, what });
        }
    }

    fn note_span(&mut self, id: InstrId, span: Span) {
        match self.timeline.first[id] {
            None => self.timeline.first[id] = Some(span),
            Some(_) => self.timeline.steady[id] = Some(span),
        }
    }

    /// Counts and writes down what has ended on the lanes.
    fn settle(&mut self) {
        for ended in std::mem::take(&mut self.ended) {
            let Ended { lane, job, end } = ended;
            self.totals.busy[lane.beside()] += end - job.begin;
            if self.recording {
                let span = Span { begin: job.begin, end };
                let bytes = transfer::of(self.module, job.instr).map_or(Bytes::ZERO, |t| t.bytes);
                if !matches!(&self.module.instr(job.instr).op, Op::Collective(c) if !c.start) {
                    self.note_span(job.instr, span);
                }
                self.timeline.events.push(Event { instr: job.instr, lane, span, what: What::Work { issued: job.issued, bytes } });
            }
        }
    }

    /// Plays a stretch and keeps what it added up to.
    fn measured(&mut self, idle: bool, stretch: impl FnOnce(&mut Self)) -> usize {
        self.settle();
        let (begin, before) = (self.lanes.now, self.totals);
        let outer = std::mem::take(&mut self.log);
        stretch(self);
        self.settle();
        let log = std::mem::replace(&mut self.log, outer);
        let mut totals = Totals::default();
        totals.add(&before, &self.totals, 1);
        self.runs.push(Run { time: self.lanes.now - begin, totals, log, idle: idle && self.lanes.idle() });
        let run = self.runs.len() - 1;
        self.log.push(Entry::Again(run, 1));
        run
    }

    /// Counts an earlier run again.
    fn again(&mut self, id: InstrId, run: usize, times: u64) {
        let begin = self.lanes.now;
        let (time, totals) = (self.runs[run].time * times, self.runs[run].totals);
        self.lanes.pass(begin + time, &mut self.ended);
        self.totals.add(&Totals::default(), &totals, times);
        self.log.push(Entry::Again(run, times));
        self.record_block(id, begin, What::Repeat { times });
    }

    fn record_block(&mut self, id: InstrId, begin: Nanos, what: What) {
        self.settle();
        if self.recording {
            self.timeline.events.push(Event { instr: id, lane: Lane::Compute, span: Span { begin, end: self.lanes.now }, what });
        }
    }

    /// The run of a computation by itself, from empty queues; `None` where it nests too deep.
    fn alone(&mut self, comp: CompId, nesting: usize) -> Option<usize> {
        if nesting > MAX_NESTING {
            self.too_deep = true;
            return None;
        }
        if let Some(run) = self.from_idle[comp] {
            return Some(run);
        }
        self.settle();
        let lanes = std::mem::replace(&mut self.lanes, Lanes::new(self.machine, self.options.contention, Nanos::ZERO));
        let (totals, log, recording) = (self.totals, std::mem::take(&mut self.log), std::mem::replace(&mut self.recording, false));
        let run = self.measured(true, |this| {
            this.play(comp, nesting);
            this.lanes.finish_all(&mut this.ended);
        });
        (self.lanes, self.totals, self.log, self.recording) = (lanes, totals, log, recording);
        self.from_idle[comp] = Some(run);
        Some(run)
    }

    fn call(&mut self, id: InstrId, comp: CompId, nesting: usize) {
        let idle = self.lanes.idle();
        let known = self.from_idle[comp].filter(|_| idle || self.fuel == 0);
        // A first run is played in full, to be seen; so is one among copies from outside.
        if let Some(run) = known.filter(|_| !self.recording || self.seen(comp)) {
            return self.again(id, run, 1);
        }
        if self.fuel == 0
            && let Some(run) = self.alone(comp, nesting)
        {
            return self.again(id, run, 1);
        }
        let begin = self.lanes.now;
        let run = self.measured(idle, |this| this.play(comp, nesting));
        if self.runs[run].idle {
            self.from_idle[comp] = Some(run);
        }
        self.record_block(id, begin, What::Iteration);
    }

    /// Whether a computation has been played while recording.
    fn seen(&self, comp: CompId) -> bool {
        self.module.comp(comp).order.first().is_none_or(|&id| self.reached[id])
    }

    fn trips_of(&mut self, id: InstrId) -> (u64, Option<TripSource>) {
        if let Some(&said) = self.options.trips.get(&*self.module.instr(id).name) {
            return (said, None);
        }
        let known = *self.trips[id].get_or_insert_with(|| trips(self.module, id));
        (known.count, Some(known.source))
    }

    fn repeat(&mut self, id: InstrId, condition: CompId, body: CompId, nesting: usize) {
        let (count, source) = self.trips_of(id);
        // XLA runs a loop of known length without asking the condition.
        let asks = source != Some(TripSource::Known);
        let begin = self.lanes.now;
        if asks {
            self.play(condition, nesting);
        }
        let mut left = count;
        let mut odd = 0;
        let mut shown = false;
        while left > 0 {
            let idle = self.lanes.idle();
            let spent = self.fuel == 0 || odd >= ODD_ITERATIONS;
            let known = if spent { self.alone(body, nesting) } else { self.from_idle[body].filter(|_| idle) };
            // An iteration by itself is played once to be seen.
            if let Some(run) = known.filter(|_| spent || !self.recording || shown || self.seen(body)) {
                self.again(id, run, left);
                break;
            }
            let heads = self.lanes.heads();
            let started = self.lanes.now;
            let run = self.measured(idle, |this| {
                this.play(body, nesting);
                if asks {
                    this.play(condition, nesting);
                }
            });
            self.record_block(id, started, What::Iteration);
            left -= 1;
            if self.runs[run].idle {
                self.from_idle[body] = Some(run);
                shown = true;
            } else if idle || heads != self.lanes.heads() {
                odd += 1;
            } else {
                // The same copies are still under way, so the body does not use their lanes: it goes on like this to their end.
                odd += 1;
                let time = self.runs[run].time.get();
                let until = self.lanes.next_end().unwrap_or(self.lanes.now) - self.lanes.now;
                let times = until.get().checked_div(time).unwrap_or(u64::MAX).min(left);
                if times > 0 {
                    self.again(id, run, times);
                    left -= times;
                }
            }
        }
        self.record_block(id, begin, What::Loop { trips: count });
    }

    /// The branch that takes longest by itself, the first of equals.
    fn longest(&mut self, branches: &[CompId], nesting: usize) -> Option<CompId> {
        let mut best: Option<(CompId, Nanos)> = None;
        for &branch in branches {
            let time = self.alone(branch, nesting).map_or(Nanos::ZERO, |run| self.runs[run].time);
            if best.is_none_or(|(_, most)| time > most) {
                best = Some((branch, time));
            }
        }
        best.map(|(branch, _)| branch)
    }

    fn finish(mut self) -> Timeline {
        let totals = self.totals;
        let mut stalls = EntityMap::<InstrId, Option<(Lane, Nanos)>>::with_default(None);
        let mut counts = vec![0u64; self.runs.len()];
        let mut add = |entry: Entry, times: u64, counts: &mut [u64]| match entry {
            Entry::Stall(id, lane, time) => {
                let before = stalls[id].map_or(Nanos::ZERO, |(_, t)| t);
                stalls[id] = Some((lane, before + time * times));
            }
            Entry::Again(run, n) => counts[run] = counts[run].saturating_add(n.saturating_mul(times)),
        };
        for &entry in &self.log {
            add(entry, 1, &mut counts);
        }
        for run in (0..self.runs.len()).rev() {
            if counts[run] > 0 {
                for entry in std::mem::take(&mut self.runs[run].log) {
                    add(entry, counts[run], &mut counts);
                }
            }
        }
        let mut timeline = self.timeline;
        for (_, id) in self.module.live() {
            if let Some((on, total)) = stalls[id] {
                timeline.stalls.push(Stall { at: id, on, total });
            }
            if matches!(self.module.instr(id).op, Op::While { .. }) && self.reached[id] {
                let said = self.options.trips.get(&*self.module.instr(id).name);
                let known = self.trips[id];
                if let Some(trips) = said.copied().or(known.map(|k| k.count)) {
                    let source = if said.is_some() { None } else { known.map(|k| k.source) };
                    timeline.loops.push(LoopRun { instr: id, trips, source });
                    if source == Some(TripSource::Assumed) {
                        timeline.notes.push(Note::AssumedTrips(id));
                    }
                }
            }
        }
        timeline.notes.extend(self.prices.unpriced().iter().map(|&id| Note::Unpriced(id)));
        if self.too_deep {
            timeline.notes.push(Note::TooDeep);
        }
        let wait = |lane: Lane| totals.waits[lane.beside()];
        timeline.step = self.lanes.now;
        timeline.compute = totals.compute;
        timeline.copy_wait = wait(Lane::ToHost) + wait(Lane::FromHost) + wait(Lane::OnDevice);
        timeline.collective_wait = wait(Lane::Collective);
        timeline.beside_wait = wait(Lane::Beside);
        (timeline.busy, timeline.waits, timeline.by_source) = (totals.busy, totals.waits, totals.by_source);
        (timeline.to_host, timeline.from_host, timeline.on_device) = (totals.to_host, totals.from_host, totals.on_device);
        timeline
    }
}
