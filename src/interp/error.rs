//! Why a program cannot be run, or stops.

use crate::ir::{InstrId, Module};

/// Something that went wrong at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The instruction's name; empty where it concerns no single one.
    pub instruction: Box<str>,
    /// What is wrong.
    pub message: String,
}

impl Error {
    /// At an instruction.
    pub fn at(module: &Module, id: InstrId, message: impl Into<String>) -> Self {
        Self { instruction: module.instr(id).name.clone(), message: message.into() }
    }
    /// At no single instruction.
    pub fn new(message: impl Into<String>) -> Self {
        Self { instruction: Box::default(), message: message.into() }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.instruction.is_empty() { f.write_str(&self.message) } else { write!(f, "`{}`: {}", self.instruction, self.message) }
    }
}

impl std::error::Error for Error {}
