//! How fast each mechanism is with a guest, and which is to take memory from it.
//!
//! Idea: what a mechanism governs is compared from sample to sample while it is under way; a moving average of bytes a
//! second follows, in integers. A mechanism that stands still while it should move is slow, which the average then
//! says. From that it is estimated how long a reduction will take, and the mechanism chosen:
//!
//! 1. *the balloon*, unless it gives the host nothing, is not there, or the guest does not give: it takes whole pages
//!    of the guest's own choice, which are those it needs least;
//! 2. *unplugging*, where there is no usable balloon: the guest has to empty whole blocks, and stalls over pages it
//!    cannot move; otherwise only to give back address space, which is a [`Router`](crate::hotplug::Router)'s matter;
//! 3. *paging* last: the host knows least of what the guest needs, and each mistake costs a read from disk. It needs
//!    nobody's consent, so it is the one for guests that do not give, or not in the time the host has.
//!
//! Cost: O(1) a guest and tick. Limits: a mechanism not yet seen at work is taken to be as fast as those measured
//! under load elsewhere; nothing is known of a guest's future load.

use std::time::Duration;

use ballast_model::{
    Bytes, Compliance, GuestSample, HotplugKind, Mechanism, Move, Rung, Timestamp, Why,
};

/// Weight of a new measurement in the average: a quarter, so that three samples make up most of it.
const NEW_WEIGHT: u64 = 4;

/// Samples further apart say nothing of a rate: the guest may have been done long before.
const APART_MAX: Duration = Duration::from_secs(10);

/// What is assumed of a mechanism before it was measured, in bytes a second.
const fn assumed(mechanism: Mechanism) -> Bytes {
    match mechanism {
        // The slowest inflation seen under swap load.
        Mechanism::Balloon => Bytes::mib(80),
        // A quarter of what an idle guest unplugs.
        Mechanism::VirtioMem | Mechanism::Dimm => Bytes::mib(64),
        // To compressed memory, the slower of those measured, and half of that for a busy disk.
        Mechanism::PageOut | Mechanism::PageIn => Bytes::mib(300),
    }
}

/// Measured rates of one guest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    measured: [Option<Bytes>; Mechanism::ALL.len()],
    /// What each mechanism governed when last seen under way, and when.
    marks: [Option<(Bytes, Timestamp)>; Mechanism::ALL.len()],
}

impl Rates {
    /// Bytes a second that a mechanism was seen to move; `None`: never seen at work.
    pub fn measured(&self, mechanism: Mechanism) -> Option<Bytes> {
        self.measured[place(mechanism)]
    }

    /// Time that moving `amount` takes by a mechanism, by what was measured or is assumed; [`Duration::MAX`] for one
    /// that stands still.
    pub fn time_for(&self, mechanism: Mechanism, amount: Bytes) -> Duration {
        let rate = self.measured(mechanism).unwrap_or(assumed(mechanism)).get();
        if rate == 0 {
            return if amount == Bytes::ZERO { Duration::ZERO } else { Duration::MAX };
        }
        let millis = u128::from(amount.get()) * 1000 / u128::from(rate);
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// Takes in a sample; `under_way` are the guest's moves that were not done when it was last seen. To be called
    /// once for every snapshot.
    pub fn observe(&mut self, now: Timestamp, sample: &GuestSample, under_way: &[Move]) {
        for mechanism in Mechanism::ALL {
            let at = place(mechanism);
            let governed = governed(mechanism, sample);
            let before = self.marks[at].take();
            let order = under_way.iter().find(|order| order.mechanism == mechanism);
            let (Some(governed), Some(order)) = (governed, order) else { continue };
            let done =
                if order.to < order.from { governed <= order.to } else { governed >= order.to };
            if !done {
                self.marks[at] = Some((governed, now));
            }
            let Some((mark, since)) = before else { continue };
            let passed = now.saturating_since(since);
            if passed.is_zero() || passed > APART_MAX {
                continue;
            }
            let moved = if order.to < order.from {
                mark.saturating_sub(governed)
            } else {
                governed.saturating_sub(mark)
            };
            let rate = moved.fraction(1000, u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
            // One that got there had time to spare: it may be faster than this, not slower.
            let slower = self.measured[at].is_some_and(|measured| rate < measured);
            if !(done && slower) {
                self.measured[at] = Some(match self.measured[at] {
                    Some(average) => average
                        .fraction(NEW_WEIGHT - 1, NEW_WEIGHT)
                        .saturating_add(rate.fraction(1, NEW_WEIGHT)),
                    None => rate,
                });
            }
        }
    }
}

/// A reduction for which a mechanism is sought.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'a> {
    /// What was seen of the guest.
    pub sample: &'a GuestSample,
    /// Whether it gives what it was asked for.
    pub compliance: Compliance,
    /// What is still to be taken.
    pub amount: Bytes,
    /// How far the host goes.
    pub rung: Rung,
    /// Time within which the host needs it; `None`: it can wait.
    pub within: Option<Duration>,
    /// Whether the host can page guests out at all.
    pub may_page: bool,
}

/// The mechanism to take memory by, and why this one; `None`: there is none for this guest.
pub fn choose(reduction: &Reduction<'_>, rates: &Rates) -> Option<(Mechanism, Why)> {
    let Reduction { sample, compliance, amount, rung, within, may_page } = *reduction;
    let no_balloon = sample.capabilities.balloon == Some(false);
    let inhibited = sample.capabilities.discard_inhibited == Some(true);
    if inhibited || no_balloon || compliance == Compliance::Inhibited {
        let why = if no_balloon { Why::NoBalloon } else { Why::BallooningInhibited };
        let hotplug = sample.hotplug.filter(|hotplug| hotplug.plugged > Bytes::ZERO);
        if let Some(hotplug) = hotplug {
            let mechanism = match hotplug.kind {
                HotplugKind::VirtioMem => Mechanism::VirtioMem,
                HotplugKind::Dimm => Mechanism::Dimm,
            };
            return Some((mechanism, why));
        }
        // Locked pages cannot be paged out either.
        return (no_balloon && !inhibited && may_page).then_some((Mechanism::PageOut, why));
    }
    if may_page {
        match compliance {
            Compliance::Slow { left, asked } => {
                return Some((Mechanism::PageOut, Why::NotGiven { left, asked }));
            }
            Compliance::Stuck { idle } => {
                return Some((Mechanism::PageOut, Why::NotGiven { left: amount, asked: idle }));
            }
            _ => {}
        }
        let balloon = rates.time_for(Mechanism::Balloon, amount);
        let paging = rates.time_for(Mechanism::PageOut, amount);
        if rung >= Rung::ReclaimOwed
            && within.is_some_and(|within| balloon > within)
            && paging < balloon
        {
            return Some((Mechanism::PageOut, Why::HostShort { rung }));
        }
    }
    Some((Mechanism::Balloon, Why::BalloonTakesIt))
}

/// What a mechanism governs of a guest, if it is known.
fn governed(mechanism: Mechanism, sample: &GuestSample) -> Option<Bytes> {
    let plugged = sample.hotplug.map(|hotplug| hotplug.plugged);
    match mechanism {
        Mechanism::Balloon => {
            let holds = sample.allocation?.value;
            Some(holds.saturating_sub(plugged.unwrap_or_default()))
        }
        Mechanism::VirtioMem | Mechanism::Dimm => plugged,
        Mechanism::PageOut | Mechanism::PageIn => Some(sample.resident?.value),
    }
}

fn place(mechanism: Mechanism) -> usize {
    mechanism as usize
}
