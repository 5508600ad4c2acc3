//! From the graph of a kernel to the tape of a loop.

use super::Sink;
use super::build::{Builder, NodeId, Source};
use crate::interp::lanes::{Block, Memory, Run, lane};
use crate::interp::tape::{Allocator, Register, Step, Tape};
use crate::interp::view::{Access, Slot};
use crate::ir::{EntityMap, Primitive};

/// Makes a loop that only moves elements one that moves bits: a NaN may not change on the way.
pub(super) fn move_bits(loads: &mut [Access], tape: &mut Tape, sinks: &mut [Sink]) {
    let [load] = loads else { return };
    let bits = match load.element.literal_bytes() {
        1 => Primitive::U8,
        2 => Primitive::U16,
        4 => Primitive::U32,
        8 => Primitive::U64,
        _ => return,
    };
    let stores = sinks.iter().all(|s| matches!(s, Sink::Store { .. }));
    if !stores || tape.steps.len() > 1 || load.slot == Slot::Index {
        return;
    }
    load.element = bits;
    tape.registers.fill(lane(bits));
    for sink in sinks {
        if let Sink::Store { to, .. } = sink {
            to.element = bits;
        }
    }
}

/// Turns the graph behind some values into a tape.
pub(super) struct Assembler {
    pub(super) registers: EntityMap<NodeId, Option<Register>>,
    uses: EntityMap<NodeId, u32>,
    pub(super) loads: Vec<Access>,
    pub(super) steps: Vec<Step>,
    pub(super) allocator: Allocator,
    /// Whether constants become splats, since there is no loop.
    pub(super) scalars: bool,
}

impl Assembler {
    /// Counts uses, so that registers can be given back. Roots are never.
    pub(super) fn new(builder: &Builder<'_>, roots: &[NodeId]) -> Self {
        let mut uses = EntityMap::with_default(0);
        let mut stack: Vec<NodeId> = roots.to_vec();
        while let Some(id) = stack.pop() {
            uses[id] += 1;
            if uses[id] > 1 {
                continue;
            }
            match &builder.nodes[id].source {
                Source::Compute { args, .. } => stack.extend(args),
                Source::Reshaped(inner) => stack.push(*inner),
                _ => {}
            }
        }
        for &root in roots {
            uses[root] = u32::MAX;
        }
        Self {
            registers: EntityMap::with_default(None),
            uses,
            loads: Vec::new(),
            steps: Vec::new(),
            allocator: Allocator::default(),
            scalars: false,
        }
    }

    pub(super) fn assemble(&mut self, builder: &mut Builder<'_>, roots: &[NodeId]) {
        let mut stack: Vec<(NodeId, bool)> = roots.iter().rev().map(|&r| (r, false)).collect();
        while let Some((id, ready)) = stack.pop() {
            if self.registers[id].is_some() {
                continue;
            }
            match builder.nodes[id].source.clone() {
                Source::Compute { op, from, args } => {
                    if !ready {
                        stack.push((id, true));
                        stack.extend(args.iter().rev().map(|&a| (a, false)));
                        continue;
                    }
                    let element = builder.nodes[id].element;
                    let inputs = args.iter().map(|&a| self.registers[a].expect("operands come first")).collect();
                    let to = self.allocator.take(lane(element));
                    self.steps.push(Step::Compute { op, from, element, args: inputs, to });
                    self.registers[id] = Some(to);
                    for &arg in &args {
                        self.release(builder, arg);
                    }
                }
                Source::Reshaped(inner) => {
                    if !ready {
                        stack.push((id, true));
                        stack.push((inner, false));
                        continue;
                    }
                    self.registers[id] = self.registers[inner];
                    // The register is the inner value's; it must outlive both.
                    self.uses[inner] = u32::MAX;
                }
                Source::View(view) => {
                    let to = self.allocator.take(lane(view.element));
                    self.registers[id] = Some(to);
                    if let (true, Slot::Const(number)) = (self.scalars, view.slot) {
                        let mut value = Block::zeros(lane(view.element), 1);
                        let memory = Memory { buffer: &builder.kernel.consts[number], offset: 0, element: view.element };
                        let at = view.base.unsigned_abs();
                        memory.load(Run { at, len: 1, stride: 0 }, &mut value, 0);
                        self.steps.push(Step::Splat { value, to });
                    } else {
                        self.loads.push(view.access());
                        self.steps.push(Step::Load { access: self.loads.len() - 1, to });
                    }
                }
                Source::Pending { .. } => unreachable!("reductions are settled before anything reads them"),
                Source::Argument(register) => self.registers[id] = Some(register),
            }
        }
    }

    fn release(&mut self, builder: &Builder<'_>, id: NodeId) {
        if self.uses[id] == u32::MAX || matches!(builder.nodes[id].source, Source::Argument(_) | Source::Reshaped(_)) {
            return;
        }
        self.uses[id] -= 1;
        if self.uses[id] == 0 {
            self.allocator.give_back(self.registers[id].expect("a value that is used has a register"));
        }
    }
}
