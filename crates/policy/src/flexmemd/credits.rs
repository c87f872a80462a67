//! The ledger of credits.
//!
//! Properties: whole credits; balances and escrow add up to the same sum after every operation but
//! the coming and going of guests ([`Ledger::admit`]), to the last credit; nobody's balance falls
//! below zero.
//!
//! Algorithm (flexmemd §3.2.3): a guest starts with credits in proportion to its weight. Rent goes
//! to escrow when a period begins. When it ends, what was used is shared out among all by weight;
//! of a period cut short the unused part goes back to who paid it. Every second a part of every
//! balance, 5 % by default, is shared out by weight as well, so that credits cannot be hoarded.
//!
//! Deviations: the paper's weight is `static_min`; here it is `static_min × shares`, the same at
//! equal shares, and at least one page, so that credits of a host full of guests without a floor
//! still have somewhere to go. The start is `static_min` in KiB times shares: 1,000 a KiB at the
//! default shares. A guest that goes takes its balance and its escrow with it. One that is not
//! mentioned for a while (its statistics are late, say) keeps both for [`ABSENCE_MAX`].
//!
//! Cost: O(n) an operation, O(n log n) where credits are shared out.

use std::time::Duration;

use ballast_model::{GuestId, Timestamp, largest_remainder};

/// Most credits that one guest starts with: the start of a floor of 128 TiB at the default shares.
pub const CREDITS_START_MAX: u64 = 1 << 47;

/// Most credits there are in all; a guest that comes when there are that many starts with none.
/// With weights below 2^60 it keeps every product within 127 bits.
pub const CREDITS_TOTAL_MAX: u64 = 1 << 62;

/// Heaviest guest.
pub const WEIGHT_MAX: u64 = 1 << 60;

/// How long the account of a guest that is not mentioned is kept.
pub const ABSENCE_MAX: Duration = Duration::from_secs(60);

/// How often balances are taxed (flexmemd §3.2.3).
pub const TAX_INTERVAL: Duration = Duration::from_secs(1);

/// Most taxations made up for at once; after 60 at 5 % a twentieth of any inequality is left.
const TAXATIONS_MAX: u64 = 60;

/// The default tax, 5 % (flexmemd §3.2.3), in hundredths of a percent.
pub const TAX_DEFAULT_BASIS_POINTS: u32 = 500;

const BASIS_POINTS: u64 = 10_000;

/// A guest as the ledger sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// Its name.
    pub id: &'a GuestId,
    /// What credits are shared out by, 1 to [`WEIGHT_MAX`].
    pub weight: u64,
    /// Credits it begins with if it is new, at most [`CREDITS_START_MAX`].
    pub start: u64,
}

/// What one guest has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    id: GuestId,
    weight: u64,
    balance: u64,
    /// Rent paid for the period that is running.
    escrow: u64,
    /// What the memory in escrow costs for a whole period; more than `escrow` where some of it was
    /// rented when the period was already running.
    rate: u64,
}

impl Account {
    fn credits(&self) -> u64 {
        self.balance + self.escrow
    }
}

/// Everybody's credits.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Of the guests last admitted, sorted by name.
    accounts: Vec<Account>,
    /// Of those not mentioned since the moment given, sorted by name.
    absent: Vec<(Account, Timestamp)>,
    taxed_until: Option<Timestamp>,
    tax_basis_points: u32,
}

impl Ledger {
    /// An empty ledger that takes `tax_basis_points` hundredths of a percent, at most all, of every
    /// balance each [`TAX_INTERVAL`].
    pub fn new(tax_basis_points: u32) -> Ledger {
        Ledger {
            accounts: Vec::new(),
            absent: Vec::new(),
            taxed_until: None,
            tax_basis_points: tax_basis_points.min(BASIS_POINTS as u32),
        }
    }

    /// Opens accounts for the new among `holders`, which are sorted by name and unique, and closes
    /// those of guests unmentioned for [`ABSENCE_MAX`]. From then on places here are places there.
    pub fn admit(&mut self, holders: &[Holder<'_>], now: Timestamp) {
        let same = self.accounts.len() == holders.len()
            && self.accounts.iter().zip(holders).all(|(account, holder)| account.id == *holder.id);
        if !same {
            self.reconcile(holders, now);
        }
        for (account, holder) in self.accounts.iter_mut().zip(holders) {
            account.weight = holder.weight.clamp(1, WEIGHT_MAX);
        }
        self.absent.retain(|(_, since)| now.saturating_since(*since) < ABSENCE_MAX);
    }

    /// Takes over what guests had when they were last seen, as if they had been absent since `now`: who is
    /// admitted within [`ABSENCE_MAX`] begins with that. Guests that have an account keep it. What `accounts` say
    /// may come from a file: it is bounded as every start is, and of a guest named twice the first counts.
    pub fn keep(&mut self, accounts: &[(GuestId, u64)], now: Timestamp) {
        let mut total = self.total();
        for (id, credits) in accounts {
            let absent = self.absent.iter().map(|(account, _)| account);
            if self.accounts.iter().chain(absent).any(|account| account.id == *id) {
                continue;
            }
            let balance = (*credits).min(CREDITS_TOTAL_MAX - total);
            total += balance;
            let account = Account { id: id.clone(), weight: 1, balance, escrow: 0, rate: 0 };
            self.absent.push((account, now));
        }
    }

    fn reconcile(&mut self, holders: &[Holder<'_>], now: Timestamp) {
        let known = std::mem::take(&mut self.accounts).into_iter().map(|account| (account, now));
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
            self.accounts.push(account);
        }
        self.absent.extend(known);
    }

    /// Taxes for every whole [`TAX_INTERVAL`] since the last time; the first time only starts the
    /// clock.
    pub fn tax(&mut self, now: Timestamp) {
        let since = *self.taxed_until.get_or_insert(now);
        let interval = TAX_INTERVAL.as_millis() as u64;
        let due = now.saturating_since(since).as_millis() as u64 / interval;
        if due == 0 {
            return;
        }
        self.taxed_until = Some(Timestamp::from_millis(since.as_millis() + due * interval));
        for _ in 0..due.min(TAXATIONS_MAX) {
            let mut pot = 0;
            for account in &mut self.accounts {
                // Of wholes and of the rest apart, so that neither exceeds 64 bits.
                let (whole, rest) =
                    (account.balance / BASIS_POINTS, account.balance % BASIS_POINTS);
                let taken = u64::from(self.tax_basis_points);
                let part = whole * taken + rest * taken / BASIS_POINTS;
                account.balance -= part;
                pot += part;
            }
            self.share_out(pot);
        }
    }

    /// Moves `rent` of the guest at `place` from its balance to escrow, for memory that costs `rate`
    /// a whole period. Answers what it could pay.
    pub fn pay(&mut self, place: usize, rent: u64, rate: u64) -> u64 {
        let Some(account) = self.accounts.get_mut(place) else { return 0 };
        let paid = rent.min(account.balance);
        account.balance -= paid;
        account.escrow += paid;
        account.rate = account.rate.saturating_add(rate);
        paid
    }

    /// Ends the period, of which `unused` of `length` (in any unit) is cut off: that part of the
    /// rent goes back to who paid it, rounded down; the rest is shared out among all by weight.
    pub fn settle(&mut self, unused: u64, length: u64) {
        let unused = unused.min(length);
        let part = |rate: u64| match unused {
            0 => 0,
            _ => u128::from(rate) * u128::from(unused) / u128::from(length),
        };
        let nobody = self.accounts.is_empty();
        let mut pot = 0;
        let present = self.accounts.iter_mut();
        for account in present.chain(self.absent.iter_mut().map(|(account, _)| account)) {
            let back = part(account.rate).min(u128::from(account.escrow)) as u64;
            let back = if nobody { account.escrow } else { back };
            account.balance += back;
            pot += account.escrow - back;
            account.escrow = 0;
            account.rate = 0;
        }
        self.share_out(pot);
    }

    /// Adds `pot` to the balances, by weight.
    fn share_out(&mut self, pot: u64) {
        if pot == 0 || self.accounts.is_empty() {
            return;
        }
        let weights: i128 = self.accounts.iter().map(|account| i128::from(account.weight)).sum();
        let due = self.accounts.iter().map(|a| i128::from(a.weight) * i128::from(pot));
        let parts = largest_remainder(due, weights, pot);
        for (account, part) in self.accounts.iter_mut().zip(parts) {
            account.balance += part;
        }
    }

    /// What the guest at `place` of those last admitted can spend.
    pub fn balance(&self, place: usize) -> u64 {
        self.accounts.get(place).map_or(0, |account| account.balance)
    }

    /// What it has paid for the running period.
    pub fn escrow(&self, place: usize) -> u64 {
        self.accounts.get(place).map_or(0, |account| account.escrow)
    }

    /// What a guest admitted last has, its escrow included.
    pub fn credits(&self, id: &GuestId) -> Option<u64> {
        let place = self.accounts.binary_search_by(|account| account.id.cmp(id)).ok()?;
        self.accounts.get(place).map(Account::credits)
    }

    /// What everybody has, escrow included.
    pub fn accounts(&self) -> Vec<(GuestId, u64)> {
        let absent = self.absent.iter().map(|(account, _)| account);
        let all = self.accounts.iter().chain(absent);
        all.map(|account| (account.id.clone(), account.credits())).collect()
    }

    /// All balances and all escrow, those of absent guests included.
    pub fn total(&self) -> u64 {
        let absent = self.absent.iter().map(|(account, _)| account);
        self.accounts.iter().chain(absent).map(Account::credits).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(n: usize) -> Vec<GuestId> {
        (0..n).map(|i| format!("g{i}").parse().unwrap()).collect()
    }

    fn holders<'a>(ids: &'a [GuestId], weights: &[u64]) -> Vec<Holder<'a>> {
        ids.iter()
            .zip(weights)
            .map(|(id, &weight)| Holder { id, weight, start: 1000 * weight })
            .collect()
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn ledger(weights: &[u64]) -> Ledger {
        let mut ledger = Ledger::new(TAX_DEFAULT_BASIS_POINTS);
        ledger.admit(&holders(&ids(weights.len()), weights), at(0));
        ledger.tax(at(0));
        ledger
    }

    fn balances(ledger: &Ledger) -> Vec<u64> {
        (0..ledger.accounts.len()).map(|place| ledger.balance(place)).collect()
    }

    #[test]
    fn tax_by_hand() {
        // 1,000 and 3,000 credits, weights 1 and 3. The first pays 500, which goes 125 : 375.
        let mut ledger = ledger(&[1, 3]);
        ledger.pay(0, 500, 500);
        ledger.settle(0, 1);
        assert_eq!(balances(&ledger), [625, 3375]);
        // 5 % of each are 31 and 168, 199 in all: 49.75 and 149.25, by largest remainder 50 and 149.
        ledger.tax(at(999));
        assert_eq!(balances(&ledger), [625, 3375]);
        ledger.tax(at(1000));
        assert_eq!(balances(&ledger), [625 - 31 + 50, 3375 - 168 + 149]);
        assert_eq!(ledger.total(), 4000);
    }

    #[test]
    fn tax_is_due_for_every_whole_second_and_no_more() {
        let unequal = || {
            let mut ledger = ledger(&[1, 1]);
            ledger.pay(0, 1000, 1000);
            ledger.settle(0, 1);
            ledger
        };
        let (mut at_once, mut each) = (unequal(), unequal());
        at_once.tax(at(3700));
        for ms in [500, 1000, 1500, 2999, 3001, 3700] {
            each.tax(at(ms));
        }
        assert_eq!(balances(&at_once), balances(&each));
        // Half an hour unattended evens out what 60 taxations do, and a moment in the past nothing.
        at_once.tax(at(1_800_000));
        at_once.tax(at(0));
        assert!(at_once.balance(0).abs_diff(at_once.balance(1)) <= 60);
    }

    #[test]
    fn rent_by_hand() {
        // Both have 1,000. The first pays 600 for a period, of which a quarter is cut off: 150 back,
        // and 450 shared out equally.
        let mut ledger = ledger(&[1, 1]);
        assert_eq!(ledger.pay(0, 600, 600), 600);
        assert_eq!((ledger.balance(0), ledger.escrow(0)), (400, 600));
        ledger.settle(250, 1000);
        assert_eq!(balances(&ledger), [400 + 150 + 225, 1000 + 225]);
        // Rented half way through: 100 pay for half of what costs 200 a period. A quarter before the
        // end, half of it is used.
        ledger.pay(0, 100, 200);
        ledger.settle(250, 1000);
        assert_eq!(balances(&ledger), [775 - 50 + 25, 1225 + 25]);
        // Nobody pays more than it has.
        assert_eq!(ledger.pay(0, u64::MAX, u64::MAX), 750);
        assert_eq!(ledger.balance(0), 0);
        assert_eq!(ledger.pay(7, 10, 10), 0);
    }

    #[test]
    fn what_is_kept_is_had_again_within_the_minute() {
        let ids = ids(3);
        let mut before = ledger(&[1, 1]);
        before.pay(1, 300, 300);
        let accounts = before.accounts();
        assert_eq!(accounts, [(ids[0].clone(), 1000), (ids[1].clone(), 1000)]);
        before.settle(0, 1);
        assert_eq!(before.credits(&ids[0]), Some(1150));
        assert_eq!(before.credits(&ids[2]), None);

        let mut after = Ledger::new(0);
        after.keep(&before.accounts(), at(0));
        assert_eq!(after.total(), 2000);
        after.admit(&holders(&ids, &[1, 1, 1]), at(59_999));
        assert_eq!(balances(&after), [1150, 850, 1000]);
        // Who has an account keeps it, and a file that says too much is not believed.
        after.keep(&[(ids[0].clone(), 7), ("x".parse().unwrap(), u64::MAX)], at(60_000));
        assert_eq!(after.credits(&ids[0]), Some(1150));
        assert_eq!(after.total(), CREDITS_TOTAL_MAX);
        after.admit(&holders(&ids, &[1, 1, 1]), at(119_999));
        assert_eq!(after.total(), CREDITS_TOTAL_MAX);
        after.admit(&holders(&ids, &[1, 1, 1]), at(120_000));
        assert_eq!(after.total(), 3000);
    }

    #[test]
    fn who_goes_takes_its_credits_after_a_while() {
        let ids = ids(2);
        let both = holders(&ids, &[1, 1]);
        let mut ledger = ledger(&[1, 1]);
        ledger.pay(1, 300, 300);
        ledger.admit(&both[..1], at(10_000));
        assert_eq!(ledger.total(), 2000);
        // The absent one's rent is settled like anybody's.
        ledger.settle(0, 1);
        assert_eq!(balances(&ledger), [1300]);
        // Back within the minute: as if it had never gone.
        ledger.admit(&both, at(69_999));
        assert_eq!(balances(&ledger), [1300, 700]);
        ledger.admit(&both[..1], at(70_000));
        ledger.admit(&both[..1], at(130_000));
        assert_eq!(ledger.total(), 1300);
        // It is new then, and begins anew.
        ledger.admit(&both, at(130_000));
        assert_eq!(balances(&ledger), [1300, 1000]);
    }

    #[test]
    fn the_largest_figures_fit() {
        let ids: Vec<GuestId> = (0..1 << 16).map(|i| format!("g{i:05}").parse().unwrap()).collect();
        let most = |id| Holder { id, weight: u64::MAX, start: u64::MAX };
        let holders: Vec<Holder<'_>> = ids.iter().map(most).collect();
        let mut ledger = Ledger::new(u32::MAX);
        ledger.admit(&holders, at(0));
        assert_eq!(ledger.total(), CREDITS_TOTAL_MAX);
        ledger.tax(at(0));
        ledger.tax(at(1000));
        ledger.pay(0, u64::MAX, u64::MAX);
        ledger.settle(u64::MAX, 1);
        assert_eq!(ledger.total(), CREDITS_TOTAL_MAX);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Admit(Vec<bool>, Vec<u64>),
        Pay(usize, u64, u64),
        Settle(u64, u64),
        Pass(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (prop::collection::vec(any::<bool>(), 6), prop::collection::vec(1..1u64 << 50, 6))
                .prop_map(|(who, weights)| Event::Admit(who, weights)),
            (0..7usize, 0..1u64 << 48, 0..1u64 << 50)
                .prop_map(|(p, rent, rate)| Event::Pay(p, rent, rate)),
            (0..2000u64, 0..2000u64).prop_map(|(unused, length)| Event::Settle(unused, length)),
            (0..90_000u64).prop_map(Event::Pass),
        ]
    }

    proptest! {
        /// Whatever happens, the sum changes by the starts of the new and by what the gone take.
        #[test]
        fn conserved_to_the_last_credit(events in prop::collection::vec(event(), 1..60)) {
            let ids = ids(6);
            let mut ledger = Ledger::new(TAX_DEFAULT_BASIS_POINTS);
            let mut now = at(0);
            let mut expected = 0;
            for event in events {
                match event {
                    Event::Admit(who, weights) => {
                        let holders: Vec<Holder<'_>> = holders(&ids, &weights)
                            .into_iter().zip(&who).filter(|(_, here)| **here)
                            .map(|(holder, _)| Holder { start: holder.weight / 7, ..holder })
                            .collect();
                        let had = |id: &GuestId| {
                            let absent = ledger.absent.iter().map(|(account, _)| account);
                            ledger.accounts.iter().chain(absent).any(|account| account.id == *id)
                        };
                        let new = holders.iter().filter(|holder| !had(holder.id));
                        let started: u64 = new.map(|h| h.start.min(CREDITS_START_MAX)).sum();
                        let back = |id: &GuestId| holders.iter().any(|holder| holder.id == id);
                        let gone: u64 = ledger.absent.iter()
                            .filter(|(a, since)| !back(&a.id) && now.saturating_since(*since) >= ABSENCE_MAX)
                            .map(|(a, _)| a.balance + a.escrow)
                            .sum();
                        expected = expected + started - gone;
                        ledger.admit(&holders, now);
                    }
                    Event::Pay(place, rent, rate) => { ledger.pay(place, rent, rate); }
                    Event::Settle(unused, length) => ledger.settle(unused, length),
                    Event::Pass(ms) => {
                        now = now + Duration::from_millis(ms);
                        ledger.tax(now);
                    }
                }
                prop_assert_eq!(ledger.total(), expected);
            }
        }
    }
}
