//! memcached, queried by this process.
//!
//! Idea: all keys are set once; then random keys are read, a batch at a time over one connection,
//! and each key found counts.
//! Source: memcached's `doc/protocol.txt`. Limits: keys that the server dropped because it was
//! ordered to shrink are no error; they do not count.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ballast_lab_guest::rng::Rng;
use ballast_model::Bytes;

use super::running::RunningProgram;
use super::subprocess::{NOBODY, Subprocess};

/// Size of a value.
const VALUE_BYTES: usize = 1000;
/// Memory per key: the chunk of memcached's allocator that fits the value, the name and some 60
/// bytes of bookkeeping.
const KEY_BYTES: u64 = 1184;
/// Keys set per batch.
const SETS: u64 = 256;
/// Keys read per batch: as many as redis-benchmark has in flight.
const GETS: u64 = 16;
/// Time per call of `work`.
const WORK_TIME: Duration = Duration::from_millis(200);
/// Memory limit beyond its data, in MiB: enough that it never evicts.
const ROOM_MIB: u64 = 64;
/// Longest line of a reply.
const LINE_BYTES_MAX: u64 = 4096;

pub(super) struct Memcached {
    // Dropped first, so that the connection outlives it.
    server: Subprocess,
    connection: Connection,
    keys: u64,
    rng: Rng,
    found: u64,
}

impl Memcached {
    /// Starts it with keys of `size` in total.
    pub(super) fn start(size: Bytes) -> Result<Memcached, String> {
        let socket = PathBuf::from(format!("/tmp/memcached-{}", std::process::id()));
        let path = socket.display().to_string();
        let keys = (size.get() / KEY_BYTES).max(1);
        let limit_mib = (size.get().div_ceil(1 << 20) + ROOM_MIB).to_string();
        let arguments = ["-s", &path, "-m", &limit_mib, "-t", "1"];
        let mut server = Subprocess::start("memcached", &arguments, |command| {
            command.uid(NOBODY).gid(NOBODY);
        })?;
        let mut connection = Connection(BufReader::new(server.connect(&socket)?));
        connection.fill(keys)?;
        Ok(Memcached { server, connection, keys, rng: Rng::new(2), found: 0 })
    }
}

impl RunningProgram for Memcached {
    fn work(&mut self) -> Result<u64, String> {
        let start = Instant::now();
        self.server.check()?;
        while start.elapsed() < WORK_TIME {
            let keys: Vec<u64> = (0..GETS).map(|_| self.rng.below(self.keys)).collect();
            self.found += self.connection.get(&keys)?;
        }
        Ok(self.found)
    }
}

/// A client connection; implements the part of the protocol needed here.
struct Connection(BufReader<UnixStream>);

impl Connection {
    fn fill(&mut self, keys: u64) -> Result<(), String> {
        // Values differ by their offset into the same random bytes.
        let mut rng = Rng::new(1);
        let random: Vec<u8> =
            (0..VALUE_BYTES / 4).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let mut key = 0;
        while key < keys {
            let batch = key..keys.min(key + SETS);
            let mut requests = Vec::new();
            for key in batch.clone() {
                requests.extend(format!("set {} 0 0 {VALUE_BYTES}\r\n", name(key)).into_bytes());
                requests.extend_from_slice(&random[key as usize % VALUE_BYTES..][..VALUE_BYTES]);
                requests.extend(b"\r\n");
            }
            // One write: the server would wake up for each request, which takes longer than
            // answering.
            self.0.get_mut().write_all(&requests).map_err(io_error)?;
            for _ in batch.clone() {
                let reply = self.line()?;
                if reply != "STORED" {
                    return Err(format!("memcached replied to set with `{reply}`"));
                }
            }
            key = batch.end;
        }
        Ok(())
    }

    /// Reads `keys`; returns how many were found.
    fn get(&mut self, keys: &[u64]) -> Result<u64, String> {
        let requests: String = keys.iter().map(|key| format!("get {}\r\n", name(*key))).collect();
        self.0.get_mut().write_all(requests.as_bytes()).map_err(io_error)?;
        let mut found = 0;
        for key in keys {
            let mut line = self.line()?;
            if line == format!("VALUE {} 0 {VALUE_BYTES}", name(*key)) {
                // With the line end that follows it.
                let mut value = [0; VALUE_BYTES + 2];
                self.0.read_exact(&mut value).map_err(io_error)?;
                found += 1;
                line = self.line()?;
            }
            if line != "END" {
                return Err(format!("memcached replied to get with `{line}`"));
            }
        }
        Ok(found)
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.0.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).map_err(io_error)?;
        Ok(line.trim_end().to_owned())
    }
}

fn name(key: u64) -> String {
    format!("key:{key:012}")
}

fn io_error(error: std::io::Error) -> String {
    format!("memcached: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_found_are_counted() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection(BufReader::new(ours));
        theirs.write_all(b"STORED\r\nSTORED\r\n").unwrap();
        connection.fill(2).unwrap();
        let value = [b'x'; VALUE_BYTES];
        theirs.write_all(b"END\r\nVALUE key:000000000001 0 1000\r\n").unwrap();
        theirs.write_all(&value).unwrap();
        theirs.write_all(b"\r\nEND\r\n").unwrap();
        assert_eq!(connection.get(&[0, 1]), Ok(1));
        theirs.write_all(b"SERVER_ERROR out of memory storing object\r\n").unwrap();
        assert!(connection.fill(1).unwrap_err().contains("out of memory"));
        // A value of another key.
        theirs.write_all(b"VALUE key:000000000002 0 1000\r\n").unwrap();
        assert!(connection.get(&[1]).unwrap_err().contains("key:000000000002"));
        drop(connection);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).unwrap();
        let first = b"set key:000000000000 0 0 1000\r\n";
        assert!(sent.starts_with(first), "{:?}", String::from_utf8_lossy(&sent[..60]));
    }
}
