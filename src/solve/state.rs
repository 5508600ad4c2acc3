//! What a partial solution means: who is where at each step, and how much memory that takes.

use std::cell::Cell;
use std::rc::Rc;

use super::slots::Slots;
use crate::problem::{Choice, How, Instant, Problem, Solution, ValueIndex};
use crate::units::{Bytes, Nanos};

/// What may be done to a value; both where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// It may go to the host.
    pub offload: bool,
    /// It may be computed again.
    pub recompute: bool,
}

impl Default for Ways {
    fn default() -> Self {
        Self { offload: true, recompute: true }
    }
}

/// A choice with all that it changes.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub choice: Choice,
    /// When the copy out begins on its link.
    pub out_begin: Option<Nanos>,
    /// When the copy back begins on its link.
    pub back_begin: Option<Nanos>,
    /// Values that the chain reads at `needed_at`.
    pub reads: Vec<ValueIndex>,
    /// Bytes of the chain's intermediate values, held at `needed_at`.
    pub transient: Bytes,
}

/// A choice, as far as it says where its value is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Passed {
    after: Instant,
    needed_at: Instant,
    /// The steps at which the value takes no device memory.
    absent: (Instant, Instant),
    /// When its copy to the host is there, if it makes one.
    sent: Option<Instant>,
}

impl Passed {
    fn of(choice: &Choice, problem: &Problem) -> Self {
        let sent = match choice.how {
            How::Host { sent, .. } => sent.map(|s| s.done),
            How::Recomputed { .. } => None,
        };
        Self { after: choice.after, needed_at: choice.needed_at, absent: choice.absent(problem), sent }
    }
}

/// Steps of which the least and the most are known.
const BLOCK: usize = 64;

fn extremes(steps: &[u64]) -> (u64, u64) {
    steps.iter().fold((u64::MAX, 0), |(least, most), &s| (least.min(s), most.max(s)))
}

/// What a proposal changes in the device memory of single steps.
struct Change<'a> {
    /// Of its value, which is absent from the one step until the other.
    bytes: u64,
    absent: (Instant, Instant),
    /// Values whose lives grow, by the step from which they then are there, with their bytes.
    kept: &'a [(Instant, u64)],
    /// Where the value is had again, and what that takes beside it.
    needed_at: Instant,
    transient: u64,
}

impl Change<'_> {
    /// The bytes of a step that had `before`.
    fn after(&self, at: Instant, before: u64) -> u64 {
        let is_absent = (self.absent.0..self.absent.1).contains(&at);
        let held: u64 = self.kept.iter().filter(|k| k.0 <= at).map(|k| k.1).sum();
        let transient = if at == self.needed_at { self.transient } else { 0 };
        before.saturating_sub(if is_absent { self.bytes } else { 0 }) + held + transient
    }
}

/// A partial solution.
#[derive(Clone)]
pub(super) struct State<'p> {
    pub problem: &'p Problem,
    pub ways: Ways,
    /// Device bytes at each step.
    pub usage: Vec<u64>,
    /// The least and the most of each [`BLOCK`] of steps.
    extremes: Vec<(u64, u64)>,
    /// Bytes above the device budget, summed over the steps.
    above: u128,
    /// Host bytes at each step; empty where nobody limits both together.
    pub hosted: Vec<u64>,
    /// When each step begins if nothing stalls; one more for the end.
    pub begin: Vec<Nanos>,
    /// Uses of each value: those of the program and those of recipes, ascending; a step may stand more than once.
    uses: Vec<Vec<Instant>>,
    /// Steps of each frame, ascending.
    frames: Vec<Vec<Instant>>,
    pub made: Vec<Proposal>,
    /// The same for each value.
    passed: Vec<Vec<Passed>>,
    pub out: Slots,
    pub back: Slots,
    /// Host bytes taken.
    pub host: Bytes,
    /// What the search has cost so far, in steps looked at; see [`State::work`].
    work: Rc<Cell<u64>>,
}

impl<'p> State<'p> {
    /// Everything resident.
    pub(super) fn new(problem: &'p Problem, ways: Ways) -> Self {
        let mut begin = vec![Nanos::ZERO];
        for step in &problem.steps {
            begin.push(*begin.last().expect("it starts with one") + step.time);
        }
        let mut usage: Vec<u64> = problem.steps.iter().map(|s| s.fixed.get()).collect();
        for value in &problem.values {
            let last = value.uses.last().copied().unwrap_or(value.born);
            for used in &mut usage[value.born as usize..=last as usize] {
                *used += value.bytes.get();
            }
        }
        let hosted = if problem.total_memory < Bytes::MAX { vec![0; usage.len()] } else { Vec::new() };
        let uses = problem.values.iter().map(|v| v.uses.clone()).collect();
        let mut frames: Vec<Vec<Instant>> = Vec::new();
        for (at, step) in (0..).zip(&problem.steps) {
            let frame = step.frame as usize;
            frames.resize_with(frames.len().max(frame + 1), Vec::new);
            frames[frame].push(at);
        }
        let budget = problem.device_memory.get();
        Self {
            problem,
            ways,
            extremes: usage.chunks(BLOCK).map(extremes).collect(),
            above: usage.iter().map(|&u| u128::from(u.saturating_sub(budget))).sum(),
            passed: vec![Vec::new(); problem.values.len()],
            usage,
            hosted,
            begin,
            uses,
            frames,
            made: Vec::new(),
            out: Slots::default(),
            back: Slots::default(),
            host: Bytes::ZERO,
            work: Rc::default(),
        }
    }

    /// The first step of a value's computation that nothing at `at` or later precedes: what stands before it runs at `at` or later.
    pub(super) fn place_after(&self, v: ValueIndex, at: Instant) -> Option<Instant> {
        let steps = self.frame_of(v);
        steps.get(steps.partition_point(|&s| self.enter(s) < at)).copied()
    }
    /// The last step of a value's computation before which something can stand that runs at `at` or earlier.
    pub(super) fn place_before(&self, v: ValueIndex, at: Instant) -> Option<Instant> {
        let steps = self.frame_of(v);
        steps.partition_point(|&s| self.enter(s) <= at).checked_sub(1).map(|n| steps[n])
    }
    /// When what stands before a step runs.
    pub(super) fn enter(&self, at: Instant) -> Instant {
        self.problem.steps[at as usize].enter
    }
    /// Whether two values stand in one computation.
    pub(super) fn same_frame(&self, a: ValueIndex, b: ValueIndex) -> bool {
        let frame = |v: ValueIndex| self.problem.steps[self.problem.values[v as usize].born as usize].frame;
        frame(a) == frame(b)
    }
    fn frame_of(&self, v: ValueIndex) -> &[Instant] {
        let born = self.problem.values[v as usize].born;
        &self.frames[self.problem.steps[born as usize].frame as usize]
    }

    /// The last step at which a value is read.
    pub(super) fn last_use(&self, v: ValueIndex) -> Instant {
        self.uses[v as usize].last().copied().unwrap_or(self.problem.values[v as usize].born)
    }
    /// Uses of a value, ascending.
    pub(super) fn uses(&self, v: ValueIndex) -> &[Instant] {
        &self.uses[v as usize]
    }
    /// The use before a step (`born` counts as one).
    pub(super) fn use_before(&self, v: ValueIndex, at: Instant) -> Instant {
        let uses = &self.uses[v as usize];
        uses[..uses.partition_point(|&u| u < at)].last().copied().unwrap_or(self.problem.values[v as usize].born)
    }
    /// Whether a choice has a value elsewhere at a step.
    fn absent(&self, v: ValueIndex, at: Instant) -> bool {
        self.passed[v as usize].iter().any(|p| (p.absent.0..p.absent.1).contains(&at))
    }
    /// Whether a value can be read at a step without any change.
    pub(super) fn resident(&self, v: ValueIndex, at: Instant) -> bool {
        let value = &self.problem.values[v as usize];
        (value.born..=self.last_use(v)).contains(&at) && at <= value.valid_to && !self.absent(v, at)
    }
    /// Whether a value still lies in device memory just after its last use, and could be kept for a read at `at`.
    pub(super) fn extendable(&self, v: ValueIndex, at: Instant) -> bool {
        let value = &self.problem.values[v as usize];
        self.last_use(v) < at && value.born < at && at <= value.valid_to
    }
    /// Whether a choice was already made for the gap that ends at `needed_at`.
    pub(super) fn decided(&self, v: ValueIndex, needed_at: Instant) -> bool {
        self.passed[v as usize].iter().any(|p| p.after < needed_at && needed_at <= p.needed_at)
    }
    /// Whether an earlier choice leaves a copy of a value on the host by `at`.
    pub(super) fn on_host(&self, v: ValueIndex, at: Instant) -> bool {
        self.passed[v as usize].iter().any(|p| p.sent.is_some_and(|done| done <= at))
    }
    /// What this state and its copies have cost so far, in steps looked at. It grows alike on every machine, so a search may stop by it.
    pub(super) fn work(&self) -> u64 {
        self.work.get()
    }
    pub(super) fn spend(&self, work: usize) {
        self.work.set(self.work.get().saturating_add(work as u64));
    }

    /// Bytes above the budget, and above that of device and host together, summed over all steps.
    pub(super) fn excess(&self) -> u128 {
        let total = self.problem.total_memory.get();
        let both: u128 = self.usage.iter().zip(&self.hosted).map(|(&u, &h)| u128::from((u + h).saturating_sub(total))).sum();
        self.above + both
    }
    /// The most of device and host memory together; 0 where nobody limits it.
    pub(super) fn total(&self) -> Bytes {
        Bytes(self.usage.iter().zip(&self.hosted).map(|(u, h)| u + h).max().unwrap_or(0))
    }
    /// The most device memory, and the first step that takes it.
    pub(super) fn peak(&self) -> (Bytes, Instant) {
        let at = (0..self.usage.len()).max_by_key(|&t| (self.usage[t], std::cmp::Reverse(t))).unwrap_or(0);
        (Bytes(self.usage.get(at).copied().unwrap_or(0)), Instant::try_from(at).expect("steps are numbered by u32"))
    }
    /// Predicted loss of time.
    pub(super) fn cost(&self) -> Nanos {
        self.made.iter().map(|p| p.choice.cost).sum()
    }

    /// How many bytes above the budget a proposal takes away, summed over the steps (negative: it adds).
    pub(super) fn relief(&self, proposal: &Proposal) -> i128 {
        let budget = self.problem.device_memory.get();
        let bytes = self.problem.values[proposal.choice.value as usize].bytes.get();
        let (from, to) = proposal.choice.absent(self.problem);
        let needed_at = proposal.choice.needed_at;
        let kept: Vec<(Instant, u64)> =
            self.extensions(proposal).map(|(v, from)| (from, self.problem.values[v as usize].bytes.get())).collect();
        let first = kept.iter().map(|k| k.0).min().unwrap_or(from).min(from);
        let change = Change { bytes, absent: (from, to), kept: &kept, needed_at, transient: proposal.transient.get() };
        if !self.hosted.is_empty() {
            return self.relief_of_both(proposal, &change, first);
        }
        let more: u64 = kept.iter().map(|k| k.1).sum::<u64>() + proposal.transient.get();
        let mut relief = 0i128;
        let (first, end) = (first as usize, needed_at as usize + 1);
        for block in first / BLOCK..=(end - 1) / BLOCK {
            self.spend(1);
            let (least, most) = self.extremes[block];
            if most + more <= budget {
                continue;
            }
            let (start, stop) = (first.max(block * BLOCK), end.min((block + 1) * BLOCK));
            // Above the budget throughout, before and after: every step changes alike.
            let within = from as usize <= start && stop <= to as usize && stop <= needed_at as usize;
            if within && least >= budget + bytes && !kept.iter().any(|k| k.0 as usize > start && (k.0 as usize) < stop) {
                let held: u64 = kept.iter().filter(|k| k.0 as usize <= start).map(|k| k.1).sum();
                relief += (i128::from(bytes) - i128::from(held)) * (stop - start) as i128;
                continue;
            }
            self.spend(stop - start);
            for (at, &before) in (0u32..).skip(start).zip(&self.usage[start..stop]) {
                let after = change.after(at, before);
                relief += i128::from(before.saturating_sub(budget)) - i128::from(after.saturating_sub(budget));
            }
        }
        relief
    }

    /// [`State::relief`] where device and host memory are limited together.
    fn relief_of_both(&self, proposal: &Proposal, change: &Change, first: Instant) -> i128 {
        let (budget, total) = (self.problem.device_memory.get(), self.problem.total_memory.get());
        let &Change { bytes, needed_at, .. } = change;
        let [early, late] = self.newly_hosted(proposal);
        let first = if early.0 < early.1 { first.min(early.0) } else { first };
        self.spend((needed_at + 1 - first.min(needed_at)) as usize);
        let mut relief = 0i128;
        for at in first..=needed_at {
            let before = self.usage[at as usize];
            let after = change.after(at, before);
            relief += i128::from(before.saturating_sub(budget)) - i128::from(after.saturating_sub(budget));
            let hosted = self.hosted[at as usize];
            let newly = (early.0..early.1).contains(&at) || (late.0..late.1).contains(&at);
            let (before, after) = (before + hosted, after + hosted + if newly { bytes } else { 0 });
            relief += i128::from(before.saturating_sub(total)) - i128::from(after.saturating_sub(total));
        }
        relief
    }

    /// The steps at which a proposal puts its value on the host where it was not: before and after those at which it was, half open. A value is there
    /// from its first copy out until its last copy back is there.
    fn newly_hosted(&self, proposal: &Proposal) -> [(Instant, Instant); 2] {
        let choice = &proposal.choice;
        let range = |c: &Choice| match &c.how {
            How::Host { sent: Some(sent), .. } => Some((self.enter(sent.start), c.needed_at + 1)),
            How::Host { sent: None, .. } => Some((c.needed_at, c.needed_at + 1)),
            How::Recomputed { .. } => None,
        };
        let Some((from, to)) = range(choice) else { return [(0, 0); 2] };
        let others = self.made.iter().map(|p| &p.choice).filter(|c| c.value == choice.value).filter_map(range);
        match others.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) {
            None => [(from, to), (0, 0)],
            Some((first, last)) => [(from.min(first), first), (last, to.max(last))],
        }
    }

    /// Values that a proposal keeps beyond their last use, and from which step on.
    fn extensions<'s>(&'s self, proposal: &'s Proposal) -> impl Iterator<Item = (ValueIndex, Instant)> + 's {
        let at = proposal.choice.needed_at;
        proposal.reads.iter().filter(move |&&v| self.last_use(v) < at).map(|&v| (v, self.last_use(v) + 1))
    }

    /// Carries a proposal out.
    pub(super) fn make(&mut self, proposal: Proposal) {
        let needed_at = proposal.choice.needed_at;
        let kept: Vec<(ValueIndex, Instant)> = self.extensions(&proposal).collect();
        for (v, from) in kept {
            self.add(from, needed_at + 1, self.problem.values[v as usize].bytes, true);
        }
        for &v in &proposal.reads {
            let uses = &mut self.uses[v as usize];
            let at = uses.partition_point(|&u| u <= needed_at);
            uses.insert(at, needed_at);
        }
        self.shift(&proposal, true);
        self.passed[proposal.choice.value as usize].push(Passed::of(&proposal.choice, self.problem));
        self.made.push(proposal);
    }

    /// Takes the `n`-th choice back; its later ones move up by one.
    pub(super) fn undo(&mut self, n: usize) -> Proposal {
        let proposal = self.made.remove(n);
        let gone = Passed::of(&proposal.choice, self.problem);
        let passed = &mut self.passed[proposal.choice.value as usize];
        if let Some(at) = passed.iter().position(|p| *p == gone) {
            passed.remove(at);
        }
        let needed_at = proposal.choice.needed_at;
        self.shift(&proposal, false);
        for &v in &proposal.reads {
            let old = self.last_use(v);
            let uses = &mut self.uses[v as usize];
            let at = uses.binary_search(&needed_at).expect("`make` put it there");
            uses.remove(at);
            let new = self.last_use(v);
            if new < old {
                self.add(new + 1, old + 1, self.problem.values[v as usize].bytes, false);
            }
        }
        proposal
    }

    /// Adds a use that no program has, so that a gap ends there; [`State::unread_at`] takes it away.
    pub(super) fn read_at(&mut self, v: ValueIndex, at: Instant) {
        let uses = &mut self.uses[v as usize];
        let n = uses.partition_point(|&u| u <= at);
        uses.insert(n, at);
    }
    /// Keeps a value from its last use until a step, which reads it from now on; whether that can be. Nothing where it has a use there.
    pub(super) fn hold_to(&mut self, v: ValueIndex, at: Instant) -> bool {
        if self.extendable(v, at) {
            self.add(self.last_use(v) + 1, at + 1, self.problem.values[v as usize].bytes, true);
        } else if self.last_use(v) < at || self.problem.values[v as usize].valid_to < at {
            return false;
        }
        self.read_at(v, at);
        true
    }
    /// Takes away what [`State::read_at`] added.
    pub(super) fn unread_at(&mut self, v: ValueIndex, at: Instant) {
        let uses = &mut self.uses[v as usize];
        if let Ok(n) = uses.binary_search(&at) {
            uses.remove(n);
        }
    }

    /// The choices that go with the `n`-th if it is taken back: it, then those that serve a use which only the ones before them make. `None` if one
    /// of them left the host copy that a choice which stays fetches.
    pub(super) fn dependents(&self, n: usize) -> Option<Vec<(ValueIndex, Instant)>> {
        let at = self.made[n].choice.needed_at;
        let mut members = vec![n];
        let mut next = 0;
        while let Some(&member) = members.get(next) {
            next += 1;
            for &v in &self.made[member].reads {
                let readers = members.iter().filter(|&&m| self.made[m].reads.contains(&v)).count();
                let all = self.uses(v).iter().filter(|&&u| u == at).count();
                let serving = self.made.iter().position(|p| p.choice.value == v && p.choice.needed_at == at);
                if let Some(serving) = serving.filter(|s| readers == all && !members.contains(s)) {
                    members.push(serving);
                }
            }
        }
        let leaves_copy = |m: &usize| matches!(self.made[*m].choice.how, How::Host { sent: Some(_), .. });
        let fetched_by_others = |m: &usize| {
            let value = self.made[*m].choice.value;
            self.made
                .iter()
                .enumerate()
                .any(|(o, p)| !members.contains(&o) && p.choice.value == value && matches!(p.choice.how, How::Host { sent: None, .. }))
        };
        if members.iter().any(|m| leaves_copy(m) && fetched_by_others(m)) {
            return None;
        }
        Some(members.iter().map(|&m| (self.made[m].choice.value, self.made[m].choice.needed_at)).collect())
    }

    /// Takes back a choice with its dependents; returns them in the order in which they must be made again.
    pub(super) fn undo_all(&mut self, members: &[(ValueIndex, Instant)]) -> Vec<Proposal> {
        let mut undone: Vec<Proposal> = Vec::with_capacity(members.len());
        for &(value, at) in members.iter().rev() {
            let n = self.made.iter().position(|p| p.choice.value == value && p.choice.needed_at == at);
            undone.push(self.undo(n.expect("`dependents` names choices that are made")));
        }
        undone.reverse();
        undone
    }

    /// Memory, links and host bytes of a choice, put on or taken off.
    fn shift(&mut self, proposal: &Proposal, on: bool) {
        let choice = &proposal.choice;
        let value = &self.problem.values[choice.value as usize];
        let (from, to) = choice.absent(self.problem);
        self.add(from, to, value.bytes, !on);
        self.add(choice.needed_at, choice.needed_at + 1, proposal.transient, on);
        if !self.hosted.is_empty() {
            for (from, to) in self.newly_hosted(proposal) {
                for hosted in &mut self.hosted[from as usize..to as usize] {
                    *hosted = if on { *hosted + value.bytes.get() } else { hosted.saturating_sub(value.bytes.get()) };
                }
            }
        }
        let runs = self.problem.runs(value);
        let links = &self.problem.links;
        for (slots, link, begin) in [(&mut self.out, &links.out, proposal.out_begin), (&mut self.back, &links.back, proposal.back_begin)] {
            match begin {
                Some(begin) if on => slots.reserve(begin, link.time(value.bytes, runs)),
                Some(begin) => slots.release(begin),
                None => {}
            }
        }
        if matches!(choice.how, How::Host { sent: Some(_), .. }) {
            if on { self.host += value.bytes } else { self.host -= value.bytes }
        }
    }

    fn add(&mut self, from: Instant, to: Instant, bytes: Bytes, more: bool) {
        let (from, to) = (from as usize, to.max(from) as usize);
        if from == to || bytes.is_zero() {
            return;
        }
        self.spend(to - from);
        let budget = self.problem.device_memory.get();
        let above = |u: u64| u128::from(u.saturating_sub(budget));
        for used in &mut self.usage[from..to] {
            let before = above(*used);
            *used = if more { *used + bytes.get() } else { used.saturating_sub(bytes.get()) };
            self.above = self.above - before + above(*used);
        }
        for block in from / BLOCK..=(to - 1) / BLOCK {
            let steps = &self.usage[block * BLOCK..self.usage.len().min((block + 1) * BLOCK)];
            self.extremes[block] = extremes(steps);
        }
    }

    /// Whether a step of `from..=to` is above the device budget, or nobody knows at once.
    pub(super) fn too_full(&self, from: Instant, to: Instant) -> bool {
        let budget = self.problem.device_memory.get();
        !self.hosted.is_empty() || self.extremes[from as usize / BLOCK..=to as usize / BLOCK].iter().any(|e| e.1 > budget)
    }

    /// Whether making `reader` at a step needs `v` to be made there before it, by the choices so far.
    pub(super) fn needs_at(&self, reader: ValueIndex, v: ValueIndex, at: Instant) -> bool {
        let mut seen = vec![reader];
        let mut next = 0;
        while let Some(&now) = seen.get(next) {
            next += 1;
            let made = self.made.iter().filter(|p| p.choice.value == now && p.choice.needed_at == at);
            for &read in made.flat_map(|p| &p.reads) {
                if !seen.contains(&read) {
                    seen.push(read);
                }
            }
        }
        seen[1..].contains(&v)
    }

    /// The choices so far, in the order in which they must be carried out: by step, and what is made for a reader before the reader.
    pub(super) fn solution(&self) -> Solution {
        let mut left: Vec<&Proposal> = self.made.iter().collect();
        left.sort_by_key(|p| p.choice.needed_at);
        let mut choices: Vec<Choice> = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let at = left[0].choice.needed_at;
            let waits = |p: &Proposal| {
                left.iter().any(|o| o.choice.needed_at == at && o.choice.value != p.choice.value && p.reads.contains(&o.choice.value))
            };
            let n = left.iter().position(|p| p.choice.needed_at > at || !waits(p)).filter(|&n| left[n].choice.needed_at == at);
            choices.push(left.remove(n.unwrap_or(0)).choice.clone());
        }
        Solution { choices }
    }
}
