//! From a module to the steps of a program: values are places of memory, instructions are kernels, copies, and the order of streams.

use rustc_hash::FxHashMap;

use super::emit::Memory;
use super::layout::{aliases, arrange};
use super::lower::{self, Code};
use super::program::{Address, KernelCall, Place, Program, Step, Stream};
use super::source::Source;
use super::types::Ty;
use crate::interp::{ArenaKind, Array, Error, Placement};
use crate::ir::{CompId, EntityMap, HOST, InstrId, Module, Op, Shape, ShapeId};

/// Computations that call each other, one in the other.
const DEPTH: usize = 64;
/// The buffer of a value that no plan knows.
const UNPLANNED: u32 = u32::MAX;

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

/// Makes a module ready, as far as it can be.
pub(super) fn build(module: &Module, placement: Option<&Placement>) -> (Program, Vec<Error>) {
    let mut builder = Builder {
        module,
        placement,
        values: EntityMap::with_default(None),
        errors: Vec::new(),
        arrivals: FxHashMap::default(),
        depth: 0,
        program: Program {
            steps: Vec::new(),
            source: Source::default(),
            device: placement.map_or(0, |p| p.device),
            host: placement.map_or(0, |p| p.host),
            scratch: [0; 3],
            events: 0,
            parameters: Vec::new(),
            constants: Vec::new(),
            results: Vec::new(),
            products: 0,
        },
    };
    if let Err(error) = builder.entry() {
        builder.errors.push(error);
    }
    (builder.program, builder.errors)
}

struct Builder<'m> {
    module: &'m Module,
    placement: Option<&'m Placement>,
    values: EntityMap<InstrId, Option<Value>>,
    errors: Vec<Error>,
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
        let (mut args, mut steps) = (Vec::new(), Vec::new());
        for &parameter in &entry.parameters {
            let shape = module.instr(parameter).shape;
            let value = self.allocate(parameter, shape, &mut 0)?;
            self.wrote(parameter, 0, &value.places(), &mut steps);
            for (place, leaf) in value.places().into_iter().zip(module.shapes.leaves(shape)) {
                let ty = Ty::of(module, leaf).map_err(|why| Error::at(module, parameter, why))?;
                self.program.parameters.push((place, ty));
            }
            args.push(value);
        }
        let value = self.computation(module.entry_id(), args, Stream::Compute, &mut steps)?;
        for (place, leaf) in value.places().into_iter().zip(module.shapes.leaves(module.instr(entry.root).shape)) {
            let ty = Ty::of(module, leaf).map_err(|why| Error::at(module, entry.root, why))?;
            self.program.results.push((place, ty));
        }
        self.program.steps = steps;
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
            if !matches!(module.instr(id).op, Op::Parameter { .. }) {
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
            if let Some(buffers) = self.placement.and_then(|p| p.dying.get(&id)) {
                steps.push(Step::Ended { instr: id, buffers: buffers.clone() });
            }
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

    /// Where a value lies: where the plan says, or in fresh memory.
    fn allocate(&mut self, id: InstrId, shape: ShapeId, leaf: &mut u32) -> Built<Value> {
        let module = self.module;
        Ok(match module.shapes.get(shape) {
            Shape::Tuple(parts) => Value::Tuple(parts.iter().map(|&p| self.allocate(id, p, leaf)).collect::<Result<_, _>>()?),
            Shape::Array(array) => {
                let bytes = usize::try_from(array.elements()).unwrap_or(usize::MAX)
                    * array.element.known().map_or(0, crate::ir::Primitive::literal_bytes);
                let Some(placement) = self.placement else {
                    return Ok(Value::Array(self.fresh(module.shapes.memory_space(shape) == HOST, bytes)));
                };
                let planned = placement.buffer(id, *leaf);
                *leaf += 1;
                match planned {
                    Some(planned) => match placement.check(planned, bytes) {
                        Ok(()) => Value::Array(Place { arena: planned.arena, offset: planned.offset, bytes }),
                        Err(why) => return self.fail(id, why),
                    },
                    None if bytes == 0 => Value::Array(Place { arena: ArenaKind::Device, offset: 0, bytes }),
                    None => return self.fail(id, "the plan gives it no place"),
                }
            }
            _ => Value::Token,
        })
    }

    /// Memory that nothing else has.
    fn fresh(&mut self, host: bool, bytes: usize) -> Place {
        let (arena, end) = if host { (ArenaKind::Host, &mut self.program.host) } else { (ArenaKind::Device, &mut self.program.device) };
        let offset = end.next_multiple_of(256);
        *end = offset.saturating_add(bytes);
        Place { arena, offset, bytes }
    }

    /// Values are there from now on; the first of them is that array of the instruction's result.
    fn wrote(&self, id: InstrId, first: u32, places: &[Place], steps: &mut Vec<Step>) {
        let buffer = |leaf: u32| self.placement.map_or(Some(UNPLANNED), |p| p.buffer_of.get(&(id, leaf)).copied());
        let parts: Vec<(u32, Place)> = (first..).zip(places).filter_map(|(leaf, &place)| Some((buffer(leaf)?, place))).collect();
        if parts.iter().any(|p| p.1.bytes > 0) {
            steps.push(Step::Written { instr: id, parts });
        }
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
                let begin = self.operand(id, 0)?;
                let state = self.merged(id, &begin, None, stream, steps)?;
                let (mut first, mut then) = (Vec::new(), Vec::new());
                let go = self.computation(*condition, vec![state.clone()], Stream::Compute, &mut first)?;
                let next = self.computation(*body, vec![state.clone()], Stream::Compute, &mut then)?;
                self.merged(id, &next, Some(&state), stream, &mut then)?;
                let Value::Array(go) = go else { return self.fail(id, "expected a condition") };
                steps.push(Step::While { instr: id, condition: first, go, body: then });
                state
            }
            Op::Conditional { branches, .. } => {
                let Value::Array(choice) = self.operand(id, 0)? else { return self.fail(id, "expected a scalar to choose by") };
                let result = self.allocate(id, instr.shape, &mut 0)?;
                let mut all = Vec::new();
                for (i, &branch) in branches.iter().enumerate() {
                    let mut inner = Vec::new();
                    let arg = self.operand(id, i + 1)?;
                    let value = self.computation(branch, vec![arg], Stream::Compute, &mut inner)?;
                    self.merged(id, &value, Some(&result), stream, &mut inner)?;
                    all.push(inner);
                }
                steps.push(Step::Conditional { instr: id, choice, branches: all });
                result
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
                self.wrote(id, 0, &[to], steps);
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
            Op::Collective(op) => return self.fail(id, format!("`{}` needs several devices; one is used", op.kind.name())),
            Op::Constant(literal) => {
                let value = self.allocate(id, instr.shape, &mut 0)?;
                let Value::Array(place) = value else { return self.fail(id, "a constant that is no array") };
                let array = Array::of_literal(&module.shapes, literal).ok_or("a constant without data");
                let array = array.map_err(|why| Error::at(module, id, why))?;
                let ty = self.leaf(id, id)?;
                self.program.constants.push((place, arrange(&array, &ty)));
                self.wrote(id, 0, &[place], steps);
                value
            }
            Op::Copy if self.leaf(id, id).is_ok() && self.leaf(id, id)?.order() == self.leaf(id, instr.operands[0])?.order() => {
                let value = self.allocate(id, instr.shape, &mut 0)?;
                let (from, to) = (self.operand(id, 0)?.places()[0], value.places()[0]);
                if from != to && to.bytes > 0 {
                    steps.push(Step::Copy { instr: id, stream, from, to });
                }
                self.wrote(id, 0, &[to], steps);
                value
            }
            Op::Send(_) | Op::SendDone(_) | Op::Recv(_) | Op::RecvDone(_) | Op::Infeed { .. } | Op::Outfeed { .. } => {
                return self.fail(id, "talks to the outside");
            }
            Op::CollectiveDone(kind) => return self.fail(id, format!("`{}` needs several devices; one is used", kind.name())),
            _ => {
                let value = self.allocate(id, instr.shape, &mut 0)?;
                let operands: Vec<Place> = self.operands(id)?.iter().flat_map(Value::places).collect();
                self.kernels(id, stream, &operands, &value.places(), steps)?;
                self.wrote(id, 0, &value.places(), steps);
                value
            }
        })
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
        let event = self.program.events;
        self.program.events += 2;
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

    /// Brings a value to where it meets others: the plan has it there already, else it is copied.
    fn merged(&mut self, id: InstrId, value: &Value, to: Option<&Value>, stream: Stream, steps: &mut Vec<Step>) -> Built<Value> {
        let target = match to {
            Some(to) => to.clone(),
            None => self.allocate(id, self.module.instr(id).shape, &mut 0)?,
        };
        let pairs: Vec<(Place, Place)> = value.places().into_iter().zip(target.places()).filter(|(a, b)| a != b && a.bytes > 0).collect();
        if let (Some((found, planned)), true) = (pairs.first(), self.placement.is_some()) {
            let message = format!(
                "an array of its result lies at byte {}, but is planned at byte {}: a copy is missing",
                found.offset, planned.offset
            );
            return self.fail(id, message);
        }
        // What lies where another array goes is taken aside first.
        let mut last = Vec::new();
        for &(from, to) in &pairs {
            let aside = if pairs.iter().any(|(_, other)| other.overlaps(&from)) {
                let aside = self.fresh(from.arena == ArenaKind::Host, from.bytes);
                steps.push(Step::Copy { instr: id, stream, from, to: aside });
                aside
            } else {
                from
            };
            last.push(Step::Copy { instr: id, stream, from: aside, to });
        }
        steps.extend(last);
        Ok(target)
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
            .map(|l| KernelCall {
                kernel: l.kernel,
                grid: l.grid,
                block: l.block,
                args: l.args.into_iter().map(address).collect(),
                // Libraries have memory of their own for one stream only.
                product: l.product.filter(|_| stream == Stream::Compute).map(|p| p.map(address)),
            })
            .collect();
        self.program.products += calls.iter().filter(|c| c.product.is_some()).count();
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
