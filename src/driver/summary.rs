//! What a rewrite did, in figures: before, after, floor, what moves, every decision with its reason. Its JSON form is what the command line,
//! the C interface and the Python package report.

use serde::Serialize;

use super::{Figures, RewriteOptions, Rewritten, Trouble, XlaRemat, rewrite};
use crate::analysis::Memory;
use crate::ir::Module;
use crate::pass::Infeasible;
use crate::plan::{Decision, Residence};
use crate::units::{Bytes, Nanos};

/// How often [`floor`] asks for an eighth less before it gives up.
const ASKS: usize = 4;

/// What was done, in figures.
#[derive(Clone, Debug, Serialize)]
pub struct Summary<'r> {
    /// The version of this form.
    pub schema_version: u32,
    /// The module's name.
    pub module: &'r str,
    /// The machine that was planned for.
    pub device: &'r str,
    /// Device bytes that were asked for.
    pub budget: Bytes,
    /// The program as it came.
    pub before: Side,
    /// The program as it went.
    pub after: Side,
    /// The lowest device bytes that the same steps reach.
    pub floor: Option<Bytes>,
    /// Predicted step time after over before.
    pub slowdown: f64,
    /// What moves.
    pub transfers: Transfers,
    /// What is computed again.
    pub recomputes: Recomputes,
    /// What XLA's own rematerialization makes of the result.
    pub xla_remat: &'r XlaRemat,
    /// Whether any step changed the program.
    pub changed: bool,
    /// What the steps tell that changed it, in order.
    pub log: Vec<String>,
    /// Every decision, in program order.
    pub decisions: &'r [Decision],
}

/// One side's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// Device bytes: argument + output − alias + temp.
    pub device: Bytes,
    /// Host bytes.
    pub host: Bytes,
    /// Predicted time of the step.
    pub step_ns: Nanos,
    /// Of it, what the compute stream waits for copies.
    pub copy_wait_ns: Nanos,
    /// Every count of XLA's.
    pub memory: Memory,
}

/// Copies between device and host.
#[derive(Clone, Debug, Serialize)]
pub struct Transfers {
    /// Copies out.
    pub out: usize,
    /// Copies back.
    pub back: usize,
    /// Over the whole step, loops included.
    pub out_bytes: Bytes,
    /// Bytes back, over the whole step, loops included.
    pub back_bytes: Bytes,
}

/// Values that are computed again.
#[derive(Clone, Debug, Serialize)]
pub struct Recomputes {
    /// Values.
    pub values: usize,
    /// Instructions that are run again.
    pub instructions: usize,
    /// Bytes of the values that are computed again.
    pub bytes: Bytes,
}

impl From<&Figures> for Side {
    fn from(figures: &Figures) -> Self {
        Self {
            device: figures.device(),
            host: Bytes(figures.memory.host_bytes()),
            step_ns: figures.step,
            copy_wait_ns: figures.copy_wait,
            memory: figures.memory,
        }
    }
}

impl<'r> Summary<'r> {
    /// Collects the figures.
    pub fn of(options: &'r RewriteOptions, rewritten: &'r Rewritten, floor: Option<Bytes>) -> Self {
        let (before, after) = (&rewritten.before, &rewritten.after);
        let mut transfers = Transfers { out: 0, back: 0, out_bytes: after.to_host, back_bytes: after.from_host };
        let mut recomputes = Recomputes { values: 0, instructions: 0, bytes: Bytes::ZERO };
        for decision in &rewritten.plan.decisions {
            match &decision.residence {
                Residence::Host { send, .. } => {
                    transfers.out += usize::from(send.is_some());
                    transfers.back += 1;
                }
                Residence::Recomputed { chain } => {
                    recomputes.values += 1;
                    recomputes.instructions += chain.len();
                    recomputes.bytes += Bytes(decision.bytes);
                }
            }
        }
        Self {
            schema_version: 1,
            module: &rewritten.module.name,
            device: &options.machine.name,
            budget: options.memory,
            before: before.into(),
            after: after.into(),
            floor,
            slowdown: if before.step.is_zero() { 1.0 } else { after.step.ratio(before.step) },
            transfers,
            recomputes,
            xla_remat: &rewritten.xla,
            changed: rewritten.log.entries.iter().any(|e| e.changed),
            log: rewritten.log.entries.iter().filter(|e| e.changed).map(|e| format!("{}: {}", e.pass, e.text)).collect(),
            decisions: &rewritten.plan.decisions,
        }
    }
}

/// The lowest device bytes that the same steps find when they are asked for less and less; `None` where they stop for another reason.
pub fn floor(module: &Module, options: &RewriteOptions, rewritten: &Rewritten) -> Option<Bytes> {
    let mut lowest = rewritten.after.device();
    // What loops hold is searched as a whole each time: one question must do.
    if rewritten.log.entries.iter().any(|e| e.pass == "loops" && e.changed) {
        let least = RewriteOptions { memory: Bytes(1), ..options.clone() };
        return match rewrite(module, &least) {
            Err(Trouble::Infeasible(Infeasible { floor, .. })) => Some(lowest.min(floor)),
            _ => None,
        };
    }
    for _ in 0..ASKS {
        let less = RewriteOptions { memory: Bytes(lowest.get() / 8 * 7), xla_memory: None, ..options.clone() };
        match rewrite(module, &less) {
            Ok(found) => lowest = lowest.min(found.after.device()),
            Err(Trouble::Infeasible(Infeasible { floor, .. })) => return Some(lowest.min(floor)),
            Err(Trouble::Input(_) | Trouble::Usage(_) | Trouble::Internal { .. }) => return None,
        }
    }
    None
}
