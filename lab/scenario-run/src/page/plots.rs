//! The plots of one guest, policies side by side.

use maud::{Markup, PreEscaped, html};

use super::super::plot::{self, FRAME};
use super::super::record::{GuestInfo, GuestRun, Record};
use super::super::series::{Panel, Series};

/// A guest's runs, one for each policy: the policy and what was measured.
type GuestRuns<'a> = Vec<(&'a str, &'a GuestRun)>;

/// The section of one guest.
///
/// # Errors
/// A plot cannot be drawn.
pub(super) fn plots_of(
    record: &Record,
    guest: &GuestInfo,
    repetition: u32,
) -> anyhow::Result<Markup> {
    let of_policy = |policy: &'_ String| {
        let mut runs = record.runs.iter();
        runs.find(|run| run.policy == *policy && run.repetition == repetition)?.guest(&guest.guest)
    };
    let policies = record.scenario.policies.iter();
    let runs: GuestRuns<'_> =
        policies.filter_map(|policy| Some((policy.as_str(), of_policy(policy)?))).collect();
    let mut panels = Vec::new();
    let mut flat = Vec::new();
    for panel in Panel::ALL {
        match greatest(record, panel, &runs) {
            Some(greatest) => panels.push(draw_panel(record, panel, &runs, greatest)?),
            None => flat.extend(flat_name(panel, guest)),
        }
    }
    let work = match guest.workloads.as_slice() {
        [] => "idle".to_owned(),
        workloads => workloads.join("; "),
    };
    Ok(html! {
        section.guest {
            h2 { "Guest " (guest.guest) span.does { (work) } }
            @if record.scenario.repetitions > 1 {
                p.small { "Repetition " (repetition) ", the nearest to the median." }
            }
            div.policies style=(format!("--policies:{}", runs.len())) {
                @for (policy, _) in &runs { h3 { (policy) } }
                @for row in panels { @for plot in row { (plot) } }
            }
            @if !flat.is_empty() {
                p.small { "Not drawn, because there was none under any policy: " (flat.join(", ")) "." }
            }
        }
    })
}

/// The name of a panel without values, for the list of what is not drawn; `None`: it is not listed
/// (memory, and the work of an idle guest).
fn flat_name(panel: Panel, guest: &GuestInfo) -> Option<&'static str> {
    match panel {
        Panel::Swap => Some("swap"),
        Panel::Faults => Some("major faults"),
        Panel::Throughput if !guest.workloads.is_empty() => Some("page touches"),
        _ => None,
    }
}

/// The greatest value under any policy; `None`: every value is zero.
fn greatest(record: &Record, panel: Panel, runs: &GuestRuns<'_>) -> Option<f64> {
    let of_guest = |guest: &GuestRun| {
        let series = panel.series(guest);
        let values = series.iter().flat_map(|series| series.points.iter().map(|(_, value)| *value));
        values.fold(0.0, f64::max)
    };
    let greatest = match panel {
        // All guests share the host's memory, so their memory plots share one axis.
        Panel::Memory => {
            record.runs.iter().flat_map(|run| &run.guests).map(of_guest).fold(0.0, f64::max)
        }
        _ => runs.iter().map(|(_, guest)| of_guest(guest)).fold(0.0, f64::max),
    };
    (greatest > 0.0).then_some(greatest)
}

/// One row of plots: a panel under every policy.
fn draw_panel(
    record: &Record,
    panel: Panel,
    runs: &GuestRuns<'_>,
    greatest: f64,
) -> anyhow::Result<Vec<Markup>> {
    let x_end = record.scenario.duration_s;
    let draw = |(_, guest): &(&str, &GuestRun)| {
        let series = panel.series(guest);
        let svg = plot::chart(panel, &series, x_end, greatest).svg()?;
        Ok(figure(panel, &series, x_end, &svg))
    };
    runs.iter().map(draw).collect()
}

fn figure(panel: Panel, series: &[Series], x_end: f64, svg: &str) -> Markup {
    let part = |units| FRAME.percent_of_width(units);
    html! {
        figure.plot data-left=(part(FRAME.left)) data-right=(part(FRAME.right)) data-span=(x_end)
            data-unit=(panel.unit()) {
            figcaption {
                (panel.title())
                span.keys { @for one in series {
                    @let [class, name] = one.kind.words();
                    span.entry data-points=(points(one)) {
                        span class=(format!("key {class}")) {}
                        (name)
                        output {}
                    }
                } }
            }
            div.canvas { (PreEscaped(svg)) div.cursor {} }
        }
    }
}

/// The points as the script reads them: `seconds,value` pairs separated by spaces.
fn points(series: &Series) -> String {
    let pair = |(at, value): &(f64, f64)| format!("{at:.1},{value:.0}");
    series.points.iter().map(pair).collect::<Vec<_>>().join(" ")
}
