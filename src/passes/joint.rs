//! `loops`: decides jointly what becomes of what loops save and of the updates after them.
//!
//! # What it does
//! What costs nothing goes first (`reschedule`, `slice-invariant`). Then it tries programs that differ in what is saved for backward loops and
//! where (`recompute-stack`, `offload-stack`), in whether updates move into the loop that makes their gradient (`sink-update`), in how much
//! optimizer state lives in host memory (`stream-state`), in what is made where it is read (`sink-invariant`, `fuse-again`), and in when rows
//! cross the link (`pipeline-rows`); measures each with the buffer model and the simulator, and takes the fastest that fits, those first that
//! XLA's own rematerialization leaves alone, or else the smallest.
//!
//! # When it helps
//! Scanned layers, with or without a checkpoint policy.
//!
//! # Example
//! See the passes named above.
//!
//! # Cost
//! Some tens of rewrites and measurements of the module.
//!
//! # Source
//! The budget enters by a Lagrange multiplier: Everett, "Generalized Lagrange Multiplier Method", Operations Research 1963.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Analyses;
use crate::analysis::remat::RematTracker;
use crate::cost::Prices;
use crate::ir::Module;
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};
use crate::sim::simulate;

use super::fuse_again::fuse_again;
use super::pipeline_rows::pipeline_rows;
use super::recompute_stack::{self, Prepared, Restacked, Ways};
use super::reschedule::reschedule;
use super::sink_invariant::sink_invariants;
use super::sink_update::{sink_hosted, streamable};
use super::slice_invariant::slice_invariants;
use super::stream_state::{allows, entry_states, host_in_entry};

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct LoopMemory;

impl Pass for LoopMemory {
    fn name(&self) -> &'static str {
        "loops"
    }
    fn run(&self, module: &mut Module, cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let search = Search { stacks: Ways { recompute: true, offload: true }, updates: true, fuse: true };
        let Some(found) = self::search(module, cx, search) else { return Ok(Changed::No) };
        log.entries.push(Entry { pass: self.name(), changed: true, text: found.done.to_string(), plan: None });
        *module = found.module;
        Ok(Changed::Yes)
    }
}

/// What a search may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// With stacks.
    pub stacks: Ways,
    /// Whether updates may move into loops.
    pub updates: bool,
    /// Whether kernels are fused again and invariants sunk.
    pub fuse: bool,
}

/// What was done to a program.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    stacks: Restacked,
    updates: usize,
    invariants: usize,
    fused: usize,
    /// Late readers that run before a loop.
    early: usize,
    /// Transposed copies of parameters that are gone.
    sliced: usize,
    /// Transfers of rows that cross into another iteration.
    across: usize,
    /// Entry parameters that live in host memory now, with the numbers of the outputs that replace them.
    states: Vec<String>,
}

/// What becomes of updates and states.
#[derive(Clone, Debug, Default)]
struct State {
    /// Whether updates move into loops.
    sink: bool,
    /// Parameter numbers of the states that move to the host.
    host: FxHashSet<i64>,
    /// Their bytes.
    bytes: u64,
}

/// States move to host memory in steps of at least this part of them all.
const SHARES: u64 = 16;
/// States smaller than this part of them all stay.
const LEAST: u64 = 1000;
/// After so many sets of states with which the program fits, more would only cost time.
const ENOUGH: usize = 8;

/// More and more states in host memory, state by state.
fn streaming(module: &Module, cx: &PassCx) -> Vec<State> {
    let Some(allowed) = &cx.host_state else { return Vec::new() };
    let mut order = streamable(module);
    let in_loops: FxHashSet<i64> = order.iter().map(|s| s.0).collect();
    order.extend(entry_states(module).iter().filter(|s| !in_loops.contains(&s.number)).map(|s| (s.number, s.bytes)));
    order.retain(|s| allows(module, allowed, s.0));
    let total: u64 = order.iter().map(|s| s.1).sum();
    order.retain(|s| s.1 >= total / LEAST);
    let total: u64 = order.iter().map(|s| s.1).sum();
    let (mut host, mut moved, mut said) = (FxHashSet::default(), 0, 0);
    let mut out = Vec::new();
    for &(number, bytes) in &order {
        host.insert(number);
        moved += bytes;
        if moved == total || moved - said >= total / SHARES {
            said = moved;
            out.extend([true, false].map(|sink| State { sink, host: host.clone(), bytes: moved }));
        }
    }
    out
}

/// The entry parameters whose memory space differs, with the outputs that replace them.
fn moved(before: &Module, after: &Module) -> Vec<String> {
    let pairs = before.entry().parameters.iter().zip(&after.entry().parameters).enumerate();
    let changed =
        pairs.filter(|&(_, (&a, &b))| before.shapes.memory_space(before.instr(a).shape) != after.shapes.memory_space(after.instr(b).shape));
    changed
        .map(|(n, (&a, _))| {
            let alias = before.header.input_output_alias.iter().find(|e| usize::try_from(e.parameter) == Ok(n));
            let output = alias.map_or_else(String::new, |e| format!(", output {:?}", e.output));
            format!("parameter {n} `{}`{output}", before.instr(a).name)
        })
        .collect()
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} stacks dropped, {} new ones on the device and {} on the host; {} updates moved into the loop that makes their gradient; \
             {} invariants made where they are read; {} fusions moved into their readers",
            self.stacks.dropped, self.stacks.device, self.stacks.host, self.updates, self.invariants, self.fused
        )?;
        if self.early > 0 {
            write!(f, "; {} late readers moved before loops", self.early)?;
        }
        if self.sliced > 0 {
            write!(f, "; {} transposed copies of parameters read from the parameter", self.sliced)?;
        }
        if self.across > 0 {
            write!(f, "; {} transfers of rows moved to another iteration", self.across)?;
        }
        if !self.states.is_empty() {
            write!(f, "; in host memory from now on, as the entry's signature says: {}", self.states.join("; "))?;
        }
        Ok(())
    }
}

/// A program that was tried.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub module: Module,
    pub done: Done,
    device: u64,
    host: u64,
    step: u64,
    /// Whether XLA's own rematerialization would act on it.
    xla_acts: bool,
}

/// Prices of a byte of device memory, from nothing to everything, in nanoseconds.
const PRICES: usize = 22;
const LOWEST_PRICE: f64 = 1e-5;
/// Prices of a byte through the link, in nanoseconds; at 50 GB/s a byte takes 0.02.
const LINK_PRICES: [f64; 3] = [2e-4, 2e-3, 1e-2];
/// How many higher prices than the lowest that fits are tried.
const MORE: usize = 3;
/// How often a choice is made anew because a value was not there in time.
const BANS: usize = 24;

/// The fastest program that fits, else the smallest; `None` where the program fits as it is or nothing makes it smaller.
pub(super) fn search(module: &Module, cx: &PassCx, search: Search) -> Option<Trial> {
    let before = measure(module.clone(), Done::default(), cx);
    if before.device <= cx.memory.get() {
        return None;
    }
    let mut best: Option<Trial> = None;
    // What costs nothing goes first.
    let mut base = module.clone();
    let (mut early, mut sliced) = (0, 0);
    if search.fuse {
        early = reschedule(&mut base);
        sliced = slice_invariants(&mut base);
        if !is_well_formed(&base) {
            (base, early, sliced) = (module.clone(), 0, 0);
        }
    }
    let original = module;
    let module = &base;
    let mut ways = vec![State::default()];
    if search.updates {
        ways.push(State { sink: true, ..State::default() });
        ways.extend(streaming(module, cx));
    }
    let mut prepared = recompute_stack::prepare(module, &cx.machine);
    let mut links = vec![None];
    if search.stacks.offload && !prepared.is_empty() {
        links.extend(LINK_PRICES.map(Some));
    }
    // The least bytes without state in host memory; how many sets of such states made the program fit.
    let (mut lowest, mut enough) = (before.device, 0);
    let most = ways.iter().map(|s| s.bytes).max().unwrap_or(0);
    for state in &ways {
        let too_few = lowest.saturating_sub(state.bytes) > cx.memory.get() && state.bytes < most;
        if !state.host.is_empty() && (too_few || enough == ENOUGH) {
            continue;
        }
        for sink_all in [false, true] {
            if sink_all && !search.fuse {
                continue;
            }
            let mut tried = Tried {
                original,
                base: module,
                free: (early, sliced),
                state,
                link: None,
                sink_all,
                search,
                cx,
                seen: FxHashMap::default(),
            };
            let mut fits = false;
            for &link in &links {
                tried.link = link;
                fits |= tried.bisect(&mut prepared, &mut best);
            }
            if state.host.is_empty() {
                lowest = tried.seen.values().copied().fold(lowest, u64::min);
            }
            if fits {
                enough += usize::from(!state.host.is_empty());
                break;
            }
        }
    }
    best.filter(|b| b.device < before.device)
}

struct Tried<'a> {
    original: &'a Module,
    base: &'a Module,
    /// What was done in `base` already.
    free: (usize, usize),
    state: &'a State,
    link: Option<f64>,
    sink_all: bool,
    search: Search,
    cx: &'a PassCx,
    seen: FxHashMap<Vec<(usize, super::recompute_stack::Choice)>, u64>,
}

impl Tried<'_> {
    /// The lowest price at which the program fits, by bisection; every program on the way competes. Whether one fits.
    fn bisect(&mut self, prepared: &mut [Prepared], best: &mut Option<Trial>) -> bool {
        let (mut low, mut high) = (0, PRICES);
        if self.attempt(prepared, high, best).is_none_or(|device| device > self.cx.memory.get()) {
            return false;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            let fits = self.attempt(prepared, middle, best).is_some_and(|device| device <= self.cx.memory.get());
            if fits { high = middle } else { low = middle + 1 }
        }
        // What is smaller may be faster too.
        for more in 1..=MORE {
            self.attempt(prepared, (low + more).min(PRICES), best);
        }
        true
    }

    /// Tries one price; returns the program's device bytes.
    fn attempt(&mut self, prepared: &mut [Prepared], price: usize, best: &mut Option<Trial>) -> Option<u64> {
        let price = LOWEST_PRICE * f64::from(1u32 << price);
        for _ in 0..BANS {
            let choices = recompute_stack::choices(prepared, &self.cx.machine, (price, self.link), self.search.stacks);
            if let Some(&device) = self.seen.get(&choices) {
                return Some(device);
            }
            let Some((rewritten, stacks)) = recompute_stack::carry_out(self.base, prepared, &choices) else { continue };
            let done = Done { stacks, early: self.free.0, sliced: self.free.1, ..Done::default() };
            let trials = self.finish(rewritten, done);
            let device = trials.iter().map(|t| t.device).min()?;
            self.seen.insert(choices, device);
            for trial in trials {
                if best.as_ref().is_none_or(|b| better(&trial, b, self.cx)) && is_well_formed(&trial.module) {
                    *best = Some(trial);
                }
            }
            return Some(device);
        }
        None
    }

    /// The rewritten program, and the same with its transfers of rows at better times.
    fn finish(&self, mut module: Module, mut done: Done) -> Vec<Trial> {
        // After the stacks: what is made again in the loop reads weights, and must read them before their update.
        if self.state.sink {
            done.updates = sink_hosted(&mut module, &self.state.host);
        }
        if !self.state.host.is_empty() {
            host_in_entry(&mut module, &self.state.host);
            done.states = moved(self.original, &module);
        }
        if self.search.fuse {
            done.invariants = sink_invariants(&mut module, !self.sink_all);
            done.fused = fuse_again(&mut module);
        }
        let mut trials = Vec::new();
        if !self.state.host.is_empty() || done.stacks.host > 0 {
            let mut pipelined = module.clone();
            let across = pipeline_rows(&mut pipelined, &self.cx.machine);
            if across > 0 {
                trials.push(measure(pipelined, Done { across, ..done.clone() }, self.cx));
            }
        }
        trials.push(measure(module, done, self.cx));
        trials
    }
}

fn fits(device: u64, host: u64, cx: &PassCx) -> bool {
    device <= cx.memory.get() && host <= cx.host_memory.get()
}

/// Whether a trial is to be preferred: what fits goes before what does not, then the faster, then the smaller.
fn better(trial: &Trial, than: &Trial, cx: &PassCx) -> bool {
    let key = |t: &Trial| {
        let fits = fits(t.device, t.host, cx);
        (
            t.host > cx.host_memory.get(),
            !fits,
            fits && t.xla_acts,
            if fits { t.step } else { t.device },
            if fits { t.device } else { t.step },
        )
    };
    key(trial) < key(than)
}

fn is_well_formed(module: &Module) -> bool {
    !crate::verify::verify(module).iter().any(crate::diag::Diagnostic::is_error)
}

fn measure(module: Module, done: Done, cx: &PassCx) -> Trial {
    let memory = *Analyses::new(&module).memory();
    let (device, host) = (memory.device_bytes(), memory.host_bytes());
    let step = simulate(&module, &cx.machine, &Prices::new(&module, &cx.machine)).step.0;
    let xla_acts = fits(device, host, cx) && cx.xla_memory.is_some_and(|m| !RematTracker::of(&module).left_alone(m.get()));
    Trial { module, done, device, host, step, xla_acts }
}
