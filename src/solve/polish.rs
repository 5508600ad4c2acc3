//! The last steps down: what annealing leaves near a minimum, mended until no small exchange helps.
//!
//! One making, or two that touch, is dropped; the steps that are then too full are mended by cheaper makings, the fullest step first, each by
//! what is kept over it and read later. A search in depth with few branches and counted effort; a move that costs less and fits is
//! taken at once (ejection chains: Glover, 1996).

use super::net::Net;
use super::walk::{Pair, State};

/// Makings in place of what is dropped.
const DEPTH: usize = 4;
/// Ways tried to mend one step, the cheapest first; at the first step all are.
const BRANCHES: usize = 32;
/// Up to so many makings, any two are dropped together.
const FEW: usize = 60;

/// Polishes `pairs`, which must fit the budget, with at most so many moves. The result fits and costs no more.
pub fn polish(net: &Net, pairs: &[Pair], moves: usize) -> (i64, Vec<Pair>) {
    let mut state = State::new(net);
    for &pair in pairs {
        state.toggle(pair);
    }
    state.refresh();
    let mut left = moves;
    while left > 0 && improve(net, &mut state, &mut left) {}
    let mut pairs = state.pairs.clone();
    pairs.sort_unstable();
    (state.cost, pairs)
}

/// One move that pays; whether there was one.
fn improve(net: &Net, state: &mut State<'_>, left: &mut usize) -> bool {
    let cost = |p: &Pair| net.cost[p.1 as usize].unwrap_or(0);
    let mut pairs = state.pairs.clone();
    pairs.sort_unstable_by_key(|p| (std::cmp::Reverse(cost(p)), *p));
    let before = state.cost;
    for n in 0..pairs.len() {
        flip(state, pairs[n]);
        if mend(net, state, before, DEPTH, left) {
            return true;
        }
        for m in n + 1..pairs.len() {
            if *left > 0 && (pairs.len() < FEW || touch(net, pairs[n], pairs[m])) {
                flip(state, pairs[m]);
                if mend(net, state, before, DEPTH, left) {
                    return true;
                }
                flip(state, pairs[m]);
            }
        }
        flip(state, pairs[n]);
        if *left == 0 {
            return false;
        }
    }
    false
}

/// Whether two makings stand close together, by step or by value, or one reads the other.
fn touch(net: &Net, a: Pair, b: Pair) -> bool {
    let reads = |a: Pair, b: Pair| net.inputs[a.1 as usize].contains(&b.1);
    a.0.abs_diff(b.0) <= 2 || a.1.abs_diff(b.1) <= 1 || reads(a, b) || reads(b, a)
}

fn flip(state: &mut State<'_>, pair: Pair) {
    state.toggle(pair);
    state.refresh();
}

/// Adds makings until the state fits, cheaper than `below`. Where that fails the state is as before.
fn mend(net: &Net, state: &mut State<'_>, below: i64, depth: usize, left: &mut usize) -> bool {
    if state.cost >= below {
        return false;
    }
    let budget = net.budget as f64;
    let over = |s: &State<'_>, t: usize| s.base[t] + s.own[t] - budget;
    let steps = net.fixed.len();
    let fullest = (0..steps).max_by(|&a, &b| over(state, a).total_cmp(&over(state, b)).then(b.cmp(&a)));
    let Some(full) = fullest.filter(|&t| over(state, t) > 0.0) else { return true };
    if depth == 0 {
        return false;
    }
    let lack = over(state, full);
    let room = below - 1 - state.cost;
    let full = u32::try_from(full).expect("steps are numbered by u32");
    let mut ways: Vec<(i64, Pair)> = Vec::new();
    for v in (0u32..).take(net.size.len()) {
        let Some(cost) = net.cost[v as usize].filter(|&c| c <= room) else { continue };
        // The last level must mend it all.
        if depth == 1 && (net.size[v as usize] as f64) < lack {
            continue;
        }
        let Some(&(_, to)) = state.kept(v).iter().find(|k| k.0 < full && full < k.1) else { continue };
        let mut reads: Vec<u32> = net.uses[v as usize].clone();
        reads.extend(net.readers[v as usize].iter().flat_map(|&r| &state.made(r)[1..]));
        reads.retain(|&s| s > full && s <= to);
        reads.sort_unstable();
        reads.dedup();
        ways.extend(reads.into_iter().filter(|&s| net.may(v, s) && !state.makes(s, v)).map(|s| (cost, (s, v))));
    }
    ways.sort_unstable();
    if depth < DEPTH {
        ways.truncate(BRANCHES);
    }
    for (_, pair) in ways {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        flip(state, pair);
        if over(state, full as usize) < lack && mend(net, state, below, depth - 1, left) {
            return true;
        }
        flip(state, pair);
    }
    false
}
