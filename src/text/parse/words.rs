//! Words that stand for the numbers of an enumeration, in both directions.

/// Words of one attribute with their numbers.
pub(super) type Words = &'static [(&'static str, i32)];

/// `operand_precision`.
pub(super) const PRECISION: Words = &[("default", 0), ("high", 1), ("highest", 2)];
/// `algorithm` of a dot.
pub(super) const ALGORITHM: Words = &[
    ("unset", 0),
    ("dot_any_f8_any_f8_f32", 1),
    ("dot_any_f8_any_f8_f32_fast_accum", 2),
    ("dot_f16_f16_f16", 3),
    ("dot_f16_f16_f32", 4),
    ("dot_bf16_bf16_bf16", 5),
    ("dot_bf16_bf16_f32", 6),
    ("dot_bf16_bf16_f32_x3", 7),
    ("dot_bf16_bf16_f32_x6", 8),
    ("dot_tf32_tf32_f32", 9),
    ("dot_tf32_tf32_f32_x3", 10),
    ("dot_f32_f32_f32", 11),
    ("dot_f64_f64_f64", 12),
    ("dot_bf16_bf16_f32_x9", 13),
];
/// `fft_type`.
pub(super) const FFT_TYPE: Words = &[("FFT", 0), ("IFFT", 1), ("RFFT", 2), ("IRFFT", 3)];
/// `distribution`.
pub(super) const DISTRIBUTION: Words = &[("rng_invalid", 0), ("rng_uniform", 1), ("rng_normal", 2)];
/// `algorithm` of a random generator.
pub(super) const RNG_ALGORITHM: Words = &[("rng_default", 0), ("rng_three_fry", 1), ("rng_philox", 2)];
/// `transpose_a`.
pub(super) const TRANSPOSE: Words = &[("TRANSPOSE_INVALID", 0), ("NO_TRANSPOSE", 1), ("TRANSPOSE", 2), ("ADJOINT", 3)];
/// `convolution_kind`.
pub(super) const CONVOLUTION_KIND: Words = &[("unset", 0), ("fprop", 1), ("dgrad", 2), ("wgrad", 3)];
/// `api_version` of a custom call.
pub(super) const API_VERSION: Words = &[
    ("API_VERSION_ORIGINAL", 1),
    ("API_VERSION_STATUS_RETURNING", 2),
    ("API_VERSION_STATUS_RETURNING_UNIFIED", 3),
    ("API_VERSION_TYPED_FFI", 4),
];
/// `padding_type`.
pub(super) const PADDING_TYPE: Words = &[("PADDING_INVALID", 0), ("PADDING_VALID", 1), ("PADDING_SAME", 2)];
/// `schedule` of a custom call.
pub(super) const SCHEDULE: Words = &[("SCHEDULE_NONE", 0), ("SCHEDULE_LATEST", 1), ("SCHEDULE_EARLIEST", 2)];

/// The number of a word.
pub(super) fn number(words: Words, word: &str) -> Option<i32> {
    words.iter().find(|(name, _)| *name == word).map(|(_, number)| *number)
}

/// The number of a word, whatever its case: XLA reads precision and random words so.
pub(super) fn number_any_case(words: Words, word: &str) -> Option<i32> {
    words.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, number)| *number)
}

/// "`a`, `b` or `c`", for a message.
pub(super) fn list(words: impl IntoIterator<Item = &'static str>) -> String {
    let names: Vec<String> = words.into_iter().map(|w| format!("`{w}`")).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}
