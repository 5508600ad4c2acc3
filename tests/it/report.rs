//! What `peak`, `diff`, `devices --probe` and `simulate` report, through the command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gpt3_760m_unrolled_none.pb");
const OFFLOADED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpt3_tiny_offload");
const SHARDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpt3_tiny_none_fsdp4.pb");

fn offc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_offc")).env_remove("NO_COLOR").stdin(Stdio::null()).args(args).output().expect("the binary starts")
}

/// What a command prints that ends with this status.
#[track_caller]
fn printed(args: &[&str], status: i32) -> String {
    let output = offc(args);
    assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("reports are UTF-8")
}

#[track_caller]
fn json(args: &[&str], status: i32) -> Value {
    serde_json::from_str(&printed(&[args, &["--json"]].concat(), status)).expect("it is JSON")
}

#[track_caller]
fn fits_a_terminal(text: &str) {
    let wide = text.lines().find(|line| line.chars().count() > 100);
    assert_eq!(wide, None);
}

/// A folder that goes away with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("it stands in the folder")).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().expect("paths of tests are UTF-8").to_string()
    }
    fn path(&self) -> &str {
        self.0.to_str().expect("paths of tests are UTF-8")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The keys that others rely on; `offc peak --help` says what they mean.
#[test]
fn the_keys_of_peak_are_there_and_documented() {
    let peak = json(&["peak", EXAMPLE], 0);
    let help = printed(&["peak", "--help"], 0);
    let keys = |of: &Value| of.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let figures = ["argument", "output", "alias", "temp", "peak", "host_argument", "host_output", "host_temp", "device", "host"];
    for key in figures {
        assert!(peak[key].is_u64(), "{key}");
    }
    let all = [keys(&peak), keys(&peak["alive"][0]), keys(&peak["alive"][0]["until"]), keys(&peak["groups"][0]), keys(&peak["floor"])];
    for key in all.iter().flatten() {
        let word = |c: char| !(c.is_alphanumeric() || c == '_');
        assert!(help.split(word).any(|w| w == key), "`offc peak --help` does not say what `{key}` is");
    }
    let sum = |rows: &Value| rows.as_array().expect("a list").iter().map(|r| r["bytes"].as_u64().expect("bytes")).sum::<u64>();
    let alive = peak["alive_bytes"].as_u64().expect("bytes");
    assert_eq!([sum(&peak["roles"]), sum(&peak["groups"]), sum(&peak["alive"])], [alive; 3]);
    assert!(peak["floor"]["bytes"].as_u64() < peak["device"].as_u64());
}

#[test]
fn reports_fit_a_terminal() {
    let pb = format!("{OFFLOADED}.pb");
    for args in [&["peak", EXAMPLE][..], &["peak", EXAMPLE, "--buffers", "--top", "0"], &["peak", &pb], &["diff", EXAMPLE, &pb]] {
        let output = offc(args);
        fits_a_terminal(std::str::from_utf8(&output.stdout).expect("reports are UTF-8"));
    }
    let Some(corpus) = corpus() else { return };
    for file in crate::filetests::files(&corpus, ".pb") {
        fits_a_terminal(&printed(&["peak", file.to_str().expect("UTF-8")], 0));
    }
}

#[test]
fn another_instant_can_be_looked_at() {
    let peak = json(&["peak", EXAMPLE], 0);
    let at = peak["alive"].as_array().expect("a list").iter().find_map(|b| b["until"]["last_reader"].as_str()).expect("some reader");
    let other = json(&["peak", EXAMPLE, "--at", at], 0);
    assert_eq!((other["at"].as_str(), &other["temp"]), (Some(at), &peak["temp"]));
    assert!(other["alive_bytes"].as_u64() <= peak["alive_bytes"].as_u64());
    assert!(String::from_utf8_lossy(&offc(&["peak", EXAMPLE, "--at", "nobody"]).stderr).contains("`--at` names `nobody`"));
}

fn corpus() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: {} is not here", folder.display());
    None
}

/// The figures of every corpus module, through the command line, are XLA's; a text and its proto have the same figures and the same roles.
#[test]
fn peak_equals_xla_on_the_corpus() {
    let Some(folder) = corpus() else { return };
    let xla: Value = serde_json::from_slice(&std::fs::read(folder.join("xla.json")).unwrap()).unwrap();
    let mut trouble = Vec::new();
    for (name, figures) in xla.as_object().expect("an object") {
        let ours: Vec<Value> = ["pb", "hlo"].map(|e| json(&["peak", &format!("{}/{name}.{e}", folder.display())], 0)).into();
        for key in ["argument", "output", "alias", "temp", "peak", "host_argument", "host_output", "host_temp"] {
            for (ours, form) in ours.iter().zip(["proto", "text"]) {
                if ours[key] != figures[key] {
                    trouble.push(format!("{name} ({form}): {key} is {} and XLA's {}", ours[key], figures[key]));
                }
            }
        }
        if ours[0]["roles"] != ours[1]["roles"] {
            trouble.push(format!("{name}: the roles of text and proto differ"));
        }
    }
    assert!(trouble.is_empty(), "\n{}", trouble.join("\n"));
}

#[test]
fn the_peak_of_a_scanned_model() {
    let Some(folder) = corpus() else { return };
    snapshot("peak_gpt3_1b3_none", &printed(&["peak", &format!("{}/gpt3_1b3_none.pb", folder.display())], 0));
}

#[test]
fn the_difference_of_a_scanned_model_and_its_offloaded_twin() {
    let Some(folder) = corpus() else { return };
    let [a, b] = ["gpt3_1b3_none.hlo", "gpt3_1b3_offload.pb"].map(|n| format!("{}/{n}", folder.display()));
    snapshot("diff_gpt3_1b3_none_offload", &printed(&["diff", &a, &b], 0));
}

#[test]
fn a_text_and_its_proto_do_not_differ() {
    let [text, proto] = ["hlo", "pb"].map(|e| format!("{OFFLOADED}.{e}"));
    let diff = json(&["diff", &text, &proto], 0);
    assert_eq!(diff["before"], diff["after"]);
    assert_eq!((diff["buffers"].as_array().map(Vec::len), diff["opcodes"].as_array().map(Vec::len)), (Some(0), Some(0)));
    let moved = &diff["before"]["transfers"]["to_host"];
    assert!(moved["count"].as_u64() > Some(1) && moved["bytes"].as_u64() > Some(0), "{moved}");
}

#[test]
fn diff_sees_what_a_rewrite_did() {
    let folder = Folder::new("diff");
    let out = folder.file("out.hlo", "");
    let rewrite = ["rewrite", EXAMPLE, "-o", &out, "--device", "h100-sxm", "--memory", "5GiB"];
    assert_eq!(offc(&rewrite).status.code(), Some(0));
    let diff = json(&["diff", EXAMPLE, &out], 0);
    let bytes = |side: &str, key: &str| diff[side][key].as_u64().expect("bytes");
    assert!(bytes("after", "device") <= 5 << 30 && bytes("before", "device") > 7 << 30);
    assert!(diff["collectives"]["equal"].as_bool().expect("a word"));
    assert!(diff["after"]["transfers"]["to_host"]["count"].as_u64() > Some(0));
    assert!(diff["buffers"].as_array().expect("a list").iter().any(|g| g["fate"] == "gone"));
}

const PERMUTES: &str = "HloModule m, is_scheduled=true

ENTRY e {
  p = f32[8]{0} parameter(0)
  a = f32[8]{0} collective-permute(p), channel_id=1, source_target_pairs={{0,1}}
  ROOT b = f32[8]{0} collective-permute(a), channel_id=2, source_target_pairs={{1,0}}
}
";

#[test]
fn other_collectives_are_said_loudly() {
    let folder = Folder::new("collectives");
    let before = folder.file("a.hlo", PERMUTES);
    let after = folder.file("b.hlo", &PERMUTES.replace("channel_id=2", "channel_id=3"));
    let text = printed(&["diff", &before, &after], 1);
    assert!(text.contains("COLLECTIVES DIFFER") && text.contains("collective 1"), "{text}");
    assert_eq!(json(&["diff", &before, &after], 1)["collectives"]["equal"], false);
    assert!(printed(&["diff", &before, &before], 0).contains("collectives equal: 2"));
    assert!(printed(&["diff", SHARDED, SHARDED], 0).contains("collectives equal"));
}

/// A host with two NUMA nodes and two GPUs on the second, one of which sleeps.
fn host(folder: &Folder) {
    for (node, kib) in [(0, 263_784_392u64), (1, 264_206_316)] {
        let at = format!("devices/system/node/node{node}");
        folder.file(&format!("{at}/meminfo"), &format!("Node {node} MemTotal:       {kib} kB\nNode {node} MemFree:  1 kB\n"));
        folder.file(&format!("{at}/cpulist"), &format!("{}-{}\n", 32 * node, 32 * node + 31));
    }
    folder.file("devices/system/node/online", "0-1\n");
    for (address, class, speed) in [("81:00.0", "0x030200", "32.0"), ("a1:00.0", "0x030200", "2.5"), ("a1:00.1", "0x040300", "32.0")] {
        let at = format!("bus/pci/devices/0000_{address}").replace(':', "_");
        for (name, content) in [
            ("class", class),
            ("vendor", "0x10de"),
            ("device", "0x2330"),
            ("numa_node", "1"),
            ("current_link_speed", &format!("{speed} GT/s PCIe")),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
        ] {
            folder.file(&format!("{at}/{name}"), &format!("{content}\n"));
        }
    }
}

#[test]
fn the_probe_of_a_host_is_a_calibration() {
    let folder = Folder::new("probe");
    host(&folder);
    let text = printed(&["devices", "--probe", "--sysfs", folder.path()], 0);
    snapshot("probe_two_nodes", &text.replace(folder.path(), "/sys"));
    let file = folder.file("host.toml", &text);
    let pb = format!("{OFFLOADED}.pb");
    assert_eq!(json(&["simulate", &pb, "--calibration", &file], 0)["calibration"], "probe");
    let machine = offc::machine::calibrate(offc::machine::preset("a100-sxm-80").unwrap(), &text).expect("it is one");
    assert_eq!((machine.h2d, machine.host.gpus_per_node, machine.host.numa_nodes), (offc::units::BytesPerSec::gb(50.0), 2, 1));
    let probe = json(&["devices", "--probe", "--sysfs", folder.path()], 0);
    assert_eq!((probe["nodes"].as_array().map(Vec::len), probe["gpus"].as_array().map(Vec::len)), (Some(2), Some(2)));
    assert_eq!((&probe["gpus"][1]["node"], &probe["gpus"][1]["link_now"]["gigatransfers"]), (&1.into(), &2.5.into()));
}

#[test]
fn a_host_without_a_gpu_says_so() {
    let folder = Folder::new("no-gpu");
    folder.file("devices/system/node/node0/meminfo", "Node 0 MemTotal: 1024 kB\n");
    let text = printed(&["devices", "--probe", "--sysfs", folder.path()], 0);
    assert!(text.contains("no NVIDIA GPU is here"), "{text}");
    assert_eq!(json(&["devices", "--probe", "--sysfs", folder.path()], 0)["calibration"], Value::Null);
    assert_eq!(offc(&["devices", "--probe", "--sysfs", "/no/such/folder"]).status.code(), Some(2));
    assert_eq!(offc(&["devices", "--probe", "h200"]).status.code(), Some(2));
}

#[test]
fn devices_say_all_that_a_plan_uses() {
    for device in json(&["devices"], 0)["devices"].as_array().expect("a list") {
        for key in ["memory", "hbm", "h2d", "d2h", "both_ways", "peer", "copy_latency", "launch_latency", "from_host", "to_host"] {
            assert!(device[key].as_u64() > Some(0), "{key} of {}", device["name"]);
        }
        for key in ["pinned", "numa_nodes", "gpus_per_node", "node_dram"] {
            assert!(device["host"][key].as_u64() > Some(0), "host.{key} of {}", device["name"]);
        }
        for key in ["gpus", "bus", "network", "latency", "hop", "network_hop"] {
            assert!(device["fabric"][key].as_u64() > Some(0), "fabric.{key} of {}", device["name"]);
        }
    }
}

const LOOP: &str = "HloModule m, is_scheduled=true

body {
  s = (f32[8]{0}) parameter(0)
  x = f32[8]{0} get-tuple-element(s), index=0
  n = f32[8]{0} negate(x)
  ROOT t = (f32[8]{0}) tuple(n)
}

condition {
  s = (f32[8]{0}) parameter(0)
  x = f32[8]{0} get-tuple-element(s), index=0
  f = f32[1]{0} slice(x), slice={[0:1]}
  g = f32[] bitcast(f)
  z = f32[] constant(0)
  ROOT c = pred[] compare(g, z), direction=LT
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  c = f32[8]{0} copy(p)
  i = (f32[8]{0}) tuple(c)
  w = (f32[8]{0}) while(i), condition=condition, body=body
  ROOT r = f32[8]{0} get-tuple-element(w), index=0
}
";

#[test]
fn what_is_assumed_is_said() {
    let folder = Folder::new("trips");
    let file = folder.file("m.hlo", LOOP);
    let text = printed(&["simulate", &file], 0);
    assert!(text.contains("assumed") && text.contains('w'), "{text}");
    let told = json(&["simulate", &file], 0);
    assert_eq!((&told["loops"][0]["how"], &told["loops"][0]["trips"]), (&"assumed".into(), &1.into()));
    let said = json(&["simulate", &file, "--trips", "w=7"], 0);
    assert_eq!((&said["loops"][0]["how"], &said["loops"][0]["trips"]), (&"given".into(), &7.into()));
    assert_eq!(offc(&["simulate", &file, "--trips", "v=7"]).status.code(), Some(2));
    assert_eq!(offc(&["simulate", &file, "--trips", "w=often"]).status.code(), Some(2));
    assert!(printed(&["diff", &file, &file], 0).contains("the trip count is not known"));
}

#[test]
fn wrong_machines_are_told_with_their_places() {
    let folder = Folder::new("machines");
    let pb = format!("{OFFLOADED}.pb");
    let said = |args: &[&str], status: i32| {
        let output = offc(&[&["simulate", &pb], args].concat());
        assert_eq!(output.status.code(), Some(status), "{args:?}");
        String::from_utf8(output.stderr).expect("messages are UTF-8")
    };
    let calibration = folder.file("c.toml", "version = 1\n[rates]\nh2d = \"fast\"\n");
    assert!(said(&["--calibration", &calibration], 3).contains("c.toml:3:7: error[M05]"));
    let binary = folder.file("b.toml", "\u{0}\u{1}");
    assert!(said(&["--calibration", &binary], 3).contains("error[M04]"));
    let spec = folder.file("s.txtpb", "gpu_device_info {\n  core_count: 132\n");
    assert!(said(&["--device", &spec], 3).contains("error[M01]"));
    assert!(said(&["--calibration", "no/such.toml"], 2).contains("no/such.toml"));
    assert!(said(&["--device", "h300"], 2).contains("expected one of"));
    assert!(said(&["--link-h2d", "fast"], 2).contains("--link-h2d"));
    assert!(said(&["--link-h2d", "0"], 2).contains("--link-h2d"));
    assert!(said(&["--gpus-per-node", "0"], 2).contains("--gpus-per-node"));
    assert!(said(&["--host-memory", "much"], 2).contains("--host-memory"));
}
