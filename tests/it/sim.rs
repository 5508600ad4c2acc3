//! The simulator on random programs: memory over its time is that of the liveness analysis, and more work never ends sooner. Placements of the same
//! programs against a quadratic judge.

use offc::analysis::Analyses;
use offc::cost::Prices;
use offc::ir::{DEVICE, HOST, Module};
use offc::machine::{Machine, preset};
use offc::sim::{bytes_over_time, simulate};
use offc::units::{Bytes, BytesPerSec, Nanos};
use proptest::prelude::*;

use super::analysis::assert_no_overlap;

/// One instruction: what it is, two operands by distance.
type Draft = (u8, usize, usize);

#[derive(Clone, Debug)]
struct Program {
    entry: Vec<Draft>,
    body: Vec<Draft>,
    trips: u32,
    /// Where to add an instruction: whether in the body, and at which position.
    added: (bool, usize),
}

fn programs() -> impl Strategy<Value = Program> {
    let drafts = |most| prop::collection::vec((0u8..8, 0usize..6, 0usize..6), 1..most);
    (drafts(24), drafts(8), 0u32..5, (any::<bool>(), 0usize..40)).prop_map(|(entry, body, trips, added)| Program {
        entry,
        body,
        trips,
        added,
    })
}

/// Writes instructions: kernels, unions, halves, copies to the host and back (some over many instructions). `values` are names with their
/// numbers of rows of 64 Ki numbers. The instruction `added` reads a value that is there and is read by nobody.
fn block(drafts: &[Draft], prefix: &str, values: &mut Vec<(String, u64)>, added: Option<usize>) -> String {
    let mut text = String::new();
    // Copies under way: name of the start, of the value, rows.
    let mut open: Vec<(String, u64, bool)> = Vec::new();
    let array = |rows: u64, space: &str| format!("f32[{},65536]{{1,0{space}}}", rows);
    let on_host = ":S(5)";
    for (n, &(kind, a, b)) in drafts.iter().enumerate() {
        if added.is_some_and(|at| at % drafts.len() == n) {
            let (name, rows) = &values[n % values.len()];
            text += &format!("  {prefix}more = {} sine({name})\n", array(*rows, ""));
        }
        let pick = |distance: usize| values[values.len() - 1 - distance % values.len()].clone();
        let ((x, rows), (y, other)) = (pick(a), pick(b));
        let name = format!("{prefix}{n}");
        let made = match kind {
            0 | 1 => (format!("{} exponential({x})", array(rows, "")), rows),
            2 if rows == other => (format!("{} add({x}, {y})", array(rows, "")), rows),
            2 | 3 if rows + other <= 64 => (format!("{} concatenate({x}, {y}), dimensions={{0}}", array(rows + other, "")), rows + other),
            4 if rows > 1 => (format!("{} slice({x}), slice={{[0:{}], [0:65536]}}", array(rows / 2, ""), rows / 2), rows / 2),
            5 | 6 => {
                let (dst, src) = (array(rows, on_host), array(rows, ""));
                text += &format!("  {name}.s = ({dst}, {src}, u32[]) copy-start({x})\n");
                open.push((name, rows, true));
                continue;
            }
            _ => match open.pop() {
                Some((start, rows, true)) => {
                    let (dst, src) = (array(rows, ""), array(rows, on_host));
                    text += &format!("  {start}.d = {src} copy-done({start}.s)\n");
                    text += &format!("  {start}.t = ({dst}, {src}, u32[]) copy-start({start}.d)\n");
                    open.insert(0, (start, rows, false));
                    continue;
                }
                Some((start, rows, false)) => {
                    text += &format!("  {start}.e = {} copy-done({start}.t)\n", array(rows, ""));
                    values.push((format!("{start}.e"), rows));
                    continue;
                }
                None => (format!("{} copy({x})", array(rows, "")), rows),
            },
        };
        text += &format!("  {name} = {}\n", made.0);
        values.push((name, made.1));
    }
    for (start, rows, out) in open {
        let (space, ends) = if out { (on_host, ".d") } else { ("", ".e") };
        let of = if out { ".s" } else { ".t" };
        text += &format!("  {start}{ends} = {} copy-done({start}{of})\n", array(rows, space));
    }
    text
}

impl Program {
    fn module(&self, with_added: bool) -> Module {
        let at = |in_body: bool| (with_added && self.added.0 == in_body).then_some(self.added.1);
        let carried = "f32[2,65536]{1,0}";
        let mut inside = vec![("bx".to_owned(), 2)];
        let body = block(&self.body, "b", &mut inside, at(true));
        let handed = inside.iter().rev().find(|v| v.1 == 2).expect("the carried value has two rows").0.clone();
        let mut values = vec![("p".to_owned(), 2), ("q".to_owned(), 3)];
        let (first, second) = self.entry.split_at(self.entry.len() / 2);
        let before = block(first, "e", &mut values, at(false));
        let init = values.iter().rev().find(|v| v.1 == 2).expect("a parameter has two rows").0.clone();
        values.push(("w1".to_owned(), 2));
        let after = block(second, "f", &mut values, None);
        let (last, rows) = values.last().expect("there is a parameter");
        let text = format!(
            "HloModule random, is_scheduled=true\n\nbody {{\n  b = (s32[], {carried}) parameter(0)\n  bi = s32[] get-tuple-element(b), index=0\n  \
             bx = {carried} get-tuple-element(b), index=1\n  bone = s32[] constant(1)\n  bnext = s32[] add(bi, bone)\n{body}  bout = {carried} \
             copy({handed})\n  ROOT bt = (s32[], {carried}) tuple(bnext, bout)\n}}\n\ncond {{\n  c = (s32[], {carried}) parameter(0)\n  ci = s32[] \
             get-tuple-element(c), index=0\n  cn = s32[] constant({})\n  ROOT lt = pred[] compare(ci, cn), direction=LT\n}}\n\nENTRY e {{\n  p = \
             {carried} parameter(0)\n  q = f32[3,65536]{{1,0}} parameter(1)\n{before}  zero = s32[] constant(0)\n  i0 = s32[] copy(zero)\n  w0 = \
             {carried} copy({init})\n  wi = (s32[], {carried}) tuple(i0, w0)\n  w = (s32[], {carried}) while(wi), condition=cond, \
             body=body\n  w1 = {carried} get-tuple-element(w), index=1\n{after}  ROOT r = f32[{rows},65536]{{1,0}} sine({last})\n}}\n",
            self.trips
        );
        let module = offc::text::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e:?}\n{text}")).module;
        let wrong: Vec<_> = offc::verify::verify(&module).into_iter().filter(offc::diag::Diagnostic::is_error).collect();
        assert!(wrong.is_empty(), "{wrong:?}\n{text}");
        module
    }
}

fn step(module: &Module, machine: &Machine) -> Nanos {
    simulate(module, machine, &Prices::new(module, machine)).step
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// The most bytes at any moment of the simulated step is the peak of the curve: with links, and with none worth the name.
    #[test]
    fn peak_over_time_is_the_peak_of_liveness(program in programs()) {
        let module = program.module(false);
        let analyses = Analyses::new(&module);
        let mut machine = preset("h100-sxm").unwrap();
        for links in [true, false] {
            if !links {
                (machine.h2d, machine.d2h, machine.copy_latency) = (BytesPerSec::MAX, BytesPerSec::MAX, Nanos::ZERO);
            }
            let timeline = simulate(&module, &machine, &Prices::new(&module, &machine));
            for color in [DEVICE, HOST] {
                let most = bytes_over_time(&timeline, &analyses, color).into_iter().map(|(_, bytes)| bytes).max();
                // A program whose last instruction takes no time ends with it.
                prop_assert_eq!(most, Some(Bytes(analyses.curve(color).peak().1)));
            }
        }
    }

    /// One more instruction never makes the step shorter, wherever it stands.
    #[test]
    fn more_work_never_ends_sooner(program in programs()) {
        let machine = preset("h100-sxm").unwrap();
        let (less, more) = (step(&program.module(false), &machine), step(&program.module(true), &machine));
        prop_assert!(less <= more, "{} > {}", less, more);
    }

    /// No two values that are alive together lie over each other.
    #[test]
    fn placements_never_overlap(program in programs()) {
        assert_no_overlap("random", &program.module(false));
    }
}
