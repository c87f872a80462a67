//! What a policy is asked, and what it answers.

use std::sync::Arc;

use ballast_model::{
    Bytes, Demand, Desired, GuestId, GuestLimits, HostSample, MissCurve, Note, Signals, Timestamp,
};

/// Most guests one problem may have; keeps every product of the division within 128 bits.
pub const GUESTS_MAX: usize = 1 << 16;

/// Largest amount of memory of one guest or budget that is told apart, 4 PiB, for the same reason.
pub(crate) const PAGES_MAX: u64 = 1 << 40;

/// One guest that competes for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Its name; ties are settled in its order.
    pub id: GuestId,
    /// Memory it uses: `A_i` of Global §3.1.
    pub used: Bytes,
    /// Least it may have, in whole pages.
    pub floor: Bytes,
    /// Most it may have, in whole pages; at least `floor`.
    pub ceiling: Bytes,
    /// Its weight, 1 to [`GuestLimits::SHARES_MAX`].
    pub shares: u32,
    /// When memory is short, those of lower priority go without first.
    pub priority: u8,
    /// Misses a second it should stay under; `None`: it has no such objective.
    pub miss_rate_max: Option<u64>,
    /// What it is to have already: its target in force, else what it holds. In whole pages. What a
    /// policy limits its steps by.
    pub allocation: Bytes,
    /// What it held when its statistics were made; while a balloon lags that is not `allocation`.
    /// `None`: as far as is known, it is.
    pub held: Option<Bytes>,
    /// What it would need to run as well as it can; `None`: nobody knows more than `used`.
    pub demand: Option<Demand>,
    /// Its misses at every size, where they are known.
    pub curve: Option<Arc<MissCurve>>,
    /// What else was observed of it.
    pub signals: Signals,
}

impl Contender {
    /// A guest that holds `used` and of which no more is known, with unbounded room and default
    /// weight.
    pub fn new(id: GuestId, used: Bytes) -> Contender {
        Contender {
            id,
            used,
            floor: Bytes::ZERO,
            ceiling: Bytes::pages(PAGES_MAX),
            shares: GuestLimits::SHARES_DEFAULT,
            priority: 0,
            miss_rate_max: None,
            allocation: used,
            held: None,
            demand: None,
            curve: None,
            signals: Signals::default(),
        }
    }

    /// What it would need to run as well as it can, as far as anybody knows.
    pub fn demand(&self) -> Bytes {
        self.demand.map_or(self.used, |demand| demand.size)
    }
}

/// Memory to divide and those who compete for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    budget: Bytes,
    now: Timestamp,
    host: HostSample,
    contenders: Vec<Contender>,
}

impl Problem {
    /// A problem whose figures are brought into the range that policies may rely on: at most
    /// [`GUESTS_MAX`] contenders sorted by name, whole pages, `floor ≤ ceiling`, shares in range.
    pub fn new(budget: Bytes, mut contenders: Vec<Contender>) -> Problem {
        if !contenders.is_sorted_by(|a, b| a.id <= b.id) {
            contenders.sort_by(|a, b| a.id.cmp(&b.id));
        }
        contenders.truncate(GUESTS_MAX);
        let in_range = |size: Bytes| size.min(Bytes::pages(PAGES_MAX)).page_floor();
        for contender in &mut contenders {
            contender.used = in_range(contender.used.page_ceil());
            contender.floor = in_range(contender.floor);
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

    /// The same problem at `now`, for policies that act by periods.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Problem {
        Problem { now, ..self }
    }

    /// The same problem on a host of which this was seen, for policies that go by it.
    #[must_use]
    pub fn on(self, host: HostSample) -> Problem {
        Problem { host, ..self }
    }

    /// The moment of the decision, on a clock that never goes backwards.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What was seen of the host.
    pub fn host(&self) -> &HostSample {
        &self.host
    }

    /// Memory to divide: `N` of Global §3.1, in whole pages.
    pub fn budget(&self) -> Bytes {
        self.budget
    }

    /// Those who compete, sorted by name.
    pub fn contenders(&self) -> &[Contender] {
        &self.contenders
    }

    /// How far the floors alone exceed the budget; zero where they fit.
    pub fn shortfall(&self) -> Bytes {
        let floors: Bytes = self.contenders.iter().map(|c| c.floor).sum();
        floors.saturating_sub(self.budget)
    }
}

/// What one guest is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The guest.
    pub id: GuestId,
    /// Its part and why.
    pub desired: Desired,
}

/// The answer to a [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// One entry per contender, in the problem's order.
    pub wanted: Vec<Wanted>,
    /// How far the floors exceed the budget; zero where they fit.
    pub shortfall: Bytes,
    /// What the operator should know of this division as a whole: objectives that cannot be met,
    /// data a policy had to do without.
    pub notes: Vec<Note>,
}
