//! When the rows of one iteration cross the link.
//!
//! Each direction of the link serves one row at a time. A read must be there when the iteration first needs the row; a write can start when the row
//! is made. Either may cross into the neighbouring iteration: the read of the next iteration's row starts in this one, the write of the
//! last iteration's row ends in this one. No transfer spans the border between two iterations, and read and write of one stack never overlap.
//!
//! A few iterations are played with, at each position of the body and for each direction, the transfer that is due first (earliest
//! deadline first: Liu and Layland, "Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment", JACM 1973) among those that can
//! start and end before the border. What a stack's transfers do in the last of them is made the rule for all, and played again.
//! Costs O(positions · stacks).

use crate::units::Nanos;

/// The rows of one stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub read: Option<ReadWindow>,
    pub write: Option<WriteWindow>,
    /// What a row takes on the device.
    pub bytes: u64,
}

/// A read of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadWindow {
    pub time: Nanos,
    /// Where the row is needed first.
    pub first: usize,
    /// From here on nobody needs it.
    pub over: usize,
}

/// A write of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteWindow {
    pub time: Nanos,
    /// Where the instruction stands that makes the row.
    pub born: usize,
    /// From here on the row is there.
    pub made: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Read,
    Write,
}
const WAYS: [Way; 2] = [Way::Read, Way::Write];

/// Whether a transfer stays in the iteration whose row it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Within,
    Across,
    Free,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Before the instruction at this position of the body.
    pub position: usize,
    /// Which stack.
    pub item: usize,
    pub way: Way,
    /// Whether the transfer starts here; else it is waited for.
    pub starts: bool,
}

/// What a body does, in order.
#[derive(Clone, Debug)]
pub(super) struct Timetable {
    pub period: Nanos,
    pub events: Vec<Event>,
    /// For each stack whether its read is for the next iteration, and its write from the last one.
    pub across: Vec<[bool; 2]>,
}

/// Iterations that are played.
const PLAYED: i64 = 6;

/// The timetable of a body: `times` says when each position is reached if nobody waits for the link, and last when the body ends. The shortest period,
/// and among nearly equal ones the one with the fewest rows carried.
pub(super) fn timetable(times: &[Nanos], items: &[Item]) -> Timetable {
    let mut best: Option<(u64, Timetable)> = None;
    for (read, write) in [(Rule::Within, Rule::Within), (Rule::Within, Rule::Free), (Rule::Free, Rule::Within), (Rule::Free, Rule::Free)] {
        let free = play(times, items, &vec![[read, write]; items.len()]);
        let fixed: Vec<[Rule; 2]> = free.across.iter().map(|a| a.map(|across| if across { Rule::Across } else { Rule::Within })).collect();
        let table = play(times, items, &fixed);
        let carried = table.across.iter().zip(items).flat_map(|(a, i)| a.iter().filter(|&&x| x).map(|_| i.bytes)).sum();
        let better = best.as_ref().is_none_or(|(bytes, b)| {
            let (new, old) = (table.period.get(), b.period.get());
            new + old / NEARLY < old || new <= old && carried < *bytes
        });
        if better {
            best = Some((carried, table));
        }
    }
    best.map(|(_, table)| table).expect("there is one")
}

/// A period that is shorter by less than this part is not worth a carried row.
const NEARLY: u64 = 1000;

struct Player<'a> {
    times: &'a [Nanos],
    items: &'a [Item],
    rules: &'a [[Rule; 2]],
    now: Nanos,
    /// When each direction is free.
    free: [Nanos; 2],
    /// For each stack and way the iteration whose row goes next, and when the last one has ended.
    next: Vec<[i64; 2]>,
    end: Vec<[Nanos; 2]>,
    /// Whether a transfer has started in this iteration and is not waited for yet.
    open: Vec<[bool; 2]>,
    events: Vec<Event>,
    across: Vec<[bool; 2]>,
}

fn play(times: &[Nanos], items: &[Item], rules: &[[Rule; 2]]) -> Timetable {
    let first = |rule: Rule, way: Way| match (rule, way) {
        (Rule::Across, Way::Read) => 1,
        (Rule::Across, Way::Write) => -1,
        _ => 0,
    };
    let mut player = Player {
        times,
        items,
        rules,
        now: Nanos::ZERO,
        free: [Nanos::ZERO; 2],
        next: rules.iter().map(|r| [first(r[0], Way::Read), first(r[1], Way::Write)]).collect(),
        end: vec![[Nanos::ZERO; 2]; items.len()],
        open: vec![[false; 2]; items.len()],
        events: Vec::new(),
        across: vec![[false; 2]; items.len()],
    };
    let mut began = Nanos::ZERO;
    for iteration in 0..PLAYED {
        began = player.now;
        player.events.clear();
        player.iteration(iteration);
    }
    Timetable { period: player.now - began, events: player.events, across: player.across }
}

impl Player<'_> {
    fn time(&self, item: usize, way: Way) -> Option<Nanos> {
        match way {
            Way::Read => self.items[item].read.map(|r| r.time),
            Way::Write => self.items[item].write.map(|w| w.time),
        }
    }
    fn other(way: Way) -> Way {
        if way == Way::Read { Way::Write } else { Way::Read }
    }
    fn event(&mut self, position: usize, item: usize, way: Way, starts: bool) {
        self.events.push(Event { position, item, way, starts });
        self.open[item][way as usize] = starts;
    }

    fn start(&mut self, position: usize, item: usize, way: Way, iteration: i64) {
        if self.open[item][Self::other(way) as usize] {
            self.wait(position, item, Self::other(way));
        }
        let begin = self.now.max(self.free[way as usize]);
        let end = begin + self.time(item, way).unwrap_or_default();
        self.free[way as usize] = end;
        self.end[item][way as usize] = end;
        self.across[item][way as usize] = self.next[item][way as usize] != iteration;
        self.next[item][way as usize] += 1;
        self.event(position, item, way, true);
    }
    fn wait(&mut self, position: usize, item: usize, way: Way) {
        self.now = self.now.max(self.end[item][way as usize]);
        self.event(position, item, way, false);
    }

    fn iteration(&mut self, k: i64) {
        let last = self.times.len() - 1;
        for position in 1..=last {
            self.needed(position, k);
            if position < last {
                self.offer(position, k);
                self.now += self.times[position + 1] - self.times[position];
            }
        }
        for (item, way) in (0..self.items.len()).flat_map(|i| WAYS.map(|w| (i, w))) {
            if self.time(item, way).is_none() {
                continue;
            }
            // What must start in this iteration and has not.
            let due = match (way, self.rules[item][way as usize]) {
                (Way::Read, Rule::Across) => k + 1,
                (Way::Write, Rule::Within) => k,
                (Way::Write, Rule::Across | Rule::Free) => k - 1,
                (Way::Read, _) => i64::MIN,
            };
            if self.next[item][way as usize] <= due {
                self.start(last, item, way, k);
            }
        }
        for (item, way) in (0..self.items.len()).flat_map(|i| WAYS.map(|w| (i, w))) {
            if self.open[item][way as usize] {
                self.wait(last, item, way);
            }
        }
    }

    /// Waits for what the instruction at a position needs.
    fn needed(&mut self, position: usize, k: i64) {
        for item in 0..self.items.len() {
            let at = self.items[item];
            if at.read.is_some_and(|r| r.first == position) {
                if self.next[item][0] <= k {
                    self.start(position, item, Way::Read, k);
                }
                if self.open[item][0] && self.next[item][0] == k + 1 && !self.across[item][0] {
                    self.wait(position, item, Way::Read);
                }
            }
            // The row of the last iteration lies where the new one goes.
            if at.write.is_some_and(|w| w.born == position) {
                if self.next[item][1] < k && self.rules[item][1] != Rule::Within {
                    self.start(position, item, Way::Write, k);
                }
                if self.open[item][1] && self.across[item][1] {
                    self.wait(position, item, Way::Write);
                }
            }
        }
    }

    /// Starts what the link can take before the next position.
    fn offer(&mut self, position: usize, k: i64) {
        let last = self.times.len() - 1;
        let (next, end) =
            (self.now + (self.times[position + 1] - self.times[position]), self.now + (self.times[last] - self.times[position]));
        for way in WAYS {
            while self.free[way as usize] < next {
                let begin = self.now.max(self.free[way as usize]);
                let candidates = (0..self.items.len()).filter_map(|item| Some((self.due(item, way, position, k)?, item)));
                let fits = |&((due, _), item): &((i64, usize), usize)| {
                    due <= k && self.rules[item][way as usize] == Rule::Within || begin + self.time(item, way).unwrap_or_default() <= end
                };
                let Some((_, item)) = candidates.filter(fits).min() else { break };
                self.start(position, item, way, k);
            }
        }
    }

    /// By when the next transfer of a stack must have ended (iteration and position), if it can start.
    fn due(&self, item: usize, way: Way, position: usize, k: i64) -> Option<(i64, usize)> {
        let (at, rule) = (&self.items[item], self.rules[item][way as usize]);
        let next = self.next[item][way as usize];
        if self.open[item][way as usize]
            || self.open[item][Self::other(way) as usize] && self.end[item][Self::other(way) as usize] > self.now
        {
            return None;
        }
        match way {
            Way::Read => {
                let read = at.read?;
                let written = at.write.is_none() || self.next[item][1] >= k;
                let can = match rule {
                    Rule::Within => next == k && position < read.first,
                    Rule::Across => next == k + 1 && position >= read.over && written,
                    Rule::Free => next == k && position < read.first || next == k + 1 && position >= read.over && written,
                };
                can.then_some((next, read.first))
            }
            Way::Write => {
                let write = at.write?;
                let can = match rule {
                    Rule::Within => next == k && position >= write.made,
                    Rule::Across => next == k - 1 && position < write.born,
                    Rule::Free => next == k && position >= write.made || next == k - 1 && position < write.born,
                };
                let within = rule == Rule::Within;
                can.then_some(if within { (k, self.times.len()) } else { (next + 1, write.born) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(of: &[u64]) -> Vec<Nanos> {
        of.iter().map(|&t| Nanos(t * 1000)).collect()
    }
    fn state(time: u64, update: usize) -> Item {
        let time = Nanos(time * 1000);
        let read = ReadWindow { time, first: update, over: update + 1 };
        Item { read: Some(read), write: Some(WriteWindow { time, born: update, made: update + 1 }), bytes: 1 }
    }
    fn check(table: &Timetable, items: &[Item]) {
        for (n, item) in items.iter().enumerate() {
            for way in WAYS {
                let at = |starts| table.events.iter().filter(|e| (e.item, e.way, e.starts) == (n, way, starts)).count();
                let expected = usize::from(if way == Way::Read { item.read.is_some() } else { item.write.is_some() });
                assert_eq!((at(true), at(false)), (expected, expected), "{table:?}");
            }
        }
    }

    #[test]
    fn rows_with_time_to_spare_stay_in_their_iteration() {
        let items = [state(10, 5)];
        let table = timetable(&micros(&[0, 0, 10, 20, 30, 40, 50, 60, 70, 80]), &items);
        check(&table, &items);
        assert_eq!((table.period, table.across[0]), (Nanos(80_000), [false, false]));
    }

    #[test]
    fn a_row_made_late_is_written_in_the_next_iteration() {
        let items = [state(30, 7), state(30, 7)];
        let table = timetable(&micros(&[0, 0, 10, 20, 30, 40, 50, 60, 70, 80]), &items);
        check(&table, &items);
        assert_eq!(table.period, Nanos(80_000), "{table:?}");
        assert!(table.across.iter().any(|a| a[1]));
    }

    #[test]
    fn a_row_needed_early_is_read_in_the_iteration_before() {
        let read = ReadWindow { time: Nanos(30_000), first: 1, over: 3 };
        let items = [Item { read: Some(read), write: None, bytes: 1 }];
        let table = timetable(&micros(&[0, 0, 10, 20, 30, 40, 50, 60, 70, 80]), &items);
        check(&table, &items);
        assert_eq!((table.period, table.across[0]), (Nanos(80_000), [true, false]));
    }

    #[test]
    fn more_than_the_link_can_carry_is_no_slower_than_within_the_iteration() {
        let items = [state(60, 5), state(60, 6), state(60, 7)];
        let times = micros(&[0, 0, 10, 20, 30, 40, 50, 60, 70, 80]);
        let table = timetable(&times, &items);
        check(&table, &items);
        let within = play(&times, &items, &vec![[Rule::Within; 2]; items.len()]);
        assert!(table.period >= Nanos(180_000) && table.period <= within.period, "{table:?}");
    }
}
