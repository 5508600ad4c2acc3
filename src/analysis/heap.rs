//! Placing buffers in one address space: two best-fit heuristics, the better of which counts.
//!
//! Source: XLA's `ConstrainedGlobalDecreasingSizeBestFitHeap` (`service/heap_simulator/heap_simulator.cc`). Both take one group of intervals after
//! the other and put it into the smallest gap that is free over all its intervals, the lowest of equals, 256-aligned. "Spatial" takes the
//! largest first, then the longest; "temporal" the longest first, then the largest; ties go by the number of the value. The first to reach
//! the lower height wins; a draw goes to the first.
//!
//! Cost: O(n log n + overlaps), where an overlap is a pair of groups alive at once: a tree over start times with the latest end of each
//! subtree finds them.

/// A tick of the heap's own clock: each allocation and each release has one.
pub type Tick = u32;

/// Intervals that must lie at one offset; the first is the one that was allocated, the others share with it.
#[derive(Clone, Debug)]
pub struct Group {
    /// Start and end tick and bytes of each.
    pub intervals: Vec<(Tick, Tick, u64)>,
    /// Breaks ties.
    pub number: u32,
}

/// Where the groups lie.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Offset of each group.
    pub offsets: Vec<u64>,
    /// One past the last byte.
    pub height: u64,
}

/// Places the groups by both heuristics.
pub fn place(groups: &[Group], alignment: u64) -> Placement {
    let spatial = |g: &Group| {
        let (start, end, bytes) = g.intervals[0];
        (std::cmp::Reverse(bytes), std::cmp::Reverse(u64::from(end - start)), g.number)
    };
    let temporal = |g: &Group| {
        let (start, _, bytes) = g.intervals[0];
        let end = g.intervals.iter().map(|i| i.1).max().expect("a group has an interval");
        (std::cmp::Reverse(u64::from(end - start)), std::cmp::Reverse(bytes), g.number)
    };
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&g| spatial(&groups[g]));
    let first = place_in_order(groups, &order, alignment);
    order.sort_by_key(|&g| temporal(&groups[g]));
    let second = place_in_order(groups, &order, alignment);
    if second.height < first.height { second } else { first }
}

fn place_in_order(groups: &[Group], order: &[usize], alignment: u64) -> Placement {
    let mut tree = Tree::of(groups);
    let mut offsets = vec![0; groups.len()];
    let mut height = 0;
    let mut used: Vec<(u64, u64)> = Vec::new();
    for &g in order {
        let group = &groups[g];
        let bytes = group.intervals.iter().map(|i| i.2).max().expect("a group has an interval");
        used.clear();
        for &(start, end, _) in &group.intervals {
            tree.overlapping(start, end, &mut used);
        }
        let offset = best_gap(&mut used, bytes, alignment);
        offsets[g] = offset;
        for i in 0..group.intervals.len() {
            let end = offset + group.intervals[i].2;
            tree.add(g, i, offset, end);
            height = height.max(end);
        }
    }
    Placement { offsets, height }
}

/// The start of the smallest gap between used ranges that holds `bytes`.
fn best_gap(used: &mut [(u64, u64)], bytes: u64, alignment: u64) -> u64 {
    used.sort_unstable();
    let mut best: Option<(u64, u64)> = None;
    let mut free_from = 0;
    for &(start, end) in used.iter() {
        if start > free_from && start - free_from >= bytes && best.is_none_or(|(size, _)| start - free_from < size) {
            best = Some((start - free_from, free_from));
        }
        free_from = free_from.max(end.next_multiple_of(alignment));
    }
    best.map_or(free_from, |(_, offset)| offset)
}

/// Placed intervals, found by the ticks they cover.
struct Tree {
    /// Start ticks in order, a leaf each.
    starts: Vec<Tick>,
    /// Leaf of each interval of each group.
    leaves: Vec<Vec<u32>>,
    /// Offset and end of what lies at a leaf.
    chunks: Vec<(u64, u64)>,
    /// Latest end tick below each node; the leaves are the second half. Ticks count from 1 so that 0 means "nothing placed".
    latest: Vec<Tick>,
    ends: Vec<Tick>,
    width: usize,
}

impl Tree {
    fn of(groups: &[Group]) -> Self {
        let mut all: Vec<(Tick, usize, usize)> = groups
            .iter()
            .enumerate()
            .flat_map(|(g, group)| (0..group.intervals.len()).map(move |i| (group.intervals[i].0, g, i)))
            .collect();
        all.sort_unstable();
        let width = all.len().next_power_of_two().max(1);
        let mut leaves: Vec<Vec<u32>> = groups.iter().map(|g| vec![0; g.intervals.len()]).collect();
        let mut ends = vec![0; width];
        for (leaf, &(_, g, i)) in (0u32..).zip(&all) {
            leaves[g][i] = leaf;
            ends[leaf as usize] = groups[g].intervals[i].1 + 1;
        }
        Self { starts: all.iter().map(|a| a.0).collect(), leaves, chunks: vec![(0, 0); width], latest: vec![0; 2 * width], ends, width }
    }
    fn add(&mut self, group: usize, interval: usize, offset: u64, end: u64) {
        let leaf = self.leaves[group][interval] as usize;
        self.chunks[leaf] = (offset, end);
        let latest = self.ends[leaf];
        let mut node = leaf + self.width;
        while node > 0 && self.latest[node] < latest {
            self.latest[node] = latest;
            node /= 2;
        }
    }
    /// Appends the chunks placed at intervals that share a tick with `start..=end`.
    fn overlapping(&self, start: Tick, end: Tick, out: &mut Vec<(u64, u64)>) {
        let limit = self.starts.partition_point(|&s| s <= end);
        if limit == 0 {
            return;
        }
        // A node covers the leaves from its first one on; depth is the logarithm of the width, so the stack stays small.
        let mut stack = vec![(1usize, 0usize, self.width)];
        while let Some((node, first, width)) = stack.pop() {
            if self.latest[node] <= start || first >= limit {
                continue;
            }
            if width == 1 {
                out.push(self.chunks[first]);
                continue;
            }
            let half = width / 2;
            stack.push((2 * node + 1, first + half, half));
            stack.push((2 * node, first, half));
        }
    }
}
