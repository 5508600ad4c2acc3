//! What bytes are, by what is in them and never by a name: HLO text, `HloModuleProto` and the messages that hold one, each also gzipped.
//!
//! A file is written in the form in which it was read ([`Form`]). An unmodified module in a container gives back the very file; of a
//! modified one the container's other fields are kept, but for the buffer assignment, which would be wrong.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::diag::Diagnostic;
use crate::ir::Module;
use crate::proto::{self, Container, find_module};
use crate::text;

/// A gzipped file may grow to this many times its size; HLO text shrinks to a fortieth at most.
const MAX_RATIO: u64 = 256;

/// A gzipped file may grow to this size in any case.
const ALWAYS_ALLOWED: u64 = 64 << 20;

/// A module that was read.
#[derive(Clone, Debug)]
pub struct Input {
    /// The module.
    pub module: Module,
    /// How it was written.
    pub form: Form,
    /// What is to be said about it.
    pub warnings: Vec<Diagnostic>,
    /// The text that diagnostics point into; `None` of a proto.
    pub text: Option<Vec<u8>>,
}

/// What could not be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Everything wrong with it.
    pub diagnostics: Vec<Diagnostic>,
    /// The text that they point into; `None` of anything else.
    pub text: Option<Vec<u8>>,
}

/// How a module is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Whether it is gzipped.
    pub gzip: bool,
    /// What is in the file.
    pub content: Content,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// HLO text.
    Text,
    /// A proto.
    Proto(Container, Option<Box<Original>>),
}

/// A container as it was read, so that it can be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    bytes: Vec<u8>,
    /// The module as this crate writes it, to see whether it was changed.
    module: Vec<u8>,
}

impl Form {
    /// HLO text.
    pub const TEXT: Self = Self { gzip: false, content: Content::Text };
    /// `HloModuleProto`.
    pub const PROTO: Self = Self { gzip: false, content: Content::Proto(Container::Module, None) };

    /// Whether it is HLO text.
    pub fn is_text(&self) -> bool {
        self.content == Content::Text
    }
    /// The same, gzipped or not.
    #[must_use]
    pub fn gzipped(self, gzip: bool) -> Self {
        Self { gzip, ..self }
    }
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.content {
            Content::Text => "HLO text",
            Content::Proto(container, _) => container.name(),
        })?;
        f.write_str(if self.gzip { ", gzipped" } else { "" })
    }
}

/// Reads a module in any form.
///
/// # Errors
/// The bytes are in no known form, or what they hold is not well formed. Memory stays within a small multiple of the (unpacked) input.
pub fn read(bytes: &[u8]) -> Result<Input, Unreadable> {
    if !is_gzip(bytes) {
        return plain(bytes);
    }
    let inner = unpack(bytes).map_err(|d| Unreadable { diagnostics: vec![d], text: None })?;
    let mut input = plain(&inner)?;
    input.form.gzip = true;
    Ok(input)
}

fn plain(bytes: &[u8]) -> Result<Input, Unreadable> {
    if looks_like_text(bytes) {
        let text = || Some(bytes.to_vec());
        return match text::parse(bytes) {
            Ok(parsed) => Ok(Input { module: parsed.module, form: Form::TEXT, warnings: parsed.warnings, text: text() }),
            Err(diagnostics) => Err(Unreadable { diagnostics, text: text() }),
        };
    }
    let bad = |diagnostics| Unreadable { diagnostics, text: None };
    let Some((container, module_bytes)) = find_module(bytes) else { return Err(bad(vec![unknown(bytes)])) };
    let (module, warnings) = proto::decode_part(bytes, module_bytes).map_err(bad)?;
    let original = match container {
        Container::Module => None,
        _ => proto::encode(&module).ok().map(|module| Box::new(Original { bytes: bytes.to_vec(), module })),
    };
    Ok(Input { module, form: Form { gzip: false, content: Content::Proto(container, original) }, warnings, text: None })
}

/// Writes a module.
///
/// # Errors
/// What the form cannot say; see [`proto::encode`].
pub fn write(module: &Module, form: &Form) -> Result<Vec<u8>, Vec<Diagnostic>> {
    let bytes = match &form.content {
        Content::Text => text::print(module).into_bytes(),
        Content::Proto(container, original) => {
            let encoded = proto::encode(module)?;
            match original.as_deref() {
                Some(original) if original.module == encoded => original.bytes.clone(),
                Some(original) => proto::replace_module(*container, &original.bytes, &encoded),
                None => proto::replace_module(*container, &[], &encoded),
            }
        }
    };
    Ok(if form.gzip { pack(&bytes) } else { bytes })
}

/// Why bytes are in no known form.
fn unknown(bytes: &[u8]) -> Diagnostic {
    if is_gzip(bytes) {
        return Diagnostic::error("B020", "expected a module in the gzipped file, found another gzipped file");
    }
    // If the bytes began as a proto, its own complaint says more: mostly the file was cut off.
    match proto::decode(bytes) {
        Err(diagnostics) if diagnostics.iter().any(|d| d.code == "B001") && bytes.first() == Some(&0x0a) => {
            let first = diagnostics.into_iter().next().expect("an error says something");
            first.note("the file was taken for an `HloModuleProto`, as it is not text; perhaps it was cut off")
        }
        _ => Diagnostic::error("B020", "expected HLO text or a proto with a module, found neither")
            .note("known protos: HloModuleProto, HloProto, HloModuleProtoWithConfig, HloUnoptimizedSnapshot, HloSnapshot"),
    }
}

fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// Whether bytes are text: they begin with a module's first word, or have no control characters at their beginning, as protos do.
fn looks_like_text(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    let trimmed = head.trim_ascii_start();
    let control = |b: &u8| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    trimmed.starts_with(b"HloModule") || !head.iter().any(control)
}

fn unpack(bytes: &[u8]) -> Result<Vec<u8>, Diagnostic> {
    let limit = (bytes.len() as u64).saturating_mul(MAX_RATIO).max(ALWAYS_ALLOWED).min(u64::from(u32::MAX));
    let mut out = Vec::new();
    match MultiGzDecoder::new(bytes).take(limit + 1).read_to_end(&mut out) {
        Ok(size) if size as u64 > limit => {
            let message = format!("expected a gzipped file of at most {limit} bytes when unpacked, found more in {} bytes", bytes.len());
            Err(Diagnostic::error("B022", message))
        }
        Ok(_) => Ok(out),
        Err(e) => Err(Diagnostic::error("B021", format!("expected a gzipped file, found a broken one after {} bytes: {e}", out.len()))),
    }
}

/// Packs bytes. The header carries no time and no name, so that equal modules give equal files.
fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a vector takes all bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"HloModule m\n\nENTRY e {\n  ROOT p = f32[2]{0} parameter(0)\n}\n";

    #[test]
    fn every_form_is_read_back() {
        let module = read(TEXT).expect("the text is well formed").module;
        let containers = [Container::Module, Container::Hlo, Container::Snapshot];
        let protos = containers.map(|c| Form { gzip: false, content: Content::Proto(c, None) });
        for form in [Form::TEXT].into_iter().chain(protos).flat_map(|f| [f.clone(), f.gzipped(true)]) {
            let bytes = write(&module, &form).expect("every form can say it");
            let input = read(&bytes).expect("it was just written");
            assert_eq!(input.form.to_string(), form.to_string());
            assert_eq!(text::print(&input.module), text::print(&module));
            assert_eq!(write(&input.module, &input.form).expect("as before"), bytes);
        }
    }

    #[test]
    fn a_changed_module_loses_the_buffer_assignment() {
        let module = read(TEXT).expect("the text is well formed").module;
        let hlo = write(&module, &Form { gzip: false, content: Content::Proto(Container::Hlo, None) }).expect("it can be said");
        let with_assignment = [&hlo[..], &[26, 2, 8, 1, 34, 1, b'x']].concat();
        let mut input = read(&with_assignment).expect("it was just written");
        assert_eq!(write(&input.module, &input.form).expect("as before"), with_assignment);
        input.module.name = "n".into();
        let changed = write(&input.module, &input.form).expect("as before");
        assert_eq!(changed[changed.len() - 3..], [34, 1, b'x']);
        assert_eq!(changed.len(), hlo.len() + 3);
    }

    #[test]
    fn trouble_is_told_apart() {
        let code = |bytes: &[u8]| read(bytes).expect_err("it is broken").diagnostics[0].code;
        assert_eq!(code(&[0, 1, 2, 3]), "B020");
        assert_eq!(code(&pack(&pack(TEXT))), "B020");
        assert_eq!(code(&pack(TEXT)[..30]), "B021");
        assert_eq!(code(&pack(&vec![0; 100 << 20])), "B022");
        let module = read(TEXT).expect("the text is well formed").module;
        let bytes = write(&module, &Form::PROTO).expect("it can be said");
        assert_eq!(code(&bytes[..bytes.len() - 1]), "B001");
    }
}
