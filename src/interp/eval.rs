//! Evaluates a program: control flow, and values as they are passed from instruction to instruction.

use super::array::Array;
use super::buffer::Place;
use super::error::Error;
use super::exchange::Exchange;
use super::kernel::{ArrayType, leaves};
use super::lanes::{Memory, Run};
use super::program::{Program, Way, way};
use super::view::{Slot, for_each_run};
use crate::ir::{CompId, EntityMap, InstrId, Module, Op, Primitive, Shape, ShapeId};

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

/// Is told of every value that an instruction computes.
pub trait Observer {
    /// An instruction of a computation that runs was carried out.
    fn computed(&mut self, id: InstrId, value: &Value);
}

impl Observer for () {
    fn computed(&mut self, _: InstrId, _: &Value) {}
}

/// A program being evaluated.
pub struct Evaluation<'p, 'm> {
    program: &'p Program<'m>,
    module: &'m Module,
    values: EntityMap<InstrId, Option<Value>>,
    identity: Identity,
    exchange: &'p dyn Exchange,
    observer: &'p mut dyn Observer,
}

impl<'p, 'm> Evaluation<'p, 'm> {
    /// Nothing is computed yet.
    pub fn new(program: &'p Program<'m>, identity: Identity, exchange: &'p dyn Exchange, observer: &'p mut dyn Observer) -> Self {
        Self { program, module: program.module, values: EntityMap::with_default(None), identity, exchange, observer }
    }

    /// Runs the entry computation: arrays of the parameters in order, arrays of the result in order.
    pub fn run(&mut self, inputs: &[Array]) -> Result<Vec<Array>, Error> {
        let module = self.module;
        let entry = module.entry();
        let mut inputs = inputs.iter();
        let mut args = Vec::new();
        for &parameter in &entry.parameters {
            args.push(self.input(parameter, module.instr(parameter).shape, &mut inputs)?);
        }
        if inputs.next().is_some() {
            return Err(Error::new("there are more inputs than parameters"));
        }
        let value = self.computation(module.entry_id(), args)?;
        let shapes = leaves(module, module.instr(entry.root).shape);
        Ok(value.places().iter().zip(shapes).map(|(place, shape)| self.array(place, shape)).collect())
    }

    fn input<'a>(&self, id: InstrId, shape: ShapeId, inputs: &mut impl Iterator<Item = &'a Array>) -> Result<Value, Error> {
        match self.module.shapes.get(shape) {
            Shape::Tuple(parts) => Ok(Value::Tuple(parts.iter().map(|&p| self.input(id, p, inputs)).collect::<Result<_, _>>()?)),
            Shape::Array(_) => {
                let ty = self.ty(shape);
                let array = inputs.next().ok_or_else(|| Error::at(self.module, id, "there is no input for this parameter"))?;
                if array.element != ty.element || array.dims != ty.dims {
                    let found = format!("{}{:?}", array.element.name(), array.dims);
                    return Err(Error::at(self.module, id, format!("expected {}{:?}, found {found}", ty.element.name(), ty.dims)));
                }
                let place = Place::fresh(ty.bytes());
                self.put(&place, &ty, array);
                Ok(Value::Array(place))
            }
            _ => Ok(Value::Token),
        }
    }

    /// The type of an array shape of the program.
    fn ty(&self, shape: ShapeId) -> ArrayType {
        ArrayType::of(self.module, shape).expect("all shapes were checked when the program was made ready")
    }

    /// Writes an array in the order of a layout.
    pub(super) fn put(&self, place: &Place, ty: &ArrayType, array: &Array) {
        let access = ty.view(Slot::Index).access();
        let width = array.width();
        for_each_run(&access.dims, &access.strides, 0, 0, array.len(), |at, len, stride, from| {
            if stride == 1 {
                return place.buffer.write(place.offset + at.unsigned_abs() * width, &array.data[from * width..(from + len) * width]);
            }
            for i in 0..len {
                let to = (at + i.cast_signed() * stride).unsigned_abs() * width;
                place.buffer.write(place.offset + to, &array.data[(from + i) * width..(from + i + 1) * width]);
            }
        });
    }

    /// Reads an array that lies in the order of a layout.
    pub(super) fn array(&self, place: &Place, shape: ShapeId) -> Array {
        read_array(self.module, place, shape)
    }

    /// Runs a computation.
    fn computation(&mut self, comp: CompId, args: Vec<Value>) -> Result<Value, Error> {
        let module = self.module;
        let computation = module.comp(comp);
        for (&parameter, arg) in computation.parameters.iter().zip(args) {
            self.values[parameter] = Some(arg);
        }
        for &id in &computation.order {
            if !matches!(module.instr(id).op, Op::Parameter { .. }) {
                let value = self.instruction(id)?;
                self.observer.computed(id, &value);
                self.values[id] = Some(value);
            } else if let Some(value) = &self.values[id] {
                self.observer.computed(id, value);
            }
            if let Some(dying) = self.program.dying.get(&id) {
                for &operand in dying {
                    self.values[operand] = None;
                }
            }
        }
        let result = self.values[computation.root].take();
        result.ok_or_else(|| Error::at(module, computation.root, "the result was not computed"))
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
        match way(module, id).map_err(|why| fail(&why))? {
            Way::Kernel => return self.compute(id),
            Way::Exchange => return self.collective(id),
            Way::Control => {}
        }
        Ok(match &instr.op {
            Op::Tuple => Value::Tuple((0..instr.operands.len()).map(|i| self.operand(id, i)).collect::<Result<_, _>>()?),
            Op::GetTupleElement { index } => {
                let last = self.program.last_part[id];
                let index = usize::try_from(*index).map_err(|_| fail("an index is negative"))?;
                match &mut self.values[instr.operands[0]] {
                    Some(Value::Tuple(parts)) if index < parts.len() => {
                        if last {
                            std::mem::replace(&mut parts[index], Value::Token)
                        } else {
                            parts[index].clone()
                        }
                    }
                    _ => return Err(fail("expected a tuple")),
                }
            }
            Op::Bitcast | Op::OptBarrier | Op::AddDependency | Op::Domain(_) => self.take_operand(id, 0)?,
            Op::AfterAll => Value::Token,
            Op::PartitionId => self.scalar(Primitive::U32, self.identity.partition.into()),
            Op::ReplicaId => self.scalar(Primitive::U32, self.identity.replica.into()),
            Op::While { condition, body } => {
                let mut state = self.take_operand(id, 0)?;
                loop {
                    let go = self.computation(*condition, vec![state.clone()])?;
                    let Value::Array(go) = go else { return Err(fail("a condition gives no array")) };
                    if self.integer(&go, Primitive::Pred) == 0 {
                        break state;
                    }
                    state = self.computation(*body, vec![state])?;
                }
            }
            Op::Conditional { branches, predicated } => {
                let Value::Array(choice) = self.operand(id, 0)? else { return Err(fail("expected an array to choose by")) };
                let last = branches.len() - 1;
                let branch = if *predicated {
                    usize::from(self.integer(&choice, Primitive::Pred) == 0)
                } else {
                    usize::try_from(self.integer(&choice, Primitive::S32)).unwrap_or(last).min(last)
                };
                let arg = self.operand(id, 1 + branch)?;
                self.computation(branches[branch], vec![arg])?
            }
            Op::Call { to_apply, .. } => {
                let args = (0..instr.operands.len()).map(|i| self.operand(id, i)).collect::<Result<_, _>>()?;
                self.computation(*to_apply, args)?
            }
            Op::Fusion(op) => {
                let args = (0..instr.operands.len()).map(|i| self.operand(id, i)).collect::<Result<_, _>>()?;
                self.computation(op.calls, args)?
            }
            Op::AsyncStart(op) => {
                let args: Vec<Value> = (0..instr.operands.len()).map(|i| self.operand(id, i)).collect::<Result<_, _>>()?;
                let result = self.computation(op.calls, args.clone())?;
                Value::Tuple(vec![Value::Tuple(args), result])
            }
            Op::AsyncUpdate(_) => self.take_operand(id, 0)?,
            Op::AsyncDone(_) => match self.take_operand(id, 0)? {
                Value::Tuple(mut parts) if parts.len() == 2 => parts.swap_remove(1),
                _ => return Err(fail("expected the tuple of an async start")),
            },
            Op::CopyDone => match self.take_operand(id, 0)? {
                Value::Tuple(mut parts) => parts.swap_remove(0),
                _ => return Err(fail("expected the tuple of a copy start")),
            },
            Op::CollectiveDone(_) => self.collective_done(id)?,
            _ => unreachable!("`way` sends everything else elsewhere"),
        })
    }

    fn scalar(&self, element: Primitive, value: i64) -> Value {
        let array = Array::of_i64(element, &[], &[value]);
        let place = Place::fresh(array.data.len());
        place.buffer.write(place.offset, &array.data);
        Value::Array(place)
    }

    fn integer(&self, place: &Place, element: Primitive) -> i64 {
        let mut block = super::lanes::Block::Int(vec![0]);
        let memory = Memory { buffer: &place.buffer, offset: place.offset, element };
        memory.load(Run { at: 0, len: 1, stride: 0 }, &mut block, 0);
        let super::lanes::Block::Int(v) = block else { unreachable!("a block of integers") };
        v[0]
    }

    /// Memory for a value, as new.
    pub(super) fn allocate(&self, shape: ShapeId) -> Value {
        match self.module.shapes.get(shape) {
            Shape::Array(_) => Value::Array(Place::fresh(self.ty(shape).bytes())),
            Shape::Tuple(parts) => Value::Tuple(parts.iter().map(|&p| self.allocate(p)).collect()),
            _ => Value::Token,
        }
    }

    /// Runs an instruction's kernel.
    fn compute(&mut self, id: InstrId) -> Result<Value, Error> {
        let module = self.module;
        let instr = module.instr(id);
        let kernel = self.program.kernel(id).expect("every instruction of this kind has a kernel");
        let operands: Vec<Value> = (0..instr.operands.len()).map(|i| self.operand(id, i)).collect::<Result<_, _>>()?;
        let params: Vec<Place> = operands.iter().flat_map(Value::places).collect();
        let start = matches!(instr.op, Op::CopyStart { .. });
        let mut result = self.allocate(if start { module.shapes.elements(instr.shape)[0] } else { instr.shape });
        if !kernel.in_place.is_empty() {
            self.reuse(id, &kernel.in_place, &params, operands, &mut result);
        }
        let outs = result.places();
        kernel.run(&params, &outs).map_err(|why| Error::at(module, id, why))?;
        if start {
            return Ok(Value::Tuple(vec![result, self.operand(id, 0)?, Value::Token]));
        }
        Ok(result)
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

/// Reads an array that lies in the order of its shape's layout.
pub(super) fn read_array(module: &Module, place: &Place, shape: ShapeId) -> Array {
    let ty = ArrayType::of(module, shape).expect("all shapes were checked when the program was made ready");
    let mut array = Array::zeros(ty.element, &ty.dims);
    let access = ty.view(Slot::Index).access();
    let width = array.width();
    for_each_run(&access.dims, &access.strides, 0, 0, array.len(), |at, len, stride, to| {
        if stride == 1 {
            return place.buffer.read(place.offset + at.unsigned_abs() * width, &mut array.data[to * width..(to + len) * width]);
        }
        for i in 0..len {
            let from = (at + i.cast_signed() * stride).unsigned_abs() * width;
            place.buffer.read(place.offset + from, &mut array.data[(to + i) * width..(to + i + 1) * width]);
        }
    });
    array
}
