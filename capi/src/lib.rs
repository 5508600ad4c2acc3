//! The C interface: `offc.h` beside this crate says the contract. Nothing global, nothing unwinds across.

mod pjrt;

use std::panic::{AssertUnwindSafe, catch_unwind};

use offc::embed::{self, Code, Failure};

pub use pjrt::offc_register_with_pjrt;

/// Bytes that this library made; given back with [`offc_bytes_free`]. `data` is null where there are none.
#[repr(C)]
pub struct OffcBytes {
    /// The first byte.
    pub data: *mut u8,
    /// How many.
    pub size: usize,
}

impl OffcBytes {
    /// No bytes.
    const NONE: Self = Self { data: std::ptr::null_mut(), size: 0 };

    fn of(bytes: Vec<u8>) -> Self {
        let boxed = bytes.into_boxed_slice();
        let size = boxed.len();
        if size == 0 {
            return Self::NONE;
        }
        Self { data: Box::into_raw(boxed).cast::<u8>(), size }
    }
}

/// Success.
const OK: i32 = 0;

/// The bytes at `data`; empty where it is null.
///
/// # Safety
/// `data` is null or points to `size` readable bytes that nobody writes during the call.
unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    // SAFETY: the caller promises it.
    if data.is_null() || size == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, size) } }
}

/// Runs `work` on a thread with a stack for deep programs; a panic is an internal failure.
fn caught<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    let internal = |message: &str| Failure { code: Code::Internal, message: message.to_owned() };
    catch_unwind(AssertUnwindSafe(|| {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("offc".to_owned()).stack_size(256 << 20).spawn_scoped(scope, work);
            match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(internal("the planner panicked")),
                Err(error) => Err(internal(&format!("cannot start a thread: {error}"))),
            }
        })
    }))
    .unwrap_or_else(|_| Err(internal("the planner panicked")))
}

/// Writes `value` where the caller wants it.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn put(out: *mut OffcBytes, value: OffcBytes) {
    if out.is_null() {
        // SAFETY: made a line above in every caller, and given to nobody.
        unsafe { offc_bytes_free(value) };
    } else {
        // SAFETY: the caller promises it.
        unsafe { out.write(value) };
    }
}

/// Rewrites a module, HLO text or proto. `out_module` gets the module in the form in which it came, none if nothing was changed; `out_report` a
/// JSON object; `out_message` what a person should read on failure. Each may be null. Returns 0, or 1 (budget cannot be met), 2 (options),
/// 3 (module), 4 (a bug of offc's).
///
/// # Safety
/// Pointers are null or valid for their sizes; nothing is kept after the call. Any thread may call at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offc_rewrite(
    module: *const u8,
    module_size: usize,
    options: *const u8,
    options_size: usize,
    out_module: *mut OffcBytes,
    out_report: *mut OffcBytes,
    out_message: *mut OffcBytes,
) -> i32 {
    // SAFETY: the caller promises it.
    let (module, options) = unsafe { (bytes(module, module_size), bytes(options, options_size)) };
    let done = caught(|| {
        let options = std::str::from_utf8(options)
            .map_err(|_| Failure { code: Code::Options, message: "options: expected UTF-8, found other bytes".to_owned() })?;
        embed::rewrite(module, options)
    });
    let (code, module, report, message) = match done {
        Ok(done) => (OK, done.module.unwrap_or_default(), done.report.into_bytes(), Vec::new()),
        Err(failure) => (failure.code as i32, Vec::new(), Vec::new(), failure.message.into_bytes()),
    };
    // SAFETY: the caller promises it.
    unsafe {
        put(out_module, OffcBytes::of(module));
        put(out_report, OffcBytes::of(report));
        put(out_message, OffcBytes::of(message));
    }
    code
}

/// A module's memory figures as JSON in `out_report`. Returns as [`offc_rewrite`].
///
/// # Safety
/// As [`offc_rewrite`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offc_peak(module: *const u8, module_size: usize, out_report: *mut OffcBytes, out_message: *mut OffcBytes) -> i32 {
    // SAFETY: the caller promises it.
    let module = unsafe { bytes(module, module_size) };
    let (code, report, message) = match caught(|| embed::peak(module)) {
        Ok(report) => (OK, report.into_bytes(), Vec::new()),
        Err(failure) => (failure.code as i32, Vec::new(), failure.message.into_bytes()),
    };
    // SAFETY: the caller promises it.
    unsafe {
        put(out_report, OffcBytes::of(report));
        put(out_message, OffcBytes::of(message));
    }
    code
}

/// Gives bytes back. None are given back by giving back none.
///
/// # Safety
/// `bytes` came from this library and was not given back before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offc_bytes_free(bytes: OffcBytes) {
    if !bytes.data.is_null() {
        // SAFETY: `OffcBytes::of` made it of a boxed slice of this size.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes.data, bytes.size)) });
    }
}

/// The version, such as `0.1.0`, ended by a zero byte; lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn offc_version() -> *const std::ffi::c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
