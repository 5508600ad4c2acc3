//! What a framework's names tell: which pass an instruction belongs to, and what is the same in every layer.

use serde::Serialize;

use crate::ir::{InstrId, Module};

/// The part of a training step that an instruction belongs to, by its `op_name`: JAX writes `jvp(…)` for what runs forward,
/// `transpose(jvp(…))` for what runs backward, `rematted_computation` for what is computed again there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// Forward.
    Forward,
    /// Backward.
    Backward,
    /// Computed again for the backward pass.
    Recomputed,
    /// Neither: the optimizer, the input, what has no name.
    Other,
}

impl Pass {
    /// Reads a name.
    pub fn of(op_name: &str) -> Self {
        if op_name.contains("rematted_computation") {
            Self::Recomputed
        } else if op_name.contains("transpose(") {
            Self::Backward
        } else if op_name.contains("jvp(") {
            Self::Forward
        } else {
            Self::Other
        }
    }
    /// Whether it belongs to the backward pass.
    pub fn is_backward(self) -> bool {
        matches!(self, Self::Backward | Self::Recomputed)
    }
    /// A short word; empty for what belongs to none.
    pub fn word(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Recomputed => "again",
            Self::Other => "",
        }
    }
}

/// An `op_name` with the numbers of layers replaced by `*` and without what every name begins with, so that equal parts of different layers have
/// equal names: `jit(step)/jvp(Model)/encoderblock_3/Dense_0/dot_general` becomes `encoderblock_*/Dense_*/dot_general`.
pub(super) fn layer_name(op_name: &str) -> String {
    let mut parts: Vec<&str> = op_name.split('/').collect();
    let last = parts.pop().unwrap_or_default();
    let plumbing = |part: &&str| {
        matches!(*part, "while" | "body" | "cond" | "checkpoint" | "rematted_computation" | "eval_jaxpr" | "closed_call" | "core_call")
            || (part.ends_with(')') && ["jit(", "jvp(", "transpose(", "vmap(", "pjit("].iter().any(|p| part.starts_with(p)))
    };
    let mut out: Vec<String> = parts.into_iter().filter(|p| !plumbing(p)).map(without_numbers).collect();
    // The primitive keeps its digits (`log1p`, `exp2`); the path of an argument (`state.mu['h_3']`) does not.
    out.push(if last.contains(['[', '.']) { without_numbers(last) } else { last.to_string() });
    out.join("/")
}

/// Replaces digits that end a word by `*`.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if !c.is_ascii_digit() {
            out.push(c);
            continue;
        }
        let mut digits = String::from(c);
        while let Some(d) = chars.next_if(char::is_ascii_digit) {
            digits.push(d);
        }
        if chars.peek().is_some_and(|n| n.is_ascii_alphabetic()) { out += &digits } else { out.push('*') }
    }
    out
}

/// The framework's name of an instruction; may be empty.
pub(super) fn op_name(module: &Module, id: InstrId) -> &str {
    module.instr(id).attrs.metadata.as_ref().map_or("", |m| &m.op_name)
}

/// The line of source that an instruction comes from, as `file.py:12`: from the module's tables or its own metadata.
pub(super) fn source(module: &Module, id: InstrId) -> Option<String> {
    let metadata = module.instr(id).attrs.metadata.as_ref()?;
    let own = || (!metadata.source_file.is_empty()).then_some((&*metadata.source_file, metadata.source_line));
    let (file, line) = module.header.frames.place(metadata.stack_frame_id).or_else(own)?;
    Some(format!("{file}:{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_fall_together_and_passes_are_told_apart() {
        let name = "jit(train_step)/transpose(jvp(_Model))/Transformer/encoderblock_11/MlpBlock_0/Dense_0/dot_general";
        assert_eq!(layer_name(name), "Transformer/encoderblock_*/MlpBlock_*/Dense_*/dot_general");
        assert_eq!(layer_name("jit(step)/jvp()/while/body/eval_jaxpr/log1p"), "log1p");
        assert_eq!(layer_name("opt_state[0].mu['h_12']['w1']"), "opt_state[*].mu['h_*']['w*']");
        assert_eq!(Pass::of(name), Pass::Backward);
        assert_eq!(Pass::of("jit(f)/jvp(m)/add"), Pass::Forward);
        assert_eq!(Pass::of("jit(f)/transpose(jvp(m))/checkpoint/rematted_computation/add"), Pass::Recomputed);
        assert_eq!(Pass::of("jit(f)/add"), Pass::Other);
    }
}
