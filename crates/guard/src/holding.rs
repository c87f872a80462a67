//! What a guest holds, as far as the host can see.
//!
//! Idea: what a hypervisor reports as a guest's allocation is a number that the guest's balloon
//! driver wrote. The host sees what the hypervisor's process occupies. Where that exceeds the claim
//! and what the hypervisor needs for itself, the guest holds the difference, whatever it claims.
//! Less is no evidence: a guest may not have touched all that it may hold.
//!
//! Balloons are quick: a size that was read before the claim is compared with the greatest claim of
//! the last seconds.
//!
//! Cost: O(1) a guest and tick. Limits: what the hypervisor needs for itself is measured where the
//! guest's memory is shared, and assumed elsewhere; a guest can hide as much as is assumed.

use std::time::Duration;

use ballast_model::{Bytes, GuestSample, Measured, Timestamp};

/// A resident size older than this is no evidence.
const FRESH: Duration = Duration::from_secs(2);

/// Claims count as those of the moment for at least this long, and for twice this at most.
const CLAIM_WINDOW: Duration = Duration::from_secs(2);

/// Least that a hypervisor needs beside its guest's memory.
const OVERHEAD_MIN: Bytes = Bytes::mib(64);

/// What a hypervisor is assumed to need beyond [`OVERHEAD_MIN`], as a part of its guest's memory:
/// QEMU's emulator keeps up to an eighth as translated code.
const OVERHEAD_PART: (u64, u64) = (1, 8);

/// A measured overhead may grow by this before it is measured again.
const OVERHEAD_MARGIN: Bytes = Bytes::mib(16);

/// One guest's claims, and what the host sees of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holding {
    /// The greatest claim of the last whole window, and of the one that began at `window_began`.
    claimed_before: Bytes,
    claimed: Bytes,
    window_began: Timestamp,
    /// The overhead last measured.
    overhead: Option<Bytes>,
    /// The least and the most of its memory that can be resident by the last sample; `None`: not
    /// known.
    resident: Option<(Bytes, Bytes)>,
    held: Option<Bytes>,
}

impl Holding {
    /// Takes in a sample.
    pub fn observe(&mut self, sample: &GuestSample, now: Timestamp) {
        self.overhead = sample.overhead.or(self.overhead);
        let most = sample.memory_max();
        let claim = sample.claimed();
        if claim.is_some() && now.saturating_since(self.window_began) >= CLAIM_WINDOW {
            self.claimed_before = std::mem::replace(&mut self.claimed, Bytes::ZERO);
            self.window_began = now;
        }
        self.claimed = self.claimed.max(claim.unwrap_or(Bytes::ZERO));
        let is_fresh = |resident: &Measured<Bytes>| resident.age <= FRESH;
        let occupied = sample.resident.filter(is_fresh).map(|resident| resident.value);
        let (least, most_overhead) = self.overhead(sample);
        self.resident =
            occupied.map(|it| (it.saturating_sub(most_overhead), it.saturating_sub(least)));
        // Where the host keeps what the balloon takes, what is resident says nothing of claims.
        let is_evidence = sample.capabilities.discard_inhibited != Some(true);
        let evident = self.resident_at_least().filter(|_| is_evidence);
        let evident = evident.map(|it| it.min(most.unwrap_or(it)));
        // A size that is older than the claim may be of a time before the balloon moved.
        let is_newer = |claim: Measured<Bytes>| {
            sample.resident.is_some_and(|resident| resident.age <= claim.age)
        };
        let claimed_lately = match claim {
            Some(claim) if sample.allocation.is_some_and(is_newer) => claim,
            _ => self.claimed.max(self.claimed_before),
        };
        // Without a claim the last ones stand.
        self.held = match (claim, evident) {
            (_, Some(evident)) if evident > claimed_lately => Some(evident),
            (claim, _) => claim,
        };
    }

    /// What the guest holds by the last sample: its claim or, if that is more, what is evident.
    /// `None`: it claims nothing, and no more is evident than it last claimed.
    pub fn held(&self) -> Option<Bytes> {
        self.held
    }

    /// The guest's memory that is resident on the host for certain; `None`: not known.
    pub fn resident_at_least(&self) -> Option<Bytes> {
        self.resident.map(|(least, _)| least)
    }

    /// The guest's memory that may be resident on the host; `None`: not known.
    pub fn resident_at_most(&self) -> Option<Bytes> {
        self.resident.map(|(_, most)| most)
    }

    /// The least and the most that its hypervisor may need beside the guest's memory.
    fn overhead(&self, sample: &GuestSample) -> (Bytes, Bytes) {
        let (part, of) = OVERHEAD_PART;
        let memory = sample.present_memory().unwrap_or(Bytes::ZERO);
        let assumed = OVERHEAD_MIN.saturating_add(memory.fraction(part, of));
        match self.overhead {
            Some(measured) => {
                (measured.min(assumed), measured.saturating_add(OVERHEAD_MARGIN).min(assumed))
            }
            None => (Bytes::ZERO, assumed),
        }
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::LinkState;

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

    /// What a guest holds after each sample, one a second.
    fn held(samples: &[GuestSample]) -> Vec<u64> {
        let mut holding = Holding::default();
        let held = samples.iter().zip(100u64..).map(|(sample, second)| {
            holding.observe(sample, Timestamp::from_millis(second * 1000));
            holding.held().unwrap().get() >> 20
        });
        held.collect()
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
    fn a_balloon_is_given_time_to_be_seen() {
        let claims = [1000, 700, 400, 400, 400, 400];
        let mut samples = claims.map(|claims| sample(claims, 1000, Some(40)));
        assert_eq!(held(&samples), [1000, 944, 944, 944, 944, 944]);
        for sample in &mut samples {
            sample.resident.as_mut().unwrap().age = Duration::from_secs(1);
        }
        assert_eq!(held(&samples), [1000, 700, 400, 400, 944, 944]);
    }

    #[test]
    fn an_old_size_is_no_evidence() {
        let mut old = sample(400, 900, Some(40));
        old.resident.as_mut().unwrap().age = Duration::from_secs(3);
        assert_eq!(held(&[old]), [400]);
    }

    #[test]
    fn inhibited_balloons_are_not_called_liars() {
        let mut inhibited = sample(400, 1000, Some(40));
        inhibited.capabilities.discard_inhibited = Some(true);
        assert_eq!(held(&[inhibited]), [400]);
    }

    #[test]
    fn no_claim_exceeds_the_memory_there_is() {
        assert_eq!(held(&[sample(1 << 40, 300, None)]), [1024]);
    }
}
