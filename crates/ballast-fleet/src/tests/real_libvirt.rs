//! A real domain moves between two real libvirts, peer to peer, by the members of two hosts.
//!
//! Idea: each host is a libvirtd for one user. It has a host UUID of its own, because libvirt tells
//! hosts apart by it. Daemons are stand-ins, and the coordinator is in memory. The domain has a
//! disk that both reach over NBD, and no system on it, so its firmware waits.
//! Limits: one machine; the contents of the domain's memory and disk are not compared.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ballast_fleet_proto::{FleetView, MemoryCoordinator};
use ballast_model::Bytes;
use tempfile::TempDir;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::machine::{Machine, Network};
use super::{block_on, local};
use crate::carry::{Libvirt, LibvirtConfig, MoveExecutor};
use crate::member::Member;

const GUEST: &str = "cache";
const PATIENCE: Duration = Duration::from_secs(300);
/// In a user namespace root is an ordinary user: the libvirt of root itself is the host's only one.
const AS_USER: [&str; 5] = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"];

/// The domain, with a disk that is served at a socket.
fn domain(disk: &Path) -> String {
    format!(
        "<domain type='qemu'><name>{GUEST}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>\
         <os><type arch='x86_64' machine='pc'>hvm</type></os>\
         <devices><emulator>/usr/bin/qemu-system-x86_64</emulator><memballoon model='virtio'/>\
         <disk type='network' device='disk'><driver name='qemu' type='raw' cache='none'/>\
         <source protocol='nbd' name='disk'><host transport='unix' socket='{}'/></source>\
         <target dev='vda' bus='virtio'/></disk></devices></domain>",
        disk.display()
    )
}

/// Storage that both hosts reach; it ends when this is dropped.
struct Storage(Child);

impl Storage {
    fn serve(file: &Path, socket: &Path) -> Storage {
        fs::write(file, vec![0; 1 << 20]).unwrap();
        let (file, path) = (file.display(), socket.display());
        let child = Command::new("qemu-storage-daemon")
            .args(["--blockdev", &format!("driver=file,filename={file},node-name=disk")])
            .args(["--nbd-server", &format!("addr.type=unix,addr.path={path},max-connections=0")])
            .args(["--export", "type=nbd,id=disk,node-name=disk,name=disk,writable=on"])
            .spawn()
            .expect("qemu-storage-daemon is installed");
        let storage = Storage(child);
        let began = Instant::now();
        while !socket.exists() {
            assert!(began.elapsed() < PATIENCE, "the storage does not serve");
            std::thread::sleep(Duration::from_millis(20));
        }
        storage
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One host's libvirt; it ends when this is dropped.
struct Host {
    daemon: Child,
    folder: PathBuf,
}

impl Host {
    fn start(folder: &Path, number: u8) -> Host {
        fs::create_dir_all(folder).unwrap();
        let conf = folder.join("libvirtd.conf");
        let id = format!("host_uuid = \"11111111-2222-4333-8444-5555555555{number:02}\"\n");
        fs::write(&conf, id).unwrap();
        let words = Host::words(folder, &["libvirtd", "--config", conf.to_str().unwrap()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        let daemon = command.stderr(Stdio::null()).spawn().expect("libvirtd is installed");
        let host = Host { daemon, folder: folder.to_owned() };
        let began = Instant::now();
        while host.virsh(&["version"]).is_none() {
            assert!(began.elapsed() < PATIENCE, "libvirtd does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        host
    }

    /// The words that run a program as this host's user, followed by the program.
    fn words(folder: &Path, program: &[&str]) -> Vec<String> {
        let folder = folder.to_str().unwrap();
        // No other libvirt may be started for that user.
        let mut words = vec!["env".to_owned(), "LIBVIRT_AUTOSTART=0".to_owned()];
        for name in
            ["HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"]
        {
            words.push(format!("{name}={folder}"));
        }
        if is_root() {
            words.extend(AS_USER.map(str::to_owned));
        }
        words.extend(program.iter().map(|word| (*word).to_owned()));
        words
    }

    fn virsh(&self, arguments: &[&str]) -> Option<String> {
        let words = Host::words(&self.folder, &["virsh", "-q", "-c", "qemu:///session"]);
        let output = Command::new(&words[0]).args(&words[1..]).args(arguments).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn state(&self) -> String {
        self.virsh(&["domstate", GUEST]).unwrap_or_default().trim().to_owned()
    }

    /// Kills the domain's QEMU.
    fn kill_domain(&self) {
        let file = self.folder.join(format!("libvirt/qemu/run/{GUEST}.pid"));
        let pid = fs::read_to_string(file).unwrap();
        let killed = Command::new("kill").args(["-KILL", pid.trim()]).status();
        assert!(killed.unwrap().success());
    }

    /// The hypervisor for the executor, listening at this address.
    fn hypervisor(&self, all: &Path, listen: SocketAddr, mib_per_s: u64) -> Libvirt {
        let peer = format!(
            "qemu+unix:///session?socket={}/{{address}}/libvirt/libvirt-sock",
            all.display()
        );
        let config = LibvirtConfig {
            uri: "qemu:///session".to_owned(),
            peer,
            listen,
            bandwidth_per_s: Bytes::mib(mib_per_s),
        };
        Libvirt::new(config).run_by(Host::words(&self.folder, &["virsh"]))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.virsh(&["destroy", GUEST]);
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

/// Two hosts on one coordinator; the first one is short, and its domain runs.
struct World {
    hosts: [Host; 2],
    _storage: Storage,
    machines: [Machine; 2],
    addresses: [SocketAddr; 2],
    coordinator: MemoryCoordinator,
    /// Dropped last, because the hosts' sockets are in it.
    folder: TempDir,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let addresses = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let at = |place: usize| folder.path().join(addresses[place].to_string());
        let hosts = [Host::start(&at(0), 1), Host::start(&at(1), 2)];
        let file = folder.path().join("domain.xml");
        let socket = folder.path().join("nbd");
        let storage = Storage::serve(&folder.path().join("disk"), &socket);
        fs::write(&file, domain(&socket)).unwrap();
        hosts[0].virsh(&["define", file.to_str().unwrap()]).expect("a domain");
        hosts[0].virsh(&["start", GUEST]).expect("a domain that starts");
        let network = Network::default();
        let machines = [Machine::new(4096, &network, 1), Machine::new(16384, &network, 2)];
        machines[0].guest("db", 3072, 4096, 1);
        machines[0].guest(GUEST, 2048, 3072, 7);
        let coordinator = MemoryCoordinator::default();
        World { hosts, _storage: storage, machines, addresses, coordinator, folder }
    }

    /// Runs the programs of both hosts.
    async fn run(&self, mib_per_s: u64, rest: &str) {
        let moves = format!(
            "mode = \"move\"\ntick = \"1s\"\nlease = \"3s\"\n[libvirt]\n\
                     listen = \"127.0.0.1:1\"\n[planner]\npatience = \"0s\"\ncooldown_min = \"{rest}\"\n\
                     [guests.db]\nstays = true"
        );
        let mut programs = Vec::new();
        for (place, name) in ["a", "b"].into_iter().enumerate() {
            let config = local(name, &moves);
            let machine = self.machines[place].clone();
            let member = Member::new(self.coordinator.clone(), machine, config, name.into());
            let all = self.folder.path();
            let hypervisor = self.hosts[place].hypervisor(all, self.addresses[place], mib_per_s);
            let notes = all.join(format!("notes-{name}"));
            programs.push(async move {
                let executor = MoveExecutor::new(&member, hypervisor, &notes).unwrap();
                tokio::select! {
                    () = member.run_until(std::future::pending()) => {}
                    () = executor.run() => {}
                }
            });
        }
        let [a, b] = <[_; 2]>::try_from(programs).ok().unwrap();
        tokio::join!(a, b);
    }

    async fn phase(&self) -> Option<String> {
        let keys = local("x", "").keys;
        let view = FleetView::read(&self.coordinator, &keys).await.unwrap();
        let entry = view.move_of(&GUEST.parse().unwrap())?;
        Some(entry.record.as_ref().unwrap().in_words())
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !is_so().await {
            let states = self.hosts.each_ref().map(Host::state);
            let phase = self.phase().await;
            assert!(began.elapsed() < PATIENCE, "{what}: {states:?}, {phase:?}");
            let running = states.iter().filter(|state| *state == "running").count();
            assert!(running <= 1, "it runs twice");
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Plays `story` beside the programs of both hosts. They copy at most `mib_per_s` MiB a second and
/// try again after `rest`.
fn play(mib_per_s: u64, rest: &str, story: impl AsyncFnOnce(&World)) {
    block_on(false, async {
        let played = async {
            let world = World::new();
            let clock = world.coordinator.clone();
            tokio::task::spawn_local(async move {
                loop {
                    sleep(Duration::from_millis(100)).await;
                    clock.advance(Duration::from_millis(100));
                }
            });
            tokio::select! {
                () = world.run(mib_per_s, rest) => unreachable!(),
                () = story(&world) => {}
            }
        };
        LocalSet::new().run_until(played).await;
    });
}

#[test]
fn a_domain_moves_and_is_undefined_where_it_was() {
    play(64, "1s", async |world| {
        world.until("the move", async || world.hosts[1].state() == "running").await;
        // The stand-in daemons do not look at libvirt, so the test tells them the result.
        world.machines[0].kill(GUEST);
        world.machines[1].guest(GUEST, 0, 3072, 1);
        world.until("the end of the move", async || world.phase().await.is_none()).await;
        let takes_over = async || world.machines[1].shares(GUEST) == Some(7);
        world.until("what came along", takes_over).await;
        assert_eq!(world.hosts[0].virsh(&["list", "--all", "--name"]).unwrap().trim(), "");
        let info = world.hosts[1].virsh(&["dominfo", GUEST]).unwrap();
        assert!(info.contains("Persistent:     yes"), "{info}");
    });
}

#[test]
fn a_copied_domain_whose_destination_dies_runs_on() {
    play(1, "15min", async |world| {
        world.until("the copy", async || world.hosts[1].state() == "paused").await;
        world.hosts[1].kill_domain();
        let is_over = async || {
            world.phase().await.is_none()
                && world.machines.iter().all(|it| it.leftovers().is_empty())
        };
        world.until("the end of the move", is_over).await;
        assert_eq!(world.hosts.each_ref().map(Host::state), ["running", ""]);
        assert_eq!(world.machines[0].shares(GUEST), Some(7));
    });
}
