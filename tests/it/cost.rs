//! Prices: what fused computations read, trips, collectives by size and group, custom calls, conditionals.

use offc::cost::{PriceSource, Prices, TripSource, collective, price, roofline, trips};
use offc::ir::{InstrId, Module, Op};
use offc::machine::{Machine, preset};
use offc::sim::{Note, Options, simulate, simulate_with};
use offc::units::{Bytes, Nanos};

fn parse(text: &str) -> Module {
    offc::text::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e:?}\n{text}")).module
}

fn named(module: &Module, name: &str) -> InstrId {
    module.live().find(|(_, id)| *module.instr(*id).name == *name).unwrap_or_else(|| panic!("no `{name}`")).1
}

fn h100() -> Machine {
    preset("h100-sxm").unwrap()
}

const KIB: u64 = 1 << 10;

/// The bytes of a fusion `f` of `x`, an array of 64 rows of 1,024 numbers, and of `i`, an index.
fn bytes_of_fusion(result: &str, body: &str) -> Bytes {
    let text = format!(
        "HloModule m, is_scheduled=true\n\nfused {{\n  x = f32[64,1024]{{1,0}} parameter(0)\n  i = s32[] parameter(1)\n  zero = s32[] \
         constant(0)\n{body}}}\n\nENTRY e {{\n  p = f32[64,1024]{{1,0}} parameter(0)\n  j = s32[] parameter(1)\n  ROOT f = {result} fusion(p, j), \
         kind=kLoop, calls=fused\n}}\n"
    );
    let module = parse(&text);
    roofline::work(&module, named(&module, "f")).bytes
}

const SLICE: &str = "dynamic_slice_sizes={1,1024}";

#[test]
fn a_fusion_reads_the_slices_it_takes_not_the_stack() {
    let slice = format!("  ROOT s = f32[1,1024]{{1,0}} dynamic-slice(x, i, zero), {SLICE}\n");
    assert_eq!(bytes_of_fusion("f32[1,1024]{1,0}", &slice), Bytes(4 * KIB + 4 * KIB + 4));
    // Also where something elementwise stands in between: only what is asked for is computed.
    let converted = format!("  c = bf16[64,1024]{{1,0}} convert(x)\n  ROOT s = bf16[1,1024]{{1,0}} dynamic-slice(c, i, zero), {SLICE}\n");
    assert_eq!(bytes_of_fusion("bf16[1,1024]{1,0}", &converted), Bytes(4 * KIB + 2 * KIB + 4));
    // Read twice, as a whole and in part: once.
    let both = format!(
        "  s = f32[1,1024]{{1,0}} dynamic-slice(x, i, zero), {SLICE}\n  r = f32[1024]{{0}} bitcast(s)\n  w = f32[64,1024]{{1,0}} broadcast(r), \
         dimensions={{1}}\n  ROOT a = f32[64,1024]{{1,0}} add(x, w)\n"
    );
    assert_eq!(bytes_of_fusion("f32[64,1024]{1,0}", &both), Bytes(2 * 256 * KIB + 4));
}

#[test]
fn an_update_in_place_writes_the_update_and_a_new_stack_is_written_whole() {
    let update = "  one = f32[] constant(1)\n  u = f32[1,1024]{1,0} broadcast(one), dimensions={}\n";
    let in_place = format!("{update}  ROOT d = f32[64,1024]{{1,0}} dynamic-update-slice(x, u, i, zero)\n");
    assert_eq!(bytes_of_fusion("f32[64,1024]{1,0}", &in_place), Bytes(4 * KIB + 4));
    let made =
        format!("{update}  new = f32[64,1024]{{1,0}} negate(x)\n  ROOT d = f32[64,1024]{{1,0}} dynamic-update-slice(new, u, i, zero)\n");
    assert_eq!(bytes_of_fusion("f32[64,1024]{1,0}", &made), Bytes(2 * 256 * KIB + 4));
}

#[test]
fn one_output_of_a_fusion_made_alone_reads_only_what_it_needs() {
    let module = parse(
        "HloModule m, is_scheduled=true\n\nfused {\n  x = f32[64,1024]{1,0} parameter(0)\n  y = f32[64,1024]{1,0} parameter(1)\n  s = f32[1,1024]{1,0} \
         slice(x), slice={[3:4], [0:1024]}\n  a = f32[64,1024]{1,0} sine(y)\n  ROOT t = (f32[1,1024]{1,0}, f32[64,1024]{1,0}) tuple(s, \
         a)\n}\n\nENTRY e {\n  p = f32[64,1024]{1,0} parameter(0)\n  q = f32[64,1024]{1,0} parameter(1)\n  ROOT f = (f32[1,1024]{1,0}, \
         f32[64,1024]{1,0}) fusion(p, q), kind=kLoop, calls=fused\n}\n",
    );
    let Op::Fusion(fusion) = &module.instr(named(&module, "f")).op else { panic!("it is a fusion") };
    let (work, read) = roofline::work_of_output(&module, fusion.calls, 0).unwrap();
    assert_eq!((work.bytes, read), (Bytes(2 * 4 * KIB), vec![0]));
}

/// A loop that starts at `start`, takes steps of `step` and goes on while `condition` holds of `j` and `n` = `limit`.
fn counting_loop(start: i64, step: i64, condition: &str, limit: i64, config: &str) -> Module {
    parse(&format!(
        "HloModule m, is_scheduled=true\n\nbody {{\n  b = (s32[], f32[262144]{{0}}) parameter(0)\n  i = s32[] get-tuple-element(b), index=0\n  x = \
         f32[262144]{{0}} get-tuple-element(b), index=1\n  by = s32[] constant({step})\n  next = s32[] add(i, by)\n  y = f32[262144]{{0}} \
         sine(x)\n  ROOT r = (s32[], f32[262144]{{0}}) tuple(next, y)\n}}\n\ncond {{\n  c = (s32[], f32[262144]{{0}}) parameter(0)\n  j = s32[] \
         get-tuple-element(c), index=0\n  n = s32[] constant({limit})\n  ROOT lt = pred[] compare(j, n), direction={condition}\n}}\n\nENTRY e {{\n  p \
         = f32[262144]{{0}} parameter(0)\n  z = s32[] constant({start})\n  s = s32[] copy(z)\n  x0 = f32[262144]{{0}} copy(p)\n  init = (s32[], \
         f32[262144]{{0}}) tuple(s, x0)\n  w = (s32[], f32[262144]{{0}}) while(init), condition=cond, body=body{config}\n  ROOT x1 = \
         f32[262144]{{0}} get-tuple-element(w), index=1\n}}\n"
    ))
}

#[test]
fn trips_are_known_derived_or_asked_for() {
    let of = |module: &Module| trips(module, named(module, "w"));
    for (start, step, condition, limit, count) in [
        (0, 1, "LT", 10, 10),
        (3, 4, "LT", 12, 3),
        (9, -1, "GE", 0, 10),
        (0, 2, "NE", 20, 10),
        (0, 1, "LE", 100_000, 100_001),
        (5, 1, "LT", 5, 0),
    ] {
        let trips = of(&counting_loop(start, step, condition, limit, ""));
        assert_eq!((trips.count, trips.source), (count, TripSource::Derived), "{start} {step} {condition} {limit}");
    }
    // What XLA wrote goes before what the condition says.
    let written = of(&counting_loop(0, 1, "LT", 10, ", backend_config={\"known_trip_count\":{\"n\":\"4\"}}"));
    assert_eq!((written.count, written.source), (4, TripSource::Known));
    // Never ending, or with a counter that stands still: nobody can tell.
    for module in [counting_loop(0, 0, "LT", 10, ""), counting_loop(0, 1, "GE", 0, "")] {
        assert_eq!((of(&module).count, of(&module).source), (1, TripSource::Assumed));
    }
    // The step is that of so many iterations, and an unknown count is told.
    let unknown = counting_loop(0, 0, "LT", 10, "");
    let prices = Prices::new(&unknown, &h100());
    let once = simulate(&unknown, &h100(), &prices);
    assert!(once.notes.contains(&Note::AssumedTrips(named(&unknown, "w"))));
    let asked = Options { trips: [("w".to_owned(), 11)].into_iter().collect(), ..Options::default() };
    let eleven = simulate_with(&unknown, &h100(), &prices, &asked);
    assert!(eleven.notes.is_empty() && eleven.loops[0].source.is_none() && eleven.loops[0].trips == 11);
    let iteration = prices.time(named(&unknown, "y")) + prices.time(named(&unknown, "next")) + prices.time(named(&unknown, "lt"));
    assert_eq!(eleven.step - once.step, iteration * 10);
}

/// The time of one collective on `members` of 16 devices.
fn collective_time(opcode: &str, rows: u64, out_rows: u64, groups: &str) -> Nanos {
    let array = |rows: u64| format!("f32[{rows},65536]{{1,0}}");
    let applied = if opcode == "all-reduce" || opcode == "reduce-scatter" { ", to_apply=sum" } else { "" };
    let dims = if opcode == "all-reduce" { "" } else { ", dimensions={0}" };
    let module = parse(&format!(
        "HloModule m, is_scheduled=true, num_partitions=16\n\nsum {{\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = f32[] add(x, \
         y)\n}}\n\nENTRY e {{\n  p = {} parameter(0)\n  ROOT c = {} {opcode}(p), channel_id=1, use_global_device_ids=true, \
         replica_groups={groups}{dims}{applied}\n}}\n",
        array(rows),
        array(out_rows)
    ));
    let message = collective::of(&module, named(&module, "c")).unwrap();
    collective::time(&message, &h100())
}

#[test]
fn collectives_take_time_by_size_and_group() {
    let all_reduce = |rows: u64, groups: &str| collective_time("all-reduce", rows, rows, groups);
    let (node, pair, all) = ("[2,8]<=[16]", "[8,2]<=[16]", "[1,16]<=[16]");
    // Twice the bytes: nearly twice the time when large, hardly more when small.
    let (one, two) = (all_reduce(4096, node), all_reduce(8192, node));
    assert!(two.as_f64() / one.as_f64() > 1.95 && two < one * 2);
    assert!(all_reduce(2, node).as_f64() / all_reduce(1, node).as_f64() < 1.2);
    // A ring passes (n - 1) / n: of two members less than of eight. Across nodes the network is the slower part.
    assert!(all_reduce(4096, pair) < one && one < all_reduce(4096, all));
    // An all-gather or a reduce-scatter of the same whole is half of an all-reduce, and members that lie in several nodes use the network.
    let (gather, scatter) = (collective_time("all-gather", 512, 4096, node), collective_time("reduce-scatter", 4096, 512, node));
    assert_eq!(gather, scatter);
    assert!((one.as_f64() / gather.as_f64() - 2.0).abs() < 0.05);
    assert!(collective_time("all-reduce", 4096, 4096, "[8,2]<=[2,8]T(1,0)") > all_reduce(4096, pair));
}

#[test]
fn every_custom_call_is_priced_or_listed() {
    let gemm = "backend_config={\"gemm_backend_config\":{\"dot_dimension_numbers\":{\"lhs_contracting_dimensions\":[\"1\"]}}}";
    let fmha = "backend_config={\"cudnn_fmha_backend_config\":{\"intermediate_tensor_shape\":{\"dimensions\":[\"2\",\"8\",\"1024\",\"1024\"]},\"mask_type\":\"CAUSAL\"}}";
    let text = format!(
        "HloModule m, is_scheduled=true\n\nENTRY e {{\n  a = bf16[4096,4096]{{1,0}} parameter(0)\n  b = bf16[4096,4096]{{1,0}} parameter(1)\n  q = \
         bf16[2,1024,8,64]{{3,2,1,0}} parameter(2)\n  gemm = (bf16[4096,4096]{{1,0}}, s8[4194304]{{0}}) custom-call(a, b), \
         custom_call_target=\"__cublas$gemm\", {gemm}\n  sold = bf16[4096,4096]{{1,0}} custom-call(a, b), custom_call_target=\"mine\", \
         backend_config={{\"reification_cost\":[{{\"exec_time_us\":77,\"name\":\"sol\"}}]}}\n  flash = bf16[2,1024,8,64]{{3,2,1,0}} custom-call(q, q, q), \
         custom_call_target=\"__cudnn$fmhaSoftmax\", {fmha}\n  room = bf16[4096,4096]{{1,0}} custom-call(), custom_call_target=\"AllocateBuffer\"\n  \
         odd = bf16[4096,4096]{{1,0}} custom-call(a), custom_call_target=\"nobody_knows\"\n  bare = bf16[4096,4096]{{1,0}} custom-call(a, b), \
         custom_call_target=\"__cublas$gemm\"\n  ROOT r = bf16[4096,4096]{{1,0}} copy(odd)\n}}\n"
    );
    let module = parse(&text);
    let prices = Prices::new(&module, &h100());
    let of = |name: &str| prices.get(named(&module, name));
    assert_eq!((of("gemm").source, of("flash").source), (PriceSource::Library, PriceSource::Library));
    // 2 * 4096^3 operations at 82 % of 989 TFLOP/s are 169 us; a tenth more for partial tiles and pipelines.
    let gemm = of("gemm").time.micros();
    assert!((169.0..190.0).contains(&gemm), "{gemm}");
    assert_eq!((of("sold").source, of("sold").time), (PriceSource::Reified, Nanos(77_000)));
    assert_eq!((of("room").source, of("room").time), (PriceSource::Free, Nanos::ZERO));
    // What nobody can look into: its bytes over the rate of memory, and listed; also a library's call without its configuration.
    assert_eq!(prices.unpriced(), [named(&module, "odd"), named(&module, "bare")]);
    assert_eq!(of("odd").time, h100().hbm_time(Bytes(2 * 2 * 4096 * 4096)));
    let listed: Vec<Note> = simulate(&module, &h100(), &prices).notes;
    assert_eq!(listed, [Note::Unpriced(named(&module, "odd")), Note::Unpriced(named(&module, "bare"))]);
}

#[test]
fn of_a_conditional_the_heavier_branch_counts() {
    let text =
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/simulate/conditional.hlo")).unwrap();
    let module = parse(&text);
    let time = |name: &str| price(&module, named(&module, name), &h100()).time;
    let timeline = simulate(&module, &h100(), &Prices::new(&module, &h100()));
    assert_eq!(timeline.step, time("once") + time("twice") + time("thrice"));
}
