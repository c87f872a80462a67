//! How much of a guest's memory is in files.
//!
//! Idea: the mappings of the guest's process show it. They are counted anew when the size of the
//! guest's memory changes, by a thread ([`Occupancy`](super::occupancy::Occupancy)). Until they are
//! counted, it is unknown: an older count may lack memory that was plugged in since.
//! Limits: a tracker that revokes permissions can hide some of it. So the most that was seen counts
//! until the guest's memory shrinks.

use ballast_model::{Bytes, Timestamp};

use super::occupancy::Count;

/// How much of one guest's memory is in files.
#[derive(Debug, Default)]
pub(super) struct FileBacking {
    /// The most that was seen since the guest's memory last shrank; `None`: nothing is known.
    most: Option<Bytes>,
    /// How much memory the guest has; `None`: unknown, or to be counted again.
    memory: Option<Bytes>,
    /// Since when a count is awaited; `None`: none is.
    awaited: Option<Timestamp>,
}

impl FileBacking {
    /// Takes in how much memory the guest has at `now`. If that changed, a new count is awaited.
    pub(super) fn observe(&mut self, memory: Option<Bytes>, now: Timestamp) {
        if memory.is_some() && memory != self.memory {
            self.most = self.most.filter(|_| memory >= self.memory);
            (self.memory, self.awaited) = (memory, Some(now));
        }
    }

    /// Takes in a count, unless it began before the guest's memory changed.
    pub(super) fn take(&mut self, count: Count) {
        if self.awaited.is_some_and(|since| count.at >= since) {
            self.awaited = None;
            // Without permission to read, nothing is known.
            self.most = count.found.ok().flatten().max(self.most);
        }
    }

    /// Awaits another count, from the next [`FileBacking::observe`] on, if the last found nothing.
    pub(super) fn retry(&mut self) {
        if self.latest().is_none() && !self.is_awaited() {
            self.memory = None;
        }
    }

    /// Whether a count is awaited.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// How much is in files; `None`: unknown.
    pub(super) fn latest(&self) -> Option<Bytes> {
        self.most.filter(|_| self.awaited.is_none())
    }
}

#[cfg(test)]
mod tests {
    use ballast_reclaim::ReclaimError;

    use super::*;

    fn mib(n: u64) -> Option<Bytes> {
        Some(Bytes::mib(n))
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn memory_that_was_not_counted_since_it_changed_is_unknown() {
        let mut backing = FileBacking::default();
        backing.observe(None, at(0));
        assert!(!backing.is_awaited(), "the guest's memory is unknown");
        // The guest's memory and when it was that, when a count began, what that found, and what is
        // known then.
        for (memory, now, began, found, known) in [
            (1024, 1000, 1000, 1024, mib(1024)),
            // The same size is not counted again.
            (1024, 2000, 2000, 512, mib(1024)),
            // Begun before memory was plugged in.
            (2048, 3000, 2999, 1024, None),
            (2048, 4000, 3999, 2048, mib(2048)),
            // A tracker hides some.
            (2304, 5000, 5000, 256, mib(2048)),
            (1024, 6000, 6000, 512, mib(512)),
        ] {
            backing.observe(mib(memory), at(now));
            backing.take(Count { at: at(began), found: Ok(mib(found)) });
            let found = (backing.latest(), backing.is_awaited());
            assert_eq!(found, (known, known.is_none()), "{memory} MiB at {now} ms");
        }
    }

    #[test]
    fn a_count_that_finds_nothing_is_made_again() {
        let mut backing = FileBacking::default();
        backing.observe(mib(1024), at(1000));
        backing.retry();
        backing.observe(mib(1024), at(2000));
        backing.take(Count { at: at(1500), found: Err(ReclaimError::Gone { pid: 7 }) });
        assert_eq!((backing.latest(), backing.is_awaited()), (None, false), "it was awaited");
        backing.observe(mib(1024), at(3000));
        assert!(!backing.is_awaited(), "not at once");
        backing.retry();
        backing.observe(mib(1024), at(4000));
        assert!(backing.is_awaited());
        backing.take(Count { at: at(4000), found: Ok(mib(1024)) });
        backing.retry();
        backing.observe(mib(1024), at(5000));
        assert_eq!(backing.latest(), mib(1024));
    }
}
