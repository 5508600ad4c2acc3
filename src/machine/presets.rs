//! The machines that are known by name.
//!
//! Sources. Arithmetic (dense, no sparsity), memory rate, cache and multiprocessors: NVIDIA's data sheets and architecture papers
//! "H100 Tensor Core GPU" (SXM5 and PCIe), "A100 80GB" (SXM4 and PCIe), "H200", "HGX B200", "GB200 NVL72", "GH200 Grace Hopper Superchip";
//! an odd figure is the product of multiprocessors, boost clock and operations a clock. Memory: what `nvidia-smi` reports as total.
//!
//! Links to the host: PCIe 5 x16 is taken as 50 GB/s each way and PCIe 4 x16 as 25, what large pinned copies reach of 63 and 31.5.
//! GH200: 411 GB/s in, 170 out, all four GPUs of a node at once (measured, Megatron-LM issue 6491). GB200: 176 GB/s each way, measured
//! under contention (same thread). Both ways at once PCIe gives nine tenths of the sum; a plain CUDA program that saw 25 GB/s on PCIe 5
//! (jax issue 21438) used one stream and is not taken for the rule. Calibrate on the machine itself before trusting the last ten percent.
//!
//! Hosts: the machines these GPUs are sold in, and 85 % of their memory's data sheet rate. DGX A100: two EPYC 7742 with eight channels of DDR4-3200
//! (205 GB/s), four GPUs each. DGX H100 and H200: two Xeon 8480C, eight channels of DDR5-4800 (307 GB/s), four GPUs each. DGX B200: two Xeon 8570,
//! DDR5-5600 (358 GB/s), four GPUs each. GH200: one Grace with LPDDR5X (512 GB/s) a GPU. GB200: one Grace for two GPUs. On Grace a copy may
//! reach the other node's memory at a third of the rate (torchtitan issue 3519): keep host buffers on the GPU's own node.
//!
//! Fabric: a ring reaches four fifths of NVLink's one-way rate (nccl-tests on H100: 360 of 450 GB/s); network cards of 200 Gb/s
//! (A100, H100 PCIe) or 400 Gb/s a GPU. A collective's start takes 5 us, a step 1 us inside a node and 5 us between nodes.

use super::{Calibration, Fabric, Host, Machine, PeakRates};
use crate::units::{Bytes, BytesPerSec, FlopsPerSec, Nanos};

/// The machine of that name; `-` and `_` are the same, as are upper and lower case.
pub fn preset(name: &str) -> Option<Machine> {
    let wanted = name.to_ascii_lowercase().replace('_', "-");
    presets().into_iter().find(|m| m.name == wanted)
}

/// All machines that are known by name, oldest first.
pub fn presets() -> Vec<Machine> {
    TABLE.iter().map(Row::machine).collect()
}

/// A preset in the units of data sheets: MiB, GB/s, TFLOP/s.
struct Row {
    name: &'static str,
    memory_mib: u64,
    hbm: f64,
    l2_mib: u64,
    cores: u32,
    /// f64, f32 (TF32), f16, f8, f4, int8
    matrix: [f64; 6],
    /// f64, f32, f16
    vector: [f64; 3],
    h2d: f64,
    d2h: f64,
    peer: f64,
    /// GPUs in one NVLink domain or host, and GB/s of a GPU's network card.
    fabric: (u32, f64),
    /// NUMA nodes with GPUs, GPUs of each, GB/s of each node's memory.
    host: (u32, u32, f64),
}

const HOPPER_SXM: [f64; 6] = [66.9, 494.7, 989.4, 1978.9, 0.0, 1978.9];
const HOPPER_VECTOR: [f64; 3] = [33.5, 66.9, 133.8];
const AMPERE: [f64; 6] = [19.5, 156.0, 312.0, 0.0, 0.0, 624.0];
const AMPERE_VECTOR: [f64; 3] = [9.7, 19.5, 39.0];

static TABLE: &[Row] = &[
    Row {
        name: "a100-pcie-80",
        memory_mib: 81_920,
        hbm: 1935.0,
        l2_mib: 40,
        cores: 108,
        matrix: AMPERE,
        vector: AMPERE_VECTOR,
        h2d: 25.0,
        d2h: 25.0,
        peer: 25.0,
        fabric: (8, 25.0),
        host: (2, 4, 175.0),
    },
    Row {
        name: "a100-sxm-80",
        memory_mib: 81_920,
        hbm: 2039.0,
        l2_mib: 40,
        cores: 108,
        matrix: AMPERE,
        vector: AMPERE_VECTOR,
        h2d: 25.0,
        d2h: 25.0,
        peer: 300.0,
        fabric: (8, 25.0),
        host: (2, 4, 175.0),
    },
    Row {
        name: "h100-pcie",
        memory_mib: 81_559,
        hbm: 2039.0,
        l2_mib: 50,
        cores: 114,
        matrix: [51.2, 378.0, 756.0, 1513.0, 0.0, 1513.0],
        vector: [25.6, 51.2, 102.4],
        h2d: 50.0,
        d2h: 50.0,
        peer: 50.0,
        fabric: (8, 25.0),
        host: (2, 4, 260.0),
    },
    Row {
        name: "h100-sxm",
        memory_mib: 81_559,
        hbm: 3352.0,
        l2_mib: 50,
        cores: 132,
        matrix: HOPPER_SXM,
        vector: HOPPER_VECTOR,
        h2d: 50.0,
        d2h: 50.0,
        peer: 450.0,
        fabric: (8, 50.0),
        host: (2, 4, 260.0),
    },
    Row {
        name: "h200",
        memory_mib: 143_771,
        hbm: 4800.0,
        l2_mib: 50,
        cores: 132,
        matrix: HOPPER_SXM,
        vector: HOPPER_VECTOR,
        h2d: 50.0,
        d2h: 50.0,
        peer: 450.0,
        fabric: (8, 50.0),
        host: (2, 4, 260.0),
    },
    Row {
        name: "gh200",
        memory_mib: 97_871,
        hbm: 4000.0,
        l2_mib: 50,
        cores: 132,
        matrix: HOPPER_SXM,
        vector: HOPPER_VECTOR,
        h2d: 411.0,
        d2h: 170.0,
        peer: 450.0,
        fabric: (4, 50.0),
        host: (4, 1, 435.0),
    },
    Row {
        name: "b200",
        memory_mib: 183_359,
        hbm: 7700.0,
        l2_mib: 126,
        cores: 148,
        matrix: [37.0, 1100.0, 2200.0, 4500.0, 9000.0, 4500.0],
        vector: [37.0, 75.0, 75.0],
        h2d: 50.0,
        d2h: 50.0,
        peer: 900.0,
        fabric: (8, 50.0),
        host: (2, 4, 305.0),
    },
    Row {
        name: "gb200",
        memory_mib: 189_471,
        hbm: 8000.0,
        l2_mib: 126,
        cores: 152,
        matrix: [40.0, 1250.0, 2500.0, 5000.0, 10_000.0, 5000.0],
        vector: [40.0, 80.0, 80.0],
        h2d: 176.0,
        d2h: 176.0,
        peer: 900.0,
        fabric: (72, 50.0),
        host: (2, 2, 435.0),
    },
];

impl Row {
    fn machine(&self) -> Machine {
        let [m64, m32, m16, m8, m4, i8] = self.matrix.map(FlopsPerSec::tera);
        let [v64, v32, v16] = self.vector.map(FlopsPerSec::tera);
        Machine {
            name: self.name.to_string(),
            memory: Bytes::MIB * self.memory_mib,
            hbm: BytesPerSec::gb(self.hbm),
            l2: Bytes::MIB * self.l2_mib,
            cores: self.cores,
            matrix: PeakRates { f64: m64, f32: m32, f16: m16, f8: m8, f4: m4, int8: i8 },
            vector: PeakRates { f64: v64, f32: v32, f16: v16, ..PeakRates::default() },
            h2d: BytesPerSec::gb(self.h2d),
            d2h: BytesPerSec::gb(self.d2h),
            both_ways: both_ways(BytesPerSec::gb(self.h2d), BytesPerSec::gb(self.d2h)),
            peer: BytesPerSec::gb(self.peer),
            copy_latency: COPY_LATENCY,
            launch_latency: LAUNCH_LATENCY,
            fabric: Fabric {
                gpus: self.fabric.0,
                bus: BytesPerSec::gb(self.peer * 0.8),
                network: BytesPerSec::gb(self.fabric.1),
                latency: COLLECTIVE_LATENCY,
                hop: HOP,
                network_hop: NETWORK_HOP,
            },
            host: Host { pinned: PINNED, numa_nodes: self.host.0, gpus_per_node: self.host.1, node_dram: BytesPerSec::gb(self.host.2) },
            calibration: Calibration::default(),
        }
    }
}

/// A copy engine's start-up, of the order that profilers show.
pub(super) const COPY_LATENCY: Nanos = Nanos(2_000);
/// The gap between two kernels of one stream.
pub(super) const LAUNCH_LATENCY: Nanos = Nanos(1_000);
/// From a collective's call to its first byte.
const COLLECTIVE_LATENCY: Nanos = Nanos(5_000);
/// One step of a ring over NVLink.
const HOP: Nanos = Nanos(1_000);
/// One step of a ring over the network.
const NETWORK_HOP: Nanos = Nanos(5_000);

/// What a link gives both ways at once: nine tenths of the sum.
pub(super) fn both_ways(h2d: BytesPerSec, d2h: BytesPerSec) -> BytesPerSec {
    BytesPerSec((h2d + d2h).get() / 10 * 9)
}

/// XLA's default pool of pinned host memory.
pub(super) const PINNED: Bytes = Bytes::gib(64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_with_either_dash_and_are_unique() {
        let names: Vec<String> = presets().into_iter().map(|m| m.name).collect();
        assert!(names.iter().all(|n| names.iter().filter(|m| *m == n).count() == 1));
        assert_eq!(preset("H100_SXM"), preset("h100-sxm"));
        assert!(preset("h100").is_none());
    }

    #[test]
    fn every_preset_is_whole() {
        for m in presets() {
            assert!(m.memory > Bytes::gib(70) && m.hbm > m.h2d && m.h2d >= m.d2h, "{}", m.name);
            assert!(m.matrix.f16 > m.matrix.f32 && m.matrix.f32 > m.vector.f32, "{}", m.name);
            assert!(m.host.share() >= m.h2d.max(m.d2h), "{}", m.name);
            assert!(m.fabric.bus < m.peer && m.fabric.gpus >= m.host.gpus_per_node, "{}", m.name);
        }
    }
}
