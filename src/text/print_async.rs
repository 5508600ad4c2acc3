//! Which asynchronous operations are written in the short form `negate-start(%a)`.
//!
//! For the short form the parser makes the wrapped computation itself: called `async_wrapped` (`async_wrapped.1`, …), parameters
//! `async_param…` in the order of the operands, the wrapped operation named by its opcode, with the operands' shapes, and with the
//! attributes of the start. So the form is taken only for a computation that looks like that; XLA's printer takes it for any single
//! operation and loses the order of its operands, operands that are used twice, and attributes. Some opcodes have no short form, because
//! their `-start` is an opcode of its own or they make no sense.

use rustc_hash::FxHashSet;

use super::print::PrintOptions;
use crate::ir::{CollectiveKind, CompId, InstrId, Instruction, Module, Op};

/// The computations that are not printed, since the short form of their callers says all.
#[derive(Debug, Default)]
pub(super) struct Sugar {
    pub hidden: FxHashSet<CompId>,
}

impl Sugar {
    /// The wrapped operation and the suffix of the opcode, if the instruction is written in the short form.
    pub fn of(&self, module: &Module, id: InstrId) -> Option<(InstrId, &'static str)> {
        let (calls, suffix) = match &module.instr(id).op {
            Op::AsyncStart(op) => (op.calls, "start"),
            Op::AsyncUpdate(op) => (op.calls, "update"),
            Op::AsyncDone(op) => (op.calls, "done"),
            _ => return None,
        };
        self.hidden.contains(&calls).then(|| (module.comp(calls).root, suffix))
    }
}

/// Decides for every wrapped computation of a module.
pub(super) fn sugar(module: &Module, options: PrintOptions) -> Sugar {
    let mut hidden = FxHashSet::default();
    let mut shown = FxHashSet::default();
    for (_, id) in module.live() {
        let instr = module.instr(id);
        match &instr.op {
            Op::AsyncStart(op) if is_short(module, instr, op.calls, options) => {
                // A second caller would make a second computation when read.
                if !hidden.insert(op.calls) && !options.as_xla {
                    shown.insert(op.calls);
                }
            }
            Op::AsyncStart(op) => {
                shown.insert(op.calls);
            }
            Op::AsyncUpdate(_) | Op::AsyncDone(_) => {}
            other => shown.extend(other.called()),
        }
    }
    hidden.retain(|c| !shown.contains(c));
    Sugar { hidden }
}

fn is_short(module: &Module, start: &Instruction, calls: CompId, options: PrintOptions) -> bool {
    let comp = module.comp(calls);
    let root = module.instr(comp.root);
    let single = comp.order.len() == comp.parameters.len() + 1;
    if options.as_xla {
        return single && !matches!(root.op, Op::Parameter { .. });
    }
    single
        && has_short_form(&root.op)
        && root.operands[..] == comp.parameters[..]
        && start.operands.len() == comp.parameters.len()
        && comp.parameters.iter().zip(&start.operands).all(|(&p, &o)| module.instr(p).shape == module.instr(o).shape)
        && comp.thread == op_thread(start)
        && comp.backend_config.is_none()
        && made_by_parser(module, calls)
        && root.control_predecessors.is_empty()
        && inherited(root, start)
        && comp.parameters.iter().all(|&p| module.instr(p).attrs.is_empty())
}

fn op_thread(start: &Instruction) -> Option<Box<str>> {
    match &start.op {
        Op::AsyncStart(op) => op.thread.clone(),
        _ => None,
    }
}

/// Whether the parser reads `opcode-start` as a wrapped `opcode`, and prints of its attributes cannot be taken for the start's own.
fn has_short_form(op: &Op) -> bool {
    let aliases = match op {
        Op::Fusion(fusion) => !fusion.aliasing.is_empty(),
        Op::CustomCall(call) => !call.aliasing.is_empty(),
        _ => false,
    };
    let own_start = matches!(op, Op::Collective(c)
        if c.start || matches!(c.kind, CollectiveKind::AllGather | CollectiveKind::AllReduce | CollectiveKind::Permute));
    let never = matches!(
        op,
        Op::Parameter { .. }
            | Op::Constant(_)
            | Op::Copy
            | Op::Send(_)
            | Op::Recv(_)
            | Op::SendDone(_)
            | Op::RecvDone(_)
            | Op::CopyStart { .. }
            | Op::CopyDone
            | Op::CollectiveDone(_)
            | Op::AsyncStart(_)
            | Op::AsyncUpdate(_)
            | Op::AsyncDone(_)
            | Op::Opaque(_)
    );
    !aliases && !own_start && !never
}

/// Whether all names are those that the parser gives.
fn made_by_parser(module: &Module, calls: CompId) -> bool {
    let comp = module.comp(calls);
    let root = module.instr(comp.root);
    let is = |name: &str, base: &str| {
        name.strip_prefix(base)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') && rest[1..].bytes().all(|b| b.is_ascii_digit()))
    };
    is(&comp.name, "async_wrapped")
        && is(&root.name, root.op.opcode())
        && comp.parameters.iter().all(|&p| is(&module.instr(p).name, "async_param") || module.instr(p).name.starts_with("param_"))
}

/// Whether the wrapped operation has no attributes but those that reading gives it, none or the start's.
fn inherited(root: &Instruction, start: &Instruction) -> bool {
    let mut attrs = start.attrs.clone();
    if attrs.sharding.is_some() {
        attrs.sharding = None;
    }
    root.attrs == attrs
}
