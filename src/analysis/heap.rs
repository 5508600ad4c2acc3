//! Placing buffers in one address space: two best-fit heuristics, the better of which counts.
//!
//! Source: XLA's `ConstrainedGlobalDecreasingSizeBestFitHeap` (`service/heap_simulator/heap_simulator.cc`). Both take one group of intervals after
//! the other and put it into the smallest gap that is free over all its intervals, the lowest of equals, 256-aligned. "Spatial" takes the
//! largest first, then the longest; "temporal" the longest first, then the largest; ties go by the number of the value. The first to reach
//! the lower height wins; a draw goes to the first.
//!
//! Cost: about n^1.5, and small: the clock is cut into √n blocks, each of which keeps the union of what covers it and of what lies in it, and the intervals
//! that start or end in it. Packings are tight, so that unions are short even where thousands of buffers are alive at once; to list the
//! overlapping buffers instead, as XLA does, is quadratic there.

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
    let first = place_in_order(groups, &order, alignment, u64::MAX).unwrap_or_default();
    order.sort_by_key(|&g| temporal(&groups[g]));
    // It counts only if it stays lower, so it need not go on where it does not.
    place_in_order(groups, &order, alignment, first.height).unwrap_or(first)
}

/// `None` as soon as the height reaches `limit`.
fn place_in_order(groups: &[Group], order: &[usize], alignment: u64, limit: u64) -> Option<Placement> {
    let ticks = groups.iter().flat_map(|g| &g.intervals).map(|i| i.1 as usize + 1).max().unwrap_or(0);
    let mut blocks = Blocks::new(ticks, groups.iter().map(|g| g.intervals.len()).sum());
    let mut offsets = vec![0; groups.len()];
    let mut height = 0;
    let mut gaps = Gaps::default();
    for &g in order {
        let group = &groups[g];
        gaps.reset(group.intervals.iter().map(|i| i.2).max().expect("a group has an interval"));
        for &(start, end, _) in &group.intervals {
            blocks.take_used(start as usize, end as usize, &mut gaps);
        }
        let offset = gaps.best();
        offsets[g] = offset;
        for &(start, end, bytes) in &group.intervals {
            height = height.max(offset + bytes);
            blocks.add(start as usize, end as usize, (offset, (offset + bytes).next_multiple_of(alignment)));
        }
        if height >= limit {
            return None;
        }
    }
    (height < limit).then_some(Placement { offsets, height })
}

/// Free ranges of at least `bytes`, in order; the last has no end. Long before all used ranges are taken out, few gaps are left, and each
/// further list costs a search a gap.
#[derive(Default)]
struct Gaps {
    bytes: u64,
    free: Union,
    next: Union,
}

impl Gaps {
    fn reset(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.free.clear();
        self.free.push((0, u64::MAX));
    }
    /// Takes used ranges out.
    fn take(&mut self, used: &[(u64, u64)]) {
        let mut at = 0;
        for &(mut start, end) in &self.free {
            at += used[at..].partition_point(|r| r.1 <= start);
            while let Some(&(from, to)) = used.get(at).filter(|r| r.0 < end) {
                if from > start && from - start >= self.bytes {
                    self.next.push((start, from));
                }
                start = start.max(to);
                if to >= end {
                    break;
                }
                at += 1;
            }
            if start < end && end - start >= self.bytes {
                self.next.push((start, end));
            }
        }
        std::mem::swap(&mut self.free, &mut self.next);
        self.next.clear();
    }
    /// The start of the smallest gap, the lowest of equals.
    fn best(&self) -> u64 {
        self.free.iter().min_by_key(|(start, end)| end - start).expect("the last gap has no end").0
    }
}

/// Disjoint ranges in order, none touching the next.
type Union = Vec<(u64, u64)>;

/// A placed interval.
#[derive(Clone, Copy)]
struct Chunk {
    range: (u64, u64),
    start: usize,
    end: usize,
}

/// Blocks that one wide block spans.
const WIDE: usize = 16;

/// The clock cut into equal blocks.
struct Blocks {
    /// Ticks in a block.
    width: usize,
    /// What covers a block.
    covering: Vec<Union>,
    /// What lies somewhere in a block.
    somewhere: Vec<Union>,
    /// What lies somewhere in [`WIDE`] blocks.
    wide: Vec<Union>,
    /// What lies in a part of a block, by offset.
    partial: Vec<Vec<Chunk>>,
}

impl Blocks {
    /// `chunks` is how many will be placed: the more blocks, the dearer to add a long interval and the cheaper to look at a short one.
    fn new(ticks: usize, chunks: usize) -> Self {
        let count = (chunks.isqrt() * 2 / 3).clamp(1, ticks.max(1));
        let width = ticks.div_ceil(count).max(1);
        let unions = |n: usize| vec![Vec::new(); n];
        Self {
            width,
            covering: unions(count),
            somewhere: unions(count),
            wide: unions(count.div_ceil(WIDE)),
            partial: vec![Vec::new(); count],
        }
    }
    fn covers(&self, block: usize, start: usize, end: usize) -> bool {
        start <= block * self.width && (block + 1) * self.width <= end + 1
    }
    fn add(&mut self, start: usize, end: usize, range: (u64, u64)) {
        for block in start / self.width..=end / self.width {
            insert(&mut self.somewhere[block], range);
            if self.covers(block, start, end) {
                insert(&mut self.covering[block], range);
            } else {
                let partial = &mut self.partial[block];
                let at = partial.partition_point(|c| c.range < range);
                partial.insert(at, Chunk { range, start, end });
            }
        }
        for wide in start / self.width / WIDE..=end / self.width / WIDE {
            insert(&mut self.wide[wide], range);
        }
    }
    /// Takes what is used at some tick of `start..=end` out of the gaps; what covers most first.
    fn take_used(&self, start: usize, end: usize, gaps: &mut Gaps) {
        let (first, last) = (start / self.width, end / self.width);
        let wide = |block: usize| block.is_multiple_of(WIDE) && self.covers(block, start, end) && block + WIDE <= last;
        let mut block = first;
        while block <= last {
            if wide(block) {
                gaps.take(&self.wide[block / WIDE]);
            }
            block = (block / WIDE + 1) * WIDE;
        }
        block = first;
        while block <= last {
            if wide(block) {
                block += WIDE;
                continue;
            }
            if self.covers(block, start, end) {
                gaps.take(&self.somewhere[block]);
            } else {
                gaps.take(&self.covering[block]);
                let mut union = Union::new();
                for chunk in self.partial[block].iter().filter(|c| c.start <= end && start <= c.end) {
                    match union.last_mut() {
                        Some(last) if chunk.range.0 <= last.1 => last.1 = last.1.max(chunk.range.1),
                        _ => union.push(chunk.range),
                    }
                }
                gaps.take(&union);
            }
            block += 1;
        }
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
