//! Device descriptions and calibration files: file tests of their errors, and XLA's own files where they are at hand.

use std::path::Path;

use offc::diag::{LineIndex, explain};
use offc::machine::{calibrate, from_spec, preset};

#[test]
fn descriptions_and_calibrations_with_errors_say_them_where_they_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/machine");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = LineIndex::new(text.as_bytes());
        let wanted = text.lines().enumerate().filter_map(|(i, line)| {
            let (code, message) = line.split_once("# error[")?.1.split_once("]: ")?;
            Some((i + 1, code.to_string(), message.to_string()))
        });
        let errors = if file.extension().is_some_and(|e| e == "toml") {
            calibrate(preset("h100-sxm").unwrap(), &text).unwrap_err()
        } else {
            from_spec(&text).unwrap_err()
        };
        let mut found: Vec<_> =
            errors.into_iter().map(|d| (lines.position(d.labels[0].span.start).line, d.code.to_string(), d.message)).collect();
        found.sort();
        // What is found missing at the very end stands on the line after the last.
        let count = text.lines().count();
        found.iter_mut().for_each(|f| f.0 = f.0.min(count));
        assert_eq!(found, wanted.collect::<Vec<_>>(), "{}", file.display());
        assert!(found.iter().all(|f| explain(&f.1).is_some()));
    }
}

#[test]
fn xlas_own_descriptions_agree_with_the_presets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/oracle/gpu_specs");
    if !folder.is_dir() {
        println!("skipped: {} is absent", folder.display());
        return;
    }
    for name in ["a100-pcie-80", "a100-sxm-80", "h100-sxm", "h200", "b200", "gb200"] {
        let text = std::fs::read_to_string(folder.join(format!("{}.txtpb", name.replace('-', "_")))).unwrap();
        let (theirs, ours) = (from_spec(&text).unwrap(), preset(name).unwrap());
        let near = |what: &str, a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.12, "{name}: {what} {a:e} against {b:e}");
        near("memory", theirs.memory.as_f64(), ours.memory.as_f64());
        near("hbm", theirs.hbm.as_f64(), ours.hbm.as_f64());
        near("cores", theirs.cores.into(), ours.cores.into());
        if name != "a100-pcie-80" {
            near("f16", theirs.matrix.f16.as_f64(), ours.matrix.f16.as_f64());
            near("f32", theirs.vector.f32.as_f64(), ours.vector.f32.as_f64());
        }
        assert_eq!((theirs.h2d, theirs.d2h), (ours.h2d, ours.d2h), "{name}");
    }
}
