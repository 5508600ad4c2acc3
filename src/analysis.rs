//! Facts about a program that nobody is changing.
//!
//! [`Analyses`] borrows the module, so a stale analysis cannot exist; each is computed when first asked for. The module must have passed
//! the verifier: indices in range, operands before users, no cycle of calls.

pub mod aliases;
pub mod assignment;
pub mod floor;
pub mod heap;
mod heap_run;
pub mod inplace;
pub mod layouts;
pub mod live;
pub mod loops;
pub mod memory;
mod numbering;
pub mod remat;
pub mod schedule;
pub mod settle;
pub mod sharing;
pub mod users;
pub mod values;

use std::cell::OnceCell;

pub use aliases::{Buffer, BufferKind, Buffers};
pub use assignment::Assignment;
pub use heap_run::HeapEvent;
pub use inplace::in_place_pairs;
pub use live::LiveRange;
pub use memory::{Curve, Memory};
pub use schedule::{Schedule, Time};
pub use users::Users;
pub use values::{Value, Values};

use crate::ir::Module;

/// The analyses of one module.
#[derive(Debug)]
pub struct Analyses<'m> {
    module: &'m Module,
    users: OnceCell<Users>,
    schedule: OnceCell<Schedule>,
    values: OnceCell<Values>,
    buffers: OnceCell<Buffers>,
    assignment: OnceCell<Assignment>,
    memory: OnceCell<Memory>,
}

impl<'m> Analyses<'m> {
    /// Nothing is computed yet.
    pub fn new(module: &'m Module) -> Self {
        Self {
            module,
            users: OnceCell::new(),
            schedule: OnceCell::new(),
            values: OnceCell::new(),
            buffers: OnceCell::new(),
            assignment: OnceCell::new(),
            memory: OnceCell::new(),
        }
    }
    /// The module.
    pub fn module(&self) -> &'m Module {
        self.module
    }
    /// Readers and callers.
    pub fn users(&self) -> &Users {
        self.users.get_or_init(|| Users::of(self.module))
    }
    /// The clock.
    pub fn schedule(&self) -> &Schedule {
        self.schedule.get_or_init(|| Schedule::of(self.module, self.users()))
    }
    /// The data flow.
    pub fn values(&self) -> &Values {
        self.values.get_or_init(|| Values::of(self.module, self.users(), self.schedule()))
    }
    /// Alias sets with their live ranges.
    pub fn buffers(&self) -> &Buffers {
        self.buffers.get_or_init(|| {
            let ranges = live::LiveRanges::of(self.module, self.users(), self.schedule(), self.values());
            Buffers::of(self.module, self.schedule(), self.values(), ranges)
        })
    }
    /// Where everything lies.
    pub fn assignment(&self) -> &Assignment {
        self.assignment.get_or_init(|| Assignment::of(self))
    }
    /// XLA's figures: those of the module as XLA settles it ([`settle`](mod@settle)).
    pub fn memory(&self) -> &Memory {
        self.memory.get_or_init(|| match settle::settle(self.module) {
            Some(settled) => Memory::of(&Analyses::new(&settled)),
            None => Memory::of(self),
        })
    }
    /// Bytes at every instant in one memory space.
    pub fn curve(&self, color: i64) -> Curve {
        Curve::of(self, color)
    }
}
