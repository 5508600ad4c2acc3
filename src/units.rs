//! Numbers with dimensions: [`Bytes`], [`Flops`], [`Nanos`], [`BytesPerSec`], [`FlopsPerSec`].
//!
//! All are `u64` underneath, so that sums do not depend on their order and equal inputs give equal plans on every machine. Arithmetic
//! saturates: a difference is never below zero, a sum never wraps. What can be negative (a change of memory, a price) is plain `i64` or
//! `f64` at the place that needs it.
//!
//! [`Nanos`] counts whole nanoseconds. The shortest kernel that anyone prices takes 10 ns, a launch 1,000 ns; a duration that comes out
//! of a division is rounded up, so nothing that moves data is free and the error of a sum of n terms is below n nanoseconds.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Declares one dimension.
macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);
            /// The largest value, where sums saturate.
            pub const MAX: Self = Self(u64::MAX);

            /// The plain number.
            pub const fn get(self) -> u64 {
                self.0
            }
            /// The nearest floating point number.
            pub const fn as_f64(self) -> f64 {
                self.0 as f64
            }
            /// The nearest value of a floating point number; what is negative or no number is zero.
            pub fn from_f64(value: f64) -> Self {
                Self(value.round() as u64)
            }
            /// Whether this is nothing.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
            /// The difference, `None` where it would be below zero.
            pub const fn checked_sub(self, other: Self) -> Option<Self> {
                match self.0.checked_sub(other.0) {
                    Some(n) => Some(Self(n)),
                    None => None,
                }
            }
            /// `self / other`; infinite or no number where `other` is zero.
            pub const fn ratio(self, other: Self) -> f64 {
                self.0 as f64 / other.0 as f64
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0.saturating_mul(times))
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::ZERO, Add::add)
            }
        }
    };
}

unit! {
    /// An amount of memory in bytes. Prints in binary units with two decimals (`7.29 GiB`); see [`Bytes::exact`].
    Bytes
}
unit! {
    /// Floating point operations; a multiply-add counts as two.
    Flops
}
unit! {
    /// A duration in whole nanoseconds. Prints in the unit that fits (`12.3 us`).
    Nanos
}
unit! {
    /// A rate of data, bytes in one second. Prints in decimal units (`50.0 GB/s`), as vendors do.
    BytesPerSec
}
unit! {
    /// A rate of arithmetic, operations in one second; a multiply-add counts as two.
    FlopsPerSec
}

/// `amount · 10⁹ / rate` rounded up; [`Nanos::MAX`] at rate zero, unless there is nothing to do.
fn duration(amount: u64, rate: u64) -> Nanos {
    match (amount, rate) {
        (0, _) => Nanos::ZERO,
        (_, 0) => Nanos::MAX,
        _ => Nanos(u64::try_from((u128::from(amount) * 1_000_000_000).div_ceil(u128::from(rate))).unwrap_or(u64::MAX)),
    }
}

impl Div<BytesPerSec> for Bytes {
    type Output = Nanos;
    /// The time that the data takes at that rate, rounded up; [`Nanos::MAX`] where the rate is zero.
    fn div(self, rate: BytesPerSec) -> Nanos {
        duration(self.0, rate.0)
    }
}

impl Div<FlopsPerSec> for Flops {
    type Output = Nanos;
    /// The time that the work takes at that rate, rounded up; [`Nanos::MAX`] where the rate is zero.
    fn div(self, rate: FlopsPerSec) -> Nanos {
        duration(self.0, rate.0)
    }
}

impl Mul<Nanos> for BytesPerSec {
    type Output = Bytes;
    /// What a link of that rate moves in that time, rounded down.
    fn mul(self, time: Nanos) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(time.0) / 1_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl Bytes {
    /// 1024 bytes.
    pub const KIB: Self = Self(1 << 10);
    /// 1024² bytes.
    pub const MIB: Self = Self(1 << 20);
    /// 1024³ bytes.
    pub const GIB: Self = Self(1 << 30);

    /// That many GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 30))
    }
    /// The next multiple of `alignment`; an alignment of 0 is one of 1.
    pub const fn align_up(self, alignment: u64) -> Self {
        let alignment = if alignment == 0 { 1 } else { alignment };
        Self(self.0.div_ceil(alignment).saturating_mul(alignment))
    }
    /// The number as a program reads it: `5368709120 bytes`.
    pub fn exact(self) -> String {
        format!("{} bytes", self.0)
    }
}

impl Nanos {
    /// Of microseconds, to the nearest nanosecond; what is negative or no number is zero.
    pub fn from_micros(micros: f64) -> Self {
        Self::from_f64(micros * 1e3)
    }
    /// In microseconds.
    pub const fn micros(self) -> f64 {
        self.0 as f64 / 1e3
    }
    /// In milliseconds.
    pub const fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl BytesPerSec {
    /// That many GB/s, to the nearest byte.
    pub fn gb(n: f64) -> Self {
        Self::from_f64(n * 1e9)
    }
}

impl FlopsPerSec {
    /// That many TFLOP/s, to the nearest operation.
    pub fn tera(n: f64) -> Self {
        Self::from_f64(n * 1e12)
    }
}

/// Prints a value in the largest unit of which there is one, with that many decimals; the first unit is whole.
fn scaled(f: &mut fmt::Formatter<'_>, value: u64, step: f64, units: &[&str], decimals: usize) -> fmt::Result {
    let mut at = 0;
    let mut number = value as f64;
    while at + 1 < units.len() && number >= step {
        number /= step;
        at += 1;
    }
    let text = if at == 0 { format!("{value} {}", units[0]) } else { format!("{number:.decimals$} {}", units[at]) };
    f.pad(&text)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 2)
    }
}
impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1e3, &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"], 2)
    }
}
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1e3, &["ns", "us", "ms", "s"], 2)
    }
}
impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1e3, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"], 2)
    }
}
impl fmt::Display for FlopsPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1e3, &["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"], 1)
    }
}

/// Why a text is not a size; its `Display` is the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeError {
    text: String,
    why: &'static str,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected a size such as `24GiB`, `24GB`, `512M` or a number of bytes, found `{}`", self.why, self.text)
    }
}

impl std::error::Error for SizeError {}

impl FromStr for Bytes {
    type Err = SizeError;

    /// Reads `24GiB`, `1.5GiB`, `24GB` (decimal, as vendors count), `512M` and `24G` (binary, as allocators count), `4096`, `4096B`.
    /// Upper or lower case, a space before the unit, and `_` between digits are allowed; a fraction is rounded to the nearest byte.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let fail = |why| SizeError { text: text.chars().take(40).collect(), why };
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
        let (digits, unit) = (trimmed[..split].replace('_', ""), trimmed[split..].trim_start().to_ascii_lowercase());
        let scale: u64 = match unit.as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(fail("unknown unit")),
        };
        if let Ok(whole) = digits.parse::<u64>() {
            return whole.checked_mul(scale).map(Self).ok_or_else(|| fail("too large"));
        }
        if digits.is_empty() || digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(fail(if digits.is_empty() { "no number" } else { "too large" }));
        }
        if scale == 1 {
            return Err(fail("a fraction of a byte"));
        }
        let number = digits.parse::<f64>().map_err(|_| fail("no number"))? * scale as f64;
        if number < 1.8e19 { Ok(Self::from_f64(number)) } else { Err(fail("too large")) }
    }
}

/// Why a text is not a rate or a duration; its `Display` is the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, found `{}`", self.expected, self.text)
    }
}

impl std::error::Error for QuantityError {}

/// Splits a number from its unit (lower case, blanks taken away) and scales it; a bare number has the unit `""`.
fn quantity(text: &str, expected: &'static str, scale: impl Fn(&str, f64) -> Option<f64>) -> Result<u64, QuantityError> {
    let trimmed = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_' | '+' | '-');
    // An exponent belongs to the number where a digit or a sign follows it.
    let mut split = 0;
    let mut chars = trimmed.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let exponent = matches!(c, 'e' | 'E') && chars.peek().is_some_and(|&(_, n)| n.is_ascii_digit() || matches!(n, '+' | '-'));
        if !is_number(c) && !exponent {
            break;
        }
        split = at + 1;
    }
    let unit: String = trimmed[split..].chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect();
    let number = trimmed[..split].replace('_', "").parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    match number.and_then(|n| scale(&unit, n)).filter(|n| *n < 1.8e19) {
        Some(n) => Ok(n.round() as u64),
        None => Err(QuantityError { text: text.chars().take(40).collect(), expected }),
    }
}

impl FromStr for BytesPerSec {
    type Err = QuantityError;

    /// Reads `50GB/s`, `3.3 TB/s`, `900 MB/s`; a bare number is in GB/s, from a million on in bytes a second. Not zero.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let scale = |unit: &str, n: f64| {
            let factor = match unit.trim_end_matches("ps").trim_end_matches("/s") {
                "" if unit.is_empty() && n < 1e6 => 1e9,
                "" if unit.is_empty() => 1.0,
                "b" => 1.0,
                "kb" => 1e3,
                "mb" => 1e6,
                "gb" => 1e9,
                "tb" => 1e12,
                "kib" => 1024.0,
                "mib" => 1_048_576.0,
                "gib" => 1_073_741_824.0,
                _ => return None,
            };
            Some(n * factor).filter(|n| *n >= 1.0)
        };
        quantity(text, "a rate such as `50GB/s` or `3.3TB/s`, or a number of GB/s", scale).map(Self)
    }
}

impl FromStr for FlopsPerSec {
    type Err = QuantityError;

    /// Reads `989TFLOP/s`, `60 GFLOP/s`; a bare number is in TFLOP/s, from a million on in operations a second. Not zero.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let scale = |unit: &str, n: f64| {
            let factor = match unit.trim_end_matches("/s").trim_end_matches("flops").trim_end_matches("flop") {
                "" if unit.is_empty() && n < 1e6 => 1e12,
                "" => 1.0,
                "m" => 1e6,
                "g" => 1e9,
                "t" => 1e12,
                "p" => 1e15,
                _ => return None,
            };
            Some(n * factor).filter(|n| *n >= 1.0)
        };
        quantity(text, "a rate such as `989TFLOP/s`, or a number of TFLOP/s", scale).map(Self)
    }
}

impl FromStr for Nanos {
    type Err = QuantityError;

    /// Reads `2us`, `1.5 ms`, `900 ns`, `2 s`; a unit is needed, but for `0`.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let scale = |unit: &str, n: f64| {
            let factor = match unit {
                "" if n == 0.0 => 1.0,
                "ns" => 1.0,
                "us" | "\u{b5}s" | "\u{3bc}s" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                _ => return None,
            };
            Some(n * factor)
        };
        quantity(text, "a duration such as `2us` or `1.5ms`", scale).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_durations_read_as_people_write_them() {
        for (text, gb) in [("50GB/s", 50.0), ("50", 50.0), ("3.3 TB/s", 3300.0), ("5e10", 50.0), ("900 MB/s", 0.9), ("50GBps", 50.0)] {
            assert_eq!(text.parse(), Ok(BytesPerSec::gb(gb)), "{text}");
        }
        for (text, ns) in [("2us", 2_000), ("1.5 ms", 1_500_000), ("0", 0), ("7 ns", 7), ("1e-3s", 1_000_000)] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
        assert_eq!("989.4 TFLOP/s".parse(), Ok(FlopsPerSec::tera(989.4)));
        assert_eq!("989".parse(), Ok(FlopsPerSec::tera(989.0)));
        for text in ["", "GB/s", "0", "-1GB/s", "50GB/h", "nan", "1e400"] {
            assert!(text.parse::<BytesPerSec>().is_err(), "{text}");
        }
        for text in ["2", "us", "2 h", "-1us"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
        let said = "fast".parse::<BytesPerSec>().unwrap_err().to_string();
        assert_eq!(said, "expected a rate such as `50GB/s` or `3.3TB/s`, or a number of GB/s, found `fast`");
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        let cases = [
            ("24GiB", 24 << 30),
            ("24GB", 24_000_000_000),
            ("512M", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("4096", 4096),
            ("4_096 b", 4096),
            (" 80 gib ", 80 << 30),
            ("0", 0),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "-1", "1.5", "1e9", "24Gi B", "99999999999999999999", "18446744073709551615K", "1..5G", "∞"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        let said = "24Gb/s".parse::<Bytes>().unwrap_err().to_string();
        assert_eq!(said, "unknown unit: expected a size such as `24GiB`, `24GB`, `512M` or a number of bytes, found `24Gb/s`");
    }

    #[test]
    fn arithmetic_saturates_and_durations_round_up() {
        assert_eq!(Bytes(3) - Bytes(5), Bytes::ZERO);
        assert_eq!(Bytes::MAX + Bytes(1), Bytes::MAX);
        assert_eq!(Bytes::MAX * 2, Bytes::MAX);
        assert_eq!(Bytes(1) / BytesPerSec::gb(50.0), Nanos(1));
        assert_eq!(Bytes(50_000_000_000) / BytesPerSec::gb(50.0), Nanos(1_000_000_000));
        assert_eq!(Bytes(1) / BytesPerSec::ZERO, Nanos::MAX);
        assert_eq!(Bytes::ZERO / BytesPerSec::ZERO, Nanos::ZERO);
        assert_eq!(BytesPerSec::gb(50.0) * Nanos(1_000), Bytes(50_000));
        assert_eq!(Nanos::from_micros(0.01), Nanos(10));
        assert_eq!(Nanos::from_micros(f64::NAN), Nanos::ZERO);
        assert_eq!([Bytes(1), Bytes(2)].into_iter().sum::<Bytes>(), Bytes(3));
        assert_eq!(Bytes(257).align_up(256), Bytes(512));
    }

    #[test]
    fn numbers_print_with_their_units() {
        assert_eq!(Bytes(7_832_269_040).to_string(), "7.29 GiB");
        assert_eq!(Bytes(1000).to_string(), "1000 B");
        assert_eq!(format!("{:>10}|", Bytes(2048)), "  2.00 KiB|");
        assert_eq!(Nanos(18_428_000).to_string(), "18.43 ms");
        assert_eq!(Nanos(999).to_string(), "999 ns");
        assert_eq!(BytesPerSec::gb(3352.32).to_string(), "3.35 TB/s");
        assert_eq!(FlopsPerSec::tera(989.4).to_string(), "989.4 TFLOP/s");
        assert_eq!(Bytes(5 << 30).exact(), "5368709120 bytes");
    }
}
