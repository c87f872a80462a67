//! How long the rest of an evaluation takes.
//!
//! Idea: a job that ever ran here takes as long as then. One that never did takes its load at the
//! rate of those that did: for simulations guests × runs × virtual seconds; a run on real guests
//! takes the mean of the others of its scenario, and before there is one what its scenario says.
//! Where no simulation ran yet, nothing is known,
//! and that is said.
//! Limits: a machine that is busier than before takes longer than estimated.

use std::collections::BTreeMap;

/// What is known of a job that is still to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ahead {
    /// How long it took the last time, in seconds.
    pub(crate) took_s: Option<f64>,
    /// What it does, in a unit that times are proportional to.
    pub(crate) load: Load,
}

/// How much a job does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// Guests × runs × virtual seconds of a simulation.
    Simulated(f64),
    /// Seconds that pass by the clock.
    Seconds(f64),
}

impl Load {
    /// How much it is, in its own unit.
    pub(crate) const fn amount(self) -> f64 {
        match self {
            Load::Simulated(amount) | Load::Seconds(amount) => amount,
        }
    }
}

/// What jobs took, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PastTimes {
    /// By a job's name.
    own: BTreeMap<String, f64>,
    /// By what jobs are parts of.
    of_all: BTreeMap<String, Vec<f64>>,
}

impl PastTimes {
    /// Adds a job that took `took_s`; `of_all` is what it is a part of, if of anything.
    pub(crate) fn add(&mut self, name: String, of_all: Option<String>, took_s: f64) {
        self.own.insert(name, took_s);
        if let Some(of_all) = of_all {
            self.of_all.entry(of_all).or_default().push(took_s);
        }
    }

    /// What the job `name` of `of_all` takes; `None`: neither it ran nor another part.
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
    /// Adds a job that took `took_s`.
    pub(crate) fn add(&mut self, took_s: f64, load: Load) {
        if let Load::Simulated(load) = load {
            self.seconds += took_s;
            self.load += load;
        }
    }

    /// How long `job` takes, in seconds; `None`: no simulation ran yet.
    pub(crate) fn of(self, job: Ahead) -> Option<f64> {
        match (job.took_s, job.load) {
            (Some(took_s), _) => Some(took_s),
            (None, Load::Seconds(seconds)) => Some(seconds),
            (None, Load::Simulated(load)) => {
                (self.load > 0.0).then(|| load * self.seconds / self.load)
            }
        }
    }

    /// How long all of `jobs` take; `None`: of one of them it is not known.
    pub(crate) fn of_all(self, jobs: impl IntoIterator<Item = Ahead>) -> Option<f64> {
        jobs.into_iter().map(|job| self.of(job)).sum()
    }
}

/// A span in words: seconds below two minutes, minutes above.
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

    const NEW: Ahead = Ahead { took_s: None, load: Load::Simulated(200.0) };

    #[test]
    fn what_never_ran_is_estimated_by_what_did() {
        let mut rate = Rate::default();
        assert_eq!(rate.of(NEW), None);
        rate.add(10.0, Load::Simulated(100.0));
        rate.add(99.0, Load::Seconds(99.0));
        assert_eq!(rate.of(NEW), Some(20.0));
        assert_eq!(rate.of(Ahead { took_s: Some(3.0), ..NEW }), Some(3.0));
    }

    #[test]
    fn the_whole_is_known_where_every_part_is() {
        let known = Ahead { took_s: Some(3.0), ..NEW };
        let real = Ahead { took_s: None, load: Load::Seconds(60.0) };
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
