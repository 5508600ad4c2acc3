//! Simulated annealing over what is made again before which step.
//!
//! A state is any set of (step, value); its memory follows ([`State`]). What is above the budget is fined by a weight a step; the weights
//! rise where a step stays above and fall where it does not, as in breakout search, so that the walk crosses infeasible states and comes back.
//! Moves: make a value again before one of its readers, with what its making lacks; no more; before another step; all makings of a step
//! before another; an input or reader in its stead. Deterministic: counted moves, own generator.

use super::net::Net;
use super::walk::{Pair, State};

/// A generator of numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    /// Seeded.
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }
    fn below(&mut self, n: usize) -> usize {
        (((self.next() & 0xffff_ffff) * n as u64) >> 32) as usize
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    fn unit(&mut self) -> f64 {
        (self.next() & 0xf_ffff_ffff) as f64 / (1u64 << 36) as f64
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())]) }
    }
}

/// How to walk.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Moves tried.
    pub moves: u64,
    /// Temperature at the start and at the end, in nanoseconds.
    pub heat: (f64, f64),
    /// The fine of a byte above the budget at the start, in nanoseconds.
    pub fine: f64,
    /// Of the generator.
    pub seed: u64,
}

/// Weights change every so many moves.
const PERIOD: u64 = 1000;
const UP: f64 = 1.1;
const DOWN: f64 = 0.97;
/// Makings in one move.
const LONGEST: usize = 30;

/// Walks from `start`; the cheapest state within the budget that was met.
pub fn anneal(net: &Net, start: &[Pair], walk: Walk) -> Option<(i64, Vec<Pair>)> {
    let mut state = State::new(net);
    for &pair in start {
        state.toggle(pair);
    }
    state.refresh();
    let steps = net.fixed.len();
    let can: Vec<u32> = (0u32..).take(net.size.len()).filter(|&v| net.cost[v as usize].is_some()).collect();
    if can.is_empty() {
        return None;
    }
    let mut random = Random::new(walk.seed);
    let mut weights = vec![walk.fine; steps];
    let mut above = state.excess(&weights);
    let mut best = (above == 0.0).then(|| (state.cost, state.pairs.clone()));
    let mut now = state.cost as f64 + above;
    let mut heat = walk.heat.0;
    let cooling = (walk.heat.1 / walk.heat.0).powf(PERIOD as f64 / walk.moves as f64);
    let mut done = Vec::new();
    let mut inside = false;
    for n in 1..=walk.moves {
        if n % PERIOD == 0 {
            heat *= cooling;
            for (step, weight) in weights.iter_mut().enumerate() {
                let over = state.base[step] + state.own[step] > net.budget as f64;
                *weight *= if over { UP } else { DOWN };
                if !inside {
                    *weight *= UP;
                }
            }
            inside = false;
            above = state.excess(&weights);
            now = state.cost as f64 + above;
        }
        inside |= above == 0.0;
        done.clear();
        state.mark();
        propose(net, &mut state, &can, &mut random, &mut done);
        if done.is_empty() {
            continue;
        }
        state.refresh();
        let above_then = state.excess(&weights);
        let then = state.cost as f64 + above_then;
        if then <= now || random.unit() < ((now - then) / heat).exp() {
            (now, above) = (then, above_then);
            if above == 0.0 && state.peak() <= net.budget as f64 && best.as_ref().is_none_or(|b| state.cost < b.0) {
                best = Some((state.cost, state.pairs.clone()));
            }
        } else {
            state.undo(&done);
        }
    }
    best
}

/// Changes the state by one move; what was toggled.
fn propose(net: &Net, state: &mut State<'_>, can: &[u32], random: &mut Random, done: &mut Vec<Pair>) {
    match random.below(100) {
        0..40 => add(net, state, can, random, done),
        40..65 => remove(net, state, random, done),
        65..85 => shift_one(net, state, random, done),
        85..92 => shift_step(net, state, random, done),
        _ => exchange(net, state, random, done),
    }
}

fn flip(state: &mut State<'_>, pair: Pair, done: &mut Vec<Pair>) {
    state.toggle(pair);
    done.push(pair);
}

/// A step that reads a value: by itself, or for the making of another.
fn some_reader(net: &Net, state: &State<'_>, value: u32, random: &mut Random) -> Option<u32> {
    let v = value as usize;
    let n = random.below(net.uses[v].len() + net.readers[v].len());
    match net.uses[v].get(n) {
        Some(&step) => Some(step),
        None => random.pick(&state.made(*net.readers[v].get(n - net.uses[v].len())?)[1..]),
    }
}

fn add(net: &Net, state: &mut State<'_>, can: &[u32], random: &mut Random, done: &mut Vec<Pair>) {
    let Some(value) = random.pick(can) else { return };
    let Some((from, to)) = random.pick(state.kept(value)) else { return };
    if to <= from + 1 {
        return;
    }
    let step = if random.below(4) > 0 {
        match some_reader(net, state, value, random) {
            Some(step) if step > from && step <= to => step,
            _ => return,
        }
    } else {
        from + 1 + u32::try_from(random.below((to - from) as usize)).unwrap_or(0)
    };
    // How readily what the making lacks is made again too.
    let reach = random.below(3);
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        if state.makes(step, value) || !net.may(value, step) || done.len() >= LONGEST {
            continue;
        }
        flip(state, (step, value), done);
        for &input in &net.inputs[value as usize] {
            let held = state.current(input, step).is_some_and(|(from, to)| to != step || from >= step);
            let other = net.uses[input as usize].binary_search(&step).is_ok()
                || state.again(step).iter().any(|&r| r != value && net.inputs[r as usize].contains(&input));
            if !held && !other && random.below(3) >= reach {
                pending.push(input);
            }
        }
    }
}

fn remove(net: &Net, state: &mut State<'_>, random: &mut Random, done: &mut Vec<Pair>) {
    let Some((step, value)) = random.pick(&state.pairs) else { return };
    flip(state, (step, value), done);
    if random.one_in(2) {
        return;
    }
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        for &input in &net.inputs[value as usize] {
            if state.again(step).binary_search(&input).is_ok() && state.useless(step, input) {
                flip(state, (step, input), done);
                pending.push(input);
            }
        }
    }
}

/// A step a little before or after.
fn near(net: &Net, step: u32, random: &mut Random) -> Option<u32> {
    let far = 1 + u32::try_from(random.below(6)).unwrap_or(0);
    let step = if random.one_in(2) { step.checked_sub(far)? } else { step + far };
    ((step as usize) < net.fixed.len()).then_some(step)
}

fn shift_one(net: &Net, state: &mut State<'_>, random: &mut Random, done: &mut Vec<Pair>) {
    let Some((step, value)) = random.pick(&state.pairs) else { return };
    let to = if random.one_in(2) { some_reader(net, state, value, random) } else { near(net, step, random) };
    let Some(to) = to.filter(|&to| to != step && net.may(value, to) && !state.makes(to, value)) else { return };
    flip(state, (step, value), done);
    flip(state, (to, value), done);
}

fn shift_step(net: &Net, state: &mut State<'_>, random: &mut Random, done: &mut Vec<Pair>) {
    let Some((step, _)) = random.pick(&state.pairs) else { return };
    let Some(to) = near(net, step, random) else { return };
    for value in state.again(step).to_vec() {
        if !net.may(value, to) {
            continue;
        }
        flip(state, (step, value), done);
        if !state.makes(to, value) {
            flip(state, (to, value), done);
        }
    }
}

fn exchange(net: &Net, state: &mut State<'_>, random: &mut Random, done: &mut Vec<Pair>) {
    let Some((step, value)) = random.pick(&state.pairs) else { return };
    let others = if random.one_in(2) { &net.inputs[value as usize] } else { &net.readers[value as usize] };
    let Some(other) = random.pick(others) else { return };
    if !net.may(other, step) || state.makes(step, other) {
        return;
    }
    flip(state, (step, other), done);
    if random.one_in(2) {
        flip(state, (step, value), done);
    }
}
