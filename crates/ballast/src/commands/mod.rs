//! The commands that talk to a running daemon or read its journal.
//!
//! Idea: each command parses its arguments with clap, gets one reply, and prints it as text or
//! JSON. Rendering is a pure function of the reply, so replies from a daemon and from a journal
//! look alike, and tests need neither.

pub mod advise;
pub mod control;
pub mod daemon;
pub mod doctor;
pub mod explain;
pub mod journal;
pub mod plan;
pub mod policy;
pub mod reserve;
pub mod set;
mod source;
pub mod status;
mod tick;
pub mod top;
pub mod track;
mod track_table;

use std::path::PathBuf;

use ballast_api::{Client, CommandReply};

/// How to reach the daemon.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Connection {
    /// The daemon's socket [default: $XDG_RUNTIME_DIR/ballast.sock if this user runs a daemon, else
    /// /run/ballast/ballast.sock]
    #[arg(long, value_name = "PATH", env = "BALLAST_SOCKET")]
    pub socket: Option<PathBuf>,
}

impl Connection {
    /// A client of the daemon.
    ///
    /// # Errors
    /// No socket is named and there is no default for this user.
    pub fn client(&self) -> anyhow::Result<Client> {
        let socket = self.socket.clone().map_or_else(ballast_api::client_socket, Ok)?;
        Ok(Client::new(socket))
    }
}

/// The daemon's answer to a command as text.
fn message(reply: &CommandReply, _width: Option<u16>) -> String {
    format!("{}\n", reply.message)
}

#[cfg(test)]
mod tests;
