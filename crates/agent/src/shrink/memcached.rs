//! A memcached.
//!
//! Idea: `cache_memlimit` below what it holds keeps it from growing and lets it hand pages back that belong to
//! no class of sizes; by itself it hardly ever has one. So it is told to empty pages, one after the other
//! (`slabs reassign`, from whichever class to none), until it is down. That takes its slab mover (on by default
//! since 1.5). It is a cache by definition, so nothing it loses is a service lost.
//!
//! Source: memcached's `doc/protocol.txt`; `memory_release` and `do_slabs_reassign` in `slabs.c` of 1.6.18.
//! Limits: whole MiB, at least [`LIMIT_MIB_MIN`]; what it keeps is at least half, unless told; a page is 1 MiB.

use std::time::{Duration, Instant};

use super::client::Client;
use super::{Ledger, Shrinker};
use crate::config;

/// Time until it is asked again for a page while it empties one, which takes a few milliseconds.
const PAUSE: Duration = Duration::from_millis(10);
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
            match connection.empty_page()? {
                Emptying::Begun => {}
                Emptying::Busy => std::thread::sleep(PAUSE),
                Emptying::Refused(why) if held == before => return Err(why),
                Emptying::Refused(_) => break,
            }
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

/// What it says when it is to empty a page.
enum Emptying {
    Begun,
    /// It still does another.
    Busy,
    /// In its words.
    Refused(String),
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

    /// Makes it empty a page of any class; the page goes back as its limit says so.
    fn empty_page(&mut self) -> Result<Emptying, String> {
        self.0.send(b"slabs reassign -1 0\r\n")?;
        let line = self.0.line()?;
        Ok(match line.split(' ').next() {
            Some("OK") => Emptying::Begun,
            Some("BUSY") => Emptying::Busy,
            _ => Emptying::Refused(format!("slabs reassign answered `{line}`")),
        })
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
        // Holds 40 MiB, of which it gives pages back when told to, each after having been busy for a while,
        // and none beyond 30 MiB.
        let (mut held, mut asked) = (40, 0);
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
                            asked += 1;
                            let is_busy = asked % 2 == 0;
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
        let settings = config::Memcached { address: path.display().to_string(), keep: None };
        let mut it = Memcached::new(settings, Ledger::new(folder.path().join("note")));
        assert_eq!(it.can_give(), Ok(20 * MIB));
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(it.give(5 * MIB, deadline), Ok(5 * MIB));
        assert_eq!(*limit.lock().unwrap(), 35);
        // Half of what it holds by now, of which it has five spare pages, and then none.
        assert_eq!(it.give(17 * MIB, deadline), Ok(5 * MIB));
        assert!(it.give(MIB, deadline).unwrap_err().contains("NOSPARE"));
        it.release().unwrap();
        assert_eq!(*limit.lock().unwrap(), 64);
    }
}
