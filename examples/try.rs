fn main() {
    let args: Vec<String> = std::env::args().collect();
    let bytes = std::fs::read(&args[1]).unwrap();
    let (module, _) = offc::proto::decode(&bytes).unwrap();
    let machine = offc::machine::preset("h100-sxm").unwrap();
    let memory: offc::units::Bytes = args[2].parse().unwrap();
    let prices = offc::cost::Prices::new(&module, &machine);
    let t = std::time::Instant::now();
    let sim = offc::sim::simulate(&module, &machine, &prices);
    let a = offc::analysis::Analyses::new(&module);
    println!("before {} step {} compute {} {:?} ({:?})", offc::units::Bytes(a.memory().device_bytes()), sim.step, sim.compute, a.memory(), t.elapsed());
    let options = offc::passes::fit::FitOptions { host_memory: machine.host.pinned, machine: machine.clone(), memory };
    match offc::passes::fit::fit(&module, &options) {
        Ok(f) => {
            let prices = offc::cost::Prices::new(&f.module, &machine);
            let after = offc::sim::simulate(&f.module, &machine, &prices);
            println!("after {} step {} ratio {:.4} wait {} {:?} {:?} out {} ({:?})", offc::units::Bytes(f.memory.device_bytes()), after.step, after.step.as_f64()/sim.step.as_f64(), after.copy_wait, f.applied, f.memory, after.to_host, t.elapsed());
            if args.len() > 3 { for d in &f.plan.decisions { println!("{:>12} {:<50} {}", offc::units::Bytes(d.bytes).to_string(), d.value.instr, d.reason); } }
        }
        Err(e) => println!("{e:#?} ({:?})", t.elapsed()),
    }
}
