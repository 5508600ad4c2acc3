//! Packing in a given order: each buffer goes to the lowest place that is free during its life.
//!
//! The order is what matters; [`learn`] learns one ("squeaky wheel", Joslin & Clements 1999): what comes to lie above the target is
//! placed earlier next time. Cost of one packing: a scan of the placed buffers a buffer, ended at the first fit.

use super::Buffer;

/// What is placed, ascending by offset: start, end, offset, top.
#[derive(Default)]
struct Placed {
    life: Vec<(u32, u32)>,
    span: Vec<(u64, u64)>,
}

/// Places in order; offsets by number of buffer, the height, and the buffers scanned.
pub(super) fn in_order(buffers: &[Buffer], order: &[u32], work: &mut u64) -> (Vec<u64>, u64) {
    let mut offsets = vec![0; buffers.len()];
    let mut placed = Placed::default();
    let mut height = 0;
    for &b in order {
        let b = b as usize;
        let buffer = &buffers[b];
        if buffer.size == 0 {
            continue;
        }
        let mut free = 0;
        let mut scanned = 0;
        for (n, &(lower, upper)) in placed.life.iter().enumerate() {
            scanned += 1;
            if lower < buffer.upper && buffer.lower < upper {
                let (from, to) = placed.span[n];
                if from > free && from - free >= buffer.size {
                    break;
                }
                free = free.max(to);
            }
        }
        *work += scanned + 50;
        let at = free;
        let place = placed.span.partition_point(|s| s.0 < at);
        placed.life.insert(place, (buffer.lower, buffer.upper));
        placed.span.insert(place, (at, at + buffer.size));
        offsets[b] = at;
        height = height.max(at + buffer.size);
    }
    (offsets, height)
}

/// Moves what lies above the goal to half its place in the order.
pub(super) fn learn(buffers: &[Buffer], offsets: &[u64], goal: u64, order: &mut [u32]) {
    let mut ranked: Vec<(usize, u32)> = order
        .iter()
        .enumerate()
        .map(|(place, &b)| {
            let high = offsets[b as usize] + buffers[b as usize].size > goal;
            (if high { place } else { 2 * place }, b)
        })
        .collect();
    ranked.sort_by_key(|r| r.0);
    for (place, (_, b)) in order.iter_mut().zip(ranked) {
        *place = b;
    }
}
