//! An independent checker of plans.
//!
//! Idea: the planner may be wrong, so code that shares nothing with it but the records and the plan
//! judges every plan. It computes other sums, in other types, from each record, and imports no file
//! of `plan`.
//!
//! It checks that
//! - guests and hosts exist, and their records are recent enough;
//! - no guest is moved that has to stay, rests, or is being moved already;
//! - the destination can run the guest, and has no guest of its group or name;
//! - the guest is not shrunk below what it should have;
//! - every destination has room for all that comes to it without counting on what leaves it, so
//!   that any migration may fail at any moment;
//! - every host has free what copies of its guests fill, beside all that comes to it;
//! - not too many migrations run at once;
//! - the reason of each is true, and none is needless.
//!
//! Cost: O(guests of the hosts concerned), O(n log n) over the migrations.
//! Limits: it checks that a plan is safe and has an effect, not that it is the cheapest. Of a
//! benefit it checks only bounds: the plan cannot save more misses than there are.

mod violation;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ballast_model::{Bytes, GuestId, PAGE_SIZE, Timestamp};

use crate::{
    FleetSettings, FleetSnapshot, GuestRecord, HostId, HostRecord, Migration, MigrationPlan,
    MigrationReason,
};

pub use violation::Violation;

/// Whether the migrations that are to start now keep every promise.
///
/// # Errors
/// Everything that is wrong with them.
pub fn check(
    snapshot: &FleetSnapshot,
    settings: &FleetSettings,
    plan: &MigrationPlan,
    now: Timestamp,
) -> Result<(), Vec<Violation>> {
    let hosts = snapshot.hosts().iter().map(|host| (&host.id, host)).collect();
    let mut checker = Checker { snapshot, hosts, settings, now, found: Vec::new() };
    let mut moved: BTreeSet<(&HostId, &GuestId)> = BTreeSet::new();
    let mut known = Vec::new();
    for migration in &plan.migrations {
        if !moved.insert((&migration.from, &migration.guest)) {
            let twice = Violation::Twice(migration.guest.clone(), migration.from.clone());
            checker.found.push(twice);
        }
        if let Some(checked) = checker.join(migration) {
            checker.check_migration(&checked);
            known.push(checked);
        }
    }
    checker.check_neighbours(&known);
    let filled = checker.filled_by_copies(&known);
    checker.check_rooms(&known, &filled);
    checker.check_copies(&known, &filled);
    checker.check_needless(&known);
    let guests = snapshot.hosts().iter().flat_map(|host| &host.guests);
    let under_way = guests.filter(|it| it.moving_to.is_some()).count();
    let migrations = plan.migrations.len() + under_way;
    if !plan.migrations.is_empty() && migrations > settings.migrations_max {
        checker.found.push(Violation::TooMany(migrations, settings.migrations_max));
    }
    if checker.found.is_empty() { Ok(()) } else { Err(checker.found) }
}

struct Checker<'a> {
    snapshot: &'a FleetSnapshot,
    hosts: BTreeMap<&'a HostId, &'a HostRecord>,
    settings: &'a FleetSettings,
    now: Timestamp,
    found: Vec<Violation>,
}

/// A migration with the records of its guest and both hosts.
struct CheckedMigration<'a> {
    migration: &'a Migration,
    guest: &'a GuestRecord,
    from: &'a HostRecord,
    to: &'a HostRecord,
}

/// Sizes of a guest in bytes, from smallest to largest; see `GuestSizes` of the planner.
struct Sizes {
    floor: i128,
    needed: i128,
    full: i128,
}

/// Sums of one host, in bytes.
#[derive(Default)]
struct HostRecordSums {
    /// What the host's kernel has for guests: free beyond the reserve, or occupied by guests.
    seen: i128,
    /// What was promised beyond allocations.
    promised: i128,
    capacity: i128,
    needed: i128,
    full: i128,
    staying_floors: i128,
    staying_needed: i128,
}

impl<'a> Checker<'a> {
    /// Finds the records; reports which are missing.
    fn join(&mut self, migration: &'a Migration) -> Option<CheckedMigration<'a>> {
        let mut host = |id: &HostId| {
            let host = self.hosts.get(id).copied();
            if host.is_none() {
                self.found.push(Violation::UnknownHost(id.clone()));
            }
            host
        };
        let (from, to) = (host(&migration.from), host(&migration.to));
        let (from, to) = (from?, to?);
        let Some(guest) = from.guests.iter().find(|it| it.id == migration.guest) else {
            let unknown = Violation::UnknownGuest(migration.guest.clone(), from.id.clone());
            self.found.push(unknown);
            return None;
        };
        Some(CheckedMigration { migration, guest, from, to })
    }

    /// What is wrong with one migration by itself.
    fn check_migration(&mut self, checked: &CheckedMigration<'_>) {
        let CheckedMigration { guest, from, to, .. } = checked;
        let id = || guest.id.clone();
        let mut found = Vec::new();
        if from.id == to.id {
            found.push(Violation::ToItself(id()));
        }
        for host in [from, to] {
            let is_known =
                host.seen_at <= self.now && host.seen_at + self.settings.stale_after >= self.now;
            if !is_known {
                found.push(Violation::StaleHost(host.id.clone()));
            }
        }
        if to.is_draining {
            found.push(Violation::ToDrained(id()));
        }
        if guest.pinned_by.is_some() {
            found.push(Violation::Untouchable(id(), "it has to stay"));
        }
        if guest.moving_to.is_some() {
            found.push(Violation::Untouchable(id(), "it is on its way already"));
        }
        let rests = guest.last_move.is_some_and(|it| it.at + self.rest(guest) > self.now);
        if rests && !from.is_draining {
            found.push(Violation::Untouchable(id(), "it was moved a short while ago"));
        }
        if guest.dirty_per_s >= from.bandwidth_per_s.min(to.bandwidth_per_s) {
            found.push(Violation::Untouchable(id(), "it writes faster than can be copied"));
        }
        if let Some(what) = difference(from, to, guest) {
            found.push(Violation::Incompatible(id(), what));
        }
        check_sizes(checked, &mut found);
        self.found.extend(found);
        self.check_reason(checked);
    }

    /// How long a guest rests after its last migration.
    fn rest(&self, guest: &GuestRecord) -> Duration {
        let Some(last) = guest.last_move else { return Duration::ZERO };
        let mut rest = last.took.max(self.settings.cooldown_min);
        for _ in 1..guest.moves_in_24h {
            rest = rest.saturating_mul(2);
            if rest >= self.settings.cooldown_max {
                break;
            }
        }
        rest.min(self.settings.cooldown_max)
    }

    /// Whether the reason of a migration is true.
    fn check_reason(&mut self, checked: &CheckedMigration<'_>) {
        let sums = HostRecordSums::of(checked.from);
        let floors = sums.staying_floors - sums.capacity;
        let needed = sums.staying_needed - sums.capacity;
        let is_true = |short: Bytes, actual: i128| actual > 0 && wide(short) == actual;
        let wrong = match checked.migration.reason {
            MigrationReason::Floors(short) => (!is_true(short, floors))
                .then_some("its host is not short of so many bytes for floors"),
            MigrationReason::Objectives(short) => (floors > 0 || !is_true(short, needed))
                .then_some("its host is not short of so many bytes for objectives"),
            MigrationReason::Drain => {
                (!checked.from.is_draining).then_some("its host is not to be drained")
            }
            MigrationReason::Benefit { misses_saved, misses_asked } => {
                self.benefit_fault(checked, &sums, misses_saved, misses_asked)
            }
        };
        if let Some(why) = wrong {
            self.found.push(Violation::NoReason(checked.guest.id.clone(), why));
        }
    }

    fn benefit_fault(
        &self,
        checked: &CheckedMigration<'_>,
        sums: &HostRecordSums,
        saved: u64,
        asked: u64,
    ) -> Option<&'static str> {
        let pages = checked.migration.traffic.get().div_ceil(PAGE_SIZE);
        let least = u128::from(pages) * u128::from(self.settings.misses_per_page);
        let mut most = 0;
        for guest in &checked.from.guests {
            let points = guest.curve.as_ref().map_or(&[][..], |curve| curve.points());
            if let (Some(first), Some(last)) = (points.first(), points.last()) {
                most += u128::from(first.1 - last.1);
            }
        }
        most *= u128::from(self.settings.horizon.as_secs());
        if sums.full <= sums.capacity {
            return Some("its host has enough for all");
        }
        if u128::from(asked) < least || saved <= asked {
            return Some("it saves too few misses for the copy");
        }
        (u128::from(saved) > most).then_some("it saves more misses than there are")
    }

    /// Finds guests of the same group or name at the destination, or on their way there.
    fn check_neighbours(&mut self, all: &[CheckedMigration<'_>]) {
        let mut groups = BTreeSet::new();
        for host in self.snapshot.hosts() {
            for guest in &host.guests {
                groups.extend(guest.group.as_ref().map(|group| (&host.id, group)));
            }
            for reservation in &host.reservations {
                groups.extend(reservation.group.as_ref().map(|group| (&host.id, group)));
            }
        }
        let mut coming = BTreeSet::new();
        for CheckedMigration { guest, to, .. } in all {
            if let Some(group) = &guest.group
                && !groups.insert((&to.id, group))
            {
                self.found.push(Violation::SameGroup(guest.id.clone()));
            }
            let is_taken = to.guests.iter().any(|it| it.id == guest.id)
                || to.reservations.iter().any(|it| it.guest == guest.id)
                || !coming.insert((&to.id, &guest.id));
            if is_taken {
                self.found.push(Violation::NameTaken(guest.id.clone()));
            }
        }
    }

    /// Checks that every destination has room for all that comes, without counting on what leaves.
    fn check_rooms(&mut self, all: &[CheckedMigration<'_>], filled: &BTreeMap<&HostId, i128>) {
        let mut coming: BTreeMap<&HostId, (&HostRecord, i128, bool)> = BTreeMap::new();
        for CheckedMigration { migration, to, .. } in all {
            let (_, reserved, gentle) = coming.entry(&to.id).or_insert((to, 0, false));
            *reserved += wide(migration.reserve);
            *gentle |= matches!(migration.reason, MigrationReason::Benefit { .. });
        }
        for (id, (host, reserved, gentle)) in coming {
            let sums = HostRecordSums::of(host);
            // For a benefit no guest may have to give way.
            let taken = if gentle { sums.full } else { sums.needed };
            let seen = sums.seen - filled.get(id).unwrap_or(&0);
            let room = seen.min(wide(host.budget)) - sums.promised - taken;
            if reserved > room {
                self.found.push(Violation::NoRoom(id.clone(), bytes(reserved), bytes(room)));
            }
        }
    }

    /// What the copies of leaving guests fill on each host, those under way included. Hosts on
    /// which copies fill nothing are left out.
    fn filled_by_copies(&self, all: &[CheckedMigration<'a>]) -> BTreeMap<&'a HostId, i128> {
        let mut filled = BTreeMap::new();
        let mut add = |host: &'a HostId, guest: &GuestRecord| {
            let fills = fills(guest);
            if fills > 0 {
                *filled.entry(host).or_insert(0) += fills;
            }
        };
        for host in self.snapshot.hosts() {
            let under_way = host.guests.iter().filter(|it| it.moving_to.is_some());
            under_way.for_each(|guest| add(&host.id, guest));
        }
        for CheckedMigration { guest, from, .. } in all {
            if guest.moving_to.is_none() {
                add(&from.id, guest);
            }
        }
        filled
    }

    /// Checks that every host has free what copies fill, beside what was promised and what comes to
    /// it, so that its reserve stays whole at every moment. Hosts that this plan adds nothing to
    /// are not checked.
    fn check_copies(&mut self, all: &[CheckedMigration<'_>], filled: &BTreeMap<&HostId, i128>) {
        let mut more: BTreeMap<&HostId, (&HostRecord, i128)> = BTreeMap::new();
        for CheckedMigration { migration, guest, from, to } in all {
            if fills(guest) > 0 {
                more.entry(&from.id).or_insert((from, 0));
            }
            let (_, comes) = more.entry(&to.id).or_insert((to, 0));
            *comes += wide(migration.reserve);
        }
        for (id, (host, comes)) in more {
            let Some(filled) = filled.get(id) else { continue };
            let arrived: i128 = host.reservations.iter().map(|it| wide(it.resident)).sum();
            let awaited = (HostRecordSums::of(host).promised - arrived).max(0);
            let spare = wide(host.free) - wide(host.reserve);
            let (taken, vacant) = (filled + comes, spare - awaited);
            if taken > vacant {
                self.found.push(Violation::FillsTooMuch(id.clone(), bytes(taken), bytes(vacant)));
            }
        }
    }

    /// Checks that no migration for floors or objectives could be left out.
    fn check_needless(&mut self, all: &[CheckedMigration<'_>]) {
        let mut leaving: BTreeMap<&HostId, Vec<&CheckedMigration<'_>>> = BTreeMap::new();
        for checked in all {
            let reason = checked.migration.reason;
            let is_needed =
                matches!(reason, MigrationReason::Floors(_) | MigrationReason::Objectives(_));
            if is_needed {
                leaving.entry(&checked.from.id).or_default().push(checked);
            }
        }
        for leaving in leaving.values() {
            let sums = HostRecordSums::of(leaving[0].from);
            let relief: i128 = leaving.iter().map(|it| Sizes::of(it.guest).needed).sum();
            for checked in leaving {
                let without = relief - Sizes::of(checked.guest).needed;
                if sums.staying_needed - without <= sums.capacity {
                    self.found.push(Violation::Needless(checked.guest.id.clone()));
                }
            }
        }
    }
}

/// What the copy of a guest fills of its host's memory, in bytes.
fn fills(guest: &GuestRecord) -> i128 {
    let more = wide(guest.copied_resident) - wide(guest.resident);
    more.max(0)
}

/// Whether the sizes of a migration follow from the guest's record.
fn check_sizes(checked: &CheckedMigration<'_>, found: &mut Vec<Violation>) {
    let CheckedMigration { migration, guest, from, to } = checked;
    let id = || guest.id.clone();
    let sizes = Sizes::of(guest);
    let resident = wide(guest.resident);
    let mut copied = resident;
    match migration.shrink_to {
        Some(_) if !guest.can_shrink => found.push(Violation::CannotShrink(id())),
        Some(shrink_to) => {
            let least = sizes.full.min(wide(guest.allocation));
            let planned = wide(shrink_to);
            if planned < least {
                found.push(Violation::ShrunkTooFar(id(), shrink_to, bytes(least)));
            }
            copied = resident.min(planned);
        }
        None => {}
    }
    let reserve = wide(migration.reserve);
    if reserve < sizes.full {
        let least = bytes(sizes.full);
        found.push(Violation::ReservesTooLittle(id(), migration.reserve, least));
    }
    if wide(migration.fills) != fills(guest) {
        found.push(Violation::WrongFigure(id(), "bytes that the copy fills"));
    }
    if wide(migration.bytes) != copied {
        found.push(Violation::WrongFigure(id(), "bytes copied once"));
    }
    let source = wide(from.bandwidth_per_s);
    let again = copied * wide(guest.dirty_per_s) / source;
    if wide(migration.traffic) != copied + again {
        found.push(Violation::WrongFigure(id(), "bytes copied in all"));
    }
    let slower = source.min(wide(to.bandwidth_per_s));
    let millis = wide(migration.traffic) * 1000 / slower;
    if i128::try_from(migration.copy_time.as_millis()) != Ok(millis) {
        found.push(Violation::WrongFigure(id(), "seconds it takes"));
    }
}

/// What keeps a guest of host `from` from running on host `to`; `None` if nothing does.
fn difference(from: &HostRecord, to: &HostRecord, guest: &GuestRecord) -> Option<&'static str> {
    let (source, target) = (&from.compatibility, &to.compatibility);
    if source.hypervisor != target.hypervisor {
        return Some("another hypervisor");
    }
    if target.version < source.version {
        return Some("an older hypervisor");
    }
    if source.cpu_model != target.cpu_model {
        return Some("another processor model");
    }
    if guest.storage.iter().any(|it| !target.storage.contains(it)) {
        return Some("its storage is out of reach");
    }
    guest.networks.iter().any(|it| !target.networks.contains(it)).then_some("a network is missing")
}

impl Sizes {
    fn of(guest: &GuestRecord) -> Sizes {
        let whole = |size: Bytes| i128::from(size.get().next_multiple_of(PAGE_SIZE));
        let mut floor = whole(guest.floor);
        if !guest.can_shrink {
            floor = floor.max(whole(guest.allocation)).max(whole(guest.resident));
        }
        let mut needed = floor;
        if let (Some(curve), Some(most)) = (&guest.curve, guest.misses_per_s_max) {
            // From the largest size down: the last one that is enough is the smallest.
            for (size, misses) in curve.points().iter().rev() {
                if *misses <= most {
                    needed = floor.max(whole(*size));
                }
            }
        }
        Sizes { floor, needed, full: needed.max(whole(guest.demand)) }
    }
}

impl HostRecordSums {
    fn of(host: &HostRecord) -> HostRecordSums {
        let mut sums = HostRecordSums::default();
        let mut seen = wide(host.free) - wide(host.reserve);
        let mut promised = wide(host.committed);
        for guest in &host.guests {
            let sizes = Sizes::of(guest);
            sums.needed += sizes.needed;
            sums.full += sizes.full;
            if guest.moving_to.is_none() {
                sums.staying_floors += sizes.floor;
                sums.staying_needed += sizes.needed;
            }
            seen += wide(guest.resident);
            promised -= wide(guest.allocation);
        }
        for reservation in &host.reservations {
            seen += wide(reservation.resident);
        }
        sums.capacity = seen.min(wide(host.budget)) - promised;
        (sums.seen, sums.promised) = (seen, promised);
        sums
    }
}

/// A size in bytes, in a type that no sum of sizes overflows.
fn wide(size: Bytes) -> i128 {
    i128::from(size.get())
}

/// A size for a message; zero if it is negative.
fn bytes(size: i128) -> Bytes {
    Bytes::new(u64::try_from(size).unwrap_or(0))
}
