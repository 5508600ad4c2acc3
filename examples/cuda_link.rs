//! Measures the host link of the GPU: `cargo run --release --example cuda_link`. Exit status 2 if there is no GPU to use.

use std::process::ExitCode;

use offc::cuda::backend::{available, link_rates};

/// Bytes of a block.
const BLOCK: usize = 256 << 20;
/// Blocks each way.
const TIMES: u32 = 8;

fn main() -> ExitCode {
    let measured = available().and_then(|name| link_rates(BLOCK, TIMES).map(|rates| (name, rates)));
    match measured {
        Ok((name, [to_host, to_device])) => {
            println!(
                "{name}: {:.1} GB/s to the host, {:.1} GB/s to the device (blocks of {} MiB)",
                to_host / 1e9,
                to_device / 1e9,
                BLOCK >> 20
            );
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
