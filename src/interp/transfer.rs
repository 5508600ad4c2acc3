//! Transfers that run while the program goes on: a thread for each direction, first come first served.
//!
//! A transfer is a list of [`Piece`]s, which say where bytes come from and where they go, and nothing else: all offsets are known and checked
//! before it begins. The program gets a [`Ticket`]; dropping it waits.

#![expect(unsafe_code, reason = "two threads work on one block of memory; no safe cell lets the compiler copy bytes in bulk")]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::buffer::Buffer;
use super::timing::{Clock, Span};
use super::view::for_each_run;

/// A thread's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the device to the host.
    ToHost,
    /// From the host to the device, or within one memory.
    FromHost,
}

/// Elements at places that strides say, in row-major order.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The memory.
    pub buffer: Buffer,
    /// The byte where element 0 of the memory begins.
    pub offset: usize,
    /// Dimensions.
    pub dims: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<isize>,
    /// The first element.
    pub base: isize,
}

impl Walk {
    /// Whether all its elements lie in its memory.
    fn fits(&self, len: usize, width: usize) -> bool {
        if self.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) != Some(len) {
            return false;
        }
        let reach = |of: fn(isize) -> isize| {
            let steps = self.dims.iter().zip(&self.strides);
            steps.map(|(&d, &s)| of(s) * d.saturating_sub(1).cast_signed()).sum::<isize>() + self.base
        };
        let (first, last) = (reach(|s| s.min(0)), reach(|s| s.max(0)));
        first >= 0 && self.offset + (last.unsigned_abs() + 1) * width <= self.buffer.len()
    }
}

/// Elements to copy from one place to another.
#[derive(Clone, Debug)]
pub struct Piece {
    from: Walk,
    to: Walk,
    len: usize,
    width: usize,
}

impl Piece {
    /// So many elements of so many bytes; `None` if some of them lie outside of their memories.
    pub fn new(from: Walk, to: Walk, len: usize, width: usize) -> Option<Self> {
        (len == 0 || from.fits(len, width) && to.fits(len, width)).then_some(Self { from, to, len, width })
    }
    /// Bytes that are copied.
    pub fn bytes(&self) -> usize {
        self.len * self.width
    }
}

/// One side of a piece without the memory's handle, which belongs to the program's thread.
struct Side {
    start: *mut u8,
    dims: Vec<usize>,
    strides: Vec<isize>,
    base: isize,
}

impl Side {
    fn of(walk: Walk) -> Self {
        let cells = &walk.buffer.cells()[walk.offset..];
        Self { start: cells.as_ptr().cast_mut().cast(), dims: walk.dims, strides: walk.strides, base: walk.base }
    }
}

struct Job {
    pieces: Vec<(Side, Side, usize, usize)>,
    done: Sender<(u64, u64)>,
}

// SAFETY: the pointers lead into blocks of cells that the ticket of the job keeps alive until the job has ended, and that nobody else
// touches in that time (the promise of `Lanes::begin`).
unsafe impl Send for Job {}

impl Job {
    fn run(self, clock: Option<&dyn Clock>) {
        let now = || clock.map_or(0, Clock::now);
        let begin = now();
        for (from, to, len, width) in &self.pieces {
            // SAFETY: `Piece::new` has checked that all elements lie in their memories; `Lanes::begin` promises that they are ours.
            unsafe { copy(from, to, *len, *width) };
        }
        // Nobody waits for it where the run has failed.
        let _ = self.done.send((begin, now()));
    }
}

/// Copies elements.
///
/// # Safety
/// All elements lie in blocks of memory that live and that nobody else touches meanwhile.
unsafe fn copy(from: &Side, to: &Side, len: usize, width: usize) {
    let at = |side: &Side, element: isize| side.start.wrapping_offset(element * width.cast_signed());
    for_each_run(&to.dims, &to.strides, to.base, 0, len, |target, count, target_step, done| {
        for_each_run(&from.dims, &from.strides, from.base, done, count, |source, count, source_step, within| {
            let target = target + within.cast_signed() * target_step;
            if source_step == 1 && target_step == 1 {
                // SAFETY: the caller's; `copy` allows for overlaps.
                unsafe { std::ptr::copy(at(from, source), at(to, target), count * width) };
                return;
            }
            for i in 0..count.cast_signed() {
                // SAFETY: the caller's.
                unsafe { std::ptr::copy(at(from, source + i * source_step), at(to, target + i * target_step), width) };
            }
        });
    });
}

/// What stands for a transfer under way. Dropping it waits for its end.
#[derive(Debug)]
pub struct Ticket {
    done: Receiver<(u64, u64)>,
    direction: Direction,
    /// Keeps the memories alive.
    pieces: Vec<Piece>,
}

impl Ticket {
    /// Waits; tells the way it went, when it began and ended, and its bytes. `None` if it was told before.
    pub fn wait(&self) -> Option<(Direction, Span, u64)> {
        let bytes = self.pieces.iter().map(|p| p.bytes() as u64).sum();
        self.done.recv().ok().map(|(begin, end)| (self.direction, Span { begin, end }, bytes))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // An error says that the job is gone, which is after its end.
        let _ = self.done.recv();
    }
}

/// The threads of a run; they start when they are first needed.
pub struct Lanes {
    clock: Option<Arc<dyn Clock>>,
    threads: [Option<Sender<Job>>; 2],
}

impl Lanes {
    /// No thread yet.
    pub fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock, threads: [None, None] }
    }

    /// Begins a transfer.
    ///
    /// # Safety
    /// Until the ticket is gone, nobody may read what the pieces write, nor write what they read or write.
    pub unsafe fn begin(&mut self, direction: Direction, pieces: Vec<Piece>) -> Ticket {
        let (sender, done) = channel();
        let sides = pieces.iter().filter(|p| p.len > 0).map(|p| (Side::of(p.from.clone()), Side::of(p.to.clone()), p.len, p.width));
        let job = Job { pieces: sides.collect(), done: sender };
        let slot = &mut self.threads[direction as usize];
        if slot.is_none() {
            *slot = thread(direction, self.clock.clone());
        }
        let rest = match slot {
            Some(thread) => thread.send(job).err().map(|e| e.0),
            None => Some(job),
        };
        // Without a thread it is done here and now.
        if let Some(job) = rest {
            job.run(self.clock.as_deref());
        }
        Ticket { done, direction, pieces }
    }
}

fn thread(direction: Direction, clock: Option<Arc<dyn Clock>>) -> Option<Sender<Job>> {
    let (sender, jobs) = channel::<Job>();
    let name = match direction {
        Direction::ToHost => "to host",
        Direction::FromHost => "from host",
    };
    let work = move || jobs.into_iter().for_each(|job| job.run(clock.as_deref()));
    std::thread::Builder::new().name(name.to_string()).spawn(work).ok().map(|_| sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(buffer: &Buffer, dims: &[usize], strides: &[isize], base: isize) -> Walk {
        Walk { buffer: buffer.clone(), offset: 0, dims: dims.to_vec(), strides: strides.to_vec(), base }
    }

    #[test]
    fn pieces_arrive_transposed_and_reversed() {
        let (from, to) = (Buffer::filled(12, 0), Buffer::filled(12, 0xff));
        from.write(0, &(0..12).collect::<Vec<u8>>());
        let mut lanes = Lanes::new(None);
        // Six elements of two bytes: [2, 3] to its transpose, each row backwards.
        let piece = Piece::new(walk(&from, &[2, 3], &[3, -1], 2), walk(&to, &[2, 3], &[1, 2], 0), 6, 2).expect("it fits");
        // SAFETY: nobody looks before the ticket is gone.
        let ticket = unsafe { lanes.begin(Direction::ToHost, vec![piece]) };
        drop(ticket);
        let mut found = [0; 12];
        to.read(0, &mut found);
        assert_eq!(found, [4, 5, 10, 11, 2, 3, 8, 9, 0, 1, 6, 7]);
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let memory = Buffer::filled(12, 0);
        let whole = || walk(&memory, &[3], &[1], 0);
        assert!(Piece::new(whole(), walk(&memory, &[3], &[1], 1), 3, 4).is_none());
        assert!(Piece::new(whole(), walk(&memory, &[3], &[-1], 1), 3, 4).is_none());
        assert!(Piece::new(whole(), walk(&memory, &[2], &[1], 0), 3, 4).is_none());
        assert!(Piece::new(whole(), walk(&memory, &[3], &[-1], 2), 3, 4).is_some_and(|p| p.bytes() == 12));
    }
}
