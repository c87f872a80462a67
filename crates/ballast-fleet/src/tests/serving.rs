//! What a member answers on its host: metrics, and the fleet for the daemon's page.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ballast_api::{FleetReply, fleet_socket, path};
use ballast_etcd::testing::{EtcdCluster, is_installed};
use ballast_fleet_proto::{CoordinatorError, FleetView, MemoryCoordinator, PlanRecord};
use ballast_model::Bytes;
use expect_test::expect_file;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use super::{FakeDaemon, block_on, configured, local, roomy, s, short};
use crate::commands::{plan, status};
use crate::config::FleetConfig;
use crate::member::Member;
use crate::metrics::FleetMetrics;
use crate::serve::{FleetService, serve};
use crate::status_log::StatusLog;
use crate::timed::TimedCoordinator;

/// Longest wait for a state.
const PATIENCE: Duration = Duration::from_secs(40);

/// Status and body of `GET path`.
async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn value<'a>(metrics: &'a str, series: &str) -> Option<&'a str> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

/// Asserts that Prometheus' own tool accepts a text of metrics, if the tool is here.
fn assert_well_formed(metrics: &str) {
    let brought = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/prometheus/usr/bin");
    let tools = [PathBuf::from("promtool"), PathBuf::from(brought).join("promtool")];
    let is_there = |tool: &&PathBuf| Command::new(tool).arg("--version").output().is_ok();
    let Some(promtool) = tools.iter().find(is_there) else {
        println!("SKIPPED: promtool is not installed: run scripts/setup");
        return;
    };
    let mut check = Command::new(promtool);
    let check = check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = check.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{text}{metrics}");
}

/// Runs a member with its own service and log until `done`.
async fn at_work(config: &FleetConfig, daemon: &Path, done: impl Future<Output = ()>) {
    let metrics = Arc::new(FleetMetrics::default());
    let etcd = || TimedCoordinator::new(config.etcd().unwrap(), metrics.clone());
    let service =
        FleetService { coordinator: etcd(), config: config.clone(), metrics: metrics.clone() };
    let member = Member::new(etcd(), short(), config.clone(), "machine".to_owned())
        .with_metrics(metrics.clone());
    let status_log = StatusLog::default();
    tokio::select! {
        () = member.run_until(std::future::pending()) => unreachable!(),
        () = serve(service, daemon, &status_log) => unreachable!(),
        done = timeout(PATIENCE, done) => {
            let logged = (status_log.last("metrics"), status_log.last("socket"));
            assert!(done.is_ok(), "{logged:?}");
        }
    }
}

#[test]
fn a_member_answers_its_daemon_and_prometheus() {
    if !is_installed() {
        return;
    }
    block_on(false, async {
        let cluster = EtcdCluster::start(1).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let daemon = folder.path().join("ballast.sock");
        let socket = fleet_socket(&daemon);
        // A socket that a killed program left.
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let more = format!("lease = \"3s\"\ntick = \"1s\"\n[metrics]\nlisten = \"{port}\"");
        let config = configured("a", &cluster.endpoints(), &more);
        at_work(&config, &daemon, async {
            let metrics = leading(port).await;
            for (series, expected) in [
                ("ballast_fleet_member", "1"),
                ("ballast_fleet_hosts", "1"),
                ("ballast_fleet_guests", "2"),
                ("ballast_fleet_planned_moves", "0"),
                ("ballast_fleet_hosts_left_out", "0"),
                ("ballast_fleet_etcd_call_seconds_count{call=\"grant\"}", "1"),
            ] {
                assert_eq!(value(&metrics, series), Some(expected), "{series}\n{metrics}");
            }
            assert_ne!(value(&metrics, "ballast_fleet_unmet_needs"), Some("0"), "{metrics}");
            assert_well_formed(&metrics);
            let status = planned(&socket).await.status.unwrap();
            assert_eq!(
                (&status["leader"], &status["hosts"][0]["host"]),
                (&"a".into(), &"a".into())
            );
            // The port serves metrics and nothing else.
            let (status, _) = get(TcpStream::connect(port).await.unwrap(), path::FLEET).await;
            assert_eq!(status, 404);
            drop(cluster);
            let (status, body) =
                get(UnixStream::connect(&socket).await.unwrap(), path::FLEET).await;
            assert!(status == 502 && body.contains("cannot read the fleet test"), "{body}");
        })
        .await;
    });
}

/// Waits for a plan for the one host: a leader counts a plan before it writes it.
async fn planned(socket: &Path) -> FleetReply {
    loop {
        let (status, body) = get(UnixStream::connect(socket).await.unwrap(), path::FLEET).await;
        assert_eq!(status, 200, "{body}");
        let reply: FleetReply = serde_json::from_str(&body).unwrap();
        if reply.plan.as_ref().is_some_and(|it| it["plan"]["hosts"] == 1) {
            return reply;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits for the metrics of a leader that has planned for its own host.
async fn leading(port: SocketAddr) -> String {
    loop {
        if let Ok(stream) = TcpStream::connect(port).await {
            let (status, metrics) = get(stream, path::METRICS).await;
            assert_eq!(status, 200);
            // Its first plan may be for no host, as it leads as soon as it is registered.
            if value(&metrics, "ballast_fleet_hosts") == Some("1") {
                assert_eq!(value(&metrics, "ballast_fleet_leader"), Some("1"));
                return metrics;
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_second_program_for_one_daemon_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = folder.path().join("ballast.sock");
    let _first = std::os::unix::net::UnixListener::bind(fleet_socket(&daemon)).unwrap();
    block_on(false, async {
        let metrics = Arc::new(FleetMetrics::default());
        let config = local("a", "");
        let coordinator = TimedCoordinator::new(config.etcd().unwrap(), metrics.clone());
        let status_log = StatusLog::default();
        let service = FleetService { coordinator, config, metrics };
        tokio::select! {
            () = serve(service, &daemon, &status_log) => unreachable!(),
            () = async {
                while status_log.last("socket").is_none() {
                    sleep(Duration::from_millis(10)).await;
                }
            } => {}
        }
        let logged = status_log.last("socket").unwrap();
        assert!(logged.contains("another ballast-fleet serves this daemon"), "{logged}");
    });
}

#[test]
fn moves_and_calls_are_counted_in_metrics() {
    let metrics = FleetMetrics::default();
    let of = |metrics: &FleetMetrics| {
        ballast_api::MetricsFormat::Classic.of_open_metrics(metrics.encode().unwrap())
    };
    assert_eq!(value(&of(&metrics), "ballast_fleet_unmet_needs"), None, "only a leader knows");
    metrics.moves.set_under_way([("copying", 2), ("ready", 1)].into());
    metrics.moves.count_end("moved");
    metrics.moves.count_end("abandoned");
    metrics.moves.count_end("moved");
    metrics.moves.count_copied(Bytes::mib(3));
    let gone = CoordinatorError::LeaseGone;
    metrics.count_call("renew", Duration::from_millis(3), Some(&gone));
    metrics.count_call("renew", Duration::from_millis(30), None);
    metrics.set_member(true);
    metrics.set_leader(true);
    metrics.set_plan(&PlanRecord { hosts: 7, unlisted: 0, ..plan_of_nobody() });
    let text = of(&metrics);
    for (series, expected) in [
        ("ballast_fleet_moves_under_way{phase=\"copying\"}", "2"),
        ("ballast_fleet_moves_ended_total{result=\"moved\"}", "2"),
        ("ballast_fleet_moves_ended_total{result=\"abandoned\"}", "1"),
        ("ballast_fleet_copied_bytes_total", "3145728"),
        ("ballast_fleet_etcd_errors_total{call=\"renew\",error=\"lease-gone\"}", "1"),
        ("ballast_fleet_etcd_call_seconds_count{call=\"renew\"}", "2"),
        ("ballast_fleet_etcd_call_seconds_bucket{le=\"0.005\",call=\"renew\"}", "1"),
        ("ballast_fleet_hosts", "7"),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}\n{text}");
    }
    assert_well_formed(&text);
    metrics.moves.set_under_way([("ready", 1)].into());
    metrics.set_member(false);
    let text = of(&metrics);
    assert_eq!(value(&text, "ballast_fleet_moves_under_way{phase=\"copying\"}"), None);
    assert_eq!(value(&text, "ballast_fleet_leader"), Some("0"), "whoever left leads nobody");
    assert_eq!(value(&text, "ballast_fleet_hosts"), None);
}

fn plan_of_nobody() -> PlanRecord {
    serde_json::from_value(serde_json::json!({
        "leader": "a", "leader_revision": 1, "planned_at_revision": 1, "mode": "advise",
        "paused_by": null, "hosts": 0, "guests": 0, "migrations": [], "waiting": [], "unmet": [],
        "left_out": [], "violations": [], "unlisted": 0,
    }))
    .unwrap()
}

/// The test of the page in `crates/ballast` shows this very answer.
#[test]
fn the_pages_fleet_is_what_a_member_answers() {
    block_on(true, async {
        let coordinator = MemoryCoordinator::default();
        let member = |host: &str, daemon| {
            Member::new(coordinator.clone(), daemon, local(host, ""), format!("machine of {host}"))
        };
        let vast = FakeDaemon::new(1024, &[("vast", 40960, 40960)]);
        let (a, b, c) = (member("a", short()), member("b", roomy()), member("c", vast));
        let keys = local("a", "").keys;
        let seen = tokio::select! {
            biased;
            () = a.run_until(std::future::pending()) => unreachable!(),
            () = b.run_until(std::future::pending()) => unreachable!(),
            () = c.run_until(std::future::pending()) => unreachable!(),
            seen = async {
                sleep(s(25)).await;
                FleetView::read(&coordinator, &keys).await.unwrap()
            } => seen,
        };
        let status = serde_json::to_value(status::fleet_status(&local("a", ""), &seen)).unwrap();
        let plan: Value = serde_json::to_value(plan::shown(&seen).unwrap()).unwrap();
        let reply = FleetReply::of(status, Some(plan));
        let text = serde_json::to_string_pretty(&reply).unwrap() + "\n";
        expect_file!["../../../ballast/tests/it/fleet.json"].assert_eq(&text);
    });
}
