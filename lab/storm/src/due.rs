//! What guests are due: by shares, by what they are believed to need, and when all is over.
//!
//! Idea: computed here anew from what is really so and from what operators have said, not by the
//! daemon's own code. Limits: of policies that divide by requests, credits or probing only bounds
//! are known.

use ballast_daemon::view::View;
use ballast_model::{Bounds, Bytes, GuestLimits, PolicyName};

use crate::guest::StormGuest;
use crate::run::Storm;
use crate::violation::Violation;

/// What is believed of a liar's needs without evidence, as a part of what it has filled.
pub(crate) const BELIEVED_PART: u64 = 4;

/// What is not worth an order, or a balloon's last pages.
pub(crate) const SLACK: u64 = 24;

/// A guest that holds this much more than its part is left that.
pub(crate) const DEAD_BAND: u64 = 10;

/// What guests are given beside what they use.
const RESERVE: u64 = 110;

/// What a policy promises whoever has to do with enough memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// A part by shares.
    Part,
    /// What is needed, where there is enough for all.
    Needs,
    /// Bounds, which hold under every policy.
    Bounds,
}

fn promise(policy: PolicyName) -> Promise {
    match policy {
        PolicyName::Static => Promise::Part,
        PolicyName::SelfBalloon
        | PolicyName::SelfScheduling
        | PolicyName::Global
        | PolicyName::Meb
        | PolicyName::Tws
        // No program answers in a storm, so `global` decides.
        | PolicyName::External => Promise::Needs,
        PolicyName::Proportional
        | PolicyName::Fcfs
        | PolicyName::DemandProportional
        | PolicyName::DirectAssign
        | PolicyName::Auction
        | PolicyName::RoundRobin
        | PolicyName::Custom(_) => Promise::Bounds,
    }
}

/// Whether a policy is sure to come to rest where nothing changes: those that divide by bids may go
/// on, the auction a turn at a time (`docs/policies.md`).
pub(crate) fn settles(policy: PolicyName) -> bool {
    !matches!(policy, PolicyName::DirectAssign | PolicyName::Auction | PolicyName::RoundRobin)
}

impl Storm<'_> {
    /// What operators guarantee a guest, and the most that they allow it.
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

    /// A guest's part of the budget by shares alone.
    pub(crate) fn share(&self, guest: &StormGuest) -> u64 {
        let view = self.engine.view(&self.world).expect("there was a tick");
        let all: u64 = self.present().map(|guest| shares(&view, guest)).sum();
        let share = self.drawn.budget * shares(&view, guest) / all.max(1);
        self.within(guest, share.min(guest.boot))
    }

    /// What shares alone give a guest, whatever it claims: under `static` also its part of what
    /// others cannot hold of theirs, less what others are guaranteed beyond theirs.
    pub(crate) fn part(&self, guest: &StormGuest) -> u64 {
        if self.drawn.settings.policy != PolicyName::Static {
            return self.share(guest);
        }
        let view = self.engine.view(&self.world).expect("there was a tick");
        // A level at which all parts together are what there is, in 1,024ths of a MiB a share.
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

    /// What a guest keeps that claims to use all that it holds and to have no swap: whatever it is
    /// granted by right, which is its part or, where needs count, what it is believed to need and
    /// what guests are given beside that.
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

    /// No honest guest ends below what is due to it: its share where shares alone count, and what
    /// it needs where there is enough for all; never less than it is guaranteed, where that fits.
    pub(crate) fn judge_end(&self) -> Result<(), Violation> {
        let budget = self.drawn.budget;
        let needs =
            |guest: &StormGuest| self.within(guest, (guest.wants + RESERVE).min(guest.boot));
        let floor = |guest: &StormGuest| self.bounds(guest).floor.get() >> 20;
        // What is not worth an order to each of the others adds up.
        let slack = SLACK + DEAD_BAND * (self.world.guests.len() as u64 - 1);
        let fits = self.present().map(needs).sum::<u64>() <= budget;
        let is_guaranteed = self.present().map(floor).sum::<u64>() <= budget;
        for guest in self.present().filter(|guest| !guest.is_offender) {
            let due = match promise(self.drawn.settings.policy) {
                Promise::Part => self.part(guest),
                Promise::Needs if fits => self.within(guest, guest.wants),
                Promise::Needs | Promise::Bounds if is_guaranteed => floor(guest),
                Promise::Needs | Promise::Bounds => 0,
            };
            if guest.holds + slack < due {
                let (guest, has) = (guest.id.clone(), guest.holds);
                return Err(Violation::Squeezed { guest, has, due });
            }
        }
        Ok(())
    }
}

/// A guest's shares; the default's where the daemon was not shown it.
fn shares(view: &View, guest: &StormGuest) -> u64 {
    let limits = view.limits.get(&guest.id).cloned().unwrap_or_default();
    limits.shares.into()
}
