//! What is remembered of how memory is moved: of the host one rung, of each guest its router, bound, rates and what
//! earlier moves cost it.
//!
//! Idea: these are the memories of `ballast-mechanism`'s parts, kept in step with the snapshot. What a refused plan
//! would have changed is taken back, for nothing of it is carried out.
//! Cost: O(n) a tick.

use ballast_guard::{Ledger, Standing};
use ballast_mechanism::hotplug::Router;
use ballast_mechanism::ladder::{Ladder, LadderSettings};
use ballast_mechanism::look_back::{LookBack, LookBackSettings, Verdict};
use ballast_mechanism::paging::Bound;
use ballast_mechanism::rates::{InForce, Rates};
use ballast_model::{Bytes, Mechanism, PerGuest, Plan, Rung, Snapshot, Timestamp};

use crate::Settings;

/// The memories.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moving {
    ladder: Ladder,
    /// `None`: nothing can be plugged into it.
    pub(crate) routers: PerGuest<Option<Box<Router>>>,
    pub(crate) bounds: PerGuest<Bound>,
    pub(crate) rates: PerGuest<Rates>,
    look_backs: PerGuest<LookBack>,
}

impl Moving {
    /// Takes in a snapshot, after the ledger has; whether some guest thrashes with what it was left.
    pub(crate) fn observe(
        &mut self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        settings: &Settings,
    ) -> bool {
        let now = snapshot.taken_at;
        let reserve = settings.guard.host_reserve;
        let ladder = LadderSettings { reserve, ..LadderSettings::default() };
        self.ladder.observe(now, &snapshot.host, &ladder);
        self.routers.align(snapshot);
        self.bounds.align(snapshot);
        self.rates.align(snapshot);
        self.look_backs.align(snapshot);
        let mut thrashes = false;
        let memories =
            self.bounds.values().zip(self.rates.values_mut()).zip(self.look_backs.values_mut());
        let seen = snapshot.guests().iter().zip(ledger.records());
        for ((sample, record), ((bound, rates), look_back)) in seen.zip(memories) {
            let in_force = InForce { target: record.promised(), bound: bound.in_force() };
            rates.observe(now, sample, in_force);
            let verdict = look_back.observe(now, sample, &settings.look_back);
            thrashes |= matches!(verdict, Some(Verdict::Undo { .. }));
        }
        thrashes
    }

    /// How far the host goes.
    pub(crate) fn rung(&self) -> Rung {
        self.ladder.rung()
    }

    /// What each guest held before it thrashed, where it is to get that back. Nobody does where the demands of all do not
    /// fit into `left`, or where somebody else lacks memory: whoever got it, another would thrash.
    pub(crate) fn given_back(
        &self,
        now: Timestamp,
        standings: &[Standing],
        left: Bytes,
        settings: &LookBackSettings,
    ) -> Vec<Option<Bytes>> {
        let least = |look_back: &LookBack| look_back.least(now);
        let mut given: Vec<Option<Bytes>> = self.look_backs.values().map(least).collect();
        if given.iter().all(Option::is_none) {
            return given;
        }
        // With what it is given back a guest may still lack some.
        let lacks = |((look_back, standing), held): ((&LookBack, &Standing), &Option<Bytes>)| {
            look_back.lacks(settings) && standing.allocation >= *held
        };
        let each = self.look_backs.values().zip(standings).zip(&given);
        let lacking: Vec<bool> = each.map(lacks).collect();
        let count = lacking.iter().filter(|lacks| **lacks).count();
        for (held, lacks) in given.iter_mut().zip(lacking) {
            *held = held.filter(|_| count == usize::from(lacks));
        }
        let needs = standings.iter().zip(&mut given).map(|(standing, held)| {
            let (Ok(estimate), Some((floor, ceiling))) = (&standing.verdict, standing.bounds)
            else {
                *held = None;
                return Bytes::ZERO;
            };
            *held = held.map(|held| held.clamp(floor, ceiling));
            estimate.demand.size.max(floor).max(held.unwrap_or_default())
        });
        let needed: Bytes = needs.sum();
        if needed > left {
            given.fill(None);
        }
        given
    }

    /// Adds to a plan what its guests' moves are like.
    pub(crate) fn tell(&self, plan: &mut Plan) {
        plan.rung = self.rung();
        let memories = self.rates.values().zip(self.look_backs.values());
        for (guest, (rates, look_back)) in plan.guests.iter_mut().zip(memories) {
            guest.balloon_rate = rates.measured(Mechanism::Balloon);
            guest.regret = look_back.regret();
        }
    }
}
