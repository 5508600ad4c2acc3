//! What XLA wrote into `backend_config` that concerns time.

use serde::Deserialize;

use crate::ir::{InstrId, Instruction, Module, Op};
use crate::units::Nanos;

/// The parts of a GPU backend config that are read; all else is skipped.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    reification_cost: Vec<Reification>,
    fusion_backend_config: Option<FusionConfig>,
    known_trip_count: Option<TripCount>,
}

#[derive(Debug, Deserialize)]
struct Reification {
    #[serde(default)]
    exec_time_us: f64,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct FusionConfig {
    #[serde(default)]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct TripCount {
    n: serde_json::Value,
}

impl Config {
    /// The config of an instruction; one that is no JSON object says nothing.
    pub(super) fn of(instr: &Instruction) -> Self {
        let Some(bytes) = instr.attrs.backend_config.as_deref() else { return Self::default() };
        serde_json::from_slice(bytes).unwrap_or_default()
    }
    /// The time of the entry `sol` (speed of light), else of the unnamed one.
    pub(super) fn reified(&self) -> Option<Nanos> {
        let named = |name: &str| self.reification_cost.iter().find(|r| r.name == name);
        named("sol").or_else(|| named("")).map(|r| Nanos::from_micros(r.exec_time_us))
    }
    /// Whether Triton makes the kernel.
    pub(super) fn is_triton(&self) -> bool {
        self.fusion_backend_config.as_ref().is_some_and(|f| f.kind == "__triton")
    }
}

/// XLA's own estimate of an instruction's time, if the module carries one.
pub fn reified_time(instr: &Instruction) -> Option<Nanos> {
    Config::of(instr).reified()
}

/// How often the body of a `while` runs, where XLA wrote it down.
pub fn trip_count(module: &Module, id: InstrId) -> Option<u64> {
    let instr = module.instr(id);
    if !matches!(instr.op, Op::While { .. }) {
        return None;
    }
    match Config::of(instr).known_trip_count?.n {
        serde_json::Value::String(text) => text.parse().ok(),
        serde_json::Value::Number(n) => n.as_u64(),
        _ => None,
    }
}
