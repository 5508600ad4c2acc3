//! From the buffer analysis to the interpreter's placement: the one is judged by the other, so they meet here only, as plain data.

use std::collections::BTreeMap;

use offc::analysis::Analyses;
use offc::interp::{ArenaKind, Placement, PlannedBuffer};
use offc::ir::{Entity, HOST, Module, Shape};

/// Where everything lies: temporary memory first, then parameters, results and constants, end to end. The module must be as XLA settles it.
pub fn placement(module: &Module) -> Placement {
    let analyses = Analyses::new(module);
    let (values, buffers, assignment, schedule) = (analyses.values(), analyses.buffers(), analyses.assignment(), analyses.schedule());
    let kind = |color: i64| if color == HOST { ArenaKind::Host } else { ArenaKind::Device };
    let size = |bytes: u64| usize::try_from(bytes).expect("memory that can be addressed");
    let mut out = Placement::default();
    let mut take = |color: i64, bytes: u64| {
        let total = if color == HOST { &mut out.host } else { &mut out.device };
        let at = *total;
        *total += size(bytes);
        at
    };
    let mut temporary = BTreeMap::new();
    for allocation in &assignment.allocations {
        let color = allocation.color;
        temporary.entry(color).or_insert_with(|| take(color, assignment.temp(color)));
    }
    let bases: Vec<usize> =
        assignment.allocations.iter().map(|a| if a.is_temp() { temporary[&a.color] } else { take(a.color, a.bytes) }).collect();
    let mut dying = BTreeMap::<u32, Vec<u32>>::new();
    for (id, buffer) in buffers.iter() {
        let place = assignment.allocation_of(id).zip(assignment.place_of(id));
        out.buffers.push(match place {
            Some((index, (allocation, offset))) => {
                let offset = bases[index] + size(offset);
                PlannedBuffer { arena: kind(allocation.color), offset, bytes: size(buffer.bytes) }
            }
            None => PlannedBuffer { arena: kind(buffer.color), offset: 0, bytes: 0 },
        });
        let mut ranges: Vec<(u32, u32)> = buffer.values.iter().map(|&v| (buffers.range(v).start, buffers.range(v).end)).collect();
        ranges.sort_unstable();
        let mut end = ranges[0].1;
        let number = u32::try_from(id.index()).expect("buffers are numbered by u32");
        for &(start, last) in &ranges[1..] {
            if start > end + 1 {
                dying.entry(end).or_default().push(number);
            }
            end = end.max(last);
        }
        dying.entry(end).or_default().push(number);
    }
    for (time, numbers) in dying {
        // What lives to the end of the program never dies.
        if let Some(&id) = schedule.sequence.get(time as usize) {
            out.dying.insert(id, numbers);
        }
    }
    for &id in &schedule.sequence {
        let mut leaf = 0;
        for (position, shape) in (0u32..).zip(values.positions.shapes(module, module.instr(id).shape)) {
            if !matches!(module.shapes.get(shape), Shape::Array(_)) {
                continue;
            }
            if let Some(value) = values.at(id, position) {
                let buffer = u32::try_from(buffers.of_value(value).index()).expect("buffers are numbered by u32");
                out.buffer_of.insert((id, leaf), buffer);
            }
            leaf += 1;
        }
    }
    out
}
