//! The analyses against XLA's own figures, and promises about placements that a quadratic judge can check.

use std::path::{Path, PathBuf};

use offc::analysis::settle::settle;
use offc::analysis::{Analyses, Memory};
use offc::ir::{DEVICE, HOST, Module};

/// The corpus, if it is here.
fn corpus() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: {} is not here", folder.display());
    None
}

fn load(path: &Path) -> Module {
    offc::proto::decode(&std::fs::read(path).unwrap()).expect("the corpus decodes").0
}

/// Names and XLA's figures of the corpus, by name.
fn truth(folder: &Path) -> Vec<(String, Memory)> {
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("xla.json")).unwrap()).unwrap();
    let figure = |module: &serde_json::Value, name: &str| module[name].as_u64().unwrap_or_else(|| panic!("no figure `{name}`"));
    json.as_object()
        .unwrap()
        .iter()
        .map(|(name, m)| {
            let memory = Memory {
                argument: figure(m, "argument"),
                output: figure(m, "output"),
                alias: figure(m, "alias"),
                temp: figure(m, "temp"),
                peak: figure(m, "peak"),
                host_argument: figure(m, "host_argument"),
                host_output: figure(m, "host_output"),
                host_temp: figure(m, "host_temp"),
                host_alias: 0,
            };
            (name.clone(), memory)
        })
        .collect()
}

#[test]
fn figures_equal_those_of_xla() {
    let Some(folder) = corpus() else { return };
    for (name, xla) in truth(&folder) {
        let module = load(&folder.join(format!("{name}.pb")));
        assert_eq!(*Analyses::new(&module).memory(), xla, "{name}");
    }
}

#[test]
fn the_curve_and_what_is_alive_add_up_to_the_peak() {
    let Some(folder) = corpus() else { return };
    for (name, xla) in truth(&folder).into_iter().filter(|(name, _)| name.starts_with("gpt3_") && !name.ends_with("offload")) {
        let module = load(&folder.join(format!("{name}.pb")));
        let settled = settle(&module);
        let analyses = Analyses::new(settled.as_ref().unwrap_or(&module));
        let (instant, bytes) = analyses.curve(DEVICE).peak();
        let alive = offc::analysis::memory::alive_at(&analyses, DEVICE, u32::try_from(instant).unwrap());
        assert_eq!((bytes, alive.iter().map(|a| a.bytes).sum::<u64>()), (xla.peak, xla.peak), "{name}");
    }
}

/// No two values of different groups lie over each other while both are alive. Quadratic, and shares no code with the placement.
pub fn assert_no_overlap(name: &str, module: &Module) {
    let analyses = Analyses::new(module);
    let (values, buffers, assignment) = (analyses.values(), analyses.buffers(), analyses.assignment());
    for color in [DEVICE, HOST] {
        let placed: Vec<_> = values
            .iter()
            .filter_map(|(id, value)| {
                let buffer = buffers.of_value(id);
                let (allocation, offset) = assignment.place_of(buffer)?;
                let bytes = module.shapes.byte_size(value.shape);
                let place = assignment.in_heap(id)?;
                (allocation.color == color && bytes > 0).then_some((id, place, offset, offset + bytes, buffers.range(id)))
            })
            .collect();
        for (i, (a, in_a, from_a, to_a, live_a)) in placed.iter().enumerate() {
            for (b, in_b, from_b, to_b, live_b) in &placed[i + 1..] {
                let together = live_a.start <= live_b.end && live_b.start <= live_a.end;
                let over = from_a < to_b && from_b < to_a;
                assert!(!(together && over) || in_a.group == in_b.group, "{name}: {a:?} and {b:?}");
            }
        }
    }
}

#[test]
fn values_never_overlap_in_space_and_time() {
    let Some(folder) = corpus() else { return };
    for name in ["gpt3_tiny_none", "gpt3_tiny_offload", "gpt3_tiny_none_fsdp4", "gpt3_760m_unrolled_none"] {
        assert_no_overlap(name, &load(&folder.join(format!("{name}.pb"))));
    }
}

#[test]
fn the_same_module_is_assigned_in_the_same_way() {
    let Some(folder) = corpus() else { return };
    let module = load(&folder.join("gpt3_tiny_offload.pb"));
    let places = || {
        let analyses = Analyses::new(&module);
        analyses.buffers().iter().map(|(id, _)| analyses.assignment().place_of(id).map(|(_, offset)| offset)).collect::<Vec<_>>()
    };
    assert_eq!(places(), places());
}
