//! Many walks of annealing: first independent ones from roundings of the relaxation, then ever more from the best few, which are polished now and then.

use super::anneal::{Walk, anneal};
use super::lp::Outcome;
use super::net::Net;
use super::polish::polish;
use super::retention::Retention;
use super::walk::Pair;

/// A state and what it costs.
pub type Found = (i64, Vec<Pair>);

/// Rounds of two walks that start from roundings.
const FRESH: usize = 4;
/// What is kept to that part in the relaxation is kept at the start.
const LEAST: [f64; 4] = [0.3, 0.5, 0.5, 0.3];
/// Fines at the start, in parts of the program's time for the whole budget above.
const FINES: [f64; 4] = [0.001, 0.01, 0.001, 0.0003];
/// Heat at the start, in parts of what a making costs on average.
const HEATS: [f64; 6] = [0.15, 0.3, 0.15, 0.3, 0.2, 0.1];
/// Heat at the end over that at the start.
const COOLED: f64 = 0.06;
/// States that are walked from.
const POOL: usize = 3;

/// Rounds between two polishings of these.
const POLISHED: usize = 3;
/// Moves of polishing, in parts of the moves of a walk.
const POLISH_MOVES: u64 = 4;

/// The cheapest state found by so many rounds of two walks, one a core; ends early at a state that costs no more than `bound`.
pub fn walks(net: &Net, relaxed: &Retention, outcome: &Outcome, bound: i64, rounds: usize, moves: u64) -> Option<Found> {
    let recompute: i64 = net.cost.iter().flatten().sum();
    let mut pool: Vec<Found> = Vec::new();
    let mut minima: Vec<Found> = Vec::new();
    let polish_moves = usize::try_from(moves * POLISH_MOVES).unwrap_or(usize::MAX);
    for round in 0..rounds {
        let walk = |lane: usize| {
            let number = 2 * round + lane;
            let start = match pool.get(number % POOL.min(pool.len()).max(1)) {
                Some(best) if round >= FRESH => best.1.clone(),
                _ => relaxed.round(net, outcome, LEAST[number % LEAST.len()]),
            };
            let mean = if start.is_empty() {
                recompute as f64 / net.size.len() as f64
            } else {
                start.iter().filter_map(|p| net.cost[p.1 as usize]).sum::<i64>() as f64 / start.len() as f64
            };
            let hot = mean.max(1.0) * HEATS[number % HEATS.len()];
            let fine = FINES[(number + round / FRESH) % FINES.len()] * net.time as f64 / net.budget.max(1) as f64;
            anneal(net, &start, Walk { moves, heat: (hot, hot * COOLED), fine, seed: number as u64 + 1 })
        };
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(|| walk(1));
            [walk(0), other.join().ok().flatten()]
        });
        for mut found in both.into_iter().flatten() {
            found.1.sort_unstable();
            if !pool.contains(&found) {
                pool.push(found);
            }
        }
        pool.sort_unstable();
        pool.truncate(POOL);
        if round % POLISHED == POLISHED - 1 || round + 1 == rounds {
            let polished = |n: usize| {
                let members = pool.iter().skip(n).step_by(2);
                members.map(|m| if minima.contains(m) { m.clone() } else { polish(net, &m.1, polish_moves) }).collect::<Vec<Found>>()
            };
            pool = std::thread::scope(|scope| {
                let other = scope.spawn(|| polished(1));
                let mut all = polished(0);
                all.extend(other.join().unwrap_or_default());
                all
            });
            pool.sort_unstable();
            pool.dedup();
            minima.clone_from(&pool);
        }
        if pool.first().is_some_and(|b| b.0 <= bound) {
            break;
        }
    }
    pool.into_iter().next()
}
