//! Kernels of `rng-bit-generator`: a thread an element. How XLA lays keys, counters and outputs out is as in the reference interpreter.

use super::emit::{Emitted, Emitter, Place};
use super::graph::Ref;
use super::linalg::row_major;
use super::lower::{BLOCK, Lowering};
use super::source::Written;
use super::types::Ty;
use crate::ir::Primitive;

/// `RandomAlgorithm`: the default is Philox.
const THREE_FRY: i32 = 1;

impl Lowering<'_> {
    /// The new state and the random bits.
    pub(super) fn random_bits(&mut self, node: usize, algorithm: i32) -> Emitted<()> {
        let state = self.graph.nodes[node].operands[0];
        let results = self.graph.nodes[node].results.clone();
        let [state_to, to] = &results[..] else { return Err("expected a state and random bits as results".to_string()) };
        let of = self.graph.ty(state).clone();
        let words = of.dims.first().copied().filter(|_| of.dims.len() == 1 && of.element == Primitive::U64);
        let fits = if algorithm == THREE_FRY { words == Some(2) } else { matches!(words, Some(2 | 3)) };
        if !fits || !(to.element.is_integer() || to.element == Primitive::Pred) {
            return Err("random bits of this state or type: there is no kernel for it".to_string());
        }
        let (count, index) = (to.elements(), self.index);
        let blocks = if algorithm == THREE_FRY { pairs(to).1 } else { (count + per_block(to) - 1) / per_block(to) };
        let mut e = Emitter::new(&mut self.graph, &self.stored, index);
        e.line(&format!("const {index} i = ({index})blockIdx.x * {BLOCK} + threadIdx.x;"));
        let word = |e: &mut Emitter<'_, '_>, k: i64| e.element(state, &Place::at(vec![k.to_string()]));
        let (key, low) = (word(&mut e, 0)?, word(&mut e, 1)?);
        // With two words the key is Philox's high word too.
        let high = if words == Some(3) { word(&mut e, 2)? } else { key.clone() };
        let mut writes = Vec::new();
        e.open("if (i == 0)");
        let (memory, sum) = (e.stored[&Ref { node, part: 0 }], format!("{low} + {blocks}ull"));
        let carry = format!("{high} + ({sum} < {low} ? 1ull : 0ull)");
        for (k, value) in [key.clone(), sum, carry].iter().enumerate().take(state_to.dims[0] as usize) {
            e.store(memory, state_to, &k.to_string(), value);
            writes.push((memory, k.to_string(), 8));
        }
        e.close();
        e.open(&format!("if (i < {count})"));
        let place = e.split("i", &row_major(to.dims.len()), &to.dims);
        let value = if algorithm == THREE_FRY { three_fry(&mut e, to, &place, &key, &low) } else { philox(&mut e, to, &key, &low, &high) };
        let value = match to.element {
            Primitive::Pred => format!("(({value} & 1ull) != 0)"),
            element => super::scalar::cooked(element, &value).ok_or("random bits of this type: there is no kernel for it")?,
        };
        let offset = e.offset(to, &Place::at(place));
        let memory = e.stored[&Ref { node, part: 1 }];
        e.store(memory, to, &offset, &value);
        writes.push((memory, offset, to.element.literal_bytes()));
        e.close();
        let text = e.finish()?;
        let written = Written::of(e, "random", text, writes);
        self.launch(written, (count.max(1) + i64::from(BLOCK) - 1) / i64::from(BLOCK), BLOCK, false)
    }
}

/// Elements that a block of Philox gives.
fn per_block(to: &Ty) -> i64 {
    if to.element.bits() == 64 { 2 } else { 4 }
}

fn philox(e: &mut Emitter<'_, '_>, to: &Ty, key: &str, low: &str, high: &str) -> String {
    let each = per_block(to);
    let (block, word) = (e.over("i", each), e.rest("i", each));
    let first = e.bind("unsigned long long", &format!("{low} + (unsigned long long){block}"));
    let second = e.bind("unsigned long long", &format!("{high} + ({first} < {low} ? 1ull : 0ull)"));
    let call = |word: String| format!("(unsigned long long)offc_philox({key}, {first}, {second}, {word})");
    let text = if each == 2 {
        format!("{} | {} << 32", call(format!("(int)(2 * {word})")), call(format!("(int)(2 * {word} + 1)")))
    } else {
        call(format!("(int){word}"))
    };
    e.bind("unsigned long long", &text)
}

/// The dimension along which neighbours make a pair, if elements do; and how many blocks of ThreeFry there are.
fn pairs(to: &Ty) -> (Option<usize>, i64) {
    if to.element.bits() == 64 || to.dims.is_empty() {
        return (None, to.elements());
    }
    let largest = to.dims.iter().max().copied().unwrap_or(0);
    let even = to.dims.iter().position(|d| d % 2 == 0);
    let split = even.or_else(|| to.dims.iter().position(|&d| d == largest)).unwrap_or(0);
    let count = to.dims.iter().enumerate().map(|(d, &n)| if d == split { (n + 1) / 2 } else { n }).product();
    (Some(split), count)
}

fn three_fry(e: &mut Emitter<'_, '_>, to: &Ty, place: &[String], key: &str, low: &str) -> String {
    let call = |e: &mut Emitter<'_, '_>, at: &str| {
        e.bind("unsigned long long", &format!("offc_three_fry({key}, {low} + (unsigned long long){at})"))
    };
    let Some(split) = pairs(to).0 else { return call(e, "i") };
    let mut sizes = to.dims.clone();
    sizes[split] = (sizes[split] + 1) / 2;
    let mut strides = vec![1; sizes.len()];
    for d in (1..sizes.len()).rev() {
        strides[d - 1] = strides[d] * sizes[d];
    }
    let mut at = place.to_vec();
    let half = e.rest(&place[split], 2);
    at[split] = e.over(&place[split], 2);
    let block = e.join(&at, &strides);
    let both = call(e, &block);
    e.bind("unsigned long long", &format!("{half} ? {both} >> 32 : {both} & 0xffffffffull"))
}
