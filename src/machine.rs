//! The hardware that is planned for: device memory, arithmetic, the link to the host, the host.
//!
//! A [`Machine`] is plain data. It comes from a preset ([`preset`], public vendor figures and measured link rates) or from one of XLA's
//! `gpu_specs/*.txtpb` device descriptions ([`from_spec`]), to which a `host_link { … }` of our own may be added, since XLA's say nothing
//! usable of the link. [`calibrate`] puts what was measured over it, [`Overrides`] what a command line says.
//!
//! Rates are what a program can count on, not the sum of a data sheet: both directions of a link are apart, because on real machines they
//! differ, and neither is more than the GPU's share of the memory of its NUMA node, since in a training step all GPUs copy at once.

mod calibration;
mod overrides;
mod presets;
mod spec;
mod textproto;

pub use calibration::{Adjust, CALIBRATION_VERSION, Calibration, calibrate};
pub use overrides::Overrides;
pub use presets::{preset, presets};
pub use spec::from_spec;

use serde::Serialize;

use crate::units::{Bytes, BytesPerSec, FlopsPerSec, Nanos};

/// One GPU with its share of the host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// What it is called on the command line, such as `h100-sxm`.
    pub name: String,
    /// Device memory that its driver reports. A budget is given apart from it.
    pub memory: Bytes,
    /// Rate of device memory, reads and writes together.
    pub hbm: BytesPerSec,
    /// Size of the second level cache.
    pub l2: Bytes,
    /// Streaming multiprocessors.
    pub cores: u32,
    /// Rates of the matrix units.
    pub matrix: PeakRates,
    /// Rates of the plain arithmetic units.
    pub vector: PeakRates,
    /// From host to device, one copy at a time.
    pub h2d: BytesPerSec,
    /// From device to host, one copy at a time.
    pub d2h: BytesPerSec,
    /// Both directions of the link together, when both copy.
    pub both_ways: BytesPerSec,
    /// From another GPU of the same node, one way.
    pub peer: BytesPerSec,
    /// From the start of a copy to its first byte.
    pub copy_latency: Nanos,
    /// From the end of a kernel to the start of the next.
    pub launch_latency: Nanos,
    /// What collectives run on.
    pub fabric: Fabric,
    /// The host.
    pub host: Host,
    /// What was measured for single instructions and opcodes.
    pub calibration: Calibration,
}

/// What collectives run on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fabric {
    /// GPUs that reach each other by NVLink or over one host's switches.
    pub gpus: u32,
    /// What passes through one GPU in a ring inside such a group, one way.
    pub bus: BytesPerSec,
    /// The network card of one GPU, one way.
    pub network: BytesPerSec,
    /// From a collective's start to its first byte.
    pub latency: Nanos,
    /// One step of a ring inside a group.
    pub hop: Nanos,
    /// One step between groups.
    pub network_hop: Nanos,
}

/// The variable that sets XLA's pool of pinned host memory, in GiB.
pub const PINNED_VARIABLE: &str = "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB";

/// The host of the GPU, of which all GPUs of its NUMA node have an equal share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Pinned memory that one process may take. XLA's pool holds 64 GiB unless [`PINNED_VARIABLE`] says otherwise.
    pub pinned: Bytes,
    /// NUMA nodes with GPUs.
    pub numa_nodes: u32,
    /// GPUs of one NUMA node.
    pub gpus_per_node: u32,
    /// Rate of the memory of one NUMA node, reads and writes together, as programs reach it.
    pub node_dram: BytesPerSec,
}

impl Host {
    /// The rate of host memory that is left to one GPU when all GPUs of its NUMA node copy at once.
    pub fn share(&self) -> BytesPerSec {
        BytesPerSec(self.node_dram.get() / u64::from(self.gpus_per_node.max(1)))
    }
}

/// The kinds of arithmetic whose rates differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MathType {
    /// 64 bit floats.
    F64,
    /// 32 bit floats; in matrix units as TF32, XLA's default for them.
    F32,
    /// 16 bit floats of either kind.
    F16,
    /// 8 bit floats of every kind.
    F8,
    /// 4 bit floats.
    F4,
    /// 8 bit integers.
    Int8,
}

/// Peak rates of dense arithmetic, one a type; zero where the hardware has no such unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeakRates {
    /// See [`MathType::F64`].
    pub f64: FlopsPerSec,
    /// See [`MathType::F32`].
    pub f32: FlopsPerSec,
    /// See [`MathType::F16`].
    pub f16: FlopsPerSec,
    /// See [`MathType::F8`].
    pub f8: FlopsPerSec,
    /// See [`MathType::F4`].
    pub f4: FlopsPerSec,
    /// See [`MathType::Int8`].
    pub int8: FlopsPerSec,
}

impl PeakRates {
    /// The rate of a type; of the next wider float where there is no unit for it.
    pub fn of(&self, math: MathType) -> FlopsPerSec {
        let first = |rates: &[FlopsPerSec]| rates.iter().copied().find(|r| !r.is_zero()).unwrap_or_default();
        match math {
            MathType::F64 => self.f64,
            MathType::F32 => self.f32,
            MathType::F16 => first(&[self.f16, self.f32]),
            MathType::F8 => first(&[self.f8, self.f16, self.f32]),
            MathType::F4 => first(&[self.f4, self.f8, self.f16, self.f32]),
            MathType::Int8 => first(&[self.int8, self.f16, self.f32]),
        }
    }
}

impl Machine {
    /// The rate to the host that a program can count on: of the link, or of this GPU's share of host memory where that is less.
    pub fn to_host_rate(&self) -> BytesPerSec {
        self.d2h.min(self.host.share())
    }
    /// The rate from the host that a program can count on.
    pub fn from_host_rate(&self) -> BytesPerSec {
        self.h2d.min(self.host.share())
    }
    /// The time of one copy of that size to the host, alone on the link.
    pub fn offload_time(&self, size: Bytes) -> Nanos {
        self.copy_latency + size / self.to_host_rate()
    }
    /// The time of one copy of that size from the host, alone on the link.
    pub fn reload_time(&self, size: Bytes) -> Nanos {
        self.copy_latency + size / self.from_host_rate()
    }
    /// The time that device memory takes to move that much, reads and writes together.
    pub fn hbm_time(&self, moved: Bytes) -> Nanos {
        moved / self.hbm
    }
}
