//! What a policy is asked, and what it answers.

use ballast_model::{Bytes, Desired, GuestId, GuestLimits};

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
}

/// Memory to divide and those who compete for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    budget: Bytes,
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
        }
        Problem { budget: in_range(budget), contenders }
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
}
