//! The ways for one value to pass one gap, with their prices.

use super::state::{Proposal, State};
use crate::problem::{Choice, How, Instant, Sent, ValueIndex};
use crate::units::{Bytes, Nanos};

/// A chain longer than this is not considered.
const MAX_CHAIN: usize = 24;
/// Values looked at for one chain: where values share what they are made of, there are more ways to them than values.
const MAX_LINKS: usize = 2000;
/// A hidden copy still costs this share of its time: it takes memory bandwidth from kernels.
const COPY_PRESSURE: f64 = 0.02;

/// All proposals for the gap of `value` that ends with its use at `needed_at`.
pub(super) fn proposals(state: &State<'_>, v: ValueIndex, needed_at: Instant) -> Vec<Proposal> {
    let value = &state.problem.values[v as usize];
    let after = state.use_before(v, needed_at);
    if !value.movable || after + 1 >= needed_at || state.decided(v, needed_at) {
        return Vec::new();
    }
    let mut out = Vec::new();
    if state.ways.offload {
        for wait in [Wait::Never, Wait::Out, Wait::Both] {
            out.extend(offload(state, v, after, needed_at, wait));
        }
    }
    if state.ways.recompute {
        for prefer_keeping in [true, false] {
            out.extend(recompute(state, v, after, needed_at, prefer_keeping));
        }
    }
    out
}

/// Whether the step waits for a copy where the link has no room to hide it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Copies hide where they can; a copy back that cannot starts as soon as it may.
    Never,
    /// The memory is free just after the last use: the step waits for the copy out.
    Out,
    /// The memory is free in the whole gap: the step waits for both copies.
    Both,
}

/// Out as early as the link has room, back as late as it still arrives in time; if that does not fit the gap, the step waits. See [`Wait`].
fn offload(state: &State<'_>, v: ValueIndex, after: Instant, needed_at: Instant, wait: Wait) -> Option<Proposal> {
    let problem = state.problem;
    let value = &problem.values[v as usize];
    let runs = problem.runs(value);
    let links = &problem.links;
    let step = |n: usize| Instant::try_from(n).expect("steps are numbered by u32");
    let step_at = |time: Nanos| state.place_after(v, step(state.begin.partition_point(|&b| b < time)));
    let step_by = |time: Nanos| state.place_before(v, step(state.begin.partition_point(|&b| b <= time).saturating_sub(1)));
    let back_time = links.back.time(value.bytes, runs);
    let deadline = state.begin[state.enter(needed_at) as usize];
    let mut cost = Nanos::from_f64(back_time.as_f64() * COPY_PRESSURE);
    let (sent, out_begin, home_free) = if state.on_host(v, after + 1) {
        if wait == Wait::Out {
            return None;
        }
        (None, None, state.begin[after as usize + 1])
    } else {
        if state.host + value.bytes > problem.host_memory {
            return None;
        }
        let out_time = links.out.time(value.bytes, runs);
        cost += Nanos::from_f64(out_time.as_f64() * COPY_PRESSURE);
        let begin = state.out.earliest(state.begin[value.born as usize + 1], out_time);
        let start = step_by(begin)?.max(state.place_after(v, value.born + 1)?);
        let soonest = state.place_after(v, after + 1)?.max(start);
        if wait != Wait::Never {
            let now = state.begin[state.enter(soonest) as usize];
            cost += (begin + out_time) - now;
            (Some(Sent { start, done: soonest }), Some(begin), now.max(begin))
        } else {
            let done = step_at(begin + out_time)?.max(soonest);
            (Some(Sent { start, done }), Some(begin), begin + out_time)
        }
    };
    let freed = sent.map_or_else(|| state.place_after(v, after + 1), |s| Some(s.done))?;
    if freed >= needed_at {
        return None;
    }
    let (back_begin, fetch) = match state.back.latest(home_free.max(state.begin[state.enter(freed) as usize]), deadline, back_time) {
        _ if wait == Wait::Both => {
            cost += back_time;
            (deadline, needed_at)
        }
        Some(begin) => (begin, step_by(begin)?.clamp(freed, needed_at)),
        None => {
            // It cannot hide: the copy starts as soon as it may, and the step waits for the rest.
            let begin = state.back.earliest(home_free.max(state.begin[state.enter(freed) as usize]), back_time);
            let fetch = step_by(begin.min(deadline))?.clamp(freed, needed_at);
            cost += (begin + back_time) - deadline;
            (begin, fetch)
        }
    };
    let choice = Choice { value: v, after, needed_at, how: How::Host { sent, fetch }, cost };
    Some(Proposal { choice, out_begin, back_begin: Some(back_begin), reads: Vec::new(), transient: Bytes::ZERO })
}

/// Made again from what is there; what is not there is made again too, or kept until then: the one or the other first.
fn recompute(state: &State<'_>, v: ValueIndex, after: Instant, needed_at: Instant, prefer_keeping: bool) -> Option<Proposal> {
    let mut chain = Chain { state, target: v, at: needed_at, prefer_keeping, made: Vec::new(), reads: Vec::new(), links: 0 };
    let possible = chain.make(v);
    state.spend(16 * chain.links);
    if !possible {
        return None;
    }
    let Chain { made, reads, .. } = chain;
    Some(made_again(state, v, after, needed_at, made, reads))
}

/// Made again by the given chain, if all that it reads is there at that step or can be kept until then.
pub(super) fn remake(state: &State<'_>, v: ValueIndex, chain: &[ValueIndex], needed_at: Instant) -> Option<Proposal> {
    let value = &state.problem.values[v as usize];
    let after = state.use_before(v, needed_at);
    if !value.movable || after + 1 >= needed_at || state.decided(v, needed_at) {
        return None;
    }
    let mut reads = Vec::new();
    for (n, &made) in chain.iter().enumerate() {
        let recipe = state.problem.values[made as usize].recipe.as_ref().filter(|r| needed_at <= r.valid_to)?;
        if !state.same_frame(made, v) {
            return None;
        }
        for &input in recipe.inputs.iter().filter(|i| !chain[..n].contains(i)) {
            let there = state.resident(input, needed_at) && !state.needs_at(input, v, needed_at);
            if !(there || state.same_frame(input, v) && state.extendable(input, needed_at)) {
                return None;
            }
            reads.push(input);
        }
    }
    Some(made_again(state, v, after, needed_at, chain.to_vec(), reads))
}

fn made_again(
    state: &State<'_>,
    v: ValueIndex,
    after: Instant,
    needed_at: Instant,
    made: Vec<ValueIndex>,
    mut reads: Vec<ValueIndex>,
) -> Proposal {
    reads.sort_unstable();
    reads.dedup();
    let values = &state.problem.values;
    let cost = made.iter().filter_map(|&m| values[m as usize].recipe.as_ref()).map(|r| r.time).sum();
    let transient = made[..made.len() - 1].iter().map(|&m| values[m as usize].bytes).sum();
    let choice = Choice { value: v, after, needed_at, how: How::Recomputed { chain: made }, cost };
    Proposal { choice, out_begin: None, back_begin: None, reads, transient }
}

struct Chain<'s, 'p> {
    state: &'s State<'p>,
    target: ValueIndex,
    at: Instant,
    prefer_keeping: bool,
    made: Vec<ValueIndex>,
    reads: Vec<ValueIndex>,
    links: usize,
}

impl Chain<'_, '_> {
    /// Adds what it takes to make `v`. The depth of the recursion is bounded by [`MAX_CHAIN`], since every level adds to the chain.
    fn make(&mut self, v: ValueIndex) -> bool {
        self.link(v, 0)
    }

    fn link(&mut self, v: ValueIndex, depth: usize) -> bool {
        let Some(recipe) = &self.state.problem.values[v as usize].recipe else { return false };
        self.links += 1;
        if depth >= MAX_CHAIN || self.links > MAX_LINKS || self.at > recipe.valid_to {
            return false;
        }
        for &input in &recipe.inputs {
            if self.made.contains(&input) {
                continue;
            }
            if self.state.resident(input, self.at) && !self.state.needs_at(input, self.target, self.at) {
                self.reads.push(input);
                continue;
            }
            if !self.state.same_frame(input, self.target) {
                // A loop invariant: only the computation that makes it could keep it or make it again.
                return false;
            }
            let bytes = |v: ValueIndex| self.state.problem.values[v as usize].bytes.get();
            let keep = self.state.extendable(input, self.at) && bytes(input) < bytes(self.target);
            if keep && (self.prefer_keeping || bytes(input) * 16 <= bytes(self.target)) {
                self.reads.push(input);
                continue;
            }
            let mark = (self.made.len(), self.reads.len());
            if !self.link(input, depth + 1) {
                self.made.truncate(mark.0);
                self.reads.truncate(mark.1);
                if !keep {
                    return false;
                }
                self.reads.push(input);
            }
        }
        if self.made.len() >= MAX_CHAIN {
            return false;
        }
        self.made.push(v);
        true
    }
}
