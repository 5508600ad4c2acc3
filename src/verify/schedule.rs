//! Promises Q01–Q03: the order is a sequence in which the program can run.

use super::cx::{Cx, users};
use crate::ir::{EntityMap, InstrId, Op};

pub(super) fn check(cx: &mut Cx<'_>) {
    let m = cx.module;
    let mut position = EntityMap::<InstrId, u32>::with_default(0);
    for &comp in &m.listing {
        for (at, &id) in (0u32..).zip(&m.comp(comp).order) {
            position[id] = at;
        }
    }
    for (_, id) in m.live() {
        let i = m.instr(id);
        for &operand in i.operands.iter().filter(|&&o| position[o] >= position[id]) {
            let d = cx.error_at("Q01", id, format!("`{}` stands before its operand `{}`", i.name, cx.name(operand)));
            let d = d.at(m.instr(operand).span, "the operand");
            cx.push(d);
        }
        for &before in i.control_predecessors.iter().filter(|&&o| position[o] >= position[id]) {
            let d = cx.error_at("Q02", id, format!("`{}` stands before its control predecessor `{}`", i.name, cx.name(before)));
            let d = d.at(m.instr(before).span, "the control predecessor");
            cx.push(d);
        }
    }
    let users = users(m);
    for (_, id) in m.live() {
        pairs(cx, id, &users[id]);
    }
}

/// Q03. Copies have stricter rules of their own (V8); sends and receives may be apart in a pipelined loop.
fn pairs(cx: &mut Cx<'_>, id: InstrId, users: &[InstrId]) {
    let i = cx.instr(id);
    let ends = |user: &InstrId| match (&i.op, &cx.instr(*user).op) {
        (Op::Collective(start), Op::CollectiveDone(kind)) => start.kind == *kind,
        (Op::AsyncStart(_) | Op::AsyncUpdate(_), Op::AsyncUpdate(_) | Op::AsyncDone(_)) => true,
        _ => false,
    };
    match &i.op {
        Op::Collective(c) if !c.start => {}
        Op::Collective(_) | Op::AsyncStart(_) | Op::AsyncUpdate(_) => {
            if let Some(&other) = users.iter().find(|u| !ends(u)) {
                let d = cx.error_at("Q03", other, format!("`{}` uses `{}`, which is not done", cx.name(other), i.name));
                let d = d.at(i.span, "started here");
                cx.push(d);
            } else if users.len() != 1 {
                cx.error("Q03", id, format!("`{}`: expected one instruction that ends it, found {}", i.name, users.len()));
            }
        }
        Op::CollectiveDone(kind) => {
            let start = cx.instr(i.operands[0]);
            if !matches!(&start.op, Op::Collective(c) if c.start && c.kind == *kind) {
                cx.error("Q03", id, format!("`{}`: expected a `{}-start` as operand, found `{}`", i.name, kind.name(), start.name));
            }
        }
        _ => {}
    }
}
