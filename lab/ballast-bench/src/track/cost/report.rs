//! The cost and errors of tracking, and their goals.

use std::ops::Range;

use ballast_report::Report;
use ballast_report::figures::{self, or_none};
use clap::ValueEnum;
use serde::Serialize;

use super::super::native::program::Subject;
use super::super::native::running::HandlerPlacement;
use super::super::native::steer::{Interval, Totals, Window};
use super::super::native::way::Way;
use crate::goal::Goal;
use crate::machine::Machine;
use crate::scaffold::{Findings, Text, name_of};
use crate::shown::{micros, percent};
use crate::timing::{mean, median};

/// By how much two windows without tracking may differ so that the one between them can be compared
/// with them, as a ratio.
const DRIFT_MAX: f64 = 0.1;
/// Goal for the mean relative error of working sets, in per cent: MEB's own.
const ERROR_MAX: f64 = 4.8;
/// Goals for the slowdown in per cent: for the mean of all programs, the aim for that mean, and for
/// the program that loses most.
const SLOWDOWN_MAX: f64 = 1.0;
const SLOWDOWN_AIM: f64 = 0.3;
const SLOWDOWN_MOST_MAX: f64 = 3.0;

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CostFindings {
    pub(super) machine: Machine,
    pub(super) is_quick: bool,
    /// Pairs of windows; ways that rest or sample have several times as many.
    pub(super) rounds: usize,
    /// Where the tracker's thread that answers faults ran.
    pub(super) handler: HandlerPlacement,
    pub(super) figures: Vec<Figures>,
    /// The mean over all programs, for each way.
    pub(super) means: Vec<Mean>,
}

/// One way with one program.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) program: Subject,
    pub(super) way: Way,
    /// The program's loss of speed: 0 is none, 1 means that it takes twice as long. The median over
    /// intervals; for a way that rests, the medians of intervals at rest and of the others,
    /// weighted by their numbers.
    pub(super) slowdown: f64,
    /// Its standard error.
    pub(super) slowdown_error: f64,
    /// Share of its time for which the program was stopped; exact, but only a part of the slowdown.
    pub(super) stopped: f64,
    /// The mean relative error of the working set against the memory really touched, over all
    /// intervals including those at rest.
    pub(super) wss_error: f64,
    /// The greatest error of an interval.
    pub(super) wss_error_most: f64,
    /// How long a trap stopped the program, and what the tracker reports for that, in nanoseconds.
    pub(super) trap_ns: f64,
    #[serde(rename = "trap_said_ns")]
    pub(super) trap_reported_ns: f64,
    /// Processor time of the thread that answers faults, and of the thread that revokes, as a share
    /// of a core.
    pub(super) handler_cores: f64,
    pub(super) control_cores: f64,
    /// Processor time of the daemon's side, as a share of a core.
    pub(super) daemon_cores: f64,
    /// Touches a second without tracking.
    pub(super) touches_per_s: f64,
    pub(super) traps_per_s: f64,
    /// Share of seen touches for which there was no room in the ring.
    pub(super) dropped: f64,
    /// Share of intervals that were tracked.
    pub(super) up_ratio: f64,
    /// Share of pages watched.
    pub(super) share: f64,
    /// The working set at the end, and all of the program's memory, in bytes.
    pub(super) wss_bytes: u64,
    pub(super) memory_bytes: u64,
}

/// One way, averaged over all programs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Mean {
    pub(super) way: Way,
    pub(super) slowdown: f64,
    /// Its standard error, from those of the programs.
    pub(super) slowdown_error: f64,
    pub(super) slowdown_most: f64,
    pub(super) stopped: f64,
    pub(super) wss_error: f64,
    pub(super) wss_error_most: f64,
    pub(super) daemon_cores: f64,
}

/// The slowdown in each interval in which the program was watched, and in each in which it was left
/// alone, against the windows of `off` before and after.
fn slowdowns(off: &[Window], on: &[Window]) -> [Vec<f64>; 2] {
    let off_and_on: Vec<(f64, f64, &Interval)> = on
        .iter()
        .zip(off.windows(2))
        .flat_map(|(on, off)| on.intervals.iter().map(|it| (off[0].rate(), off[1].rate(), it)))
        .collect();
    let is_steady =
        |(before, after, _): &(f64, f64, &Interval)| (before - after).abs() <= DRIFT_MAX * before;
    let steady = off_and_on.iter().any(is_steady);
    let mut lost = [Vec::new(), Vec::new()];
    for (before, after, it) in off_and_on.into_iter().filter(|pair| !steady || is_steady(pair)) {
        let slowdown = f64::midpoint(before, after) / it.rate().max(1e-9) - 1.0;
        lost[usize::from(!it.watch.is_on)].push(slowdown);
    }
    lost
}

/// The slowdown over all intervals, and its standard error: the medians of both kinds of intervals,
/// weighted by their numbers. Medians ignore disturbances by other programs; the weights keep the
/// few watched intervals from being ignored.
fn slowdown(lost: &[Vec<f64>; 2]) -> (f64, f64) {
    let count: f64 = lost.iter().map(|kind| kind.len() as f64).sum();
    let of = |kind: &Vec<f64>| {
        let share = kind.len() as f64 / count.max(1.0);
        let middle = median(kind.iter().copied());
        let deviation = median(kind.iter().map(|lost| (lost - middle).abs()));
        // The standard error of a median of normally distributed values, from the median deviation.
        let error = 1.2533 * 1.4826 * deviation / (kind.len() as f64).sqrt();
        (share * middle, share * error)
    };
    let known = lost.iter().filter(|kind| !kind.is_empty()).map(of);
    let (sum, variance) =
        known.fold((0.0, 0.0), |(sum, var), (part, error)| (sum + part, var + error * error));
    (sum, variance.sqrt())
}

impl Figures {
    /// The figures of windows with tracking, each between two without; also the program's memory,
    /// and the share of it that was watched last. `truth` returns the memory that a range of
    /// touches covers.
    pub(super) fn new(
        program: Subject,
        way: Way,
        off: &[Window],
        on: &[Window],
        (memory_bytes, share): (u64, f64),
        truth: impl Fn(Range<u64>) -> u64,
    ) -> Figures {
        let (slowdown, slowdown_error) = slowdown(&slowdowns(off, on));
        let totals = Totals::of(on);
        let (seconds, traps) = (totals.seconds, totals.traps);
        let intervals: Vec<_> = on.iter().flat_map(|on| &on.intervals).collect();
        let error = |found: u64, truth: u64| found.abs_diff(truth) as f64 / truth.max(1) as f64;
        let errors: Vec<f64> = intervals
            .iter()
            .map(|interval| error(interval.wss.get(), truth(interval.touches.clone())))
            .collect();
        let tracked = intervals.iter().filter(|interval| interval.result.is_some()).count();
        Figures {
            program,
            way,
            slowdown,
            slowdown_error,
            stopped: totals.stopped_share(),
            wss_error: mean(errors.iter().copied()),
            wss_error_most: errors.iter().copied().fold(0.0, f64::max),
            trap_ns: totals.stopped / traps.max(1.0) * 1e9,
            trap_reported_ns: median(on.iter().map(|on| on.trap)) * 1e9,
            handler_cores: totals.handler / seconds,
            control_cores: totals.control / seconds,
            daemon_cores: totals.daemon / seconds,
            touches_per_s: median(off.iter().map(Window::rate)),
            traps_per_s: traps / seconds,
            dropped: totals.dropped / traps.max(1.0),
            up_ratio: tracked as f64 / (intervals.len() as f64).max(1.0),
            share,
            wss_bytes: intervals.last().map_or(0, |interval| interval.wss.get()),
            memory_bytes,
        }
    }
}

/// The means over all programs, for each way that has figures.
pub(super) fn means(figures: &[Figures]) -> Vec<Mean> {
    let of_way = |&way: &Way| {
        let all: Vec<&Figures> = figures.iter().filter(|it| it.way == way).collect();
        let mean_of = |figure: fn(&Figures) -> f64| mean(all.iter().map(|it| figure(it)));
        let most =
            |figure: fn(&Figures) -> f64| all.iter().map(|it| figure(it)).fold(f64::MIN, f64::max);
        (!all.is_empty()).then(|| Mean {
            way,
            slowdown: mean_of(|it| it.slowdown),
            slowdown_error: all.iter().map(|it| it.slowdown_error.powi(2)).sum::<f64>().sqrt()
                / all.len() as f64,
            slowdown_most: most(|it| it.slowdown),
            stopped: mean_of(|it| it.stopped),
            wss_error: mean_of(|it| it.wss_error),
            wss_error_most: most(|it| it.wss_error),
            daemon_cores: mean_of(|it| it.daemon_cores),
        })
    };
    Way::value_variants().iter().filter_map(of_way).collect()
}

impl Findings for CostFindings {
    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        self.means.iter().flat_map(goals).collect()
    }

    fn show(&self, text: &mut Text) {
        text.line(format_args!(
            "What tracking costs a program on {}, and how right it is; {} pairs of windows, the tracker's thread {}\n",
            self.machine.processor.as_deref().unwrap_or("an unknown processor"),
            self.rounds,
            match self.handler {
                HandlerPlacement::Beside => "on the program's core",
                HandlerPlacement::Apart => "on another core",
                HandlerPlacement::Free => "on any core",
            }
        ));
        let size = |bytes: u64| figures::size(bytes as f64);
        let columns = Report::<Figures>::new()
            .text("PROGRAM", |it| name_of(it.program))
            .text("WAY", |it| it.way.name())
            .figure("SLOWDOWN", |it| percent(it.slowdown))
            .figure("±", |it| percent(it.slowdown_error))
            .figure("STOPPED", |it| percent(it.stopped))
            .figure("ERROR", |it| percent(it.wss_error))
            .figure("WORKING SET", |it| {
                format!("{} of {}", size(it.wss_bytes), size(it.memory_bytes))
            })
            .figure("TRAPS/S", |it| format!("{:.0}", it.traps_per_s))
            .figure("TRAP", |it| micros(it.trap_ns))
            .figure("SAID", |it| micros(it.trap_reported_ns))
            .figure("LOST", |it| percent(it.dropped))
            .figure("DAEMON", |it| percent(it.daemon_cores))
            .figure("UP", |it| percent(it.up_ratio))
            .figure("WATCHED", |it| percent(it.share));
        text.table(&columns, &self.figures);
        let columns = Report::<Mean>::new()
            .text("WAY", |it| it.way.name())
            .figure("SLOWDOWN, MEAN", |it| percent(it.slowdown))
            .figure("±", |it| percent(it.slowdown_error))
            .figure("MOST", |it| percent(it.slowdown_most))
            .figure("STOPPED", |it| percent(it.stopped))
            .figure("ERROR, MEAN", |it| percent(it.wss_error))
            .figure("MOST", |it| percent(it.wss_error_most))
            .figure("DAEMON", |it| percent(it.daemon_cores))
            .figure("PAPER", |it| or_none(it.way.paper().map(percent)));
        text.line("");
        text.table(&columns, &self.means);
        text.line(
            "\nSLOWDOWN: how much longer the program takes, without what others took of its core; ±: one standard\n\
             error of it. STOPPED: the part of that in which traps stopped it, exact. ERROR: mean relative error of the working set against what\n\
             was really touched, over all intervals, those of rest too. TRAP: how long one stopped the program;\n\
             SAID: how long the tracker says. DAEMON: of a core. UP: intervals tracked.\n\
             PAPER: MEB Table I, the mean over SPEC programs, which compute between their accesses.",
        );
    }
}

/// The goals for the daemon's way: it must cost next to nothing, and be right.
fn goals(mean: &Mean) -> Vec<Goal> {
    if mean.way != Way::Daemon {
        return Vec::new();
    }
    let percent = |what: &str, found: f64, most| {
        Goal::at_most(format!("{}: {what}", mean.way.name()), "%", found * 100.0, most)
    };
    vec![
        percent("slowdown, mean of all programs", mean.slowdown, SLOWDOWN_MAX),
        percent("the same, aimed at", mean.slowdown, SLOWDOWN_AIM),
        percent("slowdown, the program that loses most", mean.slowdown_most, SLOWDOWN_MOST_MAX),
        percent("error of the working set, mean of all programs", mean.wss_error, ERROR_MAX),
    ]
}

#[cfg(test)]
mod tests {
    use ballast_model::Bytes;
    use ballast_working_set::{Sampling, WatchPlan};

    use super::super::super::native::clock::ThreadTimes;
    use super::*;

    /// A second: a tenth went to other programs, and a tenth to traps.
    const SPENT: ThreadTimes = ThreadTimes { wall: 1.0, ran: 0.8, waited: 0.1 };

    /// An interval with this many touches; the reported working set is a tenth too small.
    fn interval(touches: u64, is_on: bool) -> Interval {
        Interval {
            touches: 0..touches,
            watch: WatchPlan { is_on, watched: Sampling::ALL, hot: None },
            result: None,
            wss: Bytes::new(touches * 9 / 10),
            traps: 0,
            handler: 0.0,
            spent: SPENT,
        }
    }

    /// A window of one interval.
    fn window(touches: u64, traps: u64) -> Window {
        let intervals = vec![interval(touches, true)];
        Window { touches, spent: SPENT, traps, intervals, ..Window::default() }
    }

    #[test]
    fn two_thirds_speed_is_half_as_long_again() {
        let off = [300; 4].map(|touches| window(touches, 0));
        let on = [200, 300, 150].map(|touches| window(touches, 100));
        let found = Figures::new(Subject::Zipf, Way::Avl, &off, &on, (4096, 0.5), |touches| {
            touches.end - touches.start
        });
        assert!((found.slowdown - 0.5).abs() < 1e-9);
        // Half is the median deviation of 0.5, 0 and 1.
        let error = 1.2533 * 1.4826 * 0.5 / 3f64.sqrt();
        assert!((found.slowdown_error - error).abs() < 1e-9);
        assert!((found.traps_per_s - 100.0).abs() < 1e-9);
        assert!((found.trap_ns - 1e6).abs() < 1.0 && (found.stopped - 0.1 / 0.9).abs() < 1e-9);
        assert!((found.wss_error - 0.1).abs() < 1e-9 && (found.wss_error_most - 0.1).abs() < 1e-9);
        assert_eq!((found.up_ratio, found.wss_bytes), (0.0, 135));
    }

    #[test]
    fn resting_and_watched_intervals_count_by_their_number() {
        let off = [300; 3].map(|touches| window(touches, 0));
        // At rest it loses nothing, except once when other programs were running; watched, it takes
        // one and a half times and twice as long.
        let on =
            [[(300, false), (300, false), (200, true)], [(30, false), (300, false), (150, true)]]
                .map(|all| Window {
                    intervals: all.map(|(touches, is_on)| interval(touches, is_on)).to_vec(),
                    ..Window::default()
                });
        let (found, error) = slowdown(&slowdowns(&off, &on));
        // The median of two values is the larger one.
        assert!((found - 1.0 * 2.0 / 6.0).abs() < 1e-9, "{found}");
        let watched = 1.2533 * 1.4826 * 0.5 / 2f64.sqrt();
        assert!((error - watched * 2.0 / 6.0).abs() < 1e-9, "{error}");
        assert_eq!(slowdown(&[Vec::new(), Vec::new()]), (0.0, 0.0));
    }

    #[test]
    fn a_window_next_to_a_program_change_is_ignored() {
        let off = [100, 100, 200].map(|touches| window(touches, 0));
        let on = [50, 10].map(|touches| window(touches, 0));
        let [watched, _] = slowdowns(&off, &on);
        assert!(watched.len() == 1 && (watched[0] - 1.0).abs() < 1e-9, "{watched:?}");
        assert_eq!(slowdowns(&off[1..], &on[1..])[0].len(), 1, "better than none");
    }

    #[test]
    fn goals_are_of_what_the_daemon_does() {
        let mean = |way| Mean {
            way,
            slowdown: 0.004,
            slowdown_error: 0.001,
            slowdown_most: 0.05,
            stopped: 0.0,
            wss_error: 0.03,
            wss_error_most: 0.1,
            daemon_cores: 0.0,
        };
        let met = |way| goals(&mean(way)).iter().map(|goal| goal.is_met).collect::<Vec<_>>();
        assert_eq!(met(Way::Daemon), [true, false, false, true]);
        assert!(met(Way::SampledAdaptive).is_empty());
    }
}
