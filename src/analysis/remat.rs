//! What XLA's own rematerialization would count: a module that stays below its limit is left alone.
//!
//! Source: `HloRematerialization` (`hlo/transforms/simplifiers/hlo_rematerialization.cc`) and its use on GPU (`gpu_hlo_schedule.cc`, `gpu_compiler.cc`).
//! The pass walks each computation by itself and sums the sizes of live buffers: a buffer is counted from its definition until its last
//! reader has run. Parameters and what the computation returns count nothing; **host memory counts like any other** unless XLA's own host offloading is on (seen:
//! `gpt3_tiny_offload` is changed below 3.74 MB of device memory, which only fits with the host's bytes counted), so offloading does not lower this figure; a while takes over the buffers of its operand; tuples,
//! bitcasts, get-tuple-elements, opt-barriers and the dones of asynchronous operations pass buffers on. There is no sharing, no
//! alignment, no in-place update: a dynamic-update-slice counts its whole result again. What runs inside a call, conditional, while or
//! async-start counts with its own peak at that instruction, condition and body of a while together.
//!
//! Cost: O(positions + operands).

use std::collections::BTreeSet;

use super::Analyses;
use super::layouts::Positions;
use super::settle::settle_collectives;
use crate::ir::{CollectiveKind, CompId, EntityMap, InstrId, Module, Op, Shape};

/// Share of the device's memory that XLA plans with, in percent.
const BASE_PERCENT: u64 = 80;
/// `xla_gpu_memory_limit_slop_factor`.
const SLOP_PERCENT: u64 = 95;

/// The tracker's view of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RematTracker {
    /// The most that the tracker counts anywhere in the entry computation, callees included.
    pub peak: u64,
    /// The instruction at which it does; `None` for an empty program.
    pub at: Option<InstrId>,
    /// Bytes of parameters and results on the device, a donated parameter once.
    pub pinned: u64,
}

impl RematTracker {
    /// Walks all computations that run on the clock, once collectives that overlap nothing are synchronous.
    pub fn of(module: &Module) -> Self {
        match settle_collectives(module) {
            Some(settled) => Self::of_settled(&Analyses::new(&settled)),
            None => Self::of_settled(&Analyses::new(module)),
        }
    }

    fn of_settled(analyses: &Analyses<'_>) -> Self {
        let module = analyses.module();
        let positions = &analyses.values().positions;
        let mut peaks = EntityMap::<CompId, u64>::with_default(0);
        let mut at = None;
        for &comp in analyses.schedule().computations() {
            let (peak, instr) = walk(analyses, positions, comp, &peaks);
            peaks[comp] = peak;
            at = instr;
        }
        let memory = analyses.memory();
        Self { peak: peaks[module.entry_id()], at, pinned: (memory.argument + memory.output).saturating_sub(memory.alias) }
    }

    /// The tracker value that XLA allows on a device of that much memory.
    pub fn limit(&self, device_memory: u64) -> u64 {
        let base = u128::from(device_memory) * u128::from(BASE_PERCENT) / 100;
        let rest = base.saturating_sub(u128::from(self.pinned));
        u64::try_from(rest * u128::from(SLOP_PERCENT) / 100).unwrap_or(u64::MAX)
    }
    /// Whether XLA leaves the module alone on a device of that much memory.
    pub fn left_alone(&self, device_memory: u64) -> bool {
        self.peak <= self.limit(device_memory)
    }
    /// The least device memory on which XLA leaves the module alone.
    pub fn memory_needed(&self) -> u64 {
        let rest = (u128::from(self.peak) * 100).div_ceil(u128::from(SLOP_PERCENT));
        let all = ((rest + u128::from(self.pinned)) * 100).div_ceil(u128::from(BASE_PERCENT));
        u64::try_from(all).unwrap_or(u64::MAX)
    }
    /// The least `xla_gpu_memory_limit_slop_factor` (95 where nobody sets it) with which XLA leaves the module alone on a device of that much
    /// memory; `None` where parameters and results leave nothing to multiply.
    pub fn slop_needed(&self, device_memory: u64) -> Option<u64> {
        let base = u128::from(device_memory) * u128::from(BASE_PERCENT) / 100;
        let rest = base.checked_sub(u128::from(self.pinned)).filter(|&rest| rest > 0)?;
        u64::try_from((u128::from(self.peak) * 100).div_ceil(rest)).ok()
    }
}

/// A buffer of one computation.
struct Tracked {
    bytes: u64,
    readers: u32,
    live_out: bool,
}

/// The most that is live in a computation, and where.
fn walk(analyses: &Analyses<'_>, positions: &Positions, comp: CompId, peaks: &EntityMap<CompId, u64>) -> (u64, Option<InstrId>) {
    let module = analyses.module();
    let order = &module.comp(comp).order;
    let mut buffers: Vec<Tracked> = Vec::new();
    // The buffers at the positions of each instruction, and which it defines.
    let mut at = EntityMap::<InstrId, Vec<u32>>::with_default(Vec::new());
    let mut defined = EntityMap::<InstrId, Vec<u32>>::with_default(Vec::new());
    for &id in order {
        let instr = module.instr(id);
        let shapes = positions.shapes(module, instr.shape);
        let mut here = Vec::with_capacity(shapes.len());
        for (position, shape) in (0u32..).zip(shapes) {
            let is_tuple = matches!(module.shapes.get(shape), Shape::Tuple(_));
            match passed_on(module, positions, id, position, is_tuple) {
                Some((operand, from)) => here.push(at[operand][from as usize]),
                None => {
                    let bytes = if matches!(instr.op, Op::Parameter { .. }) { 0 } else { module.shapes.byte_size(shape) };
                    let number = u32::try_from(buffers.len()).expect("buffers are numbered by u32");
                    buffers.push(Tracked { bytes, readers: 0, live_out: false });
                    here.push(number);
                    defined[id].push(number);
                }
            }
        }
        at[id] = here;
    }
    for &buffer in &at[module.comp(comp).root] {
        buffers[buffer as usize].live_out = true;
    }
    let mut used = EntityMap::<InstrId, BTreeSet<u32>>::with_default(BTreeSet::new());
    for &id in order {
        for &user in analyses.users().users(id) {
            let top_only = matches!(module.instr(user).op, Op::GetTupleElement { .. });
            let read = if top_only { &at[id][..1] } else { &at[id][..] };
            used[user].extend(read);
        }
    }
    for &id in order {
        for &buffer in &used[id] {
            buffers[buffer as usize].readers += 1;
        }
    }
    let size = |b: &Tracked| if b.live_out { 0 } else { b.bytes };
    let (mut now, mut peak, mut place) = (0u64, 0u64, None);
    for &id in order {
        now += defined[id].iter().map(|&b| size(&buffers[b as usize])).sum::<u64>();
        let op = &module.instr(id).op;
        let inside: u64 = match op {
            Op::Call { .. } | Op::Conditional { .. } | Op::While { .. } | Op::AsyncStart(_) => op.called().iter().map(|&c| peaks[c]).sum(),
            _ => 0,
        };
        if place.is_none() || now + inside > peak {
            (peak, place) = (now + inside, Some(id));
        }
        for &buffer in &used[id] {
            let buffer = &mut buffers[buffer as usize];
            buffer.readers -= 1;
            if buffer.readers == 0 {
                now -= size(buffer);
            }
        }
        // What nobody reads goes at once.
        for &buffer in &defined[id] {
            let buffer = &buffers[buffer as usize];
            if buffer.readers == 0 {
                now -= size(buffer);
            }
        }
    }
    (peak, place)
}

/// The operand and the position in it that an instruction passes on at a position; `None` where it defines a buffer.
fn passed_on(module: &Module, positions: &Positions, id: InstrId, position: u32, is_tuple: bool) -> Option<(InstrId, u32)> {
    let instr = module.instr(id);
    let operand = |n: usize| instr.operands.get(n).copied();
    let part = |n: usize| Some((operand(0)?, positions.part(module.instr(operand(0)?).shape, n)));
    let inside = if position == 0 { None } else { Some(positions.element(module, instr.shape, position)) };
    match (&instr.op, inside) {
        (Op::Bitcast | Op::AddDependency | Op::Domain(_) | Op::OptBarrier | Op::While { .. }, _) => Some((operand(0)?, position)),
        (Op::CollectiveDone(CollectiveKind::AllReduce), _) | (Op::Copy, Some(_)) => Some((operand(0)?, position)),
        (Op::GetTupleElement { index }, _) => {
            let (from, start) = part(usize::try_from(*index).ok()?)?;
            Some((from, start + position))
        }
        (Op::Tuple, Some((n, at))) => Some((operand(n)?, at)),
        (Op::CopyStart { .. }, Some((1, at))) => Some((operand(0)?, at)),
        (Op::CopyDone, _) => {
            let (from, start) = part(0)?;
            Some((from, start + position))
        }
        (Op::CollectiveDone(_) | Op::AsyncDone(_), _) => {
            let (from, start) = part(1)?;
            Some((from, start + position))
        }
        (Op::AsyncStart(_), Some((0, at))) if !is_tuple => {
            let operands = module.shapes.elements(instr.shape)[0];
            let (n, at) = positions.element(module, operands, at);
            Some((operand(n)?, at))
        }
        (Op::AsyncUpdate(_), _) if !is_tuple => Some((operand(0)?, position)),
        (Op::Send(_), Some((0, at))) => Some((operand(0)?, at)),
        _ => None,
    }
}
