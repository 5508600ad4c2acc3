//! The native half of the Python package: [`offc::embed`] without the interpreter lock.

use offc::embed::{self, Code, Failure};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

create_exception!(_offc, Infeasible, PyException, "The budget cannot be met; the message names the floor and what holds it.");
create_exception!(_offc, BadModule, PyException, "The module is not well formed.");
create_exception!(_offc, InternalError, PyException, "A promise of offc's is broken; nothing was changed.");

fn raise(failure: Failure) -> PyErr {
    match failure.code {
        Code::Infeasible => Infeasible::new_err(failure.message),
        Code::Options => PyValueError::new_err(failure.message),
        Code::Input => BadModule::new_err(failure.message),
        Code::Internal => InternalError::new_err(failure.message),
    }
}

/// Runs `work` without the interpreter lock, on a thread with a stack for deep programs; a panic becomes an `InternalError`.
fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Failure> + Send) -> PyResult<T> {
    let done = py.detach(|| {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("offc".to_owned()).stack_size(256 << 20).spawn_scoped(scope, work);
            thread.map(std::thread::ScopedJoinHandle::join)
        })
    });
    match done {
        Ok(Ok(result)) => result.map_err(raise),
        Ok(Err(_)) => Err(InternalError::new_err("the planner panicked; the report is on standard error")),
        Err(error) => Err(InternalError::new_err(format!("cannot start a thread: {error}"))),
    }
}

/// rewrite(module: bytes, options: str, truth: bytes | None = None) -> tuple[bytes | None, str]
///
/// The module as the options (JSON) say, None if nothing changed, and the report as JSON. `truth` is the compiled form of a module before optimization.
#[pyfunction]
#[pyo3(signature = (module, options, truth = None))]
fn rewrite<'py>(py: Python<'py>, module: &[u8], options: &str, truth: Option<&[u8]>) -> PyResult<(Option<Bound<'py, PyBytes>>, String)> {
    let done = detached(py, || embed::rewrite_with(module, truth, options))?;
    Ok((done.module.map(|bytes| PyBytes::new(py, &bytes)), done.report))
}

/// peak(module: bytes) -> str
///
/// The module's memory figures as JSON.
#[pyfunction]
fn peak(py: Python<'_>, module: &[u8]) -> PyResult<String> {
    detached(py, || embed::peak(module))
}

/// peak_report(module: bytes, options: str) -> str
///
/// What is alive at the peak and why, as JSON.
#[pyfunction]
fn peak_report(py: Python<'_>, module: &[u8], options: &str) -> PyResult<String> {
    detached(py, || embed::peak_report(module, options))
}

/// trace(module: bytes, options: str) -> str
///
/// What happens when, as a trace for Perfetto.
#[pyfunction]
fn trace(py: Python<'_>, module: &[u8], options: &str) -> PyResult<String> {
    detached(py, || embed::trace(module, options))
}

/// parse_size(text: str) -> int
///
/// Bytes of a size such as "24GiB".
#[pyfunction]
fn parse_size(text: &str) -> PyResult<u64> {
    text.parse::<offc::units::Bytes>().map(offc::units::Bytes::get).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// devices() -> str
///
/// The machines known by name, as a JSON array.
#[pyfunction]
fn devices() -> PyResult<String> {
    serde_json::to_string(&offc::machine::presets()).map_err(|e| InternalError::new_err(e.to_string()))
}

#[pymodule]
fn _offc(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Infeasible", module.py().get_type::<Infeasible>())?;
    module.add("BadModule", module.py().get_type::<BadModule>())?;
    module.add("InternalError", module.py().get_type::<InternalError>())?;
    module.add_function(wrap_pyfunction!(rewrite, module)?)?;
    module.add_function(wrap_pyfunction!(peak, module)?)?;
    module.add_function(wrap_pyfunction!(peak_report, module)?)?;
    module.add_function(wrap_pyfunction!(trace, module)?)?;
    module.add_function(wrap_pyfunction!(parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)
}
