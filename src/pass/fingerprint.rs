//! A number that changes when the program changes.

use std::fmt::Write as _;
use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::ir::Module;

/// Hashes all that the program says (not where it stood in the input), in program order. Two programs with equal fingerprints are
/// equal but for accidents of one in 2⁶⁴.
pub fn fingerprint(module: &Module) -> u64 {
    let mut hash = Hash(FxHasher::default());
    let all = write_module(&mut hash, module);
    all.expect("hashing takes everything");
    hash.0.finish()
}

struct Hash(FxHasher);

impl std::fmt::Write for Hash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn write_module(hash: &mut Hash, module: &Module) -> std::fmt::Result {
    write!(hash, "{:?}{:?}{:?}{:?}", module.name, module.entry, module.is_scheduled, module.header)?;
    for &comp in &module.listing {
        let computation = module.comp(comp);
        write!(hash, "{:?}{:?}{:?}{:?}", computation.name, computation.parameters, computation.root, computation.thread)?;
        for &id in &computation.order {
            let instr = module.instr(id);
            write!(hash, "{id:?}{:?}{:?}{:?}{:?}{:?}", instr.name, instr.shape, instr.op, instr.operands, instr.control_predecessors)?;
            write!(hash, "{:?}", instr.attrs)?;
        }
    }
    Ok(())
}
