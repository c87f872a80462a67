//! The input and output of a policy.

use std::sync::Arc;

use ballast_model::{
    Bytes, Demand, Desired, GuestId, GuestLimits, HostSample, MissCurve, Note, Signals, Timestamp,
};

/// Most guests of a problem; keeps every product of the division within 128 bits.
pub const GUESTS_MAX: usize = 1 << 16;

/// Largest memory size, 4 PiB, for the same reason; larger ones are reduced to it.
pub(crate) const PAGES_MAX: u64 = 1 << 40;

/// One guest that competes for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Name; ties are settled in the order of names.
    pub id: GuestId,
    /// Memory in use, `A_i` of Global §3.1, including its swap need.
    pub used: Bytes,
    /// Least memory it may have, in whole pages.
    pub floor: Bytes,
    /// The part of `floor` that its operator does not guarantee: the guest says that it has no swap
    /// for what it uses, or thrashed with less. It has no weight where floors are weights.
    pub unguaranteed: Bytes,
    /// Most memory it may have, in whole pages; at least `floor`.
    pub ceiling: Bytes,
    /// Weight, 1 to [`GuestLimits::SHARES_MAX`].
    pub shares: u32,
    /// When memory is short, guests of lower priority lose theirs first.
    pub priority: u8,
    /// Objective: at most this many misses a second.
    pub miss_rate_max: Option<u64>,
    /// The target in force or, without one, the memory it holds; in whole pages. Policies limit
    /// their steps relative to it.
    pub allocation: Bytes,
    /// Memory it held at the time of its statistics, which differs from `allocation` while the
    /// balloon lags; `None`: not known to differ.
    pub held: Option<Bytes>,
    /// Bytes a second that its balloon was seen to give back; `None`: it was never seen to.
    pub balloon_rate: Option<Bytes>,
    /// Memory it needs to run at full speed; `None`: only `used` is known.
    pub demand: Option<Demand>,
    /// Misses by memory size, if known.
    pub curve: Option<Arc<MissCurve>>,
    /// Other observations.
    pub signals: Signals,
}

impl Contender {
    /// A guest that holds and uses `used`, with default weight, no bounds and nothing else known.
    pub fn new(id: GuestId, used: Bytes) -> Contender {
        Contender {
            id,
            used,
            floor: Bytes::ZERO,
            unguaranteed: Bytes::ZERO,
            ceiling: Bytes::pages(PAGES_MAX),
            shares: GuestLimits::SHARES_DEFAULT,
            priority: 0,
            miss_rate_max: None,
            allocation: used,
            held: None,
            balloon_rate: None,
            demand: None,
            curve: None,
            signals: Signals::default(),
        }
    }

    /// The part of `floor` that its operator guarantees.
    pub fn guaranteed(&self) -> Bytes {
        self.floor.saturating_sub(self.unguaranteed)
    }

    /// The demand or, if it is not known, the memory in use.
    pub fn demand(&self) -> Bytes {
        self.demand.map_or(self.used, |demand| demand.size)
    }
}

/// Memory to divide, and the guests that compete for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    budget: Bytes,
    now: Timestamp,
    host: HostSample,
    contenders: Vec<Contender>,
}

impl Problem {
    /// A problem with all figures brought into the ranges that policies rely on: at most
    /// [`GUESTS_MAX`] contenders sorted by name, whole pages, `floor ≤ ceiling`, shares in range.
    pub fn new(budget: Bytes, mut contenders: Vec<Contender>) -> Problem {
        if !contenders.is_sorted_by(|a, b| a.id <= b.id) {
            contenders.sort_by(|a, b| a.id.cmp(&b.id));
        }
        Problem::in_order(budget, contenders)
    }

    /// The same for contenders that are sorted by name already; compares no names.
    pub fn in_order(budget: Bytes, mut contenders: Vec<Contender>) -> Problem {
        debug_assert!(contenders.is_sorted_by(|a, b| a.id <= b.id), "a snapshot's order");
        contenders.truncate(GUESTS_MAX);
        let in_range = |size: Bytes| size.min(Bytes::pages(PAGES_MAX)).page_floor();
        for contender in &mut contenders {
            contender.used = in_range(contender.used.page_ceil());
            contender.floor = in_range(contender.floor);
            contender.unguaranteed = in_range(contender.unguaranteed).min(contender.floor);
            contender.ceiling = in_range(contender.ceiling).max(contender.floor);
            contender.shares = contender.shares.clamp(1, GuestLimits::SHARES_MAX);
            contender.allocation = in_range(contender.allocation);
            contender.held = contender.held.map(in_range);
            if let Some(demand) = &mut contender.demand {
                demand.size = in_range(demand.size.page_ceil());
            }
        }
        let now = Timestamp::from_millis(0);
        Problem { budget: in_range(budget), now, host: HostSample::default(), contenders }
    }

    /// The same problem at time `now`, for policies with periods.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Problem {
        Problem { now, ..self }
    }

    /// The same problem with a sample of the host, for policies that use it.
    #[must_use]
    pub fn on(self, host: HostSample) -> Problem {
        Problem { host, ..self }
    }

    /// The time of the decision, on a clock that never goes backwards.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The sample of the host.
    pub fn host(&self) -> &HostSample {
        &self.host
    }

    /// Memory to divide: `N` of Global §3.1, in whole pages.
    pub fn budget(&self) -> Bytes {
        self.budget
    }

    /// The guests that compete, sorted by name.
    pub fn contenders(&self) -> &[Contender] {
        &self.contenders
    }

    /// How far the floors alone exceed the budget; zero if they fit.
    pub fn shortfall(&self) -> Bytes {
        let floors: Bytes = self.contenders.iter().map(|c| c.floor).sum();
        floors.saturating_sub(self.budget)
    }
}

/// The solution of a [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The target of each contender and the reason, in the problem's order.
    pub wanted: Vec<Desired>,
    /// How far the floors exceed the budget; zero if they fit.
    pub shortfall: Bytes,
    /// Notes for the operator: objectives that cannot be met, missing data.
    pub notes: Vec<Note>,
}
