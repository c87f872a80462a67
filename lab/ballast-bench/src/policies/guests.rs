//! Competing guests, in the situations that cost a policy most and least.
//!
//! Idea: every input that a policy can use is there, except curves, which only `meb` uses:
//! statistics, requests, `Committed_AS`, probed working sets, demand. Everything changes from turn
//! to turn.

use std::time::Duration;

use anyhow::Context;
use ballast_model::{
    Bytes, Confidence, Demand, DemandSource, GuestId, MemoryRequest, RequestKind, Signals,
    Timestamp,
};
use ballast_policy::{Contender, Problem};

use super::super::random::Random;

/// Time between decisions: a second, the usual period of flexmemd, so that every decision is due.
const TURN_MS: u64 = 1000;

/// What guests want and may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Situation {
    /// There is more memory than all of them want.
    Ample,
    /// They want more than there is, and for each only the memory in use is known.
    Bare,
    /// They want more than there is: prices are searched, rents paid, wants cut.
    Short,
    /// The same, with three priorities.
    Priorities,
    /// Ceilings that a division meets in as many rounds as possible.
    Ceilings,
}

impl Situation {
    pub(super) const ALL: [Self; 5] =
        [Self::Ample, Self::Bare, Self::Short, Self::Priorities, Self::Ceilings];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ample => "ample",
            Self::Bare => "bare",
            Self::Short => "short",
            Self::Priorities => "priorities",
            Self::Ceilings => "ceilings",
        }
    }

    /// Mean memory of each guest above its floor.
    fn each(self) -> Bytes {
        match self {
            Self::Ample => Bytes::gib(16),
            Self::Bare | Self::Short | Self::Priorities => Bytes::gib(2),
            Self::Ceilings => LEVEL,
        }
    }
}

/// What each guest would have without ceilings, in the situation with ceilings.
const LEVEL: Bytes = Bytes::gib(256);

/// Ceilings of `guests` guests, in pages. Each group's ceiling is a little below what every guest
/// would have after the groups before it were cut off, and above what every guest would have had
/// before that. With three tenths of the rest in a group there are the most groups: with fewer, the
/// others soon rise by less than a page.
fn ceilings(guests: u64) -> Vec<u64> {
    let mut ceilings = Vec::new();
    let (mut open, mut level) = (guests, LEVEL.to_pages());
    let (mut left, mut below) = (open * level, level / 2);
    while open > 1 && below > 0 {
        let group = (open * 3 / 10).max(1);
        ceilings.extend((0..group).map(|_| level - below));
        (open, left) = (open - group, left - group * (level - below));
        let raised = left / open;
        (level, below) = (raised, (raised - level) * 9 / 10);
    }
    ceilings.extend((0..open).map(|_| 4 * LEVEL.to_pages()));
    ceilings
}

/// The sorted names of `guests` guests; as in the daemon, they are the same in every turn.
///
/// # Errors
/// A name is not valid.
pub(super) fn names(guests: u64) -> anyhow::Result<Vec<GuestId>> {
    let name = |number| format!("guest-{number:05}").parse().context("the bench's own guest");
    (0..guests).map(name).collect()
}

/// The guests of a turn, and the memory for them.
pub(super) fn problem(situation: Situation, names: &[GuestId], turn: u64) -> Problem {
    let guests = names.len() as u64;
    let contender = |(number, name): (u64, &GuestId)| contender(situation, number, name, turn);
    let mut contenders: Vec<Contender> = (0..).zip(names).map(contender).collect();
    if situation == Situation::Ceilings {
        for (contender, ceiling) in contenders.iter_mut().zip(ceilings(guests)) {
            bounded(contender, Bytes::pages(ceiling));
        }
    }
    let floors: Bytes = contenders.iter().map(|contender| contender.floor).sum();
    let budget = floors.saturating_add(situation.each().fraction(guests, 1));
    Problem::new(budget, contenders).at(Timestamp::from_millis(turn * TURN_MS))
}

/// Gives a guest that ceiling, and, like all guests, a wish for more.
fn bounded(contender: &mut Contender, ceiling: Bytes) {
    let most = LEVEL.fraction(2, 1);
    contender.floor = Bytes::ZERO;
    contender.ceiling = ceiling;
    contender.shares = 1000;
    contender.used = most;
    contender.signals.committed = Some(most);
    contender.signals.probed = Some(most);
    if let Some(demand) = &mut contender.demand {
        demand.size = most;
    }
}

/// A guest of 0.25 to 8 GiB, at most an eighth of it free; one in two swaps, one in ten asks.
fn contender(situation: Situation, number: u64, name: &GuestId, turn: u64) -> Contender {
    let mut fixed = Random::new(number);
    let mut turning = Random::new((turn << 32) | number);
    let floor = Bytes::mib(256 + fixed.below(1792));
    let allocation = floor.saturating_add(Bytes::mib(turning.below(6144)));
    let free = Bytes::pages(turning.below(allocation.to_pages() / 8));
    let used = allocation.saturating_sub(free);
    let ask = Bytes::mib(1 + turning.below(768));
    let kind = if turning.below(4) == 0 { RequestKind::Less } else { RequestKind::More };
    let request = MemoryRequest { number: turn, kind, amount: ask };
    let size = used.saturating_add(ask);
    let demand = Demand {
        size,
        source: DemandSource::Used,
        age: Duration::ZERO,
        confidence: Confidence::USED,
    };
    let signals = Signals {
        free: Some(free),
        committed: Some(size),
        probed: Some(used),
        swapped_pages_per_s: Some(turning.below(180)),
        request: (turning.below(10) == 0).then_some(request),
    };
    let is_bare = situation == Situation::Bare;
    Contender {
        floor,
        ceiling: Bytes::gib(64),
        shares: 1000 + fixed.below(3) as u32,
        priority: if situation == Situation::Priorities { fixed.below(3) as u8 } else { 0 },
        allocation,
        held: Some(allocation),
        demand: (!is_bare).then_some(demand),
        signals: if is_bare { Signals::default() } else { signals },
        ..Contender::new(name.clone(), used)
    }
}
