//! The speed of simulations, and its goals.

use ballast_model::PolicyName;
use ballast_report::Report;
use serde::Serialize;

use super::measure::Setup;
use crate::goal::Goal;
use crate::machine::Machine;
use crate::scaffold::{Findings, Text, VERSION};
use crate::shown::figure;
use crate::timing::{RunTime, Spread};

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SimFindings {
    pub(super) machine: Machine,
    pub(super) is_quick: bool,
    pub(super) figures: Vec<Figures>,
    #[serde(skip)]
    pub(super) goals: Vec<Goal>,
}

/// One policy on one host.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) setup: &'static str,
    pub(super) guests: u64,
    /// Granularity of guests' memory.
    pub(super) block_bytes: u64,
    /// Virtual time of a run, with ticks of a second.
    pub(super) virtual_s: u64,
    pub(super) policy: &'static str,
    pub(super) runs: usize,
    /// How much faster than real time, by the thread's processor time.
    pub(super) times_real_time: Spread,
    /// The same by wall-clock time, which includes whatever else ran on the core.
    pub(super) times_real_time_wall: Spread,
    /// How much faster than the same host page by page, if that was measured; by median processor
    /// times.
    pub(super) times_pages: Option<f64>,
}

impl Figures {
    fn new(setup: &Setup, policy: PolicyName, runs: &[RunTime]) -> Self {
        let virtual_s = setup.duration.as_secs();
        let speed = |seconds: f64| virtual_s as f64 / f64::max(seconds, 1e-9);
        Self {
            setup: setup.name,
            guests: setup.guests,
            block_bytes: setup.block.get(),
            virtual_s,
            policy: policy.as_str(),
            runs: runs.len(),
            times_real_time: Spread::of_speeds(runs.iter().map(|run| speed(run.processor))),
            times_real_time_wall: Spread::of_speeds(runs.iter().map(|run| speed(run.wall))),
            times_pages: None,
        }
    }
}

/// The figures of the runs of each policy on each host, and the goals.
pub(super) fn figures(
    measured: &[(Setup, Vec<Vec<RunTime>>)],
    policies: &[PolicyName],
) -> (Vec<Figures>, Vec<Goal>) {
    let (mut figures, mut goals) = (Vec::new(), Vec::new());
    for (setup, runs) in measured {
        let to_the_page = measured.iter().find(|(other, _)| other.is_pages_of(setup));
        for (place, (&policy, own)) in policies.iter().zip(runs).enumerate() {
            let mut found = Figures::new(setup, policy, own);
            if let Some((setup, runs)) = to_the_page {
                let pages = Figures::new(setup, policy, &runs[place]).times_real_time.median;
                found.times_pages = Some(found.times_real_time.median / f64::max(pages, 1e-9));
            }
            if let Some(least) = setup.times_min {
                let mut goal = |what: &str, found| {
                    let what = format!("{}, {policy}: times real time, {what}", setup.name);
                    goals.push(Goal::at_least(what, "", found, least));
                };
                goal("median", found.times_real_time.median);
                goal("worst run", found.times_real_time.worst);
            }
            figures.push(found);
        }
    }
    (figures, goals)
}

impl Findings for SimFindings {
    const QUICK_REMARK: &'static str =
        "quick hosts are too small for figures to be held against goals";

    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        self.goals.clone()
    }

    fn show(&self, text: &mut Text) {
        text.line(self.machine.line());
        text.line(format_args!(
            "figures    ballast {VERSION}, multiples of real time at ticks of 1 s, policies in turn"
        ));
        let columns = Report::<Figures>::new()
            .text("POLICY", |it| it.policy)
            .figure("× REAL TIME", |it| figure(it.times_real_time.median))
            .figure("WORST RUN", |it| figure(it.times_real_time.worst))
            .figure("BY THE CLOCK", |it| figure(it.times_real_time_wall.median))
            .figure("WORST RUN", |it| figure(it.times_real_time_wall.worst))
            .figure("× TO THE PAGE", |it| it.times_pages.map(figure).unwrap_or_default());
        for setup in self.figures.chunk_by(|a, b| a.setup == b.setup) {
            let Figures { setup: name, virtual_s, runs, .. } = &setup[0];
            text.line(format_args!(
                "\n{name}, {virtual_s} virtual seconds; runs of each policy: {runs}"
            ));
            text.table(&columns, setup);
        }
    }
}
