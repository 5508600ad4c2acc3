//! The command line: what can be said, and who answers.

use clap::{ColorChoice, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::outcome::Failure;
use crate::terminal::Style;
use crate::{check, convert, devices, diff, equiv, explain, outcome, pack, peak, rewrite, run as run_module, simulate, solve};

/// Makes a compiled JAX/XLA training step fit a GPU memory budget, bit for bit.
///
/// Reads optimized, scheduled HLO modules: text or protocol buffers, gzipped or not, recognised by their content.
#[derive(Debug, Parser)]
#[command(name = "offc", version, max_term_width = 110, after_long_help = EXITS)]
pub struct Cli {
    /// When to use colour; `auto` is on terminals, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const EXITS: &str = "\
Exit status:
  0  done; for `check`, every file is accepted
  1  the memory budget cannot be met; the floor and what holds it are told; for `equiv`, the modules differ; for `diff`, the collectives
  2  the command line is wrong, or a file cannot be read or written
  3  an input is malformed or not supported; each error has a place and a code for `offc explain`
  4  an internal error: please report it";

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On terminals, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// One command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a step fit a memory budget
    Rewrite(rewrite::Args),
    /// Tell what a module needs of memory, and what is alive when it needs most
    Peak(peak::Args),
    /// Compare two modules: memory, buffers, transfers, and whether the collectives are equal
    Diff(diff::Args),
    /// Play a module on a machine: what a step takes, and where its time goes
    Simulate(simulate::Args),
    /// Run a module with the reference interpreter, or on a GPU
    Run(run_module::Args),
    /// Tell whether two modules compute the same, bit for bit
    Equiv(equiv::Args),
    /// Accept or reject modules, as XLA's parser does
    Check(check::Args),
    /// Convert between HLO text and protocol buffers
    Convert(convert::Args),
    /// Solve a planning problem without a program, and tell how far from the best possible the answer can be
    Solve(solve::Args),
    /// Pack buffers with known lives into one address space
    Pack(pack::Args),
    /// Show the machines that are known by name
    Devices(devices::Args),
    /// Explain a diagnostic code, or list all
    Explain(explain::Args),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  offc completions bash > ~/.local/share/bash-completion/completions/offc")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs a command and tells its exit status.
pub fn run(cli: Cli) -> u8 {
    let style = Style::of(cli.color);
    let result = match cli.command {
        Command::Rewrite(args) => rewrite::run(&args, style),
        Command::Run(args) => run_module::run(&args, style),
        Command::Equiv(args) => equiv::run(&args, style),
        Command::Check(args) => check::run(&args, style),
        Command::Convert(args) => convert::run(&args, style),
        Command::Peak(args) => peak::run(&args, style),
        Command::Diff(args) => diff::run(&args, style),
        Command::Simulate(args) => simulate::run(&args, style),
        Command::Solve(args) => solve::run(&args, style),
        Command::Pack(args) => pack::run(&args, style),
        Command::Devices(args) => devices::run(&args),
        Command::Explain(args) => explain::run(&args, style),
        Command::Completions { shell } => completions(shell),
    };
    outcome::conclude(result, style)
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command().color(ColorChoice::Never), "offc", &mut script);
    crate::files::print(&script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
