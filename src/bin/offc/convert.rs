//! `offc convert`: from text to protocol buffers and back.

use std::path::PathBuf;

use crate::files::Pending;
use crate::input::load_telling;
use crate::outcome::Failure;
use crate::output::{Emit, Target, encode};
use crate::terminal::Style;

/// Arguments of `offc convert`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  offc convert step.hlo step.pb\n  offc convert step.pb.gz step.hlo\n  offc convert step.pb - | less")]
pub struct Args {
    /// The module to read; `-` is standard input
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The file to write; `-` is standard output. Its name decides the form: .hlo or .txt, .pb, with .gz after it for gzip
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// The form to write, whatever the name; on standard output the default is the form that was not read
    #[arg(long, value_name = "FORM")]
    emit: Option<Emit>,
}

/// Runs the command.
pub fn run(args: &Args, style: Style) -> Result<(), Failure> {
    let target = Target::of(&args.output);
    let loaded = load_telling(&args.input, style)?;
    let form = target.form(args.emit, Emit::of(&loaded.form).other(), &loaded.form)?;
    let bytes = encode(&loaded.module, &form, &crate::files::name(&args.input))?;
    match target.path {
        None => crate::files::print(&bytes),
        Some(path) => Pending::write(path, bytes)?.commit(),
    }
}
