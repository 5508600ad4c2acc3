//! HLO text, both ways.

mod parse;
mod print;
mod print_async;
mod print_attr;
mod print_contraction;
mod print_literal;
mod print_number;
mod print_op;
mod print_quote;
mod print_shape;
mod print_sharding;

pub use parse::{Parsed, parse};
pub use print::{PrintOptions, print, print_instruction, print_shape, print_with};
