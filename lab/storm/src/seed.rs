//! One seed: its run, and where its offenders lied the run of its honest twin.

use crate::drawn::Drawn;
use crate::fault::Injected;
use crate::run::Storm;
use crate::sabotage::Sabotage;
use crate::strike::Strike;
use crate::twin;
use crate::violation::Violation;

/// What one seed came to.
#[derive(Clone, Debug)]
pub struct SeedReport {
    /// The faults that struck.
    pub injected: Injected,
    /// Ticks of the engine.
    pub ticks: u64,
    /// The promise that was broken first, and at which tick; `None`: all held.
    pub violation: Option<(u64, Violation)>,
}

/// Runs one seed. With a `sabotage` it should find a violation.
pub fn run_seed(seed: u64, sabotage: Option<Sabotage>) -> SeedReport {
    let mut report = SeedReport { injected: Injected::default(), ticks: 0, violation: None };
    for drawn in Drawn::all_of(seed) {
        let judged = judge(&drawn, &drawn.strikes, sabotage);
        report.injected.add(&judged.injected);
        report.ticks += judged.ticks;
        report.violation = report.violation.or(judged.violation);
    }
    report
}

/// What some strikes came to.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) injected: Injected,
    /// The strikes that found somebody to strike.
    pub(crate) struck: Vec<Strike>,
    pub(crate) ticks: u64,
    pub(crate) violation: Option<(u64, Violation)>,
}

/// Runs `strikes` and, if any of them is a lie, the same without lies.
pub(crate) fn judge(drawn: &Drawn, strikes: &[Strike], sabotage: Option<Sabotage>) -> Judged {
    let mut storm = Storm::new(drawn, strikes, sabotage);
    let violation = storm.run().err().map(|found| (storm.ticks, found));
    let mut judged =
        Judged { injected: storm.injected, struck: storm.struck, ticks: storm.ticks, violation };
    if judged.violation.is_some() || !judged.struck.iter().any(twin::is_lie) {
        return judged;
    }
    let honest_strikes: Vec<Strike> = strikes.iter().filter_map(twin::honest).collect();
    let honest = Storm::new(drawn, &honest_strikes, sabotage);
    let mut honest = honest.paced_by(&storm.moments);
    judged.violation = match honest.run() {
        Err(found) => Some((honest.ticks, found)),
        Ok(()) => twin::compare(drawn, &judged.struck, &storm.kept, &honest.kept)
            .err()
            .map(|found| (judged.ticks, found)),
    };
    judged.ticks += honest.ticks;
    judged
}
