//! The guests' accounts of credits.
//!
//! Properties: credits are whole. The sum of balances and escrow is exactly the same after every
//! operation, except when guests come or go ([`Accounts::admit`]), or bring credits along
//! ([`Accounts::set`]). No balance falls below zero.
//!
//! Algorithm (flexmemd §3.2.3): a guest starts with credits in proportion to its weight. Rent moves
//! to escrow when a period begins. When the period ends, rent that was used is distributed among
//! all guests by weight; if the period is cut short, the unused part is refunded. Every second a
//! tax on every balance, 5 % by default, is also distributed by weight, so that credits cannot be
//! hoarded.
//!
//! Deviations: the paper's weight is `static_min`; here it is `static_min × shares`, the same at
//! equal shares, and at least one page, so that credits can be distributed even if no guest has a
//! floor. A guest starts with `static_min` in KiB times its shares: 1,000 a KiB at the default
//! shares. A guest that goes takes its balance and escrow with it. One that is absent for a while
//! (because its statistics are late, for example) keeps both for [`ABSENCE_MAX`].
//!
//! Cost: O(n) for most operations, O(n log n) when credits are distributed.

use std::time::Duration;

use ballast_model::{GuestId, Timestamp, in_proportion};

/// Most credits that one guest starts with: the start of a floor of 128 TiB at the default shares.
pub const CREDITS_START_MAX: u64 = 1 << 47;

/// Most credits in all; a guest that comes when they are reached starts with none. With weights
/// below 2^60 this keeps every product within 127 bits.
pub const CREDITS_TOTAL_MAX: u64 = 1 << 62;

/// Largest weight.
pub const WEIGHT_MAX: u64 = 1 << 60;

/// How long the account of an absent guest is kept.
pub const ABSENCE_MAX: Duration = Duration::from_secs(60);

/// How often balances are taxed (flexmemd §3.2.3).
pub const TAX_INTERVAL: Duration = Duration::from_secs(1);

/// Most overdue taxations at once; after 60 of 5 % a twentieth of any inequality is left.
const TAXATIONS_MAX: u64 = 60;

/// The default tax, 5 % (flexmemd §3.2.3), in hundredths of a percent.
pub const TAX_DEFAULT_BASIS_POINTS: u32 = 500;

const BASIS_POINTS: u64 = 10_000;

/// A guest that gets an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountHolder<'a> {
    /// Name.
    pub id: &'a GuestId,
    /// Weight for distributing credits, 1 to [`WEIGHT_MAX`].
    pub weight: u64,
    /// Credits it starts with if it is new, at most [`CREDITS_START_MAX`].
    pub start: u64,
}

/// The credits of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    id: GuestId,
    weight: u64,
    balance: u64,
    /// Rent paid for the running period.
    escrow: u64,
    /// Rent of that memory for a whole period; more than `escrow` if some was rented after the
    /// period began.
    rate: u64,
}

impl Account {
    fn credits(&self) -> u64 {
        self.balance + self.escrow
    }
}

/// The accounts of all guests.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Accounts of the guests last admitted, sorted by name.
    present: Vec<Account>,
    /// Accounts of guests absent since a given time, sorted by name.
    absent: Vec<(Account, Timestamp)>,
    taxed_until: Option<Timestamp>,
    tax_basis_points: u32,
}

impl Accounts {
    /// No accounts yet. The tax takes `tax_basis_points` hundredths of a percent, at most all, of
    /// every balance each [`TAX_INTERVAL`].
    pub fn new(tax_basis_points: u32) -> Accounts {
        Accounts {
            present: Vec::new(),
            absent: Vec::new(),
            taxed_until: None,
            tax_basis_points: tax_basis_points.min(BASIS_POINTS as u32),
        }
    }

    /// Opens accounts for new `holders`, which are sorted by name and unique, and closes those of
    /// guests absent for [`ABSENCE_MAX`]. From then on, an `index` is one in `holders`.
    pub fn admit(&mut self, holders: &[AccountHolder<'_>], now: Timestamp) {
        let same = self.present.len() == holders.len()
            && self.present.iter().zip(holders).all(|(account, holder)| account.id == *holder.id);
        if !same {
            self.reconcile(holders, now);
        }
        for (account, holder) in self.present.iter_mut().zip(holders) {
            account.weight = holder.weight.clamp(1, WEIGHT_MAX);
        }
        self.absent.retain(|(_, since)| now.saturating_since(*since) < ABSENCE_MAX);
    }

    /// Restores credits that guests had earlier, as if the guests had been absent since `now`: one
    /// that is admitted within [`ABSENCE_MAX`] gets them. A guest that has an account keeps it as
    /// it is. `credits` may come from a file, so they are limited; of two entries for a guest the
    /// first counts.
    pub fn restore(&mut self, credits: &[(GuestId, u64)], now: Timestamp) {
        let mut total = self.total();
        for (id, credits) in credits {
            let absent = self.absent.iter().map(|(account, _)| account);
            if self.present.iter().chain(absent).any(|account| account.id == *id) {
                continue;
            }
            let balance = (*credits).min(CREDITS_TOTAL_MAX - total);
            total += balance;
            let account = Account { id: id.clone(), weight: 1, balance, escrow: 0, rate: 0 };
            self.absent.push((account, now));
        }
    }

    /// Sets the credits of a guest to `credits`. A guest without an account gets one, as if it had
    /// been absent since `now`. Rent paid for the running period stays paid.
    pub fn set(&mut self, id: &GuestId, credits: u64, now: Timestamp) {
        let total = self.total();
        let absent = self.absent.iter_mut().map(|(account, _)| account);
        match self.present.iter_mut().chain(absent).find(|account| account.id == *id) {
            Some(account) => {
                let of_others = total - account.credits();
                let credits = credits.min(CREDITS_TOTAL_MAX - of_others);
                account.balance = credits.saturating_sub(account.escrow);
            }
            None => self.restore(&[(id.clone(), credits)], now),
        }
    }

    fn reconcile(&mut self, holders: &[AccountHolder<'_>], now: Timestamp) {
        let known = std::mem::take(&mut self.present).into_iter().map(|account| (account, now));
        let mut known: Vec<(Account, Timestamp)> = known.chain(self.absent.drain(..)).collect();
        known.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        let mut total: u64 = known.iter().map(|(account, _)| account.credits()).sum();
        let mut known = known.into_iter().peekable();
        for holder in holders {
            while let Some(gone) = known.next_if(|(account, _)| account.id < *holder.id) {
                self.absent.push(gone);
            }
            let account = match known.next_if(|(account, _)| account.id == *holder.id) {
                Some((account, _)) => account,
                None => {
                    let room = CREDITS_TOTAL_MAX - total;
                    let balance = holder.start.min(CREDITS_START_MAX).min(room);
                    total += balance;
                    Account { id: holder.id.clone(), weight: 1, balance, escrow: 0, rate: 0 }
                }
            };
            self.present.push(account);
        }
        self.absent.extend(known);
    }

    /// Collects the tax for every whole [`TAX_INTERVAL`] since the last call. The first call only
    /// starts the clock.
    pub fn tax(&mut self, now: Timestamp) {
        let since = *self.taxed_until.get_or_insert(now);
        let interval = TAX_INTERVAL.as_millis() as u64;
        let due = now.saturating_since(since).as_millis() as u64 / interval;
        if due == 0 {
            return;
        }
        self.taxed_until = Some(Timestamp::from_millis(since.as_millis() + due * interval));
        for _ in 0..due.min(TAXATIONS_MAX) {
            self.collect();
        }
    }

    /// Collects the tax once, however long the last call was ago.
    pub fn tax_once(&mut self, now: Timestamp) {
        self.taxed_until = self.taxed_until.max(Some(now));
        self.collect();
    }

    fn collect(&mut self) {
        let mut collected = 0;
        for account in &mut self.present {
            // Quotient and remainder are taxed apart, so that the products fit 64 bits.
            let (whole, rest) = (account.balance / BASIS_POINTS, account.balance % BASIS_POINTS);
            let taken = u64::from(self.tax_basis_points);
            let part = whole * taken + rest * taken / BASIS_POINTS;
            account.balance -= part;
            collected += part;
        }
        self.distribute(collected);
    }

    /// Moves `rent` of the guest at `index` from its balance to escrow, for memory that costs
    /// `rate` a whole period. Returns what it could pay.
    pub fn pay(&mut self, index: usize, rent: u64, rate: u64) -> u64 {
        let Some(account) = self.present.get_mut(index) else { return 0 };
        let paid = rent.min(account.balance);
        account.balance -= paid;
        account.escrow += paid;
        account.rate = account.rate.saturating_add(rate);
        paid
    }

    /// Ends the period. If `unused` of its `length` (in any unit) is cut off, that part of the rent
    /// is refunded, rounded down. The rest is distributed among all by weight.
    pub fn settle(&mut self, unused: u64, length: u64) {
        let unused = unused.min(length);
        let unused_rent = |rate: u64| match unused {
            0 => 0,
            _ => u128::from(rate) * u128::from(unused) / u128::from(length),
        };
        let all_are_absent = self.present.is_empty();
        let mut collected = 0;
        let present = self.present.iter_mut();
        for account in present.chain(self.absent.iter_mut().map(|(account, _)| account)) {
            let refund = unused_rent(account.rate).min(u128::from(account.escrow)) as u64;
            let refund = if all_are_absent { account.escrow } else { refund };
            account.balance += refund;
            collected += account.escrow - refund;
            account.escrow = 0;
            account.rate = 0;
        }
        self.distribute(collected);
    }

    /// Adds `credits` to the balances, by weight.
    fn distribute(&mut self, credits: u64) {
        if credits == 0 || self.present.is_empty() {
            return;
        }
        let parts = in_proportion(self.present.iter().map(|account| account.weight), credits);
        for (account, part) in self.present.iter_mut().zip(parts) {
            account.balance += part;
        }
    }

    /// Credits that the guest at `index` can spend.
    pub fn balance(&self, index: usize) -> u64 {
        self.present.get(index).map_or(0, |account| account.balance)
    }

    /// Credits that the guest at `index` has paid for the running period.
    pub fn escrow(&self, index: usize) -> u64 {
        self.present.get(index).map_or(0, |account| account.escrow)
    }

    /// Balance and escrow of a guest; `None` if it was not among the last admitted.
    pub fn credits(&self, id: &GuestId) -> Option<u64> {
        let index = self.present.binary_search_by(|account| account.id.cmp(id)).ok()?;
        self.present.get(index).map(Account::credits)
    }

    /// Balance and escrow of every guest, including absent ones.
    pub fn all(&self) -> Vec<(GuestId, u64)> {
        let absent = self.absent.iter().map(|(account, _)| account);
        let all = self.present.iter().chain(absent);
        all.map(|account| (account.id.clone(), account.credits())).collect()
    }

    /// The sum of all balances and escrow, including those of absent guests.
    pub fn total(&self) -> u64 {
        let absent = self.absent.iter().map(|(account, _)| account);
        self.present.iter().chain(absent).map(Account::credits).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(n: usize) -> Vec<GuestId> {
        (0..n).map(|i| format!("g{i}").parse().unwrap()).collect()
    }

    fn holders<'a>(ids: &'a [GuestId], weights: &[u64]) -> Vec<AccountHolder<'a>> {
        ids.iter()
            .zip(weights)
            .map(|(id, &weight)| AccountHolder { id, weight, start: 1000 * weight })
            .collect()
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn accounts(weights: &[u64]) -> Accounts {
        let mut accounts = Accounts::new(TAX_DEFAULT_BASIS_POINTS);
        accounts.admit(&holders(&ids(weights.len()), weights), at(0));
        accounts.tax(at(0));
        accounts
    }

    fn balances(accounts: &Accounts) -> Vec<u64> {
        (0..accounts.present.len()).map(|index| accounts.balance(index)).collect()
    }

    #[test]
    fn tax_is_distributed_by_weight() {
        // 1,000 and 3,000 credits, weights 1 and 3. The first pays 500, distributed as 125 and 375.
        let mut accounts = accounts(&[1, 3]);
        accounts.pay(0, 500, 500);
        accounts.settle(0, 1);
        assert_eq!(balances(&accounts), [625, 3375]);
        // 5 % of each are 31 and 168, 199 in all: 49.75 and 149.25, rounded to 50 and 149.
        accounts.tax(at(999));
        assert_eq!(balances(&accounts), [625, 3375]);
        accounts.tax(at(1000));
        assert_eq!(balances(&accounts), [625 - 31 + 50, 3375 - 168 + 149]);
        assert_eq!(accounts.total(), 4000);
    }

    #[test]
    fn tax_is_due_once_for_every_whole_second() {
        let unequal = || {
            let mut accounts = accounts(&[1, 1]);
            accounts.pay(0, 1000, 1000);
            accounts.settle(0, 1);
            accounts
        };
        let (mut at_once, mut each) = (unequal(), unequal());
        at_once.tax(at(3700));
        for ms in [500, 1000, 1500, 2999, 3001, 3700] {
            each.tax(at(ms));
        }
        assert_eq!(balances(&at_once), balances(&each));
        // Half an hour counts as 60 taxations; a time in the past as none.
        at_once.tax(at(1_800_000));
        at_once.tax(at(0));
        assert!(at_once.balance(0).abs_diff(at_once.balance(1)) <= 60);
    }

    #[test]
    fn unused_rent_is_refunded_and_the_rest_distributed() {
        // Both have 1,000. The first pays 600 for a period that ends a quarter early: 150 are
        // refunded, and 450 distributed equally.
        let mut accounts = accounts(&[1, 1]);
        assert_eq!(accounts.pay(0, 600, 600), 600);
        assert_eq!((accounts.balance(0), accounts.escrow(0)), (400, 600));
        accounts.settle(250, 1000);
        assert_eq!(balances(&accounts), [400 + 150 + 225, 1000 + 225]);
        // 100 pay for half a period of memory that costs 200 a period. A quarter of the period
        // before its end, half of the rent is used.
        accounts.pay(0, 100, 200);
        accounts.settle(250, 1000);
        assert_eq!(balances(&accounts), [775 - 50 + 25, 1225 + 25]);
        // A guest pays no more than it has.
        assert_eq!(accounts.pay(0, u64::MAX, u64::MAX), 750);
        assert_eq!(accounts.balance(0), 0);
        assert_eq!(accounts.pay(7, 10, 10), 0);
    }

    #[test]
    fn restored_credits_are_available_within_a_minute() {
        let ids = ids(3);
        let mut before = accounts(&[1, 1]);
        before.pay(1, 300, 300);
        assert_eq!(before.all(), [(ids[0].clone(), 1000), (ids[1].clone(), 1000)]);
        before.settle(0, 1);
        assert_eq!(before.credits(&ids[0]), Some(1150));
        assert_eq!(before.credits(&ids[2]), None);

        let mut after = Accounts::new(0);
        after.restore(&before.all(), at(0));
        assert_eq!(after.total(), 2000);
        after.admit(&holders(&ids, &[1, 1, 1]), at(59_999));
        assert_eq!(balances(&after), [1150, 850, 1000]);
        // An account is not overwritten, and too large an entry is limited.
        after.restore(&[(ids[0].clone(), 7), ("x".parse().unwrap(), u64::MAX)], at(60_000));
        assert_eq!(after.credits(&ids[0]), Some(1150));
        assert_eq!(after.total(), CREDITS_TOTAL_MAX);
        after.admit(&holders(&ids, &[1, 1, 1]), at(119_999));
        assert_eq!(after.total(), CREDITS_TOTAL_MAX);
        after.admit(&holders(&ids, &[1, 1, 1]), at(120_000));
        assert_eq!(after.total(), 3000);
    }

    #[test]
    fn credits_brought_along_replace_those_of_a_new_guest() {
        let ids = ids(3);
        let mut accounts = accounts(&[1, 1]);
        accounts.pay(1, 300, 300);
        accounts.set(&ids[0], 70, at(0));
        accounts.set(&ids[1], 900, at(0));
        assert_eq!(balances(&accounts), [70, 600]);
        assert_eq!((accounts.escrow(1), accounts.credits(&ids[1])), (300, Some(900)));
        // Rent that was paid stays paid.
        accounts.set(&ids[1], 100, at(0));
        assert_eq!(accounts.credits(&ids[1]), Some(300));
        // A guest that is yet to come finds its credits, and too large an entry is limited.
        accounts.set(&ids[2], u64::MAX, at(0));
        assert_eq!(accounts.total(), CREDITS_TOTAL_MAX);
        accounts.admit(&holders(&ids, &[1, 1, 1]), at(1000));
        assert_eq!(accounts.total(), CREDITS_TOTAL_MAX);
    }

    #[test]
    fn a_guest_keeps_its_credits_for_a_minute_of_absence() {
        let ids = ids(2);
        let both = holders(&ids, &[1, 1]);
        let mut accounts = accounts(&[1, 1]);
        accounts.pay(1, 300, 300);
        accounts.admit(&both[..1], at(10_000));
        assert_eq!(accounts.total(), 2000);
        // The absent guest's rent is settled too.
        accounts.settle(0, 1);
        assert_eq!(balances(&accounts), [1300]);
        // Back within a minute: as if it had never gone.
        accounts.admit(&both, at(69_999));
        assert_eq!(balances(&accounts), [1300, 700]);
        accounts.admit(&both[..1], at(70_000));
        accounts.admit(&both[..1], at(130_000));
        assert_eq!(accounts.total(), 1300);
        // It is new and starts again.
        accounts.admit(&both, at(130_000));
        assert_eq!(balances(&accounts), [1300, 1000]);
    }

    #[test]
    fn the_largest_figures_do_not_overflow() {
        let ids: Vec<GuestId> = (0..1 << 16).map(|i| format!("g{i:05}").parse().unwrap()).collect();
        let most = |id| AccountHolder { id, weight: u64::MAX, start: u64::MAX };
        let holders: Vec<AccountHolder<'_>> = ids.iter().map(most).collect();
        let mut accounts = Accounts::new(u32::MAX);
        accounts.admit(&holders, at(0));
        assert_eq!(accounts.total(), CREDITS_TOTAL_MAX);
        accounts.tax(at(0));
        accounts.tax(at(1000));
        accounts.pay(0, u64::MAX, u64::MAX);
        accounts.settle(u64::MAX, 1);
        assert_eq!(accounts.total(), CREDITS_TOTAL_MAX);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Admit(Vec<bool>, Vec<u64>),
        Pay(usize, u64, u64),
        Settle(u64, u64),
        Pass(u64),
        Set(usize, u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (prop::collection::vec(any::<bool>(), 6), prop::collection::vec(1..1u64 << 50, 6))
                .prop_map(|(present, weights)| Event::Admit(present, weights)),
            (0..7usize, 0..1u64 << 48, 0..1u64 << 50)
                .prop_map(|(p, rent, rate)| Event::Pay(p, rent, rate)),
            (0..2000u64, 0..2000u64).prop_map(|(unused, length)| Event::Settle(unused, length)),
            (0..90_000u64).prop_map(Event::Pass),
            (0..6usize, 0..1u64 << 50).prop_map(|(guest, credits)| Event::Set(guest, credits)),
        ]
    }

    proptest! {
        /// The sum changes only by the credits of guests that come or go, or bring some along.
        #[test]
        fn credits_are_conserved(events in prop::collection::vec(event(), 1..60)) {
            let ids = ids(6);
            let mut accounts = Accounts::new(TAX_DEFAULT_BASIS_POINTS);
            let mut now = at(0);
            let mut expected = 0;
            for event in events {
                match event {
                    Event::Admit(present, weights) => {
                        let holders: Vec<AccountHolder<'_>> = holders(&ids, &weights)
                            .into_iter().zip(&present).filter(|(_, here)| **here)
                            .map(|(holder, _)| AccountHolder { start: holder.weight / 7, ..holder })
                            .collect();
                        let had = |id: &GuestId| {
                            let absent = accounts.absent.iter().map(|(account, _)| account);
                            accounts.present.iter().chain(absent).any(|account| account.id == *id)
                        };
                        let new = holders.iter().filter(|holder| !had(holder.id));
                        let started: u64 = new.map(|h| h.start.min(CREDITS_START_MAX)).sum();
                        let back = |id: &GuestId| holders.iter().any(|holder| holder.id == id);
                        let gone: u64 = accounts.absent.iter()
                            .filter(|(account, since)| {
                                let absence = now.saturating_since(*since);
                                !back(&account.id) && absence >= ABSENCE_MAX
                            })
                            .map(|(a, _)| a.balance + a.escrow)
                            .sum();
                        expected = expected + started - gone;
                        accounts.admit(&holders, now);
                    }
                    Event::Pay(index, rent, rate) => { accounts.pay(index, rent, rate); }
                    Event::Settle(unused, length) => accounts.settle(unused, length),
                    Event::Set(guest, credits) => {
                        let of = |accounts: &Accounts| {
                            let all = accounts.all().into_iter();
                            all.filter(|(id, _)| *id == ids[guest]).map(|(_, it)| it).sum::<u64>()
                        };
                        let absent = accounts.absent.iter().map(|(account, _)| account);
                        let mut all = accounts.present.iter().chain(absent);
                        let account = all.find(|account| account.id == ids[guest]);
                        let escrow = account.map_or(0, |account| account.escrow);
                        let had = of(&accounts);
                        accounts.set(&ids[guest], credits, now);
                        prop_assert_eq!(of(&accounts), credits.max(escrow));
                        expected = expected - had + credits.max(escrow);
                        let once = accounts.all();
                        accounts.set(&ids[guest], credits, now);
                        prop_assert_eq!(accounts.all(), once, "twice is the same as once");
                    }
                    Event::Pass(ms) => {
                        now = now + Duration::from_millis(ms);
                        accounts.tax(now);
                    }
                }
                prop_assert_eq!(accounts.total(), expected);
            }
        }
    }
}
