//! The simple planner: greedy on the exact memory curve, then local improvement.
//!
//! While some step is above the budget, the choice is made that loses least time for each byte and step above the budget that it takes
//! away (lazy greedy: Minoux 1978; a stale price is renewed before it wins). Then choices that are no longer needed are taken back, and
//! dear ones are exchanged. Costs O(choices · (candidates · log candidates + steps)). Deterministic: ties go to the earlier value.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::propose::{proposals, remake};
use super::state::{Proposal, State, Ways};
use crate::problem::{How, Instant, Problem, Solution, ValueIndex};
use crate::units::{Bytes, Nanos};

/// What the search has found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The choices.
    pub solution: Solution,
    /// The most device memory that is left.
    pub peak: Bytes,
    /// The first step that takes it.
    pub at: Instant,
    /// The most device and host memory together; 0 where the problem does not limit it.
    pub total: Bytes,
    /// Predicted loss of time.
    pub cost: Nanos,
    /// What the search has cost, in steps looked at.
    pub work: u64,
}

/// Steps that a search looks at before it takes what it has: some seconds.
pub const WORK: u64 = 600_000_000;

/// A way to have a value after a gap that the search would not think of: other values come back from the host first, and it is made from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The value.
    pub value: ValueIndex,
    /// The use after the gap.
    pub needed_at: Instant,
    /// What is made again, in order of birth; the value is last, or does not stand here and is itself fetched.
    pub chain: Vec<ValueIndex>,
    /// What comes back from the host for it.
    pub fetched: Vec<ValueIndex>,
}

/// Solves a problem. Where the budget cannot be met, the result is the lowest peak that was found.
pub fn search(problem: &Problem, ways: Ways) -> Found {
    search_within(problem, ways, WORK)
}

/// The same with a limit on its work. A search that has spent it goes on by the scores it has, and exchanges nothing any more.
pub fn search_within(problem: &Problem, ways: Ways, limit: u64) -> Found {
    search_with(problem, ways, limit, &|_, _| Vec::new())
}

/// [`search_within`], and then what `offers` has for the gaps that cost most; an offer is taken only where the whole becomes cheaper by it.
pub fn search_with(problem: &Problem, ways: Ways, limit: u64, offers: &dyn Fn(ValueIndex, Instant) -> Vec<Offer>) -> Found {
    let mut state = State::new(problem, ways);
    greedy(&mut state, limit);
    trim(&mut state, limit);
    exchange(&mut state, limit);
    take_offers(&mut state, limit + limit / 4, offers);
    let (peak, at) = state.peak();
    Found { solution: state.solution(), peak, at, total: state.total(), cost: state.cost(), work: state.work() }
}

/// A gap in the queue, by the score it had when it was last looked at.
struct Entry {
    score: f64,
    value: ValueIndex,
    needed_at: Instant,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // A max-heap: the lowest score first, then the earliest.
        let key = |e: &Self| (e.needed_at, e.value);
        other.score.total_cmp(&self.score).then_with(|| key(other).cmp(&key(self)))
    }
}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Entry {}

/// The best proposal of a gap with its score: nanoseconds lost for a byte and step above the budget.
fn best(state: &State<'_>, value: ValueIndex, needed_at: Instant) -> Option<(f64, Proposal)> {
    if !state.too_full(state.use_before(value, needed_at), needed_at) {
        return None;
    }
    let scored = proposals(state, value, needed_at).into_iter().filter_map(|p| {
        let relief = state.relief(&p);
        (relief > 0).then(|| ((p.choice.cost.as_f64() + 1.0) / relief as f64, p))
    });
    scored.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// Where the budget cannot be met, the choices up to the lowest peak stay.
fn greedy(state: &mut State<'_>, limit: u64) {
    let mut lowest = (state.peak().0, state.made.len());
    descend(state, &mut lowest, limit);
    if state.excess() > 0 {
        while state.made.len() > lowest.1 {
            state.undo(state.made.len() - 1);
        }
    }
}

fn descend(state: &mut State<'_>, lowest: &mut (Bytes, usize), limit: u64) {
    loop {
        let before = state.excess();
        if before == 0 {
            return;
        }
        let mut queue = BinaryHeap::new();
        for v in 0..state.problem.values.len() {
            let v = ValueIndex::try_from(v).expect("values are numbered by u32");
            for &needed_at in state.uses(v) {
                if let Some((score, _)) = best(state, v, needed_at) {
                    queue.push(Entry { score, value: v, needed_at });
                }
            }
        }
        drain(state, &mut queue, lowest, limit);
        if state.excess() >= before || state.work() > 2 * limit {
            return;
        }
    }
}

fn drain(state: &mut State<'_>, queue: &mut BinaryHeap<Entry>, lowest: &mut (Bytes, usize), limit: u64) {
    while let Some(entry) = queue.pop() {
        let Some((score, proposal)) = best(state, entry.value, entry.needed_at) else { continue };
        if state.work() <= limit && queue.peek().is_some_and(|next| score > next.score) {
            queue.push(Entry { score, ..entry });
            continue;
        }
        state.make(proposal);
        if state.peak().0 < lowest.0 {
            *lowest = (state.peak().0, state.made.len());
        }
        if state.excess() == 0 {
            return;
        }
    }
}

/// Takes back what is not needed any more, the dearest first.
fn trim(state: &mut State<'_>, limit: u64) {
    let mut by_cost: Vec<(ValueIndex, Instant, Nanos)> =
        state.made.iter().map(|p| (p.choice.value, p.choice.needed_at, p.choice.cost)).collect();
    by_cost.sort_by_key(|&(value, needed_at, cost)| (std::cmp::Reverse(cost), needed_at, value));
    let allowed = (state.excess(), state.peak().0);
    for (value, needed_at, _) in by_cost {
        if state.work() > 2 * limit {
            return;
        }
        let Some(n) = find(state, value, needed_at) else { continue };
        let Some(members) = state.dependents(n) else { continue };
        let undone = state.undo_all(&members);
        if state.excess() > allowed.0 || state.peak().0 > allowed.1.max(state.problem.device_memory) {
            for proposal in undone {
                state.make(proposal);
            }
        }
    }
}

fn find(state: &State<'_>, value: ValueIndex, needed_at: Instant) -> Option<usize> {
    state.made.iter().position(|p| p.choice.value == value && p.choice.needed_at == needed_at)
}

/// Takes each dear choice back in turn, lets the greedy search mend the budget, and keeps what is cheaper.
fn exchange(state: &mut State<'_>, limit: u64) {
    const ROUNDS: usize = 2;
    const TRIES: usize = 48;
    if state.excess() > 0 {
        return;
    }
    for _ in 0..ROUNDS {
        let start = state.cost();
        let mut dear: Vec<(ValueIndex, Instant, Nanos)> =
            state.made.iter().map(|p| (p.choice.value, p.choice.needed_at, p.choice.cost)).collect();
        dear.sort_by_key(|&(value, needed_at, cost)| (std::cmp::Reverse(cost), needed_at, value));
        for (value, needed_at, _) in dear.into_iter().take(TRIES) {
            if state.work() > limit {
                return;
            }
            hoist(state, value, needed_at);
            let Some(n) = find(state, value, needed_at) else { continue };
            let Some(members) = state.dependents(n) else { continue };
            let mut trial = state.clone();
            trial.undo_all(&members);
            greedy(&mut trial, limit);
            trim(&mut trial, limit);
            if trial.excess() == 0 && trial.cost() < state.cost() {
                *state = trial;
            }
        }
        if state.cost() >= start {
            return;
        }
    }
}

/// Puts what is offered for the dearest gaps in place of what was chosen, where that pays.
fn take_offers(state: &mut State<'_>, limit: u64, offers: &dyn Fn(ValueIndex, Instant) -> Vec<Offer>) {
    const TRIES: usize = 48;
    const EACH: usize = 4;
    if state.excess() > 0 {
        return;
    }
    let mut dear: Vec<(Nanos, ValueIndex, Instant)> =
        state.made.iter().map(|p| (p.choice.cost, p.choice.value, p.choice.needed_at)).collect();
    dear.sort_by_key(|&(cost, value, needed_at)| (std::cmp::Reverse(cost), needed_at, value));
    for (_, value, needed_at) in dear.into_iter().take(TRIES) {
        for offer in offers(value, needed_at).iter().take(EACH) {
            let Some(members) = find(state, value, needed_at).and_then(|n| state.dependents(n)) else { break };
            if state.work() > limit {
                return;
            }
            let mut trial = state.clone();
            trial.undo_all(&members);
            if !take(&mut trial, offer) {
                continue;
            }
            greedy(&mut trial, limit);
            trim(&mut trial, limit);
            if trial.excess() == 0 && trial.cost() < state.cost() {
                *state = trial;
            }
        }
    }
}

/// Carries an offer out: first what comes back, then what is made. Whether all of it could be done.
fn take(state: &mut State<'_>, offer: &Offer) -> bool {
    let at = offer.needed_at;
    let ways = state.ways;
    if offer.chain.last() != Some(&offer.value) || !ways.recompute || (!ways.offload && !offer.fetched.is_empty()) {
        return false;
    }
    let mut held = Vec::new();
    for &v in &offer.fetched {
        if state.resident(v, at) {
            continue;
        }
        if !state.hold_to(v, at) {
            return false;
        }
        held.push(v);
        let back = proposals(state, v, at).into_iter().filter(|p| matches!(p.choice.how, How::Host { .. })).min_by_key(|p| p.choice.cost);
        let Some(back) = back else { return false };
        state.make(back);
    }
    let Some(made) = remake(state, offer.value, &offer.chain, at) else { return false };
    state.make(made);
    for v in held {
        state.unread_at(v, at);
    }
    true
}

/// Where a value is made again twice, for a chain and later for itself: makes it once, at the chain, and keeps it.
fn hoist(state: &mut State<'_>, value: ValueIndex, needed_at: Instant) {
    let Some(n) = find(state, value, needed_at) else { return };
    let How::Recomputed { .. } = &state.made[n].choice.how else { return };
    let after = state.made[n].choice.after;
    let in_chain = |p: &Proposal| {
        let c = &p.choice;
        c.value != value
            && c.needed_at > after
            && c.needed_at < needed_at
            && matches!(&c.how, How::Recomputed { chain } if chain.contains(&value))
    };
    let Some(other) = state.made.iter().position(in_chain) else { return };
    let (other_value, earlier) = (state.made[other].choice.value, state.made[other].choice.needed_at);
    let alone = |state: &State<'_>, n: usize| state.dependents(n).is_some_and(|d| d.len() == 1);
    if !alone(state, n) {
        return;
    }
    let mut trial = state.clone();
    trial.undo(n);
    let Some(other) = find(&trial, other_value, earlier).filter(|&o| alone(&trial, o)) else { return };
    trial.undo(other);
    trial.read_at(value, earlier);
    for (v, at) in [(value, earlier), (other_value, earlier)] {
        let Some(proposal) =
            proposals(&trial, v, at).into_iter().filter(|p| matches!(p.choice.how, How::Recomputed { .. })).min_by_key(|p| p.choice.cost)
        else {
            return;
        };
        trial.make(proposal);
    }
    trial.unread_at(value, earlier);
    if trial.excess() <= state.excess() && trial.cost() < state.cost() {
        *state = trial;
    }
}
