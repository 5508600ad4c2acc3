//! What depends on standing before a terminal: colour, and a sign of life during long work.

use std::io::{IsTerminal as _, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cli::Color;
use crate::outcome::tell;

/// How to write to standard error.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether to use ANSI escapes.
    pub color: bool,
}

impl Style {
    /// By the user's wish, `NO_COLOR`, `TERM` and whether standard error is a terminal.
    pub fn of(wish: Color) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let color = match wish {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => stderr().is_terminal() && !set("NO_COLOR") && !dumb,
        };
        Self { color }
    }
    /// The word that begins an error.
    pub fn error(self, word: &str) -> String {
        if self.color { format!("\x1b[1;31m{word}\x1b[0m") } else { word.to_string() }
    }
    /// A heading.
    pub fn bold(self, text: &str) -> String {
        if self.color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// A line on the terminal that says what is being done and for how long; gone when dropped. Nothing without a terminal, nothing for work
/// that is done within a second.
pub struct Progress {
    worker: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Begins.
    pub fn start(what: &str) -> Self {
        if !stderr().is_terminal() {
            return Self { worker: None };
        }
        let (stop, stopped) = channel::<()>();
        let what = what.to_string();
        let ticker = std::thread::spawn(move || {
            let begin = Instant::now();
            let mut shown = false;
            while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                tell(&format!("\r{what} … {} s ", begin.elapsed().as_secs()));
                shown = true;
            }
            if shown {
                tell("\r\x1b[K");
            }
        });
        Self { worker: Some((stop, ticker)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, ticker)) = self.worker.take() {
            drop(stop);
            let _ = ticker.join();
        }
    }
}
