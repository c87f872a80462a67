//! Replies of a memcached server: any bytes give figures or a short error, and reading ends.
#![no_main]

use ballast_agent::shrink::{LineClient, MemcachedConnection, ReassignReply};
use ballast_fuzz::{FakeServer, assert_harmless};

/// Longest error, in characters.
const ERROR_CHARS_MAX: usize = 200;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (server, _) = FakeServer::new(bytes);
    let mut connection = MemcachedConnection::from_client(LineClient::from_stream(server));
    for _ in 0..4 {
        let held = connection.held();
        let limit = connection.limit();
        for error in [held.err(), limit.err(), connection.set_limit(64).err()] {
            error.iter().for_each(|error| assert_harmless(error, ERROR_CHARS_MAX));
        }
        match connection.empty_page() {
            Ok(ReassignReply::Refused(why)) | Err(why) => assert_harmless(&why, ERROR_CHARS_MAX),
            Ok(ReassignReply::Started | ReassignReply::Busy) => {}
        }
    }
});
