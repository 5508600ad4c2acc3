//! Modules survive the way through text and proto: `print∘parse` and `encode∘decode` change nothing.

use std::path::{Path, PathBuf};

use offc::diag::Diagnostic;
use offc::format::{self, Form};
use offc::ir::{Module, same};
use offc::{proto, text};

use crate::filetests::files;

/// Files with an ending: those of the repository, and the corpus and probes where they are.
fn modules(ending: &str) -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut out = files(&here.join("tests/data"), ending);
    let shared = here.join("../shared");
    if !shared.is_dir() {
        eprintln!("skipped: the modules in {}", shared.display());
    }
    out.extend(files(&shared.join("corpus"), ending));
    out
}

fn parse(bytes: &[u8]) -> Result<Module, Vec<Diagnostic>> {
    text::parse(bytes).map(|p| p.module)
}

/// What is wrong with a module's way through text, if anything.
fn through_text(module: &Module) -> Result<(), String> {
    let printed = text::print(module);
    let again = parse(printed.as_bytes()).map_err(|d| format!("its print is rejected: {}", d[0].message))?;
    same(module, &again)?;
    if text::print(&again) == printed { Ok(()) } else { Err("its print changes when it is read and printed".into()) }
}

/// What is wrong with a module's way through a proto.
fn through_proto(module: &Module) -> Result<(), String> {
    let bytes = proto::encode(module).map_err(|d| format!("it cannot be encoded: {}", d[0].message))?;
    let (again, _) = proto::decode(&bytes).map_err(|d| format!("its proto is rejected: {}", d[0].message))?;
    // A text may repeat a name in another computation; XLA takes no such proto, so the writer makes names unique: compare from there.
    let names: Vec<&str> = module.live().map(|(_, i)| &*module.instr(i).name).collect();
    let unique = names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len();
    if unique {
        same(module, &again)?;
    }
    if proto::encode(&again).ok().as_ref() == Some(&bytes) { Ok(()) } else { Err("its proto changes when it is read and written".into()) }
}

fn all_well(trouble: &[String]) {
    assert!(trouble.is_empty(), "\n{}", trouble.join("\n"));
}

#[test]
fn text_modules_survive() {
    let mut trouble = Vec::new();
    for path in modules(".hlo") {
        let module = parse(&std::fs::read(&path).expect("a listed file can be read")).expect("the corpus is well formed");
        for way in [through_text(&module), through_proto(&module)] {
            trouble.extend(way.err().map(|e| format!("{}: {e}", path.display())));
        }
    }
    all_well(&trouble);
}

/// XLA prints its own way; where that is faithful, ours is the same to the byte.
#[test]
fn canonical_prints_are_printed_again() {
    let probes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance/probes");
    if !probes.is_dir() {
        return eprintln!("skipped: no probes in {}", probes.display());
    }
    let options = text::PrintOptions { as_xla: true, elide_constants: true };
    let (mut equal, mut different) = (0, Vec::new());
    for path in files(&probes, ".canon") {
        let canon = std::fs::read_to_string(&path).expect("a listed file can be read");
        let Ok(module) = parse(canon.as_bytes()) else { continue };
        let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        if text::print_with(&module, options) == canon { equal += 1 } else { different.push(name) }
    }
    // The order of computations, a table of origins, a call without a name, a hidden async computation, a NaN of a type without one.
    let known = ["078_header_origin", "092_entry_first", "293_const_f4_nan", "415_origin_synthetic", "472_async_thread"];
    different.retain(|name| !known.contains(&&**name));
    assert!(different.is_empty() && equal > 400, "{equal} equal, different: {different:?}");
}

/// What only text can say comes back from a proto.
#[test]
fn header_attributes_survive_a_proto() {
    let source = "HloModule m, is_scheduled=true, alias_passthrough_params=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}, \
                  allow_spmd_sharding_propagation_to_parameters={true}, allow_spmd_sharding_propagation_to_output={true}, \
                  replica_count=2, num_partitions=4, frontend_attributes={a=\"b\"}\n\nENTRY %e (p: f32[2]) -> f32[2] {\n  \
                  ROOT %p = f32[2]{0} parameter(0)\n}\n\n";
    let module = parse(source.as_bytes()).expect("the text is well formed");
    let bytes = format::write(&module, &Form::PROTO).expect("a proto can say it");
    let again = format::read(&bytes).expect("it was just written");
    assert_eq!(text::print(&again.module), source);
}
