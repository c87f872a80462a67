//! A simulation as a table for a terminal.

use std::time::Duration;

use ballast_sim::{PolicyReport, Report};
use comfy_table::{Cell, CellAlignment, Table, presets};

use super::beside::{beside, shown};
use super::paper::PaperFigure;
use crate::figures;

/// What is in the columns, for the table and the page.
pub(crate) const COLUMNS: [(&str, &str); 9] = [
    ("policy", "who decided"),
    ("work", "page touches done against those with unlimited memory, mean over guests"),
    ("to static", "work against that under static, geometric mean over guests"),
    ("faults", "faults that waited for a disk"),
    ("swap-in", "memory read back from swap"),
    ("moved", "memory moved by balloons, both ways"),
    ("fair", "Jain's index of work ratios by shares: 1 where all are alike"),
    ("converges", "from the last change of demand until targets stay"),
    ("turns/h", "times a guest's target turned in an hour after that, mean over guests"),
];

/// One policy's cells, in step with [`COLUMNS`].
pub(crate) fn row(report: &PolicyReport) -> [String; 9] {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| figures::NONE.to_owned());
    [
        report.policy.to_string(),
        or_none(report.work_ratio.map(|ratio| format!("{:.1} %", ratio * 100.0))),
        or_none(report.speedup_vs_static.map(figures::times)),
        figures::count(report.major_faults as f64),
        figures::size(report.swap_in.get() as f64),
        figures::size(report.moved.get() as f64),
        or_none(report.jain.map(|jain| format!("{jain:.3}"))),
        or_none(report.converge.map(|time| format!("{:.0} s", time.as_secs_f64()))),
        format!("{:.1}", report.reversals_per_h),
    ]
}

/// The report, with what its columns mean and a paper's figures beside ours.
pub(crate) fn render(report: &Report, papers: &[PaperFigure]) -> String {
    let guests = report.policies.first().map_or(0, |policy| policy.guests.len());
    let mut out = format!(
        "{}: {guests} guests share {} for {} (simulated)\n\n",
        report.scenario,
        report.budget,
        humantime::format_duration(Duration::from_secs(report.duration.as_secs())),
    );
    let rows = report.policies.iter().map(|policy| row(policy).to_vec());
    let heads = COLUMNS.map(|(name, _)| name.to_uppercase());
    out.push_str(&table(heads.to_vec(), rows, 1));
    out.push('\n');
    for (name, meaning) in &COLUMNS[1..] {
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
        let rows = beside(papers, report).into_iter().map(|it| {
            let metric = it.paper.metric;
            vec![
                it.paper.what.clone(),
                it.paper.guest.as_ref().map(ToString::to_string).unwrap_or_default(),
                it.paper.policy.clone(),
                shown(metric, Some(it.paper.value)),
                shown(metric, it.simulated),
                it.paper.source.clone(),
            ]
        });
        let heads = ["WHAT", "GUEST", "POLICY", "PAPER", "SIMULATED", "SOURCE"].map(str::to_owned);
        out.push_str(&table(heads.to_vec(), rows, 3));
    }
    out
}

/// Columns from `first_right` on are set to the right.
fn table(
    heads: Vec<String>,
    rows: impl Iterator<Item = Vec<String>>,
    first_right: usize,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let cells = |texts: Vec<String>| -> Vec<Cell> {
        let align = |(column, text)| {
            let right = column >= first_right;
            let side = if right { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(text).set_alignment(side)
        };
        texts.into_iter().enumerate().map(align).collect()
    };
    table.set_header(cells(heads));
    for texts in rows {
        table.add_row(cells(texts));
    }
    for column in table.column_iter_mut().take(1) {
        column.set_padding((0, 1));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
