//! Chooses how many pages are tracked as one.
//!
//! Idea: large working sets are tracked coarsely, because the list of tags and the cost of each
//! reference grow with the number of tags. Two thresholds give hysteresis, so that a working set at
//! the border does not regroup the list again and again.
//!
//! Source: MEB §3.1.2 (32 pages, and 512 above 2 GiB); switching back below 1.5 GiB is ours.
//! Limits: two granularities. The caller regroups the list.

use ballast_model::Bytes;

/// Coarse above this size.
const COARSE_ABOVE: Bytes = Bytes::gib(2);
/// Fine again below this size: a quarter less, more than a working set changes within a phase.
const FINE_BELOW: Bytes = Bytes::mib(1536);

/// A granularity of tracking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackedGranularity {
    /// 32 pages a tag.
    #[default]
    Fine,
    /// 512 pages a tag: 2 MiB, as large as a huge page.
    Coarse,
}

impl TrackedGranularity {
    /// Pages per tag.
    pub const fn pages(self) -> u64 {
        match self {
            TrackedGranularity::Fine => 32,
            TrackedGranularity::Coarse => 512,
        }
    }
}

/// Switches between the two granularities; fine at first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GranularitySwitch {
    now: TrackedGranularity,
}

impl GranularitySwitch {
    /// The current granularity.
    pub fn now(&self) -> TrackedGranularity {
        self.now
    }

    /// Updates with a predicted working set; returns the new granularity if it changes.
    pub fn update(&mut self, wss: Bytes) -> Option<TrackedGranularity> {
        let next = match self.now {
            TrackedGranularity::Fine if wss > COARSE_ABOVE => TrackedGranularity::Coarse,
            TrackedGranularity::Coarse if wss < FINE_BELOW => TrackedGranularity::Fine,
            _ => return None,
        };
        self.now = next;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn granularity_changes_only_beyond_the_thresholds() {
        let mut switch = GranularitySwitch::default();
        for (mib, expected) in [
            (100, None),
            (2048, None),
            (2049, Some(TrackedGranularity::Coarse)),
            (9000, None),
            (1536, None),
            (1535, Some(TrackedGranularity::Fine)),
            (2048, None),
        ] {
            assert_eq!(switch.update(Bytes::mib(mib)), expected, "{mib} MiB");
        }
        assert_eq!(switch.now().pages(), 32);
    }

    proptest! {
        #[test]
        fn working_sets_between_the_thresholds_never_switch(
            first: u64,
            between in prop::collection::vec(1536u64..=2048, 0..50),
        ) {
            let mut switch = GranularitySwitch::default();
            switch.update(Bytes::new(first));
            for mib in between {
                prop_assert_eq!(switch.update(Bytes::mib(mib)), None);
            }
        }
    }
}
