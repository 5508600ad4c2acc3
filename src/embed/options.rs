//! Options as JSON.

use serde::{Deserialize, Deserializer};

use crate::machine::{Machine, Overrides, calibrate, from_spec, preset, presets};
use crate::units::{Bytes, BytesPerSec};

/// What may stand in the options, for a person.
pub const OPTIONS_HELP: &str = "\
memory        bytes as a number, or text such as \"24GiB\"; needed
device        a name of `offc devices` [h100-sxm]
spec          the text of an XLA device description, instead of `device`
calibration   the text of a calibration file
host_memory   pinned host memory that the step may take, as `memory` [the device's]
link_h2d      rate from host to device, such as \"50GB/s\"
link_d2h      rate from device to host
gpus_per_node GPUs that share the memory of one NUMA node
passes        the steps to run, such as \"fit,dce\"
best_effort   plan for the lowest peak where the budget cannot be met [false]
floor         find the lowest peak too, which takes a few more plans [false]
xla_limit     keep below the limit of XLA's own rematerialization on this machine [true]";

/// Options of [`super::rewrite`]; see [`OPTIONS_HELP`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Device memory that the step may take.
    #[serde(deserialize_with = "size")]
    pub memory: Size,
    /// The machine's name.
    #[serde(default)]
    pub device: Option<String>,
    /// The machine's description, instead of a name.
    #[serde(default)]
    pub spec: Option<String>,
    /// A calibration file's text.
    #[serde(default)]
    pub calibration: Option<String>,
    /// Pinned host memory that the step may take.
    #[serde(default)]
    pub host_memory: Option<Size>,
    /// Rate from host to device.
    #[serde(default)]
    pub link_h2d: Option<Rate>,
    /// Rate from device to host.
    #[serde(default)]
    pub link_d2h: Option<Rate>,
    /// GPUs that share the memory of one NUMA node.
    #[serde(default)]
    pub gpus_per_node: Option<u32>,
    /// The pipeline.
    #[serde(default)]
    pub passes: Option<String>,
    /// Plan for the lowest peak where the budget cannot be met.
    #[serde(default)]
    pub best_effort: bool,
    /// Find the lowest peak too.
    #[serde(default)]
    pub floor: bool,
    /// Keep below the limit of XLA's own rematerialization, which runs after the rewrite.
    #[serde(default = "yes")]
    pub xla_limit: bool,
}

fn yes() -> bool {
    true
}

/// Bytes, as a number or as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub Bytes);

/// A rate, as text or as a number of bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub BytesPerSec);

/// How a quantity may stand in JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity {
    Number(u64),
    Text(String),
}

impl Quantity {
    fn text(self) -> String {
        match self {
            Self::Number(n) => n.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// A field that must be there says so itself.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
    Size::deserialize(deserializer)
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let quantity = Quantity::deserialize(deserializer)
            .map_err(|_| serde::de::Error::custom("expected a size, such as \"24GiB\" or a whole number of bytes, found something else"))?;
        quantity.text().parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let quantity = Quantity::deserialize(deserializer)
            .map_err(|_| serde::de::Error::custom("expected a rate, such as \"50GB/s\", found something else"))?;
        quantity.text().parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl Options {
    /// Reads them; the error is a sentence.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| format!("options: {e}"))
    }

    /// The machine that they name, with all that is said over it.
    pub fn machine(&self) -> Result<Machine, String> {
        let told = |what: &str, errors: Vec<crate::diag::Diagnostic>| {
            let lines: Vec<String> = errors.iter().map(|d| format!("{}: {}", d.code, d.message)).collect();
            format!("{what}: {}", lines.join("; "))
        };
        let mut machine = match (&self.spec, self.device.as_deref().unwrap_or("h100-sxm")) {
            (Some(_), _) if self.device.is_some() => return Err("options: give `device` or `spec`, not both".to_owned()),
            (Some(spec), _) => from_spec(spec).map_err(|d| told("spec", d))?,
            (None, name) => preset(name).ok_or_else(|| {
                let names: Vec<String> = presets().into_iter().map(|m| m.name).collect();
                format!("unknown device `{name}`: expected one of {}", names.join(", "))
            })?,
        };
        if let Some(text) = &self.calibration {
            machine = calibrate(machine, text).map_err(|d| told("calibration", d))?;
        }
        let overrides = Overrides {
            h2d: self.link_h2d.map(|r| r.0),
            d2h: self.link_d2h.map(|r| r.0),
            pinned: self.host_memory.map(|b| b.0),
            gpus_per_node: self.gpus_per_node,
        };
        overrides.apply(&mut machine);
        Ok(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_or_text() {
        for text in [r#"{"memory": 25769803776}"#, r#"{"memory": "24GiB"}"#] {
            assert_eq!(Options::from_json(text).map(|o| o.memory.0), Ok(Bytes(24 << 30)), "{text}");
        }
    }

    #[test]
    fn wrong_options_are_told_in_a_sentence() {
        for (text, says) in [
            (r#"{"memory": "much"}"#, "much"),
            (r#"{"memory": 1, "memroy": 2}"#, "memroy"),
            (r#"{"device": "h100-sxm"}"#, "memory"),
            ("{", "options:"),
        ] {
            let error = Options::from_json(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
        let unknown = Options::from_json(r#"{"memory": 1, "device": "h1000"}"#).and_then(|o| o.machine()).expect_err("no such device");
        assert!(unknown.contains("h100-sxm"), "{unknown}");
    }
}
