//! Writes the body of a kernel: elements are pulled from the result down to what lies in memory, as XLA's elemental emitter does.
//!
//! Each distinct expression gets one variable; an expression that was written before, in this block or one around it, is used again. The
//! text depends on nothing but the program.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use super::graph::{Graph, Kind, Ref};
use super::types::{Ty, ctype, load, storage};

/// Lines of one kernel; more is refused, since values read at many places are written out for each of them.
const LINES: usize = 20_000;
/// Operations below each other.
const DEPTH: usize = 2_000;

/// Memory that a kernel is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// An array of the operands.
    Param(usize),
    /// An array of the result.
    Out(usize),
    /// Scratch memory of the instruction.
    Scratch(usize),
}

/// A place of an element: an expression a dimension, and the offset in the array's own layout where it is known.
#[derive(Clone, Debug)]
pub struct Place {
    /// An index a dimension.
    pub dims: Vec<String>,
    /// The offset in elements, in the layout of the array that is asked for.
    pub linear: Option<String>,
}

impl Place {
    /// A place by its indices.
    pub fn at(dims: Vec<String>) -> Self {
        Self { dims, linear: None }
    }
}

/// A block of code that is being written.
#[derive(Debug, Default)]
struct Block {
    lines: String,
    variables: FxHashMap<String, String>,
    elements: FxHashMap<(Ref, String), String>,
}

/// What a kernel reads: the memory and where.
#[derive(Clone, Debug)]
pub struct Access {
    /// The memory.
    pub memory: Memory,
    /// The offset, as an expression.
    pub offset: String,
    /// Bytes of an element.
    pub width: usize,
}

/// Writes one kernel.
pub struct Emitter<'g, 'm> {
    /// The values.
    pub graph: &'g mut Graph<'m>,
    /// Arrays that lie in memory.
    pub stored: &'g FxHashMap<Ref, Memory>,
    blocks: Vec<Block>,
    count: usize,
    depth: usize,
    lines: usize,
    /// The type of indices.
    pub index: &'static str,
    /// Memory it uses, with the element types, in the order of the arguments.
    pub memory: Vec<(Memory, &'static str)>,
    /// What it reads.
    pub reads: Vec<Access>,
    /// Arrays that are read in vectors.
    pub vectors: Vec<(Memory, &'static str)>,
    /// The offset that threads have in vectors, if they do.
    pub lane: Option<String>,
    /// Constant tables.
    pub tables: Vec<String>,
    /// Whether results may differ between correct machines.
    pub inexact: bool,
}

/// What goes wrong: the sentence.
pub type Emitted<T> = Result<T, String>;

impl<'g, 'm> Emitter<'g, 'm> {
    /// An empty kernel.
    pub fn new(graph: &'g mut Graph<'m>, stored: &'g FxHashMap<Ref, Memory>, index: &'static str) -> Self {
        Self {
            graph,
            stored,
            blocks: vec![Block::default()],
            count: 0,
            depth: 0,
            lines: 0,
            index,
            memory: Vec::new(),
            reads: Vec::new(),
            vectors: Vec::new(),
            lane: None,
            tables: Vec::new(),
            inexact: false,
        }
    }

    fn indent(&self) -> String {
        "  ".repeat(self.blocks.len())
    }
    /// A line.
    pub fn line(&mut self, text: &str) {
        let indent = self.indent();
        self.lines += 1;
        let block = self.blocks.last_mut().expect("there is always a block");
        let _ = writeln!(block.lines, "{indent}{text}");
    }
    /// Opens a block: `head {`.
    pub fn open(&mut self, head: &str) {
        self.line(&format!("{head} {{"));
        self.blocks.push(Block::default());
    }
    /// Closes it; what it named is gone.
    pub fn close(&mut self) {
        let inner = self.blocks.pop().expect("it was opened");
        let outer = self.blocks.last_mut().expect("there is always a block");
        outer.lines += &inner.lines;
        self.line("}");
    }
    /// The text of the outermost block.
    pub fn finish(&mut self) -> Emitted<String> {
        assert_eq!(self.blocks.len(), 1, "all blocks are closed");
        if self.lines > LINES {
            return Err(format!("its kernel has more than {LINES} lines"));
        }
        Ok(std::mem::take(&mut self.blocks[0].lines))
    }
    /// A name that nothing has.
    pub fn fresh(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }
    /// A constant variable for an expression; names and literals stay what they are.
    pub fn bind(&mut self, ty: &str, expression: &str) -> String {
        if expression.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return expression.to_string();
        }
        let key = format!("{ty} {expression}");
        if let Some(found) = self.blocks.iter().rev().find_map(|b| b.variables.get(&key)) {
            return found.clone();
        }
        let name = self.fresh("v");
        self.line(&format!("const {ty} {name} = {expression};"));
        self.blocks.last_mut().expect("there is always a block").variables.insert(key, name.clone());
        name
    }
    /// An index for an expression.
    pub fn index(&mut self, expression: &str) -> String {
        let ty = self.index;
        self.bind(ty, expression)
    }

    /// `a + b`.
    pub fn add(&mut self, a: &str, b: &str) -> String {
        match (a.parse::<i64>(), b.parse::<i64>()) {
            (Ok(a), Ok(b)) => (a + b).to_string(),
            (Ok(0), _) => b.to_string(),
            (_, Ok(0)) => a.to_string(),
            (_, Ok(n)) if n < 0 => self.index(&format!("{a} - {}", n.unsigned_abs())),
            _ => self.index(&format!("{a} + {b}")),
        }
    }
    /// `a * n`.
    pub fn times(&mut self, a: &str, n: i64) -> String {
        match a.parse::<i64>() {
            Ok(a) => (a * n).to_string(),
            _ if n == 1 => a.to_string(),
            _ if n == 0 => "0".to_string(),
            _ => self.index(&format!("{a} * {}", self.number(n))),
        }
    }
    fn number(&self, n: i64) -> String {
        let suffix = if self.index == "int" { "" } else { "ll" };
        if n < 0 { format!("({n}{suffix})") } else { format!("{n}{suffix}") }
    }
    fn unsigned(&self) -> (&'static str, &'static str) {
        if self.index == "int" { ("unsigned", "u") } else { ("unsigned long long", "ull") }
    }
    /// `a / n` of an `a` that is not negative.
    pub fn over(&mut self, a: &str, n: i64) -> String {
        let (u, s) = self.unsigned();
        match a.parse::<i64>() {
            Ok(a) => (a / n).to_string(),
            _ if n == 1 => a.to_string(),
            _ => self.index(&format!("({})(({u}){a} / {n}{s})", self.index)),
        }
    }
    /// `a % n` of an `a` that is not negative.
    pub fn rest(&mut self, a: &str, n: i64) -> String {
        let (u, s) = self.unsigned();
        match a.parse::<i64>() {
            Ok(a) => (a % n).to_string(),
            _ if n == 1 => "0".to_string(),
            _ => self.index(&format!("({})(({u}){a} % {n}{s})", self.index)),
        }
    }
    /// Indices of an offset, for dimensions of which the first changes fastest.
    pub fn split(&mut self, offset: &str, order: &[usize], dims: &[i64]) -> Vec<String> {
        let mut out = vec!["0".to_string(); dims.len()];
        let order: Vec<usize> = order.iter().copied().filter(|&d| dims[d] != 1).collect();
        let mut left = offset.to_string();
        for (i, &d) in order.iter().enumerate() {
            let size = dims[d].max(1);
            out[d] = if i + 1 == order.len() { left.clone() } else { self.rest(&left, size) };
            if i + 1 < order.len() {
                left = self.over(&left, size);
            }
        }
        out
    }
    /// The offset of indices.
    pub fn join(&mut self, indices: &[String], strides: &[i64]) -> String {
        let mut sum = "0".to_string();
        for (index, &stride) in indices.iter().zip(strides) {
            let term = self.times(index, stride);
            sum = self.add(&sum, &term);
        }
        sum
    }
    /// The place at an offset of an array.
    pub fn place(&mut self, ty: &Ty, offset: &str) -> Place {
        let dims = self.split(offset, &ty.minor_to_major, &ty.dims);
        Place { dims, linear: Some(offset.to_string()) }
    }
    /// The offset of a place in an array.
    pub fn offset(&mut self, ty: &Ty, place: &Place) -> String {
        match &place.linear {
            Some(linear) => linear.clone(),
            None => {
                // Dimensions of one element add nothing.
                let strides: Vec<i64> = ty.strides().iter().zip(&ty.dims).map(|(&s, &n)| if n == 1 { 0 } else { s }).collect();
                self.join(&place.dims, &strides)
            }
        }
    }

    /// The name of the argument for some memory.
    pub fn argument(&mut self, memory: Memory, storage: &'static str) -> String {
        let known = self.memory.iter().position(|m| *m == (memory, storage));
        let number = known.unwrap_or_else(|| {
            self.memory.push((memory, storage));
            self.memory.len() - 1
        });
        format!("m{number}")
    }
    /// An element in memory, as it is stored.
    fn read(&mut self, memory: Memory, ty: &Ty, place: &Place) -> String {
        let offset = self.offset(ty, place);
        let storage = storage(ty.element);
        let name = self.argument(memory, storage);
        self.reads.push(Access { memory, offset: offset.clone(), width: ty.element.literal_bytes() });
        if self.lane.as_ref() == Some(&offset) {
            if !self.vectors.contains(&(memory, storage)) {
                self.vectors.push((memory, storage));
            }
            return format!("{name}v.x[lane]");
        }
        format!("{name}[{offset}]")
    }

    /// The bits of an element of a narrow float that lies in memory: as a number its NaN would lose some.
    pub fn raw(&mut self, array: Ref, ty: &Ty, place: &Place) -> Option<String> {
        if !ty.element.is_float() || ty.element.bits() > 16 {
            return None;
        }
        let memory = match (self.stored.get(&array), &self.graph.nodes[array.node].kind) {
            (Some(&memory), _) => memory,
            (None, Kind::Param(number)) => Memory::Param(*number),
            _ => return None,
        };
        Some(self.read(memory, ty, place))
    }

    /// An element of an array, as a name or a literal.
    pub fn element(&mut self, array: Ref, place: &Place) -> Emitted<String> {
        let key = (array, place.dims.join(","));
        if let Some(found) = self.blocks.iter().rev().find_map(|b| b.elements.get(&key)) {
            return Ok(found.clone());
        }
        if self.lines > LINES {
            return Err(format!("its kernel has more than {LINES} lines"));
        }
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("more than {DEPTH} operations depend on each other"));
        }
        let ty = self.graph.ty(array).clone();
        let name = if let Some(&memory) = self.stored.get(&array) {
            let stored = self.read(memory, &ty, place);
            self.bind(ctype(ty.element), &load(ty.element, &stored))
        } else {
            match self.graph.nodes[array.node].kind.clone() {
                Kind::Variable(name) => name,
                Kind::Param(number) => {
                    let stored = self.read(Memory::Param(number), &ty, place);
                    self.bind(ctype(ty.element), &load(ty.element, &stored))
                }
                Kind::Same => {
                    let operand = self.graph.nodes[array.node].operands[0];
                    let same = self.graph.ty(operand).order() == ty.order();
                    let linear = place.linear.clone().filter(|_| same);
                    self.element(operand, &Place { dims: place.dims.clone(), linear })?
                }
                Kind::Op(id) => self.compute(array, id, &ty, place)?,
            }
        };
        self.depth -= 1;
        self.blocks.last_mut().expect("there is always a block").elements.insert(key, name.clone());
        Ok(name)
    }

    /// Elements of a scalar function's results.
    pub fn apply(&mut self, function: crate::ir::CompId, args: &[(String, Ty)]) -> Emitted<Vec<String>> {
        let args = args.iter().map(|(name, ty)| self.graph.variable(Ty::scalar(ty.element), name)).collect();
        let results = self.graph.computation(function, args)?.arrays();
        results.into_iter().map(|r| self.element(r, &Place::at(Vec::new()))).collect()
    }
}
