//! The `offc` command: the only code of the project that does input and output, reads the environment or a clock.
//!
//! One file a command; what they share: [`files`] (reading, and writing that leaves nothing half done), [`outcome`] (how a command ends, and
//! its exit status), [`terminal`] (colour, progress).

mod arena;
mod backend;
mod check;
mod cli;
mod convert;
mod device;
mod devices;
mod diff;
mod equiv;
mod explain;
mod files;
mod input;
mod numa;
mod outcome;
mod output;
mod pack;
mod peak;
mod probe;
mod rewrite;
mod run;
mod simulate;
mod solve;
mod summary;
mod terminal;
mod timing;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;

use outcome::{INTERNAL, report_internal};

/// Stack of the working thread. Nothing recurses without a bound, but the bounds (XLA nests to 8192) are deeper than a main thread's
/// default stack on every system.
const STACK: usize = 256 << 20;

/// What a panic said, kept for the report.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    std::panic::set_hook(Box::new(|info| {
        let mut said = PANIC.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        said.get_or_insert_with(|| info.to_string());
    }));
    let work = move || catch_unwind(AssertUnwindSafe(|| cli::run(cli)));
    let worker = std::thread::Builder::new().stack_size(STACK).spawn(work);
    let ended = worker.map(|handle| handle.join().unwrap_or_else(Err));
    let status = match ended {
        Ok(Ok(status)) => status,
        Ok(Err(_)) => {
            let said = PANIC.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            report_internal(&said.unwrap_or_else(|| "a panic without a message".to_string()));
            INTERNAL
        }
        Err(error) => {
            report_internal(&format!("cannot start the working thread: {error}"));
            INTERNAL
        }
    };
    ExitCode::from(status)
}
