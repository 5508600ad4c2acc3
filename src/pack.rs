//! Packing buffers with known lives into one address space (dynamic storage allocation, offline): an offset for each buffer so that no
//! two that live at once overlap, and the arena stays low.
//!
//! [`pack`] first places buffers one after the other in several orders and lets the order learn from what comes to lie too high
//! ([`firstfit`]), then searches ([`exact`]). Both work by counted effort, never by a clock, so that equal input gives equal offsets.
//! [`csv`] reads and writes the table that MiniMalloc's benchmarks use; [`check`] shares nothing with either.

mod csv;
mod exact;
mod firstfit;

pub use csv::{Table, parse, write};

/// A buffer: it takes `size` bytes in the half-open time `lower..upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The first instant at which it lives.
    pub lower: u32,
    /// The first instant after its life.
    pub upper: u32,
    /// Its size in bytes.
    pub size: u64,
}

/// Where the buffers lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// The offset of each buffer.
    pub offsets: Vec<u64>,
    /// One past the last byte.
    pub height: u64,
    /// The most bytes alive at one instant: no packing is lower.
    pub load: u64,
    /// Whether all packings of at most the height that was asked for were excluded.
    pub proved: bool,
}

/// Effort in elementary steps of a packing, about a nanosecond each: for placing in order, and for each search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Buffers looked at while placing in order.
    pub orders: u64,
    /// Buffers and sections looked at while searching.
    pub search: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { orders: 600_000_000, search: 6_000_000_000 }
    }
}

/// Placings in order, an order; later ones seldom gain.
const ROUNDS: u32 = 50;
/// More buffers than this are not searched: the lists of overlapping buffers are quadratic.
const SEARCHED: usize = 2500;

/// Packs. With a capacity the first packing that fits ends the work; without one the load is aimed at, and if it cannot be reached within
/// the limits, the lowest packing found counts. A buffer without life or size lies at 0.
pub fn pack(buffers: &[Buffer], capacity: Option<u64>, limits: Limits) -> Packing {
    let kept: Vec<usize> = (0..buffers.len()).filter(|&n| takes_room(&buffers[n])).collect();
    let packed: Vec<Buffer> = kept.iter().map(|&n| buffers[n]).collect();
    let found = pack_all(&packed, capacity, limits);
    let mut offsets = vec![0; buffers.len()];
    for (&n, &offset) in kept.iter().zip(&found.offsets) {
        offsets[n] = offset;
    }
    Packing { offsets, ..found }
}

fn takes_room(b: &Buffer) -> bool {
    b.size > 0 && b.lower < b.upper
}

fn pack_all(buffers: &[Buffer], capacity: Option<u64>, limits: Limits) -> Packing {
    let load = load(buffers);
    let goal = capacity.unwrap_or(load);
    let mut best = Packing { offsets: vec![0; buffers.len()], height: u64::MAX, load, proved: goal < load };
    place_in_orders(buffers, goal.max(load), limits, &mut best);
    if best.height <= goal || best.proved || buffers.len() > SEARCHED {
        return best;
    }
    // The search is as deep as there are buffers.
    let deep = std::thread::Builder::new().stack_size(64 << 20);
    let (mut searched, untouched) = (best.clone(), best);
    std::thread::scope(|scope| {
        let work = move || {
            search(buffers, goal, capacity.is_none(), limits, &mut searched);
            searched
        };
        deep.spawn_scoped(scope, work).ok().and_then(|handle| handle.join().ok()).unwrap_or(untouched)
    })
}

/// Searches at the goal, then, if asked, halves the way to the goal as long as that succeeds.
fn search(buffers: &[Buffer], goal: u64, nearest: bool, limits: Limits, best: &mut Packing) {
    let attempt = |target: u64, effort: u64, best: &mut Packing| {
        let (end, offsets) = exact::Search::new(buffers, target).run(effort);
        if end == exact::End::Found {
            best.height = height(buffers, &offsets);
            best.offsets = offsets;
        }
        end
    };
    let end = attempt(goal, limits.search, best);
    best.proved = end == exact::End::None;
    let mut low = goal;
    for _ in 0..6 {
        if !nearest || end == exact::End::Found || best.height <= low + 1 {
            break;
        }
        let middle = low + (best.height - low) / 2;
        if attempt(middle, limits.search / 20, best) != exact::End::Found {
            low = middle;
        }
    }
}

/// The orders in which buffers are placed one after the other, each learning in turn, until the goal or the limit is reached.
fn place_in_orders(buffers: &[Buffer], goal: u64, limits: Limits, best: &mut Packing) {
    let life = |b: &Buffer| u64::from(b.upper.saturating_sub(b.lower));
    let busiest = busiest(buffers);
    let key = |way: usize, n: usize| -> (u128, u128) {
        let b = &buffers[n];
        match way {
            0 => (busiest[n].into(), b.size.into()),
            1 => (b.size.into(), life(b).into()),
            2 => (life(b).into(), b.size.into()),
            _ => (u128::from(u32::MAX - b.lower), b.size.into()),
        }
    };
    for way in 0..4 {
        let mut order: Vec<u32> = (0u32..).take(buffers.len()).collect();
        order.sort_by_key(|&b| std::cmp::Reverse(key(way, b as usize)));
        let (mut effort, mut rounds) = (0, 0);
        while effort < limits.orders / 4 && rounds < ROUNDS {
            rounds += 1;
            let (offsets, height) = firstfit::in_order(buffers, &order, &mut effort);
            if height < best.height {
                best.height = height;
                best.offsets.clone_from(&offsets);
            }
            if best.height <= goal {
                return;
            }
            firstfit::learn(buffers, &offsets, goal, &mut order);
        }
    }
}

/// The most bytes alive at one instant.
pub fn load(buffers: &[Buffer]) -> u64 {
    let mut events: Vec<(u32, bool, u64)> =
        buffers.iter().filter(|b| b.lower < b.upper).flat_map(|b| [(b.lower, true, b.size), (b.upper, false, b.size)]).collect();
    // Ends come before starts.
    events.sort_unstable();
    let (mut now, mut most) = (0u64, 0);
    for (_, start, size) in events {
        now = if start { now.saturating_add(size) } else { now - size };
        most = most.max(now);
    }
    most
}

/// For each buffer, the most bytes alive at an instant of its life.
fn busiest(buffers: &[Buffer]) -> Vec<u64> {
    let mut times: Vec<u32> = buffers.iter().flat_map(|b| [b.lower, b.upper]).collect();
    times.sort_unstable();
    times.dedup();
    let place = |t: u32| times.partition_point(|&x| x < t);
    let mut change = vec![0i128; times.len() + 1];
    for b in buffers.iter().filter(|b| b.lower < b.upper) {
        change[place(b.lower)] += i128::from(b.size);
        change[place(b.upper)] -= i128::from(b.size);
    }
    let mut now = 0i128;
    let total = change.iter().map(|c| {
        now += c;
        u64::try_from(now).unwrap_or(0)
    });
    // Maxima of ranges by doubling.
    let mut table = vec![total.collect::<Vec<u64>>()];
    while 1 << table.len() <= times.len() {
        let (last, half) = (&table[table.len() - 1], 1 << (table.len() - 1));
        let next = (0..last.len()).map(|n| last[n].max(last.get(n + half).copied().unwrap_or(0))).collect();
        table.push(next);
    }
    let most = |b: &Buffer| {
        let (from, to) = (place(b.lower), place(b.upper));
        if from >= to {
            return 0;
        }
        let level = (to - from).ilog2() as usize;
        table[level][from].max(table[level][to - (1 << level)])
    };
    buffers.iter().map(most).collect()
}

fn height(buffers: &[Buffer], offsets: &[u64]) -> u64 {
    buffers.iter().zip(offsets).map(|(b, o)| o + b.size).max().unwrap_or(0)
}

/// Compares every pair: the two numbers of the first buffers that live at once and overlap. Quadratic.
pub fn check(buffers: &[Buffer], offsets: &[u64]) -> Option<(usize, usize)> {
    (0..buffers.len()).find_map(|i| {
        let meets = |&j: &usize| {
            let (a, b) = (&buffers[i], &buffers[j]);
            let room = takes_room(a) && takes_room(b);
            let (at, other) = (offsets[i], offsets[j]);
            room && a.lower < b.upper && b.lower < a.upper && at < other + b.size && other < at + a.size
        };
        (0..i).find(meets).map(|j| (j, i))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buffer() -> impl Strategy<Value = Buffer> {
        (0u32..12, 1u32..6, 1u64..9).prop_map(|(lower, life, size)| Buffer { lower, upper: lower + life, size })
    }

    /// The lowest packing, by trying every offset for every buffer.
    fn brute(buffers: &[Buffer], offsets: &mut Vec<u64>, capacity: u64) -> bool {
        if offsets.len() == buffers.len() {
            return true;
        }
        let size = buffers[offsets.len()].size;
        (0..=capacity.saturating_sub(size)).any(|at| {
            offsets.push(at);
            let fits = at + size <= capacity && check(&buffers[..offsets.len()], offsets).is_none() && brute(buffers, offsets, capacity);
            offsets.pop();
            fits
        })
    }

    proptest! {
        #[test]
        fn a_packing_is_valid_and_lowest(buffers in prop::collection::vec(buffer(), 0..8)) {
            let found = pack(&buffers, None, Limits::default());
            prop_assert_eq!(check(&buffers, &found.offsets), None);
            prop_assert!(found.height >= found.load || buffers.is_empty());
            if found.height > found.load {
                prop_assert!(found.proved);
                prop_assert!(!brute(&buffers, &mut Vec::new(), found.load));
            }
            prop_assert_eq!(pack(&buffers, None, Limits::default()), found);
        }

        #[test]
        fn the_search_excludes_only_what_cannot_be(buffers in prop::collection::vec(buffer(), 1..7)) {
            let load = load(&buffers);
            for capacity in load..load + 3 {
                let (end, offsets) = exact::Search::new(&buffers, capacity).run(u64::MAX);
                let possible = brute(&buffers, &mut Vec::new(), capacity);
                prop_assert_eq!(end == exact::End::Found, possible);
                if possible {
                    prop_assert_eq!(check(&buffers, &offsets), None);
                    prop_assert!(height(&buffers, &offsets) <= capacity);
                }
            }
        }
    }
}
