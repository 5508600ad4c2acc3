//! What lies where while a program runs: which bytes hold values, so that those whose live range has ended can be poisoned, and the most that
//! was needed can be told.
//!
//! The host keeps it while it queues work, so it is about the program's order. Each access costs O(log intervals + intervals touched).

use std::collections::BTreeMap;

use super::program::Place;
use crate::interp::{ArenaKind, HighWater};

/// One arena's bytes that hold values, by first byte: one past the last, and the planned buffer. They do not overlap.
#[derive(Debug, Default)]
struct Side {
    held: BTreeMap<usize, (usize, u32)>,
    alive: usize,
    most_alive: usize,
    top: usize,
}

impl Side {
    /// Takes values off a range, of one buffer or of all; gives the bytes they had there.
    fn clear(&mut self, from: usize, to: usize, of: Option<u32>) -> Vec<(usize, usize)> {
        let before = self.held.range(..from).next_back().filter(|(_, h)| h.0 > from);
        let touched: Vec<(usize, (usize, u32))> =
            before.into_iter().chain(self.held.range(from..to)).map(|(&at, &held)| (at, held)).collect();
        let mut out = Vec::new();
        for (at, (end, buffer)) in touched.into_iter().filter(|t| of.is_none_or(|b| b == t.1.1)) {
            self.held.remove(&at);
            let (first, last) = (at.max(from), end.min(to));
            self.alive -= last - first;
            out.push((first, last));
            if at < from {
                self.held.insert(at, (from, buffer));
            }
            if end > to {
                self.held.insert(to, (end, buffer));
            }
        }
        out
    }
}

/// What both arenas hold.
#[derive(Debug, Default)]
pub struct Ledger {
    device: Side,
    host: Side,
}

impl Ledger {
    fn side(&mut self, arena: ArenaKind) -> &mut Side {
        match arena {
            ArenaKind::Device => &mut self.device,
            ArenaKind::Host => &mut self.host,
        }
    }

    /// A value of a planned buffer lies there now.
    pub fn written(&mut self, buffer: u32, place: Place) {
        if place.bytes == 0 {
            return;
        }
        let end = place.offset + place.bytes;
        let side = self.side(place.arena);
        side.clear(place.offset, end, None);
        side.held.insert(place.offset, (end, buffer));
        side.alive += place.bytes;
        side.most_alive = side.most_alive.max(side.alive);
        side.top = side.top.max(end);
    }

    /// A buffer's live range has ended: the bytes that still hold its own values.
    pub fn ended(&mut self, buffer: u32, planned: Place) -> Vec<Place> {
        let cleared = self.side(planned.arena).clear(planned.offset, planned.offset + planned.bytes, Some(buffer));
        cleared.into_iter().map(|(from, to)| Place { arena: planned.arena, offset: from, bytes: to - from }).collect()
    }

    /// What was needed so far.
    pub fn high_water(&self) -> HighWater {
        HighWater { device: self.device.top, host: self.host.top, device_alive: self.device.most_alive, host_alive: self.host.most_alive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: usize, bytes: usize) -> Place {
        Place { arena: ArenaKind::Device, offset, bytes }
    }

    #[test]
    fn only_a_buffers_own_bytes_die_with_it() {
        let mut ledger = Ledger::default();
        ledger.written(0, place(0, 16));
        ledger.written(1, place(8, 16));
        assert_eq!(ledger.high_water(), HighWater { device: 24, device_alive: 24, ..HighWater::default() });
        assert_eq!(ledger.ended(0, place(0, 16)), [place(0, 8)]);
        ledger.written(2, place(4, 4));
        assert_eq!(ledger.ended(1, place(8, 16)), [place(8, 16)]);
        assert_eq!(ledger.ended(1, place(8, 16)), []);
        assert_eq!(ledger.high_water(), HighWater { device: 24, device_alive: 24, ..HighWater::default() });
    }
}
