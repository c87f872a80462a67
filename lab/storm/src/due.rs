//! What guests are due: by shares, by what they are believed to need, and at the end.
//!
//! Idea: computed independently of the daemon's code, from the true state and from what operators
//! have set. Limits: for policies that divide by requests, credits or probing, only bounds are
//! known.

use ballast_daemon::view::View;
use ballast_model::{Bounds, Bytes, GuestLimits, PolicyName};

use crate::guest::StormGuest;
use crate::run::Storm;
use crate::violation::Violation;

/// A liar is believed to need this part (a quarter) of what it has filled in addition, without
/// evidence.
pub(crate) const BELIEVED_PART: u64 = 4;

/// The difference that is not worth an order, or that a balloon's last pages make, MiB.
pub(crate) const SLACK: u64 = 24;

/// A guest that holds up to this much more than its part is left that, MiB.
pub(crate) const DEAD_BAND: u64 = 10;

/// Memory that guests are given in addition to what they use, MiB.
const RESERVE: u64 = 110;

/// What a policy promises to a guest when there is enough memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyPromise {
    /// A part by shares.
    Part,
    /// What the guest needs, where there is enough for all.
    Needs,
    /// Only its bounds, which hold under every policy.
    Bounds,
}

fn promise(policy: PolicyName) -> PolicyPromise {
    match policy {
        PolicyName::Static => PolicyPromise::Part,
        PolicyName::SelfBalloon
        | PolicyName::SelfScheduling
        | PolicyName::Global
        | PolicyName::Meb
        | PolicyName::Tws
        // No program answers in a storm, so `global` decides.
        | PolicyName::External => PolicyPromise::Needs,
        PolicyName::Proportional
        | PolicyName::Fcfs
        | PolicyName::DemandProportional
        | PolicyName::DirectAssign
        | PolicyName::Auction
        | PolicyName::RoundRobin
        | PolicyName::Custom(_) => PolicyPromise::Bounds,
    }
}

/// Whether a policy is sure to settle where nothing changes. Policies that divide by bids may go
/// on: the auction moves one turn at a time (`docs/policies.md`).
pub(crate) fn settles(policy: PolicyName) -> bool {
    !matches!(policy, PolicyName::DirectAssign | PolicyName::Auction | PolicyName::RoundRobin)
}

impl Storm<'_> {
    /// The bounds that operators set for a guest.
    pub(crate) fn bounds(&self, guest: &StormGuest) -> Bounds {
        let given = GuestLimits::default();
        let limits = self.set.get(&guest.id).map_or(given.clone(), |set| set.apply(&given));
        let boot = Bytes::mib(guest.boot);
        Bounds { floor: limits.floor_for(boot), ceiling: limits.ceiling_for(boot, boot) }
    }

    fn within(&self, guest: &StormGuest, size: u64) -> u64 {
        let Bounds { floor, ceiling } = self.bounds(guest);
        size.clamp(floor.get() >> 20, ceiling.get() >> 20)
    }

    fn present(&self) -> impl Iterator<Item = &StormGuest> {
        self.world.guests.iter().filter(|guest| !guest.is_gone())
    }

    /// A guest's part of the budget by shares alone, MiB.
    pub(crate) fn share(&self, guest: &StormGuest) -> u64 {
        let view = self.engine.view(&self.world).expect("there was a tick");
        let all: u64 = self.present().map(|guest| shares(&view, guest)).sum();
        let share = self.drawn.budget * shares(&view, guest) / all.max(1);
        self.within(guest, share.min(guest.boot))
    }

    /// What shares alone give a guest, whatever it claims, MiB. Under `static` parts of the budget
    /// that other guests cannot hold are divided again, after everybody's floor.
    pub(crate) fn part(&self, guest: &StormGuest) -> u64 {
        if self.drawn.settings.policy != PolicyName::Static {
            return self.share(guest);
        }
        let view = self.engine.view(&self.world).expect("there was a tick");
        // The highest level at which all parts together fit into the budget, in 1,024ths of a MiB
        // per share.
        let at = |guest: &StormGuest, level: u64| {
            self.within(guest, shares(&view, guest) * level / 1024)
        };
        let (mut low, mut high) = (0, self.drawn.budget * 1024);
        while low < high {
            let level = low + (high - low).div_ceil(2);
            let all: u64 = self.present().map(|guest| at(guest, level)).sum();
            if all <= self.drawn.budget {
                low = level;
            } else {
                high = level - 1;
            }
        }
        at(guest, low)
    }

    /// What a guest keeps that claims to use everything it holds and to have no swap, MiB: whatever
    /// it is granted by right. That is its part or, where needs count, what it is believed to need
    /// and the reserve.
    pub(crate) fn keeps(&self, guest: &StormGuest) -> u64 {
        let filled = guest.touched.min(self.entitlement(guest));
        let needs = match self.drawn.settings.policy {
            PolicyName::Static => 0,
            _ => filled + filled / BELIEVED_PART + RESERVE,
        };
        self.part(guest).max(needs.min(guest.boot))
    }

    /// What a guest was last granted; its part by shares before it was granted anything.
    pub(crate) fn entitlement(&self, guest: &StormGuest) -> u64 {
        if guest.granted > 0 { guest.granted } else { self.share(guest) }
    }

    /// Checks that no honest guest ends below what it is due: its share where shares alone count,
    /// what it needs where there is enough for all, and its floor wherever all floors fit.
    pub(crate) fn judge_end(&self) -> Result<(), Violation> {
        let budget = self.drawn.budget;
        let needs =
            |guest: &StormGuest| self.within(guest, (guest.wants + RESERVE).min(guest.boot));
        let floor = |guest: &StormGuest| self.bounds(guest).floor.get() >> 20;
        // Each of the other guests may hold an amount that is not worth an order.
        let slack = SLACK + DEAD_BAND * (self.world.guests.len() as u64 - 1);
        let fits = self.present().map(needs).sum::<u64>() <= budget;
        let is_guaranteed = self.present().map(floor).sum::<u64>() <= budget;
        for guest in self.present().filter(|guest| !guest.is_offender) {
            let due = match promise(self.drawn.settings.policy) {
                PolicyPromise::Part => self.part(guest),
                PolicyPromise::Needs if fits => self.within(guest, guest.wants),
                PolicyPromise::Needs | PolicyPromise::Bounds if is_guaranteed => floor(guest),
                PolicyPromise::Needs | PolicyPromise::Bounds => 0,
            };
            if guest.holds + slack < due {
                let (guest, has) = (guest.id.clone(), guest.holds);
                return Err(Violation::Squeezed { guest, has, due });
            }
        }
        Ok(())
    }
}

/// A guest's shares; the default where the daemon never saw the guest.
fn shares(view: &View, guest: &StormGuest) -> u64 {
    let limits = view.limits.get(&guest.id).cloned().unwrap_or_default();
    limits.shares.into()
}
