//! Where host memory is to lie: at the NUMA node that the GPU's link begins at.
//!
//! Linux tells the node of a device on the PCI bus, and a node's processors, in `/sys`. Memory comes from the node whose processor writes a
//! page first, so the arena is filled by a thread that may run on that node's processors only. Where the pages came to lie is asked with
//! `move_pages(2)`, and told.

#![expect(unsafe_code, reason = "affinity and places of pages are told by the C library only")]

use std::ffi::{c_int, c_long, c_ulong};
use std::path::Path;

/// A node near a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its processors.
    pub processors: Vec<usize>,
    /// The device's address on the bus.
    pub device: String,
}

/// The node of a PCI device, as a `/sys` tells: by domain, bus and device number. An error says what it does not tell.
pub fn node_of(sysfs: &Path, [domain, bus, device]: [u32; 3]) -> Result<Node, String> {
    let address = format!("{domain:04x}:{bus:02x}:{device:02x}.0");
    let read = |path: &str| std::fs::read_to_string(sysfs.join(path)).map(|t| t.trim().to_string()).ok();
    let told = read(&format!("bus/pci/devices/{address}/numa_node")).ok_or_else(|| format!("no device {address} is told of"))?;
    // -1 where there is one node only, or the firmware does not tell.
    let number: u32 = told.parse().map_err(|_| format!("the node of {address} is not told"))?;
    let list = read(&format!("devices/system/node/node{number}/cpulist")).ok_or_else(|| format!("no node {number} is told of"))?;
    let processors = processors(&list).ok_or_else(|| format!("the processors of node {number} are not a list: `{list}`"))?;
    if processors.is_empty() { Err(format!("node {number} has no processors")) } else { Ok(Node { number, processors, device: address }) }
}

/// A list as Linux writes it: `0-3,8`.
fn processors(list: &str) -> Option<Vec<usize>> {
    let mut out = Vec::new();
    for part in list.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (last < 1 << 16).then_some(())?;
        out.extend(first..=last);
    }
    Some(out)
}

/// Bits of a `cpu_set_t`.
const BITS: usize = c_ulong::BITS as usize;
const WORDS: usize = 1024 / BITS;

#[cfg(target_os = "linux")]
unsafe extern "C" {
    fn sched_setaffinity(pid: c_int, size: usize, mask: *const c_ulong) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// Runs something on a thread that may run on a node's processors only; whether it was kept there.
pub fn on(node: Option<&Node>, work: impl FnOnce() + Send) -> bool {
    let Some(node) = node else {
        work();
        return false;
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let kept = keep(&node.processors);
            work();
            kept
        });
        thread.join().unwrap_or(false)
    })
}

#[cfg(target_os = "linux")]
fn keep(processors: &[usize]) -> bool {
    let mut mask: [c_ulong; WORDS] = [0; WORDS];
    for &p in processors.iter().filter(|&&p| p < 1024) {
        mask[p / BITS] |= 1 << (p % BITS);
    }
    // SAFETY: the mask has the size that is said; 0 is the calling thread.
    unsafe { sched_setaffinity(0, size_of_val(&mask), mask.as_ptr()) == 0 }
}
#[cfg(not(target_os = "linux"))]
fn keep(_: &[usize]) -> bool {
    false
}

/// The node of a page, if the kernel says so.
#[cfg(target_os = "linux")]
fn node_at(address: usize) -> Option<u32> {
    const MOVE_PAGES: c_long = if cfg!(target_arch = "x86_64") { 279 } else { 239 };
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return None;
    }
    let page = address as *const u8;
    let mut status: c_int = -1;
    // SAFETY: one page of our own is asked about, no target is given, so nothing moves; the answer goes to `status`.
    let done =
        unsafe { syscall(MOVE_PAGES, 0 as c_long, 1 as c_ulong, &raw const page, std::ptr::null::<c_int>(), &raw mut status, 0 as c_long) };
    if done == 0 { u32::try_from(status).ok() } else { None }
}
#[cfg(not(target_os = "linux"))]
fn node_at(_: usize) -> Option<u32> {
    None
}

/// Where memory lies, in words: what was asked for, and what the kernel says of its first, middle and last page.
pub fn found(near: Option<&Node>, kept: bool, address: usize, bytes: usize) -> String {
    let pages = [0, bytes / 2, bytes - 1].map(|at| node_at((address + at) & !4095));
    let mut nodes: Vec<u32> = pages.iter().flatten().copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    let lies = match nodes.as_slice() {
        [] => "the kernel does not say where it lies".to_string(),
        [one] => format!("lies on node {one}"),
        several => format!("lies on nodes {several:?}"),
    };
    match near {
        Some(node) if kept => format!("{lies}; asked for node {}, where the GPU ({}) is", node.number, node.device),
        Some(node) => format!("{lies}; the GPU ({}) is on node {}, whose processors this process may not use", node.device, node.number),
        None => lies,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("offc-numa-{}-{}", std::process::id(), files.len()));
        for (path, text) in files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("it can be made");
            std::fs::write(path, text).expect("it can be written");
        }
        folder
    }

    #[test]
    fn a_device_is_found_at_its_node() {
        let folder = tree(&[
            ("bus/pci/devices/0000:81:00.0/numa_node", "1\n"),
            ("bus/pci/devices/0000:01:00.0/numa_node", "-1\n"),
            ("devices/system/node/node1/cpulist", "8-11,24\n"),
        ]);
        let node = Node { number: 1, processors: vec![8, 9, 10, 11, 24], device: "0000:81:00.0".to_string() };
        assert_eq!(node_of(&folder, [0, 0x81, 0]), Ok(node));
        assert_eq!(node_of(&folder, [0, 1, 0]), Err("the node of 0000:01:00.0 is not told".to_string()));
        assert_eq!(node_of(&folder, [0, 2, 0]), Err("no device 0000:02:00.0 is told of".to_string()));
        std::fs::remove_dir_all(folder).expect("it is there");
    }

    #[test]
    fn work_is_done_where_it_may_run_or_anywhere() {
        let mut done = 0;
        let node = |processors| Node { number: 0, processors, device: String::new() };
        // No machine has all of the first sixteen missing.
        assert_eq!(on(Some(&node((0..16).collect())), || done += 1), cfg!(target_os = "linux"));
        assert!(!on(Some(&node(vec![1023])), || done += 1));
        assert!(!on(None, || done += 1));
        assert_eq!(done, 3);
    }
}
