//! What XLA wrote into `backend_config` that concerns time.

use serde::{Deserialize, Deserializer};

use crate::ir::Instruction;
use crate::units::Nanos;

/// The parts of a GPU backend config that are read; all else is skipped.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    reification_cost: Vec<Reification>,
    fusion_backend_config: Option<FusionConfig>,
    known_trip_count: Option<TripCount>,
    /// Of `__cublas$…`.
    pub(super) gemm_backend_config: Option<Gemm>,
    /// Of `__cudnn$fmha…`.
    pub(super) cudnn_fmha_backend_config: Option<Attention>,
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
    #[serde(deserialize_with = "integer")]
    n: i64,
}

/// A matrix product by a library.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Gemm {
    #[serde(default)]
    pub(super) dot_dimension_numbers: DotDimensions,
}

/// `DotDimensionNumbers` in JSON, where 64 bit integers are strings.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DotDimensions {
    #[serde(default, deserialize_with = "integers")]
    pub(super) lhs_contracting_dimensions: Vec<i64>,
}

/// An attention kernel.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Attention {
    /// The scores: batch, heads, queries, keys.
    #[serde(default)]
    pub(super) intermediate_tensor_shape: Scores,
    /// `CAUSAL` halves the work.
    #[serde(default)]
    pub(super) mask_type: String,
}

/// Dimensions of a tensor that is never stored.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Scores {
    #[serde(default, deserialize_with = "integers")]
    pub(super) dimensions: Vec<i64>,
}

fn number(value: &serde_json::Value) -> Option<i64> {
    match value {
        serde_json::Value::String(text) => text.parse().ok(),
        serde_json::Value::Number(n) => n.as_i64(),
        _ => None,
    }
}

fn integer<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    number(&serde_json::Value::deserialize(from)?).ok_or_else(|| serde::de::Error::custom("expected an integer"))
}

fn integers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<i64>, D::Error> {
    let values = Vec::<serde_json::Value>::deserialize(from)?;
    values.iter().map(number).collect::<Option<_>>().ok_or_else(|| serde::de::Error::custom("expected integers"))
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
    /// How often a loop runs, as XLA wrote it down.
    pub(super) fn known_trips(&self) -> Option<u64> {
        u64::try_from(self.known_trip_count.as_ref()?.n).ok()
    }
}

/// XLA's own estimate of an instruction's time, if the module carries one.
pub fn reified_time(instr: &Instruction) -> Option<Nanos> {
    Config::of(instr).reified()
}
