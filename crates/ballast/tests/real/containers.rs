//! Containers under the real daemon, alone and beside virtual machines: real cgroups of version 2
//! with shells in them.
//!
//! Limits: only where version 2 controls memory, as in an outer machine of `ballast-lab nested`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ballast_api::StatusReply;
use ballast_containers::parse_amount;
use ballast_model::Bytes;

use crate::harness::{Daemon, Testbed, guest, wait_for};
use crate::support::{Lab, swapping};

const ROOT: &str = "/sys/fs/cgroup";

/// The most that each container may have.
const MOST: Bytes = Bytes::mib(256);
/// What the busy container holds, in a file in memory.
const HELD_MIB: u64 = 150;

/// A slice with containers; its processes end when it is dropped.
struct Slice {
    folder: PathBuf,
    shells: Vec<Child>,
    files: Vec<PathBuf>,
}

impl Slice {
    /// Makes a slice. Prints a message and returns `None` if version 2 of cgroups does not control
    /// memory.
    fn new(name: &str) -> Option<Slice> {
        let control = fs::read_to_string(format!("{ROOT}/cgroup.subtree_control"));
        if !control.is_ok_and(|text| text.split_whitespace().any(|it| it == "memory")) {
            println!("SKIPPED: version 2 of cgroups does not control memory here");
            return None;
        }
        let folder = Path::new(ROOT).join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("cgroup.subtree_control"), "+memory").unwrap();
        Some(Slice { folder, shells: Vec::new(), files: Vec::new() })
    }

    /// Adds a container in which a shell fills `file` with `mib` MiB, and keeps running.
    fn add(&mut self, name: &str, file: PathBuf, mib: u64) {
        let container = self.folder.join(name);
        fs::create_dir(&container).unwrap();
        fs::write(container.join("memory.max"), MOST.get().to_string()).unwrap();
        let script = format!(
            "echo $$ >{}/cgroup.procs && dd if=/dev/zero of={} bs=1M count={mib} && sync && \
             exec sleep 100000",
            container.display(),
            file.display()
        );
        let shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).spawn();
        self.shells.push(shell.unwrap());
        self.files.push(file);
    }

    fn amount(&self, name: &str, file: &str) -> Option<Bytes> {
        parse_amount(&fs::read(self.folder.join(name).join(file)).unwrap()).unwrap()
    }

    fn holds(&self, name: &str) -> Bytes {
        self.amount(name, "memory.current").unwrap()
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
        for shell in &mut self.shells {
            let _ = shell.wait();
        }
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for entry in entries.filter(|it| it.path().is_dir()) {
            let _ = fs::remove_dir(entry.path());
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A slice with a container that holds memory and one with page cache that nobody needs.
fn slice(testbed: &Testbed, name: &str) -> Option<Slice> {
    let mut slice = Slice::new(name)?;
    let in_memory = format!("/dev/shm/{name}");
    slice.add("busy", in_memory.into(), HELD_MIB);
    slice.add("idle", testbed.path("cache"), 200);
    Some(slice)
}

fn configure(testbed: &Testbed, qmp: &Path, slice: &Slice, budget: Bytes, more: &str) {
    let slice = slice.folder.file_name().unwrap().to_str().unwrap();
    let settings = format!(
        "[host]\nbudget = \"{budget}\"\nreserve = \"64MiB\"\n[policy]\nname = \"global\"\n\
         [containers]\ncgroups = [\"{slice}/*\"]\n[defaults]\nfloor = \"64MiB\"\n{more}"
    );
    testbed.configure_for(qmp, "tick = \"250ms\"", &settings);
}

fn allocation(status: &StatusReply, name: &str) -> Bytes {
    Bytes::new(guest(status, name).and_then(|it| it.allocation_bytes).unwrap_or_default())
}

/// Waits until the busy container may have more than it holds, and the others have the rest of the
/// budget.
fn wait_shared(daemon: &Daemon<'_>, names: &[&str], budget: Bytes) -> StatusReply {
    wait_for("the budget to be shared", || {
        let status = daemon.status()?;
        let sum: Bytes = names.iter().map(|name| allocation(&status, name)).sum();
        let busy = allocation(&status, "busy");
        let has_enough = busy >= Bytes::mib(HELD_MIB + 20);
        (has_enough && sum <= budget).then_some(status)
    })
}

#[test]
fn containers_share_a_budget_and_outlive_the_daemon() {
    let testbed = Testbed::new();
    let Some(slice) = slice(&testbed, "ballast-pair.slice") else { return };
    wait_for("the busy one to be full", || {
        (slice.holds("busy") >= Bytes::mib(HELD_MIB)).then_some(())
    });
    let budget = Bytes::mib(300);
    configure(&testbed, &testbed.path("qmp"), &slice, budget, "");
    let daemon = testbed.start();
    wait_shared(&daemon, &["busy", "idle"], budget);
    let high = |name: &str| slice.amount(name, "memory.high");
    assert!(high("busy") >= Some(Bytes::mib(HELD_MIB)), "{:?}", high("busy"));
    assert!(high("idle") <= Some(budget - Bytes::mib(HELD_MIB)), "{:?}", high("idle"));
    assert!(slice.holds("busy") >= Bytes::mib(HELD_MIB), "nothing was taken of what it uses");
    wait_for("its floor to be protected", || {
        (slice.amount("idle", "memory.low") == Some(Bytes::mib(64))).then_some(())
    });
    let (code, output, error) = testbed.ballast(&["explain", "idle"]);
    assert_eq!(code, Some(0), "{error}");
    eprintln!("{output}");

    daemon.kill();
    let daemon = testbed.start();
    let status = wait_shared(&daemon, &["busy", "idle"], budget);
    let most = guest(&status, "idle").and_then(|it| it.ceiling_bytes).map(Bytes::new);
    assert_eq!(most, Some(MOST), "a killed daemon's limit is not taken for the operator's");

    // If the budget suffices for all, each may have all that its operator permits.
    assert!(daemon.stop().success());
    configure(&testbed, &testbed.path("qmp"), &slice, Bytes::gib(1), "");
    let daemon = testbed.start();
    wait_for("the limits to be lifted", || {
        (high("busy"), high("idle")).eq(&(None, None)).then_some(())
    });
    assert_eq!(slice.amount("idle", "memory.low"), Some(Bytes::ZERO));
    assert!(daemon.stop().success());
}

#[test]
fn containers_a_domain_and_a_plain_machine_share_a_budget() {
    let testbed = Testbed::new();
    let Some(slice) = slice(&testbed, "ballast-mixed.slice") else { return };
    let Some(domains) = Lab::boot_under_libvirt(vec![swapping("domain", MOST)]) else { return };
    let plain = Lab::boot(vec![swapping("plain", MOST)]);
    let budget = Bytes::mib(600);
    let socket = domains.run.folder().libvirt_socket();
    let libvirt = format!("[libvirt]\nenabled = true\nsocket = {socket:?}\n");
    configure(&testbed, plain.sockets(), &slice, budget, &libvirt);
    let daemon = testbed.start();
    let names = ["busy", "domain", "idle", "plain"];
    let status = wait_for("all to be seen", || {
        let status = daemon.status()?;
        names.iter().all(|name| guest(&status, name).is_some()).then_some(status)
    });
    assert_eq!(status.guests.len(), names.len());
    wait_shared(&daemon, &names, budget);
    assert!(slice.holds("busy") >= Bytes::mib(HELD_MIB));
    let (code, output, error) = testbed.ballast(&["status"]);
    assert_eq!(code, Some(0), "{error}");
    eprintln!("{output}");
    for name in names {
        assert!(output.lines().any(|line| line.starts_with(name)), "{name} in {output}");
    }
    assert!(daemon.stop().success());
}
