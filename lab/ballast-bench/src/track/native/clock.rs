//! How a thread spent its time: running, waiting for a core, or stopped.
//!
//! Idea: the kernel counts, in nanoseconds, how long a thread ran, and how long it could have run
//! but had no core. For the rest of the time it slept, and a thread that only touches memory sleeps
//! only in traps. So this clock separates the time for which tracking stops it from the time that
//! other programs take away.
//!
//! Source: `/proc/PID/task/TID/schedstat`.
//! Limits: time that a hypervisor below takes away counts as running.

use std::fs;
use std::time::Instant;

use anyhow::Context;

/// Times of a thread so far, in nanoseconds, and when they were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    at: Instant,
    ran_ns: u64,
    waited_ns: u64,
}

/// How a thread spent the time between two readings, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ThreadTimes {
    /// Wall-clock time.
    pub(crate) wall: f64,
    /// Time in which it ran.
    pub(crate) ran: f64,
    /// Time in which it waited for a core.
    pub(crate) waited: f64,
}

impl ThreadTimes {
    /// Time in which it slept: traps stopped it.
    pub(crate) fn stopped(self) -> f64 {
        (self.wall - self.ran - self.waited).max(0.0)
    }

    /// Wall-clock time without what other programs took away: without the time in which it waited
    /// for a core, except the `tracker` seconds in which the tracker's thread had that core.
    pub(crate) fn own(self, tracker: f64) -> f64 {
        self.wall - (self.waited - tracker).max(0.0)
    }
}

impl Clock {
    /// Reads the times of a thread.
    ///
    /// # Errors
    /// The thread has ended, or the kernel does not count.
    pub(super) fn read(pid: u32, tid: i32) -> anyhow::Result<Clock> {
        let path = format!("/proc/{pid}/task/{tid}/schedstat");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let (ran_ns, waited_ns) = parse(&text).with_context(|| {
            format!("{path} says {text:?}: expected the times that a thread ran and waited")
        })?;
        Ok(Clock { at: Instant::now(), ran_ns, waited_ns })
    }

    /// How the thread spent the time since `before`.
    pub(super) fn since(self, before: Clock) -> ThreadTimes {
        let seconds = |now: u64, then: u64| now.saturating_sub(then) as f64 / 1e9;
        ThreadTimes {
            wall: (self.at - before.at).as_secs_f64(),
            ran: seconds(self.ran_ns, before.ran_ns),
            waited: seconds(self.waited_ns, before.waited_ns),
        }
    }
}

fn parse(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Some((words.next()??, words.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_ran_waited_or_was_stopped() {
        let spent = ThreadTimes { wall: 10.0, ran: 6.0, waited: 3.0 };
        assert!((spent.stopped() - 1.0).abs() < 1e-9);
        // The tracker had the core for one of the three seconds.
        assert!((spent.own(1.0) - 8.0).abs() < 1e-9);
        assert!((spent.own(5.0) - 10.0).abs() < 1e-9);
        assert_eq!(ThreadTimes { ran: 12.0, ..spent }.stopped(), 0.0);
    }

    #[test]
    fn the_kernels_line_is_read() {
        assert_eq!(parse("381750060 430044 35\n"), Some((381_750_060, 430_044)));
        for wrong in ["", "1", "x 2 3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
