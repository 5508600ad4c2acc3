//! What may be wrong with a proto: each of its codes is provoked by bytes that are put together here.

use offc::diag::Diagnostic;
use offc::{proto, text};

/// `DT_FLOAT` and the tuple among `PrimitiveType`s.
const F32: u64 = 11;
const TUPLE: u64 = 13;

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A field with a number.
fn num(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field with text or a message.
fn bytes(field: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// `f32[dims]`.
fn f32s(dims: &[u64]) -> Vec<u8> {
    [num(2, F32), dims.iter().flat_map(|&d| num(3, d)).collect()].concat()
}

fn instruction(name: &str, opcode: &str, id: u64, more: &[Vec<u8>]) -> Vec<u8> {
    bytes(2, [bytes(1, name), bytes(2, opcode), bytes(3, f32s(&[2])), num(35, id), more.concat()].concat())
}

/// A computation with the id 1 and the root 2.
fn computation(instructions: &[Vec<u8>]) -> Vec<u8> {
    bytes(3, [bytes(1, "e"), instructions.concat(), num(5, 1), num(6, 2)].concat())
}

fn module(computations: &[Vec<u8>], more: &[Vec<u8>]) -> Vec<u8> {
    [bytes(1, "m"), bytes(2, "e"), computations.concat(), num(6, 1), more.concat()].concat()
}

fn parameter() -> Vec<u8> {
    instruction("p", "parameter", 1, &[])
}

fn negate(more: &[Vec<u8>]) -> Vec<u8> {
    instruction("n", "negate", 2, &[&[num(36, 1)], more].concat())
}

/// A module around one more instruction, which is the root.
fn with(root: Vec<u8>) -> Vec<u8> {
    module(&[computation(&[parameter(), root])], &[])
}

fn constant(shape: Vec<u8>, literal: Vec<u8>) -> Vec<u8> {
    bytes(2, [bytes(1, "c"), bytes(2, "constant"), bytes(3, shape), bytes(8, literal), num(35, 2)].concat())
}

#[track_caller]
fn rejected(proto: &[u8], code: &str, said: &str) {
    let errors = proto::decode(proto).expect_err(said);
    assert_eq!(errors[0].code, code, "{}", errors[0].message);
    assert!(errors[0].message.contains(said), "{}", errors[0].message);
}

fn warned(proto: &[u8]) -> Vec<Diagnostic> {
    proto::decode(proto).unwrap_or_else(|d| panic!("{}", d[0].message)).1
}

/// What encoding a text says.
fn unwritable(body: &str) -> Vec<Diagnostic> {
    let module = text::parse(format!("HloModule m\n\nENTRY e {{\n{body}\n}}\n").as_bytes()).expect("the text is well formed").module;
    proto::encode(&module).expect_err("no proto can say it")
}

#[test]
fn the_bytes_of_these_tests_make_a_module() {
    assert_eq!(warned(&with(negate(&[]))), []);
}

#[test]
fn b002_a_field_of_another_kind() {
    let whole = with(negate(&[]));
    rejected(&[whole.clone(), num(1, 5)].concat(), "B002", "in field 1");
    rejected(&[whole, bytes(1, b"\xff")].concat(), "B002", "expected UTF-8 text in field 1");
}

#[test]
fn b003_a_shape_that_is_not_whole() {
    let shaped = |shape: Vec<u8>| with(bytes(2, [bytes(1, "n"), bytes(2, "negate"), bytes(3, shape), num(35, 2), num(36, 1)].concat()));
    rejected(&shaped(num(3, 2)), "B003", "expected a shape with an element type");
    rejected(&shaped(f32s(&[(-2i64).cast_unsigned()])), "B003", "expected dimensions of at least 0, found -2");
    rejected(&with(constant(f32s(&[]), bytes(8, [0; 4]))), "B003", "expected a constant with a shape");
}

#[test]
fn b004_an_id_that_names_nothing() {
    rejected(&with(instruction("n", "negate", 2, &[num(36, 9)])), "B004", "expected operand 9 to stand before its user");
    rejected(&with(negate(&[num(37, 9)])), "B004", "expected the control predecessor 9");
    rejected(&with(instruction("n", "negate", 3, &[num(36, 1)])), "B004", "expected the root 2");
    rejected(&[with(negate(&[])), num(6, 7)].concat(), "B004", "expected the entry computation 7");
    let call = instruction("n", "call", 2, &[num(36, 1), num(38, 5)]);
    rejected(&with(call), "B004", "expected called computation 5 to stand before its caller");
}

#[test]
fn b005_ids_and_names_that_are_not_unique() {
    let twice = computation(&[parameter(), parameter(), negate(&[])]);
    rejected(&module(&[twice], &[]), "B005", "expected instruction ids to differ, found 1 twice");
    let one = computation(&[parameter(), negate(&[])]);
    rejected(&module(&[one.clone(), one.clone()], &[]), "B005", "expected computation ids to differ, found 1 twice");
    rejected(&[module(&[one], &[]), bytes(2, "other")].concat(), "B005", "to be called `other`, found `e`");
}

#[test]
fn b007_a_schedule_that_leaves_something_out() {
    let schedule = |ids: &[u64]| {
        let sequence = bytes(2, ids.iter().flat_map(|&id| num(1, id)).collect::<Vec<u8>>());
        bytes(7, bytes(1, [num(1, 1), sequence].concat()))
    };
    let one = computation(&[parameter(), negate(&[])]);
    assert_eq!(warned(&module(std::slice::from_ref(&one), &[schedule(&[1, 2])])), []);
    for ids in [&[1][..], &[1, 1], &[1, 2, 3], &[]] {
        rejected(&module(std::slice::from_ref(&one), &[schedule(ids)]), "B007", "expected a schedule of its 2 instructions, each once");
    }
}

#[test]
fn b008_a_constant_with_too_few_data() {
    let literal = |dims: &[u64], data: &[u8]| [bytes(1, f32s(dims)), bytes(8, data)].concat();
    assert_eq!(warned(&with(constant(f32s(&[2]), literal(&[2], &[0; 8])))), []);
    rejected(&with(constant(f32s(&[2]), literal(&[2], &[0; 4]))), "B008", "expected 2 elements of `f32` in a constant");
}

#[test]
fn b009_messages_nested_too_deeply() {
    let mut shape = f32s(&[]);
    for _ in 0..120 {
        shape = [num(2, TUPLE), bytes(4, shape)].concat();
    }
    let deep = bytes(2, [bytes(1, "n"), bytes(2, "negate"), bytes(3, shape), num(35, 2), num(36, 1)].concat());
    rejected(&with(deep), "B009", "expected at most 100 messages in one another");
    let shape = format!("{}f32[]{}", "(".repeat(120), ")".repeat(120));
    let said = unwritable(&format!("  ROOT p = {shape} parameter(0)"));
    assert_eq!(said.iter().map(|d| d.code).collect::<Vec<_>>(), ["B009"]);
}

#[test]
fn b010_an_opcode_of_a_newer_version_is_kept() {
    let proto = with(instruction("n", "frobnicate", 2, &[num(36, 1)]));
    let (module, said) = proto::decode(&proto).expect("it is kept");
    assert_eq!(said.iter().map(|d| d.code).collect::<Vec<_>>(), ["B010"]);
    assert!(text::print(&module).contains("frobnicate("));
}

#[test]
fn b011_a_field_that_has_no_place_is_told() {
    let scalar = |more: Vec<u8>| bytes(10, [bytes(1, f32s(&[])), bytes(8, [0; 4]), more].concat());
    let shape = || [num(2, TUPLE), bytes(4, f32s(&[]))].concat();
    let literal = |more: Vec<u8>| [bytes(1, shape()), scalar(more)].concat();
    assert_eq!(warned(&with(constant(shape(), literal(Vec::new())))), []);
    let said = warned(&with(constant(shape(), literal(num(99, 1)))));
    assert_eq!(
        said.iter().map(|d| (d.code, d.message.as_str())).collect::<Vec<_>>(),
        [("B011", "an unknown field inside of repeated field 10 is lost")]
    );
}

#[test]
fn b030_lost_data_cannot_be_written() {
    let said = unwritable("  ROOT c = f32[8]{0} constant({...})");
    assert_eq!(said.iter().map(|d| d.code).collect::<Vec<_>>(), ["B030"]);
}

#[test]
fn b031_an_unknown_element_type_cannot_be_written() {
    let said = unwritable("  ROOT p = f3e1m1[8]{0} parameter(0)");
    assert!(!said.is_empty() && said.iter().all(|d| d.code == "B031"), "{said:?}");
}
