//! Where a module goes, and in what form.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::Path;

use offc::ir::Module;

use crate::input::Emit;
use crate::outcome::{BadInput, Failure};

/// A file or standard output.
#[derive(Clone, Copy, Debug)]
pub struct Target<'p> {
    /// The file; `None` is standard output.
    pub path: Option<&'p Path>,
    /// Whether its name asks for gzip.
    pub gzip: bool,
    named: Option<Emit>,
}

impl<'p> Target<'p> {
    /// Reads the name.
    pub fn of(path: &'p Path) -> Self {
        if path == Path::new("-") {
            return Self { path: None, gzip: false, named: None };
        }
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().to_ascii_lowercase());
        let gzip = name.ends_with(".gz");
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let named = match plain.rsplit_once('.').map(|n| n.1) {
            Some("hlo" | "txt") => Some(Emit::Hlo),
            Some("pb") => Some(Emit::Pb),
            _ => None,
        };
        Self { path: Some(path), gzip, named }
    }

    /// The form to write: what was asked for, what the name says, or the default. Binary data does not go to a terminal.
    pub fn emit(&self, asked: Option<Emit>, default: Emit) -> Result<Emit, Failure> {
        let emit = asked.or(self.named).unwrap_or(default);
        if emit == Emit::Pb && self.path.is_none() && stdout().is_terminal() {
            return Err(Failure::Usage("a terminal shows no protocol buffers: name an output file, or say `--emit hlo`".to_string()));
        }
        Ok(emit)
    }
}

/// The bytes of a module. The gzip header carries no time, so that equal modules give equal bytes.
///
/// What a form cannot say is a fault of the input, which is called `name`.
pub fn encode(module: &Module, emit: Emit, gzip: bool, name: &str) -> Result<Vec<u8>, Failure> {
    let bytes = match emit {
        Emit::Hlo => offc::text::print(module).into_bytes(),
        Emit::Pb => offc::proto::encode(module)
            .map_err(|diagnostics| Failure::Input(Some(BadInput { name: name.to_string(), text: Vec::new(), diagnostics })))?,
    };
    if !gzip {
        return Ok(bytes);
    }
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    zipped.write_all(&bytes).and_then(|()| zipped.finish()).map_err(|e| Failure::Broken(format!("gzip fails in memory: {e}")))
}
