//! A timeline as a trace in Chrome's JSON form, which Perfetto (ui.perfetto.dev) opens.
//!
//! A lane is a thread; loops, iterations and what stands for more of them have a thread of their own. Counters follow device and host bytes.
//! An arrow leads from a copy to the host to the next copy back of the same buffer. The text comes in pieces, one event each, so that it can be
//! written as it is made.

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
    let mut arrows = Arrows { last: FxHashMap::default(), next: 0 };
    let events = timeline.events.iter().flat_map(move |event| {
        let mut out = Vec::new();
        slice(module, event, &mut out);
        arrows.follow(analyses, event, &mut out);
        out
    });
    let counters = [("device bytes", DEVICE), ("host bytes", HOST)].into_iter().flat_map(move |(name, color)| {
        bytes_over_time(timeline, analyses, color).into_iter().map(move |(time, bytes)| {
            format!("{{\"name\":\"{name}\",\"ph\":\"C\",\"ts\":{},\"pid\":1,\"args\":{{\"bytes\":{}}}}}", micros(time), bytes.get())
        })
    });
    let first = std::iter::once(format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}", process(module)));
    let rest = threads().into_iter().chain(events).chain(counters).map(|piece| format!(",\n{piece}"));
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
    format!("{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{{\"name\":{}}}}}", quoted(&module.name))
}

fn threads() -> Vec<String> {
    let lanes = std::iter::once(Lane::Compute).chain(Lane::BESIDE).map(|lane| (thread(lane), lane.name()));
    let named = |(id, name): (usize, &str)| {
        [
            format!("{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{id},\"args\":{{\"name\":\"{name}\"}}}}"),
            format!("{{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":{id},\"args\":{{\"sort_index\":{id}}}}}"),
        ]
    };
    std::iter::once((LOOPS, "loops")).chain(lanes).flat_map(named).collect()
}

fn slice(module: &Module, event: &Event, out: &mut Vec<String>) {
    let instr = module.instr(event.instr);
    let (name, tid) = match event.what {
        What::Start => return,
        What::Kernel | What::Work { .. } => (instr.name.to_string(), thread(event.lane)),
        What::Wait { on } => (format!("wait for {}", on.name()), thread(Lane::Compute)),
        What::Iteration => (format!("{} iteration", instr.name), LOOPS),
        What::Repeat { times } => (format!("{} {times} more like it", instr.name), LOOPS),
        What::Loop { trips } => (format!("{} x {trips}", instr.name), LOOPS),
    };
    if event.span.time().is_zero() {
        return;
    }
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
    let (begin, time) = (micros(event.span.begin), micros(event.span.time()));
    out.push(format!(
        "{{\"name\":{},\"ph\":\"X\",\"ts\":{begin},\"dur\":{time},\"pid\":1,\"tid\":{tid},\"args\":{{{args}}}}}",
        quoted(&name)
    ));
}

/// The last copy to the host of each host buffer.
struct Arrows {
    last: FxHashMap<BufferId, Nanos>,
    next: u64,
}

impl Arrows {
    fn follow(&mut self, analyses: &Analyses<'_>, event: &Event, out: &mut Vec<String>) {
        let Some(buffer) = host_buffer(analyses, event.instr).filter(|_| matches!(event.what, What::Work { .. })) else { return };
        match event.lane {
            Lane::ToHost => {
                self.last.insert(buffer, event.span.begin);
            }
            Lane::FromHost => {
                let Some(&sent) = self.last.get(&buffer) else { return };
                self.next += 1;
                let end = |ph: &str, time: Nanos, lane: Lane, more: &str| {
                    let (id, ts, tid) = (self.next, micros(time), thread(lane));
                    format!(
                        "{{\"name\":\"host copy\",\"cat\":\"host\",\"ph\":\"{ph}\",\"id\":{id},\"ts\":{ts},\"pid\":1,\"tid\":{tid}{more}}}"
                    )
                };
                out.push(end("s", sent, Lane::ToHost, ""));
                out.push(end("f", event.span.begin, Lane::FromHost, ",\"bp\":\"e\""));
            }
            Lane::Compute | Lane::OnDevice | Lane::Collective | Lane::Beside => {}
        }
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
