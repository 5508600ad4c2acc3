//! Codes of planning instances without a program.

use super::Explanation;

/// `O##`.
pub const TABLE: &[Explanation] = &[
    Explanation {
        code: "O01",
        title: "a table of buffers cannot be read",
        text: "`offc pack` reads comma-separated lines. The first names the columns, among them `id`, `lower`, `upper` and `size`; each further \
               line is a buffer that is alive from `lower` up to, not including, `upper`, whole numbers of any unit of time.",
    },
    Explanation {
        code: "O02",
        title: "a planning problem cannot be read, or says something that cannot be",
        text: "`offc solve` reads JSON: a problem as `docs/problem.md` describes it, or a graph of the Checkmate benchmark together with \
               `--memory`. Numbers of steps and values must be within the problem, uses ascend and come after the birth of their value.",
    },
];
