//! What an asynchronous copy moves, and which way.
//!
//! `copy-start` moves a whole buffer. In loops a slice of a stack is read or written by an async fusion or an async `dynamic-slice` and
//! `dynamic-update-slice`; where the stack lies in host memory the slice crosses the link, else device memory is read and written.

use crate::ir::{CompId, HOST, InstrId, Module, Op, ShapeId};
use crate::machine::Machine;
use crate::units::{Bytes, Nanos};

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From device to host.
    ToHost,
    /// From host to device.
    FromHost,
    /// Within device memory.
    OnDevice,
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// How much.
    pub bytes: Bytes,
}

/// The copy that an instruction starts; `None` where it starts none.
pub fn of(module: &Module, id: InstrId) -> Option<Transfer> {
    let instr = module.instr(id);
    match &instr.op {
        Op::CopyStart { .. } => {
            let parts = module.shapes.elements(instr.shape);
            let (&to, &from) = (parts.first()?, parts.get(1)?);
            Some(Transfer { direction: direction(module, from, to), bytes: Bytes(module.shapes.byte_size(to)) })
        }
        Op::AsyncStart(wrapped) => of_computation(module, wrapped.calls),
        _ => None,
    }
}

fn direction(module: &Module, from: ShapeId, to: ShapeId) -> Direction {
    match (module.shapes.memory_space(from) == HOST, module.shapes.memory_space(to) == HOST) {
        (false, true) => Direction::ToHost,
        (true, false) => Direction::FromHost,
        _ => Direction::OnDevice,
    }
}

/// The instruction that a wrapped computation is about: its root, through fusions and renamings.
pub(super) fn hero(module: &Module, comp: CompId) -> InstrId {
    let mut id = module.comp(comp).root;
    // Operands stand before users and callees before callers, so this ends.
    loop {
        let instr = module.instr(id);
        match (&instr.op, instr.operands.first()) {
            (Op::Fusion(fusion), _) => id = module.comp(fusion.calls).root,
            (Op::Bitcast | Op::Reshape { .. } | Op::GetTupleElement { .. } | Op::Tuple, Some(&operand)) => id = operand,
            _ => return id,
        }
    }
}

fn of_computation(module: &Module, comp: CompId) -> Option<Transfer> {
    let hero = module.instr(hero(module, comp));
    let bytes = |id: InstrId| Bytes(module.shapes.leaf_bytes(module.instr(id).shape));
    let space = |id: InstrId| module.instr(id).shape;
    match (&hero.op, hero.operands.as_slice()) {
        (Op::DynamicUpdateSlice, &[base, update, ..]) => {
            Some(Transfer { direction: direction(module, space(update), space(base)), bytes: bytes(update) })
        }
        (Op::DynamicSlice { .. } | Op::Slice { .. } | Op::Copy, &[base, ..]) => {
            Some(Transfer { direction: direction(module, space(base), hero.shape), bytes: Bytes(module.shapes.leaf_bytes(hero.shape)) })
        }
        _ => None,
    }
}

/// What a copy takes with nothing beside it.
pub fn time_alone(transfer: Transfer, machine: &Machine) -> Nanos {
    match transfer.direction {
        Direction::ToHost => machine.offload_time(transfer.bytes),
        Direction::FromHost => machine.reload_time(transfer.bytes),
        Direction::OnDevice => machine.copy_latency + machine.hbm_time(transfer.bytes * 2),
    }
}
