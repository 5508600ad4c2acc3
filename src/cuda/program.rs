//! A whole program as a list of steps: where everything lies is known before it runs, so nothing is decided while it does.
//!
//! Work goes to three streams: one computes, one moves bytes from the device to the host, one back. A stream waits for another only where
//! the program says so: a start waits for what was computed before it, a done lets the compute stream wait for its start. Control flow is
//! the host's: it reads the condition and goes on.

use rustc_hash::FxHashMap;

use super::emit::Memory;
pub use super::layout::{aliases, align, arrange, logical};
use super::lower::{self, Code};
use super::source::Source;
use super::types::Ty;
use crate::interp::{ArenaKind, Array, Error, Placement};
use crate::ir::{CollectiveKind, CompId, EntityMap, InstrId, Module, Op, Shape, ShapeId};

/// Computations that call each other, one in the other.
const DEPTH: usize = 64;

/// A queue of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Kernels, and copies within a memory.
    Compute,
    /// From the device to the host.
    ToHost,
    /// From the host to the device.
    ToDevice,
}

impl Stream {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Compute, Self::ToHost, Self::ToDevice];
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::ToHost => "device to host",
            Self::ToDevice => "host to device",
        }
    }
}

/// Bytes of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The arena.
    pub arena: ArenaKind,
    /// The first byte.
    pub offset: usize,
    /// The number of bytes.
    pub bytes: usize,
}

impl Place {
    /// Whether they share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.arena == other.arena && self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }
}

/// What an argument of a kernel points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// A byte of an arena.
    Arena(ArenaKind, usize),
    /// A byte of the stream's scratch memory.
    Scratch(usize),
}

/// One kernel to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCall {
    /// The kernel.
    pub kernel: String,
    /// Blocks.
    pub grid: u32,
    /// Threads a block.
    pub block: u32,
    /// Its arguments.
    pub args: Vec<Address>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Kernels, one after the other.
    Kernels {
        /// The instruction they are.
        instr: InstrId,
        /// Where they run.
        stream: Stream,
        /// The kernels.
        calls: Vec<KernelCall>,
    },
    /// Bytes from one place to another.
    Copy {
        /// The instruction it is.
        instr: InstrId,
        /// Where it runs.
        stream: Stream,
        /// From.
        from: Place,
        /// To.
        to: Place,
    },
    /// An event happens when all work so far of a stream is done.
    Record {
        /// The instruction that asks for it.
        instr: InstrId,
        /// Its number.
        event: usize,
        /// The stream.
        stream: Stream,
    },
    /// A stream goes on when an event has happened.
    Wait {
        /// The instruction that asks for it.
        instr: InstrId,
        /// Its number.
        event: usize,
        /// The stream.
        stream: Stream,
    },
    /// A loop.
    While {
        /// The instruction.
        instr: InstrId,
        /// Computes the condition.
        condition: Vec<Step>,
        /// The condition: one byte.
        go: Place,
        /// The body.
        body: Vec<Step>,
    },
    /// A choice.
    Conditional {
        /// The instruction.
        instr: InstrId,
        /// What is chosen by: a byte that is not 0 for the first branch, or a number of four bytes.
        choice: Place,
        /// The branches; the last one for a number that is none of them.
        branches: Vec<Vec<Step>>,
    },
}

/// A program made ready.
#[derive(Clone, Debug)]
pub struct Program {
    /// The steps.
    pub steps: Vec<Step>,
    /// The kernels.
    pub source: Source,
    /// Bytes of the device arena.
    pub device: usize,
    /// Bytes of the host arena.
    pub host: usize,
    /// Bytes of scratch memory that each stream needs beside the arenas, which the plan does not know of.
    pub scratch: [usize; 3],
    /// The number of events.
    pub events: usize,
    /// Where the arrays of the parameters go, and their types.
    pub parameters: Vec<(Place, Ty)>,
    /// What lies in memory before the first step: constants.
    pub constants: Vec<(Place, Vec<u8>)>,
    /// Where the arrays of the result are, and their types.
    pub results: Vec<(Place, Ty)>,
}

/// A value: where its arrays lie.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Array(Place),
    Tuple(Vec<Value>),
    Token,
}

impl Value {
    fn places(&self) -> Vec<Place> {
        match self {
            Self::Array(place) => vec![*place],
            Self::Tuple(parts) => parts.iter().flat_map(Self::places).collect(),
            Self::Token => Vec::new(),
        }
    }
}

impl Program {
    /// Makes a scheduled module ready that is settled and lies where a placement says. The errors are all instructions that cannot be run.
    pub fn new(module: &Module, placement: &Placement) -> Result<Self, Vec<Error>> {
        let (program, errors) = Self::parts(module, placement);
        if errors.is_empty() { Ok(program) } else { Err(errors) }
    }

    /// What can be made ready, and the errors: for who looks at the kernels only.
    pub fn parts(module: &Module, placement: &Placement) -> (Self, Vec<Error>) {
        let mut builder = Builder {
            module,
            placement,
            values: EntityMap::with_default(None),
            errors: Vec::new(),
            events: 0,
            arrivals: FxHashMap::default(),
            depth: 0,
            program: Self {
                steps: Vec::new(),
                source: Source::default(),
                device: placement.device,
                host: placement.host,
                scratch: [0; 3],
                events: 0,
                parameters: Vec::new(),
                constants: Vec::new(),
                results: Vec::new(),
            },
        };
        let result = builder.entry();
        if let Err(error) = result {
            builder.errors.push(error);
        }
        (builder.program, builder.errors)
    }
}

struct Builder<'m> {
    module: &'m Module,
    placement: &'m Placement,
    values: EntityMap<InstrId, Option<Value>>,
    errors: Vec<Error>,
    events: usize,
    /// The events that starts promise, and where.
    arrivals: FxHashMap<InstrId, usize>,
    depth: usize,
    program: Program,
}

type Built<T> = Result<T, Error>;

impl Builder<'_> {
    fn fail<T>(&self, id: InstrId, why: impl Into<String>) -> Built<T> {
        Err(Error::at(self.module, id, why))
    }

    fn entry(&mut self) -> Built<()> {
        let module = self.module;
        let entry = module.entry();
        let mut args = Vec::new();
        for &parameter in &entry.parameters {
            let shape = module.instr(parameter).shape;
            let value = self.allocate(parameter, shape, &mut 0)?;
            for (place, leaf) in value.places().into_iter().zip(module.shapes.leaves(shape)) {
                let ty = Ty::of(module, leaf).map_err(|why| Error::at(module, parameter, why))?;
                self.program.parameters.push((place, ty));
            }
            args.push(value);
        }
        let mut steps = Vec::new();
        let value = self.computation(module.entry_id(), args, Stream::Compute, &mut steps)?;
        for (place, leaf) in value.places().into_iter().zip(module.shapes.leaves(module.instr(entry.root).shape)) {
            let ty = Ty::of(module, leaf).map_err(|why| Error::at(module, entry.root, why))?;
            self.program.results.push((place, ty));
        }
        self.program.steps = steps;
        self.program.events = self.events;
        Ok(())
    }

    fn computation(&mut self, comp: CompId, args: Vec<Value>, stream: Stream, steps: &mut Vec<Step>) -> Built<Value> {
        let module = self.module;
        let computation = module.comp(comp);
        self.depth += 1;
        if self.depth > DEPTH {
            return self.fail(computation.root, format!("computations nest deeper than {DEPTH}"));
        }
        for (&parameter, arg) in computation.parameters.iter().zip(args) {
            self.values[parameter] = Some(arg);
        }
        for &id in &computation.order {
            if matches!(module.instr(id).op, Op::Parameter { .. }) {
                continue;
            }
            // All instructions that have no kernel are named, not only the first.
            let value = match self.instruction(id, stream, steps) {
                Ok(value) => value,
                Err(error) => {
                    self.errors.push(error);
                    self.allocate(id, module.instr(id).shape, &mut 0).unwrap_or(Value::Token)
                }
            };
            self.values[id] = Some(value);
        }
        self.depth -= 1;
        match &self.values[computation.root] {
            Some(value) => Ok(value.clone()),
            None => self.fail(computation.root, "the result was not computed"),
        }
    }

    fn operand(&self, id: InstrId, i: usize) -> Built<Value> {
        match self.module.instr(id).operands.get(i).and_then(|&o| self.values[o].clone()) {
            Some(value) => Ok(value),
            None => self.fail(id, format!("operand {i} has no value")),
        }
    }
    fn operands(&self, id: InstrId) -> Built<Vec<Value>> {
        (0..self.module.instr(id).operands.len()).map(|i| self.operand(id, i)).collect()
    }

    fn allocate(&self, id: InstrId, shape: ShapeId, leaf: &mut u32) -> Built<Value> {
        Ok(match self.module.shapes.get(shape) {
            Shape::Tuple(parts) => Value::Tuple(parts.iter().map(|&p| self.allocate(id, p, leaf)).collect::<Result<_, _>>()?),
            Shape::Array(array) => {
                let bytes = usize::try_from(array.elements()).unwrap_or(usize::MAX)
                    * array.element.known().map_or(0, crate::ir::Primitive::literal_bytes);
                let planned = self.placement.buffer_of.get(&(id, *leaf)).and_then(|&b| self.placement.buffers.get(b as usize));
                *leaf += 1;
                match planned {
                    Some(planned) if planned.bytes >= bytes => Value::Array(Place { arena: planned.arena, offset: planned.offset, bytes }),
                    Some(planned) => return self.fail(id, format!("the plan gives it {} bytes, but it has {bytes}", planned.bytes)),
                    None if bytes == 0 => Value::Array(Place { arena: ArenaKind::Device, offset: 0, bytes }),
                    None => return self.fail(id, "the plan gives it no place"),
                }
            }
            _ => Value::Token,
        })
    }

    fn instruction(&mut self, id: InstrId, stream: Stream, steps: &mut Vec<Step>) -> Built<Value> {
        let module = self.module;
        let instr = module.instr(id);
        Ok(match &instr.op {
            Op::Tuple => Value::Tuple(self.operands(id)?),
            Op::GetTupleElement { index } => match (self.operand(id, 0)?, usize::try_from(*index)) {
                (Value::Tuple(mut parts), Ok(index)) if index < parts.len() => parts.swap_remove(index),
                _ => return self.fail(id, "expected a tuple"),
            },
            Op::OptBarrier | Op::AddDependency | Op::Domain(_) | Op::AsyncUpdate(_) => self.operand(id, 0)?,
            Op::Bitcast if self.same_width(id) => self.operand(id, 0)?,
            Op::AfterAll => Value::Token,
            Op::While { condition, body } => {
                let state = self.operand(id, 0)?;
                self.merges(id, &state)?;
                let (mut first, mut then) = (Vec::new(), Vec::new());
                let go = self.computation(*condition, vec![state.clone()], Stream::Compute, &mut first)?;
                let next = self.computation(*body, vec![state.clone()], Stream::Compute, &mut then)?;
                self.merges(id, &next)?;
                let Value::Array(go) = go else { return self.fail(id, "expected a condition") };
                steps.push(Step::While { instr: id, condition: first, go, body: then });
                state
            }
            Op::Conditional { branches, .. } => {
                let Value::Array(choice) = self.operand(id, 0)? else { return self.fail(id, "expected a scalar to choose by") };
                let mut all = Vec::new();
                for (i, &branch) in branches.iter().enumerate() {
                    let mut inner = Vec::new();
                    let arg = self.operand(id, i + 1)?;
                    let value = self.computation(branch, vec![arg], Stream::Compute, &mut inner)?;
                    self.merges(id, &value)?;
                    all.push(inner);
                }
                steps.push(Step::Conditional { instr: id, choice, branches: all });
                self.allocate(id, instr.shape, &mut 0)?
            }
            Op::Call { to_apply, .. } => {
                let args = self.operands(id)?;
                self.computation(*to_apply, args, stream, steps)?
            }
            Op::AsyncStart(op) => {
                let args = self.operands(id)?;
                let inner = self.stream_of(id, &args)?;
                let event = self.depart(id, inner, steps);
                let result = self.computation(op.calls, args.clone(), inner, steps)?;
                self.record(id, event, inner, steps);
                Value::Tuple(vec![Value::Tuple(args), result, Value::Token])
            }
            Op::CopyStart { .. } => {
                let Value::Array(from) = self.operand(id, 0)? else { return self.fail(id, "expected an array to copy") };
                let Value::Array(to) = self.allocate(id, module.shapes.elements(instr.shape)[0], &mut 0)? else {
                    return self.fail(id, "expected an array to copy to");
                };
                let inner = stream_between(from.arena, to.arena);
                let event = self.depart(id, inner, steps);
                let (a, b) = (self.leaf(id, instr.operands[0])?, Ty::of(module, module.shapes.elements(instr.shape)[0]));
                if b.is_ok_and(|b| b.order() == a.order()) {
                    steps.push(Step::Copy { instr: id, stream: inner, from, to });
                } else {
                    self.kernels(id, inner, &[from], &[to], steps)?;
                }
                self.record(id, event, inner, steps);
                Value::Tuple(vec![Value::Array(to), Value::Array(from), Value::Token])
            }
            Op::AsyncDone(_) | Op::CopyDone => {
                let mut start = instr.operands[0];
                while let Op::AsyncUpdate(_) = module.instr(start).op {
                    start = module.instr(start).operands[0];
                }
                if let Some(&event) = self.arrivals.get(&start) {
                    steps.push(Step::Wait { instr: id, event, stream });
                }
                let part = usize::from(!matches!(instr.op, Op::CopyDone));
                match self.operand(id, 0)? {
                    Value::Tuple(mut parts) if part < parts.len() => parts.swap_remove(part),
                    _ => return self.fail(id, "expected the tuple of a start"),
                }
            }
            Op::Collective(op) => return self.collective(id, op.kind),
            Op::Constant(literal) => {
                let value = self.allocate(id, instr.shape, &mut 0)?;
                let Value::Array(place) = value else { return self.fail(id, "a constant that is no array") };
                let array = Array::of_literal(&module.shapes, literal).ok_or("a constant without data");
                let array = array.map_err(|why| Error::at(module, id, why))?;
                let ty = self.leaf(id, id)?;
                self.program.constants.push((place, arrange(&array, &ty)));
                value
            }
            Op::Copy if self.leaf(id, id).is_ok() && self.leaf(id, id)?.order() == self.leaf(id, instr.operands[0])?.order() => {
                let value = self.allocate(id, instr.shape, &mut 0)?;
                let (from, to) = (self.operand(id, 0)?.places()[0], value.places()[0]);
                if from != to && to.bytes > 0 {
                    steps.push(Step::Copy { instr: id, stream, from, to });
                }
                value
            }
            Op::Send(_) | Op::SendDone(_) | Op::Recv(_) | Op::RecvDone(_) | Op::Infeed { .. } | Op::Outfeed { .. } => {
                return self.fail(id, "talks to the outside");
            }
            Op::CollectiveDone(kind) => return self.collective(id, *kind),
            _ => {
                let value = self.allocate(id, instr.shape, &mut 0)?;
                let operands: Vec<Place> = self.operands(id)?.iter().flat_map(Value::places).collect();
                self.kernels(id, stream, &operands, &value.places(), steps)?;
                value
            }
        })
    }

    fn collective(&self, id: InstrId, kind: CollectiveKind) -> Built<Value> {
        self.fail(id, format!("`{}` needs several devices; one is used", kind.name()))
    }

    fn leaf(&self, id: InstrId, of: InstrId) -> Built<Ty> {
        Ty::of(self.module, self.module.instr(of).shape).map_err(|why| Error::at(self.module, id, why))
    }
    fn same_width(&self, id: InstrId) -> bool {
        let bits = |of: InstrId| self.leaf(id, of).map(|ty| ty.element.bits()).ok();
        bits(id) == bits(self.module.instr(id).operands[0])
    }

    /// Where asynchronous work runs: with the transfers if it moves between memories, else with everything else.
    fn stream_of(&self, id: InstrId, args: &[Value]) -> Built<Stream> {
        let module = self.module;
        let reads: Vec<Place> = args.iter().flat_map(Value::places).collect();
        let result = match module.shapes.elements(module.instr(id).shape) {
            &[_, result, ..] => Some(result),
            _ => None,
        };
        let to_host = result.is_some_and(|r| module.shapes.leaves(r).iter().any(|&l| module.shapes.memory_space(l) == crate::ir::HOST));
        Ok(if to_host {
            Stream::ToHost
        } else if reads.iter().any(|p| p.arena == ArenaKind::Host) {
            Stream::ToDevice
        } else {
            Stream::Compute
        })
    }

    /// A start: its stream waits for what was computed before.
    fn depart(&mut self, id: InstrId, stream: Stream, steps: &mut Vec<Step>) -> Option<usize> {
        if stream == Stream::Compute {
            return None;
        }
        let event = self.events;
        self.events += 2;
        steps.push(Step::Record { instr: id, event, stream: Stream::Compute });
        steps.push(Step::Wait { instr: id, event, stream });
        Some(event + 1)
    }
    fn record(&mut self, id: InstrId, event: Option<usize>, stream: Stream, steps: &mut Vec<Step>) {
        if let Some(event) = event {
            steps.push(Step::Record { instr: id, event, stream });
            self.arrivals.insert(id, event);
        }
    }

    /// Holds a value that merges others to the plan: all of them must lie where it is said to lie.
    fn merges(&self, id: InstrId, value: &Value) -> Built<()> {
        let planned = self.allocate(id, self.module.instr(id).shape, &mut 0)?.places();
        for (leaf, (found, planned)) in value.places().iter().zip(&planned).enumerate() {
            if found != planned && found.bytes > 0 {
                let message = format!(
                    "array {leaf} of its result lies at byte {}, but is planned at byte {}: a copy is missing",
                    found.offset, planned.offset
                );
                return self.fail(id, message);
            }
        }
        Ok(())
    }

    fn kernels(&mut self, id: InstrId, stream: Stream, operands: &[Place], results: &[Place], steps: &mut Vec<Step>) -> Built<()> {
        let code = lower::compile(self.module, id, &aliases(operands, results)).map_err(|why| Error::at(self.module, id, why))?;
        let Code { launches, kernels, scratch } = code;
        self.program.source.add(kernels);
        let mut offsets = Vec::new();
        let mut total: usize = 0;
        for bytes in scratch {
            offsets.push(total);
            total = (total + bytes).next_multiple_of(256);
        }
        let most = &mut self.program.scratch[stream as usize];
        *most = (*most).max(total);
        let address = |memory: Memory| match memory {
            Memory::Param(i) => Address::Arena(operands[i].arena, operands[i].offset),
            Memory::Out(i) => Address::Arena(results[i].arena, results[i].offset),
            Memory::Scratch(i) => Address::Scratch(offsets[i]),
        };
        let calls: Vec<KernelCall> = launches
            .into_iter()
            .map(|l| KernelCall { kernel: l.kernel, grid: l.grid, block: l.block, args: l.args.into_iter().map(address).collect() })
            .collect();
        if !calls.is_empty() {
            steps.push(Step::Kernels { instr: id, stream, calls });
        }
        Ok(())
    }
}

fn stream_between(from: ArenaKind, to: ArenaKind) -> Stream {
    match (from, to) {
        (ArenaKind::Device, ArenaKind::Host) => Stream::ToHost,
        (ArenaKind::Host, ArenaKind::Device) => Stream::ToDevice,
        _ => Stream::Compute,
    }
}
