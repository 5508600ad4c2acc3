//! What Linux tells of this host in `/sys`: NUMA nodes with their memory, NVIDIA GPUs with their nodes and links.
//!
//! What is printed is a calibration file: the tables are its comments. Rates are those of the link's standard, by lanes and encoding
//! (PCI Express Base Specification 6.0, table 1-2), times the part that large pinned copies reach; a measured rate is better.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use offc::units::{Bytes, BytesPerSec};
use serde::Serialize;

use crate::files;
use crate::outcome::Failure;

/// The part of a link's raw rate that large copies reach, as the presets have it: 50 of 63 GB/s.
const REACHED: f64 = 50.0 / 63.0;
/// NVIDIA's number among vendors.
const NVIDIA: &str = "0x10de";
/// GPUs on Grace, whose way to host memory is NVLink-C2C and no PCI link: GH200 and GB200 by their device numbers.
const GRACE: [&str; 5] = ["0x2342", "0x2345", "0x2348", "0x2941", "0x31c2"];

/// What was found.
#[derive(Debug, Serialize)]
pub struct Probe {
    schema_version: u32,
    /// NUMA nodes in order.
    nodes: Vec<Node>,
    /// NVIDIA GPUs in the order of their addresses.
    gpus: Vec<Gpu>,
    /// The calibration that follows, as TOML; `null` without a GPU.
    calibration: Option<String>,
}

#[derive(Debug, Serialize)]
struct Node {
    node: u32,
    /// Bytes of memory.
    memory: Option<u64>,
    /// Processors, as Linux writes lists of them; empty for memory without any.
    cpus: String,
    /// Bytes in a second, if the firmware tells (HMAT): the slower of reading and writing.
    bandwidth: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Gpu {
    /// Address on the PCI bus.
    address: String,
    /// The device's number.
    device: String,
    /// Its NUMA node; `null` if Linux does not know.
    node: Option<u32>,
    /// The link at its best.
    link: Option<Link>,
    /// The link as it is now; an idle one runs slower.
    link_now: Option<Link>,
    /// Whether host memory is reached over NVLink-C2C, of which the link here says nothing.
    coherent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Link {
    /// Transfers of one lane in a second, in 10⁹.
    gigatransfers: f64,
    lanes: u32,
}

impl Link {
    /// Bytes in a second, one way, after the encoding.
    fn raw(self) -> BytesPerSec {
        let encoding = match self.gigatransfers {
            g if g < 8.0 => 0.8,
            g if g < 64.0 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        BytesPerSec::gb(self.gigatransfers * f64::from(self.lanes) * encoding / 8.0)
    }
    fn counted_on(self) -> BytesPerSec {
        BytesPerSec::gb((self.raw().as_f64() * REACHED / 1e8).round() / 10.0)
    }
}

/// Reads a tree that is laid out as `/sys`.
pub fn run(sysfs: &Path, json: bool) -> Result<(), Failure> {
    if !sysfs.is_dir() {
        return Err(Failure::Usage(format!("`--probe` reads `{}`, and there is no such folder: it needs Linux", sysfs.display())));
    }
    let mut probe = Probe { schema_version: 1, nodes: nodes(sysfs), gpus: gpus(sysfs), calibration: None };
    probe.calibration = calibration(&probe);
    if json { files::print_json(&probe) } else { files::print(text(&probe, sysfs).as_bytes()) }
}

/// The content of a file of one line.
fn line(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut out: Vec<PathBuf> = entries.filter_map(Result::ok).map(|e| e.path()).collect();
    out.sort();
    out
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn nodes(sysfs: &Path) -> Vec<Node> {
    let read = |path: PathBuf| {
        let node = name(&path).strip_prefix("node")?.parse().ok()?;
        // `Node 0 MemTotal:  263784392 kB`
        let memory = std::fs::read_to_string(path.join("meminfo")).ok().and_then(|text| {
            let row = text.lines().find(|l| l.contains("MemTotal:"))?;
            row.split_whitespace().rev().nth(1)?.parse::<u64>().ok()
        });
        // In megabytes a second.
        let rate = |way: &str| line(&path.join("access0/initiators").join(way))?.parse::<u64>().ok().filter(|&n| n > 0);
        let bandwidth = rate("read_bandwidth").zip(rate("write_bandwidth")).map(|(r, w)| r.min(w).saturating_mul(1_000_000));
        let memory = memory.map(|kib| kib.saturating_mul(1024));
        Some(Node { node, memory, cpus: line(&path.join("cpulist")).unwrap_or_default(), bandwidth })
    };
    let mut out: Vec<Node> = entries(&sysfs.join("devices/system/node")).into_iter().filter_map(read).collect();
    out.sort_by_key(|n| n.node);
    out
}

fn gpus(sysfs: &Path) -> Vec<Gpu> {
    let read = |path: PathBuf| {
        // Displays and 3D controllers; an NVIDIA card has audio and bridges beside.
        line(&path.join("class")).filter(|class| class.starts_with("0x03"))?;
        line(&path.join("vendor")).filter(|vendor| vendor == NVIDIA)?;
        let device = line(&path.join("device")).unwrap_or_default();
        // -1 where Linux does not know.
        let node = line(&path.join("numa_node")).and_then(|n| n.parse().ok());
        let link = |which: &str| -> Option<Link> {
            let speed = line(&path.join(format!("{which}_link_speed")))?;
            let gigatransfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
            let lanes: u32 = line(&path.join(format!("{which}_link_width")))?.parse().ok()?;
            (gigatransfers.is_finite() && gigatransfers > 0.0 && (1..=32).contains(&lanes)).then_some(Link { gigatransfers, lanes })
        };
        let coherent = GRACE.contains(&device.as_str());
        Some(Gpu { address: name(&path), device, node, link: link("max"), link_now: link("current"), coherent })
    };
    entries(&sysfs.join("bus/pci/devices")).into_iter().filter_map(read).collect()
}

/// What the layout says that a calibration can say. Where GPUs differ, the slower link and the fuller node.
fn calibration(probe: &Probe) -> Option<String> {
    let gpus = &probe.gpus;
    if gpus.is_empty() {
        return None;
    }
    let mut on: Vec<u32> = gpus.iter().filter_map(|g| g.node).collect();
    on.sort_unstable();
    let fullest = on.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(gpus.len());
    on.dedup();
    let mut out = String::from("version = 1\nname = \"probe\"\n");
    // Links narrower than they could be (`link_now`) stay so; slower ones wake up.
    let link = |g: &Gpu| {
        let best = g.link.or(g.link_now).filter(|_| !g.coherent)?;
        Some(Link { lanes: g.link_now.map_or(best.lanes, |now| now.lanes.min(best.lanes)), ..best }.counted_on())
    };
    let slowest = gpus.iter().filter_map(link).min();
    let dram = probe.nodes.iter().filter(|n| on.contains(&n.node)).filter_map(|n| n.bandwidth).min();
    if slowest.is_some() || dram.is_some() {
        out += "\n[rates]\n";
    }
    if let Some(rate) = slowest {
        let gb = rate.as_f64() / 1e9;
        writeln!(out, "h2d = \"{gb:.1}GB/s\"\nd2h = \"{gb:.1}GB/s\"").expect("a string takes all");
    }
    if let Some(rate) = dram {
        writeln!(out, "host_dram = \"{:.1}GB/s\"", rate as f64 / 1e9).expect("a string takes all");
    }
    let nodes = on.len().max(1);
    writeln!(out, "\n[host]\nnuma_nodes = {nodes}\ngpus_per_node = {fullest}").expect("a string takes all");
    Some(out)
}

fn text(probe: &Probe, sysfs: &Path) -> String {
    let mut out = String::new();
    let mut say = |line: &str| writeln!(out, "{}", format!("# {line}").trim_end()).expect("a string takes all");
    say(&format!("host, as {} tells:", sysfs.display()));
    if probe.nodes.is_empty() {
        say("  no NUMA nodes are told");
    }
    for n in &probe.nodes {
        let memory = n.memory.map_or_else(|| "memory unknown".to_string(), |m| format!("{} of memory", Bytes(m)));
        let rate = n.bandwidth.map_or_else(String::new, |b| format!(", {} by its firmware", BytesPerSec(b)));
        let cpus = if n.cpus.is_empty() { "no processors (memory of a device)".to_string() } else { format!("processors {}", n.cpus) };
        let gpus = probe.gpus.iter().filter(|g| g.node == Some(n.node)).count();
        say(&format!("  node {}: {memory}{rate}, {gpus} {}, {cpus}", n.node, if gpus == 1 { "GPU" } else { "GPUs" }));
    }
    if probe.gpus.is_empty() {
        say("no NVIDIA GPU is here: there is nothing to calibrate");
        return out;
    }
    for g in &probe.gpus {
        let node = g.node.map_or_else(|| "node unknown".to_string(), |n| format!("node {n}"));
        let shown = |l: Link| format!("{} GT/s x{}", l.gigatransfers, l.lanes);
        let link = match (g.link.or(g.link_now), g.coherent) {
            (_, true) => "NVLink-C2C to the host: take the preset's rates".to_string(),
            (None, _) => "link unknown".to_string(),
            (Some(best), _) => {
                let now = g.link_now.filter(|&now| now != best).map_or_else(String::new, |now| format!("; now {}", shown(now)));
                format!("PCIe {}, {} raw, {} counted on{now}", shown(best), best.raw(), best.counted_on())
            }
        };
        say(&format!("  GPU {} ({}), {node}, {link}", g.address, g.device));
    }
    if probe.gpus.iter().any(|g| g.link_now.zip(g.link).is_some_and(|(now, best)| now.lanes < best.lanes)) {
        say("a link has fewer lanes than it could: is the card seated well, in the right slot?");
    }
    if probe.nodes.iter().all(|n| n.bandwidth.is_none()) {
        say("the rate of host memory is not told: the device's preset stands, unless you add `host_dram` to `[rates]`");
    }
    say("what follows is a calibration: save all this as FILE.toml and pass `--calibration FILE.toml`");
    say("");
    if let Some(calibration) = &probe.calibration {
        out += calibration;
    }
    out
}
