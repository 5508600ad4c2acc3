//! Lowers cuBLAS matrix products: `alpha · a b + beta · c`, a bias and an activation, rounded once at the end.
//!
//! Source: `GemmBackendConfig` in `service/gpu/backend_configs.proto`. The bias is added along the last dimension; the activations are those
//! of cuBLASLt, GELU by its approximation with tanh.

use serde_json::Value as Json;

use super::build::{Builder, Move, NodeId, Unsupported};
use super::shape::ArrayType;
use crate::interp::array::Array;
use crate::interp::elementwise::Elementwise;
use crate::interp::lanes::{Lane, lane};
use crate::ir::{Binary, DotDims, InstrId, Primitive, Unary};

/// A number that JSON may spell as a string.
fn number(json: &Json) -> Option<f64> {
    json.as_f64().or_else(|| json.as_str()?.parse().ok())
}

fn dims(json: &Json, key: &str) -> Vec<i64> {
    let list = json[key].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(number).map(|n| n as i64).collect()
}

impl Builder<'_> {
    /// Adds a matrix product of cuBLAS; where its result lies is kept for [`Builder::results`].
    pub(super) fn gemm(&mut self, id: InstrId, config: &[u8], args: &[NodeId], ty: &ArrayType) -> Result<(), Unsupported> {
        let json: Json = serde_json::from_slice(config).map_err(|_| "its configuration is no JSON")?;
        let config = if json["gemm_backend_config"].is_null() { &json } else { &json["gemm_backend_config"] };
        let numbers = &config["dot_dimension_numbers"];
        let dot = DotDims {
            lhs_contracting: dims(numbers, "lhs_contracting_dimensions"),
            rhs_contracting: dims(numbers, "rhs_contracting_dimensions"),
            lhs_batch: dims(numbers, "lhs_batch_dimensions"),
            rhs_batch: dims(numbers, "rhs_batch_dimensions"),
        };
        let alpha = number(&config["alpha_real"]).unwrap_or(1.0);
        let beta = number(&config["beta"]).unwrap_or(0.0);
        if number(&config["alpha_imag"]).unwrap_or(0.0) != 0.0 {
            return Err("a matrix product with a complex factor".to_string());
        }
        let epilogue = config["epilogue"].as_str().unwrap_or("DEFAULT");
        let (bias, activation) = match epilogue {
            "DEFAULT" => (false, ""),
            "BIAS" => (true, ""),
            other => match other.strip_prefix("BIAS_") {
                Some(activation) => (true, activation),
                None => (false, other),
            },
        };
        let &[lhs, rhs, ref rest @ ..] = args else { return Err("expected at least two operands".to_string()) };
        let mut rest = rest.iter().copied();
        let to = self.destination(Some(id), 0, ty.element, &ty.dims);
        self.placed.insert((id, 0), to.clone());
        if alpha == 1.0 && beta == 0.0 && epilogue == "DEFAULT" {
            return self.contract(&dot, None, lhs, rhs, to);
        }
        let wide = match lane(ty.element) {
            Lane::F32 => Primitive::F32,
            _ => ty.element,
        };
        let sums = self.temp(wide, &ty.dims);
        self.contract(&dot, None, lhs, rhs, sums.clone())?;
        let mut value = self.view(sums);
        if alpha != 1.0 {
            let factor = self.filled(wide, &ty.dims, alpha);
            value = self.compute(Elementwise::Binary(Binary::Multiply), wide, &[value, factor]);
        }
        if beta != 0.0 {
            let c = rest.next().ok_or("expected an operand to add")?;
            let factor = self.filled(wide, &ty.dims, beta);
            let c = self.compute(Elementwise::Convert, wide, &[c]);
            let scaled = self.compute(Elementwise::Binary(Binary::Multiply), wide, &[c, factor]);
            value = self.compute(Elementwise::Binary(Binary::Add), wide, &[value, scaled]);
        }
        if bias {
            let bias = rest.next().ok_or("expected a bias")?;
            let bias = self.compute(Elementwise::Convert, wide, &[bias]);
            let last = ty.dims.len().checked_sub(1).ok_or("a matrix product without dimensions")?;
            let bias = self.moved(bias, &Move::Broadcast { dimensions: vec![last], dims: ty.dims.clone() });
            value = self.compute(Elementwise::Binary(Binary::Add), wide, &[value, bias]);
        }
        value = self.activated(value, activation, wide, &ty.dims)?;
        let value = self.compute(Elementwise::Convert, ty.element, &[value]);
        self.store(value, &to);
        Ok(())
    }

    fn activated(&mut self, x: NodeId, activation: &str, wide: Primitive, dims: &[usize]) -> Result<NodeId, Unsupported> {
        let multiply = Elementwise::Binary(Binary::Multiply);
        Ok(match activation {
            "" => x,
            "RELU" => {
                let zero = self.filled(wide, dims, 0.0);
                self.compute(Elementwise::Binary(Binary::Maximum), wide, &[x, zero])
            }
            "SILU" => {
                let gate = self.compute(Elementwise::Unary(Unary::Logistic), wide, &[x]);
                self.compute(multiply, wide, &[x, gate])
            }
            "GELU" => {
                let [half, one, cubic, scale] =
                    [0.5, 1.0, 0.044_715, (2.0 / std::f64::consts::PI).sqrt()].map(|n| self.filled(wide, dims, n));
                let add = Elementwise::Binary(Binary::Add);
                let square = self.compute(multiply, wide, &[x, x]);
                let cube = self.compute(multiply, wide, &[square, x]);
                let bent = self.compute(multiply, wide, &[cubic, cube]);
                let sum = self.compute(add, wide, &[x, bent]);
                let inner = self.compute(multiply, wide, &[scale, sum]);
                let gate = self.compute(Elementwise::Unary(Unary::Tanh), wide, &[inner]);
                let gate = self.compute(add, wide, &[one, gate]);
                let halved = self.compute(multiply, wide, &[half, x]);
                self.compute(multiply, wide, &[halved, gate])
            }
            other => return Err(format!("epilogue `{other}` of a matrix product")),
        })
    }

    /// A number, repeated.
    fn filled(&mut self, element: Primitive, dims: &[usize], value: f64) -> NodeId {
        let array = if element.is_integer() { Array::of_i64(element, &[], &[value as i64]) } else { Array::of_f64(element, &[], &[value]) };
        let node = self.constant(&array);
        self.moved(node, &Move::Broadcast { dimensions: Vec::new(), dims: dims.to_vec() })
    }
}
