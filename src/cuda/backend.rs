//! Carries out the steps of a program on a GPU.

use super::driver::{Gpu, Moment, Needs};
use super::ledger::Ledger;
use super::program::{Place, Program, Step, Stream, arrange, logical};
use crate::interp::{ArenaKind, Array, Direction, Error, HighWater, Measured, Placement, Span, Timed};
use crate::ir::{InstrId, Module};

pub use super::blas::{WORKSPACE, is_present as has_library};
pub use super::driver::{available, bus_address};
pub use super::numa::Node;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'p> {
    /// Whether to measure every step.
    pub timing: bool,
    /// The plan that the program was made ready with.
    pub plan: Option<&'p Placement>,
    /// Whether its buffers are poisoned when their live ranges end: a fill each.
    pub poison: bool,
    /// Whether matrix products of `f32` may be computed in TF32.
    pub fast: bool,
    /// The NUMA node that the host arena is to lie on.
    pub near: Option<&'p Node>,
}

/// What a run gives.
#[derive(Debug, Default)]
pub struct Done {
    /// The arrays of the result, in order.
    pub outputs: Vec<Array>,
    /// What was measured, if that was asked for: nanoseconds from the first step, by the GPU's events.
    pub timed: Vec<Timed>,
    /// What it needed of its arenas.
    pub high_water: HighWater,
    /// Matrix products that the library computed, and those that it could have.
    pub products: [usize; 2],
    /// Why the library did not compute them.
    pub why_not: Option<String>,
    /// Where the host arena lies.
    pub host_lies: String,
}

/// Runs a program. Errors name the instruction that was given to the GPU; what fails later, on the GPU, is met at the next instruction
/// that waits.
pub fn run(module: &Module, program: &Program, inputs: &[Array], options: Options<'_>) -> Result<Done, Error> {
    let Options { timing, fast, near, .. } = options;
    let &Program { device, host, scratch, events, .. } = program;
    let needs = Needs { device, host, scratch, events, library: program.products > 0, fast, near };
    let mut gpu = Gpu::new(needs).map_err(Error::new)?;
    gpu.load(&program.source).map_err(Error::new)?;
    if inputs.len() != program.parameters.len() {
        return Err(Error::new(format!("expected {} inputs, found {}", program.parameters.len(), inputs.len())));
    }
    for ((place, ty), array) in program.parameters.iter().zip(inputs) {
        if array.element != ty.element
            || !array.dims.iter().zip(&ty.dims).all(|(&a, &b)| a as i64 == b)
            || array.dims.len() != ty.dims.len()
        {
            let message = format!("expected {}{:?}, found {}{:?}", ty.element.name(), ty.dims, array.element.name(), array.dims);
            return Err(Error::new(message));
        }
        gpu.write(*place, &arrange(array, ty)).map_err(Error::new)?;
    }
    for (place, bytes) in &program.constants {
        gpu.write(*place, bytes).map_err(Error::new)?;
    }
    let begin = if timing { Some(gpu.moment(Stream::Compute).map_err(Error::new)?) } else { None };
    let mut run = Run { module, gpu: &gpu, options, moments: Vec::new(), ledger: Ledger::default(), products: [0; 2] };
    run.steps(&program.steps)?;
    let (moments, high_water, products) = (run.moments, run.ledger.high_water(), run.products);
    gpu.finish().map_err(Error::new)?;
    let mut timed = Vec::new();
    if let Some(begin) = begin {
        for mark in moments {
            let at = |m: &Moment| begin.until(m).map_err(Error::new);
            timed.push(Timed {
                instr: mark.instr,
                what: mark.what,
                span: Span { begin: at(&mark.begin)?, end: at(&mark.end)? },
                bytes: mark.bytes,
            });
        }
    }
    let mut outputs = Vec::new();
    for (place, ty) in &program.results {
        outputs.push(logical(&gpu.read(*place).map_err(Error::new)?, ty));
    }
    Ok(Done { outputs, timed, high_water, products, why_not: gpu.why_not.clone(), host_lies: gpu.host_lies().to_string() })
}

/// When something happened.
struct Mark {
    instr: InstrId,
    what: Measured,
    begin: Moment,
    end: Moment,
    bytes: u64,
}

struct Run<'a> {
    module: &'a Module,
    gpu: &'a Gpu,
    options: Options<'a>,
    moments: Vec<Mark>,
    ledger: Ledger,
    products: [usize; 2],
}

impl Run<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<(), Error> {
        for step in steps {
            self.step(step)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        let module = self.module;
        let at = |instr: InstrId| move |why: String| Error::at(module, instr, why);
        match step {
            Step::Kernels { instr, stream, calls } => {
                let bytes = self.moved(*instr, *stream);
                let mut by_library = 0;
                let mut launch = |gpu: &Gpu| {
                    calls.iter().try_for_each(|call| gpu.launch(*stream, call).map(|library| by_library += usize::from(library)))
                };
                self.measured(*instr, *stream, bytes, &mut launch).map_err(at(*instr))?;
                self.products[0] += by_library;
                self.products[1] += calls.iter().filter(|c| c.product.is_some()).count();
                Ok(())
            }
            Step::Copy { instr, stream, from, to } => {
                self.measured(*instr, *stream, from.bytes as u64, &mut |gpu| gpu.copy(*stream, *from, *to)).map_err(at(*instr))
            }
            Step::Record { instr, event, stream } => self.gpu.record(*stream, *event).map_err(at(*instr)),
            Step::Wait { instr, event, stream } => self.wait(*instr, *event, *stream).map_err(at(*instr)),
            Step::Written { parts, .. } => {
                parts.iter().for_each(|&(buffer, place)| self.ledger.written(buffer, place));
                Ok(())
            }
            Step::Ended { instr, buffers } => self.ended(buffers).map_err(at(*instr)),
            Step::While { instr, condition, go, body } => loop {
                self.steps(condition)?;
                if self.gpu.read(Place { bytes: 1, ..*go }).map_err(at(*instr))? == [0] {
                    return Ok(());
                }
                self.steps(body)?;
            },
            Step::Conditional { instr, choice, branches } => {
                let bytes = self.gpu.read(*choice).map_err(at(*instr))?;
                let last = branches.len() - 1;
                let branch = match bytes.as_slice() {
                    [pred] => usize::from(*pred == 0),
                    &[a, b, c, d] => usize::try_from(i32::from_le_bytes([a, b, c, d])).unwrap_or(last).min(last),
                    _ => return Err(at(*instr)("expected a pred or an s32 to choose by".to_string())),
                };
                self.steps(&branches[branch])
            }
        }
    }

    /// Bytes that a kernel on a stream of transfers moves: those of its result.
    fn moved(&self, instr: InstrId, stream: Stream) -> u64 {
        if stream == Stream::Compute { 0 } else { self.module.shapes.leaf_bytes(self.module.instr(instr).shape) }
    }

    /// Poisons what has ended, after all that was computed before: a transfer that still uses it is one that nobody waited for.
    fn ended(&mut self, buffers: &[u32]) -> Result<(), String> {
        let Some(plan) = self.options.plan else { return Ok(()) };
        for &buffer in buffers {
            let Some(planned) = plan.buffers.get(buffer as usize) else { continue };
            let planned = Place { arena: planned.arena, offset: planned.offset, bytes: planned.bytes };
            let ended = self.ledger.ended(buffer, planned);
            if self.options.poison {
                ended.into_iter().try_for_each(|place| self.gpu.poison(Stream::Compute, place))?;
            }
        }
        Ok(())
    }

    /// Lets a stream wait; how long what is computed stands still is measured.
    fn wait(&mut self, instr: InstrId, event: usize, stream: Stream) -> Result<(), String> {
        if !self.options.timing || stream != Stream::Compute {
            return self.gpu.wait(stream, event);
        }
        let begin = self.gpu.moment(stream)?;
        self.gpu.wait(stream, event)?;
        let end = self.gpu.moment(stream)?;
        self.moments.push(Mark { instr, what: Measured::Wait, begin, end, bytes: 0 });
        Ok(())
    }

    fn measured(
        &mut self,
        instr: InstrId,
        stream: Stream,
        bytes: u64,
        f: &mut dyn FnMut(&Gpu) -> Result<(), String>,
    ) -> Result<(), String> {
        if !self.options.timing {
            return f(self.gpu);
        }
        let begin = self.gpu.moment(stream)?;
        f(self.gpu)?;
        let end = self.gpu.moment(stream)?;
        let what = match stream {
            Stream::Compute => Measured::Compute,
            Stream::ToHost => Measured::Transfer(Direction::ToHost),
            Stream::ToDevice => Measured::Transfer(Direction::FromHost),
        };
        self.moments.push(Mark { instr, what, begin, end, bytes: if stream == Stream::Compute { 0 } else { bytes } });
        Ok(())
    }
}

/// What the host link carries: bytes a second to the host and to the device, one after the other, measured by events over blocks of a size.
pub fn link_rates(bytes: usize, times: u32) -> Result<[f64; 2], String> {
    let gpu = Gpu::new(Needs { device: bytes, host: bytes, ..Needs::default() })?;
    let place = |arena| Place { arena, offset: 0, bytes };
    let (device, host) = (place(ArenaKind::Device), place(ArenaKind::Host));
    let mut rates = [0.0; 2];
    for (rate, (stream, from, to)) in rates.iter_mut().zip([(Stream::ToHost, device, host), (Stream::ToDevice, host, device)]) {
        gpu.copy(stream, from, to)?;
        let begin = gpu.moment(stream)?;
        for _ in 0..times {
            gpu.copy(stream, from, to)?;
        }
        let end = gpu.moment(stream)?;
        let nanos = begin.until(&end)?.max(1);
        *rate = bytes as f64 * f64::from(times) / (nanos as f64 / 1e9);
    }
    gpu.finish()?;
    Ok(rates)
}
