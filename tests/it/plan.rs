//! The planner against an independent check, on random problems.

use offc::plan::{Ways, search};
use offc::problem::{Instant, Link, Links, Problem, Recipe, Step, Value, ValueIndex, check};
use offc::units::{Bytes, BytesPerSec, Nanos};
use proptest::prelude::*;

/// What a random problem is made of, one entry a value: bytes, length of each gap, inputs by distance, recipe, movable.
type Draft = (u64, Vec<u32>, Vec<usize>, bool, bool);

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let one =
        (1u64..64, prop::collection::vec(1u32..9, 1..4), prop::collection::vec(1usize..4, 0..3), any::<bool>(), prop::bool::weighted(0.9));
    prop::collection::vec(one, 1..10)
}

/// Values are born one a step, in order; uses follow by their gaps. Recipes read earlier values that are still read later or not.
fn problem(drafts: &[Draft], rate: u64) -> Problem {
    let mut values = Vec::new();
    let mut last = 0;
    for (n, (bytes, gaps, inputs, has_recipe, movable)) in drafts.iter().enumerate() {
        let born = Instant::try_from(n).expect("few values");
        let mut at = born;
        let uses: Vec<Instant> = gaps
            .iter()
            .map(|gap| {
                at += gap;
                at
            })
            .collect();
        last = last.max(at);
        let mut inputs: Vec<ValueIndex> =
            inputs.iter().filter_map(|d| n.checked_sub(*d)).map(|i| ValueIndex::try_from(i).expect("few values")).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let recipe = has_recipe.then_some(Recipe { time: Nanos(100 * bytes), inputs, valid_to: Instant::MAX });
        let name = format!("v{n}");
        values.push(Value { name, bytes: Bytes(*bytes), born, uses, valid_to: Instant::MAX, movable: *movable, recipe });
    }
    let steps = (0..=last).map(|enter| Step { time: Nanos(1000), runs: 1, fixed: Bytes(1), frame: 0, enter }).collect();
    let link = Link { rate: BytesPerSec(rate), latency: Nanos(10) };
    let (device_memory, host_memory, total_memory) = (Bytes::MAX, Bytes(200), Bytes::MAX);
    Problem { steps, values, links: Links { out: link, back: link }, device_memory, host_memory, total_memory }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the search returns is valid, and takes no more memory than it says. (The check replays what is made before a step one by one, the
    /// search counts it together.)
    #[test]
    fn every_solution_passes_the_check(drafts in drafts(), share in 0u64..100, rate in prop::sample::select(vec![0u64, 1 << 20, 1 << 36])) {
        let mut problem = problem(&drafts, rate);
        let resident = search(&problem, Ways::default());
        prop_assert!(resident.solution.choices.is_empty());
        problem.device_memory = Bytes(resident.peak.get() * share / 100);
        let found = search(&problem, Ways::default());
        prop_assert!(found.peak <= resident.peak);
        let mut allowed = problem.clone();
        allowed.device_memory = found.peak;
        let checked = check(&allowed, &found.solution);
        prop_assert!(checked.is_ok_and(|c| c.device_peak <= found.peak));
    }

    /// With a limit on device and host together, what the search returns takes no more of both than it says.
    #[test]
    fn device_and_host_together_are_counted(drafts in drafts(), share in 40u64..100, rate in prop::sample::select(vec![0u64, 1 << 20, 1 << 36])) {
        let mut problem = problem(&drafts, rate);
        let resident = search(&problem, Ways::default());
        problem.device_memory = Bytes(resident.peak.get() * 9 / 10);
        problem.total_memory = Bytes(resident.peak.get() * share / 100);
        let found = search(&problem, Ways::default());
        let mut allowed = problem.clone();
        allowed.device_memory = found.peak;
        allowed.total_memory = found.total;
        prop_assert!(check(&allowed, &found.solution).is_ok());
    }

    /// A way that is switched off is not used.
    #[test]
    fn ways_are_respected(drafts in drafts()) {
        let mut problem = problem(&drafts, 1 << 36);
        problem.device_memory = Bytes(8);
        let found = search(&problem, Ways { offload: false, recompute: false });
        prop_assert!(found.solution.choices.is_empty());
    }
}
