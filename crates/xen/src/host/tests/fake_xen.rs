//! A fake Xen for tests: a store, and a program `xl`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use ballast_backend::{Backend, GuestReading, SampleRequest};
use ballast_model::{
    Action, Bytes, Generation, GuestSample, LinkState, Outcome, OutcomeKind, Timestamp,
};
use ballast_xenstore::testing::{SharedStore, StorePeer, serve};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use crate::host::{XenConfig, XenHost};

/// Prints the files `list` and `info` of its folder, and logs the arguments of `mem-max`.
const XL: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
if [ -e fails ]; then cat fails >&2; exit 1; fi
case "$1" in
list | info) cat "$1" ;;
mem-max) echo "$2 $3" >>mem-max ;;
*) exit 2 ;;
esac
"#;

/// A Xen with dom0; a test creates further domains.
pub(crate) struct FakeXen {
    pub(crate) folder: TempDir,
    pub(crate) store_shared: SharedStore,
    server: Option<JoinHandle<()>>,
    pub(crate) host: XenHost,
    /// Milliseconds of the caller's clock.
    pub(crate) now: u64,
    /// Domains by name, number and what each holds, in MiB.
    pub(crate) domains: Vec<(String, u16, u64)>,
    /// Free memory of the machine, in MiB.
    pub(crate) free: u64,
    generation: u64,
}

impl FakeXen {
    /// A machine of 4 GiB with dom0 alone.
    pub(crate) async fn start() -> FakeXen {
        let folder = tempfile::tempdir().unwrap();
        let xl = folder.path().join("xl");
        let mut script =
            OpenOptions::new().write(true).create_new(true).mode(0o755).open(&xl).unwrap();
        script.write_all(XL.as_bytes()).unwrap();
        drop(script);
        let host = XenHost::new(XenConfig {
            socket: folder.path().join("socket"),
            xl,
            command_timeout: Duration::from_secs(2),
            dom0_floor: Bytes::mib(256),
            emergency_period: Duration::from_secs(1),
            guests_max: 100,
        });
        let mut xen = FakeXen {
            folder,
            store_shared: Arc::new(Mutex::new(StorePeer::new())),
            server: None,
            host,
            now: 1000,
            domains: Vec::new(),
            free: 1024,
            generation: 0,
        };
        xen.serve();
        xen.create("Domain-0", 0, 512, 1024);
        xen
    }

    /// Makes the store listen.
    pub(crate) fn serve(&mut self) {
        let socket = self.folder.path().join("socket");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(socket).unwrap();
        self.server = Some(tokio::spawn(serve(listener, Arc::clone(&self.store_shared))));
    }

    /// Ends the store, with all that it knew.
    pub(crate) async fn kill_store(&mut self) {
        let server = self.server.take().unwrap();
        server.abort();
        let _ = server.await;
        fs::remove_file(self.folder.path().join("socket")).unwrap();
        *self.store() = StorePeer::new();
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, StorePeer> {
        self.store_shared.lock().unwrap()
    }

    /// Creates a domain that holds its target; sizes in MiB.
    pub(crate) fn create(&mut self, name: &str, id: u16, target: u64, max: u64) {
        let write = |key: &str, value: &str| {
            self.store().write(&format!("/local/domain/{id}/{key}"), value);
        };
        write("vm", &format!("/vm/{name}-{id}"));
        write("name", name);
        write("memory/static-max", &(max << 10).to_string());
        write("memory/target", &(target << 10).to_string());
        write("memory/videoram", "-1");
        self.domains.push((name.to_owned(), id, target));
    }

    /// Ends a domain.
    pub(crate) fn destroy(&mut self, id: u16) {
        self.store().remove(&format!("/local/domain/{id}"));
        self.domains.retain(|domain| domain.1 != id);
    }

    /// Sets what a domain holds, in MiB.
    pub(crate) fn hold(&mut self, id: u16, mib: u64) {
        self.domains.iter_mut().find(|domain| domain.1 == id).unwrap().2 = mib;
    }

    /// A key of a domain.
    pub(crate) fn read(&self, id: u16, key: &str) -> Option<String> {
        let store = self.store();
        let value = store.read(&format!("/local/domain/{id}/{key}"))?;
        Some(String::from_utf8(value.to_vec()).unwrap())
    }

    /// A guest writes one of its keys.
    pub(crate) fn publish(&self, id: u16, key: &str, value: impl AsRef<[u8]>) {
        self.store().write(&format!("/local/domain/{id}/data/{key}"), value);
    }

    /// A guest publishes statistics of what it has available of `total`, MiB.
    pub(crate) fn publish_stats(&self, id: u16, seq: u64, total: u64, available: u64) {
        let memory =
            format!(r#"{{"total_bytes":{},"available_bytes":{}}}"#, total << 20, available << 20);
        let message = format!(r#"{{"type":"statistics","memory":{memory}}}"#);
        let uptime = seq * 1000;
        let text = format!(r#"{{"seq":{seq},"uptime_ms":{uptime},"message":{message}}}"#);
        self.publish(id, "mem_stats", text);
    }

    /// The changes of maxmem so far: numbers of domains and MiB.
    pub(crate) fn limits(&self) -> Vec<(u16, u64)> {
        let text = fs::read_to_string(self.folder.path().join("mem-max")).unwrap_or_default();
        let limit = |line: &str| {
            let (id, kib) = line.split_once(' ').unwrap();
            let kib: u64 = kib.strip_suffix('k').unwrap().parse().unwrap();
            (id.parse().unwrap(), kib >> 10)
        };
        text.lines().map(limit).collect()
    }

    /// Makes `xl` fail with this text, or work again.
    pub(crate) fn xl_fails(&self, with: Option<&str>) {
        let file = self.folder.path().join("fails");
        match with {
            Some(with) => fs::write(file, with).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
    }

    fn print(&self, folder: &Path) {
        let mut list = "Name        ID   Mem VCPUs\tState\tTime(s)\n".to_owned();
        for (name, id, mib) in &self.domains {
            list += &format!("{name} {id} {mib} 1 -b---- 1.0\n");
        }
        fs::write(folder.join("list"), list).unwrap();
        let info = format!("total_memory : 4096\nfree_memory : {}\n", self.free);
        fs::write(folder.join("info"), info).unwrap();
    }

    /// Samples all guests two seconds later.
    pub(crate) async fn sample(&mut self) -> Vec<GuestReading> {
        self.print(self.folder.path());
        self.now += 2000;
        let request = SampleRequest {
            now: Timestamp::from_millis(self.now),
            wall: SystemTime::now(),
            deadline: Duration::from_secs(5),
            only: None,
        };
        self.host.sample(request).await
    }

    /// Orders a guest to hold `mib`.
    pub(crate) async fn order(&mut self, guest: &str, mib: u64) -> Result<(), String> {
        self.generation += 1;
        let action = Action {
            guest: guest.parse().unwrap(),
            target: Bytes::mib(mib),
            plug: None,
            generation: Generation(self.generation),
            deadline: Timestamp::from_millis(u64::MAX >> 20),
        };
        let now = Timestamp::from_millis(self.now);
        let outcomes: Vec<Outcome> = self.host.act_all(now, &[action]).await;
        match &outcomes[0].kind {
            OutcomeKind::Accepted => Ok(()),
            OutcomeKind::Failed(why) => Err(why.clone()),
            other => Err(format!("{other:?}")),
        }
    }

    pub(crate) fn notices(&mut self) -> Vec<String> {
        self.host.take_notices()
    }
}

/// The sample of one guest.
fn of<'a>(readings: &'a [GuestReading], guest: &str) -> &'a GuestSample {
    let found = readings.iter().find(|it| it.sample.id.as_str() == guest);
    &found.unwrap_or_else(|| panic!("{guest} in {readings:?}")).sample
}

/// What a guest holds, MiB.
pub(crate) fn holds(readings: &[GuestReading], guest: &str) -> Option<u64> {
    Some(of(readings, guest).allocation?.value.get() >> 20)
}

/// Available memory that a guest reports, in MiB, and its age to the nearest second: time within a
/// sample is real, time between two is not.
pub(crate) fn available(readings: &[GuestReading], guest: &str) -> Option<(u64, u64)> {
    let stats = of(readings, guest).stats?;
    Some((stats.value.available?.get() >> 20, stats.age.as_secs_f64().round() as u64))
}

/// Whether a guest can be reached.
pub(crate) fn link(readings: &[GuestReading], guest: &str) -> LinkState {
    of(readings, guest).link.clone()
}
