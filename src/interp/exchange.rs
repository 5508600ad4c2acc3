//! Partitions that run at the same time, and where they meet.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::array::Array;

/// How messages about a partition that is gone end.
pub(super) const GONE: &str = " before this meeting";

/// What partitions bring to one meeting, by their numbers.
pub type Brought = Arc<Vec<Vec<Array>>>;

/// Lets partitions exchange arrays.
pub trait Exchange {
    /// The number of partitions.
    fn partitions(&self) -> usize;
    /// Brings arrays and waits until every partition has brought its own to the meeting of that name.
    fn meet(&self, partition: usize, name: &str, arrays: Vec<Array>) -> Result<Brought, String>;
}

/// One partition, alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Exchange for Alone {
    fn partitions(&self) -> usize {
        1
    }
    fn meet(&self, _: usize, _: &str, arrays: Vec<Array>) -> Result<Brought, String> {
        Ok(Arc::new(vec![arrays]))
    }
}

/// Partitions on threads of one process. They meet all together, in the order of their programs; a meeting where one is missing fails.
#[derive(Debug)]
pub struct Together {
    partitions: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    name: String,
    brought: Vec<Option<Vec<Array>>>,
    arrived: usize,
    /// What was brought to the last complete meeting, and how many were complete.
    complete: Option<Brought>,
    meetings: u64,
    /// Why nobody will meet any more.
    over: Option<String>,
}

impl Together {
    /// So many partitions.
    pub fn new(partitions: usize) -> Self {
        let state = State { brought: vec![None; partitions], ..State::default() };
        Self { partitions, state: Mutex::new(state), changed: Condvar::new() }
    }
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A partition ends, well or not: who waits for it waits in vain.
    pub fn leave(&self, partition: usize, failed: bool) {
        let mut state = self.lock();
        let how = if failed { "failed" } else { "ended" };
        state.over.get_or_insert_with(|| format!("partition {partition} {how}{GONE}"));
        self.changed.notify_all();
    }
}

impl Exchange for Together {
    fn partitions(&self) -> usize {
        self.partitions
    }
    fn meet(&self, partition: usize, name: &str, arrays: Vec<Array>) -> Result<Brought, String> {
        let mut state = self.lock();
        if state.arrived == 0 {
            state.name = name.to_string();
        } else if state.name != name {
            let message = format!("partition {partition} is at `{name}` while another one waits at `{}`", state.name);
            state.over.get_or_insert(message);
            self.changed.notify_all();
        }
        state.brought[partition] = Some(arrays);
        state.arrived += 1;
        let meeting = state.meetings;
        if state.arrived == self.partitions {
            let all = state.brought.iter_mut().filter_map(Option::take).collect();
            state.complete = Some(Arc::new(all));
            state.arrived = 0;
            state.meetings += 1;
            self.changed.notify_all();
        }
        while state.meetings == meeting {
            if let Some(over) = &state.over {
                return Err(over.clone());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.complete.clone().ok_or_else(|| "a meeting without result".to_string())
    }
}
