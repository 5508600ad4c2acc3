//! Moves the computation of one fusion into a fusion that reads it.

use rustc_hash::FxHashMap;

use crate::ir::{Binary, CompId, FusionKind, InstrId, Instruction, Module, Op, Unary};

use super::trim_outputs::prune_fusion;

/// A computation whose instructions are no more than this stays small enough to compile to one kernel.
const LARGEST: usize = 400;

/// A value that a fusion gives: the fusion, and which output where it has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Output {
    pub fusion: InstrId,
    pub output: Option<usize>,
}

impl Output {
    /// The fusion output that an instruction is, or takes.
    pub(super) fn of(module: &Module, id: InstrId) -> Option<Self> {
        let instr = module.instr(id);
        match instr.op {
            Op::Fusion(_) if module.shapes.array(instr.shape).is_some() => Some(Self { fusion: id, output: None }),
            Op::GetTupleElement { index } if matches!(module.instr(instr.operands[0]).op, Op::Fusion(_)) => {
                Some(Self { fusion: instr.operands[0], output: usize::try_from(index).ok() })
            }
            _ => None,
        }
    }
    /// The instruction inside that gives it.
    pub(super) fn root(self, module: &Module) -> Option<InstrId> {
        let Op::Fusion(fusion) = &module.instr(self.fusion).op else { return None };
        let root = module.comp(fusion.calls).root;
        match self.output {
            None => Some(root),
            Some(n) => module.instr(root).operands.get(n).copied(),
        }
    }
}

/// Replaces operand `operand` (the output of `from`, or a bitcast of it) of the fusion `into` by the computation of `from`: what `from` reads becomes operands of `into`. `None` (and nothing
/// changed) where the result would be too large or could round otherwise, since a product of one computation could meet a sum of the other.
pub(super) fn inline(module: &mut Module, from: Output, into: InstrId, operand: InstrId) -> Option<()> {
    let root = from.root(module)?;
    let Op::Fusion(source) = &module.instr(from.fusion).op else { return None };
    let source = source.calls;
    let Op::Fusion(target) = &module.instr(into).op else { return None };
    let target = target.calls;
    if module.comp(source).order.len() + module.comp(target).order.len() > LARGEST || could_contract(module, root, into, operand) {
        return None;
    }
    let mut taken = module.names();
    let needed = super::closure(module, root);
    let outer = module.instr(from.fusion).operands.clone();
    let mut known: FxHashMap<InstrId, InstrId> = FxHashMap::default();
    for (number, &parameter) in module.comp(source).parameters.clone().iter().enumerate() {
        if !needed.contains(&parameter) {
            continue;
        }
        let shown = outer[number];
        let there = module.instr(into).operands.iter().position(|&o| o == shown);
        let inner = match there {
            Some(n) => module.comp(target).parameters[n],
            None => {
                let number = i64::try_from(module.instr(into).operands.len()).ok()?;
                let name = Module::fresh_name(&format!("param_{number}"), &mut taken);
                let shape = module.instr(shown).shape;
                let new = module.define(Instruction::new(name, shape, Op::Parameter { number }, []));
                module.computations[target].parameters.push(new);
                module.instructions[into].operands.push(shown);
                new
            }
        };
        known.insert(parameter, inner);
    }
    let parameters = module.comp(target).parameters.clone();
    let mut order = parameters.clone();
    for id in module.comp(source).order.clone() {
        if !needed.contains(&id) || known.contains_key(&id) {
            continue;
        }
        let mut clone = module.instr(id).clone();
        clone.name = Module::fresh_name(&clone.name, &mut taken);
        clone.proto_id = 0;
        clone.operands = clone.operands.iter().map(|o| known[o]).collect();
        clone.attrs.backend_config = None;
        let copy = module.define(clone);
        order.push(copy);
        known.insert(id, copy);
    }
    let mut made = known[&root];
    let (inner, shown) = (made, module.instr(operand).shape);
    if module.instr(made).shape != shown {
        let name = Module::fresh_name("bitcast", &mut taken);
        made = module.define(Instruction::new(name, shown, Op::Bitcast, [made]));
        order.push(made);
    }
    order.extend(module.comp(target).order.iter().copied().filter(|i| !parameters.contains(i)));
    module.computations[target].order = order;
    for (number, &parameter) in parameters.iter().enumerate() {
        if module.instr(into).operands[number] != operand {
            continue;
        }
        for id in module.comp(target).order.clone() {
            for o in &mut module.instructions[id].operands {
                if *o == parameter {
                    *o = made;
                }
            }
        }
        if module.comp(target).root == parameter {
            module.computations[target].root = made;
        }
    }
    if made != inner {
        undo_views(module, target, made, inner);
    }
    let config = module.instr(into).attrs.backend_config.clone();
    module.instructions[into].attrs.backend_config = config.and_then(|c| without_price(&c));
    prune_fusion(module, into);
    Some(())
}

/// Bitcasts of `view` that only give back the shape of `inner`, which it is a bitcast of, become `inner`.
fn undo_views(module: &mut Module, comp: CompId, view: InstrId, inner: InstrId) {
    for id in module.comp(comp).order.clone() {
        let instr = module.instr(id);
        if !matches!(instr.op, Op::Bitcast) || instr.operands[0] != view || instr.shape != module.instr(inner).shape {
            continue;
        }
        for user in module.comp(comp).order.clone() {
            for o in &mut module.instructions[user].operands {
                if *o == id {
                    *o = inner;
                }
            }
        }
        if module.comp(comp).root == id {
            module.computations[comp].root = inner;
        }
    }
}

/// Whether an operation hands elements on, but for their place and sign.
fn passes_on(op: &Op) -> bool {
    matches!(op, Op::Bitcast | Op::Reshape { .. } | Op::Broadcast { .. } | Op::Transpose { .. } | Op::Copy | Op::Unary(Unary::Negate))
}

/// Whether the backend could merge a product at the end of the one computation with a sum at the start of the other into one rounding.
fn could_contract(module: &Module, root: InstrId, into: InstrId, operand: InstrId) -> bool {
    let mut at = root;
    loop {
        let instr = module.instr(at);
        match instr.op {
            Op::Binary(Binary::Multiply) => break,
            ref op if passes_on(op) => at = instr.operands[0],
            _ => return false,
        }
    }
    let Op::Fusion(target) = &module.instr(into).op else { return true };
    let comp = module.comp(target.calls);
    let mut views: Vec<InstrId> =
        comp.parameters.iter().zip(&module.instr(into).operands).filter(|&(_, &o)| o == operand).map(|(&p, _)| p).collect();
    for &id in &comp.order {
        let instr = module.instr(id);
        if !instr.operands.iter().any(|o| views.contains(o)) {
            continue;
        }
        match instr.op {
            Op::Binary(Binary::Add | Binary::Subtract) | Op::Reduce { .. } | Op::Tuple => return true,
            ref op if passes_on(op) => views.push(id),
            _ => {}
        }
    }
    false
}

/// Whether everything that a fusion output is made of works on each element alone, from operands of its own.
pub(super) fn is_elementwise(module: &Module, from: Output) -> bool {
    let Some(root) = from.root(module) else { return false };
    super::closure(module, root).into_iter().all(|id| {
        matches!(
            module.instr(id).op,
            Op::Parameter { .. }
                | Op::Constant(_)
                | Op::Iota { .. }
                | Op::Unary(_)
                | Op::Binary(_)
                | Op::Compare { .. }
                | Op::Select
                | Op::Clamp
                | Op::Convert
                | Op::Bitcast
                | Op::Broadcast { .. }
        )
    })
}

/// Whether XLA compiles the fusion by Triton, with a tiling of its own.
pub(super) fn is_triton(module: &Module, fusion: InstrId) -> bool {
    let custom = matches!(&module.instr(fusion).op, Op::Fusion(f) if f.kind == FusionKind::Custom);
    custom
        && module.instr(fusion).attrs.backend_config.as_ref().is_some_and(|c| {
            std::str::from_utf8(c).is_ok_and(|t| t.contains("\"kind\":\"__triton\"") || t.contains("\"kind\": \"__triton\""))
        })
}

/// A fusion's backend config without XLA's price; nothing if it says where slices lie.
pub(super) fn without_price(config: &[u8]) -> Option<Box<[u8]>> {
    let text = std::str::from_utf8(config).ok()?;
    if text.contains("dynamic_slice_config") {
        return None;
    }
    let key = "\"reification_cost\":[";
    let Some(at) = text.find(key) else { return Some(config.into()) };
    let inside = at + key.len();
    let end = inside + text[inside..].find(']')?;
    Some(format!("{}{}", &text[..inside], &text[end..]).into_bytes().into())
}
