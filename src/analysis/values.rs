//! The data flow: which value stands at each position of each instruction's result.
//!
//! A value is defined at one position. Most instructions define every position of their result; the exceptions are listed in [`flow`].
//! Where definitions meet (a loop's parameters and result, a conditional's result) and differ, a merge ("phi") is a value of its own.
//!
//! Source: XLA's `HloDataflowAnalysis` in SSA form with `bitcast_defines_value=false` (`hlo/analysis/hlo_dataflow_analysis.cc`). XLA runs
//! a work list over instructions and removes superfluous merges afterwards; here positions form a graph of copies and merges, copies are
//! followed once, and merges are solved optimistically, which gives the least set of merges. Values are numbered as XLA numbers them:
//! computations callees first, instructions in post-order, positions in pre-order, merges last; the heap breaks ties by that number.
//! Cost: O(positions), a position being an element of an instruction's result, nested ones included.

use super::layouts::Positions;
use super::numbering;
use super::schedule::Schedule;
use super::users::Users;
use crate::entity::ValueId;
use crate::ir::{CollectiveKind, CompId, Entity, EntityMap, EntityVec, InstrId, Module, Op, Shape, ShapeId};
use smallvec::{SmallVec, smallvec};

/// One value.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// The instruction that defines it (or at which definitions merge).
    pub instr: InstrId,
    /// Where in the result: a position as in [`Positions`].
    pub position: u32,
    /// The shape of that part.
    pub shape: ShapeId,
    /// Whether it is a merge.
    pub phi: bool,
}

/// All values of the computations that run on the clock.
#[derive(Clone, Debug)]
pub struct Values {
    /// Numbers positions of shapes.
    pub positions: Positions,
    values: EntityVec<ValueId, Value>,
    first_slot: EntityMap<InstrId, u32>,
    slots: Vec<u32>,
    order: Vec<(CompId, Vec<InstrId>)>,
}

const NONE: u32 = u32::MAX;

/// What stands at a slot before it is solved.
#[derive(Clone, Copy)]
enum Source {
    Value(ValueId),
    Copy(u32),
    /// Index of a merge.
    Merge(u32),
}

/// Where definitions may meet.
struct Merge {
    instr: InstrId,
    position: u32,
    shape: ShapeId,
    inputs: SmallVec<[u32; 2]>,
}

/// What an instruction puts at one position of its result.
enum Flow {
    Define,
    /// The value at a position of an operand.
    Operand(usize, u32),
    /// The value at a position of the root of a computation.
    Root(CompId, u32),
    /// Values that meet.
    Merge,
}

impl Values {
    /// Solves the data flow. The module must pass the verifier.
    pub fn of(module: &Module, users: &Users, schedule: &Schedule) -> Self {
        let order = numbering::value_order(module, schedule);
        let mut this = Self {
            positions: Positions::of(module),
            values: EntityVec::new(),
            first_slot: EntityMap::with_default(NONE),
            slots: Vec::new(),
            order,
        };
        let order = std::mem::take(&mut this.order);
        let mut next_slot = 0u32;
        for &id in order.iter().flat_map(|(_, ids)| ids) {
            this.first_slot[id] = next_slot;
            next_slot += this.positions.count(module.instr(id).shape);
        }
        let mut sources: Vec<Source> = Vec::with_capacity(next_slot as usize);
        let mut merges: Vec<Merge> = Vec::new();
        for &id in order.iter().flat_map(|(_, ids)| ids) {
            let shapes = this.positions.shapes(module, module.instr(id).shape);
            for (position, shape) in (0u32..).zip(shapes) {
                sources.push(match flow(module, users, schedule, &this.positions, id, position, shape) {
                    Flow::Define => Source::Value(this.values.push(Value { instr: id, position, shape, phi: false })),
                    Flow::Operand(n, p) => Source::Copy(this.first_slot[module.instr(id).operands[n]] + p),
                    Flow::Root(comp, p) => Source::Copy(this.first_slot[module.comp(comp).root] + p),
                    Flow::Merge => {
                        merges.push(Merge { instr: id, position, shape, inputs: SmallVec::new() });
                        Source::Merge(u32::try_from(merges.len() - 1).expect("fewer merges than slots"))
                    }
                });
            }
        }
        for merge in &mut merges {
            merge.inputs = merge_inputs(module, users, merge.instr).into_iter().map(|i| this.first_slot[i] + merge.position).collect();
        }
        this.solve(module, sources, &merges);
        this.order = order;
        this
    }

    /// Follows copies, solves merges, fills `slots`.
    fn solve(&mut self, module: &Module, mut sources: Vec<Source>, merges: &[Merge]) {
        let end_of = |sources: &mut Vec<Source>, slot: u32| {
            let mut at = slot;
            while let Source::Copy(from) = sources[at as usize] {
                at = from;
            }
            let end = sources[at as usize];
            let mut at = slot;
            while let Source::Copy(from) = sources[at as usize] {
                sources[at as usize] = end;
                at = from;
            }
            end
        };
        for slot in 0..sources.len() {
            end_of(&mut sources, u32::try_from(slot).expect("slots are numbered by u32"));
        }
        // What is known of a merge: nothing, one value, or that it is a value of its own.
        #[derive(Clone, Copy, PartialEq)]
        enum Known {
            Nothing,
            One(ValueId),
            Own(u32),
        }
        let mut known = vec![Known::Nothing; merges.len()];
        let mut readers: Vec<Vec<u32>> = vec![Vec::new(); merges.len()];
        for (m, merge) in (0u32..).zip(merges) {
            for &input in &merge.inputs {
                if let Source::Merge(other) = sources[input as usize]
                    && other != m
                {
                    readers[other as usize].push(m);
                }
            }
        }
        let mut queue: std::collections::VecDeque<u32> = (0u32..).take(merges.len()).collect();
        while let Some(m) = queue.pop_front() {
            if matches!(known[m as usize], Known::Own(_)) {
                continue;
            }
            let mut meet = Known::Nothing;
            for &input in &merges[m as usize].inputs {
                let one = match sources[input as usize] {
                    Source::Value(v) => Known::One(v),
                    Source::Merge(other) if other == m => continue,
                    Source::Merge(other) => known[other as usize],
                    Source::Copy(_) => unreachable!("copies were followed"),
                };
                meet = match (meet, one) {
                    (meet, Known::Nothing) => meet,
                    (Known::Nothing, one) => one,
                    (meet, one) if meet == one => meet,
                    _ => Known::Own(m),
                };
            }
            if known[m as usize] != meet {
                known[m as usize] = meet;
                queue.extend(&readers[m as usize]);
            }
        }
        let mut phi: Vec<Option<ValueId>> = vec![None; merges.len()];
        let places: Vec<(InstrId, u32)> = merges.iter().map(|m| (m.instr, m.position)).collect();
        for m in numbering::phi_order(module, &places) {
            let merge = &merges[m as usize];
            if matches!(known[m as usize], Known::Nothing) || known[m as usize] == Known::Own(m) {
                let Merge { instr, position, shape, .. } = *merge;
                phi[m as usize] = Some(self.values.push(Value { instr, position, shape, phi: true }));
            }
        }
        self.slots = sources
            .iter()
            .map(|&source| {
                let value = match source {
                    Source::Value(v) => v,
                    Source::Merge(m) => match known[m as usize] {
                        Known::One(v) => v,
                        Known::Own(own) => phi[own as usize].expect("an own merge has a value"),
                        Known::Nothing => phi[m as usize].expect("an empty merge has a value"),
                    },
                    Source::Copy(_) => unreachable!("copies were followed"),
                };
                u32::try_from(value.index()).expect("values are numbered by u32")
            })
            .collect();
    }

    /// All values, in XLA's order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (ValueId, &Value)> + ExactSizeIterator {
        self.values.iter()
    }
    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// One value.
    pub fn get(&self, value: ValueId) -> &Value {
        &self.values[value]
    }
    /// The value at a position of an instruction's result; `None` where the instruction takes no time.
    pub fn at(&self, id: InstrId, position: u32) -> Option<ValueId> {
        match self.first_slot[id] {
            NONE => None,
            first => Some(ValueId::new(self.slots[(first + position) as usize] as usize)),
        }
    }
    /// The values at all positions of an instruction's result, in order.
    pub fn all(&self, module: &Module, id: InstrId) -> impl DoubleEndedIterator<Item = ValueId> + ExactSizeIterator + '_ {
        let slots = match self.first_slot[id] {
            NONE => &[],
            first => &self.slots[first as usize..(first + self.positions.count(module.instr(id).shape)) as usize],
        };
        slots.iter().map(|&v| ValueId::new(v as usize))
    }
    /// The computations on the clock with their instructions in post-order, in the order in which values are numbered.
    pub fn order(&self) -> &[(CompId, Vec<InstrId>)] {
        &self.order
    }
    /// The index path of a value in its instruction's result, as `{1,0}`.
    pub fn path(&self, module: &Module, value: ValueId) -> Vec<i64> {
        let value = self.get(value);
        self.positions.path(module, module.instr(value.instr).shape, value.position)
    }
}

/// What an instruction puts at a position.
fn flow(module: &Module, users: &Users, schedule: &Schedule, positions: &Positions, id: InstrId, position: u32, shape: ShapeId) -> Flow {
    let instr = module.instr(id);
    let operand_part = |n: usize| positions.part(module.instr(instr.operands[0]).shape, n);
    let is_tuple = matches!(module.shapes.get(shape), Shape::Tuple(_));
    // The element of the result in which the position lies, and the position there; none for the top.
    let inside = if position == 0 { None } else { Some(positions.element(module, instr.shape, position)) };
    match (&instr.op, inside) {
        (Op::Bitcast | Op::AddDependency | Op::Domain(_) | Op::OptBarrier | Op::CollectiveDone(CollectiveKind::AllReduce), _) => {
            Flow::Operand(0, position)
        }
        (Op::GetTupleElement { index }, _) => {
            let index = usize::try_from(*index).expect("verified: the index is in range");
            Flow::Operand(0, operand_part(index) + position)
        }
        (Op::Tuple, Some((n, at))) => Flow::Operand(n, at),
        (Op::Copy, Some(_)) => Flow::Operand(0, position),
        (Op::CopyStart { .. }, Some((1, at))) => Flow::Operand(0, at),
        (Op::CopyDone, _) => Flow::Operand(0, operand_part(0) + position),
        (Op::CollectiveDone(_), _) => Flow::Operand(0, operand_part(1) + position),
        // Element 0 is the operand, or the tuple of the operands.
        (Op::Collective(c), Some((0, at))) if c.start && c.kind != CollectiveKind::AllReduce && !is_tuple => {
            Flow::Operand((at as usize).saturating_sub(1), 0)
        }
        (Op::Send(_), Some((0, at))) => Flow::Operand(0, at),
        (Op::RecvDone(_), Some((0, at))) => Flow::Operand(0, operand_part(0) + at),
        // An async start defines tables of pointers and contexts; element 0 are its operands, element 1 what the computation returns.
        (Op::AsyncStart(_), Some((0, at))) if !is_tuple => {
            let operands = module.shapes.elements(instr.shape)[0];
            let (n, at) = positions.element(module, operands, at);
            Flow::Operand(n, at)
        }
        (Op::AsyncStart(op), Some((1, at))) if !is_tuple && schedule.span(op.calls).is_some() => Flow::Root(op.calls, at),
        (Op::AsyncUpdate(_), _) if !is_tuple => Flow::Operand(0, position),
        (Op::AsyncDone(_), _) if !is_tuple => Flow::Operand(0, operand_part(1) + position),
        (Op::Call { to_apply, .. }, _) => Flow::Root(*to_apply, position),
        (Op::While { .. } | Op::Conditional { .. }, _) => Flow::Merge,
        (Op::Parameter { .. }, _) if users.home(id).is_some_and(|comp| !users.callers(comp).is_empty()) => Flow::Merge,
        _ => Flow::Define,
    }
}

/// The instructions whose values at the same position meet in a parameter, a while or a conditional.
fn merge_inputs(module: &Module, users: &Users, id: InstrId) -> SmallVec<[InstrId; 2]> {
    let instr = module.instr(id);
    match &instr.op {
        Op::While { body, .. } => smallvec![module.comp(*body).root, instr.operands[0]],
        Op::Conditional { branches, .. } => branches.iter().map(|&b| module.comp(b).root).collect(),
        Op::Parameter { number } => {
            let comp = users.home(id).expect("a merge is live");
            let n = usize::try_from(*number).expect("verified: parameters are numbered from 0");
            let mut inputs = SmallVec::new();
            for &caller in users.callers(comp) {
                let caller = module.instr(caller);
                match &caller.op {
                    Op::While { body, .. } => inputs.extend([caller.operands[0], module.comp(*body).root]),
                    Op::Conditional { branches, .. } => {
                        inputs.extend(branches.iter().zip(&caller.operands[1..]).filter(|&(&b, _)| b == comp).map(|(_, &o)| o));
                    }
                    // The update and done of an async chain name the computation too, but bring nothing.
                    Op::AsyncUpdate(_) | Op::AsyncDone(_) => {}
                    _ => inputs.push(caller.operands[n]),
                }
            }
            inputs
        }
        _ => unreachable!("only these merge"),
    }
}
