//! One guest's agent, listened to for as long as its port is there.
//!
//! Idea: the conversation is the session's; here are its socket, its clock, and what it is told to say. A port that is gone or
//! refuses is tried again, less and less often. One behind which nobody answers is let go of after a while, because
//! QEMU keeps what nobody reads: an agent that is started hours later would have thousands of greetings to answer.
//! Cost: a task a guest, which wakes for each message, and twice a second while it greets.

use std::path::Path;
use std::time::{Duration, Instant};

use ballast_agent_host::{Link, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::service::{Order, Settings};
use crate::daemon::clock;

/// Between two attempts to connect, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Longest time for which nobody is heard before the connection is given up.
const UNHEARD_MAX: Duration = Duration::from_secs(60);
/// Longest wait while a session wants nothing.
const IDLE: Duration = Duration::from_secs(1);
/// Bytes read at once.
const CHUNK: usize = 4096;

/// Follows the agent behind the socket at `path`. Never ends by itself.
pub(super) async fn follow(path: &Path, settings: &Settings, mut orders: mpsc::Receiver<Order>) {
    let mut session = Session::new(settings.session(), clock::now());
    let mut retry = RETRY_FIRST;
    loop {
        if let Ok(stream) = UnixStream::connect(path).await {
            // Of a conversation that is over nothing is answered.
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

/// Talks until the connection ends; whether there was ever an answer.
async fn talk(
    session: &mut Session,
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
        if session.link() == Link::Up {
            (was_up, heard_at) = (true, Instant::now());
        } else if heard_at.elapsed() >= UNHEARD_MAX {
            return was_up;
        }
        // A guest that reads nothing has one frame waiting here, and the session's few.
        if unsent.is_empty() {
            unsent = session.poll_transmit().unwrap_or_default();
        }
        let wake = session.poll_timeout().map_or(IDLE, |at| at.saturating_since(clock::now()));
        tokio::select! {
            read = reader.read(&mut chunk) => match read {
                Ok(0) | Err(_) => return was_up,
                Ok(len) => {
                    session.set_known(settings.shared.known());
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

/// New for each connection: the answer to an older hello must not be taken for one to this.
fn number() -> u64 {
    let since = clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
