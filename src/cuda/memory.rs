//! Memory of the device, and pinned memory of the host.

#![expect(unsafe_code, reason = "the driver is a C library that gives raw addresses")]

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};

use super::driver::Result;
use super::numa::{self, Node};

/// What memory holds that nobody has written.
pub const POISON: u8 = 0xcb;
/// What pinned memory is a multiple of: the largest page that Linux has as a rule.
const PAGE: usize = 4096;

/// Device memory that goes with its owner.
pub struct Memory {
    context: Arc<CudaContext>,
    /// Its address.
    pub at: sys::CUdeviceptr,
    /// Its size.
    pub bytes: usize,
}

impl Memory {
    /// Takes memory, which holds anything.
    pub fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Ok(Self { context: context.clone(), at: 0, bytes });
        }
        // SAFETY: a plain allocation; nothing reads it here.
        let at = unsafe { result::malloc_sync(bytes) }.map_err(|e| format!("cannot allocate {bytes} bytes of device memory: {e}"))?;
        Ok(Self { context: context.clone(), at, bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.at != 0 {
            self.context.record_err(self.context.synchronize());
            // SAFETY: it was allocated by `new`, is freed once, and no work is under way.
            self.context.record_err(unsafe { result::free_sync(self.at) });
        }
    }
}

/// Pinned memory of the host, which the GPU reads and writes at the same address. Not write-combined: the host reads it.
///
/// Linux takes the pages from the node whose processor touches them first: a thread that may run there only does that before they are pinned.
pub struct Pinned {
    context: Arc<CudaContext>,
    /// Its address.
    pub at: *mut u8,
    /// Its size.
    pub bytes: usize,
    layout: Option<Layout>,
    /// What is known of where it lies.
    pub lies: String,
}

impl Pinned {
    /// Takes memory, near a node if one is given, and fills it.
    pub fn new(context: &Arc<CudaContext>, bytes: usize, near: Option<&Node>) -> Result<Self> {
        let lies = String::new();
        let mut this = Self { context: context.clone(), at: std::ptr::null_mut(), bytes, layout: None, lies };
        if bytes == 0 {
            return Ok(this);
        }
        let Ok(layout) = Layout::from_size_align(bytes.next_multiple_of(PAGE), PAGE) else {
            return Err(format!("cannot take {bytes} bytes of host memory"));
        };
        // SAFETY: the size is not zero.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            return Err(format!("cannot take {bytes} bytes of host memory"));
        }
        this.at = at;
        let address = at as usize;
        let filled = numa::on(near, || {
            // SAFETY: `address` points to so many bytes that are ours alone; the thread ends before this function does.
            unsafe { std::ptr::write_bytes(address as *mut u8, POISON, layout.size()) };
        });
        this.lies = numa::found(near, filled, address, layout.size());
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the memory is ours, page-aligned, and stays until `drop`, which takes it back first.
        let pinned = unsafe { sys::cuMemHostRegister_v2(at.cast::<c_void>(), layout.size(), flags).result() };
        if let Err(why) = pinned {
            // SAFETY: it was allocated with that layout above, and nothing points to it any more.
            unsafe { dealloc(at, layout) };
            this.at = std::ptr::null_mut();
            return Err(format!("cannot pin {bytes} bytes of host memory: {why}"));
        }
        this.layout = Some(layout);
        Ok(this)
    }
    /// Copies out of it. No transfer may be under way there.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.bytes, "the range lies inside");
        // SAFETY: the range lies in our memory, which nothing else writes: streams were waited for.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(offset), into.as_mut_ptr(), into.len()) };
    }
    /// Copies into it.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.bytes, "the range lies inside");
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.at.add(offset), from.len()) };
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            self.context.record_err(self.context.synchronize());
            // SAFETY: it was pinned and allocated by `new`, is freed once, and no work is under way.
            unsafe {
                self.context.record_err(sys::cuMemHostUnregister(self.at.cast::<c_void>()).result());
                dealloc(self.at, layout);
            }
        }
    }
}
