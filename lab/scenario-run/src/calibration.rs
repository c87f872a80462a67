//! Compares real guests with the simulator on the same scenario.
//!
//! Idea: the scenario is simulated twice: once on the machine that its file describes, once with
//! the speeds measured in the real runs. Four speeds decide how much work is done and are in no
//! file: the time to touch a page, to fill one, to give one back, and the time that a guest waits
//! for a request to its swap disk. Differences that remain in the second simulation are errors of
//! the model.
//!
//! The speeds are derived from the samples. A touch: seconds in which nothing grows and nothing
//! waits. Filling and giving back: the touches that are missing in seconds in which a workload
//! grows or shrinks. A request: the number of requests in seconds that were spent waiting. Each
//! speed is a median, because the machine does other things too. The simulated daemon sees what the
//! real one sees: the balloon's statistics and nothing else.
//!
//! Limits: one speed for all guests and the whole run. With several repetitions, their medians are
//! compared.

use std::time::Duration;

use anyhow::Context;
use ballast_model::Bytes;
use ballast_sim::{GuestReport, PolicyReport, Scenario, Sources, compare};
use serde::Serialize;

use super::compare::{Comparison, Figure, Ratio, Spread};
use super::record::{GuestRun, InsideSample, Record};
use crate::simulate::contestants::Contestants;

/// The figures that exist for real and for simulated guests.
const FIGURES: [Figure; 6] = [
    Figure::Touches,
    Figure::MajorFaults,
    Figure::SwapIn,
    Figure::SwapOut,
    Figure::AllocationMean,
    Figure::AllocationLast,
];
/// A second with less than this share of a steady second's touches counts as spent waiting.
const WAITING_SHARE: f64 = 0.1;
/// With fewer major faults in a second, the time of one cannot be derived.
const FAULTS_MIN: f64 = 10.0;
/// Pages written to swap with one request (`SWAP_CLUSTER_MAX`).
const WRITTEN_TOGETHER: f64 = 32.0;
/// Pages by which a workload must grow or shrink within a second for the change to stand out from
/// noise.
const GROWN_MIN: f64 = 1024.0;

/// Speeds of the machine of the real runs, in seconds; `None`: cannot be derived from the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Speeds {
    /// A touch of a page that is in memory.
    pub touch_s: Option<f64>,
    /// Filling a page for the first time.
    pub fill_s: Option<f64>,
    /// Giving a page back.
    pub give_back_s: Option<f64>,
    /// A request to the swap disk, as long as the guest waits for it.
    pub swap_request_s: Option<f64>,
}

/// One figure, measured and simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CalibrationFigure {
    /// The guest; `None`: all of them together.
    pub guest: Option<String>,
    /// The policy.
    pub policy: String,
    /// Which figure.
    pub figure: Figure,
    /// Measured on real guests: the median of repetitions.
    pub real: Option<f64>,
    /// Simulated on the machine that the file describes.
    pub simulated: f64,
    /// Simulated at the real machine's speeds.
    pub simulated_at_speeds: f64,
}

/// Work done under a policy against work under the first policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GainCompared {
    /// The policy.
    pub policy: String,
    /// Work of all guests, measured: the median over repetitions.
    pub real: Option<f64>,
    /// Simulated on the machine that the file describes.
    pub simulated: Option<f64>,
    /// Simulated at the real machine's speeds.
    pub simulated_at_speeds: Option<f64>,
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Speeds of the real machine.
    pub speeds: Speeds,
    /// Work ratios of the policies.
    pub gains: Vec<GainCompared>,
    /// The rows of every guest under every policy, then those of all guests together.
    pub figures: Vec<CalibrationFigure>,
}

impl Calibration {
    /// Simulates `scenario`, the scenario of `record`, and compares the result with `real`.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn new(
        record: &Record,
        real: &Comparison,
        scenario: &Scenario,
        policies: &Contestants,
    ) -> anyhow::Result<Calibration> {
        let speeds = Speeds::of(record);
        let lab_scenario = without_agents_and_trackers(scenario);
        let as_written = simulate(&lab_scenario, policies)?;
        let at_speeds = simulate(&speeds.apply(&lab_scenario), policies)?;
        let mut figures = Vec::new();
        for row in &real.rows {
            let find = |reports: &[PolicyReport]| {
                reports.iter().position(|it| it.policy.as_str() == row.policy)
            };
            let Some(place) = find(&as_written) else { continue };
            for figure in FIGURES {
                let simulated = |reports: &[PolicyReport]| {
                    figure_of(figure, reports.get(place)?, row.guest.as_deref())
                };
                let Some(pair) = simulated(&as_written).zip(simulated(&at_speeds)) else {
                    continue;
                };
                figures.push(CalibrationFigure {
                    guest: row.guest.clone(),
                    policy: row.policy.clone(),
                    figure,
                    real: row.cell(figure).and_then(|cell| cell.value).map(|it| it.median),
                    simulated: pair.0,
                    simulated_at_speeds: pair.1,
                });
            }
        }
        let gains = real.gains.iter().map(|gain| GainCompared {
            policy: gain.policy.clone(),
            real: match gain.work {
                Ratio::Times(spread) => Some(spread.median),
                _ => None,
            },
            simulated: work_ratio(&as_written, &gain.policy),
            simulated_at_speeds: work_ratio(&at_speeds, &gain.policy),
        });
        Ok(Calibration { speeds, gains: gains.collect(), figures })
    }
}

/// The scenario as the lab runs it: no agent is in the lab's guests, so the daemon has only the
/// balloon's statistics.
fn without_agents_and_trackers(scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    for guest in &mut scenario.guests {
        guest.sources = Sources { agent: false, tracker: None, ..guest.sources };
    }
    scenario
}

fn simulate(scenario: &Scenario, policies: &Contestants) -> anyhow::Result<Vec<PolicyReport>> {
    let report = compare(scenario, policies.build(&scenario.control.policy_settings), &mut |_| {})
        .context("the scenario cannot be simulated")?;
    Ok(report.policies)
}

/// Work of all guests under `policy` against that under the first policy.
fn work_ratio(reports: &[PolicyReport], policy: &str) -> Option<f64> {
    let own = reports.iter().find(|report| report.policy.as_str() == policy)?;
    let first = reports.first().filter(|first| first.work > 0)?;
    Some(own.work as f64 / first.work as f64)
}

fn figure_of(figure: Figure, report: &PolicyReport, guest: Option<&str>) -> Option<f64> {
    let one = |report: &GuestReport| {
        Some(match figure {
            Figure::Touches => report.work as f64,
            Figure::MajorFaults => report.major_faults as f64,
            Figure::SwapIn => report.swap_in.get() as f64,
            Figure::SwapOut => report.swap_out.get() as f64,
            Figure::AllocationMean => report.allocation_mean.get() as f64,
            Figure::AllocationLast => report.allocation_last.get() as f64,
            _ => return None,
        })
    };
    match guest {
        Some(guest) => one(report.guests.iter().find(|it| it.id.as_str() == guest)?),
        None => report.guests.iter().map(one).sum(),
    }
}

/// What a guest did between two of its reports, per second.
struct Interval {
    touches: f64,
    faults: f64,
    swapped_out_pages: f64,
    grown_pages: f64,
}

fn intervals(guest: &GuestRun) -> Vec<Interval> {
    let reports: Vec<&InsideSample> =
        guest.samples.iter().filter_map(|sample| sample.inside.as_ref()).collect();
    let between = |pair: &[&InsideSample]| {
        let [before, now] = pair else { return None };
        let span_s = (now.at_ms - before.at_ms) as f64 / 1000.0;
        let per_s = |now: u64, before: u64| (now as f64 - before as f64) / span_s;
        let pages = |bytes: u64| Bytes::new(bytes).to_pages();
        let out = now.swap_out_bytes.zip(before.swap_out_bytes);
        (span_s > 0.0).then_some(Interval {
            touches: per_s(now.touches, before.touches),
            faults: per_s(now.major_faults?, before.major_faults?),
            swapped_out_pages: out.map_or(0.0, |(now, before)| per_s(pages(now), pages(before))),
            grown_pages: per_s(pages(now.size_bytes), pages(before.size_bytes)),
        })
    };
    reports.windows(2).filter_map(between).collect()
}

impl Speeds {
    /// The speeds of the runs in `record`.
    pub fn of(record: &Record) -> Speeds {
        let guests = record.runs.iter().flat_map(|run| &run.guests);
        let all: Vec<Interval> =
            guests.filter(|guest| !guest.workloads.is_empty()).flat_map(intervals).collect();
        let median = |values: Vec<f64>| Spread::of(values).map(|it| it.median);
        let quiet = || all.iter().filter(|it| it.faults == 0.0 && it.touches > 0.0);
        let steady = quiet().filter(|it| it.grown_pages == 0.0).map(|it| it.touches);
        let Some(rate) = median(steady.collect()) else { return Speeds::default() };
        let lacking = |it: &Interval| (1.0 - it.touches / rate).max(0.0) / it.grown_pages.abs();
        let filling = quiet().filter(|it| it.grown_pages >= GROWN_MIN).map(lacking);
        let giving = quiet().filter(|it| it.grown_pages <= -GROWN_MIN).map(lacking);
        let waiting = all
            .iter()
            .filter(|it| it.touches < WAITING_SHARE * rate)
            .filter(|it| it.faults >= FAULTS_MIN && it.grown_pages.abs() < GROWN_MIN)
            .map(|it| 1.0 / (it.faults + it.swapped_out_pages / WRITTEN_TOGETHER));
        Speeds {
            touch_s: Some(1.0 / rate),
            fill_s: median(filling.collect()),
            give_back_s: median(giving.collect()),
            swap_request_s: median(waiting.collect()),
        }
    }

    /// `scenario` on a machine with these speeds. A disk never becomes faster than the file says.
    fn apply(self, scenario: &Scenario) -> Scenario {
        let span = |s: f64| Duration::try_from_secs_f64(s).unwrap_or_default();
        let mut scenario = scenario.clone();
        for guest in &mut scenario.guests {
            if let Some(touch) = self.touch_s.map(span).filter(|touch| !touch.is_zero()) {
                guest.touch = touch;
            }
            if let Some(fill) = self.fill_s {
                guest.fill = span(fill);
            }
            if let Some(give_back) = self.give_back_s {
                guest.give_back = span(give_back);
            }
            if let (Some(swap), Some(request)) = (&mut guest.swap, self.swap_request_s) {
                swap.disk.latency = swap.disk.latency.max(span(request));
            }
        }
        scenario
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Sample;
    use crate::simulate::scenario_file::ScenarioFile;
    use crate::{fixture, page};
    use std::path::Path;

    /// Samples of guest `a`, one a second: (size in MiB, touches, major faults, MiB swapped out),
    /// each as of the end of its second.
    fn record(seconds: &[(u64, u64, u64, u64)]) -> Record {
        let mut record = fixture::record(&[("static", &[1]), ("global", &[1])]);
        for run in &mut record.runs {
            let samples = seconds.iter().enumerate().map(|(at, &(size, touches, faults, out))| {
                let inside = InsideSample {
                    at_ms: at as i64 * 1000,
                    touches,
                    size_bytes: size << 20,
                    major_faults: Some(faults),
                    swap_out_bytes: Some(out << 20),
                    ..InsideSample::default()
                };
                Sample { at_s: at as f64, inside: Some(inside), ..Sample::default() }
            });
            run.guests[0].samples = samples.collect();
        }
        record
    }

    /// By hand: a million touches in a steady second is 1 us each. While 10 MiB, 2,560 pages, are
    /// filled in a second, half of the touches are done: 500,000 us / 2,560; while as many are
    /// given back, a tenth. In a second of waiting 384 faults and 2 MiB written, 512 pages or 16
    /// requests: 1/400 s each.
    #[test]
    fn speeds_equal_those_by_hand() {
        let speeds = Speeds::of(&record(&[
            (10, 0, 0, 0),
            (10, 1_000_000, 0, 0),
            (20, 1_500_000, 0, 0),
            (20, 1_501_000, 384, 2),
            (10, 1_601_000, 384, 2),
        ]));
        let near = |a: Option<f64>, b: f64| (a.unwrap() / b - 1.0).abs() < 1e-9;
        assert!(near(speeds.touch_s, 1e-6), "{speeds:?}");
        assert!(near(speeds.fill_s, 0.5 / 2560.0), "{speeds:?}");
        assert!(near(speeds.give_back_s, 0.9 / 2560.0), "{speeds:?}");
        assert!(near(speeds.swap_request_s, 1.0 / 400.0), "{speeds:?}");
    }

    #[test]
    fn what_runs_do_not_tell_is_not_known() {
        assert_eq!(Speeds::of(&record(&[(10, 0, 0, 0), (10, 0, 0, 0)])), Speeds::default());
        let only_steady = Speeds::of(&record(&[(10, 0, 0, 0), (10, 500_000, 0, 0)]));
        assert_eq!(only_steady, Speeds { touch_s: Some(2e-6), ..Speeds::default() });
    }

    const DEMO: &str = include_str!("../../../scenarios/lab/demo-quick.toml");

    #[test]
    fn every_simulated_figure_is_compared_with_the_real_one() {
        let file = ScenarioFile::parse(DEMO, Path::new("demo-quick.toml")).unwrap();
        let record = fixture::record(&[("static", &[1_000_000]), ("global", &[2_340_000])]);
        let real = Comparison::new(&record);
        let policies = Contestants::new(file.policies);
        let calibration = Calibration::new(&record, &real, &file.scenario, &policies).unwrap();
        // Guests `a` and `b` and both together, two policies.
        assert_eq!(calibration.figures.len(), 3 * 2 * FIGURES.len());
        let find = |policy: &str, figure| {
            let mut all = calibration.figures.iter();
            all.find(|it| {
                it.guest.as_deref() == Some("a") && it.policy == policy && it.figure == figure
            })
        };
        let work = find("global", Figure::Touches).unwrap();
        assert_eq!(work.real, Some(2_340_000.0));
        // The fixture's runs are too simple for speeds to be derived.
        assert!(work.simulated > 1e7 && work.simulated_at_speeds == work.simulated, "{work:?}");
        let faults = ["static", "global"].map(|it| find(it, Figure::MajorFaults).unwrap());
        assert_eq!(faults.map(|it| it.real), [Some(1000.0), Some(0.0)]);
        assert!(faults[0].simulated > faults[1].simulated, "{faults:?}");
        let page = page::render(&record, &real, Some(&calibration), &[]).unwrap();
        assert!(page.contains("The same in the simulator"));
        let gain = &calibration.gains[0];
        assert_eq!((gain.policy.as_str(), gain.real), ("global", Some(2.34)));
        assert!(gain.simulated.unwrap() > 1.2, "{gain:?}");
    }
}
