//! `slice-invariant`: takes rows out of a parameter instead of out of a copy of it that lies in another order.
//!
//! # What it does
//! A loop that carries the transpose of an entry parameter unchanged and reads it row by row in its fusions carries the parameter instead; each
//! row is sliced there, and looks as it did.
//!
//! # When it helps
//! Weights whose layer dimension is not the first: XLA transposes whole stacks of them before the loops, and both copies are alive over both passes.
//!
//! # Example
//! ```text
//! before                                                 after
//! entry: %t = f32[32,512] transpose(%p)                  body:  %row = bitcast(dynamic-slice(%p, 0, %i))
//! body:  %row = dynamic-slice(%t, %i, 0)
//! ```
//!
//! # Refuses
//! Copies of anything but parameters of the entry, and readers that are no fusions or take more than rows.
//!
//! # Cost
//! Linear in the module for each element.
//!
//! # Source
//! Slices commute with transposes; XLA's `TransposeFolding` uses the like for dots.

use rustc_hash::FxHashSet;

use crate::analysis::Users;
use crate::analysis::loops::{Kind, Loop, Loops};
use crate::ir::{ArrayShape, DEVICE, Insertion, InstrId, Instruction, Module, Op, Shape, ShapeId};
use crate::pass::{Changed, Entry, Log, Pass, PassCx, PassError};
use crate::rewrite::{LoopEdit, NewElement, define_take};

use super::drop_carried::sweep;
use super::loop_handle;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct SliceInvariant;

impl Pass for SliceInvariant {
    fn name(&self) -> &'static str {
        "slice-invariant"
    }
    fn run(&self, module: &mut Module, _: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let count = slice_invariants(module);
        let text = format!("{count} transposed copies of parameters read row by row from the parameter");
        log.entries.push(Entry { pass: self.name(), changed: count > 0, text, plan: None });
        Ok(Changed::from(count > 0))
    }
}

/// A loop's element that can be a parameter instead.
#[derive(Debug)]
struct Found {
    element: usize,
    parameter: InstrId,
    permutation: Vec<i64>,
    /// The fusions that read rows, by the take that they read it from.
    readers: Vec<(InstrId, InstrId)>,
}

/// Does it for every loop of the entry; returns for how many elements.
pub(super) fn slice_invariants(module: &mut Module) -> usize {
    let mut count = 0;
    let loops = Loops::of(module, &Users::of(module)).loops.len();
    for n in 0..loops {
        loop {
            let users = Users::of(module);
            let Some(this) = Loops::of(module, &users).loops.into_iter().nth(n) else { break };
            if this.home != module.entry_id() || users.callers(this.body).len() != 1 {
                break;
            }
            let Some(found) = (0..this.elements.len()).find_map(|e| find(module, &users, &this, e)) else { break };
            apply(module, &this, &found);
            count += 1;
        }
    }
    if count > 0 {
        sweep(module);
    }
    count
}

fn find(module: &Module, users: &Users, this: &Loop, element: usize) -> Option<Found> {
    let at = &this.elements[element];
    if at.kind != Kind::Invariant || !at.results.is_empty() {
        return None;
    }
    let (parameter, permutation) = transposed(module, at.initial)?;
    let is_device = module.shapes.memory_space(module.instr(parameter).shape) == DEVICE;
    if !is_device || module.instr(this.init).operands.contains(&parameter) {
        return None;
    }
    let mut readers = Vec::new();
    for &take in &at.takes {
        for &user in users.users(take) {
            if user == this.root {
                continue;
            }
            rows(module, user, take, parameter, &permutation)?;
            readers.push((user, take));
        }
    }
    (!readers.is_empty()).then_some(Found { element, parameter, permutation, readers })
}

/// The entry parameter that a value is the transpose of, also under another view, and the permutation.
fn transposed(module: &Module, id: InstrId) -> Option<(InstrId, Vec<i64>)> {
    let (of, dimensions) = match &module.instr(id).op {
        Op::Bitcast => {
            let inner = module.instr(id).operands[0];
            let (of, dimensions) = transposed(module, inner)?;
            let (seen, made) = (module.shapes.array(module.instr(id).shape)?, module.shapes.array(module.instr(inner).shape)?);
            return Some((of, viewed(seen, made, &dimensions)?));
        }
        Op::Transpose { dimensions } => (module.instr(id).operands[0], dimensions),
        Op::Fusion(fusion) => {
            let root = module.comp(fusion.calls).root;
            let Op::Transpose { dimensions } = &module.instr(root).op else { return None };
            let inner = module.instr(root).operands[0];
            let Op::Parameter { number } = module.instr(inner).op else { return None };
            (*module.instr(id).operands.get(usize::try_from(number).ok()?)?, dimensions)
        }
        _ => return None,
    };
    let is_parameter = matches!(module.instr(of).op, Op::Parameter { .. }) && module.entry().parameters.contains(&of);
    is_parameter.then(|| (of, dimensions.to_vec()))
}

/// The permutation seen through a bitcast that calls the same dimensions something else.
fn viewed(seen: &ArrayShape, made: &ArrayShape, dimensions: &[i64]) -> Option<Vec<i64>> {
    let lie = |shape: &ArrayShape| Some(shape.layout.as_ref().filter(|l| l.tiles.is_empty())?.minor_to_major.clone());
    let (seen_order, made_order) = (lie(seen)?, lie(made)?);
    if seen.element != made.element || seen_order.len() != made_order.len() {
        return None;
    }
    let mut out = vec![0; seen.dims.len()];
    for (&s, &m) in seen_order.iter().zip(made_order.iter()) {
        let (s, m) = (usize::try_from(s).ok()?, usize::try_from(m).ok()?);
        if seen.dims.get(s)?.size != made.dims.get(m)?.size {
            return None;
        }
        *out.get_mut(s)? = *dimensions.get(m)?;
    }
    Some(out)
}

/// The slices by which a fusion reads rows of `take`, if it does nothing else with it.
fn rows(module: &Module, fusion: InstrId, take: InstrId, parameter: InstrId, permutation: &[i64]) -> Option<Vec<InstrId>> {
    let Op::Fusion(called) = &module.instr(fusion).op else { return None };
    let operands = &module.instr(fusion).operands;
    let number = operands.iter().position(|&o| o == take)?;
    if operands.iter().filter(|&&o| o == take).count() != 1 {
        return None;
    }
    let inner = *module.comp(called.calls).parameters.get(number)?;
    let mut slices = Vec::new();
    for &id in &module.comp(called.calls).order {
        let instr = module.instr(id);
        if !instr.operands.contains(&inner) {
            continue;
        }
        let is_slice = matches!(instr.op, Op::DynamicSlice { .. }) && instr.operands[0] == inner && !instr.operands[1..].contains(&inner);
        let row = module.shapes.array(instr.shape)?;
        let whole = module.shapes.array(module.instr(inner).shape)?;
        let differ =
            row.dims.len() == whole.dims.len() && row.dims.iter().zip(&whole.dims).filter(|(a, b)| a != b).all(|(a, _)| a.size == 1);
        sliced(module.shapes.array(module.instr(parameter).shape)?, row, permutation)?;
        if !is_slice || !differ {
            return None;
        }
        slices.push(id);
    }
    (!slices.is_empty()).then_some(slices)
}

/// The shape of a row in the order of the parameter.
fn sliced(parameter: &ArrayShape, row: &ArrayShape, permutation: &[i64]) -> Option<ArrayShape> {
    let mut shape = parameter.clone();
    for (d, &from) in permutation.iter().enumerate() {
        *shape.dims.get_mut(usize::try_from(from).ok()?)? = *row.dims.get(d)?;
    }
    Some(shape)
}

/// The dimensions that are wider than one, as they lie in memory.
fn order(shape: &ArrayShape) -> Option<Vec<usize>> {
    let layout = shape.layout.as_ref().filter(|l| l.tiles.is_empty())?;
    let dims = layout.minor_to_major.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX));
    Some(dims.filter(|&d| shape.dims.get(d).is_some_and(|d| d.size != 1)).collect())
}

fn apply(module: &mut Module, this: &Loop, found: &Found) {
    let mut taken = module.names();
    let handle = loop_handle(this);
    let shape = module.instr(found.parameter).shape;
    let edit =
        LoopEdit { drop: vec![found.element], add: vec![NewElement { initial: found.parameter, next: None }], ..LoopEdit::default() };
    let new = define_take(module, &handle, edit.index_of_added(module, &handle, 0), shape, &mut taken);
    for &(fusion, take) in &found.readers {
        let slices = rows(module, fusion, take, found.parameter, &found.permutation).expect("`find` has looked");
        change_reader(module, fusion, take, new, (shape, &found.permutation, &slices), &mut taken);
    }
    let takes: FxHashSet<InstrId> = this.elements[found.element].takes.iter().copied().collect();
    let top = super::stacks::top(module, this);
    module.splice(this.body, vec![Insertion { position: top, instr: new }], &takes);
    // The loop starts with the parameter now.
    let entry = module.entry_id();
    module.splice(entry, vec![Insertion { position: 0, instr: found.parameter }], &[found.parameter].into_iter().collect());
    edit.apply(module, &handle, &[new]);
}

/// Makes a fusion slice its rows out of the parameter.
fn change_reader(
    module: &mut Module,
    fusion: InstrId,
    take: InstrId,
    new: InstrId,
    (shape, permutation, slices): (ShapeId, &[i64], &[InstrId]),
    taken: &mut FxHashSet<Box<str>>,
) {
    let Op::Fusion(called) = &module.instr(fusion).op else { unreachable!("`rows` takes fusions only") };
    let comp = called.calls;
    let number = module.instr(fusion).operands.iter().position(|&o| o == take).expect("it reads the take");
    let inner = module.comp(comp).parameters[number];
    module.instructions[fusion].operands[number] = new;
    // XLA's price and the way it launches the kernel were for another computation.
    module.instructions[fusion].attrs.backend_config = None;
    module.instructions[inner].shape = shape;
    module.computations[comp].name = Module::fresh_name("fused_dynamic_slice", taken);
    for &old in slices {
        let row = module.shapes.array(module.instr(old).shape).expect("rows are arrays").clone();
        let whole = module.shapes.array(shape).expect("`rows` has seen an array").clone();
        let array = sliced(&whole, &row, permutation).expect("`rows` has permuted it");
        let sizes = array.dims.iter().map(|d| d.size).collect();
        let wide = |d: usize| usize::try_from(permutation[d]).unwrap_or(usize::MAX);
        // A row that lies in the same order is only called otherwise.
        let same = order(&array).is_some_and(|o| order(&row).is_some_and(|r| o.into_iter().eq(r.into_iter().map(wide))));
        let mut operands = module.instr(old).operands.clone();
        for (d, &from) in permutation.iter().enumerate() {
            operands[1 + usize::try_from(from).expect("a dimension")] = module.instr(old).operands[1 + d];
        }
        let shape = module.shapes.intern(Shape::Array(array));
        let name = Module::fresh_name("dynamic_slice", taken);
        let slice = module.define(Instruction::new(name, shape, Op::DynamicSlice { sizes }, operands));
        let position = module.comp(comp).order.iter().position(|&i| i == old).expect("it stands there");
        module.splice(comp, vec![Insertion { position, instr: slice }], &FxHashSet::default());
        let instr = &mut module.instructions[old];
        instr.op = if same { Op::Bitcast } else { Op::Transpose { dimensions: permutation.to_vec() } };
        instr.operands = [slice].into_iter().collect();
        instr.attrs.backend_config = None;
    }
}
