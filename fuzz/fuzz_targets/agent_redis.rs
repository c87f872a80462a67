//! Replies of a redis server: any bytes give an answer or a short error for each command, and the
//! client sends nothing but its commands.
#![no_main]

use std::sync::atomic::Ordering;

use ballast_agent::shrink::{LineClient, RedisConnection};
use ballast_fuzz::{FakeServer, assert_harmless};

/// Longest error, in characters.
const ERROR_CHARS_MAX: usize = 200;
/// Longest answer: the limit of the shrinker, or one line.
const ANSWER_BYTES_MAX: usize = 3 * (64 << 10);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (server, heard) = FakeServer::new(bytes);
    let mut connection = RedisConnection::from_client(LineClient::from_stream(server));
    for _ in 0..4 {
        let before = heard.load(Ordering::Relaxed);
        match connection.info() {
            Ok(memory) => assert!(memory.policy.len() <= bytes.len() * 3),
            Err(error) => assert_harmless(&error, ERROR_CHARS_MAX),
        }
        match connection.ask(&["MEMORY", "PURGE"]) {
            Ok(text) => assert!(text.len() <= ANSWER_BYTES_MAX),
            Err(error) => assert_harmless(&error, ERROR_CHARS_MAX),
        }
        assert!(heard.load(Ordering::Relaxed) - before < 100);
    }
});
