//! The daemon's clocks.
//!
//! Idea: decisions run on the machine's boot-time clock, which never goes back and counts suspended
//! time, so that statistics from before a suspend are old after it. The wall clock is only for
//! people, and for dating what the hypervisor dates by it.

use std::time::{Duration, SystemTime};

use ballast_model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Now, in milliseconds since the machine booted.
pub(crate) fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Boottime);
    Timestamp::from_millis(time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000)
}

/// Now, for people.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Processor time that this process has used, user and system.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
