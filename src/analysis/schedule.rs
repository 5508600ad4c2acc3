//! The clock: the orders of all computations laid end to end.
//!
//! A computation that is called with buffers of its own (call, conditional, while, async) runs just before the instruction that calls it;
//! of a while the condition comes first, then the body, each once. Fusions and the little functions of reduce, map, sort … take no time.
//! A computation that two instructions call runs where the first one stands. This is XLA's `HloLiveRange::FlattenSchedule`
//! (`hlo/utils/hlo_live_range.cc`); its `*-live-range.txt` dump lists the same sequence.
//!
//! For a module that is not scheduled the order of each computation stands in for its schedule ([`Schedule::is_scheduled`] tells).

use super::users::Users;
use crate::ir::{CompId, EntityMap, InstrId, Module, Op};

/// An instant: the position of an instruction in the flattened sequence.
pub type Time = u32;

/// The flattened sequence.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Whether the module says that its orders are the schedule.
    pub is_scheduled: bool,
    /// All instructions that take time, in the order in which they run.
    pub sequence: Vec<InstrId>,
    time: EntityMap<InstrId, Time>,
    spans: EntityMap<CompId, Option<(Time, Time)>>,
    contexts: EntityMap<CompId, Option<InstrId>>,
    computations: Vec<CompId>,
}

const NEVER: Time = Time::MAX;

struct Frame {
    comp: CompId,
    next: usize,
    /// Callees of the instruction at `next` that were pushed already.
    entered: usize,
    start: Time,
}

impl Schedule {
    /// Costs O(instructions). The call graph must have no cycle (the verifier's promise).
    pub fn of(module: &Module, users: &Users) -> Self {
        let mut this = Self {
            is_scheduled: module.is_scheduled,
            sequence: Vec::new(),
            time: EntityMap::with_default(NEVER),
            spans: EntityMap::with_default(None),
            contexts: EntityMap::with_default(None),
            computations: Vec::new(),
        };
        let mut seen = EntityMap::<CompId, bool>::with_default(false);
        seen[module.entry_id()] = true;
        let mut stack = vec![Frame { comp: module.entry_id(), next: 0, entered: 0, start: 0 }];
        while let Some(frame) = stack.last_mut() {
            let Some(&id) = module.comp(frame.comp).order.get(frame.next) else {
                let comp = frame.comp;
                this.spans[comp] = Some((frame.start, this.now()));
                this.computations.push(comp);
                stack.pop();
                continue;
            };
            let op = &module.instr(id).op;
            if let Some(callee) = inlined(op, frame.entered) {
                frame.entered += 1;
                if !std::mem::replace(&mut seen[callee], true) {
                    this.contexts[callee] = match op {
                        Op::AsyncStart(_) => Some(id),
                        _ => this.contexts[frame.comp],
                    };
                    let start = this.now();
                    stack.push(Frame { comp: callee, next: 0, entered: 0, start });
                }
                continue;
            }
            frame.next += 1;
            frame.entered = 0;
            this.time[id] = this.now();
            this.sequence.push(id);
        }
        // An async computation lives until its done.
        for &comp in &this.computations {
            if let Some(start) = this.contexts[comp] {
                this.contexts[comp] = Some(start).filter(|&s| users.async_done(module, s).is_some());
            }
        }
        this
    }

    fn now(&self) -> Time {
        Time::try_from(self.sequence.len()).expect("an arena holds fewer than 2^32 instructions")
    }
    /// When an instruction runs; `None` for one inside a fusion or an applied function, and for a dead one.
    pub fn time(&self, id: InstrId) -> Option<Time> {
        Some(self.time[id]).filter(|&t| t != NEVER)
    }
    /// First instant of a computation, and the instant after its last; `None` if it takes no time.
    pub fn span(&self, comp: CompId) -> Option<(Time, Time)> {
        self.spans[comp]
    }
    /// One past the last instant.
    pub fn end(&self) -> Time {
        self.now()
    }
    /// The `async-start` under which a computation runs, directly or further up.
    pub fn async_start(&self, comp: CompId) -> Option<InstrId> {
        self.contexts[comp]
    }
    /// The computations that take time, in the order in which they end (callees before callers, the entry last).
    pub fn computations(&self) -> &[CompId] {
        &self.computations
    }
}

/// The `n`-th computation that runs on the clock before an instruction.
fn inlined(op: &Op, n: usize) -> Option<CompId> {
    match op {
        Op::While { condition, body } => [*condition, *body].get(n).copied(),
        Op::Call { .. } | Op::Conditional { .. } | Op::AsyncStart(_) => op.called().get(n).copied(),
        _ => None,
    }
}
