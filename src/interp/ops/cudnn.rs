//! The cuDNN convolutions that XLA:GPU calls: forward, with bias and activation, and the two gradients.
//!
//! Windows and dimension numbers are those of the forward convolution, for all of them. The gradients are convolutions again: of the input, a
//! sum over the kernel's offsets and, inside, the output features; of the filter, over the output's positions and, inside, the batch.
//! cuDNN itself promises no order of its sums; this one is as in [`super::conv`].

use super::conv::{Groups, Job, Loop, Places, by_type, forward, pack, pack_reversed, unpack};
use super::elementwise::{load, store};
use super::error::{OpError, Result, ensure, refuse, size};
use super::index::pick;
use super::number::Number;
use super::scalar::{unary_f32, unary_f64};
use crate::interp::Array;
use crate::ir::{ConvDims, CustomCall, Primitive, Unary, WindowDim};

/// Whether the target of a custom call is one of these.
pub fn is_cudnn_conv(target: &str) -> bool {
    matches!(
        target,
        "__cudnn$convForward" | "__cudnn$convBiasActivationForward" | "__cudnn$convBackwardInput" | "__cudnn$convBackwardFilter"
    )
}

/// The first element of the call's result tuple; the second, the workspace, holds nothing that anybody may read. `element` and `dims` are
/// the first element's; `config` is the `backend_config`.
///
/// # Errors
/// Other targets, operands that do not fit, and what the configuration asks for and is not known here.
pub fn cudnn_conv(call: &CustomCall, config: Option<&[u8]>, operands: &[&Array], element: Primitive, dims: &[usize]) -> Result<Array> {
    let numbers = call.dims.as_ref().ok_or_else(|| OpError("expected dimension numbers of a convolution, found none".into()))?;
    let &[a, b, ref extra @ ..] = operands else { return refuse(format!("expected two operands, found {}", operands.len())) };
    let config = Config::read(config)?;
    let groups = Groups { feature: call.feature_group_count, batch: call.batch_group_count };
    // The window's sizes are not always said: the kernel has them.
    match &*call.target {
        "__cudnn$convForward" | "__cudnn$convBiasActivationForward" => {
            let wide = match element {
                Primitive::F64 => Primitive::F64,
                _ => Primitive::F32,
            };
            let plain = config.is_plain() && extra.is_empty();
            let sums = forward(a, b, &call.window, numbers, groups, if plain { element } else { wide }, dims)?;
            if plain { Ok(sums) } else { config.finish(&sums, extra, &Places::output(numbers, dims.len())?, element) }
        }
        "__cudnn$convBackwardInput" => scaled(backward_input(a, b, &call.window, numbers, groups, element, dims)?, &config),
        "__cudnn$convBackwardFilter" => scaled(backward_filter(a, b, &call.window, numbers, groups, element, dims)?, &config),
        other => refuse(format!("expected a convolution of cuDNN, found `{other}`")),
    }
}

fn scaled(array: Array, config: &Config) -> Result<Array> {
    ensure(config.result_scale == 1.0, || format!("expected a gradient with a scale of 1, found {}", config.result_scale))?;
    Ok(array)
}

/// `cudnn_conv_backend_config`.
struct Config {
    activation: String,
    result_scale: f64,
    side_input_scale: f64,
    leakyrelu_alpha: f64,
}

impl Config {
    fn read(bytes: Option<&[u8]>) -> Result<Self> {
        let mut out = Self { activation: "kNone".into(), result_scale: 1.0, side_input_scale: 0.0, leakyrelu_alpha: 0.0 };
        let Some(bytes) = bytes.filter(|b| !b.is_empty()) else { return Ok(out) };
        let value: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|e| OpError(format!("expected a `backend_config` of JSON: {e}")))?;
        let config = value.get("cudnn_conv_backend_config").unwrap_or(&value);
        let number = |name: &str, default: f64| config.get(name).and_then(serde_json::Value::as_f64).unwrap_or(default);
        out.result_scale = number("conv_result_scale", 1.0);
        out.side_input_scale = number("side_input_scale", 0.0);
        out.leakyrelu_alpha = number("leakyrelu_alpha", 0.0);
        if let Some(mode) = config.get("activation_mode").and_then(serde_json::Value::as_str) {
            out.activation = mode.into();
        }
        Ok(out)
    }

    fn is_plain(&self) -> bool {
        self.activation == "kNone" && self.result_scale == 1.0
    }

    /// `activation(scale * sum + side scale * side + bias)`, in `f32` (`f64` if the result is), each step rounded, then to the result's type.
    fn finish(&self, sums: &Array, extra: &[&Array], output: &Places, element: Primitive) -> Result<Array> {
        ensure(extra.len() <= 2, || format!("expected at most bias and side input, found {} more operands", extra.len()))?;
        let bias = extra.first();
        let features = sums.dims[output.second];
        ensure(bias.is_none_or(|b| b.len() == features), || format!("expected a bias of {features} elements"))?;
        let side = extra.get(1).filter(|_| self.side_input_scale != 0.0);
        ensure(side.is_none_or(|s| s.dims == sums.dims), || "expected a side input of the result's shape".into())?;
        let stride: usize = sums.dims[output.second + 1..].iter().product();
        let feature = |i: usize| i / stride % features;
        let mut out = Array::zeros(element, &sums.dims);
        for i in 0..sums.len() {
            let bits = if element == Primitive::F64 {
                let number = |array: &Array, i| f64::load(array.element, load(array, i));
                let mut value = number(sums, i) * self.result_scale;
                value = side.map_or(value, |s| value + number(s, i) * self.side_input_scale);
                value = bias.map_or(value, |b| value + number(b, feature(i)));
                self.activate(value)?.store(element)
            } else {
                let number = |array: &Array, i| f32::load(array.element, load(array, i));
                let mut value = number(sums, i) * self.result_scale as f32;
                value = side.map_or(value, |s| value + number(s, i) * self.side_input_scale as f32);
                value = bias.map_or(value, |b| value + number(b, feature(i)));
                self.activate_f32(value)?.store(element)
            };
            store(&mut out, i, bits);
        }
        Ok(out)
    }

    fn activate(&self, x: f64) -> Result<f64> {
        Ok(match self.activation.as_str() {
            "kNone" => x,
            "kRelu" => {
                if x > 0.0 || x.is_nan() {
                    x
                } else {
                    0.0
                }
            }
            "kRelu6" => {
                if x.is_nan() {
                    x
                } else {
                    x.clamp(0.0, 6.0)
                }
            }
            "kLeakyRelu" => {
                if x > 0.0 {
                    x
                } else {
                    x * self.leakyrelu_alpha
                }
            }
            "kElu" => {
                if x > 0.0 {
                    x
                } else {
                    unary_f64(Unary::ExponentialMinusOne, x)
                }
            }
            "kSigmoid" => unary_f64(Unary::Logistic, x),
            "kTanh" => unary_f64(Unary::Tanh, x),
            other => return refuse(format!("expected a known activation, found `{other}`")),
        })
    }

    fn activate_f32(&self, x: f32) -> Result<f32> {
        Ok(match self.activation.as_str() {
            "kLeakyRelu" => {
                if x > 0.0 {
                    x
                } else {
                    x * self.leakyrelu_alpha as f32
                }
            }
            "kSigmoid" => unary_f32(Unary::Logistic, x),
            "kTanh" => unary_f32(Unary::Tanh, x),
            _ => self.activate(x.into())? as f32,
        })
    }
}

/// The gradient of the input: `lhs` is the output's gradient, `rhs` the kernel.
fn backward_input(
    lhs: &Array,
    rhs: &Array,
    window: &[WindowDim],
    numbers: &ConvDims,
    groups: Groups,
    element: Primitive,
    dims: &[usize],
) -> Result<Array> {
    let places = [Places::output(numbers, lhs.dims.len())?, Places::kernel(numbers, rhs.dims.len())?, Places::input(numbers, dims.len())?];
    let sizes = [pick(&lhs.dims, &places[0].spatial), pick(&rhs.dims, &places[1].spatial), pick(dims, &places[2].spatial)];
    let groups = one_kind(groups)?;
    let (inputs, outputs) = (lhs.dims[places[0].second] / groups, rhs.dims[places[1].first]);
    let fits = window.len() == sizes[0].len()
        && lhs.dims[places[0].second] == rhs.dims[places[1].second]
        && inputs * groups == lhs.dims[places[0].second]
        && outputs * groups == dims[places[2].second]
        && lhs.dims[places[0].first] == dims[places[2].first];
    ensure(fits, || format!("expected shapes of an input's gradient, found {:?} and {:?} for {dims:?}", lhs.dims, rhs.dims))?;
    let turned = window.iter().zip(&sizes[1]).map(|(w, &n)| WindowDim {
        size: n as i64,
        stride: w.base_dilation,
        pad_low: (n as i64 - 1) * w.window_dilation - w.pad_low,
        base_dilation: w.stride,
        reversal: !w.reversal,
        ..*w
    });
    let window: Vec<WindowDim> = turned.collect();
    let [input, _, output] = sizes;
    let plan = Loop { batch: lhs.dims[places[0].first], groups, inputs, outputs, input, output, window };
    by_type(&BackwardInput { plan, lhs, rhs, places }, lhs.element, rhs.element, element, dims)
}

fn one_kind(groups: Groups) -> Result<usize> {
    ensure(groups.batch <= 1, || "expected a gradient without batch groups".into())?;
    size(groups.feature.max(1))
}

struct BackwardInput<'a> {
    plan: Loop,
    lhs: &'a Array,
    rhs: &'a Array,
    places: [Places; 3],
}

impl Job for BackwardInput<'_> {
    fn compute<N: Number>(&self, element: Primitive, dims: &[usize]) -> Array {
        let Loop { groups, inputs, outputs, ref window, .. } = self.plan;
        let [lhs, rhs, out] = &self.places;
        let features = groups * inputs;
        let lhs = pack(self.lhs, lhs, |i, position| (i.first * i.positions + position) * features + i.second);
        let reversed: Vec<bool> = window.iter().map(|w| w.reversal).collect();
        let rhs = pack_reversed(self.rhs, rhs, &reversed, |i, position| {
            ((i.second / inputs * i.positions + position) * inputs + i.second % inputs) * outputs + i.first
        });
        let sums: Vec<N> = self.plan.run(&lhs, &rhs);
        unpack(&sums, out, element, dims, |i, position| (i.first * i.positions + position) * groups * outputs + i.second)
    }
}

/// The gradient of the kernel: `lhs` is the input, `rhs` the output's gradient.
fn backward_filter(
    lhs: &Array,
    rhs: &Array,
    window: &[WindowDim],
    numbers: &ConvDims,
    groups: Groups,
    element: Primitive,
    dims: &[usize],
) -> Result<Array> {
    let places = [Places::input(numbers, lhs.dims.len())?, Places::output(numbers, rhs.dims.len())?, Places::kernel(numbers, dims.len())?];
    let sizes = [pick(&lhs.dims, &places[0].spatial), pick(&rhs.dims, &places[1].spatial), pick(dims, &places[2].spatial)];
    let groups = one_kind(groups)?;
    let (features, outputs) = (dims[places[2].first], rhs.dims[places[1].second] / groups);
    let fits = window.len() == sizes[0].len()
        && lhs.dims[places[0].second] == features * groups
        && rhs.dims[places[1].second] == outputs * groups
        && dims[places[2].second] == outputs * groups
        && lhs.dims[places[0].first] == rhs.dims[places[1].first];
    ensure(fits, || format!("expected shapes of a filter's gradient, found {:?} and {:?} for {dims:?}", lhs.dims, rhs.dims))?;
    let batch = lhs.dims[places[0].first];
    let turned = window.iter().zip(&sizes[1]).map(|(w, &n)| WindowDim {
        size: n as i64,
        stride: w.window_dilation,
        window_dilation: w.stride,
        ..*w
    });
    let window: Vec<WindowDim> = turned.collect();
    let [input, _, output] = sizes;
    let plan = Loop { batch: features, groups, inputs: batch, outputs, input, output, window };
    by_type(&BackwardFilter { plan, lhs, rhs, places }, lhs.element, rhs.element, element, dims)
}

struct BackwardFilter<'a> {
    plan: Loop,
    lhs: &'a Array,
    rhs: &'a Array,
    places: [Places; 3],
}

impl Job for BackwardFilter<'_> {
    fn compute<N: Number>(&self, element: Primitive, dims: &[usize]) -> Array {
        let Loop { batch: features, groups, inputs: batch, outputs, ref window, ref output, .. } = self.plan;
        let [lhs, rhs, out] = &self.places;
        let lhs = pack(self.lhs, lhs, |i, position| {
            ((i.second % features * i.positions + position) * groups + i.second / features) * batch + i.first
        });
        let rhs = pack(self.rhs, rhs, |i, position| {
            ((i.second / outputs * i.positions + position) * batch + i.first) * outputs + i.second % outputs
        });
        let sums: Vec<N> = self.plan.run(&lhs, &rhs);
        let strides = crate::interp::array::row_major(output);
        let turn = |position: usize| -> usize {
            let coordinate = |d: usize| position / strides[d] % output[d];
            (0..output.len()).map(|d| if window[d].reversal { output[d] - 1 - coordinate(d) } else { coordinate(d) } * strides[d]).sum()
        };
        unpack(&sums, out, element, dims, |i, position| (i.first * i.positions + turn(position)) * groups * outputs + i.second)
    }
}
