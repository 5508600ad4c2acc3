//! Kernels of reductions.
//!
//! * If the fastest dimension of the operand is kept, or little is reduced, a thread computes one result: the initial value combined with the
//!   elements in the row-major order of the operand, as the reference interpreter does: the same bits. Neighbouring
//!   threads read neighbouring elements.
//! * Otherwise a block computes one result. With `B` threads (a power of two, at most 256) thread `t` combines elements `t`, `t + B`, `t + 2B`, …
//!   of the reduced ones in the order of memory; halves are combined, thread `t` with thread `t + h`, for `h` from `B/2` down to 1;
//!   the initial value is combined with what is left, on its left side. The order is fixed, so equal runs give equal bits, but it is not the reference's.

use super::emit::{Emitted, Emitter, Memory, Place};
use super::graph::Ref;
use super::lower::{BLOCK, Lowering};
use super::pull::dims;
use super::source::Written;
use super::types::{Ty, ctype};
use crate::ir::{CompId, Op};

/// Elements that one thread reduces if they follow each other in memory.
const FEW: i64 = 32;

/// One reduction of a kernel: its operands, initial values, function, results.
struct One {
    inputs: Vec<Ref>,
    inits: Vec<Ref>,
    function: CompId,
    results: Vec<(Memory, Ty)>,
}

/// The reduced dimensions.
struct Form {
    from: Ty,
    kept: Vec<usize>,
    reduced: Vec<usize>,
    to: Ty,
}

impl Form {
    fn width(&self) -> i64 {
        self.reduced.iter().map(|&d| self.from.dims[d]).product()
    }
    /// The place of an operand's element: that of the result, and an index each reduced dimension.
    fn place(&self, kept: &[String], reduced: &[String]) -> Place {
        let mut index = vec!["0".to_string(); self.from.dims.len()];
        for (&d, i) in self.kept.iter().zip(kept).chain(self.reduced.iter().zip(reduced)) {
            index[d].clone_from(i);
        }
        Place::at(index)
    }
}

impl Lowering<'_> {
    /// Reductions of one form.
    pub(super) fn reduce(&mut self, group: &[usize]) -> Emitted<()> {
        let mut all = Vec::new();
        let mut form = None;
        for &node in group {
            let Some(Op::Reduce { dimensions, to_apply }) = self.graph.op(node) else { unreachable!("reductions only") };
            let operands = self.graph.nodes[node].operands.clone();
            let (inputs, inits) = operands.split_at(operands.len() / 2);
            let types = self.graph.nodes[node].results.clone();
            let results = types.iter().enumerate().map(|(part, ty)| (self.stored[&Ref { node, part }], ty.clone())).collect();
            form.get_or_insert_with(|| (self.graph.ty(inputs[0]).clone(), dimensions.clone(), types[0].clone()));
            all.push(One { inputs: inputs.to_vec(), inits: inits.to_vec(), function: *to_apply, results });
        }
        let Some((from, reduced, to)) = form else { return Ok(()) };
        let mut reduced = dims(&reduced)?;
        reduced.sort_unstable();
        let kept = (0..from.dims.len()).filter(|d| !reduced.contains(d)).collect();
        let form = Form { from, kept, reduced, to };
        if form.to.elements() == 0 {
            return Ok(());
        }
        let fastest = form.from.order().first().is_some_and(|d| form.reduced.contains(d));
        if fastest && form.width() >= FEW { self.reduce_by_block(&form, &all) } else { self.reduce_by_thread(&form, &all) }
    }

    fn reduce_by_thread(&mut self, form: &Form, all: &[One]) -> Emitted<()> {
        let mut e = Emitter::new(&mut self.graph, &self.stored, self.index);
        let count = form.to.elements();
        let index = self.index;
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        e.line(&format!("if (i >= {count}) return;"));
        let place = e.place(&form.to, "i");
        let mut accumulators = Vec::new();
        for one in all {
            accumulators.push(declare(&mut e, one, None)?);
        }
        let mut reduced = Vec::new();
        for &d in &form.reduced {
            let r = e.fresh("r");
            e.open(&format!("for ({index} {r} = 0; {r} < {}; ++{r})", form.from.dims[d]));
            reduced.push(r);
        }
        let at = form.place(&place.dims, &reduced);
        for (one, names) in all.iter().zip(&accumulators) {
            let values = elements(&mut e, one, &at)?;
            combine(&mut e, one, names, names, &values)?;
        }
        for _ in &form.reduced {
            e.close();
        }
        let writes = store(&mut e, all, &accumulators, "i");
        let text = e.finish()?;
        let written = Written::of(e, "reduce", text, writes);
        self.launch(written, (count + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    fn reduce_by_block(&mut self, form: &Form, all: &[One]) -> Emitted<()> {
        let mut e = Emitter::new(&mut self.graph, &self.stored, self.index);
        let width = form.width();
        let mut block = 32u32;
        while block < BLOCK && i64::from(block) * 2 <= width {
            block *= 2;
        }
        let index = self.index;
        e.inexact = true;
        let mut shared: Vec<Vec<String>> = Vec::new();
        for one in all {
            let mut names = Vec::new();
            for (_, ty) in &one.results {
                let name = e.fresh("s");
                e.line(&format!("__shared__ {} {name}[{block}];", ctype(ty.element)));
                names.push(name);
            }
            shared.push(names);
        }
        e.line(&format!("const {index} i = ({index})blockIdx.x;"));
        e.line("const int t = (int)threadIdx.x;");
        let place = e.place(&form.to, "i");
        // Reduced elements in the order of memory.
        let order: Vec<usize> = form.from.minor_to_major.iter().filter_map(|d| form.reduced.iter().position(|r| r == d)).collect();
        let sizes: Vec<i64> = form.reduced.iter().map(|&d| form.from.dims[d]).collect();
        let mut accumulators = Vec::new();
        let first = e.split("t", &order, &sizes);
        let at = form.place(&place.dims, &first);
        for one in all {
            let values = elements(&mut e, one, &at)?;
            accumulators.push(declare(&mut e, one, Some(&values))?);
        }
        e.open(&format!("for ({index} r = t + {block}; r < {width}; r += {block})"));
        let next = e.split("r", &order, &sizes);
        let at = form.place(&place.dims, &next);
        for (one, names) in all.iter().zip(&accumulators) {
            let values = elements(&mut e, one, &at)?;
            combine(&mut e, one, names, names, &values)?;
        }
        e.close();
        for (names, shared) in accumulators.iter().flatten().zip(shared.iter().flatten()) {
            e.line(&format!("{shared}[t] = {names};"));
        }
        e.line("__syncthreads();");
        e.open(&format!("for (int h = {}; h > 0; h >>= 1)", block / 2));
        e.open("if (t < h)");
        for ((one, names), shared) in all.iter().zip(&accumulators).zip(&shared) {
            let mut values = Vec::new();
            for ((name, (_, ty)), own) in shared.iter().zip(&one.results).zip(names) {
                e.line(&format!("{own} = {name}[t];"));
                let value = e.fresh("x");
                e.line(&format!("const {} {value} = {name}[t + h];", ctype(ty.element)));
                values.push(value);
            }
            combine(&mut e, one, names, names, &values)?;
            for (name, own) in shared.iter().zip(names) {
                e.line(&format!("{name}[t] = {own};"));
            }
        }
        e.close();
        e.line("__syncthreads();");
        e.close();
        e.open("if (t == 0)");
        let mut results = Vec::new();
        for (one, names) in all.iter().zip(&accumulators) {
            let inits = declare(&mut e, one, None)?;
            combine(&mut e, one, &inits, &inits, names)?;
            results.push(inits);
        }
        let writes = store(&mut e, all, &results, "i");
        e.close();
        let text = e.finish()?;
        let written = Written::of(e, "reduce", text, writes);
        self.launch(written, form.to.elements(), block, true)
    }
}

/// Variables that begin as some numbers, or as the initial values.
fn declare(e: &mut Emitter<'_, '_>, one: &One, values: Option<&[String]>) -> Emitted<Vec<String>> {
    let mut names = Vec::new();
    for (i, (_, ty)) in one.results.iter().enumerate() {
        let value = match values {
            Some(values) => values[i].clone(),
            None => e.element(one.inits[i], &Place::at(Vec::new()))?,
        };
        let name = e.fresh("a");
        e.line(&format!("{} {name} = {value};", ctype(ty.element)));
        names.push(name);
    }
    Ok(names)
}

fn elements(e: &mut Emitter<'_, '_>, one: &One, at: &Place) -> Emitted<Vec<String>> {
    one.inputs.iter().map(|&input| e.element(input, at)).collect()
}

/// `to = function(left, right)`.
fn combine(e: &mut Emitter<'_, '_>, one: &One, to: &[String], left: &[String], right: &[String]) -> Emitted<()> {
    let types = one.results.iter().map(|(_, ty)| ty.clone());
    let args: Vec<(String, Ty)> = left.iter().chain(right).cloned().zip(types.clone().chain(types)).collect();
    let results = e.apply(one.function, &args)?;
    // All results are computed before the first is overwritten.
    let mut kept = Vec::new();
    for (result, (_, ty)) in results.iter().zip(&one.results) {
        if results.len() == 1 {
            kept.push(result.clone());
            continue;
        }
        let name = e.fresh("n");
        e.line(&format!("const {} {name} = {result};", ctype(ty.element)));
        kept.push(name);
    }
    for (to, from) in to.iter().zip(&kept) {
        e.line(&format!("{to} = {from};"));
    }
    Ok(())
}

fn store(e: &mut Emitter<'_, '_>, all: &[One], names: &[Vec<String>], offset: &str) -> Vec<(Memory, String, usize)> {
    let mut writes = Vec::new();
    for (one, names) in all.iter().zip(names) {
        for ((memory, ty), name) in one.results.iter().zip(names) {
            e.store(*memory, ty, offset, name);
            writes.push((*memory, offset.to_string(), ty.element.literal_bytes()));
        }
    }
    writes
}
