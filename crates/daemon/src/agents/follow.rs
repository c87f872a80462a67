//! Keeps the connection to one guest's agent.
//!
//! Idea: the session holds the protocol; this file adds the socket, the clock and the daemon's
//! orders. A failed connection is retried with growing pauses. A connection on which no agent
//! answers is closed after a while, because QEMU buffers what the guest does not read: an agent
//! started hours later would find thousands of greetings.
//!
//! Cost: one task per guest, which wakes for each message and twice a second while it greets.
//! Limits: an agent that floods is not read until its second is over.

use std::path::Path;
use std::time::{Duration, Instant};

use ballast_agent_proto::host::{AgentLink, AgentSession};
use ballast_qmp::client::peer_pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::order::{Order, Settings};
use crate::clock;

/// Pause between two attempts to connect: the first and the longest.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// A connection without an answer for this long is closed.
const UNHEARD_MAX: Duration = Duration::from_secs(60);
/// Longest wait while the session has no timeout.
const IDLE: Duration = Duration::from_secs(1);
/// Size of the read buffer.
const CHUNK: usize = 4096;

/// Talks to the agent behind the socket at `path`. Never returns.
pub(super) async fn follow(path: &Path, settings: &Settings, mut orders: mpsc::Receiver<Order>) {
    let mut session = AgentSession::new(settings.session(), clock::now());
    let mut retry = RETRY_FIRST;
    loop {
        if let Ok(stream) = UnixStream::connect(path).await
            && settings.shared.admits(peer_pid(&stream), path, clock::now())
        {
            // Drop orders that belong to the earlier connection.
            while orders.try_recv().is_ok() {}
            session.connected(number(), clock::now());
            let was_up = talk(&mut session, stream, settings, &mut orders).await;
            session.disconnected();
            if was_up {
                retry = RETRY_FIRST;
            }
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// Talks until the connection ends; returns whether the agent ever answered.
async fn talk(
    session: &mut AgentSession,
    mut stream: UnixStream,
    settings: &Settings,
    orders: &mut mpsc::Receiver<Order>,
) -> bool {
    let (mut reader, mut writer) = stream.split();
    let mut chunk = [0; CHUNK];
    let mut unsent: Vec<u8> = Vec::new();
    let (mut was_up, mut heard_at) = (false, Instant::now());
    loop {
        while let Some(event) = session.poll_event() {
            settings.shared.handle(event, clock::now(), &settings.urgent);
        }
        if session.link() == AgentLink::Up {
            (was_up, heard_at) = (true, Instant::now());
        } else if heard_at.elapsed() >= UNHEARD_MAX {
            return was_up;
        }
        // For a guest that does not read, one frame waits here; the session bounds the rest.
        if unsent.is_empty() {
            unsent = session.poll_transmit().unwrap_or_default();
        }
        let now = clock::now();
        let mut wake = session.poll_timeout().map_or(IDLE, |at| at.saturating_since(now));
        // An agent that floods waits in the kernel's buffer, and costs nothing meanwhile.
        let unreadable_for = session.readable_at().saturating_since(now);
        if !unreadable_for.is_zero() {
            wake = wake.min(unreadable_for);
        }
        tokio::select! {
            read = reader.read(&mut chunk), if unreadable_for.is_zero() => match read {
                Ok(0) | Err(_) => return was_up,
                Ok(len) => {
                    session.set_host_facts(settings.shared.host_facts());
                    session.handle_bytes(&chunk[..len], clock::now());
                }
            },
            written = writer.write(&unsent), if !unsent.is_empty() => match written {
                Ok(len) => drop(unsent.drain(..len)),
                Err(_) => return was_up,
            },
            Some(order) = orders.recv() => order.carry_out(session, &settings.shared, clock::now()),
            () = tokio::time::sleep(wake) => {}
        }
        session.handle_timeout(clock::now());
    }
}

/// A new number per connection, so that an answer to an earlier hello is not taken for this one's.
fn number() -> u64 {
    let since = clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
