//! Kernels of batch normalisation: in `double`, two passes, sums in row-major order, rounded once at the end: as the reference interpreter's.

use super::emit::{Emitted, Emitter, Memory, Place};
use super::graph::Ref;
use super::lower::{BLOCK, Lowering};
use super::pull::dim;
use super::scalar::convert;
use super::source::Written;
use super::types::{Ty, literal};
use crate::ir::{Op, Primitive};

/// What is normalised.
struct Form {
    x: Ref,
    ty: Ty,
    feature: usize,
    epsilon: String,
}

impl Form {
    fn features(&self) -> i64 {
        self.ty.dims[self.feature]
    }
    /// Elements a feature.
    fn each(&self) -> i64 {
        self.ty.elements() / self.features()
    }
    /// An element of a vector of features, in `double`.
    fn vector(&self, e: &mut Emitter<'_, '_>, vector: Ref, at: &str) -> Emitted<String> {
        wide(e, vector, &Place::at(vec![at.to_string()]))
    }
    /// Loops over the elements of feature `i`, in row-major order.
    fn open(&self, e: &mut Emitter<'_, '_>) -> Place {
        let index = e.index;
        let mut at = vec!["i".to_string(); self.ty.dims.len()];
        for d in (0..at.len()).filter(|&d| d != self.feature) {
            at[d] = e.fresh("k");
            e.open(&format!("for ({index} {k} = 0; {k} < {n}; ++{k})", k = at[d], n = self.ty.dims[d]));
        }
        Place::at(at)
    }
    fn close(&self, e: &mut Emitter<'_, '_>) {
        (1..self.ty.dims.len()).for_each(|_| e.close());
    }
}

/// An element in `double`.
fn wide(e: &mut Emitter<'_, '_>, array: Ref, place: &Place) -> Emitted<String> {
    let element = e.graph.ty(array).element;
    let x = e.element(array, place)?;
    Ok(e.bind("double", &convert(element, Primitive::F64, &x)))
}

impl Lowering<'_> {
    /// Training, inference, or the gradients.
    pub(super) fn batch_norm(&mut self, node: usize) -> Emitted<()> {
        let Some(op) = self.graph.op(node).cloned() else { unreachable!("a batch normalisation") };
        let (Op::BatchNormTraining { epsilon, feature_index }
        | Op::BatchNormInference { epsilon, feature_index }
        | Op::BatchNormGrad { epsilon, feature_index }) = op
        else {
            unreachable!("a batch normalisation")
        };
        let operands = self.graph.nodes[node].operands.clone();
        let ty = self.graph.ty(operands[0]).clone();
        if ty.elements() == 0 {
            return Err("a batch normalisation without elements: there is no kernel for it".to_string());
        }
        let epsilon = literal(Primitive::F64, f64::from(epsilon).to_bits());
        let form = Form { x: operands[0], ty, feature: dim(feature_index)?, epsilon };
        match op {
            Op::BatchNormInference { .. } => self.normalised(node, &form, &operands[1..], None),
            Op::BatchNormTraining { .. } => {
                let sums = self.pair(&form);
                self.statistics(node, &form, sums)?;
                self.normalised(node, &form, &operands[1..], Some(sums))
            }
            _ => {
                let sums = self.pair(&form);
                self.gradient_sums(node, &form, &operands, sums)?;
                self.gradient(node, &form, &operands, sums)
            }
        }
    }

    /// Scratch memory of two numbers a feature.
    fn pair(&mut self, form: &Form) -> Memory {
        self.scratch(&Ty { element: Primitive::F64, dims: vec![2 * form.features()], minor_to_major: vec![0] })
    }

    /// Mean and variance of each feature, a thread each: to scratch memory, and rounded to the results.
    fn statistics(&mut self, node: usize, form: &Form, sums: Memory) -> Emitted<()> {
        let (count, each) = (form.features(), form.each());
        let mut e = Emitter::new(&mut self.graph, &self.stored, self.index);
        begin(&mut e, count);
        e.line("double mean = 0, variance = 0;");
        let at = form.open(&mut e);
        let x = wide(&mut e, form.x, &at)?;
        e.line(&format!("mean += {x};"));
        form.close(&mut e);
        e.line(&format!("mean /= {each}.0;"));
        let at = form.open(&mut e);
        let x = wide(&mut e, form.x, &at)?;
        e.line(&format!("variance += ({x} - mean) * ({x} - mean);"));
        form.close(&mut e);
        e.line(&format!("variance /= {each}.0;"));
        let written = both(e, node, sums, count, ["mean", "variance"], ["mean", "variance"])?;
        self.launch(written, (count + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// The sums of the gradients of each feature, a thread each; `operands` are x, scale, mean, variance, gradient.
    fn gradient_sums(&mut self, node: usize, form: &Form, operands: &[Ref], sums: Memory) -> Emitted<()> {
        let count = form.features();
        let mut e = Emitter::new(&mut self.graph, &self.stored, self.index);
        begin(&mut e, count);
        let (mean, variance) = (form.vector(&mut e, operands[2], "i")?, form.vector(&mut e, operands[3], "i")?);
        e.line("double sum = 0, products = 0;");
        let at = form.open(&mut e);
        let (x, g) = (wide(&mut e, form.x, &at)?, wide(&mut e, operands[4], &at)?);
        e.line(&format!("sum += {g};"));
        e.line(&format!("products += {g} * ({x} - {mean});"));
        form.close(&mut e);
        e.line(&format!("const double scaled = products / sqrt({variance} + {});", form.epsilon));
        let written = both(e, node, sums, count, ["sum", "products"], ["scaled", "sum"])?;
        self.launch(written, (count + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// The normalised elements; `vectors` are scale, offset, and mean and variance unless they were made.
    fn normalised(&mut self, node: usize, form: &Form, vectors: &[Ref], made: Option<Memory>) -> Emitted<()> {
        let index = self.index;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        begin(&mut e, form.ty.elements());
        let to = e.graph.nodes[node].results[0].clone();
        let place = e.place(&to, "i");
        let feature = place.dims[form.feature].clone();
        let (scale, offset) = (form.vector(&mut e, vectors[0], &feature)?, form.vector(&mut e, vectors[1], &feature)?);
        let (mean, variance) = match made {
            Some(sums) => sums_of(&mut e, sums, &feature, form.features()),
            None => (form.vector(&mut e, vectors[2], &feature)?, form.vector(&mut e, vectors[3], &feature)?),
        };
        let x = wide(&mut e, form.x, &Place::at(place.dims.clone()))?;
        let value = format!("({x} - {mean}) / sqrt({variance} + {}) * {scale} + {offset}", form.epsilon);
        let written = one(e, node, &to, &value)?;
        self.launch(written, (to.elements() + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }

    /// The gradient of the operand.
    fn gradient(&mut self, node: usize, form: &Form, operands: &[Ref], sums: Memory) -> Emitted<()> {
        let index = self.index;
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        begin(&mut e, form.ty.elements());
        let to = e.graph.nodes[node].results[0].clone();
        let place = e.place(&to, "i");
        let feature = place.dims[form.feature].clone();
        let scale = form.vector(&mut e, operands[1], &feature)?;
        let (mean, variance) = (form.vector(&mut e, operands[2], &feature)?, form.vector(&mut e, operands[3], &feature)?);
        let (sum, products) = sums_of(&mut e, sums, &feature, form.features());
        let at = Place::at(place.dims.clone());
        let (x, g) = (wide(&mut e, form.x, &at)?, wide(&mut e, operands[4], &at)?);
        let deviation = e.bind("double", &format!("sqrt({variance} + {})", form.epsilon));
        let each = form.each();
        let rest = format!("{each}.0 * {g} - {sum} - ({x} - {mean}) * {products} / ({deviation} * {deviation})");
        let value = format!("{scale} / {deviation} / {each}.0 * ({rest})");
        let written = one(e, node, &to, &value)?;
        self.launch(written, (to.elements() + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }
}

fn begin(e: &mut Emitter<'_, '_>, count: i64) {
    let index = e.index;
    e.inexact = true;
    e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
    e.line(&format!("if (i >= {count}) return;"));
}

/// The two numbers of a feature.
fn sums_of(e: &mut Emitter<'_, '_>, sums: Memory, feature: &str, count: i64) -> (String, String) {
    let name = e.argument(sums, "double");
    let first = e.bind("double", &format!("{name}[{feature}]"));
    let second = e.bind("double", &format!("{name}[{feature} + {count}]"));
    (first, second)
}

/// Ends a kernel that writes one element of the first result.
fn one(mut e: Emitter<'_, '_>, node: usize, to: &Ty, value: &str) -> Emitted<Written> {
    let value = e.bind("double", value);
    let memory = e.stored[&Ref { node, part: 0 }];
    e.store(memory, to, "i", &convert(Primitive::F64, to.element, &value));
    let text = e.finish()?;
    Ok(Written::of(e, "norm", text, vec![(memory, "i".to_string(), to.element.literal_bytes())]))
}

/// Ends a kernel that writes two numbers of feature `i`: to scratch memory, and to the second and third result.
fn both(mut e: Emitter<'_, '_>, node: usize, sums: Memory, count: i64, kept: [&str; 2], results: [&str; 2]) -> Emitted<Written> {
    let name = e.argument(sums, "double");
    e.line(&format!("{name}[i] = {};", kept[0]));
    e.line(&format!("{name}[i + {count}] = {};", kept[1]));
    let mut writes = vec![(sums, "i".to_string(), 8)];
    for (k, value) in results.into_iter().enumerate() {
        let array = Ref { node, part: k + 1 };
        let (memory, ty) = (e.stored[&array], e.graph.ty(array).clone());
        e.store(memory, &ty, "i", &convert(Primitive::F64, ty.element, value));
        writes.push((memory, "i".to_string(), ty.element.literal_bytes()));
    }
    let text = e.finish()?;
    Ok(Written::of(e, "norm", text, writes))
}
