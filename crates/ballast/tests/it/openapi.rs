//! The API's OpenAPI document describes what a real daemon answers.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use ballast_api::openapi::document;
use ballast_api::path;
use ballast_qmp_testing::{Misbehaviour, PeerConfig};
use expect_test::expect_file;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::daemon::{BUDGET, FAST, Peers};
use crate::harness::{Testbed, guest, wait_for};

/// A validator for the part of the document at a pointer.
fn validator(document: &Value, pointer: &str) -> Validator {
    let mut schema = document.clone();
    // Braces, around a parameter in a path, are not allowed in a URI.
    let pointer = pointer.replace('{', "%7B").replace('}', "%7D");
    schema["$ref"] = format!("#{pointer}").into();
    jsonschema::draft202012::new(&schema).unwrap()
}

/// The violations of the schema at a pointer by a value.
fn mistakes(document: &Value, pointer: &str, value: &Value) -> Vec<String> {
    let validator = validator(document, pointer);
    validator.iter_errors(value).map(|it| format!("{}: {it}", it.instance_path())).collect()
}

/// Status and body of an answer of the daemon on `socket`.
fn ask(socket: &Path, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn the_document_is_the_one_in_the_documentation() {
    let text = format!("{:#}\n", document());
    expect_file!["../../../../docs/openapi.json"].assert_eq(&text);
}

#[test]
fn the_document_has_every_path() {
    let document = document();
    let described = document["paths"].as_object().unwrap().keys().map(String::as_str);
    assert_eq!(described.collect::<BTreeSet<_>>(), BTreeSet::from(path::ALL));
}

/// What a guest brings along.
const CARRIED: &str = r#"{"limits":{"shares":500},"credits":7,
    "thrashed":{"least_bytes":104857600,"left_ms":50000,"pause_ms":60000}}"#;

#[test]
fn every_answer_of_a_daemon_is_as_described() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    let _idle = peers.using(&testbed, "idle", 100);
    let mute = PeerConfig { misbehaviour: Misbehaviour::NoGreeting, ..PeerConfig::default() };
    let _mute = peers.spawn(&testbed, "mute", mute);
    testbed.configure(FAST, BUDGET);
    let daemon = testbed.start();
    wait_for("an outcome", || {
        let status = daemon.status()?;
        guest(&status, "busy")?.target_bytes.filter(|target| *target < 1 << 30)
    });
    let (document, socket) = (document(), testbed.path("api.sock"));
    let mut answered = BTreeSet::new();
    let ended = "/nowhere";
    for (method, path, asked, body, expected) in [
        ("GET", path::STATUS, path::STATUS, "", 200),
        ("GET", path::GUESTS, path::GUESTS, "", 200),
        ("GET", path::EXPLAIN, "/v1/guests/busy/explain", "", 200),
        ("GET", path::EXPLAIN, "/v1/guests/mute/explain", "", 200),
        ("GET", path::EXPLAIN, "/v1/guests/bsuy/explain", "", 404),
        ("GET", path::PLAN, path::PLAN, "", 200),
        ("GET", path::PLAN, "/v1/plan?dry_run=true", "", 200),
        ("GET", path::PLAN, "/v1/plan?dryrun=true", "", 400),
        ("GET", path::MODE, path::MODE, "", 200),
        ("GET", path::METRICS, path::METRICS, "", 200),
        ("GET", path::WHAT_IF, path::WHAT_IF, "", 200),
        ("GET", path::WHAT_IF, "/v1/what-if?policy=static&since_s=60", "", 200),
        ("GET", path::WHAT_IF, "/v1/what-if?policy=meb", "", 409),
        ("GET", path::WHAT_IF, "/v1/what-if?since=1d", "", 400),
        ("GET", path::FLEET, path::FLEET, "", 200),
        ("POST", path::SET_GUEST, "/v1/guests/busy/set", "{\"shares\":500}", 200),
        ("POST", path::SET_GUEST, "/v1/guests/busy/set", "{\"share\":500}", 400),
        ("GET", path::CARRIED, "/v1/guests/busy/carried", "", 200),
        ("GET", path::CARRIED, "/v1/guests/bsuy/carried", "", 404),
        ("POST", path::CARRIED, "/v1/guests/busy/carried", CARRIED, 200),
        ("POST", path::CARRIED, "/v1/guests/busy/carried", "{\"credits\":-1}", 400),
        ("GET", path::CARRIED, "/v1/guests/busy/carried", "", 200),
        ("POST", path::PERSIST_GUEST, "/v1/guests/busy/persist", "{\"shares\":500}", 409),
        (
            "POST",
            path::RESERVE,
            "/v1/reservations/new/set",
            "{\"size_bytes\":4096,\"lasts_s\":60}",
            200,
        ),
        ("GET", path::STATUS, path::STATUS, "", 200),
        ("POST", path::UNRESERVE, "/v1/reservations/new/release", "", 200),
        ("POST", path::UNRESERVE, "/v1/reservations/new/release", "", 409),
        ("POST", path::PAUSE, path::PAUSE, "", 200),
        ("POST", path::RESUME, path::RESUME, "", 200),
        ("POST", path::POLICY, path::POLICY, "{\"policy\":\"static\"}", 200),
        ("POST", path::MODE, path::MODE, "{\"mode\":\"observe\"}", 200),
        ("GET", path::PAUSE, path::PAUSE, "", 405),
        ("GET", ended, ended, "", 404),
    ] {
        let (status, answer) = ask(&socket, method, asked, body);
        assert_eq!(status, expected, "{method} {asked}: {answer}");
        if path == path::METRICS {
            answered.insert((path, method));
            continue;
        }
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let place = path.replace('/', "~1");
        let response = if status == 200 { "200" } else { "default" };
        let pointer = match (path, status) {
            (_, 404 | 405) => "/components/schemas/ErrorReply".to_owned(),
            _ => format!(
                "/paths/{place}/{}/responses/{response}/content/application~1json/schema",
                method.to_lowercase()
            ),
        };
        assert_eq!(mistakes(&document, &pointer, &answer), [""; 0], "{method} {asked}: {answer:#}");
        answered.insert((path, method));
        if status == 200 && method == "POST" && !body.is_empty() {
            let pointer =
                format!("/paths/{place}/post/requestBody/content/application~1json/schema");
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!(mistakes(&document, &pointer, &body), [""; 0]);
            let unknown = json!({ "unheard-of": 1 });
            assert_ne!(mistakes(&document, &pointer, &unknown), [""; 0], "{path}");
        }
    }
    // Every operation of the document was asked.
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            assert!(answered.contains(&(path.as_str(), method.as_str())), "{method} {path}");
        }
    }
    assert!(daemon.stop().success());
}

#[test]
fn the_schemas_refuse_what_is_not_an_answer() {
    let document = document();
    let pointer = "/components/schemas/CommandReply";
    assert_eq!(mistakes(&document, pointer, &json!({ "api_version": 1, "message": "x" })), [""; 0]);
    assert_ne!(
        mistakes(&document, pointer, &json!({ "api_version": "1", "message": "x" })),
        [""; 0]
    );
    assert_ne!(mistakes(&document, pointer, &json!({ "api_version": 1 })), [""; 0]);
}
