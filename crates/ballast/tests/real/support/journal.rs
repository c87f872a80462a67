//! Invariants of every journal, whatever happened while it was written.
//!
//! Idea: the journal has what was observed and decided at every tick, so invariants can be checked
//! afterwards for all ticks, by this file's own arithmetic.
//!
//! Checked: rows have no gap; no plan is refused; no guest is below its floor or asked to go there;
//! once the guests fit the budget, what they hold or were promised always fits it.

use std::collections::BTreeMap;
use std::path::Path;

use ballast_model::{Bounds, Bytes, GuestId, Note, Snapshot};
use ballast_store::{EntryContent, Range, Reader, TickEntry};

/// Checks a journal piece by piece: how far it was read, and the state of the checks.
pub struct Audit {
    budget: Bytes,
    last_id: i64,
    is_within: bool,
    last_seen: BTreeMap<GuestId, Bytes>,
    /// Ticks read.
    pub ticks: u64,
    /// Ticks in which the guests fitted the budget.
    pub ticks_within: u64,
}

impl Audit {
    /// An audit of guests that share `budget`, from the beginning of the journal.
    pub fn new(budget: Bytes) -> Audit {
        Audit {
            budget,
            last_id: 0,
            is_within: false,
            last_seen: BTreeMap::new(),
            ticks: 0,
            ticks_within: 0,
        }
    }

    /// Reads and checks what was recorded since the last call; a daemon may be running.
    pub fn read(&mut self, journal: &Path) {
        let reader = Reader::open(journal).unwrap();
        let range = Range { from_id: Some(self.last_id + 1), ..Range::default() };
        for entry in reader.entries(range) {
            let entry = entry.unwrap();
            assert_eq!(entry.id, self.last_id + 1, "rows without a gap");
            self.last_id = entry.id;
            if let EntryContent::Tick(tick) = entry.content {
                self.tick(entry.id, &tick);
            }
        }
    }

    fn tick(&mut self, row: i64, tick: &TickEntry) {
        self.ticks += 1;
        let refused = tick.plan.notes.iter().find(|note| matches!(note, Note::Refused { .. }));
        assert_eq!(refused, None, "row {row}");
        self.check_floors(row, tick);
        self.remember(&tick.snapshot);

        let known = |id: &GuestId| self.last_seen.get(id).copied();
        let held: Option<Bytes> = tick.plan.guests.iter().map(|guest| known(&guest.id)).sum();
        // Nothing can be checked until the allocation of every guest is known.
        let Some(held) = held else { return };
        let promised: Bytes =
            tick.plan.guests.iter().map(|it| known(&it.id).max(it.target).unwrap()).sum();
        self.is_within |= promised <= self.budget;
        if self.is_within {
            self.ticks_within += 1;
            let (budget, plan) = (self.budget, &tick.plan);
            assert!(held <= budget, "row {row}: {held} held of {budget}: {plan:#?}");
            assert!(promised <= budget, "row {row}: {promised} promised of {budget}: {plan:#?}");
        }
    }

    fn check_floors(&self, row: i64, tick: &TickEntry) {
        for guest in &tick.plan.guests {
            let Some(Bounds { floor, ceiling }) = guest.bounds else { continue };
            assert!(floor <= ceiling);
            let lowest = guest.allocation.min(guest.target.or(guest.allocation));
            assert!(lowest.is_none_or(|lowest| lowest >= floor), "row {row}: {guest:#?}");
        }
    }

    fn remember(&mut self, snapshot: &Snapshot) {
        self.last_seen.retain(|id, _| snapshot.guest(id).is_some());
        for guest in snapshot.guests() {
            if let Some(allocation) = guest.allocation {
                self.last_seen.insert(guest.id.clone(), allocation.value);
            }
        }
    }
}

/// Asserts that SQLite finds the file intact.
pub fn assert_file_intact(journal: &Path) {
    let connection = rusqlite::Connection::open(journal).unwrap();
    let verdict: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
