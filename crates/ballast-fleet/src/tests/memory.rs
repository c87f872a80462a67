//! Membership and leadership in virtual time, on a coordinator in memory.

use std::rc::Rc;
use std::time::Duration;

use ballast_fleet_proto::{
    Coordinator, FleetKey, FleetView, KeyWrite, MemoryCoordinator, PlanRecord, Revision,
};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::sleep;

use super::{FakeDaemon, block_on, local, roomy, s, short};
use crate::commands::orders::order_drain;
use crate::member::Member;

type Host = Rc<Member<MemoryCoordinator, FakeDaemon>>;

/// Hosts on one coordinator.
struct World {
    coordinator: MemoryCoordinator,
}

/// Runs a test in virtual time, which the coordinator shares.
fn run(test: impl AsyncFnOnce(World)) {
    in_virtual_time(async |coordinator| test(World { coordinator }).await);
}

/// The same for any test.
pub(super) fn in_virtual_time(test: impl AsyncFnOnce(MemoryCoordinator)) {
    block_on(true, async {
        let tasks = LocalSet::new();
        let coordinator = MemoryCoordinator::default();
        let clock = coordinator.clone();
        tasks.spawn_local(async move {
            loop {
                sleep(Duration::from_millis(100)).await;
                clock.advance(Duration::from_millis(100));
            }
        });
        tasks.run_until(test(coordinator)).await;
    });
}

impl World {
    /// Runs a host until its task is aborted, which is a crash.
    fn host(&self, name: &str, machine: &str, daemon: &FakeDaemon) -> (Host, JoinHandle<()>) {
        let coordinator = self.coordinator.clone();
        let member = Member::new(coordinator, daemon.clone(), local(name, ""), machine.to_owned());
        let member = Rc::new(member);
        let running = member.clone();
        let task = tokio::task::spawn_local(async move {
            running.run_until(std::future::pending()).await;
        });
        (member, task)
    }

    async fn view(&self) -> FleetView {
        FleetView::read(&self.coordinator, &local("x", "").keys).await.unwrap()
    }

    async fn plan(&self) -> PlanRecord {
        self.view().await.plan().expect("a plan").clone().unwrap()
    }

    async fn leader(&self) -> Option<(String, Revision)> {
        self.view().await.leader().map(|(host, revision)| (host.to_owned(), revision))
    }
}

#[test]
fn one_host_leads_and_relieves_the_short_one() {
    run(async |world| {
        let (_a, _task) = world.host("a", "1", &short());
        let (b, _task) = world.host("b", "2", &roomy());
        sleep(s(25)).await;
        assert_eq!(world.leader().await.map(|it| it.0).as_deref(), Some("a"));
        assert_eq!(b.status_log.last("lead").as_deref(), Some("another host leads the fleet"));
        let plan = world.plan().await;
        assert_eq!((plan.hosts, plan.guests, plan.left_out.len()), (2, 3, 0));
        let [it] = &plan.migrations[..] else { panic!("{plan:?}") };
        assert_eq!((&*it.from, &*it.to), ("a", "b"));
    });
}

#[test]
fn another_host_leads_when_the_leader_is_killed() {
    run(async |world| {
        let (_a, crash) = world.host("a", "1", &short());
        sleep(s(1)).await;
        let (_b, _task) = world.host("b", "2", &roomy());
        sleep(s(15)).await;
        let first = world.leader().await.unwrap();
        crash.abort();
        sleep(s(12)).await;
        let (leader, revision) = world.leader().await.unwrap();
        assert!(leader == "b" && revision > first.1);
        let plan = world.plan().await;
        assert_eq!((&*plan.leader, plan.leader_revision), ("b", revision.0));
        assert_eq!((plan.hosts, plan.migrations.len()), (1, 0), "a's record went with its lease");
    });
}

#[test]
fn a_leader_that_was_replaced_writes_nothing() {
    run(async |world| {
        let (a, _task) = world.host("a", "1", &short());
        sleep(s(15)).await;
        let key = local("a", "").keys.key(&FleetKey::Leader);
        // Its lease has ended and another host has won, but it knows neither yet.
        let other = KeyWrite::Put { key, value: br#"{"v":1,"host":"z"}"#.to_vec(), lease: None };
        world.coordinator.compare_and_put(&[], vec![other]).await.unwrap();
        let before = world.plan().await;
        let (_b, _task) = world.host("b", "2", &roomy());
        sleep(s(60)).await;
        assert_eq!(world.plan().await, before);
        assert_eq!(a.status_log.last("lead").as_deref(), Some("another host leads the fleet"));
    });
}

#[test]
fn the_second_machine_with_a_name_is_refused() {
    run(async |world| {
        let (_a, crash) = world.host("a", "1", &short());
        sleep(s(5)).await;
        let (twin, _task) = world.host("a", "2", &roomy());
        sleep(s(30)).await;
        let logged = twin.status_log.last("session").unwrap();
        assert!(logged.contains("another machine (1) is registered as a"), "{logged}");
        assert_eq!(world.plan().await.guests, 2, "the first one's record stands");
        crash.abort();
        sleep(s(35)).await;
        assert_eq!(twin.status_log.last("session").as_deref(), Some("registered as a"));
        assert_eq!(world.plan().await.guests, 1);
    });
}

#[test]
fn the_same_machine_takes_its_name_over_at_once() {
    run(async |world| {
        let (_a, crash) = world.host("a", "1", &short());
        sleep(s(5)).await;
        crash.abort();
        let (again, _task) = world.host("a", "1", &short());
        sleep(s(1)).await;
        assert_eq!(again.status_log.last("session").as_deref(), Some("registered as a"));
        sleep(s(15)).await;
        assert_eq!(world.plan().await.hosts, 1, "the old lease ends without its keys");
    });
}

#[test]
fn a_host_whose_daemon_is_silent_leaves_the_fleet() {
    run(async |world| {
        let daemon = roomy();
        let (host, _task) = world.host("b", "2", &daemon);
        sleep(s(15)).await;
        daemon.is_silent.set(true);
        sleep(s(20)).await;
        assert_eq!(world.view().await.hosts().count(), 1, "a short silence is none");
        sleep(s(30)).await;
        assert_eq!(world.view().await.hosts().count(), 0);
        let logged = host.status_log.last("session").unwrap();
        assert!(logged.contains("no daemon listens"), "{logged}");
        daemon.is_silent.set(false);
        sleep(s(10)).await;
        assert_eq!(world.view().await.snapshot(Default::default()).0.hosts().len(), 1);
    });
}

#[test]
fn hosts_go_on_alone_without_coordinator_and_come_back() {
    run(async |world| {
        let (a, _task) = world.host("a", "1", &short());
        let (_b, _task) = world.host("b", "2", &roomy());
        sleep(s(25)).await;
        world.coordinator.set_down(true);
        sleep(s(25)).await;
        let logged = a.status_log.last("session").unwrap();
        assert!(logged.contains("the host works on alone"), "{logged}");
        world.coordinator.set_down(false);
        sleep(s(25)).await;
        let plan = world.plan().await;
        assert_eq!((plan.hosts, plan.migrations.len()), (2, 1));
        assert!(world.leader().await.is_some());
    });
}

#[test]
fn a_short_failure_ends_neither_session_nor_leadership() {
    run(async |world| {
        let (_a, _task) = world.host("a", "1", &short());
        let (_b, _task) = world.host("b", "2", &roomy());
        sleep(s(25)).await;
        let before = world.leader().await;
        world.coordinator.set_down(true);
        sleep(s(4)).await;
        world.coordinator.set_down(false);
        sleep(s(25)).await;
        assert_eq!(world.leader().await, before);
        let b = "b".parse().unwrap();
        order_drain(&world.coordinator, &local("a", ""), &b, false).await.unwrap();
        sleep(s(12)).await;
        assert_eq!(world.plan().await.unmet.len(), 2, "the leader plans on");
    });
}

#[test]
fn compacted_history_is_read_again_by_the_leader() {
    run(async |world| {
        let (_a, _task) = world.host("a", "1", &short());
        sleep(s(15)).await;
        world.coordinator.compact();
        let (_b, _task) = world.host("b", "2", &roomy());
        world.coordinator.compact();
        sleep(s(25)).await;
        assert_eq!(world.plan().await.hosts, 2);
    });
}

#[test]
fn a_registration_that_was_removed_is_made_again() {
    run(async |world| {
        let daemon = short();
        let (_a, _task) = world.host("a", "1", &daemon);
        sleep(s(15)).await;
        let host = "a".parse().unwrap();
        let key = local("a", "").keys.key(&FleetKey::Identity(host));
        world.coordinator.compare_and_put(&[], vec![KeyWrite::Delete(key)]).await.unwrap();
        sleep(s(15)).await;
        let plan = world.plan().await;
        assert!(plan.left_out[0].text.contains("its identity"), "{plan:?}");
        // The next write of the record shows that.
        daemon.budget_mib.set(9000);
        sleep(s(30)).await;
        assert_eq!((world.plan().await.hosts, world.plan().await.left_out.len()), (1, 0));
    });
}

#[test]
fn an_order_for_an_unknown_host_names_those_there_are() {
    run(async |world| {
        let (_a, _task) = world.host("a", "1", &short());
        sleep(s(5)).await;
        let order = async |host: &str, undo| {
            let host = host.parse().unwrap();
            order_drain(&world.coordinator, &local("a", ""), &host, undo).await
        };
        let error = order("b", false).await.unwrap_err().to_string();
        assert_eq!(error, "no host b is registered; registered hosts: a");
        assert!(order("a", false).await.unwrap().contains("is to be drained"));
        assert!(order("a", false).await.unwrap().contains("already"));
        sleep(s(12)).await;
        let text = &world.plan().await.unmet[0].text;
        assert!(text.contains("keeps 2 guests to be drained"), "{text}");
        assert!(order("a", true).await.unwrap().contains("no longer being drained"));
        assert!(order("a", true).await.unwrap().contains("is not being drained"));
    });
}
