//! The comparison as one page.
//!
//! Idea: everything is in the page itself (style, plots, figures), so that it can be kept, mailed
//! and printed, and opened in ten years. The plots of a guest share their axes, so that policies
//! can be compared by eye. A short script shows the values under the pointer; the page is complete
//! without it.
//! Limits: of several repetitions one is drawn, the one nearest to the median.

mod plots;

use ballast_chart::page;
use maud::{Markup, html};

use self::plots::plots_of;
use super::calibration::Calibration;
use super::compare::{Comparison, Figure, Ratio, Row};
use super::figures::{self, size};
use super::fleet_findings::expectations;
use super::record::{GuestInfo, GuestRun, Record};
use super::series::Kind;
use super::{calibration_table, fleet_table, moves_table, paper, transfer_table, words};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of `record`; `raw_data` names the files beside it.
///
/// # Errors
/// A plot cannot be drawn.
pub fn render(
    record: &Record,
    comparison: &Comparison,
    calibration: Option<&Calibration>,
    raw_data: &[String],
) -> anyhow::Result<String> {
    let name = &record.scenario.name;
    let title = format!("{name}: {}", comparison.policies.join(" and "));
    let repetition = drawn_repetition(record);
    let mut plots = Vec::new();
    for guest in &record.scenario.guests {
        plots.push(plots_of(record, guest, repetition)?);
    }
    let body = html! {
        header {
            p.over { "Ballast · measured on real guests" }
            h1 { (title) }
            @for sentence in words::outcome(record, comparison) { p.outcome { (sentence) } }
        }
        (cards(record, comparison))
        section {
            h2 { "Comparison" }
            (table(comparison))
            p.small {
                "Ratios are to " (comparison.policies.first().map_or("", String::as_str))
                @if comparison.repetitions > 1 {
                    ", taken within each repetition; figures are medians, with the least and \
                     the greatest in brackets"
                }
                ". Passes count how often a workload went through all of its memory. Memory is \
                 the allocation, mean over time and at the end."
            }
            @if !comparison.remarks.is_empty() {
                ul.remarks { @for remark in &comparison.remarks { li { (remark) } } }
            }
        }
        @if record.scenario.fleet.is_some() { (fleet(record)) }
        (moved(record))
        @if let Some((above, below)) = transfer_table::words(record) {
            (transferred(record, &above, &below))
        }
        @if !record.scenario.paper.is_empty() { (paper_section(record, comparison)) }
        @for plots in plots { (plots) }
        @if let Some(calibration) = calibration { (simulated(calibration, comparison)) }
        (how_to_read())
        (what_was_run(record, raw_data))
    };
    Ok(page::document(&title, STYLE, SCRIPT, &body))
}

/// The fleet's moves, and the results of its expectations.
fn fleet(record: &Record) -> Markup {
    html! {
        section {
            h2 { "Moves between hosts" }
            (page::table(&fleet_table::report(record), fleet_table::rows(record)))
            @for sentence in fleet_table::words(record) { p { (sentence) } }
            h2 { "Expectations" }
            (page::table(&fleet_table::findings(), expectations(record)))
        }
    }
}

/// Memory moved, by mechanism, and the reasons.
fn moved(record: &Record) -> Markup {
    let rows = moves_table::rows(record);
    html! {
        section {
            h2 { "What was moved" }
            @if rows.is_empty() { p { "No memory was moved." } } @else {
                (page::table(&moves_table::report(record), rows))
            }
        }
    }
}

/// The time that a transfer from guest to guest took.
fn transferred(record: &Record, above: &str, below: &str) -> Markup {
    html! {
        section {
            h2 { "From guest to guest" }
            p { (above) }
            (page::table(&transfer_table::report(record), transfer_table::rows(record)))
            p.small { (below) }
        }
    }
}

/// A paper's figures and ours.
fn paper_section(record: &Record, comparison: &Comparison) -> Markup {
    html! {
        section {
            h2 { "Beside the paper" }
            p { "The paper measured guests of its time on a machine of its time, most of them larger." }
            (page::table(&paper::report(comparison), &record.scenario.paper))
        }
    }
}

/// The simulated figures and those of the real guests.
fn simulated(calibration: &Calibration, comparison: &Comparison) -> Markup {
    let first = comparison.policies.first().map_or("", String::as_str);
    html! {
        section {
            h2 { "The same in the simulator" }
            p.small {
                "Simulated on the machine that the scenario's file describes, and at the speeds of these \
                 runs, in which " (calibration_table::speeds(calibration.speeds)) "."
            }
            (page::table(&calibration_table::report(), calibration_table::rows(calibration, first)))
        }
    }
}

/// The repetition whose gain is nearest to the median.
fn drawn_repetition(record: &Record) -> u32 {
    let work = |policy: Option<&String>, repetition: u32| {
        let mut runs = record.runs.iter();
        let run = runs.find(|run| Some(&run.policy) == policy && run.repetition == repetition)?;
        Some(run.guests.iter().filter_map(GuestRun::touches).sum::<u64>())
    };
    let policies = &record.scenario.policies;
    let best = record.scenario.best.as_ref();
    let mut gains: Vec<(u32, f64)> = (1..=record.scenario.repetitions)
        .filter_map(|repetition| {
            let first = work(policies.first(), repetition)?;
            let last = work(policies.iter().rfind(|name| Some(*name) != best), repetition)?;
            Some((repetition, last as f64 / first.max(1) as f64))
        })
        .collect();
    gains.sort_by(|a, b| a.1.total_cmp(&b.1));
    gains.get(gains.len().saturating_sub(1) / 2).map_or(1, |(repetition, _)| *repetition)
}

/// The most important figures, at the top of the page.
fn cards(record: &Record, comparison: &Comparison) -> Markup {
    let total = |figure, policy: &str| {
        let value = comparison.row(None, policy)?.cell(figure)?.value?;
        Some(value.median)
    };
    let Some(first) = comparison.policies.first() else { return html! {} };
    html! {
        @for gain in &comparison.gains {
            div.cards {
                @if let Ratio::Times(work) = gain.work {
                    div.card.main {
                        span.figure { (figures::times(work.median)) }
                        span.what { "work done under " (gain.policy) ", against " (first) }
                    }
                }
                @if let Some(same) = gain.same_work_s {
                    div.card {
                        span.figure { (format!("{:.0} s", same.median)) }
                        span.what {
                            "until " (gain.policy) " had done the work of " (first) "'s "
                            (format!("{:.0} s", record.scenario.duration_s))
                        }
                    }
                }
                @for (figure, what) in [
                    (Figure::MajorFaults, "faults that waited for a disk"),
                    (Figure::SwapIn, "read back from swap"),
                ] {
                    @if let (Some(a), Some(b)) = (total(figure, first), total(figure, &gain.policy)) {
                        div.card {
                            span.figure { (short(figure, a)) " → " (short(figure, b)) }
                            span.what { (what) ", " (first) " → " (gain.policy) }
                        }
                    }
                }
            }
        }
    }
}

fn short(figure: Figure, n: f64) -> String {
    if figure == Figure::SwapIn { size(n) } else { figures::count(n) }
}

fn table(comparison: &Comparison) -> Markup {
    let most = |row: &Row| row.cell(Figure::Touches)?.value.map(|value| value.median);
    let greatest = comparison.rows.iter().filter_map(most).fold(0.0, f64::max);
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        th { "guest" }
                        th { "policy" }
                        @for figure in &comparison.figures { th.number { (figure.name()) } }
                    }
                }
                @for rows in comparison.rows.chunks(comparison.policies.len().max(1)) {
                    tbody { @for (number, row) in rows.iter().enumerate() {
                        (table_row(comparison, row, number == 0, most(row).zip(Some(greatest))))
                    } }
                }
            }
        }
    }
}

fn table_row(
    comparison: &Comparison,
    row: &Row,
    begins_guest: bool,
    work: Option<(f64, f64)>,
) -> Markup {
    let part = work.map_or(0.0, |(done, most)| 100.0 * done / most.max(1.0));
    html! {
        tr {
            @if begins_guest {
                th.guest rowspan=(comparison.policies.len()) {
                    (row.guest.as_deref().unwrap_or("all"))
                }
            }
            td.policy { (row.policy) }
            @for cell in &row.cells {
                td.number {
                    (figures::value(cell.figure, cell.value))
                    @if !begins_guest { span.ratio { (figures::ratio(cell.ratio)) } }
                    @if cell.figure == Figure::Touches && cell.value.is_some() {
                        span.bar style=(format!("width:{part:.1}%")) {}
                    }
                }
            }
        }
    }
}

fn how_to_read() -> Markup {
    let legend = [
        (Kind::Allocation, "memory the guest holds: what it booted with less its balloon."),
        (
            Kind::Target,
            "what the daemon asked its balloon for. The allocation follows as fast as the \
                    guest gives or takes.",
        ),
        (
            Kind::Used,
            "the daemon's estimate of what the guest uses: allocation less available memory.",
        ),
        (
            Kind::Wanted,
            "the size the workload's schedule calls for, without the guest's own kernel. Where \
                    it rises above the allocation, memory does not suffice and the guest swaps.",
        ),
        (Kind::Swap, "memory the guest has in its swap."),
        (
            Kind::Throughput,
            "work: pages touched. A guest that waits for its swap disk touches few.",
        ),
        (Kind::Faults, "faults that waited for the disk, of the whole guest."),
    ];
    html! {
        section.explain {
            h2 { "How to read this" }
            p {
                "Every policy had the same guests, disks, workloads and time; between the policies \
                 everything was restarted. The daemon ran in all of them, so that its cost is in all \
                 of them: under static it leaves every guest its share. Plots of one guest have the \
                 same axes for every policy."
            }
            dl.legend {
                @for (kind, text) in legend {
                    @let [class, name] = kind.words();
                    dt { span class=(format!("key {class}")) {} (name) }
                    dd { (text) }
                }
            }
        }
    }
}

fn what_was_run(record: &Record, raw_data: &[String]) -> Markup {
    let (scenario, machine) = (&record.scenario, &record.machine);
    let unknown = || "not known".to_owned();
    let cores = machine.cores.map_or(String::new(), |cores| format!(", {cores} cores"));
    let memory =
        machine.memory_bytes.map_or(String::new(), |bytes| format!(", {}", size(bytes as f64)));
    let facts = [
        ("scenario", format!("{}: {}", scenario.name, words::setting(record))),
        ("date", record.started_at.clone()),
        ("processor", machine.cpu.clone().unwrap_or_else(unknown) + &cores + &memory),
        ("host kernel", machine.kernel.clone().unwrap_or_else(unknown)),
        ("guest kernel", machine.guest_kernel.clone().unwrap_or_else(unknown)),
        ("QEMU", machine.qemu.clone().unwrap_or_else(unknown)),
        ("accelerator", accelerator(&machine.accelerator)),
        (
            "Ballast",
            match &machine.commit {
                Some(commit) => format!("{}, commit {commit}", machine.ballast),
                None => machine.ballast.clone(),
            },
        ),
    ];
    html! {
        section.facts {
            h2 { "What was run" }
            @if !scenario.description.is_empty() { p { (scenario.description) } }
            dl {
                @for (name, text) in facts { dt { (name) } dd { (text) } }
                @for guest in &scenario.guests {
                    dt { "guest " (guest.guest) }
                    dd { (guest_in_words(guest)) }
                }
                @if !raw_data.is_empty() {
                    dt { "raw data" }
                    dd {
                        "beside this page: "
                        @for (number, file) in raw_data.iter().enumerate() {
                            @if number > 0 { ", " }
                            code { (file) }
                        }
                    }
                }
            }
        }
    }
}

fn accelerator(name: &str) -> String {
    match name {
        "tcg" => "tcg: guests are emulated, so absolute speeds are far below those of hardware \
                  virtualization; ratios are what counts"
            .to_owned(),
        other => other.to_owned(),
    }
}

fn guest_in_words(guest: &GuestInfo) -> String {
    let memory = |bytes: u64| size(bytes as f64);
    let swap = guest.swap.as_ref().map_or("no swap".to_owned(), |swap| format!("swap {swap}"));
    let work = match guest.workloads.as_slice() {
        [] => "idle".to_owned(),
        workloads => workloads.join("; "),
    };
    format!(
        "boots with {}, starts at {}, {swap}; {work}",
        memory(guest.boot_bytes),
        memory(guest.start_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn page() -> String {
        let record = fixture::record(&[("static", &[100]), ("global", &[250])]);
        let raw_data = ["demo-report.json".to_owned()];
        render(&record, &Comparison::new(&record), None, &raw_data).unwrap()
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = page();
        for mark in ["http:", "https:", "//", "@import", "url(", "src=", "<link"] {
            assert!(!page.contains(mark), "{mark} in the page");
        }
    }

    #[test]
    fn the_page_shows_every_policy_guest_and_series() {
        let page = page();
        for text in [
            "static and global",
            "2.50×",
            "guest a did 2.50×",
            "Example &lt;CPU&gt; &amp; Co",
            "2026-01-02T03:04:05Z",
            "demo-report.json",
            "color-scheme",
        ] {
            assert!(page.contains(text), "{text} is missing");
        }
        // Four panels of `a` and one of `b`, which neither works nor swaps, under two policies.
        assert_eq!(page.matches("<svg").count(), 2 * (4 + 1));
        assert_eq!(page.matches("</svg>").count(), 2 * (4 + 1));
    }

    #[test]
    fn the_page_shows_moves_and_expectations_of_a_fleet() {
        let record = fixture::fleet();
        let page = render(&record, &Comparison::new(&record), None, &[]).unwrap();
        for text in ["Moves between hosts", "with moves one guest leaves host x", "y led after"] {
            assert!(page.contains(text), "{text} is missing");
        }
    }

    #[test]
    fn the_repetition_nearest_to_the_median_is_drawn() {
        let record = fixture::record(&[("static", &[10, 10, 10]), ("global", &[90, 20, 40])]);
        assert_eq!(drawn_repetition(&record), 3);
    }
}
