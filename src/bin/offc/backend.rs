//! What runs a module: the interpreter on the CPU, or a GPU.

use offc::interp::{Array, Error, Outcome, RunOptions};
use offc::ir::Module;

use crate::outcome::Failure;

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
            Self::Cuda => Err(Failure::Usage("`--backend cuda` is not there yet: this `offc` runs modules on the CPU only".to_string())),
        }
    }

    /// Runs a module on as many partitions as there are lists of inputs.
    pub fn run(self, module: &Module, inputs: &[Vec<Array>], options: RunOptions<'_>) -> Result<Vec<Outcome>, Vec<Error>> {
        match self {
            Self::Cpu => offc::interp::run(module, inputs, options),
            Self::Cuda => Err(vec![Error::new("this backend is not there")]),
        }
    }
}
