//! Machines from the command line: a name or a description, a calibration over it, single figures over that.

use std::path::{Path, PathBuf};

use offc::diag::Diagnostic;
use offc::machine::{Machine, Overrides, calibrate, from_spec, preset, presets};
use offc::units::{Bytes, BytesPerSec};

use crate::files;
use crate::outcome::{BadInput, Failure};

/// What may be said of a machine beside its name.
#[derive(Debug, clap::Args)]
pub struct MachineArgs {
    /// What was measured on the machine: a TOML file that goes before presets and descriptions
    #[arg(long, value_name = "FILE.toml")]
    pub calibration: Option<PathBuf>,
    /// Rate from host to device, such as 50GB/s
    #[arg(long, value_name = "RATE")]
    pub link_h2d: Option<BytesPerSec>,
    /// Rate from device to host
    #[arg(long, value_name = "RATE")]
    pub link_d2h: Option<BytesPerSec>,
    /// GPUs that share the memory of one NUMA node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub gpus_per_node: Option<u32>,
    /// Pinned host memory that the step may take [default: the device's; 64GiB for presets, as XLA's pool]
    #[arg(long, value_name = "SIZE")]
    pub host_memory: Option<Bytes>,
}

impl MachineArgs {
    /// The machine of a name or of a file with a description, with all that is said over it.
    pub fn machine(&self, device: &str) -> Result<Machine, Failure> {
        let mut machine = machine(device, self.calibration.as_deref())?;
        let overrides = Overrides { h2d: self.link_h2d, d2h: self.link_d2h, pinned: self.host_memory, gpus_per_node: self.gpus_per_node };
        overrides.apply(&mut machine);
        Ok(machine)
    }
}

/// The machine of a name or of a file with a description, with what was measured on it.
pub fn machine(device: &str, calibration: Option<&Path>) -> Result<Machine, Failure> {
    let machine = resolve(device)?;
    let Some(path) = calibration else { return Ok(machine) };
    let text = text_of(path)?;
    calibrate(machine, &text).map_err(|diagnostics| bad(path, text, diagnostics))
}

/// The machine of a name or of a file with a description.
pub fn resolve(device: &str) -> Result<Machine, Failure> {
    if let Some(machine) = preset(device) {
        return Ok(machine);
    }
    let path = Path::new(device);
    if !path.exists() && !device.contains(['/', '.']) {
        let names: Vec<String> = presets().into_iter().map(|m| m.name).collect();
        return Err(Failure::Usage(format!(
            "unknown device `{device}`: expected one of {}, or an XLA device description (a .txtpb file)",
            names.join(", ")
        )));
    }
    let text = text_of(path)?;
    from_spec(&text).map_err(|diagnostics| bad(path, text, diagnostics))
}

fn text_of(path: &Path) -> Result<String, Failure> {
    Ok(String::from_utf8_lossy(&files::read(path)?).into_owned())
}

fn bad(path: &Path, text: String, diagnostics: Vec<Diagnostic>) -> Failure {
    Failure::Input(Some(BadInput { name: files::name(path), text: text.into_bytes(), diagnostics }))
}
