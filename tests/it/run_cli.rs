//! `offc run` and `offc equiv` on the command line: what they write, and what they refuse.

use crate::cli::{Folder, err, out, run, status};

/// A value goes to the host and comes back while something else is computed.
const OFFLOADED: &str = "HloModule m, is_scheduled=true

ENTRY e {
  p = f32[65536]{0} parameter(0)
  a = f32[65536]{0} negate(p)
  s = (f32[65536]{0:S(5)}, f32[65536]{0}, u32[]) copy-start(a)
  b = f32[65536]{0} multiply(p, p)
  d = f32[65536]{0:S(5)} copy-done(s)
  t = (f32[65536]{0}, f32[65536]{0:S(5)}, u32[]) copy-start(d)
  c = f32[65536]{0} multiply(b, b)
  u = f32[65536]{0} copy-done(t)
  ROOT r = f32[65536]{0} add(c, u)
}
";

#[test]
fn timing_writes_a_trace_and_a_calibration() {
    let folder = Folder::new("timing");
    let input = folder.file("m.hlo", OFFLOADED.as_bytes());
    let (trace, calibration) = (folder.path("t.json"), folder.path("t.toml"));
    let done = run(&["run", &input, "--seed", "1", "--timing", &trace]);
    assert_eq!(status(&done), 0, "{}", err(&done));
    let said = err(&done);
    assert!(said.contains("rank correlation") && said.contains("farthest from the median") && said.contains("predicted for"), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let on =
        |name: &str| events.iter().filter(|e| e["name"] == name && e["ph"] == "X").map(|e| e["tid"].as_u64().unwrap()).collect::<Vec<_>>();
    // A computation twice: the start is computed at once, its copy runs on the thread of its direction.
    assert_eq!((on("a"), on("wait at d"), on("wait at u")), (vec![1], vec![1], vec![1]));
    assert!(on("s").contains(&2) && on("t").contains(&3), "{:?} {:?}", on("s"), on("t"));
    let text = std::fs::read_to_string(&calibration).unwrap();
    assert!(text.contains("version = 1") && text.contains("[instructions]") && text.contains("\"a\" = \""), "{text}");
    // The calibration is one that `simulate` takes, and then the prediction is the measurement.
    let simulated = run(&["simulate", &input, "--calibration", &calibration]);
    assert_eq!(status(&simulated), 0, "{}", err(&simulated));
    assert!(out(&simulated).contains("on cpu"), "{}", out(&simulated));
    let same = run(&["run", &input, "--timing", &folder.path("t.toml")]);
    assert_eq!(status(&same), 2, "{}", err(&same));
}

#[test]
fn fast_is_near_exact() {
    let folder = Folder::new("fast");
    let text = "HloModule m\n\nENTRY e {\n  a = bf16[40,300] parameter(0)\n  b = f32[300,50] parameter(1)\n  c = f32[40,300] convert(a)\n  \
                ROOT d = f32[40,50] dot(c, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n";
    let input = folder.file("m.hlo", text.as_bytes());
    let outputs = |more: &[&str], name: &str| {
        let path = folder.path(name);
        let done = run(&[&["run", &input, "--seed", "3", "--outputs", &path], more].concat());
        assert_eq!(status(&done), 0, "{}", err(&done));
        offc::interp::npz::read(&std::fs::read(&path).unwrap()).unwrap().remove(0).1
    };
    let (exact, fast) = (outputs(&[], "a.npz"), outputs(&["--fast"], "b.npz"));
    for i in 0..exact.len() {
        let (a, b) = (exact.f64(i), fast.f64(i));
        assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{i}: {a} and {b}");
    }
}

#[test]
fn what_cannot_run_is_said_before_anything_runs() {
    let folder = Folder::new("refused");
    let input = folder.file("m.hlo", OFFLOADED.as_bytes());
    let small = run(&["run", &input, "--arena", "512KiB"]);
    assert_eq!(status(&small), 1, "{}", err(&small));
    assert!(err(&small).contains("the arena has 524288 bytes") && err(&small).contains("of device memory"), "{}", err(&small));
    let unknown = "HloModule m\n\nENTRY e {\n  p = f32[8] parameter(0)\n  n = f32[8] negate(p)\n  c = f32[8] custom-call(n), custom_call_target=\"mine\"\n  \
                   t = token[] after-all()\n  ROOT u = (f32[8], token[]) infeed(t)\n}\n";
    let input = folder.file("u.hlo", unknown.as_bytes());
    let refused = run(&["run", &input, "--seed", "1"]);
    assert_eq!(status(&refused), 3, "{}", err(&refused));
    assert!(err(&refused).contains("`c` (custom-call)") && err(&refused).contains("`u` (infeed)"), "{}", err(&refused));
}

#[test]
fn negative_strides_are_refused() {
    let folder = Folder::new("strides");
    for (name, line) in [
        ("slice", "ROOT r = f32[4] slice(p), slice={[7:3:-1]}"),
        ("still", "ROOT r = f32[4] slice(p), slice={[0:8:0]}"),
        ("window", "z = f32[] constant(0)\n  ROOT r = f32[4] reduce-window(p, z), window={size=2 stride=-2}, to_apply=f"),
        ("pad", "z = f32[] constant(0)\n  ROOT r = f32[4] pad(p, z), padding=0_0_-1"),
    ] {
        let text = format!(
            "HloModule m\n\nf {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}}\n\nENTRY e {{\n  \
             p = f32[8] parameter(0)\n  {line}\n}}\n"
        );
        let input = folder.file(&format!("{name}.hlo"), text.as_bytes());
        let refused = run(&["run", &input, "--seed", "1"]);
        assert_eq!(status(&refused), 3, "{name}: {}{}", out(&refused), err(&refused));
    }
}
