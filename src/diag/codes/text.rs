//! What reading text may say: `P###`.

use super::Explanation;

/// The codes, sorted.
pub(super) static TABLE: &[Explanation] = &[
    Explanation {
        code: "P001",
        title: "the file is not UTF-8 text",
        text: "HLO text is UTF-8; the bytes shown are not. If the file is a serialized `HloModuleProto`, its name or its first bytes \
               misled the reader; compressed files are unpacked before they get here.",
    },
    Explanation {
        code: "P002",
        title: "the file is too large",
        text: "Places are kept in 32 bits, so a text may have 4 GiB at most. Keep such a module as a proto.",
    },
    Explanation {
        code: "P003",
        title: "too many errors",
        text: "After 100 errors reading stops: what follows is most likely not HLO, or one mistake was repeated by a generator.",
    },
    Explanation {
        code: "P010",
        title: "unexpected text",
        text: "The text departs from the grammar at the place shown. The message says what could stand there.",
    },
    Explanation {
        code: "P011",
        title: "something is not closed",
        text: "A string, a comment or a bracket begins at the place shown and does not end before the file does.",
    },
    Explanation {
        code: "P012",
        title: "a string has an escape that means nothing",
        text: "Escapes are those of C: \\n \\t \\r \\\\ \\\" \\' \\a \\b \\f \\v \\?, octal \\101, hexadecimal \\x41, \\u00e9 and \\U000000e9.",
    },
    Explanation {
        code: "P013",
        title: "this word cannot be a name",
        text: "Names begin with a letter or `_`, go on with letters, digits, `_`, `.` and `-`, and must not be an element type. Words of the \
               language (true, inf, ENTRY, replicated …) need a `%` before them.",
    },
    Explanation {
        code: "P014",
        title: "nested too deep",
        text: "Shapes, operands, literals and inline computations may nest, but not without bound: so deep a nest is no program but an accident.",
    },
    Explanation { code: "P015", title: "a number is out of range", text: "The number does not fit the field it is for." },
    Explanation {
        code: "P020",
        title: "an attribute is said twice",
        text: "Each attribute may stand once in an instruction, a header or a list of fields. Remove one of the two.",
    },
    Explanation {
        code: "P021",
        title: "this attribute does not belong here",
        text: "The attribute is known, but not for this opcode; XLA rejects it too.",
    },
    Explanation { code: "P022", title: "an attribute is missing", text: "The opcode means nothing without the attribute named." },
    Explanation {
        code: "P023",
        title: "unknown attribute (warning)",
        text: "The attribute is not one of the XLA versions known here. It is kept and printed back as read; nothing looks into it.",
    },
    Explanation {
        code: "P024",
        title: "unknown opcode (warning)",
        text: "The opcode is not one of the XLA versions known here. The instruction is kept word for word; it is never moved or recomputed.",
    },
    Explanation {
        code: "P025",
        title: "unknown element type (warning)",
        text: "The type is not one of the XLA versions known here. Its arrays count as 0 bytes.",
    },
    Explanation {
        code: "P026",
        title: "an attribute has a value that it cannot have",
        text: "The value reads well but means nothing for this attribute: an unknown word, a wrong number of elements, parts that contradict.",
    },
    Explanation { code: "P030", title: "two computations have one name", text: "Names of computations are unique in a module." },
    Explanation { code: "P031", title: "no such computation", text: "A computation must stand before the instruction that calls it." },
    Explanation {
        code: "P032",
        title: "two entry computations",
        text: "A module has one ENTRY; without one, the last computation is the entry.",
    },
    Explanation {
        code: "P033",
        title: "a computation without instructions, or a module without computations",
        text: "A computation returns the value of its root, so it has at least one instruction; a module has at least one computation.",
    },
    Explanation { code: "P034", title: "two roots", text: "A computation has one ROOT; without one, its last instruction is the root." },
    Explanation { code: "P035", title: "two instructions have one name", text: "Names of instructions are unique in a computation." },
    Explanation {
        code: "P036",
        title: "no such instruction",
        text: "An operand must stand before its user, in the same computation. A missing definition often means that the text was cut, or that \
               instructions were moved by hand.",
    },
    Explanation {
        code: "P037",
        title: "parameter numbers are not 0, 1, 2 …",
        text: "Each number from 0 to the count stands once. A gap crashes XLA's own parser.",
    },
    Explanation {
        code: "P038",
        title: "the signature contradicts the root",
        text: "The result shape that a computation's signature declares must be that of its root, layouts aside.",
    },
    Explanation { code: "P040", title: "wrong number of operands", text: "The opcode takes another number of operands." },
    Explanation {
        code: "P041",
        title: "an operand has another shape than declared",
        text: "Where an operand is written with its shape, it must be that of the instruction named, layouts aside.",
    },
    Explanation {
        code: "P042",
        title: "the shape must be written",
        text: "The shape of this opcode does not follow from its operands, so it may not be left out.",
    },
    Explanation {
        code: "P043",
        title: "operands do not fit together",
        text: "No result shape follows from these operands and attributes.",
    },
    Explanation {
        code: "P044",
        title: "no such tuple element",
        text: "The index is beyond the tuple, or the value is not a tuple. XLA's own parser crashes on it.",
    },
    Explanation {
        code: "P050",
        title: "a layout that cannot be",
        text: "The layout has another rank than the array, or properties that dense arrays cannot have.",
    },
    Explanation {
        code: "P051",
        title: "a constant does not match its shape",
        text: "Braces nest as deep as the array has dimensions, and each level has as many elements as the shape says.",
    },
    Explanation { code: "P052", title: "a constant element is out of range", text: "The element type cannot hold the value." },
    Explanation {
        code: "P060",
        title: "asynchronous operations do not form a chain",
        text: "An update or done takes the value of its start (or of an update); a computation that is run asynchronously is called by nothing else; \
               XLA crashes on the sugar spelling of `parameter`.",
    },
    Explanation {
        code: "P061",
        title: "a stack frame that no table lists (warning)",
        text: "`stack_frame_id` or a row of the tables refers to a row that does not exist. It is kept as read.",
    },
    Explanation {
        code: "P062",
        title: "an alias of something that does not exist",
        text: "`input_output_alias` names an output position that the entry's result does not have.",
    },
];
