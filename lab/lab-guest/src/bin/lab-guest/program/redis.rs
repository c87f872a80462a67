//! redis-server, asked by redis-benchmark.
//!
//! Idea: keys named as redis-benchmark names them are set first, each once, so that it finds all it asks
//! for; then it gets keys at random without end. The server itself counts what it has answered.
//! Limits: no persistence, so that nothing forks.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use ballast_lab_guest::rng::Rng;
use ballast_model::Bytes;

use super::Running;
use super::beside::Beside;

/// What a key's value has.
const VALUE_BYTES: usize = 1000;
/// What a key takes with it: its name, and redis's and its allocator's overhead.
const KEY_BYTES: u64 = 1120;
/// Keys set before answers are read.
const BATCH: u64 = 256;
/// Time between two looks at what it has done.
const LOOK: Duration = Duration::from_millis(200);
/// Longest answer to a question about itself.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Clients that ask at once, and questions of each before it waits for answers.
const CLIENTS: &str = "4";
const PIPELINE: &str = "4";
/// More than it answers in a month.
const REQUESTS: &str = "2000000000";

pub(super) struct Redis {
    // Dropped in this order.
    benchmark: Beside,
    server: Beside,
    connection: Connection,
    before: u64,
}

impl Redis {
    /// With keys of `size` in all.
    pub(super) fn start(size: Bytes) -> Result<Redis, String> {
        let socket = PathBuf::from(format!("/tmp/redis-{}", std::process::id()));
        let path = socket.display().to_string();
        let mut server = Beside::start(
            "redis-server",
            &["--port", "0", "--unixsocket", &path, "--save", "", "--appendonly", "no"],
            |_| {},
        )?;
        let mut connection = Connection(BufReader::new(server.connect(&socket)?));
        let keys = (size.get() / KEY_BYTES).max(1);
        connection.fill(keys)?;
        let before = connection.answered()?;
        let range = keys.to_string();
        let benchmark = Beside::start(
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

impl Running for Redis {
    fn work(&mut self) -> Result<u64, String> {
        std::thread::sleep(LOOK);
        self.server.check()?;
        self.benchmark.check()?;
        Ok(self.connection.answered()?.saturating_sub(self.before))
    }
}

/// Its protocol, as far as it is needed here (RESP 2).
struct Connection(BufReader<UnixStream>);

impl Connection {
    fn fill(&mut self, keys: u64) -> Result<(), String> {
        // Values differ by where in the same random bytes they begin.
        let mut rng = Rng::new(1);
        let random: Vec<u8> =
            (0..VALUE_BYTES / 4).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let mut key = 0;
        while key < keys {
            let batch = key..keys.min(key + BATCH);
            let mut questions = Vec::new();
            for key in batch.clone() {
                let name = format!("key:{key:012}");
                let value = &random[key as usize % VALUE_BYTES..][..VALUE_BYTES];
                questions.extend(question(&[b"SET", name.as_bytes(), value]));
            }
            // In one piece: the server would wake for each, and waking takes longer than answering.
            self.0.get_mut().write_all(&questions).map_err(lost)?;
            for _ in batch.clone() {
                let answer = self.line()?;
                if answer != "+OK" {
                    return Err(format!("redis answers SET with `{answer}`"));
                }
            }
            key = batch.end;
        }
        Ok(())
    }

    /// Commands answered since the server began.
    fn answered(&mut self) -> Result<u64, String> {
        self.0.get_mut().write_all(&question(&[b"INFO", b"stats"])).map_err(lost)?;
        let length = self.line()?;
        let bytes = length.strip_prefix('$').and_then(|it| it.parse().ok());
        let bytes: u64 = bytes
            .filter(|bytes| *bytes <= ANSWER_BYTES_MAX)
            .ok_or_else(|| format!("redis answers INFO with `{length}`"))?;
        // The end of its line too.
        let mut text = vec![0; bytes as usize + 2];
        self.0.read_exact(&mut text).map_err(lost)?;
        commands(&String::from_utf8_lossy(&text))
            .ok_or_else(|| "redis does not say how many commands it has answered".to_owned())
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.0.by_ref().take(ANSWER_BYTES_MAX).read_line(&mut line).map_err(lost)?;
        Ok(line.trim_end().to_owned())
    }
}

fn question(words: &[&[u8]]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        text.extend(format!("${}\r\n", word.len()).into_bytes());
        text.extend_from_slice(word);
        text.extend(b"\r\n");
    }
    text
}

fn lost(error: std::io::Error) -> String {
    format!("redis: {error}")
}

fn commands(info: &str) -> Option<u64> {
    info.lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_has_answered_is_read() {
        let info = "# Stats\r\ntotal_connections_received:2\r\ntotal_commands_processed:77\r\n";
        assert_eq!(commands(info), Some(77));
        assert_eq!(commands("total_commands_processed:many\r\n"), None);
        assert_eq!(commands(""), None);
    }

    #[test]
    fn questions_are_written_and_answers_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection(BufReader::new(ours));
        theirs.write_all(b"+OK\r\n+OK\r\n$28\r\ntotal_commands_processed:3\r\n\r\n").unwrap();
        connection.fill(2).unwrap();
        assert_eq!(connection.answered(), Ok(3));
        theirs.write_all(b"-ERR no\r\n").unwrap();
        assert!(connection.fill(1).unwrap_err().contains("-ERR no"));
        drop(connection);
        let mut said = Vec::new();
        theirs.read_to_end(&mut said).unwrap();
        let first = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$1000\r\n";
        assert!(said.starts_with(first), "{:?}", String::from_utf8_lossy(&said[..60]));
    }
}
