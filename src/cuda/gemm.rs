//! cuBLAS's matrix products: `alpha · a b + beta · c`, a bias and an activation, rounded once at the end.
//!
//! Source: `GemmBackendConfig` in XLA's `service/gpu/backend_configs.proto`. The bias is added along the last dimension; the activations are
//! cuBLASLt's, GELU by its approximation with tanh. What cuBLAS itself can do is given to it ([`super::product`]).

use serde_json::Value as Json;

use super::emit::{Emitted, Emitter, Memory, Place};
use super::graph::{Kind, Ref};
use super::lower::{Lowering, Sink};
use super::scalar::{convert, unary};
use super::types::{Ty, ctype, literal, load, storage};
use crate::ir::{ContractionExtras, Dot, DotDims, Precision, Primitive, Unary, float};

/// What follows a matrix product.
#[derive(Clone, Debug)]
pub(super) struct Finish {
    pub alpha: f64,
    pub beta: f64,
    /// What is added, and whether it lies in the result's memory already.
    pub added: Option<(Ref, bool)>,
    pub bias: Option<Ref>,
    pub activation: String,
    /// The result's memory, from which what is added is read.
    pub out: Option<Memory>,
}

impl Default for Finish {
    fn default() -> Self {
        Self { alpha: 1.0, beta: 0.0, added: None, bias: None, activation: String::new(), out: None }
    }
}

impl Finish {
    fn is_nothing(&self) -> bool {
        self.alpha == 1.0 && self.added.is_none() && self.bias.is_none() && self.activation.is_empty()
    }

    /// The value that the variable `sum`, of a type, becomes, in that type.
    pub fn apply(&self, e: &mut Emitter<'_, '_>, to: &Ty, sum: Primitive, place: &Place) -> Emitted<String> {
        if self.is_nothing() {
            return Ok("sum".to_string());
        }
        if !sum.is_float() {
            return Err(format!("a matrix product of `{}` with factors: there is no kernel for it", to.element.name()));
        }
        let c = ctype(sum);
        let number = |x: f64| literal(sum, float::encode(sum, x));
        let mut value = "sum".to_string();
        if self.alpha != 1.0 {
            value = e.bind(c, &format!("{value} * {}", number(self.alpha)));
        }
        if let Some((added, in_place)) = self.added {
            let x = if let (true, Some(out)) = (in_place, self.out) {
                let offset = e.offset(to, place);
                let name = e.argument(out, storage(to.element));
                convert(to.element, sum, &load(to.element, &format!("{name}[{offset}]")))
            } else {
                let element = e.graph.ty(added).element;
                convert(element, sum, &e.element(added, &Place::at(place.dims.clone()))?)
            };
            let scaled = e.bind(c, &format!("{x} * {}", number(self.beta)));
            value = e.bind(c, &format!("{value} + {scaled}"));
        }
        if let Some(bias) = self.bias {
            let of = e.graph.ty(bias).clone();
            let last = place.dims.last().filter(|_| of.dims.len() == 1).ok_or("a bias that is no vector: there is no kernel for it")?;
            let x = e.element(bias, &Place::at(vec![last.clone()]))?;
            value = e.bind(c, &format!("{value} + {}", convert(of.element, sum, &x)));
        }
        let call = |op: Unary, x: &str| unary(op, sum, x).ok_or("an activation of this type: there is no kernel for it");
        Ok(match &*self.activation {
            "" => value,
            "RELU" => e.bind(c, &format!("offc_max({value}, ({c})0)")),
            "SILU" => {
                let gate = e.bind(c, &call(Unary::Logistic, &value)?);
                e.bind(c, &format!("{value} * {gate}"))
            }
            "GELU" => {
                let square = e.bind(c, &format!("{value} * {value}"));
                let cube = e.bind(c, &format!("{square} * {value}"));
                let bent = e.bind(c, &format!("{} * {cube}", number(0.044_715)));
                let inner = e.bind(c, &format!("{} * ({value} + {bent})", number((2.0 / std::f64::consts::PI).sqrt())));
                let gate = e.bind(c, &call(Unary::Tanh, &inner)?);
                e.bind(c, &format!("({} * {value}) * ({} + {gate})", number(0.5), number(1.0)))
            }
            other => return Err(format!("epilogue `{other}` of a matrix product: there is no kernel for it")),
        })
    }
}

/// A number that JSON may spell as a string.
fn number(json: &Json) -> Option<f64> {
    json.as_f64().or_else(|| json.as_str()?.parse().ok())
}

fn dims(json: &Json, key: &str) -> Vec<i64> {
    json[key].as_array().into_iter().flatten().filter_map(number).map(|n| n as i64).collect()
}

impl Lowering<'_> {
    /// A matrix product of cuBLAS.
    pub(super) fn gemm(&mut self, node: usize) -> Emitted<()> {
        let Kind::Op(id) = self.graph.nodes[node].kind else { unreachable!("a custom call is an instruction") };
        let config = self.graph.module.instr(id).attrs.backend_config.as_deref().ok_or("a matrix product without configuration")?;
        let json: Json = serde_json::from_slice(config).map_err(|_| "its configuration is no JSON")?;
        let config = if json["gemm_backend_config"].is_null() { &json } else { &json["gemm_backend_config"] };
        let numbers = &config["dot_dimension_numbers"];
        let dot = Dot {
            dims: DotDims {
                lhs_contracting: dims(numbers, "lhs_contracting_dimensions"),
                rhs_contracting: dims(numbers, "rhs_contracting_dimensions"),
                lhs_batch: dims(numbers, "lhs_batch_dimensions"),
                rhs_batch: dims(numbers, "rhs_batch_dimensions"),
            },
            precision: Precision::default(),
            extras: ContractionExtras::default(),
        };
        if number(&config["alpha_imag"]).unwrap_or(0.0) != 0.0 {
            return Err("a matrix product with a complex factor: there is no kernel for it".to_string());
        }
        let epilogue = config["epilogue"].as_str().unwrap_or("DEFAULT");
        let (with_bias, activation) = match epilogue {
            "DEFAULT" => (false, ""),
            "BIAS" => (true, ""),
            other => other.strip_prefix("BIAS_").map_or((false, other), |activation| (true, activation)),
        };
        let operands = self.graph.nodes[node].operands.clone();
        let mut rest = operands.into_iter().skip(2);
        let out = self.stored.get(&Ref { node, part: 0 }).copied();
        let mut end = Finish {
            alpha: number(&config["alpha_real"]).unwrap_or(1.0),
            beta: number(&config["beta"]).unwrap_or(0.0),
            activation: activation.to_string(),
            out,
            ..Finish::default()
        };
        if end.beta != 0.0 {
            let added = rest.next().ok_or("expected an operand to add")?;
            let to = self.graph.ty(Ref { node, part: 0 }).clone();
            let of = self.graph.ty(added).clone();
            // As the library has it: what is added lies where the result goes.
            let in_place = of.element == to.element && of.order() == to.order() && out.is_some();
            if let (true, Some(memory)) = (in_place, out)
                && !matches!(memory, Memory::Out(out) if self.lies_there(added, out))
            {
                self.map(&of, &[Sink { memory, value: added, update_of: None }])?;
            }
            end.added = Some((added, in_place));
        }
        if with_bias {
            end.bias = Some(rest.next().ok_or("expected a bias")?);
        }
        self.contract(node, &dot, &end)
    }
}
