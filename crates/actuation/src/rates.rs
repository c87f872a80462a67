//! How fast each mechanism takes memory from a guest, and which mechanism to use.
//!
//! Idea: while a mechanism has an order to take memory, the amount that it governs is compared from
//! sample to sample, and a moving average of bytes a second follows, in integers. A mechanism that
//! stands still although it should take becomes slow in that average. A size counts at the moment
//! when it was read, so one that two samples repeat is no standstill. The average gives the time
//! that a reduction will need, and from that the mechanism is chosen:
//!
//! 1. *the balloon*, unless it gives the host nothing or the guest does not give: it takes whole
//!    pages of the guest's own choice, which are those that the guest needs least;
//! 2. *unplugging*, if there is no usable balloon: the guest has to empty whole blocks, and stalls
//!    over pages that it cannot move; otherwise it only serves to give back address space, which is
//!    done by an [`Actuator`](crate::hotplug::Actuator);
//! 3. *paging* last: the host knows least about what the guest needs, and each mistake costs a read
//!    from disk. It needs no cooperation, so it serves for guests that do not give, or not in the
//!    time that the host has.
//!
//! Cost: O(1) per guest and tick. Limits: a mechanism that was not seen at work yet is assumed to
//! be as fast as those measured under load elsewhere; nothing is known of a guest's future load.

use std::time::Duration;

use ballast_model::{
    Bytes, Compliance, GuestSample, HotplugKind, Measured, Mechanism, MechanismReason,
    PressureLevel, Timestamp,
};

/// Weight of a new measurement in the average: a quarter, so that three samples make up most of it.
const NEW_WEIGHT: u64 = 4;

/// Sizes further apart, or older, say nothing of a rate: the guest may have finished long before.
const APART_MAX: Duration = Duration::from_secs(10);

/// Sizes closer than this are not compared: a balloon's size changes in steps.
const APART_MIN: Duration = Duration::from_millis(50);

/// Longest that a short host waits for a balloon: one tick.
const SHORT_WAITS: Duration = Duration::from_secs(1);

/// The rate that is assumed until it was measured, in bytes a second.
const fn assumed(mechanism: Mechanism) -> Bytes {
    match mechanism {
        // The slowest inflation seen under swap load.
        Mechanism::Balloon => Bytes::mib(80),
        // A quarter of what an idle guest unplugs.
        Mechanism::VirtioMem | Mechanism::Dimm => Bytes::mib(64),
        // The slower measured rate of paging to compressed memory, halved for a busy disk.
        Mechanism::PageOut | Mechanism::PageIn => Bytes::mib(300),
    }
}

/// The orders in force; `None`: there is no such order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrdersInForce {
    /// What the guest should hold, balloon and plugged memory together.
    pub target: Option<Bytes>,
    /// The cap on its process.
    pub cap: Option<Bytes>,
}

/// Measured rates of one guest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    balloon: MeasuredRate,
    paging: MeasuredRate,
}

/// The rate of one mechanism.
#[derive(Clone, Copy, Debug, Default)]
struct MeasuredRate {
    measured: Option<Bytes>,
    /// The amount it governed when it was last seen under way, and when that was read.
    mark: Option<(Bytes, Timestamp)>,
}

impl Rates {
    /// Bytes a second that a mechanism was seen to take; `None`: it was never seen to take for
    /// longer than from one sample to the next, nor faster than is assumed.
    pub fn measured(&self, mechanism: Mechanism) -> Option<Bytes> {
        match mechanism {
            Mechanism::Balloon => self.balloon.measured,
            Mechanism::PageOut => self.paging.measured,
            Mechanism::VirtioMem | Mechanism::Dimm | Mechanism::PageIn => None,
        }
    }

    /// Time that a mechanism needs to take `amount`, at the measured or assumed rate;
    /// [`Duration::MAX`] if it stands still.
    pub fn time_for(&self, mechanism: Mechanism, amount: Bytes) -> Duration {
        let rate = self.measured(mechanism).unwrap_or(assumed(mechanism)).get();
        if rate == 0 {
            return if amount == Bytes::ZERO { Duration::ZERO } else { Duration::MAX };
        }
        let millis = u128::from(amount.get()) * 1000 / u128::from(rate);
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// Takes in a sample; `in_force` was ordered before it. Call once for every snapshot.
    pub fn observe(&mut self, now: Timestamp, sample: &GuestSample, in_force: OrdersInForce) {
        let (balloon, page_out) = (assumed(Mechanism::Balloon), assumed(Mechanism::PageOut));
        self.balloon.observe(now, sample.allocation, in_force.target, balloon);
        self.paging.observe(now, sample.resident, in_force.cap, page_out);
    }
}

impl MeasuredRate {
    fn observe(
        &mut self,
        now: Timestamp,
        governed: Option<Measured<Bytes>>,
        to: Option<Bytes>,
        assumed: Bytes,
    ) {
        let governed = governed.filter(|size| size.age <= APART_MAX);
        let now = governed.map_or(now, |size| now.saturating_sub(size.age));
        let governed = governed.map(|size| size.value);
        let before = self.mark;
        if let Some((_, since)) = before
            && now.saturating_since(since) < APART_MIN
        {
            return;
        }
        self.mark = None;
        let (Some(governed), Some(to)) = (governed, to) else { return };
        let done = governed <= to;
        if !done {
            self.mark = Some((governed, now));
        }
        let Some((mark, since)) = before else { return };
        let passed = now.saturating_since(since);
        if passed > APART_MAX {
            return;
        }
        let moved = mark.saturating_sub(governed);
        let rate = moved.fraction(1000, u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
        // A mechanism that reached its target had time to spare: it may be faster than this, but
        // not slower. So a small amount, taken in a moment, never makes a mechanism slow.
        let slower = rate < self.measured.unwrap_or(assumed);
        if !(done && slower) {
            self.measured = Some(match self.measured {
                Some(average) => average
                    .fraction(NEW_WEIGHT - 1, NEW_WEIGHT)
                    .saturating_add(rate.fraction(1, NEW_WEIGHT)),
                None => rate,
            });
        }
    }
}

/// A reduction that needs a mechanism.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'a> {
    /// What was seen of the guest.
    pub sample: &'a GuestSample,
    /// Whether it gives what it was asked for.
    pub compliance: Compliance,
    /// The amount still to be taken.
    pub amount: Bytes,
    /// The host's pressure level.
    pub level: PressureLevel,
}

/// The mechanism to take memory by on a host that can page guests out, and why; `None`: there is
/// none for this guest.
pub fn choose(reduction: &Reduction<'_>, rates: &Rates) -> Option<(Mechanism, MechanismReason)> {
    let Reduction { sample, compliance, amount, level } = *reduction;
    let no_balloon = sample.capabilities.balloon == Some(false);
    let inhibited = sample.capabilities.discard_inhibited == Some(true);
    if inhibited || no_balloon || compliance == Compliance::Inhibited {
        // Locked pages cannot be paged out either, and a guest without a balloon was never asked
        // for anything.
        let hotplug = sample.hotplug.filter(|hotplug| hotplug.plugged > Bytes::ZERO)?;
        let mechanism = match hotplug.kind {
            HotplugKind::VirtioMem => Mechanism::VirtioMem,
            HotplugKind::Dimm => Mechanism::Dimm,
        };
        let why = if no_balloon {
            MechanismReason::NoBalloon
        } else {
            MechanismReason::BallooningInhibited
        };
        return Some((mechanism, why));
    }
    let not_given = match compliance {
        Compliance::Slow { left, asked } => Some(MechanismReason::NotGiven { left, asked }),
        Compliance::Stuck { idle: asked } => {
            Some(MechanismReason::NotGiven { left: amount, asked })
        }
        _ => None,
    };
    if let Some(why) = not_given {
        return Some((Mechanism::PageOut, why));
    }
    let balloon = rates.time_for(Mechanism::Balloon, amount);
    let paging = rates.time_for(Mechanism::PageOut, amount);
    if level >= PressureLevel::ReclaimOwed && balloon > SHORT_WAITS && paging < balloon {
        return Some((Mechanism::PageOut, MechanismReason::HostShort { level }));
    }
    Some((Mechanism::Balloon, MechanismReason::BalloonTakesIt))
}
