//! A timeline as a trace in Chrome's JSON form, which Perfetto (ui.perfetto.dev) opens.
//!
//! A lane is a thread, and its events come in order of their begin, none over another; loops, iterations and what stands for more of them have
//! a thread of their own, where the outer contain the inner. Counters follow device and host bytes. An arrow leads from a copy to the host
//! to the next copy back of the same buffer. The text comes in pieces, one event each, so that it can be written as it is made: beside the
//! timeline there are four bytes an event and the counters, never the text.

use std::cmp::Reverse;
use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use crate::analysis::Analyses;
use crate::entity::{BufferId, ValueId};
use crate::ir::{DEVICE, HOST, InstrId, Module, Op};
use crate::sim::{Event, Lane, Timeline, What, bytes_over_time};
use crate::units::Nanos;

/// The thread of loops.
const LOOPS: usize = 0;

/// The pieces of a trace, to be written one after the other.
pub fn trace<'a>(timeline: &'a Timeline, analyses: &'a Analyses<'_>) -> impl Iterator<Item = String> + 'a {
    let module = analyses.module();
    let slices = in_order(timeline).into_iter().filter_map(move |n| slice(module, &timeline.events[n as usize]));
    let mut arrows = Arrows { last: FxHashMap::default(), next: 0 };
    let arrows = timeline.events.iter().flat_map(move |event| arrows.follow(analyses, event));
    let counters = [("device bytes", DEVICE), ("host bytes", HOST)].into_iter().flat_map(move |(name, color)| {
        bytes_over_time(timeline, analyses, color).into_iter().map(move |(time, bytes)| {
            let (ts, bytes) = (micros(time), bytes.get());
            format!("{{\"name\":\"{name}\",\"ph\":\"C\",\"ts\":{ts},\"pid\":1,\"tid\":{LOOPS},\"args\":{{\"bytes\":{bytes}}}}}")
        })
    });
    let first = std::iter::once(format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}", process(module)));
    let rest = threads().into_iter().chain(slices).chain(arrows).chain(counters).map(|piece| format!(",\n{piece}"));
    first.chain(rest).chain(std::iter::once("\n]}\n".to_string()))
}

fn thread(lane: Lane) -> usize {
    lane as usize + 1
}

/// Microseconds with three decimals, exact.
fn micros(time: Nanos) -> String {
    format!("{}.{:03}", time.get() / 1000, time.get() % 1000)
}

/// A text as JSON writes it.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text becomes JSON")
}

fn process(module: &Module) -> String {
    let name = quoted(&module.name);
    format!("{{\"name\":\"process_name\",\"ph\":\"M\",\"ts\":0,\"pid\":1,\"tid\":{LOOPS},\"args\":{{\"name\":{name}}}}}")
}

fn threads() -> Vec<String> {
    let lanes = std::iter::once(Lane::Compute).chain(Lane::BESIDE).map(|lane| (thread(lane), lane.name()));
    let named = |(id, name): (usize, &str)| {
        [
            format!("{{\"name\":\"thread_name\",\"ph\":\"M\",\"ts\":0,\"pid\":1,\"tid\":{id},\"args\":{{\"name\":\"{name}\"}}}}"),
            format!("{{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"ts\":0,\"pid\":1,\"tid\":{id},\"args\":{{\"sort_index\":{id}}}}}"),
        ]
    };
    std::iter::once((LOOPS, "loops")).chain(lanes).flat_map(named).collect()
}

/// The thread of an event.
fn thread_of(event: &Event) -> usize {
    match event.what {
        What::Kernel | What::Work { .. } => thread(event.lane),
        What::Start | What::Wait { .. } => thread(Lane::Compute),
        What::Iteration | What::Repeat { .. } | What::Loop { .. } => LOOPS,
    }
}

/// The numbers of the events: by thread, then by begin, then the outer before the inner. Events come in order of their end, so of two equal spans the
/// later is the outer one.
fn in_order(timeline: &Timeline) -> Vec<u32> {
    let count = u32::try_from(timeline.events.len()).expect("events are numbered by u32");
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_unstable_by_key(|&n| {
        let event = &timeline.events[n as usize];
        (thread_of(event), event.span.begin, Reverse(event.span.end), Reverse(n))
    });
    order
}

/// The slice of an event that takes time.
fn slice(module: &Module, event: &Event) -> Option<String> {
    let instr = module.instr(event.instr);
    if event.span.time().is_zero() {
        return None;
    }
    let name = match event.what {
        What::Start => return None,
        What::Kernel | What::Work { .. } => instr.name.to_string(),
        What::Wait { on } => format!("wait for {}", on.name()),
        What::Iteration => format!("{} iteration", instr.name),
        What::Repeat { times } => format!("{} {times} more like it", instr.name),
        What::Loop { trips } => format!("{} x {trips}", instr.name),
    };
    let mut args = format!("\"opcode\":{}", quoted(instr.op.opcode()));
    if let Some(metadata) = instr.attrs.metadata.as_ref().filter(|m| !m.op_name.is_empty()) {
        write!(args, ",\"op_name\":{}", quoted(&metadata.op_name)).expect("a string takes all");
    }
    match event.what {
        What::Work { bytes, issued } => {
            write!(args, ",\"bytes\":{},\"issued_us\":{}", bytes.get(), micros(issued)).expect("a string takes all");
        }
        What::Wait { .. } => write!(args, ",\"at\":{}", quoted(&instr.name)).expect("a string takes all"),
        What::Kernel | What::Start | What::Iteration | What::Repeat { .. } | What::Loop { .. } => {}
    }
    let (begin, time, tid) = (micros(event.span.begin), micros(event.span.time()), thread_of(event));
    let name = quoted(&name);
    Some(format!("{{\"name\":{name},\"ph\":\"X\",\"ts\":{begin},\"dur\":{time},\"pid\":1,\"tid\":{tid},\"args\":{{{args}}}}}"))
}

/// The last copy to the host of each host buffer.
struct Arrows {
    last: FxHashMap<BufferId, Nanos>,
    next: u64,
}

impl Arrows {
    /// The two ends of the arrow to a copy back; nothing for other events.
    fn follow(&mut self, analyses: &Analyses<'_>, event: &Event) -> Vec<String> {
        let takes_time = matches!(event.what, What::Work { .. }) && !event.span.time().is_zero();
        let Some(buffer) = host_buffer(analyses, event.instr).filter(|_| takes_time) else { return Vec::new() };
        match event.lane {
            Lane::ToHost => {
                self.last.insert(buffer, event.span.begin);
            }
            Lane::FromHost => {
                let Some(&sent) = self.last.get(&buffer) else { return Vec::new() };
                self.next += 1;
                let end = |ph: &str, time: Nanos, lane: Lane, more: &str| {
                    let (id, ts, tid) = (self.next, micros(time), thread(lane));
                    format!(
                        "{{\"name\":\"host copy\",\"cat\":\"host\",\"ph\":\"{ph}\",\"id\":{id},\"ts\":{ts},\"pid\":1,\"tid\":{tid}{more}}}"
                    )
                };
                return vec![end("s", sent, Lane::ToHost, ""), end("f", event.span.begin, Lane::FromHost, ",\"bp\":\"e\"")];
            }
            Lane::Compute | Lane::OnDevice | Lane::Collective | Lane::Beside => {}
        }
        Vec::new()
    }
}

/// The host buffer that a copy writes or reads.
fn host_buffer(analyses: &Analyses<'_>, id: InstrId) -> Option<BufferId> {
    let module = analyses.module();
    let instr = module.instr(id);
    if !matches!(instr.op, Op::CopyStart { .. } | Op::AsyncStart(_)) {
        return None;
    }
    let on_host = |&v: &ValueId| module.shapes.memory_space(analyses.values().get(v).shape) == HOST;
    let of_operands = instr.operands.iter().flat_map(|&o| analyses.values().all(module, o)).find(on_host);
    let value = of_operands.or_else(|| analyses.values().all(module, id).find(on_host))?;
    Some(analyses.buffers().of_value(value))
}
