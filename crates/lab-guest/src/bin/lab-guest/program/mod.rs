//! Doing what a program that people run does with its memory.
//!
//! Idea: the program runs beside this process, with data of about the size asked for, and somebody who asks
//! for it at random for as long as it lasts. What it has done counts as touches do, in a unit of its own: keys
//! for redis and memcached, rows for sqlite3, transactions for PostgreSQL, milliseconds of processor time for
//! stress-ng.
//! Limits: only figures of the same program compare with each other. Data are as large as the programs'
//! usual overhead makes them, to a tenth or so.

mod beside;
mod memcached;
mod postgresql;
mod redis;
mod sqlite;
mod stress;

use std::path::Path;
use std::time::{Duration, Instant};

use ballast_lab_guest::protocol::Phase;
use ballast_lab_guest::workload::Program;
use ballast_model::Bytes;

use crate::counters::Counters;

use self::memcached::Memcached;
use self::postgresql::Postgresql;
use self::redis::Redis;
use self::sqlite::Sqlite;
use self::stress::Stress;

/// A program that runs and has its data.
trait Running {
    /// Lets it work for a moment, some tenths of a second at most while memory is at hand; what it has done
    /// since it was started.
    fn work(&mut self) -> Result<u64, String>;
}

/// Runs `program` until `duration` is over, from when it has its data; without it, until it is stopped.
/// PostgreSQL is on the disk of `data_disk`.
pub(crate) fn run(
    program: Program,
    size: Bytes,
    data_disk: Option<&Path>,
    duration: Option<Duration>,
    counters: &Counters,
) -> Result<(), String> {
    counters.set_size_wanted(size);
    counters.set_phase(Phase::Filling);
    let mut running: Box<dyn Running> = match program {
        Program::Memcached => Box::new(Memcached::start(size)?),
        Program::Postgresql => Box::new(Postgresql::start(size, data_disk)?),
        Program::Redis => Box::new(Redis::start(size)?),
        Program::Sqlite => Box::new(Sqlite::start(size)?),
        Program::StressNg => Box::new(Stress::start(size)?),
    };
    counters.set_size(size);
    counters.set_phase(Phase::Touching);
    let start = Instant::now();
    while duration.is_none_or(|duration| start.elapsed() < duration) {
        counters.set_touches(running.work()?);
    }
    Ok(())
}
