//! Builds kernels: the graph of views and elementwise operations, and the loops that compute it.

use std::cell::Cell;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::assemble::{Assembler, move_bits};
use super::shape::ArrayType;
use super::{Action, InPlace, Kernel, Loop, Reduction, Sink};
use crate::interp::array::Array;
use crate::interp::buffer::Buffer;
use crate::interp::elementwise::Elementwise;
use crate::interp::lanes::lane;
use crate::interp::tape::{Applied, Register, Tape};
use crate::interp::view::{Slot, View, coalesce};
use crate::ir::{Entity, EntityVec, InstrId, Module, Primitive, SliceDim};

/// Why an instruction cannot be run.
pub type Unsupported = String;

/// A value of the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u32);

impl Entity for NodeId {
    fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a kernel has fewer than 2^32 values"))
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a value of the graph comes to be.
#[derive(Clone)]
pub(super) enum Source {
    /// It stands in memory.
    View(View),
    /// It is computed.
    Compute { op: Elementwise, from: Primitive, args: SmallVec<[NodeId; 3]> },
    /// Another value in the same row-major order.
    Reshaped(NodeId),
    /// A result of a reduction that is not yet computed.
    Pending { reduction: usize, result: usize },
    /// A parameter of an applied function.
    Argument(Register),
}

pub(super) struct Node {
    pub(super) element: Primitive,
    dims: Vec<usize>,
    pub(super) source: Source,
}

/// A value of an instruction: an array, or values in a tuple. Tokens are empty tuples.
#[derive(Clone, Debug)]
pub enum Value {
    /// An array.
    Array(NodeId),
    /// A tuple.
    Tuple(Vec<Value>),
}

impl Value {
    /// The arrays in order.
    pub fn arrays(&self) -> Vec<NodeId> {
        let mut out = Vec::new();
        let mut stack = vec![self];
        while let Some(value) = stack.pop() {
            match value {
                Self::Array(node) => out.push(*node),
                Self::Tuple(parts) => stack.extend(parts.iter().rev()),
            }
        }
        out
    }
}

/// An operation that moves indices about.
#[derive(Clone, Debug)]
pub enum Move {
    /// See [`View::broadcast`].
    Broadcast { dimensions: Vec<usize>, dims: Vec<usize> },
    /// See [`View::transpose`].
    Transpose(Vec<usize>),
    /// See [`View::reverse`].
    Reverse(Vec<usize>),
    /// See [`View::slice`].
    Slice(Vec<SliceDim>),
    /// See [`View::dynamic_slice`].
    DynamicSlice { indices: Vec<View>, sizes: Vec<usize> },
    /// See [`View::reshape`].
    Reshape(Vec<usize>),
}

impl Move {
    fn apply(&self, view: View) -> Option<View> {
        Some(match self {
            Self::Broadcast { dimensions, dims } => view.broadcast(dimensions, dims),
            Self::Transpose(dimensions) => view.transpose(dimensions),
            Self::Reverse(dimensions) => view.reverse(dimensions),
            Self::Slice(slices) => view.slice(slices),
            Self::DynamicSlice { indices, sizes } => view.dynamic_slice(indices, sizes),
            Self::Reshape(dims) => return view.reshape(dims),
        })
    }
    fn dims(&self, from: &[usize]) -> Vec<usize> {
        match self {
            Self::Broadcast { dims, .. } | Self::Reshape(dims) => dims.clone(),
            Self::Transpose(dimensions) => dimensions.iter().map(|&d| from[d]).collect(),
            Self::Reverse(_) => from.to_vec(),
            Self::Slice(slices) => slices
                .iter()
                .map(|s| usize::try_from((s.limit - s.start).max(0)).expect("not negative").div_ceil(s.stride as usize))
                .collect(),
            Self::DynamicSlice { sizes, .. } => sizes.clone(),
        }
    }
}

/// The most values that a move is carried to the operands of; beyond that the moved value is stored.
const MOVED: usize = 256;

/// A reduction whose loop is not yet made.
struct Pending {
    inputs: Vec<NodeId>,
    inits: Vec<NodeId>,
    reduced: Vec<usize>,
    function: Applied,
    results: Vec<(NodeId, View)>,
    done: bool,
}

/// Builds one kernel.
pub struct Builder<'m> {
    pub(super) module: &'m Module,
    pub(super) nodes: EntityVec<NodeId, Node>,
    pub(super) kernel: Kernel,
    pending: Vec<Pending>,
    /// Where results of instructions are to be put, since they are (moved) results of the kernel.
    targets: FxHashMap<(InstrId, usize), View>,
    /// Where results of matrix products were put.
    pub(super) placed: FxHashMap<(InstrId, usize), View>,
    /// The state of the program's random numbers.
    pub(super) random: Rc<Cell<u128>>,
    /// Nesting of computations that are being lowered.
    pub(super) depth: usize,
    /// Whether contractions may add up in any order.
    pub(super) fast: bool,
}

impl<'m> Builder<'m> {
    /// A kernel that does nothing yet.
    pub fn new(module: &'m Module, random: Rc<Cell<u128>>) -> Self {
        let kernel = Kernel { actions: Vec::new(), temps: Vec::new(), consts: Vec::new(), in_place: Vec::new() };
        Self {
            module,
            nodes: EntityVec::new(),
            kernel,
            pending: Vec::new(),
            targets: FxHashMap::default(),
            placed: FxHashMap::default(),
            random,
            depth: 0,
            fast: false,
        }
    }

    // ---- values

    fn push(&mut self, element: Primitive, dims: &[usize], source: Source) -> NodeId {
        self.nodes.push(Node { element, dims: dims.to_vec(), source })
    }
    /// What stands in memory.
    pub fn view(&mut self, view: View) -> NodeId {
        let dims = view.dims.clone();
        self.push(view.element, &dims, Source::View(view))
    }
    /// An operand of the kernel.
    pub fn param(&mut self, number: usize, ty: &ArrayType) -> NodeId {
        self.view(ty.view(Slot::Param(number)))
    }
    /// A constant.
    pub fn constant(&mut self, array: &Array) -> NodeId {
        let buffer = Buffer::filled(array.data.len(), 0);
        buffer.write(0, &array.data);
        self.kernel.consts.push(buffer);
        self.view(View::dense(Slot::Const(self.kernel.consts.len() - 1), array.element, &array.dims))
    }
    /// A parameter of an applied function.
    pub(super) fn argument(&mut self, element: Primitive, register: Register) -> NodeId {
        self.push(element, &[], Source::Argument(register))
    }
    /// An elementwise operation.
    pub fn compute(&mut self, op: Elementwise, element: Primitive, args: &[NodeId]) -> NodeId {
        for &arg in args {
            self.settle(arg);
        }
        let last = *args.last().expect("an elementwise operation has operands");
        let from = self.nodes[last].element;
        let dims = self.nodes[last].dims.clone();
        self.push(element, &dims, Source::Compute { op, from, args: args.iter().copied().collect() })
    }
    /// The element type of a value.
    pub fn element(&self, node: NodeId) -> Primitive {
        self.nodes[node].element
    }
    /// The dimensions of a value.
    pub fn dims(&self, node: NodeId) -> &[usize] {
        &self.nodes[node].dims
    }
    fn len(&self, node: NodeId) -> usize {
        self.nodes[node].dims.iter().product()
    }
    /// The view of a value that stands in memory.
    pub fn as_view(&self, node: NodeId) -> Option<&View> {
        match &self.nodes[node].source {
            Source::View(view) => Some(view),
            _ => None,
        }
    }
    /// Scratch memory for an array.
    pub fn temp(&mut self, element: Primitive, dims: &[usize]) -> View {
        self.kernel.temps.push(dims.iter().product::<usize>() * element.literal_bytes());
        View::dense(Slot::Temp(self.kernel.temps.len() - 1), element, dims)
    }

    // ---- where results go

    /// Says that the `leaf`-th array of an instruction is to be put somewhere.
    pub fn set_target(&mut self, id: InstrId, leaf: usize, view: View) {
        self.targets.entry((id, leaf)).or_insert(view);
    }
    /// Memory for the `leaf`-th array of an instruction.
    pub fn destination(&mut self, id: Option<InstrId>, leaf: usize, element: Primitive, dims: &[usize]) -> View {
        let target = id.and_then(|id| self.targets.remove(&(id, leaf)));
        match target {
            Some(view) if view.dims == dims && view.element == element => view,
            _ => self.temp(element, dims),
        }
    }

    // ---- moves

    /// Moves the indices of a value about.
    pub fn moved(&mut self, node: NodeId, by: &Move) -> NodeId {
        self.settle(node);
        if let Source::View(view) = &self.nodes[node].source {
            if let Some(view) = by.apply(view.clone()) {
                return self.view(view);
            }
            let stored = self.copied(node);
            let view = by.apply(stored).expect("a dense array can be reshaped");
            return self.view(view);
        }
        let dims = by.dims(&self.nodes[node].dims);
        let element = self.nodes[node].element;
        let grows = dims.iter().product::<usize>() > self.len(node);
        if let Move::Reshape(_) = by {
            let inner = if let Source::Reshaped(inner) = self.nodes[node].source { inner } else { node };
            return self.push(element, &dims, Source::Reshaped(inner));
        }
        let cone = if grows { None } else { self.cone(node) };
        let Some(cone) = cone else {
            let stored = self.stored(node);
            return self.view(by.apply(stored).expect("a dense array can be moved"));
        };
        // Moved operands first: nodes are numbered after what they read.
        let mut moved: FxHashMap<NodeId, NodeId> = FxHashMap::default();
        for id in cone {
            let new = match self.nodes[id].source.clone() {
                Source::Compute { op, from, args } => {
                    let args = args.iter().map(|a| moved[a]).collect();
                    let element = self.nodes[id].element;
                    self.push(element, &dims, Source::Compute { op, from, args })
                }
                Source::Reshaped(inner) => {
                    let dims = self.nodes[id].dims.clone();
                    let inner = self.reshaped(inner, &dims);
                    self.moved(inner, by)
                }
                Source::View(_) | Source::Pending { .. } | Source::Argument(_) => self.moved(id, by),
            };
            moved.insert(id, new);
        }
        moved[&node]
    }

    /// A value in other dimensions, where the dimensions of what it is computed from follow.
    fn reshaped(&mut self, node: NodeId, dims: &[usize]) -> NodeId {
        let by = Move::Reshape(dims.to_vec());
        let Some(cone) = self.cone(node) else {
            let stored = self.stored(node);
            return self.view(by.apply(stored).expect("a dense array can be reshaped"));
        };
        let mut moved: FxHashMap<NodeId, NodeId> = FxHashMap::default();
        for id in cone {
            let new = match self.nodes[id].source.clone() {
                Source::Compute { op, from, args } => {
                    let args = args.iter().map(|a| moved[a]).collect();
                    let element = self.nodes[id].element;
                    self.push(element, dims, Source::Compute { op, from, args })
                }
                Source::Reshaped(inner) => moved.get(&inner).copied().unwrap_or_else(|| {
                    let stored = self.stored(inner);
                    self.view(by.apply(stored).expect("a dense array can be reshaped"))
                }),
                Source::View(_) | Source::Pending { .. } | Source::Argument(_) => self.moved(id, &by),
            };
            moved.insert(id, new);
        }
        moved[&node]
    }

    /// What is computed for a value, itself last, up to what stands in memory, which is included; what stands behind a reshape is not.
    /// `None` if that is much, or an argument of an applied function.
    fn cone(&self, node: NodeId) -> Option<Vec<NodeId>> {
        let mut seen = vec![node];
        let mut at = 0;
        while at < seen.len() {
            if let Source::Compute { args, .. } = &self.nodes[seen[at]].source {
                for &arg in args {
                    if !seen.contains(&arg) {
                        seen.push(arg);
                    }
                }
            }
            at += 1;
            if seen.len() > MOVED {
                return None;
            }
        }
        seen.sort_unstable();
        Some(seen)
    }

    // ---- loops

    /// Makes sure that a value is not the result of a reduction whose loop is not yet made.
    fn settle(&mut self, node: NodeId) {
        if let Source::Pending { reduction, .. } = self.nodes[node].source {
            self.reduce_like(reduction);
        }
    }
    /// The memory of a value: it is computed and stored if it was not.
    pub fn stored(&mut self, node: NodeId) -> View {
        self.settle(node);
        if let Source::View(view) = &self.nodes[node].source {
            return view.clone();
        }
        self.copied(node)
    }
    /// A dense copy of a value, which takes its place.
    pub fn copied(&mut self, node: NodeId) -> View {
        self.settle(node);
        let (element, dims) = (self.nodes[node].element, self.nodes[node].dims.clone());
        let to = self.temp(element, &dims);
        self.store(node, &to);
        if !matches!(self.nodes[node].source, Source::View(_)) {
            self.nodes[node].source = Source::View(to.clone());
        }
        to
    }
    /// Computes a value into memory.
    pub fn store(&mut self, node: NodeId, to: &View) {
        self.settle(node);
        let len = self.len(node);
        self.emit_loop(len, &[(node, to.clone())], &[]);
    }
    /// Makes the loop of a reduction and with it those of all others over as many elements.
    fn reduce_like(&mut self, reduction: usize) {
        if self.pending[reduction].done {
            return;
        }
        let len = self.len(self.pending[reduction].inputs[0]);
        let together: Vec<usize> =
            (0..self.pending.len()).filter(|&p| !self.pending[p].done && self.len(self.pending[p].inputs[0]) == len).collect();
        self.emit_loop(len, &[], &together);
    }

    /// Begins a reduction. Its loop is made when somebody needs a result.
    pub(super) fn reduce(
        &mut self,
        id: Option<InstrId>,
        inputs: &[NodeId],
        inits: &[NodeId],
        reduced: &[usize],
        function: Applied,
    ) -> Vec<NodeId> {
        for &node in inputs.iter().chain(inits) {
            self.settle(node);
        }
        let inits: Vec<NodeId> = inits
            .iter()
            .map(|&n| {
                let view = self.stored(n);
                self.view(view)
            })
            .collect();
        let dims: Vec<usize> = (0..self.dims(inputs[0]).len()).filter(|d| !reduced.contains(d)).map(|d| self.dims(inputs[0])[d]).collect();
        let reduction = self.pending.len();
        let mut results = Vec::new();
        for (result, &element) in function.results.iter().enumerate() {
            let to = self.destination(id, result, element, &dims);
            let node = self.push(element, &dims, Source::Pending { reduction, result });
            results.push((node, to));
        }
        let nodes = results.iter().map(|(node, _)| *node).collect();
        self.pending.push(Pending { inputs: inputs.to_vec(), inits, reduced: reduced.to_vec(), function, results, done: false });
        nodes
    }

    /// One loop that stores values and makes reductions.
    fn emit_loop(&mut self, len: usize, stores: &[(NodeId, View)], reductions: &[usize]) {
        let mut roots: Vec<NodeId> = stores.iter().map(|(node, _)| *node).collect();
        for &r in reductions {
            roots.extend(&self.pending[r].inputs);
        }
        let mut assembler = Assembler::new(self, &roots);
        assembler.assemble(self, &roots);
        let mut sinks: Vec<Sink> = stores
            .iter()
            .map(|(node, to)| Sink::Store { from: assembler.registers[*node].expect("roots stay"), to: to.access() })
            .collect();
        for &r in reductions {
            let pending = &self.pending[r];
            let dims = self.dims(pending.inputs[0]).to_vec();
            let mut strides = vec![0isize; dims.len()];
            let mut count = 1;
            for d in (0..dims.len()).rev().filter(|d| !pending.reduced.contains(d)) {
                strides[d] = count as isize;
                count *= dims[d];
            }
            let (dims, strides) = coalesce(&dims, &strides);
            sinks.push(Sink::Reduce(Box::new(Reduction {
                inputs: pending.inputs.iter().map(|n| assembler.registers[*n].expect("roots stay")).collect(),
                inits: pending.inits.iter().map(|&n| self.as_view(n).expect("inits are stored").access()).collect(),
                dims,
                strides,
                count,
                function: pending.function.clone(),
                to: pending.results.iter().map(|(_, to)| to.access()).collect(),
            })));
        }
        for &r in reductions {
            self.pending[r].done = true;
            for (node, to) in std::mem::take(&mut self.pending[r].results) {
                self.nodes[node].source = Source::View(to);
            }
        }
        let Assembler { mut loads, steps, allocator, .. } = assembler;
        let mut tape = Tape { registers: allocator.finish(), steps };
        move_bits(&mut loads, &mut tape, &mut sinks);
        self.kernel.actions.push(Action::Loop(Box::new(Loop { len, loads, tape, sinks })));
    }

    /// An applied function of values that were lowered from arguments.
    pub(super) fn applied(mut self, params: Vec<Primitive>, roots: &[NodeId]) -> Result<Applied, Unsupported> {
        let mut assembler = Assembler::new(&self, roots);
        // The first registers are the arguments', for good.
        for &element in &params {
            assembler.allocator.take(lane(element));
        }
        for id in self.nodes.keys() {
            if let Source::Argument(register) = self.nodes[id].source {
                assembler.registers[id] = Some(register);
            }
        }
        assembler.scalars = true;
        assembler.assemble(&mut self, roots);
        if !self.kernel.actions.is_empty() {
            return Err("an applied function does more than elementwise operations".to_string());
        }
        let outputs = roots.iter().map(|n| assembler.registers[*n].expect("roots stay")).collect();
        let results = roots.iter().map(|&n| self.element(n)).collect();
        let Assembler { steps, allocator, .. } = assembler;
        Ok(Applied { params, results, tape: Tape { registers: allocator.finish(), steps }, outputs })
    }

    // ---- the end

    /// Makes the loops for the results and ends.
    pub fn finish(mut self, results: &[(NodeId, View)]) -> Kernel {
        let mut rest: Vec<(NodeId, View)> = Vec::new();
        for (node, to) in results {
            match &self.nodes[*node].source {
                // It was put there.
                Source::View(view) if same(view, to) => {}
                Source::Pending { reduction, result } if same(&self.pending[*reduction].results[*result].1, to) => {}
                _ => rest.push((*node, to.clone())),
            }
        }
        // Results that lie elsewhere must be there first.
        for (node, _) in &rest {
            self.settle(*node);
        }
        let (later, now): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(node, _)| self.reads_out(*node));
        let mut lens: Vec<usize> = now.iter().map(|(node, _)| self.len(*node)).collect();
        let waiting: Vec<usize> = (0..self.pending.len()).filter(|&p| !self.pending[p].done).collect();
        lens.extend(waiting.iter().map(|&p| self.len(self.pending[p].inputs[0])));
        let mut seen = Vec::new();
        for len in lens {
            if seen.contains(&len) {
                continue;
            }
            seen.push(len);
            let stores: Vec<_> = now.iter().filter(|(node, _)| self.len(*node) == len).cloned().collect();
            let reductions: Vec<usize> =
                waiting.iter().copied().filter(|&p| !self.pending[p].done && self.len(self.pending[p].inputs[0]) == len).collect();
            self.emit_loop(len, &stores, &reductions);
        }
        for (node, to) in later {
            self.store(node, &to);
        }
        self.kernel
    }

    /// Whether computing a value reads a result of the kernel.
    fn reads_out(&self, node: NodeId) -> bool {
        let mut seen = rustc_hash::FxHashSet::default();
        let mut stack = vec![node];
        while let Some(id) = stack.pop() {
            if !seen.insert(id) {
                continue;
            }
            match &self.nodes[id].source {
                Source::View(view) if matches!(view.slot, Slot::Out(_)) => return true,
                Source::Compute { args, .. } => stack.extend(args),
                Source::Reshaped(inner) => stack.push(*inner),
                _ => {}
            }
        }
        false
    }

    /// Says that a result begins as an operand where `from` is all of an operand and `to` all of a result in the same order.
    pub(super) fn note_in_place(&mut self, from: &View, to: &View) {
        if let (Slot::Param(param), Slot::Out(out)) = (from.slot, to.slot)
            && from.dims == to.dims
            && from.strides == to.strides
            && from.base == 0
            && to.base == 0
            && from.dynamic.is_empty()
        {
            self.kernel.in_place.push(InPlace { param, out });
        }
    }
}

/// Whether two views are of the same memory in the same order.
fn same(a: &View, b: &View) -> bool {
    a.slot == b.slot
        && a.base == b.base
        && a.dynamic.is_empty()
        && b.dynamic.is_empty()
        && coalesce(&a.dims, &a.strides) == coalesce(&b.dims, &b.strides)
}
