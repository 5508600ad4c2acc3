//! Runs whole programs, on one partition or several at once.

use super::array::Array;
use super::error::Error;
use super::eval::{Evaluation, Identity, Observer};
use super::exchange::{Alone, Together};
use super::program::Program;
use super::trace::{Recorder, Trace};
use crate::ir::Module;

/// Stack of a partition's thread: computations nest to a bounded depth, each level with frames of the evaluator's and the builder's.
const STACK: usize = 64 << 20;

/// What a run gives.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The arrays of the result, in order.
    pub outputs: Vec<Array>,
    /// What the instructions computed, if that was asked for.
    pub trace: Option<Trace>,
}

/// Runs a program on as many partitions as there are lists of inputs, all in step, each on a thread of its own. The errors name either all
/// instructions that cannot be run, or the one where it stopped (the first partition's).
pub fn run(module: &Module, inputs: &[Vec<Array>], trace: bool) -> Result<Vec<Outcome>, Vec<Error>> {
    if let [inputs] = inputs {
        let program = Program::new(module)?;
        return one(&program, Identity::default(), &Alone, inputs, trace).map(|o| vec![o]).map_err(|e| vec![e]);
    }
    let together = Together::new(inputs.len());
    let work = |partition: usize| {
        let result = Program::new(module).and_then(|program| {
            let identity = Identity { partition: u32::try_from(partition).expect("partitions are few"), replica: 0 };
            one(&program, identity, &together, &inputs[partition], trace).map_err(|e| vec![e])
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

fn one(program: &Program<'_>, identity: Identity, exchange: &dyn super::Exchange, inputs: &[Array], trace: bool) -> Result<Outcome, Error> {
    let mut recorder = Recorder::new(program.module);
    let mut nobody = ();
    let observer: &mut dyn Observer = if trace { &mut recorder } else { &mut nobody };
    let outputs = Evaluation::new(program, identity, exchange, observer).run(inputs)?;
    Ok(Outcome { outputs, trace: trace.then(|| recorder.finish()) })
}
