//! Workloads that are real programs.
//!
//! Idea: the program runs as a subprocess with about the requested amount of data, and a client
//! queries it at random until the workload ends. Its work counts as touches, in a unit of its own:
//! keys for redis and memcached, rows for sqlite3, transactions for PostgreSQL, milliseconds of
//! processor time for stress-ng.
//! Limits: only counts of the same program are comparable. The size of the data includes the
//! program's usual overhead, to about a tenth.

mod connection;
mod memcached;
mod postgresql;
mod redis;
mod running;
mod sqlite;
mod stress;
mod subprocess;

use std::path::Path;
use std::time::{Duration, Instant};

use ballast_lab_guest::protocol::WorkloadState;
use ballast_lab_guest::workload::Program;
use ballast_model::Bytes;

use crate::counters::Counters;

use self::memcached::Memcached;
use self::postgresql::Postgresql;
use self::redis::Redis;
use self::running::RunningProgram;
use self::sqlite::Sqlite;
use self::stress::Stress;

/// Runs `program` for `duration` from the moment its data is loaded; without one, until it is
/// stopped. PostgreSQL is on `data_disk`.
pub(crate) fn run(
    program: Program,
    size: Bytes,
    data_disk: Option<&Path>,
    duration: Option<Duration>,
    counters: &Counters,
) -> Result<(), String> {
    counters.set_size_wanted(size);
    counters.set_phase(WorkloadState::Filling);
    let mut running: Box<dyn RunningProgram> = match program {
        Program::Memcached => Box::new(Memcached::start(size)?),
        Program::Postgresql => Box::new(Postgresql::start(size, data_disk)?),
        Program::Redis => Box::new(Redis::start(size)?),
        Program::Sqlite => Box::new(Sqlite::start(size)?),
        Program::StressNg => Box::new(Stress::start(size)?),
    };
    counters.set_size(size);
    counters.set_phase(WorkloadState::Touching);
    let start = Instant::now();
    while duration.is_none_or(|duration| start.elapsed() < duration) {
        counters.set_touches(running.work()?);
    }
    Ok(())
}
