//! Buffers: sets of values that must lie at one address.
//!
//! Merged are: donated parameter and result (`input_output_alias`); a while's initial value, both parameters, its body's result and its own;
//! a conditional's results; operand and result of in-place operations ([`super::inplace`]). Source: `hlo/analysis/hlo_alias_analysis.cc`.
//! Cost: union-find over positions.

use rustc_hash::FxHashSet;

use super::inplace::in_place_pairs;
use super::live::{LiveRange, LiveRanges};
use super::schedule::{Schedule, Time};
use super::values::Values;
use crate::entity::{BufferId, ValueId};
use crate::ir::{Entity, EntityVec, InstrId, Module, Op, Shape};

/// What decides where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferKind {
    /// The caller owns it: an entry parameter, by its number.
    Parameter {
        /// The number.
        number: i64,
        /// Position in its shape.
        position: u32,
        /// Whether an output is written over it.
        donated: bool,
    },
    /// Part of the program.
    Constant,
    /// A table of pointers; XLA gives each an address of its own.
    Tuple,
    /// Anything else.
    Plain,
}

/// One logical buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its values by their numbers.
    pub values: Vec<ValueId>,
    /// Bytes: the most that one of its values needs.
    pub bytes: u64,
    /// Memory space ([`crate::ir::DEVICE`], [`crate::ir::HOST`] …).
    pub color: i64,
    /// Whether it is (part of) the program's result.
    pub live_out: bool,
    /// What decides where it lies.
    pub kind: BufferKind,
    /// From the first instant at which one of its values is alive to the last; there may be holes between values.
    pub live: (Time, Time),
}

impl Buffer {
    /// Whether no plan can end its life or move it without changing the program's signature: parameters, results, constants.
    pub fn is_pinned(&self) -> bool {
        self.live_out || matches!(self.kind, BufferKind::Parameter { .. } | BufferKind::Constant)
    }
}

/// All buffers, ordered by the number of their first value, and the live ranges of their values.
#[derive(Clone, Debug)]
pub struct Buffers {
    buffers: EntityVec<BufferId, Buffer>,
    of_value: Vec<u32>,
    ranges: LiveRanges,
}

struct Union(Vec<u32>);

impl Union {
    fn find(&mut self, mut at: u32) -> u32 {
        while self.0[at as usize] != at {
            self.0[at as usize] = self.0[self.0[at as usize] as usize];
            at = self.0[at as usize];
        }
        at
    }
    fn unite(&mut self, a: ValueId, b: ValueId) {
        let number = |v: ValueId| u32::try_from(v.index()).expect("values are numbered by u32");
        let (a, b) = (self.find(number(a)), self.find(number(b)));
        // The smaller number stays the representative: it is the buffer's first value.
        self.0[a.max(b) as usize] = a.min(b);
    }
}

impl Buffers {
    /// Merges values and measures them.
    pub fn of(module: &Module, schedule: &Schedule, values: &Values, mut ranges: LiveRanges) -> Self {
        let mut union = Union((0u32..).take(values.len()).collect());
        for alias in &module.header.input_output_alias {
            unite_donation(module, values, &mut union, alias);
        }
        for &id in values.order().iter().flat_map(|(_, ids)| ids) {
            unite_instruction(module, values, &mut union, id);
        }
        let mut buffers = EntityVec::<BufferId, Buffer>::new();
        let mut of_value = Vec::with_capacity(values.len());
        for (value, definition) in values.iter() {
            let bytes = module.shapes.byte_size(definition.shape);
            let root = union.find(u32::try_from(value.index()).expect("values are numbered by u32"));
            if root as usize == value.index() {
                of_value.push(u32::try_from(buffers.len()).expect("buffers are numbered by u32"));
                buffers.push(Buffer {
                    values: vec![value],
                    bytes,
                    color: module.shapes.memory_space(definition.shape),
                    live_out: false,
                    kind: BufferKind::Plain,
                    live: (0, 0),
                });
            } else {
                let buffer = of_value[root as usize];
                of_value.push(buffer);
                let buffer = &mut buffers[BufferId::new(buffer as usize)];
                buffer.values.push(value);
                buffer.bytes = buffer.bytes.max(bytes);
            }
        }
        for value in values.all(module, module.entry().root) {
            buffers[BufferId::new(of_value[value.index()] as usize)].live_out = true;
        }
        let donated: FxHashSet<(i64, &[i64])> = module.header.input_output_alias.iter().map(|a| (a.parameter, &a.index[..])).collect();
        for buffer in buffers.values_mut() {
            buffer.kind = kind(module, values, &donated, buffer);
            ranges.normalize(&buffer.values);
            let all = buffer.values.iter().map(|&v| ranges.of_value(v));
            buffer.live = all.fold((schedule.end(), 0), |(start, end), r| (start.min(r.start), end.max(r.end)));
        }
        Self { buffers, of_value, ranges }
    }

    /// All buffers with their names.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (BufferId, &Buffer)> + ExactSizeIterator {
        self.buffers.iter()
    }
    /// One buffer.
    pub fn get(&self, buffer: BufferId) -> &Buffer {
        &self.buffers[buffer]
    }
    /// The number of buffers.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }
    /// The buffer of a value.
    pub fn of_value(&self, value: ValueId) -> BufferId {
        BufferId::new(self.of_value[value.index()] as usize)
    }
    /// When a value is alive, both ends included. Values of one buffer follow each other: they share at most their ends.
    pub fn range(&self, value: ValueId) -> LiveRange {
        self.ranges.of_value(value)
    }
}

fn unite_donation(module: &Module, values: &Values, union: &mut Union, alias: &crate::ir::AliasEntry) {
    let entry = module.entry();
    let Some(&parameter) = usize::try_from(alias.parameter).ok().and_then(|n| entry.parameters.get(n)) else { return };
    let at = |id: InstrId, path: &[i64]| values.at(id, values.positions.at(module, module.instr(id).shape, path)?);
    if let (Some(a), Some(b)) = (at(parameter, &alias.index), at(entry.root, &alias.output)) {
        union.unite(a, b);
    }
}

fn unite_instruction(module: &Module, values: &Values, union: &mut Union, id: InstrId) {
    let instr = module.instr(id);
    let mut unite_all = |a: InstrId, b: InstrId| {
        for (a, b) in values.all(module, a).zip(values.all(module, b)) {
            union.unite(a, b);
        }
    };
    match &instr.op {
        Op::While { condition, body } => {
            unite_all(id, instr.operands[0]);
            unite_all(id, module.comp(*body).root);
            for comp in [condition, body] {
                for &parameter in &module.comp(*comp).parameters {
                    unite_all(id, parameter);
                }
            }
        }
        Op::Conditional { branches, .. } => {
            for branch in branches {
                unite_all(id, module.comp(*branch).root);
            }
        }
        _ => {
            for pair in in_place_pairs(module, id) {
                let operand = instr.operands[pair.operand];
                let at = |id: InstrId, path: &[i64]| values.at(id, values.positions.at(module, module.instr(id).shape, path)?);
                if let (Some(a), Some(b)) = (at(operand, &pair.operand_path), at(id, &pair.output_path)) {
                    union.unite(a, b);
                }
            }
        }
    }
}

fn kind(module: &Module, values: &Values, donated: &FxHashSet<(i64, &[i64])>, buffer: &Buffer) -> BufferKind {
    let entry = module.entry();
    for &value in &buffer.values {
        let value = values.get(value);
        match module.instr(value.instr).op {
            Op::Constant(_) => return BufferKind::Constant,
            Op::Parameter { number } if usize::try_from(number).ok().and_then(|n| entry.parameters.get(n)) == Some(&value.instr) => {
                let path = values.positions.path(module, module.instr(value.instr).shape, value.position);
                return BufferKind::Parameter { number, position: value.position, donated: donated.contains(&(number, &path[..])) };
            }
            _ => {}
        }
    }
    if buffer.values.iter().any(|&v| matches!(module.shapes.get(values.get(v).shape), Shape::Tuple(_))) {
        return BufferKind::Tuple;
    }
    BufferKind::Plain
}
