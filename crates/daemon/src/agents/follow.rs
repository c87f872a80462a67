//! Keeps the connection to one guest's agent.
//!
//! Idea: a [`Conversation`] holds everything but the socket, the clock and the daemon's orders,
//! which this file adds. A failed connection is retried with growing pauses. A connection on which
//! no agent answers is closed after a while, because QEMU buffers what the guest does not read: an
//! agent started hours later would find thousands of greetings.
//!
//! Cost: one task per guest, which wakes for each message and twice a second while it greets.
//! Limits: an agent that floods is not read until the second in which it did is over.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::conversation::Conversation;
use super::order::Order;
use super::transport::AgentTransport;
use crate::clock;

/// Pause between two attempts to connect: the first and the longest.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Size of the read buffer.
const CHUNK: usize = 4096;

/// Talks to the agent that connects through `transport`. Never returns.
pub(super) async fn follow(
    mut transport: AgentTransport,
    mut agent: Conversation,
    mut orders: mpsc::Receiver<Order>,
) {
    let mut retry = RETRY_FIRST;
    loop {
        if let Some(stream) = transport.open(&agent.shared).await {
            // Drop orders that belong to the earlier connection.
            while orders.try_recv().is_ok() {}
            agent.connected(connection_number(), clock::now());
            talk(&mut agent, stream, &mut orders).await;
            if agent.disconnected() {
                retry = RETRY_FIRST;
            }
        }
        // However often a guest connects, it is served no more often than this.
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// Talks until the connection ends.
async fn talk(
    agent: &mut Conversation,
    mut stream: UnixStream,
    orders: &mut mpsc::Receiver<Order>,
) {
    let (mut reader, mut writer) = stream.split();
    let mut chunk = [0; CHUNK];
    while agent.step(clock::now()) {
        let now = clock::now();
        let is_readable = agent.unreadable_for(now).is_zero();
        let wake = agent.wakes_in(now);
        tokio::select! {
            read = reader.read(&mut chunk), if is_readable => match read {
                Ok(0) | Err(_) => return,
                Ok(len) => agent.receive(&chunk[..len], clock::now()),
            },
            written = writer.write(agent.outgoing()), if !agent.outgoing().is_empty() => {
                match written {
                    Ok(len) => agent.mark_written(len),
                    Err(_) => return,
                }
            }
            Some(order) = orders.recv() => agent.carry_out(order, clock::now()),
            () = tokio::time::sleep(wake) => {}
        }
    }
}

/// A new number for each connection, so that an answer to an earlier hello is not taken for an
/// answer to this one.
fn connection_number() -> u64 {
    let since = clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
