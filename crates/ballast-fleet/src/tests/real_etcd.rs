//! Hosts on a real etcd: one member, three members, two of them killed, and what a host costs.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ballast_etcd::EtcdClient;
use ballast_etcd::certificates::{CertificateAge, TestAuthority};
use ballast_etcd::testing::{EtcdCluster, TestProxy, is_installed};
use ballast_fleet_proto::FleetView;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::sleep;

use super::{FakeDaemon, block_on, configured, roomy, short};
use crate::commands::{plan, read};
use crate::config::FleetConfig;
use crate::member::Member;

/// Longest wait for a state.
const PATIENCE: Duration = Duration::from_secs(40);
/// The shortest times that a host may have.
const FAST: &str = "lease = \"3s\"\ntick = \"1s\"\ntimeout = \"2s\"";

type Host = Rc<Member<EtcdClient, FakeDaemon>>;

fn run(test: impl AsyncFnOnce()) {
    if is_installed() {
        block_on(false, LocalSet::new().run_until(test()));
    }
}

fn config(host: &str, endpoints: &[String]) -> FleetConfig {
    configured(host, endpoints, FAST)
}

fn host(name: &str, endpoints: &[String], daemon: &FakeDaemon) -> (Host, JoinHandle<()>) {
    let config = config(name, endpoints);
    let etcd = config.etcd().unwrap();
    let member = Rc::new(Member::new(etcd, daemon.clone(), config, format!("machine of {name}")));
    let running = member.clone();
    let task = tokio::task::spawn_local(async move {
        running.run_until(std::future::pending()).await;
    });
    (member, task)
}

/// Waits until the fleet is as `is_so` asks.
async fn until(endpoints: &[String], what: &str, is_so: impl Fn(&FleetView) -> bool) -> FleetView {
    let config = config("operator", endpoints);
    let etcd = config.etcd().unwrap();
    let began = Instant::now();
    loop {
        // While members are down, a call may fail.
        let seen = read(&etcd, &config).await;
        if let Ok(view) = &seen
            && is_so(view)
        {
            return seen.unwrap();
        }
        assert!(began.elapsed() < PATIENCE, "never {what}; last {seen:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

fn moves(view: &FleetView, leader: &str) -> Option<usize> {
    let shown = plan::shown(view).ok()?;
    let is_its = shown.void.is_none() && shown.plan.leader == leader;
    is_its.then_some(shown.plan.migrations.len())
}

#[test]
fn the_plan_is_seen_and_outlives_its_leader() {
    run(async || {
        let cluster = EtcdCluster::start(1).await.unwrap();
        let at = cluster.endpoints();
        let (_a, crash) = host("a", &at, &short());
        until(&at, "led by a", |view| view.leader().is_some_and(|it| it.0 == "a")).await;
        let (_b, _task) = host("b", &at, &roomy());
        let (_c, _task) = host("c", &at, &roomy());
        let view = until(&at, "a move from a", |view| moves(view, "a") == Some(1)).await;
        let text = plan::render(&plan::shown(&view).unwrap(), None);
        assert!(text.contains(" from a to "), "{text}");
        let first = view.leader().unwrap().1;
        crash.abort();
        let is_led = |view: &FleetView| {
            view.hosts().count() == 2
                && (moves(view, "b") == Some(0) || moves(view, "c") == Some(0))
        };
        let view = until(&at, "another leader without a", is_led).await;
        assert!(view.leader().unwrap().1 > first);
        let (_a, _task) = host("a", &at, &short());
        let is_back = |view: &FleetView| moves(view, "b") == Some(1) || moves(view, "c") == Some(1);
        until(&at, "a again, which does not lead", is_back).await;
    });
}

#[test]
fn a_host_joins_by_its_certificate() {
    run(async || {
        let folder = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new(folder.path(), "ca").unwrap();
        let sign = |file| authority.sign(file, &["127.0.0.1"], CertificateAge::Valid).unwrap();
        let (server, own) = (sign("server"), sign("host"));
        let cluster = EtcdCluster::start_tls(1, &authority, &server).await.unwrap();
        let tls = format!(
            "{FAST}\n[tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}",
            authority.certificate, own.certificate, own.key
        );
        let config = configured("a", &cluster.endpoints(), &tls);
        let etcd = config.etcd().unwrap();
        let member = Member::new(config.etcd().unwrap(), short(), config.clone(), "a".to_owned());
        let seen = async {
            loop {
                let view = read(&etcd, &config).await.unwrap();
                if view.hosts().count() == 1 && view.plan().is_some() {
                    return;
                }
                sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::select! {
            () = member.run_until(seen) => {}
            () = sleep(PATIENCE) => panic!("{:?}", member.status_log.last("session")),
        }
        assert_eq!(read(&etcd, &config).await.unwrap().hosts().count(), 0, "it has left");
    });
}

#[test]
fn hosts_outlive_a_lost_majority_and_register_again() {
    run(async || {
        let mut cluster = EtcdCluster::start(3).await.unwrap();
        let at = cluster.endpoints();
        let (a, _task) = host("a", &at, &short());
        let (b, _task) = host("b", &at, &roomy());
        let is_moved =
            |view: &FleetView| moves(view, "a") == Some(1) || moves(view, "b") == Some(1);
        until(&at, "a plan", is_moved).await;
        cluster.kill(0);
        cluster.kill(1);
        let began = Instant::now();
        let is_alone = |host: &Host| {
            host.status_log.last("session").is_some_and(|it| it.contains("works on alone"))
        };
        while !(is_alone(&a) && is_alone(&b)) {
            assert!(began.elapsed() < PATIENCE, "{:?}", a.status_log.last("session"));
            sleep(Duration::from_millis(200)).await;
        }
        cluster.start_member(0).unwrap();
        cluster.start_member(1).unwrap();
        for member in 0..3 {
            cluster.wait_for(member).await.unwrap();
        }
        // Leases may outlive the partition for a moment, so the session has to be a new one.
        let is_back = |host: &Host| {
            host.status_log.last("session").is_some_and(|it| it.starts_with("registered as"))
        };
        let is_new = |view: &FleetView| {
            let hosts = view.snapshot(Default::default()).0.hosts().len();
            hosts == 2 && is_moved(view) && is_back(&a) && is_back(&b)
        };
        until(&at, "both registered again, and planned for", is_new).await;
    });
}

/// The number of hosts in the measurement, and the seconds of a tick and a lease, from the
/// environment.
fn measured() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (number("BALLAST_FLEET_HOSTS").unwrap_or(1), number("BALLAST_FLEET_TICK_S").unwrap_or(3))
}

/// What one host costs etcd in a tick, in bytes, if all its guests change size in each tick:
/// `resized` gives the new size by the tick and the old size. A tick is as long as a lease, as by
/// default.
async fn bytes_a_host_and_tick(resized: impl Fn(usize, u64) -> u64) -> u64 {
    let (hosts, tick) = measured();
    let cluster = EtcdCluster::start(1).await.unwrap();
    let proxy = TestProxy::open(&cluster.endpoints()[0]).await.unwrap();
    let mut daemons = Vec::new();
    for host in 0..hosts {
        let guests = (0..30).map(|n| (format!("guest-{n:03}"), 512, 1024 + 100 * n));
        let daemon = FakeDaemon::new(1 << 17, &[]);
        daemon.guests.replace(guests.collect());
        daemon.is_uneven.set(true);
        // Another host leads, so the figure includes a share of the leader's cost.
        let leads = host == 0 && hosts > 1;
        let more = format!("lease = \"{tick}s\"\ntick = \"{tick}s\"\nleads = {leads}");
        let config = configured(&format!("host-{host:04}"), &[proxy.endpoint()], &more);
        let etcd = config.etcd().unwrap();
        let member = Member::new(etcd, daemon.clone(), config, format!("{host}"));
        tokio::task::spawn_local(async move {
            member.run_until(std::future::pending()).await;
        });
        daemons.push(daemon);
        // Hosts of a real fleet do not start at the same moment.
        sleep(Duration::from_millis(tick * 1000 / hosts)).await;
    }
    let at = cluster.endpoints();
    let registered = |view: &FleetView| view.snapshot(Default::default()).0.hosts().len() as u64;
    until(&at, "registered", |view| registered(view) == hosts).await;
    sleep(Duration::from_secs(tick)).await;
    let before = proxy.bytes_passed();
    let ticks = 6;
    for at in 0..ticks {
        for daemon in &daemons {
            for guest in daemon.guests.borrow_mut().iter_mut() {
                guest.2 = resized(at, guest.2);
            }
        }
        sleep(Duration::from_secs(tick)).await;
    }
    let bytes = (proxy.bytes_passed() - before) / ticks as u64 / hosts;
    println!("{bytes} bytes a host and tick, {hosts} hosts, ticks of {tick} s");
    until(&at, "still registered", |view| registered(view) == hosts).await;
    bytes
}

/// All guests change by some per cent in each tick: less than what is written at once.
#[test]
fn a_host_costs_at_most_2_kib_a_tick() {
    run(async || {
        let bytes = bytes_a_host_and_tick(|_, size| size + size / 30).await;
        assert!(bytes > 500, "{bytes}: nothing was written");
        assert!(bytes <= 2048, "{bytes}");
    });
}

/// All guests change much, so that each record differs from those of the two ticks before.
#[test]
fn guests_that_move_far_cost_at_most_2_kib() {
    run(async || {
        let bytes = bytes_a_host_and_tick(|tick, size| {
            let (now, next) = ([100, 75, 130, 60][tick % 4], [75, 130, 60, 100][tick % 4]);
            size * next / now
        });
        let bytes = bytes.await;
        assert!(bytes > 1200, "{bytes}: less than one write in two ticks");
        assert!(bytes <= 2048, "{bytes}");
    });
}
