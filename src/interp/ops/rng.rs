//! `rng-bit-generator` and `rng-get-and-update-state`, bit for bit as XLA computes them.
//!
//! The two generators are of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): ThreeFry-2×32 with 20
//! rounds and Philox-4×32 with 10. How XLA lays keys, counters and outputs out was found by asking it.
//!
//! `rng` gives what XLA leaves open (each of its backends has a generator of its own); here the numbers are those of [`draw`].

use super::error::{Result, ensure, refuse};
use super::index::{at, each};
use crate::interp::Array;
use crate::interp::array::row_major;
use crate::ir::Primitive;

/// `RandomAlgorithm`.
const DEFAULT: i32 = 0;
const THREE_FRY: i32 = 1;
const PHILOX: i32 = 2;

/// `RandomDistribution`.
const UNIFORM: i32 = 1;
const NORMAL: i32 = 2;

/// The state that a program starts with, low word first.
pub const INITIAL_STATE: u128 = 0x701_2395;

/// `rng-get-and-update-state`: the state as `u64[2]`, low word first; then adds `delta`.
pub fn get_and_update_state(state: &mut u128, delta: i64) -> Array {
    let out = Array::new(Primitive::U64, &[2], state.to_le_bytes().to_vec());
    *state = state.wrapping_add_signed(delta.into());
    out
}

/// `rng-bit-generator`: the new state and the random bits. The state is `u64` words: key and counter for ThreeFry, key and a counter of one
/// or two words for Philox, which is also the default. Elements of less than 32 bits take the low bits of a 32-bit word each.
pub fn bit_generator(algorithm: i32, state: &Array, element: Primitive, dims: &[usize]) -> Result<[Array; 2]> {
    let words: Vec<u64> = (0..state.len()).map(|i| state.bits(i)).collect();
    ensure(state.element == Primitive::U64 && state.dims.len() == 1, || "expected a state of u64 words".into())?;
    ensure(element.bits() <= 64, || format!("expected a type of at most 64 bits, found `{}`", element.name()))?;
    let mut out = Array::zeros(element, dims);
    let new = match (algorithm, words.as_slice()) {
        (THREE_FRY, &[key, counter]) => vec![key, three_fry(key, counter, &mut out)],
        // With two words, the key is the counter's high word too.
        (DEFAULT | PHILOX, &[key, low]) => {
            let counter = philox(key, u128::from(low) | u128::from(key) << 64, &mut out);
            vec![key, counter as u64]
        }
        (DEFAULT | PHILOX, &[key, low, high]) => {
            let counter = philox(key, u128::from(low) | u128::from(high) << 64, &mut out);
            vec![key, counter as u64, (counter >> 64) as u64]
        }
        _ => return refuse(format!("expected ThreeFry with a state of 2 words or Philox with 2 or 3, found {} words", words.len())),
    };
    let new = new.iter().flat_map(|w| w.to_le_bytes()).collect();
    Ok([Array::new(Primitive::U64, &state.dims, new), out])
}

/// `rng`: the numbers are made of the Philox blocks that follow the program's random state (key 0), a 64-bit word each in row-major order, and the
/// state moves on behind them: programs that draw in the same order draw the same. Uniform floats are `a + u (b - a)` with `u` of 53 bits in
/// `[0, 1)`, rounded once, never `b`; uniform integers `a + word mod (b - a)`; normal ones `a + b z` by Box and Muller ("A Note on the Generation of
/// Random Normal Deviates", 1958), made of the word's halves, rounded once. An empty range gives `a`.
pub fn draw(distribution: i32, state: &mut u128, a: &Array, b: &Array, element: Primitive, dims: &[usize]) -> Result<Array> {
    ensure(a.len() == 1 && b.len() == 1 && a.element == element && b.element == element, || "expected two scalars of the type".into())?;
    ensure(!element.is_complex(), || "random complex numbers".into())?;
    let mut words = Array::zeros(Primitive::U64, dims);
    *state = philox(0, *state, &mut words);
    let mut out = Array::zeros(element, dims);
    for i in 0..words.len() {
        let word = words.bits(i);
        match distribution {
            UNIFORM if element.is_integer() || element == Primitive::Pred => {
                let (low, high) = (i128::from(a.i64(0)), i128::from(b.i64(0)));
                let unsigned = |x: i128| if element == Primitive::U64 { i128::from((x as i64).cast_unsigned()) } else { x };
                let (low, span) = (unsigned(low), unsigned(high) - unsigned(low));
                let value = if span > 0 { low + i128::from(word) % span } else { low };
                out.set_i64(i, value as i64);
            }
            UNIFORM => {
                let (low, high) = (a.f64(0), b.f64(0));
                out.set_f64(i, low + (word >> 11) as f64 * 2f64.powi(-53) * (high - low));
                if out.f64(i) >= high {
                    out.set_f64(i, low);
                }
            }
            NORMAL if element.is_float() => {
                let u = ((word >> 32) as f64 + 0.5) * 2f64.powi(-32);
                let angle = (word as u32) as f64 * 2f64.powi(-32) * std::f64::consts::TAU;
                out.set_f64(i, a.f64(0) + b.f64(0) * libm::sqrt(-2.0 * libm::log(u)) * libm::cos(angle));
            }
            _ => {
                return refuse(format!("expected a uniform or a normal distribution of `{}`, found number {distribution}", element.name()));
            }
        }
    }
    Ok(out)
}

/// Stores a random word in an element: its low bits, and 0 or 1 in a `pred`.
fn put(out: &mut Array, index: usize, word: u64) {
    let bits = if out.element == Primitive::Pred { 1 } else { out.element.bits() };
    out.set_bits(index, word & (u64::MAX >> (64 - bits)));
}

/// Blocks follow each other in row-major order; returns the counter after the last.
fn philox(key: u64, mut counter: u128, out: &mut Array) -> u128 {
    let n = out.len();
    let mut i = 0;
    while i < n {
        let block = philox_block(key, counter);
        counter = counter.wrapping_add(1);
        if out.element.bits() == 64 {
            for pair in block.chunks(2).take(n - i) {
                put(out, i, u64::from(pair[0]) | u64::from(pair[1]) << 32);
                i += 1;
            }
        } else {
            for &word in block.iter().take(n - i) {
                put(out, i, word.into());
                i += 1;
            }
        }
    }
    counter
}

fn philox_block(key: u64, counter: u128) -> [u32; 4] {
    let mut c = [counter as u32, (counter >> 32) as u32, (counter >> 64) as u32, (counter >> 96) as u32];
    let mut k = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let a = u64::from(c[0]) * 0xD251_1F53;
        let b = u64::from(c[2]) * 0xCD9E_8D57;
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

/// A block of two words a pair of elements, or an element of 64 bits. Pairs are neighbours along the first even dimension; if all are odd,
/// along the first of the largest, with one element too many. Blocks are counted in row-major order of the pairs. Returns the counter after
/// the last.
fn three_fry(key: u64, counter: u64, out: &mut Array) -> u64 {
    let dims = out.dims.clone();
    if out.element.bits() == 64 || dims.is_empty() {
        for i in 0..out.len() {
            let [low, high] = three_fry_block(key, counter.wrapping_add(i as u64));
            put(out, i, u64::from(low) | u64::from(high) << 32);
        }
        return counter.wrapping_add(out.len() as u64);
    }
    let largest = dims.iter().max().copied().unwrap_or(0);
    let even = dims.iter().position(|d| d.is_multiple_of(2));
    let split = even.or_else(|| dims.iter().position(|&d| d == largest)).unwrap_or(0);
    let mut pairs = dims.clone();
    pairs[split] = dims[split].div_ceil(2);
    let strides = row_major(&dims);
    let mut next = counter;
    each(&pairs, |index| {
        let block = three_fry_block(key, next);
        next = next.wrapping_add(1);
        let first = at(index, &strides) + index[split] * strides[split];
        for (half, word) in block.into_iter().enumerate() {
            if 2 * index[split] + half < dims[split] {
                put(out, first + half * strides[split], word.into());
            }
        }
    });
    next
}

fn three_fry_block(key: u64, counter: u64) -> [u32; 2] {
    const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
    let (low, high) = (key as u32, (key >> 32) as u32);
    let keys = [low, high, low ^ high ^ 0x1BD1_1BDA];
    let mut x = [(counter as u32).wrapping_add(low), ((counter >> 32) as u32).wrapping_add(high)];
    for group in 0..5u32 {
        for round in 0..4 {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(ROTATIONS[(group as usize % 2) * 4 + round]) ^ x[0];
        }
        let next = group as usize + 1;
        x[0] = x[0].wrapping_add(keys[next % 3]);
        x[1] = x[1].wrapping_add(keys[(next + 1) % 3]).wrapping_add(group + 1);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_answers() {
        // Random123's known-answer tests: all zeros, all ones.
        assert_eq!(philox_block(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox_block(u64::MAX, u128::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(three_fry_block(0, 0), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(three_fry_block(u64::MAX, u64::MAX), [0x1cb9_96fc, 0xbb00_2be7]);
    }

    #[test]
    fn the_state_counts_on() {
        let mut state = INITIAL_STATE;
        assert_eq!(get_and_update_state(&mut state, 5).bits(0), 0x701_2395);
        assert_eq!(get_and_update_state(&mut state, 1).bits(0), 0x701_239a);
    }

    #[test]
    fn drawn_numbers_have_their_distribution() {
        let scalar = |e: Primitive, x: f64| Array::of_f64(e, &[], &[x]);
        let mut state = INITIAL_STATE;
        let n = 20_000;
        let (low, high) = (scalar(Primitive::F32, -1.0), scalar(Primitive::F32, 3.0));
        let uniform = draw(UNIFORM, &mut state, &low, &high, Primitive::F32, &[n]).expect("sound");
        assert!((0..n).all(|i| (-1.0..3.0).contains(&uniform.f64(i))));
        let mean = |a: &Array| (0..n).map(|i| a.f64(i)).sum::<f64>() / n as f64;
        assert!((mean(&uniform) - 1.0).abs() < 0.05, "{}", mean(&uniform));
        let (middle, width) = (scalar(Primitive::BF16, 2.0), scalar(Primitive::BF16, 0.5));
        let normal = draw(NORMAL, &mut state, &middle, &width, Primitive::BF16, &[n]).expect("sound");
        let spread = (0..n).map(|i| (normal.f64(i) - 2.0).powi(2)).sum::<f64>() / n as f64;
        assert!((mean(&normal) - 2.0).abs() < 0.02 && (spread - 0.25).abs() < 0.02, "{} {spread}", mean(&normal));
        let (low, high) = (Array::of_i64(Primitive::S8, &[], &[-3]), Array::of_i64(Primitive::S8, &[], &[4]));
        let dice = draw(UNIFORM, &mut state, &low, &high, Primitive::S8, &[n]).expect("sound");
        for value in -3..4 {
            let count = (0..n).filter(|&i| dice.i64(i) == value).count();
            assert!((2400..3300).contains(&count), "{value}: {count}");
        }
        assert!((0..n).all(|i| (-3..4).contains(&dice.i64(i))));
        // The same state, the same numbers; the next state, others.
        let (mut one, mut other) = (5u128, 5u128);
        let again = |state: &mut u128| draw(UNIFORM, state, &low, &high, Primitive::S8, &[64]).expect("sound");
        let first = again(&mut one);
        assert_eq!(first, again(&mut other));
        assert_ne!(first, again(&mut one));
    }
}
