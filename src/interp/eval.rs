//! Evaluates a program: control flow, and values as they are passed from instruction to instruction.

#![expect(unsafe_code, reason = "it begins transfers and keeps the promise that they ask for")]

use std::borrow::Cow;
use std::sync::Arc;

use super::arena::Arenas;
use super::array::Array;
use super::buffer::{Buffer, Place};
use super::error::Error;
use super::exchange::Exchange;
use super::kernel::{ArrayType, Kernel, leaves};
use super::lanes::{Memory, Run};
use super::layouts::{put, read_array};
use super::placement::{HighWater, Placement};
use super::program::{Program, Way, way};
use super::run::Outputs;
use super::timing::{Clock, Measured, Span, Timed};
use super::transfer::{Lanes, Ticket};
use crate::ir::{CollectiveKind, CompId, EntityMap, InstrId, Module, Op, Primitive, Shape, ShapeId};

/// A value: an array in memory, or values in a tuple.
#[derive(Clone, Debug)]
pub enum Value {
    /// An array; its layout is that of the instruction it is a value of.
    Array(Place),
    /// A tuple; a part that was taken by its last reader is a token.
    Tuple(Vec<Value>),
    /// A token, or an opaque thing.
    Token,
}

impl Value {
    /// The arrays in order.
    pub(super) fn places(&self) -> Vec<Place> {
        let mut out = Vec::new();
        let mut stack = vec![self];
        while let Some(value) = stack.pop() {
            match value {
                Self::Array(place) => out.push(place.clone()),
                Self::Tuple(parts) => stack.extend(parts.iter().rev()),
                Self::Token => {}
            }
        }
        out
    }
}

/// Which of several copies of a program this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The partition.
    pub partition: u32,
    /// The replica.
    pub replica: u32,
}

/// Where the arrays of the parameters come from, by their numbers; `None` where there is none.
pub(super) type Given<'g, 'a> = &'g mut dyn FnMut(usize) -> Result<Option<Cow<'a, Array>>, String>;

/// Is told of every value that an instruction computes.
pub trait Observer {
    /// An instruction of a computation that runs was carried out.
    fn computed(&mut self, id: InstrId, value: &Value);
}

impl Observer for () {
    fn computed(&mut self, _: InstrId, _: &Value) {}
}

/// A start whose computation does one thing.
#[derive(Clone, Copy, Debug)]
struct Aside {
    start: InstrId,
    /// The one thing.
    root: InstrId,
    /// Whether a lane does it.
    begun: bool,
}

/// A program being evaluated.
pub struct Evaluation<'p, 'm> {
    program: &'p Program<'m>,
    module: &'m Module,
    values: EntityMap<InstrId, Option<Value>>,
    identity: Identity,
    exchange: &'p dyn Exchange,
    observer: &'p mut dyn Observer,
    arenas: Option<Arenas<'p>>,
    lanes: Lanes,
    clock: Option<Arc<dyn Clock>>,
    timed: Vec<Timed>,
    /// The start that is being carried out, if its work may be left to a lane.
    aside: Option<Aside>,
    /// Fusions that are being walked through: what is in them has no planned place.
    unplanned: usize,
}

impl<'p, 'm> Evaluation<'p, 'm> {
    /// Nothing is computed yet. With a placement, values lie in arenas as it says; without one, each in memory of its own.
    pub fn new(
        program: &'p Program<'m>,
        identity: Identity,
        exchange: &'p dyn Exchange,
        observer: &'p mut dyn Observer,
        placement: Option<&'p Placement>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Self {
        Self {
            program,
            module: program.module,
            values: EntityMap::with_default(None),
            identity,
            exchange,
            observer,
            arenas: placement.map(Arenas::new),
            lanes: Lanes::new(clock.clone()),
            clock,
            timed: Vec::new(),
            aside: None,
            unplanned: 0,
        }
    }

    /// What was measured, in the order of the ends; nothing without a clock.
    pub fn take_timed(&mut self) -> Vec<Timed> {
        std::mem::take(&mut self.timed)
    }
    fn now(&self) -> u64 {
        self.clock.as_ref().map_or(0, |c| c.now())
    }
    fn measured(&mut self, instr: InstrId, what: Measured, span: Span, bytes: u64) {
        if self.clock.is_some() {
            self.timed.push(Timed { instr, what, span, bytes });
        }
    }

    /// What the run needed of its arenas; nothing without.
    pub fn high_water(&self) -> HighWater {
        self.arenas.as_ref().map(Arenas::high_water).unwrap_or_default()
    }

    /// Runs the entry computation: arrays of the parameters in order, arrays of the result in order.
    pub(super) fn run(&mut self, inputs: Given<'_, '_>, outputs: Outputs<'_>) -> Result<(), Error> {
        let module = self.module;
        let entry = module.entry();
        let mut args = Vec::new();
        let mut number = 0;
        for &parameter in &entry.parameters {
            let mut value = self.allocate(parameter, module.instr(parameter).shape, 0)?;
            for (place, shape) in value.places().iter().zip(leaves(module, module.instr(parameter).shape)) {
                let array = inputs(number).map_err(|why| Error::at(module, parameter, why))?;
                self.input(parameter, place, shape, array)?;
                number += 1;
            }
            self.written(parameter, 0, &mut value);
            args.push((value, module.instr(parameter).shape));
        }
        let (value, _) = self.computation(module.entry_id(), args)?;
        for place in value.places() {
            self.check_read(entry.root, &place)?;
        }
        let shapes = leaves(module, module.instr(entry.root).shape);
        for (number, (place, shape)) in value.places().iter().zip(shapes).enumerate() {
            outputs(number, self.array(place, shape)).map_err(|why| Error::at(module, entry.root, why))?;
        }
        Ok(())
    }

    fn input(&self, id: InstrId, place: &Place, shape: ShapeId, array: Option<Cow<'_, Array>>) -> Result<(), Error> {
        let ty = self.ty(shape);
        let array = array.ok_or_else(|| Error::at(self.module, id, "there is no input for this parameter"))?;
        if array.element != ty.element || array.dims != ty.dims {
            let found = format!("{}{:?}", array.element.name(), array.dims);
            return Err(Error::at(self.module, id, format!("expected {}{:?}, found {found}", ty.element.name(), ty.dims)));
        }
        put(place, &ty, &array);
        Ok(())
    }

    /// The type of an array shape of the program.
    fn ty(&self, shape: ShapeId) -> ArrayType {
        ArrayType::of(self.module, shape).expect("all shapes were checked when the program was made ready")
    }

    /// Reads an array that lies in the order of a layout.
    pub(super) fn array(&self, place: &Place, shape: ShapeId) -> Array {
        read_array(self.module, place, shape)
    }

    /// Runs a computation: values and their shapes.
    fn computation(&mut self, comp: CompId, args: Vec<(Value, ShapeId)>) -> Result<(Value, ShapeId), Error> {
        let module = self.module;
        let computation = module.comp(comp);
        for (&parameter, (arg, shape)) in computation.parameters.iter().zip(args) {
            self.values[parameter] = Some(self.conformed(parameter, arg, shape, module.instr(parameter).shape)?);
        }
        for &id in &computation.order {
            if !matches!(module.instr(id).op, Op::Parameter { .. }) {
                let value = self.instruction(id)?;
                // What a lane still writes may not be looked at.
                if !self.aside.is_some_and(|a| a.begun) && !matches!(module.instr(id).op, Op::CopyStart { .. } | Op::AsyncStart(_)) {
                    self.observer.computed(id, &value);
                }
                self.values[id] = Some(value);
            } else if let Some(value) = &self.values[id] {
                self.observer.computed(id, value);
            }
            if let Some(arenas) = &mut self.arenas {
                arenas.ended(module, id).map_err(|why| Error::at(module, id, why))?;
            }
            if let Some(dying) = self.program.dying.get(&id) {
                for &operand in dying {
                    self.values[operand] = None;
                }
            }
        }
        let result = self.values[computation.root].take();
        let result = result.ok_or_else(|| Error::at(module, computation.root, "the result was not computed"))?;
        Ok((result, module.instr(computation.root).shape))
    }
    /// Runs a computation for an instruction whose value is its result.
    fn called(&mut self, id: InstrId, comp: CompId, args: Vec<(Value, ShapeId)>) -> Result<Value, Error> {
        let (value, shape) = self.computation(comp, args)?;
        self.conformed(id, value, shape, self.module.instr(id).shape)
    }
    /// The operands from number `first` on, with their shapes.
    fn arguments(&self, id: InstrId, first: usize) -> Result<Vec<(Value, ShapeId)>, Error> {
        let operands = &self.module.instr(id).operands;
        (first..operands.len()).map(|i| Ok((self.operand(id, i)?, self.module.instr(operands[i]).shape))).collect()
    }
    /// Operand 0, passed on as the value of an instruction.
    fn passed(&mut self, id: InstrId) -> Result<Value, Error> {
        let instr = self.module.instr(id);
        let value = self.take_operand(id, 0)?;
        self.conformed(id, value, self.module.instr(instr.operands[0]).shape, instr.shape)
    }

    fn operand(&self, id: InstrId, i: usize) -> Result<Value, Error> {
        let operand = self.module.instr(id).operands.get(i).and_then(|&o| self.values[o].clone());
        operand.ok_or_else(|| Error::at(self.module, id, format!("operand {i} has no value")))
    }

    /// Takes an operand out if nobody reads it later.
    fn take_operand(&mut self, id: InstrId, i: usize) -> Result<Value, Error> {
        let operand = self.module.instr(id).operands[i];
        let alone = self.module.instr(id).operands.iter().filter(|&&o| o == operand).count() == 1;
        if alone && self.program.dying.get(&id).is_some_and(|dying| dying.contains(&operand)) {
            return self.values[operand].take().ok_or_else(|| Error::at(self.module, id, format!("operand {i} has no value")));
        }
        self.operand(id, i)
    }

    fn instruction(&mut self, id: InstrId) -> Result<Value, Error> {
        let module = self.module;
        let instr = module.instr(id);
        let fail = |message: &str| Error::at(module, id, message);
        let way = way(module, id).map_err(|why| fail(&why))?;
        if way != Way::Control {
            let begin = self.now();
            let value = if way == Way::Kernel { self.compute(id)? } else { self.collective(id)? };
            let span = Span { begin, end: self.now() };
            self.measured(id, Measured::Compute, span, 0);
            return Ok(value);
        }
        Ok(match &instr.op {
            Op::Tuple => {
                let parts = self.arguments(id, 0)?.into_iter().zip(module.shapes.elements(instr.shape));
                Value::Tuple(parts.map(|((value, from), &to)| self.conformed(id, value, from, to)).collect::<Result<_, _>>()?)
            }
            Op::GetTupleElement { index } => {
                let last = self.program.last_part[id];
                let index = usize::try_from(*index).map_err(|_| fail("an index is negative"))?;
                let part = match &mut self.values[instr.operands[0]] {
                    Some(Value::Tuple(parts)) if index < parts.len() => {
                        if last {
                            std::mem::replace(&mut parts[index], Value::Token)
                        } else {
                            parts[index].clone()
                        }
                    }
                    _ => return Err(fail("expected a tuple")),
                };
                let shape = module.shapes.elements(module.instr(instr.operands[0]).shape)[index];
                self.conformed(id, part, shape, instr.shape)?
            }
            Op::Bitcast => self.take_operand(id, 0)?,
            Op::OptBarrier | Op::AddDependency | Op::Domain(_) => self.passed(id)?,
            Op::AfterAll => Value::Token,
            Op::PartitionId => self.scalar(id, self.identity.partition)?,
            Op::ReplicaId => self.scalar(id, self.identity.replica)?,
            Op::While { condition, body } => {
                let mut state = (self.take_operand(id, 0)?, module.instr(instr.operands[0]).shape);
                loop {
                    self.check_merge(id, &state.0)?;
                    let (go, _) = self.computation(*condition, vec![state.clone()])?;
                    if self.choice(id, &go, Primitive::Pred)? == 0 {
                        break self.conformed(id, state.0, state.1, instr.shape)?;
                    }
                    state = self.computation(*body, vec![state])?;
                }
            }
            Op::Conditional { branches, predicated } => {
                let choice = self.operand(id, 0)?;
                let last = branches.len() - 1;
                let branch = if *predicated {
                    usize::from(self.choice(id, &choice, Primitive::Pred)? == 0)
                } else {
                    usize::try_from(self.choice(id, &choice, Primitive::S32)?).unwrap_or(last).min(last)
                };
                let arg = self.arguments(id, 1 + branch)?.swap_remove(0);
                let result = self.called(id, branches[branch], vec![arg])?;
                self.check_merge(id, &result)?;
                result
            }
            Op::Call { to_apply, .. } => {
                let args = self.arguments(id, 0)?;
                self.called(id, *to_apply, args)?
            }
            Op::Fusion(op) => {
                let args = self.arguments(id, 0)?;
                self.unplanned += 1;
                let inner = self.called(id, op.calls, args)?;
                self.unplanned -= 1;
                self.stored(id, inner)?
            }
            Op::AsyncStart(op) => {
                let args = self.arguments(id, 0)?;
                self.aside = self.is_one_step(op.calls).then(|| Aside { start: id, root: module.comp(op.calls).root, begun: false });
                let (result, shape) = self.computation(op.calls, args.clone())?;
                let args: Vec<Value> = args.into_iter().map(|(value, _)| value).collect();
                let result = match module.shapes.elements(instr.shape) {
                    [_, promised, ..] => self.conformed(id, result, shape, *promised)?,
                    _ => result,
                };
                if !self.aside.take().is_some_and(|a| a.begun) {
                    self.depart(id, args.iter().flat_map(Value::places).collect(), &result, None);
                }
                Value::Tuple(vec![Value::Tuple(args), result])
            }
            Op::AsyncUpdate(_) => self.take_operand(id, 0)?,
            Op::AsyncDone(_) | Op::CopyDone | Op::CollectiveDone(_) => {
                self.arrive(id);
                self.done(id)?
            }
            _ => unreachable!("`way` sends everything else elsewhere"),
        })
    }

    /// The value that a start promised.
    fn done(&mut self, id: InstrId) -> Result<Value, Error> {
        let part = match &self.module.instr(id).op {
            Op::CopyDone => 0,
            Op::CollectiveDone(CollectiveKind::AllReduce) => return self.take_operand(id, 0),
            _ => 1,
        };
        match self.take_operand(id, 0)? {
            Value::Tuple(mut parts) if part < parts.len() => {
                let instr = self.module.instr(id);
                let shapes = self.module.shapes.elements(self.module.instr(instr.operands[0]).shape);
                self.conformed(id, parts.swap_remove(part), *shapes.get(part).unwrap_or(&instr.shape), instr.shape)
            }
            _ => Err(Error::at(self.module, id, "expected the tuple of a start")),
        }
    }

    /// A value that was computed without a plan, put where an instruction's result is to lie.
    fn stored(&mut self, id: InstrId, inner: Value) -> Result<Value, Error> {
        if self.arenas.is_none() {
            return Ok(inner);
        }
        let mut out = self.allocate(id, self.module.instr(id).shape, 0)?;
        for (from, to) in inner.places().iter().zip(out.places()) {
            Buffer::copy(&from.buffer, from.offset, &to.buffer, to.offset, to.bytes);
        }
        self.written(id, 0, &mut out);
        Ok(out)
    }

    fn scalar(&mut self, id: InstrId, value: u32) -> Result<Value, Error> {
        let mut out = self.allocate(id, self.module.instr(id).shape, 0)?;
        for place in out.places() {
            place.buffer.write(place.offset, &value.to_le_bytes());
        }
        self.written(id, 0, &mut out);
        Ok(out)
    }

    /// Reads an integer scalar.
    fn choice(&self, id: InstrId, value: &Value, element: Primitive) -> Result<i64, Error> {
        let Value::Array(place) = value else { return Err(Error::at(self.module, id, "expected a scalar to choose by")) };
        self.check_read(id, place)?;
        Ok(self.integer(place, element))
    }
    fn integer(&self, place: &Place, element: Primitive) -> i64 {
        let mut block = super::lanes::Block::Int(vec![0]);
        let memory = Memory { buffer: &place.buffer, offset: place.offset, element };
        memory.load(Run { at: 0, len: 1, stride: 0 }, &mut block, 0);
        let super::lanes::Block::Int(v) = block else { unreachable!("a block of integers") };
        v[0]
    }

    /// Memory for a value, or for the part of it whose arrays are numbered from `leaf` on.
    pub(super) fn allocate(&self, id: InstrId, shape: ShapeId, leaf: u32) -> Result<Value, Error> {
        let mut leaf = leaf;
        self.allocate_from(id, shape, &mut leaf)
    }
    fn allocate_from(&self, id: InstrId, shape: ShapeId, leaf: &mut u32) -> Result<Value, Error> {
        match self.module.shapes.get(shape) {
            Shape::Tuple(parts) => Ok(Value::Tuple(parts.iter().map(|&p| self.allocate_from(id, p, leaf)).collect::<Result<_, _>>()?)),
            Shape::Array(_) => {
                let bytes = self.ty(shape).bytes();
                *leaf += 1;
                let Some(arenas) = &self.arenas else { return Ok(Value::Array(Place::fresh(bytes))) };
                let fail = |why: &str| Error::at(self.module, id, why);
                match arenas.place(id, *leaf - 1, bytes) {
                    Some(Ok(place)) => {
                        arenas.check_write(self.module, &place).map_err(|why| fail(&why))?;
                        Ok(Value::Array(place))
                    }
                    Some(Err(why)) => Err(fail(&why)),
                    None if bytes == 0 || self.unplanned > 0 => Ok(Value::Array(Place::fresh(bytes))),
                    None => Err(fail("the plan gives it no place")),
                }
            }
            _ => Ok(Value::Token),
        }
    }
    /// Says that a value, whose arrays are numbered from `leaf` on, was written.
    pub(super) fn written(&mut self, id: InstrId, leaf: u32, value: &mut Value) {
        let Some(arenas) = &mut self.arenas else { return };
        let mut stack = vec![value];
        let mut leaf = leaf;
        while let Some(value) = stack.pop() {
            match value {
                Value::Array(place) => {
                    arenas.written(id, leaf, place);
                    leaf += 1;
                }
                Value::Tuple(parts) => stack.extend(parts.iter_mut().rev()),
                Value::Token => {}
            }
        }
    }
    /// Holds a read to the record of the arenas.
    pub(super) fn check_read(&self, id: InstrId, place: &Place) -> Result<(), Error> {
        match &self.arenas {
            Some(arenas) => arenas.check_read(self.module, place).map_err(|why| Error::at(self.module, id, why)),
            None => Ok(()),
        }
    }
    /// Holds a value that merges others to the plan: all of them must lie where it is said to lie.
    fn check_merge(&self, id: InstrId, value: &Value) -> Result<(), Error> {
        let Some(arenas) = &self.arenas else { return Ok(()) };
        for (leaf, place) in (0..).zip(value.places()) {
            if let Some(Ok(planned)) = arenas.place(id, leaf, place.bytes)
                && !planned.is(&place)
            {
                let (found, wanted) = (place.offset, planned.offset);
                let message =
                    format!("array {leaf} of its result lies at byte {found}, but is planned at byte {wanted}: a copy is missing");
                return Err(Error::at(self.module, id, message));
            }
        }
        Ok(())
    }

    /// Runs an instruction's kernel.
    fn compute(&mut self, id: InstrId) -> Result<Value, Error> {
        let module = self.module;
        let instr = module.instr(id);
        let kernel = self.program.kernel(id).expect("every instruction of this kind has a kernel");
        let operands: Vec<Value> = (0..instr.operands.len()).map(|i| self.operand(id, i)).collect::<Result<_, _>>()?;
        let params: Vec<Place> = operands.iter().flat_map(Value::places).collect();
        for place in &params {
            self.check_read(id, place)?;
        }
        let start = matches!(instr.op, Op::CopyStart { .. });
        let mut result = self.allocate(id, if start { module.shapes.elements(instr.shape)[0] } else { instr.shape }, 0)?;
        if !kernel.in_place.is_empty() && self.arenas.is_none() {
            self.reuse(id, &kernel.in_place, &params, operands, &mut result);
        }
        let outs = result.places();
        let fail = |why: String| Error::at(module, id, why);
        let ticket =
            if start || self.aside.is_some_and(|a| a.root == id) { self.begin(&kernel, &params, &outs).map_err(fail)? } else { None };
        if ticket.is_none() {
            kernel.run(&params, &outs).map_err(fail)?;
        }
        self.written(id, 0, &mut result);
        if start {
            self.depart(id, params, &result, ticket);
            return Ok(Value::Tuple(vec![result, self.operand(id, 0)?, Value::Token]));
        }
        if let (Some(ticket), Some(aside)) = (ticket, &mut self.aside) {
            aside.begun = true;
            let start = aside.start;
            self.depart(start, params, &result, Some(ticket));
        }
        Ok(result)
    }

    /// Leaves a kernel's work to a lane, if it only copies elements and the arenas' record guards all of them.
    fn begin(&mut self, kernel: &Kernel, params: &[Place], outs: &[Place]) -> Result<Option<Ticket>, String> {
        let Some(arenas) = self.arenas.as_ref().filter(|a| a.hold(params) && a.hold(outs)) else { return Ok(None) };
        let direction = arenas.direction(outs);
        let Some(pieces) = kernel.moves(params, outs)? else { return Ok(None) };
        // SAFETY: both memories are arenas. The caller notes at once, by `depart`, what the transfer reads and writes; from then on until
        // `arrive`, which waits for the ticket, `check_read` and `check_write` refuse every access to those bytes that could meet it, and
        // `ended` refuses to poison them. An `Evaluation` that ends early drops the ticket, which waits, before anything else can look.
        Ok(Some(unsafe { self.lanes.begin(direction, pieces) }))
    }
    /// Whether a computation does one thing, beside naming its operands and constants.
    fn is_one_step(&self, comp: CompId) -> bool {
        let computation = self.module.comp(comp);
        let given = |&&id: &&InstrId| matches!(self.module.instr(id).op, Op::Parameter { .. } | Op::Constant(_));
        computation.order.iter().filter(|id| !given(id)).eq([&computation.root])
    }

    /// Work has begun that the program waits for later.
    pub(super) fn depart(&mut self, id: InstrId, reads: Vec<Place>, result: &Value, ticket: Option<Ticket>) {
        if let Some(arenas) = &mut self.arenas {
            arenas.depart(id, reads, result.places(), ticket);
        }
    }
    /// The program waits for the work that an operand of a done stands for.
    fn arrive(&mut self, id: InstrId) {
        let mut start = self.module.instr(id).operands[0];
        while let Op::AsyncUpdate(_) = self.module.instr(start).op {
            start = self.module.instr(start).operands[0];
        }
        let begin = self.now();
        let transfer = self.arenas.as_mut().and_then(|a| a.arrive(start));
        let span = Span { begin, end: self.now() };
        self.measured(id, Measured::Wait, span, 0);
        if let Some((direction, span, bytes)) = transfer {
            self.measured(start, Measured::Transfer(direction), span, bytes);
        }
    }

    /// Puts a result that begins as an operand where that operand lies, if nobody else reads it.
    fn reuse(&mut self, id: InstrId, pairs: &[super::kernel::InPlace], params: &[Place], operands: Vec<Value>, result: &mut Value) {
        let Some(dying) = self.program.dying.get(&id) else { return };
        drop(operands);
        for pair in pairs {
            // Only operands that are one array each can be told apart by their number.
            let ids = &self.module.instr(id).operands;
            if ids.len() != params.len() || ids.iter().filter(|&&o| o == ids[pair.param]).count() > 1 || !dying.contains(&ids[pair.param]) {
                continue;
            }
            // The value itself and `params`.
            if !params[pair.param].buffer.is_held_by(2) {
                continue;
            }
            let place = params[pair.param].clone();
            match result {
                Value::Array(out) => *out = place,
                Value::Tuple(parts) => {
                    if let Some(Value::Array(out)) = parts.get_mut(pair.out) {
                        *out = place;
                    }
                }
                Value::Token => {}
            }
        }
    }

    /// What instructions around collectives need.
    pub(super) fn module(&self) -> &'m Module {
        self.module
    }
    pub(super) fn is_planned(&self) -> bool {
        self.arenas.is_some()
    }
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }
    pub(super) fn exchange(&self) -> &'p dyn Exchange {
        self.exchange
    }
    pub(super) fn function(&self, id: InstrId) -> Option<std::rc::Rc<super::tape::Applied>> {
        self.program.function(id)
    }
    pub(super) fn operand_of(&self, id: InstrId, i: usize) -> Result<Value, Error> {
        self.operand(id, i)
    }
}
