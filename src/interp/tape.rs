//! Straight-line programs on blocks of numbers.

use smallvec::SmallVec;

use super::elementwise::{Elementwise, apply};
use super::lanes::{Block, Lane};
use super::ops::Bits;
use crate::ir::{Binary, Primitive};

/// A register of a tape.
pub type Register = u32;

/// One step of a tape.
#[derive(Clone, Debug)]
pub enum Step {
    /// Reads the loop's access of that number.
    Load {
        /// The access.
        access: usize,
        /// Where to.
        to: Register,
    },
    /// Repeats a number.
    Splat {
        /// One number.
        value: Block,
        /// Where to.
        to: Register,
    },
    /// Computes.
    Compute {
        /// What.
        op: Elementwise,
        /// The operands' type.
        from: Primitive,
        /// The result's type.
        element: Primitive,
        /// Operands.
        args: SmallVec<[Register; 3]>,
        /// Where to; no operand.
        to: Register,
    },
}

/// A straight-line program: its registers hold blocks of one length.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    /// The kinds of the registers.
    pub registers: Vec<Lane>,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

impl Tape {
    /// Registers for blocks of that length.
    pub fn blocks(&self, len: usize) -> Vec<Block> {
        self.registers.iter().map(|&lane| Block::zeros(lane, len)).collect()
    }
    /// Runs all steps; `load` fills a block from an access.
    pub fn run(&self, blocks: &mut [Block], mut load: impl FnMut(usize, &mut Block)) {
        for step in &self.steps {
            match step {
                Step::Load { access, to } => load(*access, &mut blocks[*to as usize]),
                Step::Splat { value, to } => blocks[*to as usize].splat(value, 0),
                Step::Compute { op, from, element, args, to } => {
                    let mut out = std::mem::replace(&mut blocks[*to as usize], Block::Int(Vec::new()));
                    {
                        let args: SmallVec<[&Block; 3]> = args.iter().map(|&a| &blocks[a as usize]).collect();
                        apply(*op, *from, *element, &args, &mut out);
                    }
                    blocks[*to as usize] = out;
                }
            }
        }
    }
}

/// Gives registers to values, and takes them back.
#[derive(Debug, Default)]
pub struct Allocator {
    lanes: Vec<Lane>,
    free: Vec<Register>,
}

impl Allocator {
    /// A register of a kind.
    pub fn take(&mut self, lane: Lane) -> Register {
        if let Some(i) = self.free.iter().rposition(|&r| self.lanes[r as usize] == lane) {
            return self.free.swap_remove(i);
        }
        self.lanes.push(lane);
        Register::try_from(self.lanes.len() - 1).expect("a tape has fewer than 2^32 values")
    }
    /// Takes a register back.
    pub fn give_back(&mut self, register: Register) {
        self.free.push(register);
    }
    /// The kinds of all registers.
    pub fn finish(self) -> Vec<Lane> {
        self.lanes
    }
}

/// A function of scalars, as reduce, sort, scatter and their like apply.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Types of the parameters: the first registers.
    pub params: Vec<Primitive>,
    /// Types of the results.
    pub results: Vec<Primitive>,
    /// The program.
    pub tape: Tape,
    /// The registers of the results.
    pub outputs: Vec<Register>,
}

impl Applied {
    /// The operation, if the function does nothing but apply one to its two parameters.
    pub fn as_binary(&self) -> Option<Binary> {
        use Binary::{Add, And, Maximum, Minimum, Multiply, Or, Xor};
        match self.tape.steps.as_slice() {
            [Step::Compute { op: Elementwise::Binary(op), args, to, .. }] if self.outputs == [*to] && self.params.len() == 2 => {
                let turned = matches!(op, Add | And | Maximum | Minimum | Multiply | Or | Xor) && args.as_slice() == [1, 0];
                (turned || args.as_slice() == [0, 1]).then_some(*op)
            }
            _ => None,
        }
    }
    /// The function, ready to be called.
    pub fn caller(&self) -> Caller<'_> {
        Caller { function: self, blocks: self.tape.blocks(1) }
    }
}

/// Calls an applied function on single elements, given and returned as their bits.
#[derive(Debug)]
pub struct Caller<'f> {
    function: &'f Applied,
    blocks: Vec<Block>,
}

impl Caller<'_> {
    /// Computes the results of the arguments.
    pub fn call(&mut self, args: impl IntoIterator<Item = Bits>) -> impl Iterator<Item = Bits> + '_ {
        for ((block, &element), bits) in self.blocks.iter_mut().zip(&self.function.params).zip(args) {
            block.set_bits(element, bits);
        }
        self.function.tape.run(&mut self.blocks, |_, _| unreachable!("an applied function reads nothing"));
        let outputs = self.function.outputs.iter().zip(&self.function.results);
        outputs.map(|(&output, &element)| self.blocks[output as usize].bits(element))
    }
    /// Reduces values into accumulators.
    pub fn combine(&mut self, accumulators: &mut [Bits], values: &[Bits]) {
        let args: SmallVec<[Bits; 4]> = accumulators.iter().chain(values).copied().collect();
        for (to, from) in accumulators.iter_mut().zip(self.call(args)) {
            *to = from;
        }
    }
}
