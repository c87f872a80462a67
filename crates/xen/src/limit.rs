//! What the hypervisor lets a domain hold at most: its maxmem.
//!
//! Idea: the toolstack starts a domain with a maxmem little above its first target, so a higher
//! target alone moves nothing. Before the first order that needs it, the maxmem is raised to the
//! domain's ceiling, once. If a domain does not release what was requested, the maxmem is lowered
//! to the target and a slack: this fence keeps the domain from growing. It is never lower than what
//! the domain holds.
//! Source: seen on Xen 4.17: a target of 250 MiB left a domain at 161, its maxmem.
//! Limits: there is no cheap way to read a maxmem; only what was set here and what a domain has
//! held is known. A daemon that starts anew knows only what the domain holds then.

use ballast_model::Bytes;

/// A fence is this much above the target.
pub(crate) const FENCE_SLACK: Bytes = Bytes::mib(16);
/// A maxmem is not lowered by less than this.
const CHANGE_MIN: Bytes = Bytes::mib(8);

/// The maxmem of one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MaxMem {
    /// The value set last; `None` if it was not set here.
    set: Option<Bytes>,
    /// The most that the domain has held, or that was set other than as a fence. If nothing was
    /// set here, the maxmem is at least that.
    unfenced: Bytes,
    /// Whether `set` is a fence.
    is_fence: bool,
}

impl MaxMem {
    /// Takes in what the domain holds: its maxmem is no less.
    pub(crate) fn observe(&mut self, holds: Bytes) {
        self.unfenced = self.unfenced.max(holds);
    }

    /// The least that it is known to be.
    pub(crate) fn known(&self) -> Bytes {
        self.set.unwrap_or(self.unfenced)
    }

    /// The most that the domain is known to be able to hold without a fence.
    pub(crate) fn unfenced(&self) -> Bytes {
        self.unfenced
    }

    /// The maxmem to set before the domain can hold `target`; `None` if it is high enough.
    pub(crate) fn for_target(&self, target: Bytes, ceiling: Bytes) -> Option<Bytes> {
        let is_tight = self.is_fence && target.saturating_add(FENCE_SLACK) > self.known();
        (target > self.known() || is_tight).then(|| ceiling.max(target))
    }

    /// The maxmem to set as a fence of a domain that holds `holds` and was ordered to hold
    /// `target`; `None` if it is low enough.
    pub(crate) fn fence(&self, holds: Bytes, target: Bytes) -> Option<Bytes> {
        let fence = target.saturating_add(FENCE_SLACK).max(holds);
        let is_lower = match self.set {
            Some(set) => set.saturating_sub(fence) >= CHANGE_MIN,
            None => true,
        };
        is_lower.then_some(fence)
    }

    /// The maxmem to set where no fence is needed any more; `None` if there is no fence.
    pub(crate) fn without_fence(&self, holds: Bytes, ceiling: Bytes) -> Option<Bytes> {
        self.is_fence.then(|| ceiling.max(holds))
    }

    /// The maxmem to set because the domain holds more than was set; `None` if it does not.
    pub(crate) fn at_least(&self, holds: Bytes) -> Option<Bytes> {
        self.set.filter(|set| holds > *set).map(|_| holds)
    }

    /// Records that it was set to `to`.
    pub(crate) fn was_set(&mut self, to: Bytes, is_fence: bool) {
        (self.set, self.is_fence) = (Some(to), is_fence);
        if !is_fence {
            self.unfenced = self.unfenced.max(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mib(n: u64) -> Bytes {
        Bytes::mib(n)
    }

    #[test]
    fn it_is_raised_once_up_to_the_ceiling() {
        let mut maxmem = MaxMem::default();
        maxmem.observe(mib(192));
        assert_eq!(maxmem.for_target(mib(128), mib(256)), None, "shrinking needs nothing");
        assert_eq!(maxmem.for_target(mib(192), mib(256)), None, "it held that before");
        assert_eq!(maxmem.for_target(mib(200), mib(256)), Some(mib(256)));
        maxmem.was_set(mib(256), false);
        assert_eq!(maxmem.for_target(mib(256), mib(256)), None);
        assert_eq!(maxmem.for_target(mib(300), mib(320)), Some(mib(320)), "a higher ceiling");
    }

    #[test]
    fn a_fence_follows_what_is_given_and_goes() {
        let mut maxmem = MaxMem::default();
        maxmem.observe(mib(500));
        assert_eq!(maxmem.fence(mib(500), mib(300)), Some(mib(500)), "never below what it holds");
        maxmem.was_set(mib(500), true);
        assert_eq!(maxmem.fence(mib(498), mib(300)), None, "not for so little");
        assert_eq!(maxmem.fence(mib(400), mib(300)), Some(mib(400)));
        maxmem.was_set(mib(400), true);
        assert_eq!(maxmem.fence(mib(290), mib(300)), Some(mib(316)), "with a slack");
        maxmem.was_set(mib(316), true);
        assert_eq!(maxmem.for_target(mib(310), mib(600)), Some(mib(600)));
        assert_eq!(maxmem.without_fence(mib(300), mib(600)), Some(mib(600)));
        maxmem.was_set(mib(600), false);
        assert_eq!(maxmem.without_fence(mib(300), mib(600)), None);
        assert_eq!(maxmem.unfenced(), mib(600));
    }

    proptest! {
        #[test]
        fn a_fence_never_changes_the_most_without_it(
            sizes in prop::collection::vec((0..1000u64, 0..1000u64), 1..20),
            held in 0..1000u64,
        ) {
            let mut maxmem = MaxMem::default();
            maxmem.observe(mib(held));
            for (holds, target) in sizes {
                let holds = mib(holds.min(held));
                maxmem.observe(holds);
                if let Some(fence) = maxmem.fence(holds, mib(target)) {
                    maxmem.was_set(fence, true);
                }
                prop_assert_eq!(maxmem.unfenced(), mib(held));
            }
        }

        #[test]
        fn nothing_that_is_set_is_below_what_is_held(
            steps in prop::collection::vec((0..1000u64, 0..1000u64, 1..1000u64, 0..4u8), 1..40)
        ) {
            let mut maxmem = MaxMem::default();
            for (holds, target, ceiling, what) in steps {
                let (holds, target, ceiling) = (mib(holds), mib(target), mib(ceiling));
                maxmem.observe(holds);
                let to = match what {
                    0 => maxmem.fence(holds, target),
                    1 => maxmem.without_fence(holds, ceiling),
                    2 => maxmem.at_least(holds),
                    // An order to grow has a target above what the domain holds.
                    _ => maxmem.for_target(target.max(holds), ceiling),
                };
                if let Some(to) = to {
                    prop_assert!(to >= holds);
                    maxmem.was_set(to, what == 0);
                }
            }
        }
    }
}
