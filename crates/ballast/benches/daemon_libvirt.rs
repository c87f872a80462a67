//! What a running daemon costs with 1,000 domains of a libvirt: processor time and resident memory.
//!
//! Goal: 3 % of a core at 1 s ticks, and 80 MiB resident. The daemon is the real program with its
//! journal and API. Its libvirt is a peer that speaks libvirt's RPC in a process of its own. For
//! each domain it has what a real libvirt has: some 600 bytes of figures, 4 KB of XML with settings
//! for Ballast, and a PID file. All domains share the peer's process, whose command line has their
//! UUIDs.
//!
//! For comparison, the same daemon runs with as many peers that speak QMP. The two take turns,
//! because the machine's speed drifts. The final status shows whether all guests were seen.
//!
//! Limits: without trackers, as all guests here are one process; at rest, once the first orders are
//! carried out; no domain starts, ends or changes. The daemon reads the XML of every domain again
//! every five minutes, for which a turn is too short. The cost of libvirt itself and of the guests'
//! statistics is not measured.
//!
//! `cargo bench -p ballast --bench daemon_libvirt`; with `--test` turns are short.

mod harness;

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use ballast_api::StatusReply;
use ballast_libvirt::Domain;
use ballast_libvirt::testing::{LibvirtPeer, PeerDomain};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use harness::{
    Peers, api_socket, own_role, role, serve_peers, serve_peers_and, start_daemon_on, stop, watch,
};

const GUESTS: usize = 1000;
const TICK_MS: u64 = 1000;
/// Goals: percent of a core, and MiB.
const SHARE_MAX: f64 = 3.0;
const RESIDENT_MAX: f64 = 80.0;
/// Boot memory of each guest, and the part in use.
const BOOT_KIB: u64 = 1 << 20;
const USED_KIB: u64 = 200 << 10;
/// Budget of all guests: six tenths of their boot memory.
const BUDGET_GIB: usize = 600;
/// Address space of the peers' process: more than a guest's boot memory.
const MAPPED_BYTES: usize = 2 << 30;
const READ_BYTES: usize = 64 << 10;

fn main() {
    let Some((role, folder)) = own_role() else { return measure() };
    // Mapped but never touched: a guest cannot have more than its process has mapped.
    let mapped = std::hint::black_box(Vec::<u8>::with_capacity(MAPPED_BYTES));
    match role.as_str() {
        "libvirt" => serve_peers_and(&folder, 0, || serve_libvirt(&folder)),
        _ => serve_peers(&folder, GUESTS),
    }
    drop(std::hint::black_box(mapped));
}

fn measure() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (warm_up, turn, rounds) = match is_test {
        true => (Duration::from_secs(5), Duration::from_secs(5), 1),
        false => (Duration::from_secs(15), Duration::from_secs(30), 3),
    };
    let (by_libvirt, by_qmp) = (Testbed::new(), Testbed::new());
    std::fs::create_dir(by_libvirt.peers().join("qemu")).expect("a folder for PID files");
    let mut command = role("libvirt", &by_libvirt.peers());
    command.args((0..GUESTS).map(|n| domain(n).uuid_text()));
    let peers = [Peers::spawn(command), Peers::start("qmp", &by_qmp.peers())];
    let libvirt = format!(
        "[tracking]\nenabled = false\n[qmp]\nfolders = []\n[libvirt]\nenabled = true\nsocket = {:?}\n",
        socket(&by_libvirt.peers())
    );
    let qmp = format!("[tracking]\nenabled = false\n[qmp]\nfolders = [{:?}]\n", by_qmp.peers());

    let (mut ours, mut theirs) = (Cost::default(), Cost::default());
    for round in 1..=rounds {
        for (testbed, tables, cost) in
            [(&by_libvirt, &libvirt, &mut ours), (&by_qmp, &qmp, &mut theirs)]
        {
            let path = testbed.0.path();
            let mut daemon = Guarded(start_daemon_on(path, tables, BUDGET_GIB, TICK_MS));
            cost.add(&daemon.0, warm_up, turn);
            let seen = seen(path);
            stop(&mut daemon.0);
            assert_eq!(seen, GUESTS, "guests that run and are seen");
        }
        println!("round {round} of {rounds} done");
    }
    for peers in peers {
        peers.end();
    }

    println!("{GUESTS} guests, a tick a second, {rounds} turns of {turn:?} each");
    let (share, mib) = (ours.share(), ours.mib());
    println!("by libvirt: {share:.3} % of a core (goal: {SHARE_MAX} %, {})", met(share, SHARE_MAX));
    println!("by libvirt, each turn: {}", ours.turns());
    let is_met = met(mib, RESIDENT_MAX);
    println!("by libvirt: {mib:.1} MiB resident at most (goal: {RESIDENT_MAX} MiB, {is_met})");
    println!("by QMP: {:.3} % of a core, {:.1} MiB", theirs.share(), theirs.mib());
    println!("by QMP, each turn: {}", theirs.turns());
    println!("ratio libvirt / QMP: {:.2}", share / theirs.share());
}

fn met(found: f64, most: f64) -> &'static str {
    if found <= most { "met" } else { "NOT MET" }
}

/// A daemon that is killed when this program ends, even by a panic.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Fails if it was stopped before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folder of a daemon and its guests.
struct Testbed(tempfile::TempDir);

impl Testbed {
    fn new() -> Testbed {
        let testbed = Testbed(tempfile::tempdir().expect("a folder"));
        std::fs::create_dir(testbed.peers()).expect("a folder for sockets");
        testbed
    }

    fn peers(&self) -> std::path::PathBuf {
        self.0.path().join("peers")
    }
}

/// What a daemon used in each turn.
#[derive(Default)]
struct Cost {
    shares: Vec<f64>,
    resident_kib: u64,
}

impl Cost {
    fn add(&mut self, daemon: &Child, warm_up: Duration, turn: Duration) {
        let (spent, resident) = watch(daemon, warm_up, turn);
        self.shares.push(spent.as_secs_f64() / turn.as_secs_f64() * 100.0);
        self.resident_kib = self.resident_kib.max(resident);
    }

    /// Percent of a core over all turns, which have equal lengths.
    fn share(&self) -> f64 {
        self.shares.iter().sum::<f64>() / self.shares.len() as f64
    }

    fn turns(&self) -> String {
        let shares: Vec<String> = self.shares.iter().map(|it| format!("{it:.3} %")).collect();
        shares.join(", ")
    }

    fn mib(&self) -> f64 {
        self.resident_kib as f64 / 1024.0
    }
}

/// How many guests are running and have statistics, by the daemon's status.
fn seen(testbed: &Path) -> usize {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ballast"));
    command.args(["status", "--json", "--socket"]).arg(api_socket(testbed));
    let output = command.output().expect("the program");
    let status: StatusReply = serde_json::from_slice(&output.stdout).expect("a status");
    let is_seen = |guest: &&ballast_api::GuestView| {
        guest.state.code == "running" && guest.used_bytes.is_some()
    };
    status.guests.iter().filter(is_seen).count()
}

fn socket(folder: &Path) -> std::path::PathBuf {
    folder.join("libvirt-sock")
}

fn domain(n: usize) -> Domain {
    let mut uuid = *b"ballast of bench";
    uuid[8..].copy_from_slice(&(n as u64).to_be_bytes());
    Domain { name: format!("guest-{n}"), uuid, id: i32::try_from(n + 1).expect("few domains") }
}

/// Plays a libvirt in `folder`, with a PID file for each domain, until this process ends.
fn serve_libvirt(folder: &Path) {
    let mut domains = Vec::with_capacity(GUESTS);
    for n in 0..GUESTS {
        let domain = domain(n);
        let file = folder.join(format!("qemu/{}.pid", domain.name));
        std::fs::write(file, std::process::id().to_string()).expect("a PID file");
        let xml = include_str!("harness/domain.xml").replace("{name}", &domain.name);
        let xml = xml.replace("{uuid}", &domain.uuid_text());
        let (maximum, current) = (BOOT_KIB, BOOT_KIB);
        domains.push(PeerDomain { domain, maximum, current, used: USED_KIB, xml });
    }
    let listener = UnixListener::bind(socket(folder)).expect("a socket");
    tokio::spawn(async move {
        let mut peer = LibvirtPeer::new(domains);
        // One client at a time: a daemon ends before the next one starts.
        while let Ok((stream, _)) = listener.accept().await {
            peer.connect();
            // A client that disconnects causes an error, which needs no handling.
            let _ = converse(&mut peer, stream).await;
        }
    });
}

async fn converse(peer: &mut LibvirtPeer, mut stream: UnixStream) -> std::io::Result<()> {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let read = stream.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let sent = peer.receive(&bytes[..read], wall.as_secs()).map_err(std::io::Error::other)?;
        stream.write_all(&sent).await?;
    }
}
