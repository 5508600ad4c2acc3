//! Who reads what, who calls whom, and where an instruction lives: one linear pass.

use crate::ir::{CompId, Entity, EntityMap, InstrId, Module, Op};

/// Readers of each instruction and callers of each computation.
#[derive(Clone, Debug)]
pub struct Users {
    starts: Vec<u32>,
    users: Vec<InstrId>,
    home: EntityMap<InstrId, Option<CompId>>,
    callers: EntityMap<CompId, Vec<InstrId>>,
}

impl Users {
    /// Costs O(instructions + operands).
    pub fn of(module: &Module) -> Self {
        let count = module.instructions.len();
        let mut starts = vec![0u32; count + 1];
        let mut home = EntityMap::with_default(None);
        let mut callers = EntityMap::<CompId, Vec<InstrId>>::with_default(Vec::new());
        let mut last_user: Vec<Option<InstrId>> = vec![None; count];
        // Each pair of operand and user counts once, however often the user names the operand.
        let mut pairs: Vec<(InstrId, InstrId)> = Vec::new();
        for (comp, id) in module.live() {
            home[id] = Some(comp);
            let instr = module.instr(id);
            for &operand in &instr.operands {
                if last_user[operand.index()].replace(id) != Some(id) {
                    pairs.push((operand, id));
                    starts[operand.index() + 1] += 1;
                }
            }
            for callee in instr.op.called() {
                callers[callee].push(id);
            }
        }
        for i in 0..count {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut users = vec![InstrId::new(0); pairs.len()];
        for (operand, user) in pairs {
            let at = &mut next[operand.index()];
            users[*at as usize] = user;
            *at += 1;
        }
        Self { starts, users, home, callers }
    }

    /// The live instructions that read this one, each once, in program order.
    pub fn users(&self, id: InstrId) -> &[InstrId] {
        match self.starts.get(id.index()..id.index() + 2) {
            Some(bounds) => &self.users[bounds[0] as usize..bounds[1] as usize],
            None => &[],
        }
    }
    /// The computation in whose order the instruction stands; `None` if it is dead.
    pub fn home(&self, id: InstrId) -> Option<CompId> {
        self.home[id]
    }
    /// The live instructions that call this computation.
    pub fn callers(&self, comp: CompId) -> &[InstrId] {
        &self.callers[comp]
    }
    /// The `async-done` at the end of the chain that this instruction starts, if there is one.
    pub fn async_done(&self, module: &Module, start: InstrId) -> Option<InstrId> {
        let mut at = start;
        // A chain is as long as it has updates; the bound holds off a (malformed) cycle.
        for _ in 0..=module.instructions.len() {
            let next = |want: fn(&Op) -> bool| self.users(at).iter().copied().find(|&user| want(&module.instr(user).op));
            if let Some(done) = next(|op| matches!(op, Op::AsyncDone(_))) {
                return Some(done);
            }
            at = next(|op| matches!(op, Op::AsyncUpdate(_)))?;
        }
        None
    }
}
