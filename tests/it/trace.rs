//! The trace of `offc simulate --trace`, held to what Perfetto wants of Chrome's JSON form.

use std::collections::BTreeMap;
use std::path::Path;

use offc::analysis::Analyses;
use offc::cost::Prices;
use offc::driver::{RewriteOptions, rewrite};
use offc::ir::Module;
use offc::machine::preset;
use offc::report::trace;
use offc::sim::simulate;
use serde_json::Value;

/// What a trace holds.
#[derive(Default)]
struct Seen {
    slices: usize,
    counters: BTreeMap<String, usize>,
    arrows: usize,
}

/// The thread of loops, where the outer contain the inner.
const LOOPS: u64 = 0;

/// Thousandths of a microsecond.
fn nanos(value: &Value) -> u64 {
    let text = value.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    whole.parse::<u64>().unwrap() * 1000 + format!("{part:0<3}").parse::<u64>().unwrap()
}

/// Checks every promise and tells what is there.
fn judge(module: &Module) -> Seen {
    let machine = preset("h100-sxm").unwrap();
    let timeline = simulate(module, &machine, &Prices::new(module, &machine));
    let analyses = Analyses::new(module);
    let pieces: Vec<String> = trace(&timeline, &analyses).collect();
    // It streams: a piece is one event.
    assert!(pieces.iter().all(|p| p.matches("\"ph\":").count() <= 1), "a piece holds more than one event");
    let json: Value = serde_json::from_str(&pieces.concat()).expect("the trace is JSON");
    let mut seen = Seen::default();
    let mut lanes: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    let mut named = Vec::new();
    let (mut out, mut back) = (BTreeMap::new(), BTreeMap::new());
    for event in json["traceEvents"].as_array().unwrap() {
        let ph = event["ph"].as_str().unwrap();
        let (ts, tid) = (nanos(&event["ts"]), event["tid"].as_u64().unwrap());
        assert_eq!(event["pid"].as_u64(), Some(1), "{event}");
        assert!(event["name"].is_string(), "{event}");
        match ph {
            "M" if event["name"] == "thread_name" => named.push(tid),
            "M" => {}
            "X" => {
                seen.slices += 1;
                lanes.entry(tid).or_default().push((ts, ts + nanos(&event["dur"])));
            }
            "C" => {
                *seen.counters.entry(event["name"].as_str().unwrap().to_owned()).or_default() += 1;
                assert!(event["args"]["bytes"].is_u64(), "{event}");
            }
            "s" => assert!(out.insert(event["id"].as_u64().unwrap(), (ts, tid)).is_none(), "{event}"),
            "f" => {
                assert_eq!(event["bp"], "e");
                assert!(back.insert(event["id"].as_u64().unwrap(), (ts, tid)).is_none(), "{event}");
            }
            _ => panic!("what is {event}?"),
        }
    }
    for (lane, spans) in &lanes {
        assert!(named.contains(lane), "lane {lane} has no name");
        let mut open: Vec<(u64, u64)> = Vec::new();
        for (n, &(from, to)) in spans.iter().enumerate() {
            assert!(n == 0 || spans[n - 1].0 <= from, "lane {lane}: slice {n} begins before the one before it");
            open.retain(|o| o.1 > from);
            let inside = open.last().is_none_or(|o| *lane == LOOPS && o.0 <= from && to <= o.1);
            assert!(inside, "lane {lane}: {from}..{to} lies over {open:?}");
            open.push((from, to));
        }
    }
    assert!(out.keys().eq(back.keys()), "an arrow has one end");
    for (id, &(sent, lane_out)) in &out {
        let (fetched, lane_back) = back[id];
        assert!(sent <= fetched && lane_out != lane_back, "arrow {id}");
        let on = |lane: u64, at: u64| lanes[&lane].iter().any(|s| s.0 <= at && at < s.1);
        assert!(on(lane_out, sent) && on(lane_back, fetched), "arrow {id} does not touch its slices");
    }
    seen.arrows = out.len();
    seen
}

fn module_of(path: &str) -> Module {
    let text = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    offc::text::parse(&text).unwrap().module
}

#[test]
fn a_rewritten_program_has_counters_and_arrows() {
    let module = module_of("tests/filetests/rewrite/offload.hlo");
    let machine = preset("h100-sxm").unwrap();
    let pipeline = Some("fit{recompute=false},dce".parse().unwrap());
    let options = RewriteOptions {
        machine,
        memory: "33MiB".parse().unwrap(),
        host_memory: None,
        host_state: None,
        truth: None,
        pipeline,
        xla_memory: None,
    };
    let rewritten = rewrite(&module, &options).unwrap().module;
    let seen = judge(&rewritten);
    assert_eq!(seen.arrows, 1);
    assert!(seen.slices >= 8 && seen.counters["device bytes"] > 3 && seen.counters["host bytes"] >= 3);
}

#[test]
fn loops_contain_their_iterations() {
    for name in ["known_trips", "derived_trips", "unknown_trips"] {
        let seen = judge(&module_of(&format!("tests/filetests/simulate/{name}.hlo")));
        assert!(seen.slices >= 4 && seen.arrows == 0, "{name}");
    }
}

#[test]
fn host_stacks_of_scanned_loops_have_arrows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus/gpt3_1b3_offload.pb");
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("skipped: {} is not here", path.display());
        return;
    };
    let seen = judge(&offc::proto::decode(&bytes).unwrap().0);
    assert!(seen.arrows > 0 && seen.slices > 100, "{} arrows, {} slices", seen.arrows, seen.slices);
}
