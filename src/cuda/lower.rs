//! From one instruction to kernels.
//!
//! What is elementwise, or only moves indices about, is written out inside the kernel of whoever needs it. *Heavy* operations (reductions,
//! dots, convolutions, windows, scatters, sorts) have a kernel of their own; reductions of one form share one. Their results
//! lie in the instruction's result where they are one, else in scratch memory. The rest of the result is written by one kernel for each
//! order of elements. A dynamic-update-slice at the root writes only the update; where its memory is not the operand's already, the
//! operand is copied there before.
//!
//! An instruction's result may lie where an operand lies. A kernel may then write there only if nobody reads the operand later, and itself
//! reads it only at the place it writes; where that does not hold the result goes to scratch memory first and is copied at the end.

use rustc_hash::FxHashMap;

use super::emit::{Emitted, Emitter, Memory, Place};
use super::graph::{Graph, Kind, Ref, Value};
use super::source::{Kernel, Launch, Written};
use super::types::{Ty, storage};
use crate::ir::{InstrId, Module, Op};

/// Threads of a block, where nothing asks for another number.
pub(super) const BLOCK: u32 = 256;

/// The code of one instruction.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// Kernels, in the order in which they are launched.
    pub launches: Vec<Launch>,
    /// Their texts.
    pub kernels: Vec<Kernel>,
    /// Bytes of each scratch memory.
    pub scratch: Vec<usize>,
}

/// Writes the kernels of an instruction; `aliases` are pairs of an array of the operands and one of the result that share memory: from the
/// first byte on if the flag is set, else somehow.
pub fn compile(module: &Module, id: InstrId, aliases: &[(usize, usize, bool)]) -> Result<Code, String> {
    let mut via = Vec::new();
    loop {
        let mut lowering = Lowering::new(module, id, aliases, via.clone())?;
        lowering.run()?;
        match lowering.hazard() {
            Some(out) => via.push(out),
            None => return Ok(lowering.code),
        }
    }
}

/// Where a kernel puts what it computes.
pub(super) struct Sink {
    pub memory: Memory,
    pub value: Ref,
    /// The dynamic-update-slice whose part is written; none if all is.
    pub update_of: Option<usize>,
}

pub(super) struct Lowering<'m> {
    pub graph: Graph<'m>,
    pub stored: FxHashMap<Ref, Memory>,
    pub code: Code,
    pub index: &'static str,
    outs: Vec<Ref>,
    out_types: Vec<Ty>,
    aliases: Vec<(usize, usize, bool)>,
    /// Results that go to scratch memory first.
    via: Vec<usize>,
    written: Vec<Written>,
}

impl<'m> Lowering<'m> {
    fn new(module: &'m Module, id: InstrId, aliases: &[(usize, usize, bool)], via: Vec<usize>) -> Result<Self, String> {
        let mut graph = Graph::new(module);
        let instr = module.instr(id);
        let mut next = 0;
        let mut operands: Vec<Value> = Vec::with_capacity(instr.operands.len());
        for &operand in &instr.operands {
            operands.push(graph.parameter(module.instr(operand).shape, &mut next)?);
        }
        let value = graph.instruction(id, operands)?;
        let shape = match instr.op {
            Op::CopyStart { .. } => module.shapes.elements(instr.shape)[0],
            _ => instr.shape,
        };
        let out_types: Vec<Ty> = module.shapes.leaves(shape).into_iter().map(|s| Ty::of(module, s)).collect::<Result<_, _>>()?;
        let outs = value.arrays();
        if outs.len() != out_types.len() {
            return Err("its result is not what its computation gives".to_string());
        }
        let large = graph.nodes.iter().flat_map(|n| &n.results).any(|t| t.elements() >= (1 << 31) - (1 << 20));
        let index = if large { "long long" } else { "int" };
        Ok(Self {
            graph,
            stored: FxHashMap::default(),
            code: Code::default(),
            index,
            outs,
            out_types,
            aliases: aliases.to_vec(),
            via,
            written: Vec::new(),
        })
    }

    pub fn scratch(&mut self, ty: &Ty) -> Memory {
        self.code.scratch.push(ty.bytes());
        Memory::Scratch(self.code.scratch.len() - 1)
    }

    /// Whether the operation has kernels of its own.
    fn is_heavy(&self, node: usize) -> bool {
        match self.graph.op(node) {
            Some(
                Op::Reduce { .. }
                | Op::Dot(_)
                | Op::Convolution(_)
                | Op::ReduceWindow { .. }
                | Op::SelectAndScatter { .. }
                | Op::Scatter(_)
                | Op::Sort { .. }
                | Op::TopK { .. }
                | Op::Fft { .. }
                | Op::Cholesky { .. }
                | Op::TriangularSolve { .. }
                | Op::BatchNormTraining { .. }
                | Op::BatchNormInference { .. }
                | Op::BatchNormGrad { .. }
                | Op::RngBitGenerator { .. },
            ) => true,
            Some(Op::CustomCall(call)) => {
                call.target.starts_with("__cudnn$conv")
                    || matches!(&*call.target, "__cublas$gemm" | "__cublas$lt$matmul" | "TopK" | "__gpu$TopK")
            }
            _ => false,
        }
    }

    fn run(&mut self) -> Emitted<()> {
        let reachable = self.graph.reachable(&self.outs);
        let mut homes: Vec<Memory> = Vec::new();
        for out in 0..self.outs.len() {
            let ty = self.out_types[out].clone();
            homes.push(if self.via.contains(&out) { self.scratch(&ty) } else { Memory::Out(out) });
        }
        // Results of heavy operations that are results of the instruction, byte for byte.
        let mut done = vec![false; self.outs.len()];
        for out in 0..self.outs.len() {
            let source = self.graph.same_bytes(self.outs[out]);
            if self.is_heavy(source.node) && !self.stored.contains_key(&source) {
                self.stored.insert(source, homes[out]);
                done[out] = true;
            }
        }
        self.heavy(&reachable)?;
        self.rest(&homes, &done)?;
        for out in self.via.clone() {
            let ty = self.out_types[out].clone();
            self.copy(homes[out], Memory::Out(out), &ty)?;
        }
        Ok(())
    }

    /// Kernels of the heavy operations, those that depend on none first; reductions of one form together.
    fn heavy(&mut self, reachable: &[usize]) -> Emitted<()> {
        let mut level: Vec<usize> = vec![0; self.graph.nodes.len()];
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for &node in reachable {
            level[node] = self.graph.nodes[node].operands.iter().map(|r| level[r.node]).max().unwrap_or(0);
            if self.is_heavy(node) {
                let at = level[node];
                levels.resize_with(levels.len().max(at + 1), Vec::new);
                levels[at].push(node);
                level[node] += 1;
            }
        }
        for nodes in levels {
            for &node in &nodes {
                for part in 0..self.graph.nodes[node].results.len() {
                    let array = Ref { node, part };
                    if self.stored.contains_key(&array) || self.is_workspace(node, part) {
                        continue;
                    }
                    let ty = self.graph.ty(array).clone();
                    let memory = self.scratch(&ty);
                    self.stored.insert(array, memory);
                }
            }
            let mut reductions: Vec<Vec<usize>> = Vec::new();
            for &node in &nodes {
                if !matches!(self.graph.op(node), Some(Op::Reduce { .. })) {
                    self.one(node)?;
                    continue;
                }
                match reductions.iter_mut().find(|group| self.one_form(group[0], node)) {
                    Some(group) => group.push(node),
                    None => reductions.push(vec![node]),
                }
            }
            for group in reductions {
                self.reduce(&group)?;
            }
        }
        Ok(())
    }
    fn is_workspace(&self, node: usize, part: usize) -> bool {
        part > 0 && matches!(self.graph.op(node), Some(Op::CustomCall(call)) if call.target.starts_with("__cu"))
    }
    fn one(&mut self, node: usize) -> Emitted<()> {
        match self.graph.op(node) {
            Some(Op::Dot(dot)) => self.dot(node, dot),
            Some(Op::Convolution(conv)) => self.convolution(node, conv),
            Some(Op::CustomCall(call)) if call.target.starts_with("__cublas$") => self.gemm(node),
            Some(Op::CustomCall(call)) if call.target.ends_with("TopK") => self.topk(node, true),
            Some(&Op::TopK { largest, .. }) => self.topk(node, largest),
            Some(Op::SelectAndScatter { window, select, scatter }) => self.select_and_scatter(node, window, *select, *scatter),
            Some(Op::Fft { fft_type, fft_length }) => self.fft(node, *fft_type, fft_length),
            Some(&Op::Cholesky { lower }) => self.cholesky(node, lower),
            Some(Op::TriangularSolve { .. }) => self.triangular_solve(node),
            Some(Op::BatchNormTraining { .. } | Op::BatchNormInference { .. } | Op::BatchNormGrad { .. }) => self.batch_norm(node),
            Some(&Op::RngBitGenerator { algorithm }) => self.random_bits(node, algorithm),
            Some(Op::CustomCall(call)) => self.cudnn(node, call),
            Some(Op::ReduceWindow { window, to_apply }) => self.reduce_window(node, window, *to_apply),
            Some(Op::Scatter(scatter)) => self.scatter(node, scatter),
            Some(Op::Sort { dimension, to_apply, .. }) => self.sort(node, *dimension, *to_apply),
            _ => unreachable!("nothing else is heavy"),
        }
    }
    /// Whether two reductions go over the same elements in the same way.
    fn one_form(&self, a: usize, b: usize) -> bool {
        let (x, y) = (&self.graph.nodes[a], &self.graph.nodes[b]);
        let dims = |n: usize| match self.graph.op(n) {
            Some(Op::Reduce { dimensions, .. }) => dimensions.clone(),
            _ => Vec::new(),
        };
        let (from, other) = (self.graph.ty(x.operands[0]), self.graph.ty(y.operands[0]));
        dims(a) == dims(b) && from.dims == other.dims && from.order() == other.order() && x.results[0].order() == y.results[0].order()
    }

    /// Kernels for what is left of the result.
    fn rest(&mut self, homes: &[Memory], done: &[bool]) -> Emitted<()> {
        let mut phases: Vec<Vec<Sink>> = vec![Vec::new()];
        for out in 0..self.outs.len() {
            if done[out] || self.is_workspace(self.outs[out].node, self.outs[out].part) || self.is_allocation(self.outs[out]) {
                continue;
            }
            let (chain, base) = self.updates(self.outs[out]);
            if chain.is_empty() {
                phases[0].push(Sink { memory: homes[out], value: self.outs[out], update_of: None });
                continue;
            }
            let in_place = matches!(homes[out], Memory::Out(_)) && self.lies_there(base, out);
            if !in_place && !self.is_allocation(base) {
                phases[0].push(Sink { memory: homes[out], value: base, update_of: None });
            }
            phases.resize_with(phases.len().max(chain.len() + 1), Vec::new);
            for (i, &node) in chain.iter().enumerate() {
                let value = self.graph.nodes[node].operands[1];
                phases[i + 1].push(Sink { memory: homes[out], value, update_of: Some(node) });
            }
        }
        for sinks in phases {
            let mut groups: Vec<(Ty, Vec<Sink>)> = Vec::new();
            for sink in sinks {
                let ty = self.graph.ty(sink.value).clone();
                match groups.iter_mut().find(|(t, _)| t.dims == ty.dims && t.order() == ty.order()) {
                    Some((_, group)) => group.push(sink),
                    None => groups.push((ty, vec![sink])),
                }
            }
            for (ty, group) in groups {
                self.map(&ty, &group)?;
            }
        }
        Ok(())
    }
    /// The dynamic-update-slices that a result is, innermost first, and what they update.
    fn updates(&self, out: Ref) -> (Vec<usize>, Ref) {
        let mut chain = Vec::new();
        let mut at = self.graph.same_bytes(out);
        while let Some(Op::DynamicUpdateSlice) = self.graph.op(at.node)
            && !self.stored.contains_key(&at)
        {
            chain.push(at.node);
            at = self.graph.same_bytes(self.graph.nodes[at.node].operands[0]);
        }
        chain.reverse();
        // What is copied there must lie in the order of the innermost update.
        let base = chain.first().map_or(out, |&n| self.graph.nodes[n].operands[0]);
        (chain, base)
    }
    fn is_allocation(&self, array: Ref) -> bool {
        let source = self.graph.same_bytes(array);
        matches!(self.graph.op(source.node), Some(Op::CustomCall(call)) if &*call.target == "AllocateBuffer")
    }
    /// Whether an array's bytes are where a result goes before anything is done.
    pub fn lies_there(&self, array: Ref, out: usize) -> bool {
        let source = self.graph.same_bytes(array);
        match self.graph.nodes[source.node].kind {
            Kind::Param(p) => self.aliases.contains(&(p, out, true)),
            _ => false,
        }
    }

    /// Whether two memories have bytes in common.
    pub fn shares(&self, a: Memory, b: Memory) -> bool {
        self.aliases.iter().any(|&(p, o, _)| {
            let (p, o) = (Memory::Param(p), Memory::Out(o));
            (a, b) == (p, o) || (b, a) == (p, o)
        })
    }

    /// One kernel that computes elements one by one.
    pub fn map(&mut self, ty: &Ty, sinks: &[Sink]) -> Emitted<()> {
        let count = ty.elements();
        if count == 0 {
            return Ok(());
        }
        let widest = sinks.iter().map(|s| self.graph.ty(s.value).element.literal_bytes() as i64).max().unwrap_or(1);
        let width = (16 / widest).clamp(1, 8);
        let plain = sinks.iter().all(|s| s.update_of.is_none());
        let width = if plain && count % width == 0 && count >= 1024 { width } else { 1 };
        let mut e = Emitter::new(&mut self.graph, &self.stored, self.index);
        if width > 1 {
            e.lane = Some("i".to_string());
            e.line("#pragma unroll");
            e.open(&format!("for (int lane = 0; lane < {width}; ++lane)"));
            e.line(&format!("const {} i = first + lane;", self.index));
        }
        let mut writes = Vec::new();
        let place = e.place(ty, "i");
        for sink in sinks {
            let ty = e.graph.ty(sink.value).clone();
            let value = e.element(sink.value, &place)?;
            let offset = match sink.update_of {
                None => "i".to_string(),
                Some(node) => {
                    let whole = e.graph.nodes[node].results[0].clone();
                    let operands = e.graph.nodes[node].operands.clone();
                    let starts = e.starts(&operands[2..], &whole.dims, &ty.dims)?;
                    let mut at = Vec::new();
                    for (i, start) in place.dims.iter().zip(&starts) {
                        at.push(e.add(start, i));
                    }
                    e.offset(&whole, &Place::at(at))
                }
            };
            if width > 1 {
                let name = e.argument(sink.memory, storage(ty.element));
                let stored = super::types::store(ty.element, &value);
                e.line(&format!("{name}o.x[lane] = {stored};"));
            } else {
                e.store(sink.memory, &ty, &offset, &value);
            }
            writes.push((sink.memory, offset, ty.element));
        }
        if width > 1 {
            e.close();
        }
        let (u, s) = if self.index == "int" { ("unsigned", "u") } else { ("unsigned long long", "ull") };
        let global = format!("({u})blockIdx.x * {BLOCK}{s} + threadIdx.x");
        let mut text = if width > 1 {
            format!("  const {} first = ({})(({global}) * {width}{s});\n  if (first >= {count}) return;\n", self.index, self.index)
        } else {
            format!("  const {} i = ({})({global});\n  if (i >= {count}) return;\n", self.index, self.index)
        };
        let body = e.finish()?;
        for (memory, of) in e.vectors.clone() {
            let name = e.argument(memory, of);
            text += &format!("  const offc_vec<{of}, {width}> {name}v = *(const offc_vec<{of}, {width}>*)({name} + first);\n");
        }
        let mut after = String::new();
        if width > 1 {
            for (memory, _, element) in &writes {
                let (of, name) = (storage(*element), e.argument(*memory, storage(*element)));
                text += &format!("  offc_vec<{of}, {width}> {name}o;\n");
                after += &format!("  *(offc_vec<{of}, {width}>*)({name} + first) = {name}o;\n");
            }
        }
        text += &body;
        text += &after;
        let writes = writes.into_iter().map(|(m, o, t)| (m, o, t.literal_bytes())).collect();
        let written = Written::of(e, "map", text, writes);
        self.launch(written, (count / width + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// Copies bytes.
    fn copy(&mut self, from: Memory, to: Memory, ty: &Ty) -> Emitted<()> {
        let value = Value::Array(Ref { node: self.graph.nodes.len(), part: 0 }).arrays()[0];
        self.graph.variable(ty.clone(), "");
        self.stored.insert(value, from);
        self.map(ty, &[Sink { memory: to, value, update_of: None }])
    }

    /// Takes a kernel in.
    pub fn launch(&mut self, written: Written, grid: i64, block: u32, sync: bool) -> Emitted<()> {
        let grid = u32::try_from(grid).ok().filter(|&g| g <= i32::MAX as u32).ok_or("a kernel has too many blocks")?;
        let (kernel, args) = written.kernel(&self.aliases, block, sync);
        self.code.launches.push(Launch { kernel: kernel.name.clone(), grid, block, args, product: None });
        self.code.kernels.push(kernel);
        self.written.push(written);
        Ok(())
    }

    /// A result that cannot be written in place.
    fn hazard(&self) -> Option<usize> {
        for (i, kernel) in self.written.iter().enumerate() {
            for (memory, offset, width) in &kernel.writes {
                let Memory::Out(out) = *memory else { continue };
                for &(param, _, exact) in self.aliases.iter().filter(|a| a.1 == out) {
                    let of_param = |w: &Written| w.reads.iter().any(|r| r.memory == Memory::Param(param));
                    let elsewhere = |w: &Written| {
                        w.reads.iter().any(|r| r.memory == Memory::Param(param) && !(exact && r.offset == *offset && r.width == *width))
                    };
                    if self.written[i + 1..].iter().any(of_param) || elsewhere(kernel) {
                        return Some(out);
                    }
                }
            }
        }
        None
    }
}
