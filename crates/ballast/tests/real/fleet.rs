//! A fleet's leader has a real guest moved; the move survives the death of the leader and of the
//! destination's hypervisor.
//!
//! Idea: three hosts on this machine, each with a daemon and a `ballast-fleet` of its own, and a
//! real etcd. `a` is drained, and only `b` has room. `c` leads, and is killed once the hosts have
//! begun what it ordered. The copy is so slow that another host leads before it ends.
//! The destination's QEMU is started by `ballast-lab lab listen`. Two runs of the lab stand in for
//! two hosts.
//!
//! Limits: one machine, so its memory is not divided as that of three hosts would be.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ballast_api::GuestView;
use ballast_etcd::EtcdClient;
use ballast_etcd::testing::{EtcdCluster, is_installed};
use ballast_fleet_move::{MoveRecord, Phase};
use ballast_fleet_proto::{Author, Coordinator, FleetKey, Keyspace, decode};
use ballast_lab_host::{Guest, GuestRecord, GuestSpec, GuestState};
use ballast_model::Bytes;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::harness::{Daemon, PATIENCE, Testbed, guest, wait_for};
use crate::support::{CHECKSUM, Data, Lab, assert_unrefused, lab_program, wait_guests};

const GUEST: &str = "moves";
const MEMORY: Bytes = Bytes::mib(256);
/// What its operator gave it on the source. With its data it still fits into this floor.
const SHARES: u32 = 1700;
const FLOOR: &str = "208MiB";
const DATA_MIB: u64 = 48;
/// Memory of the guest that the destination already has.
const STAYS: Bytes = Bytes::mib(128);
/// What an emulator may need later, beyond what was measured.
const EMULATOR: Bytes = Bytes::mib(32);
/// How far a balloon may be from its target.
const SLACK: Bytes = Bytes::mib(16);
/// Most attempts, because a guest's kernel may not survive its move: see
/// `GuestRecord::kernel_death`.
const TRIES: u32 = 4;
/// Settings of a host with room for the guest, and of one without.
const ROOMY: &str = "[host]\nbudget = \"1GiB\"\n[policy]\nname = \"static\"";
const NARROW: &str = "[host]\nbudget = \"128MiB\"\n[policy]\nname = \"static\"";

/// A host's member of the fleet; killed when dropped.
struct Member {
    host: &'static str,
    folder: TempDir,
    child: Option<Child>,
}

impl Member {
    /// The member of the host whose daemon is on `testbed`, in mode `move`; `run` is the host's run
    /// of the lab.
    fn new(host: &'static str, testbed: &Testbed, run: Option<&Path>, etcd: &str) -> Member {
        let folder = tempfile::tempdir().unwrap();
        // A host without a run gets no guests, so it needs no folder for QEMUs.
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
            testbed.path("api.sock"),
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

/// Reads the fleet's keys in etcd.
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

    /// The host that leads, and the revision since which it does.
    fn leader(&self) -> Option<(String, u64)> {
        let (value, written) = self.value(&FleetKey::Leader)?;
        Some((decode::<Author>(&value).unwrap().host, written))
    }

    fn order(&self) -> Option<MoveRecord> {
        let (value, _) = self.value(&FleetKey::Move(GUEST.parse().unwrap()))?;
        Some(MoveRecord::parse(&value).unwrap())
    }
}

/// A run of the lab with one guest, which stands in for a host.
fn host(runs: &Path, name: &str, guest: &str, memory: Bytes) -> Lab {
    let spec = GuestSpec::new(guest.parse().unwrap(), memory);
    let settle = |options: &mut ballast_lab_host::RunOptions| {
        options.name = name.parse().unwrap();
        options.runs_folder = Some(runs.to_owned());
    };
    Lab::boot_with(vec![spec], settle).unwrap()
}

/// Three hosts: the guest is on the first, the second has room for it, the third has no guest.
struct Hosts {
    store: Store,
    source: Lab,
    destination: Lab,
    data: Data,
    _runs: TempDir,
}

impl Hosts {
    fn boot() -> Hosts {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let (source, destination) =
            (host(&runs, "a", GUEST, MEMORY), host(&runs, "b", "stays", STAYS));
        let data = source.store_data(GUEST, DATA_MIB);
        Hosts { store: Store::start(), source, destination, data, _runs: folder }
    }

    /// The testbeds of their three daemons.
    fn testbeds(&self) -> [Testbed; 3] {
        let testbeds = [Testbed::new(), Testbed::new(), Testbed::new()];
        let tick = "tick = \"250ms\"";
        testbeds[0].configure_for(self.source.sockets(), tick, ROOMY);
        testbeds[1].configure_for(self.destination.sockets(), tick, ROOMY);
        testbeds[2].configure(tick, NARROW);
        testbeds
    }

    /// Waits until the daemons know their guests, starts the members and drains the first host.
    /// Returns the members and the revision since which the third one leads.
    fn drained(&self, testbeds: &[Testbed; 3], daemons: &[Daemon<'_>]) -> ([Member; 3], u64) {
        wait_guests(&daemons[0], 1);
        wait_guests(&daemons[1], 1);
        let shares = SHARES.to_string();
        let change = ["set", GUEST, "--shares", &shares, "--floor", FLOOR];
        let (code, out, err) = testbeds[0].ballast(&change);
        assert_eq!(code, Some(0), "{out}{err}");
        let endpoint = self.store.endpoint();
        let run_of = |lab: &Lab| lab.run.folder().path().to_owned();
        let mut a = Member::new("a", &testbeds[0], Some(&run_of(&self.source)), &endpoint);
        let mut b = Member::new("b", &testbeds[1], Some(&run_of(&self.destination)), &endpoint);
        let mut c = Member::new("c", &testbeds[2], None, &endpoint);
        c.start();
        let leads = || self.store.leader().filter(|(host, _)| host == "c");
        let (_, term) = wait_for("c to lead", leads);
        a.start();
        b.start();
        for host in ["a", "b"] {
            let identity = FleetKey::Identity(host.parse().unwrap());
            wait_for("its registration", || self.store.value(&identity));
        }
        a.command(&["drain", "a"]);
        ([a, b, c], term)
    }

    /// The guest's record in its destination's run, once it was started there.
    fn listener(&self) -> Option<GuestRecord> {
        let guests = self.destination.run.folder().guests();
        guests.into_iter().find(|it| it.id.as_str() == GUEST)
    }
}

/// What both daemons report about the guest while it moves.
#[derive(Default)]
struct Watched {
    /// The most that its process may occupy while it is copied, as the daemon reported before.
    copied_resident: u64,
    copies_seen: u32,
    incoming_seen: u32,
}

impl Watched {
    /// Checks that the guest runs on one host at most, that it is copied as small as was ordered,
    /// and that its process meanwhile occupies no more than was reported. An empty QEMU counts as
    /// its reservation.
    fn check(&mut self, daemons: &[Daemon<'_>], order: &MoveRecord) {
        let statuses = [daemons[0].status(), daemons[1].status()];
        let views = statuses.each_ref().map(|it| guest(it.as_ref()?, GUEST));
        let runs = |view: &Option<&GuestView>| view.is_some_and(|it| it.state.code == "running");
        assert!(!views.iter().all(runs), "it runs twice");
        if let (Phase::Copying { .. }, Some(view)) = (&order.phase, views[0])
            && let (Some(resident), Some(holds)) = (view.resident_bytes, view.allocation_bytes)
        {
            self.copies_seen += 1;
            // The emulator's own need grows too.
            let most = self.copied_resident + EMULATOR.get();
            assert!(resident <= most, "{resident} occupied while it is copied, {most} expected");
            let small = order.shrink_to.unwrap().saturating_add(SLACK);
            assert!(Bytes::new(holds) <= small, "copied with {holds}");
        }
        if let (Some(status), Some(view)) = (&statuses[1], views[1])
            && view.state.code == "incoming"
            && view.target_bytes.is_some()
        {
            self.incoming_seen += 1;
            assert_eq!(status.reservations.len(), 0);
            let occupied = view.resident_bytes.unwrap_or(0);
            let least = STAYS.get() + order.reserve.get().max(occupied);
            let committed = status.budget.committed_bytes;
            assert!(committed <= least, "{committed} committed, {least} expected at most");
        }
    }
}

#[test]
fn another_leader_finishes_a_move_of_the_killed_one() {
    if !is_installed() {
        return;
    }
    assert!((0..TRIES).any(|_| moves()), "its kernel died {TRIES} times");
}

/// Moves the guest. Returns false if its kernel is found to have died.
fn moves() -> bool {
    let hosts = Hosts::boot();
    let (store, testbeds) = (&hosts.store, hosts.testbeds());
    let daemons: Vec<Daemon<'_>> = testbeds.iter().map(Testbed::start).collect();
    let ([_a, _b, mut c], term) = hosts.drained(&testbeds, &daemons);
    let mut watched = Watched::default();
    let is_begun = |order: &MoveRecord| order.phase != Phase::Ordered;
    let order = wait_for("a begun order", || {
        watched.copied_resident = guest(&daemons[0].status()?, GUEST)?.copied_resident_bytes?;
        store.order().filter(is_begun)
    });
    assert!(watched.copied_resident >= MEMORY.get(), "its memory is shared");
    c.kill();
    assert_eq!((order.from.as_str(), order.to.as_str()), ("a", "b"));
    assert_eq!(order.term.0, term);

    let second = wait_for("another leader", || {
        store.order().iter().for_each(|order| watched.check(&daemons, order));
        store.leader().filter(|(host, _)| host != "c")
    });
    assert!(second.1 > term, "{second:?} after {term}");
    let mut last = order;
    wait_for("the end of the move", || match store.order() {
        Some(order) => {
            watched.check(&daemons, &order);
            last = order;
            None
        }
        None => wait_guests_now(&daemons[1]).then_some(()),
    });
    assert_eq!((last.phase, last.term.0), (Phase::Moved, term), "the order of the killed one");
    assert!(watched.copies_seen > 0 && watched.incoming_seen > 0, "nothing was watched");

    wait_guests(&daemons[0], 0);
    assert_eq!(hosts.source.guest(GUEST).state(), GuestState::Exited);
    let spec = hosts.source.guest(GUEST).spec();
    let moved = Guest::arrived(hosts.destination.run.folder(), spec, PATIENCE);
    if hosts.listener().unwrap().kernel_death().is_some() {
        return false;
    }
    let argv = ["/bin/sh", "-c", CHECKSUM].map(str::to_owned);
    let output = moved.unwrap().exec(&argv, PATIENCE).unwrap();
    hosts.data.assert_is(&output.stdout);
    let carried = || Some(guest(&daemons[1].status()?, GUEST)?.shares? == SHARES);
    wait_for("what it brought along", || carried()?.then_some(()));
    assert_eq!(daemons[1].status().unwrap().reservations.len(), 0);
    daemons.iter().for_each(assert_unrefused);
    true
}

/// All of the guest was copied, and the destination dies before it has announced that it starts the
/// guest.
#[test]
fn a_copied_guest_whose_destination_dies_runs_on() {
    if !is_installed() {
        return;
    }
    let hosts = Hosts::boot();
    let (store, testbeds) = (&hosts.store, hosts.testbeds());
    let daemons: Vec<Daemon<'_>> = testbeds.iter().map(Testbed::start).collect();
    let ([a, mut b, _c], _) = hosts.drained(&testbeds, &daemons);
    let is_copied = |order: &MoveRecord| matches!(order.phase, Phase::Copying { .. });
    wait_for("the copy", || store.order().filter(is_copied));
    // The destination's member is killed, so nobody announces that the guest starts.
    b.kill();
    a.command(&["drain", "a", "--undo"]);
    let is_whole = |order: &MoveRecord| matches!(order.phase, Phase::Copied { .. });
    wait_for("the end of the copy", || store.order().filter(is_whole));
    assert!(hosts.listener().unwrap().process.kill(PATIENCE));
    b.start();

    let mut last = None;
    wait_for("the end of the move", || match store.order() {
        Some(order) => {
            last = Some(order.phase);
            None
        }
        None => Some(()),
    });
    assert!(matches!(last, Some(Phase::Abandoned { .. })), "{last:?}");
    wait_for("the guest as it was", || {
        let status = daemons[0].status()?;
        let view = guest(&status, GUEST)?;
        (view.state.code == "running" && view.ceiling_bytes? == MEMORY.get()).then_some(())
    });
    wait_guests(&daemons[1], 1);
    wait_for("nothing reserved", || daemons[1].status()?.reservations.is_empty().then_some(()));
    hosts.source.assert_intact(&hosts.data);
    daemons.iter().for_each(assert_unrefused);
}

/// Whether the destination runs both guests: the one that arrived and its own.
fn wait_guests_now(daemon: &Daemon<'_>) -> bool {
    let Some(status) = daemon.status() else { return false };
    guest(&status, GUEST).is_some_and(|view| view.state.code == "running")
        && status.guests.len() == 2
}
