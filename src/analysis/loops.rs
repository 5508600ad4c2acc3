//! What loops carry: counters, invariants, and *stacks*, which a loop fills slice by slice and another reads.
//!
//! A `while` carries a tuple. Each element is one of: *linear* (an integer that grows by a constant), *invariant* (passed on unchanged), a
//! *stack* (written only by one dynamic-update-slice of a full row at an index linear in the iteration), or anything else. Indices are told in
//! terms of the iteration, counted from 0 ([`Index`]), so that loops with different counters can be compared. Source: the scalar
//! evolution of Bachmann, Wang, Zima, "Chains of recurrences", ISSAC 1994, in its simplest case. Cost: linear in the bodies.

mod access;
mod affine;

pub use access::{Access, Read, Rows, Write};
pub use affine::Index;

use affine::{Affine, Scope};

use super::users::Users;
use crate::cost::trip_count;
use crate::ir::{CompId, InstrId, Module, Op};

/// One `while`.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The `while`.
    pub instr: InstrId,
    /// The computation it stands in.
    pub home: CompId,
    /// The computation of one iteration.
    pub body: CompId,
    /// Says whether to go on.
    pub condition: CompId,
    /// How often the body runs, where that is known.
    pub trips: Option<u64>,
    /// The parameter of the body.
    pub parameter: InstrId,
    /// The tuple that the body returns.
    pub root: InstrId,
    /// The tuple that the loop starts with.
    pub init: InstrId,
    /// What is carried, by tuple index.
    pub elements: Vec<Element>,
}

/// One element of the tuple that a loop carries.
#[derive(Clone, Debug)]
pub struct Element {
    /// The instructions of the body that take it out of the parameter.
    pub takes: Vec<InstrId>,
    /// What the body returns for it.
    pub next: InstrId,
    /// What the loop starts with.
    pub initial: InstrId,
    /// The instructions after the loop that take its final value.
    pub results: Vec<InstrId>,
    /// What becomes of it from one iteration to the next.
    pub kind: Kind,
}

/// What becomes of an element from one iteration to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer: `start + step · iteration`.
    Linear {
        /// Value in the first iteration; `None` if the program does not say it as a constant.
        start: Option<i64>,
        /// Growth an iteration.
        step: i64,
    },
    /// The same in every iteration.
    Invariant,
    /// One row is written an iteration, and nothing else.
    Stack(Write),
    /// Anything else.
    Carried,
}

/// All loops of a module that have the usual form (a tuple parameter, tuples at both ends), in program order.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    /// The loops.
    pub loops: Vec<Loop>,
}

impl Loops {
    /// Finds and reads all loops.
    pub fn of(module: &Module, users: &Users) -> Self {
        let loops = module.live().filter_map(|(home, id)| read_loop(module, users, home, id)).collect();
        Self { loops }
    }
    /// The loop of a `while`.
    pub fn of_while(&self, id: InstrId) -> Option<&Loop> {
        self.loops.iter().find(|l| l.instr == id)
    }
}

impl Loop {
    /// How an element is read in the body; `None` where one reader does anything but slice full rows at an index linear in the iteration.
    /// The write of a stack is no read.
    pub fn reads(&self, module: &Module, users: &Users, element: usize) -> Option<Vec<Read>> {
        access::reads(module, users, self, element)
    }
}

fn read_loop(module: &Module, users: &Users, home: CompId, id: InstrId) -> Option<Loop> {
    let instr = module.instr(id);
    let Op::While { condition, body } = instr.op else { return None };
    let (&parameter, root) = (module.comp(body).parameters.first()?, module.comp(body).root);
    let init = *instr.operands.first()?;
    let count = module.shapes.elements(instr.shape).len();
    let is_tuple = |id: InstrId| matches!(module.instr(id).op, Op::Tuple) && module.instr(id).operands.len() == count;
    if !is_tuple(root) || !is_tuple(init) {
        return None;
    }
    let mut elements: Vec<Element> = (0..count)
        .map(|n| {
            let (next, initial) = (module.instr(root).operands[n], module.instr(init).operands[n]);
            let kind = Kind::Carried;
            Element { takes: takes(module, users, parameter, n), next, initial, results: takes(module, users, id, n), kind }
        })
        .collect();
    let scope = Scope::body(module, parameter);
    for (n, element) in elements.iter_mut().enumerate() {
        if matches!(module.instr(element.next).op, Op::GetTupleElement { index } if index == n as i64)
            && module.instr(element.next).operands[0] == parameter
        {
            element.kind = Kind::Invariant;
        } else if let Some(Affine { element: Some(of), scale: 1, offset: step }) = scope.affine(element.next)
            && of == n
        {
            let start = Scope::plain(module).affine(element.initial).and_then(Affine::constant);
            element.kind = Kind::Linear { start, step };
        }
    }
    let mut this = Loop { instr: id, home, body, condition, trips: trip_count(module, id), parameter, root, init, elements };
    this.trips = this.trips.or_else(|| affine::trips_of_condition(module, &this));
    for n in 0..count {
        if this.elements[n].kind == Kind::Carried
            && let Some(write) = access::write(module, &this, n)
        {
            this.elements[n].kind = Kind::Stack(write);
        }
    }
    Some(this)
}

fn takes(module: &Module, users: &Users, tuple: InstrId, n: usize) -> Vec<InstrId> {
    let is = |&&u: &&InstrId| matches!(module.instr(u).op, Op::GetTupleElement { index } if index == n as i64);
    users.users(tuple).iter().filter(is).copied().collect()
}
