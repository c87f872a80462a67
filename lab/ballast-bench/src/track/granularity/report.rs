//! What was measured, and whether the goals are met.

use std::ops::Range;

use serde::Serialize;

use super::super::super::goal::{
    Goal,
    Wanted::{AtLeast, AtMost},
};
use super::super::super::machine::Machine;
use super::super::super::timing::median;
use super::super::native::steer::{Interval, Window};

/// Mean relative error of working sets: MEB's own.
const ERROR_MAX: f64 = 4.8;
/// Where granules become large (MEB §3.1.2).
const LARGE_ABOVE: u64 = 2 << 30;

/// What is touched.
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

/// Everything measured in one run.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Report {
    pub(super) machine: Machine,
    /// Whether it was too little to mean anything.
    pub(super) is_quick: bool,
    pub(super) points: Vec<Point>,
    pub(super) switch: Vec<Switch>,
    pub(in super::super) goals: Vec<Goal>,
}

/// Granules of one size with one program.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) footprint: Footprint,
    pub(super) pages: u64,
    /// What the program lost of its speed: 0 is nothing, 1 is that it takes twice as long; the median.
    pub(super) slowdown: f64,
    /// Share of its time that it was stopped for.
    pub(super) stopped: f64,
    pub(super) traps_per_s: f64,
    /// Processor time of the daemon's side, as a share of a core.
    pub(super) daemon_cores: f64,
    /// Of the working set: the mean relative error, and the least and greatest, with their signs.
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
        let sum = |figure: &dyn Fn(&Window) -> f64| on.iter().map(figure).sum::<f64>();
        let seconds = sum(&|on| on.spent.wall).max(1e-9);
        let errors: Vec<f64> = (on.iter().flat_map(|on| &on.intervals))
            .map(|it| error(it.wss.get(), truth(it.touches.clone())))
            .collect();
        Point {
            footprint,
            pages,
            slowdown: median(on.iter().zip(off.windows(2)).map(slowdown)),
            stopped: sum(&|on| on.spent.stopped()) / sum(&|on| on.spent.own(on.handler)).max(1e-9),
            traps_per_s: sum(&|on| on.traps as f64) / seconds,
            daemon_cores: sum(&|on| on.daemon) / seconds,
            error: errors.iter().map(|it| it.abs()).sum::<f64>() / errors.len().max(1) as f64,
            error_least: errors.iter().copied().fold(f64::INFINITY, f64::min),
            error_greatest: errors.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// By how much `found` is more than `truth`, in parts of it.
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

impl Report {
    pub(super) fn new(
        machine: Machine,
        is_quick: bool,
        points: Vec<Point>,
        switch: Vec<Switch>,
    ) -> Report {
        let goals = if is_quick { Vec::new() } else { goals(&points, &switch) };
        Report { machine, is_quick, points, switch, goals }
    }
}

fn goals(points: &[Point], switch: &[Switch]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let of = |footprint, pages| {
        points.iter().find(|it: &&Point| (it.footprint, it.pages) == (footprint, pages))
    };
    for (footprint, pages) in [(Footprint::Small, 32), (Footprint::Large, 512)] {
        if let Some(point) = of(footprint, pages) {
            let what = format!("error in granules of {pages} pages, {}", footprint.name());
            goals.push(Goal::new(what, "%", point.error * 100.0, AtMost(ERROR_MAX)));
        }
    }
    if let (Some(fine), Some(coarse)) = (of(Footprint::Small, 1), of(Footprint::Small, 32)) {
        let times = fine.stopped / coarse.stopped.max(1e-9);
        let what = "cost of granules of 1 page, in that of 32".to_owned();
        goals.push(Goal::new(what, "", times, AtLeast(2.0)));
    }
    let pairs = || switch.windows(2).map(|pair| (&pair[0], &pair[1]));
    let due = pairs().filter(|(now, _)| now.pages == 32 && now.wss_bytes > LARGE_ABOVE);
    let late = due.clone().filter(|(_, next)| next.pages != 512).count();
    let what = "switches to 512 pages above 2 GiB".to_owned();
    goals.push(Goal::new(what, "", due.count() as f64, AtLeast(1.0)));
    let what = "of these, not in the next interval".to_owned();
    goals.push(Goal::new(what, "", late as f64, AtMost(0.0)));
    goals
}

#[cfg(test)]
mod tests {
    use super::super::super::native::clock::Spent;
    use super::*;

    #[test]
    fn what_a_size_of_granules_costs() {
        let window = |touches, ran| Window {
            touches,
            spent: Spent { wall: 1.0, ran, waited: 0.0 },
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
