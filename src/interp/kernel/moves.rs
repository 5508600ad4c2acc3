//! Kernels that do nothing but copy elements: what they copy from where to where, for somebody else to carry out.

use super::run::Frame;
use super::{Action, Kernel, Loop, Sink};
use crate::interp::buffer::Place;
use crate::interp::tape::Step;
use crate::interp::transfer::{Piece, Walk};
use crate::interp::view::{Access, Slot};

impl Kernel {
    /// The copies that the kernel consists of, in order, with all dynamic offsets read; `None` if it does anything else.
    pub fn moves(&self, params: &[Place], outs: &[Place]) -> Result<Option<Vec<Piece>>, String> {
        if self.actions.iter().any(|a| !matches!(a, Action::Loop(l) if is_copy(l))) || self.needs_copies(params, outs) {
            return Ok(None);
        }
        let frame = Frame::new(self, params, outs);
        let mut pieces = Vec::new();
        for action in &self.actions {
            let Action::Loop(l) = action else { return Ok(None) };
            let [load] = l.loads.as_slice() else { return Ok(None) };
            let [Sink::Store { to, .. }] = l.sinks.as_slice() else { return Ok(None) };
            if frame.stays(l) {
                continue;
            }
            let (Some(from), Some(to)) = (walk(&frame, load)?, walk(&frame, to)?) else { return Ok(None) };
            let piece = Piece::new(from, to, l.len, load.element.literal_bytes());
            pieces.push(piece.ok_or("a copy reaches beyond its memory")?);
        }
        Ok(Some(pieces))
    }
}

fn is_copy(l: &Loop) -> bool {
    match (l.loads.as_slice(), l.tape.steps.as_slice(), l.sinks.as_slice()) {
        ([load], [Step::Load { to: register, .. }], [Sink::Store { from, to }]) => {
            from == register
                && load.element.literal_bytes() == to.element.literal_bytes()
                && load.slot != Slot::Index
                && !matches!(load.slot, Slot::Temp(_))
                && matches!(to.slot, Slot::Out(_))
        }
        _ => false,
    }
}

fn walk(frame: &Frame<'_>, access: &Access) -> Result<Option<Walk>, String> {
    let base = frame.bind(access)?.base();
    let Some((buffer, offset)) = frame.place(access.slot) else { return Ok(None) };
    Ok(Some(Walk { buffer: buffer.clone(), offset, dims: access.dims.clone(), strides: access.strides.clone(), base }))
}
