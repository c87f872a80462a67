//! Guests move between stand-ins of hosts, in virtual time, through failures at every step.

use std::path::PathBuf;
use std::sync::Arc;

use ballast_fleet_move::{MoveRecord, Phase, Term};
use ballast_fleet_proto::{
    Coordinator, FleetKey, FleetView, KeyWrite, MemoryCoordinator, PlanRecord,
};
use ballast_model::{Bytes, GuestId, Timestamp};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::machine::{BANDWIDTH, Machine, Network, WRITES};
use super::memory::in_virtual_time;
use super::{local, s};
use crate::carry::MoveExecutor;
use crate::commands::orders::{forget_move, write};
use crate::commands::status;
use crate::member::Member;
use crate::metrics::FleetMetrics;

const MOVES: &str = "mode = \"move\"\n[qemu]\nqmp = \"/run/{guest}\"\n\
                     start = [\"/bin/true\", \"{guest}\"]\nlisten = \"192.0.2.1\"\n[planner]\n\
                     patience = \"5s\"";
/// The guest that the plan for these hosts moves.
const GUEST: &str = "cache";
/// The shares that its operator gave it.
const SHARES: u32 = 1700;

/// Two hosts: `a` has less than its guests' floors, `b` has room.
struct World {
    coordinator: MemoryCoordinator,
    machines: [Machine; 2],
    folder: TempDir,
    metrics: Arc<FleetMetrics>,
}

impl World {
    fn new(coordinator: MemoryCoordinator) -> World {
        let network = Network::default();
        let short = Machine::new(4096, &network, 1);
        short.guest("cache", 2048, 3072, SHARES);
        short.guest("db", 3072, 4096, 1);
        let roomy = Machine::new(16384, &network, 2);
        roomy.guest("web", 512, 1024, 1);
        World {
            coordinator,
            machines: [short, roomy],
            folder: tempfile::tempdir().unwrap(),
            metrics: Arc::default(),
        }
    }

    fn notes(&self, host: &str) -> PathBuf {
        self.folder.path().join(host)
    }

    /// Runs the program of a host until its task is aborted, which is a crash.
    fn program(&self, at: usize, more: &str) -> JoinHandle<()> {
        let name = ["a", "b"][at];
        self.program_on(&self.machines[at], name, name, more)
    }

    /// Runs the program of a host that calls itself `name`, on a machine of this identity, which
    /// also names its notes.
    fn program_on(
        &self,
        machine: &Machine,
        identity: &str,
        name: &str,
        more: &str,
    ) -> JoinHandle<()> {
        let (coordinator, machine) = (self.coordinator.clone(), machine.clone());
        let (config, notes) = (local(name, more), self.notes(identity));
        let (metrics, identity) = (self.metrics.clone(), identity.to_owned());
        tokio::task::spawn_local(async move {
            let member = Member::new(coordinator, machine.clone(), config, identity);
            let member = member.with_metrics(metrics);
            let executor = MoveExecutor::new(&member, machine, &notes).unwrap();
            tokio::select! {
                () = member.run_until(std::future::pending()) => {}
                () = executor.run() => {}
            }
        })
    }

    /// Leaves the note of an earlier move of the guest on a machine.
    fn leave_note(&self, identity: &str) {
        let note = json!({
            "version": 1, "order": null, "reserved": null, "is_refused": false,
            "is_listener": false, "is_taken_over": false, "to_take_over": null,
            "shrink": {"to_bytes": 1, "set_bytes": null, "before_bytes": 2},
            "began_copy": false, "carried": null,
        });
        std::fs::create_dir_all(self.notes(identity)).unwrap();
        let file = self.notes(identity).join(format!("{GUEST}.json"));
        std::fs::write(file, note.to_string()).unwrap();
    }

    async fn view(&self) -> FleetView {
        FleetView::read(&self.coordinator, &local("x", "").keys).await.unwrap()
    }

    async fn plan(&self) -> PlanRecord {
        self.view().await.plan().expect("a plan").clone().unwrap()
    }

    /// The phase of the guest's move.
    async fn phase(&self) -> Option<&'static str> {
        let view = self.view().await;
        let entry = view.move_of(&GUEST.parse().unwrap())?;
        Some(entry.record.as_ref().unwrap().phase.code())
    }

    /// Lets time pass until `what` holds. Meanwhile the guest never runs twice, and never runs with
    /// less than it has written before.
    async fn until(&self, what: impl AsyncFn(&World) -> bool, seconds: u64) {
        let mut most = 0;
        for _ in 0..seconds * 10 {
            if what(self).await {
                return;
            }
            self.assert_runs_once(&mut most);
            sleep(std::time::Duration::from_millis(100)).await;
        }
        let left: Vec<_> = self.machines.iter().map(Machine::leftovers).collect();
        let notes = ["a", "b"].map(|host| {
            let files = std::fs::read_dir(self.notes(host)).into_iter().flatten().flatten();
            files.map(|it| std::fs::read_to_string(it.path()).unwrap()).collect::<Vec<_>>()
        });
        panic!("not within {seconds} s: {:?}, {left:?}, {notes:?}", self.phase().await);
    }

    async fn until_phase(&self, phase: &str, seconds: u64) {
        self.until(async |world| world.phase().await == Some(phase), seconds).await;
    }

    /// Lets time pass until the guest runs at `host`.
    async fn until_at(&self, host: &str, seconds: u64) {
        self.until(async |world| world.is_at() == host, seconds).await;
    }

    fn assert_runs_once(&self, most: &mut u64) {
        let running: Vec<u64> = self.machines.iter().filter_map(|it| it.running(GUEST)).collect();
        assert!(running.len() <= 1, "it runs twice");
        if let [written] = running[..] {
            assert!(written >= *most, "it has forgotten what it wrote");
            *most = written;
        }
    }

    /// Orders that the guest goes back from `b` to `a`, as the present leader would.
    async fn order_back(&self, size: Bytes) {
        let guest: GuestId = GUEST.parse().unwrap();
        let leadership = self.view().await.leader().map(|(_, it)| it).unwrap();
        let never = Timestamp::from_millis(u64::MAX / 4);
        let order = MoveRecord {
            guest: guest.clone(),
            from: "b".parse().unwrap(),
            to: "a".parse().unwrap(),
            term: Term(leadership.0),
            ordered_at: Timestamp::from_millis(1),
            reserve: size,
            shrink_to: Some(size),
            shrink_until: never,
            due: never,
            phase: Phase::Ordered,
            is_closed: false,
        };
        let key = local("a", "").keys.key(&FleetKey::Move(guest));
        let value = order.to_json().into_bytes();
        let write = KeyWrite::Put { key, value, lease: None };
        self.coordinator.compare_and_put(&[], vec![write]).await.unwrap();
    }

    async fn until_over(&self) {
        let is_over = async |world: &World| {
            let is_clean = world.machines.iter().all(|it| it.leftovers().is_empty());
            world.phase().await.is_none() && is_clean && world.has_no_notes()
        };
        self.until(is_over, 900).await;
    }

    fn has_no_notes(&self) -> bool {
        ["a", "b"]
            .iter()
            .all(|host| std::fs::read_dir(self.notes(host)).is_ok_and(|files| files.count() == 0))
    }

    fn is_at(&self) -> &'static str {
        let places = self.machines.iter().map(|it| it.running(GUEST).is_some());
        match places.collect::<Vec<_>>()[..] {
            [true, false] => "a",
            [false, true] => "b",
            _ => "nowhere",
        }
    }
}

fn run(test: impl AsyncFnOnce(World)) {
    in_virtual_time(async |coordinator| test(World::new(coordinator)).await);
}

#[test]
fn a_short_host_is_relieved_by_a_move() {
    run(async |world| {
        let _programs = [world.program(0, MOVES), world.program(1, MOVES)];
        world.until_at("b", 120).await;
        world.until_over().await;
        assert!(world.is_at() == "b" && world.machines[0].running("db").is_some());
        let metrics = world.metrics.encode().unwrap();
        assert!(metrics.contains("moves_ended_total{result=\"moved\"} 1\n"), "{metrics}");
        assert!(!metrics.contains("copied_bytes_total 0\n"), "{metrics}");
        assert_eq!(world.machines[1].shares(GUEST), Some(SHARES));
        sleep(s(30)).await;
        let plan = world.plan().await;
        assert!(plan.migrations.is_empty() && plan.unmet.is_empty(), "{plan:?}");
        let view = world.view().await;
        let (snapshot, _) = view.snapshot(ballast_model::Timestamp::from_millis(u64::MAX / 4));
        let [here, _] = snapshot.hosts() else { panic!() };
        assert_eq!(here.bandwidth_per_s, BANDWIDTH, "as of the copy");
        assert_eq!(here.guests[0].dirty_per_s, WRITES);
        let there = snapshot.hosts().iter().find(|host| host.id.as_str() == "b").unwrap();
        assert_eq!(there.guests.len(), 2);
        assert!(view.past(&GUEST.parse().unwrap()).is_some(), "the move is noted");
    });
}

#[test]
fn hosts_in_mode_advise_get_no_orders() {
    for modes in [["", MOVES], [MOVES, ""], ["", ""]] {
        run(async |world| {
            let _programs = [world.program(0, modes[0]), world.program(1, modes[1])];
            sleep(s(90)).await;
            assert_eq!((world.is_at(), world.phase().await), ("a", None));
            let plan = world.plan().await;
            assert!(plan.migrations.iter().all(|it| it.by_hand), "{plan:?}");
            assert_eq!(plan.migrations.len(), 1);
        });
    }
}

#[test]
fn a_leader_in_mode_advise_names_hosts_in_move() {
    run(async |world| {
        let (coordinator, daemon) = (world.coordinator.clone(), world.machines[0].clone());
        let leader = Member::new(coordinator, daemon, local("a", ""), "a".to_owned());
        let seen = async {
            sleep(s(15)).await;
            let alone = status::fleet_status(&local("a", ""), &world.view().await);
            assert_eq!((alone.without_orders, leader.status_log.last("mode")), (vec![], None));
            let _other = world.program(1, MOVES);
            sleep(s(30)).await;
            world.view().await
        };
        let seen = tokio::select! {
            biased;
            () = leader.run_until(std::future::pending()) => unreachable!(),
            seen = seen => seen,
        };
        let shown = status::fleet_status(&local("a", ""), &seen);
        assert_eq!(
            (shown.leader.as_deref(), &shown.without_orders[..]),
            (Some("a"), &["b".to_owned()][..])
        );
        let text = status::render(&shown, None);
        assert!(text.contains("the leader is in mode `advise`, but b in mode `move`"), "{text}");
        let logged = leader.status_log.last("mode").unwrap();
        assert!(logged.contains("`leads = false` here"), "{logged}");
    });
}

#[test]
fn a_new_leader_orders_nothing_before_all_can_have_registered() {
    run(async |world| {
        let _programs = [world.program(0, MOVES), world.program(1, MOVES)];
        sleep(s(9)).await;
        assert_eq!(world.phase().await, None);
        let is_ordered = async |world: &World| world.phase().await.is_some();
        world.until(is_ordered, 15).await;
    });
}

/// Either program dies in each phase of a move and comes back.
#[test]
fn a_program_that_dies_in_any_phase_goes_on() {
    for phase in ["ordered", "ready", "copying", "copied", "starting", "moved"] {
        for dies in [0, 1] {
            run(async |world| {
                let programs = [world.program(0, MOVES), world.program(1, MOVES)];
                world.until_phase(phase, 120).await;
                programs[dies].abort();
                sleep(s(3)).await;
                let _again = world.program(dies, MOVES);
                world.until_over().await;
                assert_ne!(world.is_at(), "nowhere", "{phase} {dies}");
            });
        }
    }
}

/// One host or both are restarted in mode `advise`, in each phase of a move.
#[test]
fn back_in_mode_advise_begun_moves_are_finished() {
    let advises = MOVES.replace("mode = \"move\"\n", "");
    for phase in ["ordered", "ready", "copying", "copied", "starting", "moved"] {
        for switched in [&[0][..], &[1], &[0, 1]] {
            run(async |world| {
                let programs = [world.program(0, MOVES), world.program(1, MOVES)];
                world.until_phase(phase, 120).await;
                switched.iter().for_each(|&host| programs[host].abort());
                sleep(s(3)).await;
                let _again: Vec<_> =
                    switched.iter().map(|&host| world.program(host, &advises)).collect();
                world.until_over().await;
                let place = world.is_at();
                assert_ne!(place, "nowhere", "{phase} {switched:?}");
                let is_abandoned = matches!(phase, "ordered" | "ready");
                assert!(place == "a" || switched.len() < 2 || !is_abandoned, "{phase}");
                sleep(s(90)).await;
                assert_eq!((world.is_at(), world.phase().await), (place, None));
            });
        }
    }
}

#[test]
fn another_leader_finishes_what_a_dead_one_has_ordered() {
    run(async |world| {
        let first = world.program(0, MOVES);
        sleep(s(5)).await;
        let _second = world.program(1, MOVES);
        world.until_phase("copying", 120).await;
        let before = world.view().await.leader().map(|(host, it)| (host.to_owned(), it)).unwrap();
        assert_eq!(before.0, "a");
        first.abort();
        sleep(s(12)).await;
        let after = world.view().await.leader().map(|(host, it)| (host.to_owned(), it)).unwrap();
        assert!(after.0 == "b" && after.1 > before.1);
        // The dead program's hypervisor went on copying; the program comes back and does not lead.
        let _again = world.program(0, MOVES);
        world.until_over().await;
        assert_eq!(world.is_at(), "b");
    });
}

#[test]
fn without_store_a_copy_is_cancelled_and_made_later() {
    run(async |world| {
        // Otherwise that guest would be moved meanwhile.
        let others_stay = format!("{MOVES}\n[guests.db]\nstays = true");
        let _programs = [world.program(0, &others_stay), world.program(1, MOVES)];
        world.until_phase("copying", 120).await;
        sleep(s(1)).await;
        world.coordinator.set_down(true);
        sleep(s(60)).await;
        assert_eq!(world.is_at(), "a", "it runs on where it was");
        world.coordinator.set_down(false);
        world.until_over().await;
        assert_eq!(world.is_at(), "a", "it rests after a failure");
        world.until_at("b", 1800).await;
    });
}

/// It cannot register, as its daemon is silent. It has no such guest, and a note of an earlier one.
#[test]
fn a_second_machine_of_a_name_abandons_nothing() {
    run(async |world| {
        let other = Machine::new(4096, &Network::default(), 3);
        other.set_silent(true);
        world.leave_note("c");
        let _other = world.program_on(&other, "c", "a", MOVES);
        let _programs = [world.program(0, MOVES), world.program(1, MOVES)];
        world.until_at("b", 120).await;
        world.until_over().await;
    });
}

/// The destination is cut off while the guest arrives, and is back later.
#[test]
fn a_machine_that_takes_over_a_name_loses_no_guest() {
    run(async |world| {
        // Otherwise that guest would be moved to the other machine.
        let others_stay = format!("{MOVES}\n[guests.db]\nstays = true");
        let _source = world.program(0, &others_stay);
        let destination = world.program(1, MOVES);
        world.until_phase("starting", 120).await;
        destination.abort();
        let other = Machine::new(16384, &Network::default(), 3);
        world.leave_note("c");
        let stranger = world.program_on(&other, "c", "b", MOVES);
        sleep(s(60)).await;
        assert_eq!(world.phase().await, Some("starting"), "nobody knows");
        stranger.abort();
        let _again = world.program(1, MOVES);
        world.until_over().await;
        assert_eq!(world.is_at(), "b");
        assert!(other.leftovers().is_empty());
    });
}

/// The source is killed for ever while it has a copy of the guest, which runs at the destination.
#[test]
fn a_finished_move_is_forgotten_once_its_source_is_gone() {
    run(async |world| {
        let source = world.program(0, MOVES);
        let _destination = world.program(1, MOVES);
        let forget = async |world: &World| {
            let guest = GUEST.parse().unwrap();
            forget_move(&world.coordinator, &local("b", ""), &guest).await
        };
        for phase in ["ordered", "ready", "copying", "copied", "starting"] {
            world.until_phase(phase, 120).await;
            let why = forget(&world).await.unwrap_err().to_string();
            assert!(why.contains(&format!("is in phase `{phase}`: ")), "{why}");
        }
        world.until_phase("moved", 60).await;
        let why = forget(&world).await.unwrap_err().to_string();
        assert!(why.starts_with("a is registered"), "{why}");
        source.abort();
        sleep(s(30)).await;
        assert_eq!(world.phase().await, Some("moved"), "nobody closes it");
        let said = forget(&world).await.unwrap();
        assert_eq!(said, "removed the record of cache, which said that it has moved from a to b");
        assert!(world.view().await.past(&GUEST.parse().unwrap()).is_some(), "it rests");
        assert_eq!(world.phase().await, None);
        sleep(s(30)).await;
        assert_eq!(world.is_at(), "b");
        let why = forget(&world).await.unwrap_err().to_string();
        assert!(why.starts_with("no move of cache"), "{why}");
    });
}

#[test]
fn a_pause_cancels_what_can_be_cancelled() {
    run(async |world| {
        let _programs = [world.program(0, MOVES), world.program(1, MOVES)];
        world.until_phase("copying", 120).await;
        write(&world.coordinator, &local("a", ""), FleetKey::Pause, true).await.unwrap();
        sleep(s(40)).await;
        world.until_over().await;
        assert_ne!(world.is_at(), "nowhere");
    });
}

#[test]
fn a_destination_that_dies_with_its_copy_leaves_the_guest() {
    run(async |world| {
        let _programs = [world.program(0, MOVES), world.program(1, MOVES)];
        world.until_phase("copying", 120).await;
        world.machines[1].kill(GUEST);
        world.until_over().await;
        assert_eq!(world.is_at(), "a");
        assert_eq!(world.machines[0].shares(GUEST), Some(SHARES));
    });
}

/// The move is abandoned, so the guest stays. Its ceiling was set by command, by the configuration,
/// or by nobody; a daemon of an earlier version cannot unset one.
#[test]
fn a_move_sets_no_ceiling_that_nobody_has_set() {
    let (large, all) = (Some(Bytes::gib(4)), Some(Bytes::mib(3072)));
    for (set, configured, is_early, left) in [
        (large, None, false, large),
        (None, large, false, None),
        (None, None, false, None),
        (None, large, true, large),
        (None, None, true, all),
    ] {
        run(async |world| {
            let source = &world.machines[0];
            source.set_modest(GUEST, true);
            source.set_ceilings(GUEST, set, configured);
            if is_early {
                source.set_early();
            }
            let _programs = [world.program(0, MOVES), world.program(1, MOVES)];
            world.until_phase("copying", 120).await;
            assert_eq!(source.ceiling_set(GUEST), Some(Bytes::mib(2048)));
            world.machines[1].kill(GUEST);
            world.until_over().await;
            assert_eq!((world.is_at(), source.ceiling_set(GUEST)), ("a", left));
        });
    }
}

/// From `a` to `b`, where the source lowers its ceiling, and back. In between no host has it.
#[test]
fn a_guest_that_comes_back_finds_no_lowered_ceiling() {
    for set in [None, Some(Bytes::gib(4))] {
        run(async |world| {
            let [source, destination] = &world.machines;
            source.set_modest(GUEST, true);
            source.set_ceilings(GUEST, set, None);
            let _programs = [world.program(0, MOVES), world.program(1, MOVES)];
            world.until_at("b", 120).await;
            world.until_over().await;
            assert_eq!(source.ceiling_left(GUEST), Some(set));
            assert_eq!(destination.ceiling_set(GUEST), set, "it came along");
            source.kill("db");
            world.order_back(Bytes::mib(2048)).await;
            world.until_at("a", 120).await;
            world.until_over().await;
            assert_eq!(source.ceiling_set(GUEST), set);
            assert_eq!(destination.ceiling_left(GUEST), Some(set));
        });
    }
}

#[test]
fn a_guest_that_gives_nothing_is_not_copied() {
    run(async |world| {
        world.machines[0].set_modest(GUEST, false);
        let others_stay = format!("{MOVES}\n[guests.db]\nstays = true");
        let _programs = [world.program(0, &others_stay), world.program(1, MOVES)];
        world.until_phase("ready", 120).await;
        world.until_over().await;
        assert_eq!(world.is_at(), "a");
        let metrics = world.metrics.encode().unwrap();
        assert!(metrics.contains("moves_ended_total{result=\"abandoned\"} 1\n"), "{metrics}");
        assert!(metrics.contains("copied_bytes_total 0\n"), "{metrics}");
    });
}

#[test]
fn a_silent_or_busy_daemon_holds_no_guest_up() {
    let all: [fn(&Machine, bool); 2] = [Machine::set_silent, Machine::set_busy];
    for set in all {
        run(async |world| {
            let _programs = [world.program(0, MOVES), world.program(1, MOVES)];
            world.until_phase("copied", 120).await;
            set(&world.machines[1], true);
            world.until_at("b", 10).await;
            set(&world.machines[1], false);
            let counts = async |world: &World| world.machines[1].shares(GUEST) == Some(SHARES);
            world.until(counts, 60).await;
            world.until_over().await;
        });
    }
}

/// The destination can note nothing from the copy on. Its program goes on, or dies meanwhile.
#[test]
fn a_full_disk_holds_no_guest_up_that_arrived() {
    for dies in [false, true] {
        run(async |world| {
            let _source = world.program(0, MOVES);
            let destination = world.program(1, MOVES);
            world.until_phase("copying", 120).await;
            let (notes, aside) = (world.notes("b"), world.folder.path().join("aside"));
            std::fs::rename(&notes, &aside).unwrap();
            world.until_at("b", 30).await;
            sleep(s(30)).await;
            assert_eq!(world.phase().await, Some("starting"), "what is noted comes first");
            if dies {
                destination.abort();
                sleep(s(3)).await;
            }
            std::fs::rename(&aside, &notes).unwrap();
            let _again = dies.then(|| world.program(1, MOVES));
            world.until_over().await;
            assert_eq!((world.is_at(), world.machines[1].shares(GUEST)), ("b", Some(SHARES)));
        });
    }
}

#[test]
fn a_busy_daemon_gives_a_ceiling_back_later() {
    run(async |world| {
        let source = &world.machines[0];
        source.set_modest(GUEST, true);
        let _programs = [world.program(0, MOVES), world.program(1, MOVES)];
        world.until_phase("copying", 120).await;
        world.machines[1].kill(GUEST);
        source.set_busy(true);
        sleep(s(20)).await;
        source.set_busy(false);
        assert_eq!(source.ceiling_set(GUEST), Some(Bytes::mib(2048)), "it is still lowered");
        world.until_over().await;
        assert_eq!((world.is_at(), source.ceiling_set(GUEST)), ("a", None));
    });
}

/// Programs die and come back, and the store comes and goes, at random; then all recovers.
#[test]
fn whatever_fails_the_guest_runs_once_and_nothing_is_left() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        run(async |world| {
            let mut programs = [world.program(0, MOVES), world.program(1, MOVES)];
            let mut most = 0;
            for _ in 0..random.u32(5..60) {
                for _ in 0..random.u32(1..60) {
                    world.assert_runs_once(&mut most);
                    sleep(std::time::Duration::from_millis(100)).await;
                }
                let at = random.usize(0..2);
                match random.u32(0..6) {
                    0 => programs[at].abort(),
                    1 => world.coordinator.set_down(true),
                    2 => world.machines[at].set_silent(true),
                    3 => world.machines[at].set_silent(false),
                    _ => {
                        world.coordinator.set_down(false);
                        programs[at].abort();
                        programs[at] = world.program(at, MOVES);
                    }
                }
            }
            world.coordinator.set_down(false);
            for at in [0, 1] {
                world.machines[at].set_silent(false);
                programs[at].abort();
                programs[at] = world.program(at, MOVES);
            }
            world.until_over().await;
            assert_ne!(world.is_at(), "nowhere", "seed {seed}");
        });
    }
}
