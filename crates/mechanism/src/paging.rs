//! Whom the host pages out, and in again.
//!
//! Idea (flexmemd §3.2.2): a guest that has not given what it was asked for, its time being over, is bounded: its process
//! is to occupy no more than it would have if the guest had given it, and the host pages it out until it does. While a
//! bound is in force the guest counts as what its process occupies, so that others get what was taken. When the
//! guest gives at last, or nothing is asked of it any more, the bound ends and the host reads back ahead of the guest
//! what it took.
//!
//! Cost: O(1) a guest and tick. Limits: never below a guest's floor; a process whose size is not known, or not lately, is
//! left alone. Pages are anybody's: which go is the mechanism's choice.

use std::time::Duration;

use ballast_model::{
    Bytes, Compliance, HostSample, Measured, Mechanism, Move, Rung, Timestamp, Why,
};

/// Memory of a hypervisor beside its guest's: translated code, devices, queues.
pub const OVERHEAD: Bytes = Bytes::mib(64);
/// Less than this above a bound is not paged out.
const SLACK: Bytes = Bytes::mib(8);
/// How long a guest is read back ahead after its bound has ended; what it has not touched by then it may not need.
const READ_BACK_FOR: Duration = Duration::from_secs(10);

/// How much of the host's swap paging may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapRules {
    /// At most this part of it is in use, in percent; more than 100 is 100.
    pub use_max_percent: u64,
    /// And at least so much of it stays free.
    pub reserve: Bytes,
}

impl SwapRules {
    /// Whether the host has somewhere to page out to; not where it does not say.
    pub fn has_room(&self, host: &HostSample) -> bool {
        let (Some(total), Some(free)) = (host.swap_total, host.swap_free) else { return false };
        free > total.fraction(100 - self.use_max_percent.min(100), 100).max(self.reserve)
    }
}

/// What is known of a guest when it is decided whether to page it.
#[derive(Clone, Copy, Debug)]
pub struct PagingInput {
    /// The moment of the decision.
    pub now: Timestamp,
    /// What its process occupies.
    pub resident: Option<Measured<Bytes>>,
    /// What it holds.
    pub holds: Option<Bytes>,
    /// Whether it gives what it was asked for.
    pub compliance: Compliance,
    /// How far the host goes: from [`Rung::ReclaimOwed`] on nobody is given time.
    pub rung: Rung,
    /// What it was last asked to hold; `None`: nothing.
    pub asked: Option<Bytes>,
    /// What it is guaranteed; `None`: not known.
    pub floor: Option<Bytes>,
    /// A size older than this is not acted on.
    pub stale_after: Duration,
}

/// The bound on what one guest's process occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    in_force: Option<Bytes>,
    /// When the last one ended.
    ended: Option<Timestamp>,
}

/// What is to be done about a guest's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// [`Mechanism::PageOut`] or [`Mechanism::PageIn`].
    pub mechanism: Mechanism,
    /// What its process is to occupy.
    pub resident: Bytes,
    /// The same for people.
    pub told: Move,
}

impl Bound {
    /// What the process is held to; `None`: to nothing.
    pub fn in_force(&self) -> Option<Bytes> {
        self.in_force
    }

    /// Nobody is held to anything from now on.
    pub fn end(&mut self) {
        *self = Bound::default();
    }

    /// Decides anew; to be called once for every snapshot.
    pub fn decide(&mut self, input: &PagingInput) -> Option<Page> {
        let resident = input.resident.filter(|it| it.age <= input.stale_after)?.value;
        let owes = match input.compliance {
            Compliance::Slow { left, asked } => Some((left, asked)),
            Compliance::Stuck { idle } => {
                Some((input.holds?.saturating_sub(input.asked.unwrap_or(input.holds?)), idle))
            }
            Compliance::Releasing { left, idle } if input.rung >= Rung::ReclaimOwed => {
                Some((left, idle))
            }
            Compliance::Compliant | Compliance::Releasing { .. } | Compliance::Inhibited => None,
        };
        if let (Some((left, since)), Some(asked), Some(floor)) = (owes, input.asked, input.floor) {
            let bound = asked.max(floor).saturating_add(OVERHEAD).page_ceil();
            self.in_force = Some(bound);
            self.ended = None;
            let why = Why::NotGiven { left, asked: since };
            return (resident > bound.saturating_add(SLACK))
                .then(|| page(Mechanism::PageOut, resident, bound, why));
        }
        if self.in_force.take().is_some() {
            self.ended = Some(input.now);
        }
        let ended = self.ended?;
        if input.now.saturating_since(ended) > READ_BACK_FOR {
            self.ended = None;
            return None;
        }
        let whole = input.holds?.saturating_add(OVERHEAD);
        (resident < whole).then(|| page(Mechanism::PageIn, resident, whole, Why::Growing))
    }
}

fn page(mechanism: Mechanism, from: Bytes, to: Bytes, why: Why) -> Page {
    Page { mechanism, resident: to, told: Move { mechanism, from, to, why } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn input(compliance: Compliance, resident_mib: u64) -> PagingInput {
        PagingInput {
            now: Timestamp::from_millis(100_000),
            resident: Some(Measured::fresh(Bytes::mib(resident_mib))),
            holds: Some(Bytes::mib(512)),
            compliance,
            rung: Rung::Normal,
            asked: Some(Bytes::mib(200)),
            floor: Some(Bytes::mib(128)),
            stale_after: Duration::from_secs(10),
        }
    }

    const STUCK: Compliance = Compliance::Stuck { idle: Duration::from_secs(20) };

    #[test]
    fn who_does_not_give_is_paged_out_to_what_it_was_asked_for_and_no_further() {
        let mut bound = Bound::default();
        assert_eq!(bound.decide(&input(Compliance::Compliant, 560)), None);
        let releasing = Compliance::Releasing { left: Bytes::mib(9), idle: Duration::ZERO };
        assert_eq!(bound.decide(&input(releasing, 560)), None, "it is on its way");
        let short = PagingInput { rung: Rung::ReclaimOwed, ..input(releasing, 560) };
        assert!(Bound::default().decide(&short).is_some(), "for which a short host has no time");
        let page = bound.decide(&input(STUCK, 560)).unwrap();
        assert_eq!((page.mechanism, page.resident), (Mechanism::PageOut, Bytes::mib(264)));
        assert_eq!(
            page.told.to_string(),
            "page-out 560MiB to 264MiB: 312MiB not given 20s after they were asked for"
        );
        assert_eq!(bound.decide(&input(STUCK, 270)), None, "near enough");
        assert_eq!(bound.in_force(), Some(Bytes::mib(264)), "and held there");
        let slow = Compliance::Slow { left: Bytes::mib(50), asked: Duration::from_secs(30) };
        assert!(bound.decide(&input(slow, 400)).is_some());
    }

    #[test]
    fn what_was_taken_is_read_back_once_the_guest_gives() {
        let mut bound = Bound::default();
        bound.decide(&input(STUCK, 560));
        let page = bound.decide(&input(Compliance::Compliant, 264)).unwrap();
        assert_eq!((page.mechanism, page.resident), (Mechanism::PageIn, Bytes::mib(576)));
        assert_eq!(bound.in_force(), None);
        let later = PagingInput {
            now: Timestamp::from_millis(111_000),
            ..input(Compliance::Compliant, 264)
        };
        assert_eq!(bound.decide(&later), None, "not for ever");
        assert_eq!(bound.decide(&later), None);
    }

    #[test]
    fn nothing_is_done_without_figures() {
        let mut bound = Bound::default();
        let unknown = PagingInput { resident: None, ..input(STUCK, 560) };
        assert_eq!(bound.decide(&unknown), None);
        let mut stale = input(STUCK, 560);
        stale.resident.as_mut().unwrap().age = Duration::from_secs(11);
        assert_eq!(bound.decide(&stale), None);
        let nothing_asked = PagingInput { asked: None, ..input(STUCK, 560) };
        assert_eq!(bound.decide(&nothing_asked), None);
        assert_eq!(bound.in_force(), None);
    }

    proptest! {
        #[test]
        fn nobody_is_taken_below_its_floor_or_what_it_was_asked(
            resident in 0..4096u64, holds in 0..4096u64, asked in 0..4096u64, floor in 0..4096u64,
        ) {
            let mut bound = Bound::default();
            let page = bound.decide(&PagingInput {
                holds: Some(Bytes::mib(holds)),
                asked: Some(Bytes::mib(asked)),
                floor: Some(Bytes::mib(floor)),
                ..input(STUCK, resident)
            });
            if let Some(page) = page {
                prop_assert_eq!(page.mechanism, Mechanism::PageOut);
                prop_assert!(page.resident >= Bytes::mib(floor.max(asked)));
                prop_assert!(page.resident < Bytes::mib(resident));
            }
        }
    }
}
