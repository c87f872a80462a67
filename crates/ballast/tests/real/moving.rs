//! A real guest moves between two hosts, each with a daemon of its own, by the three roles.
//!
//! Idea: both hosts are on this machine. The source's guest gives memory because its daemon's
//! ceiling says so, the destination's memory is a reservation of its daemon, and two QEMUs copy.
//! The store is a text in memory. Between any two steps each role forgets all that it may forget,
//! and connects anew.
//!
//! Limits: one machine, so that its memory is not divided as that of two hosts would be.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_fleet::HostId;
use ballast_fleet_move::leader::{self, Wish};
use ballast_fleet_move::{
    Carried, CopyState, HostAction, HostView, MoveOrder, MoveRecord, Next, Phase, Process, Promise,
    Shrink, Term, WhyAbandoned, host_step,
};
use ballast_lab_host::GuestSpec;
use ballast_model::{Bytes, GuestChange, LinkDown, Timestamp};
use ballast_qmp::migration::{CopyLimits, GuestMigration, MigrationClient, Origin};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::harness::{Daemon, Ground, PATIENCE, guest, wait_for};
use crate::support::moved::Destination;
use crate::support::{Data, Lab, allocation, assert_unrefused, wait_guests};

const GUEST: &str = "moves";
const BOOT: Bytes = Bytes::mib(384);
/// What it is to hold when it is copied, and how exact a balloon is.
const SMALL: Bytes = Bytes::mib(256);
const SLACK: Bytes = Bytes::mib(10);
/// What its operator gave it on the source.
const SHARES: u32 = 1700;
const DATA_MIB: u64 = 48;
const TERM: Term = Term(1);
/// Most attempts at moving a guest whose kernel survives that (see [`Destination`]).
const MOVES_MAX: u32 = 4;
const LIMITS: CopyLimits =
    CopyLimits { bandwidth_per_s: Bytes::gib(4), downtime: Duration::from_millis(300) };

fn now() -> Timestamp {
    Timestamp::ZERO + SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// One host: its daemon, and its QEMU of the guest.
struct Host<'a> {
    id: HostId,
    ground: &'a Ground,
    daemon: Daemon<'a>,
    runtime: Runtime,
    /// A QMP socket of the guest here, if it is or was here.
    monitor: Option<PathBuf>,
    /// Noted durably: the hypervisor listens, and the guest was never started in it.
    is_listener: bool,
    destination: Option<Destination>,
    /// The process whose command line a listener takes over.
    pid: i32,
    folder: TempDir,
}

impl<'a> Host<'a> {
    fn new(id: &str, ground: &'a Ground, pid: i32, monitor: Option<PathBuf>) -> Host<'a> {
        Host {
            id: id.parse().unwrap(),
            ground,
            daemon: ground.start(),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            monitor,
            is_listener: false,
            destination: None,
            pid,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn ballast(&self, arguments: &[&str]) {
        let (code, out, err) = self.ground.ballast(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
    }

    /// `None`: there is no hypervisor.
    fn connect(&self) -> Option<MigrationClient> {
        let monitor = self.monitor.as_ref()?;
        wait_for("its QMP socket", || {
            match self.runtime.block_on(MigrationClient::connect(monitor, PATIENCE)) {
                Ok(client) => Some(Some(client)),
                Err(LinkDown::Refused) => Some(None),
                // Whoever looked last is still in its queue, or it is about to end.
                Err(_) => None,
            }
        })
    }

    fn process(&self) -> Process {
        let Some(mut client) = self.connect() else { return Process::Absent };
        let origin = Origin { is_listener: self.is_listener, began_copy: false };
        let Ok((found, _)) = self.runtime.block_on(client.look(origin)) else {
            return Process::Unknown;
        };
        match found {
            GuestMigration::Empty => Process::Absent,
            GuestMigration::Listens(address) => Process::Waiting(address),
            GuestMigration::Loaded => Process::Loaded,
            GuestMigration::Runs => Process::Runs(CopyState::Nothing),
            GuestMigration::Copies => Process::Runs(CopyState::Partly),
            GuestMigration::CopyFailed => Process::Runs(CopyState::Failed),
            GuestMigration::Left => Process::Left,
            GuestMigration::Paused => Process::Paused,
        }
    }

    fn promise(&self) -> Promise {
        let status = wait_for("the status", || self.daemon.status());
        let reserved = status.reservations.iter().find(|it| it.guest == GUEST);
        match reserved {
            Some(it) => Promise::Reserved {
                size: Bytes::new(it.size_bytes),
                is_ready: it.free_bytes >= it.size_bytes,
            },
            None if guest(&status, GUEST).is_some() => Promise::Entitled,
            None => Promise::Nothing,
        }
    }

    /// What is asked of the guest, as far as the daemon knows.
    fn shrink(&self) -> Option<Shrink> {
        let status = self.daemon.status()?;
        let to = Bytes::new(guest(&status, GUEST)?.ceiling_bytes?);
        let holds = allocation(&self.daemon, GUEST)?;
        (to < BOOT).then(|| Shrink { to, is_done: holds <= to.saturating_add(SLACK) })
    }

    fn shares(&self) -> Option<u32> {
        guest(&self.daemon.status()?, GUEST)?.shares
    }

    fn step(&mut self, record: Option<&MoveRecord>) -> Next {
        let limits = GuestChange { shares: self.shares(), ..GuestChange::default() };
        let carried = Carried { limits, ..Carried::default() };
        let next = host_step(
            record,
            &HostView {
                host: &self.id,
                now: now(),
                term: TERM,
                process: self.process(),
                promise: self.promise(),
                shrink: self.shrink(),
                is_taken_over: self.shares() == Some(SHARES),
                carried: &carried,
                ends_source: false,
            },
        );
        if let Next::Act(action) = &next {
            eprintln!("{}: {action:?}", self.id);
            self.act(action);
        }
        next
    }

    fn act(&mut self, action: &HostAction) {
        match action {
            HostAction::Reserve(size) => {
                self.ballast(&["reserve", &size.to_string(), "--for", GUEST]);
            }
            HostAction::Release => self.ballast(&["reserve", "--release", "--for", GUEST]),
            HostAction::Listen => self.listen(),
            HostAction::TakeOver(carried) => {
                wait_for("the guest that has come", || self.shares());
                self.ballast(&[
                    "set",
                    GUEST,
                    "--shares",
                    &carried.limits.shares.unwrap_or(1).to_string(),
                ]);
                wait_for("what it carried", || (self.shares()? == SHARES).then_some(()));
            }
            HostAction::Shrink(to) => self.set_ceiling(*to),
            HostAction::EndShrink => self.set_ceiling(BOOT),
            HostAction::Start => {
                self.is_listener = false;
                let mut client = self.connect().unwrap();
                self.runtime.block_on(client.start()).unwrap();
            }
            HostAction::Copy(to) => {
                let mut client = self.connect().unwrap();
                self.runtime.block_on(client.copy(*to, LIMITS)).unwrap();
            }
            HostAction::CancelCopy => {
                let mut client = self.connect().unwrap();
                self.runtime.block_on(client.cancel()).unwrap();
            }
            HostAction::Resume => {
                let mut client = self.connect().unwrap();
                self.runtime.block_on(client.start()).unwrap();
            }
            HostAction::End | HostAction::Quit => {
                if let Some(mut client) = self.connect() {
                    self.runtime.block_on(client.quit()).unwrap();
                }
                wait_for("the end of its hypervisor", || self.connect().is_none().then_some(()));
            }
        }
    }

    fn set_ceiling(&self, size: Bytes) {
        wait_for("the ceiling", || {
            let (code, out, err) =
                self.ground.ballast(&["set", GUEST, "--ceiling", &size.to_string()]);
            let status = self.daemon.status()?;
            // A guest that is gone is forgotten soon, and then nothing can be set.
            let Some(view) = guest(&status, GUEST) else { return Some(()) };
            assert_eq!(code, Some(0), "{out}{err}");
            (view.ceiling_bytes? == size.get()).then_some(())
        });
    }

    fn listen(&mut self) {
        if self.connect().is_none() {
            let qmp = self.ground.guest(GUEST);
            let destination = Destination::empty(self.pid, &qmp, self.folder.path());
            self.is_listener = true;
            self.monitor = Some(destination.second_qmp());
            self.destination = Some(destination);
        }
        let mut client = self.connect().unwrap();
        self.runtime.block_on(client.listen(IpAddr::V4(Ipv4Addr::LOCALHOST))).unwrap();
    }
}

/// Both hosts and the store.
struct Fleet<'a> {
    source: Host<'a>,
    destination: Host<'a>,
    record: Option<String>,
    phases: Vec<&'static str>,
}

impl<'a> Fleet<'a> {
    fn new(lab: &Lab, here: &'a Ground, there: &'a Ground) -> Fleet<'a> {
        let leaving = lab.guest(GUEST);
        let monitor = leaving.lab_qmp_socket().to_owned();
        let source = Host::new("source", here, leaving.pid(), Some(monitor));
        wait_guests(&source.daemon, 1);
        source.ballast(&["set", GUEST, "--shares", &SHARES.to_string()]);
        wait_for("its shares", || (source.shares()? == SHARES).then_some(()));
        let destination = Host::new("destination", there, leaving.pid(), None);
        wait_for("the destination", || destination.daemon.status());
        Fleet { source, destination, record: None, phases: Vec::new() }
    }

    fn record(&self) -> Option<MoveRecord> {
        self.record.as_ref().map(|json| MoveRecord::parse(json.as_bytes()).unwrap())
    }

    /// The store is this test's, so nobody else writes between a role's look and its write.
    fn put(&mut self, next: Next) {
        match next {
            Next::Write(record) => {
                if self.phases.last() != Some(&record.phase.code()) {
                    self.phases.push(record.phase.code());
                }
                self.record = Some(record.to_json());
            }
            Next::Remove => self.record = None,
            Next::Wait | Next::Act(_) => {}
        }
    }

    /// Each role looks once.
    fn turn(&mut self, wish: &Wish) {
        let next = leader::step(self.record().as_ref(), wish, TERM, now());
        self.put(next);
        let next = self.destination.step(self.record().as_ref());
        self.put(next);
        let next = self.source.step(self.record().as_ref());
        self.put(next);
        let runs = |host: &Host<'_>| matches!(host.process(), Process::Runs(_));
        assert!(!(runs(&self.source) && runs(&self.destination)), "{:?}", self.record);
    }

    fn order(&mut self) {
        self.turn(&Wish::Move(MoveOrder {
            guest: GUEST.parse().unwrap(),
            from: self.source.id.clone(),
            to: self.destination.id.clone(),
            ordered_at: now(),
            reserve: BOOT,
            shrink_to: Some(SMALL),
            shrink_until: now() + PATIENCE,
            due: now() + PATIENCE,
        }));
    }

    fn turn_until(&mut self, what: &str, reached: impl Fn(Option<&MoveRecord>) -> bool) {
        wait_for(what, || {
            if reached(self.record().as_ref()) {
                return Some(());
            }
            self.turn(&Wish::Settle);
            None
        });
    }
}

fn boot() -> (Lab, Data, Ground, Ground) {
    let lab = Lab::boot(vec![GuestSpec::new(GUEST.parse().unwrap(), BOOT)]);
    let data = lab.store_data(GUEST, DATA_MIB);
    let (here, there) = (Ground::new(), Ground::new());
    let settings = "[host]\nbudget = \"1GiB\"\n[policy]\nname = \"static\"\ninterval = \"500ms\"";
    here.configure_for(lab.sockets(), "tick = \"250ms\"", settings);
    there.configure("tick = \"250ms\"", settings);
    (lab, data, here, there)
}

#[test]
fn a_guest_moves_with_its_memory_and_bounds() {
    assert!((0..MOVES_MAX).any(|_| moves()), "its kernel died {MOVES_MAX} times");
}

/// Returns false if the guest's kernel is found to have died.
fn moves() -> bool {
    let (lab, data, here, there) = boot();
    let mut fleet = Fleet::new(&lab, &here, &there);
    fleet.order();
    let is_copying =
        |record: Option<&MoveRecord>| matches!(record.unwrap().phase, Phase::Copying { .. });
    fleet.turn_until("the copy", is_copying);
    let holds = allocation(&fleet.source.daemon, GUEST).unwrap();
    assert!(holds <= SMALL.saturating_add(SLACK), "copied with {holds}");
    fleet.turn_until("the end of the move", |record| record.is_none());
    let expected = ["ordered", "ready", "copying", "copied", "starting", "moved"];
    assert_eq!(fleet.phases, expected);
    assert_eq!(fleet.source.process(), Process::Absent);
    wait_guests(&fleet.source.daemon, 0);

    let there = &fleet.destination;
    let moved = there.destination.as_ref().unwrap();
    let is_running = || Some(guest(&there.daemon.status()?, GUEST)?.state.code == "running");
    wait_for("the guest to run", || is_running()?.then_some(()));
    if moved.has_kernel_died() {
        return false;
    }
    moved.assert_intact(&data);
    assert_eq!(there.shares(), Some(SHARES));
    assert_eq!(there.daemon.status().unwrap().reservations.len(), 0);
    for daemon in [&fleet.source.daemon, &there.daemon] {
        assert_unrefused(daemon);
    }
    true
}

/// All of the guest was copied, and its destination dies before it has said that it starts it.
#[test]
fn a_copied_guest_whose_destination_dies_runs_on() {
    let (lab, data, here, there) = boot();
    let mut fleet = Fleet::new(&lab, &here, &there);
    fleet.order();
    let is_copied =
        |record: Option<&MoveRecord>| matches!(record.unwrap().phase, Phase::Copied { .. });
    fleet.turn_until("the copy", is_copied);
    assert_eq!(fleet.source.process(), Process::Left);
    assert_eq!(fleet.destination.process(), Process::Loaded);
    fleet.destination.destination.take().unwrap().kill();

    let is_closed = |record: Option<&MoveRecord>| record.is_some_and(|it| it.is_closed);
    fleet.turn_until("the end of the move", is_closed);
    let why = WhyAbandoned::ListenerGone;
    assert_eq!(fleet.record().unwrap().phase, Phase::Abandoned { why });
    fleet.turn_until("the record to go", |record| record.is_none());
    assert_eq!(fleet.source.process(), Process::Runs(CopyState::Nothing));
    assert_eq!(fleet.source.shrink(), None);
    wait_guests(&fleet.destination.daemon, 0);
    assert_eq!(fleet.destination.daemon.status().unwrap().reservations.len(), 0);
    lab.assert_intact(&data);
    for host in [&fleet.source, &fleet.destination] {
        assert_unrefused(&host.daemon);
    }
}
