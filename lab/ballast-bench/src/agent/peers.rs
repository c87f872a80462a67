//! The guests with which the daemon is measured: sockets that speak QMP, and agents that report
//! once a second.
//!
//! Idea: all of them are in one process beside the measuring one. The measuring process writes
//! `emergency` to its standard input, and the answer is the time in microseconds until the next
//! guest's target changed. The process ends when its standard input ends.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast_agent_proto::wire::message::{decode, encode};
use ballast_agent_proto::wire::{
    FrameReader, GuestFrame, GuestGreeting, GuestMessage, HostFrame, HostMessage, RequestReason,
    RequestRule, Statistics, WireRequestKind,
};
use ballast_model::Bytes;
use ballast_qmp_testing::{Peer, PeerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// Longest wait for a target to change.
const PATIENCE: Duration = Duration::from_secs(2);
/// Memory of a guest, and what it uses: small, so that thousands of guests fit into any host's
/// memory.
const MEMORY: Bytes = Bytes::mib(8);
const USED: Bytes = Bytes::kib(1600);
const ASKED: Bytes = Bytes::kib(512);
/// The output of `ballast-agent --once --json` in a guest of [`MEMORY`].
const STATISTICS: &str = include_str!("statistics.json");

/// Printed when all guests are ready.
pub(super) const READY: &str = "ready";
/// The command that makes the next guest report an emergency.
pub(super) const EMERGENCY: &str = "emergency";
/// Printed if an emergency changed nothing.
pub(super) const UNANSWERED: &str = "none";

/// Serves `count` guests until standard input ends; below `folder` their QMP sockets are in `qmp`
/// and their agents' sockets in `agent`.
///
/// # Errors
/// A socket cannot be made, or standard output cannot be written.
pub(super) fn serve(folder: &Path, count: usize) -> anyhow::Result<()> {
    // Commands run on a runtime that does nothing else, because this one is busy.
    let own = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(all(folder, count))
    };
    std::thread::scope(|scope| scope.spawn(own).join())
        .unwrap_or_else(|_| bail!("the guests' thread has ended by a panic"))
}

async fn all(folder: &Path, count: usize) -> anyhow::Result<()> {
    let statistics: Statistics = serde_json::from_str(STATISTICS).context("the statistics")?;
    let (mut peers, mut emergency_orders) = (Vec::new(), Vec::new());
    for n in 0..count {
        let name = format!("guest-{n}.sock");
        let config = PeerConfig { boot_memory: MEMORY, used: USED, ..PeerConfig::default() };
        let peer = Peer::spawn(&folder.join("qmp").join(&name), config);
        peers.push(peer.context("cannot make a socket")?);
        let listener = UnixListener::bind(folder.join("agent").join(&name))?;
        let (emergency_order, orders) = mpsc::channel(1);
        emergency_orders.push(emergency_order);
        tokio::spawn(agent(listener, statistics, orders));
    }
    say(READY)?;
    let (line, mut lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let all = std::io::stdin().lines().map_while(Result::ok);
        // When the bench has ended, this process ends, too.
        all.map(|text| line.blocking_send(text)).take_while(Result::is_ok).for_each(drop);
    });
    let mut turns = peers.iter().zip(&emergency_orders).cycle();
    while lines.recv().await.is_some() {
        let Some((peer, emergency_order)) = turns.next() else { break };
        let before = peer.target();
        let began = Instant::now();
        emergency_order.send(()).await.context("a guest's agent is gone")?;
        while peer.target() <= before && began.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        match peer.target() > before {
            true => say(&began.elapsed().as_micros().to_string())?,
            false => say(UNANSWERED)?,
        }
    }
    Ok(())
}

fn say(word: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{word}")?;
    output.flush()
}

/// An agent that reports once a second, and reports an emergency on command.
async fn agent(
    listener: UnixListener,
    statistics: Statistics,
    mut emergency_orders: mpsc::Receiver<()>,
) {
    let mut fake_agent = FakeAgent { began: Instant::now(), seq: 0, number: 0 };
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        // When a daemon has gone, another one may connect.
        let _ = fake_agent.serve(stream, &statistics, &mut emergency_orders).await;
    }
}

struct FakeAgent {
    began: Instant,
    seq: u64,
    number: u64,
}

impl FakeAgent {
    async fn serve(
        &mut self,
        mut stream: UnixStream,
        statistics: &Statistics,
        emergency_orders: &mut mpsc::Receiver<()>,
    ) -> anyhow::Result<()> {
        let mut reader = FrameReader::new();
        let mut chunk = [0; 4096];
        let mut period = tokio::time::interval(Duration::from_secs(1));
        let mut is_up = false;
        loop {
            let message = tokio::select! {
                read = stream.read(&mut chunk) => {
                    let len = read?;
                    if len == 0 {
                        return Ok(());
                    }
                    reader.push(&chunk[..len]);
                    let frames = std::iter::from_fn(|| reader.next_frame());
                    let hello = frames.flatten().find_map(|frame| match decode(&frame) {
                        Ok(HostFrame { message: HostMessage::Hello { session, .. }, .. }) => Some(session),
                        _ => None,
                    });
                    let Some(session) = hello else { continue };
                    is_up = true;
                    hello_of(session)
                }
                _ = period.tick(), if is_up => GuestMessage::Statistics(Box::new(*statistics)),
                Some(()) = emergency_orders.recv(), if is_up => {
                    self.number += 1;
                    let why = RequestReason { rule: RequestRule::ReclaimFails, text: "a benchmark".to_owned() };
                    let (number, kind) = (self.number, WireRequestKind::Emergency);
                    GuestMessage::Request { number, kind, bytes: ASKED.get(), why }
                }
            };
            self.seq += 1;
            // The uptime of a guest that booted a minute ago.
            let uptime_ms = 60_000 + u64::try_from(self.began.elapsed().as_millis())?;
            let frame = GuestFrame { seq: self.seq, uptime_ms, message };
            stream.write_all(&encode(&frame)?).await?;
        }
    }
}

fn hello_of(session: u64) -> GuestMessage {
    let agent = "benchmark".to_owned();
    GuestMessage::Hello(GuestGreeting { session, instance: 1, agent, ..GuestGreeting::default() })
}
