//! Plays a scheduled program on a machine.
//!
//! One compute stream runs kernels in order. Copies to the host, copies from the host, copies within device memory, collectives and kernels on
//! other streams each have a queue, first in first out; a `-start` puts work there, a `-done` waits for it ([`Lane`]).
//!
//! A copy moves at the rate that the machine promises one GPU while all of them copy. With [`Options::contention`] both directions of the link, copies
//! within device memory and kernels share what there is besides: see [`lanes`]. It is off unless asked for. On PCIe, 50 GB/s beside 3.3 TB/s,
//! it changes a step by less than one part in a hundred; without it prediction is monotone (more work never ends sooner), which plans may
//! rely on; and what it is most needed for, the fast links of GH200 and GB200, wants measured rates first.
//!
//! Loops are not unrolled. An iteration that begins with empty queues takes what every such iteration takes, so it is played once and
//! counted as often as it runs; while a copy from before the loop is under way, iterations are played or skipped up to its end. A computation
//! is so played once from empty queues, and as often again as copies outside it end inside it: linear in the size of the program however
//! deep its loops nest. Of a conditional the branch is played that takes longer by itself.
//!
//! Against an independent model (`scripts/oracle/judge.py`) at equal rates (device memory 3 TB/s, link 50 GB/s each way, no launch latency) the
//! step of every module of the test corpus agrees to 0.02 %, but for what is meant to differ:
//! * the judge lets `AllocateBuffer` write what it allocates, here it runs no kernel (`gpt3_1b3_offload`: -0.55 % of the step, -0.74 points of
//!   its ratio to `gpt3_1b3_none`);
//! * the judge takes half of operands and results for a collective's bytes, here a ring passes `(n - 1) / n` of the whole
//!   ([`crate::cost::collective`]): half as much again on eight GPUs at the same rate (`llama3_8b_fsdp8` +0.7 %, `gpt3_13b_none_fsdp8` +18 %,
//!   the 175B steps on 64 GPUs +53 and +69 %);
//! * the judge prices convolutions by their bytes, here by their arithmetic (`resnet50` +21 %, `vit_b16` +0.3 %).

mod engine;
mod lanes;
mod memory;
mod timeline;

pub use memory::bytes_over_time;
pub use timeline::{Event, Lane, LoopRun, Note, Span, Stall, Timeline, What};

use std::collections::BTreeMap;

use crate::cost::Prices;
use crate::ir::Module;
use crate::machine::Machine;

/// What to assume beside the machine.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether what moves at the same time shares rates: both directions of the link, host memory, device memory.
    pub contention: bool,
    /// Trip counts by the name of the `while`, for those that nobody can tell (or instead of what is known).
    pub trips: BTreeMap<String, u64>,
}

/// Plays `module` once with the default options.
pub fn simulate(module: &Module, machine: &Machine, prices: &Prices) -> Timeline {
    simulate_with(module, machine, prices, &Options::default())
}

/// Plays `module` once.
pub fn simulate_with(module: &Module, machine: &Machine, prices: &Prices, options: &Options) -> Timeline {
    engine::play(module, machine, prices, options)
}
