//! A native callback in XLA's own compile, by the XlaTransform extension of the PJRT C API: no Python, no interpreter lock.
//!
//! The layouts are those of PJRT's C header for extension version 1. A compile never fails because of us: on any trouble the module stays
//! as it is, and the reason goes to the report function if there is one.

use std::ffi::{c_char, c_int, c_void};

use offc::embed::{Code, Embedded, Failure};

/// Extension type of XlaTransform.
const XLA_TRANSFORM: c_int = 24;
/// Version of the extension's interface.
const VERSION: i64 = 1;
/// The stage after scheduling.
const POST_SCHEDULER: c_int = 1;
/// A module of fewer bytes is never worth a plan.
const SMALLEST: usize = 32 << 10;

/// The head of a `PJRT_Api`.
#[repr(C)]
struct Api {
    struct_size: usize,
    extensions: *const Extension,
}

/// The head of every extension.
#[repr(C)]
struct Extension {
    struct_size: usize,
    kind: c_int,
    next: *const Extension,
}

#[repr(C)]
struct XlaTransform {
    base: Extension,
    register: Option<unsafe extern "C" fn(*mut RegisterArgs) -> *mut c_void>,
    clear: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
}

#[repr(C)]
struct RegisterArgs {
    struct_size: usize,
    name: *const c_char,
    name_size: usize,
    stage: c_int,
    callbacks: *mut Callbacks,
}

#[repr(C)]
struct Callbacks {
    version: i64,
    dtor: Option<unsafe extern "C" fn(*mut Callbacks)>,
    transform: Option<unsafe extern "C" fn(*mut Callbacks, *mut TransformArgs)>,
}

#[repr(C)]
struct Text {
    data: *const c_char,
    size: usize,
}

#[repr(C)]
struct TransformArgs {
    struct_size: usize,
    api_version: i64,
    data: *mut c_void,
    cleanup: Option<unsafe extern "C" fn(*mut c_void)>,
    has_error: bool,
    code: c_int,
    error: Text,
    module: Text,
    transformed: Text,
    changed: bool,
}

/// Gets the report of every module that was planned: `code` and `text` as from `offc_rewrite` (report or message), on the thread that compiles.
pub type OffcReport = Option<unsafe extern "C" fn(context: *mut c_void, code: c_int, text: *const c_char, size: usize)>;

/// Our callbacks with what they need; XLA keeps the address of `callbacks` and hands it back.
#[repr(C)]
struct State {
    callbacks: Callbacks,
    options: String,
    report: OffcReport,
    context: *mut c_void,
}

/// Registers the planner with a PJRT plugin, after the scheduler, for every module compiled from now on. `api` is what the plugin's
/// `GetPjrtApi` returns; `options` as for `offc_rewrite`; `report` may be null. Returns 0; 2 where the plugin has no XlaTransform extension or
/// `options` are wrong; 4 where the plugin refuses.
///
/// # Safety
/// `api` is a live `PJRT_Api` of an initialized plugin, `options` points to `options_size` bytes, `report` may be called on any thread with
/// `context` for as long as the plugin lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offc_register_with_pjrt(
    api: *const c_void,
    options: *const u8,
    options_size: usize,
    report: OffcReport,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises it.
    let options = unsafe { super::bytes(options, options_size) };
    let Ok(options) = std::str::from_utf8(options) else { return Code::Options as c_int };
    if offc::embed::Options::from_json(options).and_then(|o| o.machine()).is_err() || api.is_null() {
        return Code::Options as c_int;
    }
    // SAFETY: every `PJRT_Api` begins with its size and its list of extensions, each of which begins with size, type and the next one.
    let transform = unsafe {
        let mut extension = (*api.cast::<Api>()).extensions;
        while !extension.is_null() && (*extension).kind != XLA_TRANSFORM {
            extension = (*extension).next;
        }
        extension.cast::<XlaTransform>().as_ref()
    };
    let Some(register) = transform.and_then(|t| t.register) else { return Code::Options as c_int };
    let callbacks = Callbacks { version: VERSION, dtor: Some(drop_state), transform: Some(transform_module) };
    let state = Box::into_raw(Box::new(State { callbacks, options: options.to_owned(), report, context }));
    let name = b"offc";
    let mut args = RegisterArgs {
        struct_size: size_of::<RegisterArgs>(),
        name: name.as_ptr().cast(),
        name_size: name.len(),
        stage: POST_SCHEDULER,
        callbacks: state.cast(),
    };
    // SAFETY: the extension's own function, with arguments of the size they say; the state lives until `drop_state`.
    if unsafe { register(&raw mut args) }.is_null() { 0 } else { Code::Internal as c_int }
}

/// # Safety
/// Called once by the plugin, with the address that was registered.
unsafe extern "C" fn drop_state(callbacks: *mut Callbacks) {
    // SAFETY: `callbacks` is the first field of a `State` made by `Box::into_raw`.
    drop(unsafe { Box::from_raw(callbacks.cast::<State>()) });
}

/// # Safety
/// `data` is a `Box<Vec<u8>>` that `transform_module` made.
unsafe extern "C" fn drop_bytes(data: *mut c_void) {
    if !data.is_null() {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(data.cast::<Vec<u8>>()) });
    }
}

/// # Safety
/// Called by the plugin with the address that was registered and arguments of its own.
unsafe extern "C" fn transform_module(callbacks: *mut Callbacks, args: *mut TransformArgs) {
    // SAFETY: both pointers are the plugin's promise; `callbacks` is the first field of our `State`, which only XLA's registry can drop.
    let (state, args) = unsafe { (&*callbacks.cast::<State>(), &mut *args) };
    args.changed = false;
    args.has_error = false;
    if args.module.size < SMALLEST {
        return;
    }
    // SAFETY: the plugin's serialized module, which lives during the call.
    let module = unsafe { super::bytes(args.module.data.cast(), args.module.size) };
    let options = state.options.as_str();
    let (code, text) = match super::caught(|| offc::embed::rewrite(module, options)) {
        Ok(Embedded { module, report }) => {
            if let Some(bytes) = module {
                let kept = Box::new(bytes);
                args.transformed = Text { data: kept.as_ptr().cast(), size: kept.len() };
                args.data = Box::into_raw(kept).cast();
                args.cleanup = Some(drop_bytes);
                args.changed = true;
            }
            (0, report)
        }
        Err(Failure { code, message }) => (code as c_int, message),
    };
    if let Some(report) = state.report {
        // SAFETY: the caller of `offc_register_with_pjrt` promises it.
        unsafe { report(state.context, code, text.as_ptr().cast(), text.len()) };
    }
}
