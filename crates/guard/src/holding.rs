//! What a guest holds, as far as the host can see.
//!
//! Idea: the allocation that a hypervisor reports is a number written by the guest's balloon
//! driver, but the host sees how much memory the hypervisor's process occupies. Where that exceeds
//! the claim and the hypervisor's own need, the guest holds the difference, whatever it claims.
//! Less is no evidence, because a guest may not have touched all that it may hold.
//!
//! The last size seen stands until another one is seen, so a release counts once it was seen. A
//! size that is some seconds old delays what others get by that long.
//!
//! Cost: O(1) per guest and tick. Limits: the hypervisor's own need is measured where the guest's
//! memory is shared, and assumed elsewhere. A guest can hide as much as is assumed.

use std::time::Duration;

use ballast_model::{Bytes, GuestSample, Timestamp, overhead_assumed, overhead_at_most};

/// A resident size older than this does not count as the present one.
const FRESH: Duration = Duration::from_secs(2);

/// A resident size this old is forgotten: a host that can never read it again must not keep its
/// guests from giving memory to each other.
const REMEMBERED: Duration = Duration::from_secs(60);

/// One guest's claims, and what the host sees of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holding {
    /// The last measured overhead.
    overhead: Option<Bytes>,
    /// The guest's memory that can be resident by the last sample; `None`: unknown.
    resident: Option<ResidentRange>,
    /// The least of the guest's memory that was resident by the last known size, and the moment of
    /// that size.
    seen: Option<(Bytes, Timestamp)>,
    /// The most of the guest's memory that was resident by that size; `None`: no size is known, or
    /// it is forgotten.
    in_use: Option<Bytes>,
    /// The least that it can hold by its process, as of the last sample and of the one before.
    seen_now: Option<Bytes>,
    seen_before: Option<Bytes>,
    /// What the guest holds by the last sample.
    held: Option<Bytes>,
}

/// The least and the most of a guest's memory that can be resident.
#[derive(Clone, Copy, Debug)]
struct ResidentRange {
    least: Bytes,
    most: Bytes,
}

impl Holding {
    /// Takes in a sample.
    pub fn observe(&mut self, sample: &GuestSample, now: Timestamp) {
        self.seen_before = self.seen_now;
        self.overhead = sample.overhead.or(self.overhead);
        let memory = sample.present_memory().unwrap_or(Bytes::ZERO);
        // What the hypervisor may need besides the guest's memory.
        let needs_least = self.overhead.unwrap_or(Bytes::ZERO).min(overhead_assumed(memory));
        let needs_most = overhead_at_most(self.overhead, memory);
        // A target may be derived from the lower bound, and an eighth of a guest need not be whole
        // pages.
        let within = |occupied: Bytes| ResidentRange {
            least: occupied.saturating_sub(needs_most).page_floor(),
            most: occupied.saturating_sub(needs_least),
        };
        let recent = sample.resident.filter(|size| size.age <= REMEMBERED);
        let fresh = recent.filter(|size| size.age <= FRESH);
        self.resident = fresh.map(|size| within(size.value));
        if let Some(size) = recent {
            let ResidentRange { least, most } = within(size.value);
            (self.seen, self.in_use) = (Some((least, now)), Some(most));
        } else if self.seen.is_some_and(|(_, at)| now > at + REMEMBERED) {
            self.in_use = None;
        }
        // Where the host keeps ballooned pages, the resident size says nothing about claims.
        let is_evidence = sample.capabilities.discard_inhibited != Some(true);
        self.seen_now = match self.seen {
            Some((seen, at)) if is_evidence && now <= at + REMEMBERED => {
                Some(seen.min(sample.memory_max().unwrap_or(seen)))
            }
            _ => None,
        };
        self.held = sample.claimed().max(self.seen_now);
    }

    /// The previous daemon last knew the guest to hold `held`. That stands until the host sees the
    /// guest's process.
    pub fn restore(&mut self, held: Option<Bytes>, now: Timestamp) {
        self.seen = held.map(|held| (held.page_floor(), now));
    }

    /// What the guest holds by the last sample: its claim or, if that is more, what was seen.
    /// `None`: no claim, and nothing was seen.
    pub fn held(&self) -> Option<Bytes> {
        self.held
    }

    /// The part of that which the host saw, by the sample before the last one.
    pub(crate) fn seen_before(&self) -> Option<Bytes> {
        self.seen_before
    }

    /// The least of the guest's memory that is resident on the host; `None`: unknown.
    pub fn resident_at_least(&self) -> Option<Bytes> {
        self.resident.map(|range| range.least)
    }

    /// The most of the guest's memory that may be resident on the host; `None`: unknown.
    pub fn resident_at_most(&self) -> Option<Bytes> {
        self.resident.map(|range| range.most)
    }

    /// The most of the guest's memory that may have been resident by the last known size, however
    /// old. `None`: none is known.
    pub fn in_use(&self) -> Option<Bytes> {
        self.in_use
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::{LinkState, Measured};

    use super::*;

    /// A guest with 1 GiB, all in MiB.
    fn sample(claims: u64, resident: u64, overhead: Option<u64>) -> GuestSample {
        GuestSample {
            allocation: Some(Measured::fresh(Bytes::mib(claims))),
            boot_memory: Some(Bytes::gib(1)),
            resident: Some(Measured::fresh(Bytes::mib(resident))),
            overhead: overhead.map(Bytes::mib),
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        }
    }

    /// What a guest holds after each sample; samples are a second apart.
    fn held(samples: &[GuestSample]) -> Vec<u64> {
        let mut holding = Holding::default();
        let held = samples.iter().zip(100u64..).map(|(sample, second)| {
            holding.observe(sample, Timestamp::from_millis(second * 1000));
            holding.held().unwrap().get() >> 20
        });
        held.collect()
    }

    #[test]
    fn what_is_held_is_whole_pages() {
        // An eighth of 1,000,004 KiB is no whole number of pages.
        let memory = Bytes::new(1_000_004 << 10);
        let mut guest = sample(400, 900, None);
        guest.boot_memory = Some(memory);
        let mut holding = Holding::default();
        holding.observe(&guest, Timestamp::from_millis(1000));
        let held = holding.held().unwrap();
        assert_eq!(held, held.page_floor());
        assert!(held < Bytes::mib(900 - 64) - memory.fraction(1, 8) && held > Bytes::mib(700));
    }

    #[test]
    fn a_claim_stands_while_the_host_sees_no_more() {
        assert_eq!(held(&[sample(400, 300, None)]), [400]);
        assert_eq!(held(&[sample(400, 550, None)]), [400], "the hypervisor may need an eighth");
        assert_eq!(held(&[sample(400, 450, Some(40))]), [400]);
    }

    #[test]
    fn what_is_resident_is_held_whatever_is_claimed() {
        assert_eq!(held(&[sample(400, 900, None)]), [900 - 64 - 128]);
        assert_eq!(held(&[sample(400, 900, Some(40))]), [900 - 56]);
        let none_measured_now = [sample(400, 900, Some(40)), sample(400, 900, None)];
        assert_eq!(held(&none_measured_now), [844, 844]);
        assert_eq!(held(&[sample(400, 4000, Some(40))]), [1024], "no more than it has");
    }

    #[test]
    fn overhead_is_believed_only_to_a_limit() {
        assert_eq!(held(&[sample(400, 900, Some(800))]), [900 - 192]);
    }

    #[test]
    fn a_release_counts_once_it_was_seen() {
        let claims_and_sizes = [(1000, 1000), (700, 1000), (400, 700), (400, 400)];
        let samples = claims_and_sizes.map(|(claims, size)| sample(claims, size, Some(40)));
        assert_eq!(held(&samples), [1000, 944, 644, 400]);
    }

    #[test]
    fn a_release_that_nobody_sees_is_not_counted() {
        let mut old = sample(400, 900, Some(40));
        old.resident.as_mut().unwrap().age = Duration::from_secs(3);
        assert_eq!(held(&[old.clone()]), [844]);
        let mut unseen = sample(400, 900, Some(40));
        unseen.resident = None;
        let mut samples = vec![sample(900, 900, Some(40)), unseen.clone()];
        assert_eq!(held(&samples), [900, 844]);
        samples.push(sample(400, 300, Some(40)));
        assert_eq!(held(&samples), [900, 844, 400], "seen again");
        samples.extend(vec![unseen; 61]);
        assert_eq!(held(&samples).last(), Some(&400), "forgotten");
    }

    #[test]
    fn what_was_in_use_counts_for_a_minute() {
        let mut holding = Holding::default();
        let mut in_use = |second: u64, sample: &GuestSample| {
            holding.observe(sample, Timestamp::from_millis(second * 1000));
            holding.in_use().map(|it| it.get() >> 20)
        };
        let mut unseen = sample(900, 0, Some(40));
        unseen.resident = None;
        assert_eq!(in_use(100, &unseen), None, "a claim is no use");
        assert_eq!(in_use(101, &sample(900, 540, Some(40))), Some(500));
        assert_eq!(in_use(161, &unseen), Some(500));
        assert_eq!(in_use(162, &unseen), None);
        let mut old = sample(900, 640, Some(40));
        old.resident.as_mut().unwrap().age = Duration::from_secs(8);
        assert_eq!(in_use(163, &old), Some(600));
    }

    #[test]
    fn resident_memory_proves_nothing_with_inhibited_balloons() {
        let mut inhibited = sample(400, 1000, Some(40));
        inhibited.capabilities.discard_inhibited = Some(true);
        assert_eq!(held(&[inhibited]), [400]);
    }

    #[test]
    fn no_claim_exceeds_the_memory_there_is() {
        assert_eq!(held(&[sample(1 << 40, 300, None)]), [1024]);
    }
}
