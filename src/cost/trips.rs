//! How often loops run.
//!
//! XLA writes `known_trip_count` where it knows. Else the condition is read: it must depend on one counter that starts at a constant and takes
//! equal steps; what else it reads must pass through the loop unchanged from a constant. Conditions on data stay unknown: one iteration is
//! assumed, and said so.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{CompId, InstrId, Module, Op};

use super::backend::Config;
use super::scalar::{Known, value};

/// How often the body of a loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TripCount {
    /// The number.
    pub count: u64,
    /// How it is known.
    pub source: TripSource,
}

/// How a trip count is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TripSource {
    /// XLA wrote it down.
    Known,
    /// It follows from the condition.
    Derived,
    /// Nothing is known: one is assumed.
    Assumed,
}

/// How often the body of a `while` runs; one, with [`TripSource::Assumed`], where nobody can tell.
pub fn trips(module: &Module, id: InstrId) -> TripCount {
    if let Some(count) = Config::of(module.instr(id)).known_trips() {
        return TripCount { count, source: TripSource::Known };
    }
    match derive(module, id) {
        Some(count) => TripCount { count, source: TripSource::Derived },
        None => TripCount { count: 1, source: TripSource::Assumed },
    }
}

/// How often the body of a `while` runs, where that is known.
pub fn trip_count(module: &Module, id: InstrId) -> Option<u64> {
    if !matches!(module.instr(id).op, Op::While { .. }) {
        return None;
    }
    Some(trips(module, id)).filter(|t| t.source != TripSource::Assumed).map(|t| t.count)
}

/// Iterations that are counted one by one; beyond, the condition is taken to be monotone.
const COUNTED: u64 = 4096;
/// Loops do not run oftener.
const MOST: u64 = 1 << 40;

fn derive(module: &Module, id: InstrId) -> Option<u64> {
    let Op::While { condition, body } = module.instr(id).op else { return None };
    let init = *module.instr(id).operands.first()?;
    let nothing = FxHashMap::default();
    let before = Known { parts: &nothing };
    let mut parts = FxHashMap::default();
    let mut counters = Vec::new();
    for part in parts_read(module, condition) {
        let Some(start) = value(module, init, Some(part), before) else { continue };
        parts.insert(part, start);
        if !passes_through(module, body, part) {
            counters.push((part, start));
        }
    }
    let &[(counter, start)] = counters.as_slice() else { return None };
    let mut next = |at: i64| {
        parts.insert(counter, at);
        value(module, module.comp(body).root, Some(counter), Known { parts: &parts })
    };
    let step = next(start)?.checked_sub(start)?;
    if step == 0 || next(start.checked_add(step)?)? != start.checked_add(step.checked_mul(2)?)? {
        return None;
    }
    let far = start.checked_add(step.checked_mul(1000)?)?;
    if next(far)? != far.checked_add(step)? {
        return None;
    }
    let mut goes_on = |k: u64| {
        let at = i64::try_from(k).ok()?.checked_mul(step)?.checked_add(start)?;
        parts.insert(counter, at);
        Some(value(module, module.comp(condition).root, None, Known { parts: &parts })? != 0)
    };
    for k in 0..COUNTED {
        if !goes_on(k)? {
            return Some(k);
        }
    }
    let (mut low, mut high) = (COUNTED - 1, COUNTED);
    while goes_on(high)? {
        (low, high) = (high, high * 2);
        if high > MOST {
            return None;
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if goes_on(middle)? { low = middle } else { high = middle }
    }
    Some(high)
}

/// The parts of its parameter that a condition takes apart, in order.
fn parts_read(module: &Module, condition: CompId) -> Vec<i64> {
    let mut seen = FxHashSet::default();
    let computation = module.comp(condition);
    let of_parameter = |&id: &InstrId| match &module.instr(id).op {
        Op::GetTupleElement { index } if module.instr(id).operands.first().is_some_and(|o| computation.parameters.contains(o)) => {
            Some(*index)
        }
        _ => None,
    };
    computation.order.iter().filter_map(of_parameter).filter(|&part| seen.insert(part)).collect()
}

/// Whether a body hands a part of its parameter on unchanged.
fn passes_through(module: &Module, body: CompId, part: i64) -> bool {
    let root = module.instr(module.comp(body).root);
    let Some(&handed) = usize::try_from(part).ok().and_then(|n| root.operands.get(n)) else { return false };
    let handed = module.instr(handed);
    matches!(root.op, Op::Tuple)
        && matches!(handed.op, Op::GetTupleElement { index } if index == part)
        && handed.operands.first().is_some_and(|o| module.comp(body).parameters.contains(o))
}
