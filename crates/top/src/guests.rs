//! Which guests are shown, in which order.
//!
//! Idea: filter, sort, fold, in this order. Unknown figures come last in either direction, and
//! equal guests stay in the order of their names. Guests at rest need no attention: they are held
//! on target or within the dead band, and read nothing back from swap.

use std::cmp::Ordering;

use ballast_api::{GuestView, StatusReply};

use crate::history::History;

/// The column by which guests are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Column {
    /// Their names.
    #[default]
    Name,
    /// What they hold.
    Allocation,
    /// What they need.
    Demand,
    /// Their targets in force.
    Target,
    /// What they read back from swap.
    SwapIn,
    /// What happens to them: first those held, then those moving, then those at rest.
    Doing,
}

impl Column {
    const ALL: [Column; 6] = [
        Column::Name,
        Column::Allocation,
        Column::Demand,
        Column::Target,
        Column::SwapIn,
        Column::Doing,
    ];

    /// The column `by` places to the right; wraps around.
    pub(crate) fn right_by(self, by: usize) -> Column {
        let at = Column::ALL.iter().position(|column| *column == self).unwrap_or(0);
        Column::ALL[(at + by) % Column::ALL.len()]
    }

    /// The column to the left; wraps around.
    pub(crate) fn left(self) -> Column {
        self.right_by(Column::ALL.len() - 1)
    }

    /// Whether the largest values come first by default: so it is for figures, where those matter.
    pub(crate) fn largest_first(self) -> bool {
        !matches!(self, Column::Name | Column::Doing)
    }
}

/// How guests are chosen and ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableOptions {
    /// The column sorted by.
    pub(crate) column: Column,
    /// Whether the default direction of that column is reversed.
    pub(crate) reversed: bool,
    /// Whether the guests at rest are folded into one line.
    pub(crate) folded: bool,
    /// Text that names must contain, in upper or lower case.
    pub(crate) filter: String,
}

impl TableOptions {
    /// Whether the largest come first.
    pub(crate) fn is_descending(&self) -> bool {
        self.column.largest_first() != self.reversed
    }
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Row<'a> {
    /// A guest.
    Guest(&'a GuestView),
    /// All guests at rest.
    Rest(Resting),
}

/// The guests at rest, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resting {
    /// How many.
    pub(crate) guests: usize,
    /// What they hold together, as far as their allocations are known.
    pub(crate) allocation_bytes: u64,
}

/// What happens to a guest, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doing {
    /// It is held for a reason that the operator may want to know.
    Held,
    /// It grows or shrinks, or would if plans were carried out.
    Moving,
    /// It has what it should have.
    Resting,
}

/// What happens to `guest`, which reads back `swap_in_rate` bytes a second.
pub(crate) fn doing(guest: &GuestView, swap_in_rate: Option<u64>) -> Doing {
    let Some(change) = &guest.change else { return Doing::Held };
    if change.code != "hold" {
        return Doing::Moving;
    }
    let why = change.why.as_ref().map_or("", |why| why.code.as_str());
    let complies = guest.compliance.as_ref().is_none_or(|it| it.code == "compliant");
    match why {
        "dead-band" | "on-target" if complies && swap_in_rate.unwrap_or(0) == 0 => Doing::Resting,
        "dead-band" | "on-target" | "observing" | "paused" => Doing::Moving,
        _ => Doing::Held,
    }
}

/// The lines of the table.
pub(crate) fn rows<'a>(
    status: &'a StatusReply,
    history: &History,
    options: &TableOptions,
) -> Vec<Row<'a>> {
    let wanted = options.filter.to_lowercase();
    let rate =
        |guest: &GuestView| history.guest(&guest.guest).and_then(|history| history.swap_in_rate());
    let mut guests: Vec<&GuestView> = Vec::new();
    let mut resting = Resting::default();
    for guest in &status.guests {
        if !guest.guest.to_lowercase().contains(&wanted) {
            continue;
        }
        if options.folded && doing(guest, rate(guest)) == Doing::Resting {
            resting.guests += 1;
            let held = guest.allocation_bytes.unwrap_or(0);
            resting.allocation_bytes = resting.allocation_bytes.saturating_add(held);
        } else {
            guests.push(guest);
        }
    }
    let figure = |guest: &GuestView| match options.column {
        Column::Name => None,
        Column::Allocation => guest.allocation_bytes,
        Column::Demand => guest.demand_bytes,
        Column::Target => guest.target_bytes,
        Column::SwapIn => rate(guest),
        Column::Doing => Some(doing(guest, rate(guest)) as u64),
    };
    let descending = options.is_descending();
    guests.sort_by(|a, b| match options.column {
        Column::Name if descending => b.guest.cmp(&a.guest),
        Column::Name => a.guest.cmp(&b.guest),
        _ => compare(figure(a), figure(b), descending),
    });
    let mut rows: Vec<Row> = guests.into_iter().map(Row::Guest).collect();
    if resting.guests > 0 {
        rows.push(Row::Rest(resting));
    }
    rows
}

fn compare(a: Option<u64>, b: Option<u64>, descending: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if descending => b.cmp(&a),
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{change, guest, status};

    fn names(options: &TableOptions) -> Vec<String> {
        let mut big = guest("big");
        big.allocation_bytes = Some(900);
        let mut mute = guest("mute");
        mute.allocation_bytes = None;
        mute.change = Some(change("hold", "no-allocation", "allocation not known yet"));
        let mut web = guest("Web-2");
        web.allocation_bytes = Some(20);
        web.change = Some(change("hold", "on-target", "on target"));
        let status = status(10, vec![web, big, mute]);
        let name = |row: &Row| match row {
            Row::Guest(guest) => guest.guest.clone(),
            Row::Rest(resting) => {
                format!("{} at rest: {}", resting.guests, resting.allocation_bytes)
            }
        };
        rows(&status, &History::default(), options).iter().map(name).collect()
    }

    fn by(column: Column, reversed: bool) -> TableOptions {
        TableOptions { column, reversed, ..TableOptions::default() }
    }

    #[test]
    fn unknown_figures_come_last_in_both_directions() {
        assert_eq!(names(&by(Column::Allocation, false)), ["big", "Web-2", "mute"]);
        assert_eq!(names(&by(Column::Allocation, true)), ["Web-2", "big", "mute"]);
        assert_eq!(names(&by(Column::Name, false)), ["Web-2", "big", "mute"]);
        assert_eq!(names(&by(Column::Name, true)), ["mute", "big", "Web-2"]);
        assert_eq!(names(&by(Column::Doing, false)), ["mute", "big", "Web-2"]);
    }

    #[test]
    fn guests_at_rest_fold_into_one_line() {
        let folded = TableOptions { folded: true, ..TableOptions::default() };
        assert_eq!(names(&folded), ["big", "mute", "1 at rest: 20"]);
        let none = TableOptions { filter: "b".to_owned(), ..folded };
        assert_eq!(names(&none), ["big", "1 at rest: 20"]);
    }

    #[test]
    fn filters_do_not_mind_case() {
        let of =
            |filter: &str| TableOptions { filter: filter.to_owned(), ..TableOptions::default() };
        assert_eq!(names(&of("wEb")), ["Web-2"]);
        assert!(names(&of("nobody")).is_empty());
    }

    #[test]
    fn every_column_is_reached_both_ways() {
        let mut column = Column::Name;
        for next in Column::ALL.into_iter().skip(1).chain([Column::Name]) {
            assert_eq!((column.right_by(1), next.left()), (next, column));
            column = next;
        }
    }

    #[test]
    fn who_swaps_or_releases_is_not_at_rest() {
        let mut web = guest("web");
        web.change = Some(change("hold", "dead-band", "within the dead band"));
        assert_eq!(doing(&web, None), Doing::Resting);
        assert_eq!(doing(&web, Some(4096)), Doing::Moving);
        web.compliance.as_mut().unwrap().code = "releasing".to_owned();
        assert_eq!(doing(&web, Some(0)), Doing::Moving);
        web.change = Some(change("hold", "stale", "statistics 9.0s old, limit 5.0s"));
        assert_eq!(doing(&web, None), Doing::Held);
        web.change = None;
        assert_eq!(doing(&web, None), Doing::Held);
    }
}
