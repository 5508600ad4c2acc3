//! Codes of protos and of the containers that modules come in.

use super::Explanation;

pub(super) static TABLE: &[Explanation] = &[
    Explanation {
        code: "B001",
        title: "the bytes are not a protobuf message",
        text: "A number or a length runs past the end of its message, or a field has an impossible type. Mostly the file was cut off or \
               changed on the way (a transfer in text mode does that). Make the file again.",
    },
    Explanation {
        code: "B002",
        title: "a field of the proto holds something else than its kind",
        text: "The field's number is known, but its content is of another wire type, not UTF-8 where text is due, or a number outside of \
               its enumeration. The file was made by a program that disagrees about the message, or is damaged.",
    },
    Explanation {
        code: "B003",
        title: "a shape in the proto is incomplete",
        text: "Every instruction, parameter and constant needs a shape with an element type, dimensions of at least 0, and for a constant \
               an element type whose data this version can read.",
    },
    Explanation {
        code: "B004",
        title: "an id in the proto names nothing, or something that comes later",
        text: "Operands must stand before their users and called computations before their callers, as XLA demands it too; root, control \
               predecessors, entry and schedule must name what is there.",
    },
    Explanation {
        code: "B005",
        title: "two things in the proto have one id, or one thing two names",
        text: "Ids of computations are unique in a module, ids of instructions in a computation, and the name of the entry computation \
               must be the one of its id.",
    },
    Explanation {
        code: "B006",
        title: "an instruction or a module in the proto lacks something it needs",
        text: "For example an opcode, a called computation, parameter numbers without gaps, a direction of a comparison.",
    },
    Explanation {
        code: "B007",
        title: "the schedule in the proto does not fit its computation",
        text: "A schedule holds each instruction of the computation once.",
    },
    Explanation {
        code: "B008",
        title: "a constant's data do not fit its shape",
        text: "The number of elements in the message must be the number that the dimensions say.",
    },
    Explanation {
        code: "B009",
        title: "messages are nested too deeply",
        text: "Protobuf readers, XLA's among them, stop at 100 messages in one another: a shape, a constant or a sharding nests too many \
               tuples.",
    },
    Explanation {
        code: "B010",
        title: "an opcode in the proto is newer than this version",
        text: "The instruction is kept with all its fields. It is never moved and never computed again, and what it needs is kept alive.",
    },
    Explanation {
        code: "B011",
        title: "a field in the proto is newer than this version and cannot be kept",
        text: "Fields of newer XLA versions survive nearly everywhere. This one stands inside of a repeated message that has no place for \
               it and is missing in what is written.",
    },
    Explanation {
        code: "B020",
        title: "the file holds no module",
        text: "Files are told apart by what is in them, whatever their names: HLO text, HloModuleProto, HloProto, HloModuleProtoWithConfig, \
               HloUnoptimizedSnapshot, HloSnapshot, each also gzipped. This file is none of them, or its module has no instruction.",
    },
    Explanation {
        code: "B021",
        title: "a gzipped file is broken",
        text: "The file begins as a gzip file but cannot be unpacked: mostly it was cut off. Make it again.",
    },
    Explanation {
        code: "B022",
        title: "a gzipped file is too large when unpacked",
        text: "A file may grow to 256 times its size, or 64 MiB; no real module comes near. Unpack it by other means if it is to be trusted.",
    },
    Explanation {
        code: "B030",
        title: "a constant's data were left out of the text",
        text: "XLA prints long constants as `{...}` unless told otherwise; such a module can be looked at but not compiled, since the data are \
               lost. Dump it again with `--xla_dump_large_constants`, or use the proto that XLA dumps beside the text.",
    },
    Explanation {
        code: "B031",
        title: "an element type has no number",
        text: "A proto says element types by number. Text may name types that this version does not know; their numbers cannot be guessed.",
    },
];
