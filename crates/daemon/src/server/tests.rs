//! Tests of the server over a real socket. Of the daemon, only the handle exists.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ballast_api::{
    CarriedView, Client, ClientError, ErrorReply, GuestChange, MetricsFormat, Reserve, SetMode,
    SetPolicy, Source, ThrashedView,
};
use ballast_model::{Bytes, Mode, PolicyName, Thrashed};
use expect_test::expect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::fixture;
use super::*;
use crate::view::{COMMANDS_MAX, Command, DRY_RUNS_MAX, DryRunRequest, Request, View};

/// A user without privileges.
const STRANGER: Peer = Peer { uid: 4001, gid: 4001, groups: vec![] };
/// The group that may read.
const GROUP: u32 = 4050;

/// A served socket and the daemon's end of the handle.
struct Bench {
    client: Client,
    socket: PathBuf,
    view: watch::Sender<Option<Arc<View>>>,
    commands: Option<mpsc::Receiver<Request>>,
    dry_runs: mpsc::Receiver<DryRunRequest>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), ServerError>>,
    _folder: tempfile::TempDir,
}

impl Bench {
    /// A server that takes every client for `peer`. Its daemon has finished the first tick.
    fn start(peer: Peer) -> Bench {
        Bench::configured(peer, |_| {})
    }

    fn configured(peer: Peer, configure: impl FnOnce(&mut ServerConfig)) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ballast.sock");
        let (view, seen) = watch::channel(Some(Arc::new(fixture::view())));
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (dry_run_sender, dry_runs) = mpsc::channel(DRY_RUNS_MAX);
        let handle = Handle { view: seen, commands: sender, dry_runs: dry_run_sender };
        let mut config = fixture::config(path.clone());
        configure(&mut config);
        let mut served = Server::bind(&config).unwrap();
        served.policy = AccessPolicy { owner: 4000, group: Some(GROUP) };
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            let identify = move |_: &UnixStream| Ok(peer.clone());
            served.run_for(identify, handle, shutdown).await
        });
        Bench {
            client: Client::new(&path),
            socket: path,
            view,
            commands: Some(commands),
            dry_runs,
            stop,
            server,
            _folder: folder,
        }
    }

    fn owned() -> Bench {
        Bench::start(Peer { uid: 4000, ..STRANGER })
    }

    /// Answers one command with `answer` and returns it.
    fn answer(&mut self, answer: Result<String, String>) -> JoinHandle<Command> {
        let mut commands = self.commands.take().unwrap();
        tokio::spawn(async move {
            let Request { command, who, answer: way_back } = commands.recv().await.unwrap();
            assert_eq!(who, "uid 4000");
            way_back.send(answer).unwrap();
            command
        })
    }

    /// The complete reply to `request`; the server closes the connection.
    async fn raw(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        // The server may refuse before it has read the whole request.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply).await;
        String::from_utf8(reply).unwrap()
    }

    async fn get(&self, path: &str) -> String {
        self.raw(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
    }

    async fn post(&self, path: &str, body: &str) -> String {
        let length = body.len();
        self.raw(&format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n\
             {body}"
        ))
        .await
    }
}

fn done(message: &str) -> Result<String, String> {
    Ok(message.to_owned())
}

/// Status and error of a reply as sent by [`Bench::raw`].
fn refusal(reply: &str) -> (u16, ErrorReply) {
    let status = reply.split(' ').nth(1).unwrap().parse().unwrap();
    let body = reply.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {reply}")))
}

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (u16, String, String) {
    match result.unwrap_err() {
        ClientError::Refused { status, reply } => (status, reply.error.code, reply.error.text),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn status_explain_and_plan_show_the_latest_view() {
    let bench = Bench::start(Peer { gid: GROUP, ..STRANGER });
    let status = bench.client.status().await.unwrap();
    assert_eq!(status.tick.source, Source::Daemon);
    assert_eq!(status.tick.generation, 42);
    assert_eq!(status.guests.len(), 5);
    assert_eq!(bench.client.guests().await.unwrap().guests, status.guests);
    let explained = bench.client.explain(&fixture::id("grow")).await.unwrap();
    assert_eq!(explained.target_bytes, Some(Bytes::mib(576).get()));
    assert_eq!(explained.clamps.len(), 2);
    let plan = bench.client.plan().await.unwrap();
    assert!(!plan.dry_run);
    assert_eq!(plan.actions.len(), 1);
}

#[tokio::test]
async fn the_main_loop_makes_dry_runs() {
    let mut bench = Bench::start(Peer { groups: vec![GROUP], ..STRANGER });
    let mut plan = fixture::view().plan;
    plan.actions.clear();
    let client = bench.client.clone();
    let reply = tokio::spawn(async move { client.dry_run().await });
    bench.dry_runs.recv().await.unwrap().send(Ok(Arc::new(plan))).unwrap();
    let reply = reply.await.unwrap().unwrap();
    assert!(reply.dry_run && reply.actions.is_empty());
}

#[tokio::test]
async fn commands_reach_the_main_loop_and_its_answers_return() {
    let change =
        GuestChange { floor: Some(Bytes::new(4096)), shares: Some(7), ..GuestChange::default() };
    let policy = SetPolicy { policy: "static".to_owned() };

    let mut bench = Bench::owned();
    let answer = bench.answer(done("paused"));
    assert_eq!(bench.client.pause().await.unwrap().message, "paused");
    assert_eq!(answer.await.unwrap(), Command::Pause);

    let mut bench = Bench::owned();
    let answer = bench.answer(done("acting"));
    assert_eq!(bench.client.resume().await.unwrap().message, "acting");
    assert_eq!(answer.await.unwrap(), Command::Resume);

    let mut bench = Bench::owned();
    let answer = bench.answer(done("observing"));
    bench.client.set_mode(&SetMode { mode: "observe".to_owned() }).await.unwrap();
    assert_eq!(answer.await.unwrap(), Command::SetMode(Mode::Observe));

    let mut bench = Bench::owned();
    let answer = bench.answer(done("set"));
    bench.client.set_guest(&fixture::id("grow"), &change).await.unwrap();
    assert_eq!(answer.await.unwrap(), Command::SetGuest(fixture::id("grow"), change));

    let mut bench = Bench::owned();
    let answer = bench.answer(done("taken"));
    let carried = CarriedView { credits: Some(7), ..CarriedView::default() };
    bench.client.take_carried(&fixture::id("grow"), &carried).await.unwrap();
    let expected = Command::TakeCarried(fixture::id("grow"), Box::new(carried));
    assert_eq!(answer.await.unwrap(), expected);

    let mut bench = Bench::owned();
    let answer = bench.answer(done("reserved"));
    let reserve = Reserve { size_bytes: 8192, lasts_s: 60 };
    bench.client.reserve(&"new".parse().unwrap(), &reserve).await.unwrap();
    let expected =
        Command::Reserve("new".parse().unwrap(), Bytes::new(8192), Duration::from_secs(60));
    assert_eq!(answer.await.unwrap(), expected);

    let mut bench = Bench::owned();
    let answer = bench.answer(done("ended"));
    bench.client.unreserve(&"new".parse().unwrap()).await.unwrap();
    assert_eq!(answer.await.unwrap(), Command::Unreserve("new".parse().unwrap()));

    let mut bench = Bench::owned();
    let answer = bench.answer(done("policy"));
    bench.client.set_policy(&policy).await.unwrap();
    assert_eq!(answer.await.unwrap(), Command::SetPolicy(PolicyName::Static));
}

#[tokio::test]
async fn strangers_cannot_read_and_the_group_cannot_write() {
    let stranger = Bench::start(STRANGER);
    for path in ["/v1/status", "/v1/guests/grow/explain", "/v1/plan", "/metrics", "/nowhere"] {
        let (status, reply) = refusal(&stranger.get(path).await);
        assert_eq!((status, reply.error.code.as_str()), (403, "forbidden"), "{path}");
    }
    let member = Bench::start(Peer { gid: GROUP, ..STRANGER });
    member.client.status().await.unwrap();
    assert_eq!(member.client.mode().await.unwrap().mode, "balance");
    for path in [
        "/v1/pause",
        "/v1/resume",
        "/v1/mode",
        "/v1/guests/grow/set",
        "/v1/guests/grow/carried",
        "/v1/policy",
        "/v1/reservations/new/set",
    ] {
        let (status, reply) = refusal(&member.post(path, "{}").await);
        assert_eq!(status, 403, "{path}");
        assert_eq!(reply.error.text, "changing anything needs to be the daemon's user or root");
    }
}

#[tokio::test]
async fn requests_before_the_first_tick_are_refused() {
    let bench = Bench::owned();
    bench.view.send_replace(None);
    let expected =
        (503, "starting".to_owned(), "the daemon has not finished its first tick".to_owned());
    assert_eq!(refused(bench.client.status().await), expected);
    assert_eq!(refused(bench.client.plan().await), expected);
    assert_eq!(refused(bench.client.metrics().await), expected);
    assert_eq!(refused(bench.client.explain(&fixture::id("grow")).await), expected);
    let reserve = Reserve { size_bytes: 8192, lasts_s: 60 };
    assert_eq!(refused(bench.client.reserve(&fixture::id("new"), &reserve).await), expected);
}

#[tokio::test]
async fn an_unknown_name_gets_the_nearest_known_one() {
    let bench = Bench::owned();
    let error = refused(bench.client.explain(&fixture::id("grwo")).await);
    expect!["there is no guest `grwo`; the nearest is `grow`"].assert_eq(&error.2);
    let (status, reply) = refusal(&bench.post("/v1/guests/stukc/set", "{\"shares\": 5}").await);
    assert_eq!((status, reply.nearest.as_deref()), (404, Some("stuck")));
    let (status, reply) = refusal(&bench.get("/v1/guests/zzz/explain").await);
    assert_eq!((status, reply.nearest), (404, None));
    let (status, reply) = refusal(&bench.get("/v1/statsu").await);
    assert_eq!((status, reply.nearest.as_deref()), (404, Some("/v1/status")));
    let unknown = SetMode { mode: "obsrve".to_owned() };
    let error = bench.client.set_mode(&unknown).await.unwrap_err().to_string();
    assert!(error.contains("`obsrve` is not a mode: expected balance or observe"), "{error}");
    let unknown = SetPolicy { policy: "globl".to_owned() };
    let error = refused(bench.client.set_policy(&unknown).await);
    assert_eq!(error.0, 400);
    expect!["`globl` is not a policy: expected static, self-balloon, self-scheduling, global, meb, tws, proportional, fcfs, demand-proportional, direct-assign, auction, round-robin or external; the nearest is `global`"]
    .assert_eq(&error.2);
}

#[tokio::test]
async fn limits_of_a_guest_that_left_can_be_changed() {
    let mut bench = Bench::owned();
    let left = fixture::id("left");
    let unset = GuestChange { ceiling_unset: true, ..GuestChange::default() };
    assert_eq!(refused(bench.client.set_guest(&left, &unset).await).0, 404);
    let mut view = fixture::view();
    view.gone_with_limits.insert(left.clone());
    bench.view.send_replace(Some(Arc::new(view)));
    assert_eq!(refused(bench.client.persist_guest(&left, &unset).await).0, 404);
    let answer = bench.answer(done("unset"));
    bench.client.set_guest(&left, &unset).await.unwrap();
    assert_eq!(answer.await.unwrap(), Command::SetGuest(left, unset));
}

/// A pause with more time left than its whole length.
const ENDLESS: &str = r#"{"thrashed": {"least_bytes": 4096, "left_ms": 2, "pause_ms": 1}}"#;

#[tokio::test]
async fn what_goes_along_with_a_guest_is_told() {
    let bench = Bench::owned();
    let mut view = fixture::view();
    let grow = fixture::id("grow");
    let said = GuestChange { shares: Some(7), ..GuestChange::default() };
    view.limit_changes.insert(grow.clone(), said.clone());
    let until = view.snapshot.taken_at + Duration::from_secs(9);
    let (least, pause) = (Bytes::mib(300), Duration::from_secs(60));
    view.thrashed.insert(grow.clone(), Thrashed { least, until, pause });
    view.plan.guests.iter_mut().find(|guest| guest.id == grow).unwrap().credits = Some(55);
    bench.view.send_replace(Some(Arc::new(view)));
    let reply = bench.client.carried(&grow).await.unwrap();
    let thrashed = ThrashedView { least_bytes: 300 << 20, left_ms: 9_000, pause_ms: 60_000 };
    let carried = CarriedView { limits: said, credits: Some(55), thrashed: Some(thrashed) };
    assert_eq!((reply.carried, reply.taken), (carried, None));
    let nobody = refused(bench.client.carried(&fixture::id("nobody")).await);
    assert_eq!(nobody.0, 404);
}

#[tokio::test]
async fn refusals_of_bad_requests_name_the_mistake() {
    let bench = Bench::owned();
    for (reply, status, part) in [
        (bench.get("/v1/pause").await, 405, "`/v1/pause` does not take GET: use POST"),
        (bench.post("/v1/status", "").await, 405, "`/v1/status` does not take POST: use GET"),
        (bench.get("/v1/plan?dryrun=1").await, 400, "unknown field `dryrun`"),
        (bench.post("/v1/guests/grow/set", "{}").await, 400, "nothing to change"),
        (bench.post("/v1/guests/grow/set", "{\"flor\": 1}").await, 400, "unknown field `flor`"),
        (bench.post("/v1/guests/grow/set", "{\"shares\": -1}").await, 400, "invalid value"),
        (bench.post("/v1/guests/a%20b/set", "{\"shares\": 1}").await, 404, "`a b` is not a guest"),
        (bench.post("/v1/guests/grow/carried", "{\"luck\": 1}").await, 400, "unknown field `luck`"),
        (bench.post("/v1/guests/grow/carried", ENDLESS).await, 400, "no more than the pause, 1"),
        (bench.post("/v1/policy", "").await, 400, "EOF"),
        (bench.post("/v1/policy", &"x".repeat(20 << 10)).await, 413, "larger than 16384 bytes"),
    ] {
        let (got, error) = refusal(&reply);
        assert_eq!(got, status, "{reply}");
        assert!(error.error.text.contains(part), "{:?} lacks {part:?}", error.error.text);
    }
}

#[tokio::test]
async fn the_main_loops_refusal_reaches_the_client() {
    let mut bench = Bench::owned();
    let text = "floor 2GiB is above ceiling 1GiB";
    bench.answer(Err(text.to_owned()));
    let change = GuestChange { floor: Some(Bytes::gib(2)), ..GuestChange::default() };
    let error = refused(bench.client.set_guest(&fixture::id("grow"), &change).await);
    assert_eq!(error, (409, "refused".to_owned(), text.to_owned()));
}

#[tokio::test]
async fn a_replay_ends_when_its_client_hangs_up() {
    let folder = tempfile::tempdir().unwrap();
    let (program, begun) = (folder.path().join("ballast"), folder.path().join("begun"));
    let script = format!("#!/bin/sh\necho $$ >{}\nexec sleep 1000\n", begun.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let bench = Bench::configured(Peer { gid: GROUP, ..STRANGER }, |config| {
        config.replay.program = program;
        config.journal = Some(folder.path().join("journal.db"));
    });
    let mut stream = UnixStream::connect(&bench.socket).await.unwrap();
    stream.write_all(b"GET /v1/what-if HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let pid = loop {
        match fs::read_to_string(&begun) {
            Ok(pid) if pid.ends_with('\n') => break pid,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let (status, reply) = refusal(&bench.get("/v1/what-if").await);
    assert_eq!((status, reply.error.code.as_str()), (429, "running"));
    drop(stream);
    let stat = format!("/proc/{}/stat", pid.trim());
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn errors_distinguish_a_busy_from_an_ended_main_loop() {
    let bench = Bench::owned();
    // No main loop takes commands: the queue fills up, and the next command is refused at once.
    let waiting: Vec<_> = (0..COMMANDS_MAX)
        .map(|_| {
            let client = bench.client.clone();
            tokio::spawn(async move { client.pause().await })
        })
        .collect();
    while bench.commands.as_ref().unwrap().len() < COMMANDS_MAX {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(refused(bench.client.pause().await).1, "busy");
    let Bench { client, commands, stop: _stop, .. } = bench;
    drop(commands);
    for one in waiting {
        assert_eq!(refused(one.await.unwrap()).1, "ending");
    }
    assert_eq!(refused(client.resume().await).1, "ending");
}

#[tokio::test]
async fn readers_cannot_keep_the_owner_out() {
    let bench = Bench::start(Peer { gid: GROUP, ..STRANGER });
    let mut idle = Vec::new();
    for _ in 0..connections::READERS_MAX {
        idle.push(UnixStream::connect(&bench.socket).await.unwrap());
    }
    // The next reader is refused; the earlier ones stay connected.
    assert_eq!(bench.get("/v1/status").await, "");
    drop(idle);
    while bench.client.status().await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn shutdown_ends_the_server_and_removes_its_file() {
    let bench = Bench::owned();
    bench.client.status().await.unwrap();
    let idle = UnixStream::connect(&bench.socket).await.unwrap();
    bench.stop.send(()).unwrap();
    bench.server.await.unwrap().unwrap();
    assert!(!bench.socket.exists());
    drop(idle);
    let error = bench.client.status().await.unwrap_err();
    assert!(matches!(error, ClientError::NoDaemon { .. }), "{error}");
}

#[tokio::test]
async fn a_second_server_on_the_same_socket_fails() {
    let folder = tempfile::tempdir().unwrap();
    let config = fixture::config(folder.path().join("ballast.sock"));
    let _first = Server::bind(&config).unwrap();
    let error = |config: &ServerConfig| Server::bind(config).map(|_| ()).unwrap_err().to_string();
    let taken = error(&config);
    assert!(taken.contains("another daemon listens on"), "{taken}");
    let config = ServerConfig { group: Some("no-such-group-here".to_owned()), ..config };
    let error = error(&config);
    expect![
        "group `no-such-group-here` does not exist on this machine: create it, or name another"
    ]
    .assert_eq(&error);
}

#[tokio::test]
async fn this_process_is_identified_as_the_owner() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ballast.sock");
    let server = Server::bind(&fixture::config(socket.clone())).unwrap();
    let (view, seen) = watch::channel(Some(Arc::new(fixture::view())));
    let (commands, mut taken) = mpsc::channel::<Request>(1);
    let (stop, stopped) = oneshot::channel::<()>();
    let (dry_runs, _) = mpsc::channel(1);
    let served = tokio::spawn(server.run(Handle { view: seen, commands, dry_runs }, async {
        let _ = stopped.await;
    }));
    let client = Client::new(&socket);
    let answer = tokio::spawn(async move {
        let Request { who, answer, .. } = taken.recv().await.unwrap();
        answer.send(done("paused")).unwrap();
        who
    });
    client.status().await.unwrap();
    client.pause().await.unwrap();
    assert_eq!(answer.await.unwrap(), format!("uid {}", nix::unistd::geteuid()));
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();
    drop(view);
}

#[tokio::test]
async fn metrics_are_valid_openmetrics() {
    let bench = Bench::owned();
    let accept = "accept: application/openmetrics-text\r\nconnection: close\r\n\r\n";
    let reply = bench.raw(&format!("GET /metrics HTTP/1.1\r\nhost: x\r\n{accept}")).await;
    let (head, text) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    check_open_metrics(text);
    for line in [
        "ballast_guest_allocation_bytes{guest=\"grow\"} 536870912",
        "ballast_guest_target_bytes{guest=\"grow\"} 603979776",
        "ballast_guest_used_bytes{guest=\"stuck\"} 94371840",
        "ballast_guest_held{guest=\"old\",reason=\"stale\"} 1",
        "ballast_guest_stuck{guest=\"stuck\"} 1",
        "ballast_guest_major_faults_total{guest=\"grow\"} 1234",
        "ballast_guest_swap_in_bytes_total{guest=\"grow\"} 7340032",
        "ballast_guest_tracked_working_set_bytes{guest=\"grow\"} 629145600",
        "ballast_guest_tracker_cost_ratio{guest=\"grow\"} 0.0055",
        "ballast_guest_tracker_watched_ratio{guest=\"grow\"} 0.003906",
        "ballast_guest_tracker_watching{guest=\"grow\"} 1",
        "ballast_guest_tracker_resting{guest=\"grow\"} 0",
        "ballast_guest_tracker_failing{guest=\"stuck\"} 1",
        "ballast_plans_refused_total 0",
        "ballast_decision_seconds 0.00042",
        "ballast_budget_bytes 2147483648",
        "ballast_host_pressure_some_ratio 0.0112",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    // Unknown values have no sample.
    assert!(!text.contains("ballast_guest_allocation_bytes{guest=\"mute\"}"));
}

#[tokio::test]
async fn both_formats_have_the_same_samples() {
    let view = Arc::new(fixture::view());
    let of = |format| metrics::encode(&view, fixture::seen_at(), format).unwrap();
    let samples = |text: &str| {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let (open, classic) = (of(MetricsFormat::OpenMetrics), of(MetricsFormat::Classic));
    assert_eq!(samples(&open), samples(&classic));
    assert!(!classic.contains("# UNIT") && !classic.contains("# EOF"));
    for line in [
        "# TYPE ballast_daemon_info gauge",
        "# HELP ballast_guest_swap_in_bytes_total Memory read back from swap.",
        "# TYPE ballast_guest_swap_in_bytes_total counter",
        "# TYPE ballast_guest_allocation_bytes gauge",
    ] {
        assert!(classic.lines().any(|found| found == line), "{line} is not in\n{classic}");
    }
}

/// Checks the rules of OpenMetrics text that scrapers enforce: metadata before samples, no family
/// twice, suffixes that fit the type, names that end in their unit, and the end marker.
fn check_open_metrics(text: &str) {
    let mut families: Vec<(String, String)> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(lines.peek().is_none(), "text after # EOF");
            return;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(families.iter().all(|(known, _)| known != name), "{name} is there twice");
            families.push((name.to_owned(), kind.to_owned()));
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').unwrap();
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
        } else if !line.starts_with("# HELP ") {
            let (family, kind) = families.last().expect("a sample before any metadata");
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let suffix = match kind.as_str() {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            assert_eq!(name, format!("{family}{suffix}"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    panic!("the text does not end with # EOF");
}
