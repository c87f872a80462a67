//! Prints intervals as table lines, one by one.
//!
//! Idea: columns have fixed widths, so a line can be printed as soon as its interval ends. The
//! heading repeats every [`HEADING_EVERY`] lines.

use ballast_model::Bytes;

use ballast_report::format;

use ballast_daemon::track::{Row, WatchedInterval};

/// Lines between two headings: those of a screen.
const HEADING_EVERY: u64 = 24;

/// The heading above line `number`, if one is due.
pub(super) fn heading(number: u64) -> Option<String> {
    number.is_multiple_of(HEADING_EVERY).then(|| {
        format!(
            "{:<8}  {:>11}  {:>9}  {:>9}  {:>14}  {:>7}  {:>8}  {:>6}  {:>6}  {:>7}  {:>4}",
            "TIME",
            "WORKING SET",
            "TOUCHED",
            "HALF MISS",
            "WATCHED",
            "HOT",
            "TOUCHES",
            "LOST",
            "COST",
            "TRAP",
            "UP"
        )
    })
}

/// The line of an interval. While tracking rests, it repeats the known working set.
pub(super) fn line(row: &Row) -> String {
    const NONE: &str = "-";
    let at = format!("{:.1}s", row.at.as_secs_f64());
    let size = |bytes: Bytes| format::size(bytes.get());
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let seen = row.seen.as_ref();
    let watched = seen.map_or("rest".to_owned(), watched);
    let cost = format!("{:.2}%", row.cost_share() * 100.0);
    let up = format!("{:.0}%", row.up_ratio * 100.0);
    format!(
        "{at:<8}  {:>11}  {:>9}  {:>9}  {watched:>14}  {:>7}  {:>8}  {:>6}  {cost:>6}  {:>7}  {up:>4}",
        or_none(row.known.map(size)),
        or_none(seen.map(|seen| size(seen.touched))),
        or_none(seen.and_then(|seen| seen.half_miss).map(size)),
        or_none(seen.and_then(|seen| seen.hot_granules).map(|granules| granules.to_string())),
        or_none(seen.map(|seen| seen.touches.to_string())),
        or_none(seen.map(|seen| seen.lost.to_string())),
        or_none(seen.filter(|seen| !seen.trap.is_zero()).map(trap)),
    )
}

/// How long a trapped access stops the guest; zero with DAMON, which needs no traps.
fn trap(seen: &WatchedInterval) -> String {
    format!("{:.1}us", seen.trap.as_secs_f64() * 1e6)
}

/// `1/64 by 1`: the watched share of granules, and pages per granule.
fn watched(seen: &WatchedInterval) -> String {
    let part = if seen.share >= 1.0 {
        "all".to_owned()
    } else {
        format!("1/{}", (1.0 / seen.share).round())
    };
    format!("{part} by {}", seen.granule_pages)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;

    use super::*;

    #[test]
    fn lines_align_with_their_heading() {
        let seen = WatchedInterval {
            source: ballast_model::TrackingSource::Library,
            working_set: Bytes::mib(203),
            touched: Bytes::mib(201),
            half_miss: Some(Bytes::mib(198)),
            curve: None,
            granule_pages: 1,
            share: 1.0 / 64.0,
            hot_granules: Some(16),
            touches: 811,
            lost: 0,
            trap: Duration::from_nanos(14_800),
            revoked_in: Duration::from_millis(2),
        };
        let all =
            WatchedInterval { share: 1.0, granule_pages: 32, hot_granules: None, ..seen.clone() };
        let row = |seen: Option<WatchedInterval>| Row {
            at: Duration::from_millis(12_340),
            length: Duration::from_secs(1),
            tracked: Bytes::mib(512),
            known: Some(Bytes::mib(203)),
            moved: None,
            events: None,
            step: None,
            up_ratio: 2.0 / 3.0,
            cost: Duration::from_millis(if seen.is_some() { 5 } else { 1 }),
            seen,
        };
        let rows = [row(Some(seen)), row(Some(all)), row(None)];
        let mut text = heading(0).unwrap();
        for row in &rows {
            text = format!("{text}\n{}", line(row));
        }
        expect![[r#"
            TIME      WORKING SET    TOUCHED  HALF MISS         WATCHED      HOT   TOUCHES    LOST    COST     TRAP    UP
            12.3s          203MiB     201MiB     198MiB       1/64 by 1       16       811       0   0.50%   14.8us   67%
            12.3s          203MiB     201MiB     198MiB       all by 32        -       811       0   0.50%   14.8us   67%
            12.3s          203MiB          -          -            rest        -         -       -   0.10%        -   67%
        "#]]
        .assert_eq(&(text + "\n"));
        assert_eq!((heading(1), heading(24).is_some()), (None, true));
    }
}
