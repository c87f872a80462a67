//! What was measured, and whether the goals are met.

use serde::Serialize;

use super::super::super::goal::{Goal, Wanted::AtMost};
use super::super::super::machine::Machine;
use super::super::super::timing::median;
use super::steer::Window;
use super::subject::Subject;
use super::way::Way;

/// Everything measured in one run.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Report {
    pub(super) machine: Machine,
    /// Whether there was one pair of windows only, too few to mean anything.
    pub(super) is_quick: bool,
    /// Pairs of windows.
    pub(super) rounds: usize,
    pub(super) figures: Vec<Figures>,
    /// The mean over all programs, for each way.
    pub(super) means: Vec<Mean>,
    pub(in super::super) goals: Vec<Goal>,
}

/// One way with one program.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) program: Subject,
    pub(super) way: Way,
    /// What the program lost of its speed, of the median pair: 0 is nothing, 1 is that it takes twice as
    /// long.
    pub(super) slowdown: f64,
    /// The least and the greatest pair.
    pub(super) slowdown_least: f64,
    pub(super) slowdown_most: f64,
    /// Processor time of the tracker's threads beside the program, as a share of a core.
    pub(super) tracker_cores: f64,
    /// Processor time of the daemon's side, as a share of a core.
    pub(super) daemon_cores: f64,
    /// Touches a second without tracking.
    pub(super) touches_per_s: f64,
    pub(super) traps_per_s: f64,
    /// Share of touches seen that found the ring full.
    pub(super) dropped: f64,
    /// Share of intervals that were tracked.
    pub(super) up_ratio: f64,
    /// Share of pages watched.
    pub(super) share: f64,
    /// The working set at the end, in bytes, and all of the program's memory.
    pub(super) wss_bytes: u64,
    pub(super) memory_bytes: u64,
}

/// A way over all programs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Mean {
    pub(super) way: Way,
    pub(super) slowdown: f64,
    pub(super) slowdown_most: f64,
    pub(super) daemon_cores: f64,
}

impl Figures {
    pub(super) fn new(
        program: Subject,
        way: Way,
        pairs: &[(Window, Window)],
        memory_bytes: u64,
    ) -> Figures {
        let slowdowns = || pairs.iter().map(|(off, on)| off.rate / on.rate.max(1e-9) - 1.0);
        let of = |figure: fn(&Window) -> f64| median(pairs.iter().map(|(_, on)| figure(on)));
        let sum = |figure: fn(&Window) -> u64| pairs.iter().map(|(_, on)| figure(on)).sum::<u64>();
        let (traps, dropped) = (sum(|on| on.traps), sum(|on| on.dropped));
        let (intervals, tracked) = (sum(|on| on.intervals.into()), sum(|on| on.tracked.into()));
        Figures {
            program,
            way,
            slowdown: median(slowdowns()),
            slowdown_least: slowdowns().fold(f64::INFINITY, f64::min),
            slowdown_most: slowdowns().fold(f64::NEG_INFINITY, f64::max),
            tracker_cores: of(|on| on.tracker / on.seconds),
            daemon_cores: of(|on| on.daemon / on.seconds),
            touches_per_s: median(pairs.iter().map(|(off, _)| off.rate)),
            traps_per_s: of(|on| on.traps as f64 / on.seconds),
            dropped: dropped as f64 / (traps as f64).max(1.0),
            up_ratio: tracked as f64 / (intervals as f64).max(1.0),
            share: pairs.last().map_or(0.0, |(_, on)| on.share),
            wss_bytes: pairs.last().map_or(0, |(_, on)| on.wss),
            memory_bytes,
        }
    }
}

impl Report {
    pub(super) fn new(
        machine: Machine,
        is_quick: bool,
        rounds: usize,
        figures: Vec<Figures>,
    ) -> Report {
        let mean = |way: &Way| {
            let of_way: Vec<&Figures> = figures.iter().filter(|it| it.way == *way).collect();
            let mean = |figure: fn(&Figures) -> f64| {
                of_way.iter().map(|it| figure(it)).sum::<f64>() / of_way.len() as f64
            };
            (!of_way.is_empty()).then(|| Mean {
                way: *way,
                slowdown: mean(|it| it.slowdown),
                slowdown_most: of_way.iter().map(|it| it.slowdown).fold(f64::MIN, f64::max),
                daemon_cores: mean(|it| it.daemon_cores),
            })
        };
        let means: Vec<Mean> = Way::ALL.iter().filter_map(mean).collect();
        let goals = match is_quick {
            true => Vec::new(),
            false => means.iter().flat_map(goals).collect(),
        };
        Report { machine, is_quick, rounds, figures, means, goals }
    }
}

/// What the daemon does by itself is to cost next to nothing.
fn goals(mean: &Mean) -> Vec<Goal> {
    if mean.way != Way::SampledAdaptive {
        return Vec::new();
    }
    let percent = |what: &str, found: f64, most| {
        Goal::new(format!("{}: {what}", mean.way.name()), "%", found * 100.0, AtMost(most))
    };
    vec![
        percent("slowdown, mean of all programs", mean.slowdown, 1.0),
        percent("slowdown, the program that loses most", mean.slowdown_most, 3.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_at_two_thirds_of_its_speed_takes_half_as_long_again() {
        let window = |rate, tracked| Window {
            rate,
            seconds: 2.0,
            traps: 100,
            tracker: 0.5,
            intervals: 8,
            tracked,
            ..Window::default()
        };
        let pairs = [
            (window(300.0, 0), window(200.0, 8)),
            (window(300.0, 0), window(300.0, 0)),
            (window(300.0, 0), window(150.0, 8)),
        ];
        let found = Figures::new(Subject::Zipf, Way::Fixed, &pairs, 4096);
        assert!((found.slowdown - 0.5).abs() < 1e-9);
        assert_eq!((found.slowdown_least, found.slowdown_most), (0.0, 1.0));
        assert_eq!((found.traps_per_s, found.tracker_cores), (50.0, 0.25));
        assert!((found.up_ratio - 2.0 / 3.0).abs() < 1e-9);
    }
}
