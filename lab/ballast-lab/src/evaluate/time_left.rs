//! Estimates how long the rest of an evaluation takes.
//!
//! Idea: a job that ran here before takes as long as it took then. The time of a simulation that
//! never ran is its load (guests × runs × virtual seconds) at the rate of those that did. The time
//! of a run on real guests that never ran is the mean of the other runs of its scenario and, if
//! there are none, the estimate from the scenario. If no simulation ran yet, the time is unknown,
//! and the output says so.
//! Limits: on a machine that is busier than before, jobs take longer than estimated.

use std::collections::BTreeMap;

/// A job that is still to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RemainingJob {
    /// How long it took the last time, in seconds; `None`: it never ran.
    pub(crate) took_s: Option<f64>,
    /// Its load, for an estimate if it never ran.
    pub(crate) load: Load,
}

/// The amount of work of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// Guests × runs × virtual seconds of a simulation.
    Simulated(f64),
    /// Seconds of wall-clock time.
    Seconds(f64),
}

impl Load {
    /// The amount, in its own unit.
    pub(crate) const fn amount(self) -> f64 {
        match self {
            Load::Simulated(amount) | Load::Seconds(amount) => amount,
        }
    }
}

/// What jobs took, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PastTimes {
    /// By a job's name, in seconds.
    own: BTreeMap<String, f64>,
    /// By the task that jobs belong to, the times of all its jobs.
    of_all: BTreeMap<String, Vec<f64>>,
}

impl PastTimes {
    /// Adds a job that took `took_s` seconds; `of_all` is the task that it is a part of, if any.
    pub(crate) fn add(&mut self, name: String, of_all: Option<String>, took_s: f64) {
        self.own.insert(name, took_s);
        if let Some(of_all) = of_all {
            self.of_all.entry(of_all).or_default().push(took_s);
        }
    }

    /// How long the job `name` of the task `of_all` takes; `None`: neither it nor another part ever
    /// ran.
    pub(crate) fn of(&self, name: &str, of_all: &str) -> Option<f64> {
        let others = || {
            let others = self.of_all.get(of_all)?;
            Some(others.iter().sum::<f64>() / others.len() as f64)
        };
        self.own.get(name).copied().or_else(others)
    }
}

/// Times and loads of the simulations that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rate {
    seconds: f64,
    load: f64,
}

impl Rate {
    /// Adds a job that took `took_s` seconds.
    pub(crate) fn add(&mut self, took_s: f64, load: Load) {
        if let Load::Simulated(load) = load {
            self.seconds += took_s;
            self.load += load;
        }
    }

    /// How long `job` takes, in seconds; `None`: no simulation ran yet.
    pub(crate) fn of(self, job: RemainingJob) -> Option<f64> {
        match (job.took_s, job.load) {
            (Some(took_s), _) => Some(took_s),
            (None, Load::Seconds(seconds)) => Some(seconds),
            (None, Load::Simulated(load)) => {
                (self.load > 0.0).then(|| load * self.seconds / self.load)
            }
        }
    }

    /// How long all `jobs` take, in seconds; `None`: the time of at least one is unknown.
    pub(crate) fn of_all(self, jobs: impl IntoIterator<Item = RemainingJob>) -> Option<f64> {
        jobs.into_iter().map(|job| self.of(job)).sum()
    }
}

/// A time span in words: seconds below two minutes, else minutes.
pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1.0 => "less than 1 s".to_owned(),
        _ if seconds < 120.0 => format!("{seconds:.0} s"),
        _ if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: RemainingJob = RemainingJob { took_s: None, load: Load::Simulated(200.0) };

    #[test]
    fn what_never_ran_is_estimated_by_what_did() {
        let mut rate = Rate::default();
        assert_eq!(rate.of(NEW), None);
        rate.add(10.0, Load::Simulated(100.0));
        rate.add(99.0, Load::Seconds(99.0));
        assert_eq!(rate.of(NEW), Some(20.0));
        assert_eq!(rate.of(RemainingJob { took_s: Some(3.0), ..NEW }), Some(3.0));
    }

    #[test]
    fn the_whole_is_known_where_every_part_is() {
        let known = RemainingJob { took_s: Some(3.0), ..NEW };
        let real = RemainingJob { took_s: None, load: Load::Seconds(60.0) };
        assert_eq!(Rate::default().of_all([known, real]), Some(63.0));
        assert_eq!(Rate::default().of_all([known, NEW]), None);
        assert_eq!(Rate::default().of_all([]), Some(0.0));
    }

    #[test]
    fn a_run_takes_as_long_as_others_of_its_scenario() {
        let mut took = PastTimes::default();
        assert_eq!(took.of("a-static", "a"), None);
        took.add("a-static".to_owned(), Some("a".to_owned()), 100.0);
        took.add("a-meb".to_owned(), Some("a".to_owned()), 140.0);
        took.add("s".to_owned(), None, 1.0);
        assert_eq!(took.of("a-static", "a"), Some(100.0));
        assert_eq!(took.of("a-best", "a"), Some(120.0));
        assert_eq!((took.of("s", "s"), took.of("s-2", "s")), (Some(1.0), None));
    }

    #[test]
    fn spans_are_short() {
        let all = [0.2, 59.6, 150.0, 9000.0].map(span);
        assert_eq!(all, ["less than 1 s", "60 s", "2 min", "2.5 h"]);
    }
}
