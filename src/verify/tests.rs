//! Promises that no text can break, since its parser would not read it; and hostile sizes.

use super::verify;
use crate::ir::{
    ArrayShape, CompId, Computation, Entity, InstrId, Instruction, Literal, LiteralValue, Module, Op, Primitive, Shape, ShapeId, Unary,
};

/// `ENTRY e { a = f32[2] parameter(0); ROOT b = f32[2] negate(a) }`
fn small() -> Module {
    let mut m = Module::default();
    let shape = m.shapes.intern(Shape::Array(ArrayShape::new(Primitive::F32, &[2])));
    let a = m.define(Instruction::new("a", shape, Op::Parameter { number: 0 }, []));
    let b = m.define(Instruction::new("b", shape, Op::Unary(Unary::Negate), [a]));
    let comp = Computation { order: vec![a, b], parameters: vec![a], root: b, ..Computation::new("e") };
    let comp = m.computations.push(comp);
    m.listing.push(comp);
    m.entry = Some(comp);
    m
}

fn codes(m: &Module) -> Vec<&'static str> {
    verify(m).into_iter().map(|d| d.code).collect()
}

fn entry(m: &mut Module) -> &mut Computation {
    let entry = m.entry_id();
    &mut m.computations[entry]
}

fn call(m: &mut Module, callee: CompId) {
    let a = m.entry().parameters[0];
    let shape = m.instr(a).shape;
    let call = m.define(Instruction::new("call", shape, Op::Call { to_apply: callee, is_composite: false }, [a]));
    entry(m).order.push(call);
}

#[test]
fn a_small_program_is_well_formed() {
    assert_eq!(codes(&small()), [""; 0]);
}

#[test]
fn s01_names_outside_their_arena() {
    let mut m = small();
    m.instructions[InstrId::new(1)].operands[0] = InstrId::new(9);
    assert_eq!(codes(&m), ["S01"]);
    let mut m = small();
    m.instructions[InstrId::new(1)].shape = ShapeId::new(9);
    assert_eq!(codes(&m), ["S01"]);
    let mut m = small();
    entry(&mut m).root = InstrId::new(9);
    assert_eq!(codes(&m), ["S01"]);
    let mut m = small();
    m.listing.push(CompId::new(9));
    assert_eq!(codes(&m), ["S01"]);
}

#[test]
fn s02_an_instruction_twice() {
    let mut m = small();
    entry(&mut m).order.push(InstrId::new(1));
    assert!(codes(&m).contains(&"S02"));
}

#[test]
fn s03_an_operand_that_is_dead() {
    let mut m = small();
    let shape = m.instr(InstrId::new(0)).shape;
    let dead = m.define(Instruction::new("dead", shape, Op::Unary(Unary::Negate), [InstrId::new(0)]));
    m.instructions[InstrId::new(1)].operands[0] = dead;
    assert_eq!(codes(&m), ["S03"]);
}

#[test]
fn s04_a_gap_in_the_parameters() {
    let mut m = small();
    m.instructions[InstrId::new(0)].op = Op::Parameter { number: 1 };
    assert_eq!(codes(&m), ["S04"]);
}

#[test]
fn s05_one_name_for_two() {
    let mut m = small();
    m.instructions[InstrId::new(1)].name = "a".into();
    assert_eq!(codes(&m), ["S05"]);
}

#[test]
fn s06_an_unlisted_callee() {
    let mut m = small();
    let callee = m.entry().clone();
    let callee = m.computations.push(Computation { name: "callee".into(), ..callee });
    call(&mut m, callee);
    assert_eq!(codes(&m), ["S06"]);
}

#[test]
fn s07_a_computation_that_calls_itself() {
    let mut m = small();
    let entry = m.entry_id();
    call(&mut m, entry);
    assert_eq!(codes(&m), ["S07"]);
}

#[test]
fn s08_too_few_operands() {
    let mut m = small();
    m.instructions[InstrId::new(1)].operands.clear();
    assert_eq!(codes(&m), ["S08"]);
}

#[test]
fn h06_a_constant_that_is_too_short() {
    let mut m = small();
    let shape = m.instr(InstrId::new(0)).shape;
    let value = LiteralValue::Dense(vec![0; 4].into());
    m.instructions[InstrId::new(1)].op = Op::Constant(Box::new(Literal { shape, value }));
    m.instructions[InstrId::new(1)].operands.clear();
    assert_eq!(codes(&m), ["H06"]);
}

#[test]
fn q01_a_use_before_its_definition() {
    let mut m = small();
    entry(&mut m).order.reverse();
    assert_eq!(codes(&m), ["Q01"]);
}

#[test]
fn q02_a_control_predecessor_that_comes_later() {
    let mut m = small();
    m.instructions[InstrId::new(0)].control_predecessors.push(InstrId::new(1));
    assert_eq!(codes(&m), ["Q02"]);
}

#[test]
fn s17_a_done_without_its_start() {
    let mut m = small();
    let callee = m.entry().clone();
    let shape = m.instr(InstrId::new(0)).shape;
    let p = m.define(Instruction::new("p", shape, Op::Parameter { number: 0 }, []));
    let callee = Computation { name: "w".into(), order: vec![p], parameters: vec![p], root: p, ..callee };
    let calls = m.computations.push(callee);
    m.listing.insert(0, calls);
    let done = crate::ir::Async { calls, thread: None, aliasing: Vec::new() };
    m.instructions[InstrId::new(1)].op = Op::AsyncDone(Box::new(done));
    assert_eq!(codes(&m)[0], "S17");
}

/// A computation that hands its parameter to what `op` makes of it.
fn wrap(m: &mut Module, name: String, shape: ShapeId, ops: Vec<Op>) -> CompId {
    let p = m.define(Instruction::new(format!("{name}.p"), shape, Op::Parameter { number: 0 }, []));
    let mut order = vec![p];
    for (i, op) in ops.into_iter().enumerate() {
        let last = *order.last().expect("it begins with the parameter");
        order.push(m.define(Instruction::new(format!("{name}.i{i}"), shape, op, [last])));
    }
    let root = *order.last().expect("it begins with the parameter");
    let comp = m.computations.push(Computation { order, parameters: vec![p], root, ..Computation::new(name) });
    m.listing.push(comp);
    comp
}

#[test]
fn calls_may_nest_as_deep_as_they_like() {
    let mut m = Module { is_scheduled: true, ..Module::default() };
    let shape = m.shapes.intern(Shape::Array(ArrayShape::new(Primitive::F32, &[2])));
    let mut comp = wrap(&mut m, "c".into(), shape, vec![Op::Unary(Unary::Negate)]);
    for depth in 0..100_000 {
        comp = wrap(&mut m, format!("c{depth}"), shape, vec![Op::Call { to_apply: comp, is_composite: false }]);
    }
    m.entry = Some(comp);
    assert_eq!(codes(&m), [""; 0]);
}

#[test]
fn doubling_calls_are_refused_and_not_played() {
    let mut m = Module { is_scheduled: true, ..Module::default() };
    let shape = m.shapes.intern(Shape::Array(ArrayShape::new(Primitive::F32, &[2])));
    let mut comp = wrap(&mut m, "c".into(), shape, vec![Op::Unary(Unary::Negate)]);
    for depth in 0..60 {
        let call = || Op::Call { to_apply: comp, is_composite: false };
        comp = wrap(&mut m, format!("c{depth}"), shape, vec![call(), call()]);
    }
    m.entry = Some(comp);
    assert_eq!(codes(&m), ["V11"]);
}

#[test]
fn shapes_may_nest_as_deep_as_they_like() {
    let mut m = small();
    let mut shape = m.instr(InstrId::new(0)).shape;
    for _ in 0..200_000 {
        shape = m.shapes.intern(Shape::Tuple(vec![shape]));
    }
    m.is_scheduled = true;
    m.instructions[InstrId::new(0)].shape = shape;
    m.instructions[InstrId::new(1)].op = Op::OptBarrier;
    assert_eq!(codes(&m), ["H01"]);
    m.instructions[InstrId::new(1)].shape = shape;
    assert_eq!(codes(&m), [""; 0]);
}

#[test]
fn a_hundred_thousand_instructions_take_no_time() {
    let mut m = Module { is_scheduled: true, ..Module::default() };
    let shape = m.shapes.intern(Shape::Array(ArrayShape::new(Primitive::F32, &[2])));
    let comp = wrap(&mut m, "c".into(), shape, vec![Op::Unary(Unary::Negate); 100_000]);
    m.entry = Some(comp);
    assert_eq!(codes(&m), [""; 0]);
}

#[test]
fn complaints_are_limited() {
    let mut m = Module::default();
    let shape = m.shapes.intern(Shape::Array(ArrayShape::new(Primitive::F32, &[2])));
    let comp = wrap(&mut m, "c".into(), shape, vec![Op::Unary(Unary::Not); 1000]);
    m.entry = Some(comp);
    assert_eq!(codes(&m).len(), super::MOST);
}
