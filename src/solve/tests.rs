//! Small problems against all possibilities; what holds for every answer.

use proptest::prelude::*;

use super::*;
use crate::problem::{Links, Recipe, Step, Value};
use crate::units::BytesPerSec;

fn problem() -> impl Strategy<Value = Problem> {
    let value = |n: u32| (1u64..6, 1u64..6, prop::collection::vec(prop::bool::weighted(0.5), n as usize));
    (value(0), value(1), value(2), value(3), value(4), 0u64..10).prop_map(|(a, b, c, d, e, slack)| {
        let nodes = [a, b, c, d, e];
        let mut values: Vec<Value> = Vec::new();
        for (n, (bytes, time, reads)) in (0u32..).zip(&nodes) {
            // The node before is read always, so that every value but the last has a use.
            let inputs: Vec<u32> = (0..n).filter(|&i| i + 1 == n || reads[i as usize]).collect();
            for &i in &inputs {
                values[i as usize].uses.push(n);
            }
            let recipe = Some(Recipe { time: Nanos(*time), inputs, valid_to: Instant::MAX });
            let name = format!("v{n}");
            values.push(Value { name, bytes: Bytes(*bytes), born: n, uses: Vec::new(), valid_to: Instant::MAX, movable: true, recipe });
        }
        let step = |(n, node): (u32, &(u64, u64, Vec<bool>))| Step { time: Nanos(node.1), runs: 1, frame: 0, enter: n, fixed: Bytes(0) };
        let none = Link { rate: BytesPerSec(0), latency: Nanos::ZERO };
        let mut problem = Problem {
            steps: (0u32..).zip(&nodes).map(step).collect(),
            values,
            links: Links { out: none, back: none },
            device_memory: Bytes::MAX,
            host_memory: Bytes::ZERO,
            total_memory: Bytes::MAX,
        };
        let all = check(&problem, &Solution::default()).expect("nothing is done").device_peak;
        problem.device_memory = Bytes(all.get().saturating_sub(slack));
        problem
    })
}

/// The least time of all sets of makings that fit.
fn brute(problem: &Problem) -> Option<Nanos> {
    let net = network(problem, Ways::default());
    let numbers = numbers(problem);
    let steps = u32::try_from(problem.steps.len()).expect("few");
    let all: Vec<Pair> = (0..steps).flat_map(|s| (0..s).map(move |v| (s, v))).filter(|&(s, v)| net.may(v, s)).collect();
    let sets = (0u32..1 << all.len()).filter_map(|set| {
        let pairs: Vec<Pair> = all.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1).map(|(_, &p)| p).collect();
        check(problem, &choices(problem, &net, &numbers, &pairs)).ok().map(|c| c.recompute)
    });
    sets.min()
}

fn quick() -> Effort {
    Effort { rounds: 4, moves: 4000, ..Effort::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn small_problems_equal_brute_force_and_more_memory_never_costs(problem in problem()) {
        let solved = solve(&problem, quick());
        let best = brute(&problem);
        prop_assert_eq!(solved.fits(&problem).then_some(solved.cost), best);
        if let Some(best) = best {
            prop_assert!(solved.bound.cost <= best, "{:?} is no bound of {best:?}", solved.bound.cost);
            let checked = check(&problem, &solved.solution).expect("it is a solution");
            prop_assert_eq!(checked.recompute, solved.cost);
            let more = Problem { device_memory: problem.device_memory + Bytes(1), ..problem.clone() };
            prop_assert!(solve(&more, quick()).cost <= solved.cost);
        }
        prop_assert_eq!(solve(&problem, quick()).solution, solved.solution);
    }

    #[test]
    fn offers_never_make_it_worse_and_give_solutions(problem in problem(), rate in 1u64..5) {
        let link = Link { rate: BytesPerSec(rate * 500_000_000), latency: Nanos::ZERO };
        let problem = Problem { links: Links { out: link, back: link }, host_memory: Bytes(100), ..problem };
        let inputs = |v: ValueIndex| problem.values[v as usize].recipe.as_ref().map_or(Vec::new(), |r| r.inputs.clone());
        // Each value from what comes back, and each with one of its inputs from what comes back for that.
        let offers = |value: ValueIndex, needed_at: Instant| {
            let offer = |chain: Vec<ValueIndex>, fetched: Vec<ValueIndex>| Offer { value, needed_at, chain, fetched };
            let mut all = vec![offer(vec![value], inputs(value))];
            for input in inputs(value) {
                let others = inputs(value).into_iter().filter(|&i| i != input && !inputs(input).contains(&i));
                all.push(offer(vec![input, value], inputs(input).into_iter().chain(others).collect()));
            }
            all
        };
        let plain = search(&problem, Ways::default());
        let found = search_with(&problem, Ways::default(), WORK, &offers);
        if plain.peak <= problem.device_memory {
            prop_assert!(found.peak <= problem.device_memory && found.cost <= plain.cost);
            let checked = check(&problem, &found.solution);
            prop_assert!(checked.is_ok(), "{checked:?} of {:?}", found.solution);
        }
    }

    #[test]
    fn both_ways_together_are_never_worse_than_one(problem in problem(), rate in 1u64..5) {
        let link = Link { rate: BytesPerSec(rate * 500_000_000), latency: Nanos::ZERO };
        let problem = Problem { links: Links { out: link, back: link }, host_memory: Bytes(100), ..problem };
        let with = |ways: Ways| {
            let solved = solve(&problem, Effort { ways, ..quick() });
            solved.fits(&problem).then(|| {
                check(&problem, &solved.solution).expect("it is a solution");
                assert!(solved.bound.cost <= solved.cost, "{:?} is no bound of {:?}", solved.bound.cost, solved.cost);
                solved.cost
            })
        };
        let both = with(Ways::default());
        for single in [Ways { offload: false, ..Ways::default() }, Ways { recompute: false, ..Ways::default() }] {
            if let Some(alone) = with(single) {
                prop_assert!(both.is_some_and(|both| both <= alone), "{both:?} together, {alone:?} alone by {single:?}");
            }
        }
    }
}
