//! Kernels of dots and convolutions. Every sum is `((0 + a₀b₀) + a₁b₁) + …`, products and sums rounded to the accumulator's type (`float`,
//! `double`, or 64-bit integers), the result rounded to its own type once: for dots the reference interpreter's bits.

use super::emit::{Emitted, Emitter, Memory, Place};
use super::gemm::Finish;
use super::graph::{Kind, Ref};
use super::lower::{BLOCK, Lowering};
use super::product::{Product, Sides, product};
use super::pull::{dim, dims};
use super::scalar::{convert, unary};
use super::source::Written;
use super::types::{Ty, ctype, finish, literal};
use crate::ir::{ConvDims, Convolution, CustomCall, Dot, Primitive, Unary, WindowDim};

/// Rows and columns of a tile: a thread a result.
const TILE: i64 = 16;

/// What sums are made in.
fn accumulator(types: &[Primitive]) -> Primitive {
    if types.contains(&Primitive::C128) {
        Primitive::C128
    } else if types.contains(&Primitive::C64) {
        Primitive::C64
    } else if types.contains(&Primitive::F64) {
        Primitive::F64
    } else if types.iter().all(|t| t.is_float()) {
        Primitive::F32
    } else {
        Primitive::S64
    }
}

/// Nothing, as a literal.
fn zero(kind: Primitive) -> String {
    super::types::literal_of(kind, &vec![0; kind.literal_bytes()])
}

/// Sums in 64-bit integers become results by cutting.
fn result(from: Primitive, to: Primitive, x: &str) -> String {
    convert(from, to, x)
}

impl Lowering<'_> {
    /// A dot: blocks of 16 × 16 threads, operands in tiles of shared memory.
    pub(super) fn dot(&mut self, node: usize, dot: &Dot) -> Emitted<()> {
        self.contract(node, dot, &Finish::default())
    }

    /// A dot and what follows it, element by element.
    pub(super) fn contract(&mut self, node: usize, dot: &Dot, end: &Finish) -> Emitted<()> {
        if dot.extras.lhs_sparsity.is_some() || dot.extras.rhs_sparsity.is_some() || dot.extras.block_scaling.is_some() {
            return Err("a sparse or scaled dot: there is no kernel for it".to_string());
        }
        let (left, right) = (self.graph.nodes[node].operands[0], self.graph.nodes[node].operands[1]);
        let array = Ref { node, part: 0 };
        let (a, b, to) = (self.graph.ty(left).clone(), self.graph.ty(right).clone(), self.graph.ty(array).clone());
        if to.elements() == 0 {
            return Ok(());
        }
        let (lhs_batch, rhs_batch) = (dims(&dot.dims.lhs_batch)?, dims(&dot.dims.rhs_batch)?);
        let (lhs_contract, rhs_contract) = (dims(&dot.dims.lhs_contracting)?, dims(&dot.dims.rhs_contracting)?);
        let free = |ty: &Ty, batch: &[usize], contract: &[usize]| -> Vec<usize> {
            (0..ty.dims.len()).filter(|d| !batch.contains(d) && !contract.contains(d)).collect()
        };
        let (lhs_free, rhs_free) = (free(&a, &lhs_batch, &lhs_contract), free(&b, &rhs_batch, &rhs_contract));
        let sizes = |ty: &Ty, list: &[usize]| -> Vec<i64> { list.iter().map(|&d| ty.dims[d]).collect() };
        let (rows, columns, depth) = (sizes(&a, &lhs_free), sizes(&b, &rhs_free), sizes(&a, &lhs_contract));
        let batch = sizes(&a, &lhs_batch);
        let product = |list: &[i64]| list.iter().product::<i64>();
        let (m, n, k, count) = (product(&rows), product(&columns), product(&depth), product(&batch));
        let rounded = match dot.precision.algorithm {
            3 | 4 => Some(Primitive::F16),
            5 | 6 => Some(Primitive::BF16),
            _ => None,
        };
        let sides = Sides { left: (&a, &lhs_batch, &lhs_free, &lhs_contract), right: (&b, &rhs_batch, &rhs_free, &rhs_contract), to: &to };
        let by_library = self.by_library(dot.precision.algorithm, (left, right, array), &sides, end);
        let sum = accumulator(&[a.element, b.element, to.element]);
        let c = super::types::ctype(sum);
        let index = self.index;
        let (tiles_m, tiles_n) = ((m + TILE - 1) / TILE, (n + TILE - 1) / TILE);
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        // The reference sums the parts of complex numbers in its own order.
        e.inexact = sum.is_complex();
        e.line(&format!("__shared__ {c} left[{TILE}][{}];", TILE + 1));
        e.line(&format!("__shared__ {c} right[{TILE}][{}];", TILE + 1));
        e.line(&format!("const int x = (int)threadIdx.x % {TILE}, y = (int)threadIdx.x / {TILE};"));
        e.line(&format!("const {index} block = ({index})blockIdx.x;"));
        let tile = e.rest("block", tiles_m * tiles_n);
        let group = e.over("block", tiles_m * tiles_n);
        let (tile_m, tile_n) = (e.over(&tile, tiles_n), e.rest(&tile, tiles_n));
        let base_m = e.times(&tile_m, TILE);
        let row = e.add(&base_m, "y");
        let base_n = e.times(&tile_n, TILE);
        let column = e.add(&base_n, "x");
        let reversed = |list: &[i64]| (0..list.len()).rev().collect::<Vec<_>>();
        let b_index = e.split(&group, &reversed(&batch), &batch);
        let m_index = e.split(&row, &reversed(&rows), &rows);
        let n_index = e.split(&column, &reversed(&columns), &columns);
        e.line(&format!("{c} sum = {};", zero(sum)));
        e.open(&format!("for ({index} k = 0; k < {k}; k += {TILE})"));
        let side =
            |e: &mut Emitter<'_, '_>, operand: Ref, ty: &Ty, batch: &[usize], free: (&[usize], &[String]), contract: &[usize], at: &str| {
                let k_index = e.split(at, &(0..depth.len()).rev().collect::<Vec<_>>(), &depth);
                let mut place = vec!["0".to_string(); ty.dims.len()];
                let pairs = batch.iter().zip(&b_index).chain(free.0.iter().zip(free.1)).chain(contract.iter().zip(&k_index));
                for (&d, i) in pairs {
                    place[d].clone_from(i);
                }
                let x = e.element(operand, &Place::at(place))?;
                let x = rounded.map_or(x.clone(), |r| if ty.element.is_float() { finish(r, &x) } else { x });
                Ok::<String, String>(convert(ty.element, sum, &x))
            };
        // Neighbouring threads load along the fastest dimension of each operand.
        let along_depth = |ty: &Ty, contract: &[usize]| ty.order().first().is_none_or(|d| contract.contains(d));
        let (i, j) = if along_depth(&a, &lhs_contract) { ("y", "x") } else { ("x", "y") };
        let (at, own) = (e.add("k", j), e.add(&base_m, i));
        e.open(&format!("if ({own} < {m} && {at} < {k})"));
        let m_load = e.split(&own, &reversed(&rows), &rows);
        let value = side(&mut e, left, &a, &lhs_batch, (&lhs_free, &m_load), &lhs_contract, &at)?;
        e.line(&format!("left[{i}][{j}] = {value};"));
        e.close();
        let (i, j) = if along_depth(&b, &rhs_contract) { ("x", "y") } else { ("y", "x") };
        let (at, own) = (e.add("k", i), e.add(&base_n, j));
        e.open(&format!("if ({own} < {n} && {at} < {k})"));
        let n_load = e.split(&own, &reversed(&columns), &columns);
        let value = side(&mut e, right, &b, &rhs_batch, (&rhs_free, &n_load), &rhs_contract, &at)?;
        e.line(&format!("right[{i}][{j}] = {value};"));
        e.close();
        e.line("__syncthreads();");
        e.line(&format!("const int rest = (int)({k} - k < {TILE} ? {k} - k : {TILE});"));
        e.line(&if sum == Primitive::S64 {
            "for (int j = 0; j < rest; ++j) sum = (long long)((unsigned long long)sum + (unsigned long long)left[y][j] * (unsigned long long)right[j][x]);".to_string()
        } else {
            "for (int j = 0; j < rest; ++j) sum = sum + left[y][j] * right[j][x];".to_string()
        });
        e.line("__syncthreads();");
        e.close();
        e.open(&format!("if ({row} < {m} && {column} < {n})"));
        let place = [b_index.clone(), m_index, n_index].concat();
        let place = Place::at(place);
        let offset = e.offset(&to, &place);
        let memory = e.stored[&array];
        let value = end.apply(&mut e, &to, sum, &place)?;
        let value = result(sum, to.element, &value);
        e.store(memory, &to, &offset, &value);
        e.close();
        let text = e.finish()?;
        let written = Written::of(e, "dot", text, vec![(memory, offset, to.element.literal_bytes())]);
        self.launch(written, count * tiles_m * tiles_n, (TILE * TILE) as u32, true)?;
        if let Some(launch) = self.code.launches.last_mut() {
            launch.product = by_library;
        }
        Ok(())
    }

    /// The library's product that a dot is, if its operands and its result lie in memory of their own and it is rounded as asked.
    fn by_library(&self, algorithm: i32, arrays: (Ref, Ref, Ref), sides: &Sides<'_>, end: &Finish) -> Option<Product<Memory>> {
        let memory = |array: Ref| {
            let source = self.graph.same_bytes(array);
            match (self.stored.get(&source), &self.graph.nodes[source.node].kind) {
                (Some(&memory), _) => Some(memory),
                (None, Kind::Param(number)) => Some(Memory::Param(*number)),
                _ => None,
            }
        };
        let (left, right, out) = (memory(arrays.0)?, memory(arrays.1)?, *self.stored.get(&arrays.2)?);
        // `PrecisionConfig.Algorithm`: unset, f16 and bf16 with sums in f32, f32, f64.
        let exact = match algorithm {
            0 => true,
            4 => sides.left.0.element == Primitive::F16,
            6 => sides.left.0.element == Primitive::BF16,
            11 => sides.left.0.element == Primitive::F32,
            12 => sides.left.0.element == Primitive::F64,
            _ => false,
        };
        let apart = |memory: Memory| memory != out && !self.shares(memory, out);
        if !exact || !apart(left) || !apart(right) || end.bias.is_some() || !end.activation.is_empty() {
            return None;
        }
        match end.added {
            Some((_, true)) => product(sides, [left, right, out], end.alpha, end.beta),
            Some((_, false)) => None,
            None => product(sides, [left, right, out], end.alpha, 0.0),
        }
    }

    /// A convolution.
    pub(super) fn convolution(&mut self, node: usize, conv: &Convolution) -> Emitted<()> {
        if self.graph.ty(Ref { node, part: 0 }).elements() == 0 {
            return Ok(());
        }
        let operands = self.graph.nodes[node].operands.clone();
        self.forward(
            node,
            (operands[0], operands[1]),
            &conv.window,
            &conv.dims,
            (conv.feature_group_count, conv.batch_group_count),
            &Epilogue::default(),
        )
    }

    /// One of cuDNN's convolutions.
    pub(super) fn cudnn(&mut self, node: usize, call: &CustomCall) -> Emitted<()> {
        let operands = self.graph.nodes[node].operands.clone();
        if self.graph.ty(Ref { node, part: 0 }).elements() == 0 {
            return Ok(());
        }
        let numbers = call.dims.as_ref().ok_or("expected dimension numbers of a convolution")?;
        let groups = (call.feature_group_count.max(1), call.batch_group_count.max(1));
        let super::graph::Kind::Op(id) = self.graph.nodes[node].kind else { unreachable!("a custom call is an instruction") };
        let epilogue = Epilogue::read(self.graph.module.instr(id).attrs.backend_config.as_deref(), &operands)?;
        match &*call.target {
            "__cudnn$convForward" | "__cudnn$convBiasActivationForward" => {
                self.forward(node, (operands[0], operands[1]), &call.window, numbers, groups, &epilogue)
            }
            "__cudnn$convBackwardInput" if groups.1 == 1 => {
                self.backward_input(node, (operands[0], operands[1]), &call.window, numbers, groups.0)
            }
            "__cudnn$convBackwardFilter" if groups.1 == 1 => {
                self.backward_filter(node, (operands[0], operands[1]), &call.window, numbers, groups.0)
            }
            other => Err(format!("`{other}` with batch groups: there is no kernel for it")),
        }
    }

    /// A thread a result.
    fn forward(
        &mut self,
        node: usize,
        (input, kernel): (Ref, Ref),
        window: &[WindowDim],
        numbers: &ConvDims,
        (feature_groups, batch_groups): (i64, i64),
        epilogue: &Epilogue,
    ) -> Emitted<()> {
        let (a, b) = (self.graph.ty(input).clone(), self.graph.ty(kernel).clone());
        let places = Numbers::of(numbers)?;
        let mut gradient = self.sum(node, &[a.element, b.element]);
        let to = gradient.to.clone();
        let index = self.index;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        let out = gradient.begin(&mut e);
        let feature = out.dims[places.output.1].clone();
        let outputs = b.dims[places.kernel.1];
        let inputs = b.dims[places.kernel.0];
        let group = e.over(&feature, outputs / feature_groups.max(1));
        let first = e.times(&group, inputs);
        let batch_group = e.over(&feature, outputs / batch_groups.max(1));
        let skip = e.times(&batch_group, a.dims[places.input.0] / batch_groups.max(1));
        let batch = e.add(&skip, &out.dims[places.output.0]);
        let mut at_input = vec!["0".to_string(); a.dims.len()];
        let mut at_kernel = vec!["0".to_string(); b.dims.len()];
        at_input[places.input.0] = batch;
        at_kernel[places.kernel.1].clone_from(&feature);
        let mut inside = Vec::new();
        let mut loops = 0;
        for (s, w) in window.iter().enumerate() {
            let size = b.dims[places.kernel.2[s]];
            let k = e.fresh("k");
            e.open(&format!("for ({index} {k} = 0; {k} < {size}; ++{k})"));
            loops += 1;
            let base = e.times(&out.dims[places.output.2[s]], w.stride);
            let base = e.add(&base, &(-w.pad_low).to_string());
            let offset = e.times(&k, w.window_dilation);
            let position = e.add(&base, &offset);
            let whole = a.dims[places.input.2[s]];
            inside.push(format!("{position} >= 0 && {position} % {d} == 0 && {position} / {d} < {whole}", d = w.base_dilation));
            at_input[places.input.2[s]] = e.over(&position, w.base_dilation);
            at_kernel[places.kernel.2[s]] = if w.reversal {
                let t = e.times(&k, -1);
                e.add(&t, &(size - 1).to_string())
            } else {
                k
            };
        }
        if !inside.is_empty() {
            e.open(&format!("if ({})", inside.join(" && ")));
            loops += 1;
        }
        let f = e.fresh("f");
        e.open(&format!("for ({index} {f} = 0; {f} < {inputs}; ++{f})"));
        at_input[places.input.1] = e.add(&first, &f);
        at_kernel[places.kernel.0] = f;
        gradient.add(&mut e, (input, &a, at_input), (kernel, &b, at_kernel))?;
        for _ in 0..=loops {
            e.close();
        }
        let value = epilogue.apply(&mut e, gradient.kind, &out, &feature, gradient.sum)?;
        let written = gradient.end(e, &value)?;
        self.launch(written, (to.elements() + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// The gradient of the input: `out` is the output's gradient.
    fn backward_input(
        &mut self,
        node: usize,
        (out, kernel): (Ref, Ref),
        window: &[WindowDim],
        numbers: &ConvDims,
        groups: i64,
    ) -> Emitted<()> {
        let (a, b) = (self.graph.ty(out).clone(), self.graph.ty(kernel).clone());
        let places = Numbers::of(numbers)?;
        let mut gradient = self.sum(node, &[a.element, b.element]);
        let to = gradient.to.clone();
        let index = self.index;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        let at = gradient.begin(&mut e);
        let mut at_out = vec!["0".to_string(); a.dims.len()];
        let mut at_kernel = vec!["0".to_string(); b.dims.len()];
        at_out[places.output.0].clone_from(&at.dims[places.input.0]);
        let (inputs, outputs) = (b.dims[places.kernel.0].max(1), b.dims[places.kernel.1] / groups);
        let group = e.over(&at.dims[places.input.1], inputs);
        at_kernel[places.kernel.0] = e.rest(&at.dims[places.input.1], inputs);
        let first = e.times(&group, outputs);
        let mut inside = Vec::new();
        for (s, w) in window.iter().enumerate() {
            let size = b.dims[places.kernel.2[s]];
            let k = e.fresh("k");
            e.open(&format!("for ({index} {k} = 0; {k} < {size}; ++{k})"));
            // input · base dilation = output · stride + k · window dilation - padding
            let position = e.times(&at.dims[places.input.2[s]], w.base_dilation);
            let position = e.add(&position, &w.pad_low.to_string());
            let offset = e.times(&k, -w.window_dilation);
            let position = e.add(&position, &offset);
            inside.push(format!(
                "{position} >= 0 && {position} % {d} == 0 && {position} / {d} < {}",
                a.dims[places.output.2[s]],
                d = w.stride
            ));
            at_out[places.output.2[s]] = e.over(&position, w.stride);
            at_kernel[places.kernel.2[s]] = if w.reversal {
                let t = e.times(&k, -1);
                e.add(&t, &(size - 1).to_string())
            } else {
                k
            };
        }
        e.open(&format!("if ({})", if inside.is_empty() { "true".to_string() } else { inside.join(" && ") }));
        let f = e.fresh("f");
        e.open(&format!("for ({index} {f} = 0; {f} < {outputs}; ++{f})"));
        let feature = e.add(&first, &f);
        at_out[places.output.1].clone_from(&feature);
        at_kernel[places.kernel.1] = feature;
        gradient.add(&mut e, (out, &a, at_out), (kernel, &b, at_kernel))?;
        for _ in 0..window.len() + 2 {
            e.close();
        }
        let value = gradient.sum.to_string();
        let written = gradient.end(e, &value)?;
        self.launch(written, (to.elements() + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// The gradient of the kernel: `out` is the output's gradient.
    fn backward_filter(
        &mut self,
        node: usize,
        (input, out): (Ref, Ref),
        window: &[WindowDim],
        numbers: &ConvDims,
        groups: i64,
    ) -> Emitted<()> {
        let (a, b) = (self.graph.ty(input).clone(), self.graph.ty(out).clone());
        let places = Numbers::of(numbers)?;
        let mut gradient = self.sum(node, &[a.element, b.element]);
        let to = gradient.to.clone();
        let index = self.index;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        let at = gradient.begin(&mut e);
        let mut at_input = vec!["0".to_string(); a.dims.len()];
        let mut at_out = vec!["0".to_string(); b.dims.len()];
        let group = e.over(&at.dims[places.kernel.1], (to.dims[places.kernel.1] / groups).max(1));
        let first = e.times(&group, to.dims[places.kernel.0]);
        at_input[places.input.1] = e.add(&first, &at.dims[places.kernel.0].clone());
        at_out[places.output.1].clone_from(&at.dims[places.kernel.1]);
        let mut inside = Vec::new();
        for (s, w) in window.iter().enumerate() {
            let y = e.fresh("y");
            e.open(&format!("for ({index} {y} = 0; {y} < {}; ++{y})", b.dims[places.output.2[s]]));
            let mut k = at.dims[places.kernel.2[s]].clone();
            if w.reversal {
                let turned = e.times(&k, -1);
                k = e.add(&turned, &(to.dims[places.kernel.2[s]] - 1).to_string());
            }
            let base = e.times(&y, w.stride);
            let offset = e.times(&k, w.window_dilation);
            let position = e.add(&base, &offset);
            let position = e.add(&position, &(-w.pad_low).to_string());
            inside.push(format!(
                "{position} >= 0 && {position} % {d} == 0 && {position} / {d} < {}",
                a.dims[places.input.2[s]],
                d = w.base_dilation
            ));
            at_input[places.input.2[s]] = e.over(&position, w.base_dilation);
            at_out[places.output.2[s]] = y;
        }
        e.open(&format!("if ({})", if inside.is_empty() { "true".to_string() } else { inside.join(" && ") }));
        let f = e.fresh("f");
        e.open(&format!("for ({index} {f} = 0; {f} < {}; ++{f})", a.dims[places.input.0]));
        at_input[places.input.0].clone_from(&f);
        at_out[places.output.0] = f;
        gradient.add(&mut e, (input, &a, at_input), (out, &b, at_out))?;
        for _ in 0..window.len() + 2 {
            e.close();
        }
        let value = gradient.sum.to_string();
        let written = gradient.end(e, &value)?;
        self.launch(written, (to.elements() + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    fn sum(&self, node: usize, from: &[Primitive]) -> Sum {
        let array = Ref { node, part: 0 };
        let to = self.graph.ty(array).clone();
        let types: Vec<Primitive> = from.iter().copied().chain([to.element]).collect();
        Sum { array, to, kind: accumulator(&types), sum: "sum" }
    }
}

/// One sum a thread.
struct Sum {
    array: Ref,
    to: Ty,
    kind: Primitive,
    sum: &'static str,
}

impl Sum {
    fn begin(&mut self, e: &mut Emitter<'_, '_>) -> Place {
        let index = e.index;
        e.inexact = true;
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {}) return;", self.to.elements()));
        let place = e.place(&self.to, "i");
        e.line(&format!("{} sum = {};", super::types::ctype(self.kind), zero(self.kind)));
        place
    }
    fn add(&self, e: &mut Emitter<'_, '_>, a: (Ref, &Ty, Vec<String>), b: (Ref, &Ty, Vec<String>)) -> Emitted<()> {
        let x = e.element(a.0, &Place::at(a.2))?;
        let y = e.element(b.0, &Place::at(b.2))?;
        let (x, y) = (convert(a.1.element, self.kind, &x), convert(b.1.element, self.kind, &y));
        e.line(&format!("sum = sum + {x} * {y};"));
        Ok(())
    }
    fn end(&self, mut e: Emitter<'_, '_>, value: &str) -> Emitted<Written> {
        let memory = e.stored[&self.array];
        let value = result(self.kind, self.to.element, value);
        e.store(memory, &self.to, "i", &value);
        let text = e.finish()?;
        Ok(Written::of(e, "conv", text, vec![(memory, "i".to_string(), self.to.element.literal_bytes())]))
    }
}

/// Dimension numbers: batch (or input feature), feature (or output feature), spatial.
struct Numbers {
    input: (usize, usize, Vec<usize>),
    kernel: (usize, usize, Vec<usize>),
    output: (usize, usize, Vec<usize>),
}

impl Numbers {
    fn of(n: &ConvDims) -> Emitted<Self> {
        Ok(Self {
            input: (dim(n.input_batch)?, dim(n.input_feature)?, dims(&n.input_spatial)?),
            kernel: (dim(n.kernel_input_feature)?, dim(n.kernel_output_feature)?, dims(&n.kernel_spatial)?),
            output: (dim(n.output_batch)?, dim(n.output_feature)?, dims(&n.output_spatial)?),
        })
    }
}

/// What cuDNN does with a sum: `activation(scale · sum + side scale · side + bias)`.
struct Epilogue {
    activation: String,
    alpha: f64,
    scale: f64,
    side_scale: f64,
    bias: Option<Ref>,
    side: Option<Ref>,
}

impl Default for Epilogue {
    fn default() -> Self {
        Self { activation: "kNone".to_string(), alpha: 0.0, scale: 1.0, side_scale: 0.0, bias: None, side: None }
    }
}

impl Epilogue {
    fn read(config: Option<&[u8]>, operands: &[Ref]) -> Emitted<Self> {
        let mut out = Self { bias: operands.get(2).copied(), side: operands.get(3).copied(), ..Self::default() };
        let Some(bytes) = config.filter(|b| !b.is_empty()) else { return Ok(out) };
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| format!("expected a `backend_config` of JSON: {e}"))?;
        let config = value.get("cudnn_conv_backend_config").unwrap_or(&value);
        let number = |name: &str, default: f64| config.get(name).and_then(serde_json::Value::as_f64).unwrap_or(default);
        out.scale = number("conv_result_scale", 1.0);
        out.side_scale = number("side_input_scale", 0.0);
        if let Some(mode) = config.get("activation_mode").and_then(serde_json::Value::as_str) {
            out.activation = mode.to_string();
        }
        out.alpha = number("leakyrelu_alpha", 0.0);
        Ok(out)
    }
    /// In the type of the sum, each step rounded.
    fn apply(&self, e: &mut Emitter<'_, '_>, kind: Primitive, out: &Place, feature: &str, sum: &str) -> Emitted<String> {
        let mut value = sum.to_string();
        let c = ctype(kind);
        let literal = |x: f64| literal(kind, crate::ir::float::encode(kind, x));
        if self.scale != 1.0 {
            value = e.bind(c, &format!("{value} * {}", literal(self.scale)));
        }
        if let Some(side) = self.side.filter(|_| self.side_scale != 0.0) {
            let element = e.graph.ty(side).element;
            let x = e.element(side, &Place::at(out.dims.clone()))?;
            value = e.bind(c, &format!("{value} + {} * {}", convert(element, kind, &x), literal(self.side_scale)));
        }
        if let Some(bias) = self.bias {
            let of = e.graph.ty(bias).clone();
            let offset = vec![feature.to_string()];
            let place = if of.dims.len() == 1 { Place::at(offset) } else { return Err(format!("a bias of {} dimensions", of.dims.len())) };
            let x = e.element(bias, &place)?;
            value = e.bind(c, &format!("{value} + {}", convert(of.element, kind, &x)));
        }
        let zero = literal(0.0);
        let text = match &*self.activation {
            "kNone" => return Ok(value),
            "kRelu" => format!("{value} > {zero} || {value} != {value} ? {value} : {zero}"),
            "kRelu6" => {
                let six = literal(6.0);
                format!("{value} < {zero} ? {zero} : {value} > {six} ? {six} : {value}")
            }
            "kLeakyRelu" => format!("{value} > {zero} ? {value} : {value} * {}", literal(self.alpha)),
            name => {
                let op = match name {
                    "kElu" => Unary::ExponentialMinusOne,
                    "kSigmoid" => Unary::Logistic,
                    "kTanh" => Unary::Tanh,
                    other => return Err(format!("a convolution with activation `{other}`: there is no kernel for it")),
                };
                let x = unary(op, kind, &value).ok_or("an activation of this type: there is no kernel for it")?;
                if op == Unary::ExponentialMinusOne { format!("{value} > {zero} ? {value} : {x}") } else { x }
            }
        };
        Ok(e.bind(c, &text))
    }
}
