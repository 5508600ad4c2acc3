//! From a program to the planning problem, and from a solution back to a plan.
//!
//! A buffer with one value that is neither parameter, result, constant nor part of a carried tuple becomes a value of the problem. All
//! else that lies in device memory is fixed. Recipes exist for pure operations only ([`super::pure`]).

use crate::analysis::{Analyses, BufferKind, Time};
use crate::cost::{Prices, roofline, trip_count};
use crate::entity::ValueId;
use crate::ir::{CompId, DEVICE, EntityMap, Fusion, InstrId, Module, Op};
use crate::machine::Machine;
use crate::problem::{Choice, How, Link, Links, Problem, Recipe, Solution, Step, Value, ValueIndex};
use crate::units::{Bytes, Nanos};

use super::decision::{Decision, PLAN_VERSION, Plan, Residence, Send, ValueName};
use super::pure::is_pure;

/// Alignment of device buffers.
const ALIGNMENT: u64 = 256;
/// Values below this share of the heap's peak are not worth a copy or a kernel.
const SMALLEST_SHARE: u64 = 1 << 15;

/// A problem and what its numbers mean.
#[derive(Clone, Debug)]
pub struct Model {
    /// The problem.
    pub problem: Problem,
    /// The instruction and the element of its tuple, for each value of the problem.
    names: Vec<(InstrId, Option<u32>)>,
    sequence: Vec<InstrId>,
    homes: Vec<CompId>,
}

/// Reads the problem off a program. `heap` is the device memory for what no choice can pin: the budget less parameters and results.
pub fn model(analyses: &Analyses<'_>, machine: &Machine, prices: &Prices, heap: Bytes, host: Bytes) -> Model {
    let module = analyses.module();
    let schedule = analyses.schedule();
    let runs = runs(analyses);
    let mut steps = Vec::with_capacity(schedule.sequence.len());
    let mut homes = Vec::with_capacity(schedule.sequence.len());
    let mut frames = EntityMap::<CompId, u32>::with_default(0);
    for (frame, &comp) in (0u32..).zip(schedule.computations()) {
        frames[comp] = frame;
    }
    for (at, &id) in (0..).zip(&schedule.sequence) {
        let home = analyses.users().home(id).expect("an instruction on the clock stands in a computation");
        let inside = module.instr(id).op.called().into_iter().filter_map(|c| schedule.span(c)).map(|s| s.0);
        let enter = if runs_inside(&module.instr(id).op) { inside.min().map_or(at, |first| first.min(at)) } else { at };
        steps.push(Step { time: prices.time(id) * runs[home], runs: runs[home], fixed: Bytes::ZERO, frame: frames[home], enter });
        homes.push(home);
    }
    let mut builder = Builder { analyses, module, machine, prices, runs: &runs, index: EntityMap::with_default(None) };
    let smallest = Bytes(analyses.curve(DEVICE).heap.iter().copied().max().unwrap_or(0) / SMALLEST_SHARE);
    let mut values = Vec::new();
    let mut names = Vec::new();
    for (_, buffer) in analyses.buffers().iter() {
        if buffer.color != DEVICE || buffer.live_out || buffer.kind != BufferKind::Plain {
            continue;
        }
        let bytes = Bytes(buffer.bytes).align_up(ALIGNMENT);
        let only = match buffer.values.as_slice() {
            &[value] if bytes >= smallest => builder.value(value, bytes),
            _ => None,
        };
        match only {
            Some((value, name)) => {
                builder.index[buffer.values[0]] = Some(ValueIndex::try_from(values.len()).expect("values are numbered by u32"));
                values.push(value);
                names.push(name);
            }
            None => {
                for step in &mut steps[buffer.live.0 as usize..=(buffer.live.1 as usize).min(homes.len() - 1)] {
                    step.fixed += bytes;
                }
            }
        }
    }
    for (value, &name) in values.iter_mut().zip(&names) {
        // What an async computation makes is born at its start, in another computation than its maker.
        if schedule.time(name.0) == Some(value.born) {
            value.recipe = builder.recipe(name);
        }
    }
    let link = |rate| Link { rate, latency: machine.copy_latency };
    let links = Links { out: link(machine.to_host_rate()), back: link(machine.from_host_rate()) };
    let problem = Problem { steps, values, links, device_memory: heap, host_memory: host, total_memory: Bytes::MAX };
    Model { problem, names, sequence: schedule.sequence.clone(), homes }
}

/// Whether what an instruction calls runs on the clock, just before it.
fn runs_inside(op: &Op) -> bool {
    matches!(op, Op::While { .. } | Op::Call { .. } | Op::Conditional { .. } | Op::AsyncStart(_))
}

/// How often each computation runs in one run of the program.
fn runs(analyses: &Analyses<'_>) -> EntityMap<CompId, u64> {
    let module = analyses.module();
    let mut runs = EntityMap::with_default(1u64);
    // Callers stand after their callees, so the reverse visits callers first.
    for &comp in analyses.schedule().computations().iter().rev() {
        for &id in &module.comp(comp).order {
            let op = &module.instr(id).op;
            if runs_inside(op) {
                let trips = trip_count(module, id).unwrap_or(1);
                for callee in op.called() {
                    runs[callee] = runs[comp].saturating_mul(trips);
                }
            }
        }
    }
    runs
}

struct Builder<'a, 'm> {
    analyses: &'a Analyses<'m>,
    module: &'m Module,
    machine: &'a Machine,
    prices: &'a Prices,
    runs: &'a EntityMap<CompId, u64>,
    index: EntityMap<ValueId, Option<ValueIndex>>,
}

impl Builder<'_, '_> {
    /// The value of a buffer of its own, with its uses; not movable where something takes hold of it.
    fn value(&self, id: ValueId, bytes: Bytes) -> Option<(Value, (InstrId, Option<u32>))> {
        let schedule = self.analyses.schedule();
        let definition = self.analyses.values().get(id);
        let instr = self.module.instr(definition.instr);
        let output = match self.analyses.values().path(self.module, id).as_slice() {
            [] => None,
            &[n] => Some(u32::try_from(n).ok()?),
            _ => return None,
        };
        let range = self.analyses.buffers().range(id);
        let uses = if makes_own_buffer(&instr.op) { self.uses(definition.instr, output) } else { None };
        let born = schedule.time(definition.instr)?;
        let movable = uses.is_some() && range.start == born;
        let uses = uses.unwrap_or_else(|| if range.end > range.start { vec![range.end] } else { Vec::new() });
        let name = instr.name.to_string() + &output.map_or_else(String::new, |n| format!("{{{n}}}"));
        let value = Value { name, bytes, born: range.start, uses, valid_to: Time::MAX, movable, recipe: None };
        Some((value, (definition.instr, output)))
    }

    /// The readers of a value through its views, ascending; `None` if something holds it that no later copy could replace.
    fn uses(&self, instr: InstrId, output: Option<u32>) -> Option<Vec<Time>> {
        let users = self.analyses.users();
        let home = users.home(instr)?;
        let mut uses = Vec::new();
        let mut views = vec![instr];
        while let Some(view) = views.pop() {
            if self.module.comp(home).root == view {
                return None;
            }
            for &user in users.users(view) {
                match &self.module.instr(user).op {
                    Op::GetTupleElement { index } if view == instr && output.is_some() => {
                        if output.map(i64::from) == Some(*index) {
                            views.push(user);
                        }
                    }
                    Op::Bitcast => views.push(user),
                    op if holds(op) => return None,
                    _ if view == instr && output.is_some() => return None,
                    _ => uses.push(self.analyses.schedule().time(user)?),
                }
            }
        }
        uses.sort_unstable();
        uses.dedup();
        Some(uses)
    }

    /// How to make a value again, if what makes it is pure.
    fn recipe(&self, (id, output): (InstrId, Option<u32>)) -> Option<Recipe> {
        let module = self.module;
        if !is_pure(module, id) {
            return None;
        }
        let home = self.analyses.users().home(id)?;
        let single = match (&module.instr(id).op, output) {
            (Op::Fusion(fusion), Some(n)) => Some(one_output(module, fusion, n)?),
            (_, Some(_)) => return None,
            (_, None) => None,
        };
        let time = match &single {
            Some((work, _)) => roofline::time_of(*work, roofline::math_type(module, id), self.machine),
            None => self.prices.time(id),
        };
        let operands =
            module.instr(id).operands.iter().enumerate().filter(|(n, _)| single.as_ref().is_none_or(|(_, read)| read.contains(n)));
        let mut recipe = Recipe { time: time.max(Nanos(1)) * self.runs[home], inputs: Vec::new(), valid_to: Time::MAX };
        for (_, &operand) in operands {
            if !module.shapes.elements(module.instr(operand).shape).is_empty() {
                return None;
            }
            let value = self.analyses.values().at(operand, 0)?;
            match self.index[value] {
                Some(input) => recipe.inputs.push(input),
                None => recipe.valid_to = recipe.valid_to.min(self.readable_to(value)?),
            }
        }
        recipe.inputs.sort_unstable();
        recipe.inputs.dedup();
        Some(recipe)
    }

    /// The last step before which a value of a fixed buffer can still be read: its buffer is there and not overwritten in place.
    fn readable_to(&self, value: ValueId) -> Option<Time> {
        let buffers = self.analyses.buffers();
        let buffer = buffers.get(buffers.of_value(value));
        if buffer.color != DEVICE {
            return None;
        }
        let start = buffers.range(value).start;
        let others = buffer.values.iter().filter(|&&v| v != value).map(|&v| buffers.range(v).start).filter(|&s| s >= start);
        let overwritten = others.min().unwrap_or(Time::MAX);
        let end = match buffer.kind {
            BufferKind::Constant | BufferKind::Parameter { .. } => Time::MAX,
            BufferKind::Tuple | BufferKind::Plain => buffer.live.1,
        };
        Some(overwritten.min(end))
    }
}

/// The work of one output of a multi-output fusion made alone, and the numbers of the operands it reads.
fn one_output(module: &Module, fusion: &Fusion, output: u32) -> Option<(roofline::Work, Vec<usize>)> {
    roofline::work_of_output(module, fusion.calls, output as usize)
}

/// Whether an instruction makes a buffer that it alone writes.
fn makes_own_buffer(op: &Op) -> bool {
    !matches!(
        op,
        Op::Parameter { .. }
            | Op::Constant(_)
            | Op::Bitcast
            | Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::OptBarrier
            | Op::AfterAll
            | Op::AddDependency
            | Op::Domain(_)
            | Op::While { .. }
            | Op::Conditional { .. }
            | Op::Call { .. }
            | Op::AsyncStart(_)
            | Op::AsyncUpdate(_)
            | Op::AsyncDone(_)
            | Op::CopyStart { .. }
            | Op::CopyDone
            | Op::CollectiveDone(_)
            | Op::Send(_)
            | Op::SendDone(_)
            | Op::Recv(_)
            | Op::RecvDone(_)
            | Op::Infeed { .. }
            | Op::Opaque(_)
    ) && !matches!(op, Op::Collective(c) if c.start)
}

/// Whether a reader keeps hold of its operand after it has run, or passes it on.
fn holds(op: &Op) -> bool {
    matches!(
        op,
        Op::Tuple
            | Op::OptBarrier
            | Op::AddDependency
            | Op::Domain(_)
            | Op::While { .. }
            | Op::Conditional { .. }
            | Op::Call { .. }
            | Op::AsyncStart(_)
            | Op::AsyncUpdate(_)
            | Op::CopyStart { .. }
            | Op::Send(_)
            | Op::Outfeed { .. }
            | Op::Opaque(_)
    ) || matches!(op, Op::Collective(c) if c.start)
}

impl Model {
    /// The instruction at a step.
    pub fn instr_at(&self, at: Time) -> InstrId {
        self.sequence[at as usize]
    }

    /// The plan that a solution means.
    pub fn plan(&self, module: &Module, solution: &Solution) -> Plan {
        let decisions = solution.choices.iter().map(|c| self.decision(module, c)).collect();
        Plan { version: PLAN_VERSION, module: module.name.to_string(), decisions }
    }

    fn decision(&self, module: &Module, choice: &Choice) -> Decision {
        let name = |at: Time| module.instr(self.instr_at(at)).name.to_string();
        let value_name = |v: ValueIndex| {
            let (instr, output) = self.names[v as usize];
            ValueName { instr: module.instr(instr).name.to_string(), output }
        };
        let value = &self.problem.values[choice.value as usize];
        let (instr, _) = self.names[choice.value as usize];
        let gap = choice.needed_at - choice.after;
        let residence = match &choice.how {
            How::Host { sent, fetch } => Residence::Host {
                send: sent.map(|s| Send { start_before: name(s.start), done_before: name(s.done) }),
                fetch_before: name(*fetch),
            },
            How::Recomputed { chain } => Residence::Recomputed { chain: chain.iter().map(|&v| value_name(v)).collect() },
        };
        let what = match &choice.how {
            How::Host { .. } if choice.cost.as_f64() < 0.1 * self.problem.links.back.time(value.bytes, 1).as_f64() => {
                "the link has room to hide it".into()
            }
            How::Host { .. } => format!("waits {} for the link", choice.cost),
            How::Recomputed { chain } if chain.len() == 1 => format!("making it again takes {}", choice.cost),
            How::Recomputed { chain } => format!("making it again takes {} instructions, {}", chain.len(), choice.cost),
        };
        Decision {
            computation: module.comp(self.homes[self.time_of(instr) as usize]).name.to_string(),
            value: value_name(choice.value),
            bytes: module_bytes(module, instr, value_name(choice.value).output),
            needed_by: name(choice.needed_at),
            residence,
            cost_ns: choice.cost.as_f64(),
            reason: format!("not read for {gap} instructions; {what}"),
        }
    }

    fn time_of(&self, instr: InstrId) -> Time {
        let at = self.sequence.iter().position(|&i| i == instr).expect("a value of the problem stands on the clock");
        Time::try_from(at).expect("steps are numbered by u32")
    }
}

fn module_bytes(module: &Module, instr: InstrId, output: Option<u32>) -> u64 {
    let shape = module.instr(instr).shape;
    let shape = output.and_then(|n| module.shapes.elements(shape).get(n as usize).copied()).unwrap_or(shape);
    module.shapes.byte_size(shape)
}
