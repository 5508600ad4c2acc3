//! Runs whole programs, on one partition or several at once.

use super::array::Array;
use super::error::Error;
use super::eval::{Evaluation, Identity, Observer};
use super::exchange::{Alone, Together};
use super::placement::{HighWater, Placement};
use super::program::Program;
use super::trace::{Recorder, Trace};
use crate::ir::Module;

/// Stack of a partition's thread: computations nest to a bounded depth, each level with frames of the evaluator's and the builder's.
const STACK: usize = 64 << 20;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions<'p> {
    /// Where values lie; without it each has memory of its own.
    pub placement: Option<&'p Placement>,
    /// Whether to take fingerprints of everything.
    pub trace: bool,
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
}

/// Runs a program on as many partitions as there are lists of inputs, all in step, each on a thread of its own. The errors name either all
/// instructions that cannot be run, or the one where it stopped (the first partition's).
pub fn run(module: &Module, inputs: &[Vec<Array>], options: RunOptions<'_>) -> Result<Vec<Outcome>, Vec<Error>> {
    if let [inputs] = inputs {
        let program = Program::new(module)?;
        return one(&program, Identity::default(), &Alone, inputs, options).map(|o| vec![o]).map_err(|e| vec![e]);
    }
    let together = Together::new(inputs.len());
    let work = |partition: usize| {
        let result = Program::new(module).and_then(|program| {
            let identity = Identity { partition: u32::try_from(partition).expect("partitions are few"), replica: 0 };
            one(&program, identity, &together, &inputs[partition], options).map_err(|e| vec![e])
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

fn one(
    program: &Program<'_>,
    identity: Identity,
    exchange: &dyn super::Exchange,
    inputs: &[Array],
    options: RunOptions<'_>,
) -> Result<Outcome, Error> {
    let mut recorder = Recorder::new(program.module);
    let mut nobody = ();
    let observer: &mut dyn Observer = if options.trace { &mut recorder } else { &mut nobody };
    let mut evaluation = Evaluation::new(program, identity, exchange, observer, options.placement);
    let outputs = evaluation.run(inputs)?;
    let high_water = evaluation.high_water();
    drop(evaluation);
    Ok(Outcome { outputs, trace: options.trace.then(|| recorder.finish()), high_water })
}
