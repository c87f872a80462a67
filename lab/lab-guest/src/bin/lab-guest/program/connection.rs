//! A client's connection to a server.
//!
//! Idea: a stream whose errors name the server. Servers of keys are filled over it in the same way,
//! with keys named as redis-benchmark names them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use ballast_lab_guest::rng::Rng;

/// Size of a key's value.
pub(super) const VALUE_BYTES: usize = 1000;
/// Keys set per batch.
const BATCH: u64 = 256;
/// Longest line of a reply.
const LINE_BYTES_MAX: u64 = 4096;

/// A connection.
pub(super) struct Connection {
    server: &'static str,
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub(super) fn new(server: &'static str, stream: UnixStream) -> Connection {
        Connection { server, stream: BufReader::new(stream) }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.get_mut().write_all(bytes);
        sent.map_err(|error| format!("{}: {error}", self.server))
    }

    /// Reads as many bytes as `bytes` has.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        let read = self.stream.read_exact(bytes);
        read.map_err(|error| format!("{}: {error}", self.server))
    }

    /// Reads a line, without its end.
    pub(super) fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        read.map_err(|error| format!("{}: {error}", self.server))?;
        Ok(line.trim_end().to_owned())
    }

    /// Sets the first `keys` keys. `set` makes the request for the value of a key, to which the
    /// server replies `stored`.
    pub(super) fn fill(
        &mut self,
        keys: u64,
        stored: &str,
        set: impl Fn(&str, &[u8]) -> Vec<u8>,
    ) -> Result<(), String> {
        // Values differ by their offset into the same random bytes.
        let mut rng = Rng::new(1);
        let random: Vec<u8> =
            (0..VALUE_BYTES / 4).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let mut key = 0;
        while key < keys {
            let batch = key..keys.min(key + BATCH);
            let mut requests = Vec::new();
            for key in batch.clone() {
                let value = &random[key as usize % VALUE_BYTES..][..VALUE_BYTES];
                requests.extend(set(&key_name(key), value));
            }
            // One write: the server would wake up for each request, which takes longer than
            // answering.
            self.send(&requests)?;
            for _ in batch.clone() {
                let reply = self.line()?;
                if reply != stored {
                    return Err(format!("{} replied to set with `{reply}`", self.server));
                }
            }
            key = batch.end;
        }
        Ok(())
    }
}

/// The name of a key.
pub(super) fn key_name(key: u64) -> String {
    format!("key:{key:012}")
}
