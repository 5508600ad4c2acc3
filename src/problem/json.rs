//! Problems from JSON: of the form of [`Problem`] itself (`docs/problem.md`), or graphs of the Checkmate benchmark.

use serde::Deserialize;

use crate::diag::Diagnostic;
use crate::units::{Bytes, BytesPerSec, Nanos};

use super::{Instant, Link, Links, Problem, Recipe, Step, Value};

/// A graph of the Checkmate benchmark: node t makes one value at step t, from the values of the nodes at the heads of its edges.
#[derive(Deserialize)]
struct Graph {
    mem_kib: Vec<u64>,
    cost_10us: Vec<u64>,
    fixed_kib: u64,
    edges: Vec<(u32, u32)>,
    #[serde(default)]
    ops: Vec<String>,
}

fn bad(said: impl Into<String>) -> Vec<Diagnostic> {
    vec![Diagnostic::error("O02", said)]
}

/// Reads a problem. `memory` replaces the device memory; a Checkmate graph has none of its own, and what is fixed there (weights and their
/// gradients) is taken off.
///
/// # Errors
/// `O02`, if it is not JSON of either form or says what cannot be.
pub fn parse(text: &[u8], memory: Option<Bytes>) -> Result<Problem, Vec<Diagnostic>> {
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|e| bad(format!("expected JSON: {e}")))?;
    let problem = if value.get("cost_10us").is_some() {
        let graph = Graph::deserialize(&value).map_err(|e| bad(format!("expected a Checkmate graph: {e}")))?;
        let Some(memory) = memory else { return Err(bad("expected `--memory` beside a Checkmate graph, which says nothing of memory")) };
        checkmate(&graph, memory)?
    } else {
        let mut problem = Problem::deserialize(&value).map_err(|e| bad(format!("expected a problem: {e}")))?;
        problem.device_memory = memory.unwrap_or(problem.device_memory);
        problem
    };
    sound(&problem).map_err(bad)?;
    Ok(problem)
}

fn checkmate(graph: &Graph, memory: Bytes) -> Result<Problem, Vec<Diagnostic>> {
    let count = graph.mem_kib.len();
    if graph.cost_10us.len() != count {
        return Err(bad(format!("expected as many costs as sizes, found {} and {count}", graph.cost_10us.len())));
    }
    let mut inputs = vec![Vec::new(); count];
    let mut uses = vec![Vec::new(); count];
    for &(from, to) in &graph.edges {
        if from >= to || to as usize >= count {
            return Err(bad(format!("expected edges from an earlier to a later of {count} nodes, found {from} to {to}")));
        }
        inputs[to as usize].push(from);
        uses[from as usize].push(to);
    }
    let time = |n: usize| Nanos(graph.cost_10us[n].saturating_mul(10_000));
    let mut values = Vec::new();
    for (n, (mut inputs, mut uses)) in (0u32..).zip(inputs.into_iter().zip(uses)) {
        for list in [&mut inputs, &mut uses] {
            list.sort_unstable();
            list.dedup();
        }
        let op = graph.ops.get(n as usize).map_or("", String::as_str);
        values.push(Value {
            name: format!("{n}:{op}"),
            bytes: Bytes(graph.mem_kib[n as usize].saturating_mul(1024)),
            born: n,
            uses,
            valid_to: Instant::MAX,
            movable: true,
            recipe: Some(Recipe { time: time(n as usize), inputs, valid_to: Instant::MAX }),
        });
    }
    let step = |n: usize| {
        let enter = u32::try_from(n).map_err(|_| bad("expected fewer than 2^32 nodes"))?;
        Ok(Step { time: time(n), runs: 1, frame: 0, enter, fixed: Bytes::ZERO })
    };
    let none = Link { rate: BytesPerSec(0), latency: Nanos::ZERO };
    Ok(Problem {
        steps: (0..count).map(step).collect::<Result<_, Vec<Diagnostic>>>()?,
        values,
        links: Links { out: none, back: none },
        device_memory: memory - Bytes(graph.fixed_kib.saturating_mul(1024)),
        host_memory: Bytes::ZERO,
        total_memory: Bytes::MAX,
    })
}

/// What searches and checks rely on.
fn sound(problem: &Problem) -> Result<(), String> {
    let steps = problem.steps.len();
    let mut total = 0u64;
    for (at, step) in problem.steps.iter().enumerate() {
        if step.enter as usize > at {
            return Err(format!("expected `enter` of step {at} at or before it, found {}", step.enter));
        }
        if step.frame as usize >= steps {
            return Err(format!("expected `frame` of step {at} below the number of steps, found {}", step.frame));
        }
        total = total.saturating_add(step.fixed.get()).saturating_add(step.time.get());
    }
    for value in &problem.values {
        let name = &value.name;
        let ascending = value.uses.windows(2).all(|w| w[0] < w[1]);
        let after = value.uses.first().is_none_or(|&u| u > value.born);
        let within = value.uses.last().unwrap_or(&value.born).max(&value.born);
        if !ascending || !after || *within as usize >= steps {
            return Err(format!("expected the uses of `{name}` to ascend from after its birth to below {steps}"));
        }
        if value.uses.last().is_some_and(|&u| u > value.valid_to) {
            return Err(format!("expected no use of `{name}` after step {}, its last valid one", value.valid_to));
        }
        let frame = problem.steps[value.born as usize].frame;
        for &input in value.recipe.iter().flat_map(|r| &r.inputs) {
            let Some(read) = problem.values.get(input as usize) else {
                return Err(format!("expected inputs of `{name}` below {}, found {input}", problem.values.len()));
            };
            if read.born >= value.born || problem.steps[read.born as usize].frame != frame {
                return Err(format!("expected inputs of `{name}` to be born before it, in its computation; `{}` is not", read.name));
            }
        }
        let time = value.recipe.as_ref().map_or(0, |r| r.time.get());
        total = total.saturating_add(value.bytes.get()).saturating_add(time);
    }
    if total > 1 << 52 {
        return Err("expected all sizes and times together to be at most 2^52".to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: &str = r#"{"mem_kib":[4,4,4],"cost_10us":[1,2,3],"fixed_kib":2,"edges":[[0,1],[0,2],[1,2]],"ops":["a","b","c"]}"#;

    #[test]
    fn a_checkmate_graph_becomes_a_problem_and_survives_json() {
        let problem = parse(GRAPH.as_bytes(), Some(Bytes(14 << 10))).expect("it is one");
        assert_eq!(problem.device_memory, Bytes(12 << 10));
        assert_eq!(problem.values[0].uses, [1, 2]);
        let text = serde_json::to_vec(&problem).expect("it becomes JSON");
        assert_eq!(parse(&text, None).expect("it is one"), problem);
    }

    #[test]
    fn o02_says_what_cannot_be() {
        for text in ["", "{}", r#"{"cost_10us":[1]}"#, &GRAPH.replace("[0,1]", "[1,0]")] {
            assert_eq!(parse(text.as_bytes(), Some(Bytes(1))).expect_err("it is none")[0].code, "O02");
        }
        assert_eq!(parse(GRAPH.as_bytes(), None).expect_err("it has no memory")[0].code, "O02");
    }
}
