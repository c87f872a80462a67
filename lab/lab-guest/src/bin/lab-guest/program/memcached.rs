//! memcached, asked by this process.
//!
//! Idea: keys are set first, each once; then keys at random are got, a batch at a time through one connection,
//! and each that comes with its value counts.
//! Source: memcached's `doc/protocol.txt`. Limits: what a server lost because it was told to shrink is no error;
//! it does not count.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ballast_lab_guest::rng::Rng;
use ballast_model::Bytes;

use super::Running;
use super::beside::{Beside, NOBODY};

/// What a key's value has.
const VALUE_BYTES: usize = 1000;
/// What a key takes with it: the chunk of memcached's own allocator that the value, the name and some 60 bytes
/// of bookkeeping fit into.
const KEY_BYTES: u64 = 1184;
/// Keys set before answers are read.
const SETS: u64 = 256;
/// Keys asked for before answers are read: as many as redis-benchmark has on the way beside it.
const GETS: u64 = 16;
/// Between two looks at the clock.
const MOMENT: Duration = Duration::from_millis(200);
/// Memory it may take beyond its data, in MiB: never so little that it would drop any of it.
const ROOM_MIB: u64 = 64;
/// Longest line of an answer.
const LINE_BYTES_MAX: u64 = 4096;

pub(super) struct Memcached {
    // Dropped first, so that the connection outlives it.
    server: Beside,
    connection: Connection,
    keys: u64,
    rng: Rng,
    found: u64,
}

impl Memcached {
    /// With keys of `size` in all.
    pub(super) fn start(size: Bytes) -> Result<Memcached, String> {
        let socket = PathBuf::from(format!("/tmp/memcached-{}", std::process::id()));
        let path = socket.display().to_string();
        let keys = (size.get() / KEY_BYTES).max(1);
        let limit_mib = (size.get().div_ceil(1 << 20) + ROOM_MIB).to_string();
        let arguments = ["-s", &path, "-m", &limit_mib, "-t", "1"];
        let mut server = Beside::start("memcached", &arguments, |command| {
            command.uid(NOBODY).gid(NOBODY);
        })?;
        let mut connection = Connection(BufReader::new(server.connect(&socket)?));
        connection.fill(keys)?;
        Ok(Memcached { server, connection, keys, rng: Rng::new(2), found: 0 })
    }
}

impl Running for Memcached {
    fn work(&mut self) -> Result<u64, String> {
        let start = Instant::now();
        self.server.check()?;
        while start.elapsed() < MOMENT {
            let keys: Vec<u64> = (0..GETS).map(|_| self.rng.below(self.keys)).collect();
            self.found += self.connection.get(&keys)?;
        }
        Ok(self.found)
    }
}

/// Its protocol, as far as it is needed here.
struct Connection(BufReader<UnixStream>);

impl Connection {
    fn fill(&mut self, keys: u64) -> Result<(), String> {
        // Values differ by where in the same random bytes they begin.
        let mut rng = Rng::new(1);
        let random: Vec<u8> =
            (0..VALUE_BYTES / 4).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let mut key = 0;
        while key < keys {
            let batch = key..keys.min(key + SETS);
            let mut questions = Vec::new();
            for key in batch.clone() {
                questions.extend(format!("set {} 0 0 {VALUE_BYTES}\r\n", name(key)).into_bytes());
                questions.extend_from_slice(&random[key as usize % VALUE_BYTES..][..VALUE_BYTES]);
                questions.extend(b"\r\n");
            }
            // In one piece: the server would wake for each, and waking takes longer than answering.
            self.0.get_mut().write_all(&questions).map_err(lost)?;
            for _ in batch.clone() {
                let answer = self.line()?;
                if answer != "STORED" {
                    return Err(format!("memcached answers set with `{answer}`"));
                }
            }
            key = batch.end;
        }
        Ok(())
    }

    /// How many of `keys` it has.
    fn get(&mut self, keys: &[u64]) -> Result<u64, String> {
        let questions: String = keys.iter().map(|key| format!("get {}\r\n", name(*key))).collect();
        self.0.get_mut().write_all(questions.as_bytes()).map_err(lost)?;
        let mut found = 0;
        for key in keys {
            let mut line = self.line()?;
            if line == format!("VALUE {} 0 {VALUE_BYTES}", name(*key)) {
                // The end of its line too.
                let mut value = [0; VALUE_BYTES + 2];
                self.0.read_exact(&mut value).map_err(lost)?;
                found += 1;
                line = self.line()?;
            }
            if line != "END" {
                return Err(format!("memcached answers get with `{line}`"));
            }
        }
        Ok(found)
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.0.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).map_err(lost)?;
        Ok(line.trim_end().to_owned())
    }
}

fn name(key: u64) -> String {
    format!("key:{key:012}")
}

fn lost(error: std::io::Error) -> String {
    format!("memcached: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_written_and_what_is_there_counts() {
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
        let mut said = Vec::new();
        theirs.read_to_end(&mut said).unwrap();
        let first = b"set key:000000000000 0 0 1000\r\n";
        assert!(said.starts_with(first), "{:?}", String::from_utf8_lossy(&said[..60]));
    }
}
