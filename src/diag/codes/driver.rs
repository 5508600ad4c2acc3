//! R: what a rewrite asks of a program.

use super::Explanation;

pub const TABLE: &[Explanation] = &[Explanation {
    code: "R01",
    title: "a program without a schedule cannot be fitted",
    text: "What is alive when, and so how much memory a program takes, is known only once its instructions have an order that the compiler will \
keep: `is_scheduled=true` in the module's header. XLA also undoes hand-written host copies in a module that it has still to schedule. Give the \
module as XLA compiled it: from `--xla_dump_to` (the file that ends in `after_optimizations`), from `compiled.as_text()`, or from a post-scheduler hook.",
}];
