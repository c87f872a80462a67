//! The figures of mechanisms as text.

use ballast_lab_host::Accel;
use ballast_model::Bytes;
use ballast_report::{Report, format};
use serde::Serialize;

use super::{assist, exchange, rates};
use crate::scaffold::{Text, VERSION};
use crate::shown::figure;

/// All figures of one run; tables that were not requested are `None`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MechanismFindings {
    pub(super) processor: Option<String>,
    pub(super) is_quick: bool,
    /// How guests execute on this machine.
    pub(super) accel: Option<Accel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rates: Option<Vec<rates::Figure>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) help: Option<Vec<assist::Figure>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exchange: Option<Vec<exchange::Figure>>,
}

/// The figures as text, with tables wrapped to `width` columns if given.
pub(super) fn render(found: &MechanismFindings, width: Option<u16>) -> String {
    let mut text = Text::new(width);
    let processor = found.processor.as_deref().unwrap_or("unknown");
    text.line(format_args!("processor  {processor}\nfigures    ballast {VERSION}"));
    if let Some(accel) = found.accel {
        text.line(format_args!("guests     {accel}"));
    }
    if let Some(figures) = &found.rates {
        text.line("\nhow fast memory is moved: the median of the runs, and the slowest");
        let known = |it: &rates::Figure, text: String| match it.runs {
            0 => format::UNKNOWN.to_owned(),
            _ => text,
        };
        let columns = Report::<rates::Figure>::new()
            .text("MECHANISM", |it| it.mechanism)
            .figure("RUNS", |it| it.runs)
            .figure("MOVED", |it| known(it, format::size(it.bytes)))
            .figure("MiB/s", |it| known(it, mib(it.bytes_per_s.median)))
            .figure("SLOWEST", |it| known(it, mib(it.bytes_per_s.worst)));
        text.table(&columns, figures);
        if let Some(why) = figures.iter().find_map(|it| it.not_measured.as_deref()) {
            text.line(format_args!("pages were not moved: {why}"));
        }
    }
    if let Some(figures) = &found.help {
        let taken = format::size(figures.first().map_or(0, |it| it.taken_bytes));
        text.line(format_args!(
            "\nto inflate a balloon by {taken} in a guest that is full: medians"
        ));
        let seconds = |s: f64| format!("{s:.2} s");
        let gain = |it: &assist::Figure| it.gain_percent.map(|gain| format!("{gain:+.1} %"));
        let columns = Report::<assist::Figure>::new()
            .text("FULL OF", |it| it.content.name())
            .text("HELP BEFORE", |it| it.help.name())
            .figure("RUNS", |it| it.runs)
            .figure("HELP", |it| seconds(it.help_s))
            .figure("BALLOON", |it| seconds(it.balloon_s))
            .figure("BOTH", |it| seconds(it.total_s))
            .figure("FROM–TO", |it| format!("{:.2}–{:.2}", it.least_s, it.most_s))
            .figure("GAIN", |it| gain(it).unwrap_or_default());
        text.table(&columns, figures);
        text.line(
            "flexmemd's own driver gained 51.5 % on average; a stock kernel's cannot be changed",
        );
    }
    if let Some(figures) = &found.exchange {
        text.line("\nwork while memory is moved in and out, against that at rest: medians");
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let asked =
            |bytes: Option<u64>| bytes.map_or_else(|| "most".to_owned(), |it| mib(it as f64));
        let columns = Report::<exchange::Figure>::new()
            .figure("ASKED MiB/s", |it| asked(it.asked_bytes_per_s))
            .figure("MOVED MiB/s", |it| mib(it.moved_bytes_per_s))
            .figure("WINDOWS", |it| it.windows)
            .figure("PAGES/s", |it| figure(it.touches_per_s))
            .figure("WORK", |it| format!("{} %", percent(it.work)))
            .figure("FROM–TO", |it| {
                format!("{}–{}", percent(it.work_least), percent(it.work_most))
            });
        text.table(&columns, figures);
    }
    if found.is_quick {
        text.line("\nquick figures are too few to mean anything");
    }
    text.finish()
}

fn mib(bytes: f64) -> String {
    match bytes {
        0.0 => "0".to_owned(),
        _ => figure(bytes / Bytes::mib(1).get() as f64),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::timing::Spread;

    /// The text and the JSON, for figures made by hand.
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
        let report = MechanismFindings {
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
            figures    ballast VERSION
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
        .assert_eq(&render(&report, None).replace(VERSION, "VERSION"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["accel"], "tcg");
        assert_eq!(json["help"][1]["help"], "dropped");
        assert_eq!(json["exchange"][1]["asked_bytes_per_s"], serde_json::Value::Null);
    }
}
