//! The page in a real browser: headless Chromium, driven by its own protocol as an operator would,
//! shows a daemon with fake QMP peers. If `BALLAST_PICTURES` names a folder, the tests write
//! pictures there.

use std::cell::RefCell;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ballast_api::fleet_socket;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

use crate::daemon::{BUDGET, FAST, Peers};
use crate::harness::{PATIENCE, Testbed, guest, wait_for};

const OWNERS: &str = "owner-0123456789abcdef";
const READERS: &str = "reader-0123456789abcdef";
/// Most events that may be on their way to a page at any moment: those in a listener's queue, and
/// one that is being read.
const EVENTS_UNDER_WAY_MAX: u64 = 5;
/// Ticks that the page should have seen before a picture is taken.
const PICTURE_TICKS: u64 = 60;
/// Largest picture, in bytes, so that the repository stays small.
const PICTURE_BYTES_MAX: usize = 150_000;

/// A page in a browser of the test's own.
struct Browser {
    tab: RefCell<Tab>,
    _chromium: Chromium,
}

/// The browser's processes; killed when dropped.
struct Chromium {
    child: Child,
    profile: TempDir,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // It leads a process group with all its processes.
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// The connection to a page, and the events noted there.
struct Tab {
    socket: WebSocket<TcpStream>,
    session: Option<Value>,
    sent: u64,
    complaints: Vec<Value>,
    asked: Vec<String>,
}

impl Tab {
    /// Connects to a page of the browser with this profile; `None`: it does not listen yet.
    fn open(profile: &Path) -> Option<Tab> {
        let text = fs::read_to_string(profile.join("DevToolsActivePort")).ok()?;
        let (port, path) = text.split_once('\n')?;
        let stream = TcpStream::connect(("127.0.0.1", port.parse().ok()?)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = format!("ws://127.0.0.1:{port}{}", path.trim());
        let (socket, _) = tungstenite::client(address, stream).ok()?;
        let mut tab = Tab { socket, session: None, sent: 0, complaints: vec![], asked: vec![] };
        let target = tab.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        tab.session = Some(tab.call("Target.attachToTarget", attach)["sessionId"].clone());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        Some(tab)
    }

    /// Sends a command and returns its result; notes events that arrive meanwhile.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut command = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = session.clone();
        }
        self.socket.send(Message::text(command.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else { continue };
            let mut message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == self.sent {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                self.asked.push(params["request"]["url"].as_str().unwrap().to_owned());
            }
            Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled") => {
                self.complaints.push(params.clone());
            }
            Some("Log.entryAdded") if params["entry"]["level"] != "verbose" => {
                self.complaints.push(params["entry"].clone());
            }
            _ => {}
        }
    }
}

impl Browser {
    /// Starts a browser. Prints a message and returns `None` if there is none or it does not start.
    fn open() -> Option<Browser> {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromium");
        // Its libraries leave files in these folders.
        command.env("XDG_RUNTIME_DIR", profile.path()).env("XDG_CONFIG_HOME", profile.path());
        // Tests run as root and in containers, where its sandbox cannot be made.
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ]);
        command.args(["--hide-scrollbars", "--lang=en", "--remote-debugging-port=0"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        // Files that it leaves are removed with the test's folder.
        command.env("HOME", profile.path()).env("TMPDIR", profile.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("SKIPPED: chromium: {error}: run scripts/setup");
                return None;
            }
        };
        let mut chromium = Chromium { child, profile };
        let begun = Instant::now();
        let tab = loop {
            if let Some(tab) = Tab::open(chromium.profile.path()) {
                break tab;
            }
            if let Some(status) = chromium.child.try_wait().unwrap() {
                println!("SKIPPED: chromium ends at once ({status}): try `chromium --headless`");
                return None;
            }
            assert!(begun.elapsed() < PATIENCE, "chromium neither listens nor ends");
            std::thread::sleep(std::time::Duration::from_millis(50));
        };
        let browser = Browser { tab: RefCell::new(tab), _chromium: chromium };
        browser.widen(1280);
        Some(browser)
    }

    fn call(&self, method: &str, params: Value) -> Value {
        self.tab.borrow_mut().call(method, params)
    }

    /// Makes the page `width` pixels wide.
    fn widen(&self, width: u32) {
        let size =
            json!({ "width": width, "height": 860, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    fn go(&self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
    }

    /// The value of an expression in the page; a promise is awaited.
    fn eval(&self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut found = self.call("Runtime.evaluate", params);
        assert!(found["exceptionDetails"].is_null(), "{expression}: {found}");
        found["result"]["value"].take()
    }

    fn click(&self, css: &str) {
        self.eval(&format!("document.querySelector({css:?}).click()"));
    }

    /// Replaces the text of a field.
    fn fill(&self, css: &str, text: &str) {
        self.eval(&format!("document.querySelector({css:?}).select()"));
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Presses a key, wherever the focus is.
    fn press(&self, key: &str) {
        let text = if key == "Enter" { "\r" } else { key };
        let down = json!({ "type": "keyDown", "key": key, "text": text });
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
    }

    /// Waits until an element has a text.
    fn shows(&self, css: &str, text: &str) {
        let expression = format!("document.querySelector({css:?})?.textContent ?? ''");
        wait_for(&format!("{text:?} in {css}"), || {
            self.eval(&expression).as_str()?.contains(text).then_some(())
        });
    }

    /// Ticks that the page has seen.
    fn ticks(&self) -> u64 {
        self.eval("Number(document.body.dataset.ticks ?? 0)").as_u64().unwrap()
    }

    /// How many pixels the page is wider than its window.
    fn overflow(&self) -> i64 {
        let root = "document.documentElement";
        self.eval(&format!("{root}.scrollWidth - {root}.clientWidth")).as_i64().unwrap()
    }

    /// Writes pictures, light and dark, if the environment asks for them.
    fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("BALLAST_PICTURES") else { return };
        for (scheme, suffix) in [("dark", "-dark"), ("light", "")] {
            self.prefer(scheme);
            let next = self.ticks() + 2;
            wait_for("the colours", || (self.ticks() > next).then_some(()));
            let image = self.call("Page.captureScreenshot", json!({ "format": "png" }));
            let path = Path::new(&folder).join(format!("page-{name}{suffix}.png"));
            let image = decoded(image["data"].as_str().unwrap());
            assert!(image.len() < PICTURE_BYTES_MAX, "{name}: {} bytes", image.len());
            fs::write(path, image).unwrap();
        }
    }
}

/// Decodes base64 with the machine's own program.
fn decoded(text: &str) -> Vec<u8> {
    let mut decode = Command::new("base64");
    let mut decode = decode.arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = decode.stdin.take().unwrap();
    let text = text.to_owned();
    let feeding =
        std::thread::spawn(move || std::io::Write::write_all(&mut input, text.as_bytes()));
    let output = decode.wait_with_output().unwrap();
    feeding.join().unwrap().unwrap();
    output.stdout
}

/// Configures a page on a free port with both tokens, and a budget with a third to spare.
fn configure(testbed: &Testbed) {
    let token = |name: &str, text: &str| {
        let path = testbed.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    };
    let page = format!(
        "[page]\nlisten = \"127.0.0.1:0\"\ntoken_file = {:?}\nreader_token_file = {:?}",
        token("owner.token", OWNERS),
        token("reader.token", READERS)
    );
    testbed.configure(FAST, &format!("{BUDGET}\n{page}"));
}

/// The page's address, from the daemon's log.
fn address(testbed: &Testbed) -> String {
    let log = testbed.log();
    let (_, after) = log.rsplit_once("page on ").expect("the port is open");
    after.split_whitespace().next().unwrap().to_owned()
}

/// Logs in by the form.
fn log_in(browser: &Browser, token: &str) {
    browser.shows("main", "Log in");
    browser.fill("#token", token);
    browser.click("#log-in");
    browser.shows("#guests", "busy");
}

#[test]
fn an_operator_watches_explains_and_acts_in_a_browser() {
    let Some(browser) = Browser::open() else { return };
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    let _idle = peers.using(&testbed, "idle", 100);
    configure(&testbed);
    let daemon = testbed.start();
    let page = address(&testbed);
    browser.go(&page);
    log_in(&browser, OWNERS);
    browser.shows("#host", "acting");
    browser.shows("#host", "1GiB");

    // Live: the page shows a tick as soon as that tick's event arrives.
    browser.eval(
        "new MutationObserver((_, me) => { \
             if (!document.querySelector('[data-guest=late]')) return; \
             window.appeared = Number(document.body.dataset.ticks); me.disconnect(); \
         }).observe(document.querySelector('#guests'), { childList: true, subtree: true })",
    );
    let _late = peers.using(&testbed, "late", 50);
    wait_for("the guest", || guest(&daemon.status()?, "late").map(|_| ()));
    let known_at = browser.ticks();
    let appeared = wait_for("its row", || browser.eval("window.appeared").as_u64());
    assert!(appeared <= known_at + EVENTS_UNDER_WAY_MAX, "{appeared} after {known_at}");

    if std::env::var_os("BALLAST_PICTURES").is_some() {
        wait_for("some history", || (browser.ticks() > PICTURE_TICKS).then_some(()));
    }
    browser.picture("overview");

    // By keys: selects the guest, shows its explanation and its plots.
    browser.press("j");
    browser.shows("[aria-selected=true]", "busy");
    browser.press("Enter");
    browser.shows("#why", "plan #");
    let (_, output, _) = testbed.ballast(&["explain", "busy"]);
    for name in output.lines().filter_map(|line| line.get(..11)).map(str::trim) {
        browser.shows("#why", name);
    }
    browser.picture("why");
    browser.press("Enter");
    browser.shows("#memory .u-legend", "demand");
    browser.picture("guest");

    // Pause, by a key and a question.
    browser.press("p");
    browser.shows("dialog", "ballast pause");
    browser.click("#yes");
    browser.shows("#pause", "resume");
    assert!(daemon.status().unwrap().tick.paused);
    browser.click("#pause");
    browser.click("#yes");
    wait_for("acting again", || (!daemon.status()?.tick.paused).then_some(()));

    // Bounds, with a mistake first.
    browser.press("s");
    browser.shows("dialog", "Bounds of busy");
    browser.fill("#set-shares", "many");
    browser.click("#yes");
    browser.shows("dialog [role=alert]", "not a whole number");
    browser.fill("#set-shares", "2000");
    browser.click("#yes");
    browser.shows("dialog", "ballast set busy --shares 2000");
    browser.click("#yes");
    wait_for("the shares", || {
        let status = daemon.status()?;
        (guest(&status, "busy")?.shares == Some(2000)).then_some(())
    });
    browser.press("e");
    browser.shows("#events", "set busy --shares 2000, by page, owner token");

    // What-if, by keys: the present policy beside another one.
    browser.press("w");
    browser.shows("#policy", "tws (cannot be replayed)");
    browser.press("Enter");
    browser.shows("#figures", "global (present)");
    for part in ["static", "RECORDED", "swap-ins avoided", "could be given back, worst hour"] {
        browser.shows("#figures", part);
    }
    browser.shows("#compared", "ballast advise --since 24h --policy static");
    browser.shows("#assumptions", "the loop is open");
    browser.shows("#course .u-legend", "needed");
    let (_, advice, _) = testbed.ballast(&[
        "advise",
        "--since",
        "1d",
        "--policy",
        "static",
        "--json",
        "--journal",
        testbed.journal().to_str().unwrap(),
    ]);
    let advice: Value = serde_json::from_str(&advice).unwrap();
    browser.shows("#compared", advice["confidence"]["weakest"].as_str().unwrap());
    browser.picture("what-if");
    // The event stays in the list while the page is open.
    browser.press("e");
    browser.shows("#events", "set busy --shares 2000");
    browser.press("w");
    browser.shows("#figures", "global (present)");

    assert_eq!(browser.tab.borrow().complaints, [] as [Value; 0]);
    let asked = browser.tab.borrow().asked.clone();
    assert!(asked.len() > 10, "{asked:?}");
    let outside: Vec<_> = asked.iter().filter(|it| !it.starts_with(&page)).collect();
    assert!(outside.is_empty(), "{outside:?}");

    // The page stays when the daemon ends.
    daemon.kill();
    browser.shows("#connection", "no tick");
}

#[test]
fn a_reader_looks_at_the_page_and_cannot_act() {
    let Some(browser) = Browser::open() else { return };
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    configure(&testbed);
    let daemon = testbed.start();
    browser.go(&address(&testbed));
    browser.shows("main", "Log in");
    browser.fill("#token", "not-the-token-at-all");
    browser.click("#log-in");
    browser.shows("#message", "this is not the token");
    log_in(&browser, READERS);
    browser.shows("#actions", "you can look, not act");
    assert_eq!(browser.eval("document.querySelector('#pause') === null"), true);
    browser.press("p");
    assert_eq!(browser.eval("document.querySelector('dialog') === null"), true);
    let script = "fetch('/v1/pause', { method: 'POST', headers: { 'x-ballast-csrf': '0' } })\
                  .then((reply) => reply.status)";
    assert_eq!(browser.eval(script), 403);
    assert!(!daemon.status().unwrap().tick.paused);
    // What-if only reads, so it needs no owner.
    browser.eval("location.hash = '#/what-if'");
    browser.shows("#policy", "static");
    browser.click("#compare");
    browser.shows("#figures", "swap-ins avoided");
    browser.eval("location.hash = '#/'");
    browser.shows("#host", "acting");
}

#[test]
fn every_view_fits_a_narrow_screen() {
    let Some(browser) = Browser::open() else { return };
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    let _long = peers.using(&testbed, &format!("a-{}", "long-name-".repeat(3)), 100);
    configure(&testbed);
    let _daemon = testbed.start();
    browser.widen(360);
    let page = address(&testbed);
    browser.go(&format!("{page}?token={OWNERS}"));
    for (view, css, text) in [
        ("#/", "#guests", "busy"),
        ("#/guest/busy", "#memory .u-legend", "demand"),
        ("#/why/busy", "#why", "plan #"),
        ("#/events", "#events", "the daemon started"),
        ("#/what-if", "#policy", "static"),
    ] {
        browser.eval(&format!("location.hash = {view:?}"));
        browser.shows(css, text);
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            assert_eq!(browser.overflow(), 0, "{view} {scheme}");
        }
    }
    browser.press("Enter");
    browser.shows("#figures", "confidence");
    assert_eq!(browser.overflow(), 0, "a comparison");
    // For screen readers, every control has a name.
    let nameless = "[...document.querySelectorAll('button, a, input, select, [role=img]')]\
                    .filter((it) => !(it.ariaLabel || it.textContent.trim() || it.labels?.length))\
                    .map((it) => it.outerHTML)";
    for view in ["#/", "#/guest/busy", "#/why/busy", "#/events", "#/what-if"] {
        browser.eval(&format!("location.hash = {view:?}"));
        let next = browser.ticks() + 1;
        wait_for("the view", || (browser.ticks() > next).then_some(()));
        assert_eq!(browser.eval(nameless), json!([]), "{view}");
    }
}

/// The answer of a fleet's member, which a test of `ballast-fleet` pins.
const FLEET: &str = include_str!("fleet.json");

/// Stands in for `ballast-fleet`: always gives the same answer, and counts how often it was asked.
fn fleet_program(testbed: &Testbed, status: &'static str, body: String) -> Arc<AtomicU64> {
    let listener = UnixListener::bind(fleet_socket(&testbed.path("api.sock"))).unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            assert!(request[..read].starts_with(b"GET /v1/fleet HTTP/1.1\r\n"));
            count.fetch_add(1, Ordering::Relaxed);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: \
                 {length}\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    asked
}

#[test]
fn an_operator_sees_the_fleet_in_a_browser() {
    let Some(browser) = Browser::open() else { return };
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    configure(&testbed);
    let mut reply: Value = serde_json::from_str(FLEET).unwrap();
    let hosts = reply["status"]["hosts"].as_array_mut().unwrap();
    hosts.push(json!({ "host": "d", "draining": false, "left_out": "version 2 of a record" }));
    reply["status"]["moves"] =
        json!([{ "guest": "cache", "phase": "copying", "text": "is copied from a to b" }]);
    let asked = fleet_program(&testbed, "200 OK", reply.to_string());
    let daemon = testbed.start();
    browser.go(&address(&testbed));
    log_in(&browser, READERS);
    browser.press("h");
    browser.shows("#led", "test, led by a (revision 3); mode advise");
    for (host, text) in [("a", "1GiB short of floors"), ("b", "16GiB"), ("c", "39GiB short")] {
        browser.shows(&format!("#hosts [data-host={host}]"), text);
    }
    let bar = |host: &str, name: &str| {
        let css = format!("[data-host={host}] [data-name={name}] meter");
        browser.eval(&format!("document.querySelector({css:?}).value")).as_u64()
    };
    assert_eq!((bar("a", "FLOORS"), bar("b", "COMMITTED")), (Some(5 << 30), Some(1 << 30)));
    browser.shows("#under-way", "is copied from a to b");
    browser.shows("#planned", "its host is 1GiB short of its guests' floors");
    browser.shows("#unmet", "stays 39GiB short of floors");
    browser.shows("#left-out", "version 2 of a record");
    browser.shows("#commands", "ballast fleet drain HOST");
    browser.picture("fleet");
    browser.widen(320);
    assert_eq!(browser.overflow(), 0, "it fits a telephone");
    // More requests get the answer that the daemon has already.
    let reached = asked.load(Ordering::Relaxed);
    for _ in 0..3 {
        browser.press("o");
        browser.press("h");
    }
    browser.shows("#led", "test");
    assert!(asked.load(Ordering::Relaxed) <= reached + 1, "{asked:?} after {reached}");
    assert_eq!(browser.tab.borrow().complaints, [] as [Value; 0]);
    assert!(daemon.stop().success());
}

#[test]
fn without_a_fleet_the_page_says_how_to_begin() {
    let Some(browser) = Browser::open() else { return };
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    configure(&testbed);
    let daemon = testbed.start();
    browser.go(&address(&testbed));
    log_in(&browser, READERS);
    browser.click("a[href='#/fleet']");
    browser.shows("#fleet", "systemctl enable --now ballast-fleet");
    assert_eq!(browser.eval("document.querySelector('#fleet table') === null"), true);
    assert_eq!(browser.tab.borrow().complaints, [] as [Value; 0]);
    assert!(daemon.stop().success());
}

#[test]
fn a_fleet_that_cannot_be_read_says_why() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _guest = peers.using(&testbed, "a", 100);
    testbed.configure(FAST, BUDGET);
    let why = "{\"api_version\":1,\"error\":{\"code\":\"no-fleet\",\"text\":\"etcd is gone\"}}";
    fleet_program(&testbed, "502 Bad Gateway", why.to_owned());
    let daemon = testbed.start();
    let client = ballast_api::Client::new(testbed.path("api.sock"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(client.fleet()).unwrap_err();
    assert_eq!(error.to_string(), "etcd is gone");
    assert!(daemon.stop().success());
}
