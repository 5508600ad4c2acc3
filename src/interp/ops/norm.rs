//! `batch-norm-training`, `-inference` and `-grad`: in `f64`, two passes, sums in row-major order, rounded once at the end.

use super::elementwise::{load, store};
use super::error::{Result, ensure};
use super::number::Number;
use crate::interp::Array;
use crate::ir::Primitive;

/// An operand seen by its features.
struct Features {
    count: usize,
    stride: usize,
    /// Elements a feature.
    each: f64,
}

impl Features {
    fn of(operand: &Array, feature_index: i64, vectors: &[&Array]) -> Result<Self> {
        let d = usize::try_from(feature_index).ok().filter(|&d| d < operand.dims.len());
        ensure(d.is_some() && operand.element.is_float(), || {
            format!("expected real numbers with a feature dimension, found {:?} and {feature_index}", operand.dims)
        })?;
        let d = d.expect("checked above");
        let count = operand.dims[d];
        ensure(vectors.iter().all(|v| v.len() == count), || format!("expected {count} numbers, one a feature"))?;
        let each = operand.len().checked_div(count).unwrap_or(0) as f64;
        Ok(Self { count, stride: operand.dims[d + 1..].iter().product(), each })
    }
    fn of_element(&self, i: usize) -> usize {
        i / self.stride % self.count
    }
}

fn numbers(array: &Array) -> Vec<f64> {
    (0..array.len()).map(|i| f64::load(array.element, load(array, i))).collect()
}

fn array(element: Primitive, dims: &[usize], values: &[f64]) -> Array {
    let mut out = Array::zeros(element, dims);
    for (i, value) in values.iter().enumerate() {
        store(&mut out, i, value.store(element));
    }
    out
}

fn sums(features: &Features, values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut out = vec![0.0; features.count];
    for (i, value) in values.enumerate() {
        out[features.of_element(i)] += value;
    }
    out
}

fn normalized(features: &Features, x: &[f64], scale: &[f64], offset: &[f64], mean: &[f64], variance: &[f64], epsilon: f32) -> Vec<f64> {
    let one = |(i, x): (usize, &f64)| {
        let f = features.of_element(i);
        (x - mean[f]) / (variance[f] + f64::from(epsilon)).sqrt() * scale[f] + offset[f]
    };
    x.iter().enumerate().map(one).collect()
}

/// `batch-norm-training`: the normalized operand, the mean and the (biased) variance of each feature.
pub fn batch_norm_training(operand: &Array, scale: &Array, offset: &Array, epsilon: f32, feature_index: i64) -> Result<[Array; 3]> {
    let features = Features::of(operand, feature_index, &[scale, offset])?;
    let x = numbers(operand);
    let mean: Vec<f64> = sums(&features, x.iter().copied()).iter().map(|s| s / features.each).collect();
    let square = |(i, x): (usize, &f64)| {
        let distance = x - mean[features.of_element(i)];
        distance * distance
    };
    let variance: Vec<f64> = sums(&features, x.iter().enumerate().map(square)).iter().map(|s| s / features.each).collect();
    let out = normalized(&features, &x, &numbers(scale), &numbers(offset), &mean, &variance, epsilon);
    Ok([
        array(operand.element, &operand.dims, &out),
        array(scale.element, &scale.dims, &mean),
        array(scale.element, &scale.dims, &variance),
    ])
}

/// `batch-norm-inference`; the vectors are scale, offset, mean, variance.
pub fn batch_norm_inference(operand: &Array, vectors: [&Array; 4], epsilon: f32, feature_index: i64) -> Result<Array> {
    let features = Features::of(operand, feature_index, &vectors)?;
    let [scale, offset, mean, variance] = vectors.map(numbers);
    let out = normalized(&features, &numbers(operand), &scale, &offset, &mean, &variance, epsilon);
    Ok(array(operand.element, &operand.dims, &out))
}

/// `batch-norm-grad`; the vectors are scale, mean, variance. The gradients of operand, scale and offset.
pub fn batch_norm_grad(operand: &Array, vectors: [&Array; 3], grad_output: &Array, epsilon: f32, feature_index: i64) -> Result<[Array; 3]> {
    let features = Features::of(operand, feature_index, &vectors)?;
    ensure(grad_output.dims == operand.dims, || format!("expected a gradient of {:?}, found {:?}", operand.dims, grad_output.dims))?;
    let element = vectors[0].element;
    let [scale, mean, variance] = vectors.map(numbers);
    let (x, grad) = (numbers(operand), numbers(grad_output));
    let deviation: Vec<f64> = variance.iter().map(|v| (v + f64::from(epsilon)).sqrt()).collect();
    let grad_offset = sums(&features, grad.iter().copied());
    let centred = |i: usize| x[i] - mean[features.of_element(i)];
    let products = sums(&features, (0..x.len()).map(|i| grad[i] * centred(i)));
    let one = |i: usize| {
        let f = features.of_element(i);
        let rest = features.each * grad[i] - grad_offset[f] - centred(i) * products[f] / (deviation[f] * deviation[f]);
        scale[f] / deviation[f] / features.each * rest
    };
    let grad_operand: Vec<f64> = (0..x.len()).map(one).collect();
    let grad_scale: Vec<f64> = products.iter().zip(&deviation).map(|(p, d)| p / d).collect();
    let dims = [features.count];
    Ok([array(operand.element, &operand.dims, &grad_operand), array(element, &dims, &grad_scale), array(element, &dims, &grad_offset)])
}
