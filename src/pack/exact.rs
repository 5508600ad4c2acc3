//! Searches all packings below a capacity that matter: branch and bound over the order in which buffers are put down, lowest place first.
//!
//! Source: Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023), whose
//! inferences these are: buffers are put down in ascending order of offset, ties in a fixed order (canonical solutions); none is put down
//! above the top of another that still fits below it (dominance); in every section of the clock the floor (the lowest offset that
//! anything unplaced in it can have) plus what is unplaced must fit (section inference); what falls into parts that share no section any
//! more is solved part by part. Three static orders take turns under growing node limits.

use super::Buffer;

/// How a search ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A packing was found.
    Found,
    /// There is none.
    None,
    /// The effort is used up.
    Limit,
}

const UNPLACED: u64 = u64::MAX;

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("buffers and sections are numbered by u32")
}

/// The state of a search. Buffers are numbered by `u32`; a section is the time between two neighbouring starts or ends.
pub(super) struct Search<'a> {
    buffers: &'a [Buffer],
    capacity: u64,
    /// First and one past the last section of each buffer.
    range: Vec<(usize, usize)>,
    /// Buffers of each section.
    sections: Vec<Vec<u32>>,
    overlaps: Vec<Vec<u32>>,
    offset: Vec<u64>,
    /// The lowest offset that what is placed leaves to each buffer.
    lowest: Vec<u64>,
    /// The lowest offset of anything unplaced, a section.
    floor: Vec<u64>,
    /// Bytes unplaced, a section.
    unplaced: Vec<u64>,
    /// Unplaced buffers that live on both sides of the border after a section.
    crossing: Vec<u32>,
    /// Sections whose floor may rise, and the stamp that says so once.
    stamp: Vec<u64>,
    stamps: u64,
    marked: Vec<u32>,
    effort: u64,
    limit: u64,
    /// What was changed: whether a floor, whose, and what stood there.
    trail: Vec<(bool, u32, u64)>,
    /// Ranks of the static order.
    key: Vec<u32>,
    way: u8,
}

impl<'a> Search<'a> {
    /// Nothing placed. Every buffer must have a life and a size.
    pub(super) fn new(buffers: &'a [Buffer], capacity: u64) -> Self {
        let mut times: Vec<u32> = buffers.iter().flat_map(|b| [b.lower, b.upper]).collect();
        times.sort_unstable();
        times.dedup();
        let place = |t: u32| times.partition_point(|&x| x < t);
        let range: Vec<(usize, usize)> = buffers.iter().map(|b| (place(b.lower), place(b.upper))).collect();
        let count = times.len().saturating_sub(1);
        let mut sections = vec![Vec::new(); count];
        let mut unplaced = vec![0; count];
        let mut crossing = vec![0; count];
        for (b, &(from, to)) in range.iter().enumerate() {
            for s in from..to {
                sections[s].push(number(b));
                unplaced[s] += buffers[b].size;
                if s + 1 < to {
                    crossing[s] += 1;
                }
            }
        }
        let overlaps = (0..buffers.len())
            .map(|b| {
                let meets = |o: &u32| *o as usize != b && range[*o as usize].0 < range[b].1 && range[b].0 < range[*o as usize].1;
                (0..number(buffers.len())).filter(meets).collect()
            })
            .collect();
        let n = buffers.len();
        Self {
            buffers,
            capacity,
            range,
            sections,
            overlaps,
            offset: vec![UNPLACED; n],
            lowest: vec![0; n],
            floor: vec![0; count],
            unplaced,
            crossing,
            stamp: vec![0; count],
            stamps: 0,
            marked: Vec::new(),
            effort: 0,
            limit: 0,
            trail: Vec::new(),
            key: vec![0; n],
            way: 0,
        }
    }

    /// Searches with that much effort; offsets if there is a packing.
    pub(super) fn run(&mut self, limit: u64) -> (End, Vec<u64>) {
        let n = self.buffers.len();
        let order: Vec<u32> = (0u32..).take(n).collect();
        let mut quota = 16 * (n * n) as u64;
        while self.effort < limit {
            quota *= 2;
            for way in 0..3 {
                self.way = way;
                self.limit = self.effort.saturating_add(quota);
                let mut solution = vec![0; n];
                let end = self.part(&order, (0, self.sections.len()), &mut solution);
                if end != End::Limit {
                    return (end, solution);
                }
            }
        }
        (End::Limit, Vec::new())
    }

    /// What is placed first at equal offsets: the longest, or what lives where most is unplaced.
    fn rank(&self, b: usize) -> (u128, u128, u128) {
        let length = u128::from(self.buffers[b].upper - self.buffers[b].lower);
        let area = length * u128::from(self.buffers[b].size);
        let total = u128::from((self.range[b].0..self.range[b].1).map(|s| self.unplaced[s]).max().unwrap_or(0));
        match self.way {
            0 => (length, area, total),
            1 => (total, area, length),
            _ => (total, length, area),
        }
    }

    /// Solves the unplaced buffers of a range of sections by themselves.
    fn part(&mut self, members: &[u32], range: (usize, usize), solution: &mut [u64]) -> End {
        let mut start = range.0;
        let mut parts = Vec::new();
        for s in range.0..range.1 {
            if s + 1 == range.1 || self.crossing[s] == 0 {
                parts.push((start, s + 1));
                start = s + 1;
            }
        }
        for part in parts {
            let inside: Vec<u32> = members
                .iter()
                .copied()
                .filter(|&b| {
                    self.offset[b as usize] == UNPLACED && self.range[b as usize].0 >= part.0 && self.range[b as usize].1 <= part.1
                })
                .collect();
            if inside.is_empty() {
                continue;
            }
            let mut sorted = inside.clone();
            let old: Vec<u32> = inside.iter().map(|&b| self.key[b as usize]).collect();
            sorted.sort_by_cached_key(|&b| (std::cmp::Reverse(self.rank(b as usize)), b));
            for (rank, &b) in (0..).zip(&sorted) {
                self.key[b as usize] = rank;
            }
            let end = self.search(&sorted, part, (0, 0), solution);
            for (&b, &key) in inside.iter().zip(&old) {
                self.key[b as usize] = key;
            }
            if end != End::Found {
                return end;
            }
        }
        End::Found
    }

    /// Puts one unplaced buffer of `members` (in their static order) down after the other, none lower than the last.
    fn search(&mut self, members: &[u32], range: (usize, usize), last: (u64, u32), solution: &mut [u64]) -> End {
        if self.effort >= self.limit {
            return End::Limit;
        }
        self.effort += (members.len() + range.1 - range.0) as u64;
        let mut order: Vec<(u64, u32, u32)> = members
            .iter()
            .filter(|&&b| self.offset[b as usize] == UNPLACED)
            .map(|&b| (self.lowest[b as usize], self.key[b as usize], b))
            .collect();
        if order.is_empty() {
            return End::Found;
        }
        order.sort_unstable();
        let rest: Vec<u32> = order.iter().map(|o| o.2).collect();
        let lid = order.iter().map(|&(at, _, b)| at + self.buffers[b as usize].size).min().unwrap_or(0);
        let fullest = self.unplaced[range.0..range.1].iter().copied().max().unwrap_or(0);
        for (at, key, b) in order {
            if (at, key) < last {
                continue;
            }
            // What follows lies no lower, so all that is unplaced would lie from here up.
            if at >= lid || at + fullest > self.capacity {
                break;
            }
            let mark = self.trail.len();
            let fits = self.put(b, at);
            let mut end = End::None;
            if fits {
                solution[b as usize] = at;
                let (from, to) = self.range[b as usize];
                let mut split = false;
                for s in from..to - 1 {
                    self.crossing[s] -= 1;
                    split |= self.crossing[s] == 0;
                }
                end = if split { self.part(&rest, range, solution) } else { self.search(&rest, range, (at, key), solution) };
                for s in from..to - 1 {
                    self.crossing[s] += 1;
                }
            }
            // With nobody left above it, another choice could not have gone better.
            let hat = self.overlaps[b as usize].iter().any(|&o| self.offset[o as usize] == UNPLACED);
            self.take_back(b, mark);
            if end != End::None || (fits && !hat) {
                return end;
            }
        }
        End::None
    }

    /// Puts a buffer down, if all sections may still fit; else changes nothing that `take_back` does not undo.
    fn put(&mut self, b: u32, at: u64) -> bool {
        let buffers = self.buffers;
        let size = buffers[b as usize].size;
        let top = at + size;
        let (from, to) = self.range[b as usize];
        let fits = top <= self.capacity && self.unplaced[from..to].iter().all(|&rest| top + rest - size <= self.capacity);
        self.offset[b as usize] = at;
        for s in from..to {
            self.unplaced[s] -= size;
        }
        if !fits {
            return false;
        }
        self.effort += self.overlaps[b as usize].len() as u64;
        self.marked.clear();
        self.stamps += 1;
        for s in from..to {
            self.trail.push((true, number(s), self.floor[s]));
            self.floor[s] = top;
            self.stamp[s] = self.stamps;
            self.marked.push(number(s));
        }
        for n in 0..self.overlaps[b as usize].len() {
            let other = self.overlaps[b as usize][n];
            let o = other as usize;
            let old = self.lowest[o];
            if self.offset[o] != UNPLACED || old >= top {
                continue;
            }
            if top + buffers[o].size > self.capacity {
                return false;
            }
            self.trail.push((false, other, old));
            self.lowest[o] = top;
            for s in self.range[o].0..self.range[o].1 {
                // A floor rises only with what lies on it.
                if old <= self.floor[s] && self.stamp[s] != self.stamps {
                    self.stamp[s] = self.stamps;
                    self.marked.push(number(s));
                }
            }
        }
        for n in 0..self.marked.len() {
            let s = self.marked[n] as usize;
            self.effort += self.sections[s].len() as u64;
            let unplaced = self.sections[s].iter().filter(|&&o| self.offset[o as usize] == UNPLACED);
            let Some(lowest) = unplaced.map(|&o| self.lowest[o as usize]).min() else { continue };
            if lowest > self.floor[s] {
                self.trail.push((true, number(s), self.floor[s]));
                self.floor[s] = lowest;
            }
            if self.floor[s] + self.unplaced[s] > self.capacity {
                return false;
            }
        }
        true
    }

    /// Undoes a `put` and all changes since the mark.
    fn take_back(&mut self, b: u32, mark: usize) {
        while self.trail.len() > mark {
            match self.trail.pop() {
                Some((true, place, old)) => self.floor[place as usize] = old,
                Some((false, place, old)) => self.lowest[place as usize] = old,
                None => break,
            }
        }
        let (from, to) = self.range[b as usize];
        for s in from..to {
            self.unplaced[s] += self.buffers[b as usize].size;
        }
        self.offset[b as usize] = UNPLACED;
    }
}
