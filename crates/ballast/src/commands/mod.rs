//! The commands that speak to a running daemon or read its journal.
//!
//! Idea: each command has clap arguments, asks for one reply and renders it: a table for people or
//! the reply itself as JSON. Rendering is a pure function of the reply, so that a daemon and a
//! journal look alike and tests need neither.

pub mod control;
pub mod daemon;
pub mod demo;
pub mod explain;
pub(crate) mod format;
pub mod imt;
pub mod journal;
mod json;
pub mod lab;
pub mod lab_run;
pub mod mrc;
pub mod plan;
pub mod policy;
pub mod replay;
pub mod set;
pub mod simulate;
mod source;
pub mod status;
pub mod track;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use ballast_api::Client;
use serde::Serialize;

/// Where the daemon of the whole machine listens.
const SYSTEM_SOCKET: &str = "/run/ballast/ballast.sock";
/// The socket's name in the folder of a user's run-time files.
const USER_SOCKET: &str = "ballast.sock";

const CANNOT_PRINT: &str = "cannot write the output";

/// How to reach the daemon.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Connection {
    /// The daemon's socket [default: /run/ballast/ballast.sock for root, else
    /// $XDG_RUNTIME_DIR/ballast.sock]
    #[arg(long, value_name = "PATH", env = "BALLAST_SOCKET")]
    pub socket: Option<PathBuf>,
}

impl Connection {
    /// A client of the daemon.
    ///
    /// # Errors
    /// No socket is named and there is no default for this user.
    pub fn client(&self) -> anyhow::Result<Client> {
        let socket = self.socket.clone().map_or_else(default_socket, Ok)?;
        Ok(Client::new(socket))
    }
}

/// Where a daemon of this user listens, and where its commands look for it.
///
/// # Errors
/// This user has no folder for run-time files.
pub fn default_socket() -> anyhow::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(SYSTEM_SOCKET));
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    folder
        .map(|folder| PathBuf::from(folder).join(USER_SOCKET))
        .context("XDG_RUNTIME_DIR is not set: name the daemon's socket with --socket PATH")
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Output {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Prints `reply` as JSON, or as `text` makes of it; the width is that of the terminal.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print<T: Serialize>(
        self,
        reply: &T,
        text: impl FnOnce(&T, Option<u16>) -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            return json::write(reply, io::stdout().lock()).context(CANNOT_PRINT);
        }
        print(&harmless(&text(reply, terminal_width())))
    }
}

/// `text` without control characters but line ends: some of it came from a hypervisor, and none of it
/// may command the operator's terminal.
#[must_use]
pub fn harmless(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(shown).collect()
}

/// `text` without any control characters: line ends in a name would forge lines, and XML knows no way to
/// write the others.
pub(crate) fn harmless_line(text: &str) -> String {
    harmless(text).replace('\n', "\u{fffd}")
}

/// Columns of the terminal that standard output is; `None` for a file or a pipe, where nothing is
/// wrapped.
fn terminal_width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// Writes all of `text` to standard output.
///
/// # Errors
/// It cannot be written; a closed pipe is one of the reasons.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(CANNOT_PRINT)
}

#[cfg(test)]
mod tests;
