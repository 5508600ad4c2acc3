//! No HLO at all: a compiler of one's own says when values are made and read, and is told what to move and what to make again.
//! `cargo run --release --example embed_problem`

use std::process::ExitCode;

use offc::problem::{How, Instant, Link, Links, Problem, Recipe, Step, Value, check};
use offc::solve::{Effort, solve};
use offc::units::{Bytes, BytesPerSec, Nanos};

/// Layers of the network that is trained.
const LAYERS: u32 = 8;

/// A forward pass of layers of a millisecond, whose activations of a gibibyte the backward pass reads in reverse.
fn training_step() -> Problem {
    let count = 2 * LAYERS;
    let step = |n: Instant| Step { time: Nanos(1_000_000), runs: 1, frame: 0, enter: n, fixed: Bytes::ZERO };
    let activation = |layer: u32| Value {
        name: format!("activation of layer {layer}"),
        bytes: Bytes(1 << 30),
        born: layer,
        uses: vec![layer + 1, count - 1 - layer],
        valid_to: Instant::MAX,
        movable: true,
        // From the layer before; the first would need the batch, which is not among the values.
        recipe: layer.checked_sub(1).map(|before| Recipe { time: Nanos(1_000_000), inputs: vec![before], valid_to: Instant::MAX }),
    };
    let link = Link { rate: BytesPerSec(50_000_000_000), latency: Nanos(5_000) };
    Problem {
        steps: (0..count).map(step).collect(),
        values: (0..LAYERS - 1).map(activation).collect(),
        links: Links { out: link, back: link },
        device_memory: Bytes(4 << 30),
        host_memory: Bytes(64 << 30),
        total_memory: Bytes::MAX,
    }
}

fn main() -> ExitCode {
    let problem = training_step();
    let solved = solve(&problem, Effort::default());
    if !solved.fits(&problem) {
        eprintln!("error: the lowest peak found is {}", solved.peak);
        return ExitCode::FAILURE;
    }
    // The check shares nothing with the search.
    let checked = check(&problem, &solved.solution).expect("a solution is one");
    assert!(checked.device_peak <= problem.device_memory, "it fits");
    println!(
        "peak {} of {}, {} lost, no solution loses less than {}",
        checked.device_peak, problem.device_memory, solved.cost, solved.bound.cost
    );
    for choice in &solved.solution.choices {
        let value = &problem.values[choice.value as usize];
        let what = match &choice.how {
            How::Host { .. } => "in host memory",
            How::Recomputed { .. } => "made again",
        };
        println!("{} ({}): {what} before step {}", value.name, value.bytes, choice.needed_at);
    }
    ExitCode::SUCCESS
}
