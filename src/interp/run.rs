//! Runs whole programs, on one partition or several at once.

use std::borrow::Cow;
use std::sync::Arc;

use super::array::Array;
use super::error::Error;
use super::eval::{Evaluation, Given, Identity, Observer};
use super::exchange::{Alone, Together};
use super::placement::{HighWater, Placement};
use super::program::Program;
use super::timing::{Clock, Timed};
use super::trace::{Recorder, Trace};
use crate::ir::Module;

/// Stack of a partition's thread: computations nest to a bounded depth, each level with frames of the evaluator's and the builder's.
const STACK: usize = 64 << 20;

/// How to run.
#[derive(Clone, Copy, Default)]
pub struct RunOptions<'p> {
    /// Where values lie; without it each has memory of its own.
    pub placement: Option<&'p Placement>,
    /// Whether to take fingerprints of everything.
    pub trace: bool,
    /// Whether contractions may add up in another order, faster: results then depend on the machine.
    pub fast: bool,
    /// What to measure times by.
    pub clock: Option<&'p Arc<dyn Clock>>,
}

/// What a run gives.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The arrays of the result, in order.
    pub outputs: Vec<Array>,
    /// What the instructions computed, if that was asked for.
    pub trace: Option<Trace>,
    /// What it needed of its arenas.
    pub high_water: HighWater,
    /// What was measured, if there was a clock.
    pub timed: Vec<Timed>,
}

/// Runs a program on as many partitions as there are lists of inputs, all in step, each on a thread of its own. The errors name either all
/// instructions that cannot be run, or the one where it stopped (the first partition's).
pub fn run(module: &Module, inputs: &[Vec<Array>], options: RunOptions<'_>) -> Result<Vec<Outcome>, Vec<Error>> {
    if let [inputs] = inputs {
        let program = ready(module, options)?;
        return on_arrays(&program, Identity::default(), &Alone, inputs, options).map(|o| vec![o]);
    }
    let together = Together::new(inputs.len());
    let work = |partition: usize| {
        let result = ready(module, options).and_then(|program| {
            let identity = Identity { partition: u32::try_from(partition).expect("partitions are few"), replica: 0 };
            on_arrays(&program, identity, &together, &inputs[partition], options)
        });
        together.leave(partition, result.is_err());
        result
    };
    std::thread::scope(|scope| {
        let work = &work;
        let start = |p| std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || work(p));
        let threads: Vec<_> = (0..inputs.len()).map(start).collect();
        let mut outcomes = Vec::new();
        let mut errors: Vec<Vec<Error>> = Vec::new();
        for thread in threads {
            match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(Ok(outcome))) => outcomes.push(outcome),
                Ok(Ok(Err(error))) => errors.push(error),
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(error) => errors.push(vec![Error::new(format!("cannot start a thread: {error}"))]),
            }
        }
        // Partitions that waited in vain only say so; the cause is another one's.
        errors.sort_by_key(|e| e.iter().all(|e| e.message.ends_with(super::exchange::GONE)));
        if errors.is_empty() { Ok(outcomes) } else { Err(errors.swap_remove(0)) }
    })
}

/// Where the arrays of one partition come from, by their numbers.
pub type Inputs<'a> = &'a mut dyn FnMut(usize) -> Result<Array, String>;
/// Where they go.
pub type Outputs<'a> = &'a mut dyn FnMut(usize, Array) -> Result<(), String>;

/// Runs a program on one partition, with one array at a time outside of the program's own memory.
pub fn run_streamed(module: &Module, inputs: Inputs<'_>, outputs: Outputs<'_>, options: RunOptions<'_>) -> Result<Outcome, Vec<Error>> {
    let program = ready(module, options)?;
    let mut inputs = |i: usize| inputs(i).map(|array| Some(Cow::Owned(array)));
    one(&program, Identity::default(), &Alone, &mut inputs, outputs, options).map_err(|e| vec![e])
}

/// Runs one of several partitions on arrays in memory.
fn on_arrays(
    program: &Program<'_>,
    identity: Identity,
    exchange: &dyn super::Exchange,
    inputs: &[Array],
    options: RunOptions<'_>,
) -> Result<Outcome, Vec<Error>> {
    if inputs.len() > program.inputs() {
        return Err(vec![Error::new("there are more inputs than parameters")]);
    }
    let mut outputs = Vec::new();
    let mut give = |i: usize| Ok(inputs.get(i).map(Cow::Borrowed));
    let mut take = |_: usize, array: Array| {
        outputs.push(array);
        Ok(())
    };
    let outcome = one(program, identity, exchange, &mut give, &mut take, options).map_err(|e| vec![e])?;
    Ok(Outcome { outputs, ..outcome })
}

/// Compiles a program and holds it to its plan, before anything runs.
fn ready<'m>(module: &'m Module, options: RunOptions<'_>) -> Result<Program<'m>, Vec<Error>> {
    let program = Program::new(module, options.fast)?;
    let errors = options.placement.map(|p| program.misplaced(p)).unwrap_or_default();
    if errors.is_empty() { Ok(program) } else { Err(errors) }
}

fn one(
    program: &Program<'_>,
    identity: Identity,
    exchange: &dyn super::Exchange,
    inputs: Given<'_, '_>,
    outputs: Outputs<'_>,
    options: RunOptions<'_>,
) -> Result<Outcome, Error> {
    let mut recorder = Recorder::new(program.module);
    let mut nobody = ();
    let observer: &mut dyn Observer = if options.trace { &mut recorder } else { &mut nobody };
    let mut evaluation = Evaluation::new(program, identity, exchange, observer, options.placement, options.clock.cloned());
    evaluation.run(inputs, outputs)?;
    let (high_water, timed) = (evaluation.high_water(), evaluation.take_timed());
    drop(evaluation);
    Ok(Outcome { outputs: Vec::new(), trace: options.trace.then(|| recorder.finish()), high_water, timed })
}
