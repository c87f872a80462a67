//! What a daemon leaves to its successor.
//!
//! Idea: guests outlive daemons. The promises of the last plan hold until another plan is carried
//! out, whichever daemon makes it. The plan says each guest's target. A [`Handover`] has whatever
//! else the controller remembers of a guest, and is recorded beside the plan. [`Restart::of`] puts
//! the two together again.
//!
//! The checker of plans adds what it remembers of a guest by itself ([`CheckedGuest`]), where the
//! rest of the tick does not say the same.
//!
//! Limits: moments are of the host's monotonic clock, so a handover is worthless after a reboot. A
//! guest whose process is unknown is not handed over.

use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(feature = "serde")]
use crate::unit::{self, is_default, is_none};
use crate::{
    Bytes, GuestChange, GuestId, Plan, ProcessId, Regret, Reservation, Snapshot, Timestamp,
};

/// What is remembered of a guest besides its target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Handover {
    /// The guest.
    pub guest: GuestId,
    /// Its hypervisor's process, if the last sample lacked it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub process: Option<ProcessId>,
    /// What it was last seen to hold, if the last sample lacked it.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "held_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub held: Option<Bytes>,
    /// What it may hold beyond its target while memory is plugged in or out.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "transient_grant_bytes",
            default,
            with = "unit",
            skip_serializing_if = "is_default"
        )
    )]
    pub transient_grant: Bytes,
    /// Its last grant, if that is not its target.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "granted_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub granted: Option<Bytes>,
    /// The most that it was granted since it last complied, if that exceeds its last grant: what it
    /// is about to release it may still use.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "granted_lately_bytes",
            default,
            with = "unit",
            skip_serializing_if = "is_none"
        )
    )]
    pub granted_lately: Option<Bytes>,
    /// The cap on its process.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "resident_cap_bytes",
            default,
            with = "unit",
            skip_serializing_if = "is_none"
        )
    )]
    pub resident_cap: Option<Bytes>,
    /// Since when it gives nothing; `None`: it complies.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub stuck: Option<Stuck>,
    /// Where it thrashed last; `None`: it did not, or has been content since.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub thrashed: Option<Thrashed>,
    /// What it held when a daemon first saw it, if that is not what it holds by the plan.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "first_held_bytes",
            default,
            with = "unit",
            skip_serializing_if = "is_none"
        )
    )]
    pub first_held: Option<Bytes>,
    /// The limits that it brought from another host, if any.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub carried_limits: Option<GuestChange>,
    /// What the checker of plans remembers of it; `None`: what the rest of the tick says.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub checked: Option<CheckedGuest>,
}

impl Handover {
    /// Nothing is remembered of `guest` besides its target.
    pub fn nothing(guest: GuestId) -> Handover {
        Handover {
            guest,
            process: None,
            held: None,
            transient_grant: Bytes::ZERO,
            granted: None,
            granted_lately: None,
            resident_cap: None,
            stuck: None,
            thrashed: None,
            first_held: None,
            carried_limits: None,
            checked: None,
        }
    }
}

/// What the checker of plans remembers of one guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct CheckedGuest {
    /// What it was last seen to hold.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "held_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub held: Option<Bytes>,
    /// The target in force.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "target_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub target: Option<Bytes>,
    /// Its last grant.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "granted_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub granted: Option<Bytes>,
    /// The most that it was granted since it last complied, if that exceeds its last grant.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "granted_lately_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub granted_lately: Option<Bytes>,
    /// What it may come to hold, if that exceeds its target.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "entitled_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub entitled: Option<Bytes>,
    /// The cap on its process.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "resident_cap_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub resident_cap: Option<Bytes>,
}

/// A guest that gives nothing of what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stuck {
    /// What it was asked to hold.
    #[cfg_attr(feature = "serde", serde(rename = "asked_bytes", with = "unit"))]
    pub asked: Bytes,
    /// When it last gave something.
    #[cfg_attr(feature = "serde", serde(rename = "since_ms"))]
    pub since: Timestamp,
    /// When it is asked again.
    #[cfg_attr(feature = "serde", serde(rename = "retry_at_ms"))]
    pub retry_at: Timestamp,
    /// The pause that ends then; the next one is twice as long.
    #[cfg_attr(feature = "serde", serde(rename = "pause_ns", with = "unit"))]
    pub pause: Duration,
}

/// A guest that thrashed when memory was taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Thrashed {
    /// What it held before, below which it is not to be shrunk.
    #[cfg_attr(feature = "serde", serde(rename = "least_bytes", with = "unit"))]
    pub least: Bytes,
    /// When that bound ends.
    #[cfg_attr(feature = "serde", serde(rename = "until_ms"))]
    pub until: Timestamp,
    /// For how long the bound holds in all; the next one holds twice as long.
    #[cfg_attr(feature = "serde", serde(rename = "pause_ns", with = "unit"))]
    pub pause: Duration,
}

/// One guest as the last daemon left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftGuest {
    /// Its hypervisor's process. Another process under the same name is another guest.
    pub process: ProcessId,
    /// What it was last seen to hold.
    pub held: Option<Bytes>,
    /// The target in force, which was perhaps never sent; `None`: it never had one.
    pub target: Option<Bytes>,
    /// What its last reductions cost it.
    pub regret: Option<Regret>,
    /// Everything else that is remembered.
    pub handover: Handover,
}

/// The initial state of a daemon on a host where another daemon ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restart {
    /// Whether the operator had paused acting.
    pub paused: bool,
    /// Memory that is kept free for guests about to start.
    pub reservations: Vec<Reservation>,
    /// The guests, each once, sorted by name.
    pub guests: Vec<LeftGuest>,
}

impl Restart {
    /// The state at the last tick of a daemon that ran since the host's boot. O(n log n).
    pub fn of(snapshot: &Snapshot, plan: &Plan, handovers: &[Handover], paused: bool) -> Restart {
        let by_name: BTreeMap<&GuestId, &Handover> =
            handovers.iter().map(|handover| (&handover.guest, handover)).collect();
        let mut guests = Vec::new();
        for sample in snapshot.guests() {
            let Some(planned) = plan.guest(&sample.id) else { continue };
            let handover = by_name.get(&sample.id).copied().cloned();
            let handover = handover.unwrap_or_else(|| Handover::nothing(sample.id.clone()));
            let Some(process) = sample.process.or(handover.process) else { continue };
            let claim = sample.allocation.map(|claim| claim.value);
            guests.push(LeftGuest {
                process,
                // The plan has what the host saw, if that exceeds the claim.
                held: planned.allocation.or(claim).or(handover.held),
                target: planned.target,
                regret: planned.regret,
                handover,
            });
        }
        Restart { paused, reservations: plan.reservations.clone(), guests }
    }
}
