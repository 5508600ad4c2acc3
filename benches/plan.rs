//! Planning a synthetic training step: every activation waits for the backward pass, half of the peak is allowed. `cargo bench --bench plan`.
//!
//! Wanted on two cores: the search of 5,000 steps in 5 s; bound and search of 100,000 steps in 30 s and 2 GiB. The most memory that the process
//! ever held is told at the end (Linux).

use divan::Bencher;
use offc::problem::{Link, Links, Problem, Recipe, Step, Value};
use offc::solve::{Ways, bound, search};
use offc::units::{Bytes, BytesPerSec, Nanos};

fn main() {
    divan::main();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(most) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        println!("most resident memory: {}", most.trim());
    }
}

/// `n / 2` steps forward, as many back: step `i` back reads what step `i` forward made, and the gradient before it.
fn step(n: u32) -> Problem {
    let half = n / 2;
    let time = |i: u32| Nanos(20_000 + u64::from(i) * 7919 % 30_000);
    let steps = (0..2 * half).map(|i| Step { time: time(i), runs: 1, frame: 0, enter: i, fixed: Bytes(0) }).collect();
    let mut values: Vec<Value> = Vec::new();
    for i in 0..2 * half - 1 {
        let forward = i < half;
        let mut uses = vec![i + 1];
        if forward && 2 * half - 1 - i > i + 1 {
            uses.push(2 * half - 1 - i);
        }
        let inputs = i.checked_sub(1).into_iter().collect();
        // One in five is made by what may not run twice.
        let recipe = (forward && i % 5 != 4).then(|| Recipe { time: time(i), inputs, valid_to: u32::MAX });
        let bytes = if forward { Bytes(256 * (1000 + u64::from(i) * 7919 % 50_000)) } else { Bytes(256 * 10_000) };
        values.push(Value { name: format!("v{i}"), bytes, born: i, uses, valid_to: u32::MAX, movable: true, recipe });
    }
    let link = Link { rate: BytesPerSec(50_000_000_000), latency: Nanos(5000) };
    let all: u64 = values[..half as usize].iter().map(|v| v.bytes.get()).sum();
    let (device_memory, host_memory, total_memory) = (Bytes(all / 2), Bytes(1 << 42), Bytes::MAX);
    Problem { steps, values, links: Links { out: link, back: link }, device_memory, host_memory, total_memory }
}

#[divan::bench(args = [1000, 5000, 100_000], sample_count = 1)]
fn searched(bencher: Bencher, n: u32) {
    let problem = step(n);
    bencher.bench_local(|| {
        let found = search(&problem, Ways::default());
        assert!(found.peak <= problem.device_memory, "half of the memory is enough");
        found.cost
    });
}

#[divan::bench(args = [1000, 5000, 100_000], sample_count = 1)]
fn bounded(bencher: Bencher, n: u32) {
    let problem = step(n);
    bencher.bench_local(|| bound(&problem, Ways::default()).cost);
}
