//! `offc run`: runs a module with the reference interpreter, or on a GPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use offc::analysis::settle::settle;
use offc::interp::{Array, Clock, Error, HighWater, Outcome, Placement, RunOptions};
use offc::ir::Module;
use offc::units::Bytes;

use crate::arena::placement;
use crate::backend::{Backend, Ready};
use crate::device::machine;
use crate::files::Pending;
use crate::input::load_verified;
use crate::outcome::{Failure, tell};
use crate::terminal::{Progress, Style};
use crate::timing::{self, Monotonic};
use crate::values::{Inputs, Source, inputs, streamed, together};
use offc::interp::npz;

/// Arguments of `offc run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Types that NumPy lacks are kept as bits, the type in the name: arg0__bf16 of uint16.\n\nWith several partitions an input \
has the dimensions of its parameter, and all get it, or it is cut into equal parts along the dimensions that are larger.\n\nExamples:\n  \
offc run step.hlo --inputs in.npz --outputs out.npz\n  offc run step.pb --seed 1 --save-inputs in.npz --outputs out.npz\n  \
offc run step.pb --timing step.json    # open it at ui.perfetto.dev; step.toml is for --calibration"
)]
pub struct Args {
    /// The module; `-` is standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    #[command(flatten)]
    source: Source,
    /// Write the result's arrays, in order, as `out0`, `out1` …
    #[arg(long, value_name = "OUT.npz")]
    outputs: Option<PathBuf>,
    /// Write the inputs as they were used
    #[arg(long, value_name = "IN.npz")]
    save_inputs: Option<PathBuf>,
    /// Run so many partitions at once, in step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    partitions: u16,
    /// What runs the module
    #[arg(long, value_name = "BACKEND", default_value = "cpu")]
    backend: Backend,
    /// Add up in whatever order is fast: results are near those of the exact order, but depend on the machine; on AMX tiles subnormal `bf16`
    /// numbers count as zero
    #[arg(long)]
    fast: bool,
    /// Measure every instruction and transfer: a trace for Perfetto, and beside it a calibration file (FILE.toml); tell how far
    /// the prediction is off
    #[arg(long, value_name = "FILE.json")]
    timing: Option<PathBuf>,
    /// The machine to predict times for
    #[arg(long, value_name = "NAME|SPEC.txtpb", default_value = "h100-sxm", requires = "timing")]
    device: String,
    /// What was measured on that machine before: a TOML file
    #[arg(long, value_name = "FILE.toml", requires = "timing")]
    calibration: Option<PathBuf>,
    /// Device memory that there is; a scheduled module that needs more is not started [default: what it needs]
    #[arg(long, value_name = "SIZE")]
    arena: Option<Bytes>,
}

/// A module and where its values lie.
pub struct Planned {
    /// The module: a scheduled one as XLA settles it.
    pub module: Module,
    /// The plan of a scheduled module; values of any other one have memory of their own.
    pub placement: Option<Placement>,
}

/// Reads a module and assigns its buffers.
pub fn load_planned(path: &Path, style: Style) -> Result<Planned, Failure> {
    let module = load_verified(path, style)?.module;
    if !module.is_scheduled {
        return Ok(Planned { module, placement: None });
    }
    let _progress = Progress::start("assigning buffers");
    let module = settle(&module).unwrap_or(module);
    let placement = Some(placement(&module));
    Ok(Planned { module, placement })
}

/// Runs the command.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    args.backend.available()?;
    if let Some(path) = args.timing.as_deref().filter(|p| timing::calibration_path(p) == **p) {
        return Err(Failure::Usage(format!("`--timing {}`: that is the name of the calibration file beside the trace", path.display())));
    }
    let machine = args.timing.is_some().then(|| machine(&args.device, args.calibration.as_deref())).transpose()?;
    let planned = load_planned(&args.input, style)?;
    let module = &planned.module;
    let clock: Option<Arc<dyn Clock>> = args.timing.as_ref().map(|_| Arc::new(Monotonic::new()) as Arc<dyn Clock>);
    let options = RunOptions { placement: planned.placement.as_ref(), trace: false, fast: args.fast, clock: clock.as_ref() };
    let ready = args.backend.ready(module, args.partitions.into(), options).map_err(|errors| refused(module, &errors, style))?;
    if let Some(Bytes(arena)) = args.arena
        && ready.need() > arena
    {
        let need = Bytes(ready.need());
        let message = format!("the program needs {need} ({} bytes) of device memory, the arena has {arena} bytes", need.0);
        return Err(Failure::Infeasible { text: message, json: None });
    }
    let outcome = if args.partitions == 1 && args.backend == Backend::Cpu {
        one(args, module, options, style)?
    } else {
        several(args, module, &ready, style)?
    };
    if let Some(placement) = ready.placement() {
        tell(&memory(placement, outcome.high_water));
    }
    if let (Some(path), Some(machine)) = (&args.timing, &machine) {
        tell(&timing::write(path, module, &outcome.timed, machine, args.backend.name())?);
    }
    Ok(())
}

/// Runs one partition with one array at a time outside of the arenas.
fn one(args: &Args, module: &Module, options: RunOptions<'_>, style: Style) -> Result<Outcome, Failure> {
    let mut source = streamed(&args.source, module)?;
    if let Some(path) = &args.save_inputs {
        let count: usize = module.entry().parameters.iter().map(|&p| module.shapes.leaves(module.instr(p).shape).len()).sum();
        let arrays = (0..count).map(&mut source).collect::<Result<Vec<_>, _>>().map_err(Failure::Usage)?;
        write(path, "arg", &arrays)?;
    }
    let mut go = |sink: &mut dyn FnMut(usize, Array) -> Result<(), String>| {
        let _progress = Progress::start("running");
        offc::interp::run_streamed(module, &mut source, sink, options)
    };
    let Some(path) = &args.outputs else {
        let mut lines = String::new();
        let outcome = go(&mut |i, array| {
            lines += &summary(i, &array);
            Ok(())
        });
        let outcome = outcome.map_err(|errors| refused(module, &errors, style))?;
        return crate::files::print(lines.as_bytes()).map(|()| outcome);
    };
    let (pending, outcome) = Pending::fill(path, |out| {
        let fail = |e: &std::io::Error| Failure::file("write", path, e);
        let mut writer = npz::Writer::new(out, "out");
        let mut trouble = None;
        let result = go(&mut |_, array| {
            writer.push(&array).map_err(|e| {
                trouble = Some(fail(&e));
                "the file of outputs cannot be written".to_string()
            })
        });
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        let outcome = result.map_err(|errors| refused(module, &errors, style))?;
        writer.finish().map_err(|e| fail(&e))?;
        Ok(outcome)
    })?;
    pending.commit()?;
    Ok(outcome)
}

/// Runs all partitions; the first one's measurements stand for all.
fn several(args: &Args, module: &Module, ready: &Ready<'_>, style: Style) -> Result<Outcome, Failure> {
    let inputs = inputs(&args.source, module, args.partitions.into())?;
    if let Some(path) = &args.save_inputs {
        write(path, "arg", &inputs.of[0])?;
    }
    let progress = Progress::start("running");
    let result = ready.run(&inputs.of);
    drop(progress);
    let mut outcomes = result.map_err(|errors| refused(module, &errors, style))?;
    let outputs = outputs(module, &inputs, &mut outcomes);
    match &args.outputs {
        Some(path) => write(path, "out", &outputs)?,
        None => {
            let lines: String = outputs.iter().enumerate().map(|(i, array)| summary(i, array)).collect();
            crate::files::print(lines.as_bytes())?;
        }
    }
    Ok(outcomes.swap_remove(0))
}

fn write(path: &Path, prefix: &str, arrays: &[Array]) -> Result<(), Failure> {
    Pending::write(path, npz::write(prefix, arrays))?.commit()
}

/// Runs a module on all partitions with the interpreter; what cannot be run, or where it stops, is told.
pub fn evaluate(planned: &Planned, inputs: &Inputs, trace: bool, style: Style) -> Result<Vec<Outcome>, Failure> {
    let options = RunOptions { placement: planned.placement.as_ref(), trace, ..RunOptions::default() };
    offc::interp::run(&planned.module, &inputs.of, options).map_err(|errors| refused(&planned.module, &errors, style))
}

fn refused(module: &Module, errors: &[Error], style: Style) -> Failure {
    for error in errors {
        tell(&format!("{}: {}\n", style.error("error"), sentence(module, error)));
    }
    Failure::Input(None)
}

fn sentence(module: &Module, error: &Error) -> String {
    let found = module.live().map(|(_, id)| module.instr(id)).find(|i| i.name == error.instruction);
    match found {
        Some(instr) => format!("cannot run `{}` ({}): {}", instr.name, instr.op.opcode(), error.message),
        None => error.message.clone(),
    }
}

/// The outputs of all partitions as one list.
pub fn outputs(module: &Module, inputs: &Inputs, outcomes: &mut [Outcome]) -> Vec<Array> {
    let outputs = outcomes.iter_mut().map(|o| std::mem::take(&mut o.outputs)).collect();
    together(module, inputs, outputs)
}

/// What a run needed of each arena.
fn memory(placement: &Placement, used: HighWater) -> String {
    let line = |name: &str, size: usize, top: usize, alive: usize| {
        format!("{name} arena: {size} bytes planned, {top} used, at most {alive} alive at once\n")
    };
    let mut out = line("device", placement.device, used.device, used.device_alive);
    if placement.host > 0 {
        out += &line("host", placement.host, used.host, used.host_alive);
    }
    out
}

/// An output's line: its type and the range of its numbers.
fn summary(i: usize, array: &Array) -> String {
    let dims: Vec<String> = array.dims.iter().map(ToString::to_string).collect();
    let (low, high) = (0..array.len())
        .map(|i| array.complex(i).0)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| if v.is_nan() { (v, v) } else { (low.min(v), high.max(v)) });
    format!("out{i}  {}[{}]  {low} … {high}\n", array.element.name(), dims.join(","))
}
