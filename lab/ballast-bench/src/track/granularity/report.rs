//! Cost and error by the size of granules, and their goals.

use std::ops::Range;

use ballast_report::{Report, figures};
use serde::Serialize;

use super::super::native::steer::{Interval, Totals, Window};
use crate::goal::Goal;
use crate::machine::Machine;
use crate::scaffold::{Findings, Text};
use crate::timing::{mean, median};

/// Goal for the mean relative error of working sets, in per cent: MEB's own.
const ERROR_MAX: f64 = 4.8;
/// The working set in bytes above which granules become large (MEB §3.1.2).
const LARGE_ABOVE: u64 = 2 << 30;

/// The memory that is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Footprint {
    Small,
    Large,
    Recorded,
}

impl Footprint {
    pub(super) const ALL: [Footprint; 3] =
        [Footprint::Small, Footprint::Large, Footprint::Recorded];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Footprint::Small => "100 MiB, random",
            Footprint::Large => "2.25 GiB, random",
            Footprint::Recorded => "python, recorded",
        }
    }
}

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GranularityFindings {
    pub(super) machine: Machine,
    pub(super) is_quick: bool,
    pub(super) points: Vec<Point>,
    pub(super) switch: Vec<Switch>,
}

/// One size of granules with one program.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) footprint: Footprint,
    pub(super) pages: u64,
    /// The program's loss of speed: 0 is none, 1 means that it takes twice as long; the median.
    pub(super) slowdown: f64,
    /// Share of its time for which it was stopped.
    pub(super) stopped: f64,
    pub(super) traps_per_s: f64,
    /// Processor time of the daemon's side, as a share of a core.
    pub(super) daemon_cores: f64,
    /// Of the working set: the mean relative error, and the least and greatest errors with their
    /// signs.
    pub(super) error: f64,
    pub(super) error_least: f64,
    pub(super) error_greatest: f64,
}

impl Point {
    pub(super) fn new(
        footprint: Footprint,
        pages: u64,
        off: &[Window],
        on: &[Window],
        truth: impl Fn(Range<u64>) -> u64,
    ) -> Point {
        let slowdown = |(on, off): (&Window, &[Window])| {
            (off[0].rate() + off[1].rate()) / 2.0 / on.rate().max(1e-9) - 1.0
        };
        let totals = Totals::of(on);
        let errors: Vec<f64> = (on.iter().flat_map(|on| &on.intervals))
            .map(|it| error(it.wss.get(), truth(it.touches.clone())))
            .collect();
        Point {
            footprint,
            pages,
            slowdown: median(on.iter().zip(off.windows(2)).map(slowdown)),
            stopped: totals.stopped_share(),
            traps_per_s: totals.traps / totals.seconds,
            daemon_cores: totals.daemon / totals.seconds,
            error: mean(errors.iter().map(|it| it.abs())),
            error_least: errors.iter().copied().fold(f64::INFINITY, f64::min),
            error_greatest: errors.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// By how much `found` is above `truth`, as a part of `truth`.
fn error(found: u64, truth: u64) -> f64 {
    (found as f64 - truth as f64) / truth.max(1) as f64
}

/// An interval of the switch.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Switch {
    pub(super) pages: u64,
    pub(super) wss_bytes: u64,
    pub(super) touched_bytes: u64,
    pub(super) traps: u64,
    pub(super) stopped: f64,
}

impl Switch {
    pub(super) fn new(interval: &Interval, truth: impl Fn(Range<u64>) -> u64) -> Switch {
        Switch {
            pages: interval.watch.watched.granule.pages(),
            wss_bytes: interval.wss.get(),
            touched_bytes: truth(interval.touches.clone()),
            traps: interval.traps,
            stopped: interval.spent.stopped() / interval.spent.wall.max(1e-9),
        }
    }

    pub(super) fn error(&self) -> f64 {
        error(self.wss_bytes, self.touched_bytes)
    }
}

impl Findings for GranularityFindings {
    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        goals(&self.points, &self.switch)
    }

    fn show(&self, text: &mut Text) {
        text.line(format_args!(
            "Every granule watched, once a second, by their size, on {}\n",
            self.machine.processor.as_deref().unwrap_or("an unknown processor"),
        ));
        let columns = Report::<Point>::new()
            .text("PROGRAM", |it| it.footprint.name())
            .figure("PAGES", |it| it.pages)
            .figure("SLOWDOWN", |it| percent(it.slowdown))
            .figure("STOPPED", |it| percent(it.stopped))
            .figure("TRAPS/S", |it| format!("{:.0}", it.traps_per_s))
            .figure("DAEMON", |it| percent(it.daemon_cores))
            .figure("ERROR", |it| percent(it.error))
            .figure("LEAST", |it| percent(it.error_least))
            .figure("GREATEST", |it| percent(it.error_greatest));
        text.table(&columns, &self.points);
        text.line(
            "\nERROR: of the working set against what was really touched. The paper, with 100 MB (MEB Fig. 2):\n\
             cost falls steeply to 32 pages and hardly beyond, where the error rises; 0.9 % at 32 pages (SPEC).\n\
             With 2 GB (Fig. 3): cost falls in proportion, and is flat above 512 pages. A granule counts whole, so\n\
             memory that is touched in one piece has no error, and memory touched here and there has. Where traps slow\n\
             the program down until it does not come round in an interval, it touches less than its working set.\n\n\
             The switch above 2 GiB, interval by interval:\n",
        );
        let columns = Report::<(usize, &Switch)>::new()
            .figure("SECOND", |it| it.0 + 1)
            .figure("PAGES", |it| it.1.pages)
            .figure("WORKING SET", |it| figures::size(it.1.wss_bytes as f64))
            .figure("TOUCHED", |it| figures::size(it.1.touched_bytes as f64))
            .figure("ERROR", |it| percent(it.1.error()))
            .figure("TRAPS", |it| it.1.traps)
            .figure("STOPPED", |it| percent(it.1.stopped));
        text.table(&columns, &self.switch.iter().enumerate().collect::<Vec<_>>());
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn goals(points: &[Point], switch: &[Switch]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let of = |footprint, pages| {
        points.iter().find(|it: &&Point| (it.footprint, it.pages) == (footprint, pages))
    };
    for (footprint, pages) in [(Footprint::Small, 32), (Footprint::Large, 512)] {
        if let Some(point) = of(footprint, pages) {
            let what = format!("error in granules of {pages} pages, {}", footprint.name());
            goals.push(Goal::at_most(what, "%", point.error * 100.0, ERROR_MAX));
        }
    }
    if let (Some(fine), Some(coarse)) = (of(Footprint::Small, 1), of(Footprint::Small, 32)) {
        let times = fine.stopped / coarse.stopped.max(1e-9);
        goals.push(Goal::at_least("cost of granules of 1 page, in that of 32", "", times, 2.0));
    }
    let pairs = || switch.windows(2).map(|pair| (&pair[0], &pair[1]));
    let due = pairs().filter(|(now, _)| now.pages == 32 && now.wss_bytes > LARGE_ABOVE);
    let late = due.clone().filter(|(_, next)| next.pages != 512).count();
    let due = due.count() as f64;
    goals.push(Goal::at_least("switches to 512 pages above 2 GiB", "", due, 1.0));
    goals.push(Goal::at_most("of these, not in the next interval", "", late as f64, 0.0));
    goals
}

#[cfg(test)]
mod tests {
    use super::super::super::native::clock::ThreadTimes;
    use super::*;

    #[test]
    fn what_a_size_of_granules_costs() {
        let window = |touches, ran| Window {
            touches,
            spent: ThreadTimes { wall: 1.0, ran, waited: 0.0 },
            traps: 500,
            ..Window::default()
        };
        let off = [window(100, 1.0), window(300, 1.0)];
        let point = Point::new(Footprint::Small, 4, &off, &[window(100, 0.75)], |_| 1);
        assert!((point.slowdown - 1.0).abs() < 1e-9 && (point.stopped - 0.25).abs() < 1e-9);
        assert!((point.traps_per_s - 500.0).abs() < 1e-9);
        assert_eq!((error(150, 100), error(50, 100), error(1, 0)), (0.5, -0.5, 1.0));
    }

    #[test]
    fn a_switch_that_is_late_is_seen() {
        let step = |pages, wss_bytes| Switch {
            pages,
            wss_bytes,
            touched_bytes: wss_bytes,
            traps: 0,
            stopped: 0.0,
        };
        let (little, much) = (1 << 30, LARGE_ABOVE + 1);
        let met =
            |steps: &[Switch]| goals(&[], steps).iter().map(|it| it.is_met).collect::<Vec<_>>();
        let in_time = [step(32, little), step(32, much), step(512, much), step(512, little)];
        assert_eq!(met(&in_time), [true, true]);
        assert_eq!(met(&[step(32, much), step(32, much), step(512, much)]), [true, false]);
        assert_eq!(met(&in_time[..2]), [false, true]);
    }
}
