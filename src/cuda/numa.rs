//! Where host memory is to lie: at the NUMA node that the GPU's link begins at.
//!
//! Linux tells the node of a device on the PCI bus, and a node's processors, in `/sys`; the caller reads it. Memory comes from the node whose processor writes a
//! page first, so the arena is filled by a thread that may run on that node's processors only. Where the pages came to lie is asked with
//! `move_pages(2)`, and told.

#![expect(unsafe_code, reason = "affinity and places of pages are told by the C library only")]

use std::ffi::{c_int, c_long, c_ulong};

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
    let (process, pages, flags): (c_long, c_ulong, c_long) = (0, 1, 0);
    let target = std::ptr::null::<c_int>();
    // SAFETY: one page of our own is asked about, no target is given, so nothing moves; the answer goes to `status`.
    let done = unsafe { syscall(MOVE_PAGES, process, pages, &raw const page, target, &raw mut status, flags) };
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
