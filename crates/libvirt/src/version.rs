//! The version of the libvirt that answers on a socket.
//!
//! Idea: a connection of its own that opens the hypervisor as the daemon does, makes one call and
//! ends, so that what is found is what the daemon would find.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use ballast_model::LinkDown;
use tokio::time::Instant;

use crate::call::{Call, Reply};
use crate::connection::{Connection, Purpose};

/// A version of libvirt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LibvirtVersion {
    /// As libvirt counts: `1_000_000 * major + 1_000 * minor + release`.
    pub number: u64,
}

impl fmt::Display for LibvirtVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number;
        write!(f, "{}.{}.{}", number / 1_000_000, number / 1_000 % 1_000, number % 1_000)
    }
}

/// Asks the libvirt on `socket` for its version, for at most `timeout`.
///
/// # Errors
/// No answer comes in time, or libvirt refuses to open its hypervisor for this user.
pub async fn ask_version(socket: &Path, timeout: Duration) -> Result<LibvirtVersion, LinkDown> {
    let until = Instant::now() + timeout;
    let mut connection = Connection::open(socket, until).await?;
    while connection.move_bytes(until, |it| it.session.is_open()).await? {}
    let serial = connection.session.call(Call::LibVersion).ok_or(LinkDown::TimedOut)?;
    connection.pending.insert(serial, Purpose::Command);
    loop {
        connection.sort_answers();
        match connection.replies.remove(&serial) {
            Some(Ok(Reply::LibVersion(number))) => return Ok(LibvirtVersion { number }),
            Some(Ok(_)) => return Err(LinkDown::Protocol("a reply to another call".to_owned())),
            Some(Err(error)) => return Err(LinkDown::Closed(error.to_string())),
            None if Instant::now() >= until => return Err(LinkDown::TimedOut),
            None => {}
        }
        connection.move_bytes(until, |_| false).await?;
    }
}
