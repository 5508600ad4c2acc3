//! The graph that the annealing and the bound look at: values in the order of their birth, dense and in plain integers.

/// Values are numbered in the order of their birth, so that what is made again before one step is made in the order of the numbers.
#[derive(Clone, Debug, Default)]
pub struct Net {
    /// Bytes of each value.
    pub size: Vec<i64>,
    /// Nanoseconds to make it again; `None` where it may not be made again.
    pub cost: Vec<Option<i64>>,
    /// What making it again reads.
    pub inputs: Vec<Vec<u32>>,
    /// Whose making again reads it.
    pub readers: Vec<Vec<u32>>,
    /// The step that makes it.
    pub born: Vec<u32>,
    /// The steps that read it, ascending.
    pub uses: Vec<Vec<u32>>,
    /// The last step before which it may be made again.
    pub until: Vec<u32>,
    /// The computation in which it stands.
    pub frame: Vec<u32>,
    /// Bytes that each step takes besides.
    pub fixed: Vec<i64>,
    /// The computation of each step; `None` where nothing may be put before it.
    pub step_frame: Vec<Option<u32>>,
    /// Values that each step makes.
    pub outputs: Vec<Vec<u32>>,
    /// Bytes that may be taken.
    pub budget: i64,
    /// Nanoseconds of all steps.
    pub time: i64,
}

impl Net {
    /// Whether a value may be made again before a step.
    pub fn may(&self, value: u32, step: u32) -> bool {
        let v = value as usize;
        self.cost[v].is_some() && step > self.born[v] && step <= self.until[v] && self.step_frame[step as usize] == Some(self.frame[v])
    }
}
