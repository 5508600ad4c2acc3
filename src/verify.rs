//! Is a program well formed, and did a pass leave alone what it must?
//!
//! [`verify`] holds a program to the promises below. Each has a code, an explanation (`offc explain CODE`) and a file test that breaks it
//! and nothing else. Real programs, as XLA optimizes and schedules them, keep them all; so must whatever a pass makes of them.
//!
//! **Structure**, for every program:
//!
//! 1. S01: every name (of an operand, a root, a callee, a shape …) is of its arena.
//! 2. S02: a live instruction stands once, in one order.
//! 3. S03: operands, control predecessors, the root and the parameters stand in the order of the same computation.
//! 4. S04: parameters are numbered 0, 1, 2 …, and the parameter list holds them by number.
//! 5. S05: names are unique: of instructions in their computation, of computations in the module.
//! 6. S06: there is an entry computation; it and every called computation are listed, once each.
//! 7. S07: no computation calls itself, even by way of others.
//! 8. S08: an instruction has as many operands as its operation takes.
//! 9. S09: a called computation takes what its caller passes: as many parameters, of compatible shapes.
//! 10. S10: a called computation returns what its caller needs.
//! 11. S11: the computation of a fusion or of an async chain has no other caller.
//! 12. S12: every instruction of a fused computation is used.
//! 13. S13: the entry layout has the entry's parameters and result, with compatible shapes.
//! 14. S14: an entry of `input_output_alias` names an output and a parameter that exist, each at most once.
//! 15. S15: an entry of `buffer_donor` names a parameter that exists and is not aliased already.
//! 16. S16: no device stands twice in the replica groups, no source or target twice in the pairs of a permute.
//! 17. S17: async updates and dones continue an async start of the same computation.
//!
//! **Shapes**, for every program; element types and sizes, as far as dimensions are bounded:
//!
//! 18. H01: the declared shape is the one that the operation gives.
//! 19. H02: the operands suit the operation and each other.
//! 20. H03: the attributes suit the operands: dimension numbers exist and differ, slices lie inside.
//! 21. H04: a layout is a permutation of the dimensions.
//! 22. H05: a bitcast keeps the number of bytes.
//! 23. H06: a constant has the elements of its shape.
//!
//! **Order**, for every program, since the order is the clock:
//!
//! 24. Q01: definitions stand before uses.
//! 25. Q02: control predecessors stand before their successors.
//! 26. Q03: an asynchronous start is used by one done (by way of updates) and by nothing else.
//!
//! **Memory spaces**; `S(5)` is pinned host memory:
//!
//! 27. V1: only transfers, containers and control flow have values in host memory.
//! 28. V2: no computing operation reads host memory.
//! 29. V3: a dynamic-update-slice stays where the buffer is that it updates; a dynamic-slice does not write device data to the host.
//! 30. V4: what moves no data (bitcast, reshape, tuple, get-tuple-element, control flow …) does not change the memory space.
//! 31. V5: entry parameters and results are where the entry layout says.
//! 32. V6: an output and the parameter that it aliases are equal in shape, layout and memory space.
//! 33. V7: what is read from the host was brought there: nothing reads the target of a transfer that is not done, nor an allocation that
//!     nothing was written to.
//! 34. V8: a copy-start has one user, its copy-done; its result is the target, the source, and a context.
//! 35. V9: the value that a loop carries has one shape, layout and memory space in the initial value, the body and the condition.
//! 36. V10: a loop's known trip count is the one that its counter and condition give.
//! 37. V11: for scheduled programs, no value is read after another value of the same buffer has overwritten it; a warning where XLA
//!     repairs it at the price of a copy (see `verify/interference.rs`).
//!
//! **Two programs**, before and after a pass:
//!
//! 38. V12: collectives stay as they are and in their order ([`same_collectives`]); V10: so do trip counts ([`same_trip_counts`]).
//!
//! A broken promise S01–S07 hides all others: they need an intact program. V11 is judged when all others are kept.
//!
//! Cost: linear in the program but for hashing; recursion nowhere on the depth of the input.

mod callees;
mod collectives;
mod cx;
mod entry;
mod interference;
mod schedule;
mod shapes;
mod spaces;
mod structure;
#[cfg(test)]
mod tests;
mod transfers;
mod trips;

pub use collectives::same_collectives;
pub use trips::same_trip_counts;

use crate::diag::Diagnostic;
use crate::ir::Module;

/// Complaints that are kept: the rest is mostly more of the same, and a hostile input has millions.
const MOST: usize = 100;

/// What is wrong with a module, in the order of the promises and in program order, up to 100 things. No error means: well formed.
pub fn verify(module: &Module) -> Vec<Diagnostic> {
    let mut cx = cx::Cx::new(module);
    structure::check(&mut cx);
    if cx.failed() {
        return cx.finish();
    }
    callees::check(&mut cx);
    entry::check(&mut cx);
    shapes::check(&mut cx);
    schedule::check(&mut cx);
    spaces::check(&mut cx);
    transfers::check(&mut cx);
    trips::check(&mut cx);
    if module.is_scheduled && !cx.failed() {
        interference::check(&mut cx);
    }
    cx.finish()
}
