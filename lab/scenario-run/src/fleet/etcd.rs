//! The etcd of a run: one member on free ports, which ends with the run.
//!
//! Limits: another program may take a port after it was found free; then another try is made. etcd
//! runs without fsync, because nobody's data is in it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_etcd::EtcdClient;
use ballast_fleet_proto::Coordinator;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use crate::follow::{command, log_tail};

/// How long etcd may take to answer after its start.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two polls for that.
const POLL: Duration = Duration::from_millis(100);
/// Longest time of one call.
const CALL_PATIENCE: Duration = Duration::from_secs(2);
/// Tries to find ports that stay free.
const TRIES: usize = 5;
/// Lines from the end of etcd's log that an error quotes.
const LOG_LINES_QUOTED: usize = 5;

/// A running etcd.
pub(super) struct Etcd {
    /// Killed when dropped.
    child: Child,
    endpoint: String,
    log: PathBuf,
}

impl Etcd {
    /// Creates `folder`, starts etcd in it and waits until it answers.
    ///
    /// # Errors
    /// etcd is not installed, or does not answer; the error has the end of its log.
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Etcd> {
        fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut failure = None;
        for number in 1..=TRIES {
            let mut etcd = Etcd::spawn(folder, number)?;
            match etcd.wait().await {
                Ok(()) => return Ok(etcd),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or_else(|| bail!("etcd was not tried"), Err)
    }

    fn spawn(folder: &Path, number: usize) -> anyhow::Result<Etcd> {
        let [client, peer] = free_ports().context("no free port for etcd")?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let log = folder.join(format!("{number}.log"));
        let context = || format!("cannot write {}", log.display());
        let output = File::create(&log).with_context(context)?;
        let mut command = command("etcd".as_ref());
        // Variables of the environment that configure etcd are meant for another one.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        for (name, value) in [
            ("name", "lab".to_owned()),
            ("data-dir", folder.join(number.to_string()).display().to_string()),
            ("listen-client-urls", url(client)),
            ("advertise-client-urls", url(client)),
            ("listen-peer-urls", url(peer)),
            ("initial-advertise-peer-urls", url(peer)),
            ("initial-cluster", format!("lab={}", url(peer))),
            ("unsafe-no-fsync", "true".to_owned()),
        ] {
            command.arg(format!("--{name}={value}"));
        }
        command.stdout(output.try_clone().with_context(context)?).stderr(output);
        let child = command.spawn().context("cannot start etcd")?;
        Ok(Etcd { child, endpoint: url(client), log })
    }

    async fn wait(&mut self) -> anyhow::Result<()> {
        let client = self.client()?;
        let end = Instant::now() + START_PATIENCE;
        loop {
            if client.read("/").await.is_ok() {
                return Ok(());
            }
            let has_ended = self.child.try_wait().context("cannot look after etcd")?.is_some();
            if has_ended || Instant::now() > end {
                bail!(
                    "etcd does not answer; if it is missing, install it with `apt-get install \
                     etcd-server`; the end of its log:\n{}",
                    log_tail(&self.log, LOG_LINES_QUOTED)
                );
            }
            sleep(POLL).await;
        }
    }

    /// A client of this etcd.
    pub(super) fn client(&self) -> anyhow::Result<EtcdClient> {
        Ok(EtcdClient::new(std::slice::from_ref(&self.endpoint), None, CALL_PATIENCE)?)
    }

    /// The endpoint of this etcd.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

fn free_ports() -> std::io::Result<[u16; 2]> {
    // Both are bound at the same time, so that the ports differ.
    let listeners = [
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
    ];
    let [client, peer] = listeners;
    Ok([client.local_addr()?.port(), peer.local_addr()?.port()])
}
