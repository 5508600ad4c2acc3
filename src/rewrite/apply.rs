//! Plan to program.
//!
//! For each computation that the plan names: every decision makes a *version* of its value, valid from the position of the user that
//! needs it; operands of later instructions are then redirected to the latest version of what they read, through clones of the
//! views (bitcasts, tuple elements) in between. Since every version equals the value, a plan cannot change the meaning of the program, only
//! its memory and time. Costs O(instructions + decisions · log decisions).

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use super::copies::define_copy;
use super::recompute::clone_value;
use super::resolve::{Scope, Value, trace};
use crate::ir::{CompId, DEVICE, HOST, Insertion, InstrId, Module, Op};
use crate::plan::{Decision, PLAN_VERSION, Plan, Residence};

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Copies to the host.
    pub sends: usize,
    /// Copies back.
    pub fetches: usize,
    /// Instructions computed again.
    pub recomputed: usize,
}

/// Why a plan does not fit a module.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant prints as a sentence")]
pub enum ApplyError {
    Version { found: u32 },
    NoSuchComputation { name: String },
    NoSuchInstruction { computation: String, name: String },
    Order { value: String, what: &'static str },
    NotSent { value: String },
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => write!(f, "expected a plan of version {PLAN_VERSION}, found {found}"),
            Self::NoSuchComputation { name } => write!(f, "the plan names computation `{name}`, which the module lacks"),
            Self::NoSuchInstruction { computation, name } => {
                write!(f, "the plan names instruction `{name}`, which computation `{computation}` lacks")
            }
            Self::Order { value, what } => write!(f, "the plan's decision for `{value}` is out of order: {what}"),
            Self::NotSent { value } => write!(f, "the plan fetches `{value}` from the host, but never sent it there"),
        }
    }
}

impl std::error::Error for ApplyError {}

/// Carries out `plan` on `module`. On an error the module may be half changed: apply to a clone where that matters.
///
/// # Errors
/// The plan names what the module lacks, or orders a copy before the value or after its user.
pub fn apply(module: &mut Module, plan: &Plan) -> Result<Applied, ApplyError> {
    if plan.version != PLAN_VERSION {
        return Err(ApplyError::Version { found: plan.version });
    }
    let mut by_comp: Vec<(CompId, Vec<&Decision>)> = Vec::new();
    for decision in &plan.decisions {
        let found = module.listing.iter().copied().find(|&c| *module.comp(c).name == *decision.computation);
        let comp = found.ok_or_else(|| ApplyError::NoSuchComputation { name: decision.computation.clone() })?;
        match by_comp.iter_mut().find(|(c, _)| *c == comp) {
            Some((_, decisions)) => decisions.push(decision),
            None => by_comp.push((comp, vec![decision])),
        }
    }
    let mut taken = module.names();
    let mut applied = Applied::default();
    for (comp, decisions) in by_comp {
        one_computation(module, comp, &decisions, &mut taken, &mut applied)?;
    }
    Ok(applied)
}

/// A copy of a value and where it becomes valid.
struct Version {
    from: usize,
    instr: InstrId,
}

#[derive(Default)]
struct Versions {
    of: FxHashMap<Value, Vec<Version>>,
}

impl Versions {
    /// The latest version of a value at a position.
    fn at(&self, value: Value, position: usize) -> Option<InstrId> {
        let versions = self.of.get(&value)?;
        let after = versions.partition_point(|v| v.from <= position);
        after.checked_sub(1).map(|i| versions[i].instr)
    }
    fn add(&mut self, value: Value, from: usize, instr: InstrId) {
        let versions = self.of.entry(value).or_default();
        let at = versions.partition_point(|v| v.from <= from);
        versions.insert(at, Version { from, instr });
    }
}

/// One decision with its names looked up.
struct Step<'p> {
    decision: &'p Decision,
    value: Value,
    at: usize,
}

fn one_computation(
    module: &mut Module,
    comp: CompId,
    decisions: &[&Decision],
    taken: &mut FxHashSet<Box<str>>,
    applied: &mut Applied,
) -> Result<(), ApplyError> {
    let frozen = module.clone();
    let scope = Scope::new(&frozen, comp);
    let mut steps = Vec::with_capacity(decisions.len());
    for &decision in decisions {
        let (defined, value) = scope.value(&decision.value)?;
        let at = scope.position(&decision.needed_by)?;
        if at <= defined {
            return Err(ApplyError::Order { value: decision.value.instr.clone(), what: "it is needed before it is defined" });
        }
        steps.push(Step { decision, value, at });
    }
    steps.sort_by_key(|s| s.at);
    let mut splice = Splice { comp, inserted: Vec::new(), versions: Versions::default(), views: FxHashMap::default() };
    let mut host = FxHashMap::<Value, (usize, InstrId)>::default();
    for step in &steps {
        match &step.decision.residence {
            Residence::Host { send, fetch_before } => {
                let label = &step.decision.value.instr;
                if let Some(send) = send {
                    let (start, done) = (scope.position(&send.start_before)?, scope.position(&send.done_before)?);
                    let defined = scope.value(&step.decision.value)?.0;
                    if start <= defined || done < start {
                        return Err(ApplyError::Order {
                            value: label.clone(),
                            what: "its copy to the host starts before it is defined or ends before it starts",
                        });
                    }
                    let source = splice.resident(module, step.value, start, taken);
                    let copy = define_copy(module, source, HOST, &format!("{label}.offload"), taken);
                    splice.insert(start, copy.start);
                    splice.insert(done, copy.done);
                    host.insert(step.value, (done, copy.done));
                    applied.sends += 1;
                }
                let &(sent, source) = host.get(&step.value).ok_or_else(|| ApplyError::NotSent { value: label.clone() })?;
                let fetch = scope.position(fetch_before)?;
                if fetch < sent || fetch > step.at {
                    return Err(ApplyError::Order {
                        value: label.clone(),
                        what: "its copy back starts before it was sent or after it is needed",
                    });
                }
                let copy = define_copy(module, source, DEVICE, &format!("{label}.reload"), taken);
                splice.insert(fetch, copy.start);
                splice.insert(step.at, copy.done);
                splice.versions.add(step.value, step.at, copy.done);
                applied.fetches += 1;
            }
            Residence::Recomputed { chain } => {
                let mut local = FxHashMap::default();
                let mut last = None;
                for item in chain {
                    let (defined, value) = scope.value(item)?;
                    if defined >= step.at {
                        return Err(ApplyError::Order { value: item.instr.clone(), what: "it is computed again before it was defined" });
                    }
                    let made = clone_value(module, value, taken);
                    splice.redirect(module, made[0], step.at, &local, taken);
                    for &id in &made {
                        splice.insert(step.at, id);
                    }
                    let result = *made.last().expect("a clone is at least one instruction");
                    local.insert(value, result);
                    last = Some((value, result));
                    applied.recomputed += 1;
                }
                match last {
                    Some((value, result)) if value == step.value => splice.versions.add(value, step.at, result),
                    _ => return Err(ApplyError::Order { value: step.decision.value.instr.clone(), what: "its chain does not end in it" }),
                }
            }
        }
    }
    splice.redirect_users(module, taken);
    let Splice { inserted, .. } = splice;
    module.splice(comp, inserted, &FxHashSet::default());
    Ok(())
}

/// What is being spliced into one computation.
struct Splice {
    comp: CompId,
    inserted: Vec<Insertion>,
    versions: Versions,
    /// Clones of views: (new base, original view) to the clone and its position.
    views: FxHashMap<(InstrId, InstrId), (usize, InstrId)>,
}

impl Splice {
    fn insert(&mut self, position: usize, instr: InstrId) {
        self.inserted.push(Insertion { position, instr });
    }

    /// An instruction that holds `value` at `position`: its latest version, or the original behind a tuple element.
    fn resident(&mut self, module: &mut Module, value: Value, position: usize, taken: &mut FxHashSet<Box<str>>) -> InstrId {
        if let Some(version) = self.versions.at(value, position) {
            return version;
        }
        let Some(output) = value.output else { return value.instr };
        let order = &module.comp(self.comp).order;
        let is_element = |&&i: &&InstrId| {
            let instr = module.instr(i);
            instr.operands.first() == Some(&value.instr) && matches!(instr.op, Op::GetTupleElement { index } if index == i64::from(output))
        };
        if let Some(&element) = order[..position].iter().find(is_element) {
            return element;
        }
        let shape = module.shapes.elements(module.instr(value.instr).shape)[output as usize];
        let name = Module::fresh_name(&format!("{}.{output}", module.instr(value.instr).name), taken);
        let op = Op::GetTupleElement { index: i64::from(output) };
        let element = module.define(crate::ir::Instruction::new(name, shape, op, [value.instr]));
        self.insert(position, element);
        element
    }

    /// Redirects the operands of `instr`, which stands at `position`, to the values of `local` and to the latest versions.
    fn redirect(
        &mut self,
        module: &mut Module,
        instr: InstrId,
        position: usize,
        local: &FxHashMap<Value, InstrId>,
        taken: &mut FxHashSet<Box<str>>,
    ) {
        for n in 0..module.instr(instr).operands.len() {
            let operand = module.instr(instr).operands[n];
            let (value, views) = trace(module, operand);
            let found = local.get(&value).copied().or_else(|| self.versions.at(value, position));
            let Some(mut base) = found else { continue };
            for view in views {
                let key = (base, view);
                base = match self.views.get(&key) {
                    Some(&(at, known)) if at <= position => known,
                    _ => {
                        let mut clone = module.instr(view).clone();
                        clone.name = Module::fresh_name(&clone.name, taken);
                        clone.proto_id = 0;
                        clone.operands = [base].into_iter().collect();
                        clone.control_predecessors.clear();
                        let clone = module.define(clone);
                        self.insert(position, clone);
                        self.views.insert(key, (position, clone));
                        clone
                    }
                };
            }
            module.instructions[instr].operands[n] = base;
        }
    }

    /// Redirects every instruction of the old order that is no view itself.
    fn redirect_users(&mut self, module: &mut Module, taken: &mut FxHashSet<Box<str>>) {
        let order = module.comp(self.comp).order.clone();
        let none = FxHashMap::default();
        for (position, id) in order.into_iter().enumerate() {
            if !matches!(module.instr(id).op, Op::Bitcast | Op::GetTupleElement { .. }) {
                self.redirect(module, id, position, &none, taken);
            }
        }
    }
}
