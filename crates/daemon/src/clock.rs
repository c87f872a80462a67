//! The daemon's clocks.
//!
//! Idea: decisions use the boot-time clock. It never goes back and includes suspended time, so
//! statistics taken before a suspend are old after it. The wall clock is used for output to people
//! and to compare with the hypervisor's timestamps.

use std::time::{Duration, SystemTime};

use ballast_model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The current time since boot, in nanoseconds.
pub(crate) fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The current time in milliseconds since boot.
pub(crate) fn now() -> Timestamp {
    Timestamp::ZERO + monotonic()
}

/// The current wall-clock time.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// CPU time this process has used, user and system.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
