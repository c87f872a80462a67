//! A simulation as a table for a terminal.

use std::time::Duration;

use super::paper::PaperFigure;
use super::paper_comparison::{PaperComparison, compare_with_papers, shown};
use ballast_report::Report as Columns;
use ballast_report::figures::{self, or_none};
use ballast_sim::{ComparisonReport, PolicyReport};

/// The meaning of each column but the first, by its name.
pub const MEANINGS: [(&str, &str); 8] = [
    ("work", "page touches done against those with unlimited memory, mean over guests"),
    ("to static", "work against that under static, geometric mean over guests"),
    ("faults", "faults that waited for a disk"),
    ("swap-in", "memory read back from swap"),
    ("moved", "memory moved by balloons, both ways"),
    ("fair", "Jain's index of work ratios by shares: 1 where all are alike"),
    ("converges", "from the last change of demand until targets stay"),
    ("turns/h", "times a guest's target turned in an hour after that, mean over guests"),
];

/// The columns of the comparison, in the order of [`MEANINGS`].
pub fn columns() -> Columns<'static, PolicyReport> {
    Columns::<PolicyReport>::new()
        .text("policy", |it| it.policy.to_string())
        .figure("work", |it| or_none(it.work_ratio.map(|ratio| format!("{:.1} %", ratio * 100.0))))
        .figure("to static", |it| or_none(it.speedup_vs_static.map(figures::times)))
        .figure("faults", |it| figures::count(it.major_faults as f64))
        .figure("swap-in", |it| figures::size(it.swap_in.get() as f64))
        .figure("moved", |it| figures::size(it.moved.get() as f64))
        .figure("fair", |it| or_none(it.jain.map(|jain| format!("{jain:.3}"))))
        .figure("converges", |it| {
            or_none(it.converge.map(|time| format!("{:.0} s", time.as_secs_f64())))
        })
        .figure("turns/h", |it| format!("{:.1}", it.reversals_per_h))
}

/// The columns of the paper's figures beside ours.
pub fn paper_columns<'a>() -> Columns<'a, PaperComparison<'a>> {
    Columns::<PaperComparison<'a>>::new()
        .text("what", |it| it.paper.what.clone())
        .text("guest", |it| it.paper.guest_name().to_owned())
        .text("policy", |it| it.paper.policy.clone())
        .figure("paper", |it| shown(it.paper.metric, Some(it.paper.value)))
        .figure("simulated", |it| shown(it.paper.metric, it.simulated))
        .figure("source", |it| it.paper.source.clone())
}

/// The report, with the meaning of its columns, and a paper's figures beside ours.
pub fn render(report: &ComparisonReport, papers: &[PaperFigure]) -> String {
    let guests = report.policies.first().map_or(0, |policy| policy.guests.len());
    let mut out = format!(
        "{}: {guests} guests share {} for {} (simulated)\n\n",
        report.scenario,
        report.budget,
        humantime::format_duration(Duration::from_secs(report.duration.as_secs())),
    );
    out.push_str(&columns().in_capitals().table(&report.policies, None));
    out.push('\n');
    for (name, meaning) in MEANINGS {
        out.push_str(&format!("  {name:<10} {meaning}\n"));
    }
    for policy in report.policies.iter().filter(|policy| policy.violations > 0) {
        out.push_str(&format!(
            "warning: under {} guests held more than the budget in {} ticks\n",
            policy.policy, policy.violations
        ));
    }
    if !papers.is_empty() {
        out.push_str(
            "\nThe paper's figures, measured on its own machines, beside ours, simulated:\n\n",
        );
        out.push_str(
            &paper_columns().in_capitals().table(compare_with_papers(papers, report), None),
        );
    }
    out
}
