//! Which values are made again before which steps, and the memory that follows, kept up to date move by move.
//!
//! Everything else follows from the set of pairs: a value is kept from each of its makings to the last reader before the next. `base` holds the
//! bytes (whole numbers, exact in floating point) kept into each step, `own` what the step and the makings before it take at most on top. A move costs a few intervals; a step whose makings change
//! is gone through again.

use super::net::Net;

/// A making of a value before a step.
pub type Pair = (u32, u32);

/// The state.
#[derive(Clone)]
pub struct State<'a> {
    net: &'a Net,
    /// The steps before which each value is made, its birth first.
    made: Vec<Vec<u32>>,
    /// The values made again before each step.
    again: Vec<Vec<u32>>,
    /// From each making, the last step that reads the value before the next.
    kept: Vec<Vec<(u32, u32)>>,
    /// Bytes kept into each step.
    pub base: Vec<f64>,
    /// The most that a step and the makings before it take besides.
    pub own: Vec<f64>,
    /// Both as they were at the last [`State::mark`], if anything changed since.
    before: (Vec<f64>, Vec<f64>),
    clean: bool,
    dirty: Vec<u32>,
    marked: Vec<bool>,
    scratch: Vec<(u32, u32)>,
    /// Time of all makings.
    pub cost: i64,
    /// All makings but births.
    pub pairs: Vec<Pair>,
}

fn shift(base: &mut [f64], from: u32, to: u32, bytes: f64) {
    for slot in &mut base[from as usize + 1..=to as usize] {
        *slot += bytes;
    }
}

impl<'a> State<'a> {
    /// Nothing is made again.
    pub fn new(net: &'a Net) -> Self {
        let (values, steps) = (net.size.len(), net.fixed.len());
        let mut state = Self {
            net,
            made: net.born.iter().map(|&b| vec![b]).collect(),
            again: vec![Vec::new(); steps],
            kept: vec![Vec::new(); values],
            base: vec![0.0; steps],
            own: vec![0.0; steps],
            before: (vec![0.0; steps], vec![0.0; steps]),
            clean: false,
            dirty: Vec::new(),
            marked: vec![false; steps],
            scratch: Vec::new(),
            cost: 0,
            pairs: Vec::new(),
        };
        for v in 0..values {
            state.update(v);
        }
        for step in (0u32..).take(steps) {
            state.touch(step);
        }
        state.refresh();
        state
    }

    /// Whether the value is made before the step, or by it.
    pub fn makes(&self, step: u32, value: u32) -> bool {
        self.net.born[value as usize] == step || self.again[step as usize].binary_search(&value).is_ok()
    }

    /// Values made again before a step.
    pub fn again(&self, step: u32) -> &[u32] {
        &self.again[step as usize]
    }

    /// Makings of a value and the last step each is kept to.
    pub fn kept(&self, value: u32) -> &[(u32, u32)] {
        &self.kept[value as usize]
    }

    /// The making that counts at a step, if it came before it or at it.
    pub fn current(&self, value: u32, step: u32) -> Option<(u32, u32)> {
        self.kept[value as usize].iter().rev().find(|k| k.0 <= step).copied()
    }

    /// Steps before which a value is made, its birth first.
    pub fn made(&self, value: u32) -> &[u32] {
        &self.made[value as usize]
    }

    fn touch(&mut self, step: u32) {
        if !self.marked[step as usize] {
            self.marked[step as usize] = true;
            self.dirty.push(step);
        }
    }

    /// Works out anew from where to where a value is kept.
    fn update(&mut self, v: usize) {
        let net = self.net;
        let mut new = std::mem::take(&mut self.scratch);
        new.clear();
        let made = &self.made[v];
        for (n, &from) in made.iter().enumerate() {
            let next = made.get(n + 1).copied().unwrap_or(u32::MAX);
            let natural = net.uses[v].partition_point(|&u| u < next);
            let mut last = if natural == 0 { from } else { net.uses[v][natural - 1].max(from) };
            for &reader in &net.readers[v] {
                if let Some(&at) = self.made[reader as usize][1..].iter().rev().find(|&&at| at < next) {
                    last = last.max(at);
                }
            }
            new.push((from, last));
        }
        if new != self.kept[v] {
            let old = std::mem::take(&mut self.kept[v]);
            let size = net.size[v] as f64;
            let (mut o, mut n) = (0, 0);
            while o < old.len() || n < new.len() {
                match (old.get(o).copied(), new.get(n).copied()) {
                    (Some(a), Some(b)) if a.0 == b.0 => {
                        if a.1 < b.1 {
                            shift(&mut self.base, a.1, b.1, size);
                        } else {
                            shift(&mut self.base, b.1, a.1, -size);
                        }
                        if a.1 != b.1 {
                            self.touch_ends(&[a, b]);
                        }
                        o += 1;
                        n += 1;
                    }
                    (Some(a), b) if b.is_none_or(|b| a.0 < b.0) => {
                        shift(&mut self.base, a.0, a.1, -size);
                        self.touch_ends(&[a]);
                        o += 1;
                    }
                    (_, Some(b)) => {
                        shift(&mut self.base, b.0, b.1, size);
                        self.touch_ends(&[b]);
                        n += 1;
                    }
                    (_, None) => break,
                }
            }
            self.scratch = old;
            self.kept[v] = new;
        } else {
            self.scratch = new;
        }
    }

    fn touch_ends(&mut self, intervals: &[(u32, u32)]) {
        for &(from, to) in intervals {
            for step in [from, to] {
                if !self.again[step as usize].is_empty() {
                    self.touch(step);
                }
            }
        }
    }

    /// Makes a value again before a step, or no more.
    pub fn toggle(&mut self, (step, value): Pair) {
        let net = self.net;
        let v = value as usize;
        let cost = net.cost[v].unwrap_or(0);
        if self.clean {
            self.before.0.copy_from_slice(&self.base);
            self.before.1.copy_from_slice(&self.own);
            self.clean = false;
        }
        match self.again[step as usize].binary_search(&value) {
            Ok(place) => {
                self.again[step as usize].remove(place);
                self.made[v].retain(|&s| s != step);
                self.cost -= cost;
                if let Some(place) = self.pairs.iter().rposition(|&p| p == (step, value)) {
                    self.pairs.swap_remove(place);
                }
            }
            Err(place) => {
                self.again[step as usize].insert(place, value);
                let place = self.made[v].partition_point(|&s| s < step);
                self.made[v].insert(place, step);
                self.cost += cost;
                self.pairs.push((step, value));
            }
        }
        self.touch(step);
        self.update(v);
        for &input in &net.inputs[v] {
            self.update(input as usize);
        }
    }

    /// Whether nobody reads what was made before the step until it is made anew.
    pub fn useless(&self, step: u32, value: u32) -> bool {
        let net = self.net;
        let v = value as usize;
        let next = self.made[v].iter().copied().find(|&s| s > step).unwrap_or(u32::MAX);
        let within = |at: u32| at >= step && at < next;
        !net.uses[v].iter().any(|&u| within(u)) && !net.readers[v].iter().any(|&r| self.made[r as usize][1..].iter().any(|&at| within(at)))
    }

    /// Goes through the steps whose makings changed.
    pub fn refresh(&mut self) {
        let net = self.net;
        while let Some(step) = self.dirty.pop() {
            self.marked[step as usize] = false;
            let again = &self.again[step as usize];
            let outputs: i64 = net.outputs[step as usize].iter().map(|&v| net.size[v as usize]).sum();
            let (mut now, mut most) = (0, 0);
            for (n, &value) in again.iter().enumerate() {
                now += net.size[value as usize];
                most = most.max(now);
                let later = &again[n + 1..];
                let free = |x: u32| {
                    self.current(x, step).is_none_or(|k| k.1 <= step)
                        && net.uses[x as usize].binary_search(&step).is_err()
                        && !later.iter().any(|&l| net.inputs[l as usize].contains(&x))
                };
                if free(value) {
                    now -= net.size[value as usize];
                }
                for &x in &net.inputs[value as usize] {
                    if free(x) {
                        now -= net.size[x as usize];
                    }
                }
            }
            self.own[step as usize] = (most.max(now + outputs) + net.fixed[step as usize]) as f64;
        }
    }

    /// Remembers this state.
    pub fn mark(&mut self) {
        self.clean = true;
    }

    /// Goes back to the mark by the pairs toggled since.
    pub fn undo(&mut self, done: &[Pair]) {
        for &pair in done.iter().rev() {
            self.toggle(pair);
        }
        while let Some(step) = self.dirty.pop() {
            self.marked[step as usize] = false;
        }
        self.base.copy_from_slice(&self.before.0);
        self.own.copy_from_slice(&self.before.1);
    }

    /// What is above the budget, each step by its weight.
    pub fn excess(&self, weights: &[f64]) -> f64 {
        let budget = self.net.budget as f64;
        let mut lanes = [0.0; 8];
        let (base, own) = (&self.base[..weights.len()], &self.own[..weights.len()]);
        let mut chunks = weights.chunks_exact(8).zip(base.chunks_exact(8).zip(own.chunks_exact(8)));
        for (weights, (base, own)) in &mut chunks {
            for lane in 0..8 {
                lanes[lane] += weights[lane] * (base[lane] + own[lane] - budget).max(0.0);
            }
        }
        let done = weights.len() - weights.len() % 8;
        let rest: f64 = (done..weights.len()).map(|s| weights[s] * (base[s] + own[s] - budget).max(0.0)).sum();
        lanes.iter().sum::<f64>() + rest
    }

    /// The most that any step takes.
    pub fn peak(&self) -> f64 {
        self.base.iter().zip(&self.own).map(|(b, o)| b + o).fold(0.0, f64::max)
    }
}
