//! Kernels of windows, scatters and sorts: simple ones, in the order of the reference interpreter.

use super::emit::{Emitted, Emitter, Place};
use super::graph::Ref;
use super::lower::{BLOCK, Lowering, Sink};
use super::pull::{dim, dims};
use super::source::Written;
use super::types::{Ty, ctype};
use crate::ir::{CompId, Scatter, WindowDim};

impl Lowering<'_> {
    /// A thread a window; its elements come in row-major order, what lies outside does not come.
    pub(super) fn reduce_window(&mut self, node: usize, window: &[WindowDim], function: CompId) -> Emitted<()> {
        let operands = self.graph.nodes[node].operands.clone();
        let (inputs, inits) = operands.split_at(operands.len() / 2);
        let results = self.graph.nodes[node].results.clone();
        let from = self.graph.ty(inputs[0]).clone();
        let to = results[0].clone();
        if to.elements() == 0 {
            return Ok(());
        }
        let index = self.index;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {}) return;", to.elements()));
        let place = e.place(&to, "i");
        let mut names = Vec::new();
        for (&init, ty) in inits.iter().zip(&results) {
            let value = e.element(init, &Place::at(Vec::new()))?;
            let name = e.fresh("a");
            e.line(&format!("{} {name} = {value};", ctype(ty.element)));
            names.push(name);
        }
        let (mut inside, mut at) = (Vec::new(), Vec::new());
        for (d, w) in window.iter().enumerate() {
            let k = e.fresh("k");
            e.open(&format!("for ({index} {k} = 0; {k} < {}; ++{k})", w.size));
            let base = e.times(&place.dims[d], w.stride);
            let base = e.add(&base, &(-w.pad_low).to_string());
            let k = if w.reversal {
                let t = e.times(&k, -1);
                e.add(&t, &(w.size - 1).to_string())
            } else {
                k
            };
            let offset = e.times(&k, w.window_dilation);
            let position = e.add(&base, &offset);
            inside.push(format!("{position} >= 0 && {position} % {s} == 0 && {position} / {s} < {}", from.dims[d], s = w.base_dilation));
            at.push((position, w.base_dilation));
        }
        e.open(&format!("if ({})", if inside.is_empty() { "true".to_string() } else { inside.join(" && ") }));
        let mut index = Vec::new();
        for (position, dilation) in at {
            index.push(e.over(&position, dilation));
        }
        let mut args: Vec<(String, Ty)> = names.iter().cloned().zip(results.clone()).collect();
        for (&input, ty) in inputs.iter().zip(&results) {
            args.push((e.element(input, &Place::at(index.clone()))?, ty.clone()));
        }
        assign(&mut e, function, &args, &names)?;
        for _ in 0..=window.len() {
            e.close();
        }
        let mut writes = Vec::new();
        for (part, (ty, name)) in results.iter().zip(&names).enumerate() {
            let memory = e.stored[&Ref { node, part }];
            e.store(memory, ty, "i", name);
            writes.push((memory, "i".to_string(), ty.element.literal_bytes()));
        }
        let text = e.finish()?;
        let written = Written::of(e, "window", text, writes);
        self.launch(written, (to.elements() + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// The operands are copied; then each thread takes one element of the window through all updates in their order. Where windows at
    /// different places can overlap, one thread does everything.
    pub(super) fn scatter(&mut self, node: usize, scatter: &Scatter) -> Emitted<()> {
        let operands = self.graph.nodes[node].operands.clone();
        let results = self.graph.nodes[node].results.clone();
        let count = results.len();
        for (part, &operand) in operands[..count].iter().enumerate() {
            let memory = self.stored[&Ref { node, part }];
            let there = matches!(memory, super::emit::Memory::Out(out) if self.lies_there(operand, out));
            let ty = self.graph.ty(operand).clone();
            if ty.order() != results[part].order() {
                return Err("a scatter that changes the layout: there is no kernel for it".to_string());
            }
            if !there {
                self.map(&ty, &[Sink { memory, value: operand, update_of: None }])?;
            }
        }
        let numbers = &scatter.dims;
        let to = results[0].clone();
        let (indices, update) = (self.graph.ty(operands[count]).clone(), self.graph.ty(operands[count + 1]).clone());
        let gone = [dims(&numbers.inserted_window_dims)?, dims(&numbers.input_batching_dims)?].concat();
        let kept: Vec<usize> = (0..to.dims.len()).filter(|d| !gone.contains(d)).collect();
        let window_dims = dims(&numbers.update_window_dims)?;
        let batch_dims: Vec<usize> = (0..update.dims.len()).filter(|d| !window_dims.contains(d)).collect();
        let window: Vec<i64> = window_dims.iter().map(|&d| update.dims[d]).collect();
        let mut full = vec![1; to.dims.len()];
        for (&d, &n) in kept.iter().zip(&window) {
            full[d] = n;
        }
        let map = dims(&numbers.scatter_dims_to_operand_dims)?;
        let apart = map.iter().all(|&d| full[d] == 1);
        let threads = if apart { window.iter().product() } else { 1 };
        if update.elements() == 0 {
            return Ok(());
        }
        let index = self.index;
        let vector_dim = dim(numbers.index_vector_dim)?;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {threads}) return;"));
        // The fastest dimension of the result changes fastest from thread to thread.
        let order: Vec<usize> = to.minor_to_major.iter().filter_map(|d| kept.iter().position(|k| k == d)).collect();
        let mut offset = if apart { e.split("i", &order, &window) } else { Vec::new() };
        let mut batch = Vec::new();
        for &d in &batch_dims {
            let b = e.fresh("b");
            e.open(&format!("for ({index} {b} = 0; {b} < {}; ++{b})", update.dims[d]));
            batch.push(b);
        }
        let mut loops = batch.len();
        let mut start = vec!["0".to_string(); to.dims.len()];
        let mut inside = Vec::new();
        for (k, &d) in map.iter().enumerate() {
            let mut at = batch.clone();
            if vector_dim < indices.dims.len() {
                at.insert(vector_dim, k.to_string());
            }
            let x = e.element(operands[count], &Place::at(at))?;
            let most = to.dims[d] - full[d];
            let below = if indices.element.is_signed_integer() { format!("{x} >= 0 && ") } else { String::new() };
            let wide = if indices.element.is_signed_integer() { "long long" } else { "unsigned long long" };
            inside.push(if most < 0 { "false".to_string() } else { format!("{below}({wide}){x} <= {most}") });
            start[d] = e.index(&format!("({index}){x}"));
        }
        for (d, b) in dims(&numbers.input_batching_dims)?.into_iter().zip(dims(&numbers.scatter_indices_batching_dims)?) {
            start[d].clone_from(&batch[if b > vector_dim { b - 1 } else { b }]);
        }
        e.open(&format!("if ({})", if inside.is_empty() { "true".to_string() } else { inside.join(" && ") }));
        loops += 1;
        if !apart {
            for &n in &window {
                let w = e.fresh("o");
                e.open(&format!("for ({index} {w} = 0; {w} < {n}; ++{w})"));
                offset.push(w);
                loops += 1;
            }
        }
        for (&d, o) in kept.iter().zip(&offset) {
            start[d] = e.add(&start[d], o);
        }
        let target = e.offset(&to, &Place::at(start));
        let mut at = vec!["0".to_string(); update.dims.len()];
        for (&d, i) in batch_dims.iter().zip(&batch).chain(window_dims.iter().zip(&offset)) {
            at[d].clone_from(i);
        }
        let (mut args, mut names, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        for (part, ty) in results.iter().enumerate() {
            let memory = e.stored[&Ref { node, part }];
            let argument = e.argument(memory, super::types::storage(ty.element));
            let name = e.fresh("a");
            e.line(&format!("{} {name} = {};", ctype(ty.element), super::types::load(ty.element, &format!("{argument}[{target}]"))));
            args.push((name.clone(), ty.clone()));
            names.push(name);
            writes.push((memory, target.clone(), ty.element.literal_bytes()));
        }
        for (&operand, ty) in operands[count + 1..].iter().zip(&results) {
            args.push((e.element(operand, &Place::at(at.clone()))?, ty.clone()));
        }
        assign(&mut e, scatter.to_apply, &args, &names)?;
        for (part, (ty, name)) in results.iter().zip(&names).enumerate() {
            let memory = e.stored[&Ref { node, part }];
            e.store(memory, ty, &target, name);
        }
        for _ in 0..loops {
            e.close();
        }
        let text = e.finish()?;
        let written = Written::of(e, "scatter", text, writes);
        self.launch(written, (threads + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// A thread an element of the operand: it goes through the windows that see it, in the order of their places, and takes what those give that
    /// keep it against their others.
    pub(super) fn select_and_scatter(&mut self, node: usize, window: &[WindowDim], select: CompId, scatter: CompId) -> Emitted<()> {
        let operands = self.graph.nodes[node].operands.clone();
        let (operand, source, init) = (operands[0], operands[1], operands[2]);
        let to = self.graph.nodes[node].results[0].clone();
        let (from, given) = (self.graph.ty(operand).clone(), self.graph.ty(source).clone());
        if to.elements() == 0 {
            return Ok(());
        }
        if window.iter().any(|w| w.base_dilation != 1) {
            return Err("a select-and-scatter with base dilation: there is no kernel for it".to_string());
        }
        let index = self.index;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {}) return;", to.elements()));
        let place = e.place(&to, "i");
        let start = e.element(init, &Place::at(Vec::new()))?;
        e.line(&format!("{} a = {start};", ctype(to.element)));
        // Windows from the first place on: offsets from the last.
        let (mut at, mut inside) = (Vec::new(), Vec::new());
        for (d, w) in window.iter().enumerate() {
            let k = e.fresh("k");
            e.open(&format!("for ({index} {k} = {}; {k} >= 0; --{k})", w.size - 1));
            let offset = e.times(&k, -w.window_dilation);
            let moved = e.add(&place.dims[d], &w.pad_low.to_string());
            let moved = e.add(&moved, &offset);
            inside.push(format!("{moved} >= 0 && {moved} % {s} == 0 && {moved} / {s} < {}", given.dims[d], s = w.stride));
            at.push((moved, w.stride));
        }
        let all = |list: &[String]| if list.is_empty() { "true".to_string() } else { list.join(" && ") };
        e.open(&format!("if ({})", all(&inside)));
        let mut window_at = Vec::new();
        for (moved, stride) in at {
            window_at.push(e.over(&moved, stride));
        }
        e.line(&format!("{index} kept = -1;"));
        let of = ctype(from.element);
        e.line(&format!("{of} best = {};", super::types::literal_of(from.element, &vec![0; from.element.literal_bytes()])));
        let (mut position, mut seen) = (Vec::new(), Vec::new());
        for (d, w) in window.iter().enumerate() {
            let j = e.fresh("j");
            e.open(&format!("for ({index} {j} = 0; {j} < {}; ++{j})", w.size));
            let base = e.times(&window_at[d], w.stride);
            let base = e.add(&base, &(-w.pad_low).to_string());
            let j = if w.reversal {
                let turned = e.times(&j, -1);
                e.add(&turned, &(w.size - 1).to_string())
            } else {
                j
            };
            let offset = e.times(&j, w.window_dilation);
            let p = e.add(&base, &offset);
            seen.push(format!("{p} >= 0 && {p} < {}", from.dims[d]));
            position.push(p);
        }
        e.open(&format!("if ({})", all(&seen)));
        let linear = e.offset(&to, &Place::at(position.clone()));
        let x = e.element(operand, &Place::at(position))?;
        let scalar = Ty::scalar(from.element);
        e.line("bool taken = kept < 0;");
        e.open("if (!taken)");
        let keeps = e.apply(select, &[("best".to_string(), scalar.clone()), (x.clone(), scalar)])?.swap_remove(0);
        e.line(&format!("taken = !{keeps};"));
        e.close();
        e.line(&format!("if (taken) {{ kept = {linear}; best = {x}; }}"));
        e.close();
        window.iter().for_each(|_| e.close());
        e.open("if (kept == i)");
        let value = e.element(source, &Place::at(window_at))?;
        let (there, there_ty) = ("a".to_string(), Ty::scalar(to.element));
        assign(&mut e, scatter, &[(there.clone(), there_ty), (value, Ty::scalar(given.element))], &[there])?;
        e.close();
        e.close();
        window.iter().for_each(|_| e.close());
        let memory = e.stored[&Ref { node, part: 0 }];
        e.store(memory, &to, "i", "a");
        let text = e.finish()?;
        let written = Written::of(e, "select", text, vec![(memory, "i".to_string(), to.element.literal_bytes())]);
        self.launch(written, (to.elements() + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// A thread an element: it counts how many come before it, and goes there if it is among the first. Floats are in total order.
    pub(super) fn topk(&mut self, node: usize, largest: bool) -> Emitted<()> {
        let operand = self.graph.nodes[node].operands[0];
        let results = self.graph.nodes[node].results.clone();
        let from = self.graph.ty(operand).clone();
        let [values, positions] = &results[..] else { return Err("expected values and positions as results".to_string()) };
        let Some(last) = from.dims.len().checked_sub(1) else { return Err("a topk of a scalar".to_string()) };
        if from.elements() == 0 || values.elements() == 0 {
            return Ok(());
        }
        let (n, k, index) = (from.dims[last], values.dims[last], self.index);
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {}) return;", from.elements()));
        let place = e.split("i", &super::linalg::row_major(from.dims.len()), &from.dims);
        let key = |x: &str| if from.element.is_float() { format!("offc_total({x})") } else { x.to_string() };
        let own = e.element(operand, &Place::at(place.clone()))?;
        e.line(&format!("{index} rank = 0;"));
        e.open(&format!("for ({index} j = 0; j < {n}; ++j)"));
        let mut at = place.clone();
        at[last] = "j".to_string();
        let other = e.element(operand, &Place::at(at))?;
        let (a, b) = (key(&own), key(&other));
        let sign = if largest { ">" } else { "<" };
        e.line(&format!("rank += {b} {sign} {a} || ({b} == {a} && j < {}) ? 1 : 0;", place[last]));
        e.close();
        e.open(&format!("if (rank < {k})"));
        let mut target = place.clone();
        target[last] = "rank".to_string();
        let mut writes = Vec::new();
        let position = format!("(int){}", place[last]);
        for (part, (ty, value)) in [(values, &own), (positions, &position)].into_iter().enumerate() {
            let memory = e.stored[&Ref { node, part }];
            let offset = e.offset(ty, &Place::at(target.clone()));
            e.store(memory, ty, &offset, value);
            writes.push((memory, offset, ty.element.literal_bytes()));
        }
        e.close();
        let text = e.finish()?;
        let written = Written::of(e, "topk", text, writes);
        self.launch(written, (from.elements() + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// A thread an element: it counts how many come before it (equal ones in their order, so every sort is stable) and goes there. The work
    /// is the square of the sorted dimension.
    pub(super) fn sort(&mut self, node: usize, dimension: i64, function: CompId) -> Emitted<()> {
        let operands = self.graph.nodes[node].operands.clone();
        let results = self.graph.nodes[node].results.clone();
        let (to, d) = (results[0].clone(), dim(dimension)?);
        if to.elements() == 0 {
            return Ok(());
        }
        let index = self.index;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {}) return;", to.elements()));
        let place = e.place(&to, "i");
        let mut own = Vec::new();
        for &operand in &operands {
            own.push(e.element(operand, &Place::at(place.dims.clone()))?);
        }
        e.line(&format!("{index} rank = 0;"));
        e.open(&format!("for ({index} j = 0; j < {}; ++j)", to.dims[d]));
        let mut at = place.dims.clone();
        at[d] = "j".to_string();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (&operand, own) in operands.iter().zip(&own) {
            let ty = e.graph.ty(operand).clone();
            let other = e.element(operand, &Place::at(at.clone()))?;
            before.extend([(other.clone(), ty.clone()), (own.clone(), ty.clone())]);
            after.extend([(own.clone(), ty.clone()), (other, ty)]);
        }
        let less = e.apply(function, &before)?.swap_remove(0);
        let greater = e.apply(function, &after)?.swap_remove(0);
        e.line(&format!("rank += {less} || (!{greater} && j < {}) ? 1 : 0;", place.dims[d]));
        e.close();
        let mut target = place.dims.clone();
        target[d] = "rank".to_string();
        let mut writes = Vec::new();
        for (part, (ty, own)) in results.iter().zip(&own).enumerate() {
            let memory = e.stored[&Ref { node, part }];
            let offset = e.offset(ty, &Place::at(target.clone()));
            e.store(memory, ty, &offset, own);
            writes.push((memory, offset, ty.element.literal_bytes()));
        }
        let text = e.finish()?;
        let written = Written::of(e, "sort", text, writes);
        self.launch(written, (to.elements() + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }
}

/// Overwrites variables with a function's results.
fn assign(e: &mut Emitter<'_, '_>, function: CompId, args: &[(String, Ty)], names: &[String]) -> Emitted<()> {
    let results = e.apply(function, args)?;
    let mut kept = Vec::new();
    for (result, (_, ty)) in results.iter().zip(args) {
        let name = e.fresh("n");
        e.line(&format!("const {} {name} = {result};", ctype(ty.element)));
        kept.push(name);
    }
    for (to, from) in names.iter().zip(&kept) {
        e.line(&format!("{to} = {from};"));
    }
    Ok(())
}
