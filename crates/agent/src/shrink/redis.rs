//! A redis server used as a cache.
//!
//! `CONFIG SET maxmemory` below the used memory makes redis evict keys; `MEMORY PURGE` returns the
//! pages. Only with a `maxmemory-policy` of `allkeys-*`: with any other, redis refuses writes once
//! it has nothing left to evict.
//!
//! Cost: three short commands, and one every [`POLL_PERIOD`] while redis evicts.
//! Source: redis's documentation of `INFO`, `CONFIG SET`, `MEMORY PURGE`, and "key eviction".
//! Without a client library: four commands do not need 30,000 lines.
//! Limits: one server; redis keeps at least half of the most it used at any order since the guest
//! booted, unless configured otherwise.

use std::fs;
use std::time::{Duration, Instant};

use crate::config::RedisConfig;
use crate::shrink::limit_record::LimitRecord;
use crate::shrink::line_client::{LineClient, excerpt};
use crate::shrink::shrinker::Shrinker;

/// Time between two queries while redis evicts.
const POLL_PERIOD: Duration = Duration::from_millis(100);
/// Longest wait for redis to update its resident size, which it measures ten times a second.
const RESIDENT_TIME_MAX: Duration = Duration::from_secs(2);
/// Longest accepted text; `INFO memory` has 2 KiB.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The shrinker of a redis server.
pub struct Redis {
    settings: RedisConfig,
    limit_record: LimitRecord,
}

/// The parts of `INFO memory` that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisMemory {
    /// Memory of the data, in bytes (`used_memory`).
    pub used: u64,
    /// Memory of the process, in bytes (`used_memory_rss`).
    pub resident: u64,
    /// The limit, in bytes (`maxmemory`); 0: none.
    pub limit: u64,
    /// What redis does at the limit (`maxmemory_policy`).
    pub policy: String,
}

impl Redis {
    /// A shrinker for the server of `settings`.
    pub fn new(settings: RedisConfig, limit_record: LimitRecord) -> Redis {
        Redis { settings, limit_record }
    }

    fn connect(&self) -> Result<RedisConnection, String> {
        let mut connection =
            RedisConnection::from_client(LineClient::connect(&self.settings.address)?);
        if let Some(file) = &self.settings.password_file {
            let text =
                fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            connection.ask(&["AUTH", text.lines().next().unwrap_or_default()])?;
        }
        Ok(connection)
    }

    fn spare_bytes(&self, info: &RedisMemory) -> Result<u64, String> {
        if !info.policy.starts_with("allkeys-") {
            return Err(format!(
                "maxmemory-policy is {}, so redis would refuse writes: expected allkeys-*",
                excerpt(&info.policy)
            ));
        }
        let half = self.limit_record.keep(info.used);
        let keep = self.settings.keep.map_or(half, ballast_model::Bytes::get);
        Ok(info.used.saturating_sub(keep))
    }
}

impl Shrinker for Redis {
    fn name(&self) -> &str {
        "redis"
    }

    fn can_give(&mut self) -> Result<u64, String> {
        let info = self.connect()?.info()?;
        self.spare_bytes(&info)
    }

    fn give(&mut self, bytes: u64, deadline: Instant) -> Result<u64, String> {
        let mut connection = self.connect()?;
        let before = connection.info()?;
        let bytes = bytes.min(self.spare_bytes(&before)?);
        if bytes == 0 {
            // A limit at what it uses would give nothing, and keep it from growing.
            return Ok(0);
        }
        // 0 means no limit.
        let limit = (before.used - bytes).max(1);
        self.limit_record.lower(before.limit, limit, before.used);
        connection.ask(&["CONFIG", "SET", "maxmemory", &limit.to_string()])?;
        let mut info = connection.info()?;
        while info.used > limit && Instant::now() < deadline {
            std::thread::sleep(POLL_PERIOD);
            info = connection.info()?;
        }
        connection.ask(&["MEMORY", "PURGE"])?;
        let resident_deadline = deadline.min(Instant::now() + RESIDENT_TIME_MAX);
        let expected = before.resident.saturating_sub(bytes / 2);
        while info.resident > expected && Instant::now() < resident_deadline {
            std::thread::sleep(POLL_PERIOD);
            info = connection.info()?;
        }
        Ok(before.resident.saturating_sub(info.resident))
    }

    fn release(&mut self) -> Result<(), String> {
        if !self.limit_record.is_lowered() {
            return Ok(());
        }
        let mut connection = self.connect()?;
        let info = connection.info()?;
        if let Some(limit) = self.limit_record.original(info.limit) {
            connection.ask(&["CONFIG", "SET", "maxmemory", &limit.to_string()])?;
        }
        self.limit_record.clear();
        Ok(())
    }
}

/// A connection to a redis server.
pub struct RedisConnection(LineClient);

impl RedisConnection {
    /// A connection over `client`, before any command.
    pub fn from_client(client: LineClient) -> RedisConnection {
        RedisConnection(client)
    }

    /// Asks how much memory is used.
    ///
    /// # Errors
    /// The connection fails, or the answer cannot be read or lacks a field.
    pub fn info(&mut self) -> Result<RedisMemory, String> {
        let text = self.ask(&["INFO", "memory"])?;
        parse_info(&text).ok_or_else(|| "INFO memory lacks expected fields".to_owned())
    }

    /// Sends a command and reads its answer, of at most `TEXT_BYTES_MAX` bytes.
    ///
    /// # Errors
    /// The connection fails, redis refuses, or the answer cannot be read.
    pub fn ask(&mut self, words: &[&str]) -> Result<String, String> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.send(command.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        let line = self.0.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or("an empty answer")?;
        let strange = || format!("answered `{}`", excerpt(&line));
        let count = || rest.parse::<usize>().map_err(|_| strange());
        match kind {
            "+" | ":" => Ok(rest.to_owned()),
            "-" => Err(excerpt(rest)),
            "$" if rest == "-1" => Ok(String::new()),
            "$" if count()? <= TEXT_BYTES_MAX => {
                let text = self.0.exactly(count()? + 2)?;
                Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
            }
            _ => Err(strange()),
        }
    }
}

/// Parses the answer to `INFO memory`; `None` if it lacks a field.
fn parse_info(text: &str) -> Option<RedisMemory> {
    let field = |name: &str| {
        text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
    };
    Some(RedisMemory {
        used: field("used_memory")?.parse().ok()?,
        resident: field("used_memory_rss")?.parse().ok()?,
        limit: field("maxmemory")?.parse().ok()?,
        policy: field("maxmemory_policy")?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A fake server that uses 1,000 bytes, loses what is beyond its limit, and never grows again.
    fn server(policy: &'static str) -> (tempfile::TempDir, PathBuf, Arc<Mutex<u64>>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("redis.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let limit = Arc::new(Mutex::new(2_000));
        let shared = Arc::clone(&limit);
        std::thread::spawn(move || {
            let mut used = 1_000;
            for stream in listener.incoming().flatten() {
                serve(stream, policy, &shared, &mut used);
            }
        });
        (folder, path, limit)
    }

    fn serve(stream: UnixStream, policy: &str, limit: &Mutex<u64>, used: &mut u64) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
            let count: usize = line.trim()[1..].parse().unwrap();
            let mut words = Vec::new();
            for _ in 0..count {
                line.clear();
                reader.read_line(&mut line).unwrap();
                let len: usize = line.trim()[1..].parse().unwrap();
                let mut word = vec![0; len + 2];
                reader.read_exact(&mut word).unwrap();
                words.push(String::from_utf8(word[..len].to_vec()).unwrap());
            }
            line.clear();
            *used = (*used).min(*limit.lock().unwrap());
            let answer = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["INFO", "memory"] => {
                    let text = format!(
                        "# Memory\r\nused_memory:{used}\r\nused_memory_rss:{}\r\nmaxmemory:{}\r\n\
                         maxmemory_policy:{policy}\r\n",
                        *used + 100,
                        limit.lock().unwrap()
                    );
                    format!("${}\r\n{text}\r\n", text.len())
                }
                ["CONFIG", "SET", "maxmemory", bytes] => {
                    *limit.lock().unwrap() = bytes.parse().unwrap();
                    "+OK\r\n".to_owned()
                }
                ["MEMORY", "PURGE"] => "+OK\r\n".to_owned(),
                _ => "-ERR unknown command\r\n".to_owned(),
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    }

    fn redis(path: &std::path::Path, record: PathBuf) -> Redis {
        let settings =
            RedisConfig { address: path.display().to_string(), password_file: None, keep: None };
        Redis::new(settings, LimitRecord::open(record))
    }

    #[test]
    fn a_cache_gives_memory_and_its_limit_is_restored() {
        let (folder, path, limit) = server("allkeys-lru");
        let record = folder.path().join("record");
        let mut it = redis(&path, record.clone());
        assert_eq!(it.can_give(), Ok(500));
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(it.give(300, deadline), Ok(300));
        assert_eq!(*limit.lock().unwrap(), 700);
        // The successor of a killed agent restores the limit.
        redis(&path, record).release().unwrap();
        assert_eq!(*limit.lock().unwrap(), 2_000);
        assert_eq!(it.give(10_000, deadline), Ok(200), "no more than it can spare");
    }

    #[test]
    fn orders_without_end_leave_a_cache_half_of_its_memory() {
        let (folder, path, limit) = server("allkeys-lru");
        let deadline = Instant::now() + Duration::from_secs(30);
        // The limit is restored and the agent is started again, but the cache is not full again.
        for _ in 0..3 {
            let mut it = redis(&path, folder.path().join("record"));
            while it.give(300, deadline).unwrap() > 0 {}
            assert!(*limit.lock().unwrap() >= 500, "{limit:?}");
            it.release().unwrap();
            assert_eq!(*limit.lock().unwrap(), 2_000);
        }
    }

    #[test]
    fn a_server_that_would_refuse_writes_is_left_alone() {
        for policy in ["noeviction", "volatile-lru"] {
            let (folder, path, limit) = server(policy);
            let mut it = redis(&path, folder.path().join("record"));
            assert!(it.can_give().unwrap_err().contains(policy));
            assert!(it.give(1, Instant::now()).is_err());
            assert_eq!(*limit.lock().unwrap(), 2_000);
        }
    }

    #[test]
    fn an_unreachable_server_is_an_error() {
        let mut it = redis(std::path::Path::new("/nonexistent.sock"), "/nonexistent/record".into());
        assert!(it.can_give().unwrap_err().contains("/nonexistent.sock"));
        assert_eq!(it.release(), Ok(()));
        let settings = RedisConfig { address: "localhost".into(), password_file: None, keep: None };
        let error = Redis::new(settings, LimitRecord::open("/n".into())).can_give().unwrap_err();
        assert!(error.contains("expected an IP address"), "{error}");
    }
}
