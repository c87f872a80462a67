//! Real and simulated figures as a table: its cells, for the terminal and the page.
//!
//! Idea: one line for each figure, with what was measured, what was simulated on the machine of the
//! file and at the measured speeds, and both against what was measured.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::calibration::{Calibration, Compared, GainCompared, Speeds};
use super::figures::{self, NONE, times};

/// Heads of the columns.
pub(super) const COLUMNS: [&str; 8] =
    ["guest", "policy", "figure", "real", "simulated", "to real", "at these speeds", "to real"];

/// Every line's cells, the gains in work first.
pub(super) fn rows(calibration: &Calibration, first: &str) -> Vec<[String; 8]> {
    let gains = calibration.gains.iter().map(|gain| of_gain(gain, first));
    gains.chain(calibration.figures.iter().map(of_figure)).collect()
}

fn of_gain(gain: &GainCompared, first: &str) -> [String; 8] {
    let shown = |value: Option<f64>| value.map_or(NONE.to_owned(), times);
    let to_real = |value: Option<f64>| match value.zip(gain.real) {
        Some((value, real)) => ratio(value, real),
        None => NONE.to_owned(),
    };
    [
        "all".to_owned(),
        gain.policy.clone(),
        format!("work, to {first}"),
        shown(gain.real),
        shown(gain.simulated),
        to_real(gain.simulated),
        shown(gain.simulated_at_speeds),
        to_real(gain.simulated_at_speeds),
    ]
}

fn of_figure(compared: &Compared) -> [String; 8] {
    let shown = |value: f64| figures::one_value(compared.figure, value);
    let to_real = |value: f64| compared.real.map_or(NONE.to_owned(), |real| ratio(value, real));
    [
        compared.guest.clone().unwrap_or_else(|| "all".to_owned()),
        compared.policy.clone(),
        figures::name(compared.figure).to_owned(),
        compared.real.map_or(NONE.to_owned(), shown),
        shown(compared.simulated),
        to_real(compared.simulated),
        shown(compared.simulated_at_speeds),
        to_real(compared.simulated_at_speeds),
    ]
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
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let cells = |texts: Vec<String>| -> Vec<Cell> {
        let align = |(column, text)| {
            let side = if column < 3 { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(text).set_alignment(side)
        };
        texts.into_iter().enumerate().map(align).collect()
    };
    table.set_header(cells(COLUMNS.iter().map(|name| name.to_uppercase()).collect()));
    for row in rows(calibration, first) {
        table.add_row(cells(row.to_vec()));
    }
    for column in table.column_iter_mut().take(1) {
        column.set_padding((0, 1));
    }
    let lines: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!(
        "The same in the simulator: on the machine that the file describes, and at the speeds of \
         these runs, in which\n{}.\n\n{lines}",
        speeds(calibration.speeds)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::compare::Figure;
    use expect_test::expect;

    #[test]
    fn real_and_simulated_stand_side_by_side() {
        let compared = |policy: &str, figure, real, simulated| Compared {
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
