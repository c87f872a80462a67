//! The figures of advice, and their goal.

use ballast_report::Report;
use ballast_report::format::size;
use serde::Serialize;

use super::measure::AdviceFigures;
use crate::goal::Goal;
use crate::scaffold::{Findings, Text, VERSION};

/// How far advice may be from the effect of balancing, as a part.
pub(super) const OFF_MAX: f64 = 0.1;

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AdviceFindings {
    pub(super) is_quick: bool,
    pub(super) figures: Vec<AdviceFigures>,
}

impl Findings for AdviceFindings {
    const QUICK_REMARK: &'static str =
        "quick hosts are too short for figures to be held against goals";

    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        let goal = |it: &AdviceFigures, what: &str, off: f64| {
            let what = format!("{}, {}: {what}", it.host, it.policy);
            Goal::at_most(what, "% off", off.abs() * 100.0, OFF_MAX * 100.0)
        };
        let goals = |it: &AdviceFigures| {
            let memory = match it.is_bound {
                true => goal(it, "no more memory given back", it.off.min(0.0)),
                false => goal(it, "memory given back", it.off),
            };
            let avoided = it.avoided_off.map(|off| goal(it, "swap-ins avoided", off));
            let caused = it.caused_off.map(|off| goal(it, "swap-ins caused", off));
            [Some(memory), avoided, caused]
        };
        self.figures.iter().flat_map(goals).flatten().collect()
    }

    fn show(&self, text: &mut Text) {
        text.line(format_args!(
            "figures    ballast {VERSION}, simulated: an observed host, its advice, the same balanced"
        ));
        let percent = |off: f64| format!("{:+.1} %", off * 100.0);
        let memory = Report::<AdviceFigures>::new()
            .text("HOST", |it| it.host.clone())
            .text("POLICY", |it| it.policy)
            .figure("HELD", |it| size(it.held_bytes))
            .figure("WOULD HOLD", |it| size(it.imagined_bytes))
            .figure("BALANCED", |it| size(it.balanced_bytes))
            .figure("PROMISED", |it| size(it.promised_bytes))
            .figure("FOUND", |it| size(it.found_bytes))
            .figure("OFF", move |it| percent(it.off))
            .figure("HIDING", |it| it.guests_hiding_need)
            .figure("CONFIDENCE", |it| format!("{} %", it.confidence_percent));
        text.line("\nmemory that could be given back, and that was; means over time");
        text.table(&memory, &self.figures);
        let swap = Report::<AdviceFigures>::new()
            .text("HOST", |it| it.host.clone())
            .text("POLICY", |it| it.policy)
            .figure("READ BACK", |it| size(it.swap_in_bytes))
            .figure("BALANCED", |it| size(it.balanced_swap_in_bytes))
            .figure("AVOIDED?", |it| size(it.promised_avoided_bytes))
            .figure("AVOIDED", |it| size(it.found_avoided_bytes))
            .figure("OFF", move |it| it.avoided_off.map(percent).unwrap_or_default())
            .figure("CAUSED?", |it| it.promised_caused_bytes.map_or("not known".to_owned(), size))
            .figure("CAUSED", |it| size(it.found_caused_bytes))
            .figure("HOST FREE", |it| size(it.host_free_bytes))
            .figure("BALANCED", |it| size(it.balanced_host_free_bytes));
        text.line(
            "\nswap-ins: read back while observed and when balanced; avoided and caused, as promised \
             (?) and as found; and the host's free memory",
        );
        text.table(&swap, &self.figures);
    }
}
