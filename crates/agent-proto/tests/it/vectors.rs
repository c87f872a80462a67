//! Decodes the recorded streams of `vectors/` with this implementation and with the Python client,
//! which was written from `docs/agent-protocol.md` alone.

use std::io::Write;
use std::process::{Command, Stdio};

use ballast_agent_proto::wire::message::{WireMessage, decode, encode};
use ballast_agent_proto::wire::{FrameReader, GuestFrame, GuestMessage, HostFrame};
use serde_json::Value;

const GUEST: &str = include_str!("../../vectors/guest.json");
const HOST: &str = include_str!("../../vectors/host.json");

struct Vector {
    name: String,
    stream: Vec<u8>,
    payloads: Vec<Value>,
}

fn vectors(text: &str) -> Vec<Vector> {
    let list: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(!list.is_empty());
    let bytes = |hex: &str| {
        let digits = hex.as_bytes().chunks(2);
        digits.map(|it| u8::from_str_radix(str::from_utf8(it).unwrap(), 16).unwrap()).collect()
    };
    list.iter()
        .map(|it| Vector {
            name: it["name"].as_str().unwrap().to_owned(),
            stream: bytes(it["stream"].as_str().unwrap()),
            payloads: it["payloads"].as_array().unwrap().clone(),
        })
        .collect()
}

/// The payloads of `stream`, pushed in pieces of `piece` bytes.
fn read(stream: &[u8], piece: usize) -> Vec<String> {
    let (mut reader, mut payloads) = (FrameReader::new(), Vec::new());
    for piece in stream.chunks(piece) {
        reader.push(piece);
        payloads.extend(std::iter::from_fn(|| reader.next_frame()).filter_map(Result::ok));
    }
    payloads
}

/// Every payload survives decoding and encoding unchanged.
fn check<M: WireMessage>(text: &str, is_unknown: impl Fn(&M) -> bool) {
    for vector in vectors(text) {
        for piece in [1, 7, usize::MAX] {
            let read = read(&vector.stream, piece);
            let values: Vec<Value> =
                read.iter().map(|it| serde_json::from_str(it).unwrap()).collect();
            assert_eq!(values, vector.payloads, "{}", vector.name);
            for payload in &read {
                let message: M = decode(payload).unwrap();
                if is_unknown(&message) {
                    continue;
                }
                let again = &self::read(&encode(&message).unwrap(), usize::MAX)[0];
                let again: Value = serde_json::from_str(again).unwrap();
                let value: Value = serde_json::from_str(payload).unwrap();
                assert_eq!(again, value, "{}", vector.name);
            }
        }
    }
}

#[test]
fn guest_streams_survive_a_round_trip() {
    check::<GuestFrame>(GUEST, |it| it.message == GuestMessage::Unknown);
}

#[test]
fn host_streams_survive_a_round_trip() {
    check::<HostFrame>(HOST, |_| false);
}

fn python(mode: &str, input: &[u8]) -> Vec<u8> {
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client.py");
    let mut child = Command::new("python3")
        .args([client, mode])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed: install the package python3");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn lines(text: &[u8]) -> Vec<Value> {
    let text = str::from_utf8(text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_python_reader_reads_the_same_payloads() {
    for vector in vectors(GUEST).into_iter().chain(vectors(HOST)) {
        assert_eq!(lines(&python("decode", &vector.stream)), vector.payloads, "{}", vector.name);
    }
}

#[test]
fn frames_of_the_python_writer_are_decoded() {
    let payloads: Vec<Value> =
        vectors(GUEST).into_iter().flat_map(|vector| vector.payloads).collect();
    let text: String = payloads.iter().map(|payload| format!("{payload}\n")).collect();
    let frames = python("encode", text.as_bytes());
    let read = read(&frames, 4096);
    assert_eq!(read.len(), payloads.len());
    for (payload, sent) in read.iter().zip(&payloads) {
        assert_eq!(&serde_json::from_str::<Value>(payload).unwrap(), sent);
        decode::<GuestFrame>(payload).unwrap();
    }
}
