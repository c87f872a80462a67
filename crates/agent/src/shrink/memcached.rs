//! A memcached.
//!
//! Idea: `cache_memlimit` below what it holds makes it give slabs back, page by page, as far as it
//! was started with its slab mover on (the default since 1.5). It is a cache by definition, so nothing it
//! loses is a service lost.
//!
//! Source: memcached's `doc/protocol.txt`. Limits: whole MiB, at least [`LIMIT_MIB_MIN`]; what it keeps is
//! at least half, unless told.

use std::time::{Duration, Instant};

use super::client::Client;
use super::{Ledger, Shrinker};
use crate::config;

/// Time between two looks at how far it is.
const PAUSE: Duration = Duration::from_millis(100);
/// Less than that memcached refuses to run with.
const LIMIT_MIB_MIN: u64 = 8;
/// Most lines of one answer.
const LINES_MAX: usize = 2_000;
const MIB: u64 = 1 << 20;

/// The shrinker.
pub struct Memcached {
    settings: config::Memcached,
    ledger: Ledger,
}

impl Memcached {
    /// The server of `settings`, with its note in `ledger`.
    pub fn new(settings: config::Memcached, ledger: Ledger) -> Memcached {
        Memcached { settings, ledger }
    }

    fn spare(&self, held: u64) -> u64 {
        let keep = self.settings.keep.map_or(held / 2, ballast_model::Bytes::get);
        held.saturating_sub(keep.max(LIMIT_MIB_MIN * MIB))
    }
}

impl Shrinker for Memcached {
    fn name(&self) -> &str {
        "memcached"
    }

    fn can_give(&mut self) -> Result<u64, String> {
        let held = Connection::open(&self.settings.address)?.held()?;
        Ok(self.spare(held))
    }

    fn give(&mut self, bytes: u64, deadline: Instant) -> Result<u64, String> {
        let mut connection = Connection::open(&self.settings.address)?;
        let before = connection.held()?;
        let limit_mib = (before - bytes.min(self.spare(before))).div_ceil(MIB).max(LIMIT_MIB_MIN);
        self.ledger.lower(connection.limit()? / MIB, limit_mib);
        connection.set_limit(limit_mib)?;
        let mut held = connection.held()?;
        while held > limit_mib * MIB && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
            held = connection.held()?;
        }
        Ok(before.saturating_sub(held))
    }

    fn release(&mut self) -> Result<(), String> {
        if !self.ledger.is_lowered() {
            return Ok(());
        }
        let mut connection = Connection::open(&self.settings.address)?;
        if let Some(limit_mib) = self.ledger.raise(connection.limit()? / MIB) {
            connection.set_limit(limit_mib)?;
        }
        self.ledger.settle();
        Ok(())
    }
}

struct Connection(Client);

impl Connection {
    fn open(address: &str) -> Result<Connection, String> {
        Client::connect(address).map(Connection)
    }

    /// Memory it has taken for its slabs.
    fn held(&mut self) -> Result<u64, String> {
        self.stat("stats slabs", "total_malloced")
    }

    /// What it may take.
    fn limit(&mut self) -> Result<u64, String> {
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
                    return found.ok_or_else(|| format!("`{command}` without {name}"));
                }
                ["STAT", it, value] if it == name => found = value.parse().ok(),
                ["STAT", ..] => {}
                _ => return Err(format!("answered `{line}`")),
            }
        }
        Err(format!("`{command}` answered over {LINES_MAX} lines"))
    }

    fn set_limit(&mut self, mib: u64) -> Result<(), String> {
        self.0.send(format!("cache_memlimit {mib}\r\n").as_bytes())?;
        match self.0.line()?.as_str() {
            "OK" => Ok(()),
            line => Err(format!("cache_memlimit answered `{line}`")),
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
    fn it_gives_and_gets_its_limit_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memcached.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let limit = Arc::new(Mutex::new(64u64));
        let shared = Arc::clone(&limit);
        // Holds 40 MiB, or its limit if that is less.
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
                            format!("STAT total_malloced {}\r\nEND\r\n", now.min(40) * MIB)
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
        let settings = config::Memcached { address: path.display().to_string(), keep: None };
        let mut it = Memcached::new(settings, Ledger::new(folder.path().join("note")));
        assert_eq!(it.can_give(), Ok(20 * MIB));
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(it.give(5 * MIB, deadline), Ok(5 * MIB));
        assert_eq!(*limit.lock().unwrap(), 35);
        it.release().unwrap();
        assert_eq!(*limit.lock().unwrap(), 64);
    }
}
