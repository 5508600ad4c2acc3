//! Promise V11: no value is read after another value of the same buffer has overwritten it.
//!
//! XLA inserted the copies that this needs before it scheduled the program; nothing repairs what a rewrite breaks afterwards. What XLA puts
//! into one buffer (an *alias set*) is known from the program alone: what an instruction forwards, what it updates in place, what a
//! loop carries, what a donated parameter becomes. So the judge plays the schedule ([`flow`]): each write makes the written value the content
//! of its set, and each read demands that the set still holds the value that is read. A value that an asynchronous operation reads is
//! demanded again when it is done.
//!
//! A loop is played once. What it carries is renamed at its start and must be whole at the end of its body; what it hands on unchanged is the
//! same value before, in and after it. Branches are played one after another, each on the contents before the conditional. A computation that
//! several instructions call is played for each.
//!
//! Two cases are warnings, since XLA repairs them after scheduling with a copy that costs memory (seen in its output): an instruction that writes
//! where it still reads other elements, and a write over a constant or a parameter that is not donated. It repairs nothing else: a late read
//! goes through without a message, even of a value that it has copied for one of the two.
//!
//! It is near-linear: union-find over the array positions of all values, then one pass over the played schedule. It shares nothing with
//! the analyses that plan, and is exact on what XLA must alias; what XLA may alias beyond that, it only does where it is safe.

mod cells;
mod flow;
mod in_place;
mod play;

use super::cx::Cx;
use crate::diag::Severity;
use crate::ir::InstrId;

/// Complaints that are shown: one mistake breaks many reads.
const SHOWN: usize = 20;

pub(super) fn check(cx: &mut Cx<'_>) {
    match flow::Flow::build(cx.module) {
        Ok(mut flow) => {
            let clashes = play::play(cx.module, &mut flow);
            for clash in clashes.iter().take(SHOWN) {
                complain(cx, clash);
            }
        }
        Err(flow::TooLarge) => {
            let entry = cx.module.entry_id();
            cx.error_in("V11", entry, "computations are called from so many places that their buffers cannot be followed");
        }
    }
}

/// One read of what is no longer there.
pub(super) struct Clash {
    reader: InstrId,
    /// The name by which the reader knows the value.
    read: InstrId,
    /// What made the value that is read.
    value: InstrId,
    /// What overwrote it.
    writer: InstrId,
    kind: ClashKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ClashKind {
    /// The reader comes after the writer.
    Late,
    /// The reader is an asynchronous operation that is done only after the writer.
    Open,
    /// Reader and writer are one, and it does not read each element just before it writes it.
    SameTime,
    /// The value is a constant or a parameter that is not donated: nobody may overwrite it.
    Fixed,
}

fn complain(cx: &mut Cx<'_>, clash: &Clash) {
    let (reader, value, writer) = (cx.name(clash.reader), cx.name(clash.read), cx.name(clash.writer));
    let bytes = cx.module.shapes.leaf_bytes(cx.instr(clash.read).shape);
    let (severity, message) = match clash.kind {
        ClashKind::Late => (Severity::Error, format!("`{reader}` reads `{value}` after `{writer}` has overwritten its buffer")),
        ClashKind::Open => (Severity::Error, format!("`{writer}` overwrites the buffer of `{value}` before `{reader}` is done with it")),
        ClashKind::SameTime => (
            Severity::Warning,
            format!("`{writer}` overwrites the buffer of `{value}` while it still reads it: XLA copies it, {bytes} bytes"),
        ),
        ClashKind::Fixed => {
            let what = "a constant, or a parameter that is not donated";
            (Severity::Warning, format!("`{writer}` overwrites `{value}`, {what}: XLA copies it, {bytes} bytes"))
        }
    };
    let mut d = cx.error_at("V11", clash.reader, message);
    d.severity = severity;
    if clash.writer != clash.reader {
        d = d.at(cx.instr(clash.writer).span, "overwritten here");
    }
    if clash.value != clash.writer && clash.value != clash.reader {
        d = d.at(cx.instr(clash.value).span, "the value is made here");
    }
    cx.push(d.note("a loop, an in-place update or a donation puts both values into one buffer: read earlier, or copy the value first"));
}
