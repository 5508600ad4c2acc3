//! Codes of the verifier: structure (S), shapes (H), order (Q), memory spaces and buffers (V).

use super::Explanation;

const fn row(code: &'static str, title: &'static str, text: &'static str) -> Explanation {
    Explanation { code, title, text }
}

/// The promises of `verify`, by code.
pub(super) static TABLE: &[Explanation] = &[
    row(
        "H01",
        "the declared shape is not the one that the operation gives",
        "Every operation gives one shape for its operands and attributes. XLA compares element types and sizes before it compiles.",
    ),
    row(
        "H02",
        "the operands do not suit the operation",
        "Their ranks, sizes or element types do not go together, or not with this operation.",
    ),
    row(
        "H03",
        "the attributes do not suit the operands",
        "A dimension number is outside of the operand or stands twice, a slice leaves the array, or a list is too short.",
    ),
    row("H04", "the layout does not order the dimensions", "`minor_to_major` names every dimension once, the fastest varying first."),
    row(
        "H05",
        "a bitcast changes the number of bytes",
        "A bitcast names the same memory anew: it may change type, sizes and layout, not the size in bytes.",
    ),
    row("H06", "a constant has too few or too many elements", "The elements of a constant fill its shape exactly."),
    row(
        "Q01",
        "an instruction stands before its operand",
        "The order of a computation is the order in which it runs, in a scheduled program word for word. Move the operand up or the user down.",
    ),
    row(
        "Q02",
        "an instruction stands before its control predecessor",
        "A control predecessor must run first though nothing of it is read: it guards an in-place update, say.",
    ),
    row(
        "Q03",
        "an asynchronous operation is not ended once",
        "A start is used by one done, perhaps by way of updates, and by nothing else: until then its result is not there.",
    ),
    row("S01", "a name is of no thing in the module", "An operand, root, callee or shape must be one of this module's own."),
    row("S02", "an instruction stands in an order twice", "Each live instruction runs at one place."),
    row(
        "S03",
        "an instruction needs one that does not run in its computation",
        "Operands and control predecessors stand in the order of the same computation; values come from outside only as parameters.",
    ),
    row("S04", "parameters are not numbered one by one", "The parameters of a computation have the numbers 0, 1, 2 and so on, each once."),
    row("S05", "two things bear one name", "Names of instructions are unique in their computation, names of computations in the module."),
    row("S06", "a computation is not listed", "The entry and every called computation stand in the module's list, once."),
    row("S07", "a computation calls itself", "HLO has no recursion: repeat with a while."),
    row(
        "S08",
        "an instruction has too few or too many operands",
        "The operation, its attributes or the rank of an operand fix the number.",
    ),
    row(
        "S09",
        "a called computation does not take what is passed",
        "Parameters must be as many as the caller passes, with element types and sizes as passed.",
    ),
    row(
        "S10",
        "a called computation does not return what is needed",
        "A condition returns `pred[]`, a loop's body what it takes, a fused computation what the fusion declares.",
    ),
    row(
        "S11",
        "a fusion or async computation has a second caller",
        "XLA keeps one computation for each fusion and each async chain. Clone the computation for the second caller.",
    ),
    row(
        "S12",
        "a fused instruction is not used",
        "XLA demands a user of every instruction of a fused computation but the root, parameters included.",
    ),
    row(
        "S13",
        "the entry layout does not fit the entry computation",
        "`entry_computation_layout` lists the entry's parameters and its result.",
    ),
    row("S14", "an alias names nothing or twice the same", "Each entry of `input_output_alias` pairs one output with one parameter."),
    row(
        "S15",
        "a donation names nothing or twice the same",
        "Each entry of `buffer_donor` names a parameter, or a part of one, that is not aliased already.",
    ),
    row(
        "S16",
        "a collective names a device twice",
        "Each device is in one group, is source once and target once. Global device ids need a channel.",
    ),
    row("S17", "an async chain is broken", "An update or a done has an async start or update as operand, and names the same computation."),
    row(
        "V1",
        "an operation that computes has its result in host memory",
        "Only copies, slices, updates, containers and control flow may hold `S(5)` values. A kernel that writes pinned memory runs at the speed \
         of the bus.",
    ),
    row(
        "V2",
        "an operation that computes reads host memory",
        "Values in `S(5)` must be copied to the device before anything computes with them.",
    ),
    row(
        "V3",
        "a slice or update changes the memory space the wrong way",
        "A dynamic-update-slice works in place, so its result is where its buffer is. A dynamic-slice may bring host data to the device, not the reverse.",
    ),
    row(
        "V4",
        "an operation that moves no data changes the memory space",
        "Bitcasts, tuples and control flow only rename a value. To move it use copy-start and copy-done.",
    ),
    row(
        "V5",
        "an entry parameter or result is not where the entry layout says",
        "The caller places arguments and expects results by the entry layout. This is XLA's error E1200. Copy the value, or change the layout and \
         the caller with it.",
    ),
    row(
        "V6",
        "an aliased output differs from its parameter",
        "Both are one buffer: element type, sizes, layout and memory space must be equal.",
    ),
    row(
        "V7",
        "a transfer is read before it is done",
        "The target of a copy-start holds nothing before its copy-done, and an allocation holds nothing before it is written. XLA does not notice.",
    ),
    row(
        "V8",
        "a copy-start is not one half of a pair",
        "Its result is (target, source, u32[]), with the operand's type, sizes and layout, and its one user is a copy-done.",
    ),
    row(
        "V9",
        "a loop carries a value that changes its place",
        "The initial value, the parameters of body and condition, and the body's result have one shape, layout and memory space: they are one buffer.",
    ),
    row(
        "V10",
        "a loop's known trip count is not its count",
        "`known_trip_count` must agree with the counter's start, step and limit. Emitters and cost models believe it.",
    ),
    row(
        "V11",
        "a value is read after its buffer was overwritten",
        "A loop, an in-place update or a donated parameter puts several values into one buffer, one after another. XLA inserts copies where two \
         of them live at once, but only before it schedules: a program that is scheduled already computes wrong values without a message. Read \
         the old value before the new one is written, or copy it.",
    ),
    row(
        "V12",
        "a pass changed the collectives",
        "Other devices run the same program: a collective that is missing, doubled or out of its order makes all wait for ever.",
    ),
];
