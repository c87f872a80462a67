//! Hosts, and how long it takes to simulate one under each policy.

use std::time::Duration;

use ballast_model::{Bytes, PAGE_SIZE, PolicyName};
use ballast_sim::{Scenario, Simulation, named};

use super::super::timing::{RunTime, timed};
use super::crowd::crowd;

/// A host to simulate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setup {
    /// Its name.
    pub(super) name: &'static str,
    pub(super) guests: u64,
    /// Granularity of guests' memory.
    pub(super) block: Bytes,
    /// Virtual time of a run.
    pub(super) duration: Duration,
    /// The greatest number of runs worth their time.
    pub(super) repetitions_max: usize,
    /// The goal as a multiple of real time, if there is one.
    pub(super) times_min: Option<f64>,
}

impl Setup {
    /// The host of the goal.
    const SIXTEEN: Self = Self {
        name: "16 guests, blocks of 1 MiB",
        guests: 16,
        block: Scenario::BLOCK_DEFAULT,
        duration: Duration::from_secs(60),
        repetitions_max: usize::MAX,
        times_min: Some(1000.0),
    };
    /// The same host with blocks of one page: the rival.
    const PAGES: Self = Self {
        name: "16 guests, to the page",
        block: Bytes::new(PAGE_SIZE),
        repetitions_max: 1,
        times_min: None,
        ..Self::SIXTEEN
    };
    /// All hosts that are measured.
    pub(super) const ALL: [Self; 3] = [
        Self::SIXTEEN,
        Self::PAGES,
        Self {
            name: "1,000 guests, blocks of 1 MiB",
            guests: 1000,
            repetitions_max: 3,
            times_min: None,
            ..Self::SIXTEEN
        },
    ];
    /// The same hosts in small.
    pub(super) const QUICK: [Self; 3] = [
        Self { name: "4 guests, blocks of 1 MiB", guests: 4, ..Self::small(Self::ALL[0]) },
        Self { name: "4 guests, to the page", guests: 4, ..Self::small(Self::ALL[1]) },
        Self { name: "50 guests, blocks of 1 MiB", guests: 50, ..Self::small(Self::ALL[2]) },
    ];

    const fn small(setup: Self) -> Self {
        Self { duration: Duration::from_secs(4), ..setup }
    }

    /// Whether `other` is the same host, and this one has blocks of one page.
    pub(super) fn is_pages_of(&self, other: &Self) -> bool {
        let same = (self.guests, self.duration) == (other.guests, other.duration);
        same && self.block < other.block
    }
}

/// Simulates a host under each policy in turn, `repetitions` times; returns the times of each
/// policy.
///
/// # Errors
/// The host cannot be simulated.
pub(super) fn measure(
    setup: &Setup,
    policies: &[PolicyName],
    repetitions: usize,
    mut progress: impl FnMut(usize, PolicyName),
) -> anyhow::Result<Vec<Vec<RunTime>>> {
    let scenario = crowd(setup.guests, setup.duration, setup.block)?;
    let mut runs = vec![Vec::with_capacity(repetitions); policies.len()];
    for repetition in 0..repetitions {
        for (&policy, runs) in policies.iter().zip(&mut runs) {
            progress(repetition, policy);
            let (report, taken) = timed(|| {
                let mut simulation = Simulation::new(&scenario, named(&scenario, policy))?;
                while simulation.step() {}
                anyhow::Ok(simulation.report())
            });
            anyhow::ensure!(report?.work > 0, "{}, {policy}: nothing was done", setup.name);
            runs.push(taken);
        }
    }
    Ok(runs)
}
