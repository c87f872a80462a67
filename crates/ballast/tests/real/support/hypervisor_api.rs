//! A server of Cloud Hypervisor's or Firecracker's API in front of a real guest of QEMU.
//!
//! Idea: neither program is available here. To the daemon, such a hypervisor is a process that
//! listens on the API's socket, holds the guest's memory, and passes the guest's vsock on to a Unix
//! socket. QEMU does all three, under the program's name. The server is the one that the
//! hypervisor's own tests compare with the published API, but here its guest is real: for each call
//! it asks QMP what the balloon holds and reports, and it passes requests on to the real balloon.
//! The guest's agent connects by the guest's real vsock device to this host's kernel, and from
//! there, as with the real program, to the daemon's socket for that guest. If this host's kernel
//! serves no vsock, the agent uses a virtio-serial port instead.
//!
//! Limits: one hypervisor's guests at a time, because all agents connect to one port of the host; a
//! connection by a virtio-serial port is made once. Memory is not plugged.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ballast_agent_proto::wire::VSOCK_PORT;
use ballast_cloud_hypervisor::testing::Machine as CloudHypervisor;
use ballast_firecracker::testing::Machine as Firecracker;
use ballast_lab_host::Guest;
use ballast_model::Bytes;
use ballast_rest::testing::{ReceivedRequest, Reply, RestServer};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, VsockAddr, bind, getpeername, listen, socket,
};
use rustix::net::{SocketFlags, accept_with};
use serde_json::{Value, json};

use super::monitor::Monitor;
use super::qemu_socket::{connected_socket, taken_over};

/// The guest's balloon device.
const BALLOON: &str = "/machine/peripheral/balloon0";
/// Figures of a guest's balloon: QEMU's names, and Firecracker's.
const FIGURES: [(&str, &str); 8] = [
    ("stat-swap-in", "swap_in"),
    ("stat-swap-out", "swap_out"),
    ("stat-major-faults", "major_faults"),
    ("stat-minor-faults", "minor_faults"),
    ("stat-free-memory", "free_memory"),
    ("stat-total-memory", "total_memory"),
    ("stat-available-memory", "available_memory"),
    ("stat-disk-caches", "disk_caches"),
];

/// The hypervisor whose API is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hypervisor {
    CloudHypervisor,
    Firecracker,
}

impl Hypervisor {
    /// Its table in the daemon's configuration.
    pub fn table(self) -> &'static str {
        match self {
            Hypervisor::CloudHypervisor => "cloud_hypervisor",
            Hypervisor::Firecracker => "firecracker",
        }
    }

    /// Arguments that give QEMU's process the program's name.
    pub fn qemu_arguments(self) -> Vec<String> {
        let name = match self {
            Hypervisor::CloudHypervisor => "cloud-hypervisor",
            Hypervisor::Firecracker => "firecracker",
        };
        vec!["-name".to_owned(), format!("process={name}")]
    }
}

/// The server of one guest's API.
pub struct HypervisorApi {
    pid: i32,
    monitor: Arc<Mutex<Monitor>>,
    vsock: PathBuf,
    _device: UnixListener,
    boot: Bytes,
    _first: UnixStream,
    _server: RestServer,
}

impl HypervisorApi {
    /// Serves the API of `guest`, which has `boot` as its boot memory and the name `name`, in
    /// `folder`. Needs a tokio runtime.
    pub fn start(
        hypervisor: Hypervisor,
        guest: &Guest,
        name: &str,
        boot: Bytes,
        folder: &Path,
    ) -> HypervisorApi {
        let (api, vsock) =
            (folder.join(format!("{name}.sock")), folder.join(format!("{name}.vsock")));
        // The program's own, by which the daemon knows that it may have one there.
        let device = UnixListener::bind(&vsock).unwrap();
        let pid = guest.pid();
        let mut monitor = Monitor::connect(guest.qmp_socket());
        add_socket(&mut monitor, "api", &api, true);
        let (listener, first) = taken_over(pid, &api, &mut monitor);
        let period =
            json!({ "path": BALLOON, "property": "guest-stats-polling-interval", "value": 1 });
        monitor.run("qom-set", &period);
        let monitor = Arc::new(Mutex::new(monitor));
        let mut program = Program::new(hypervisor, pid, boot, &vsock);
        let asking = Arc::clone(&monitor);
        let server = RestServer::serve(&api, listener, move |request| {
            program.answer(request, boot, &mut asking.lock().unwrap())
        });
        HypervisorApi { pid, monitor, vsock, _device: device, boot, _first: first, _server: server }
    }

    /// What the guest holds, by QEMU.
    pub fn held(&self) -> Bytes {
        self.boot.saturating_sub(ballooned(self.boot, &mut self.monitor.lock().unwrap()))
    }

    /// Makes QEMU connect to the daemon's socket for this guest's agent, and returns a copy of that
    /// connection.
    fn connect_to_daemon(&self) -> Option<UnixStream> {
        let mut path = self.vsock.as_os_str().to_owned();
        path.push(format!("_{VSOCK_PORT}"));
        let path = PathBuf::from(path);
        if !path.exists() {
            return None;
        }
        let mut monitor = self.monitor.lock().unwrap();
        add_socket(&mut monitor, "agent-by-vsock", &path, false);
        let stream = connected_socket(self.pid, path.file_name()?.to_str()?);
        // QEMU closes its end; only the copy is left.
        monitor.run("chardev-remove", &json!({ "id": "agent-by-vsock" }));
        stream
    }
}

/// Makes QEMU listen at, or connect to, a Unix socket.
fn add_socket(monitor: &mut Monitor, id: &str, path: &Path, is_server: bool) {
    let mut data = json!({
        "addr": { "type": "unix", "data": { "path": path } }, "server": is_server,
    });
    if is_server {
        data["wait"] = json!(false);
    }
    monitor.run("chardev-add", &json!({ "id": id, "backend": { "type": "socket", "data": data } }));
}

/// What the guest's balloon has taken.
fn ballooned(boot: Bytes, monitor: &mut Monitor) -> Bytes {
    let actual = monitor.run("query-balloon", &json!({}))["actual"].as_u64().unwrap();
    boot.saturating_sub(Bytes::new(actual))
}

/// The server of the hypervisor's own tests, without a guest of its own.
enum Program {
    CloudHypervisor(CloudHypervisor),
    Firecracker(Firecracker),
}

impl Program {
    fn new(hypervisor: Hypervisor, pid: i32, boot: Bytes, vsock: &Path) -> Program {
        match hypervisor {
            Hypervisor::CloudHypervisor => {
                let mut machine = CloudHypervisor::new();
                let config = machine.config.as_mut().unwrap();
                config["memory"]["size"] = json!(boot.get());
                config["balloon"]["deflate_on_oom"] = json!(false);
                config["vsock"]["socket"] = json!(vsock);
                (machine.pid, machine.obeys) = (pid.cast_unsigned(), false);
                Program::CloudHypervisor(machine)
            }
            Hypervisor::Firecracker => {
                let mut machine = Firecracker::new(1);
                machine.config["machine-config"]["mem_size_mib"] = json!(boot.get() >> 20);
                machine.config["vsock"]["uds_path"] = json!(vsock);
                (machine.reported, machine.obeys) = (json!({}), false);
                Program::Firecracker(machine)
            }
        }
    }

    /// Answers a call with what the guest holds and reports, and passes a new target on to it.
    fn answer(&mut self, request: &ReceivedRequest, boot: Bytes, monitor: &mut Monitor) -> Reply {
        let held_back = ballooned(boot, monitor);
        let (reply, wanted) = match self {
            Program::CloudHypervisor(machine) => {
                machine.ballooned = held_back.get();
                let reply = machine.answer(request);
                (reply, machine.config.as_ref().unwrap()["balloon"]["size"].as_u64().unwrap())
            }
            Program::Firecracker(machine) => {
                machine.ballooned = held_back.to_pages();
                machine.reported = reported(monitor);
                (machine.answer(request), machine.target << 20)
            }
        };
        let is_done = matches!(reply, Reply::Json(200..300, _));
        if request.method != "GET" && is_done {
            monitor.run("balloon", &json!({ "value": boot.get() - wanted }));
        }
        reply
    }
}

/// What the guest's balloon last reported, by Firecracker's names.
fn reported(monitor: &mut Monitor) -> Value {
    let statistics = monitor.run("qom-get", &json!({ "path": BALLOON, "property": "guest-stats" }));
    let mut reported = json!({});
    for (name, field) in FIGURES {
        // QEMU has the largest number for figures that the guest does not report.
        let figure = statistics["stats"][name].as_u64().filter(|figure| *figure < u64::MAX);
        if let Some(figure) = figure {
            reported[field] = json!(figure);
        }
    }
    reported
}

/// Passes connections of guests to the host's kernel by vsock on to the daemon's sockets, as their
/// hypervisors would. `guests` is by context id. Runs as long as this process.
pub fn pass_vsock_on(guests: BTreeMap<u32, Arc<HypervisorApi>>) {
    let kind = SockType::Stream;
    let listener = socket(AddressFamily::Vsock, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &VsockAddr::new(u32::MAX, VSOCK_PORT)).unwrap();
    listen(&listener, Backlog::new(16).unwrap()).unwrap();
    thread::spawn(move || {
        loop {
            let Ok(guest) = accept_with(&listener, SocketFlags::CLOEXEC) else { return };
            let cid = getpeername::<VsockAddr>(guest.as_raw_fd()).unwrap().cid();
            if let Some(daemon) = guests.get(&cid).and_then(|api| api.connect_to_daemon()) {
                join(UnixStream::from(guest), daemon);
            }
        }
    });
}

/// The same for a guest without a vsock device: connects the agent's port, with the socket `port`,
/// to the daemon's socket for that guest.
pub fn pass_port_on(api: Arc<HypervisorApi>, port: &Path) {
    let agent = UnixStream::connect(port).unwrap();
    thread::spawn(move || {
        loop {
            if let Some(daemon) = api.connect_to_daemon() {
                return join(agent, daemon);
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
}

/// Copies bytes both ways until one end closes.
fn join(guest: UnixStream, daemon: UnixStream) {
    daemon.set_nonblocking(false).unwrap();
    let ends = (guest.try_clone().unwrap(), daemon.try_clone().unwrap());
    thread::spawn(move || pass(guest, daemon));
    thread::spawn(move || pass(ends.1, ends.0));
}

fn pass(mut from: UnixStream, mut to: UnixStream) {
    let mut chunk = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut chunk) {
        if to.write_all(&chunk[..len]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
