//! A real guest moves by order of a fleet's leader, and another leader finishes what the first one,
//! which is killed, has begun.
//!
//! Idea: three hosts on this machine, each with a daemon and a `ballast-fleet` of its own, and a
//! real etcd. `a` is drained, and only `b` has room. `c` leads; it is killed once hosts have begun
//! what it has ordered, and the copy is so slow that another leads before it ends.
//! The destination's QEMU is started by `ballast-lab lab listen`, which two runs of the lab, as two
//! hosts, have in common.
//!
//! Limits: one machine, so that its memory is not divided as that of three hosts would be.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ballast_etcd::EtcdClient;
use ballast_etcd::testing::{EtcdCluster, is_installed};
use ballast_fleet_move::{MoveRecord, Phase};
use ballast_fleet_proto::{Author, Coordinator, FleetKey, Keyspace, decode};
use ballast_lab_host::{Guest, GuestSpec, GuestState};
use ballast_model::Bytes;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::harness::{Daemon, Ground, PATIENCE, guest, wait_for};
use crate::support::{CHECKSUM, Lab, assert_unrefused, lab_program, wait_guests};

const GUEST: &str = "moves";
const MEMORY: Bytes = Bytes::mib(256);
/// What its operator gave it on the source. A balloon gets it down to this floor with its data.
const SHARES: u32 = 1700;
const FLOOR: &str = "208MiB";
const DATA_MIB: u64 = 48;
/// Most tries with a guest whose kernel survives its move: see `GuestRecord::kernel_death`.
const TRIES: u32 = 4;
/// Room for the guest, and for less than that.
const ROOMY: &str = "[host]\nbudget = \"1GiB\"\n[policy]\nname = \"static\"";
const NARROW: &str = "[host]\nbudget = \"128MiB\"\n[policy]\nname = \"static\"";

/// A host's member of the fleet; killed when dropped.
struct Member {
    host: &'static str,
    folder: TempDir,
    child: Option<Child>,
}

impl Member {
    /// Of the host whose daemon is on `ground`, in mode `move`; `run` is the host's run of the lab.
    fn new(host: &'static str, ground: &Ground, run: Option<&Path>, etcd: &str) -> Member {
        let folder = tempfile::tempdir().unwrap();
        // A host without a run gets no guests, and its QEMUs are nowhere.
        let run = run.map_or_else(|| folder.path().join("none"), Path::to_owned);
        let (runs, name) = (run.parent().unwrap(), run.file_name().unwrap().to_str().unwrap());
        let start = [lab_program().to_str().unwrap(), "lab", "listen", "{guest}", "--run", name]
            .map(str::to_owned)
            .into_iter()
            .chain(["--runs".to_owned(), runs.to_str().unwrap().to_owned()]);
        let start: Vec<String> = start.collect();
        let text = format!(
            "cluster = \"t\"\nhost = \"{host}\"\nendpoints = [{etcd:?}]\nmode = \"move\"\n\
             state = {:?}\ntick = \"1s\"\nlease = \"2s\"\nsocket = {:?}\nbandwidth = \"32MiB\"\n\
             [compatibility]\nhypervisor = \"qemu\"\nversion = \"7.2\"\ncpu_model = \"same\"\n\
             [planner]\npatience = \"1s\"\n\
             [qemu]\nqmp = \"{}/lab/{{guest}}.qmp\"\nstart = {start:?}\nlisten = \"127.0.0.1\"\n",
            folder.path().join("state"),
            ground.path("api.sock"),
            run.display(),
        );
        fs::write(folder.path().join("fleet.toml"), text).unwrap();
        Member { host, folder, child: None }
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("fleet.toml")
    }

    fn start(&mut self) {
        let log = File::options().append(true).create(true).open(self.folder.path().join("log"));
        let mut command = fleet();
        command.arg("run").arg("--config").arg(self.config());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap());
        self.child = Some(command.spawn().unwrap());
    }

    /// `kill -9`.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            child.wait().unwrap();
        }
    }

    fn command(&self, arguments: &[&str]) {
        let output = fleet().args(arguments).arg("--config").arg(self.config()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("the log of {}'s member:\n{log}", self.host);
        }
    }
}

/// `ballast-fleet`, beside `ballast`.
fn fleet() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_ballast")).with_file_name("ballast-fleet");
    let missing = "is missing: cargo build -p ballast-fleet-program";
    assert!(program.exists(), "{} {missing}", program.display());
    Command::new(program)
}

/// What etcd has.
struct Store {
    runtime: Runtime,
    cluster: EtcdCluster,
    client: EtcdClient,
    keys: Keyspace,
}

impl Store {
    fn start() -> Store {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let cluster = runtime.block_on(EtcdCluster::start(1)).unwrap();
        let client = EtcdClient::new(&cluster.endpoints(), None, PATIENCE).unwrap();
        Store { runtime, cluster, client, keys: "t".parse().unwrap() }
    }

    fn endpoint(&self) -> String {
        self.cluster.endpoints().remove(0)
    }

    fn value(&self, key: &FleetKey) -> Option<(Vec<u8>, u64)> {
        let key = self.keys.key(key);
        let listing = self.runtime.block_on(self.client.read(&key)).unwrap();
        let found = listing.entries.into_iter().find(|entry| entry.key == key);
        found.map(|entry| (entry.value, entry.written.0))
    }

    /// The host that leads, and since which revision.
    fn leader(&self) -> Option<(String, u64)> {
        let (value, written) = self.value(&FleetKey::Leader)?;
        Some((decode::<Author>(&value).unwrap().host, written))
    }

    fn order(&self) -> Option<MoveRecord> {
        let (value, _) = self.value(&FleetKey::Move(GUEST.parse().unwrap()))?;
        Some(MoveRecord::parse(&value).unwrap())
    }
}

/// A run of one guest, as a host.
fn host(runs: &Path, name: &str, guest: &str, memory: Bytes) -> Lab {
    let spec = GuestSpec::new(guest.parse().unwrap(), memory);
    let settle = |options: &mut ballast_lab_host::RunOptions| {
        options.name = name.parse().unwrap();
        options.runs_folder = Some(runs.to_owned());
    };
    Lab::boot_with(vec![spec], settle).unwrap()
}

#[test]
fn another_leader_finishes_a_move_of_the_killed_one() {
    if !is_installed() {
        return;
    }
    assert!((0..TRIES).any(|_| moves()), "its kernel died {TRIES} times");
}

/// Returns false if the guest's kernel is found to have died.
fn moves() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let (source, destination) =
        (host(&runs, "a", GUEST, MEMORY), host(&runs, "b", "stays", Bytes::mib(128)));
    let data = source.store_data(GUEST, DATA_MIB);
    let store = Store::start();
    let grounds = [Ground::new(), Ground::new(), Ground::new()];
    let tick = "tick = \"250ms\"";
    grounds[0].configure_for(source.sockets(), tick, ROOMY);
    grounds[1].configure_for(destination.sockets(), tick, ROOMY);
    grounds[2].configure(tick, NARROW);
    let daemons: Vec<Daemon<'_>> = grounds.iter().map(Ground::start).collect();
    wait_guests(&daemons[0], 1);
    wait_guests(&daemons[1], 1);
    let shares = SHARES.to_string();
    let change = ["set", GUEST, "--shares", &shares, "--floor", FLOOR];
    let (code, out, err) = grounds[0].ballast(&change);
    assert_eq!(code, Some(0), "{out}{err}");

    let endpoint = store.endpoint();
    let run_of = |lab: &Lab| lab.run.folder().path().to_owned();
    let mut a = Member::new("a", &grounds[0], Some(&run_of(&source)), &endpoint);
    let mut b = Member::new("b", &grounds[1], Some(&run_of(&destination)), &endpoint);
    let mut c = Member::new("c", &grounds[2], None, &endpoint);
    c.start();
    let first = wait_for("c to lead", || store.leader().filter(|(host, _)| host == "c"));
    a.start();
    b.start();
    for host in ["a", "b"] {
        let identity = FleetKey::Identity(host.parse().unwrap());
        wait_for("its registration", || store.value(&identity));
    }
    a.command(&["drain", "a"]);
    let is_begun = |order: &MoveRecord| order.phase != Phase::Ordered;
    let order = wait_for("a begun order", || store.order().filter(is_begun));
    c.kill();
    assert_eq!((order.from.as_str(), order.to.as_str()), ("a", "b"));
    assert_eq!(order.term.0, first.1);

    let second = wait_for("another leader", || store.leader().filter(|(host, _)| host != "c"));
    assert!(second.1 > first.1, "{second:?} after {first:?}");
    let mut last = order;
    wait_for("the end of the move", || match store.order() {
        Some(order) => {
            last = order;
            None
        }
        None => wait_guests_now(&daemons[1]).then_some(()),
    });
    assert_eq!((last.phase, last.term.0), (Phase::Moved, first.1), "the order of the killed one");

    wait_guests(&daemons[0], 0);
    assert_eq!(source.guest(GUEST).state(), GuestState::Exited);
    let record = destination.run.folder().guests().into_iter().find(|it| it.id.as_str() == GUEST);
    let spec = source.guest(GUEST).spec();
    let moved = Guest::arrived(destination.run.folder(), spec, PATIENCE);
    if record.unwrap().kernel_death().is_some() {
        return false;
    }
    let argv = ["/bin/sh", "-c", CHECKSUM].map(str::to_owned);
    let output = moved.unwrap().exec(&argv, PATIENCE).unwrap();
    data.assert_is(&output.stdout);
    let carried = || Some(guest(&daemons[1].status()?, GUEST)?.shares? == SHARES);
    wait_for("what it brought along", || carried()?.then_some(()));
    assert_eq!(daemons[1].status().unwrap().reservations.len(), 0);
    daemons.iter().for_each(assert_unrefused);
    true
}

/// Whether the destination runs the guest that has come and the one that it had.
fn wait_guests_now(daemon: &Daemon<'_>) -> bool {
    let Some(status) = daemon.status() else { return false };
    guest(&status, GUEST).is_some_and(|view| view.state.code == "running")
        && status.guests.len() == 2
}
