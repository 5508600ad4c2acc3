//! Runs kernels.

use super::{Action, BLOCK, Call, Kernel, Loop, Reduction, Sink};
use crate::interp::array::Array;
use crate::interp::buffer::{Buffer, Place};
use crate::interp::lanes::{Block, Memory, Run, lane, round, wrap};
use crate::interp::ops::scalar::binary_f32;
use crate::interp::tape::Step;
use crate::interp::view::{Access, Slot, View, for_each_run};
use crate::ir::{Binary, Primitive};

/// The memories of a running kernel.
pub(super) struct Frame<'k> {
    kernel: &'k Kernel,
    params: &'k [Place],
    outs: Vec<Place>,
    temps: Vec<Place>,
}

/// An access whose memory is known.
pub(super) struct Bound<'f> {
    memory: Option<Memory<'f>>,
    element: Primitive,
    access: &'f Access,
    base: isize,
}

impl Bound<'_> {
    /// The offset of the element at index 0.
    pub(super) fn base(&self) -> isize {
        self.base
    }
    /// Reads elements at equal distances, from an offset on.
    pub(super) fn load_run(&self, at: isize, len: usize, stride: isize, block: &mut Block) {
        match &self.memory {
            Some(memory) => memory.load(Run { at: at.cast_unsigned(), len, stride }, block, 0),
            None => indices(self.element, at, len, stride, block, 0),
        }
    }
    /// Writes elements at equal distances, from an offset on.
    pub(super) fn store_run(&self, at: isize, len: usize, stride: isize, block: &Block) {
        let memory = self.memory.as_ref().expect("nothing is stored into indices");
        memory.store(Run { at: at.cast_unsigned(), len, stride }, block, 0);
    }
    pub(super) fn element(&self) -> Primitive {
        self.element
    }
    /// Reads elements `start..start + len` of the row-major order.
    pub(super) fn load(&self, start: usize, len: usize, block: &mut Block) {
        let Self { access, base, .. } = self;
        for_each_run(&access.dims, &access.strides, *base, start, len, |at, len, stride, to| match &self.memory {
            Some(memory) => memory.load(Run { at: at.cast_unsigned(), len, stride }, block, to),
            None => indices(self.element, at, len, stride, block, to),
        });
    }
    /// Writes elements `start..start + len` of the row-major order.
    pub(super) fn store(&self, start: usize, len: usize, block: &Block) {
        let Self { access, base, .. } = self;
        let memory = self.memory.as_ref().expect("nothing is stored into indices");
        for_each_run(&access.dims, &access.strides, *base, start, len, |at, len, stride, from| {
            memory.store(Run { at: at.cast_unsigned(), len, stride }, block, from);
        });
    }
}

/// Offsets as numbers.
fn indices(element: Primitive, at: isize, len: usize, stride: isize, block: &mut Block, to: usize) {
    let numbers = (0..len.cast_signed()).map(|i| (at + i * stride) as i64);
    match block {
        Block::F32(v) => v[to..to + len].iter_mut().zip(numbers).for_each(|(v, n)| *v = round(element, n as f32)),
        Block::F64(v) => v[to..to + len].iter_mut().zip(numbers).for_each(|(v, n)| *v = n as f64),
        Block::Int(v) => v[to..to + len].iter_mut().zip(numbers).for_each(|(v, n)| *v = wrap(element, n)),
        Block::Complex(v) => v[to..to + len].iter_mut().zip(numbers).for_each(|(v, n)| *v = [n as f64, 0.0]),
    }
}

impl Kernel {
    /// Computes results from operands. A result may lie where an operand lies.
    pub fn run(&self, params: &[Place], outs: &[Place]) -> Result<(), String> {
        let mut frame = Frame::new(self, params, outs);
        for (out, place) in outs.iter().enumerate() {
            if self.needs_copy(params, out, place) {
                frame.outs[out] = Place::fresh(place.bytes);
            }
        }
        for action in &self.actions {
            match action {
                Action::Loop(l) => frame.run_loop(l)?,
                Action::Dot(dot) => dot.run(&frame)?,
                Action::Call(call) => frame.call(call)?,
                Action::Gather(gather) => gather.run(&frame)?,
                Action::Scatter(scatter) => scatter.run(&frame)?,
            }
        }
        for (from, to) in frame.outs.iter().zip(outs) {
            Buffer::copy(&from.buffer, from.offset, &to.buffer, to.offset, to.bytes);
        }
        Ok(())
    }

    fn needs_copy(&self, params: &[Place], out: usize, place: &Place) -> bool {
        let in_the_way = |param: usize| params[param].overlaps(place) && !self.may_overlap(param, out, &params[param], place);
        (0..params.len()).any(in_the_way)
    }
    /// Whether a result must be computed elsewhere first, since it lies where operands lie.
    pub(super) fn needs_copies(&self, params: &[Place], outs: &[Place]) -> bool {
        outs.iter().enumerate().any(|(out, place)| self.needs_copy(params, out, place))
    }

    /// Whether a result may be written while it lies where an operand lies: nothing reads the operand after the result has been written to,
    /// except for the very element that is written.
    fn may_overlap(&self, param: usize, out: usize, from: &Place, to: &Place) -> bool {
        let (param, out) = (Slot::Param(param), Slot::Out(out));
        let mut written = false;
        for action in &self.actions {
            let (reads, writes): (Vec<&Access>, bool) = match action {
                Action::Loop(l) => {
                    if from.is(to) && l.moves(param, out) {
                        continue;
                    }
                    let reads: Vec<&Access> = l.loads.iter().filter(|a| a.slot == param).collect();
                    let mut stores = l.sinks.iter().filter_map(|s| match s {
                        Sink::Store { to, .. } if to.slot == out => Some(to),
                        _ => None,
                    });
                    if stores.any(|store| !from.is(to) || reads.iter().any(|r| !r.same_elements(store))) && !reads.is_empty() {
                        return false;
                    }
                    let inits = l.sinks.iter().any(|s| matches!(s, Sink::Reduce(r) if r.inits.iter().any(|a| a.slot == param)));
                    if written && (inits || l.indices().any(|v| v.slot == param)) {
                        return false;
                    }
                    let writes = l.sinks.iter().any(|s| match s {
                        Sink::Store { to, .. } => to.slot == out,
                        Sink::Reduce(r) => r.to.iter().any(|a| a.slot == out),
                    });
                    (reads, writes)
                }
                Action::Dot(dot) => {
                    let reads: Vec<&Access> = [&dot.left, &dot.right].into_iter().filter(|a| a.slot == param).collect();
                    if !reads.is_empty() && dot.to.slot == out {
                        return false;
                    }
                    (reads, dot.to.slot == out)
                }
                Action::Gather(gather) => {
                    let (reads, write) = gather.slots();
                    if reads.iter().any(|v| v.slot == param) && (written || write.slot == out) {
                        return false;
                    }
                    (Vec::new(), write.slot == out)
                }
                Action::Scatter(scatter) => {
                    let (mut reads, mut writes) = scatter.slots();
                    let writes = writes.any(|v| v.slot == out);
                    if reads.any(|v| v.slot == param) && (written || writes) {
                        return false;
                    }
                    (Vec::new(), writes)
                }
                Action::Call(call) => {
                    if written && call.inputs.iter().any(|v| v.slot == param) {
                        return false;
                    }
                    (Vec::new(), call.outputs.iter().any(|v| v.slot == out))
                }
            };
            if written && !reads.is_empty() {
                return false;
            }
            written |= writes;
        }
        true
    }
}

impl Access {
    /// Whether an element of one lies where that element of the other lies, if their memories are one.
    fn same_elements(&self, other: &Self) -> bool {
        self.dims == other.dims
            && self.strides == other.strides
            && self.base == other.base
            && self.dynamic == other.dynamic
            && self.element.literal_bytes() == other.element.literal_bytes()
    }
}

impl Loop {
    /// Whether the loop does nothing but write elements of one memory to the same places of another one.
    fn moves(&self, from: Slot, to: Slot) -> bool {
        match (self.loads.as_slice(), self.tape.steps.as_slice(), self.sinks.as_slice()) {
            ([load], [Step::Load { .. }], [Sink::Store { to: store, .. }]) => {
                load.slot == from && store.slot == to && load.same_elements(store)
            }
            _ => false,
        }
    }
    fn indices(&self) -> impl Iterator<Item = &View> {
        let stores = self.sinks.iter().filter_map(|s| match s {
            Sink::Store { to, .. } => Some(to),
            Sink::Reduce(_) => None,
        });
        self.loads.iter().chain(stores).flat_map(|a| a.dynamic.iter().map(|d| &d.index))
    }
}

impl<'k> Frame<'k> {
    /// Scratch memories are new.
    pub(super) fn new(kernel: &'k Kernel, params: &'k [Place], outs: &[Place]) -> Self {
        let temps = kernel.temps.iter().map(|&bytes| Place::fresh(bytes)).collect();
        Self { kernel, params, outs: outs.to_vec(), temps }
    }
    pub(super) fn place(&self, slot: Slot) -> Option<(&Buffer, usize)> {
        match slot {
            Slot::Param(i) => Some((&self.params[i].buffer, self.params[i].offset)),
            Slot::Out(i) => Some((&self.outs[i].buffer, self.outs[i].offset)),
            Slot::Temp(i) => Some((&self.temps[i].buffer, self.temps[i].offset)),
            Slot::Const(i) => Some((&self.kernel.consts[i], 0)),
            Slot::Index => None,
        }
    }
    /// Finds the memory of an access, and reads the indices it depends on.
    pub(super) fn bind<'f>(&'f self, access: &'f Access) -> Result<Bound<'f>, String> {
        let mut base = access.base;
        for dynamic in &access.dynamic {
            let index = self.index(&dynamic.index)?;
            base += index.clamp(0, dynamic.max) as isize * dynamic.stride;
        }
        let memory = self.place(access.slot).map(|(buffer, offset)| Memory { buffer, offset, element: access.element });
        Ok(Bound { memory, element: access.element, access, base })
    }
    fn index(&self, view: &View) -> Result<i64, String> {
        let access = view.access();
        let mut block = Block::Int(vec![0]);
        self.bind(&access)?.load(0, 1, &mut block);
        let Block::Int(v) = block else { unreachable!("a block of integers") };
        // A `u64` beyond the positive numbers is beyond every dimension.
        Ok(if view.element == Primitive::U64 && v[0] < 0 { i64::MAX } else { v[0] })
    }

    /// Whether a loop copies elements to where they are.
    pub(super) fn stays(&self, l: &Loop) -> bool {
        if let ([load], [Sink::Store { to, .. }]) = (l.loads.as_slice(), l.sinks.as_slice())
            && l.moves(load.slot, to.slot)
            && let (Some((a, i)), Some((b, j))) = (self.place(load.slot), self.place(to.slot))
        {
            return a.same(b) && i == j;
        }
        false
    }

    fn run_loop(&self, l: &Loop) -> Result<(), String> {
        if self.stays(l) {
            return Ok(());
        }
        let loads: Vec<Bound<'_>> = l.loads.iter().map(|a| self.bind(a)).collect::<Result<_, _>>()?;
        let mut stores = Vec::new();
        let mut reductions = Vec::new();
        for sink in &l.sinks {
            match sink {
                Sink::Store { from, to } => stores.push((*from as usize, self.bind(to)?)),
                Sink::Reduce(reduction) => reductions.push(Accumulator::new(self, reduction)?),
            }
        }
        let mut blocks = l.tape.blocks(l.len.min(BLOCK));
        let mut start = 0;
        while start < l.len {
            let len = (l.len - start).min(BLOCK);
            if len < BLOCK {
                blocks.iter_mut().for_each(|b| b.resize(len));
            }
            l.tape.run(&mut blocks, |access, block| loads[access].load(start, len, block));
            for (from, to) in &stores {
                to.store(start, len, &blocks[*from]);
            }
            for reduction in &mut reductions {
                reduction.feed(&blocks, start, len);
            }
            start += len;
        }
        for reduction in reductions {
            for (to, block) in reduction.reduction.to.iter().zip(&reduction.results) {
                self.bind(to)?.store(0, reduction.reduction.count, block);
            }
        }
        Ok(())
    }

    fn call(&self, call: &Call) -> Result<(), String> {
        let inputs = call.inputs.iter().map(|v| self.read(v)).collect::<Result<Vec<_>, _>>()?;
        let outputs = (call.function)(inputs)?;
        for (array, view) in outputs.into_iter().zip(&call.outputs) {
            self.write(view, &array)?;
        }
        Ok(())
    }

    /// A dense copy of what a view shows.
    pub(super) fn read(&self, view: &View) -> Result<Array, String> {
        let access = view.access();
        let bound = self.bind(&access)?;
        let mut array = Array::zeros(view.element, &view.dims);
        let Some(memory) = &bound.memory else { return Err("an iota is read as a whole".to_string()) };
        let width = array.width();
        let cells = memory.buffer.cells();
        for_each_run(&access.dims, &access.strides, bound.base, 0, view.len(), |at, len, stride, to| {
            for i in 0..len {
                let from = memory.offset + (at + i.cast_signed() * stride).cast_unsigned() * width;
                for b in 0..width {
                    array.data[(to + i) * width + b] = cells[from + b].get();
                }
            }
        });
        Ok(array)
    }

    fn write(&self, view: &View, array: &Array) -> Result<(), String> {
        if array.element != view.element || array.dims != view.dims {
            return Err(format!("expected {}{:?}, found {}{:?}", view.element.name(), view.dims, array.element.name(), array.dims));
        }
        let access = view.access();
        let bound = self.bind(&access)?;
        let memory = bound.memory.as_ref().ok_or("nothing is stored into indices")?;
        let width = array.width();
        for_each_run(&access.dims, &access.strides, bound.base, 0, view.len(), |at, len, stride, from| {
            for i in 0..len {
                let to = memory.offset + (at + i.cast_signed() * stride).cast_unsigned() * width;
                memory.buffer.write(to, &array.data[(from + i) * width..(from + i + 1) * width]);
            }
        });
        Ok(())
    }
}

/// A reduction under way.
struct Accumulator<'l> {
    reduction: &'l Reduction,
    results: Vec<Block>,
    simple: Option<Binary>,
    blocks: Vec<Block>,
}

impl<'l> Accumulator<'l> {
    fn new(frame: &Frame<'_>, reduction: &'l Reduction) -> Result<Self, String> {
        let mut results = Vec::new();
        for (init, &element) in reduction.inits.iter().zip(&reduction.function.results) {
            let mut one = Block::zeros(lane(element), 1);
            frame.bind(init)?.load(0, 1, &mut one);
            let mut all = Block::zeros(lane(element), reduction.count);
            all.splat(&one, 0);
            results.push(all);
        }
        Ok(Self { reduction, results, simple: reduction.function.as_binary(), blocks: Vec::new() })
    }

    /// Combines elements `start..start + len` of the loop with the results so far.
    fn feed(&mut self, blocks: &[Block], start: usize, len: usize) {
        let reduction = self.reduction;
        if let (Some(op), [result], [input]) = (self.simple, self.results.as_mut_slice(), reduction.inputs.as_slice()) {
            let element = reduction.function.results[0];
            if fold(op, element, reduction, result, &blocks[*input as usize], start, len) {
                return;
            }
        }
        for_each_run(&reduction.dims, &reduction.strides, 0, start, len, |at, count, stride, from| {
            let at = at.cast_unsigned();
            if stride == 1 {
                self.combine(blocks, at, from, count);
            } else {
                for i in 0..count {
                    self.combine(blocks, at + i * stride.unsigned_abs(), from + i, 1);
                }
            }
        });
    }

    /// Applies the function to results `at..at + count` and as many elements.
    fn combine(&mut self, blocks: &[Block], at: usize, from: usize, count: usize) {
        let reduction = self.reduction;
        let function = &reduction.function;
        if self.blocks.is_empty() {
            self.blocks = function.tape.blocks(count);
        }
        self.blocks.iter_mut().for_each(|b| b.resize(count));
        let n = self.results.len();
        for (i, result) in self.results.iter().enumerate() {
            self.blocks[i].set(0, result, at..at + count);
        }
        for (i, &input) in reduction.inputs.iter().enumerate() {
            self.blocks[n + i].set(0, &blocks[input as usize], from..from + count);
        }
        function.tape.run(&mut self.blocks, |_, _| unreachable!("an applied function reads nothing"));
        for (result, &output) in self.results.iter_mut().zip(&function.outputs) {
            result.set(at, &self.blocks[output as usize], 0..count);
        }
    }
}

/// The common reductions, each as a loop of its own; false if it is none of them.
fn fold(op: Binary, element: Primitive, reduction: &Reduction, result: &mut Block, input: &Block, start: usize, len: usize) -> bool {
    match (result, input) {
        (Block::F32(result), Block::F32(input)) => match (op, element) {
            (Binary::Add, Primitive::F32) => fold_with(reduction, result, input, start, len, |a, b| a + b),
            (Binary::Add, element) => fold_with(reduction, result, input, start, len, |a, b| round(element, a + b)),
            (Binary::Multiply, element) => fold_with(reduction, result, input, start, len, |a, b| round(element, a * b)),
            (Binary::Maximum, _) => fold_with(reduction, result, input, start, len, |a, b| binary_f32(Binary::Maximum, a, b)),
            (Binary::Minimum, _) => fold_with(reduction, result, input, start, len, |a, b| binary_f32(Binary::Minimum, a, b)),
            _ => return false,
        },
        (Block::F64(result), Block::F64(input)) => match op {
            Binary::Add => fold_with(reduction, result, input, start, len, |a, b| a + b),
            Binary::Multiply => fold_with(reduction, result, input, start, len, |a, b| a * b),
            _ => return false,
        },
        (Block::Int(result), Block::Int(input)) => match op {
            Binary::Add if element != Primitive::Pred => {
                fold_with(reduction, result, input, start, len, |a, b| wrap(element, a.wrapping_add(b)));
            }
            Binary::And => fold_with(reduction, result, input, start, len, |a, b| a & b),
            Binary::Or => fold_with(reduction, result, input, start, len, |a, b| a | b),
            Binary::Maximum if element != Primitive::U64 => fold_with(reduction, result, input, start, len, i64::max),
            Binary::Minimum if element != Primitive::U64 => fold_with(reduction, result, input, start, len, i64::min),
            _ => return false,
        },
        _ => return false,
    }
    true
}

fn fold_with<T: Copy>(reduction: &Reduction, result: &mut [T], input: &[T], start: usize, len: usize, f: impl Fn(T, T) -> T) {
    for_each_run(&reduction.dims, &reduction.strides, 0, start, len, |at, count, stride, from| {
        let (at, input) = (at.cast_unsigned(), &input[from..from + count]);
        match stride {
            0 => result[at] = input.iter().fold(result[at], |a, &b| f(a, b)),
            1 => result[at..at + count].iter_mut().zip(input).for_each(|(a, &b)| *a = f(*a, b)),
            _ => {
                let mut at = at;
                for &b in input {
                    result[at] = f(result[at], b);
                    at += stride.unsigned_abs();
                }
            }
        }
    });
}
