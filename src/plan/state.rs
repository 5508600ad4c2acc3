//! What a partial solution means: who is where at each step, and how much memory that takes.

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

/// A partial solution.
#[derive(Clone)]
pub(super) struct State<'p> {
    pub problem: &'p Problem,
    pub ways: Ways,
    /// Device bytes at each step.
    pub usage: Vec<u64>,
    /// When each step begins if nothing stalls; one more for the end.
    pub begin: Vec<Nanos>,
    /// Uses of each value: those of the program and those of recipes, ascending; a step may stand more than once.
    uses: Vec<Vec<Instant>>,
    /// Steps of each frame, ascending.
    frames: Vec<Vec<Instant>>,
    pub made: Vec<Proposal>,
    pub out: Slots,
    pub back: Slots,
    /// Host bytes taken.
    pub host: Bytes,
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
        let uses = problem.values.iter().map(|v| v.uses.clone()).collect();
        let mut frames: Vec<Vec<Instant>> = Vec::new();
        for (at, step) in (0..).zip(&problem.steps) {
            let frame = step.frame as usize;
            frames.resize_with(frames.len().max(frame + 1), Vec::new);
            frames[frame].push(at);
        }
        Self {
            problem,
            ways,
            usage,
            begin,
            uses,
            frames,
            made: Vec::new(),
            out: Slots::default(),
            back: Slots::default(),
            host: Bytes::ZERO,
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
    /// The choice under which a value is absent at a step.
    pub(super) fn absence(&self, v: ValueIndex, at: Instant) -> Option<&Choice> {
        let covers = |c: &&Choice| {
            c.value == v && {
                let (from, to) = c.absent(self.problem);
                (from..to).contains(&at)
            }
        };
        self.made.iter().map(|p| &p.choice).find(covers)
    }
    /// Whether a value can be read at a step without any change.
    pub(super) fn resident(&self, v: ValueIndex, at: Instant) -> bool {
        let value = &self.problem.values[v as usize];
        (value.born..=self.last_use(v)).contains(&at) && at <= value.valid_to && self.absence(v, at).is_none()
    }
    /// Whether a value still lies in device memory just after its last use, and could be kept for a read at `at`.
    pub(super) fn extendable(&self, v: ValueIndex, at: Instant) -> bool {
        let value = &self.problem.values[v as usize];
        self.last_use(v) < at && value.born < at && at <= value.valid_to
    }
    /// Whether a choice was already made for the gap that ends at `needed_at`.
    pub(super) fn decided(&self, v: ValueIndex, needed_at: Instant) -> bool {
        self.made.iter().any(|p| p.choice.value == v && p.choice.after < needed_at && needed_at <= p.choice.needed_at)
    }
    /// Whether an earlier choice leaves a copy of a value on the host by `at`.
    pub(super) fn on_host(&self, v: ValueIndex, at: Instant) -> bool {
        self.made.iter().any(|p| p.choice.value == v && matches!(p.choice.how, How::Host { sent: Some(s), .. } if s.done <= at))
    }
    /// Bytes above the budget, summed over all steps.
    pub(super) fn excess(&self) -> u128 {
        let budget = self.problem.device_memory.get();
        self.usage.iter().map(|&u| u128::from(u.saturating_sub(budget))).sum()
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
        let mut relief = 0i128;
        for at in first..=needed_at {
            let before = self.usage[at as usize];
            let mut after = before;
            if (from..to).contains(&at) {
                after = after.saturating_sub(bytes);
            }
            after += kept.iter().filter(|k| k.0 <= at).map(|k| k.1).sum::<u64>();
            if at == needed_at {
                after += proposal.transient.get();
            }
            relief += i128::from(before.saturating_sub(budget)) - i128::from(after.saturating_sub(budget));
        }
        relief
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
        self.made.push(proposal);
    }

    /// Takes the `n`-th choice back; its later ones move up by one.
    pub(super) fn undo(&mut self, n: usize) -> Proposal {
        let proposal = self.made.remove(n);
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
    /// Takes away what [`State::read_at`] added.
    pub(super) fn unread_at(&mut self, v: ValueIndex, at: Instant) {
        let uses = &mut self.uses[v as usize];
        if let Ok(n) = uses.binary_search(&at) {
            uses.remove(n);
        }
    }

    /// Whether the `n`-th choice can be taken back without another one losing its host copy or the use that it serves.
    pub(super) fn undoable(&self, n: usize) -> bool {
        let choice = &self.made[n].choice;
        let at = choice.needed_at;
        let only_reader = |v: ValueIndex| self.uses(v).iter().filter(|&&u| u == at).count() == 1;
        let serves = |v: ValueIndex| self.made.iter().any(|p| p.choice.value == v && p.choice.needed_at == at);
        if self.made[n].reads.iter().any(|&v| only_reader(v) && serves(v)) {
            return false;
        }
        let sends = matches!(choice.how, How::Host { sent: Some(_), .. });
        !sends || !self.made.iter().any(|p| p.choice.value == choice.value && matches!(p.choice.how, How::Host { sent: None, .. }))
    }

    /// Memory, links and host bytes of a choice, put on or taken off.
    fn shift(&mut self, proposal: &Proposal, on: bool) {
        let choice = &proposal.choice;
        let value = &self.problem.values[choice.value as usize];
        let (from, to) = choice.absent(self.problem);
        self.add(from, to, value.bytes, !on);
        self.add(choice.needed_at, choice.needed_at + 1, proposal.transient, on);
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
        for used in &mut self.usage[from as usize..to.max(from) as usize] {
            *used = if more { *used + bytes.get() } else { used.saturating_sub(bytes.get()) };
        }
    }

    /// The choices so far, in the order in which they must be carried out.
    pub(super) fn solution(&self) -> Solution {
        let mut choices: Vec<Choice> = self.made.iter().map(|p| p.choice.clone()).collect();
        choices.sort_by_key(|c| c.needed_at);
        Solution { choices }
    }
}
