//! A made-up hypervisor with one call, and sockets of all kinds of programs.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use ballast_backend::Backends;
use ballast_model::{Bytes, Generation, GuestSample, LinkState, Measured};
use tempfile::TempDir;

use super::*;
use crate::call::{Answer, Method};
use crate::guest::RestGuest;
use crate::testing::{Reply, RestServer};

const SIZE: Call = Call::get("/size");

/// A guest whose size is a number.
#[derive(Debug, Default)]
struct Toy {
    is_due: bool,
    size: Option<(u64, Timestamp)>,
}

const TOY: HypervisorKind = HypervisorKind {
    name: "Toy",
    process: "no-process-is-called-so",
    guest: || Box::<Toy>::default(),
};

impl RestGuest for Toy {
    fn begin(&mut self, _now: Timestamp, _in_full: bool) {
        self.is_due = true;
    }

    fn calls(&mut self) -> Vec<Call> {
        if std::mem::take(&mut self.is_due) { vec![SIZE] } else { Vec::new() }
    }

    fn take(
        &mut self,
        call: &Call,
        answer: &Answer,
        asked_at: Timestamp,
        _now: Timestamp,
    ) -> Result<(), LinkDown> {
        self.size = Some((answer.read(call)?, asked_at));
        Ok(())
    }

    fn sample(&self, id: &GuestId, now: Timestamp) -> GuestSample {
        let allocation = self
            .size
            .map(|(mib, at)| Measured { value: Bytes::mib(mib), age: now.saturating_since(at) });
        GuestSample { allocation, ..GuestSample::unknown(id.clone(), LinkState::Up) }
    }

    fn order(&mut self, action: &Action) -> Result<Vec<Call>, String> {
        let size = serde_json::json!(action.target.get() >> 20);
        let set = Call::send(Method::Put, "/size", &size);
        Ok(vec![set, Call::send(Method::Put, "/done", &size)])
    }

    fn claims_process(&self, pid: u32) -> bool {
        pid == std::process::id()
    }

    fn vsock_socket(&self) -> Option<&Path> {
        self.size.is_some().then_some(Path::new("/run/v.sock"))
    }

    fn take_notices(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// A folder of sockets, and its guests.
struct Host {
    folder: TempDir,
    guests: RestGuests,
    began: Instant,
}

impl Host {
    fn new(timeout: Duration) -> Host {
        let folder = tempfile::tempdir().unwrap();
        let pattern = format!("{}/*.sock", folder.path().display());
        let sockets = vec![pattern.parse().unwrap()];
        let config = RestConfig { sockets, timeout, guests_max: 5 };
        let guests = RestGuests::new(TOY, config, Path::new("/proc"));
        Host { folder, guests, began: Instant::now() }
    }

    fn serve(&self, name: &str, answer: impl FnMut() -> Reply + Send + 'static) -> RestServer {
        let mut answer = answer;
        let path = self.folder.path().join(format!("{name}.sock"));
        RestServer::start(&path, move |request| match request.is(Method::Get, "/size") {
            true => answer(),
            false => Reply::Json(204, String::new()),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_000_000) + self.began.elapsed()
    }

    /// Each guest's name, and its size in MiB or why it cannot be reached.
    async fn sample(&mut self) -> Vec<String> {
        self.sample_within(Duration::from_secs(60)).await
    }

    async fn sample_within(&mut self, deadline: Duration) -> Vec<String> {
        let now = self.now();
        let request = SampleRequest { now, wall: SystemTime::UNIX_EPOCH, deadline, only: None };
        let readings = self.guests.sample(request).await;
        let describe = |it: &GuestReading| {
            let size = it.sample.allocation.map_or(0, |it| it.value.get() >> 20);
            match &it.sample.link {
                LinkState::Up => format!("{} {size}", it.sample.id),
                LinkState::Down(why) => format!("{} {size}: {why}", it.sample.id),
            }
        };
        readings.iter().map(describe).collect()
    }

    async fn order(&mut self, generation: u64, mib: u64) -> OutcomeKind {
        let now = self.now();
        let action = Action {
            guest: "a".parse().unwrap(),
            target: Bytes::mib(mib),
            plug: None,
            generation: Generation(generation),
            deadline: now + Duration::from_secs(60),
        };
        self.guests.act_all(now, &[action]).await.remove(0).kind
    }

    fn notices(&mut self) -> String {
        self.guests.take_notices().join("\n")
    }
}

fn size(mib: u64) -> Reply {
    Reply::Json(200, mib.to_string())
}

#[tokio::test]
async fn a_socket_is_a_guest_while_its_program_answers() {
    let mut host = Host::new(Duration::from_secs(60));
    let server = host.serve("a", || size(512));
    assert_eq!(host.sample().await, ["a 512"]);
    assert!(host.notices().contains("guest a found at"));
    let vsock = host.guests.vsock(&"a".parse().unwrap());
    let own_root = format!("/proc/{}/root/run/v.sock", std::process::id());
    assert_eq!(vsock, Some(VsockAddress::Socket(own_root.into())));
    drop(server);
    // This process, which listened, still runs: so may a guest that no longer serves its socket.
    assert_eq!(host.sample().await, ["a 512: nobody listens on the socket"]);
}

#[tokio::test]
async fn other_programs_are_no_guests_and_reported_once() {
    let mut host = Host::new(Duration::from_secs(60));
    let _page = host.serve("page", || Reply::Html(200));
    let _missing = host.serve("missing", || Reply::Html(404));
    let _noise = host.serve("noise", || Reply::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()));
    let left = UnixListener::bind(host.folder.path().join("left.sock")).unwrap();
    drop(left);
    for is_first in [true, false] {
        assert_eq!(host.sample().await, [""; 0]);
        let notices = host.notices();
        assert_eq!(notices.lines().count(), if is_first { 4 } else { 0 }, "{notices}");
        for what in ["`<!doctype html>", "status 404", "no answer of HTTP", "nobody listens"] {
            assert_eq!(notices.contains(what), is_first, "{what}: {notices}");
        }
    }
}

#[tokio::test]
async fn a_guest_that_breaks_off_keeps_its_last_figures() {
    let mut host = Host::new(Duration::from_secs(60));
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let _server = host.serve("a", move || match counted.fetch_add(1, Ordering::Relaxed) {
        0 => size(300),
        1 => Reply::Html(502),
        2 => Reply::Raw(Vec::new()),
        3 => Reply::Json(200, "[".to_owned()),
        _ => size(301),
    });
    assert_eq!(host.sample().await, ["a 300"]);
    for why in ["status 502: <!doctype html>", "connection closed", "was answered with `[`"] {
        let readings = host.sample().await;
        assert!(readings[0].starts_with("a 300: ") && readings[0].contains(why), "{readings:?}");
        let failed = host.order(1, 200).await;
        assert!(matches!(&failed, OutcomeKind::Failed(it) if it.starts_with("not sent: ")));
    }
    assert_eq!(host.sample().await, ["a 301"]);
}

#[tokio::test]
async fn a_guest_that_hangs_delays_one_sample_alone() {
    let mut host = Host::new(Duration::from_millis(300));
    let _hung = host.serve("a", || Reply::Hang);
    let _other = host.serve("b", || size(100));
    let begun = Instant::now();
    let readings = host.sample_within(Duration::from_secs(60)).await;
    let expected = ["a 0: no answer in time", "b 100"];
    assert_eq!(readings, expected, "its memory counts, once it is known");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    // From now on the guest is known to be slower than the deadline.
    for _ in 0..3 {
        let readings = host.sample_within(Duration::from_millis(200)).await;
        assert_eq!(readings[1], "b 100");
    }
    let failed = host.order(1, 200).await;
    assert_eq!(failed, OutcomeKind::Failed("not sent: no answer in time".to_owned()));
}

#[tokio::test]
async fn answers_that_are_late_are_taken_in_later() {
    let mut host = Host::new(Duration::from_secs(60));
    let now = Arc::new(AtomicU64::new(500));
    let size_mib = Arc::clone(&now);
    let _server = host.serve("a", move || size(size_mib.load(Ordering::Relaxed)));
    assert_eq!(host.sample().await, ["a 500"]);
    now.store(700, Ordering::Relaxed);
    // The sample does not wait: the exchange goes on meanwhile.
    let begun = Instant::now();
    while host.sample_within(Duration::ZERO).await != ["a 700"] {
        assert!(begun.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn orders_of_older_plans_are_not_sent() {
    let mut host = Host::new(Duration::from_secs(60));
    let server = host.serve("a", || size(512));
    host.sample().await;
    assert_eq!(host.order(2, 400).await, OutcomeKind::Accepted);
    assert_eq!(server.take_changes(), ["PUT /size 400", "PUT /done 400"]);
    assert_eq!(host.order(1, 300).await, OutcomeKind::Superseded);
    assert_eq!(server.take_changes(), [""; 0]);
    let mut expired = Action {
        guest: "a".parse().unwrap(),
        target: Bytes::mib(1),
        plug: None,
        generation: Generation(3),
        deadline: Timestamp::ZERO,
    };
    let now = host.now();
    let outcomes = host.guests.act_all(now, std::slice::from_ref(&expired)).await;
    assert_eq!(outcomes[0].kind, OutcomeKind::Expired);
    expired.guest = "b".parse().unwrap();
    let outcomes = host.guests.act_all(now, &[expired]).await;
    assert_eq!(outcomes[0].kind, OutcomeKind::Failed("not sent: the guest is gone".to_owned()));
}

#[tokio::test]
async fn an_order_ends_at_the_call_that_is_refused() {
    let mut host = Host::new(Duration::from_millis(300));
    let path = host.folder.path().join("a.sock");
    let answer = Arc::new(std::sync::Mutex::new(Reply::Hang));
    let reply_now = Arc::clone(&answer);
    let server = RestServer::start(&path, move |request| match request.is(Method::Get, "/size") {
        true => size(512),
        false => reply_now.lock().unwrap().clone(),
    });
    host.sample().await;
    for (reply, expected) in [
        (
            Reply::Json(400, r#"{"fault_message":"Too much."}"#.to_owned()),
            "PUT /size failed with status 400: Too much.",
        ),
        (Reply::Html(500), "PUT /size failed with status 500: <!doctype html><h1>It works!</h1>"),
        (Reply::Hang, "PUT /size: no answer in time; it may still be carried out"),
    ] {
        server.take_requests();
        *answer.lock().unwrap() = reply;
        let kind = host.order(1, 100).await;
        assert_eq!(kind, OutcomeKind::Failed(expected.to_owned()));
        assert_eq!(server.take_changes(), ["PUT /size 100"]);
    }
}

#[tokio::test]
async fn more_guests_than_allowed_are_refused() {
    let mut host = Host::new(Duration::from_secs(60));
    let names = ["a", "b", "c", "d", "e", "f", "-g"];
    let _servers = names.map(|name| host.serve(name, || size(1)));
    assert_eq!(host.sample().await.len(), 5);
    assert_eq!(host.guests.refused(), 2);
    let notices = host.notices();
    assert!(notices.contains("there are 5 guests already"), "{notices}");
    assert!(notices.contains("`-g` is not a guest name"), "{notices}");
    host.sample().await;
    assert_eq!(host.notices(), "", "it is said once");
}

#[tokio::test]
async fn a_link_to_another_guests_socket_is_no_second_guest() {
    let host = Host::new(Duration::from_secs(60));
    let _server = host.serve("b", || size(100));
    let Host { folder, guests, .. } = host;
    let mut backends = Backends::new(vec![Box::new(guests)]);
    let request = SampleRequest {
        now: Timestamp::from_millis(1_000_000),
        wall: SystemTime::UNIX_EPOCH,
        deadline: Duration::from_secs(60),
        only: None,
    };
    assert_eq!(backends.sample(request).await.len(), 1);
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(at("b.sock"), at("a.sock")).unwrap();
    let readings = backends.sample(request).await;
    assert_eq!(readings.len(), 1);
    assert_eq!(readings[0].sample.id.as_str(), "b", "it was known before");
    let notices = backends.take_notices().join("\n");
    assert!(notices.contains("guest a of Toy is guest b of Toy"), "{notices}");
}

#[test]
fn paths_of_a_hypervisor_are_seen_through_its_eyes() {
    let proc = tempfile::tempdir().unwrap();
    let of = proc.path().join("7");
    std::fs::create_dir(&of).unwrap();
    let at = |path: &str, pid| on_host(Path::new(path), proc.path(), pid);
    assert_eq!(at("/run/v.sock", None), Some("/run/v.sock".into()));
    assert_eq!(at("/run/v.sock", Some(7)), Some("/run/v.sock".into()), "it may not look");
    assert_eq!(at("v.sock", Some(7)), None);
    for name in ["root", "cwd"] {
        std::os::unix::fs::symlink("/", of.join(name)).unwrap();
    }
    assert_eq!(at("/run/v.sock", Some(7)), Some(of.join("root/run/v.sock")));
    assert_eq!(at("v.sock", Some(7)), Some(of.join("cwd/v.sock")));
}
