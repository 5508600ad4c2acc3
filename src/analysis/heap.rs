//! Placing buffers in one address space: two best-fit heuristics, the better of which counts.
//!
//! Source: XLA's `ConstrainedGlobalDecreasingSizeBestFitHeap` (`service/heap_simulator/heap_simulator.cc`). Both take one group of intervals after
//! the other and put it into the smallest gap that is free over all its intervals, the lowest of equals, 256-aligned. "Spatial" takes the
//! largest first, then the longest; "temporal" the longest first, then the largest; ties go by the number of the value. The first to reach
//! the lower height wins; a draw goes to the first.
//!
//! Cost: O(n log n) times the number of separate used ranges met: a segment tree over ticks keeps, for each node, the union of what lies anywhere in its span and the
//! union of what covers all of it, so a query reads O(log n) unions. Packings are tight, so that unions are short, even where thousands of buffers are alive at
//! once; listing the overlapping buffers instead, as XLA does, is quadratic there.

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
    let ticks = groups.iter().flat_map(|g| &g.intervals).map(|i| i.1 as usize + 1).max().unwrap_or(0);
    let mut tree = Tree::new(ticks);
    let mut offsets = vec![0; groups.len()];
    let mut height = 0;
    let mut used: Vec<(u64, u64)> = Vec::new();
    for &g in order {
        let group = &groups[g];
        let bytes = group.intervals.iter().map(|i| i.2).max().expect("a group has an interval");
        used.clear();
        for &(start, end, _) in &group.intervals {
            tree.used(start as usize, end as usize, &mut used);
        }
        let offset = best_gap(&mut used, bytes);
        offsets[g] = offset;
        for &(start, end, bytes) in &group.intervals {
            height = height.max(offset + bytes);
            tree.add(start as usize, end as usize, (offset, (offset + bytes).next_multiple_of(alignment)));
        }
    }
    Placement { offsets, height }
}

/// The start of the smallest gap between used ranges that holds `bytes`, the lowest of equals; above everything if there is none.
fn best_gap(used: &mut [(u64, u64)], bytes: u64) -> u64 {
    used.sort_unstable();
    let mut best: Option<(u64, u64)> = None;
    let mut free_from = 0;
    for &(start, end) in used.iter() {
        if start > free_from && start - free_from >= bytes && best.is_none_or(|(size, _)| start - free_from < size) {
            best = Some((start - free_from, free_from));
        }
        free_from = free_from.max(end);
    }
    best.map_or(free_from, |(_, offset)| offset)
}

/// Disjoint ranges in order, none touching the next.
type Union = Vec<(u64, u64)>;

/// A segment tree over ticks: node 1 spans all, node `n` has the halves `2n` and `2n + 1`.
struct Tree {
    width: usize,
    /// What lies somewhere in the span of a node, without what covers a node above it.
    somewhere: Vec<Union>,
    /// What covers the span of a node and not that of its parent.
    covering: Vec<Union>,
}

impl Tree {
    fn new(ticks: usize) -> Self {
        let width = ticks.next_power_of_two().max(1);
        Self { width, somewhere: vec![Vec::new(); 2 * width], covering: vec![Vec::new(); 2 * width] }
    }
    /// Visits the nodes that `start..=end` touches, down to those that it covers. The depth is the logarithm of the width.
    fn visit(width: usize, start: usize, end: usize, mut f: impl FnMut(usize, bool)) {
        let mut stack = vec![(1usize, 0usize, width)];
        while let Some((node, first, width)) = stack.pop() {
            if end < first || start >= first + width {
                continue;
            }
            let covered = start <= first && first + width <= end + 1;
            f(node, covered);
            if !covered {
                stack.push((2 * node + 1, first + width / 2, width / 2));
                stack.push((2 * node, first, width / 2));
            }
        }
    }
    fn add(&mut self, start: usize, end: usize, range: (u64, u64)) {
        let (somewhere, covering) = (&mut self.somewhere, &mut self.covering);
        Self::visit(self.width, start, end, |node, covered| {
            insert(&mut somewhere[node], range);
            if covered {
                insert(&mut covering[node], range);
            }
        });
    }
    /// Appends the ranges that are used at some tick of `start..=end`.
    fn used(&self, start: usize, end: usize, out: &mut Union) {
        Self::visit(self.width, start, end, |node, covered| {
            out.extend(if covered { &self.somewhere[node] } else { &self.covering[node] });
        });
    }
}

/// Unites a range with others.
fn insert(union: &mut Union, (mut start, mut end): (u64, u64)) {
    let from = union.partition_point(|r| r.1 < start);
    let to = from + union[from..].partition_point(|r| r.0 <= end);
    if from == to {
        union.insert(from, (start, end));
        return;
    }
    start = start.min(union[from].0);
    end = end.max(union[to - 1].1);
    union[from] = (start, end);
    union.drain(from + 1..to);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(number: u32, start: Tick, end: Tick, bytes: u64) -> Group {
        Group { intervals: vec![(start, end, bytes)], number }
    }

    #[test]
    fn the_smallest_gap_wins() {
        // Big and middle lie below and above a gap of 256; the small one fits there once its neighbours are placed.
        let groups = [group(0, 0, 9, 1024), group(1, 0, 4, 512), group(2, 5, 9, 256), group(3, 0, 9, 256)];
        let placed = place(&groups, 256);
        assert_eq!((placed.offsets, placed.height), (vec![0, 1024, 1024, 1536], 1792));
    }

    #[test]
    fn a_group_needs_room_over_all_its_intervals() {
        let shared = Group { intervals: vec![(0, 1, 256), (8, 9, 256)], number: 1 };
        let placed = place(&[group(0, 8, 9, 512), shared, group(2, 2, 3, 256)], 256);
        assert_eq!((placed.offsets, placed.height), (vec![0, 512, 0], 768));
    }

    #[test]
    fn nothing_overlaps_in_space_and_time() {
        // A judge by brute force over pseudo-random intervals.
        let mut seed = 1u64;
        let mut next = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        let groups: Vec<Group> = (0..300)
            .map(|number| {
                let start = u32::try_from(next(1000)).unwrap();
                group(number, start, start + u32::try_from(next(80)).unwrap(), 1 + next(5000))
            })
            .collect();
        let placed = place(&groups, 256);
        for (i, a) in groups.iter().enumerate() {
            for (j, b) in groups.iter().enumerate().skip(i + 1) {
                let ((s, e, n), (t, f, m)) = (a.intervals[0], b.intervals[0]);
                let apart = placed.offsets[i] + n <= placed.offsets[j] || placed.offsets[j] + m <= placed.offsets[i];
                assert!(e < t || f < s || apart, "{i} and {j} overlap");
            }
        }
    }
}
