//! What calls the driver: memory, streams, events and kernels of one GPU, by raw addresses.
//!
//! Libraries are opened when the program runs. Every function gives an error with the library's own words; nothing panics where a library is not
//! there, because [`available`] looks first. Event tracking of `cudarc` is off: it would insert waits of its own and hide missing ones.

#![expect(unsafe_code, reason = "the driver is a C library, and the plan gives raw offsets into one block of memory")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaStream, result, sys};
use cudarc::nvrtc::{self, Ptx};

use super::blas::{self, Blas};
use super::memory::{Memory, POISON, Pinned};
use super::numa::Node;
use super::program::{Address, KernelCall, Place, Stream};
use super::source::{PRELUDE, Source};
use crate::interp::ArenaKind;

/// What goes wrong: the sentence.
pub type Result<T> = std::result::Result<T, String>;

/// Kernels that are compiled together.
const TOGETHER: usize = 64;

fn said<T>(what: &str, result: std::result::Result<T, result::DriverError>) -> Result<T> {
    result.map_err(|e| format!("{what}: {e}"))
}

/// The name of the GPU, or why there is none to use.
pub fn available() -> Result<String> {
    // SAFETY: opening the library runs its initialisers, which every program that uses CUDA does.
    if !unsafe { sys::is_culib_present() } {
        return Err("no GPU is here: the CUDA driver (libcuda) is not installed".to_string());
    }
    let count = said("no GPU can be used", CudaContext::device_count())?;
    if count == 0 {
        return Err("no GPU is here: the CUDA driver finds no device".to_string());
    }
    // SAFETY: as above.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err("the GPU cannot be used: NVRTC (libnvrtc of the CUDA toolkit), which compiles kernels, is not installed".to_string());
    }
    let context = said("no GPU can be used", CudaContext::new(0))?;
    said("no GPU can be used", context.name())
}

/// What a program needs of a GPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs<'n> {
    /// Bytes of the device arena.
    pub device: usize,
    /// Bytes of the host arena.
    pub host: usize,
    /// Bytes of scratch memory of each stream.
    pub scratch: [usize; 3],
    /// The number of events.
    pub events: usize,
    /// Whether a library is to compute matrix products, if it is there.
    pub library: bool,
    /// Whether it may do so in TF32.
    pub fast: bool,
    /// The node that the host arena is to lie on.
    pub near: Option<&'n Node>,
}

/// One GPU with the memory of a program.
pub struct Gpu {
    /// What computes matrix products; goes before its stream and its workspace.
    blas: Option<Blas>,
    _workspace: Memory,
    /// Why the library does not compute them.
    pub why_not: Option<String>,
    context: Arc<CudaContext>,
    streams: [Arc<CudaStream>; 3],
    /// The device arena, then the scratch memories of the streams.
    device: [Memory; 4],
    host: Pinned,
    /// Where the host reads conditions from.
    small: Pinned,
    functions: BTreeMap<String, CudaFunction>,
    events: Vec<CudaEvent>,
}

/// The GPU's address on the PCI bus: domain, bus, device.
pub fn bus_address() -> Result<[u32; 3]> {
    use sys::CUdevice_attribute as Attribute;
    let context = said("cannot use the GPU", CudaContext::new(0))?;
    let number = |attribute| said("cannot ask the GPU", context.attribute(attribute)).map(|n| u32::try_from(n).unwrap_or(0));
    Ok([
        number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
    ])
}

impl Gpu {
    /// Memory of these sizes, filled with a pattern; streams; events; the library.
    pub fn new(needs: Needs<'_>) -> Result<Self> {
        let context = said("cannot use the GPU", CudaContext::new(0))?;
        let number = |attribute| said("cannot ask the GPU", context.attribute(attribute));
        if number(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)? == 0 {
            return Err("the GPU does not see host memory at the host's own addresses".to_string());
        }
        // SAFETY: we order all work ourselves, by the program's events.
        unsafe { context.disable_event_tracking() };
        let stream = || said("cannot make a stream", context.new_stream());
        let streams = [stream()?, stream()?, stream()?];
        let memory = |bytes| Memory::new(&context, bytes);
        let [compute, to_host, to_device] = needs.scratch;
        let device = [memory(needs.device)?, memory(compute)?, memory(to_host)?, memory(to_device)?];
        for memory in device.iter().filter(|m| m.bytes > 0) {
            // SAFETY: the range is the whole allocation.
            said("cannot fill memory", unsafe { result::memset_d8_async(memory.at, POISON, memory.bytes, streams[0].cu_stream()) })?;
        }
        said("cannot fill memory", streams[0].synchronize())?;
        let event = |_| said("cannot make an event", context.new_event(None));
        let events = (0..needs.events).map(event).collect::<Result<_>>()?;
        let host = Pinned::new(&context, needs.host, needs.near)?;
        let small = Pinned::new(&context, 64, needs.near)?;
        let mut this = Self {
            blas: None,
            _workspace: memory(0)?,
            why_not: None,
            context,
            streams,
            device,
            host,
            small,
            functions: BTreeMap::new(),
            events,
        };
        if needs.library {
            this.library(needs.fast)?;
        }
        Ok(this)
    }

    /// Opens the library of matrix products; what is missing is told later, an error is memory that cannot be had.
    fn library(&mut self, fast: bool) -> Result<()> {
        if !blas::is_present() {
            self.why_not = Some("cuBLAS (libcublas) is not installed".to_string());
            return Ok(());
        }
        self._workspace = Memory::new(&self.context, blas::WORKSPACE)?;
        match Blas::new(&self.streams[0], self._workspace.at, blas::WORKSPACE, fast) {
            Ok(blas) => self.blas = Some(blas),
            Err(why) => self.why_not = Some(why),
        }
        Ok(())
    }
    /// Where the host arena lies, in words.
    pub fn host_lies(&self) -> &str {
        &self.host.lies
    }

    /// Compiles and loads kernels for this GPU: no fused multiply-add, exact division and square root, subnormal numbers kept.
    pub fn load(&mut self, source: &Source) -> Result<()> {
        let (major, minor) = said("cannot ask the GPU", self.context.compute_capability())?;
        let kernels: Vec<_> = source.kernels.values().collect();
        let compile = |part: &[&super::Kernel]| {
            let text = part.iter().fold(PRELUDE.to_string(), |text, k| text + "\n" + &k.source);
            compile(&text, &format!("sm_{major}{minor}"))
        };
        let images = std::thread::scope(|scope| {
            let threads: Vec<_> = kernels.chunks(TOGETHER).map(|part| scope.spawn(move || compile(part))).collect();
            let joined = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a compilation panicked".to_string())));
            joined.collect::<Result<Vec<Vec<u8>>>>()
        })?;
        for (part, image) in kernels.chunks(TOGETHER).zip(images) {
            let module = said("cannot load kernels", self.context.load_module(Ptx::from_binary(image)))?;
            for kernel in part {
                let function = said(&format!("cannot find kernel `{}`", kernel.name), module.load_function(&kernel.name))?;
                self.functions.insert(kernel.name.clone(), function);
            }
        }
        Ok(())
    }

    fn stream(&self, stream: Stream) -> &CudaStream {
        &self.streams[stream as usize]
    }
    fn arena(&self, kind: ArenaKind, offset: usize) -> u64 {
        match kind {
            ArenaKind::Device => self.device[0].at + offset as u64,
            // Pinned memory has one address for both.
            ArenaKind::Host => self.host.at as u64 + offset as u64,
        }
    }

    fn address(&self, stream: Stream, address: Address) -> u64 {
        match address {
            Address::Arena(kind, offset) => self.arena(kind, offset),
            Address::Scratch(offset) => self.device[1 + stream as usize].at + offset as u64,
        }
    }

    /// Launches a kernel, or what a library does instead; whether the library did.
    pub fn launch(&self, stream: Stream, call: &KernelCall) -> Result<bool> {
        if let (Some(blas), Some(product), Stream::Compute) = (&self.blas, &call.product, stream) {
            blas.multiply(&product.clone().map(|address| self.address(stream, address)))?;
            return Ok(true);
        }
        let function = self.functions.get(&call.kernel).ok_or_else(|| format!("kernel `{}` is not loaded", call.kernel))?;
        let mut addresses: Vec<u64> = call.args.iter().map(|&address| self.address(stream, address)).collect();
        let mut params: Vec<*mut c_void> = addresses.iter_mut().map(|a| std::ptr::from_mut(a).cast::<c_void>()).collect();
        let queue = self.stream(stream).cu_stream();
        // SAFETY: the arguments are as many pointers as the kernel's text has, each into memory that is large enough for what the plan puts
        // there and outlives the launch (`Gpu` waits before it frees); the driver copies the arguments before it returns.
        let launched =
            unsafe { result::launch_kernel(function.cu_function(), (call.grid, 1, 1), (call.block, 1, 1), 0, queue, &mut params) };
        said(&format!("cannot launch `{}`", call.kernel), launched).map(|()| false)
    }

    /// Queues the pattern of memory that nobody has written.
    pub fn poison(&self, stream: Stream, place: Place) -> Result<()> {
        assert!(self.holds(place), "the place lies inside its arena");
        let (at, queue) = (self.arena(place.arena, place.offset), self.stream(stream).cu_stream());
        // SAFETY: the range lies inside our memory, which outlives the work; the GPU sees pinned memory at the same address.
        said("cannot fill memory", unsafe { result::memset_d8_async(at, POISON, place.bytes, queue) })
    }

    /// Queues a copy between places of the arenas.
    pub fn copy(&self, stream: Stream, from: Place, to: Place) -> Result<()> {
        assert!(from.bytes == to.bytes && self.holds(from) && self.holds(to), "a copy is between places of one size");
        let (source, target) = (self.arena(from.arena, from.offset), self.arena(to.arena, to.offset));
        let (bytes, queue) = (from.bytes, self.stream(stream).cu_stream());
        // SAFETY: both ranges lie inside our memory (checked above), which outlives the copy; the program orders it with what else
        // touches those bytes.
        let copied = unsafe {
            match (from.arena, to.arena) {
                (ArenaKind::Device, ArenaKind::Device) => result::memcpy_dtod_async(target, source, bytes, queue),
                (ArenaKind::Device, ArenaKind::Host) => sys::cuMemcpyDtoHAsync_v2(target as *mut c_void, source, bytes, queue).result(),
                (ArenaKind::Host, ArenaKind::Device) => sys::cuMemcpyHtoDAsync_v2(target, source as *const c_void, bytes, queue).result(),
                // The GPU sees pinned memory at the same address.
                (ArenaKind::Host, ArenaKind::Host) => result::memcpy_dtod_async(target, source, bytes, queue),
            }
        };
        said(&format!("cannot copy {bytes} bytes"), copied)
    }
    fn holds(&self, place: Place) -> bool {
        let size = match place.arena {
            ArenaKind::Device => self.device[0].bytes,
            ArenaKind::Host => self.host.bytes,
        };
        place.offset + place.bytes <= size
    }

    /// Writes bytes; returns when they are there.
    pub fn write(&self, place: Place, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() == place.bytes && self.holds(place), "the bytes fill the place");
        if bytes.is_empty() {
            return Ok(());
        }
        match place.arena {
            ArenaKind::Host => self.host.write(place.offset, bytes),
            ArenaKind::Device => {
                let stream = self.stream(Stream::Compute);
                // SAFETY: the range lies inside the arena; `bytes` outlives the copy, which is waited for.
                let copied = unsafe { result::memcpy_htod_async(self.arena(place.arena, place.offset), bytes, stream.cu_stream()) };
                said("cannot copy to the device", copied)?;
                said("cannot copy to the device", stream.synchronize())?;
            }
        }
        Ok(())
    }
    /// Reads bytes when everything that was computed so far is done.
    pub fn read(&self, place: Place) -> Result<Vec<u8>> {
        assert!(self.holds(place), "the place lies inside its arena");
        let mut out = vec![0; place.bytes];
        let stream = self.stream(Stream::Compute);
        if place.bytes == 0 {
            return Ok(out);
        }
        match place.arena {
            ArenaKind::Host => {
                self.synchronize(Stream::Compute)?;
                self.host.read(place.offset, &mut out);
            }
            ArenaKind::Device => {
                let address = self.arena(place.arena, place.offset);
                let small = place.bytes <= self.small.bytes;
                let target = if small { self.small.at } else { out.as_mut_ptr() };
                // SAFETY: both ranges have that many bytes and outlive the copy, which is waited for.
                let copied =
                    unsafe { sys::cuMemcpyDtoHAsync_v2(target.cast::<c_void>(), address, place.bytes, stream.cu_stream()).result() };
                said("cannot copy from the device", copied)?;
                self.synchronize(Stream::Compute)?;
                if small {
                    self.small.read(0, &mut out);
                }
            }
        }
        Ok(out)
    }

    /// Waits for all work of a stream.
    pub fn synchronize(&self, stream: Stream) -> Result<()> {
        said("work on the GPU failed (CUDA_LAUNCH_BLOCKING=1 tells at which instruction)", self.stream(stream).synchronize())
    }
    /// An event happens when all work so far of a stream is done.
    pub fn record(&self, stream: Stream, event: usize) -> Result<()> {
        said("cannot record an event", self.events[event].record(self.stream(stream)))
    }
    /// A stream goes on when an event has happened.
    pub fn wait(&self, stream: Stream, event: usize) -> Result<()> {
        said("cannot wait for an event", self.stream(stream).wait(&self.events[event]))
    }
    /// A moment on a stream.
    pub fn moment(&self, stream: Stream) -> Result<Moment> {
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        said("cannot record an event", self.stream(stream).record_event(flags)).map(Moment)
    }
    /// Errors that were met where none could be returned.
    pub fn finish(&self) -> Result<()> {
        for stream in Stream::ALL {
            self.synchronize(stream)?;
        }
        said("the GPU", self.context.check_err())
    }
}

/// A moment on a stream.
pub struct Moment(CudaEvent);

impl Moment {
    /// Nanoseconds from this moment to a later one; both are waited for. CUDA counts in steps of about half a microsecond.
    pub fn until(&self, later: &Self) -> Result<u64> {
        let milliseconds = said("cannot measure", self.0.elapsed_ms(&later.0))?;
        Ok((f64::from(milliseconds).max(0.0) * 1e6) as u64)
    }
}

/// Compiles CUDA C to a binary for an architecture: no newer driver than the GPU's own is needed to load it, as it would be for PTX.
fn compile(text: &str, arch: &str) -> Result<Vec<u8>> {
    let text = CString::new(text).map_err(|_| "a kernel holds a zero byte".to_string())?;
    let program = nvrtc::result::create_program(&text, None).map_err(|e| format!("NVRTC: {e:?}"))?;
    let options = [
        format!("--gpu-architecture={arch}"),
        "--fmad=false".to_string(),
        "--prec-div=true".to_string(),
        "--prec-sqrt=true".to_string(),
        "--ftz=false".to_string(),
        "--std=c++17".to_string(),
    ];
    // SAFETY: `program` was made above and is destroyed below, after its last use; the buffer has the size that NVRTC asks for.
    unsafe {
        let compiled = nvrtc::result::compile_program(program, &options);
        let log = nvrtc::result::get_program_log(program).unwrap_or_default();
        let mut image = Vec::new();
        let mut got = Ok(());
        if compiled.is_ok() {
            let mut size = 0;
            got = nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut size).result();
            image = vec![0u8; size];
            if got.is_ok() {
                got = nvrtc::sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()).result();
            }
        }
        let destroyed = nvrtc::result::destroy_program(program);
        if let Err(error) = compiled.and(got).and(destroyed) {
            let log: String = log.iter().map(|&c| char::from(c as u8)).take_while(|&c| c != '\0').take(2000).collect();
            return Err(format!("cannot compile kernels for {arch}: {error:?}: {log}"));
        }
        Ok(image)
    }
}
