//! Text in, text out: `cargo run --release --example quickstart -- step.hlo 5GiB > fits.hlo`

use std::process::ExitCode;

use offc::driver::{RewriteOptions, Trouble, rewrite};
use offc::{format, machine, text};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(memory)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: quickstart STEP.hlo MEMORY");
        return ExitCode::from(2);
    };
    match fit(&path, &memory) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn fit(path: &str, memory: &str) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    let input = format::read(&bytes).map_err(|u| format!("{path}: {}", u.diagnostics[0].message))?;
    let machine = machine::preset("h100-sxm").ok_or("no such machine")?;
    let memory = memory.parse().map_err(|e| format!("{memory}: {e}"))?;
    let options = RewriteOptions {
        xla_memory: Some(machine.memory),
        machine,
        memory,
        host_memory: None,
        host_state: None,
        truth: None,
        pipeline: None,
    };
    let done = rewrite(&input.module, &options).map_err(|trouble| match trouble {
        Trouble::Infeasible(why) => why.to_string(),
        other => format!("{other:?}"),
    })?;
    eprintln!("{} -> {}, step {:.3} x", done.before.device(), done.after.device(), done.after.step.ratio(done.before.step));
    Ok(text::print(&done.module))
}
