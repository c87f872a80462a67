//! A recorded guest, and watching it in step with its record.
//!
//! Idea: the record's intervals end at fixed times of the host's monotonic clock. Each watched
//! interval is made as long as the time that is left until then, so both end together and estimate
//! and truth belong to the same time.
//!
//! Limits: the precision is that of threads waking up, some milliseconds in a second.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ballast_host::PROC;
use ballast_lab_host::{AccelChoice, Guest, GuestSpec, Truth};
use ballast_model::Bytes;
use ballast_tracker::{TrackableGuest, trackable_at};
use rustix::time::{ClockId, clock_gettime};

use super::compare::Actual;
use super::way::Way;
use crate::lab_guest::LabGuest;
use ballast_daemon::track::{FollowSettings, Row, ServiceSettings};

/// If less than one part in this many of a record's interval is left, that interval is skipped.
const LEFT_LEAST: u64 = 2;
/// The greatest number of restarts of a tracker, and the time before one.
const RESTARTS_MAX: u32 = 5;
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// Time until the record of an interval is in its file.
const WRITTEN: Duration = Duration::from_millis(1500);

/// The daemon's default settings for following guests.
///
/// # Errors
/// The daemon does not follow guests by default.
pub(crate) fn daemon() -> anyhow::Result<FollowSettings> {
    let config = ballast_config::parse("", Path::new("the defaults"))?;
    let tracking = config.tracking.context("the daemon does not track by default")?;
    Ok(ServiceSettings::from(&tracking).follow)
}

/// A recorded guest.
pub(crate) struct Session {
    lab: LabGuest,
    interval: Duration,
}

impl Session {
    /// Boots the guest; `change` adds properties beyond memory, record and tracker.
    ///
    /// # Errors
    /// Something needed is missing, or it does not get ready.
    pub(crate) fn start(
        memory: Bytes,
        interval: Duration,
        change: impl FnOnce(&mut GuestSpec),
        say: &dyn Fn(&str),
    ) -> anyhow::Result<Session> {
        let recorded = |spec: &mut GuestSpec| {
            spec.tracked = true;
            spec.truth = Some(Truth { interval, ..Truth::default() });
            change(spec);
        };
        let lab = LabGuest::start("track", memory, AccelChoice::Tcg, recorded, say)?;
        Ok(Session { lab, interval })
    }

    pub(crate) fn guest(&self) -> anyhow::Result<&Guest> {
        self.lab.guest()
    }

    /// The guest, as its tracker's client needs it.
    pub(crate) fn trackable(&self) -> anyhow::Result<TrackableGuest> {
        let pid = u32::try_from(self.guest()?.pid())?;
        trackable_at(Path::new(PROC), pid).context("the guest has no tracker in it")
    }

    /// The record so far.
    pub(crate) fn truth(&self) -> anyhow::Result<Vec<Actual>> {
        let rows = self.guest()?.truth()?;
        Ok(rows.iter().map(|row| Actual { end_ns: row.end_ns, bytes: row.wss }).collect())
    }

    /// Watches in one way, in step with the record. After the way's warm-up, `intervals` intervals
    /// are passed to `take`. A tracker that gave up because this machine had no time for it is
    /// started again, as the daemon does; returns how often that happened.
    ///
    /// # Errors
    /// The guest is gone, or its tracker refuses.
    pub(crate) fn watch(
        &self,
        way: Way,
        daemon: &FollowSettings,
        intervals: u32,
        mut take: impl FnMut(u64, &Row) -> anyhow::Result<()>,
    ) -> anyhow::Result<u32> {
        let each = way.intervals();
        let guest = self.trackable()?;
        let mut watcher = way.begin(&guest, daemon)?;
        let mut restarts = 0;
        for number in 0..way.warm_up() + intervals.div_ceil(each) {
            watcher.set_length(self.until_end(each)?);
            match watcher.interval(None, &mut || true) {
                Ok((row, _)) if number >= way.warm_up() => take(now_ns(), &row)?,
                Ok(_) => {}
                Err(error) if restarts >= RESTARTS_MAX => return Err(error.into()),
                Err(_) => {
                    restarts += 1;
                    // The tracker refuses a second client while the first one is attached.
                    drop(watcher);
                    std::thread::sleep(RESTART_AFTER);
                    watcher = way.begin(&guest, daemon)?;
                }
            }
        }
        Ok(restarts)
    }

    /// Time until the record's current interval ends, plus `each - 1` intervals.
    fn until_end(&self, each: u32) -> anyhow::Result<Duration> {
        let rows = self.truth()?;
        let grid = rows.first().context("nothing was recorded of the guest yet")?.end_ns;
        let interval_ns = self.interval.as_nanos() as u64;
        let mut left = interval_ns - now_ns().saturating_sub(grid) % interval_ns;
        if left < interval_ns / LEFT_LEAST {
            left += interval_ns;
        }
        Ok(Duration::from_nanos(left + u64::from(each.saturating_sub(1)) * interval_ns))
    }

    /// Waits until the latest intervals are in the record.
    pub(crate) fn settle(&self) {
        std::thread::sleep(self.interval + WRITTEN);
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_watches_a_sample_every_second_by_default() {
        let daemon = daemon().unwrap();
        assert_eq!(daemon.interval, Duration::from_secs(1));
        assert!(daemon.planner.sample.is_some());
    }
}
