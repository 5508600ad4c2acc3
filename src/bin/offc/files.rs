//! Reading inputs; writing outputs so that they are whole or not there.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, ErrorKind, Read as _, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use crate::outcome::Failure;

/// The bytes of a file; `-` is standard input.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        stdin().lock().read_to_end(&mut bytes).map_err(|e| Failure::file("read", Path::new("standard input"), &e))?;
        return Ok(bytes);
    }
    std::fs::read(path).map_err(|e| Failure::file("read", path, &e))
}

/// What to call an input in messages.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") { "<stdin>".to_string() } else { path.display().to_string() }
}

/// Writes to standard output.
pub fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ => Failure::file("write", Path::new("standard output"), &e),
    })
}

/// Prints a value as JSON, indented, with a line end.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|e| Failure::Broken(format!("a report does not become JSON: {e}")))?;
    text.push(b'\n');
    print(&text)
}

/// A file that is written beside its target and takes its place in one step, or vanishes when dropped before. What is no regular file
/// (a device, a pipe) is written at once at [`Pending::commit`].
pub struct Pending {
    target: PathBuf,
    state: State,
}

enum State {
    Beside(PathBuf),
    Direct(Vec<u8>),
    Done,
}

impl Pending {
    /// Writes the bytes, not yet under the target's name. A symbolic link keeps pointing where it does; the permissions of a file that is
    /// replaced are kept.
    pub fn write(target: &Path, bytes: Vec<u8>) -> Result<Self, Failure> {
        let fail = |e: &std::io::Error| Failure::file("write", target, e);
        let resolved = std::fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        let old = std::fs::metadata(&resolved).ok();
        if old.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Err(Failure::Usage(format!("cannot write `{}`: it is a folder", target.display())));
        }
        if old.as_ref().is_some_and(|m| !m.is_file()) {
            return Ok(Self { target: resolved, state: State::Direct(bytes) });
        }
        let (beside, mut file) = Self::create_beside(&resolved).map_err(|e| fail(&e))?;
        let pending = Self { target: resolved, state: State::Beside(beside.clone()) };
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(|e| fail(&e))?;
        if let Some(old) = old {
            let permissions: Permissions = old.permissions();
            std::fs::set_permissions(&beside, permissions).map_err(|e| fail(&e))?;
        }
        Ok(pending)
    }

    /// Writes pieces of text as they come, not yet under the target's name; what is no regular file gets them at once.
    pub fn stream(target: &Path, pieces: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let fail = |e: &std::io::Error| Failure::file("write", target, e);
        let write_all = |file: File| {
            let mut out = BufWriter::new(file);
            for piece in pieces {
                out.write_all(piece.as_bytes())?;
            }
            out.flush()
        };
        let special = std::fs::metadata(target).is_ok_and(|m| !m.is_file() && !m.is_dir());
        if special {
            let written = OpenOptions::new().write(true).open(target).and_then(write_all);
            return match written {
                Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Failure::PipeClosed),
                written => written.map(|()| Self { target: target.to_path_buf(), state: State::Done }).map_err(|e| fail(&e)),
            };
        }
        let pending = Self::write(target, Vec::new())?;
        if let State::Beside(beside) = &pending.state {
            OpenOptions::new().write(true).open(beside).and_then(write_all).map_err(|e| fail(&e))?;
        }
        Ok(pending)
    }

    /// Has somebody write bytes as they come, not yet under the target's name; what is no regular file gets them at [`Pending::commit`].
    pub fn fill<T>(target: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>) -> Result<(Self, T), Failure> {
        let fail = |e: &std::io::Error| Failure::file("write", target, e);
        let mut pending = Self::write(target, Vec::new())?;
        let made = match &mut pending.state {
            State::Beside(beside) => {
                let mut out = BufWriter::new(OpenOptions::new().write(true).open(&*beside).map_err(|e| fail(&e))?);
                let made = write(&mut out)?;
                out.flush().map_err(|e| fail(&e))?;
                made
            }
            State::Direct(bytes) => write(bytes)?,
            State::Done => unreachable!("it was just begun"),
        };
        Ok((pending, made))
    }

    fn create_beside(target: &Path) -> std::io::Result<(PathBuf, File)> {
        let name = target.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
        let process = std::process::id();
        for attempt in 0.. {
            let beside = target.with_file_name(format!(".{name}.offc-{process}-{attempt}"));
            match OpenOptions::new().write(true).create_new(true).open(&beside) {
                Ok(file) => return Ok((beside, file)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists && attempt < 100 => {}
                Err(e) => return Err(e),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Puts the file in its place.
    pub fn commit(mut self) -> Result<(), Failure> {
        let done = match std::mem::replace(&mut self.state, State::Done) {
            State::Beside(beside) => std::fs::rename(&beside, &self.target).inspect_err(|_| {
                let _ = std::fs::remove_file(&beside);
            }),
            State::Direct(bytes) => OpenOptions::new().write(true).open(&self.target).and_then(|mut f| f.write_all(&bytes)),
            State::Done => Ok(()),
        };
        match done {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Failure::PipeClosed),
            done => done.map_err(|e| Failure::file("write", &self.target, &e)),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let State::Beside(beside) = &self.state {
            let _ = std::fs::remove_file(beside);
        }
    }
}
