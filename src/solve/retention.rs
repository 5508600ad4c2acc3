//! The linear program that bounds what any solution costs, and rounds to a good one.
//!
//! The life of a value is cut at its own readers, the readers of what is made from it, and a few given steps ("event-sparse"). For each
//! piece (a, b]: `z`, it is kept throughout; `y`, it is made again within, at its cost; `h`, it is fetched from the host within; `p`, it is kept into
//! the piece's first step. Every solution gives a point of the program, which therefore costs no more:
//!
//! * `z ≤ p`, and `p ≤ z + y + h` of the piece before: what is kept into a piece was kept through the one before, or came within.
//! * `z + y + h ≥ 1` where `b` reads the value.
//! * `y` of a value needs each input: `y ≤ p` of the input's first piece that meets (a, b], plus `y + h` of all that meet it; nothing where a
//!   step of (a, b] reads the input anyway.
//! * Step t: what it reads, makes and takes besides, and `z` of the pieces around it, and `p` of the pieces that begin at it, fit the budget.
//!   The makings before a step end before the step itself, so pieces that end at t need not be there.
//! * The link: each direction carries what is moved in the time of the program and its loss, `d`, which pays for it: Σ time of copies ≤ time +
//!   Σ c·y + d. A value leaves at most once: `o ≥ h` of each of its pieces.
//!
//! Any subset of the rows bounds as well: of the steps, those that are fullest count.

use super::lp::{Outcome, Program};
use super::net::Net;
use super::walk::Pair;

/// Time on the link to host memory for each value, and what it has.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Nanoseconds out and back of each value that may leave.
    pub copies: Vec<Option<(f64, f64)>>,
    /// The time of the program.
    pub time: f64,
}

/// A piece of the life of a value: the steps after `from` up to `to`.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: u32,
    to: u32,
    keep: u32,
    again: Option<u32>,
    fetch: Option<u32>,
    /// `None` at birth, where it is one.
    enter: Option<u32>,
}

/// The program and what its columns mean.
pub struct Retention {
    /// The program.
    pub program: Program,
    pieces: Vec<Vec<Piece>>,
    /// Row, step and the unit in which it counts bytes.
    memory: Vec<(usize, u32, f64)>,
    /// The rows of the link out and back, and the time of the program.
    links: Option<(usize, usize, f64)>,
}

/// How fine.
#[derive(Clone, Debug)]
pub struct Detail {
    /// Steps at which every life is cut.
    pub cuts: Vec<u32>,
    /// Whether lives are cut at the readers of readers too.
    pub deep: bool,
    /// Memory rows at most.
    pub rows: usize,
}

/// The fullest steps of those between which memory does not fall: others are no tighter.
fn fullest(net: &Net, most: usize) -> Vec<u32> {
    let steps = net.fixed.len();
    let mut change = vec![0i64; steps + 1];
    for v in 0..net.size.len() {
        let last = net.uses[v].last().copied().unwrap_or(net.born[v]);
        change[net.born[v] as usize] += net.size[v];
        change[last as usize + 1] -= net.size[v];
    }
    let mut now = 0;
    let mut over: Vec<(i64, u32)> = (0u32..)
        .zip(&net.fixed)
        .map(|(step, fixed)| {
            now += change[step as usize];
            (now + fixed, step)
        })
        .filter(|r| r.0 > net.budget)
        .collect();
    if over.len() > most {
        // One in each stretch of steps, the fullest: neighbours say much the same.
        let stretch = over.len().div_ceil(most);
        over = over.chunks(stretch).filter_map(|c| c.iter().max().copied()).collect();
    }
    over.into_iter().map(|r| r.1).collect()
}

/// Builds the program.
pub fn build(net: &Net, host: &Host, detail: &Detail) -> Retention {
    let mut program = Program::default();
    let loss = program.column(1.0, f64::from(u32::MAX) * 1e6);
    let rows = fullest(net, detail.rows);
    let pieces: Vec<Vec<Piece>> = (0..net.size.len()).map(|v| lives(net, host, detail, &rows, v, &mut program)).collect();
    let mut links = [Vec::new(), Vec::new()];
    for (v, own) in pieces.iter().enumerate() {
        for (n, piece) in own.iter().enumerate() {
            if let Some(enter) = piece.enter {
                program.rows.push((0.0, vec![(enter, 1.0), (piece.keep, -1.0)]));
                let before = &own[n - 1];
                let mut row = vec![(before.keep, 1.0), (enter, -1.0)];
                row.extend(before.again.into_iter().chain(before.fetch).map(|c| (c, 1.0)));
                program.rows.push((0.0, row));
            }
            if net.uses[v].binary_search(&piece.to).is_ok() {
                let mut row = vec![(piece.keep, 1.0)];
                row.extend(piece.again.into_iter().chain(piece.fetch).map(|c| (c, 1.0)));
                program.rows.push((1.0, row));
            }
            if let Some(again) = piece.again {
                for &input in &net.inputs[v] {
                    needs(net, &pieces[input as usize], input, piece, again, &mut program);
                }
                for link in &mut links {
                    link.push((again, net.cost[v].unwrap_or(0) as f64));
                }
            }
        }
        if let Some((out, back)) = host.copies.get(v).copied().flatten() {
            let fetches: Vec<u32> = own.iter().filter_map(|p| p.fetch).collect();
            if !fetches.is_empty() {
                let sent = program.column(0.0, 1.0);
                program.rows.extend(fetches.iter().map(|&f| (0.0, vec![(sent, 1.0), (f, -1.0)])));
                links[0].push((sent, -out));
                links[1].extend(fetches.iter().map(|&f| (f, -back)));
            }
        }
    }
    let first = program.rows.len();
    for mut link in links {
        link.push((loss, 1.0));
        if host.time > 0.0 {
            program.rows.push((-1.0, link.into_iter().map(|(c, a)| (c, a / host.time)).collect()));
        }
    }
    let links = (host.time > 0.0).then_some((first, first + 1, host.time));
    let memory = memory(net, &pieces, &rows, &mut program);
    Retention { program, pieces, memory, links }
}

/// The pieces of a value's life. One that meets no memory row and whose end no one reads would say nothing.
fn lives(net: &Net, host: &Host, detail: &Detail, rows: &[u32], v: usize, program: &mut Program) -> Vec<Piece> {
    let born = net.born[v];
    let mut events = net.uses[v].clone();
    if detail.deep {
        events.extend(net.readers[v].iter().flat_map(|&r| &net.uses[r as usize]));
        events.extend(&detail.cuts);
        events.push(u32::try_from(net.fixed.len()).unwrap_or(u32::MAX) - 1);
    }
    events.retain(|&e| e > born);
    events.sort_unstable();
    events.dedup();
    let mut from = born;
    let mut out = Vec::new();
    for to in events {
        let crossed = rows.partition_point(|&r| r < from) < rows.partition_point(|&r| r < to);
        if !detail.deep && !crossed {
            // Keeping it costs nothing here.
            from = to;
            continue;
        }
        let keep = program.column(0.0, 1.0);
        let again = net.cost[v].map(|c| program.column(c as f64, 1.0));
        let fetch = host.copies.get(v).copied().flatten().map(|_| program.column(0.0, 1.0));
        let enter = if out.is_empty() || !detail.deep { None } else { Some(program.column(0.0, 1.0)) };
        out.push(Piece { from, to, keep, again, fetch, enter });
        from = to;
    }
    out
}

/// `again` of a piece needs an input.
fn needs(net: &Net, pieces: &[Piece], input: u32, piece: &Piece, again: u32, program: &mut Program) {
    let uses = &net.uses[input as usize];
    let read = uses.get(uses.partition_point(|&u| u <= piece.from)).is_some_and(|&u| u <= piece.to);
    // Born within: it is there then.
    if read || net.born[input as usize] > piece.from {
        return;
    }
    let mut row = vec![(again, -1.0)];
    for (n, met) in pieces.iter().filter(|q| q.from < piece.to && q.to > piece.from).enumerate() {
        if n == 0 {
            match met.enter {
                Some(enter) => row.push((enter, 1.0)),
                None => return,
            }
        }
        row.extend(met.again.into_iter().chain(met.fetch).map(|c| (c, 1.0)));
    }
    program.rows.push((0.0, row));
}

/// A row for each of the given steps that could be too full.
fn memory(net: &Net, pieces: &[Vec<Piece>], rows: &[u32], program: &mut Program) -> Vec<(usize, u32, f64)> {
    let mut made = Vec::new();
    let mut taken: Vec<i64> = rows.iter().map(|&t| net.fixed[t as usize]).collect();
    let mut entries = vec![Vec::new(); rows.len()];
    for (v, own) in pieces.iter().enumerate() {
        let size = net.size[v];
        for &at in net.uses[v].iter().chain([&net.born[v]]) {
            if let Ok(row) = rows.binary_search(&at) {
                taken[row] += size;
            }
        }
        for piece in own {
            let first = rows.partition_point(|&r| r < piece.from);
            for row in first..rows.len() {
                let at = rows[row];
                if at >= piece.to {
                    break;
                }
                let read = at == net.born[v] || net.uses[v].binary_search(&at).is_ok();
                if at > piece.from {
                    entries[row].push((piece.keep, size));
                } else if let Some(enter) = piece.enter.filter(|_| !read) {
                    entries[row].push((enter, size));
                }
            }
        }
    }
    let unit = 8.0 / net.budget.max(1) as f64;
    for ((row, taken), &step) in entries.into_iter().zip(taken).zip(rows) {
        let room = net.budget - taken;
        if row.iter().map(|e| e.1).sum::<i64>() > room {
            made.push((program.rows.len(), step, unit));
            program.rows.push((-(room as f64) * unit, row.into_iter().map(|(c, s)| (c, -(s as f64) * unit)).collect()));
        }
    }
    made
}

impl Retention {
    /// What a byte more is worth at the steps where it is worth something.
    pub fn memory_prices(&self, outcome: &Outcome) -> Vec<(u32, f64)> {
        let price = |&(row, step, unit): &(usize, u32, f64)| (step, outcome.prices[row] * unit);
        self.memory.iter().map(price).filter(|p| p.1 > 0.0).collect()
    }

    /// What more time of the link out and back is worth.
    pub fn link_prices(&self, outcome: &Outcome) -> (f64, f64) {
        self.links.map_or((0.0, 0.0), |(out, back, time)| (outcome.prices[out] / time, outcome.prices[back] / time))
    }

    /// What is kept at least to that part stays; what lacks at a step is made again before it, and before that what its making lacks.
    pub fn round(&self, net: &Net, outcome: &Outcome, least: f64) -> Vec<Pair> {
        let values = net.size.len();
        let steps = u32::try_from(net.fixed.len()).unwrap_or(u32::MAX);
        let mut read = vec![Vec::new(); steps as usize];
        for v in 0..values {
            for &at in &net.uses[v] {
                read[at as usize].push(u32::try_from(v).unwrap_or(u32::MAX));
            }
        }
        let mut there = vec![false; values];
        let mut place = vec![0; values];
        let mut alive: Vec<u32> = Vec::new();
        let mut pairs = Vec::new();
        for step in 0..steps {
            let mut pending = read[step as usize].clone();
            while let Some(v) = pending.pop() {
                if there[v as usize] || !net.may(v, step) {
                    continue;
                }
                there[v as usize] = true;
                alive.push(v);
                pairs.push((step, v));
                pending.extend(&net.inputs[v as usize]);
            }
            for &v in &net.outputs[step as usize] {
                there[v as usize] = true;
                alive.push(v);
            }
            alive.retain(|&v| {
                let own = &self.pieces[v as usize];
                let at = &mut place[v as usize];
                while *at < own.len() && own[*at].to <= step {
                    *at += 1;
                }
                let stays = own.get(*at).is_some_and(|piece| net.cost[v as usize].is_none() || outcome.x[piece.keep as usize] >= least);
                there[v as usize] = stays;
                stays
            });
        }
        pairs
    }
}
