//! XLA's device descriptions (`gpu_specs/*.txtpb`) as a [`Machine`].
//!
//! Of `gpu_device_info` the fields `core_count`, `fpus_per_core`, `clock_rate_ghz`, `memory_bandwidth`, `l2_cache_size`,
//! `device_memory_size`, `cuda_compute_capability` and the rates of both units are read; `ops_per_clock` counts multiply-adds. Unknown
//! fields are skipped. The host link is ours to say; each field may be left out:
//!
//! ```text
//! host_link {
//!   h2d_bandwidth: 50000000000 d2h_bandwidth: 50000000000 both_ways_bandwidth: 90000000000 copy_latency_ns: 2000
//!   pinned_memory: 68719476736 numa_nodes: 2 gpus_per_node: 4 node_dram_bandwidth: 260000000000
//! }
//! ```
//!
//! Without it the link is guessed: that of the preset for a device whose description names GH200 or GB200, else PCIe 5 from compute
//! capability 9 on, else PCIe 4. Host memory is never guessed to be slower than the link.

use super::presets::{COPY_LATENCY, LAUNCH_LATENCY, PINNED, both_ways, preset};
use super::textproto::{Field, Value, parse};
use super::{Calibration, Host, Machine, PeakRates};
use crate::diag::{Diagnostic, Span};
use crate::units::{Bytes, BytesPerSec, FlopsPerSec, Nanos};

/// Reads a device description. Errors carry codes `M01` (syntax), `M02` (a value that is none), `M03` (something needed is absent).
pub fn from_spec(text: &str) -> Result<Machine, Vec<Diagnostic>> {
    let top = parse(text).map_err(|d| vec![d])?;
    let mut read = Reading { errors: Vec::new() };
    let Some(device) = message(&top, "gpu_device_info") else {
        return Err(vec![missing("gpu_device_info", Span::new(0, text.len().min(1)))]);
    };
    let at = top.iter().find(|f| f.name == "gpu_device_info").map_or(Span::default(), |f| f.span);
    let machine = read.machine(&top, device, at);
    if read.errors.is_empty() { Ok(machine) } else { Err(read.errors) }
}

fn message<'f, 't>(fields: &'f [Field<'t>], name: &str) -> Option<&'f [Field<'t>]> {
    fields.iter().rev().find_map(|f| match &f.value {
        Value::Message(inner) if f.name == name => Some(inner.as_slice()),
        _ => None,
    })
}

fn missing(name: &str, at: Span) -> Diagnostic {
    Diagnostic::error("M03", format!("expected a field `{name}`, found none")).at(at, "in this message")
}

struct Reading {
    errors: Vec<Diagnostic>,
}

impl Reading {
    /// A number that must be positive and below 2⁶³; the last of several counts, as in protobuf.
    fn number(&mut self, fields: &[Field<'_>], name: &str) -> Option<f64> {
        let field = fields.iter().rev().find(|f| f.name == name)?;
        let text = match field.value {
            Value::Scalar(text) => text,
            Value::Text(_) => "a string",
            Value::Message(_) => "a message",
        };
        match text.parse::<f64>() {
            Ok(n) if n > 0.0 && n < 9.2e18 => Some(n),
            _ => {
                let shown: String = text.chars().take(40).collect();
                let said = format!("expected a positive number for `{name}`, found `{shown}`");
                self.errors.push(Diagnostic::error("M02", said).at(field.at, ""));
                None
            }
        }
    }

    fn needed(&mut self, fields: &[Field<'_>], name: &str, at: Span) -> f64 {
        let errors = self.errors.len();
        let number = self.number(fields, name);
        if number.is_none() && self.errors.len() == errors {
            self.errors.push(missing(name, at));
        }
        number.unwrap_or(1.0)
    }

    /// The rate of one element type (by XLA's `PrimitiveType` number) of a unit, for all multiprocessors.
    fn rate(&mut self, unit: &[Field<'_>], key: &str, cores: f64) -> FlopsPerSec {
        let mut infos = unit.iter().filter(|f| f.name == "rate_infos").filter_map(|f| match &f.value {
            Value::Message(inner) => Some(inner.as_slice()),
            Value::Scalar(_) | Value::Text(_) => None,
        });
        let has_key = |info: &&[Field<'_>]| info.iter().any(|f| f.name == "key" && f.value == Value::Scalar(key));
        let Some(value) = infos.rfind(has_key).and_then(|info| message(info, "value")) else {
            return FlopsPerSec::ZERO;
        };
        let mut factor = |name| self.number(value, name).unwrap_or(0.0);
        let multiply_adds = factor("clock_rate_ghz") * 1e9 * factor("units_per_core") * factor("ops_per_clock");
        FlopsPerSec::from_f64(2.0 * cores * multiply_adds)
    }

    fn rates(&mut self, device: &[Field<'_>], unit: &str, cores: f64) -> PeakRates {
        let Some(unit) = message(device, unit) else { return PeakRates::default() };
        PeakRates {
            f64: self.rate(unit, "12", cores),
            f32: self.rate(unit, "11", cores),
            f16: self.rate(unit, "16", cores),
            f8: self.rate(unit, "20", cores),
            f4: self.rate(unit, "32", cores),
            int8: self.rate(unit, "2", cores),
        }
    }

    fn machine(&mut self, top: &[Field<'_>], device: &[Field<'_>], at: Span) -> Machine {
        let text = |fields: &[Field<'_>], name: &str| {
            fields.iter().rev().find_map(|f| match f.value {
                Value::Text(text) if f.name == name => Some(text.to_string()),
                _ => None,
            })
        };
        let name = text(top, "device_description_str").or_else(|| text(device, "name")).unwrap_or_else(|| "device".to_string());
        let cores = self.needed(device, "core_count", at);
        let mut vector = self.rates(device, "scalar_unit_description", cores);
        if vector.f32.is_zero() {
            let clock = self.number(device, "clock_rate_ghz").unwrap_or(1.0);
            let units = self.number(device, "fpus_per_core").unwrap_or(64.0);
            vector.f32 = FlopsPerSec::from_f64(2e9 * cores * units * clock);
        }
        let capability = message(device, "cuda_compute_capability").and_then(|c| self.number(c, "major")).unwrap_or(9.0);
        let like = if name.contains("GH200") {
            "gh200"
        } else if name.contains("GB200") {
            "gb200"
        } else if capability >= 10.0 {
            "b200"
        } else if capability >= 9.0 {
            "h100-sxm"
        } else {
            "a100-sxm-80"
        };
        let like = preset(like).expect("these are names of presets");
        let none = Vec::new();
        let link = message(top, "host_link").unwrap_or(&none);
        let mut rate = |name, guess| self.number(link, name).map_or(guess, BytesPerSec::from_f64);
        let (h2d, d2h) = (rate("h2d_bandwidth", like.h2d), rate("d2h_bandwidth", like.d2h));
        let both = self.number(link, "both_ways_bandwidth").map_or_else(|| both_ways(h2d, d2h), BytesPerSec::from_f64);
        let pinned = self.number(link, "pinned_memory").map_or(PINNED, Bytes::from_f64);
        let mut count = |name, guess: u32| self.number(link, name).map_or(guess, |n| (n as u32).max(1));
        let (numa_nodes, gpus_per_node) = (count("numa_nodes", like.host.numa_nodes), count("gpus_per_node", like.host.gpus_per_node));
        let fast_enough = like.host.node_dram.max(h2d.max(d2h) * u64::from(gpus_per_node));
        let node_dram = self.number(link, "node_dram_bandwidth").map_or(fast_enough, BytesPerSec::from_f64);
        let copy_latency = self.number(link, "copy_latency_ns").map_or(COPY_LATENCY, Nanos::from_f64);
        Machine {
            name,
            memory: Bytes::from_f64(self.needed(device, "device_memory_size", at)),
            hbm: BytesPerSec::from_f64(self.needed(device, "memory_bandwidth", at)),
            l2: self.number(device, "l2_cache_size").map_or(Bytes::ZERO, Bytes::from_f64),
            cores: cores as u32,
            matrix: self.rates(device, "matrix_unit_description", cores),
            vector,
            h2d,
            d2h,
            both_ways: both,
            peer: like.peer,
            copy_latency,
            launch_latency: LAUNCH_LATENCY,
            fabric: like.fabric,
            host: Host { pinned, numa_nodes, gpus_per_node, node_dram },
            calibration: Calibration::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "gpu_device_info { core_count: 132 memory_bandwidth: 3352320000000 device_memory_size: 84942979072 future: { a: 1 }
        matrix_unit_description { rate_infos { key: 16 value { clock_rate_ghz: 1.83 units_per_core: 4 ops_per_clock: 512 } } } }
        device_description_str: \"NVIDIA H100 80GB HBM3\"";

    #[test]
    fn a_description_becomes_a_machine() {
        let m = from_spec(SPEC).unwrap();
        assert_eq!((m.memory, m.cores, m.hbm), (Bytes(84_942_979_072), 132, BytesPerSec(3_352_320_000_000)));
        assert_eq!(m.matrix.f16.get() / 1_000_000_000_000, 989);
        assert_eq!(m.h2d, BytesPerSec::gb(50.0));
    }

    #[test]
    fn the_host_link_can_be_said() {
        let m = from_spec(&format!("{SPEC} host_link {{ h2d_bandwidth: 4e11 d2h_bandwidth: 17e10 copy_latency_ns: 900 }}")).unwrap();
        assert_eq!((m.h2d, m.d2h, m.copy_latency), (BytesPerSec::gb(400.0), BytesPerSec::gb(170.0), Nanos(900)));
        assert!(m.host.share() >= m.h2d);
        let m = from_spec(&format!("{SPEC} host_link {{ node_dram_bandwidth: 1e11 gpus_per_node: 4 }}")).unwrap();
        assert_eq!((m.from_host_rate(), m.to_host_rate()), (BytesPerSec::gb(25.0), BytesPerSec::gb(25.0)));
    }

    #[test]
    fn all_errors_are_told_at_once() {
        let errors = from_spec("gpu_device_info { core_count: many l2_cache_size: -1 }").unwrap_err();
        let codes: Vec<&str> = errors.iter().map(|d| d.code).collect();
        assert_eq!(codes, ["M02", "M03", "M03", "M02"]);
    }
}
