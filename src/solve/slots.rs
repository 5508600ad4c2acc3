//! Time on one link: which stretches are taken, and where a copy still fits.

use crate::units::Nanos;

/// Reserved stretches of one link, disjoint and ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    taken: Vec<(Nanos, Nanos)>,
}

impl Slots {
    /// The first stretch of that length that begins at `ready` or later. Costs O(reservations).
    pub(super) fn earliest(&self, ready: Nanos, length: Nanos) -> Nanos {
        let mut begin = ready;
        for &(from, to) in &self.taken[self.taken.partition_point(|&(_, to)| to <= ready)..] {
            if begin + length <= from {
                break;
            }
            begin = begin.max(to);
        }
        begin
    }

    /// The last stretch of that length that ends by `deadline` and begins at `ready` or later.
    pub(super) fn latest(&self, ready: Nanos, deadline: Nanos, length: Nanos) -> Option<Nanos> {
        let mut end = deadline;
        for &(from, to) in self.taken[..self.taken.partition_point(|&(from, _)| from < deadline)].iter().rev() {
            if to + length <= end {
                break;
            }
            end = end.min(from);
        }
        end.checked_sub(length).filter(|&begin| begin >= ready)
    }

    /// Takes a stretch that one of the above has found.
    pub(super) fn reserve(&mut self, begin: Nanos, length: Nanos) {
        if !length.is_zero() {
            let at = self.taken.partition_point(|&(from, _)| from < begin);
            self.taken.insert(at, (begin, begin + length));
        }
    }

    /// Gives a stretch back.
    pub(super) fn release(&mut self, begin: Nanos) {
        if let Ok(at) = self.taken.binary_search_by_key(&begin, |&(from, _)| from) {
            self.taken.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_fit_between_others() {
        let mut slots = Slots::default();
        slots.reserve(Nanos(10), Nanos(10));
        slots.reserve(Nanos(30), Nanos(10));
        assert_eq!(slots.earliest(Nanos(0), Nanos(10)), Nanos(0));
        assert_eq!(slots.earliest(Nanos(5), Nanos(10)), Nanos(20));
        assert_eq!(slots.earliest(Nanos(5), Nanos(11)), Nanos(40));
        assert_eq!(slots.latest(Nanos(0), Nanos(35), Nanos(10)), Some(Nanos(20)));
        assert_eq!(slots.latest(Nanos(0), Nanos(35), Nanos(11)), None);
        assert_eq!(slots.latest(Nanos(0), Nanos(50), Nanos(5)), Some(Nanos(45)));
        slots.release(Nanos(30));
        assert_eq!(slots.earliest(Nanos(5), Nanos(11)), Nanos(20));
    }
}
