//! memcached, queried by this process.
//!
//! Idea: all keys are set once; then random keys are read, a batch at a time over one connection,
//! and each key found counts.
//! Source: memcached's `doc/protocol.txt`. Limits: keys that the server dropped because it was
//! ordered to shrink are no error; they do not count.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Instant;

use ballast_lab_guest::rng::Rng;
use ballast_model::Bytes;

use super::connection::{Connection, VALUE_BYTES, key_name};
use super::running::{RunningProgram, WORK_TIME};
use super::subprocess::{NOBODY, Subprocess};

/// Memory per key: the chunk of memcached's allocator that fits the value, the name and some 60
/// bytes of bookkeeping.
const KEY_BYTES: u64 = 1184;
/// Keys read per batch: as many as redis-benchmark has in flight.
const GETS: u64 = 16;
/// Memory limit beyond its data, in MiB: enough that it never evicts.
const ROOM_MIB: u64 = 64;

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
        let mut connection = Connection::new("memcached", server.connect(&socket)?);
        fill(&mut connection, keys)?;
        Ok(Memcached { server, connection, keys, rng: Rng::new(2), found: 0 })
    }
}

impl RunningProgram for Memcached {
    fn work(&mut self) -> Result<u64, String> {
        let start = Instant::now();
        self.server.check()?;
        while start.elapsed() < WORK_TIME {
            let keys: Vec<u64> = (0..GETS).map(|_| self.rng.below(self.keys)).collect();
            self.found += get(&mut self.connection, &keys)?;
        }
        Ok(self.found)
    }
}

fn fill(connection: &mut Connection, keys: u64) -> Result<(), String> {
    connection.fill(keys, "STORED", |name, value| {
        [format!("set {name} 0 0 {VALUE_BYTES}\r\n").as_bytes(), value, b"\r\n"].concat()
    })
}

/// Reads `keys`; returns how many were found.
fn get(connection: &mut Connection, keys: &[u64]) -> Result<u64, String> {
    let requests: String = keys.iter().map(|key| format!("get {}\r\n", key_name(*key))).collect();
    connection.send(requests.as_bytes())?;
    let mut found = 0;
    for key in keys {
        let mut line = connection.line()?;
        if line == format!("VALUE {} 0 {VALUE_BYTES}", key_name(*key)) {
            // With the line end that follows it.
            connection.read(&mut [0; VALUE_BYTES + 2])?;
            found += 1;
            line = connection.line()?;
        }
        if line != "END" {
            return Err(format!("memcached replied to get with `{line}`"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_keys_found_are_counted() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new("memcached", ours);
        theirs.write_all(b"STORED\r\nSTORED\r\n").unwrap();
        fill(&mut connection, 2).unwrap();
        let value = [b'x'; VALUE_BYTES];
        theirs.write_all(b"END\r\nVALUE key:000000000001 0 1000\r\n").unwrap();
        theirs.write_all(&value).unwrap();
        theirs.write_all(b"\r\nEND\r\n").unwrap();
        assert_eq!(get(&mut connection, &[0, 1]), Ok(1));
        theirs.write_all(b"SERVER_ERROR out of memory storing object\r\n").unwrap();
        assert!(fill(&mut connection, 1).unwrap_err().contains("out of memory"));
        // A value of another key.
        theirs.write_all(b"VALUE key:000000000002 0 1000\r\n").unwrap();
        assert!(get(&mut connection, &[1]).unwrap_err().contains("key:000000000002"));
        drop(connection);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).unwrap();
        let first = b"set key:000000000000 0 0 1000\r\n";
        assert!(sent.starts_with(first), "{:?}", String::from_utf8_lossy(&sent[..60]));
    }
}
