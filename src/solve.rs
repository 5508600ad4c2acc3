//! Solves a [`Problem`], and says how far from the best any solution can be.
//!
//! Two searches, the better of which counts. [`search`] decides offload and recomputation together, greedily on the
//! exact memory curve, then trims and exchanges. Where values may be made again and the problem is small enough, `anneal` walks over what is made again
//! before which step, from the rounded linear program of `retention`; many short walks run and the best are polished (`portfolio`, `polish`). [`bound`] is that program's bound: it holds for every solution that
//! `problem::check` accepts. No clock decides anything: efforts are counted.

mod anneal;
mod lp;
mod net;
mod polish;
mod portfolio;
mod propose;
mod retention;
mod search;
mod slots;
mod state;
mod walk;

use crate::problem::{Choice, How, Instant, Link, Problem, Solution, ValueIndex, check};
use crate::units::{Bytes, Nanos};

pub use search::{Found, Offer, WORK, search, search_with, search_within};
pub use state::Ways;

use net::Net;
use retention::{Detail, Host, Retention};
use walk::Pair;

/// What no solution beats.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bound {
    /// The least loss of time.
    pub cost: Nanos,
    /// What a byte more at a step is worth, where it is worth something: nanoseconds a byte, steps ascending.
    pub memory: Vec<(Instant, f64)>,
    /// What a second more of the link out and back is worth, in seconds.
    pub links: (f64, f64),
}

/// How hard to try.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// What may be done to values.
    pub ways: Ways,
    /// Rounds of two walks of annealing.
    pub rounds: usize,
    /// Moves of each walk.
    pub moves: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { ways: Ways::default(), rounds: 26, moves: 600_000 }
    }
}

/// A solution and what is known of it.
#[derive(Clone, Debug)]
pub struct Solved {
    /// The choices.
    pub solution: Solution,
    /// The most device memory.
    pub peak: Bytes,
    /// Predicted loss of time.
    pub cost: Nanos,
    /// What no solution beats.
    pub bound: Bound,
}

impl Solved {
    /// Whether the budget is met.
    pub fn fits(&self, problem: &Problem) -> bool {
        self.peak <= problem.device_memory
    }
}

/// Values up to which lives are cut finely and annealing is tried.
const SMALL: usize = 1500;
/// Products with the matrix, in entries, that a bound may cost.
const PRODUCTS: usize = 500_000_000;

/// The bound alone, by the linear program of `retention`: any prices of its rows give one (see `lp`), so it holds however far the method came.
/// Large problems get fewer rows and coarser lives, never a wrong bound. Assumes that `problem` is sound.
pub fn bound(problem: &Problem, ways: Ways) -> Bound {
    relax(problem, &network(problem, ways), ways, PRODUCTS).1
}

/// [`bound`] with a tenth of its effort: looser, with prices that are nearly as good.
pub fn quick_bound(problem: &Problem, mut ways: Ways) -> Bound {
    ways.offload &= has_host(problem);
    relax(problem, &network(problem, ways), ways, PRODUCTS / 10).1
}

fn relax(problem: &Problem, net: &Net, ways: Ways, products: usize) -> (Retention, Bound, lp::Outcome) {
    let host = host(problem, net, ways);
    let small = net.size.len() <= SMALL;
    let detail = Detail { cuts: vec![fullest(net)], deep: small, rows: if small { 1000 } else { 128 } };
    let relaxed = retention::build(net, &host, &detail);
    let entries: usize = relaxed.program.rows.iter().map(|r| r.1.len()).sum();
    let outcome = lp::solve(&relaxed.program, (products / entries.max(1)).clamp(300, 4000));
    let cost = Nanos::from_f64(outcome.bound.max(0.0).ceil());
    let bound = Bound { cost, memory: relaxed.memory_prices(&outcome), links: relaxed.link_prices(&outcome) };
    (relaxed, bound, outcome)
}

/// The step that takes most if nothing is done.
fn fullest(net: &Net) -> u32 {
    let state = walk::State::new(net);
    let used = state.base.iter().zip(&state.own).map(|(b, o)| b + o);
    let first = |most: (u32, f64), here: (u32, f64)| if here.1 > most.1 { here } else { most };
    (0u32..).zip(used).fold((0, -1.0), first).0
}

/// Solves. Where the budget cannot be met, the result is the lowest peak that was found. A problem that fits as it is stays untouched.
pub fn solve(problem: &Problem, mut effort: Effort) -> Solved {
    effort.ways.offload &= has_host(problem);
    let found = best_search(problem, effort.ways);
    let mut best = Solved { solution: found.solution, peak: found.peak, cost: found.cost, bound: Bound::default() };
    if best.solution.choices.is_empty() && best.fits(problem) {
        return best;
    }
    let numbers = numbers(problem);
    let net = network(problem, effort.ways);
    let (relaxed, bound, outcome) = relax(problem, &net, effort.ways, PRODUCTS);
    best.bound = bound;
    let small = net.size.len() <= SMALL && net.cost.iter().any(Option::is_some);
    if small && (!best.fits(problem) || best.cost > best.bound.cost) {
        // A problem of few values has few states.
        let moves = effort.moves.min(10_000 * (net.size.len() as u64 + 1));
        if let Some((_, pairs)) = portfolio::walks(&net, &relaxed, &outcome, signed(best.bound.cost.get()), effort.rounds, moves) {
            let solution = choices(problem, &net, &numbers, &pairs);
            if let Ok(checked) = check(problem, &solution)
                && (!best.fits(problem) || checked.recompute < best.cost)
            {
                best = Solved { solution, peak: checked.device_peak, cost: checked.recompute, bound: best.bound };
            }
        }
    }
    best
}

/// The best of what is found with everything allowed, and with offload or recomputation alone: a greedy search may be led astray by more ways.
fn best_search(problem: &Problem, ways: Ways) -> Found {
    let mut best = search(problem, ways);
    if ways.offload && ways.recompute && !best.solution.choices.is_empty() {
        let key = |f: &Found| (f.peak.max(problem.device_memory), f.cost);
        for single in [Ways { recompute: false, ..ways }, Ways { offload: false, ..ways }] {
            let found = search(problem, single);
            if key(&found) < key(&best) {
                best = found;
            }
        }
    }
    best
}

/// The values of the problem in the order of their birth.
fn numbers(problem: &Problem) -> Vec<ValueIndex> {
    let mut order: Vec<ValueIndex> = (0u32..).take(problem.values.len()).collect();
    order.sort_by_key(|&v| (problem.values[v as usize].born, v));
    order
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX / 4)
}

/// The problem in plain integers.
fn network(problem: &Problem, ways: Ways) -> Net {
    let order = numbers(problem);
    let mut place = vec![0u32; order.len()];
    for (n, &v) in (0u32..).zip(&order) {
        place[v as usize] = n;
    }
    let mut net = Net {
        size: Vec::new(),
        step_frame: (0u32..).zip(&problem.steps).map(|(at, s)| (s.enter == at).then_some(s.frame)).collect(),
        fixed: problem.steps.iter().map(|s| signed(s.fixed.get())).collect(),
        outputs: vec![Vec::new(); problem.steps.len()],
        readers: vec![Vec::new(); order.len()],
        budget: signed(problem.device_memory.get()),
        time: problem.steps.iter().map(|s| signed(s.time.get())).fold(0, i64::saturating_add),
        ..Net::default()
    };
    for (n, &v) in (0u32..).zip(&order) {
        let value = &problem.values[v as usize];
        let recipe = value.recipe.as_ref().filter(|_| value.movable && ways.recompute);
        let inputs: Vec<u32> = recipe.map_or(Vec::new(), |r| r.inputs.iter().map(|&i| place[i as usize]).collect());
        for &input in &inputs {
            net.readers[input as usize].push(n);
        }
        let until = recipe.map_or(0, |r| {
            let inputs = r.inputs.iter().map(|&i| problem.values[i as usize].valid_to);
            inputs.fold(r.valid_to.min(value.valid_to), Instant::min)
        });
        net.size.push(signed(value.bytes.get()));
        net.cost.push(recipe.map(|r| signed(r.time.get())));
        net.inputs.push(inputs);
        net.born.push(value.born);
        net.uses.push(value.uses.clone());
        net.until.push(until);
        net.frame.push(problem.steps[value.born as usize].frame);
        net.outputs[value.born as usize].push(n);
    }
    net
}

fn has_host(problem: &Problem) -> bool {
    !problem.host_memory.is_zero() && problem.links.out.rate.get() > 0 && problem.links.back.rate.get() > 0
}

/// The link, if the host may be used.
fn host(problem: &Problem, net: &Net, ways: Ways) -> Host {
    let usable = ways.offload && has_host(problem);
    let copies = numbers(problem).into_iter().map(|v| {
        let value = &problem.values[v as usize];
        let runs = problem.runs(value);
        let time = |link: Link| link.time(value.bytes, runs).as_f64();
        (usable && value.movable).then(|| (time(problem.links.out), time(problem.links.back)))
    });
    Host { copies: copies.collect(), time: if usable { net.time as f64 } else { 0.0 } }
}

/// The choices that a set of makings means.
fn choices(problem: &Problem, net: &Net, numbers: &[ValueIndex], pairs: &[Pair]) -> Solution {
    let mut state = walk::State::new(net);
    for &pair in pairs {
        state.toggle(pair);
    }
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    let choice = |&(step, v): &Pair| {
        let value = numbers[v as usize];
        let after = state.kept(v).iter().rev().find(|k| k.0 < step).map_or(net.born[v as usize], |k| k.1);
        let cost = problem.values[value as usize].recipe.as_ref().map_or(Nanos::ZERO, |r| r.time);
        Choice { value, after, needed_at: step, how: How::Recomputed { chain: vec![value] }, cost }
    };
    Solution { choices: pairs.iter().map(choice).collect() }
}

#[cfg(test)]
mod tests;
