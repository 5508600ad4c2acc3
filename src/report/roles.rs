//! What a buffer is for.
//!
//! Judged by the names that a framework leaves and by the shape of the program, in this order: constants; entry parameters, which are optimizer
//! state where their path says so (`opt_state`, `mu`, `nu`, …), or where they are donated, are not called parameters and have the shape of one
//! that is; results with memory of their own; what a collective made; stacks that one loop fills row by row, which are gradients where that
//! loop runs backward, else activations; what is made backward in the shape of a parameter, or summed up by a collective next, a gradient; what
//! a backward loop reads row by row and is not a parameter in another layout, an activation stack; what is made forward and read backward, an
//! activation. Anything else is temporary.

use rustc_hash::FxHashSet;
use serde::Serialize;

use super::names::{Pass, op_name};
use crate::analysis::loops::{Kind, Loops};
use crate::analysis::memory::Alive;
use crate::analysis::{Analyses, Buffer, BufferKind, Time};
use crate::entity::{BufferId, ValueId};
use crate::ir::{Dim, InstrId, Module, Op, Shape, ShapeId};

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A parameter of the model, or another input.
    Parameter,
    /// State of the optimizer.
    OptimizerState,
    /// Activations of all iterations of a loop, kept for the backward pass.
    ActivationStack,
    /// An activation kept for the backward pass.
    Activation,
    /// A gradient of a parameter.
    Gradient,
    /// What the step returns and is not written over an argument.
    Result,
    /// What a collective sent or received.
    Communication,
    /// A constant.
    Constant,
    /// Anything else.
    Temporary,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Parameter,
        Self::OptimizerState,
        Self::ActivationStack,
        Self::Activation,
        Self::Gradient,
        Self::Result,
        Self::Communication,
        Self::Constant,
        Self::Temporary,
    ];
    /// Words for a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::OptimizerState => "optimizer state",
            Self::ActivationStack => "activation stack",
            Self::Activation => "activation",
            Self::Gradient => "gradient",
            Self::Result => "result",
            Self::Communication => "communication",
            Self::Constant => "constant",
            Self::Temporary => "temporary",
        }
    }
}

/// What is needed to judge buffers, computed once.
pub(super) struct Roles<'a, 'm> {
    analyses: &'a Analyses<'m>,
    /// What a loop fills row by row.
    stacks: FxHashSet<BufferId>,
    /// What a backward loop reads row by row.
    read_by_rows: FxHashSet<BufferId>,
    /// Dimensions of entry parameters that are called parameters.
    model: FxHashSet<Vec<Dim>>,
    /// Dimensions of all entry parameters with more than one element.
    inputs: FxHashSet<Vec<Dim>>,
}

impl<'a, 'm> Roles<'a, 'm> {
    pub(super) fn of(analyses: &'a Analyses<'m>) -> Self {
        let module = analyses.module();
        let none = FxHashSet::default;
        let mut this = Self { analyses, stacks: none(), read_by_rows: none(), model: FxHashSet::default(), inputs: FxHashSet::default() };
        for l in &Loops::of(module, analyses.users()).loops {
            let backward = Pass::of(op_name(module, l.instr)).is_backward();
            for (n, element) in l.elements.iter().enumerate() {
                let is_stack = matches!(element.kind, Kind::Stack(_));
                let reads = || l.reads(module, analyses.users(), n).is_some_and(|reads| !reads.is_empty());
                if !(is_stack || backward && element.kind == Kind::Invariant && reads()) {
                    continue;
                }
                let position = analyses.values().positions.at(module, module.instr(l.instr).shape, &[n as i64]);
                let value = position.and_then(|p| analyses.values().at(l.instr, p));
                let set = if is_stack { &mut this.stacks } else { &mut this.read_by_rows };
                set.extend(value.map(|v| analyses.buffers().of_value(v)));
            }
        }
        for &parameter in &module.entry().parameters {
            for shape in module.shapes.leaves(module.instr(parameter).shape) {
                let Some(dims) = dims(module, shape) else { continue };
                if named_parameter(argument(module, parameter)) {
                    this.model.insert(sorted(&dims));
                }
                this.inputs.insert(sorted(&dims));
            }
        }
        this
    }

    /// The role of a buffer that is alive, made by `maker`, until `until`.
    pub(super) fn role(&self, alive: &Alive, maker: InstrId, until: Time) -> Role {
        let module = self.analyses.module();
        let buffer = self.analyses.buffers().get(alive.buffer);
        match buffer.kind {
            BufferKind::Constant => return Role::Constant,
            BufferKind::Parameter { number, donated, .. } => return self.parameter(number, donated, buffer),
            BufferKind::Tuple | BufferKind::Plain if buffer.live_out => return Role::Result,
            BufferKind::Tuple | BufferKind::Plain => {}
        }
        if communicates(module, maker) {
            return Role::Communication;
        }
        let pass = Pass::of(op_name(module, maker));
        if self.stacks.contains(&alive.buffer) {
            return if pass.is_backward() { Role::Gradient } else { Role::ActivationStack };
        }
        let shape = self.analyses.values().get(alive.value).shape;
        let like_parameter = dims(module, shape).is_some_and(|d| self.is_like_parameter(&d));
        let reader = self.analyses.schedule().sequence.get(until as usize).copied();
        if pass.is_backward() && (like_parameter || reader.is_some_and(|r| sums_up(module, r))) {
            return Role::Gradient;
        }
        let read_backward = reader.is_some_and(|r| Pass::of(op_name(module, r)).is_backward());
        if self.read_by_rows.contains(&alive.buffer) && read_backward && !like_parameter {
            return Role::ActivationStack;
        }
        if pass == Pass::Forward && read_backward { Role::Activation } else { Role::Temporary }
    }

    /// Whether a value has the dimensions of a parameter of the model: in any order from three on, since other layouts of a stack are made by
    /// the compiler; matrices in that order only, since activations are matrices too.
    fn is_like_parameter(&self, dims: &[Dim]) -> bool {
        let known = if self.model.is_empty() { &self.inputs } else { &self.model };
        known.contains(&sorted(dims))
    }

    fn parameter(&self, number: i64, donated: bool, buffer: &Buffer) -> Role {
        let module = self.analyses.module();
        let instr = usize::try_from(number).ok().and_then(|n| module.entry().parameters.get(n));
        let path = instr.map_or("", |&id| argument(module, id));
        if is_optimizer_path(path) {
            return Role::OptimizerState;
        }
        let shape = buffer.values.first().map(|&v| self.analyses.values().get(v).shape);
        let twin = || shape.and_then(|s| dims(module, s)).is_some_and(|d| self.model.contains(&sorted(&d)));
        if donated && !named_parameter(path) && twin() { Role::OptimizerState } else { Role::Parameter }
    }
}

/// The path of an argument: what the framework calls it, else its name.
fn argument(module: &Module, id: InstrId) -> &str {
    let name = op_name(module, id);
    if name.is_empty() { &module.instr(id).name } else { name }
}

fn is_optimizer_path(path: &str) -> bool {
    let words = ["opt_state", "optimizer", "momentum", "exp_avg", ".mu[", ".nu[", "['mu']", "['nu']", "trace[", "adam"];
    words.iter().any(|w| path.contains(w))
}

fn named_parameter(path: &str) -> bool {
    path.contains("param") && !path.starts_with("param.") && !path.starts_with("param_") && !is_optimizer_path(path)
}

/// Dimensions of an array with more than one element.
fn dims(module: &Module, shape: ShapeId) -> Option<Vec<Dim>> {
    match module.shapes.get(shape) {
        Shape::Array(array) if array.elements() > 1 => Some(array.dims.clone()),
        _ => None,
    }
}

/// Dimensions of what has three or more, in one order for all orders.
fn sorted(dims: &[Dim]) -> Vec<Dim> {
    let mut out = dims.to_vec();
    if out.len() > 2 {
        out.sort_by_key(|d| d.size);
    }
    out
}

/// Whether a collective makes the value.
fn communicates(module: &Module, id: InstrId) -> bool {
    match &module.instr(id).op {
        Op::Collective(_) | Op::CollectiveDone(_) => true,
        Op::AsyncStart(a) | Op::AsyncUpdate(a) | Op::AsyncDone(a) => {
            matches!(module.instr(module.comp(a.calls).root).op, Op::Collective(_))
        }
        _ => false,
    }
}

/// Whether a collective adds up what it gets from the devices.
fn sums_up(module: &Module, id: InstrId) -> bool {
    communicates(module, id) && {
        let name = module.instr(id).op.opcode();
        let wrapped = match &module.instr(id).op {
            Op::AsyncStart(a) | Op::AsyncUpdate(a) | Op::AsyncDone(a) => module.instr(module.comp(a.calls).root).op.opcode(),
            _ => name,
        };
        wrapped.starts_with("all-reduce") || wrapped.starts_with("reduce-scatter")
    }
}

/// The value that says best what a buffer holds: the one that is alive, or where that is only a loop's parameter or result, what else writes
/// the buffer, inside a loop if there is such.
pub(super) fn maker(analyses: &Analyses<'_>, alive: &Alive) -> ValueId {
    let (module, values) = (analyses.module(), analyses.values());
    let instr = |v| values.get(v).instr;
    let makes = |v: ValueId| {
        !matches!(
            module.instr(instr(v)).op,
            Op::Parameter { .. } | Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::Tuple | Op::GetTupleElement { .. }
        )
    };
    let buffer = analyses.buffers().get(alive.buffer);
    if makes(alive.value) || matches!(buffer.kind, BufferKind::Parameter { .. } | BufferKind::Constant) {
        return alive.value;
    }
    let entry = module.entry_id();
    let candidates = || buffer.values.iter().copied().filter(|&v| makes(v));
    let inside = candidates().find(|&v| analyses.users().home(instr(v)) != Some(entry));
    inside.or_else(|| candidates().next()).unwrap_or(alive.value)
}
