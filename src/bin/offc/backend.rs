//! What runs a module: the interpreter on the CPU, or a GPU.

use offc::interp::{Array, Error, HighWater, Outcome, RunOptions};
use offc::ir::Module;

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

    /// Runs a module on as many partitions as there are lists of inputs.
    pub fn run(self, module: &Module, inputs: &[Vec<Array>], options: RunOptions<'_>) -> Result<Vec<Outcome>, Vec<Error>> {
        match self {
            Self::Cpu => offc::interp::run(module, inputs, options),
            Self::Cuda => cuda(module, inputs, options),
        }
    }
}

/// Runs a scheduled module on the GPU, at the planned places; tells what it needs of memory.
fn cuda(module: &Module, inputs: &[Vec<Array>], options: RunOptions<'_>) -> Result<Vec<Outcome>, Vec<Error>> {
    let refuse = |why: &str| Err(vec![Error::new(why)]);
    let [inputs] = inputs else { return refuse("`--backend cuda` runs one partition, on one GPU") };
    let Some(placement) = options.placement else {
        return refuse("`--backend cuda` runs scheduled modules only: this one has no plan for its memory");
    };
    let placement = offc::cuda::program::align(placement);
    let program = offc::cuda::Program::new(module, &placement)?;
    let scratch: usize = program.scratch.iter().sum();
    let (kernels, device, host) = (program.source.kernels.len(), program.device, program.host);
    tell(&format!(
        "{kernels} kernels; {device} bytes of device memory, {host} of pinned host memory, {scratch} of scratch beside the plan\n"
    ));
    let done = offc::cuda::backend::run(module, &program, inputs, options.clock.is_some()).map_err(|e| vec![e])?;
    let high_water = HighWater { device, host, ..HighWater::default() };
    Ok(vec![Outcome { outputs: done.outputs, high_water, timed: done.timed, ..Outcome::default() }])
}
