//! Replays a solution, step by step, value by value: quadratic, and too simple to be wrong.
//!
//! What is made again before a step is made in the order of the choices. A value takes memory from its making to the last that reads it
//! before the gap that follows: while something is made, what is read by it or later, what is made by it, and what stays after the step.

use std::fmt;

use super::{How, Instant, Problem, Solution, ValueIndex};
use crate::units::{Bytes, Nanos};

/// What a valid solution takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The most device memory at any step.
    pub device_peak: Bytes,
    /// Host memory, if no host buffer is ever used twice.
    pub host: Bytes,
    /// Time of what is made again.
    pub recompute: Nanos,
}

/// Why a solution is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant prints as a sentence")]
pub enum Violation {
    Absent { value: String, at: Instant },
    Overwritten { value: String, at: Instant },
    NoRecipe { value: String },
    NotMovable { value: String },
    NotSent { value: String, at: Instant },
    Order { value: String, at: Instant },
    DeviceMemory { at: Instant, used: Bytes, allowed: Bytes },
    HostMemory { used: Bytes, allowed: Bytes },
    TotalMemory { at: Instant, used: Bytes, allowed: Bytes },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { value, at } => write!(f, "`{value}` is read at step {at}, where it is not in device memory"),
            Self::Overwritten { value, at } => write!(f, "`{value}` is read at step {at}, after it was overwritten in place"),
            Self::NoRecipe { value } => write!(f, "`{value}` is made again, but nothing says how"),
            Self::NotMovable { value } => write!(f, "`{value}` leaves device memory, but may not"),
            Self::NotSent { value, at } => write!(f, "`{value}` is fetched from the host at step {at}, but was not sent there before"),
            Self::Order { value, at } => write!(f, "the choice for `{value}` at step {at} is out of order"),
            Self::DeviceMemory { at, used, allowed } => write!(f, "step {at} takes {used} of device memory, {allowed} are allowed"),
            Self::TotalMemory { at, used, allowed } => {
                write!(f, "step {at} takes {used} of device and host memory together, {allowed} are allowed")
            }
            Self::HostMemory { used, allowed } => write!(f, "{used} of host memory are taken, {allowed} are allowed"),
        }
    }
}

/// Replays `solution`. Time in the transfers is not judged here; that is the simulator's.
///
/// # Errors
/// The first violation found.
pub fn check(problem: &Problem, solution: &Solution) -> Result<Checked, Violation> {
    let name = |v: ValueIndex| problem.values[v as usize].name.clone();
    let mut recompute = Nanos::ZERO;
    let mut host = Bytes::ZERO;
    let mut extra: Vec<(ValueIndex, Instant)> = Vec::new();
    let mut transient = vec![Bytes::ZERO; problem.steps.len()];
    for (place, choice) in solution.choices.iter().enumerate() {
        let value = &problem.values[choice.value as usize];
        if !value.movable {
            return Err(Violation::NotMovable { value: name(choice.value) });
        }
        let order = || Violation::Order { value: name(choice.value), at: choice.needed_at };
        if choice.after < value.born || choice.after >= choice.needed_at {
            return Err(order());
        }
        match &choice.how {
            How::Host { sent: Some(sent), fetch } => {
                if sent.start <= value.born
                    || sent.done < sent.start
                    || sent.done <= choice.after
                    || *fetch < sent.done
                    || *fetch > choice.needed_at
                {
                    return Err(order());
                }
                host += value.bytes;
            }
            How::Host { sent: None, fetch } => {
                let sent_before = solution
                    .choices
                    .iter()
                    .any(|other| other.value == choice.value && matches!(other.how, How::Host { sent: Some(s), .. } if s.done <= *fetch));
                if !sent_before {
                    return Err(Violation::NotSent { value: name(choice.value), at: *fetch });
                }
            }
            How::Recomputed { chain } => {
                if chain.last() != Some(&choice.value) {
                    return Err(order());
                }
                for (n, &made) in chain.iter().enumerate() {
                    let recipe = problem.values[made as usize].recipe.as_ref().ok_or_else(|| Violation::NoRecipe { value: name(made) })?;
                    if choice.needed_at > recipe.valid_to {
                        return Err(Violation::Overwritten { value: name(made), at: choice.needed_at });
                    }
                    let later = |input: &ValueIndex| {
                        let same = |c: &super::Choice| c.value == *input && c.needed_at == choice.needed_at;
                        !chain[..n].contains(input) && solution.choices[place + 1..].iter().any(same)
                    };
                    if recipe.inputs.iter().any(later) {
                        return Err(order());
                    }
                    recompute += recipe.time;
                    extra.extend(recipe.inputs.iter().filter(|input| !chain[..n].contains(input)).map(|&input| (input, choice.needed_at)));
                    if made != choice.value {
                        transient[choice.needed_at as usize] += problem.values[made as usize].bytes;
                    }
                }
            }
        }
    }
    let mut alive = vec![(0, 0); problem.values.len()];
    for (v, value) in problem.values.iter().enumerate() {
        let v = number(v);
        let mut uses = value.uses.clone();
        uses.extend(extra.iter().filter(|e| e.0 == v).map(|e| e.1));
        for &at in &uses {
            if absent(problem, solution, v, at) {
                return Err(Violation::Absent { value: name(v), at });
            }
            if at > value.valid_to {
                return Err(Violation::Overwritten { value: name(v), at });
            }
        }
        alive[v as usize] = (value.born, uses.iter().copied().max().unwrap_or(value.born).max(value.born));
    }
    let replay = Replay { problem, solution, alive };
    let used: Vec<Bytes> = (0..problem.steps.len()).map(|at| replay.step(number(at), transient[at])).collect();
    let mut device_peak = Bytes::ZERO;
    for (at, &used) in used.iter().enumerate() {
        if used > problem.device_memory {
            return Err(Violation::DeviceMemory { at: number(at), used, allowed: problem.device_memory });
        }
        device_peak = device_peak.max(used);
    }
    // A value is on the host from its first copy out until its last copy back is there.
    for (at, &used) in (0..).zip(&used) {
        let hosted = |v: ValueIndex| {
            let of_value = || solution.choices.iter().filter(|c| c.value == v);
            let from = of_value().filter_map(|c| match c.how {
                How::Host { sent: Some(sent), .. } => Some(problem.steps[sent.start as usize].enter),
                _ => None,
            });
            let to = of_value().filter(|c| matches!(c.how, How::Host { .. })).map(|c| c.needed_at).max();
            from.min().is_some_and(|from| from <= at) && to.is_some_and(|to| at <= to)
        };
        let on_host: Bytes =
            (0..).zip(&problem.values).filter(|(v, _)| problem.total_memory < Bytes::MAX && hosted(*v)).map(|(_, value)| value.bytes).sum();
        if used + on_host > problem.total_memory {
            return Err(Violation::TotalMemory { at, used: used + on_host, allowed: problem.total_memory });
        }
    }
    if host > problem.host_memory {
        return Err(Violation::HostMemory { used: host, allowed: problem.host_memory });
    }
    Ok(Checked { device_peak, host, recompute })
}

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("steps and values are numbered by u32")
}

fn absent(problem: &Problem, solution: &Solution, v: ValueIndex, at: Instant) -> bool {
    solution.choices.iter().any(|c| {
        let (from, to) = c.absent(problem);
        c.value == v && (from..to).contains(&at)
    })
}

struct Replay<'a> {
    problem: &'a Problem,
    solution: &'a Solution,
    /// The first and last step of each value.
    alive: Vec<(Instant, Instant)>,
}

impl Replay<'_> {
    /// Whether a value is in device memory at some time of a step.
    fn there(&self, v: ValueIndex, at: Instant) -> bool {
        let (first, last) = self.alive[v as usize];
        (first..=last).contains(&at) && !absent(self.problem, self.solution, v, at)
    }

    /// The most that a step takes, with all that is made again before it.
    fn step(&self, at: Instant, transient: Bytes) -> Bytes {
        let problem = self.problem;
        let size = |v: &ValueIndex| problem.values[*v as usize].bytes;
        let there: Vec<ValueIndex> = (0..number(problem.values.len())).filter(|&v| self.there(v, at)).collect();
        let fixed = problem.steps[at as usize].fixed;
        let all = fixed + transient + there.iter().map(size).sum();
        // One after the other, each value alone: then what is done with earlier is gone later.
        let makings: Vec<(ValueIndex, &[ValueIndex])> = self
            .solution
            .choices
            .iter()
            .filter(|c| problem.steps[c.needed_at as usize].enter == at)
            .filter_map(|c| match &c.how {
                How::Recomputed { chain } => Some((c.value, chain.as_slice())),
                How::Host { .. } => None,
            })
            .collect();
        let simple = |m: &(ValueIndex, &[ValueIndex])| {
            m.1.len() == 1 && problem.values[m.0 as usize].uses.iter().all(|&u| problem.steps[u as usize].enter == u)
        };
        if makings.is_empty() || problem.steps[at as usize].enter != at || !makings.iter().all(simple) {
            return all;
        }
        let reads = |v: ValueIndex, made: ValueIndex| problem.values[made as usize].recipe.as_ref().is_some_and(|r| r.inputs.contains(&v));
        let anew = |v: ValueIndex| {
            let made = |c: &super::Choice| c.value == v && matches!(c.how, How::Recomputed { .. });
            self.solution.choices.iter().any(|c| made(c) && problem.steps[c.needed_at as usize].enter == at + 1)
        };
        let stays = |v: ValueIndex| self.there(v, at + 1) && !anew(v);
        let read_by_step = |v: ValueIndex| problem.values[v as usize].uses.contains(&at);
        let mut most = Bytes::ZERO;
        for n in 0..makings.len() {
            let held = |v: &ValueIndex| {
                let value = &problem.values[*v as usize];
                let later = || stays(*v) || read_by_step(*v) || makings[n..].iter().any(|m| reads(*v, m.0));
                match makings.iter().position(|m| m.0 == *v) {
                    // What is made again now or was before.
                    Some(made) => made == n || (made < n && later()),
                    None => value.born < at && later(),
                }
            };
            most = most.max(fixed + there.iter().filter(|v| held(v)).map(size).sum());
        }
        let with_step = |v: &ValueIndex| problem.values[*v as usize].born == at || stays(*v) || read_by_step(*v);
        most.max(fixed + there.iter().filter(|v| with_step(v)).map(size).sum())
    }
}
