//! One seed: its run, and the run without lies if its offenders lied.

use crate::drawn::Drawn;
use crate::fault::Injected;
use crate::run::Storm;
use crate::sabotage::Sabotage;
use crate::strike::Strike;
use crate::twin;
use crate::violation::Violation;

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct SeedReport {
    /// The faults that struck.
    pub injected: Injected,
    /// Ticks of the engine.
    pub ticks: u64,
    /// The first promise that was broken, and the tick in which it was; `None`: all held.
    pub violation: Option<(u64, Violation)>,
}

/// Runs one seed. With a `sabotage` it should find a violation.
pub fn run_seed(seed: u64, sabotage: Option<Sabotage>) -> SeedReport {
    let mut report = SeedReport { injected: Injected::default(), ticks: 0, violation: None };
    let can_show = |drawn: &Drawn| sabotage.is_none_or(|it| it.can_show_in(drawn));
    for drawn in Drawn::all_of(seed).into_iter().filter(can_show) {
        let judged = judge(&drawn, &drawn.strikes, sabotage, false);
        report.injected.add(&judged.injected);
        report.ticks += judged.ticks;
        report.violation = report.violation.or(judged.violation);
    }
    report
}

/// The result of a run with some strikes.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) injected: Injected,
    /// The strikes that found a victim.
    pub(crate) struck: Vec<Strike>,
    pub(crate) ticks: u64,
    pub(crate) violation: Option<(u64, Violation)>,
    /// If the run was traced: the judged ticks, and those of the run without lies.
    pub(crate) trace: Vec<String>,
    pub(crate) honest_trace: Vec<String>,
}

/// Runs `strikes` and, if any of them is a lie, the same without lies.
pub(crate) fn judge(
    drawn: &Drawn,
    strikes: &[Strike],
    sabotage: Option<Sabotage>,
    is_traced: bool,
) -> Judged {
    let mut storm = Storm::new(drawn, strikes, sabotage);
    storm.trace.is_kept = is_traced;
    let violation = storm.run().err().map(|found| (storm.ticks, found));
    let Storm { injected, struck, ticks, trace, moments, kept, .. } = storm;
    let mut judged =
        Judged { injected, struck, ticks, violation, trace: Vec::new(), honest_trace: Vec::new() };
    if judged.violation.is_some() || !judged.struck.iter().any(twin::is_lie) {
        return Judged { trace: trace.ticks, ..judged };
    }
    let honest_strikes: Vec<Strike> = strikes.iter().filter_map(twin::honest).collect();
    let mut honest = Storm::new(drawn, &honest_strikes, sabotage).paced_by(&moments);
    honest.trace.is_kept = is_traced;
    match honest.run() {
        Err(found) => {
            judged.violation = Some((honest.ticks, found));
            judged.honest_trace = honest.trace.ticks;
        }
        Ok(()) => {
            let compared = twin::compare(drawn, &judged.struck, &kept, &honest.kept);
            judged.violation = compared.err().map(|found| (ticks, found));
            judged.trace = trace.until_calm();
            judged.honest_trace = honest.trace.until_calm();
        }
    }
    judged.ticks += honest.ticks;
    judged
}
