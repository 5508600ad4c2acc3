//! Computations that an attribute names or holds.

use super::cursor::Cursor;
use super::errors::{Fail, Res, fail};
use super::reader::Reader;
use crate::ir::CompId;

impl<'t> Reader<'t> {
    /// The name of a computation, or the computation itself in braces.
    pub(super) fn called(&mut self, cur: &mut Cursor<'t>) -> Res<CompId> {
        if cur.peek() == b'{' {
            return self.inline_computation(cur);
        }
        let start = cur.at;
        let name = cur.name("the name of a computation")?;
        match self.comps.get(name) {
            Some(&id) => Ok(id),
            None if self.broken.contains(name) => Err(Fail::silent()),
            None => fail("P031", cur.since(start), format!("expected a computation that stands before this one, found `{name}`")),
        }
    }

    /// A list of such in braces.
    pub(super) fn called_list(&mut self, cur: &mut Cursor<'t>) -> Res<Vec<CompId>> {
        cur.expect(b'{', "`{`")?;
        let mut out = Vec::new();
        if cur.eat(b'}') {
            return Ok(out);
        }
        loop {
            out.push(self.called(cur)?);
            if cur.eat(b'}') {
                return Ok(out);
            }
            cur.expect(b',', "`,` or `}`")?;
        }
    }
}
