//! Arenas: memory of exactly the planned size, and a record of what lies in each byte of it.
//!
//! Every value has a stamp, and so have the bytes it was written to. Whoever reads a value must find its stamp on all of its bytes: an
//! overlap, a live range that ends too early, or memory that nobody wrote is an error that names both instructions, not luck. When a buffer
//! dies its bytes are overwritten with a pattern. What a transfer under way reads may not be written, what it writes may be neither read
//! nor written, until the program waits for it.
//!
//! The record is a map of intervals; each access costs O(log intervals + intervals touched).

use std::collections::BTreeMap;

use super::buffer::{Buffer, POISON, Place};
use super::placement::{ArenaKind, HighWater, Placement, PlannedBuffer};
use super::timing::Span;
use super::transfer::{Direction, Ticket};
use crate::ir::{InstrId, Module};

/// What lies in some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label {
    /// One past the last byte.
    end: usize,
    stamp: u64,
    buffer: u32,
}

#[derive(Debug)]
struct Arena {
    kind: ArenaKind,
    memory: Buffer,
    /// By first byte; they do not overlap.
    labels: BTreeMap<usize, Label>,
    alive: usize,
    most_alive: usize,
    top: usize,
}

impl Arena {
    fn new(kind: ArenaKind, bytes: usize) -> Self {
        Self { kind, memory: Buffer::filled(bytes, POISON), labels: BTreeMap::new(), alive: 0, most_alive: 0, top: 0 }
    }
    /// Labels that share a byte with a range, as they are.
    fn touching(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, Label)> + '_ {
        let before = self.labels.range(..from).next_back().filter(|(_, l)| l.end > from);
        before.into_iter().chain(self.labels.range(from..to)).map(|(&at, &label)| (at, label))
    }
    /// Takes labels off a range.
    fn clear(&mut self, from: usize, to: usize) {
        let old: Vec<(usize, Label)> = self.touching(from, to).collect();
        for (at, label) in old {
            self.labels.remove(&at);
            self.alive -= label.end.min(to) - at.max(from);
            if at < from {
                self.labels.insert(at, Label { end: from, ..label });
            }
            if label.end > to {
                self.labels.insert(to, label);
            }
        }
    }
    fn set(&mut self, from: usize, label: Label) {
        self.clear(from, label.end);
        self.labels.insert(from, label);
        self.alive += label.end - from;
        self.most_alive = self.most_alive.max(self.alive);
        self.top = self.top.max(label.end);
    }
}

/// A transfer, or other work, that the program has not waited for.
#[derive(Debug)]
struct Flight {
    start: InstrId,
    reads: Vec<Place>,
    writes: Vec<Place>,
    /// The transfer, if a thread carries it out.
    ticket: Option<Ticket>,
}

/// The arenas of one run.
#[derive(Debug)]
pub struct Arenas<'p> {
    placement: &'p Placement,
    device: Arena,
    host: Arena,
    /// Who wrote each stamp; stamp 0 means memory outside of arenas.
    writers: Vec<Option<InstrId>>,
    flights: Vec<Flight>,
}

impl<'p> Arenas<'p> {
    /// Empty memory of the planned sizes.
    pub fn new(placement: &'p Placement) -> Self {
        let arena = Arena::new;
        Self {
            placement,
            device: arena(ArenaKind::Device, placement.device),
            host: arena(ArenaKind::Host, placement.host),
            writers: vec![None],
            flights: Vec::new(),
        }
    }
    fn arena(&self, kind: ArenaKind) -> &Arena {
        match kind {
            ArenaKind::Device => &self.device,
            ArenaKind::Host => &self.host,
        }
    }
    fn arena_mut(&mut self, kind: ArenaKind) -> &mut Arena {
        match kind {
            ArenaKind::Device => &mut self.device,
            ArenaKind::Host => &mut self.host,
        }
    }
    fn kind_of(&self, place: &Place) -> Option<ArenaKind> {
        [&self.device, &self.host].into_iter().find(|a| a.memory.same(&place.buffer)).map(|a| a.kind)
    }
    fn planned(&self, id: InstrId, leaf: u32) -> Option<(u32, PlannedBuffer)> {
        let buffer = *self.placement.buffer_of.get(&(id, leaf))?;
        Some((buffer, *self.placement.buffers.get(buffer as usize)?))
    }

    /// Where an array of an instruction's result is to lie; `None` if the plan does not say.
    pub fn place(&self, id: InstrId, leaf: u32, bytes: usize) -> Option<Result<Place, String>> {
        let planned = self.placement.buffer(id, leaf)?;
        let place = || Place { buffer: self.arena(planned.arena).memory.clone(), offset: planned.offset, bytes, stamp: 0 };
        Some(self.placement.check(planned, bytes).map(|()| place()))
    }

    /// Whether a value may be read: all its bytes are still its own, and written.
    pub fn check_read(&self, module: &Module, place: &Place) -> Result<(), String> {
        let Some(kind) = self.kind_of(place) else { return Ok(()) };
        let name = |id: InstrId| &module.instr(id).name;
        let (from, to) = (place.offset, place.offset + place.bytes);
        let of = || match self.writers.get(place.stamp as usize).copied().flatten() {
            Some(writer) => format!("the value of `{}` (bytes {from} to {to} of the {} arena)", name(writer), kind.name()),
            None => format!("bytes {from} to {to} of the {} arena", kind.name()),
        };
        if let Some(flight) = self.flights.iter().find(|f| f.writes.iter().any(|w| w.overlaps(place))) {
            return Err(format!("reads {} while `{}`, which writes there, is under way: a wait is missing", of(), name(flight.start)));
        }
        let mut at = from;
        for (start, label) in self.arena(kind).touching(from, to) {
            if start > at {
                break;
            }
            if label.stamp != place.stamp {
                let writer = self.writers[label.stamp as usize]
                    .map_or_else(|| "something else".to_string(), |w| format!("the value of `{}`", name(w)));
                return Err(format!("reads {}, but {writer} has been written over it at byte {}", of(), start.max(from)));
            }
            at = label.end;
        }
        if at >= to {
            return Ok(());
        }
        Err(format!("reads {}, but byte {at} holds no value: its live range has ended, or nobody wrote it", of()))
    }

    /// Whether a place may be written.
    pub fn check_write(&self, module: &Module, place: &Place) -> Result<(), String> {
        let touches = |flight: &&Flight| flight.reads.iter().chain(&flight.writes).any(|p| p.overlaps(place));
        match self.flights.iter().find(touches) {
            Some(flight) => Err(format!(
                "writes bytes {} to {} while `{}`, which uses them, is under way: a wait is missing",
                place.offset,
                place.offset + place.bytes,
                module.instr(flight.start).name
            )),
            None => Ok(()),
        }
    }

    /// A value was written: marks its bytes, and gives its stamp.
    pub fn written(&mut self, id: InstrId, leaf: u32, place: &mut Place) {
        let (Some(kind), Some((buffer, _))) = (self.kind_of(place), self.planned(id, leaf)) else { return };
        if place.bytes == 0 {
            return;
        }
        let stamp = self.writers.len() as u64;
        self.writers.push(Some(id));
        place.stamp = stamp;
        let end = place.offset + place.bytes;
        self.arena_mut(kind).set(place.offset, Label { end, stamp, buffer });
    }

    /// An instruction has ended: buffers that die with it are poisoned, where their own values still lie.
    pub fn ended(&mut self, module: &Module, id: InstrId) -> Result<(), String> {
        let Some(dying) = self.placement.dying.get(&id) else { return Ok(()) };
        for &buffer in dying {
            let planned = self.placement.buffers[buffer as usize];
            let (from, to) = (planned.offset, planned.offset + planned.bytes);
            let own: Vec<(usize, usize)> = self
                .arena(planned.arena)
                .touching(from, to)
                .filter(|(_, l)| l.buffer == buffer)
                .map(|(at, l)| (at.max(from), l.end.min(to)))
                .collect();
            for (from, to) in own {
                let memory = self.arena(planned.arena).memory.clone();
                let place = Place { buffer: memory.clone(), offset: from, bytes: to - from, stamp: 0 };
                if let Some(flight) = self.flights.iter().find(|f| f.reads.iter().chain(&f.writes).any(|p| p.overlaps(&place))) {
                    let name = &module.instr(flight.start).name;
                    return Err(format!("a live range ends here while `{name}`, which uses bytes {from} to {to}, is under way"));
                }
                memory.fill(from, to - from, POISON);
                self.arena_mut(planned.arena).clear(from, to);
            }
        }
        Ok(())
    }

    /// Work begins that the program waits for later.
    pub fn depart(&mut self, start: InstrId, reads: Vec<Place>, writes: Vec<Place>, ticket: Option<Ticket>) {
        self.flights.push(Flight { start, reads, writes, ticket });
    }
    /// Waits for work that an instruction has begun; tells when a transfer ran.
    pub fn arrive(&mut self, start: InstrId) -> Option<(Direction, Span, u64)> {
        let i = self.flights.iter().position(|f| f.start == start)?;
        self.flights.remove(i).ticket?.wait()
    }
    /// Which way a transfer between places goes.
    pub fn direction(&self, to: &[Place]) -> Direction {
        if to.iter().any(|p| self.kind_of(p) == Some(ArenaKind::Host)) { Direction::ToHost } else { Direction::FromHost }
    }
    /// Whether all of them lie in arenas, whose record says who may touch them.
    pub fn hold(&self, places: &[Place]) -> bool {
        places.iter().all(|p| self.kind_of(p).is_some())
    }
    /// What the run needed so far.
    pub fn high_water(&self) -> HighWater {
        HighWater { device: self.device.top, host: self.host.top, device_alive: self.device.most_alive, host_alive: self.host.most_alive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ArrayShape, Entity, Instruction, Op, Primitive, Shape};

    /// Three instructions of one array each; buffers of 16 bytes at 0, 8 and 16.
    fn three() -> (Module, Placement) {
        let mut module = Module::default();
        let shape = module.shapes.intern(Shape::Array(ArrayShape::new(Primitive::F32, &[4])));
        for name in ["a", "b", "c"] {
            module.instructions.push(Instruction::new(name, shape, Op::AfterAll, []));
        }
        let buffer = |offset| PlannedBuffer { arena: ArenaKind::Device, offset, bytes: 16 };
        let id = InstrId::new;
        let placement = Placement {
            device: 32,
            buffers: vec![buffer(0), buffer(8), buffer(16)],
            buffer_of: [((id(0), 0), 0), ((id(1), 0), 1), ((id(2), 0), 2)].into_iter().collect(),
            dying: [(id(1), vec![0])].into_iter().collect(),
            ..Placement::default()
        };
        (module, placement)
    }

    fn write(arenas: &mut Arenas<'_>, i: usize) -> Place {
        let mut place = arenas.place(InstrId::new(i), 0, 16).unwrap().unwrap();
        arenas.written(InstrId::new(i), 0, &mut place);
        place
    }

    #[test]
    fn overlaps_name_both_values() {
        let (module, placement) = three();
        let mut arenas = Arenas::new(&placement);
        let a = write(&mut arenas, 0);
        assert_eq!(arenas.check_read(&module, &a), Ok(()));
        let b = write(&mut arenas, 1);
        assert_eq!(arenas.check_read(&module, &b), Ok(()));
        let message = arenas.check_read(&module, &a).unwrap_err();
        assert!(message.contains("value of `a`") && message.contains("value of `b` has been written over it at byte 8"), "{message}");
        assert_eq!(arenas.high_water(), HighWater { device: 24, device_alive: 24, ..HighWater::default() });
    }

    #[test]
    fn a_value_is_gone_when_its_live_range_ends() {
        let (module, placement) = three();
        let mut arenas = Arenas::new(&placement);
        let a = write(&mut arenas, 0);
        let c = write(&mut arenas, 2);
        arenas.ended(&module, InstrId::new(1)).unwrap();
        assert!(arenas.check_read(&module, &a).unwrap_err().contains("byte 0 holds no value"));
        assert_eq!(arenas.check_read(&module, &c), Ok(()));
        assert!(a.buffer.cells()[..16].iter().all(|b| b.get() == POISON));
    }

    #[test]
    fn what_is_under_way_is_left_alone() {
        let (module, placement) = three();
        let mut arenas = Arenas::new(&placement);
        let a = write(&mut arenas, 0);
        let c = write(&mut arenas, 2);
        arenas.depart(InstrId::new(2), vec![a.clone()], vec![c.clone()], None);
        assert_eq!(arenas.check_read(&module, &a), Ok(()));
        assert!(arenas.check_read(&module, &c).unwrap_err().contains("`c`, which writes there, is under way"));
        assert!(arenas.check_write(&module, &a).unwrap_err().contains("a wait is missing"));
        assert!(arenas.ended(&module, InstrId::new(1)).is_err());
        arenas.arrive(InstrId::new(2));
        assert_eq!(arenas.check_read(&module, &c), Ok(()));
        assert_eq!(arenas.check_write(&module, &a), Ok(()));
    }
}
