//! What runs a module: the interpreter on the CPU, or a GPU.

use offc::cuda::program::align;
use offc::cuda::{Program, backend};
use offc::interp::{Array, Error, Outcome, Placement, RunOptions};
use offc::ir::Module;

use crate::numa;
use crate::outcome::{Failure, tell};

/// What runs a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// The reference interpreter
    #[default]
    Cpu,
    /// An NVIDIA GPU
    Cuda,
}

impl Backend {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }

    /// Whether it can run anything here; if not, why.
    pub fn available(self) -> Result<(), Failure> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda => offc::cuda::backend::available().map(|_| ()).map_err(|why| Failure::Usage(format!("`--backend cuda`: {why}"))),
        }
    }

    /// Makes a module ready for as many partitions as there are.
    pub fn ready<'m>(self, module: &'m Module, partitions: usize, options: RunOptions<'m>) -> Result<Ready<'m>, Vec<Error>> {
        match self {
            Self::Cpu => Ok(Ready::Cpu { module, options }),
            Self::Cuda if partitions != 1 => {
                let why = format!("`--backend cuda` runs one partition on one GPU, not {partitions}: collectives are not exchanged on it");
                Err(vec![Error::new(why)])
            }
            Self::Cuda => {
                // Kernels read in vectors; a plan laid end to end gives parameters any byte.
                let placement = options.placement.map(align);
                let program = Box::new(Program::new(module, placement.as_ref())?);
                Ok(Ready::Cuda { module, options, placement, program })
            }
        }
    }
}

/// A module made ready.
pub enum Ready<'m> {
    /// For the interpreter.
    Cpu {
        /// The module.
        module: &'m Module,
        /// How to run it.
        options: RunOptions<'m>,
    },
    /// For a GPU.
    Cuda {
        /// The module.
        module: &'m Module,
        /// How to run it.
        options: RunOptions<'m>,
        /// The plan as the GPU has it.
        placement: Option<Placement>,
        /// Its steps.
        program: Box<Program>,
    },
}

impl Ready<'_> {
    /// Bytes of device memory that it needs.
    pub fn need(&self) -> u64 {
        match self {
            Self::Cpu { options, .. } => options.placement.map_or(0, |p| p.device as u64),
            Self::Cuda { program, .. } => (program.device + program.scratch.iter().sum::<usize>() + workspace(program)) as u64,
        }
    }

    /// Where its values lie, if that is planned.
    pub fn placement(&self) -> Option<&Placement> {
        match self {
            Self::Cpu { options, .. } => options.placement,
            Self::Cuda { placement, .. } => placement.as_ref(),
        }
    }

    /// Runs it on as many partitions as there are lists of inputs.
    pub fn run(&self, inputs: &[Vec<Array>]) -> Result<Vec<Outcome>, Vec<Error>> {
        match self {
            Self::Cpu { module, options } => offc::interp::run(module, inputs, *options),
            Self::Cuda { module, options, placement, program } => cuda(module, *options, placement.as_ref(), program, &inputs[0]),
        }
    }
}

/// Bytes of the library of matrix products, beside the plan.
fn workspace(program: &Program) -> usize {
    if program.products > 0 && backend::has_library() { backend::WORKSPACE } else { 0 }
}

/// Runs a program on the GPU; tells what it needs of memory and what computed its matrix products.
fn cuda(
    module: &Module,
    options: RunOptions<'_>,
    placement: Option<&Placement>,
    program: &Program,
    inputs: &[Array],
) -> Result<Vec<Outcome>, Vec<Error>> {
    let timing = options.clock.is_some();
    // What costs time is left out where time is asked for.
    let poison = placement.is_some() && !timing && !options.fast;
    let scratch: usize = program.scratch.iter().sum();
    tell(&format!(
        "{} kernels; beside the plan {scratch} bytes of scratch and {} of cuBLAS; live ranges that end are {}\n",
        program.source.kernels.len(),
        workspace(program),
        if poison { "poisoned" } else { "not poisoned" }
    ));
    let near = numa::near();
    let run = backend::Options { timing, plan: placement, poison, fast: options.fast, near: near.as_ref().ok() };
    let done = backend::run(module, program, inputs, run).map_err(|e| vec![e])?;
    if program.products > 0 {
        let [library, all] = done.products;
        let why = done.why_not.map_or_else(String::new, |why| format!(": {why}"));
        tell(&format!("matrix products: {library} by cuBLAS, {} by own kernels{why}\n", all - library));
    }
    if program.host > 0 {
        let unknown = near.err().map_or_else(String::new, |why| format!("; the GPU's node is not known: {why}"));
        tell(&format!("host arena {}{unknown}\n", done.host_lies));
    }
    Ok(vec![Outcome { outputs: done.outputs, high_water: done.high_water, timed: done.timed, ..Outcome::default() }])
}
