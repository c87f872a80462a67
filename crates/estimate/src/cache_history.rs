//! From samples of a guest to readings for its [cache need](crate::cache_need).
//!
//! Idea: disks are read every five seconds, statistics every second, and an agent reports when it
//! likes. A reading covers the time between two readings of the disks, or of the statistics where
//! there are none of disks. It is made once the statistics are as new as the disks' figures, since
//! until then swap-ins would look like reads of files.
//!
//! Cost: O(1) per sample. Source: ours. Limits: without the balloon's figure of the page cache,
//! nothing is known.

use std::time::Duration;

use ballast_model::{Bytes, DiskReads, GuestSample, GuestStats, Measured, Timestamp};

use crate::before;
use crate::cache_need::{CacheNeed, CacheReading, ReadBetween};

/// Shortest time between two readings: disks are read every five seconds, and dated to within some
/// milliseconds.
const APART_MIN: Duration = Duration::from_secs(4);

/// Older readings of disks say nothing of the cache that is needed now.
const AGE_MAX: Duration = Duration::from_secs(60);

/// Statistics and readings of disks are of the same time if they are no more apart: statistics are
/// dated in whole seconds.
const SAME_TIME: Duration = Duration::from_secs(1);

/// What a guest's cache need is computed from.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheHistory {
    need: CacheNeed,
    /// Time of the last reading, and what was read from its disks by then.
    last: Option<(Timestamp, Option<DiskReads>)>,
    /// Swapped in since.
    swapped_in: Bytes,
    /// Read again from files since; `None`: no agent reports it.
    refaulted: Option<Bytes>,
}

impl CacheHistory {
    /// Adds what statistics and agent counted since the last time; `None`: not reported.
    pub(crate) fn count(&mut self, swapped_in: Option<Bytes>, refaulted: Option<Bytes>) {
        self.swapped_in = self.swapped_in.saturating_add(swapped_in.unwrap_or_default());
        if let Some(more) = refaulted {
            self.refaulted = Some(self.refaulted.unwrap_or_default().saturating_add(more));
        }
    }

    /// Takes in a sample with `stats`. Most samples bring no new reading.
    pub(crate) fn observe(
        &mut self,
        guest: &GuestSample,
        stats: &Measured<GuestStats>,
        now: Timestamp,
    ) {
        let stats_at = before(now, stats.age);
        let at = guest.disk_reads.map_or(stats_at, |reads| before(now, reads.age));
        if stats_at + SAME_TIME < at {
            // What was swapped in by then is not known yet.
            return;
        }
        let disks = guest.disk_reads.map(|reads| reads.value);
        let Some((last, disks_then)) = self.last else {
            self.last = Some((at, disks));
            return;
        };
        if at < last + APART_MIN {
            return;
        }
        self.last = Some((at, disks));
        let (swapped_in, refaulted) = (std::mem::take(&mut self.swapped_in), self.refaulted.take());
        let GuestStats { disk_caches: Some(cache), free: Some(free), available, .. } = stats.value
        else {
            self.need = CacheNeed::default();
            return;
        };
        let disks = disks_then.zip(disks).map(|(then, now)| ReadBetween { then, now, swapped_in });
        let reads = match (disks, refaulted) {
            (Some(disks), Some(refaulted)) => disks.in_all().min(refaulted),
            (Some(disks), None) => disks.at_random(),
            (None, Some(refaulted)) => refaulted,
            (None, None) => return,
        };
        // What is not available counts as used already.
        let cache = cache.min(available.unwrap_or(free));
        let memory = guest.memory_max().unwrap_or(Bytes::ZERO);
        let interval = at.saturating_since(last);
        self.need.update(CacheReading { reads, cache, free, memory, interval });
    }

    /// The page cache that the guest needs, as far as it is known at `now`.
    pub(crate) fn need(&self, now: Timestamp) -> Bytes {
        match self.last {
            Some((at, _)) if now.saturating_since(at) <= AGE_MAX => self.need.get(),
            _ => Bytes::ZERO,
        }
    }
}
