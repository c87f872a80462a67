//! A memcached server.
//!
//! `cache_memlimit` below the used memory stops memcached from growing and makes it free unassigned
//! slab pages. It rarely has any, so the shrinker also makes it empty pages one at a time
//! (`slabs reassign` from any class to none) until it is under the limit. That needs the slab mover
//! (on by default since 1.5). memcached is always a cache, so evicting items fails no request.
//!
//! Source: memcached's `doc/protocol.txt`; `memory_release` and `do_slabs_reassign` in `slabs.c` of
//! 1.6.18.
//! Limits: whole MiB (a slab page), at least [`LIMIT_MIB_MIN`]; memcached keeps at least half of
//! the most it held at any order since the guest booted, unless configured otherwise.

use std::time::{Duration, Instant};

use crate::config::MemcachedConfig;
use crate::shrink::limit_record::LimitRecord;
use crate::shrink::line_client::{LineClient, excerpt};
use crate::shrink::shrinker::Shrinker;

/// Time between two attempts while memcached empties a page, which takes a few milliseconds.
const POLL_PERIOD: Duration = Duration::from_millis(10);
/// memcached's smallest limit.
const LIMIT_MIB_MIN: u64 = 8;
/// Most lines of an answer.
const LINES_MAX: usize = 2_000;
const MIB: u64 = 1 << 20;

/// The shrinker of a memcached server.
pub struct Memcached {
    settings: MemcachedConfig,
    limit_record: LimitRecord,
}

impl Memcached {
    /// A shrinker for the server of `settings`.
    pub fn new(settings: MemcachedConfig, limit_record: LimitRecord) -> Memcached {
        Memcached { settings, limit_record }
    }

    fn spare_bytes(&self, held: u64) -> u64 {
        let half = self.limit_record.keep(held);
        let keep = self.settings.keep.map_or(half, ballast_model::Bytes::get);
        held.saturating_sub(keep.max(LIMIT_MIB_MIN * MIB))
    }
}

impl Shrinker for Memcached {
    fn name(&self) -> &str {
        "memcached"
    }

    fn can_give(&mut self) -> Result<u64, String> {
        let held = MemcachedConnection::open(&self.settings.address)?.held()?;
        Ok(self.spare_bytes(held))
    }

    fn give(&mut self, bytes: u64, deadline: Instant) -> Result<u64, String> {
        let mut connection = MemcachedConnection::open(&self.settings.address)?;
        let before = connection.held()?;
        let bytes = bytes.min(self.spare_bytes(before));
        if bytes == 0 {
            // A limit at what it holds would give nothing, and keep it from growing.
            return Ok(0);
        }
        let limit_mib = (before - bytes).div_ceil(MIB).max(LIMIT_MIB_MIN);
        self.limit_record.lower(connection.limit()? / MIB, limit_mib, before);
        connection.set_limit(limit_mib)?;
        let mut held = connection.held()?;
        while held > limit_mib.saturating_mul(MIB) && Instant::now() < deadline {
            match connection.empty_page()? {
                ReassignReply::Started => {}
                ReassignReply::Busy => std::thread::sleep(POLL_PERIOD),
                ReassignReply::Refused(why) if held == before => return Err(why),
                ReassignReply::Refused(_) => break,
            }
            held = connection.held()?;
        }
        Ok(before.saturating_sub(held))
    }

    fn release(&mut self) -> Result<(), String> {
        if !self.limit_record.is_lowered() {
            return Ok(());
        }
        let mut connection = MemcachedConnection::open(&self.settings.address)?;
        if let Some(limit_mib) = self.limit_record.original(connection.limit()? / MIB) {
            connection.set_limit(limit_mib)?;
        }
        self.limit_record.clear();
        Ok(())
    }
}

/// The answer to `slabs reassign`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReassignReply {
    /// The page is being emptied.
    Started,
    /// Another page is being emptied.
    Busy,
    /// memcached refuses; the text is its answer.
    Refused(String),
}

/// A connection to a memcached server.
pub struct MemcachedConnection(LineClient);

impl MemcachedConnection {
    fn open(address: &str) -> Result<MemcachedConnection, String> {
        LineClient::connect(address).map(MemcachedConnection::from_client)
    }

    /// A connection over `client`.
    pub fn from_client(client: LineClient) -> MemcachedConnection {
        MemcachedConnection(client)
    }

    /// Memory allocated for slabs, in bytes.
    ///
    /// # Errors
    /// The connection fails, or the answer cannot be read or lacks the figure.
    pub fn held(&mut self) -> Result<u64, String> {
        self.stat("stats slabs", "total_malloced")
    }

    /// The current limit, in bytes.
    ///
    /// # Errors
    /// As [`MemcachedConnection::held`].
    pub fn limit(&mut self) -> Result<u64, String> {
        self.stat("stats", "limit_maxbytes")
    }

    fn stat(&mut self, command: &str, name: &str) -> Result<u64, String> {
        self.0.send(format!("{command}\r\n").as_bytes())?;
        let mut found = None;
        for _ in 0..LINES_MAX {
            let line = self.0.line()?;
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["END"] => {
                    return found.ok_or_else(|| format!("answer to `{command}` lacks {name}"));
                }
                ["STAT", it, value] if it == name => found = value.parse().ok(),
                ["STAT", ..] => {}
                _ => return Err(format!("answered `{}`", excerpt(&line))),
            }
        }
        Err(format!("`{command}` answered over {LINES_MAX} lines"))
    }

    /// Starts emptying a page of any class, which memcached then frees because it is over its
    /// limit.
    ///
    /// # Errors
    /// The connection fails.
    pub fn empty_page(&mut self) -> Result<ReassignReply, String> {
        self.0.send(b"slabs reassign -1 0\r\n")?;
        let line = self.0.line()?;
        Ok(match line.split(' ').next() {
            Some("OK") => ReassignReply::Started,
            Some("BUSY") => ReassignReply::Busy,
            _ => ReassignReply::Refused(format!("slabs reassign answered `{}`", excerpt(&line))),
        })
    }

    /// Sets the limit, in MiB.
    ///
    /// # Errors
    /// The connection fails, or memcached refuses.
    pub fn set_limit(&mut self, mib: u64) -> Result<(), String> {
        self.0.send(format!("cache_memlimit {mib}\r\n").as_bytes())?;
        match self.0.line()?.as_str() {
            "OK" => Ok(()),
            line => Err(format!("cache_memlimit answered `{}`", excerpt(line))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn absurd_figures_end_an_order_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memcached.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                let most = u64::MAX;
                let answer = match line.as_str() {
                    "stats" => format!("STAT limit_maxbytes {most}\r\nEND\r\n"),
                    "stats slabs" => format!("STAT total_malloced {most}\r\nEND\r\n"),
                    _ => "OK\r\n".to_owned(),
                };
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let address = path.to_str().unwrap().to_owned();
        let record = LimitRecord::open(folder.path().join("record"));
        let mut cache = Memcached::new(MemcachedConfig { address, keep: None }, record);
        let deadline = Instant::now() + Duration::from_secs(60);
        assert_eq!(cache.give(1, deadline), Ok(0));
    }

    #[test]
    fn a_cache_gives_memory_and_its_limit_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memcached.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let limit = Arc::new(Mutex::new(64u64));
        let shared = Arc::clone(&limit);
        // A fake server that holds 40 MiB, is busy at every other attempt, and frees pages down to
        // 30 MiB.
        let (mut held, mut attempts) = (40, 0);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                for line in
                    BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok)
                {
                    let now = *shared.lock().unwrap();
                    let answer = match line.split(' ').collect::<Vec<_>>()[..] {
                        ["stats"] => {
                            format!("STAT pid 1\r\nSTAT limit_maxbytes {}\r\nEND\r\n", now * MIB)
                        }
                        ["stats", "slabs"] => {
                            format!("STAT total_malloced {}\r\nEND\r\n", held * MIB)
                        }
                        ["slabs", "reassign", "-1", "0"] if held == 30 => {
                            "NOSPARE source class has no spare pages\r\n".to_owned()
                        }
                        ["slabs", "reassign", "-1", "0"] => {
                            attempts += 1;
                            let is_busy = attempts % 2 == 0;
                            held -= u64::from(!is_busy && held > now);
                            let answer = if is_busy { "BUSY currently processing" } else { "OK" };
                            format!("{answer}\r\n")
                        }
                        ["cache_memlimit", mib] => {
                            *shared.lock().unwrap() = mib.parse().unwrap();
                            "OK\r\n".to_owned()
                        }
                        _ => "ERROR\r\n".to_owned(),
                    };
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        let settings = MemcachedConfig { address: path.display().to_string(), keep: None };
        let mut it = Memcached::new(settings, LimitRecord::open(folder.path().join("record")));
        assert_eq!(it.can_give(), Ok(20 * MIB));
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(it.give(5 * MIB, deadline), Ok(5 * MIB));
        assert_eq!(*limit.lock().unwrap(), 35);
        // It keeps half of the 40 MiB it held first, and has only five pages left to free.
        assert_eq!(it.give(17 * MIB, deadline), Ok(5 * MIB));
        assert_eq!(*limit.lock().unwrap(), 20);
        assert!(it.give(MIB, deadline).unwrap_err().contains("NOSPARE"));
        it.release().unwrap();
        assert_eq!(*limit.lock().unwrap(), 64);
    }
}
