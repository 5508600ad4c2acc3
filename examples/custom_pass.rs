//! A pass of one's own in the pipeline: it is distrusted like ours, so the verifier runs after it.

use offc::ir::{InstrId, Module};
use offc::machine::preset;
use offc::pass::{Changed, Entry, Log, Pass, PassCx, PassError, run};
use offc::passes::passes;
use offc::units::Bytes;
use offc::{text, verify};

/// Gives every instruction without one an `op_name`, so that profiles name it.
struct NameOrphans;

impl Pass for NameOrphans {
    fn name(&self) -> &'static str {
        "name-orphans"
    }

    fn run(&self, module: &mut Module, _cx: &mut PassCx, log: &mut Log) -> Result<Changed, PassError> {
        let nameless = |id: &InstrId| module.instr(*id).attrs.metadata.as_ref().is_none_or(|m| m.op_name.is_empty());
        let orphans: Vec<InstrId> = module.entry().order.iter().copied().filter(nameless).collect();
        for &id in &orphans {
            let name = module.instr(id).name.clone();
            module.instructions[id].attrs.metadata.get_or_insert_default().op_name = name;
        }
        let text = format!("{} instructions named", orphans.len());
        log.entries.push(Entry { pass: self.name(), changed: !orphans.is_empty(), text, plan: None });
        Ok(Changed::from(!orphans.is_empty()))
    }
}

const STEP: &[u8] = b"HloModule step, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

ENTRY main {
  p = f32[8]{0} parameter(0)
  n = f32[8]{0} negate(p)
  ROOT r = f32[8]{0} exponential(n)
}
";

fn main() {
    let mut module = text::parse(STEP).expect("the text is well formed").module;
    let machine = preset("h100-sxm").expect("it is a preset");
    let mut cx = PassCx {
        memory: Bytes(1 << 20),
        host_memory: machine.host.pinned,
        host_state: None,
        truth: None,
        xla_memory: Some(machine.memory),
        tightened: false,
        machine,
    };
    let mut pipeline = passes(&"fit,dce".parse().expect("a pipeline")).expect("known passes");
    pipeline.push(Box::new(NameOrphans));
    let log = run(&pipeline, &mut module, &mut cx).expect("nothing stops it");
    for entry in &log.entries {
        println!("{}: {}", entry.pass, entry.text);
    }
    assert!(verify::verify(&module).is_empty());
    println!("{}", text::print(&module));
}
