//! Debian's Prometheus checks the daemon's metrics, the alert rules and the dashboard.
//!
//! Idea: a daemon is brought into a state, and promtool tests the rules with what it exports then,
//! held constant for ten minutes. So alerts are tested with real metrics, for troubled
//! daemons and for a calm one, without waiting for minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_daemon::server::{MetricsPort, Server, ServerConfig, fixture};
use ballast_daemon::view::{Handle, View};
use ballast_model::{Bytes, Fence};
use ballast_qmp_testing::{Misbehaviour, PeerConfig};
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::daemon::{BUDGET, FAST, Peers};
use crate::harness::{Testbed, guest, wait_for};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const RULES: &str = "packaging/prometheus/ballast.rules.yml";
const LISTEN: &str = "[metrics]\nlisten = \"127.0.0.1:0\"";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";
const CLASSIC: &str = "text/plain";

/// A program of Prometheus. Prints that the test is skipped and returns `None` if there is none.
fn tool(name: &str) -> Option<PathBuf> {
    let brought = Path::new(ROOT).join("target/tools/prometheus/usr/bin").join(name);
    let found = [PathBuf::from(name), brought]
        .into_iter()
        .find(|path| Command::new(path).arg("--version").output().is_ok());
    if found.is_none() {
        println!("SKIPPED: {name} is not installed: run scripts/setup");
    }
    found
}

/// Status, head and body of `GET path`.
fn get(address: SocketAddr, path: &str, accept: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
}

/// The metrics in the classic format, once the first tick is over.
fn scrape(address: SocketAddr) -> String {
    wait_for("metrics", || {
        let (status, _, body) = get(address, "/metrics", CLASSIC);
        (status == 200).then_some(body)
    })
}

/// Where the last daemon of this testbed serves its metrics.
fn port(testbed: &Testbed) -> SocketAddr {
    wait_for("the port for metrics", || {
        let log = testbed.log();
        let (_, rest) = log.rsplit_once("metrics on http://")?;
        rest.split_once("/metrics")?.0.parse().ok()
    })
}

/// The value of a series as exported; `None`: there is none.
fn value<'a>(metrics: &'a str, series: &str) -> Option<&'a str> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

fn check_metrics(promtool: &Path, metrics: &str) -> Output {
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn promtool_has_nothing_to_say_of_the_metrics() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _guests = [peers.using(&testbed, "busy", 600), peers.using(&testbed, "idle", 100)];
    testbed.configure(FAST, &format!("{BUDGET}\n{LISTEN}"));
    let daemon = testbed.start();
    let address = port(&testbed);
    wait_for("both guests", || {
        let metrics = scrape(address);
        value(&metrics, "ballast_guest_used_bytes{guest=\"idle\"}").map(|_| ())
    });
    let (status, head, open) = get(address, "/metrics", OPEN_METRICS);
    assert!(status == 200 && head.contains(OPEN_METRICS), "{head}");
    assert!(open.contains("# UNIT ") && open.ends_with("# EOF\n"), "{open}");
    let (_, head, classic) = get(address, "/metrics", "*/*");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(
        classic.contains("# TYPE ballast_daemon_info gauge\nballast_daemon_info{"),
        "{classic}"
    );
    assert!(classic.contains("# TYPE ballast_ticks_total counter\nballast_ticks_total "));
    // Only metrics are served there, and no commands are accepted.
    let (status, _, body) = get(address, "/v1/status", CLASSIC);
    assert!(status == 404 && body.contains("only /metrics"), "{body}");
    assert!(daemon.stop().success());
    let Some(promtool) = tool("promtool") else { return };
    let said = check_metrics(&promtool, &classic);
    let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && text.is_empty(), "{text}");
}

#[test]
fn a_port_in_use_is_told_of_and_tried_again() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _guest = peers.using(&testbed, "a", 100);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    testbed.configure(FAST, &format!("{BUDGET}\n[metrics]\nlisten = \"{address}\""));
    let daemon = testbed.start();
    let trouble = wait_for("the trouble", || daemon.status()?.daemon?.metrics_trouble);
    assert!(trouble.contains(&address.to_string()), "{trouble}");
    assert!(trouble.contains("another program listens there"), "{trouble}");
    let ticks = daemon.status().unwrap().daemon.unwrap().ticks;
    wait_for("more ticks", || (daemon.status()?.daemon?.ticks > ticks + 3).then_some(()));
    assert!(testbed.ballast(&["status"]).1.contains("metrics  no metrics on 127.0.0.1:"));
    drop(other);
    wait_for("the port", || daemon.status()?.daemon?.metrics_trouble.is_none().then_some(()));
    assert!(scrape(address).contains("ballast_guests 1"));
    assert!(daemon.stop().success());
}

/// Each series with its values, in promtool's notation.
type InputSeries = BTreeMap<String, String>;

/// The samples of a scrape as series that stay constant.
fn constant_series(metrics: &str) -> InputSeries {
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let series = samples.filter_map(|line| line.rsplit_once(' '));
    series.map(|(name, value)| (name.to_owned(), format!("{value}x39"))).collect()
}

/// Asserts, by promtool, that after ten minutes of these series the alerts `expected` fire, and no
/// others of `asked`.
fn assert_alerts(promtool: &Path, input_series: &InputSeries, asked: &[&str], expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let series: Vec<Value> = input_series
        .iter()
        .map(|(series, values)| serde_json::json!({ "series": series, "values": values }))
        .collect();
    let firing: Vec<Value> = expected
        .iter()
        .map(|name| serde_json::json!({ "labels": format!("{{alertname={name:?}}}"), "value": 1 }))
        .collect();
    let of = asked.join("|");
    let expr =
        format!("group by (alertname) (ALERTS{{alertstate=\"firing\",alertname=~\"{of}\"}})");
    let rules = fs::canonicalize(Path::new(ROOT).join(RULES)).unwrap();
    let test = serde_json::json!({
        "rule_files": [rules],
        "evaluation_interval": "15s",
        "tests": [{
            "interval": "15s",
            "input_series": series,
            "promql_expr_test": [{ "expr": expr, "eval_time": "9m45s", "exp_samples": firing }],
        }],
    });
    // JSON is valid YAML.
    let path = folder.path().join("test.yml");
    fs::write(&path, test.to_string()).unwrap();
    let said = Command::new(promtool).args(["test", "rules"]).arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{text}\n{test:#}");
}

/// The names of all alerts of the rules.
fn alerts() -> BTreeSet<String> {
    let rules = fs::read_to_string(Path::new(ROOT).join(RULES)).unwrap();
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

const OF_A_DAEMON: [&str; 7] = [
    "BallastFloorViolated",
    "BallastFloorsExceedBudget",
    "BallastGuestStuck",
    "BallastGuestUnreachable",
    "BallastNotRecording",
    "BallastReloadRefused",
    "BallastSamplesStale",
];
const OF_A_HOST: [&str; 1] = ["BallastHostShort"];
const OF_A_VIEW: [&str; 5] = [
    "BallastFenceFailing",
    "BallastGuestThrashing",
    "BallastGuestsLeftOut",
    "BallastPlanRefused",
    "BallastStale",
];
const OF_ITS_ABSENCE: [&str; 1] = ["BallastDown"];

#[test]
fn every_alert_is_tested() {
    let expected = [&OF_A_DAEMON[..], &OF_A_HOST, &OF_A_VIEW, &OF_ITS_ABSENCE].concat();
    let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
    assert_eq!(expected, alerts());
}

#[test]
fn alerts_fire_for_guests_and_a_daemon_in_trouble() {
    let Some(promtool) = tool("promtool") else { return };
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let low = peers.using(&testbed, "low", 100);
    let _busy = peers.using(&testbed, "busy", 600);
    let unmoved =
        PeerConfig { used: Bytes::mib(100), rate_per_sec: Bytes::ZERO, ..PeerConfig::default() };
    let _stuck = peers.spawn(&testbed, "stuck", unmoved);
    let frozen = peers.using(&testbed, "frozen", 100);
    let mute = PeerConfig { misbehaviour: Misbehaviour::NoGreeting, ..PeerConfig::default() };
    let _mute = peers.spawn(&testbed, "mute", mute);
    fs::create_dir(testbed.journal()).unwrap();
    let budget = BUDGET.replace("1GiB", "3GiB");
    let guard = "[guard]\nstuck_after = \"1s\"\nrelease_grace = \"0s\"\nstale_after = \"1s\"";
    testbed.configure(FAST, &format!("{budget}\n{guard}\n{LISTEN}"));
    let daemon = testbed.start();
    wait_for("a guest that gave memory", || (low.allocation() < Bytes::mib(800)).then_some(()));
    frozen.misbehave(Misbehaviour::FrozenStatistics);
    wait_for("the stuck guest", || {
        let status = daemon.status()?;
        (guest(&status, "stuck")?.compliance.as_ref()?.code == "stuck").then_some(())
    });
    // Together with the guests that come later, the floors exceed the budget, so nobody gives
    // anything up. The stuck guest still has to give what it holds above its own floor.
    for name in ["low", "busy"] {
        let (code, out, err) = testbed.ballast(&["set", name, "--floor", "1GiB"]);
        assert_eq!(code, Some(0), "{out}{err}");
    }
    let late = |number: u32| peers.using(&testbed, &format!("late-{number}"), 100);
    let _late: Vec<_> = (0..4).map(late).collect();
    let broken = fs::read_to_string(testbed.config_file()).unwrap() + "[gard]\n";
    fs::write(testbed.config_file(), broken).unwrap();
    daemon.signal(Signal::HUP);
    let address = port(&testbed);
    let metrics = wait_for("all troubles", || {
        let metrics = scrape(address);
        let is = |series: &str, wanted: &str| value(&metrics, series) == Some(wanted);
        (is("ballast_guest_stuck{guest=\"stuck\"}", "1")
            && is("ballast_guest_held{guest=\"mute\",reason=\"unreachable\"}", "1")
            && is("ballast_guest_held{guest=\"frozen\",reason=\"stale\"}", "1")
            && is("ballast_reload_failed", "1")
            && !is("ballast_budget_shortfall_bytes", "0")
            && is("ballast_guest_floor_bytes{guest=\"low\"}", "1073741824"))
        .then_some(metrics)
    });
    assert!(daemon.stop().success());
    assert_alerts(&promtool, &constant_series(&metrics), &OF_A_DAEMON, &OF_A_DAEMON);
}

#[test]
fn an_alert_fires_for_a_host_short_of_memory() {
    let Some(promtool) = tool("promtool") else { return };
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _guest = peers.using(&testbed, "a", 100);
    testbed.configure(FAST, &format!("[host]\nreserve = \"1000TiB\"\n{LISTEN}"));
    let daemon = testbed.start();
    let address = port(&testbed);
    let metrics = wait_for("the last level", || {
        let metrics = scrape(address);
        (value(&metrics, "ballast_host_rung") == Some("4")).then_some(metrics)
    });
    assert!(daemon.stop().success());
    assert_alerts(&promtool, &constant_series(&metrics), &OF_A_HOST, &OF_A_HOST);
}

/// A server of handmade views, for states into which no peer can be brought.
struct Served {
    runtime: tokio::runtime::Runtime,
    view: watch::Sender<Option<Arc<View>>>,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(view: View) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // The kernel gives the port to nobody else in the moment between the two listeners.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let metrics = Some(MetricsPort::new(address));
        let config = ServerConfig { metrics, ..fixture::config(folder.path().join("api.sock")) };
        let (sender, receiver) = watch::channel(Some(Arc::new(view)));
        let handle =
            Handle { view: receiver, commands: mpsc::channel(1).0, dry_runs: mpsc::channel(1).0 };
        let server = Server::bind(&config).unwrap();
        runtime.spawn(server.run(handle, std::future::pending()));
        wait_for("the port", || TcpStream::connect(address).ok());
        Served { runtime, view: sender, address, _folder: folder }
    }

    /// The metrics for another view.
    fn scrape(&self, view: View) -> String {
        let _runtime = self.runtime.enter();
        self.view.send_replace(Some(Arc::new(view)));
        scrape(self.address)
    }
}

#[test]
fn alerts_fire_for_what_no_guest_can_be_brought_to() {
    let Some(promtool) = tool("promtool") else { return };
    let calm = || View { seen_at: SystemTime::now(), ..fixture::view() };
    let mut earlier = calm();
    // Swap read back: 2 MiB/s between two scrapes.
    let mut later = calm();
    later.plans_refused += 1;
    later.guests_refused = 3;
    later.seen_at -= Duration::from_secs(300);
    for (view, swap_in) in [(&mut earlier, 0), (&mut later, 30)] {
        let (at, host) = (view.snapshot.taken_at, view.snapshot.host.clone());
        let mut guests = view.snapshot.guests().to_vec();
        for stats in guests.iter_mut().filter_map(|guest| guest.stats.as_mut()) {
            stats.value.swap_in = Some(Bytes::mib(swap_in));
        }
        for guest in &mut guests {
            let trouble = Some("the host has no swap".to_owned());
            guest.fence =
                guest.fence.as_ref().map(|_| Fence { limit: None, trouble: trouble.clone() });
        }
        view.snapshot = ballast_model::Snapshot::new(at, host, guests);
    }
    let served = Served::start(calm());
    let (first, then) = (served.scrape(earlier), served.scrape(later));
    let before = constant_series(&first);
    let input_series: InputSeries = constant_series(&then)
        .into_iter()
        .map(|(series, now)| {
            let first = &before[&series];
            let (first, now) = (first.trim_end_matches("x39"), now.trim_end_matches("x39"));
            // Counters that grew between the scrapes keep growing; everything else stays for five
            // samples as it was at first.
            let values = match (first.parse::<u64>(), now.parse::<u64>()) {
                (Ok(0), Ok(grown)) if series.contains("swap_in") => format!("0+{grown}x39"),
                _ => format!("{first}x4 {now}x34"),
            };
            (series, values)
        })
        .collect();
    assert_alerts(&promtool, &input_series, &OF_A_VIEW, &OF_A_VIEW);
}

/// A Prometheus that scrapes a daemon every second.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(program: &Path, daemon: SocketAddr) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        let rules = fs::canonicalize(Path::new(ROOT).join(RULES)).unwrap();
        let config = serde_json::json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [rules],
            "scrape_configs": [{
                "job_name": "ballast",
                "static_configs": [{ "targets": [daemon.to_string()] }],
            }],
        });
        fs::write(folder.path().join("prometheus.yml"), config.to_string()).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(program)
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Prometheus { child, address, _folder: folder }
    }

    /// The answer of its API; `None`: it does not listen yet.
    fn ask(&self, path: &str) -> Option<Value> {
        TcpStream::connect(self.address).ok()?;
        let (_, head, body) = get(self.address, path, "application/json");
        // It sends chunks if it does not know the length in advance.
        let body = if head.contains("chunked") { unchunked(&body) } else { body };
        serde_json::from_str(&body).ok()
    }

    /// The value of an expression now.
    fn query(&self, expression: &str) -> Option<Value> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        self.ask(&format!("/api/v1/query?query={escaped}"))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&rest[..length]);
        body = rest[length..].trim_start_matches("\r\n");
    }
    whole
}

/// Every expression of the dashboard, with its variables filled in.
fn dashboard() -> Vec<String> {
    let text = fs::read_to_string(Path::new(ROOT).join("packaging/grafana/ballast.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let notes = board["annotations"]["list"].as_array().unwrap();
    let expressions = targets.chain(notes).map(|it| it["expr"].as_str().unwrap());
    let filled = |text: &str| {
        let text = text.replace("$__rate_interval", "1m").replace("$__range", "1h");
        let text = text.replace("$instance", ".*").replace("$guest", ".*");
        assert!(!text.contains('$'), "{text}");
        text
    };
    expressions.map(filled).collect()
}

/// The metrics of Ballast that an expression names.
fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("ballast_"))
}

#[test]
fn a_prometheus_understands_metrics_rules_and_dashboard() {
    let (Some(program), Some(promtool)) = (tool("prometheus"), tool("promtool")) else { return };
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let busy = peers.using(&testbed, "busy", 600);
    let _idle = peers.using(&testbed, "idle", 100);
    testbed.configure(FAST, &format!("{BUDGET}\n{LISTEN}"));
    let daemon = testbed.start();
    wait_for("the division", || {
        (busy.allocation().abs_diff(Bytes::mib(740)) <= Bytes::mib(10)).then_some(())
    });
    let address = port(&testbed);
    let metrics = scrape(address);
    let prometheus = Prometheus::start(&program, address);
    wait_for("a scrape", || {
        let up = prometheus.query("up{job=\"ballast\"} == 1")?;
        (up["data"]["result"].as_array()?.len() == 1).then_some(())
    });
    let rules = wait_for("rules that were evaluated", || {
        let rules = prometheus.ask("/api/v1/rules")?["data"]["groups"][0]["rules"].clone();
        let is_ok = |rule: &Value| rule["health"] == "ok";
        rules.as_array().is_some_and(|rules| rules.iter().all(is_ok)).then_some(rules)
    });
    let rules = rules.as_array().unwrap();
    assert_eq!(rules.len(), alerts().len());
    // Metrics that no guest has, such as of a fence, are missing here; the handmade view has all.
    let all = Served::start(fixture::view()).scrape(fixture::view()) + &metrics;
    let types = all.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let exported: BTreeSet<&str> = types.map(|(name, _)| name).collect();
    let of_rules = rules.iter().map(|rule| rule["query"].as_str().unwrap().to_owned());
    for expression in of_rules.chain(dashboard()) {
        let answer = prometheus.query(&expression).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        for name in metrics_in(&expression) {
            assert!(exported.contains(name), "{name} of {expression} is not exported");
        }
    }
    // Prometheus reads the OpenMetrics format as intended.
    let info = prometheus.query("ballast_daemon_info").unwrap();
    assert_eq!(info["data"]["result"][0]["metric"]["policy"], "global", "{info}");
    assert!(daemon.stop().success());
    // A calm daemon raises no alert; one that has gone raises its own.
    let names: Vec<String> = alerts().into_iter().collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_alerts(&promtool, &constant_series(&metrics), &names, &[]);
    let gone = wait_for("its absence", || {
        let up = prometheus.query("up{job=\"ballast\"}")?["data"]["result"][0].clone();
        (up["value"][1] == "0").then(|| up["metric"]["instance"].clone())
    });
    let up = format!("up{{job=\"ballast\",instance={gone}}}");
    let absent = InputSeries::from([(up, "0x39".to_owned())]);
    assert_alerts(&promtool, &absent, &names, &OF_ITS_ABSENCE);
}

#[test]
fn promtool_agrees_with_the_shipped_tests_of_the_rules() {
    let Some(promtool) = tool("promtool") else { return };
    for arguments in
        [["check", "rules", "ballast.rules.yml"], ["test", "rules", "ballast.rules.test.yml"]]
    {
        let folder = Path::new(ROOT).join("packaging/prometheus");
        let said = Command::new(&promtool).args(arguments).current_dir(folder).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{text}");
    }
}
