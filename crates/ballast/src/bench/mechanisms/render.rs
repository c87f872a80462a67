//! The report for people.

use ballast_model::Bytes;
use comfy_table::CellAlignment::{Left, Right};

use super::{Report, assist, exchange, rates};
use crate::bench::goal::figure;
use crate::commands::format;

/// The whole report, tables wrapped to `width` columns if given.
pub(super) fn render(report: &Report, width: Option<u16>) -> String {
    let processor = report.processor.as_deref().unwrap_or("unknown");
    let mut out = format!("processor  {processor}\nfigures    ballast {}\n", report.version);
    if let Some(accel) = report.accel {
        out.push_str(&format!("guests     {accel}\n"));
    }
    if let Some(figures) = &report.rates {
        out.push_str("\nhow fast memory is moved: the median of the runs, and the slowest\n");
        let columns = [
            ("MECHANISM", Left),
            ("RUNS", Right),
            ("MOVED", Right),
            ("MiB/s", Right),
            ("SLOWEST", Right),
        ];
        out.push_str(&format::table(&columns, figures.iter().map(rate), width));
        for why in figures.iter().filter_map(|it| it.not_measured.as_deref()).take(1) {
            out.push_str(&format!("pages were not moved: {why}\n"));
        }
    }
    if let Some(figures) = &report.help {
        let taken = figures.first().map_or(0, |it| it.taken_bytes);
        out.push_str(&format!(
            "\nto inflate a balloon by {} in a guest that is full: medians\n",
            format::size(taken)
        ));
        let columns = [
            ("FULL OF", Left),
            ("HELP BEFORE", Left),
            ("RUNS", Right),
            ("HELP", Right),
            ("BALLOON", Right),
            ("BOTH", Right),
            ("FROM–TO", Right),
            ("GAIN", Right),
        ];
        out.push_str(&format::table(&columns, figures.iter().map(help), width));
        out.push_str(
            "flexmemd's own driver gained 51.5 % on average; a stock kernel's cannot be changed\n",
        );
    }
    if let Some(figures) = &report.exchange {
        out.push_str("\nwork while memory is moved in and out, against that at rest: medians\n");
        let columns = [
            ("ASKED MiB/s", Right),
            ("MOVED MiB/s", Right),
            ("WINDOWS", Right),
            ("PAGES/s", Right),
            ("WORK", Right),
            ("FROM–TO", Right),
        ];
        out.push_str(&format::table(&columns, figures.iter().map(exchanged), width));
    }
    if report.is_quick {
        out.push_str("\nquick figures are too few to mean anything\n");
    }
    out
}

fn mib(bytes: f64) -> String {
    match bytes {
        0.0 => "0".to_owned(),
        _ => figure(bytes / Bytes::mib(1).get() as f64),
    }
}

fn rate(it: &rates::Figure) -> Vec<String> {
    if it.runs == 0 {
        let unknown = || "?".to_owned();
        return vec![it.mechanism.to_owned(), "0".to_owned(), unknown(), unknown(), unknown()];
    }
    vec![
        it.mechanism.to_owned(),
        it.runs.to_string(),
        format::size(it.bytes),
        mib(it.bytes_per_s.median),
        mib(it.bytes_per_s.worst),
    ]
}

fn help(it: &assist::Figure) -> Vec<String> {
    let seconds = |s: f64| format!("{s:.2} s");
    vec![
        it.content.name().to_owned(),
        it.help.name().to_owned(),
        it.runs.to_string(),
        seconds(it.help_s),
        seconds(it.balloon_s),
        seconds(it.total_s),
        format!("{:.2}–{:.2}", it.least_s, it.most_s),
        it.gain_percent.map_or_else(String::new, |gain| format!("{gain:+.1} %")),
    ]
}

fn exchanged(it: &exchange::Figure) -> Vec<String> {
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    vec![
        it.asked_bytes_per_s.map_or_else(|| "most".to_owned(), |bytes| mib(bytes as f64)),
        mib(it.moved_bytes_per_s),
        it.windows.to_string(),
        figure(it.touches_per_s),
        format!("{} %", percent(it.work)),
        format!("{}–{}", percent(it.work_least), percent(it.work_most)),
    ]
}

#[cfg(test)]
mod tests {
    use ballast_lab::Accel;
    use expect_test::expect;

    use super::*;
    use crate::bench::timing::Spread;

    /// The form for people and that of docs/json.md, of figures made by hand.
    #[test]
    fn every_table_has_its_figures() {
        let mib = |n: u64| Bytes::mib(n).get();
        let rate = |mechanism, runs, not_measured| rates::Figure {
            mechanism,
            runs,
            bytes: mib(512),
            bytes_per_s: Spread { median: 1.5 * mib(1024) as f64, worst: mib(256) as f64 },
            not_measured,
        };
        let help = |help, total_s, gain_percent| assist::Figure {
            content: assist::Content::PageCache,
            help,
            runs: 3,
            taken_bytes: mib(512),
            help_s: 0.25,
            balloon_s: total_s - 0.25,
            total_s,
            least_s: 0.9 * total_s,
            most_s: 2.0 * total_s,
            gain_percent,
        };
        let exchange = |asked, work| exchange::Figure {
            asked_bytes_per_s: asked,
            windows: 3,
            moved_bytes_per_s: mib(400) as f64,
            touches_per_s: 250_000.0 * work,
            work,
            work_least: work - 0.125,
            work_most: work + 0.0625,
        };
        let report = Report {
            version: "0.1.0",
            processor: None,
            is_quick: true,
            accel: Some(Accel::Tcg),
            rates: Some(vec![
                rate("balloon, inflating", 3, None),
                rate("pages, out", 0, Some("the host has no swap".to_owned())),
            ]),
            help: Some(vec![
                help(assist::Help::None, 3.0, None),
                help(assist::Help::Dropped, 2.0, Some(50.0)),
            ]),
            exchange: Some(vec![exchange(Some(mib(400)), 0.875), exchange(None, 0.5)]),
        };
        expect![[r#"
            processor  unknown
            figures    ballast 0.1.0
            guests     tcg

            how fast memory is moved: the median of the runs, and the slowest
            MECHANISM           RUNS   MOVED  MiB/s  SLOWEST
            balloon, inflating     3  512MiB   1536      256
            pages, out             0       ?      ?        ?
            pages were not moved: the host has no swap

            to inflate a balloon by 512MiB in a guest that is full: medians
            FULL OF     HELP BEFORE         RUNS    HELP  BALLOON    BOTH    FROM–TO     GAIN
            page cache  none                   3  0.25 s   2.75 s  3.00 s  2.70–6.00
            page cache  dropped, compacted     3  0.25 s   1.75 s  2.00 s  1.80–4.00  +50.0 %
            flexmemd's own driver gained 51.5 % on average; a stock kernel's cannot be changed

            work while memory is moved in and out, against that at rest: medians
            ASKED MiB/s  MOVED MiB/s  WINDOWS  PAGES/s    WORK    FROM–TO
                    400          400        3   218750  87.5 %  75.0–93.8
                   most          400        3   125000  50.0 %  37.5–56.2

            quick figures are too few to mean anything
        "#]]
        .assert_eq(&render(&report, None));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["accel"], "tcg");
        assert_eq!(json["help"][1]["help"], "dropped");
        assert_eq!(json["exchange"][1]["asked_bytes_per_s"], serde_json::Value::Null);
    }
}
