//! What a command line says about a machine.

use super::Machine;
use crate::units::{Bytes, BytesPerSec};

/// Figures that replace a machine's own; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--link-h2d`: from host to device.
    pub h2d: Option<BytesPerSec>,
    /// `--link-d2h`: from device to host.
    pub d2h: Option<BytesPerSec>,
    /// `--host-memory`: pinned host memory that the program may take.
    pub pinned: Option<Bytes>,
    /// `--gpus-per-node`: GPUs that share one NUMA node's memory.
    pub gpus_per_node: Option<u32>,
}

impl Overrides {
    /// Puts the figures into a machine. A link rate that is said outright says nothing of host memory: the GPU's share of that still holds. The
    /// rate of both directions together keeps its ratio to their sum.
    pub fn apply(&self, machine: &mut Machine) {
        let old = machine.h2d + machine.d2h;
        machine.h2d = self.h2d.unwrap_or(machine.h2d);
        machine.d2h = self.d2h.unwrap_or(machine.d2h);
        let new = machine.h2d + machine.d2h;
        if new != old && !old.is_zero() {
            let both = u128::from(machine.both_ways.get()) * u128::from(new.get()) / u128::from(old.get());
            machine.both_ways = BytesPerSec(u64::try_from(both).unwrap_or(u64::MAX));
        }
        machine.host.pinned = self.pinned.unwrap_or(machine.host.pinned);
        machine.host.gpus_per_node = self.gpus_per_node.unwrap_or(machine.host.gpus_per_node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::preset;

    #[test]
    fn host_memory_is_shared_by_the_gpus_of_a_node() {
        let mut machine = preset("h100-sxm").unwrap();
        assert_eq!(machine.to_host_rate(), BytesPerSec::gb(50.0));
        Overrides { gpus_per_node: Some(8), ..Overrides::default() }.apply(&mut machine);
        assert_eq!(machine.to_host_rate(), BytesPerSec::gb(32.5));
        Overrides { h2d: Some(BytesPerSec::gb(20.0)), ..Overrides::default() }.apply(&mut machine);
        assert_eq!((machine.from_host_rate(), machine.both_ways), (BytesPerSec::gb(20.0), BytesPerSec::gb(63.0)));
    }
}
