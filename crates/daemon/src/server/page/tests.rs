//! Tests of the page's admission and routes over real sockets. Only the daemon's handle exists.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ballast_config::PortSettings;
use proptest::prelude::*;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::keys::CSRF_HEADER;
use super::*;
use crate::server::connections::VISITORS_MAX;
use crate::server::{AccessPolicy, Peer, Server, ServerError, fixture};
use crate::view::{Command, Request as Asked, View};

const OWNERS: &str = "owner-0123456789abcdef";
const READERS: &str = "reader-0123456789abcdef";

/// A served page whose daemon carries out every command.
struct Bench {
    socket: PathBuf,
    port: SocketAddr,
    view: watch::Sender<Option<Arc<View>>>,
    /// Each command, and who gave it.
    obeyed: mpsc::Receiver<(Command, String)>,
    _stop: oneshot::Sender<()>,
    _server: JoinHandle<Result<(), ServerError>>,
    folder: tempfile::TempDir,
}

/// A reply taken apart.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn code(&self) -> (u16, String) {
        (self.status, self.json()["error"]["code"].as_str().unwrap().to_owned())
    }
}

impl Bench {
    fn start(peer: Peer) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let token = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            Some(path)
        };
        let socket = folder.path().join("ballast.sock");
        let mut config = fixture::config(socket.clone());
        config.page.hosts = vec!["ballast.example.org".to_owned()];
        config.page.port = Some(PortSettings {
            listen: "127.0.0.1:0".parse().unwrap(),
            token_file: token("owner", OWNERS),
            reader_token_file: token("reader", READERS),
        });
        let journal = folder.path().join("journal.db");
        let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/v3.db");
        fs::copy(recorded, &journal).unwrap();
        config.journal = Some(journal);
        let mut served = Server::bind(&config).unwrap();
        served.policy = AccessPolicy { owner: 4000, group: Some(4050) };
        let port = served.port().unwrap();
        let (view, seen) = watch::channel(Some(Arc::new(fixture::view())));
        let (commands, mut taken) = mpsc::channel::<Asked>(4);
        let (dry_runs, _) = mpsc::channel(1);
        let (told, obeyed) = mpsc::channel(4);
        tokio::spawn(async move {
            while let Some(Asked { command, who, answer }) = taken.recv().await {
                told.send((command, who)).await.unwrap();
                answer.send(Ok("done".to_owned())).unwrap();
            }
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let handle = Handle { view: seen, commands, dry_runs };
        let server = tokio::spawn(async move {
            let identify = move |_: &UnixStream| Ok(peer.clone());
            let shutdown = async {
                let _ = stopped.await;
            };
            served.run_for(identify, handle, shutdown).await
        });
        Bench { socket, port, view, obeyed, _stop: stop, _server: server, folder }
    }

    /// A page whose socket's peers are the daemon's user.
    fn owned() -> Bench {
        Bench::start(Peer { uid: 4000, gid: 4000, groups: vec![] })
    }

    async fn on_port(&self, request: &str) -> Reply {
        exchange(TcpStream::connect(self.port).await.unwrap(), request).await
    }

    async fn on_socket(&self, request: &str) -> Reply {
        exchange(UnixStream::connect(&self.socket).await.unwrap(), request).await
    }

    /// Logs in on the port. Returns the cookie, and the secret that actions carry.
    async fn log_in(&self, token: &str) -> (String, Option<String>) {
        let reply =
            self.on_port(&post("/page/login", &format!("{{\"token\":{token:?}}}"), &[])).await;
        assert_eq!(reply.status, 204, "{}", reply.body);
        let cookie = reply.header("set-cookie").unwrap();
        for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let session = self.on_port(&get("/page/session", &[("cookie", &cookie)])).await.json();
        (cookie, session["csrf"].as_str().map(str::to_owned))
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Reply {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    let at = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(reply[..at].to_vec()).unwrap();
    let body = String::from_utf8_lossy(&reply[at + 4..]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head, body }
}

fn get(path: &str, headers: &[(&str, &str)]) -> String {
    request("GET", path, "", headers)
}

fn post(path: &str, body: &str, headers: &[(&str, &str)]) -> String {
    request("POST", path, body, headers)
}

/// A request to `localhost`, unless the headers name another host.
fn request(method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if headers.iter().all(|(name, _)| *name != "host") {
        text += "host: localhost\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + &format!("content-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn the_port_tells_nothing_before_a_login() {
    let bench = Bench::owned();
    let index = bench.on_port(&get("/", &[])).await;
    assert_eq!((index.status, index.header("content-encoding")), (200, Some("gzip")));
    assert_eq!(index.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(bench.on_port(&get("/page/files/uplot.js", &[])).await.status, 200);
    assert_eq!(bench.on_port(&get("/page/files/none.js", &[])).await.code().0, 404);
    let session = bench.on_port(&get("/page/session", &[])).await.json();
    assert_eq!((&session["access"], &session["csrf"]), (&"none".into(), &Value::Null));
    for path in [
        "/v1/status",
        "/v1/guests/grow/explain",
        "/metrics",
        "/page/stream",
        "/page/past?span_s=9",
        "/page/events",
        "/page/policies",
        "/v1/what-if",
        "/page/guests/grow/why",
        "/nowhere",
    ] {
        let reply = bench.on_port(&get(path, &[("cookie", "ballast-0=guess")])).await;
        assert_eq!(reply.code(), (401, "not-logged-in".to_owned()), "{path}");
    }
    let reply = bench.on_port(&post("/v1/pause", "", &[])).await;
    assert_eq!(reply.code(), (401, "not-logged-in".to_owned()));
}

#[tokio::test]
async fn the_owners_token_acts_with_the_pages_secret_only() {
    let mut bench = Bench::owned();
    let (cookie, csrf) = bench.log_in(OWNERS).await;
    let csrf = csrf.unwrap();
    let status = bench.on_port(&get("/v1/status", &[("cookie", &cookie)])).await;
    assert_eq!(status.json()["guests"].as_array().unwrap().len(), 5);
    for wrong in [None, Some(""), Some("0"), Some(&cookie[cookie.len() - 64..])] {
        let mut headers = vec![("cookie", cookie.as_str())];
        headers.extend(wrong.map(|wrong| (CSRF_HEADER, wrong)));
        let reply = bench.on_port(&post("/v1/pause", "", &headers)).await;
        assert_eq!(reply.code(), (403, "csrf".to_owned()), "{wrong:?}");
    }
    let headers = [("cookie", cookie.as_str()), (CSRF_HEADER, csrf.as_str())];
    let reply = bench.on_port(&post("/v1/pause", "", &headers)).await;
    assert_eq!(reply.status, 200);
    let given = (Command::Pause, "page, owner token".to_owned());
    assert_eq!(bench.obeyed.recv().await.unwrap(), given);
    // The other session's secret is useless with this cookie.
    let (_, other) = bench.log_in(OWNERS).await;
    let headers = [("cookie", cookie.as_str()), (CSRF_HEADER, other.as_deref().unwrap())];
    assert_eq!(bench.on_port(&post("/v1/resume", "", &headers)).await.status, 403);
    assert!(bench.obeyed.try_recv().is_err());
}

#[tokio::test]
async fn the_readers_token_looks_and_cannot_act() {
    let mut bench = Bench::owned();
    let (cookie, csrf) = bench.log_in(READERS).await;
    assert_eq!(csrf, None);
    assert_eq!(bench.on_port(&get("/v1/status", &[("cookie", &cookie)])).await.status, 200);
    for path in ["/v1/pause", "/v1/mode", "/v1/guests/grow/set", "/v1/policy"] {
        let headers = [("cookie", cookie.as_str()), (CSRF_HEADER, "0")];
        let reply = bench.on_port(&post(path, "{}", &headers)).await;
        assert_eq!(reply.code(), (403, "forbidden".to_owned()), "{path}");
    }
    assert!(bench.obeyed.try_recv().is_err());
}

#[tokio::test]
async fn a_wrong_token_opens_nothing() {
    let bench = Bench::owned();
    for token in ["", "owner", "owner-0123456789abcdeF"] {
        let body = format!("{{\"token\":{token:?}}}");
        let reply = bench.on_port(&post("/page/login", &body, &[])).await;
        assert_eq!(reply.code(), (403, "wrong-token".to_owned()));
        assert_eq!(reply.header("set-cookie"), None);
    }
    assert_eq!(bench.on_port(&post("/page/login", "token=x", &[])).await.code().0, 400);
}

/// What is logged meanwhile.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn repeated_refusals_leave_one_line_of_each_kind() {
    let log = Log::default();
    let written = log.clone();
    let lines = tracing_subscriber::fmt().with_writer(move || written.clone()).finish();
    let _guard = tracing::subscriber::set_default(lines);
    let bench = Bench::owned();
    let log_in = post("/page/login", "{\"token\":\"wrong\"}", &[]);
    let (first, second) = tokio::join!(bench.on_port(&log_in), bench.on_port(&log_in));
    assert_eq!([first.status, second.status], [403; 2]);
    let mut streams = Vec::new();
    for _ in 0..VISITORS_MAX + 2 {
        streams.push(TcpStream::connect(bench.port).await.unwrap());
    }
    for refused in &mut streams[VISITORS_MAX..] {
        assert_eq!(refused.read(&mut [0]).await.unwrap_or(0), 0);
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let count = |line: &str| text.matches(line).count();
    assert_eq!((count("a wrong token"), count("too many connections")), (1, 1), "{text}");
}

#[tokio::test]
async fn a_token_in_the_address_is_taken_out_of_it() {
    let bench = Bench::owned();
    let reply = bench.on_port(&get(&format!("/?token={OWNERS}"), &[])).await;
    assert_eq!((reply.status, reply.header("location")), (303, Some("/")));
    let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let session = bench.on_port(&get("/page/session", &[("cookie", &cookie)])).await.json();
    assert_eq!(session["access"], "write");
    assert_eq!(bench.on_port(&get("/?token=wrong", &[])).await.code().0, 403);
}

proptest! {
    #[test]
    fn rubbish_for_names_and_cookies_opens_nothing(
        host in prop::collection::vec(any::<u8>(), 0..40),
        cookie in "(ballast-7117=|[;= ]|\\PC){0,20}",
    ) {
        let access = fixture::access_on_port(&host, cookie.as_bytes());
        prop_assert!(access.is_none_or(|access| access == Access::None));
        prop_assert_eq!(fixture::access_on_port(b"localhost", b"ballast-7117="), Some(Access::None));
    }
}

#[tokio::test]
async fn a_session_ends_when_its_user_leaves() {
    let bench = Bench::owned();
    let (cookie, _) = bench.log_in(OWNERS).await;
    let reply = bench.on_port(&post("/page/logout", "", &[("cookie", &cookie)])).await;
    assert!(reply.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(bench.on_port(&get("/v1/status", &[("cookie", &cookie)])).await.status, 401);
}

#[tokio::test]
async fn a_name_that_strangers_can_own_is_not_answered() {
    let bench = Bench::owned();
    for path in ["/", "/v1/status", "/page/session"] {
        for host in ["evil.example", "evil.example:7117", "10.0.0.1", ""] {
            let reply = bench.on_port(&get(path, &[("host", host)])).await;
            assert_eq!(reply.code(), (421, "wrong-host".to_owned()), "{path} of {host}");
            let reply = bench.on_socket(&get(path, &[("host", host)])).await;
            assert_eq!(reply.code().0, 421, "{path} of {host} on the socket");
        }
    }
    assert_eq!(bench.on_port(&get("/", &[("host", "Ballast.example.org")])).await.status, 200);
    assert_eq!(bench.on_socket(&get("/v1/status", &[("host", "x")])).await.status, 200);
    let nameless = "GET /page/session HTTP/1.0\r\n\r\n";
    assert_eq!(bench.on_port(nameless).await.status, 421);
    assert_eq!(bench.on_socket(nameless).await.status, 200);
}

#[tokio::test]
async fn strangers_at_the_port_keep_nobody_from_the_socket() {
    let bench = Bench::owned();
    let mut idle = Vec::new();
    for _ in 0..VISITORS_MAX {
        idle.push(TcpStream::connect(bench.port).await.unwrap());
    }
    // The next one is disconnected at once; the earlier ones stay connected.
    let mut refused = TcpStream::connect(bench.port).await.unwrap();
    assert_eq!(refused.read(&mut [0; 8]).await.unwrap_or(0), 0);
    assert_eq!(bench.on_socket(&get("/v1/status", &[])).await.status, 200);
    drop(idle);
    let again = async || {
        let mut stream = TcpStream::connect(bench.port).await.unwrap();
        let _ = stream.write_all(get("/page/session", &[]).as_bytes()).await;
        stream.read(&mut [0; 8]).await.unwrap_or(0) > 0
    };
    while !again().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn browsers_on_the_socket_need_the_pages_secret() {
    let mut bench = Bench::owned();
    let session = bench.on_socket(&get("/page/session", &[])).await.json();
    assert_eq!((&session["access"], &session["by_token"]), (&"write".into(), &false.into()));
    let csrf = session["csrf"].as_str().unwrap().to_owned();
    for header in ["origin", "referer", "cookie", "sec-fetch-site"] {
        let reply = bench.on_socket(&post("/v1/pause", "", &[(header, "x")])).await;
        assert_eq!(reply.code(), (403, "csrf".to_owned()), "{header}");
        let its_own = [(header, "x"), (CSRF_HEADER, csrf.as_str())];
        assert_eq!(bench.on_socket(&post("/v1/pause", "", &its_own)).await.status, 200);
        let given = (Command::Pause, "page, uid 4000".to_owned());
        assert_eq!(bench.obeyed.recv().await.unwrap(), given);
    }
    // Programs need no secret.
    assert_eq!(bench.on_socket(&post("/v1/resume", "", &[])).await.status, 200);
    let given = (Command::Resume, "uid 4000".to_owned());
    assert_eq!(bench.obeyed.recv().await.unwrap(), given);
}

#[tokio::test]
async fn on_the_socket_the_kernel_says_who_may_act() {
    let reader = Bench::start(Peer { uid: 4001, gid: 4050, groups: vec![] });
    let session = reader.on_socket(&get("/page/session", &[])).await.json();
    assert_eq!((&session["access"], &session["csrf"]), (&"read".into(), &Value::Null));
    assert_eq!(reader.on_socket(&get("/", &[])).await.status, 200);
    // A session of the port does not count on the socket.
    let (cookie, csrf) = reader.log_in(OWNERS).await;
    let headers = [("cookie", cookie.as_str()), (CSRF_HEADER, csrf.as_deref().unwrap())];
    assert_eq!(reader.on_socket(&post("/v1/pause", "", &headers)).await.code().0, 403);
    let stranger = Bench::start(Peer { uid: 4001, gid: 4001, groups: vec![] });
    for path in ["/", "/page/files/uplot.js", "/page/session", "/page/stream"] {
        assert_eq!(stranger.on_socket(&get(path, &[])).await.code().0, 403, "{path}");
    }
}

#[tokio::test]
async fn every_reply_keeps_other_origins_out() {
    let bench = Bench::owned();
    for path in ["/", "/page/files/uplot.js", "/v1/status", "/nowhere", "/page/session"] {
        for reply in [bench.on_port(&get(path, &[])).await, bench.on_socket(&get(path, &[])).await]
        {
            let policy = reply.header("content-security-policy").unwrap();
            assert!(policy.starts_with("default-src 'self'; "), "{policy}");
            assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"));
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            assert_eq!(reply.header("access-control-allow-origin"), None);
        }
    }
}

#[tokio::test]
async fn the_page_tells_why_as_the_command_does() {
    let bench = Bench::owned();
    let why = bench.on_socket(&get("/page/guests/grow/why", &[])).await;
    assert_eq!((why.status, why.body.as_str()), (200, "guest      grow\n"));
    let reply = bench.on_socket(&get("/page/guests/grwo/why", &[])).await;
    assert_eq!((reply.status, &reply.json()["nearest"]), (404, &"grow".into()));
}

#[tokio::test]
async fn the_past_and_events_come_from_the_journal() {
    let bench = Bench::owned();
    let past = bench.on_socket(&get("/page/past?span_s=604800", &[])).await.json();
    let ticks = past["at_unix_ms"].as_array().unwrap().len();
    let (name, lines) = past["guests"].as_object().unwrap().iter().next().unwrap();
    assert!(ticks > 0);
    assert_eq!(lines["allocation_bytes"].as_array().unwrap().len(), ticks);
    let one = bench.on_socket(&get(&format!("/page/past?span_s=60&guest={name}"), &[])).await;
    assert_eq!(one.json()["guests"].as_object().unwrap().len(), 1);
    assert!(bench.on_socket(&get("/page/events", &[])).await.json().is_array());
    for query in ["", "?span_s=x", "?span_s=1&gust=a", "?span_s=1&guest=a%20b"] {
        let reply = bench.on_socket(&get(&format!("/page/past{query}"), &[])).await;
        assert_eq!(reply.code(), (400, "bad-query".to_owned()), "{query}");
    }
    fs::write(bench.folder.path().join("journal.db"), "rubbish").unwrap();
    let reply = bench.on_socket(&get("/page/events", &[])).await;
    assert_eq!(reply.code(), (503, "journal".to_owned()));
}

#[tokio::test]
async fn the_page_knows_which_policies_can_be_replayed() {
    let bench = Bench::owned();
    let policies = bench.on_socket(&get("/page/policies", &[])).await.json();
    let named = |name: &str| policies.as_array().unwrap().iter().find(|it| it["policy"] == name);
    assert!(named("global").unwrap()["not_replayable"].is_null());
    assert!(named("tws").unwrap()["not_replayable"].as_str().unwrap().contains("guests respond"));
}

#[tokio::test]
async fn each_tick_is_an_event_of_the_stream() {
    let bench = Bench::owned();
    let mut stream = UnixStream::connect(&bench.socket).await.unwrap();
    stream.write_all(get("/page/stream", &[]).as_bytes()).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while seen.matches("event: tick").count() < 2 {
        // The first event is the present view; the next comes with the next view.
        if seen.contains("event: tick") {
            bench.view.send_replace(Some(Arc::new(fixture::view())));
        }
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "{seen}");
        seen += &String::from_utf8_lossy(&buffer[..read]);
    }
    assert!(seen.contains("content-type: text/event-stream"), "{seen}");
    bench.view.send_replace(None);
    assert_eq!(bench.on_socket(&get("/page/stream", &[])).await.code().0, 503);
}
