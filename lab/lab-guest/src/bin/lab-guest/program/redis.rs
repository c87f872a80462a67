//! redis-server, queried by redis-benchmark.
//!
//! Idea: all keys are set once, named as redis-benchmark names them, so that every key it reads
//! exists; then it reads random keys without end. The server counts the commands that it has
//! processed. Limits: no persistence, so that nothing forks.

use std::path::PathBuf;

use ballast_model::Bytes;

use super::connection::Connection;
use super::running::{RunningProgram, WORK_TIME};
use super::subprocess::Subprocess;

/// Memory per key, with its name and the overhead of redis and its allocator.
const KEY_BYTES: u64 = 1120;
/// Longest reply to `INFO`.
const REPLY_BYTES_MAX: u64 = 1 << 20;
/// Concurrent clients, and requests per client in flight.
const CLIENTS: &str = "4";
const PIPELINE: &str = "4";
/// More than a month of requests.
const REQUESTS: &str = "2000000000";

pub(super) struct Redis {
    // Dropped in this order: the benchmark before its server.
    benchmark: Subprocess,
    server: Subprocess,
    connection: Connection,
    before: u64,
}

impl Redis {
    /// Starts it with keys of `size` in total.
    pub(super) fn start(size: Bytes) -> Result<Redis, String> {
        let socket = PathBuf::from(format!("/tmp/redis-{}", std::process::id()));
        let path = socket.display().to_string();
        let mut server = Subprocess::start(
            "redis-server",
            &["--port", "0", "--unixsocket", &path, "--save", "", "--appendonly", "no"],
            |_| {},
        )?;
        let mut connection = Connection::new("redis", server.connect(&socket)?);
        let keys = (size.get() / KEY_BYTES).max(1);
        fill(&mut connection, keys)?;
        let before = commands_processed(&mut connection)?;
        let range = keys.to_string();
        let benchmark = Subprocess::start(
            "redis-benchmark",
            &[
                "-s", &path, "-t", "get", "-r", &range, "-n", REQUESTS, "-c", CLIENTS, "-P",
                PIPELINE, "-q",
            ],
            |_| {},
        )?;
        Ok(Redis { benchmark, server, connection, before })
    }
}

impl RunningProgram for Redis {
    fn work(&mut self) -> Result<u64, String> {
        std::thread::sleep(WORK_TIME);
        self.server.check()?;
        self.benchmark.check()?;
        Ok(commands_processed(&mut self.connection)?.saturating_sub(self.before))
    }
}

fn fill(connection: &mut Connection, keys: u64) -> Result<(), String> {
    connection.fill(keys, "+OK", |name, value| encode_request(&[b"SET", name.as_bytes(), value]))
}

/// Commands processed since the server started.
fn commands_processed(connection: &mut Connection) -> Result<u64, String> {
    connection.send(&encode_request(&[b"INFO", b"stats"]))?;
    let length = connection.line()?;
    let bytes = length.strip_prefix('$').and_then(|it| it.parse().ok());
    let bytes: u64 = bytes
        .filter(|bytes| *bytes <= REPLY_BYTES_MAX)
        .ok_or_else(|| format!("redis replied to INFO with `{length}`"))?;
    // With the line end that follows it.
    let mut text = vec![0; bytes as usize + 2];
    connection.read(&mut text)?;
    parse_commands_processed(&String::from_utf8_lossy(&text))
        .ok_or_else(|| "redis did not report total_commands_processed".to_owned())
}

/// A request (RESP 2).
fn encode_request(words: &[&[u8]]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        text.extend(format!("${}\r\n", word.len()).into_bytes());
        text.extend_from_slice(word);
        text.extend(b"\r\n");
    }
    text
}

fn parse_commands_processed(info: &str) -> Option<u64> {
    info.lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn number_of_processed_commands_is_parsed() {
        let info = "# Stats\r\ntotal_connections_received:2\r\ntotal_commands_processed:77\r\n";
        assert_eq!(parse_commands_processed(info), Some(77));
        assert_eq!(parse_commands_processed("total_commands_processed:many\r\n"), None);
        assert_eq!(parse_commands_processed(""), None);
    }

    #[test]
    fn requests_are_encoded_and_replies_parsed() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new("redis", ours);
        theirs.write_all(b"+OK\r\n+OK\r\n$28\r\ntotal_commands_processed:3\r\n\r\n").unwrap();
        fill(&mut connection, 2).unwrap();
        assert_eq!(commands_processed(&mut connection), Ok(3));
        theirs.write_all(b"-ERR no\r\n").unwrap();
        assert!(fill(&mut connection, 1).unwrap_err().contains("-ERR no"));
        drop(connection);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).unwrap();
        let first = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$1000\r\n";
        assert!(sent.starts_with(first), "{:?}", String::from_utf8_lossy(&sent[..60]));
    }
}
