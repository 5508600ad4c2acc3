//! The verifier on real programs: all are well formed, and a late read of anything that they overwrite is found.

use std::path::{Path, PathBuf};

use offc::ir::{CompId, Insertion, InstrId, Instruction, Module, Op};
use offc::proto::decode;
use offc::verify::{same_collectives, same_trip_counts, verify};

use crate::filetests::files;

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let found = files(&folder, ".pb");
    if found.is_empty() {
        eprintln!("skipped: no corpus at {}", folder.display());
    }
    found
}

fn read(path: &Path) -> Module {
    let bytes = std::fs::read(path).expect("a listed file can be read");
    decode(&bytes).unwrap_or_else(|d| panic!("{}: {d:?}", path.display())).0
}

#[test]
fn the_corpus_is_well_formed_as_text_and_before_optimization() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    for path in files(&folder, ".hlo") {
        let text = std::fs::read(&path).expect("a listed file can be read");
        let parsed = offc::text::parse(&text).unwrap_or_else(|d| panic!("{}: {d:?}", path.display()));
        assert_eq!(verify(&parsed.module), [], "{}", path.display());
    }
}

#[test]
fn the_corpus_is_well_formed() {
    for path in corpus() {
        let module = read(&path);
        assert_eq!(verify(&module), [], "{}", path.display());
        assert_eq!(same_collectives(&module, &module), []);
        assert_eq!(same_trip_counts(&module, &module), []);
    }
}

/// The codes that come of a copy of `value` just before the root of `comp`.
fn read_late(module: &Module, comp: CompId, value: InstrId) -> Vec<&'static str> {
    let mut m = module.clone();
    let shape = m.instr(value).shape;
    let late = m.define(Instruction::new("late_reader", shape, Op::Copy, [value]));
    let root = m.comp(comp).root;
    let position = m.comp(comp).order.iter().position(|&i| i == root).expect("the root stands in the order");
    m.splice(comp, vec![Insertion { position, instr: late }], &Default::default());
    verify(&m).into_iter().map(|d| d.code).collect()
}

/// What a value is, seen through what only renames it.
fn source(module: &Module, mut id: InstrId) -> InstrId {
    while let Op::Bitcast | Op::OptBarrier = module.instr(id).op {
        id = module.instr(id).operands[0];
    }
    id
}

#[test]
fn a_late_read_of_a_donated_parameter_is_found() {
    for path in corpus() {
        let module = read(&path);
        let entry = module.entry_id();
        let root = module.entry().root;
        let mut tried = 0;
        for alias in module.header.input_output_alias.iter().step_by(5) {
            let [index] = alias.output[..] else { continue };
            let output = module.instr(root).operands[usize::try_from(index).expect("it is small")];
            let parameter = module.entry().parameters[usize::try_from(alias.parameter).expect("it is small")];
            if source(&module, output) != parameter {
                assert_eq!(read_late(&module, entry, parameter), ["V11"], "{}: {alias:?}", path.display());
                tried += 1;
            }
        }
        assert!(tried > 0 || module.header.input_output_alias.is_empty(), "{}", path.display());
    }
}

#[test]
fn a_late_read_of_a_carried_value_is_found() {
    for path in corpus() {
        let module = read(&path);
        let whiles = module.live().filter_map(|(_, id)| if let Op::While { body, .. } = module.instr(id).op { Some(body) } else { None });
        for body in whiles.collect::<Vec<_>>() {
            let c = module.comp(body);
            let root = module.instr(c.root);
            for &id in c.order.iter() {
                let i = module.instr(id);
                let Op::GetTupleElement { index } = i.op else { continue };
                if i.operands[0] != c.parameters[0] || module.shapes.array(i.shape).is_none() {
                    continue;
                }
                let next = source(&module, root.operands[usize::try_from(index).expect("it is small")]);
                let unchanged = module.instr(next).op == Op::GetTupleElement { index } && module.instr(next).operands[0] == c.parameters[0];
                // A read by its own successor, late as it is, comes in time only if nothing is written before.
                let codes = read_late(&module, body, id);
                let host = codes.contains(&"V2");
                let expected: &[&str] = if unchanged || host { &[] } else { &["V11"] };
                assert_eq!(codes, expected, "{}: `{}` in `{}`", path.display(), i.name, c.name);
            }
        }
    }
}
