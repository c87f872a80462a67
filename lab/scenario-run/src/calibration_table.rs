//! Real and simulated figures as a table: its cells, for the terminal and the page.
//!
//! Idea: one line for each figure: the measured value, the value simulated on the machine of the
//! file, the value simulated at the measured speeds, and the ratio of both to the measured one.

use super::calibration::{Calibration, CalibrationFigure, GainCompared, Speeds};
use super::compare::Figure;
use super::figures::{self, or_none, times};
use ballast_report::Report;

/// One line: a gain in work, or a figure of a guest.
pub(super) struct CalibrationRow {
    guest: String,
    policy: String,
    name: String,
    /// `None`: the line is a work ratio.
    figure: Option<Figure>,
    real: Option<f64>,
    simulated: Option<f64>,
    at_speeds: Option<f64>,
}

/// The lines: first the work ratios against the policy `first`, then the figures.
pub(super) fn rows(calibration: &Calibration, first: &str) -> Vec<CalibrationRow> {
    let of_gain = |it: &GainCompared| CalibrationRow {
        guest: "all".to_owned(),
        policy: it.policy.clone(),
        name: format!("work, to {first}"),
        figure: None,
        real: it.real,
        simulated: it.simulated,
        at_speeds: it.simulated_at_speeds,
    };
    let of_figure = |it: &CalibrationFigure| CalibrationRow {
        guest: it.guest.clone().unwrap_or_else(|| "all".to_owned()),
        policy: it.policy.clone(),
        name: it.figure.name().to_owned(),
        figure: Some(it.figure),
        real: it.real,
        simulated: Some(it.simulated),
        at_speeds: Some(it.simulated_at_speeds),
    };
    let gains = calibration.gains.iter().map(of_gain);
    gains.chain(calibration.figures.iter().map(of_figure)).collect()
}

/// The columns.
pub(super) fn report() -> Report<'static, CalibrationRow> {
    Report::<CalibrationRow>::new()
        .text("guest", |it| it.guest.clone())
        .text("policy", |it| it.policy.clone())
        .text("figure", |it| it.name.clone())
        .figure("real", |it| it.shown(it.real))
        .figure("simulated", |it| it.shown(it.simulated))
        .figure("to real", |it| it.to_real(it.simulated))
        .figure("at these speeds", |it| it.shown(it.at_speeds))
        .figure("to real", |it| it.to_real(it.at_speeds))
}

impl CalibrationRow {
    fn shown(&self, value: Option<f64>) -> String {
        or_none(value.map(|value| match self.figure {
            None => times(value),
            Some(figure) => figures::one_value(figure, value),
        }))
    }

    fn to_real(&self, value: Option<f64>) -> String {
        or_none(value.zip(self.real).map(|(value, real)| ratio(value, real)))
    }
}

fn ratio(value: f64, real: f64) -> String {
    match (value, real) {
        (0.0, 0.0) => "both 0".to_owned(),
        (_, 0.0) => "from 0".to_owned(),
        _ => times(value / real),
    }
}

/// The speeds in words.
pub(super) fn speeds(speeds: Speeds) -> String {
    let time = |s: Option<f64>| match s {
        None => "an unknown time".to_owned(),
        Some(s) if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        Some(s) => format!("{:.2} ms", s * 1e3),
    };
    format!(
        "a touch took {}, filling a page {}, giving one back {}, a request of the swap disk {}",
        time(speeds.touch_s),
        time(speeds.fill_s),
        time(speeds.give_back_s),
        time(speeds.swap_request_s)
    )
}

/// For a terminal.
pub(super) fn render(calibration: &Calibration, first: &str) -> String {
    let table = report().in_capitals().table(rows(calibration, first), None);
    format!(
        "The same in the simulator: on the machine that the file describes, and at the speeds of \
         these runs, in which\n{}.\n\n{table}",
        speeds(calibration.speeds)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn real_and_simulated_stand_side_by_side() {
        let compared = |policy: &str, figure, real, simulated| CalibrationFigure {
            guest: Some("a".to_owned()),
            policy: policy.to_owned(),
            figure,
            real,
            simulated,
            simulated_at_speeds: simulated / 2.0,
        };
        let calibration = Calibration {
            speeds: Speeds {
                touch_s: Some(4e-7),
                fill_s: None,
                give_back_s: Some(1.5e-4),
                swap_request_s: Some(0.0034),
            },
            gains: vec![GainCompared {
                policy: "global".to_owned(),
                real: Some(9.0),
                simulated: Some(3.0),
                simulated_at_speeds: None,
            }],
            figures: vec![
                compared("static", Figure::Touches, Some(11_400_000.0), 28_000_000.0),
                compared("global", Figure::MajorFaults, Some(0.0), 0.0),
                compared("global", Figure::SwapIn, Some(0.0), 4096.0),
                compared("global", Figure::AllocationMean, None, 734_003_200.0),
            ],
        };
        expect![[r#"
            The same in the simulator: on the machine that the file describes, and at the speeds of these runs, in which
            a touch took 0.40 µs, filling a page an unknown time, giving one back 150.00 µs, a request of the swap disk 3.40 ms.

            GUEST  POLICY  FIGURE             REAL  SIMULATED  TO REAL  AT THESE SPEEDS  TO REAL
            all    global  work, to static   9.00×      3.00×    0.33×                –        –
            a      static  page touches     11.4 M     28.0 M    2.46×           14.0 M    1.23×
            a      global  major faults          0          0   both 0                0   both 0
            a      global  swap-in              0B       4KiB   from 0             2KiB   from 0
            a      global  memory, mean          –     700MiB        –           350MiB        –
        "#]]
        .assert_eq(&render(&calibration, "static"));
    }
}
